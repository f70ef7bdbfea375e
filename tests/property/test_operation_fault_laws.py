"""Laws of faults of single operations, for whatever scenario: what they keep, and what their draws belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2, kstest

import windtunnel
from windtunnel.core.recording import COMPLETED, FAILED, QUEUED, RUNNING, Recording
from windtunnel.core.rng import key_words
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions.build import Words, build
from windtunnel.engine.transitions.operation_faults import consider, decided, take_effect, threefry, uniform
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

CATALOGUE = windtunnel.catalogue()
KERNELS = ["out-of-memory", "queue-full", "launch-failure", "ecc", "hang", "device-lost"]
KINDS = [*KERNELS, "copy-failure", "slow-copy", "corrupt-copy"]


@st.composite
def faults(draw: st.DrawFn, kinds: list[str] = KINDS) -> dict[str, Any]:
    kind = draw(st.sampled_from(kinds))
    strikes: list[dict[str, Any]] = [
        {"probability": draw(st.sampled_from([0.02, 0.3, 1.0]))},
        {"call": draw(st.integers(1, 60))},
        {"after": f"{draw(st.integers(0, 60))} ms"},
    ]
    fault = {"kind": kind, **draw(st.sampled_from(strikes))}
    if draw(st.booleans()):
        fault["times"] = draw(st.integers(1, 8))
    if kind not in ("slow-copy", "corrupt-copy"):
        fault["on_failure"] = draw(st.sampled_from(["retry", "migrate", "fail"]))
        fault["max_attempts"] = draw(st.integers(1, 4))
    if kind == "device-lost" or (kind in ("ecc", "hang", "launch-failure") and draw(st.booleans())):
        fault["reset_time"] = draw(st.sampled_from(["1 us", "3 ms", "40 ms"]))
    if kind == "hang":
        fault["watchdog_timeout"] = draw(st.sampled_from(["1 ns", "2 ms", "30 ms"]))
    if draw(st.booleans()):
        fault["workloads"] = ["mixed"]
    return fault


def device_faults() -> st.SearchStrategy[dict[str, Any]]:
    lasts = st.sampled_from(["1 ms", "20 ms"])
    return st.one_of(
        st.builds(lambda d: {"kind": "failure", "mtbf": "30 ms", "mttr": d, "on_failure": "migrate"}, lasts),
        st.builds(lambda d: {"kind": "link-loss", "mean_interval": "30 ms", "duration": d}, lasts),
        st.builds(lambda d: {"kind": "throttle", "mean_interval": "30 ms", "duration": d, "speed": 0.5}, lasts),
        st.just({"kind": "straggler", "probability": 0.2, "slowdown": 3}),
        st.just({"kind": "brown-out", "at": ["20 ms"], "duration": "5 ms", "budget": "150 W"}),
    )


def data(stated: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "laws",
        "fleet": [{"device": "l4", "calibration": "none", "count": 2}, {"device": "l4", "name": "slow", "speed": 0.5}],
        "workload": [
            {
                "name": "mixed",
                "arrivals": {"process": "poisson", "rate": "900 /s"},
                "ops": [
                    {"copy": {"bytes": "4 MB", "direction": "h2d"}},
                    {"vector_add": {"n": 3_000_000}},
                    {"copy": {"bytes": "1 MB", "direction": "d2h"}},
                ],
                "priority": 1,
            },
            {
                "name": "plain",
                "arrivals": {"process": "poisson", "rate": "400 /s"},
                "ops": [{"vector_add": {"n": 10_000_000}}],
            },
        ],
        "stop": {"jobs": 80},
        "faults": stated,
        **more,
    }


def run(stated: list[dict[str, Any]], **more: Any) -> Recording:
    return process.run(prepare_run(scenario_from_data(data(stated, **more)), CATALOGUE))


scenarios = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 5),
        "policy": st.sampled_from(["fifo", "priority", "least-loaded", "round-robin", "shortest-expected-completion"]),
        "stop": st.sampled_from([{"jobs": 80}, {"time": "70 ms"}]),
    },
    optional={"power_budget": st.sampled_from(["150 W", "200 W"])},
)


@settings(max_examples=60)
@given(st.lists(st.one_of(faults(), faults(), device_faults()), min_size=1, max_size=5), scenarios)
def test_jobs_are_kept_and_the_same_seed_gives_the_same_run(stated: list[dict[str, Any]], more: dict[str, Any]) -> None:
    found = run(stated, **more)
    invariants.check(found)
    counts = np.bincount(found.jobs.status, minlength=5)
    assert len(found.jobs) == sum(counts[code] for code in (COMPLETED, FAILED, RUNNING, QUEUED))
    for number, (concerned, struck) in found.fault_occurrences.items():
        fault = stated[number]
        most = fault.get("times", None if "probability" in fault else 1)
        assert struck <= concerned and (most is None or struck <= most)
        if fault.get("probability") == 1.0 and len(stated) == 1 and most is None:
            assert struck == concerned
    # Every attempt that did not end was ended by something.
    assert found.jobs.starts.max(initial=0) <= 4 or any(one["kind"] == "failure" for one in stated)
    if "stop" not in more or "jobs" in more["stop"]:
        assert not counts[RUNNING] and not counts[QUEUED]
    again = run(stated, **more)
    for name in ("start", "finish", "device", "status", "starts", "energy_j"):
        assert np.array_equal(getattr(found.jobs, name), getattr(again.jobs, name))
    assert found.fault_occurrences == again.fault_occurrences and found.corrupted == again.corrupted


@settings(max_examples=40)
@given(st.lists(st.one_of(faults(), device_faults()), max_size=3), scenarios)
def test_what_harms_nothing_changes_nothing(stated: list[dict[str, Any]], more: dict[str, Any]) -> None:
    """Garbled copies at the end of the list, and errors that come too late, leave every job as it was."""
    late: list[dict[str, Any]] = [{"kind": "corrupt-copy", "probability": 0.5}, {"kind": "ecc", "after": "10 h"}]
    plain = run([*stated, {"kind": "hang", "call": 10**9}], **more)
    both = run([*stated, {"kind": "hang", "call": 10**9}, *late], **more)
    for name in ("start", "finish", "device", "status", "starts", "energy_j"):
        assert np.array_equal(getattr(plain.jobs, name), getattr(both.jobs, name))
    assert {number: both.fault_occurrences[number] for number in plain.fault_occurrences} == plain.fault_occurrences


Key = tuple[int, int, int]
Effect = tuple[int, int, int, int] | None
"""Ticks, the fault that ends the operation, whether its time is stated, and whether its data are corrupted."""


def effects(stated: list[dict[str, Any]], keys: list[Key], seed: int = 1, **more: Any) -> list[Effect]:
    """What takes effect on the kernel of the first workload, for each key: job, attempt and place."""
    world = build(prepare_run(scenario_from_data(data(stated, seed=seed, **more)), CATALOGUE), Words())
    program = world.programs[0]
    kernel = world.segments[world.ways[program.ways].first + 1]
    found: list[Effect] = []
    for key in keys:
        applies = consider(world, kernel.faults_at, kernel.faults, 0, *key)
        found.append(take_effect(world, 1_000) if applies else None)
        decided(world)
    return found


def struck_by(stated: list[dict[str, Any]], seed: int = 1) -> list[Effect]:
    """What takes effect on the kernels of 60 jobs' attempts; nothing limits how often."""
    return effects(
        stated, [(rank, attempt, place) for rank in range(60) for attempt in (1, 2, 3) for place in (0, 1)], seed
    )


@settings(max_examples=30)
@given(st.sampled_from([0.1, 0.5]), st.lists(faults(["copy-failure", "slow-copy"]), max_size=3), st.integers(0, 5))
def test_a_fault_at_the_end_of_the_list_changes_no_draw(p: float, more: list[dict[str, Any]], seed: int) -> None:
    first = {"kind": "ecc", "probability": p}
    alone = [strike is not None for strike in struck_by([first], seed)]
    assert alone == [strike is not None for strike in struck_by([first, *more], seed)]
    # One that ends operations later, when the first has struck already, moves none of the first's strikes either.
    hang = {"kind": "hang", "probability": 1.0, "watchdog_timeout": "1 s"}
    ends = [strike is not None and not strike[2] for strike in struck_by([first, hang], seed)]
    assert ends == alone
    assert alone != [strike is not None for strike in struck_by([first], seed + 1)]


def test_a_fault_after_another_draws_for_itself() -> None:
    one = {"kind": "ecc", "probability": 0.5, "workloads": ["plain"]}
    two = {"kind": "ecc", "probability": 0.5}
    first, second = struck_by([two]), struck_by([one, two])
    assert first != second


def test_a_draw_depends_on_the_operation_and_not_on_the_order_in_which_operations_start() -> None:
    """The decision is keyed by job, attempt and operation: other operations before it change nothing."""
    operations = [(rank, attempt, place) for rank in range(60) for attempt in (1, 2) for place in (0, 1, 2)]

    def affected(order: list[Key]) -> dict[Key, bool]:
        found = effects([{"kind": "ecc", "probability": 0.5}], order)
        return {key: effect is not None for key, effect in zip(order, found, strict=True)}

    forwards = affected(operations)
    assert forwards == affected(operations[::-1])
    for first, second in ((0, 1), (1, 2)):
        one_place, other_place = ([hit for key, hit in forwards.items() if key[2] == n] for n in (first, second))
        assert one_place != other_place, f"operations {first} and {second} share their draws"


def test_another_workload_changes_no_draw_of_a_workload() -> None:
    """The same jobs fail, whether or not operations of another workload start between theirs."""
    both = data([])["workload"]
    fault = {"kind": "ecc", "probability": 0.3, "on_failure": "fail"}
    workloads = {"alone": both[1:], "beside another": both}
    failed = {}
    for name, workload in workloads.items():
        recording = run([fault], workload=workload, stop={"time": "200 ms"})
        of_plain = recording.jobs.workload == len(workload) - 1
        assert recording.fault_occurrences[0][0] > 0
        # Near the end, a job beside others may not have ended. The first 40 of some 80 have.
        failed[name] = recording.jobs.status[of_plain][:40]
        assert set(failed[name].tolist()) == {COMPLETED, FAILED}, name
    assert np.array_equal(failed["alone"], failed["beside another"])


@pytest.mark.parametrize("p", [0.01, 0.2])
def test_the_share_that_is_struck_is_its_probability(p: float) -> None:
    """Jointly over 40 seeds of 2,000 jobs of one attempt: a sum of squares of standard errors (chi-squared)."""
    jobs, total = 2_000, 0.0
    workload = {
        "name": "w",
        "arrivals": {"process": "deterministic", "rate": "1000 /s"},
        "ops": [{"service": {"distribution": "deterministic", "mean": "0.1 ms"}}],
    }
    for seed in range(40):
        fault = {"kind": "ecc", "probability": p, "on_failure": "fail"}
        found = run([fault], seed=seed, fleet=[{"device": "server"}], workload=[workload], stop={"jobs": jobs})
        concerned, struck = found.fault_occurrences[0]
        assert concerned == jobs and struck == np.count_nonzero(found.jobs.status == FAILED)
        assert binom.ppf(1e-7, jobs, p) <= struck <= binom.ppf(1 - 1e-7, jobs, p)
        total += (struck - jobs * p) ** 2 / (jobs * p * (1 - p))
    assert chi2.ppf(0.0005, 40) < total < chi2.ppf(0.9995, 40)


def test_starts_of_a_job_that_is_tried_until_it_succeeds_are_geometric() -> None:
    """Attempts draw apart: of 4,000 jobs each of two operations, by Pearson's chi-squared."""
    service = {"service": {"distribution": "deterministic", "mean": "0.1 ms"}}
    workload = {
        "name": "w",
        "arrivals": {"process": "deterministic", "rate": "100 /s"},
        "ops": [{"repeat": {"times": 2, "ops": [service]}}],
    }
    fault = {"kind": "ecc", "probability": 0.3, "max_attempts": 1000}
    found = run([fault], fleet=[{"device": "server"}], workload=[workload], stop={"jobs": 4_000})
    success = 0.7**2
    seen = np.bincount(np.minimum(found.jobs.starts, 6), minlength=7)[1:]
    share = np.array([success * (1 - success) ** k for k in range(5)] + [(1 - success) ** 5])
    assert ((seen - share * 4_000) ** 2 / (share * 4_000)).sum() < chi2.ppf(0.9995, 5)


def test_random_numbers_of_operations_are_uniform_and_belong_to_their_numbers() -> None:
    key = key_words(7, "faults", "0")
    drawn = np.array([uniform(*key, job, attempt, 0) for job in range(5_000) for attempt in (1, 2)])
    assert kstest(drawn, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(drawn[0::2], drawn[1::2])[0, 1]) < 4 / np.sqrt(5_000)
    assert len(set(drawn.tolist())) == len(drawn)
    assert uniform(*key, 4_999, 2, 0) == drawn[-1]
    assert len({key_words(seed, *name) for seed in (7, 8) for name in (("a", "b"), ("ab",), ("b", "a"))}) == 6


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ((0, 0, 0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 4, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_words_that_its_authors_publish(word: tuple[int, ...], expected: tuple[int, int]) -> None:
    """The known answers of the Random123 library (kat_vectors, threefry2x32 with 20 rounds)."""
    assert threefry(*word) == expected
