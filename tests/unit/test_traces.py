"""Traces: exact rows and times in, out and in again; what each way of reshaping one does, to the row and the tick."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel.app.trace import import_trace
from windtunnel.core.errors import InputError, Location
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND
from windtunnel.engine.arrivals import TraceRows, arrivals, export_trace, read_trace, trace_jobs
from windtunnel.engine.arrivals.processes import Draws
from windtunnel.engine.arrivals.traces import other_windows
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.read import scenario_from_data
from windtunnel.scenario.trace_formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "scenarios" / "traces"
CONV = TRACES / "azure_llm_2023_conv.csv.gz"
CODE = TRACES / "azure_llm_2023_code.csv.gz"
PODS = TRACES / "openb_pods_default.csv.gz"
SECOND = TICKS_PER_SECOND


def jobs(file: Path, seed: int = 1, **keys: Any) -> TraceRows:
    process = Trace.model_validate({"process": "trace", "file": file.name, **keys})
    return trace_jobs(
        process, file.parent, Draws(seed, ("w", "arrivals")), lambda *path: Location(field=".".join(map(str, path)))
    )


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Ten rows, one a second, in another order than that of time; the row at second i says i + 1."""
    path = tmp_path / "small.csv"
    path.write_text("t,what\n" + "".join(f"{i + 100},{i + 1}\n" for i in [3, 0, 1, 2, 9, 8, 7, 4, 5, 6]))
    return path


def said(rows: TraceRows) -> list[int]:
    return rows.numbers("what", Location()).astype(int).tolist()


@pytest.mark.parametrize(
    ("file", "form", "rows", "last", "column", "total"),
    [
        (CONV, "azure-llm", 19_366, 3_501_721_937 * 10**6, "GeneratedTokens", 4_088_665),
        (CODE, "azure-llm", 8_819, 3_435_948_056 * 10**6, "ContextTokens", 18_059_974),
        (PODS, "openb-pods", 8_152, 12_901_761 * SECOND, "cpu_milli", 85_436_012),
    ],
)
def test_a_known_trace_has_its_rows_and_comes_back_from_plain_csv_to_the_tick(
    file: Path, form: str, rows: int, last: int, column: str, total: int, tmp_path: Path
) -> None:
    read = read_trace(file, form)
    assert len(read.ticks) == len(read.table.rows) == rows
    assert read.ticks[0] == 0
    assert read.ticks[-1] == last
    assert sum(int(cell) for cell in read.table.column(column)) == total
    export_trace(read, tmp_path / "plain.csv.gz")
    again = read_trace(tmp_path / "plain.csv.gz", "csv", "time_s")
    assert again.ticks == read.ticks
    for name in FORMATS[form].columns:
        if name != FORMATS[form].time:
            assert again.table.column(name) == read.table.column(name)
    # And once more: what is plain already stays as it is, byte for byte.
    for name, source in (("one.csv", read), ("two.csv", again)):
        export_trace(source, tmp_path / name)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


def test_times_keep_their_seven_digits() -> None:
    read = read_trace(CODE, "azure-llm")
    # 18:17:03.9799600, 18:17:04.0319600, 18:17:04.0781490
    assert read.ticks[:3] == [0, 52_000_000_000, 98_189_000_000]
    assert all(tick % 10**5 == 0 for tick in read.ticks)
    assert read.table.rows[0][0] == "2023-11-16 18:17:03.9799600"


@pytest.mark.parametrize(
    ("later", "ticks"),
    [
        ("2023-11-16 18:17:03,25", 250_000_000_000),
        ("2023-11-16T18:17:03.9999999999996", 1_000_000_000_000),  # to the nearest tick
        ("2023-11-16 18:18", 57_000_000_000_000),
        ("2023-11-16 20:17:04+02:00", 1_000_000_000_000),
    ],
)
def test_iso_times_are_read_to_the_nearest_tick(later: str, ticks: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f'at\n"2023-11-16 18:17:03"\n"{later}"\n')
    assert jobs(tmp_path / "t.csv", time="at").ticks.tolist() == [0, ticks]


@pytest.mark.parametrize("text", ["2023-11-16 18:17.5", "18:17:03", "1_000", "１２", "2023-11-16 1８:17:03", "nan"])
def test_what_might_be_read_in_two_ways_is_no_time(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"at\n0\n{text}\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not a time"):
        jobs(tmp_path / "t.csv", time="at")


@settings(max_examples=60)
@given(st.lists(st.integers(0, 10**20), min_size=1, max_size=30))
def test_any_times_come_back_from_their_export(ticks: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_text("n,when\n" + "".join(f"{i},{t // SECOND}.{t % SECOND:012d}\n" for i, t in enumerate(ticks)))
        read = read_trace(path, time="when")
        assert read.ticks == [t - min(ticks) for t in sorted(ticks)]
        export_trace(read, Path(folder) / "b.csv")
        again = read_trace(Path(folder) / "b.csv", time="time_s")
        assert (again.ticks, again.table.column("n")) == (read.ticks, read.table.column("n"))


def test_a_window_has_the_rows_from_its_begin_to_before_its_end(small: Path) -> None:
    assert said(jobs(small, time="t")) == list(range(1, 11))
    window = jobs(small, time="t", **{"from": "2 s", "until": "5 s"})
    assert said(window) == [3, 4, 5]
    assert window.ticks.tolist() == [0, SECOND, 2 * SECOND]
    later = jobs(small, time="t", **{"from": "1.5 s", "until": "3.5 s"})
    assert later.ticks.tolist() == [SECOND // 2, 3 * SECOND // 2]


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(0, 20), st.integers(1, 20))
def test_the_busiest_window_of_a_trace_has_the_most_rows_within_its_length(
    seconds: list[int], begin: int, length: int
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text("t\n" + "".join(f"{second}\n" for second in seconds))
        keys = {
            "process": "trace",
            "file": path.name,
            "time": "t",
            "from": f"{begin} s",
            "until": f"{begin + length} s",
        }
        found = other_windows(Trace.model_validate(keys), path.parent, lambda *_: Location())
        whole = Trace.model_validate({"process": "trace", "file": path.name, "time": "t"})
        assert other_windows(whole, path.parent, lambda *_: Location()) is None
    times = [second - min(seconds) for second in seconds]
    in_window = {start: sum(start <= t < start + length for t in times) for start in range(max(times) + begin + 1)}
    assert found is not None and found[:2] == (in_window[begin], max(in_window.values()))
    assert in_window[round(found[3])] == found[1]
    # The mean number of rows is that of their rate.
    assert found[2] == pytest.approx(len(times) * length / max(max(times), length))


def test_time_is_stretched_by_the_map_and_shortened_by_speed_in_whole_numbers(small: Path) -> None:
    warp = [{"from": "2 s", "to": "2 s"}, {"from": "4 s", "to": "8 s"}]
    stretched = jobs(small, time="t", time_map=warp)
    assert stretched.ticks.tolist() == [s * SECOND for s in (0, 1, 2, 5, 8, 9, 10, 11, 12, 13)]
    assert said(stretched) == list(range(1, 11))
    faster = jobs(small, time="t", time_map=warp, speed=3.0)
    assert faster.ticks.tolist() == [round(Fraction(s * SECOND, 3)) for s in (0, 1, 2, 5, 8, 9, 10, 11, 12, 13)]
    assert jobs(small, time="t", speed=1.1).ticks[-1] == round(Fraction(9 * SECOND * 10, 11))
    # From 0 without a knot there, which may be written too.
    half = [{"from": "0 s", "to": "0 s"}, {"from": "8 s", "to": "4 s"}]
    assert (
        jobs(small, time="t", time_map=half).ticks.tolist() == jobs(small, time="t", time_map=half[1:]).ticks.tolist()
    )
    assert jobs(small, time="t", time_map=half).ticks.tolist()[:3] == [0, SECOND // 2, SECOND]


def test_a_repeated_trace_comes_again_and_again_at_its_own_length(small: Path) -> None:
    twice = jobs(small, time="t", repeat=3)
    # Ten rows a second apart last ten seconds: the last one, and the mean distance to the next first.
    assert twice.ticks.tolist() == [i * SECOND for i in range(30)]
    assert said(twice) == list(range(1, 11)) * 3
    assert twice.mean_rate_per_s == pytest.approx(1.0)
    window = jobs(small, time="t", repeat=2, until="3.5 s", speed=2.0)
    assert window.ticks.tolist() == [i * SECOND // 4 for i in (0, 2, 4, 6, 7, 9, 11, 13)]


SCALES = st.floats(0.05, 4.0)


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 400 rows of the code-completion hour: real bursts, quick to read."""
    path = tmp_path_factory.mktemp("minutes") / "minutes.csv"
    export_trace(read_trace(CODE, "azure-llm"), path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:401]))
    return path


@settings(max_examples=60)
@given(SCALES, SCALES, st.integers(0, 50), st.integers(1, 3), st.sampled_from([None, "0 s", "3 s", "1000 s"]))
def test_a_scaled_trace_has_so_many_jobs_and_a_greater_scale_all_those_of_a_smaller(
    minutes: Path, one: float, other: float, seed: int, repeat: int, jitter: str | None
) -> None:
    low, high = sorted((one, other))
    window: dict[str, Any] = {"time": "time_s", "from": "5 s", "until": "80 s", "repeat": repeat}
    plain = jobs(minutes, seed, **window)

    def scaled(scale: float) -> TraceRows:
        extra = {"jitter": jitter} if jitter is not None and scale > 1 else {}
        return jobs(minutes, seed, **window, scale=scale, **extra)

    few, many = scaled(low), scaled(high)
    for rows, scale in ((few, low), (many, high)):
        assert len(rows.ticks) == len(rows.rows) == int(Fraction(repr(scale)) * len(plain.ticks) + Fraction(1, 2))
        assert bool((np.diff(rows.ticks) >= 0).all())
        assert rows.ticks.min() >= 0 and rows.ticks.max() <= plain.ticks.max()

    def pairs(rows: TraceRows) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for pair in zip(rows.ticks.tolist(), rows.rows.tolist(), strict=True):
            found[pair] = found.get(pair, 0) + 1
        return found

    if not (low <= 1 < high):  # jitter means nothing up to 1, where there are no copies
        less, more = pairs(few), pairs(many)
        assert all(more.get(pair, 0) >= n for pair, n in less.items())
    # Every row has the floor of the scale in jobs, or one more; up to 1 each job is where its row is.
    each = np.bincount(many.rows, minlength=plain.rows.max() + 1)[plain.rows.min() :]
    assert each.min() >= int(high) * repeat and each.max() <= (int(high) + (high % 1 > 0)) * repeat
    if low <= 1:
        assert set(pairs(few)) <= set(pairs(plain))


def test_copies_lie_within_the_jitter_of_their_row_and_keep_its_columns(small: Path) -> None:
    rows = jobs(small, time="t", scale=4.0, jitter="300 ms")
    own = (rows.rows - rows.rows.min()) * SECOND
    assert np.abs(rows.ticks - own).max() <= 0.3 * SECOND
    assert sorted(said(rows)) == sorted(list(range(1, 11)) * 4)
    assert said(rows) == (rows.rows - rows.rows.min() + 1).tolist()
    # The first copy is the trace itself, and the others are not.
    assert int((rows.ticks == own).sum()) == 10
    exact = jobs(small, time="t", scale=3.0, jitter="0 s")
    assert exact.ticks.tolist() == [i * SECOND for i in range(10) for _ in range(3)]


def test_thinning_takes_every_row_with_the_same_chance(minutes: Path) -> None:
    # Each row is kept 40 times in 100 on average; over 300 seeds all rows together are as even as chance makes them.
    kept = np.zeros(400)
    for seed in range(300):
        rows = jobs(minutes, seed, time="time_s", scale=0.4)
        assert len(rows.rows) == 160
        kept += np.bincount(rows.rows, minlength=400)
    z = (kept - 300 * 0.4) / np.sqrt(300 * 0.4 * 0.6)
    from scipy import stats

    assert 1e-6 < stats.chi2.sf(float((z**2).sum()), len(z) - 1) < 1 - 1e-6


def test_a_trace_longer_than_a_run_can_be_had_in_part_or_faster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"more than 106 days after the first.*until: 30 d.*speed: 60"):
        jobs(PODS, format="openb-pods")
    assert len(jobs(PODS, format="openb-pods", speed=2.0).ticks) == 8_152
    month = jobs(PODS, format="openb-pods", until="30 d")
    assert 0 < len(month.ticks) < 8_152 and month.ticks[-1] < 30 * 86_400 * SECOND <= MAX_TICKS


def data(file: str, ops: list[Any], **arrivals_keys: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "traced",
        "fleet": [{"device": "h100-sxm-80gb", "count": 2}],
        "workload": [{"name": "w", "arrivals": {"process": "trace", "file": file, **arrivals_keys}, "ops": ops}],
    }


def test_a_program_written_for_one_trace_runs_on_another(tmp_path: Path) -> None:
    ops = [{"gemm": {"m": "$ContextTokens", "n": "$GeneratedTokens", "k": 64, "dtype": "bfloat16"}}]
    rows = [("2023-11-16 18:17:03.5", 100, 20), ("2023-11-16 18:17:04", 300, 10)]
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(f"{t},{p},{o}\n" for t, p, o in rows)
    )
    (tmp_path / "b.csv").write_text("prompt_len,when,output_len,TIMES\n100,7.5,20,x\n300,8,10,y\n")
    here = str(tmp_path / "s.yaml")
    names = {"TIMESTAMP": "when", "ContextTokens": "prompt_len", "GeneratedTokens": "output_len"}
    for keys in ({"format": "azure-llm", "columns": names}, {"time": "when", "columns": dict(list(names.items())[1:])}):
        one = windtunnel.run(scenario_from_data(data("a.csv", ops, format="azure-llm"), here))
        two = windtunnel.run(scenario_from_data(data("b.csv", ops, **keys), here))
        assert np.array_equal(one.recording.jobs.arrival, [0, SECOND // 2])
        assert np.array_equal(one.recording.jobs.finish, two.recording.jobs.finish)
        assert one.result.energy_j == two.result.energy_j


def test_a_trace_of_a_scenario_says_its_rate_and_that_it_is_not_stationary() -> None:
    scenario = scenario_from_data(data(str(CONV), [{"launch": {}}], format="azure-llm", scale=2.0))
    stream = arrivals(scenario.workload[0], 1, None, Path(), lambda *_: Location())
    assert len(stream.ticks) == 2 * 19_366
    assert stream.mean_rate_per_s == pytest.approx(2 * 19_366 / 3501.7, rel=1e-3)
    assert not stream.stationary


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "workload[0].arrivals: 'time' is missing; expected `time`"),
        ({"time": "t", "format": "cvs"}, "workload[0].arrivals.format: 'cvs' is not a valid value; expected one of csv, azure-llm, mooncake, openb-pods; did you mean 'csv'?"),
        ({"format": "azure-llm"}, "has no column 'TIMESTAMP', which the format azure-llm requires; expected one of t, what; or columns: {TIMESTAMP: A-COLUMN"),
        ({"time": "t", "columns": {"tokens": "waht"}}, "workload[0].arrivals.columns.tokens: the trace"),
        ({"time": "t", "columns": {"tokens": "waht"}}, "has no column 'waht'; expected one of t, what; did you mean 'what'?"),
        ({"time": "t", "columns": {"a": "what", "b": "what"}}, "the column 'what' is already renamed to 'a'"),
        ({"time": "t", "columns": {"t": "what"}}, "already has a column 't'"),
        ({"time": "t", "from": "5 s", "until": "5 s"}, "the window ends before it begins"),
        ({"time": "t", "from": "50 s"}, "workload[0].arrivals.from: the trace has no row in this window"),
        ({"time": "t", "time_map": [{"from": "1 s", "to": "2 s"}, {"from": "1 s", "to": "3 s"}]}, "time_map[1] does not increase"),
        ({"time": "t", "time_map": [{"from": "1 s", "too": "2 s"}]}, "did you mean 'to'?"),
        ({"time": "t", "speed": 0}, "expected more than 0"),
        ({"time": "t", "scale": 0.01}, "workload[0].arrivals.scale: 0.01 times 10 rows are 0 jobs"),
        ({"time": "t", "scale": 0.5, "jitter": "1 s"}, "jitter is only for copies"),
        ({"time": "t", "repeat": 1000000, "time_map": [{"from": "1 s", "to": "1 h"}]}, "within the 106 days"),
        ({"time": "t", "until": "1 s", "scael": 2}, "unknown key 'scael'; expected one of process, file, format, time, columns, from"),
        ({"time": "t", "until": "1 s", "scael": 2}, "did you mean 'scale'?"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_trace_in_a_scenario_is_named(keys: dict[str, Any], says: str, small: Path) -> None:
    with pytest.raises(InputError) as caught:
        windtunnel.run(scenario_from_data(data(small.name, [{"launch": {}}], **keys), str(small.parent / "s.yaml")))
    assert says in str(caught.value)


def test_a_single_moment_is_not_repeated_at_no_length(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("t\n5\n5\n")
    with pytest.raises(InputError, match="whose rows have the same time cannot be repeated; expected an `until`"):
        jobs(tmp_path / "one.csv", time="t", repeat=2)
    assert jobs(tmp_path / "one.csv", time="t", repeat=2, until="3 s").ticks.tolist() == [0, 0, 3 * SECOND, 3 * SECOND]


def test_the_command_writes_plain_csv_and_names_what_is_wrong(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain.csv"
    words = [str(small), "--time", "t", "--column", "size=what", "--out", str(out)]
    command = [sys.executable, "-m", "windtunnel", "trace", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"10 rows in 9.00 s, 1.00 /s on average\nwrote {out}\n"
    assert out.read_text().splitlines()[:3] == ["time_s,size", "0,1", "1,2"]
    for form, time, columns, target, says in (
        ("csv", "t", {}, small, "the output is the input trace itself"),
        ("csv", "tt", {}, out, "--time: the trace"),
        ("csv", None, {}, out, "--time: a trace in CSV needs `time`"),
        ("azure", None, {}, out, "--format: 'azure' is not a valid format of traces; expected one of csv, azure-llm"),
        ("csv", "t", {"a": "b"}, out, "--column: the trace"),
        ("csv", "t", {"time_s": "what"}, out, "is not its arrival time"),
    ):
        with pytest.raises(InputError) as caught:
            import_trace(small, form, time, columns, target)
        assert says in str(caught.value)
