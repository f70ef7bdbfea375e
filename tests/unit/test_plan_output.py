"""What a plan writes: the words of its objective, the runs beside its intervals, and whole files."""

from __future__ import annotations

import json
import re
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import pytest
from tests.cases import search_alone
from tests.unit.planning import CHAT, KNOWN

import windtunnel
from windtunnel.app.plan import plan
from windtunnel.app.plan import save as save_plan
from windtunnel.app.run import save as save_run
from windtunnel.cli import planning
from windtunnel.planning import looks
from windtunnel.planning.simulate import Case, Redraws, Setting, simulate
from windtunnel.report import plan as report
from windtunnel.report import plan_answer, plan_charts, plan_page
from windtunnel.report.page import Cell
from windtunnel.report.summary import summary
from windtunnel.scenario.read import scenario_from_data

SERVERS: dict[str, Any] = {
    "schema": 1, "name": "four", "seed": 1, "policy": "fifo", "site": {"carbon": "300 g/kWh"},
    "fleet": [{"device": "server", "price": "1 USD/h", "power": {"idle": "60 W", "max": "300 W"}}],
    "workload": [
        {"name": "calls", "arrivals": {"process": "poisson", "rate": "300 /s"},
         "ops": [{"service": {"distribution": "exponential", "mean": "8 ms"}}]}
    ],
    "stop": {"jobs": 3000}, "targets": ["latency p95 <= 40 ms"], "plan": {"max": 5, "loads": []},
}  # fmt: skip


def test_what_is_maximised_has_an_upper_bound_and_is_never_called_cheaper() -> None:
    """Text and page use the words of each objective; those on the rent stay with the rent."""
    said = {
        "cost": ("least cost", "lower bound", "costs less than", "cheaper"),
        "power": ("least power", "lower bound", "draws less power than", "lower-power"),
        "carbon": ("least carbon", "lower bound", "emits less carbon than", "lower-carbon"),
        "throughput": ("most throughput per device", "upper bound", "has a higher throughput per device than", "more productive"),
    }  # fmt: skip
    for objective, (sought, bound, beats, better) in said.items():
        with search_alone():
            best = plan(scenario_from_data(SERVERS), workers=1, objective=objective)  # type: ignore[arg-type]
        text, page = " ".join(report.text(best).split()), plan_page.render(best)
        assert f"objective: {sought}" in page and "minimum " + objective not in page
        assert re.search(rf"{bound} +[0-9].* none that {beats} the best fleet", text), text
        for words in (text, page):
            assert f"every {better} fleet was simulated or is excluded by the {bound}" in words.replace(
                "Every", "every"
            )
            others = {o for name, terms in said.items() if name != objective for o in terms[2:]} - {better, beats}
            assert not [other for other in others if other in words], objective


def test_an_interval_states_how_many_runs_it_comes_from() -> None:
    server = {"device": "server", "price": "1 USD/h"}
    arrivals = {"process": "batches", "mean_interval": "20 ms", "size": 4}
    calls = {"service": {"distribution": "exponential", "mean": "8 ms"}}
    data = {
        "schema": 1, "name": "waves", "seed": 1, "fleet": [server], "policy": "fifo", "stop": {"jobs": 1000},
        "workload": [{"name": "calls", "arrivals": arrivals, "ops": [calls]}],
        "plan": {"max": 3, "loads": []},
    }  # fmt: skip
    for limit, runs in (("10 s", 3), ("160 ms", 8), ("120 ms", 32)):
        targets = [f"latency p95 <= {limit}"]
        with search_alone():
            best = plan(scenario_from_data(data | {"targets": targets}), workers=1)
        (judged,) = best.fleets[best.recommended].targets
        assert judged.interval_runs == runs and judged.interval_source == "run"
        count = best.fleets[best.recommended].entries["server"]
        setting = Setting(scenario_from_data(data | {"targets": targets}), KNOWN, 0.95, 1, 1.0)
        redraws = Redraws(looks.CONFIRMING)
        assert (
            simulate(setting, Case((count,), redraws=redraws)).runs == 1 + runs
        )  # what the plan counts as runs in all
        text = " ".join(report.text(best).split())
        assert f", {runs} more runs)" in text and f" from {runs} more runs" in text
        assert f"from {runs} more runs" in dict(report.bounds(best))["intervals"]
        fleet = [server | {"count": best.fleets[best.recommended].entries["server"]}]
        result = windtunnel.run(
            scenario_from_data(data | {"targets": targets, "fleet": fleet}), engine="process"
        ).result
        assert "95% CI of p99 (8 more runs)" in summary(result)


@pytest.mark.parametrize("command", ["plan", "run"])
def test_the_files_of_two_commands_that_end_at_the_same_time_are_of_one_of_them(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second command waits while the first one, which is held after its first file, puts its files in place."""
    folder, replace_file, second = tmp_path / "out", Path.replace, "the second"
    scenarios = [scenario_from_data(SERVERS | {"stop": {"jobs": 50}, "seed": seed}) for seed in (1, 2)]
    ended = [windtunnel.run(scenario, engine="process") for scenario in scenarios]
    with search_alone():
        found = plan(scenarios[0], workers=1)

    def save(name: str) -> None:
        if command == "plan":
            save_plan(replace(found, name=name), folder)
        else:
            save_run(ended[name == second], folder)

    other = Thread(target=save, args=(second,), name=second)

    def held(path: Path, target: Path) -> Path:
        done = replace_file(path, target)
        if current_thread() is not other and other.ident is None:
            other.start()
            other.join(0.5)
            assert other.is_alive(), "it does not wait"
        return done

    monkeypatch.setattr(Path, "replace", held)
    save("the first")
    other.join()
    if command == "plan":
        assert json.loads((folder / "plan.json").read_text())["name"] == second
        assert second in (folder / "plan.html").read_text()
    else:
        assert json.loads((folder / "result.json").read_text())["seed"] == 2
        assert "seed 2" in (folder / "report.html").read_text()
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_page_says_which_work_it_is_for_where_prices_come_from_and_of_which_replicas_a_fleet_is() -> None:
    data = CHAT | {"plan": {"max": 8, "loads": []}}
    data["fleet"] = [CHAT["fleet"][0] | {"group": {"tensor": 2}}]
    with search_alone():
        best = plan(scenario_from_data(data), workers=1)
    (entry,) = best.fleets[best.recommended].configuration
    page, replicas = plan_page.render(best), entry.count // 2
    assert best.work.jobs == 250 and (best.work.prompt_tokens, best.work.output_tokens) == (300, 30)
    assert "with 300 prompt and 30 output tokens each on average" in page
    assert "Prices are those of the scenario: inputs, and not offers of a vendor" in page and "2.99 USD/h" in page
    assert f"({replicas} replica{'' if replicas == 1 else 's'} of 2 devices), for" in page
    assert any(plan_charts.charts(best)["time"]["recommended"])


def test_texts_of_a_plan_say_what_is_held_what_was_left_out_and_which_targets_are_turned() -> None:
    keys = {"with": {"l40s": {"memory_bandwidth": "2x"}}, "targets": ["ttft p95 >= 1 ms", "tpot p95 <= 50 ms"]}
    options = {"max": 2, "loads": [], "search": {"models.chat.weights": ["bfloat16", "fp8"]}}
    with search_alone():
        found = plan(scenario_from_data({**CHAT, **keys, "plan": options}), workers=1)
    held = dict(report.bounds(found))["searched"].partition("The same in every fleet: ")[2]
    assert held.endswith("models.chat but for weights, with.l40s.memory_bandwidth 2x")
    (turned,) = [note for note in found.notes if "is usual" in note]
    assert turned == "the target 'ttft p95 >= 1 ms' asks for at least its limit; of ttft, <= is usual"
    assert "not simulated" not in plan_answer.verdict(found)
    open_ = replace(found, search=replace(found.search, proof="open", unexplored_cheaper=16))
    said = "; 16 cheaper fleets that may meet the targets were not simulated"
    assert plan_answer.verdict(open_).endswith(said) and plan_answer.recommendation(open_).endswith(said)
    none = replace(open_, fleets=[])
    assert plan_answer.verdict(none) == f"no simulated fleet meets the targets{said.replace('cheaper', 'other')}"


def test_a_table_whose_columns_are_wide_has_a_row_for_each_target() -> None:
    data = {**CHAT, "plan": {"max": 1, "loads": [], "search": {"policy.batch.tokens": [512, 2048]}}}
    with search_alone():
        found = plan(scenario_from_data(data), workers=1)
    assert plan_page._page_rows(found)[0][-2:] == ["tpot p95 ≤ 50 ms", "headroom"]
    # Intervals of further runs state these, so that the table no longer fits a page.
    fleets = [
        replace(f, carbon_kg_per_h=1.0, targets=[replace(t, interval_source="run", interval_runs=8) for t in f.targets])
        for f in found.fleets
    ]
    header, rows = plan_page._page_rows(replace(found, fleets=fleets))
    assert header[-3:] == ["target", "value", "headroom"] and "cost" not in header
    # What a fleet costs stands below its name.
    name = rows[0][0]
    assert isinstance(name, Cell) and name.text == fleets[0].text and "USD/h" in name.note and "kg CO₂e/h" in name.note
    assert [row[-3] for row in rows[:2]] == ["ttft p95 ≤ 1 s", "tpot p95 ≤ 50 ms"]


def test_a_page_is_opened_only_where_there_is_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("click.launch", lambda address: opened.append(address) or 0)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("webbrowser.get", object)
    assert not planning._open_page("http://127.0.0.1:1") and not opened
    monkeypatch.setenv("DISPLAY", ":0")
    assert planning._open_page("http://127.0.0.1:1") and opened == ["http://127.0.0.1:1"]

    def none() -> None:
        raise webbrowser.Error("no browser")

    monkeypatch.setattr("webbrowser.get", none)
    assert not planning._open_page("http://127.0.0.1:2") and len(opened) == 1
