"""Scripts of benchmarks still run: a renamed key of scenarios broke one unnoticed once."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_engine_benchmark_runs_the_same_jobs_as_its_peer(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.bin"
    write = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import engines, pathlib; "
    write += f"engines.write_jobs(pathlib.Path({str(jobs)!r}), 2000)"
    subprocess.run([sys.executable, "-c", write], check=True)
    means = []
    for peer in ("windtunnel_fleet.py", "simpy_process.py"):
        command = [sys.executable, str(BENCHMARKS / "peers" / peer), str(jobs), "2000"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        assert answer["jobs"] == 2000
        means.append(answer["energy_j"])
    assert abs(means[0] / means[1] - 1) < 1e-9


def script(name: str) -> ModuleType:
    path = BENCHMARKS / f"{name}.py"
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    return module


def test_the_error_of_first_tokens_counts_each_configuration_once() -> None:
    """Of 19 configurations 18 are within the factor, however many rows the worst one has."""
    first_tokens = script("accuracy/first_tokens")
    rows = [first_tokens.Row("dense", "vllm", (n,), 0.1 * n) for n in range(19)]
    assert first_tokens.factor(rows) == pytest.approx(math.exp(1.7))
    assert first_tokens.factor([*rows, *[rows[18]] * 100]) == pytest.approx(math.exp(1.7))
    assert first_tokens.of_others(rows, rows) == pytest.approx(18 / 19)


def test_the_tables_of_serving_pages_are_those_that_their_script_makes() -> None:
    """Their rows are the script's, and its changes to the scenarios are valid; the figures are those of its last run."""
    tables = script("serving_tables")
    for name, table in tables.TABLES.items():
        page = (tables.ROOT / table.page).read_text()
        found = tables.place(name).findall(page)
        assert len(found) == 1, name
        rows = found[0][1].splitlines()
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (rows[0], *rows[2:])]
        assert tables.lines(cells) == found[0][1], name
        assert cells[0] == list(table.header), name
        assert [row[: len(table.rows[0].labels)] for row in cells[1:]] == [list(row.labels) for row in table.rows], name
        assert all(len(runs) == len(row.runs) for row, runs in zip(table.rows, tables.scenarios(table), strict=True))
