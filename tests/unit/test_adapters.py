"""LoRA adapters: slots, loads, what a rank costs, and what shares nothing with what."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.adapters import Adapters, adapter_bytes
from windtunnel.core.decoder_memory import LargestStep
from windtunnel.core.errors import InputError
from windtunnel.core.group import Group
from windtunnel.core.results.decoding import AdapterUse
from windtunnel.core.step import DividedDecoder
from windtunnel.core.step_cost import StepLoad, step_cost
from windtunnel.engine.prepare.decoding import DecoderCosts
from windtunnel.engine.prepare.replica import Replica
from windtunnel.scenario.decoder import ServedModel
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run, prepare_run
from windtunnel_models.catalogue import Catalogue
from windtunnel_models.models import known_architecture

CATALOGUE = Catalogue()
CONTEXT = {"dispatch": "graph", "clock": "sustained"}
TARGET = known_architecture("llama-3.1-8b")
MODEL = {"layers": 4, "width": 512, "heads": 8, "kv_heads": 2, "feed_forward": 1024, "vocabulary": 2000}


def data(adapters: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "adapters",
        "fleet": [{"device": "h100-sxm-80gb"}],
        "models": {"chat": MODEL | ({"adapters": adapters} if adapters else {})},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "poisson", "rate": "2000 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": 64, "output": 9}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 16, "tokens": 256}},
        "stop": {"jobs": 120},
        **more,
    }


def traced(tmp_path: Path, rows: list[tuple[float, object]], adapters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return requests at stated times (s), each with its adapter."""
    file = tmp_path / "requests.csv"
    file.write_text("t,adapter\n" + "".join(f"{t},{adapter}\n" for t, adapter in rows))
    scenario = data(adapters, stop=None, **more)
    scenario["workload"][0]["arrivals"] = {"process": "trace", "file": str(file), "time": "t"}
    scenario["workload"][0]["ops"][0]["generate"]["adapter"] = "$adapter"
    return scenario


def run(scenario: dict[str, Any]) -> Run:
    return windtunnel.run(scenario_from_data(scenario), catalogue=CATALOGUE, engine="process")


def use_of(finished: Run) -> AdapterUse:
    assert finished.result.serving is not None and finished.result.serving.adapters is not None
    return finished.result.serving.adapters


def costs_of(scenario: dict[str, Any]) -> DecoderCosts:
    (compiled,) = prepare_run(scenario_from_data(scenario), CATALOGUE, "process").compiled.values()
    assert compiled.decoder is not None
    return compiled.decoder


@pytest.mark.parametrize("group", [Group(), Group(tensor=2), Group(pipeline=2), Group(attention_data=2)], ids=str)
def test_tables_of_the_engine_give_the_cost_of_adapters_that_predict_gives(group: Group) -> None:
    served = ServedModel(TARGET, "graph", "sustained", adapters=Adapters(10, rank=16, slots=4))
    device = CATALOGUE.device("h100-sxm-80gb")
    tables = DecoderCosts(Replica(device, group), served, LargestStep(256, 8), 1024)
    divided = DividedDecoder(TARGET, group, adapter_rank=16)
    decode, adapters = np.array([1.0, 8.0, 8.0, 6.0]), np.array([1.0, 1.0, 4.0, 2.0])
    context, prefill, none = np.full(4, 512.0), np.array([0.0, 0.0, 0.0, 200.0]), np.zeros(4)
    expected = step_cost(device, divided, StepLoad(decode, context, prefill, none, adapters), CONTEXT)
    for i in range(4):
        chunks = [(0, int(prefill[i]))] if prefill[i] else []
        seconds, joules = tables.step(int(decode[i]), 512 * decode[i], chunks, len(chunks), int(adapters[i]))
        assert seconds == pytest.approx(expected.duration_s[i], rel=0.02)
        assert joules + seconds * tables.idle_power_w == pytest.approx(expected.energy_j[i], rel=0.02)


def test_an_adapter_has_two_narrow_matrices_for_each_linear_layer() -> None:
    """Queries, keys, values, output, gate, up and down of 32 layers: rank x (inputs + outputs) in 16 bits."""
    shapes = [(4096, 4096), (4096, 1024), (4096, 1024), (4096, 4096), (4096, 14336), (4096, 14336), (14336, 4096)]
    assert adapter_bytes(TARGET, Group(), 16) == 2 * 16 * 32 * sum(k + n for k, n in shapes)
    half = adapter_bytes(TARGET, Group(tensor=2), 16)
    assert 0.5 * adapter_bytes(TARGET, Group(), 16) < half < adapter_bytes(TARGET, Group(), 16)
    assert adapter_bytes(TARGET, Group(pipeline=2), 16) == adapter_bytes(TARGET, Group(), 16) / 2


def test_a_larger_rank_costs_more_time_and_more_memory() -> None:
    small, large = (costs_of(data({"count": 4, "slots": 4, "rank": rank})) for rank in (8, 512))
    assert large.adapted[0, 4, 16] > small.adapted[0, 4, 16] > small.adapted[0, 1, 16] > 0
    more = 4 * (adapter_bytes(large.model, Group(), 512) - adapter_bytes(small.model, Group(), 8))
    assert large.memory.weights_bytes - small.memory.weights_bytes == pytest.approx(more)
    assert large.capacity_tokens < small.capacity_tokens


def test_a_request_without_a_slot_waits_and_others_pass_it(tmp_path: Path) -> None:
    rows = [(0.0, 1), (1e-6, 2), (2e-6, 1), (3e-6, 0)]
    jobs = run(traced(tmp_path, rows, {"count": 2, "slots": 1})).recording.jobs
    assert jobs.start[1] >= max(jobs.finish[0], jobs.finish[2])
    assert max(jobs.start[2], jobs.start[3]) < jobs.finish[0]
    both = run(traced(tmp_path, rows, {"count": 2, "slots": 2})).recording.jobs
    assert both.start[1] < both.finish[0]


def test_a_load_delays_the_first_token_by_the_copy_and_the_read(tmp_path: Path) -> None:
    rows: list[tuple[float, object]] = [(0.0, 1), (0.1, 2), (0.2, 1), (0.3, 1)]
    kept = run(traced(tmp_path, rows, {"count": 2, "slots": 1}))
    read = run(traced(tmp_path, rows, {"count": 2, "slots": 1, "host": 1, "storage": "1 GB/s"}))
    assert use_of(kept) == AdapterUse(1, 3, 0, 0.25)
    assert use_of(read) == AdapterUse(1, 3, 3, 0.25)
    first = [(each.recording.jobs.first - each.recording.jobs.arrival) / 1e12 for each in (kept, read)]
    costs = costs_of(traced(tmp_path, rows, {"count": 2, "slots": 1, "host": 1, "storage": "1 GB/s"}))
    assert costs.adapter_read_s == pytest.approx(adapter_bytes(costs.model, Group(), 16) / 1e9)
    assert first[0][:3] - first[0][3] == pytest.approx([costs.adapter_load_s] * 3, rel=1e-6)
    assert first[1][:3] - first[1][3] == pytest.approx([costs.adapter_load_s + costs.adapter_read_s] * 3, rel=1e-6)


@pytest.mark.parametrize(("slots", "host"), [(1, 3), (4, 6), (8, 20)])
def test_slots_keep_the_most_recently_used_adapters(slots: int, host: int) -> None:
    """Requests one at a time, against an independent count."""
    stated = {"count": 20, "slots": slots, "host": host, "popularity": 0.8}
    scenario = data({**stated, **({"storage": "5 GB/s"} if host < 20 else {})})
    scenario["workload"][0]["arrivals"] = {"process": "deterministic", "rate": "20 /s"}
    prepared = prepare_run(scenario_from_data(scenario), CATALOGUE, "process")
    (compiled,) = prepared.compiled.values()
    assert compiled.adapters is not None
    held: list[OrderedDict[int, None]] = [OrderedDict(), OrderedDict()]
    found = [0, 0]
    for adapter in compiled.adapters.tolist():
        for i, size in enumerate((slots, host)):
            found[i] += adapter in held[i]
            held[i][adapter] = None
            held[i].move_to_end(adapter)
            if len(held[i]) > size:
                held[i].popitem(last=False)
    use = use_of(run(scenario))
    assert (use.hits, use.loads) == (found[0], 120 - found[0])
    assert use.storage_reads == (120 - found[1] if host < 20 else 0)


def test_adapters_are_drawn_by_a_power_law() -> None:
    drawn = Adapters(50, popularity=1.0).drawn(np.random.default_rng(1).random(100_000))
    counts = np.bincount(drawn, minlength=51)
    assert counts[0] == 0 and len(counts) == 51
    assert counts[1] / counts[2] == pytest.approx(2.0, rel=0.05) and counts[1] / counts[10] == pytest.approx(
        10, rel=0.1
    )


def test_prompts_for_different_adapters_share_no_blocks(tmp_path: Path) -> None:
    hits = {}
    for name, adapters in (("alike", (1, 1)), ("apart", (1, 2)), ("none", (0, 1))):
        rows: list[tuple[float, object]] = [(0.1 * i, adapter) for i, adapter in enumerate(adapters)]
        scenario = traced(tmp_path, rows, {"count": 2, "slots": 2})
        scenario["policy"]["batch"]["prefix_cache"] = {}
        scenario["workload"][0]["ops"][0]["generate"]["shared_prefix"] = 48
        serving = run(scenario).result.serving
        assert serving is not None
        hits[name] = serving.prefix_hit_tokens
    assert hits == {"alike": 48, "apart": 0, "none": 0}


def test_affinity_finds_more_adapters_in_slots_than_the_least_load() -> None:
    base = data({"count": 12, "slots": 4, "popularity": 0.5}, stop={"jobs": 300})
    base["fleet"][0]["count"] = 3
    rates = {}
    for policy in ("least-loaded", "adapter-affinity", {"weights": {"has_adapter": -5, "jobs": 1}}):
        stated = {"route": policy} if isinstance(policy, dict) else {"name": policy}
        rates[str(policy)] = use_of(run({**base, "policy": {**stated, "batch": base["policy"]["batch"]}})).hit_rate or 0
    least, affinity, weighted = rates.values()
    assert affinity > least + 0.1 and weighted > least + 0.1


def test_adapters_combine_with_drafts_faults_scaling_patience_and_closed_loops() -> None:
    base = data({"count": 5, "slots": 2}, stop={"time": "400 ms"})
    base["models"]["chat"]["speculation"] = {"draft": "eagle", "tokens": 2, "acceptance": 0.5}
    base["workload"][0] |= {
        "arrivals": {"process": "closed", "users": 12, "think": {"mean": "2 ms"}},
        "patience": "3 ms",
    }
    base["fleet"][0] |= {"name": "gpu", "power": {"max": "500 W"}}
    base["autoscale"] = [{"entry": "gpu", "max": 3, "up": {"running_per_device": 4}, "provisioning": "50 ms"}]
    result = run(base).result
    assert result.jobs.completed > 50 and result.jobs.dropped > 0
    del base["autoscale"]
    failing = {**base, "faults": [{"kind": "failure", "at": ["100 ms"], "duration": "20 ms", "on_failure": "retry"}]}
    assert use_of(run(failing)).loads > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"host": 1, "slots": 2, "storage": "1 GB/s"}, "the host holds 1 adapters, and the devices 2"),
        ({"host": 3}, "storage"),
        ({"storage": "1 GB/s"}, "storage"),
        ({"slots": 65}, "at most 64"),
    ],
)
def test_wrong_places_of_adapters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        run(data({"count": 5, **change}))
    assert message in str(raised.value)


def test_a_wrong_adapter_of_a_request_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"requests.csv:3.*'7' is not the number of an adapter.*0 .* to 2"):
        run(traced(tmp_path, [(0.0, 1), (0.1, 7)], {"count": 2}))
    scenario = data(None)
    scenario["workload"][0]["ops"][0]["generate"]["adapter"] = 1
    with pytest.raises(
        InputError, match=r"the model 'chat' has no adapters; expected no adapter, or models.chat.adapters"
    ):
        run(scenario)
