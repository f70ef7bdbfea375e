"""A sweep: what a grid is, what is refused before it runs, and that nothing is lost, run twice or left behind."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.app import sweep as sweep_command
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.core.results.sweep import SweepAxis, SweepResult, SweepRow
from windtunnel.report.sweep import headline, points_table
from windtunnel.scenario.read import scenario_from_data
from windtunnel.sweep.grid import Common, grid, parse_axis, read_grid
from windtunnel.sweep.run import SweepOptions, run_sweep
from windtunnel.sweep.table import csv_text, outcome_of, table
from windtunnel.sweep.workers import LocalPool, Task

OVER = ["fleet[0].count=2,3", "seed=1..3"]


def write(folder: Path, data: dict[str, Any], name: str = "queue.yaml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


@pytest.fixture
def scenario(queue: Any, tmp_path: Path) -> Path:
    return write(tmp_path, queue(stop={"jobs": 300}, targets=["latency mean <= 1.5 ms"]))


# The grid.


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("fleet[0].count=1,2,4", [1, 2, 4]),
        ("seed=1..4,8", [1, 2, 3, 4, 8]),
        ("x=0..10..5", [0, 5, 10]),
        ("rate=10 /s, 57600 /s", ["10 /s", "57600 /s"]),
        ("policy={name: fifo, batch: {kind: request, size: 8}},fifo", [{"name": "fifo", "batch": {"kind": "request", "size": 8}}, "fifo"]),
        ("fleet=[{device: l4, count: 2}],[{device: a10}]", [[{"device": "l4", "count": 2}], [{"device": "a10"}]]),
        ("name='1..4',\"a, b\"", ["1..4", "a, b"]),
        ("x=true,null,1.5", [True, None, 1.5]),
    ],
)  # fmt: skip
def test_an_axis_is_a_yaml_list_without_its_brackets(text: str, values: list[Any]) -> None:
    assert list(parse_axis(text).values) == values


plain = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("ab ,[]{}:#'1.", max_size=6)
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.lists(nested, min_size=1, max_size=4, unique_by=lambda value: json.dumps(value, sort_keys=True)))
def test_every_value_that_json_can_write_comes_back(values: list[Any]) -> None:
    axis = parse_axis("x=" + ", ".join(json.dumps(value) for value in values))
    assert list(axis.values) == values


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fleet[0].count", "not a path and its values"),
        ("=1,2", "not a path"),
        ("x=", "no values"),
        ("x=1,,2", "not a list"),
        ("x=1,2,", "not a list"),
        ("x=1],[2", "not a list"),
        ("x=[1,2", "not a list"),
        ("x=1,2,1", "'1' is given twice"),
        ("x=1..3,2", "'2' is given twice"),
        ("x=4..1", "range '4..1' is empty"),
        ("x=1..4..0", "is empty"),
        ("x=0..999999999", "more than"),
    ],
)  # fmt: skip
def test_what_is_no_axis_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_axis(text)


def test_the_last_axis_changes_fastest_and_every_combination_is_there_once() -> None:
    points = grid([parse_axis("a=1,2"), parse_axis("b=x,y,z")])
    assert [p.values for p in points] == [(a, b) for a in (1, 2) for b in "xyz"]
    assert [p.number for p in points] == list(range(1, 7))
    assert points[4].changes == ("a=2", "b=y")


@pytest.mark.parametrize(
    ("over", "sets"), [(["seed=1", "seed=2"], []), (["fleet[0].count=1", "fleet=[]"], []), (["seed=1,2"], ["seed=3"])]
)
def test_an_axis_that_would_overwrite_a_change_is_refused(over: list[str], sets: list[str]) -> None:
    with pytest.raises(InputError, match="this overwrites"):
        grid([parse_axis(text) for text in over], sets)
    assert grid([parse_axis("fleet=[{device: l4}]"), parse_axis("fleet[0].count=1")], ["policy=fifo"])


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (["seed=1,2", "fleet[0].count=1,0"], r"point 2 of 4 \(seed=1, fleet\[0\].count=0\): --over fleet\[0\].count=0"),
        (["fleet[1].count=1"], r"point 1 of 1 .* there is no 'fleet\[1\]'"),
        (["policy=fifo,fifi"], r"point 2 of 2 .*did you mean 'fifo'"),
        (["fleet[0].device=server,sorver"], r"point 2 of 2 .*unknown device 'sorver'"),
        (["workload[0].ops=[{gemm: {m: 1, n: 1, k: 1, dtype: float32}}]"], "point 1 of 1 .*gemm"),
        ([], "nothing is swept"),
    ],
)
def test_what_is_wrong_at_any_point_is_said_before_any_runs(
    scenario: Path, over: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        sweep_command.sweep(scenario, over, out=tmp_path / "out", workers=1)
    assert not (tmp_path / "out" / "runs").exists() and not (tmp_path / "out" / "manifest.json").exists()


def test_an_unknown_engine_is_refused(scenario: Path) -> None:
    with pytest.raises(InputError, match="'warp' is not a valid engine"):
        sweep_command.sweep(scenario, ["seed=1"], engine="warp", workers=1)


# The table.


def test_the_number_of_workers_changes_no_byte_and_each_row_is_its_run(scenario: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        sweep_command.sweep(scenario, OVER, out=tmp_path / str(workers), workers=workers, replications=2)
    for name in ("sweep.csv", "sweep.json", "manifest.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    with (tmp_path / "2" / "sweep.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(r["fleet[0].count"], r["seed"]) for r in rows] == [(c, s) for c in "23" for s in "123"]
    for cells in rows:
        alone = windtunnel.run(
            scenario, changes=[f"fleet[0].count={cells['fleet[0].count']}"], seed=int(cells["seed"]), replications=2
        )
        kept = (tmp_path / "2" / "runs" / cells["key"] / "result.json").read_text()
        assert kept == result_json(alone.result)
        p99 = alone.result.latency_s.p99
        assert [float(cells[f"latency_s.p99{end}"]) for end in ("", ".low", ".high")] == [
            p99.value,
            p99.low,
            p99.high,
        ]
        assert (cells["met"], cells["missed"]) == (("true", "") if alone.met else ("false", "latency mean <= 1.5 ms"))
    assert {r["met"] for r in rows} == {"true", "false"}


def test_columns_agree_with_every_row_and_what_others_hold_in_parts_has_no_column_of_its_own() -> None:
    tokens = {"a": 1, "t": {"mean": {"value": 1.0, "low": None, "high": None}}, "z": None, "workloads": [{"name": "w"}]}
    results = [{"a": 1, "t": None, "z": None}, tokens, {"a": 2, "t": None, "n": True, "z": None}]
    columns = table(["seed"], [{"status": "done", **outcome_of(result).numbers} for result in results])
    assert columns[-6:] == ["a", "t.mean", "t.mean.low", "t.mean.high", "n", "z"]
    assert (
        csv_text(["x", "y"], [{"x": 0.1, "y": True}, {"x": [1, {"b": "c"}]}]) == 'x,y\n0.1,true\n"[1,{""b"":""c""}]",\n'
    )


def test_several_workloads_have_their_own_columns(queue: Any, tmp_path: Path) -> None:
    data = queue(stop={"jobs": 200})
    data["workload"].append({**data["workload"][0], "name": "more"})
    found = sweep_command.sweep(write(tmp_path, data), ["seed=1"], workers=1)
    assert found.rows[0].number("workloads.more.latency_s.mean") > 0


# Records.


def test_files_named_by_absolute_and_relative_names_are_the_ones_read(queue: Any, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name, count in (("few", 20), ("many", 40)):
        (tmp_path / "traces" / f"{name}.csv").write_text("at\n" + "".join(f"{i * 0.001}\n" for i in range(count)))
    data = queue(stop={"jobs": 100})
    data["workload"][0]["arrivals"] = {"process": "trace", "file": "x", "time": "at"}
    (tmp_path / "mine").mkdir()
    path = write(tmp_path / "mine", {k: v for k, v in data.items() if k != "stop"})
    over = [f"workload[0].arrivals.file=../traces/few.csv,{tmp_path}/traces/many.csv"]
    found = sweep_command.sweep(path, over, workers=1, out=tmp_path / "out")
    assert [row.number("jobs.arrived") for row in found.rows] == [20, 40]
    kept = json.loads((tmp_path / "out" / "runs" / found.rows[1].key / "result.json").read_text())
    assert kept["scenario"]["workload"][0]["arrivals"]["file"] == f"{tmp_path}/traces/many.csv"
    # Other contents under the same name are another sweep.
    (tmp_path / "traces" / "few.csv").write_text("at\n1\n2\n")
    with pytest.raises(InputError, match="another sweep; what differs: inputs"):
        sweep_command.sweep(path, over, workers=1, out=tmp_path / "out")


def test_a_folder_of_another_sweep_is_kept_unless_thrown_away(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep_command.sweep(scenario, ["seed=1,2"], out=out, workers=1)
    (out / "runs" / "mine.txt").write_text("not the sweep's")
    for over, changes, engine, said in (
        (["seed=1,2,3"], [], "auto", "axes"),
        (["seed=1,2"], ["stop.jobs=301"], "auto", "the scenario"),
        (["seed=1,2"], [], "process", "engine"),
    ):
        with pytest.raises(InputError, match=f"what differs: {said}"):
            sweep_command.sweep(scenario, over, changes=changes, engine=engine, out=out, workers=1)
    assert (out / "sweep.csv").exists() and len(list((out / "runs").iterdir())) == 3
    sweep_command.sweep(scenario, ["seed=7"], out=out, workers=1, fresh=True)
    assert len(list((out / "runs").iterdir())) == 2 and (out / "runs" / "mine.txt").exists()
    (tmp_path / "other" / "runs").mkdir(parents=True)
    with pytest.raises(InputError, match="'runs' is there already"):
        sweep_command.sweep(scenario, ["seed=7"], out=tmp_path / "other", workers=1, fresh=True)


@pytest.mark.parametrize("damage", [lambda text: text[: len(text) // 2], lambda text: "{}", lambda text: ""])
def test_a_finished_point_is_not_run_again_and_a_damaged_one_is(damage: Any, scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = sweep_command.sweep(scenario, ["seed=1..3"], out=out, workers=1)
    records = [out / "runs" / row.key / "result.json" for row in first.rows]
    table_before, text = (out / "sweep.csv").read_bytes(), records[1].read_text()
    records[1].write_text(damage(text))
    mark(records)
    assert sweep_command.sweep(scenario, ["seed=1..3"], out=out, workers=1) == first
    assert marked(records) == [True, False, True]
    assert (out / "sweep.csv").read_bytes() == table_before and records[1].read_text() == text


# Processes: killed, asked to end, started twice.


GATED = """
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from windtunnel.app import sweep as command

plain = command.sweep_work

def gated(setup, tree, task):
    if task.what == "run" and task.changes[0] > "seed=2":
        Path(__file__).with_name(f"waiting-{os.getpid()}").touch()
        while not Path(__file__).with_name("open").exists():
            time.sleep(0.01)
    return plain(setup, tree, task)

command.sweep_work = gated
"""
"""A module in which the points after the second wait until the file `open` is beside it; each leaves its process id."""


def wait_until(condition: Callable[[], object]) -> None:
    """Poll a condition for ten minutes at most, which only limits a test that hangs."""
    end = time.monotonic() + 600.0
    while not condition():
        assert time.monotonic() < end, "the condition was false for ten minutes"
        time.sleep(0.01)


def results(out: Path) -> dict[str, Path]:
    """The stored results by the key of their point."""
    return {path.parent.name: path for path in out.glob("runs/*/result.json")}


def mark(paths: Iterable[Path]) -> None:
    """Give files a time of modification that a file written later does not have."""
    for path in paths:
        os.utime(path, ns=(0, 0))


def marked(paths: Iterable[Path]) -> list[bool]:
    """Whether each file has not been written since ``mark``."""
    return [path.stat().st_mtime_ns == 0 for path in paths]


def descendants(process: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(status.parent.name))
    processes = list(parents.get(process, []))
    for child in processes:
        processes += parents.get(child, [])
    return processes


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that lets the points after the second of a gated sweep go on."""
    (tmp_path / "gated_sweep.py").write_text(GATED)
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + ("" if before is None else os.pathsep + before))
    yield tmp_path / "open"
    (tmp_path / "open").touch()


def start_gated(scenario: Path, out: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a sweep; return it, and its workers, when two points are stored and each worker waits in another point."""
    program = "import gated_sweep; from windtunnel.cli.main import script; script()"
    words = ["sweep", str(scenario), "--over", "seed=1..6", "--workers", "2", "--out", str(out), "--format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def workers() -> list[int]:
        return [int(path.name.partition("-")[2]) for path in scenario.parent.glob("waiting-*")]

    wait_until(lambda: (len(results(out)) == 2 and len(workers()) == 2) or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return process, workers()


def test_a_plan_that_is_killed_leaves_no_process() -> None:
    program = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from windtunnel.planning.workers import begin

pool = ProcessPoolExecutor(2, get_context("forkserver"), initializer=begin, initargs=(None, {}))
list(pool.map(abs, range(8)))
waiting = [pool.submit(time.sleep, 3600) for _ in range(2)]
print("waiting", flush=True)
time.sleep(3600)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    family = descendants(process.pid)
    assert len(family) >= 3, "a fork server and two workers"
    process.kill()
    process.communicate()
    wait_until(lambda: not any(map(alive, family)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_ended_leaves_no_process_and_goes_on_where_it_was(
    scenario: Path, tmp_path: Path, gate: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    process, workers = start_gated(scenario, out)
    family = descendants(process.pid)
    assert set(workers) < set(family)  # the fork server is their parent
    process.send_signal(number)
    # The gate is still closed: a worker that is alive would wait for ever.
    wait_until(lambda: not any(map(alive, family)))
    process.communicate()
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    kept = results(out)
    assert [key[0] for key in sorted(kept)] == ["1", "2"] and not (out / "sweep.csv").exists()
    assert all(json.loads(path.read_text())["jobs"]["arrived"] == 300 for path in kept.values())
    mark(kept.values())
    again = sweep_command.sweep(scenario, ["seed=1..6"], out=out, workers=1)
    assert again.points == 6 and again.failed == 0
    after = results(out)
    assert sorted(after) == [row.key for row in again.rows]
    assert [key for key in sorted(after) if all(marked([after[key]]))] == sorted(kept)
    assert not (out / ".scratch").exists()


def test_a_killed_worker_is_replaced_and_two_sweeps_do_not_share_a_folder(
    scenario: Path, tmp_path: Path, gate: Path
) -> None:
    out = tmp_path / "out"
    process, workers = start_gated(scenario, out)
    with pytest.raises(InputError, match=rf"another sweep \(process {process.pid} on "):
        sweep_command.sweep(scenario, ["seed=1..6"], out=out, workers=2)
    os.kill(workers[0], signal.SIGKILL)
    gate.touch()
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    document = json.loads(printed)
    assert document["failed"] == 0
    assert document == sweep_command.sweep(scenario, ["seed=1..6"], out=out, workers=1).to_dict()


WORKS = """
import os, signal
from windtunnel.sweep.records import Outcome

def dies(tree, task):
    if task.what == "run" and task.changes == ("seed=2",):
        with open(tree / "attempts", "a") as stream:
            stream.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return Outcome('{"targets": [], "x": 1.5}' if task.what == "run" else None)

def begins(tree, task):
    (tree / task.changes[0]).touch()
    return Outcome('{}')

def fails(tree, task):
    if task.what == "run" and task.changes == ("seed=2",):
        return Outcome(error="no", code=2)
    return Outcome('{"targets": [], "x": 1.5}' if task.what == "run" else None)
"""


def test_a_point_that_keeps_killing_its_worker_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sweep_works.py").write_text(WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    import sweep_works  # type: ignore[import-not-found]

    with LocalPool(sweep_works.dies, tmp_path, 2) as pool:
        found = dict(pool.map([Task("run", (f"seed={i}",)) for i in range(1, 6)]))
    assert sorted(found) == [0, 1, 2, 3, 4]
    assert found[1].error == "the worker process was killed (signal 9) in each of 3 attempts" and found[1].code == 70
    assert all(found[i].result for i in (0, 2, 3, 4))
    assert (tmp_path / "attempts").read_text() == "xxx"


def test_a_worker_begins_its_next_point_before_the_outcome_of_its_last_one_is_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep_works.py").write_text(WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    import sweep_works

    with LocalPool(sweep_works.begins, tmp_path, 1) as pool:
        coming = pool.map([Task("run", (f"seed={i}",)) for i in (1, 2)])
        assert next(coming)[0] == 0
        wait_until((tmp_path / "seed=2").exists)
        assert [place for place, _ in coming] == [1]


def test_a_script_that_sweeps_is_executed_once(scenario: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"from windtunnel.app.sweep import sweep\nprint(sweep({str(scenario)!r}, ['seed=1,2'], workers=2).points)\n"
    )
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_failed_point_is_in_the_table_and_is_tried_again(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep_works.py").write_text(WORKS)
    monkeypatch.syspath_prepend(tmp_path)
    import sweep_works

    whole = read_grid(str(scenario), ["seed=1..3"], (), (), lambda _: None)
    options = SweepOptions(tmp_path / "out", False, 1, None)
    common = Common(replications=1, engine="auto", versions={})
    told: list[int] = []

    def sweep(work: Any) -> SweepResult:
        return run_sweep(whole, common, work, dict, options, lambda done, _: told.append(done))

    found = sweep(sweep_works.fails)
    assert (found.exit_code, found.failed) == (2, 1) and told == [0, 1, 2, 3]
    assert [row.status for row in found.rows] == ["done", "failed", "done"]
    assert [row.error for row in found.rows] == [None, "no", None]
    assert json.loads((tmp_path / "out" / "runs" / found.rows[1].key / "error.json").read_text())["exit_code"] == 2
    told.clear()
    assert sweep(sweep_works.fails) == found and told == [2, 3]


# What is shown.


def shown(*words: str) -> list[str]:
    done = CliRunner().invoke(cli, ["sweep", *words, "--workers", "2"])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_inconclusive_and_unstable_points_are_marked(queue: Any, tmp_path: Path) -> None:
    sure = windtunnel.run(scenario_from_data(queue(fleet=[{"device": "server", "count": 2}]))).result.latency_s.p99
    limit = (sure.value + sure.high) / 2
    path = write(tmp_path, queue(targets=[f"latency p99 <= {limit} s"]))
    lines = shown(str(path), "--over", "fleet[0].count=1,2,9")
    assert lines[0].endswith("; 1 missed a target; 1 inconclusive at 95%")
    header, unstable, unsure, good = (re.split(r"\s{2,}", line.strip()) for line in lines[2:6])
    cells = [dict(zip(header, line, strict=True)) for line in (unstable, unsure, good)]
    assert [cell["targets"] for cell in cells] == ["MISSED", "met (inconclusive)", "met"]
    assert [cell["steady state"] for cell in cells] == ["UNSTABLE", "reached", "reached"]
    assert [cell["95% CI"] for cell in cells][0] == "–"
    assert all(" to " in cell["95% CI"] for cell in cells[1:])


def test_a_resumed_sweep_says_how_many_points_it_took_over(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    words = [str(scenario), "--over", "fleet[0].count=2,3", "--over", "seed=1,2", "--out", str(out)]
    assert not any("were stored in" in line for line in shown(*words))
    assert f"4 were stored in {out} already, 0 were run now" in shown(*words)
    shutil.rmtree(min((out / "runs").iterdir()))
    assert f"3 were stored in {out} already, 1 were run now" in shown(*words)


def test_one_target_that_is_conclusively_missed_decides_a_point() -> None:
    outcomes = [("a <= 1; b <= 1", "a <= 1"), ("a <= 1", "a <= 1; b <= 1"), ("a <= 1", None)]
    rows = [
        SweepRow(point=i, key="", swept={"seed": i}, status="done", met=False, missed=missed, inconclusive=inconclusive)
        for i, (missed, inconclusive) in enumerate(outcomes, 1)
    ]
    axes = [SweepAxis("seed", [1, 2, 3])]
    sweep = SweepResult(1, "s.yaml", axes, 1, "auto", {}, 3, failed=0, missed=3, exit_code=0, columns=[], rows=rows)
    _, cells = points_table(sweep)
    assert [line[-1] for line in cells] == ["MISSED", "MISSED (inconclusive)", "MISSED"]
    assert headline(sweep).endswith("; 3 missed a target; 1 inconclusive at 95%")
