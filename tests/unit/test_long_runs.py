"""Runs too long for every job's times: the same jobs as when all are kept, summed up as they go; and runs until precise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.core.results.run import Estimate, distribution
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run


def data(**more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "long",
        "seed": 3,
        "fleet": [
            {"device": "server", "name": "slow", "count": 3, "power": {"idle": "60 W", "max": "300 W"}},
            {"device": "server", "name": "fast", "speed": 4.0, "power": {"idle": "90 W", "max": "700 W"}},
        ],
        "workload": [
            {
                "name": "short",
                "arrivals": {"process": "poisson", "rate": "3000 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            },
            {
                "name": "long",
                "arrivals": {
                    "process": "mmpp",
                    "states": [{"rate": "100 /s", "sojourn": "1 s"}, {"rate": "900 /s", "sojourn": "0.2 s"}],
                },
                "ops": [{"service": {"distribution": "lognormal", "mean": "4 ms", "cv": 2}}],
            },
        ],
        "policy": "shortest-expected-completion",
        "stop": {"jobs": 60_000},
        **more,
    }


def run(engine: str = "auto", **more: Any) -> Run:
    return windtunnel.run(scenario_from_data(data(**more)), engine=engine)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"policy": "priority", "stop": {"time": "9 s"}},
        {
            "faults": [
                {"kind": "failure", "mtbf": "2 s", "mttr": "100 ms", "max_attempts": 1},
                {"kind": "straggler", "probability": 0.01, "slowdown": 20, "workloads": ["short"]},
                {"kind": "throttle", "mean_interval": "1 s", "duration": "0.3 s", "speed": 0.5},
            ]
        },
    ],
)
def test_sums_agree_with_every_jobs_times(more: dict[str, Any]) -> None:
    every, summed = run(records="all", engine="compiled", **more), run(records="sample", **more)
    assert summed.recording.tally is not None
    assert every.recording.tally is None
    one, other = every.result, summed.result
    assert one.jobs == other.jobs
    assert [w.jobs for w in one.workloads] == [w.jobs for w in other.workloads]
    assert [d.jobs for d in one.devices] == [d.jobs for d in other.devices]
    assert one.simulated_s == other.simulated_s
    for key in ("energy_j", "average_power_w", "peak_power_w", "utilisation", "throughput_per_s", "availability"):
        assert getattr(other, key) == pytest.approx(getattr(one, key), rel=1e-9), key
    # Sums hold all jobs; what is reported leaves out a warm-up, which is cut at a batch's end. So compare the sums.
    jobs = every.recording.jobs
    tally = summed.recording.tally
    done, started = jobs.status == 0, jobs.start >= 0
    for series, mine in ((0, np.ones(len(jobs), bool)), (1, jobs.workload == 0), (2, jobs.workload == 1)):
        row = tally.batches[series]
        latency = (jobs.finish - jobs.arrival)[done & mine].astype(float)
        waiting = (jobs.start - jobs.arrival)[started & mine].astype(float)
        assert row["latency_n"].sum() == len(latency)
        assert row["waiting_n"].sum() == len(waiting)
        assert row["latency_sum"].sum() == pytest.approx(latency.sum(), rel=1e-12)
        assert row["waiting_sum"].sum() == pytest.approx(waiting.sum(), rel=1e-12)
        assert tally.bins[0, series].sum() == len(latency)
        assert tally.bins[1, series, :, 0].sum() == (waiting == 0).sum()


def test_percentiles_are_within_the_stated_error() -> None:
    every, summed = run(records="all", engine="compiled"), run(records="none")
    for workload, other in zip(every.result.workloads, summed.result.workloads, strict=True):
        for metric in ("latency", "waiting"):
            for name in ("p95", "p99"):
                expected = distribution(workload, metric).of(name).value
                # The warm-up is cut a little differently; half a per cent is the sketch's own.
                assert distribution(other, metric).of(name).value == pytest.approx(expected, rel=0.05)


def test_a_sample_holds_every_so_many_th_job_as_it_was() -> None:
    every, summed = run(records="all", engine="compiled").recording, run(records="sample").recording
    assert len(summed.jobs) == 60_000  # fewer than 200,000 jobs are all in the sample
    for name in ("arrival", "start", "finish", "device", "workload", "status"):
        assert np.array_equal(getattr(every.jobs, name), getattr(summed.jobs, name)), name
    assert len(run(records="none").recording.jobs) == 0


def test_more_jobs_than_expected_and_a_longer_run_lose_nothing() -> None:
    """Batches and short times are joined when there turn out to be too many: an expectation ten times too low."""
    burst = [
        {
            "name": "bursts",
            "arrivals": {
                "process": "spikes",
                "rate": "100 /s",
                "factor": 50,
                "duration": "1 s",
                "at": ["1 s", "3 s", "5 s", "7 s"],
            },
            "ops": [{"service": {"distribution": "exponential", "mean": "2 ms"}}],
        }
    ]
    one = run(records="all", engine="compiled", workload=burst, stop={"time": "10 s"})
    other = run(records="none", workload=burst, stop={"time": "10 s"})
    assert one.result.jobs == other.result.jobs
    assert one.result.jobs.arrived > 10_000
    assert other.result.energy_j == pytest.approx(one.result.energy_j, rel=1e-9)
    assert other.recording.power.integral() == pytest.approx(one.recording.power.integral(), rel=1e-9)


def test_the_same_long_run_twice_gives_the_same_bytes() -> None:
    assert result_json(run(records="sample").result) == result_json(run(records="sample").result)


def test_a_run_goes_on_until_it_is_precise() -> None:
    # Poisson arrivals alone: with bursts the same precision takes a thousand times as many jobs.
    calm = data()["workload"][:1]
    result = run(workload=calm, stop={"relative_error": "3%"}).result
    mean = result.latency_s.mean
    stopped = result.statistics.stopped
    assert stopped.achieved_error <= 0.03
    assert max(mean.high - mean.value, mean.value - mean.low) <= 0.03 * mean.value * (1 + 1e-9)
    assert stopped.jobs == result.jobs.arrived
    precise = run(workload=calm, stop={"relative_error": "1%"}).result.statistics.stopped
    assert precise.jobs > stopped.jobs
    other = run(
        workload=calm, stop={"relative_error": "10%", "metric": "waiting p95 of short"}
    ).result.statistics.stopped
    assert other.metric == "waiting p95 of short"
    assert other.achieved_error <= 0.10


def test_the_stated_metric_of_the_stated_workload_is_what_becomes_precise() -> None:
    workload = data()["workload"]
    workload[1]["arrivals"] = {"process": "poisson", "rate": "200 /s"}
    result = run(workload=workload, stop={"relative_error": "10%", "metric": "waiting p95 of short"}).result
    short = next(part for part in result.workloads if part.name == "short")

    def error(interval: Estimate) -> float:
        return max(interval.high - interval.value, interval.value - interval.low) / interval.value

    stated = error(short.waiting_s.p95)
    others = [error(interval) for interval in (short.waiting_s.mean, short.latency_s.mean, result.waiting_s.p95)]
    assert result.statistics.stopped.achieved_error == pytest.approx(stated, rel=1e-12)
    assert all(other != pytest.approx(stated, rel=1e-3) for other in others), "the metrics cannot be told apart"


def test_a_precision_that_cannot_be_had_is_given_up_and_said() -> None:
    result = run(stop={"relative_error": "0.1%", "max": 30_000}).result
    assert result.jobs.arrived == 30_000
    assert any("stopped after 30,000 jobs" in note for note in result.notes)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"stop": {"relative_error": "2%", "jobs": 5}}, "a number of jobs, a time or a precision"),
        ({"stop": {"jobs": 5, "metric": "latency p99"}}, "are for a precision"),
        ({"stop": {"relative_error": "2%", "metric": "latency p98"}}, "p99"),
        ({"stop": {"relative_error": "2%", "metric": "power average"}}, "power average"),
    ],
)
def test_what_is_wrong_with_a_precision_is_said(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(**more)


@pytest.mark.parametrize("load", [1.0, 1.05, 2.0])
def test_a_system_at_or_over_its_capacity_is_said_to_be_unstable_and_not_averaged(load: float) -> None:
    workload = [
        {
            "name": "calls",
            "arrivals": {"process": "poisson", "rate": f"{4000 * load} /s"},
            "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
        }
    ]
    for records in ("all", "none"):
        result = run(
            fleet=[{"device": "server", "count": 4}],
            workload=workload,
            policy="fifo",
            records=records,
            targets=["latency p99 <= 1 h"],
        ).result
        assert result.statistics.offered_load == pytest.approx(load)
        assert result.statistics.steady_state == "unstable"
        assert any("unstable" in note for note in result.notes)
        assert result.latency_s.mean.to_dict() == {"value": None, "low": None, "high": None}
        assert not result.targets[0].met


def test_a_clockwork_at_exactly_its_capacity_is_not_called_unstable() -> None:
    workload = [
        {
            "name": "ticks",
            "arrivals": {"process": "deterministic", "rate": "1000 /s"},
            "ops": [{"service": {"distribution": "deterministic", "mean": "1 ms"}}],
        }
    ]
    result = run(fleet=[{"device": "server"}], workload=workload, policy="fifo", stop={"jobs": 5000}).result
    assert result.statistics.offered_load == pytest.approx(1.0)
    assert result.latency_s.mean.value == pytest.approx(1e-3)


def test_a_burst_of_a_few_jobs_is_averaged_all_the_same() -> None:
    workload = [
        {
            "name": "burst",
            "arrivals": {"process": "deterministic", "rate": "1000 /s"},
            "ops": [{"service": {"distribution": "deterministic", "mean": "2 ms"}}],
        }
    ]
    result = run(fleet=[{"device": "server"}], workload=workload, policy="fifo", stop={"jobs": 3}).result
    assert result.latency_s.mean.value == pytest.approx(3e-3)


def test_the_offered_load_of_a_mixed_fleet_is_the_least_of_a_linear_program() -> None:
    """Two workloads, one of which only the fast device may run: by hand, its device is the bottleneck."""
    result = run(
        workload=[
            {**data()["workload"][0], "devices": ["fast"], "arrivals": {"process": "poisson", "rate": "2000 /s"}},
            {**data()["workload"][1], "arrivals": {"process": "poisson", "rate": "600 /s"}},
        ],
        stop={"jobs": 3000},
    ).result
    # fast: 2000 x 1/4 ms = 0.5, and x of the long ones at 1 ms; slow: (600 - x) x 4 ms / 3. Equal at x = 128.57.
    assert result.statistics.offered_load == pytest.approx(0.5 + 128.571428e-3, rel=1e-6)


def test_records_that_cannot_be_dropped_are_kept_and_that_is_said() -> None:
    finished = run(engine="process", records="none", stop={"jobs": 2000})
    assert finished.recording.tally is None
    assert any("records: none was requested" in note for note in finished.result.notes)


def test_the_load_of_batches_of_jobs_that_differ_is_not_reckoned_singly() -> None:
    """Twice as many jobs as could be served one by one: their batches can, so nothing is called unstable."""
    workload = [
        {
            "name": "chat",
            "arrivals": {"process": "poisson", "rate": "40 /s"},
            "ops": [{"generate": {"model": "small", "prompt": 64, "output": 32}}],
        }
    ]
    result = run(
        fleet=[{"device": "l4"}],
        models={"small": {"layers": 16, "width": 2048, "heads": 16, "feed_forward": 5504}},
        workload=workload,
        policy={"name": "fifo", "batch": {"kind": "request", "size": 16, "wait": "5 ms"}},
        stop={"jobs": 1200},
    ).result
    assert result.statistics.offered_load is None
    assert result.statistics.steady_state != "unstable"


def test_a_sample_of_a_run_with_twice_the_jobs_expected_is_thinned_and_still_even() -> None:
    busy = {
        "workload": [
            {
                "name": "calls",
                # The first hours of a day that hold more than its mean.
                "arrivals": {
                    "process": "diurnal",
                    "rate": "1 /s",
                    "amplitude": 0.9,
                    "peak": "15:00",
                    "start_time": "11:00",
                },
                "ops": [{"service": {"distribution": "exponential", "mean": "0.4 s"}}],
            }
        ],
        "stop": {"time": "8 h"},
    }
    every = run(records="all", engine="compiled", **busy).recording
    sampled = run(records="sample", **busy).recording
    assert len(every.jobs) > 1.5 * 8 * 3600
    assert len(sampled.jobs) == -(-len(every.jobs) // 2)
    for name in ("arrival", "start", "finish", "device", "status"):
        assert np.array_equal(getattr(every.jobs, name)[::2], getattr(sampled.jobs, name)), name


@pytest.mark.parametrize(("rate", "lasts"), [("10 /s", "10 h"), ("1000000 /s", "100 d")])
def test_energy_by_hour_is_exact_however_long_nothing_happens(rate: str, lasts: str) -> None:
    """A gap many thousand times as long as the whole run was expected to be."""
    more = {
        "fleet": [{"device": "server", "power": {"idle": "100 W", "max": "300 W"}, "price": "1 USD/h"}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "deterministic", "rate": rate},
                "ops": [{"service": {"distribution": "deterministic", "mean": "50 ms"}}],
            }
        ],
        "faults": [{"kind": "link-loss", "at": ["1 us"], "duration": lasts}],
        "site": {"energy_price": [f"{hour % 5} USD/kWh" for hour in range(24)], "start_time": "11:20"},
        "stop": {"jobs": 100},
    }
    every = run(records="all", engine="compiled", **more).result.site
    summed = run(records="none", **more)
    for name, value in every.to_dict().items():
        assert getattr(summed.result.site, name) == (None if value is None else pytest.approx(value, rel=1e-9)), name
    assert summed.recording.power.integral() == pytest.approx(summed.result.energy_j, rel=1e-9)
