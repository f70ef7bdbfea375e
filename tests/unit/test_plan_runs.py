"""Runs of a plan: those that end when a target is lost, step costs that processes share, and what is measured."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone
from tests.unit.planning import CHAT, KNOWN

from windtunnel.app.plan import plan
from windtunnel.core.device import Correction, Residual
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.recording import Recording
from windtunnel.engine.choice import run_on
from windtunnel.engine.prepare import decoder_cache
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.prepared import PreparedRun
from windtunnel.engine.process import engine as process
from windtunnel.engine.results.lost import TargetsLostError, Watch, watch_of
from windtunnel.planning import simulate as simulating
from windtunnel.planning.choice_search import ChoiceSearch
from windtunnel.planning.simulate import Case, variant
from windtunnel.report import plan_page
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import measure, prepare_run, simulate
from windtunnel_models.catalogue import Catalogue

# Runs that end when a target is lost.

BUSY: dict[str, Any] = CHAT | {
    "fleet": CHAT["fleet"][:1],
    "workload": [
        {"name": name, "arrivals": {"process": "poisson", "rate": rate},
         "ops": [{"generate": {"model": "chat", "prompt": prompt, "output": output}}]}
        for name, rate, prompt, output in (("chat", "300 /s", 300, 8), ("code", "20 /s", 1500, 5))
    ],
    "stop": {"jobs": 400}, "warm_up": "none",
    "targets": ["ttft p95 <= 250 ms", "itl p95 of chat <= 15 ms", "e2e p50 of chat <= 100 ms"],
}  # fmt: skip


def test_a_run_that_ends_when_a_target_is_lost_has_the_verdict_of_the_whole_run_and_bounds_below_its_values() -> None:
    stopped = set()
    for text, count in product(BUSY["targets"], (2, 8)):
        scenario = scenario_from_data(BUSY | {"targets": [text]})
        setting = simulating.Setting(scenario, KNOWN, 0.95, 1, 1.0, 1, None, (2.99,))
        whole = simulating.simulate(setting, Case((count,)))
        ended = simulating.simulate(setting, Case((count,), until_lost=True))
        assert ended.meets == whole.meets and ended.cost_usd_per_h == pytest.approx(whole.cost_usd_per_h)
        if ended.stopped_after is None:
            assert ended == whole
            continue
        stopped.add(text)
        (least,), (of_whole,) = ended.targets, whole.targets
        assert 0 < ended.stopped_after < 400 and least.verdict == of_whole.verdict == "missed"
        assert least.limit < least.value <= of_whole.value
    assert stopped == set(BUSY["targets"])
    # Both engines look at the same moments, so a plan does not depend on the engine.
    prepared, found = prepare_run(variant(scenario, Case((2,))), KNOWN), []
    for engine in ("process", "compiled"):
        with pytest.raises(TargetsLostError) as error:
            run_on(engine, prepared, None, watch_of(prepared, scenario.parsed_targets()))
        found.append((error.value.jobs, error.value.lost))
    assert found[0] == found[1]
    # Where jobs may leave, or a warm-up is not judged, nothing is certain before the end.
    for keys in (
        {"warm_up": "auto"},
        {"stop": {"time": "2 s"}},
        {"workload": [{**BUSY["workload"][0], "patience": "1 s"}]},
    ):
        other = scenario_from_data({**BUSY, "targets": ["ttft p95 <= 250 ms", "completed >= 99 %"], **keys})
        assert watch_of(prepare_run(other, KNOWN), other.parsed_targets()) is None


def test_a_run_that_is_begun_anew_when_its_machine_code_is_there_is_ended_as_if_it_was_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario = scenario_from_data(BUSY | {"targets": ["itl p95 of chat <= 16 ms"]})
    prepared, targets = prepare_run(variant(scenario, Case((1,))), KNOWN), scenario.parsed_targets()
    with pytest.raises(TargetsLostError) as whole:
        run_on("process", prepared, None, once := watch_of(prepared, targets))
    watch, asked, begun = watch_of(prepared, targets), 0, 0
    assert watch is not None and once is not None

    def is_stored() -> bool:
        nonlocal asked
        asked += 1
        return asked == whole.value.jobs // 8 - 1

    def run_anew(again: PreparedRun, _progress: object, the_same: Watch) -> Recording:
        nonlocal begun
        begun += 1
        assert the_same is watch
        return process.run(again, None, watch)

    monkeypatch.setattr("windtunnel.engine.process.engine._REPORT_MASK", 7)
    missing = {"the kernel": SimpleNamespace(is_stored=is_stored)}
    monkeypatch.setattr("windtunnel.engine.compiled.kernels.missing_code", lambda _prepared: missing)
    monkeypatch.setattr("windtunnel.engine.compiled.background.started", lambda _missing: True)
    monkeypatch.setattr("windtunnel.engine.compiled.run.run", run_anew)
    with pytest.raises(TargetsLostError) as anew:
        run_on("compiled", prepared, None, watch)
    assert begun == 1 and whole.value.jobs > 2 * watch.block
    assert (anew.value.jobs, anew.value.lost) == (whole.value.jobs, whole.value.lost)
    assert watch._gaps == once._gaps, "no gap of the run that was left counts"


@pytest.mark.parametrize("most", [4, 2])
def test_a_plan_that_ends_runs_of_lost_fleets_gives_the_answer_of_whole_runs(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"max": most, "loads": [], "replications": 2}
    keys = BUSY | {"fleet": CHAT["fleet"], "targets": ["ttft p95 <= 300 ms"], "plan": options}
    with search_alone():
        ended = plan(scenario_from_data(keys), workers=1, catalogue=KNOWN)
        monkeypatch.setattr(ChoiceSearch, "_costs_are_known", False)
        whole = plan(scenario_from_data(keys), workers=1, catalogue=KNOWN)
    assert ended.fleets == whole.fleets and ended.recommended == whole.recommended and ended.front == whole.front
    assert ended.lower_bound == whole.lower_bound and ended.entries == whole.entries
    assert bool(ended.fleets) == (most == 4)
    before, after = whole.explanation, ended.explanation
    assert (after.binding, after.next_cheapest, after.closest) == (before.binding, before.next_cheapest, before.closest)
    assert after.conflicts == before.conflicts and whole.stopped == []
    # Every fleet is in one of the two lists, and what is known of those that were not simulated whole is true.
    of_whole = {fleet.text: fleet for fleet in whole.simulated}
    assert {f.text for f in (*ended.simulated, *ended.stopped)} == of_whole.keys()
    # Up to two that were ended are simulated whole to find the one that misses by least.
    assert len(ended.stopped) == ended.search.stopped_fleets and (most == 4 or not ended.stopped)
    for fleet in ended.stopped:
        other = of_whole[fleet.text]
        assert (fleet.devices, fleet.configuration, fleet.min_load) == (
            other.devices,
            other.configuration,
            other.min_load,
        )
        assert fleet.cost_usd_per_h == pytest.approx(other.cost_usd_per_h)
        assert all(value <= target.value for target in other.targets for value in [fleet.least[target.text]])
        assert f"as the first {fleet.jobs} jobs show" in plan_page.render(ended)


def test_step_costs_under_another_limit_of_tokens_are_those_that_are_computed_alone() -> None:
    def costs(tokens: int) -> DecoderCosts:
        policy = {"name": "least-loaded", "batch": {"kind": "continuous", "tokens": tokens, "size": 16}}
        prepared = prepare_run(scenario_from_data({**CHAT, "policy": policy, "fleet": CHAT["fleet"][1:]}), KNOWN)
        found = next(iter(prepared.compiled.values())).decoder
        assert found is not None
        return found

    decoder_cache._cache.clear()
    first, shared = costs(64), costs(192)
    assert shared.decode is first.decode and shared.prefill is first.prefill  # the tables that take most of the time
    decoder_cache._cache.clear()
    alone = costs(192)
    assert alone is not shared and alone.decode is not shared.decode
    for name in ("linear", "copy", "head", "decode", "prefill", "adapted", "windows"):
        assert np.array_equal(getattr(alone, name), getattr(shared, name)), name
    assert alone.linear.shape != first.linear.shape


class Counted:
    """A residual that counts how often it is computed."""

    def __init__(self, residual: Residual) -> None:
        self.residual, self.calls = residual, 0

    @property
    def origin(self) -> SourcedValue:
        return self.residual.origin

    def __call__(self, rows: Rows) -> Correction | None:
        self.calls += 1
        return self.residual(rows)


def test_a_process_takes_the_step_costs_of_another_one_and_corrects_equal_rows_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def costs(catalogue: Catalogue) -> DecoderCosts:
        found = next(iter(prepare_run(scenario_from_data(CHAT), catalogue).compiled.values())).decoder
        assert found is not None
        return found

    decoder_cache._cache.clear()
    computed = costs(KNOWN)
    sent = pickle.loads(pickle.dumps((KNOWN, decoder_cache.known_tables())))
    decoder_cache._cache.clear()
    with monkeypatch.context() as patched:
        patched.setattr(DecoderCosts, "_cost", lambda *_: pytest.fail("a table was priced again"))
        decoder_cache.receive_tables(sent[1])
        received = costs(sent[0])
    decoder_cache.receive_tables({})
    assert received is not computed
    for name in ("linear", "copy", "head", "decode", "prefill", "adapted", "windows"):
        assert np.array_equal(getattr(received, name), getattr(computed, name)), name
    # Neither the speed of a device nor the value of an input changes what measurements correct.
    device, path = computed.device, "power_share.base"
    counted = Counted(device.residuals["gemm"])
    measured = replace(device, residuals={"gemm": counted})
    step = {"m": np.arange(1.0, 101.0), "n": np.array([4096.0]), "k": np.array([4096.0]), "batch": np.ones(1)}
    choices = {"dtype": "bfloat16", "dispatch": "device", "clock": "sustained", "cache": "cold"}
    usual, slower = (
        replace(measured, speed=speed).cost(Rows(OPERATIONS["gemm"], choices, dict(step)), intervals=False).duration_s
        for speed in (1.0, 0.5)
    )
    assert counted.calls == 1 and (slower > usual).all()
    moved = KNOWN.replaced({device.label: {path: 0.2}}).device(device.label)
    assert moved.values[path].value == 0.2 != device.values[path].value
    assert moved.residuals is KNOWN.device(device.label).residuals


def test_a_run_of_a_plan_measures_what_its_targets_ask_for() -> None:
    shared = ("jobs", "latency_s", "energy_j", "average_power_w", "peak_power_w", "utilisation", "cost_usd_per_h")
    for asked, parts in (("itl p95 of chat <= 15 ms", 2), ("slo_attainment >= 50 %", 0), ("e2e p50 <= 100 ms", 0)):
        scenario = scenario_from_data(BUSY | {"targets": ["ttft p95 <= 250 ms", asked]})
        whole, recording = simulate(scenario, 1, "auto", KNOWN, redrawn="never")
        part, same, engine = measure(scenario, KNOWN, redrawn="never")
        # The error of the models is that of a run alone.
        verdicts = [replace(target, model_low=None, model_high=None) for target in whole.targets]
        assert part.targets == verdicts and all(target.value is not None for target in part.targets)
        assert len(part.workloads) == parts and len(whole.workloads) == 2 and engine == whole.engine
        assert [getattr(part, name) for name in shared] == [getattr(whole, name) for name in shared]
        assert part.serving is not None and (part.serving.slo_attainment is None) == (parts != 0 or "e2e" in asked)
        assert np.array_equal(same.jobs.finish, recording.jobs.finish)
