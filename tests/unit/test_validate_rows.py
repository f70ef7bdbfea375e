"""Measurements in files: what is read, what is written, and what is said of a cell that is wrong."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windtunnel.app import calibrate as calibrate_command
from windtunnel.app import validate as validating
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.validation import Conditions, ConditionsSeen, Environment
from windtunnel.report.validation import text
from windtunnel.validation.rows import Measurement, MeasurementDocument, read_file, write_rows


def document(measurements: list[Measurement], environment: Environment) -> dict[str, Any]:
    return MeasurementDocument(environment=environment, measurements=measurements).to_dict()


def table(tmp_path: Path, text: str, name: str = "rows.csv") -> Path:
    """A file of these lines."""
    path = tmp_path / name
    raw = "\n".join(line.strip() for line in text.strip().splitlines()).encode() + b"\n"
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


FULL = Measurement(
    device="host@opencl",
    source="opencl:0",
    op="copy",
    columns=OPERATIONS.find("copy").complete({"bytes": 4096, "direction": "h2d", "cache": "warm"}),
    latency_s=1.25e-5,
    low_s=1.2e-5,
    high_s=1.3e-5,
    samples=31,
    repeats=(1.25e-5, 1.31e-5, 1.19e-5),
    power_w=61.5,
    timer="device",
    note='PoCL 6, "basic", kernel; one thread',
    suspect="the clock fell",
    error_over_tolerance=0.125,
)
BARE = Measurement("host@opencl", "opencl:0", "copy", {**FULL.columns, "bytes": 8192.0}, 2.5e-5)


def test_what_is_written_is_read_back_whole(tmp_path: Path) -> None:
    path = tmp_path / "copy.csv.gz"
    write_rows(path, [FULL, BARE])
    assert read_file(path) == [replace(FULL, line=2), replace(BARE, line=3)]


def test_a_document_has_the_rows_and_their_environment(tmp_path: Path) -> None:
    about = Environment(
        "Zen 4", "PoCL 6.0", {"pyopencl": "2025.1"}, {"core": 3.1e9}, "2026-11-22", "windtunnel validate",
        {"cuda:0": ConditionsSeen(begin=Conditions(temperature_c=41.0), highest=Conditions(held_back=["power cap"]))},
    )  # fmt: skip
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document([FULL, BARE], about)))
    assert read_file(path) == [FULL, BARE]
    assert json.loads(path.read_text())["environment"] == {
        "host": "Zen 4",
        "driver": "PoCL 6.0",
        "versions": {"pyopencl": "2025.1"},
        "clocks": {"core": 3.1e9},
        "date": "2026-11-22",
        "command": "windtunnel validate",
        "conditions": {
            "cuda:0": {
                "begin": {"temperature_c": 41.0},
                "end": {},
                "lowest": {},
                "highest": {"held_back": ["power cap"]},
            }
        },
    }


def test_columns_that_no_row_fills_are_left_out_and_one_operation_makes_a_file(tmp_path: Path) -> None:
    write_rows(tmp_path / "copy.csv", [BARE])
    header = (tmp_path / "copy.csv").read_text().splitlines()[0].split(",")
    own = [column.name for column in OPERATIONS.find("copy").all_columns()]
    assert header == ["device", "source", "op", *own, "latency_s", "samples"]
    other = replace(BARE, op="launch", columns=OPERATIONS.find("launch").complete({}))
    with pytest.raises(ValueError, match="one operation"):
        write_rows(tmp_path / "both.csv", [BARE, other])


def test_a_written_file_is_what_calibrate_reads(tmp_path: Path) -> None:
    op = OPERATIONS.find("vector_add")
    rows = [
        Measurement("l4", "a test", "vector_add", op.complete({"n": n}), 5e-6 + n / 2e10, repeats=(1e-5, 2e-5))
        for n in (10**i * j for i in range(3, 8) for j in (1, 3))
    ]
    path = tmp_path / "vector_add.csv"
    write_rows(path, [replace(row, power_w=50.0) if i else row for i, row in enumerate(rows)])
    found = calibrate_command.calibrate("vector_add", path, "l4", out=tmp_path / "l4.yaml")
    assert found.rows == len(rows)
    assert (tmp_path / "l4.yaml").exists()


def test_operations_of_one_file_are_told_apart_by_their_column(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        """op,sku,n,bytes,direction,latency_s
        vector_add,l4,1000,,,1e-5
        copy,t4,,4096,h2d,2e-5
        vector_add,l4,2000,,,3e-5""",
    )
    assert [(row.op, row.device, row.line) for row in read_file(path)] == [
        ("vector_add", "l4", 2),
        ("vector_add", "l4", 4),
        ("copy", "t4", 3),
    ]
    assert [row.latency_s for row in read_file(path, op="copy")] == [2e-5]


def test_defaults_are_filled_in_and_the_context_may_be_given_beside_the_file(tmp_path: Path) -> None:
    path = table(tmp_path, "device,n,clock,latency_s\nl4,1000,sustained,1e-5", "rows.csv.gz")
    (row,) = read_file(path, op="vector_add", context={"dispatch": "eager"})
    assert row.columns == {
        "n": 1000.0,
        "dtype": "float32",
        "dispatch": "eager",
        "clock": "sustained",
        "cache": "cold",
    }


def test_the_files_of_the_published_measurements_are_taken_as_they_are(tmp_path: Path) -> None:
    # The first lines of gemm.csv.gz, attention.csv.gz and elementwise.csv.gz: ai-dynamo/aiconfigurator@095f58a
    # (Apache-2.0), sitar-lab/NeuSight@6945927 (MIT).
    gemm = table(
        tmp_path,
        """sku,dtype,clock,m,n,k,latency_s,power_w,framework
        a100-sxm-80gb,bfloat16,burst,14,65536,7168,0.000620668,,sglang 0.5.10
        a100-sxm-80gb,bfloat16,burst,3585,4096,12288,0.00154278,,sglang 0.5.10""",
        "gemm.csv.gz",
    )
    (one, _) = validating.read(gemm, op="gemm")
    assert (one.device, one.source, one.latency_s, one.power_w) == (
        "a100-sxm-80gb",
        "gemm.csv.gz",
        0.000620668,
        None,
    )
    attention = table(
        tmp_path,
        """sku,phase,dtype,kv_dtype,batch,heads,kv_heads,head_dim,kv_tokens,latency_s,framework
        a100-sxm-80gb,prefill,bfloat16,bfloat16,4,64,4,128,16384,0.0975097,vllm 0.14.0""",
        "attention.csv.gz",
    )
    assert validating.read(attention, op="attention")[0].columns["kv_tokens"] == 16384.0
    elementwise = table(
        tmp_path,
        """device,op,dtype,rows,width,latency_s
        AMD Instinct MI100,mulu,float32,58,13,1.872e-05
        NVIDIA A100-PCIE-40GB,softmax,float32,141,126,2.0064e-05
        Tesla P4,add,float32,141,126,2.0064e-05""",
        "elementwise.csv.gz",
    )
    with pytest.raises(InputError, match=r"elementwise\.csv\.gz:1: op: the column 'op' is that of elementwise itself"):
        validating.read(elementwise)
    rows = validating.read(elementwise, op="elementwise", context={"dispatch": "eager"})
    assert [row.device for row in rows] == ["mi100", "a100-pcie-40gb", "p4"]
    assert rows[0].source == "AMD Instinct MI100 in elementwise.csv.gz"
    assert rows[0].columns["op"] == "mulu"
    assert [row.device for row in validating.read(elementwise, op="elementwise", device="Tesla P4")] == ["p4"]
    assert [row.device for row in validating.read(elementwise, op="elementwise", device="p4")] == ["p4"]


def test_elementwise_rows_are_written_and_read_though_they_have_a_column_op(tmp_path: Path) -> None:
    columns = OPERATIONS.find("elementwise").complete({"op": "gelu", "rows": 64, "width": 512})
    row = Measurement("t4", "a test", "elementwise", columns, 2e-5)
    write_rows(tmp_path / "elementwise.csv", [row])
    assert read_file(tmp_path / "elementwise.csv", op="elementwise") == [replace(row, line=2)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n,latency_s\n1,1e-5", ":1: the device is not stated; expected --device SKU"),
        ("sku,n\nl4,1", ":1: the table has no column 'latency_s'"),
        ("sku,n,latency\nl4,1,1", "(it has a column 'latency')"),
        ("sku,m,latency_s\nl4,1,1e-5", ":1: the table has no column 'n', which vector_add needs"),
        ("sku,n,latency_s\nl4,1,fast", ":2: latency_s: this is 'fast'; expected a plain number in SI"),
        ("sku,n,latency_s\nl4,1,1e-5\nl4,1.5,1e-5", ":3: n: n is 1.5; expected a whole number"),
        ("sku,n,dtype,latency_s\nl4,1,flaot32,1e-5", ":2: dtype: 'flaot32' is not a valid dtype"),
        ("sku,n,dtype,latency_s\nl4,1,flaot32,1e-5", "did you mean 'float32'?"),
        ("sku,n,latency_s,samples\nl4,1,1e-5,2.5", ":2: samples: this is '2.5'; expected a whole number from 1"),
        (
            "sku,n,latency_s,repeats\nl4,1,1e-5,1e-5 2e-5",
            ":2: repeats: this is '1e-5 2e-5'; expected seconds separated",
        ),
        ("sku,n,latency_s,repeats\nl4,1,1e-5,1e-5;-1", ":2: repeats: this is '1e-5;-1'"),
        (
            "sku,n,latency_s,error_over_tolerance\nl4,1,1e-5,-1",
            ":2: error_over_tolerance: this is '-1'; expected 0 or more",
        ),
        ("sku,n,latency_s,low_s,high_s\nl4,1,1e-5,2e-5,3e-5", ":2: low_s: the interval is 2e-05 to 3e-05"),
        ("sku,n,latency_s,low_s,high_s\nl4,1,9e-5,2e-5,3e-5", ":2: high_s: the interval is 2e-05 to 3e-05"),
        ("sku,n,latency_s\n,1,1e-5", ":2: sku: this row does not name its device"),
        ("sku,n,latency_s\nl44,1,1e-5", ":2: device: 'l44' is not a device of the catalogue"),
        ("sku,n,latency_s\nl44,1,1e-5", "did you mean 'l4'?"),
        ("sku,n,latency_s\nl4@cude,1,1e-5", ":2: device: unknown API 'cude' in 'l4@cude'"),
        ("sku,n,latency_s", ": there is no measurement; expected a header and rows"),
    ],
)
def test_a_slip_is_named_with_its_place_and_what_was_expected(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        validating.read(table(tmp_path, text), op="vector_add")
    assert "rows.csv" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n,sku,latency_s\n1,l4,1e-5", "rows.csv:1: the operation is not stated; expected --op"),
        ("op,n,sku,latency_s\nvector_ad,1,l4,1e-5", "rows.csv:2: op: unknown operation 'vector_ad'"),
        ("op,n,sku,latency_s\nvector_ad,1,l4,1e-5", "did you mean 'vector_add'?"),
        (
            "op,n,sku,latency_s\nvector_add,1,l4,1e-5\nelementwise,1,l4,1e-5",
            "rows.csv:3: op: elementwise has its own column",
        ),
    ],
)
def test_a_file_that_does_not_say_what_was_measured_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_file(table(tmp_path, text))
    assert said in str(caught.value)


def test_the_context_is_not_given_twice_and_not_misspelt(tmp_path: Path) -> None:
    path = table(tmp_path, "sku,n,clock,latency_s\nl4,1,burst,1e-5")
    for context, said in (
        ({"clock": "burst"}, "has a column 'clock'"),
        ({"dispach": "eager"}, "did you mean 'dispatch'?"),
        ({"cache": "hot"}, "'hot' is not a valid cache"),
    ):
        with pytest.raises(InputError, match=said.replace("?", r"\?")) as caught:
            read_file(path, op="vector_add", context=context)
        assert "--context" in str(caught.value)


def test_a_device_is_taken_by_its_name_alone_never_by_likeness(tmp_path: Path) -> None:
    path = table(tmp_path, "device,n,latency_s\nopencl:0,1,1e-5\nl4,1,2e-5")
    with pytest.raises(InputError, match="'opencl:0' is not a device of the catalogue"):
        validating.read(path, op="vector_add")
    (row,) = validating.read(path, op="vector_add", device="opencl:0", model="host@opencl")
    assert (row.device, row.source, row.latency_s) == ("host@opencl", "opencl:0 in rows.csv", 1e-5)
    with pytest.raises(InputError, match="--as: rows of 2 devices would be compared with one model"):
        validating.read(path, op="vector_add", model="host@opencl")
    with pytest.raises(InputError, match=r"--device: no row is of 'opencl:1'.*did you mean 'opencl:0'\?"):
        validating.read(path, op="vector_add", device="opencl:1", model="host@opencl")
    with pytest.raises(InputError, match="unknown device 'hots'"):
        validating.read(path, op="vector_add", device="l4", model="hots")


def test_a_file_of_no_device_is_of_the_one_that_is_named(tmp_path: Path) -> None:
    path = table(tmp_path, "n,latency_s\n1,1e-5")
    assert validating.read(path, op="vector_add", device="l4")[0].device == "l4"
    (row,) = validating.read(path, op="vector_add", device="cuda:0", model="l4")
    assert (row.device, row.source) == ("l4", "cuda:0 in rows.csv")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"latency_s": "fast"},
            "measurements[0].latency_s: 'latency_s' is missing or has a wrong type; expected seconds",
        ),
        ({"latency_s": 0.0}, "measurements[0].latency_s: this is 0.0"),
        ({"op": "copi"}, "measurements[0].columns: unknown operation 'copi'"),
        ({"columns": {"bytes": 1}}, "measurements[0].columns: copy needs 'direction'"),
        ({"repeats": [0]}, "measurements[0].repeats: this is [0]; expected a list of seconds"),
        ({"laten_s": 1}, "measurements[0].laten_s: a measurement has no 'laten_s'"),
        ({"suspect": ["hot"]}, "measurements[0].suspect: this is ['hot']; expected text"),
        ({"line": "2"}, "measurements[0].line: this is '2'"),
        ({"power_w": float("nan")}, "measurements[0].power_w: this is nan"),
        ({"samples": True}, "measurements[0].samples: this is True"),
    ],
)
def test_a_slip_in_a_document_is_named(change: dict[str, object], said: str, tmp_path: Path) -> None:
    data = document([FULL], Environment())
    data["measurements"][0] |= change
    (tmp_path / "rows.json").write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        read_file(tmp_path / "rows.json")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2, "measurements": []}', "[" * 100_000])
def test_what_is_no_document_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(InputError, match=r"rows\.json"):
        read_file(tmp_path / "rows.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            """op,device,n,latency_s,dispach
            vector_add,l4,1000000,1e-5,eager""",
            r"rows.csv:1: dispach: 'dispach' is not a column of vector_add; .*did you mean 'dispatch'",
        ),
        (
            """op,device,n,latency_s,cahce
            vector_add,l4,1000000,1e-5,warm""",
            "did you mean 'cache'",
        ),
        (
            """op,device,sku,n,latency_s
            vector_add,h100-sxm-80gb,l4,1000000,1e-5""",
            r"rows.csv:2: device: the row is of 'l4' by its sku and of 'h100-sxm-80gb' by its device; expected one device",
        ),
        (
            f"""op,device,n,latency_s,samples
            vector_add,l4,1000000,1e-5,{"9" * 5000}""",
            "expected a whole number from 1",
        ),
    ],
)
def test_a_row_that_could_be_read_in_two_ways_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_file(table(tmp_path, text))


def test_a_document_may_begin_with_a_mark_of_its_byte_order_and_holds_intervals_around_medians(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    held = document([FULL], Environment())
    path.write_text(json.dumps(held), encoding="utf-8-sig")
    assert read_file(path) == [FULL]
    held["measurements"][0]["low_s"] = 5.0
    path.write_text(json.dumps(held))
    with pytest.raises(InputError, match=r"measurements\[0\].low_s: the interval is 5.0 to 1.3e-05 and the median"):
        read_file(path)


def test_what_a_file_says_reaches_the_terminal_without_its_control_codes(tmp_path: Path) -> None:
    row = replace(BARE, suspect="\x1b]0;owned\x07 hot", source="a\x1b[31mb")
    results, _ = validating.judged([row, replace(BARE, source="a\x1b[31mb")], Environment())
    assert "\x1b" not in text(results) and "\x07" not in text(results)


def test_a_cell_that_a_spreadsheet_would_mangle_survives(tmp_path: Path) -> None:
    row = replace(FULL, note='=1+1,\n"two lines"; it\'s', suspect="a\tb")
    write_rows(tmp_path / "copy.csv", [row])
    with (tmp_path / "copy.csv").open(newline="") as file:
        assert next(iter(csv.DictReader(file)))["note"] == row.note
    assert read_file(tmp_path / "copy.csv")[0].note == row.note


def test_a_column_under_its_former_name_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sku,n,latency_s,error_share\nl4,1,1e-5,0.25\n")
    (row,) = read_file(path, op="vector_add")
    assert row.error_over_tolerance == 0.25
    data = document([replace(row, line=None)], Environment())
    data["measurements"][0]["error_share"] = data["measurements"][0].pop("error_over_tolerance")
    (tmp_path / "rows.json").write_text(json.dumps(data))
    assert read_file(tmp_path / "rows.json")[0].error_over_tolerance == 0.25
