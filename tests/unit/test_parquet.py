"""Tables in Parquet: they give what the same tables in CSV give, wherever a table is read or written."""

from __future__ import annotations

import csv
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import windtunnel
from windtunnel.app.predict import predict_table
from windtunnel.cli.main import cli
from windtunnel.core.csvfile import read_table, write_table
from windtunnel.core.errors import InputError, Location
from windtunnel.report.tables import COLUMNS
from windtunnel.scenario.read import scenario_from_data
from windtunnel.validation.rows import read_file
from windtunnel_models.catalogue import device_model, shipped_catalogue

SHAPES = [(256, "float32"), (4096, "float16"), (100_000, "float32")]


def both(folder: Path, name: str, columns: dict[str, list[Any]]) -> tuple[Path, Path]:
    """The same table as CSV and as Parquet, whose floating-point column of whole numbers is as pandas writes it."""
    plain, typed = folder / f"{name}.csv", folder / f"{name}.parquet"
    with plain.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    pq.write_table(pa.table(columns), typed)
    return plain, typed


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def command(*arguments: object) -> Any:
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exit_code == 0, done.output
    return done


def measurements(folder: Path) -> tuple[Path, Path]:
    n = np.unique(np.logspace(4, 8, 14).astype(int))
    return both(
        folder, "measured", {"n": n.tolist(), "dtype": ["float32"] * len(n), "latency_s": (3e-6 + 4.5e-11 * n).tolist()}
    )


def test_cells_are_the_shortest_text_and_types_come_back(tmp_path: Path) -> None:
    path, again = tmp_path / "a.parquet", tmp_path / "b.parquet"
    time = datetime(2023, 11, 16, 18, 17, 3, 979600, tzinfo=UTC)
    table = pa.table(
        {
            "whole": pa.array([1, 2, None]),
            "number": pa.array([4096.0, 0.1, float("nan")]),
            "text": pa.array(["007", None, "a,b"]),
            "time": pa.array([time] * 3, pa.timestamp("ns", tz="UTC")),
            "truth": pa.array([True, False, None]),
            "exact": pa.array([Decimal("1.50")] * 3),
            "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    read = read_table(path, "table")
    assert read.rows[0] == ["1", "4096", "007", "2023-11-16 18:17:03.979600000Z", "true", "1.50", "a"]
    assert read.rows[2] == ["", "", "a,b", "2023-11-16 18:17:03.979600000Z", "", "1.50", "a"]
    assert read.lines == range(1, 4)
    write_table(again, read.header, read.rows, read.types)
    written = pq.read_table(again)
    assert written.schema.types[:-1] == table.schema.types[:-1]
    assert read_table(again, "table").rows == read.rows
    # From CSV: whole numbers, numbers, or text where a number would lose something.
    write_table(again, ["a", "b", "c"], [["1", "1.5", "07"], ["", "2e3", "1"]])
    assert pq.read_table(again).schema.types == [pa.int64(), pa.float64(), pa.string()]
    assert pq.read_table(again).to_pylist()[1] == {"a": None, "b": 2000.0, "c": "1"}


def test_predict_answers_a_parquet_table_as_it_does_the_csv(tmp_path: Path) -> None:
    shapes = {"n": [float(n) for n, _ in SHAPES], "dtype": [d for _, d in SHAPES], "power_w": [1.5, 2.0, 3.0]}
    plain, typed = both(tmp_path, "shapes", shapes)
    l4 = device_model("l4", shipped_catalogue())
    predict_table("vector_add", l4, plain, tmp_path / "out.csv")
    predict_table("vector_add", l4, typed, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.schema.field("n").type == found.schema.field("duration_s").type == pa.float64()
    assert found.column_names[:3] == ["n", "dtype", "power_w_given"]
    rows = rows_of(tmp_path / "out.csv")
    assert [row["duration_s"] for row in found.to_pylist()] == [float(row["duration_s"]) for row in rows]
    assert [row["bound"] for row in found.to_pylist()] == [row["bound"] for row in rows]


def test_calibrate_and_validate_read_measurements_in_parquet(tmp_path: Path) -> None:
    plain, typed = measurements(tmp_path)
    overlays = []
    for path in (plain, typed):
        command("calibrate", "vector_add", path, "--device", "l4", "--out", tmp_path / "fitted.yaml")
        overlays.append((tmp_path / "fitted.yaml").read_text().replace(path.name, ""))
    assert overlays[0] == overlays[1]
    options = {"op": "vector_add", "device": "l4"}
    first, second = read_file(plain, **options), read_file(typed, **options)
    assert [row.latency_s for row in first] == [row.latency_s for row in second]
    shown = [
        json.loads(
            command("validate", "--against", path, "--device", "l4", "--op", "vector_add", "--format", "json").stdout
        )
        for path in (plain, typed)
    ]
    for name in ("device", "op", "n", "mape", "bias", "model"):
        assert shown[0][0][name] == shown[1][0][name], name


def test_a_trace_in_parquet_gives_the_arrivals_of_the_csv(tmp_path: Path) -> None:
    both(tmp_path, "trace", {"t": [0.25, 1.5, 0.75], "tokens": [3, 4, 5]})
    found = []
    for name in ("trace.csv", "trace.parquet"):
        work = {"name": "w", "arrivals": {"process": "trace", "file": name, "time": "t"}}
        data = {"schema": 1, "name": "x", "fleet": [{"device": "server"}], "workload": [work]}
        asked = scenario_from_data(
            {**data, "workload": [{**work, "ops": [{"service": {"mean": "1 s"}}]}]}, str(tmp_path / "s")
        )
        found.append(windtunnel.run(asked).recording.jobs.arrival.tolist())
    assert found[0] == found[1] == [0, 5 * 10**11, 125 * 10**10]
    command("trace", tmp_path / "trace.parquet", "--time", "t", "--out", tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == [
        {"time_s": "0", "tokens": 3},
        {"time_s": "0.5", "tokens": 5},
        {"time_s": "1.25", "tokens": 4},
    ]


def test_run_and_sweep_write_their_tables_as_parquet_too(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "{schema: 1, name: x, fleet: [{device: server, count: 2, name: 'a, b'}], stop: {jobs: 40}, workload: "
        "[{name: w, arrivals: {process: poisson, rate: 1 /s}, ops: [{service: {mean: 1.9 s}}]}]}"
    )
    command("run", scenario, "--out", tmp_path / "run", "--parquet")
    found = pq.read_table(tmp_path / "run" / "jobs.parquet")
    assert found.column_names == list(COLUMNS)
    rows = rows_of(tmp_path / "run" / "jobs.csv")
    assert len(rows) == found.num_rows == 40
    assert [row["device"] for row in rows] == found.column("device").to_pylist()
    assert [float(row["latency_s"]) for row in rows] == found.column("latency_s").to_pylist()
    assert found.column("ttft_s").null_count == 40
    command("sweep", scenario, "--over", "seed=1,2", "--workers", "1", "--out", tmp_path / "sweep", "--parquet")
    table = pq.read_table(tmp_path / "sweep" / "sweep.parquet").to_pylist()
    lines = rows_of(tmp_path / "sweep" / "sweep.csv")
    assert [row["seed"] for row in table] == [1, 2]
    assert [row["latency_s.mean"] for row in table] == [float(line["latency_s.mean"]) for line in lines]
    refused = CliRunner().invoke(cli, ["run", str(scenario), "--parquet"])
    assert isinstance(refused.exception, InputError) or refused.exit_code == 2


def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"n,dtype\n1,float32\n")
    with pytest.raises(InputError, match="this is not Parquet"):
        read_table(path, "table")
    pq.write_table(pa.table({"n": [[1, 2]]}), path)
    with pytest.raises(InputError, match=r"t.parquet: n: this column has the type list<.*; expected a column of"):
        read_table(path, "table")
    pq.write_table(pa.table({"n": [5, -1], "dtype": ["float32"] * 2}), path)
    with pytest.raises(InputError, match=r"t.parquet:2: n: "):
        predict_table("vector_add", device_model("l4", shipped_catalogue()), path, tmp_path / "out.csv")


def test_without_pyarrow_the_message_names_it_and_csv_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, typed = both(tmp_path, "shapes", {"n": [1000], "dtype": ["float32"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert read_table(plain, "table").rows == [["1000", "float32"]]
    for act in (
        lambda: read_table(typed, "table", Location(field="here")),
        lambda: write_table(tmp_path / "out.parquet", ["a"], [["1"]]),
    ):
        with pytest.raises(InputError, match=r"pyarrow, which is not installed; expected `pip install") as caught:
            act()
        assert caught.value.exit_code == 2
    assert not list(tmp_path.glob("*out*"))
