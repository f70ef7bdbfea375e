"""Intervals from redrawn runs: the window of a trace, its redrawing, and what the intervals hold."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.core.errors import Location
from windtunnel.core.results.data import result_json
from windtunnel.core.results.run import Estimate, RunResult
from windtunnel.engine.arrivals.processes import Draws
from windtunnel.engine.arrivals.redraw import redrawn, window
from windtunnel.engine.arrivals.traces import trace_jobs
from windtunnel.engine.results.redrawn import interval, least_upper_end
from windtunnel.engine.results.sample import BatchedSample
from windtunnel.engine.results.statistics import STATISTICS, estimates, widen_to_waiting, within_reason
from windtunnel.engine.results.steady import correlation_of
from windtunnel.scenario.arrivals import Trace
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation import redrawn as simulated
from windtunnel.simulation.run import measure, prepare_run, simulate
from windtunnel_models.catalogue import shipped_catalogue

SPAN_S = 1200.0


def arrivals(rng: np.random.Generator, wave_s: float, mean: float = 5.0, amplitude: float = 0.7) -> np.ndarray:
    """Arrivals (s) of a Poisson process whose rate is a sine."""
    most = mean * (1 + amplitude)
    times = np.sort(rng.random(rng.poisson(most * SPAN_S)) * SPAN_S)
    rate = mean * (1 + amplitude * np.sin(2 * np.pi * times / wave_s))
    return np.asarray(times[rng.random(len(times)) * most < rate])


def ticks(times: np.ndarray) -> np.ndarray:
    return np.rint(times * 1e12).astype(np.int64)


def half_s(times: np.ndarray) -> float:
    return window(ticks(times)) / 1e12


# The window.


def test_the_window_is_short_against_the_waves_and_long_without_any() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        assert half_s(arrivals(rng, 60)) < 15
        assert 15 < half_s(arrivals(rng, 300)) < 75
        assert half_s(arrivals(rng, 1e9)) > 30


def test_neither_batches_nor_regular_distances_are_waves() -> None:
    rng = np.random.default_rng(1)
    begins = arrivals(rng, 300, mean=1.0)
    assert 15 < half_s(np.repeat(begins, rng.geometric(0.2, len(begins)))) < 75
    assert half_s(np.cumsum(rng.gamma(10.0, 0.02, 6000))) > 15


def test_times_in_steps_are_not_told_from_one_another_by_the_jobs_of_a_few_of_them() -> None:
    """A window of 15 jobs on either side would have two times of arrival, and blocks within one."""
    step_s = 3.0
    for seed in range(3):
        times = np.floor(arrivals(np.random.default_rng(seed), 300) / step_s) * step_s
        assert half_s(times) >= 15 * step_s


def test_a_trace_has_the_same_window_at_every_load(tmp_path: Path) -> None:
    times = arrivals(np.random.default_rng(1), 300)
    (tmp_path / "t.csv").write_text("\n".join(["arrival_s", *(f"{time:.6f}" for time in times)]))
    data: dict[str, Any] = {
        "schema": 1, "name": "scaled", "fleet": [{"device": "server"}], "policy": "fifo",
        "workload": [{"name": "jobs", "ops": [{"service": {"distribution": "deterministic", "mean": "1 ms"}}]}],
    }  # fmt: skip
    found = set()
    for scale in (0.5, 1, 1.3):
        data["workload"][0]["arrivals"] = {
            "process": "trace", "file": str(tmp_path / "t.csv"), "time": "arrival_s", "scale": scale,
        }  # fmt: skip
        trace = prepare_run(scenario_from_data(data), shipped_catalogue()).workloads[0].source.trace
        assert trace is not None and len(trace.ticks) == pytest.approx(scale * len(times), abs=1)
        found.add(trace.window)
    assert len(found) == 1


def test_a_trace_of_too_few_rows_is_redrawn_at_a_scale_at_which_it_has_enough(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t\n" + "".join(f"{n * 0.5 + (n % 5) * 0.1}\n" for n in range(150)))
    arrivals = {"process": "trace", "file": "t.csv", "time": "t"}

    def half(scale: float) -> int:
        process = Trace.model_validate({**arrivals, "scale": scale})
        return trace_jobs(process, tmp_path, Draws(1, ("w", "arrivals")), lambda *_: Location()).window

    assert half(1) == 0 < half(2)


def test_few_jobs_and_a_single_moment_have_no_window() -> None:
    assert window(np.arange(199) * 10**12) == 0
    assert window(np.zeros(1000, dtype=np.int64)) == 0
    same, jobs = redrawn(np.arange(5), np.random.default_rng(0), 0)
    assert same.tolist() == jobs.tolist() == [0, 1, 2, 3, 4]


# Redrawing.


def test_redrawn_jobs_come_from_nearby_and_keep_the_waves() -> None:
    at = ticks(arrivals(np.random.default_rng(2), 300))
    half, bins = window(at), np.linspace(0, SPAN_S * 1e12, 25)
    counts, sizes = [], []
    for seed in range(60):
        again, jobs = redrawn(at, np.random.default_rng(seed), half)
        assert (np.diff(again) >= 0).all() and again[0] >= 0 and again[-1] <= at[-1]
        # A block is reflected at the ends of the trace, and moves by at most the window elsewhere.
        inside = (again > half) & (again < at[-1] - half)
        assert np.abs(again - at[jobs])[inside].max() <= half + half // 8
        counts.append(np.histogram(again, bins)[0])
        sizes.append(len(again))
    mean, own = np.mean(counts, axis=0), np.histogram(at, bins)[0]
    assert np.corrcoef(mean, own)[0, 1] > 0.98
    # The number of jobs varies as that of a Poisson process does.
    assert 0.6 < np.std(sizes) / math.sqrt(len(at)) < 1.4


def test_jobs_of_one_moment_stay_together() -> None:
    at = np.repeat(np.sort(np.random.default_rng(3).integers(0, 10**15, 2000)), 4)
    again, _ = redrawn(at, np.random.default_rng(0), window(at))
    assert (np.unique(again, return_counts=True)[1] % 4 == 0).all()


# Intervals.


def queue(times: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The latencies and the queueing delays of one server: Lindley's recursion in closed form."""
    walk = np.concatenate([[0.0], np.cumsum(sizes[:-1] - np.diff(times))])
    waits = walk - np.minimum.accumulate(walk)
    return waits + sizes, waits


def statistics(values: np.ndarray) -> list[float]:
    return [float(values.mean() if p is None else np.quantile(values, p)) for p in STATISTICS.values()]


def share(found: list[Estimate], truth: float) -> float:
    given_ = [e for e in found if e.low is not None and e.high is not None]
    assert len(given_) >= 0.9 * len(found)
    return sum(e.low <= truth <= e.high for e in given_ if e.low is not None and e.high is not None) / len(given_)


@pytest.mark.parametrize("wave_s", [1200, 300, 60])
def test_intervals_of_a_trace_hold_the_truth_of_its_wave_and_are_narrower_than_those_of_one_run(wave_s: float) -> None:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        times = arrivals(rng, wave_s)
        return times, rng.gamma(2.0, 0.05, len(times))

    truth = statistics(np.concatenate([queue(*draw(np.random.default_rng(1000 + i)))[0] for i in range(400)]))
    found: list[list[Estimate]] = []
    narrower = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        times, sizes = draw(rng)
        latencies, waits = queue(times, sizes)
        own, half = statistics(latencies), window(ticks(times))
        values = []
        for _ in range(8):
            again, jobs = redrawn(ticks(times), rng, half)
            values.append(statistics(queue(again / 1e12, sizes[jobs])[0]))
        found.append([interval(own[i], np.array(values)[:, i], own[0], traced=True) for i in range(4)])
        sample, delays = BatchedSample.from_values(latencies), BatchedSample.from_values(waits)
        one = widen_to_waiting(estimates(sample, within=correlation_of(delays)), estimates(delays))["mean"]
        ours = found[-1][0]
        if ours.low is not None and ours.high is not None and one.low is not None and one.high is not None:
            narrower.append((ours.high - ours.low) / (one.high - one.low))
    # Of 60 intervals at 95%, 50 or more hold in all but one case in ten thousand.
    for i, name in enumerate(STATISTICS):
        assert share([row[i] for row in found], truth[i]) >= 0.83, name
    if wave_s >= 300:
        assert float(np.median(narrower)) < 0.7


TIMES_S = st.just(0.0) | st.floats(1e-12, 1e3)
"""No time or mean of times lies between zero and a tick."""


@given(TIMES_S, st.lists(TIMES_S, min_size=2, max_size=12), TIMES_S, st.booleans())
def test_an_interval_holds_its_value_or_says_why_there_is_none(
    value: float, others: list[float], mean: float, traced: bool
) -> None:
    found = interval(value, np.array(others), mean, traced=traced)
    assert found.value == value
    if found.low is None or found.high is None:
        assert traced and found.reason is not None and "other jobs of the trace" in found.reason
    else:
        assert 0 <= found.low <= value * (1 + 1e-9) + 1e-9 and value <= found.high * (1 + 1e-9) + 1e-9


@given(TIMES_S, st.lists(TIMES_S, min_size=4, max_size=12), TIMES_S, st.booleans())
def test_no_further_runs_bring_an_interval_below_the_end_that_the_first_ones_allow(
    value: float, others: list[float], mean: float, traced: bool
) -> None:
    first = np.array(others[:3])
    least = least_upper_end(value, first, mean, len(others), traced=traced)
    for redrawn_s in (first, np.array(others)):
        high = interval(value, redrawn_s, mean, traced=traced).high
        assert high is None or high * (1 + 1e-9) + 1e-9 >= least


def test_a_trace_whose_redrawn_values_are_elsewhere_has_no_interval() -> None:
    others = np.array([1.0, 1.01, 0.99, 1.0])
    assert interval(2.0, others, 2.0, traced=True).low is None
    # Within a quarter the interval extends to both, and draws from a process are never elsewhere.
    near = interval(1.1, others, 1.0, traced=True)
    assert near.low is not None and near.high is not None and near.low < 1.0 and near.high > 1.1
    assert interval(2.0, others, 2.0, traced=False).low is not None


def test_ends_are_possible_values_in_the_order_of_the_percentiles() -> None:
    found = within_reason(
        {
            "mean": Estimate(2.0, 0.0, 3.0),
            "p50": Estimate(1.5, 0.0, 9.0),
            "p95": Estimate(3.0, 2.5, 4.0),
            "p99": Estimate(5.0, 2.0, 6.0),
        },
        0.5,
    )
    assert [(e.low, e.high) for e in found.values()] == [(0.5, 3.0), (0.5, 4.0), (2.5, 4.0), (2.5, 6.0)]
    without = within_reason({"p50": Estimate(1.0, reason="why"), "p95": Estimate(3.0, 0.0, 4.0)}, 0.5)
    assert without["p50"].low is None and without["p50"].reason == "why" and without["p95"].low == 0.5


# Runs.


def traced(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    times = arrivals(rng, 300)
    rows = "\n".join(
        f"{t:.6f},{n}" for t, n in zip(times.tolist(), rng.integers(1, 40, len(times)).tolist(), strict=True)
    )
    (tmp_path / "rows.csv").write_text(f"at,size\n{rows}\n")
    data: dict[str, Any] = {
        "schema": 1,
        "name": "traced",
        "fleet": [{"device": "server"}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "trace", "file": str(tmp_path / "rows.csv"), "time": "at"},
                "ops": [{"service": {"distribution": "deterministic", "mean": "100 ms"}}],
                "deadline": "1 s",
            }
        ],
        "policy": "fifo",
    }
    return data | changes


def ran(data: dict[str, Any], **options: Any) -> RunResult:
    result = windtunnel.run(scenario_from_data(data), **options).result
    assert isinstance(result, RunResult)
    return result


def test_a_trace_has_intervals_of_possible_values_from_redrawn_runs_alike_in_both_engines(tmp_path: Path) -> None:
    data = traced(tmp_path)
    compiled, process = (ran(data, engine=engine) for engine in ("compiled", "process"))
    assert compiled.statistics.redrawn is not None
    assert compiled.statistics.redrawn.runs == 8 and 15 < compiled.statistics.redrawn.windows_s["calls"] < 75
    for times in (compiled.latency_s, compiled.waiting_s):
        ends = []
        for e in times.by_name().values():
            assert e.value is not None and e.low is not None and e.high is not None and e.low <= e.value <= e.high
            ends.append((e.low, e.high))
        assert ends[1][0] <= ends[2][0] <= ends[3][0] and ends[1][1] <= ends[2][1] <= ends[3][1]
    # No job takes less than its service.
    assert compiled.latency_s.p50.low is not None and compiled.latency_s.p50.low >= 0.1
    alike = [json.loads(result_json(r)) for r in (compiled, process)]
    for one in alike:
        del one["engine"], one["engine_reason"]
    assert alike[0] == alike[1]
    assert result_json(ran(data)) == result_json(ran(data))


def test_the_values_of_a_trace_do_not_change_with_the_number_of_redrawn_runs(tmp_path: Path) -> None:
    data = traced(tmp_path)
    few, more = ran(data), ran(data, replications=20)
    assert more.statistics.redrawn is not None and more.statistics.redrawn.runs == 20 and more.replications == 1
    assert few.latency_s.p99.value == more.latency_s.p99.value
    assert few.latency_s.p99.high != more.latency_s.p99.high


def test_a_long_trace_is_redrawn_on_request_only_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "_MOST_EVENTS", {"compiled": 1000, "process": 1000})
    data = traced(tmp_path)
    result = ran(data)
    assert result.statistics.redrawn is None and result.latency_s.p99.low is None
    reason = result.statistics.missing_interval_reasons["latency_s"]["p99"]
    assert reason is not None and "one run does not show which changes are chance" in reason
    assert any("made on request: --replications 8" in note for note in result.notes)
    assert ran(data, replications=8).latency_s.p99.low is not None


def test_a_plan_redraws_only_fleets_that_meet_the_targets(tmp_path: Path) -> None:
    catalogue = windtunnel.catalogue()

    def planned(limit: str) -> RunResult:
        scenario = scenario_from_data(traced(tmp_path, targets=[f"latency p99 <= {limit}"]))
        return simulate(scenario, 1, "auto", catalogue, redrawn="met")[0]

    missed, met = planned("100 ms"), planned("100 s")
    assert missed.statistics.redrawn is None and missed.targets[0].low is None
    assert met.statistics.redrawn is not None and met.targets[0].low is not None
    assert met.targets[0].confidence == "conclusive"


def test_a_verdict_alone_takes_no_more_redrawn_runs_than_show_that_an_interval_is_beyond_its_limit(
    tmp_path: Path,
) -> None:
    catalogue = windtunnel.catalogue()
    value = ran(traced(tmp_path)).latency_s.p99.value
    assert value is not None
    for factor, runs in ((1.001, 3), (100.0, 3)):
        limit = f"latency p99 <= {value * factor} s"
        scenario = scenario_from_data(traced(tmp_path, targets=[limit]))
        whole, part = (measure(scenario, catalogue, redrawn=when)[0] for when in ("decided", "unsure"))
        assert part.statistics.redrawn is not None and part.statistics.redrawn.runs == runs
        assert [(t.met, t.confidence) for t in part.targets] == [(t.met, t.confidence) for t in whole.targets]
        if factor < 2:
            assert whole.statistics.redrawn is not None and whole.statistics.redrawn.runs == 8
            assert [t.confidence for t in part.targets] == ["inconclusive"]


@pytest.mark.parametrize(
    "process",
    [
        {"process": "burst", "rate": "500 /s", "burst_rate": "3000 /s", "every": "500 ms", "duration": "100 ms"},
        {"process": "mmpp", "states": [{"rate": "400 /s", "sojourn": "1 s"}, {"rate": "2200 /s", "sojourn": "1 s"}]},
        {"process": "batches", "mean_interval": "20 ms", "size": 20},
    ],
)
def test_a_process_with_waves_is_drawn_anew_for_its_intervals(queue: Any, process: dict[str, Any]) -> None:
    data = queue(stop={"jobs": 3000})
    data["workload"][0]["arrivals"] = process
    result = ran(data)
    assert result.statistics.redrawn is not None and result.statistics.redrawn.windows_s == {}
    p95 = result.latency_s.p95
    assert p95.value is not None and p95.low is not None and p95.high is not None and p95.low < p95.value < p95.high
    # Replications are means over runs, with their own intervals.
    assert ran(data, replications=3).statistics.redrawn is None


def test_arrivals_at_a_constant_rate_keep_the_intervals_of_one_run(queue: Any) -> None:
    assert ran(queue()).statistics.redrawn is None


@pytest.mark.parametrize(
    ("sure_at", "after", "most", "runs", "settled"),
    [
        ((0.95,), 0, 8, 8, False), ((0.95, 0.99), 0, 8, 3, True), ((0.99,), 0, 8, 8, False), ((), 0, 8, 8, False),
        ((0.95, 0.99), 4, 8, 8, True), ((0.95, 0.99), 4, 16, 8, True), ((0.95, 0.99), 9, 16, 16, True),
        ((0.95,), 0, 16, 16, False),
    ],
)  # fmt: skip
def test_few_redrawn_runs_decide_the_targets_of_a_plan_only_by_intervals_of_99_percent(
    sure_at: tuple[float, ...], after: int, most: int, runs: int, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``after``: the number of runs from which on the intervals of the confidences ``sure_at`` are within the limits."""

    def judged(_result: Any, found: list[Any], about: Any, _targets: Any, confidence: float = 0.95) -> Any:
        certain = "conclusive" if confidence in sure_at and len(found) >= after else "inconclusive"
        targets, statistics = [SimpleNamespace(met=True, confidence=certain)], SimpleNamespace(redrawn=about)
        return SimpleNamespace(targets=targets, statistics=statistics)

    def replaced(of: Any, **values: Any) -> Any:
        return SimpleNamespace(**{**vars(of), **values})

    made: list[int] = []
    arrivals = SimpleNamespace(stationary=False)
    scenario = SimpleNamespace(seed=1, parsed_targets=list, workload=[SimpleNamespace(arrivals=arrivals)])
    first: Any = SimpleNamespace(scenario=scenario, workloads=[])
    first.redrawn = lambda seed: made.append(seed) or first
    monkeypatch.setattr(simulated, "replace", replaced)
    monkeypatch.setattr("windtunnel.engine.choice.run_on", lambda _engine, _prepared: None)
    monkeypatch.setattr("windtunnel.engine.results.invariants.check", lambda _recording, steps: None)
    monkeypatch.setattr("windtunnel.engine.results.redrawn.values_of", lambda *_: [])
    monkeypatch.setattr("windtunnel.engine.results.redrawn.with_redrawn", judged)
    none: Any = None
    found, _ = simulated._redrawn(first, none, "process", most, processes=1, when="decided")
    assert len(made) == runs and found.statistics.redrawn.settled == settled and found.statistics.redrawn.runs == runs
