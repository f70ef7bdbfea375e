"""The engine against closed forms of queueing theory: judged jointly over many seeds, never by one run.

A mean is compared by a t-test of the runs' means. A percentile is compared by the share of jobs beyond the theory's: it
is unbiased however correlated the jobs are, where the percentile of a run is not. Every comparison is shown to catch a
service time that is a few per cent off. The formulas are those of tests/theory/queueing.py, compared here with tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from tests.theory.queueing import (
    MMc,
    erlang_c,
    md1_wait_s,
    md1_wait_within,
    mg1_mean_wait_s,
    mg1_priority_mean_waits_s,
    mg1_ps_mean_sojourn_s,
    mmc_priority_mean_waits_s,
)

import windtunnel
from windtunnel.core.results.run import TimeDistribution
from windtunnel.scenario.read import scenario_from_data

SEEDS = 16


@dataclass(frozen=True)
class System:
    """A station in a steady state, its service of mean 1 s, and what theory says: means, and percentiles of the wait."""

    servers: int
    load: float
    service: dict[str, Any]
    mean_wait_s: float
    wait_s: Callable[[float], float] | None = None
    sojourn_s: Callable[[float], float] | None = None
    jobs: int = 8_000
    percentiles: tuple[float, ...] = field(default=(0.5, 0.95, 0.99))

    def scenario(self, seed: int, *, slower: float = 1.0) -> dict[str, Any]:
        return {
            "schema": 1,
            "name": "theory",
            "seed": seed,
            "fleet": [{"device": "server", "count": self.servers}],
            "workload": [
                {
                    "name": "calls",
                    "arrivals": {"process": "poisson", "rate": f"{self.servers * self.load} /s"},
                    "ops": [{"service": {"mean": f"{slower} s"} | self.service}],
                }
            ],
            "stop": {"jobs": self.jobs},
        }


def mmc(servers: int, load: float, **more: Any) -> System:
    queue = MMc(servers * load, 1.0, servers)
    return System(
        servers, load, {"distribution": "exponential"}, queue.mean_wait_s(), queue.wait_s, queue.sojourn_s, **more
    )


def md1(load: float, **more: Any) -> System:
    return System(
        1, load, {"distribution": "deterministic"}, mg1_mean_wait_s(load, 1.0, 0.0), lambda p: md1_wait_s(load, 1.0, p), **more
    )  # fmt: skip


def mg1(load: float, distribution: str, cv: float) -> System:
    return System(1, load, {"distribution": distribution, "cv": cv}, mg1_mean_wait_s(load, 1.0, cv))


SYSTEMS = {
    "M/M/1 at 0.3": mmc(1, 0.3),
    "M/M/1 at 0.8": mmc(1, 0.8),
    "M/M/1 at 0.95": mmc(1, 0.95, jobs=25_000),
    "M/M/4 at 0.7": mmc(4, 0.7),
    "M/M/16 at 0.9": mmc(16, 0.9, jobs=12_000),
    "M/D/1 at 0.5": md1(0.5),
    "M/D/1 at 0.9": md1(0.9, jobs=12_000),
    "M/G/1 lognormal": mg1(0.5, "lognormal", 1.5),
    "M/G/1 gamma": mg1(0.7, "gamma", 0.5),
    "M/G/1 Weibull": mg1(0.3, "weibull", 2.0),
}


def of_runs(system: System, slower: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(waits, sojourns) in s of independent runs, the first tenth of each left out."""
    waits, sojourns = [], []
    for seed in range(SEEDS):
        jobs = windtunnel.run(scenario_from_data(system.scenario(seed, slower=slower))).recording.jobs
        kept = slice(len(jobs) // 10, None)
        waits.append((jobs.start[kept] - jobs.arrival[kept]) / 1e12)
        sojourns.append((jobs.finish[kept] - jobs.arrival[kept]) / 1e12)
    return waits, sojourns


def errors_off(values: list[float], truth: float) -> float:
    """How many standard errors of the mean over seeds the truth is away."""
    found = np.array(values)
    error = float(found.std(ddof=1)) / math.sqrt(len(found))
    return abs(float(found.mean()) - truth) / error if error else (0.0 if found.mean() == truth else math.inf)


# Student's t with 15 degrees of freedom is beyond 4.6 one time in 2,900.
FAR = 4.6


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_waits_and_sojourns_agree_with_theory(system: System) -> None:
    waits, sojourns = of_runs(system)
    means = [float(w.mean()) for w in waits]
    assert errors_off(means, system.mean_wait_s) < FAR
    # The comparison means something: the runs together know the mean well.
    assert float(np.std(means, ddof=1)) / math.sqrt(SEEDS) < 0.13 * system.mean_wait_s
    for p in system.percentiles:
        if system.wait_s is not None and system.wait_s(p) > 0:
            assert errors_off([float((w > system.wait_s(p)).mean()) for w in waits], 1 - p) < FAR, p
        if system.sojourn_s is not None:
            assert errors_off([float((s > system.sojourn_s(p)).mean()) for s in sojourns], 1 - p) < FAR, p


def test_a_service_time_a_few_per_cent_off_would_be_caught() -> None:
    for name, slower in (("M/M/1 at 0.8", 1.05), ("M/M/4 at 0.7", 1.05), ("M/D/1 at 0.5", 1.03)):
        system = SYSTEMS[name]
        waits, _ = of_runs(system, slower)
        assert errors_off([float(w.mean()) for w in waits], system.mean_wait_s) > FAR, name
        assert system.wait_s is not None
        share = [float((w > system.wait_s(0.95)).mean()) for w in waits]
        assert errors_off(share, 0.05) > FAR, name


# Priorities.


def by_class(servers: int, rates: list[float], services: list[dict[str, Any]], priorities: list[int]) -> np.ndarray:
    """(SEEDS, classes): each class's mean wait (s) in independent runs."""
    found = []
    for seed in range(SEEDS):
        data = {
            "schema": 1,
            "name": "priorities",
            "seed": seed,
            "fleet": [{"device": "server", "count": servers}],
            "workload": [
                {
                    "name": f"class {i}",
                    "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
                    "ops": [{"service": service}],
                    "priority": priority,
                }
                for i, (rate, service, priority) in enumerate(zip(rates, services, priorities, strict=True))
            ],
            "policy": "priority",
            "stop": {"jobs": 8_000},
        }
        jobs = windtunnel.run(scenario_from_data(data)).recording.jobs
        wait = (jobs.start - jobs.arrival)[800:] / 1e12
        found.append([wait[jobs.workload[800:] == i].mean() for i in range(len(rates))])
    return np.array(found)


def test_non_preemptive_priorities_agree_with_cobham() -> None:
    exponential = {"distribution": "exponential", "mean": "1 s"}
    rates = [0.5, 0.6, 0.5]
    found = by_class(2, rates, [exponential] * 3, [3, 2, 1])
    expected = mmc_priority_mean_waits_s(rates, 1.0, 2)
    for i, wait in enumerate(expected):
        assert errors_off(found[:, i].tolist(), wait) < FAR
    # The class order matters: the other way round is far off.
    assert errors_off(found[:, 0].tolist(), expected[2]) > 2 * FAR


def test_priorities_with_different_services_agree_with_cobham() -> None:
    services = [
        {"distribution": "deterministic", "mean": "0.5 s"},
        {"distribution": "gamma", "mean": "2 s", "cv": 1.5},
    ]
    rates = [0.7, 0.15]
    found = by_class(1, rates, services, [2, 1])
    for i, wait in enumerate(mg1_priority_mean_waits_s(rates, [0.5, 2.0], [0.0, 1.5])):
        assert errors_off(found[:, i].tolist(), wait) < FAR


# Processor sharing.


def sharing(load: float, sizes: tuple[int, ...], jobs: int, seeds: int, slower: float = 1.0) -> tuple[np.ndarray, list[float]]:  # fmt: skip
    """(seeds, classes) mean sojourns, and how long a job of each class takes alone (s).

    A capped card on which one request alone draws all that the cap leaves: with k of them it gives each a k-th.
    """
    work = {size: [{"sign": {"scheme": "rsa2048", "count": size}}] for size in sizes}
    fleet = [{"device": "qat-8970", "streams": 1024, "power": {"idle": "5 W", "max": "8 W"}}]

    def run(seed: int, rate: float, count: int, only: tuple[int, ...]) -> Any:
        data = {
            "schema": 1,
            "name": "sharing",
            "seed": seed,
            "fleet": fleet,
            "workload": [
                {
                    "name": f"size {size}",
                    "arrivals": {"process": "poisson", "rate": f"{rate / len(only)} /s"},
                    "ops": work[size],
                }
                for size in only
            ],
            "stop": {"jobs": count},
        }
        return windtunnel.run(scenario_from_data(data)).recording.jobs

    alone = []
    for size in sizes:
        job = run(0, 1.0, 1, (size,))
        alone.append(float(job.finish[0] - job.start[0]) / 1e12)
    found = []
    for seed in range(seeds):
        done = run(seed, slower * load / float(np.mean(alone)), jobs, sizes)
        assert int((done.start - done.arrival).max()) == 0  # nobody waits: all share
        kept = slice(jobs // 10, None)
        sojourn = (done.finish - done.arrival)[kept] / 1e12
        found.append([sojourn[done.workload[kept] == i].mean() for i in range(len(sizes))])
    return np.array(found), alone


def test_a_capped_device_shares_itself_as_processor_sharing_says() -> None:
    for load, sizes in ((0.5, (1,)), (0.7, (1, 4))):
        found, alone = sharing(load, sizes, 2_500, 10)
        mean_s = float(np.mean(alone))
        for i, alone_s in enumerate(alone):
            expected = mg1_ps_mean_sojourn_s(load / mean_s, mean_s, alone_s)
            assert errors_off(found[:, i].tolist(), expected) < 5.0  # t with 9 degrees: one time in 1,300
            assert float(found[:, i].std(ddof=1)) / math.sqrt(10) < 0.08 * expected
    # With 5% more work than was reckoned with, it is seen.
    found, alone = sharing(0.5, (1,), 2_500, 10, slower=1.05)
    assert errors_off(found[:, 0].tolist(), mg1_ps_mean_sojourn_s(0.5 / alone[0], alone[0])) > 3.0


# Intervals of single runs.


@pytest.fixture(scope="module")
def latencies() -> list[TimeDistribution]:
    system = mmc(1, 0.5, jobs=5_000)
    return [windtunnel.run(scenario_from_data(system.scenario(1000 + seed))).result.latency_s for seed in range(60)]


@pytest.mark.parametrize(("name", "p"), [("mean", None), ("p50", 0.5), ("p95", 0.95)])
def test_intervals_of_single_runs_hold_the_truth_as_often_as_they_say(
    latencies: list[TimeDistribution], name: str, p: float | None
) -> None:
    queue = MMc(0.5, 1.0)
    truth = queue.mean_sojourn_s() if p is None else queue.sojourn_s(p)
    found = [latency.of(name) for latency in latencies]
    held = sum(one.low <= truth <= one.high for one in found)
    # Fewer would come one time in a thousand if each held with 95%.
    assert held >= int(binom.ppf(0.001, len(found), 0.95))
    # And the half-width agrees with the spread between seeds, which 60 runs tell to a tenth.
    spread = 1.96 * float(np.std([one.value for one in found], ddof=1))
    assert 0.8 < float(np.median([(one.high - one.low) / 2 for one in found])) / spread < 1.6


# The formulas themselves.


def test_formulas_agree_with_tables_and_with_each_other() -> None:
    # Erlang C of 2 erlangs on 3 servers is 4/9; 8 on 10 is 0.4092 (Cooper, Introduction to Queueing Theory, tables).
    assert erlang_c(3, 2.0) == pytest.approx(4 / 9)
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-5)
    assert MMc(0.8, 1.0).mean_wait_s() == pytest.approx(mg1_mean_wait_s(0.8, 1.0, 1.0)) == pytest.approx(4.0)
    queue = MMc(57.6, 1.0, 64)
    for p in (0.5, 0.95, 0.99):
        assert queue.sojourn_beyond(queue.sojourn_s(p)) == pytest.approx(1 - p)
    assert MMc(0.9, 1.0).sojourn_s(0.99) == pytest.approx(-math.log(0.01) / 0.1)
    for load in (0.3, 0.8, 0.95):
        # The mean is the integral of what exceeds.
        grid = np.linspace(0, 8 / (1 - load), 800)
        beyond = [1 - md1_wait_within(load, 1.0, float(t)) for t in grid]
        assert float(np.trapezoid(beyond, grid)) == pytest.approx(mg1_mean_wait_s(load, 1.0, 0.0), rel=5e-3)
        assert md1_wait_within(load, 1.0, 0.0) == pytest.approx(1 - load)
    one_class = mmc_priority_mean_waits_s([1.6], 1.0, 2)
    assert one_class == pytest.approx([MMc(1.6, 1.0, 2).mean_wait_s()])
    # Kleinrock's conservation law: load-weighted waits do not depend on the order of service.
    waits = mg1_priority_mean_waits_s([0.3, 0.2], [1.0, 1.5], [1.0, 0.0])
    swapped = mg1_priority_mean_waits_s([0.2, 0.3], [1.5, 1.0], [0.0, 1.0])
    assert 0.3 * waits[0] + 0.3 * waits[1] == pytest.approx(0.3 * swapped[0] + 0.3 * swapped[1])
    for unstable in (
        lambda: erlang_c(2, 2.0),
        lambda: mg1_mean_wait_s(1.0, 1.0, 1.0),
        lambda: md1_wait_s(1.1, 1.0, 0.5),
    ):
        with pytest.raises(ValueError, match="no steady state"):
            unstable()
