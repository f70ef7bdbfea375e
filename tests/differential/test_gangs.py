"""Jobs of several devices: both engines against each other and against the oracle, on random scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.differential.comparison import assert_same, prepared
from tests.differential.test_engines import TIED, held_to_budget, scenarios
from tests.differential.test_oracle import KNOWN, Oracle, expected, rows, rows_of

from windtunnel.core.errors import InputError, InvariantError
from windtunnel.core.recording import Recording
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions import gangs, preemption, single, work

SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@st.composite
def with_gangs(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with a central queue, whose jobs occupy one or several devices."""
    data = draw(scenarios())
    data["policy"].pop("batch", None)
    data["policy"] |= {"route": "central", "backfill": draw(st.booleans())}
    most = max(entry["count"] for entry in data["fleet"])
    for one in data["workload"]:
        size = draw(st.integers(1, most))
        if size > 1 or draw(st.booleans()):
            one["gang"] = size
    return data


def busy_time_is_conserved(ready: PreparedRun, recording: Recording) -> None:
    """Without faults, the devices are busy for the time of each job on each of its devices."""
    jobs = recording.jobs
    ended = [min(f, recording.end) if f >= 0 else recording.end for f in jobs.finish.tolist()]
    sizes = [ready.workloads[number].gang for number in jobs.workload.tolist()]
    began = jobs.start.tolist()
    served = sum(g * (e - s) for g, s, e in zip(sizes, began, ended, strict=True) if s >= 0)
    assert sum(device.busy_ticks for device in recording.devices) == served


@settings(max_examples=200, deadline=None, suppress_health_check=SUPPRESSED)
@given(with_gangs())
def test_both_engines_agree_on_jobs_of_several_devices(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    one, other = process.run(ready), compiled.run(ready)
    assert_same(one, other)
    invariants.check(one)
    held_to_budget(data, one)
    if not data["faults"] and "power_budget" not in data:
        busy_time_is_conserved(ready, one)


@settings(max_examples=120, deadline=None, suppress_health_check=SUPPRESSED)
@given(with_gangs())
def test_both_engines_do_with_gangs_what_the_oracle_does(data: dict[str, Any]) -> None:
    data.pop("power_budget", None)
    data["faults"] = [fault for fault in data["faults"] if fault["kind"] in KNOWN]
    try:
        ready = prepared(data)
    except InputError:
        reject()
    wanted = expected(ready)
    assert rows(process.run(ready)) == wanted
    assert rows(compiled.run(ready)) == wanted


@st.composite
def preempting(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario in which jobs of one or several devices interrupt others."""
    data = draw(with_gangs())
    preemption = draw(st.sampled_from(["resume", "restart"]))
    data["policy"] |= {"order": draw(st.sampled_from(["priority", "deadline", "shortest"])), "preemption": preemption}
    for one in data["workload"]:
        one["priority"] = draw(st.integers(-2, 2))
        if draw(st.booleans()):
            one["checkpoint"] = {"every": draw(st.sampled_from(["100 us", "1 ms"])), "cost": "50 us"}
        if draw(st.integers(0, 3)) == 0:
            one["patience"] = draw(st.sampled_from(["500 us", "9 ms"]))
    return data


@settings(max_examples=120, deadline=None, suppress_health_check=SUPPRESSED)
@given(preempting())
def test_gangs_are_preempted_as_by_the_oracle(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    one, other = process.run(ready), compiled.run(ready)
    assert_same(one, other)
    invariants.check(one)
    held_to_budget(data, one)
    data.pop("power_budget", None)
    data["faults"] = [fault for fault in data["faults"] if fault["kind"] in KNOWN]
    ready = prepared(data)
    oracle = Oracle(ready)
    wanted = rows_of(oracle.run(), ready)
    for engine in (process, compiled):
        recording = engine.run(ready)
        assert rows(recording) == wanted
        assert recording.progress is not None
        assert recording.progress.preemptions == oracle.preemptions


def overtaking(function: Any) -> Any:
    """Return a transition that lets later jobs start although it is not allowed."""

    def startable_queue(w: Any, device: int) -> int:
        r = w.run[0]
        allowed, r.backfill = r.backfill, 1
        queue = int(function(w, device))
        r.backfill = allowed
        return queue

    return startable_queue


def at_own_speed(function: Any) -> Any:
    """Return a transition that lets a gang work at the speed of its leader."""

    def work_at(w: Any, leader: int, speed: float) -> None:
        function(w, leader, w.gangs[leader].rate)

    return work_at


def on_the_last(function: Any) -> Any:
    """Return a transition that lets the idle device of the highest number lead."""

    def first_idle(w: Any, device: int, queue: int) -> int:
        if w.workloads[w.slots[w.queues[queue].head].work].gang == 1:
            return int(function(w, device, queue))
        return max(
            n for n, d in enumerate(w.devices) if d.slot < 0 and d.outages == 0 and d.cls == w.devices[device].cls
        )

    return first_idle


MIXED = {
    **TIED,
    "fleet": [{**TIED["fleet"][0], "count": 4}, {**TIED["fleet"][0], "count": 3, "name": "slow"}],
    "workload": [
        {**TIED["workload"][0], "name": "small", "arrivals": {"process": "poisson", "rate": "2000 /s"}},
        {**TIED["workload"][0], "name": "large", "arrivals": {"process": "poisson", "rate": "500 /s"}, "gang": 3},
    ],
    "policy": {"order": "arrival"},
    "faults": [],
    "stop": {"jobs": 120},
}
THROTTLED = {
    **MIXED,
    "faults": [{"kind": "throttle", "mean_interval": "5 ms", "duration": "5 ms", "speed": 0.5}],
}


def contested(rate: int) -> dict[str, Any]:
    """A scenario in which jobs of three sizes interrupt each other; ``rate`` is that of the small ones (1/s)."""
    return {
        **MIXED,
        "fleet": [{**TIED["fleet"][0], "count": 6}, {**TIED["fleet"][0], "count": 2, "name": "slow"}],
        "workload": [
            {
                **TIED["workload"][0],
                "name": f"w{gang}",
                "arrivals": {"process": "poisson", "rate": f"{rate if gang == 1 else 800} /s"},
                "gang": gang,
                "priority": gang,
            }
            for gang in (1, 2, 3)
        ],
        "policy": {"order": "priority", "preemption": "resume"},
        "stop": {"jobs": 300},
    }


def without_idle_devices(function: Any) -> Any:
    """Return a transition that interrupts as if no device were idle."""

    def victims(w: Any, c: Any, slot: int) -> Any:
        idle, c.idle = c.idle, 0
        found = function(w, c, slot)
        c.idle = idle
        return found

    return victims


@pytest.mark.parametrize(
    ("module", "name", "mutant", "data"),
    [
        (preemption, "_spare", lambda _: lambda w, first, spare, slot: first, contested(6000)),
        (preemption, "_victims", without_idle_devices, contested(2000)),
        (single, "startable_queue", overtaking, MIXED),
        (single, "first_idle", on_the_last, MIXED),
        (gangs, "_work_at", at_own_speed, THROTTLED),
        (gangs, "sweep_all", lambda _: lambda w: None, MIXED),
        (single, "sweep_all", lambda _: lambda w: None, MIXED),
    ],
)
def test_a_wrong_rule_of_gangs_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any, data: dict[str, Any]
) -> None:
    ready = prepared(data)
    assert rows(process.run(ready)) == expected(ready)
    monkeypatch.setattr(module, name, mutant(getattr(module, name)))
    assert rows(process.run(ready)) != expected(ready)


def test_a_follower_without_its_own_energy_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepared(MIXED)
    one = process.run(ready)
    monkeypatch.setattr(work, "follow", lambda w, leader: None)
    other = process.run(ready)
    assert rows(one) == rows(other)
    busy_time_is_conserved(ready, one)
    with pytest.raises((AssertionError, InvariantError)):
        busy_time_is_conserved(ready, other)
