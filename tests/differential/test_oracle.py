"""Both engines against an independent oracle, on random scenarios of the features that the oracle knows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.differential.comparison import prepared
from tests.differential.fuzz import KERNELS
from tests.differential.oracle import Oracle, expected, rows, rows_of
from tests.differential.oracle_scenarios import KNOWN
from tests.differential.test_engines import TIED, scenarios

from windtunnel.core.errors import InputError
from windtunnel.core.recording import DROPPED, Progress
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import clock
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions import dispatch, faults, preemption, single

TOO_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@st.composite
def known(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario of the features that the oracle knows."""
    data = draw(scenarios())
    data["policy"].pop("batch", None)
    data.pop("power_budget", None)
    data["faults"] = [fault for fault in data["faults"] if fault["kind"] in KNOWN]
    for fault in data["faults"]:
        if fault["kind"] != "straggler" and draw(st.booleans()):
            fault["domain"] = draw(st.integers(2, 3))
    for one in data["workload"]:
        if draw(st.integers(0, 3)) == 0:
            think = {
                "distribution": draw(st.sampled_from(["exponential", "deterministic"])),
                "mean": draw(st.sampled_from(["0 s", "1 ms", "4 ms"])),
            }
            one["arrivals"] = {"process": "closed", "users": draw(st.integers(1, 6)), "think": think}
    return data


@st.composite
def waiting(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario in which jobs give up waiting, or pause after a failure."""
    data = draw(known())
    for one in data["workload"]:
        mean = draw(st.sampled_from(["0 s", "500 us", "2 ms", "9 ms"]))
        exponential = {"distribution": "exponential", "mean": mean}
        patience = draw(st.sampled_from([None, mean, exponential, exponential]))
        if patience is not None:
            one["patience"] = patience
            if one["arrivals"]["process"] == "closed":
                one["arrivals"]["think"]["mean"] = "1 ms"
    pauses: list[Any] = [None, "700 us", {"first": "300 us"}, {"first": "300 us", "factor": 4, "max": "2 ms"}]
    for fault in data["faults"]:
        pause = draw(st.sampled_from(pauses))
        if fault["kind"] == "failure" and pause is not None:
            fault["pause"] = pause
    return data


@st.composite
def progressing(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with preemption or checkpoints, and often with both."""
    data = draw(known())
    data["policy"]["order"] = draw(st.sampled_from(["priority", "priority", "deadline", "shortest"]))
    mode = draw(st.sampled_from([None, "resume", "restart"]))
    if mode is not None:
        data["policy"]["preemption"] = mode
    for one in data["workload"]:
        if draw(st.booleans()):
            one["checkpoint"] = {
                "every": draw(st.sampled_from(["100 us", "300 us", "1 ms"])),
                "cost": draw(st.sampled_from(["0 s", "50 us", "400 us"])),
                "restore": draw(st.sampled_from(["0 s", "70 us"])),
            }
    if mode is None and not any("checkpoint" in one for one in data["workload"]):
        data["workload"][0]["checkpoint"] = {"every": "300 us", "cost": "50 us"}
    return data


@st.composite
def reconfiguring(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario with cards that load designs, and often with preemption, checkpoints or gangs."""
    data = draw(st.one_of(progressing(), known()))
    for entry in data["fleet"]:
        entry.pop("power", None)
        entry["device"] = draw(st.sampled_from(["quick-fpga-one", "quick-fpga-two"]))
        resident = draw(st.sampled_from([None, [], ["gemm_float32"], ["fft_float16"]]))
        entry |= {} if resident is None else {"resident": resident}
    kernels = st.sampled_from([*KERNELS, {"copy": {"bytes": 1_000_000, "direction": "h2d"}}])
    for one in data["workload"]:
        one["ops"] = draw(st.lists(kernels, min_size=1, max_size=3))
    policy = data["policy"]
    if policy["route"] == "central" and "preemption" not in policy and draw(st.booleans()):
        one = draw(st.sampled_from(data["workload"]))
        one["gang"] = draw(st.integers(1, max(entry["count"] for entry in data["fleet"])))
    return data


@settings(max_examples=80, deadline=None, suppress_health_check=TOO_SLOW)
@given(reconfiguring())
def test_loads_of_designs_do_what_the_oracle_does(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    oracle = Oracle(ready)
    wanted = rows_of(oracle.run(), ready)
    for engine in (process, compiled):
        recording = engine.run(ready)
        invariants.check(recording)
        assert rows(recording) == wanted
        loads = recording.loads
        assert (0 if loads is None else loads.count) == oracle.loads
        if loads is not None and ready.end is None and ready.faults is None and ready.policy.preemption == "none":
            assert loads.ticks == oracle.spent["load"]


@settings(max_examples=80, deadline=None, suppress_health_check=TOO_SLOW)
@given(known())
def test_both_engines_do_what_the_oracle_does(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    wanted = expected(ready)
    assert rows(process.run(ready)) == wanted
    assert rows(compiled.run(ready)) == wanted


@settings(max_examples=80, deadline=None, suppress_health_check=TOO_SLOW)
@given(waiting())
def test_patience_and_pauses_do_what_the_oracle_does(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    wanted = expected(ready)
    for engine in (process, compiled):
        recording = engine.run(ready)
        invariants.check(recording)
        assert rows(recording) == wanted


@settings(max_examples=80, deadline=None, suppress_health_check=TOO_SLOW)
@given(progressing())
def test_checkpoints_and_preemption_do_what_the_oracle_does(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    oracle = Oracle(ready)
    jobs = oracle.run()
    wanted = rows_of(jobs, ready)
    for engine in (process, compiled):
        recording = engine.run(ready)
        invariants.check(recording)
        assert rows(recording) == wanted
        if all(job.finish >= 0 for job in jobs) and (ready.users or len(jobs) == len(ready.arrival)):
            spent = oracle.spent["checkpoint"], oracle.spent["restore"], oracle.lost
            assert recording.progress == Progress(*spent, oracle.checkpoints, oracle.preemptions)


@pytest.mark.parametrize("process_of", ["closed", "poisson"])
@pytest.mark.parametrize("policy", ["fifo", "least-loaded"])
def test_jobs_that_no_device_will_serve_leave_within_their_patience(policy: str, process_of: str) -> None:
    """All devices have failed for good, and the run goes on until the last job has left."""
    closed = {"process": "closed", "users": 3, "think": {"distribution": "exponential", "mean": "2 ms"}}
    arrivals = closed if process_of == "closed" else {"process": "poisson", "rate": "1000 /s"}
    speeds = {"kind": "throttle", "at": [f"{n} ms" for n in range(1, 40, 3)], "duration": "100 us", "speed": 0.5}
    faults = [{"kind": "failure", "at": ["0 s"]}, speeds]
    work = {**TIED["workload"][0], "arrivals": arrivals, "patience": "3 ms"}
    ready = prepared({**TIED, "workload": [work], "policy": policy, "faults": faults, "stop": {"jobs": 12}})
    wanted = expected(ready)
    assert len(wanted) == 12
    for engine in (process, compiled):
        recording = engine.run(ready)
        assert rows(recording) == wanted
        assert (recording.jobs.status == DROPPED).all()


def test_a_run_goes_on_while_a_job_pauses_and_faults_occur() -> None:
    """No device works, and no job arrives, when the device is throttled; another one has failed for good."""
    fleet = [{"device": "server", "name": "gone"}, {"device": "server", "name": "there"}]
    faults = [
        {"kind": "failure", "at": ["0 s"], "devices": ["gone"]},
        {"kind": "failure", "at": ["1 ms"], "duration": "100 us", "pause": "20 ms", "devices": ["there"]},
        {"kind": "throttle", "at": ["5 ms", "9 ms"], "duration": "100 us", "speed": 0.5},
    ]
    service = {"service": {"distribution": "deterministic", "mean": "5 ms"}}
    work = {"name": "w", "arrivals": {"process": "deterministic", "rate": "2000 /s"}, "ops": [service]}
    ready = prepared({**TIED, "fleet": fleet, "workload": [work], "faults": faults, "stop": {"jobs": 1}})
    wanted = expected(ready)
    assert wanted[0][-2:] == (2, 0)
    for engine in (process, compiled):
        assert rows(engine.run(ready)) == wanted


def late(function: Any) -> Any:
    """Return a transition that takes a tick longer."""

    def proceed(w: Any, device: int, left: int, full: float) -> None:
        function(w, device, left + 1, full)

    return proceed


def lost(function: Any) -> Any:
    """Return a transition that gives up jobs one attempt too early."""

    def try_again(w: Any, device: int, slot: int, rule: int) -> bool:
        w.rules[rule].attempts -= 1
        again = bool(function(w, device, slot, rule))
        w.rules[rule].attempts += 1
        return again

    return try_again


def unsorted(function: Any) -> Any:
    """Return a transition that takes the job of the largest number from a queue."""

    def best(w: Any, device: int, after_key: float, after_job: int) -> int:
        queue = function(w, device, after_key, after_job)
        q = w.queues[queue] if queue >= 0 else None
        if q is not None and w.slots[q.head].next >= 0:
            second = w.slots[q.head].next
            w.slots[q.head].next, w.slots[second].next = w.slots[second].next, q.head
            q.tail = q.head if q.tail == second else q.tail
            q.head = second
        return int(queue)

    return best


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [(single, "proceed", late), (faults, "_try_again", lost), (single, "best_queue", unsorted)],
)
def test_a_wrong_transition_is_caught(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any) -> None:
    ready = prepared({**TIED, "faults": [{**TIED["faults"][0], "max_attempts": 2}]})
    assert rows(process.run(ready)) == expected(ready)
    monkeypatch.setattr(module, name, mutant(getattr(module, name)))
    assert rows(process.run(ready)) != expected(ready)


def exact_end(function: Any) -> Any:
    """Return a transition that restarts a job where a failure interrupted it."""

    def lose(w: Any, device: int) -> None:
        function(w, device)
        p = w.progress[w.devices[device].slot]
        p.kept = p.saved = p.position

    return lose


def without_cost(function: Any) -> Any:
    """Return a transition that leaves out the last checkpoint of each segment."""

    def planned(w: Any, device: int, ticks: int) -> int:
        found = function(w, device, ticks)
        p = w.progress[w.devices[device].slot]
        return int(found - w.checkpoints[0].cost if p.due > 0 else found)

    return planned


def generous(function: Any) -> Any:
    """Return a transition that counts an incomplete checkpoint."""

    def lose(w: Any, device: int) -> None:
        function(w, device)
        p = w.progress[w.devices[device].slot]
        if p.position - p.saved == w.checkpoints[0].every:  # the checkpoint has begun
            p.kept = p.saved = p.position

    return lose


def first_to_start(function: Any) -> Any:
    """Return a transition that interrupts the first of equal jobs."""

    def before(w: Any, one: int, other: int) -> bool:
        d, e = w.devices[one], w.devices[other]
        return bool(w.slots[d.slot].key != w.slots[e.slot].key and function(w, one, other))

    return before


def timid(function: Any) -> Any:
    """Return a transition that does not interrupt the job of device 0."""

    def can_preempt(w: Any, device: int, slot: int) -> bool:
        return bool(device > 0 and function(w, device, slot))

    return can_preempt


def forgetful(function: Any) -> Any:
    """Return a transition that loses what a preemption should keep."""

    def keep(w: Any, device: int) -> None:
        function(w, device)
        w.progress[w.devices[device].slot].kept = 0

    return keep


@pytest.mark.parametrize(
    ("module", "name", "mutant", "mode"),
    [
        (faults, "lose_progress", exact_end, "resume"),
        (preemption, "lose_progress", generous, "restart"),
        (preemption, "_before", first_to_start, "resume"),
        (preemption, "_can_preempt", timid, "resume"),
        (preemption, "keep_progress", forgetful, "resume"),
        (single, "with_checkpoints", without_cost, "resume"),
    ],
)
def test_a_wrong_rule_of_progress_is_caught(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutant: Any, mode: str
) -> None:
    """Two classes on three devices that fail; the least urgent one writes checkpoints that take long."""
    service = {"service": {"distribution": "exponential", "mean": "1 ms"}}
    arrivals = {"process": "poisson", "rate": "1200 /s"}
    low = {"name": "low", "arrivals": arrivals, "ops": [service, service]}
    low["checkpoint"] = {"every": "200 us", "cost": "150 us", "restore": "20 us"}
    high = {"name": "high", "priority": 1, "arrivals": arrivals, "ops": [service]}
    fault = {"kind": "failure", "mtbf": "5 ms", "mttr": "1 ms", "max_attempts": 1000}
    fleet = [{"device": "server", "count": 3}]
    policy = {"name": "priority", "preemption": mode}
    ready = prepared(
        {
            **TIED,
            "fleet": fleet,
            "workload": [low, high],
            "policy": policy,
            "faults": [fault],
            "stop": {"time": "60 ms"},
        }
    )
    assert rows(process.run(ready)) == expected(ready)
    monkeypatch.setattr(module, name, mutant(getattr(module, name)))
    assert rows(process.run(ready)) != expected(ready)


def test_a_wrong_order_of_events_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrivals before completions at one tick, instead of after: seen where a device ends just as a job arrives."""
    service = {"service": {"distribution": "deterministic", "mean": "1 ms"}}
    work = {"name": "w", "arrivals": {"process": "deterministic", "rate": "1000 /s"}, "ops": [service]}
    ready = prepared({**TIED, "workload": [work], "faults": [], "policy": "least-loaded"})
    assert rows(process.run(ready)) == expected(ready)
    for module in (clock, process):
        monkeypatch.setattr(module, "ARRIVAL_EVENT", -1)
    assert rows(process.run(ready)) != expected(ready)


def test_a_wrong_tie_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = prepared({**TIED, "faults": [], "policy": "least-loaded"})
    assert rows(process.run(ready)) == expected(ready)
    choose = dispatch._choose

    def last(w: Any, score: Any, slot: int) -> tuple[int, float]:
        device, estimate = choose(w, score, slot)
        equal = [n for n, d in enumerate(w.devices) if d.present == w.devices[device].present]
        return equal[-1], estimate

    monkeypatch.setattr(dispatch, "_choose", last)
    assert rows(process.run(ready)) != expected(ready)
