"""Plans of unusual input: entries with roles beside others, free devices, spare devices, errors, and progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import search_alone
from tests.unit.test_plan import plan_scenario
from tests.unit.test_roles import DECODE, PREFILL, disaggregated

import windtunnel
from windtunnel.app.plan import plan
from windtunnel.core.errors import InputError
from windtunnel.core.results.data import result_json
from windtunnel.core.results.plan import PlanResult
from windtunnel.planning.planner import Planner
from windtunnel.planning.search import _least
from windtunnel.report import explore_page, page, plan_page
from windtunnel.report import plan as report
from windtunnel.scenario.changes import apply_change
from windtunnel.scenario.fields import MAX_COUNT
from windtunnel.scenario.read import check_scenario, scenario_from_data
from windtunnel_models.catalogue import shipped_catalogue

MIX = {"device": "h100-sxm-80gb", "name": "mix", "price": "2 USD/h"}


def split_or_not(*fleet: dict[str, Any], **more: Any) -> dict[str, Any]:
    data = disaggregated(
        *fleet,
        prompt=300,
        output=10,
        targets=["ttft p95 <= 500 ms", "tpot p95 <= 20 ms"],
        plan={"max": 1, "max_entries": 3, "replications": 2, "loads": [], "fleets": 20},
        stop={"jobs": 30},
        **more,
    )
    data["workload"][0]["arrivals"] = {"process": "poisson", "rate": "5 /s"}
    return data


def planned(data: dict[str, Any], **options: Any) -> PlanResult:
    with search_alone():
        return plan(scenario_from_data(data), workers=1, **options)


def test_a_plan_answers_whether_to_split_prefill_and_decode() -> None:
    """Entries with roles compete with one without; sets of entries that cannot run are left out with a reason."""
    data = split_or_not(PREFILL, DECODE, MIX)
    data["policy"]["decode_route"] = "least-loaded"
    # One device without a role is the cheapest; a limit that only two entries meet has the larger sets simulated.
    found = planned(data)
    assert found.fleets[0].text == "1 × mix"
    # The route that chooses where to decode is of no use to that fleet, and `run` does not take it.
    document = scenario_from_data(data).document
    for change in found.changes:
        apply_change(document, change)
    assert windtunnel.run(check_scenario(document)).result.jobs.completed == 30
    assert (
        "fleets that have writers without readers are left out: an entry with role: decode decodes only requests whose "
        "prompts an entry with role: prefill has read"
    ) in found.notes
    # The same set of entries is left out where the most expensive fleets are simulated.
    data["targets"] = ["ttft p95 <= 500 ms", "tpot p95 <= 20 ms", "power average >= 500 W"]
    others = planned(data)
    sets = {tuple(sorted(f.entries)) for f in others.simulated}
    assert ("mix", "readers") in sets and ("mix", "readers", "writers") in sets
    assert ("mix", "writers") not in sets and ("writers",) not in sets
    # The table of what to rent tells the roles.
    split = replace(others, fleets=[f for f in others.simulated if "writers" in f.entries][:1], recommended=0)
    rented = plan_page._configuration(split)
    assert "(readers)" in rented and "1 device; role: prefill" in rented and "1 device; role: decode" in rented


def test_an_entry_without_a_role_may_run_another_engine_than_those_with_roles() -> None:
    data = split_or_not(PREFILL | {"engine": "vllm"}, DECODE | {"engine": "vllm"}, MIX | {"engine": "sglang"})
    data["targets"] = ["ttft p95 <= 500 ms", "tpot p95 <= 20 ms", "power average >= 500 W"]
    found = planned(data)
    sets = {tuple(sorted(f.entries)) for f in found.simulated}
    assert sets == {("mix",), ("readers", "writers")}
    assert sum("no engine takes the KV cache of another one" in note for note in found.notes) == 1


def test_an_entry_whose_role_no_other_entry_completes_is_an_error() -> None:
    with pytest.raises(InputError, match=r"fleet\[0\].role: writers has the role decode .* no entry sends it requests"):
        planned(split_or_not(DECODE, MIX))
    with pytest.raises(InputError, match=r"no entry decodes them \(writers with another engine: no engine takes"):
        planned(split_or_not(PREFILL | {"engine": "vllm"}, DECODE | {"engine": "sglang"}))


@pytest.mark.parametrize("free", [("slow",), ("fast",), ("slow", "fast")])
def test_a_device_without_a_price_to_pay_is_planned(free: tuple[str, ...]) -> None:
    data = plan_scenario(stop={"jobs": 400}, plan={"max": 4, "loads": []})
    for entry in data["fleet"]:
        if entry["name"] in free:
            entry["price"] = "0 USD/h"
    found = planned(data)
    assert found.fleets and set(found.fleets[0].entries) <= set(free) and found.fleets[0].cost_usd_per_h == 0.0
    assert found.gap is None and "0.00 USD/h" in report.text(found)
    effects = {effect.entry: effect for effect in found.explanation.prices}
    assert all(effect.change is None for name, effect in effects.items() if name in free)
    assert result_json(found)


def test_spare_devices_that_leave_none_are_an_error_and_a_note_where_other_entries_are_left() -> None:
    data = plan_scenario(stop={"jobs": 200}, plan={"max": 3, "spare": 3, "max_entries": 1, "loads": []})
    with pytest.raises(
        InputError, match=r"plan\.spare: no fleet can do without 3 spare devices or groups: at most 3 of slow, 3 "
    ):
        planned(data)
    data["plan"]["max_entries"] = 2
    assert any("without all devices of any one of its entries" in note for note in planned(data).notes)
    assert not any(
        "any one of its entries" in note for note in planned(data | {"plan": {**data["plan"], "spare": 1}}).notes
    )


def test_an_error_that_no_searched_value_changes_is_that_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    data = split_or_not(MIX)
    data["workload"][0]["arrivals"] = {"process": "trace", "file": "empty.csv", "format": "azure-llm"}
    data["plan"]["search"] = {"policy.batch.tokens": [512, 2048, 8192]}
    with pytest.raises(InputError) as raised:
        plan(scenario_from_data(data, str(tmp_path / "s.yaml")), workers=1)
    assert raised.value.where.field == "workload[0].arrivals.file"
    assert "no searched value is left" not in str(raised.value)


def test_progress_is_told_while_choices_are_prepared() -> None:
    data = plan_scenario(stop={"jobs": 200}, plan={"max": 2, "loads": []})
    told: list[int] = []
    with search_alone():
        plan(scenario_from_data(data), workers=1, progress=told.append)
    assert told[0] == 0 and told[-1] > 0


def test_the_default_of_max_is_no_larger_than_a_scenario_may_state() -> None:
    data = plan_scenario(stop={"jobs": 2}, plan={"loads": [], "max_entries": 1})
    data["workload"][0]["ops"] = [{"service": {"distribution": "deterministic", "mean": "1 ms"}}]
    planner = Planner(scenario_from_data(data), shipped_catalogue(), 1, None)
    search = planner.searches[0]
    search.prepare()
    search._needs = lambda _bounds: [1e9, 2.0]  # type: ignore[method-assign]
    assert search._max_counts(search._bounds) == (MAX_COUNT, 8)


def test_the_first_of_many_fleets_are_those_of_a_whole_sort() -> None:
    values = np.array([3.0, 1.0, 2.0, 1.0, np.inf, 2.0, 0.5, 1.0])
    order = np.argsort(values, kind="stable").tolist()
    for number in range(1, 10):
        assert _least(values, number)[: min(number, 8)] == order[:number]


def test_the_command_of_a_design_has_the_options_with_which_the_page_began() -> None:
    document, _ = explore_page.render(
        name="n", lead=None, file="s.yaml", options=[("--set", "stop.jobs=5"), ("--allow-outside-code",)],
        controls=[], timed=[],
    )  # fmt: skip
    assert '"options":[["--set","stop.jobs=5"],["--allow-outside-code"]]' in document.replace(", ", ",").replace(
        ": ", ":"
    )
    assert "data.options.map" in page._file("templates", "explore.js")
