"""What outside scripts rely on: names, columns, exit codes, standard output, determinism."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.app.predict import predict_table
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.data import to_data
from windtunnel_models.catalogue import Catalogue, device_model

ROOT = Path(__file__).resolve().parents[2]
SKUS = [
    "h200-sxm-141gb",
    "h100-sxm-80gb",
    "a100-sxm-80gb",
    "a100-sxm-40gb",
    "a100-pcie-80gb",
    "a100-pcie-40gb",
    "a10",
    "l40s",
    "l4",
    "t4",
    "v100-sxm-32gb",
    "v100-sxm-16gb",
    "v100-pcie-32gb",
    "p100-pcie-16gb",
    "p4",
    "rtx-4090",
    "rtx-6000-ada",
    "rtx-pro-6000-server",
    "b200-sxm-180gb",
    "gb200",
    "mi100",
    "mi210",
    "mi250x",
    "mi300x",
    "arc-a770",
    "arc-b580",
    "arc-pro-b60",
    "apple-m1",
    "apple-m1-pro",
    "apple-m2-ultra",
    "apple-m4-max",
    "alveo-u50",
    "alveo-u250",
    "alveo-u280",
    "stratix10-520n",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "qat-8950",
    "qat-8970",
    "qat-4xxx",
    "bluefield-2",
    "bluefield-3",
    "pensando-elba",
    "epyc-9654",
    "host",
    "server",
]
RUNS = {
    "gemm": "gpu tpu fpga cpu",
    "attention": "gpu tpu cpu",
    "elementwise": "gpu tpu cpu",
    "vector_add": "gpu fpga cpu",
    "stencil": "gpu fpga cpu",
    "fft": "gpu fpga cpu",
    "copy": "gpu fpga tpu qat dpu cpu",
    "launch": "gpu fpga tpu qat dpu cpu",
    "aes": "qat gpu cpu dpu",
    "compress": "qat dpu cpu",
    "decompress": "qat dpu cpu",
    "sign": "qat dpu cpu",
    "packets": "dpu cpu",
    "rdma": "dpu",
    "storage": "dpu cpu",
    "service": "gpu fpga tpu qat dpu cpu server",
}
EXAMPLE: dict[str, dict[str, Any]] = {
    "kernel": {"threads": 1000, "bytes": 12000, "flops": "1 kFLOP"},
    "gemm": {"m": 512, "n": 512, "k": 512, "dtype": "float32"},
    "attention": {
        "phase": "decode",
        "batch": 4,
        "heads": 8,
        "kv_heads": 8,
        "head_dim": 64,
        "kv_tokens": 512,
        "dtype": "float16",
    },
    "elementwise": {"op": "gelu", "rows": 512, "width": 512},
    "vector_add": {"n": 4096},
    "stencil": {"nx": 64, "ny": 64, "nz": 64},
    "fft": {"n": 1024, "batch": 4},
    "copy": {"bytes": 65536, "direction": "h2d"},
    "launch": {"mode": "stream"},
    "all_reduce": {"bytes": 65536, "workers": 4},
    "all_gather": {"bytes": 65536, "workers": 4},
    "reduce_scatter": {"bytes": 65536, "workers": 4},
    "all_to_all": {"bytes": 65536, "workers": 4},
    "send_recv": {"bytes": 65536, "workers": 2},
    "aes": {"bytes": 16384},
    "compress": {"bytes": 65536},
    "decompress": {"bytes": 65536},
    "sign": {"scheme": "rsa2048"},
    "packets": {"count": 100, "bytes": 64},
    "rdma": {"bytes": 4096},
    "storage": {},
    "service": {"distribution": "exponential", "mean": "1 ms"},
}


Command = Callable[..., subprocess.CompletedProcess[str]]


def test_devices_lists_every_sku_with_its_kind_and_api(windtunnel_command: Command) -> None:
    rows = json.loads(windtunnel_command("devices", "--format", "json").stdout)
    assert set(SKUS) <= {row["sku"] for row in rows}
    assert all({"sku", "kind", "api", "vendor", "provenance"} <= set(row) for row in rows)
    assert {row["kind"] for row in rows} >= {"gpu", "fpga", "tpu", "qat", "dpu", "cpu", "server"}


def test_ops_lists_every_operation_with_the_kinds_that_run_it(windtunnel_command: Command) -> None:
    found = {op["op"]: op for op in json.loads(windtunnel_command("ops", "--format", "json").stdout)}
    assert set(found) >= set(EXAMPLE)
    for op, kinds in RUNS.items():
        assert set(kinds.split()) <= set(found[op]["kinds"]), op
    assert [c["name"] for c in found["gemm"]["columns"]] == [
        "m",
        "n",
        "k",
        "dtype",
        "batch",
        "activations",
        "dispatch",
        "clock",
        "cache",
    ]


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue()


@pytest.mark.parametrize("op", EXAMPLE)
def test_every_device_answers_the_operations_of_its_kind_and_refuses_the_others_by_name(
    op: str, catalogue: Catalogue
) -> None:
    answered = 0
    for sku in SKUS:
        device = catalogue.device(sku)
        values = dict(EXAMPLE[op])
        if device.kind.name == "tpu" and op in ("gemm", "attention"):
            values["dtype"] = "bfloat16"
        if op in ("all_reduce", "send_recv") and not device.runs(op):
            continue
        if not device.runs(op):
            with pytest.raises(InputError, match=f"does not run {op}"):
                windtunnel.predict(op, sku, values, catalogue=catalogue)
            continue
        cost = windtunnel.predict(op, sku, values, catalogue=catalogue)
        answered += 1
        assert set(cost.to_dict()) == {
            "duration_s",
            "duration_low_s",
            "duration_high_s",
            "power_w",
            "energy_j",
            "bound",
            "provenance",
        }
        assert 0 < cost.duration_low_s <= cost.duration_s <= cost.duration_high_s < np.inf, sku
        assert cost.power_w >= 0
        assert cost.energy_j == pytest.approx(cost.duration_s * cost.power_w)
        assert cost.provenance in ("measured", "published", "datasheet", "assumed")
    assert answered >= len({s for s in SKUS if catalogue.spec(s).kind in RUNS.get(op, "gpu").split()})


def test_predict_tells_the_devices_own_time_from_the_hosts(windtunnel_command: Command) -> None:
    small = ("predict", "elementwise", "--device", "l4", "op=add", "rows=64", "width=64")
    alone = json.loads(windtunnel_command(*small, "--format", "json").stdout)
    eager = json.loads(windtunnel_command(*small, "dispatch=eager", "--format", "json").stdout)
    assert "device_duration_s" not in alone
    assert eager["device_duration_s"] == alone["duration_s"] < 5e-6
    assert eager["duration_s"] > 15e-6
    shown = windtunnel_command(*small, "dispatch=eager").stdout
    assert re.search(r"^  device   \S+ µs; the other \S+ µs belong to the host and its software$", shown, re.MULTILINE)


def test_predict_prints_one_json_document(windtunnel_command: Command) -> None:
    done = windtunnel_command(
        "predict",
        "gemm",
        "--device",
        "h100-sxm-80gb",
        "m=4096",
        "n=4096",
        "k=4096",
        "dtype=bfloat16",
        "--format",
        "json",
    )
    cost = json.loads(done.stdout)
    assert 50e-6 < cost["duration_s"] < 1e-3
    assert cost["bound"] == "compute"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["predict", "gem", "--device", "l4"], "did you mean 'gemm'?"),
        (["predict", "gemm", "--device", "l5", "m=1", "n=1", "k=1", "dtype=float32"], "did you mean 'l4'?"),
        (["predict", "gemm", "--device", "l4", "m=1", "n=1", "dtype=float32"], "gemm needs 'k'"),
        (["predict", "gemm", "--device", "l4", "m=1", "m=2"], "'m' is given twice"),
        (["predict", "gemm", "--device", "l4", "m"], "is not KEY=VALUE"),
        (["predict", "sign", "--device", "l4"], "l4 is a gpu, which does not run sign"),
        (["predict", "copy", "--device", "l4", "bytes=1 W", "direction=h2d"], "measured in 'W'"),
        (["predict", "gemm", "--device", "t4", "m=1", "n=1", "k=1", "dtype=fp8"], "does not run"),
        (["run", "scenarios/mm46.yaml"], "did you mean 'mm64.yaml'?"),
        (["run", "scenarios"], "is a folder, not a regular file"),
        (["advise", "--for", "ml trainin"], "did you mean 'ml training'?"),
        (["run", "scenarios/mm64.yaml", "--engine", "compield"], "expected auto, process or compiled"),
        (["devices", "--catalog", "nowhere"], "there is no catalogue folder 'nowhere'"),
    ],
)  # fmt: skip
def test_wrong_words_exit_2_with_one_line_on_standard_error(
    arguments: list[str], says: str, windtunnel_command: Command
) -> None:
    done = windtunnel_command(*arguments, expect=2)
    assert says in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_table_keeps_its_rows_order_and_columns(tmp_path: Path, windtunnel_command: Command) -> None:
    table = tmp_path / "in.csv"
    table.write_text('note,m,n,k,dtype\nfirst,64,64,64,float16\n"a, b",128,64,64,bfloat16\nlast,64,64,64,float16\n')
    windtunnel_command(
        "predict", "gemm", "--device", "a100-sxm-80gb", "--table", table, "--out", tmp_path / "out.csv.gz"
    )
    with gzip.open(tmp_path / "out.csv.gz", "rt", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["note"] for row in rows] == ["first", "a, b", "last"]
    assert list(rows[0]) == [
        "note",
        "m",
        "n",
        "k",
        "dtype",
        "duration_s",
        "duration_low_s",
        "duration_high_s",
        "power_w",
        "energy_j",
        "bound",
        "provenance",
    ]
    assert rows[0]["duration_s"] == rows[2]["duration_s"] != rows[1]["duration_s"]
    one = windtunnel.predict("gemm", "a100-sxm-80gb", {"m": 128, "n": 64, "k": 64, "dtype": "bfloat16"})
    assert float(rows[1]["duration_s"]) == one.duration_s


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("m,n,k\n1,1,1\n", "the table has no column 'dtype'"),
        (
            "m,n,k,dtpye\n1,1,1,float16\n",
            "(it has a column 'dtpye'); expected one of m, n, k, dtype, batch, activations; did you mean 'dtype'?",
        ),
        ("m,n,k,dtype\n1,1,1,float16\n1,x,1,float16\n", "in.csv:3: n: n is 'x'; expected a number"),
        ("m,n,k,dtype\n1,1,1,floaty\n", "in.csv:2: dtype"),
        ("m,n,k,dtype\n1,1,1\n", "in.csv:2: this row has 3 cells; expected 4"),
        (
            "m,n,k,dtype\n1,1,1\n1,1,1,int8\n1\n1,1,1,1,1\n",
            "in.csv:2: this row has 3 cells; lines 4, 5 have a wrong number too; expected 4",
        ),
        ("m,n,k,dtype,power_w,power_w_given\n1,1,1,float16,2,3\n", "would have two columns 'power_w_given'"),
        ("", "this table is empty"),
    ],
)
def test_a_broken_table_is_named_and_leaves_no_output(
    text: str, says: str, tmp_path: Path, windtunnel_command: Command
) -> None:
    (tmp_path / "in.csv").write_text(text)
    done = windtunnel_command(
        "predict", "gemm", "--device", "l4", "--table", tmp_path / "in.csv", "--out", tmp_path / "o.csv", expect=2
    )
    assert says in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_a_table_is_never_written_over_itself_nor_over_a_device(tmp_path: Path, windtunnel_command: Command) -> None:
    table = tmp_path / "in.csv"
    table.write_text("m,n,k,dtype\n64,64,64,float16\n")
    arguments = ["predict", "gemm", "--device", "l4", "--table", table, "--out"]
    assert "the output is the input table itself" in windtunnel_command(*arguments, table, expect=2).stderr
    (tmp_path / "folder").mkdir()
    assert "this is not a regular file" in windtunnel_command(*arguments, tmp_path / "folder", expect=2).stderr


def test_decimal_amounts_of_bytes_are_whole_numbers_of_them() -> None:
    assert windtunnel.predict("copy", "l4", {"bytes": "1.001 GB", "direction": "h2d"}).duration_s > 0
    with pytest.raises(InputError, match="a whole number"):
        windtunnel.predict("copy", "l4", {"bytes": "1.5 B", "direction": "h2d"})


def test_a_cost_target_is_answered_in_the_unit_it_names(windtunnel_command: Command) -> None:
    words = ["run", "scenarios/azure-code.yaml", "--set", "stop={jobs: 500}", "--set", "targets=['cost <= 12 USD/h']"]
    (answer,) = json.loads(windtunnel_command(*words, "--format", "json").stdout)["targets"]
    assert answer["unit"] == "USD/h"
    assert (answer["value"], answer["limit"]) == pytest.approx((2 * 2.99 + 2 * 1.79 + 2 * 0.80, 12.0))
    assert "11.16 USD/h" in windtunnel_command(*words).stdout


def test_a_closed_pipe_does_not_read_as_a_missed_target() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # closed before the command starts, so that no timing decides whether it sees the break
    try:
        done = subprocess.run(
            [sys.executable, "-m", "windtunnel", "ops"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            cwd=ROOT,
        )
    finally:
        os.close(write_end)
    assert done.returncode == -signal.SIGPIPE  # a shell reads it as 141
    assert done.stderr == ""


def test_an_interrupted_run_exits_130_and_leaves_nothing(tmp_path: Path) -> None:
    # The progress bar, drawn on a terminal only, shows that the run has begun.
    screen, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (24, 80))  # in one of no size nothing is drawn
    process = subprocess.Popen(
        [sys.executable, "-m", "windtunnel", "run", "scenarios/mm64.yaml", "--replications", "2000", "--out", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL, stderr=terminal, cwd=ROOT,
        # A shell ignores SIGINT in what it starts in the background, and Python then does not handle it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(terminal)
    os.read(screen, 1)
    process.send_signal(signal.SIGINT)
    process.wait()
    os.close(screen)
    assert process.returncode == 130
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_replaced_leaves_the_folder_as_it_was(
    tmp_path: Path, windtunnel_command: Command
) -> None:
    (tmp_path / "result.json").mkdir()
    windtunnel_command("run", "scenarios/mm64.yaml", "--set", "stop.jobs=100", "--out", tmp_path, expect=2)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_a_run_is_byte_identical_whatever_the_hash_seed() -> None:
    words = [sys.executable, "-m", "windtunnel", "run", "scenarios/all-kinds.yaml", "--format", "json"]
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert outputs[0] == outputs[1]
    result = json.loads(outputs[0])
    assert result["jobs"]["arrived"] == sum(v for k, v in result["jobs"].items() if k != "arrived")


def test_a_missed_target_exits_1_and_still_answers(windtunnel_command: Command) -> None:
    done = windtunnel_command(
        "run",
        "scenarios/mm64.yaml",
        "--set",
        "stop.jobs=2000",
        "--set",
        "targets[0]=latency p99 <= 1 us",
        "--format",
        "json",
        expect=1,
    )
    (target,) = json.loads(done.stdout)["targets"]
    assert target["met"] is False


def test_every_file_of_a_run_agrees_with_the_others(tmp_path: Path, windtunnel_command: Command) -> None:
    windtunnel_command("run", "scenarios/mm64.yaml", "--set", "stop.jobs=5000", "--out", tmp_path, "--seed", "9")
    result = json.loads((tmp_path / "result.json").read_text())
    with (tmp_path / "jobs.csv").open() as stream:
        jobs = list(csv.DictReader(stream))
    assert len(jobs) == result["jobs"]["completed"] == 5000
    warm = result["statistics"]["warmup_jobs"]
    assert 0 < warm < 2500
    latency = np.array([float(row["latency_s"]) for row in jobs[warm:]])
    assert np.quantile(latency, 0.99) == pytest.approx(result["latency_s"]["p99"]["value"], rel=1e-9)
    above_idle = sum(float(row["energy_j"]) for row in jobs)
    idle = sum(d["idle_power_w"] for d in result["devices"]) * result["simulated_s"]
    assert above_idle + idle == pytest.approx(result["energy_j"], rel=1e-9)
    trace = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    assert sum(event["ph"] == "X" for event in trace["traceEvents"]) == 5000
    assert "<html" in (tmp_path / "report.html").read_text()
    assert result["seed"] == 9


def test_replications_give_intervals_between_them(windtunnel_command: Command) -> None:
    done = windtunnel_command(
        "run", "scenarios/mm64.yaml", "--set", "stop.jobs=2000", "--replications", "5", "--format", "json"
    )
    result = json.loads(done.stdout)
    assert result["jobs"]["arrived"] == 10_000
    p99 = result["latency_s"]["p99"]
    assert p99["low"] < p99["value"] < p99["high"]


def test_help_starts_without_anything_heavy() -> None:
    code = (
        "import sys, contextlib\nfrom windtunnel.cli.main import main\n"
        "with contextlib.suppress(SystemExit):\n    main(['--help'])\n"
        "print([m for m in ('numpy', 'pydantic', 'simpy', 'scipy', 'yaml', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_run_of_a_fleet_imports_nothing_of_the_placement_of_tasks() -> None:
    code = "import sys, windtunnel.app.run\nprint([m for m in sys.modules if m.startswith('windtunnel.placement')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_command_inside_another_program_changes_no_signal_handler() -> None:
    from windtunnel.cli.main import main

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT)]
    with pytest.raises(SystemExit):
        main(["--version"])
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGPIPE, signal.SIGINT)] == before


def test_the_schema_is_a_json_schema_of_the_shipped_scenarios(windtunnel_command: Command) -> None:
    schema = json.loads(windtunnel_command("schema").stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"schema", "name", "fleet", "workload", "policy", "stop", "targets"} <= set(schema["properties"])
    placed = json.loads(windtunnel_command("schema", "--of", "cluster").stdout)
    assert {"schema", "name", "cluster", "workload", "policy", "mode", "targets"} <= set(placed["properties"])


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").rglob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_scenario_runs(path: Path) -> None:
    from windtunnel.scenario.changes import read_document
    from windtunnel.scenario.read import check_scenario, is_placement

    document = read_document(path)
    if is_placement(document):
        mode = document.data.get("mode")
        # Ten runs in other orders of the tasks show no more than two.
        fewer = ["mode.runs=2"] if isinstance(mode, dict) and mode.get("runs", 1) > 2 else []
        jobs = to_data(windtunnel.run(path, changes=fewer).result)["jobs"]
        assert jobs.pop("arrived") == sum(jobs.values()) > 0
        return
    data = check_scenario(document)
    # Whole, as they are shipped: an invariant may break only after many jobs. A million adds nothing to that.
    changes = ["stop={jobs: 50000}"] if data.stop is not None and (data.stop.jobs or 0) > 50_000 else []
    finished = windtunnel.run(path, changes=changes)
    assert finished.result.jobs.completed > 0
    assert set(OPERATIONS) >= {op for w in data.workload for op in w.ops[0]} - {
        "generate",
        "repeat",
        "streams",
        "branch",
    }


def test_a_measured_column_beside_its_prediction_is_kept_under_a_name_of_its_own(
    tmp_path: Path, windtunnel_command: Command
) -> None:
    (tmp_path / "in.csv").write_text("m,n,k,dtype,latency_s,power_w\n64,64,64,float16,1e-5,60\n")
    windtunnel_command(
        "predict", "gemm", "--device", "l4", "--table", tmp_path / "in.csv", "--out", tmp_path / "out.csv"
    )
    with (tmp_path / "out.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["latency_s"] == "1e-5"
    assert row["power_w_given"] == "60"
    assert float(row["power_w"]) > 0
    assert "duration_s" in row


def test_the_help_of_predict_shows_its_examples_a_line_each(windtunnel_command: Command) -> None:
    shown = windtunnel_command("predict", "--help").stdout
    assert "\\b" not in shown + windtunnel_command("advise", "--help").stdout
    assert "\n  windtunnel predict gemm --device l4 --table shapes.csv --out predicted.csv\n" in shown


def test_predict_says_that_operands_exceed_the_memory_and_answers_all_the_same(
    windtunnel_command: Command, tmp_path: Path
) -> None:
    shape = ("gemm", "--device", "l4", "m=100000", "n=1000000", "k=10000", "dtype=float16")
    said = "the operands take 222 GB and l4 has 24.0 GB of memory"
    done = windtunnel_command("predict", *shape, "--format", "json")
    assert done.returncode == 0 and said in done.stderr
    (note,) = json.loads(done.stdout)["notes"]
    assert note.startswith(said)
    table = tmp_path / "shapes.csv"
    table.write_text("m,n,k,dtype\n64,64,64,float16\n100000,1000000,10000,float16\n")
    done = windtunnel_command(
        "predict", "gemm", "--device", "l4", "--table", table, "--out", tmp_path / "o.csv", "--format", "json"
    )
    assert "line 3: the operands exceed the 24.0 GB of memory of l4" in done.stderr
    assert len(json.loads(done.stdout)["notes"]) == 1


def test_every_refused_row_of_a_table_is_named_at_once(tmp_path: Path) -> None:
    table, out = tmp_path / "shapes.csv", tmp_path / "o.csv"
    rows = ["64,64,64,float16", "0,64,64,float16", "64,64,64,flaot16", "64,64,64,flaot16", "64,64,64,nvfp4"]
    table.write_text("\n".join(["m,n,k,dtype", *rows, "64,x,64,float16", "64,64,64,nvfp4"]) + "\n")
    with pytest.raises(InputError) as caught:
        predict_table("gemm", device_model("l4", Catalogue()), table, out)
    first, *reasons = str(caught.value).splitlines()
    assert first == f"{table}: 6 of 7 rows are refused, and nothing was written:" and not out.exists()
    beginnings = ["line 3: m: m is 0; expected at least 1", "lines 4-5: dtype: 'flaot16' is not a valid dtype"]
    beginnings += [
        "lines 6, 8: l4 does not run matrix multiplications in nvfp4",
        "line 7: n: n is 'x'; expected a number",
    ]
    for reason, beginning in zip(reasons, beginnings, strict=True):
        assert reason.startswith(f"  {beginning}"), reason
    # Of rows with the same choices only those whose numbers are refused.
    table.write_text("bytes,workers\n" + "".join(f"1000,{workers}\n" for workers in range(4090, 4103)))
    with pytest.raises(InputError, match=r"6 of 13 rows are refused.*\n  lines 9-14: tpu-v4 has 4096 chips"):
        predict_table("all_reduce", device_model("tpu-v4", Catalogue()), table, out)
