"""Laws of faults and of power budgets, for whatever scenario: what a schedule is, and what it may not change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy.stats import binom, chi2, norm

import windtunnel
from windtunnel.core.recording import COMPLETED, FAILED, Recording
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.engine.prepare.fault_schedule import (
    CAP,
    EVENT,
    FAIL,
    INTERRUPT,
    LINK_DOWN,
    LINK_UP,
    REPAIR,
    SPEED,
    AffectedDevices,
    FaultSchedule,
    down_ticks,
    straggler_slowdowns,
)
from windtunnel.scenario.faults import BrownOut, Failure, Fault, LinkLoss, Straggler, Throttle
from windtunnel.scenario.read import scenario_from_data

S = TICKS_PER_SECOND


def made(**stated: Any) -> Fault:
    """A fault as a scenario states it; what is None is left out."""
    given_keys = {key: value for key, value in stated.items() if value is not None}
    return TypeAdapter[Fault](Fault).validate_python(given_keys)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    kind = draw(st.sampled_from([Failure, LinkLoss, Throttle, BrownOut]))
    moments = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    lasts = draw(st.sampled_from(["0.5 s", "3 s", "20 s"]))
    at = [f"{moment} s" for moment in moments]
    stated = draw(st.booleans())
    if kind is Failure:
        if stated:
            return made(kind="failure", at=at, duration=draw(st.sampled_from([None, lasts])))
        return made(kind="failure", mtbf="5 s", mttr=lasts)
    times: dict[str, Any] = {"at": at, "duration": lasts} if stated else {"mean_interval": "5 s", "duration": lasts}
    if kind is LinkLoss:
        return made(kind="link-loss", **times)
    if kind is Throttle:
        return made(kind="throttle", **times, speed=draw(st.sampled_from([0.25, 0.5])))
    return made(kind="brown-out", **times, budget=draw(st.sampled_from(["100 W", "200 W"])))


def schedule(stated: list[Fault], devices: int, seed: int = 1, budget_w: float = 500.0) -> FaultSchedule:
    struck = [
        [AffectedDevices("", -1, 1) if isinstance(fault, BrownOut) else AffectedDevices("a", 0, devices)]
        for fault in stated
    ]
    return FaultSchedule(stated, struck, budget_w, seed)


@settings(max_examples=80, deadline=None)
@given(st.lists(faults(), max_size=4), st.integers(1, 300), st.integers(0, 3), st.integers(1, 60), st.integers(0, 60))
def test_looking_further_ahead_changes_nothing(
    stated: list[Fault], devices: int, seed: int, first: int, more: int
) -> None:
    short = schedule(stated, devices, seed).until(first * S)
    long = schedule(stated, devices, seed)
    later = long.until((first + more) * S)
    assert np.array_equal(short, later[: len(short)])
    assert np.array_equal(long.until(first * S), short)  # and asking for less afterwards gives as much less
    assert (later["tick"][len(short) :] >= first * S).all()


@settings(max_examples=80, deadline=None)
@given(st.lists(faults(), max_size=5), st.integers(1, 5))
def test_of_each_device_what_begins_ends_before_it_begins_again(stated: list[Fault], devices: int) -> None:
    events = schedule(stated, devices).until(60 * S)
    assert (np.diff(events["tick"]) >= 0).all()
    for on in range(-1, devices):
        mine = events[events["on"] == on]
        for begins, ends in ((FAIL, REPAIR), (LINK_DOWN, LINK_UP)):
            codes = mine["code"][(mine["code"] == begins) | (mine["code"] == ends)]
            assert (codes[0::2] == begins).all() and (codes[1::2] == ends).all()
        for code, normal in ((SPEED, 1.0), (CAP, 500.0)):
            levels = np.concatenate([[normal], mine["value"][mine["code"] == code]])
            assert (np.diff(levels) != 0).all() and levels.max(initial=normal) == normal


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["failure", "link-loss", "throttle"]), st.integers(1, 9), st.integers(1, 40), st.integers(0, 3))
def test_devices_of_a_domain_share_their_intervals_and_domains_do_not(
    kind: str, domain: int, devices: int, seed: int
) -> None:
    times = {"mtbf": "5 s", "mttr": "1 s"} if kind == "failure" else {"mean_interval": "5 s", "duration": "1 s"}
    fault = made(kind=kind, domain=domain, **times, **({"speed": 0.5} if kind == "throttle" else {}))
    events = schedule([fault], devices, seed).until(40 * S)
    begins = {"failure": FAIL, "link-loss": LINK_DOWN, "throttle": SPEED}[kind]
    of = [tuple(events["tick"][(events["on"] == on) & (events["code"] == begins)].tolist()) for on in range(devices)]
    domains = [of[first : first + domain] for first in range(0, devices, domain)]
    assert all(len(set(members)) == 1 for members in domains)
    firsts = [members[0] for members in domains if members[0]]
    assert len(set(firsts)) == len(firsts)
    later = schedule([fault], devices + domain, seed).until(80 * S)
    assert np.array_equal(
        later[(later["tick"] < 40 * S) & (later["on"] < devices - devices % domain)],
        events[events["on"] < devices - devices % domain],
    )


def test_all_devices_that_fail_at_a_tick_are_down_before_their_jobs_are_interrupted() -> None:
    events = schedule([made(kind="failure", domain=4, mtbf="5 s", mttr="1 s")], 4).until(30 * S)
    first = events[events["tick"] == events["tick"][0]]
    assert first["code"].tolist() == [FAIL] * 4 + [INTERRUPT] * 4
    assert first["on"].tolist() == [0, 1, 2, 3] * 2


@pytest.mark.parametrize(("domain", "power"), [(2, 1), (None, 2)])
def test_two_devices_of_a_domain_are_down_together_as_often_as_one(domain: int | None, power: int) -> None:
    """The share of time for which both are down is p in one domain and p squared for independent devices."""
    fault = made(kind="failure", domain=domain, mtbf="6 s", mttr="2 s")
    span, shares = 20_000, []
    for seed in range(12):
        events = schedule([fault], 2, seed).until(span * S)
        change = np.where(events["code"] == FAIL, 1, np.where(events["code"] == REPAIR, -1, 0))
        down = np.cumsum(change)
        lasts = np.diff(np.append(events["tick"], span * S))
        shares.append(float(lasts[down == 2].sum()) / (span * S))
    values, expected = np.array(shares), 0.25**power
    assert abs(values.mean() - expected) < 4.9 * values.std(ddof=1) / np.sqrt(len(values))


def holding(stated: list[Fault], tick: int, kind: type) -> list[Fault]:
    """Which faults at stated times hold at a tick."""
    return [
        fault
        for fault in stated
        if isinstance(fault, kind)
        and any(round(at * S) <= tick < round((at + (fault.duration or 1e9)) * S) for at in fault.at or ())
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(faults().filter(lambda fault: getattr(fault, "at", None) is not None), min_size=1, max_size=5))
def test_at_every_moment_the_state_is_that_of_the_faults_that_hold(stated: list[Fault]) -> None:
    """Against the plain definition, for faults at stated times: down, unreachable, slowest speed, least budget."""
    events = schedule(stated, 1).until(70 * S)
    for half in range(130):
        tick = half * S // 2
        before = events[events["tick"] <= tick]
        down = before[(before["code"] == FAIL) | (before["code"] == REPAIR)]
        assert bool(len(down) and down[-1]["code"] == FAIL) == bool(holding(stated, tick, Failure))
        link = before[(before["code"] == LINK_DOWN) | (before["code"] == LINK_UP)]
        assert bool(len(link) and link[-1]["code"] == LINK_DOWN) == bool(holding(stated, tick, LinkLoss))
        for code, kind, name, normal in ((SPEED, Throttle, "speed", 1.0), (CAP, BrownOut, "budget", 500.0)):
            level = before[before["code"] == code]
            expected = min([normal, *(getattr(fault, name) for fault in holding(stated, tick, kind))])
            assert (level[-1]["value"] if len(level) else normal) == expected


def of_device(events: np.ndarray, on: int) -> np.ndarray:
    return events[events["on"] == on]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 3))
def test_draws_belong_to_fault_and_device(devices: int, more: int, seed: int) -> None:
    """Another fault, or more devices, move no spell that was there before."""
    failure, slow = (
        made(kind="failure", mtbf="50 s", mttr="1 s"),
        made(kind="throttle", mean_interval="9 s", duration="1 s", speed=0.5),
    )
    alone = schedule([failure], devices, seed).until(100 * S)
    both = schedule([failure, slow], devices, seed).until(100 * S)
    assert np.array_equal(alone, both[both["code"] != SPEED])
    larger = schedule([failure], devices + more, seed).until(100 * S)
    assert np.array_equal(alone, larger[larger["on"] < devices])
    assert not len(alone) or not np.array_equal(alone, schedule([failure], devices, seed + 1).until(100 * S))


def test_a_schedule_of_nothing_is_empty() -> None:
    assert schedule([], 3).until(S).dtype == EVENT and not len(schedule([], 3).until(S))


def test_availability_agrees_with_mean_times() -> None:
    """Over 400 devices and 25 seeds: the mean of all within its error, and of 95% intervals about 19 in 20 right."""
    mtbf, mttr, span = 90.0, 10.0, 4_000.0
    # Every device starts up, so a finite run has a little more: the integral of A(t) - A (a two-state Markov chain).
    truth = mtbf / (mtbf + mttr) + mttr / (mtbf + mttr) / (1 / mtbf + 1 / mttr) / span
    means, right = [], 0
    for seed in range(25):
        events = schedule([made(kind="failure", mtbf=f"{mtbf} s", mttr=f"{mttr} s")], 400, seed).until(int(span * S))
        share = 1 - down_ticks(events, int(span * S), 400) / (span * S)
        means.append(share.mean())
        right += abs(share.mean() - truth) < norm.ppf(0.975) * share.std(ddof=1) / np.sqrt(400)
    assert abs(np.mean(means) - truth) < 3.5 * np.std(means, ddof=1) / 5
    # One hundredth less would be seen: the test can fail.
    assert abs(np.mean(means) - truth + 0.01) > 3.5 * np.std(means, ddof=1) / 5
    assert right >= binom.ppf(0.001, 25, 0.95)


def test_stragglers_share_is_their_probability() -> None:
    """Jointly over 40 draws of 5,000 jobs: a sum of squares of standard errors, as it should be (chi-squared)."""
    total, number = 0.0, np.arange(5_000)
    for seed in range(40):
        fault = Straggler(kind="straggler", probability=0.03, slowdown=4.0)
        slow = straggler_slowdowns([fault], seed, ["w"], np.zeros(5_000, dtype=np.int64), number)
        assert slow is not None and set(np.unique(slow)) <= {1.0, 4.0}
        total += (np.count_nonzero(slow > 1) - 150) ** 2 / (5_000 * 0.03 * 0.97)
    assert chi2.ppf(0.0005, 40) < total < chi2.ppf(0.9995, 40)


def test_who_straggles_does_not_depend_on_other_workloads() -> None:
    fault = Straggler(kind="straggler", probability=0.3, slowdown=4.0)
    alone = straggler_slowdowns([fault], 1, ["w"], np.zeros(50, dtype=np.int64), np.arange(50))
    mixed = straggler_slowdowns([fault], 1, ["v", "w"], np.tile([0, 1], 50), np.repeat(np.arange(50), 2))
    assert alone is not None and mixed is not None and np.array_equal(mixed[1::2], alone)
    picky = Straggler(kind="straggler", probability=1, slowdown=2.0, workloads=["v"])
    assert np.array_equal(
        straggler_slowdowns([picky], 1, ["v", "w"], np.tile([0, 1], 5), np.arange(10)), np.tile([2.0, 1.0], 5)
    )


@st.composite
def rooms(draw: st.DrawFn) -> dict[str, Any]:
    """Fleets whose devices draw differently, under every kind of policy."""
    fleet = [
        {
            "device": "server",
            "name": f"d{i}",
            "count": draw(st.integers(1, 4)),
            "speed": draw(st.sampled_from([0.5, 1.0, 3.0])),
            "power": {"idle": "20 W", "max": draw(st.sampled_from(["70 W", "100 W", "300 W"]))},
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    service = {"distribution": draw(st.sampled_from(["exponential", "deterministic"])), "mean": "2 ms"}
    workload = [
        {
            "name": f"w{i}",
            "arrivals": {"process": "poisson", "rate": draw(st.sampled_from(["500 /s", "2000 /s"]))},
            "ops": [{"service": service}] * draw(st.integers(1, 2)),
            "priority": i,
        }
        for i in range(draw(st.integers(1, 2)))
    ]
    policy: Any = {"route": draw(st.sampled_from(["central", "least-loaded", "round-robin"])), "order": "priority"}
    if draw(st.integers(0, 3)) == 0:
        policy["batch"] = {"kind": "request", "size": 3, "wait": "1 ms"}
        workload = [{**entry, "ops": entry["ops"][:1]} for entry in workload]
    return {
        "schema": 1,
        "name": "room",
        "seed": draw(st.integers(0, 9)),
        "fleet": fleet,
        "workload": workload,
        "policy": policy,
        "stop": draw(st.sampled_from([{"jobs": 60}, {"time": "40 ms"}])),
    }


def idle_w(room: dict[str, Any]) -> float:
    return 20.0 * sum(int(entry["count"]) for entry in room["fleet"])


def most_w(room: dict[str, Any]) -> float:
    return sum(entry["count"] * float(entry["power"]["max"].removesuffix(" W")) for entry in room["fleet"])


def largest_w(room: dict[str, Any]) -> float:
    """What the room draws with one job on the device that draws most."""
    return idle_w(room) + max(float(entry["power"]["max"].removesuffix(" W")) - 20 for entry in room["fleet"])


def played(room: dict[str, Any], **more: Any) -> Recording:
    """Run, with its invariants checked, on the process engine (which the compiled one is held to)."""
    return windtunnel.run(scenario_from_data({**room, **more}), engine="process").recording


@settings(max_examples=60, deadline=None)
@given(rooms(), st.floats(0, 1), st.floats(0, 1))
def test_a_budget_holds_at_every_instant_brown_outs_included(room: dict[str, Any], share: float, low: float) -> None:
    budget = largest_w(room) + share * (most_w(room) - largest_w(room))
    brown = idle_w(room) + low * (budget - idle_w(room))
    faults = [
        {"kind": "brown-out", "at": ["10 ms"], "duration": "10 ms", "budget": f"{brown!r} W"},
        {"kind": "throttle", "mean_interval": "9 ms", "duration": "3 ms", "speed": 0.5},
        {"kind": "link-loss", "mean_interval": "9 ms", "duration": "3 ms"},
        {"kind": "failure", "mtbf": "20 ms", "mttr": "3 ms", "max_attempts": 1000},
    ]
    recording = played(room, power_budget=f"{budget!r} W", faults=faults)
    power = recording.power
    assert power.values.max() <= budget * (1 + 1e-12)
    until = np.append(power.ticks[1:], recording.end)
    during = (power.ticks < S // 50) & (until > S // 100)
    assert power.values[during].max(initial=0) <= brown * (1 + 1e-12)
    if "time" not in room["stop"]:
        assert (recording.jobs.status == COMPLETED).all()  # and no one waits for power for ever


@settings(max_examples=40, deadline=None)
@given(rooms())
def test_a_budget_that_never_binds_changes_no_job(room: dict[str, Any]) -> None:
    free, held = played(room), played(room, power_budget=f"{most_w(room)!r} W")
    for column in ("start", "finish", "device", "status", "energy_j"):
        assert np.array_equal(getattr(free.jobs, column), getattr(held.jobs, column))


@settings(max_examples=40, deadline=None)
@given(rooms())
def test_a_smaller_budget_draws_no_more_at_its_peak(room: dict[str, Any]) -> None:
    peaks = [
        played(
            room, power_budget=f"{largest_w(room) + share * (most_w(room) - largest_w(room))!r} W"
        ).power.values.max()
        for share in (0.0, 0.5)
    ]
    assert peaks[0] <= largest_w(room) * (1 + 1e-12)
    assert peaks[1] <= (largest_w(room) + most_w(room)) / 2 * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(rooms(), st.sampled_from(["retry", "migrate", "fail"]), st.integers(1, 3), st.booleans())
def test_every_job_is_accounted_for(room: dict[str, Any], jobs: str, attempts: int, for_good: bool) -> None:
    times: dict[str, Any] = {"at": ["5 ms"]} if for_good else {"mtbf": "10 ms", "mttr": "5 ms"}
    faults = [{"kind": "failure", "devices": ["d0"], "on_failure": jobs, "max_attempts": attempts, **times}]
    recording = played(room, faults=faults)
    table = recording.jobs
    counts = np.bincount(table.status, minlength=5)
    assert counts.sum() == len(table)
    assert table.starts.max() <= (1 if jobs == "fail" else attempts)
    assert (table.starts[table.status == COMPLETED] >= 1).all()
    assert (table.starts[table.status == FAILED] == (1 if jobs == "fail" else attempts)).all()
    # Faults shift no draw of the workload.
    assert np.array_equal(table.arrival, played(room).jobs.arrival)
    if not for_good and room["stop"] == {"jobs": 60}:
        assert counts[COMPLETED] + counts[FAILED] == 60


@settings(max_examples=40, deadline=None)
@given(rooms().filter(lambda room: "jobs" in room["stop"] and "batch" not in room["policy"]))
def test_throttled_work_takes_the_energy_it_would_have_taken(room: dict[str, Any]) -> None:
    """On one kind of device, so that it does not matter where a job goes."""
    room = {**room, "fleet": room["fleet"][:1]}
    free = played(room).jobs
    slow = [{"kind": "throttle", "mean_interval": "3 ms", "duration": "3 ms", "speed": speed} for speed in (0.25, 0.7)]
    held = played(room, faults=slow).jobs
    assert np.allclose(free.energy_j, held.energy_j, rtol=1e-6)
    assert held.finish.max() >= free.finish.max()


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["deterministic", "exponential"]), st.integers(0, 3), st.booleans())
def test_faults_of_long_runs_are_those_of_short_ones(distribution: str, seed: int, slow: bool) -> None:
    """Where no more than sums is kept: the same jobs completed, failed and started as where all is."""
    faults = [
        {"kind": "failure", "mtbf": "50 ms", "mttr": "5 ms", "max_attempts": 2},
        {"kind": "straggler", "probability": 0.1, "slowdown": 3},
        *([{"kind": "throttle", "mean_interval": "9 ms", "duration": "3 ms", "speed": 0.5}] if slow else []),
    ]
    data = {
        "schema": 1,
        "name": "long",
        "seed": seed,
        "fleet": [{"device": "server", "count": 3, "power": {"idle": "20 W", "max": "90 W"}}],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": "800 /s"},
                "ops": [{"service": {"distribution": distribution, "mean": "2 ms"}}],
            }
        ],
        "stop": {"jobs": 400},
        "faults": faults,
    }
    kept = windtunnel.run(scenario_from_data({**data, "records": "all"}), engine="compiled")
    summed = windtunnel.run(scenario_from_data({**data, "records": "sample"}), engine="compiled")
    assert summed.recording.tally is not None
    for key in ("jobs", "availability", "utilisation"):
        assert getattr(summed.result, key) == pytest.approx(getattr(kept.result, key))
    assert summed.result.energy_j == pytest.approx(kept.result.energy_j)
    assert np.array_equal(summed.recording.jobs.starts, kept.recording.jobs.starts)
    assert summed.recording.waiting.integral() == pytest.approx(kept.recording.waiting.integral())


@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
@pytest.mark.parametrize("jobs", ["retry", "migrate", "fail"])
def test_a_long_run_whose_devices_are_gone_ends_as_a_short_one_does(policy: str, jobs: str) -> None:
    data = {
        "schema": 1,
        "name": "gone",
        "fleet": [{"device": "server", "name": name, "power": {"idle": "10 W", "max": "90 W"}} for name in "ab"],
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": "800 /s"},
                "ops": [{"service": {"mean": "2 ms"}}],
            }
        ],
        "policy": policy,
        "stop": {"jobs": 400},
        "faults": [
            {"kind": "failure", "at": ["100 ms"], "on_failure": jobs},
            {"kind": "link-loss", "mean_interval": "10 ms", "duration": "1 ms"},
        ],
    }
    kept, summed = (
        windtunnel.run(scenario_from_data({**data, "records": records}), engine="compiled").result
        for records in ("all", "sample")
    )
    assert kept.jobs == summed.jobs and kept.jobs.queued > 0
    assert kept.simulated_s == summed.simulated_s
    assert kept.energy_j == pytest.approx(summed.energy_j)
    assert kept.faults == replace(summed.faults, stragglers=kept.faults.stragglers)
