"""Reconfigurable devices in a run: what is resident at the start, which changes cost a load, and what is lost.

The differential tests compare both engines and the oracle on them; here are the numbers that one can check by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cases import check_all, search_alone
from tests.differential.comparison import CATALOGUE, prepared

from windtunnel.app import plan as planner
from windtunnel.cli.main import cli
from windtunnel.core.errors import InputError
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import Measured
from windtunnel.engine.compiled import run as compiled
from windtunnel.engine.process import engine as process
from windtunnel.engine.results import invariants
from windtunnel.engine.results.metrics import summarise
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import prepare_run

ADD = {"vector_add": {"n": 100_000}}
FFT = {"fft": {"n": 1024, "batch": 8}}
GEMM = {"gemm": {"m": 512, "n": 512, "k": 512, "dtype": "float32"}}
LOAD = 6_960_000_000_000
"""Ticks of a load of an Alveo card (kinds/fpga.yaml)."""
QUICK, QUICK_REGION = 3_000_000_000, 1_000_000_000
"""Ticks of a load of the cards in tests/data/catalog."""


def scenario(*programs: Any, device: str = "alveo-u50", **changes: Any) -> dict[str, Any]:
    """A scenario with one workload for each program, a job a second each; they arrive in their order."""
    workload = [
        {"name": f"w{i}", "arrivals": {"process": "deterministic", "rate": "1 /s"}, "ops": program}
        for i, program in enumerate(programs)
    ]
    entry = {"device": device, "name": "card", **changes.pop("entry", {})}
    data = {"schema": 1, "name": "designs", "fleet": [entry], "workload": workload, "stop": {"jobs": 12}}
    return {**data, **changes}


def run(data: Mapping[str, Any]) -> tuple[Recording, Measured]:
    ready = prepared(dict(data))
    recording = process.run(ready)
    invariants.check(recording)
    return recording, summarise(ready, [recording], ())


def loads(data: Mapping[str, Any]) -> tuple[int, int]:
    recording = run(data)[0]
    assert recording.loads is not None
    return recording.loads.count, recording.loads.ticks


def test_each_change_of_design_costs_a_load() -> None:
    """The first workload's design is resident at the start, and the 11 other jobs of three workloads in turn load."""
    recording, result = run(scenario([ADD], [FFT], [GEMM]))
    assert recording.loads is not None
    assert (recording.loads.count, recording.loads.ticks) == (11, 11 * LOAD)
    assert result.latency_s.mean.value is not None
    assert result.latency_s.mean.value > 30
    assert result.designs is not None
    (entry,) = result.designs.entries
    assert result.designs.load_s == pytest.approx(11 * 6.96)
    assert entry.needed == ["vector_add_float32", "fft_float32", "gemm_float32"]
    assert entry.resident_at_start == ["vector_add_float32"]
    busy_s = recording.devices[0].busy_ticks / 1e12
    assert 11 * 6.96 < busy_s < 11 * 6.96 + 0.1


def test_a_load_is_an_interval_and_draws_the_base_power() -> None:
    recording, _ = run(scenario([ADD], [FFT], stop={"jobs": 2}))
    table = recording.intervals
    assert table is not None
    of_load = [i for i, name in enumerate(table.name) if table.words[name] == "load design fft_float32"]
    assert [int(table.end[i] - table.start[i]) for i in of_load] == [LOAD]
    assert table.watts[of_load[0]] == pytest.approx(0.3 * (75 - 20), abs=1e-5)
    assert recording.jobs.energy_j[1] > 0.3 * (75 - 20) * 6.96  # the job that needs it


def test_a_load_occurs_only_where_a_design_is_missing() -> None:
    copy = {"copy": {"bytes": 1000, "direction": "h2d"}}
    half = {"vector_add": {"n": 1000, "dtype": "float16"}}
    vector = {"gemm": {"m": 1, "n": 512, "k": 512, "dtype": "float32"}}
    both = {"device": "quick-fpga-two", "stop": {"jobs": 12}}

    cases = {
        "one design": (scenario([ADD, copy, {"launch": {}}]), 0),
        "nothing resident": (scenario([ADD], entry={"resident": []}), 1),
        "another one resident": (scenario([ADD], [FFT], entry={"resident": ["fft"]}), 12),
        "an operation alone": (scenario([ADD], [FFT], entry={"resident": ["vector_add"]}), 11),
        "a format is a design": (scenario([ADD], [half]), 11),
        "a vector is a design": (scenario([GEMM], [vector]), 11),
        "within a job": (scenario([ADD, FFT, ADD]), 24),
        "two regions": (scenario([ADD], [FFT], **both), 0),
        "the least recently used goes": (scenario([ADD, FFT, ADD, GEMM, ADD, FFT], **both), 24),
        "another card": (scenario([ADD], [FFT], device="quick-fpga-one", policy="least-loaded"), 11),
    }

    def check(name: str) -> None:
        data, count = cases[name]
        assert loads(data)[0] == count

    check_all(cases, check)


def test_a_region_is_loaded_in_its_own_time() -> None:
    assert loads(scenario([ADD], [FFT], device="quick-fpga-one")) == (11, 11 * QUICK)
    assert loads(scenario([ADD], [FFT], [GEMM], device="quick-fpga-two")) == (10, 10 * QUICK_REGION)


def test_a_failure_and_a_reset_lose_the_designs() -> None:
    failure = {"kind": "failure", "at": ["1.5 s"], "duration": "1 ms", "on_failure": "retry"}
    assert loads(scenario([ADD], faults=[failure])) == (1, LOAD)
    lost = {"kind": "device-lost", "call": 2, "times": 1, "reset_time": "1 ms", "on_failure": "retry"}
    assert loads(scenario([ADD], faults=[lost])) == (1, LOAD)
    kept = {"kind": "launch-failure", "call": 2, "times": 1, "on_failure": "retry"}
    assert loads(scenario([ADD], faults=[kept])) == (0, 0)


def test_an_interrupted_load_is_lost() -> None:
    """The card fails 1 s after the second job began to load its design, is repaired at once, and loads it again."""
    failure = {"kind": "failure", "at": ["1.5 s"], "duration": "1 ms", "on_failure": "retry"}
    count, ticks = loads(scenario([ADD], [FFT], stop={"jobs": 2}, faults=[failure]))
    begun = run(scenario([ADD], [FFT], stop={"jobs": 2}))[0].jobs.start[1]
    assert (count, ticks) == (2, LOAD + 1_500_000_000_000 - begun)


def test_neither_throttling_nor_a_straggler_slows_a_load() -> None:
    slow = [
        {"kind": "throttle", "at": ["500 ms"], "duration": "1 h", "speed": 0.25},
        {"kind": "straggler", "probability": 1.0, "slowdown": 3},
    ]
    assert loads(scenario([ADD], [FFT], faults=slow)) == (11, 11 * LOAD)
    assert loads(scenario([ADD], [FFT], entry={"speed": 0.5})) == (11, 11 * LOAD)


def test_routes_count_the_load_that_a_job_needs() -> None:
    """Each of two cards keeps one design, and only the first job of the second design loads it."""
    data = scenario([ADD], [FFT], entry={"count": 2, "price": "1 USD/h"}, stop={"jobs": 40})
    for one in data["workload"]:
        one["deadline"] = "1 s"
    for name in ("shortest-expected-completion", "cheapest-that-meets-the-deadline"):
        assert loads({**data, "policy": name}) == (1, LOAD), name
    assert loads({**data, "policy": "round-robin"})[0] == 1  # by chance: the workloads alternate as the cards do
    uneven = scenario([ADD], [ADD], [FFT], entry={"count": 2}, stop={"jobs": 40})
    assert loads({**uneven, "policy": "round-robin"})[0] > 10
    assert loads({**uneven, "policy": "shortest-expected-completion"}) == (1, LOAD)


def test_a_gang_programs_all_its_cards_together() -> None:
    data = scenario([ADD], [FFT], entry={"count": 3}, stop={"jobs": 4})
    data["workload"][0]["gang"] = 3
    # The gang is first on three cards that hold its design; each job of the other workload loads one of them.
    assert loads(data) == (1 + 3 + 1, 5 * LOAD)


def test_a_batch_loads_its_design_once() -> None:
    data = scenario([ADD], [FFT], policy={"name": "fifo", "batch": {"kind": "request", "size": 3, "wait": "10 s"}})
    count, ticks = loads(data)
    assert ticks == count * LOAD
    assert 0 < count < 5
    with pytest.raises(InputError, match="a batch on card needs one design, and 'w0' needs"):
        prepared({**data, "workload": [{**data["workload"][0], "ops": [ADD, FFT]}]})


def test_operations_side_by_side_load_one_after_another() -> None:
    data = scenario([ADD], [FFT], entry={"streams": 2})
    assert loads(data) == (11, 11 * LOAD)
    side_by_side = scenario([{"streams": [[ADD], [FFT]]}], stop={"jobs": 2})
    assert loads(side_by_side)[0] == 3


def test_what_is_resident_is_checked() -> None:
    cases = {
        "unknown": (scenario([ADD], entry={"resident": ["vector_ad"]}), "'vector_ad' is not a design.*vector_add"),
        "twice": (
            scenario([ADD], device="quick-fpga-two", entry={"resident": ["vector_add", "vector_add_float32"]}),
            "stated twice",
        ),
        "too many": (scenario([ADD], [FFT], entry={"resident": ["fft", "vector_add"]}), "holds 1 design at once"),
        "ambiguous": (
            scenario([ADD], [{"vector_add": {"n": 9, "dtype": "float16"}}], entry={"resident": ["vector_add"]}),
            "stands for 2 designs",
        ),
        "no such device": (scenario([ADD], device="l4", entry={"resident": []}), "has no designs"),
    }

    def check(name: str) -> None:
        data, message = cases[name]
        with pytest.raises(InputError, match=message):
            prepared(data)

    check_all(cases, check)


def test_each_job_needs_the_design_of_its_own_columns(tmp_path: Path) -> None:
    """Products with a vector need another design than the other products of one workload."""
    (tmp_path / "rows.csv").write_text("t,m\n0,512\n1,1\n2,1\n3,512\n")
    data = scenario([{"gemm": {"m": "$m", "n": 512, "k": 512, "dtype": "float32"}}], stop=None)
    data["workload"][0]["arrivals"] = {"process": "trace", "file": str(tmp_path / "rows.csv"), "time": "t"}
    assert loads(data) == (2, 2 * LOAD)


def test_predict_names_the_design_and_the_time_of_a_load() -> None:
    command = ["predict", "vector_add", "--device", "alveo-u50", "n=1000"]
    text = CliRunner().invoke(cli, command).output
    assert "design   vector_add_float32; a load of it takes 6.96 s and is not included" in text
    found = json.loads(CliRunner().invoke(cli, [*command, "--format", "json"]).output)
    assert found["design"] == {"name": "vector_add_float32", "load_s": 6.96}
    assert found["duration_s"] < 1e-4
    assert "design" not in json.loads(
        CliRunner().invoke(cli, ["predict", "vector_add", "--device", "l4", "n=1", "--format", "json"]).output
    )


def test_a_long_run_counts_loads_too() -> None:
    """The sums of a run that keeps only a sample agree with the records of one that keeps every job."""
    data = scenario([ADD], [FFT], device="quick-fpga-one", stop={"jobs": 400})
    for one in data["workload"]:
        one["arrivals"] = {"process": "poisson", "rate": "100 /s"}
    kept = compiled.run(prepared(data))
    sampled = compiled.run(prepare_run(scenario_from_data({**data, "records": "sample"}), CATALOGUE, "compiled"))
    assert sampled.tally is not None
    assert sampled.loads == kept.loads
    assert sampled.loads is not None
    assert sampled.loads.count > 100
    assert sampled.devices[0].energy_j == pytest.approx(kept.devices[0].energy_j)


def test_a_plan_simulates_loads_and_its_bound_stays_below() -> None:
    """One card would load for every job; each of two cards keeps a design. The bound does not know loads."""
    data = scenario([ADD], [FFT], entry={"price": "1 USD/h"}, stop={"jobs": 300})
    for one in data["workload"]:
        one["arrivals"] = {"process": "poisson", "rate": "3 /s"}
    data |= {"policy": "shortest-expected-completion", "targets": ["latency p50 <= 10 ms"], "plan": {"loads": []}}
    with search_alone():
        plan = planner.plan(scenario_from_data(data), workers=1).to_dict()
    assert plan["fleets"][0]["devices"] == {"alveo-u50": 2}
    assert plan["lower_bound"]["cost_usd_per_h"] <= plan["fleets"][0]["cost_usd_per_h"]
    assert any("does not include loads" in note for note in plan["notes"])
