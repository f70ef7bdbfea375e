"""Disaggregated serving: roles, transfers, what the result tells of them, plans and measured rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone

import windtunnel
from windtunnel.app import plan as planner
from windtunnel.core.errors import InputError
from windtunnel.core.results.plan import PlanResult
from windtunnel.core.results.transfers import KvTransferResult
from windtunnel.engine.prepare.demand import minimum_demand
from windtunnel.engine.prepare.handover import nodes_of
from windtunnel.planning.bounds import Replicated
from windtunnel.report.serving import transfer_lines
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run, prepare_run, record
from windtunnel.validation.serving import read_loops, read_measurements, simulated
from windtunnel_models.catalogue import Catalogue

CATALOGUE = Catalogue()
PREFILL = {"device": "h100-sxm-80gb", "name": "readers", "role": "prefill", "price": "2 USD/h"}
DECODE = {"device": "h200-sxm-141gb", "name": "writers", "role": "decode", "price": "3 USD/h"}


def disaggregated(*fleet: dict[str, Any], prompt: Any = 2000, output: Any = 5, **more: Any) -> dict[str, Any]:
    """A single request of a small decoder, unless ``more`` says otherwise."""
    return {
        "schema": 1,
        "name": "moved",
        "fleet": list(fleet or (PREFILL, DECODE)),
        "models": {"chat": {"catalogue": "qwen3-0.6b"}},
        "workload": [
            {
                "name": "chat",
                "arrivals": {"process": "deterministic", "rate": "1 /s"},
                "ops": [{"generate": {"model": "chat", "prompt": prompt, "output": output}}],
            }
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "size": 16}},
        "stop": {"jobs": 1},
        **more,
    }


def run(data: dict[str, Any]) -> Run:
    return windtunnel.run(scenario_from_data(data), catalogue=CATALOGUE, engine="process")


def moved(done: Run) -> KvTransferResult:
    assert done.result.serving is not None and done.result.serving.kv_transfers is not None
    return done.result.serving.kv_transfers


def test_the_first_token_counts_when_the_decode_replica_has_the_cache() -> None:
    network = {"bandwidth": "1 GB/s", "latency": "10 us"}
    data = disaggregated(network=network)
    scenario = scenario_from_data(data)
    ready = prepare_run(scenario, CATALOGUE)
    reader, writer = (ready.compiled[cls, 0].decoder for cls in (0, 1))
    assert reader is not None and writer is not None
    read_s, _ = reader.reading([2000])
    # A message attains 69.1% of a port, and the latency of a large one grows a little.
    transfer_s = 2000 * 28 * 8 * 128 * 2 * 2 / 0.691e9
    jobs = record(scenario, CATALOGUE, "process").jobs
    first_s = (jobs.first[0] - jobs.arrival[0]) / 1e12
    assert first_s == pytest.approx(read_s + transfer_s, rel=0.02)
    rest_s = sum(writer.step(1, 2000.0 + made, [], 0)[0] for made in range(1, 5))
    assert (jobs.finish[0] - jobs.first[0]) / 1e12 == pytest.approx(rest_s, rel=1e-6)
    result = moved(run(data))
    assert (result.count, result.tokens, result.bytes) == (1, 2000, 2000 * 28 * 8 * 128 * 2 * 2)
    assert result.transfer_s is not None
    assert result.transfer_s.mean == pytest.approx(transfer_s, rel=0.02)
    assert first_s == pytest.approx(read_s + result.transfer_s.mean, rel=1e-6)
    assert result.pairs[0].sender == "readers" and result.pairs[0].receiver == "writers"
    serving = run(data).result.serving
    assert serving is not None and "1 KV cache sent (229 MB)" in transfer_lines(serving)[0]


def test_requests_do_not_move_between_different_engines() -> None:
    for receiver in ({**DECODE, "engine": "vllm"}, {**DECODE, "role": "both", "engine": "sglang"}):
        with pytest.raises(InputError, match=r"fleet\[1\].engine: readers runs trtllm with the role prefill") as raised:
            run(disaggregated({**PREFILL, "engine": "trtllm"}, receiver))
        assert raised.value.expected == "engine: trtllm in both entries"
    assert run(disaggregated({**PREFILL, "engine": "vllm"}, {**DECODE, "engine": "vllm"})).result.jobs.completed == 1


def test_a_request_of_one_token_does_not_move() -> None:
    done = run(disaggregated(output=1))
    assert done.result.jobs.completed == 1
    assert moved(done).count == 0


def test_replicas_of_one_node_use_its_link_and_others_the_network() -> None:
    """A node of eight has four devices of each role; in nodes of four each role has a node of its own."""
    same = [
        {"device": "h100-sxm-80gb", "name": role, "role": role, "count": 4, "group": {"tensor": 2}}
        for role in ("prefill", "decode")
    ]
    for fleet, nodes in (
        (same, [0, 0, 0, 0]),
        ([{**entry, "node": {"devices": 4}} for entry in same], [0, 0, 1, 1]),
        ([{**entry, "node": {"devices": 3}} for entry in same], [0, -1, 1, 2]),
        ([same[0], {**same[1], "device": "h200-sxm-141gb"}], [0, 0, 1, 1]),
    ):
        ready = prepare_run(scenario_from_data(disaggregated(*fleet)), CATALOGUE)
        assert nodes_of(ready.scenario, ready.classes).tolist() == nodes
    inside, across = (
        moved(run(disaggregated(*fleet))).pairs[0].bytes_per_s
        for fleet in (same, [{**entry, "node": {"devices": 2}} for entry in same])
    )
    assert inside > 0.5 * 2 * 450e9
    # A message attains 69.1% of the assumed port of each of two devices.
    assert across == pytest.approx(2 * 12.5e9 * 0.691, rel=0.08)


def test_what_the_cache_of_the_decode_replica_has_is_not_sent() -> None:
    data = disaggregated(prompt=2048, stop={"jobs": 3})
    data["workload"][0]["ops"][0]["generate"]["shared_prefix"] = 1600
    without = moved(run(data))
    data["policy"]["batch"]["prefix_cache"] = {"block": 16}
    assert without.tokens - moved(run(data)).tokens == 2 * 1600


def test_a_network_that_is_not_stated_is_a_note_where_kv_caches_cross_it() -> None:
    same = [{**PREFILL, "device": "h100-sxm-80gb"}, {**DECODE, "device": "h100-sxm-80gb"}]
    for fleet, more, noted in (
        ((PREFILL, DECODE), {}, True),
        ((PREFILL, DECODE), {"network": {"bandwidth": "50 GB/s"}}, False),
        (same, {}, False),
        ([{**entry, "node": {"devices": 1}} for entry in same], {}, True),
    ):
        notes = run(disaggregated(*fleet, **more)).result.notes
        assert any("a network that is not stated" in note and "8.49 GB/s" in note for note in notes) == noted, notes


def planned(*fleet: dict[str, Any], more: Mapping[str, Any] | None = None, **search: Any) -> PlanResult:
    keys = {
        "targets": ["ttft p95 <= 500 ms", "tpot p95 <= 20 ms"],
        "plan": {"max": 2, "replications": 2, "search": search, "loads": []},
        "stop": {"jobs": 60},
        **(more or {}),
    }
    data = disaggregated(*fleet, prompt=300, output=10, **keys)
    data["workload"][0]["arrivals"] = {"process": "poisson", "rate": "5 /s"}
    return planner.plan(scenario_from_data(data), workers=1)


def test_a_plan_says_of_an_entry_with_one_role_that_it_needs_the_other() -> None:
    found = planned()
    assert found.fleets[0].devices == {"h100-sxm-80gb": 1, "h200-sxm-141gb": 1}
    roles = [(entry.entry, entry.role) for entry in found.fleets[0].configuration]
    assert roles == [("readers", "prefill"), ("writers", "decode")]
    reasons = [entry.reason for entry in found.entries]
    assert [reason and (reason.kind, reason.role, reason.text) for reason in reasons] == [
        ("one_role", "prefill", "it only reads prompts (role: prefill); a fleet also needs an entry that decodes"),
        ("one_role", "decode", "it only decodes (role: decode); a fleet also needs an entry that reads prompts"),
    ]


def test_a_plan_leaves_out_roles_and_groups_without_a_fleet_and_says_why() -> None:
    one = {"device": "h100-sxm-80gb", "price": "2 USD/h"}
    found = planned(one, **{"fleet[0].role": ["decode", "both"]})
    assert [fleet.devices for fleet in found.fleets] == [{"h100-sxm-80gb": 1}]
    assert found.fleets[0].configuration[0].role == "both"
    assert [e.values for e in found.excluded] == [{"fleet[0].role": "decode"}]
    assert "no entry sends it requests" in found.excluded[0].reason
    # One of two entries has no value that divides, and the other one is planned.
    other = {"device": "h200-sxm-141gb", "price": "3 USD/h"}
    found = planned(one, other, **{"fleet[0].group.tensor": [3, 5]})
    assert found.fleets[0].devices == {"h200-sxm-141gb": 1}
    assert [e.values["fleet[0].group.tensor"] for e in found.excluded] == [3, 5]
    # Without a prefill entry nothing is left, which the values explain, and not the role of the other entry.
    with pytest.raises(InputError, match=r"plan.search: no searched value is left: .*tensor: 3; .*tensor: 5") as raised:
        planned(PREFILL, DECODE, **{"fleet[0].group.tensor": [3, 5]})
    assert raised.value.expected == "tensor of 1, 2, 4, 8"


def test_a_search_over_engines_tries_each_for_both_roles_and_never_two_in_one_fleet() -> None:
    """The answer is the best of the plans of one engine each, which a reader could write by hand."""
    engines, targets = ("trtllm", "vllm", "sglang"), {"targets": ["tpot p95 <= 2.5 ms", "ttft p95 <= 100 ms"]}
    with search_alone():
        by_hand = {e: planned(PREFILL | {"engine": e}, DECODE | {"engine": e}, more=targets) for e in engines}
        every = planned(PREFILL, DECODE, more=targets, **{"fleet[*].engine": list(engines)})
        apart = planned(
            PREFILL, DECODE,
            **{"fleet[0].engine": ["trtllm", "vllm"], "fleet[1].engine": ["vllm", "sglang"], "fleet[1].speed": [1, 2]},
        )  # fmt: skip
    costs = {e: [f.cost_usd_per_h for f in found.fleets] for e, found in by_hand.items()}
    assert costs["sglang"] and not costs["vllm"], "the engines differ, so that dropping one would be seen"
    assert every.fleets[0].cost_usd_per_h == min(c for found in costs.values() for c in found)
    assert not every.choices and not every.excluded
    used = [{engine for of in fleet.configuration for engine in of.settings.values()} for fleet in every.simulated]
    assert used and all(len(engines) == 1 for engines in used)
    assert sum("no engine takes the KV cache of another one" in note for note in every.notes) == 1
    assert [tuple(e.values.values()) for e in apart.excluded] == [("trtllm",), ("sglang", 1), ("sglang", 2)]
    assert all("no engine takes the KV cache of another one" in e.reason for e in apart.excluded)
    chosen = [entry.settings.get("fleet[0].engine") for entry in apart.fleets[0].configuration]
    assert chosen == ["vllm", None]


def test_two_transfers_to_one_replica_follow_each_other() -> None:
    """Two readers end at the same time, and the link of the only writer is busy with one cache after the other."""
    data = disaggregated({**PREFILL, "count": 2}, DECODE, stop={"jobs": 2}, network={"bandwidth": "100 MB/s"})
    data["workload"][0]["arrivals"] = {"process": "batches", "mean_interval": "1 s", "size": 2}
    recording = record(scenario_from_data(data), CATALOGUE, "process")
    transfers = recording.transfers
    assert transfers is not None
    assert transfers.began[1] == transfers.landed[0]
    ticks = transfers.landed - transfers.began
    assert ticks[0] == ticks[1]
    assert recording.jobs.first[1] - recording.jobs.first[0] >= ticks[1] * 0.9


def test_a_full_decode_replica_keeps_requests_on_the_prefill_replica() -> None:
    data = disaggregated(prompt=3000, output=400, stop={"jobs": 12})
    data["workload"][0]["arrivals"]["rate"] = "1000 /s"
    data["policy"]["batch"]["size"] = 2
    result = moved(run(data))
    assert result.count == 12 and result.waiting_s is not None and result.transfer_s is not None
    assert result.waiting_s.mean > 5 * result.transfer_s.mean


def test_a_route_chooses_the_decode_replica_among_those_with_room() -> None:
    data = disaggregated(PREFILL, {**DECODE, "count": 3}, output=200, stop={"jobs": 9})
    data["workload"][0]["arrivals"]["rate"] = "200 /s"
    recording = record(scenario_from_data(data), CATALOGUE, "process")
    assert recording.transfers is not None
    assert np.bincount(recording.transfers.receiver)[1:].tolist() == [3, 3, 3]
    # The first writer would be chosen each time, and has room for one request.
    data["policy"]["decode_route"] = {"weights": {"estimate_s": 1}}
    data["policy"]["batch"]["size"] = 1
    recording = record(scenario_from_data(data), CATALOGUE, "process")
    assert recording.transfers is not None
    assert len(set(recording.transfers.receiver[:3].tolist())) == 3
    data["policy"]["decode_route"] = "session-affinity"
    data["workload"][0]["arrivals"] = {
        "process": "closed", "users": 1, "think": {"distribution": "deterministic", "mean": "1 ms"}
    }  # fmt: skip
    recording = record(scenario_from_data(data), CATALOGUE, "process")
    assert recording.transfers is not None
    assert len(set(recording.transfers.receiver.tolist())) == 1


def test_a_replica_with_both_roles_keeps_what_it_has_read() -> None:
    data = disaggregated({**PREFILL, "role": "both"}, stop={"jobs": 3})
    assert run(data).result.serving.kv_transfers is None  # type: ignore[union-attr]
    data = disaggregated(PREFILL, {**DECODE, "role": "both"}, stop={"jobs": 6})
    data["workload"][0]["arrivals"]["rate"] = "200 /s"
    recording = record(scenario_from_data(data), CATALOGUE, "process")
    assert recording.transfers is not None
    started_by = np.bincount(recording.jobs.device, minlength=2)
    assert started_by[1] == 6 and 0 < len(recording.transfers.job) < 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fleet": [PREFILL]}, r"fleet\[0\].role: readers has the role prefill .* no entry decodes them"),
        ({"fleet": [DECODE]}, r"fleet\[0\].role: writers has the role decode .* no entry sends it"),
        ({"fleet": [PREFILL, {**DECODE, "role": "reads"}]}, r"fleet\[1\].role"),
        ({"policy": "least-loaded"}, "role: prefill requires continuous batching"),
        (
            {"policy": {"name": "fifo", "decode_route": "central", "batch": {"kind": "continuous"}}},
            r"policy.decode_route: the route 'central' does not choose a replica",
        ),
        (
            {"policy": {"name": "fifo", "decode_route": "kv-awar", "batch": {"kind": "continuous"}}},
            r"policy.decode_route: .*kv-aware",
        ),
        (
            {
                "fleet": [{**PREFILL, "role": "both"}],
                "policy": {"name": "fifo", "decode_route": "kv-aware", "batch": {"kind": "continuous"}},
            },
            "no entry has the role prefill",
        ),
    ],
)
def test_what_does_not_work_is_an_error_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        prepare_run(scenario_from_data(disaggregated() | change), CATALOGUE)


def test_each_model_needs_entries_of_both_roles() -> None:
    data = disaggregated(PREFILL, DECODE, {**PREFILL, "name": "second"}, {**DECODE, "name": "third"}, stop={"jobs": 4})
    data["models"]["code"] = {"catalogue": "llama-3.1-8b"}
    (chat,) = data["workload"]
    code = {
        "name": "code",
        **{k: chat[k] for k in ("arrivals",)},
        "ops": [{"generate": {"model": "code", "prompt": 90, "output": 9}}],
    }
    data["workload"] = [{**chat, "devices": ["readers", "writers"]}, {**code, "devices": ["second", "third"]}]
    assert {(pair.sender, pair.receiver) for pair in moved(run(data)).pairs} == {
        ("readers", "writers"),
        ("second", "third"),
    }
    data["workload"][1]["devices"] = ["second"]
    with pytest.raises(InputError, match=r"second has the role prefill for the requests of 'code'"):
        prepare_run(scenario_from_data(data), CATALOGUE)


def test_lower_bounds_hold_for_both_roles_and_no_fleet_lacks_one() -> None:
    data = disaggregated(
        PREFILL, DECODE, prompt=3000, output=120, stop={"jobs": 300}, network={"bandwidth": "400 GB/s"}
    )
    data["workload"][0]["arrivals"]["rate"] = "60 /s"
    data["targets"] = ["ttft p99 <= 1 s", "tpot mean <= 30 ms"]
    scenario = scenario_from_data(data)
    bounds = Replicated([minimum_demand(prepare_run(scenario, CATALOGUE))], scenario.parsed_targets())
    for counts in ((1, 0), (0, 1), (8, 0), (0, 8)):
        assert bounds.load(counts)[0] == np.inf
    least = bounds.lower_bound(np.array([2.0, 3.0]), (50, 50), 2)
    assert least.counts is not None and min(least.counts) >= 1
    # Any fleet that keeps up and meets the targets costs at least as much.
    met = 0
    for readers, writers in ((1, 1), (2, 1), (3, 1), (3, 2)):
        fleet = [{**PREFILL, "count": readers}, {**DECODE, "count": writers}]
        result = run({**data, "fleet": fleet}).result
        if all(target.met for target in result.targets):
            met += 1
            assert bounds.load((readers, writers))[0] <= 1.0
            assert least.value <= 2.0 * readers + 3.0 * writers
    assert met


def test_measured_rows_of_disaggregated_serving_are_simulated(tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    header = "engine,model,sku,mode,prefill_workers,prefill_tensor,decode_workers,decode_tensor,users,prompt_tokens,output_tokens,ttft_s,tpot_s"
    table.write_text(f"{header}\nvllm,qwen3-0.6b,h100-sxm-80gb,disagg,1,1,2,2,3,500,20,0.05,0.004\n")
    (loop,) = read_loops(read_measurements(table), {})
    fleet = loop.deployment.scenario({}, 1, 1)["fleet"]
    assert [(entry["role"], entry["count"], entry["group"]["tensor"]) for entry in fleet] == [
        ("prefill", 1, 1),
        ("decode", 4, 2),
    ]  # type: ignore[attr-defined,index,call-overload]
    row = simulated(loop, CATALOGUE)
    assert row.problem is None and row.ttft_s is not None and row.tpot_s is not None
    table.write_text(f"{header}\nvllm,qwen3-0.6b,h100-sxm-80gb,disagg,,,2,2,3,500,20,0.05,0.004\n")
    with pytest.raises(InputError, match="prefill"):
        read_loops(read_measurements(table), {})


def test_the_result_as_json_has_the_transfers_and_their_rates_have_sources() -> None:
    result = run(disaggregated()).result
    document = json.loads(json.dumps(result.to_dict()))
    assert document["serving"]["kv_transfers"]["pairs"][0]["count"] == 1
    names = {row["parameter"] for row in document["provenance"] if row["device"] == "h100-sxm-80gb"}
    assert any("scale_out_bytes_per_s" in name for name in names)
