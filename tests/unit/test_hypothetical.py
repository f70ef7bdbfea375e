"""Hardware that is not for sale: a SKU with other values, in `predict`, in scenarios and in plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windtunnel.app.plan import plan
from windtunnel.cli.main import main
from windtunnel.core.errors import InputError
from windtunnel.core.ops import one_row
from windtunnel.core.provenance import Provenance
from windtunnel.core.step_op import PREDICTED
from windtunnel.scenario.changes import apply_change
from windtunnel.scenario.read import check_scenario, scenario_from_data
from windtunnel.simulation.run import simulate
from windtunnel_models.catalogue import shipped_catalogue

KNOWN = shipped_catalogue()
COPY = {"m": 64, "n": 8192, "k": 8192, "dtype": "bfloat16"}  # bound by memory on every GPU


def scenario(**plan_keys: Any) -> dict[str, Any]:
    return {
        "schema": 1, "name": "tiny", "seed": 1,
        "fleet": [
            {"device": "h100-sxm-80gb", "price": "2.99 USD/h", "engine": "vllm"},
            {"device": "l40s", "price": "1.55 USD/h", "engine": "vllm"},
        ],
        "models": {"chat": {"catalogue": "llama-3.1-8b"}},
        "workload": [
            {"name": "chat", "arrivals": {"process": "poisson", "rate": "6 /s"},
             "ops": [{"generate": {"model": "chat", "prompt": 200, "output": 20}}]}
        ],
        "policy": {"name": "least-loaded", "batch": {"kind": "continuous", "tokens": 512}},
        "stop": {"jobs": 120},
        "targets": ["ttft p95 <= 1 s"],
        "plan": {"loads": [], "max": 2, **plan_keys},
    }  # fmt: skip


def test_a_changed_device_carries_over_what_was_measured_and_is_less_certain() -> None:
    rows = one_row(PREDICTED.find("gemm"), COPY)
    product = KNOWN.device("h100-sxm-80gb").cost(rows)
    same = KNOWN.device("h100-sxm-80gb", changes={"memory_bandwidth": "1x"}).cost(rows)
    assert same.duration_s[0] == pytest.approx(product.duration_s[0], rel=0.02)
    assert same.duration_high_s[0] / same.duration_low_s[0] > product.duration_high_s[0] / product.duration_low_s[0]
    faster = KNOWN.device("h100-sxm-80gb", changes={"memory_bandwidth": "1.5x"})
    assert 1.2 < product.duration_s[0] / faster.cost(rows).duration_s[0] <= 1.51
    assert faster.accuracy_of("gemm").basis == "transfer"
    changed = faster.values["memory_bandwidth_bytes_per_s"]
    assert changed.provenance is Provenance.ASSUMED and "h100-sxm-80gb has 3.35 TB/s" in str(changed.reason)
    # The product itself is as before, and an absolute quantity is a factor by another name.
    assert KNOWN.device("h100-sxm-80gb").cost(rows).duration_s == product.duration_s
    absolute = KNOWN.device("h100-sxm-80gb", changes={"memory_bandwidth_bytes_per_s": "5.025 TB/s"}).cost(rows)
    assert absolute.duration_s[0] == pytest.approx(faster.cost(rows).duration_s[0])


@pytest.mark.parametrize(
    ("changes", "problem", "nearest"),
    [
        ({"memory_bandwith": "2x"}, "a gpu has no 'memory_bandwith'", "memory_bandwidth"),
        ({"memory": "5 TB/s"}, "is measured in 'TB/s'", None),
        ({"matrix_flops": {"bf16": "2x"}}, "has no 'bf16'", "bfloat16"),
        ({"matrix_flops": "1 PFLOP/s"}, "is a table", None),
        ({"boost_clock": {"max": "2x"}}, "is one number", None),
        ({"memory_bandwidth": "0x"}, "is not above zero", None),
        ({"memory_bandwidth": "-1x"}, "'-1x' is not above zero", None),
        ({"memory": "2x", "memory_bytes": "100 GB"}, "'memory_bytes' is changed twice", None),
    ],
)
def test_a_wrong_change_is_refused_with_the_nearest_name(changes: Any, problem: str, nearest: str | None) -> None:
    with pytest.raises(InputError) as refused:
        KNOWN.device("h100-sxm-80gb", changes=changes)
    assert problem in refused.value.problem and (nearest is None or refused.value.nearest == nearest)


def test_a_scenario_states_it_and_its_result_says_so() -> None:
    data = {**scenario(), "with": {"h100-sxm-80gb": {"memory_bandwidth": "2x"}}, "fleet": scenario()["fleet"][:1]}
    changed, _ = simulate(scenario_from_data(data), 1, "process", KNOWN)
    product, _ = simulate(scenario_from_data({**data, "with": {}}), 1, "process", KNOWN)
    assert changed.serving is not None and product.serving is not None
    assert changed.serving.tpot_s is not None and product.serving.tpot_s is not None
    assert changed.serving.tpot_s.mean.value < 0.9 * product.serving.tpot_s.mean.value
    assert changed.devices[0].sku == "h100-sxm-80gb with memory_bandwidth 2x"
    assert any("is not for sale: memory_bandwidth_bytes_per_s is 6.70 TB/s, as assumed" in n for n in changed.notes)
    again, _ = simulate(scenario_from_data(changed.to_dict()["scenario"]), 1, "process", KNOWN)
    assert again.to_dict() == changed.to_dict(), "the resolved scenario reproduces the result"


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({"h200": {"memory": "2x"}}, "the fleet has no 'h200' to change"),
        ({"l40s": {"memry": "2x"}}, "a gpu has no 'memry'"),
    ],
)
def test_the_place_of_a_wrong_change_in_a_scenario_is_named(stated: Any, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        simulate(scenario_from_data({**scenario(), "with": stated}), 1, "process", KNOWN)
    assert problem in refused.value.problem and str(refused.value.where.field).startswith("with.")


def test_a_mistyped_product_is_told_the_nearest_one_and_no_other_searched_value() -> None:
    search = {"fleet[0].engine": ["vllm", "sglang"], "fleet[0].device": ["h200-sxm-141gb", "h100-sxm-80gb"]}
    data = scenario() | {"plan": {"search": search}}
    document = scenario_from_data(data).document
    apply_change(document, "with.h200-sxm-14gb.memory=2x")
    with pytest.raises(InputError) as refused:
        check_scenario(document)
    assert refused.value.nearest == "h200-sxm-141gb" and "sglang" not in str(refused.value.expected)
    assert refused.value.where.file == "--with h200-sxm-14gb.memory=2x"


def test_a_change_of_a_scenario_does_not_reach_the_data_that_it_was_made_from() -> None:
    data = scenario()
    document = scenario_from_data(data).document
    apply_change(document, "fleet[0].device=a100-sxm-80gb")
    assert document.data["fleet"][0]["device"] == "a100-sxm-80gb" and data == scenario()


def test_a_plan_chooses_it_among_products_and_names_it_in_the_answer(tmp_path: Path) -> None:
    name, file = "l40s with memory_bandwidth 4x", tmp_path / "plan.yaml"
    tight = {**scenario(), "targets": ["tpot p95 <= 12 ms"]}
    file.write_text(json.dumps(tight))
    product = plan(scenario_from_data(tight), workers=1, catalogue=KNOWN)
    found = plan(file, changes=["with.l40s.memory_bandwidth=4x"], workers=1, catalogue=KNOWN)
    assert not any("l40s" in device for fleet in product.fleets for device in fleet.devices)
    assert found.fleets[0].devices == {name: 1} and found.fleets[0].text == f"1 × {name}"
    assert any(f"{name} is not for sale" in note for note in found.notes)
    searched = plan(
        file, changes=["plan={loads: [], max: 2, search: {with.l40s.memory_bandwidth: [1x, 4x]}}"], workers=1
    )
    assert searched.fleets[0].configuration[0].settings == {"with.l40s.memory_bandwidth": "4x"}
    assert [choice.fleet for choice in searched.choices] == [None, 0]


def test_commands_take_with_and_refuse_other_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        return (int(ended.value.code or 0), *capsys.readouterr())

    words = ["predict", "gemm", "--device", "l40s", *(f"{k}={v}" for k, v in COPY.items()), "--format", "json"]
    changes = ([], ["--with", "l40s.memory_bandwidth=2x"])
    times = [json.loads(said(*words, *extra)[1])["duration_s"] for extra in changes]
    assert times[1] < 0.7 * times[0]
    file = tmp_path / "tiny.yaml"
    file.write_text(json.dumps(scenario()))
    for command in (["run"], ["sweep", "--over", "seed=1"], ["compare"], ["plan"]):
        for text, problem in (("l40s.memory", "is not SKU.FIELD=VALUE"), ("l40.memory=2x", "did you mean 'l40s'")):
            code, _, complaint = said(command[0], str(file), *command[1:], "--with", text)
            assert code == 2 and problem in complaint
