"""The compiled engine against the process engine: the same jobs, devices, ticks, energies and result, for whatever fits both."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from tests.cases import memory_of
from tests.differential.comparison import CATALOGUE, assert_same, prepared

from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.engine.choice import choose, unsupported_by_compiled
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.compiled.kernels import kernel_sources
from windtunnel.engine.prepare.fault_schedule import FAIL, INTERRUPT
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.transitions import build
from windtunnel.scenario.changes import read_document
from windtunnel.scenario.read import check_scenario, is_placement
from windtunnel.simulation.run import prepare_run

EXPENSIVE = [HealthCheck.too_slow, HealthCheck.data_too_large]
"""Not suppressed: Hypothesis fails if nearly all examples are rejected."""
ROUTES = ["central", "round-robin", "least-loaded", "shortest-expected-completion", "cheapest-that-meets-the-deadline"]
ORDERS = ["arrival", "priority", "deadline", "shortest"]


@st.composite
def times(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"mean_interval": "8 ms", "duration": draw(st.sampled_from(["1 ms", "6 ms"]))}
    moments = draw(st.lists(st.integers(0, 60), min_size=1, max_size=3, unique=True))
    return {"at": [f"{moment} ms" for moment in moments], "duration": draw(st.sampled_from(["2 ms", "15 ms"]))}


@st.composite
def faults(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    kind = draw(st.sampled_from(["failure", "failure", "throttle", "link-loss", "straggler", "brown-out"]))
    on: dict[str, Any] = draw(st.sampled_from([{}, {"devices": [names[0]]}]))
    if kind == "straggler":
        return {"kind": kind, "probability": 0.2, "slowdown": draw(st.sampled_from([1.5, 7]))}
    if kind == "failure":
        jobs = {
            "on_failure": draw(st.sampled_from(["retry", "migrate", "fail"])),
            "max_attempts": draw(st.integers(1, 3)),
        }
        stated = draw(times())
        if "mean_interval" in stated:
            stated = {"mtbf": stated["mean_interval"], "mttr": stated["duration"]}
        elif draw(st.integers(0, 3)) == 0:
            del stated["duration"]  # for good
        return {"kind": kind, **on, **jobs, **stated}
    if kind == "throttle":
        return {"kind": kind, **on, **draw(times()), "speed": draw(st.sampled_from([0.25, 0.7]))}
    if kind == "link-loss":
        return {"kind": kind, **on, **draw(times())}
    return {"kind": kind, **draw(times()), "budget": draw(st.sampled_from(["700 W", "1500 W"]))}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Fleets, workloads, policies, batches, priorities, faults and budgets that both engines know."""
    real = draw(st.booleans())
    skus = ["l4@vulkan", "alveo-u280", "epyc-9654"] if real else ["server"]
    fleet = [
        {
            "device": draw(st.sampled_from(skus)),
            "name": f"d{i}",
            "count": draw(st.integers(1, 4)),
            "speed": draw(st.sampled_from([0.5, 1.0, 3.0])),
            "price": f"{i + 1} USD/h",
            **({} if real else {"power": {"idle": "20 W", "max": draw(st.sampled_from(["100 W", "300 W"]))}}),
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    names = [entry["name"] for entry in fleet]
    service = {
        "service": {
            "distribution": draw(st.sampled_from(["exponential", "lognormal", "deterministic"])),
            "mean": draw(st.sampled_from(["1 ms", "3 ms"])),
        }
    }
    several = [
        {"copy": {"bytes": 1_000_000, "direction": "h2d"}},
        {"repeat": {"times": 2, "ops": [{"launch": {}}]}},
        {"copy": {"bytes": 1_000_000, "direction": "d2h"}},
    ]
    programs = [[service], [service, service], *([several] if real else [])]
    arrivals = [
        {"process": "poisson", "rate": "1500 /s"},
        {"process": "deterministic", "rate": "1000 /s"},
        {"process": "burst", "rate": "100 /s", "burst_rate": "5000 /s", "every": "50 ms", "duration": "10 ms"},
    ]
    workload = [
        {
            "name": f"w{i}",
            "arrivals": draw(st.sampled_from(arrivals)),
            "ops": draw(st.sampled_from(programs)),
            "priority": draw(st.integers(-1, 1)),
            "deadline": draw(st.sampled_from(["2 ms", "20 ms"])),
            **draw(st.sampled_from([{}, {"devices": [names[-1]]}])),
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    policy: dict[str, Any] = {"route": draw(st.sampled_from(ROUTES)), "order": draw(st.sampled_from(ORDERS))}
    if draw(st.integers(0, 3)) == 0:
        for entry in workload:
            entry["ops"] = [service] if not real else entry["ops"] if len(entry["ops"]) > 2 else [service]
        policy["batch"] = {
            "kind": "request",
            "size": draw(st.integers(1, 5)),
            "wait": draw(st.sampled_from(["0 ms", "2 ms"])),
        }
    return {
        "schema": 1,
        "name": "generated",
        "seed": draw(st.integers(0, 5)),
        "fleet": fleet,
        "workload": workload,
        "policy": policy,
        "stop": draw(st.sampled_from([{"jobs": 80}, {"time": "40 ms"}, {"jobs": 3}])),
        "faults": draw(st.lists(faults(names), max_size=3)),
        **({} if real else draw(st.sampled_from([{}, {}, {"power_budget": "600 W"}, {"power_budget": "1200 W"}]))),
    }


@settings(max_examples=400, deadline=None, suppress_health_check=EXPENSIVE)
@given(scenarios())
def test_both_engines_tell_the_same_story(data: dict[str, Any]) -> None:
    try:
        ready = prepared(data)
    except InputError:
        reject()
    assert unsupported_by_compiled(ready) is None
    one, other = process.run(ready), compiled.run(ready)
    assert_same(one, other)
    invariants.check(one)
    held_to_budget(data, one)


def held_to_budget(data: dict[str, Any], recording: Recording) -> None:
    """A budget holds at every instant, and in a brown-out that of the brown-out."""
    budget = float(data["power_budget"].removesuffix(" W")) if "power_budget" in data else np.inf
    assert recording.power.values.max() <= budget + 1e-9
    for fault in data["faults"]:
        for at in fault.get("at", ()) if fault["kind"] == "brown-out" else ():
            begin, length = (int(float(text.removesuffix(" ms")) * 1e9) for text in (at, fault["duration"]))
            first = np.searchsorted(recording.power.ticks, begin, side="right") - 1
            last = np.searchsorted(recording.power.ticks, begin + length, side="left")
            if begin < recording.end:
                assert recording.power.values[first:last].max() <= float(fault["budget"].removesuffix(" W")) + 1e-9


TIED = {
    "schema": 1,
    "name": "tied",
    "fleet": [{"device": "server", "count": 3, "power": {"idle": "20 W", "max": "100 W"}}],
    "workload": [
        {
            "name": "w",
            "arrivals": {"process": "poisson", "rate": "1500 /s"},
            "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
        }
    ],
    "stop": {"jobs": 50},
    "faults": [{"kind": "failure", "mtbf": "20 ms", "mttr": "5 ms", "max_attempts": 1000}],
}


@pytest.mark.parametrize("column", ["start", "finish"])
def test_an_error_of_one_tick_is_caught(column: str) -> None:
    ready = prepared(TIED)
    one, other = process.run(ready), compiled.run(ready)
    late = getattr(other.jobs, column).copy()
    late[len(late) // 2] += 1
    with pytest.raises(AssertionError):
        assert_same(one, dataclasses.replace(other, jobs=dataclasses.replace(other.jobs, **{column: late})))


def test_an_error_of_one_tick_in_the_kernel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One fault a picosecond late in one engine shows."""
    ready = prepared(TIED)
    one = process.run(ready)
    assert ready.faults is not None
    until = ready.faults.until

    def late(tick: int) -> np.ndarray:
        events = until(tick).copy()
        events["tick"][np.isin(events["code"], (FAIL, INTERRUPT))] += 1
        return events

    monkeypatch.setattr(ready.faults, "until", late)
    with pytest.raises(AssertionError):
        assert_same(one, compiled.run(ready))


# Continuous batching.

SMALL: dict[str, Any] = {
    "layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 512, "vocabulary": 1000, "dtype": "bfloat16"
}  # fmt: skip


@st.composite
def served(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A scenario of generating jobs that are batched continuously, and the rows of the trace that it reads."""
    numbers = st.integers(1, 60)
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 7, 40, 300]), min_size=1, max_size=40))
    sizes = [(draw(numbers), draw(st.sampled_from([1, 2, 3, 3, 9, 30]))) for _ in gaps]
    times = np.cumsum(gaps).tolist()
    rows = "\n".join(["t,p,g", *(f"{t / 1e5:.5f},{p},{g}" for t, (p, g) in zip(times, sizes, strict=True))])
    tokens = draw(st.sampled_from([16, 24, 64, 512]))
    workload = []
    longest = 1
    for i in range(draw(st.integers(1, 3))):
        from_trace = draw(st.booleans())
        prompt, output = draw(st.sampled_from([1, 7, 16, 50])), draw(st.sampled_from([1, 2, 9, 33]))
        rate = draw(st.sampled_from(["5000 /s", "50000 /s", "500000 /s"]))
        process = draw(st.sampled_from(["poisson", "deterministic"]))
        longest = max(longest, *(p + g for p, g in sizes)) if from_trace else max(longest, prompt + output)
        workload.append(
            {
                "name": f"w{i}",
                "arrivals": {"process": "trace", "file": "rows.csv", "time": "t"}
                if from_trace
                else {"process": process, "rate": rate},
                "ops": [
                    {
                        "generate": {
                            "model": "small",
                            "prompt": "$p" if from_trace else prompt,
                            "output": "$g" if from_trace else output,
                        }
                    }
                ],
                "priority": draw(st.integers(-1, 1)),
                "deadline": draw(st.sampled_from(["200 us", "5 ms"])),
            }
        )
    size = draw(st.sampled_from([1, 3, 4, 16]))
    sizes_of_memory = (memory_of(SMALL, longest + more, tokens, size, 1.0) for more in (0, 16, 32, 48, 96))
    memory = st.sampled_from([{}, *({"memory": text} for text in sizes_of_memory)])
    fleet = [
        {
            "device": draw(st.sampled_from(["l4", "h100-sxm-80gb", "tpu-v5e"])),
            "name": f"d{i}",
            "count": draw(st.integers(1, 3)),
            "speed": draw(st.sampled_from([0.5, 1.0])),
            "price": f"{i + 1} USD/h",
            **draw(memory),
        }
        for i in range(draw(st.integers(1, 2)))
    ]
    if draw(st.integers(0, 2)) == 0:
        workload[-1]["devices"] = ["d0"]
    batch = {"kind": "continuous", "size": size, "tokens": tokens, "memory": 1.0}
    return {
        "schema": 1,
        "name": "generated",
        "seed": draw(st.integers(0, 5)),
        "fleet": fleet,
        "models": {"small": SMALL},
        "workload": workload,
        "policy": {
            "route": draw(st.sampled_from(["central", *ROUTES])),
            "order": draw(st.sampled_from(ORDERS)),
            "batch": batch,
        },
        "stop": draw(st.sampled_from([{"jobs": 60}, {"jobs": 60}, {"time": "3 ms"}, {"time": "401 us"}, {"jobs": 3}])),
    }, rows


def both(data: dict[str, Any], rows: str) -> tuple[Recording, Recording]:
    """Return what the two engines recorded; reject an example whose scenario is an error."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rows.csv").write_text(rows)
        for entry in data["workload"]:
            if entry["arrivals"]["process"] == "trace":
                entry["arrivals"]["file"] = str(Path(folder) / "rows.csv")
        try:
            ready = prepared(data)
        except InputError:
            reject()
        assert unsupported_by_compiled(ready) is None
        return process.run(ready), compiled.run(ready)


@settings(max_examples=250, deadline=None, suppress_health_check=EXPENSIVE)
@given(served())
def test_both_engines_batch_continuously_alike(drawn: tuple[dict[str, Any], str]) -> None:
    recordings = both(*drawn)
    invariants.check(recordings[1])
    assert_same(*recordings)


def crowded() -> dict[str, Any]:
    """More sequences than memory holds, on two devices that take up the same at the same ticks."""
    return {
        "schema": 1,
        "name": "crowded",
        "fleet": [{"device": "l4", "count": 2, "memory": memory_of(SMALL, 90, 32, 8, 1.0)}],
        "models": {"small": SMALL},
        "workload": [
            {
                "name": f"w{i}",
                "arrivals": {"process": "deterministic", "rate": "20000 /s"},
                "ops": [{"generate": {"model": "small", "prompt": 20, "output": 30}}],
            }
            for i in range(2)
        ],
        "policy": {"route": "central", "batch": {"kind": "continuous", "size": 8, "tokens": 32, "memory": 1.0}},
        "stop": {"jobs": 60},
    }


def test_sequences_that_are_put_off_are_compared_too() -> None:
    recordings = both(crowded(), "t,p,g")
    assert recordings is not None
    assert "the KV cache was full" in recordings[0].notes[0]
    assert_same(*recordings)


def test_room_is_made_where_it_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "ROWS", 1)
    monkeypatch.setattr(build, "SLOTS", 2)
    monkeypatch.setattr(compiled, "_rows_before", [0, 0])
    for _ in range(2):  # the second run has the room that the first one made
        recordings = both(crowded(), "t,p,g")
        assert recordings is not None
        assert_same(*recordings)
    assert min(compiled._rows_before) > 100


@pytest.mark.parametrize("what", ["a tick of a finish", "the device of two jobs that tie", "the order of two gaps"])
def test_the_comparison_bites(what: str) -> None:
    recordings = both(crowded(), "t,p,g")
    assert recordings is not None
    one, other = recordings
    jobs, gaps = other.jobs, other.token_gaps
    if what == "a tick of a finish":
        other = dataclasses.replace(
            other, jobs=dataclasses.replace(jobs, finish=jobs.finish + (np.arange(len(jobs)) == 7))
        )
    elif what == "the device of two jobs that tie":
        assert jobs.start[0] == jobs.start[1] and jobs.device[0] != jobs.device[1]
        other = dataclasses.replace(
            other, jobs=dataclasses.replace(jobs, device=jobs.device[[1, 0, *range(2, len(jobs))]])
        )
    else:
        at = int(np.flatnonzero(gaps.workload[1:] != gaps.workload[:-1])[0])
        order = np.arange(len(gaps.ticks))
        order[[at, at + 1]] = at + 1, at
        columns = ("ticks", "weights", "end", "workload", "of")
        swapped = {name: getattr(gaps, name)[order] for name in columns}
        other = dataclasses.replace(other, token_gaps=dataclasses.replace(gaps, **swapped))
    with pytest.raises(AssertionError):
        assert_same(one, other)


def test_auto_takes_the_compiled_engine_for_the_main_job() -> None:
    ready = prepare_run(check_scenario(read_document(Path("scenarios/azure-code.yaml"))), CATALOGUE)
    assert choose(ready, "auto") == ("compiled", "it supports the scenario")


def test_both_engines_record_the_same_for_the_shipped_scenarios() -> None:
    """Each shipped scenario that both engines support: its first 2,000 jobs, or 400 requests, which take many steps each."""
    compared = []
    for path in sorted(Path("scenarios").rglob("*.yaml")):
        document = read_document(path)
        if is_placement(document):
            continue
        document.data["stop"] = {"jobs": 400 if "models" in document.data else 2000}
        scenario = check_scenario(document)
        if scenario.real_devices:
            continue
        ready = prepare_run(scenario, CATALOGUE)
        if unsupported_by_compiled(ready) is None:
            compared.append(path.stem)
            assert_same(process.run(ready), compiled.run(ready))
    assert {"azure-code", "azure-conv-plan", "failures", "mm64", "rack-power-cap", "ml-inference"} <= set(compared)


def test_cached_machine_code_depends_on_all_that_the_kernels_import() -> None:
    sources = {"/".join(path.parts[-2:]) for path in kernel_sources()}
    assert sources >= {
        "transitions/events.py",
        "transitions/heap.py",
        "compiled/compile.py",
        "compiled/jit.py",
        "results/sketch.py",
        "core/policy.py",
    }
    assert "compiled/run.py" not in sources  # only drives the kernels


@pytest.mark.parametrize("policy", ["fifo", "shortest-expected-completion", "shortest-job-first", "round-robin"])
def test_looking_ahead_in_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """What a large fleet asks of memory before it is needed, asked of a small one."""
    ready = prepared({**TIED, "policy": policy, "stop": {"jobs": 400}})
    monkeypatch.setattr(build, "FAR_ABOVE", 0)
    assert_same(process.run(ready), compiled.run(ready))
