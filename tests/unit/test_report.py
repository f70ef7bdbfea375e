"""What result.json and the report say of a run: how sure targets are, budgets over time, entries, replications."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import numpy as np
import pytest
from tests.conftest import queue_scenario

import windtunnel
from windtunnel.core.recording import Recording
from windtunnel.core.results.run import BudgetSeries
from windtunnel.engine.results.power_budget import SERIES
from windtunnel.report.page import prose
from windtunnel.report.run_page import render
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run


def ran(replications: int = 1, **changes: Any) -> Run:
    return windtunnel.run(scenario_from_data(queue_scenario(**changes)), replications=replications)


def page(run: Run) -> str:
    assert isinstance(run.recording, Recording)
    return render(run.result, run.recording)


def charts(run: Run) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="chart-data">(.*?)</script>', page(run), re.DOTALL)
    assert found is not None
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


def test_a_target_is_confirmed_only_where_its_whole_interval_is_on_one_side() -> None:
    p99 = ran().result.latency_s.p99
    between = (p99.value + p99.high) / 2
    limits = [p99.high * 1.01, between, (p99.value + p99.low) / 2, p99.low * 0.99]
    run = ran(targets=[f"latency p99 <= {limit} s" for limit in limits] + ["throughput >= 1 /s"])
    judged = run.result.targets
    assert [t.met for t in judged] == [True, True, False, False, True]
    assert [t.confidence for t in judged] == ["conclusive", *["inconclusive"] * 2, "conclusive", "no interval"]
    assert all((t.low, t.high) == (p99.low, p99.high) for t in judged[:4])
    assert judged[4].low is None
    # The exit code goes by the values.
    assert not run.met


@pytest.mark.parametrize(
    ("share", "tone"), [(10.0, "met"), (1.02, "inconclusive"), (0.98, "inconclusive"), (0.1, "missed")]
)
def test_the_banner_is_green_or_red_only_where_that_is_sure(share: float, tone: str) -> None:
    p99 = ran().result.latency_s.p99.value
    assert f'class="answer {tone}"' in page(ran(targets=[f"latency p99 <= {p99 * share} s"]))


def overloaded(replications: int = 1) -> Run:
    arrivals = {"process": "poisson", "rate": "2100 /s"}
    workload = [{**queue_scenario()["workload"][0], "arrivals": arrivals}]
    return ran(replications, workload=workload, stop={"jobs": 20_000}, targets=["latency p99 <= 1 s"])


@pytest.mark.parametrize("replications", [1, 2])
def test_an_overloaded_run_says_unstable_and_no_warm_up(replications: int) -> None:
    run = overloaded(replications)
    (target,) = run.result.targets
    assert (target.met, target.value, target.confidence) == (False, None, "no interval")
    assert target.reason == "unstable: 1.05 times as much work arrives as the fleet can do"
    assert run.result.notes == [f"{target.reason}; no average is given"]
    assert all(one.value is None for one in run.result.latency_s.by_name().values())
    text = page(run)
    assert target.reason in text
    assert "all jobs but the first" not in text


def test_a_run_of_which_much_follows_the_last_arrival_says_so() -> None:
    def told(**keys: Any) -> list[str]:
        return [note for note in ran(**keys).result.notes if "follows the last arrival" in note]

    workload = [{**queue_scenario()["workload"][0], "arrivals": {"process": "poisson", "rate": "500 /s"}}]
    (note,) = told(workload=workload, stop={"jobs": 4}, targets=[])
    assert "% of the run follows the last arrival" in note
    assert told(workload=workload, stop={"jobs": 20_000}, targets=[]) == []


BUDGETED: dict[str, Any] = {
    "fleet": [{"device": "server", "count": 4, "power": {"idle": "60 W", "max": "300 W"}}],
    "power_budget": "750 W",
    "stop": {"time": "2 s"},
}
BROWN_OUT = {"kind": "brown-out", "at": ["1 s"], "duration": "100 ms", "budget": "500 W"}


def test_the_budget_is_in_the_result_as_steps_with_what_it_feeds() -> None:
    budget = ran(**BUDGETED, faults=[BROWN_OUT]).result.power_budget
    # 750 W - 4 x 60 W of idle power feed two devices of 240 W above idle.
    assert (budget.normal_w, budget.min_w, budget.max_active_devices) == (750.0, 500.0, 2)
    assert budget.series == BudgetSeries([0.0, 1.0, 1.1], [750.0, 500.0, 750.0], downsampled=False)
    assert ran().result.power_budget is None


def test_a_budget_that_only_a_brown_out_states_is_none_beside_it() -> None:
    budget = ran(**{key: BUDGETED[key] for key in ("fleet", "stop")}, faults=[BROWN_OUT]).result.power_budget
    assert (budget.normal_w, budget.min_w, budget.max_active_devices) == (None, 500.0, None)
    assert budget.series.budget_w == [None, 500.0, None]


def test_many_brown_outs_are_thinned_and_the_least_is_kept() -> None:
    often = {"kind": "brown-out", "mean_interval": "2 ms", "duration": "1 ms", "budget": "500 W"}
    budget = ran(**BUDGETED, faults=[often]).result.power_budget
    series = budget.series
    assert series.downsampled and len(series.time_s) == len(series.budget_w) == SERIES
    assert series.time_s == sorted(series.time_s)
    # In 5 ms there is nearly always a brown-out, and hardly ever anything else is the least.
    assert sum(value == 500.0 for value in series.budget_w) > 0.8 * SERIES


def test_devices_that_the_budget_never_started_have_that_reason() -> None:
    run = ran(**BUDGETED)
    assert [device.jobs > 0 for device in run.result.devices] == [True, True, False, False]
    assert "2 of 4 devices never ran a job: the power budget allows 2 active devices" in page(run)


def test_the_power_chart_shows_the_budget_and_every_time_chart_what_was_wrong() -> None:
    failure = {
        "kind": "failure",
        "devices": ["server"],
        "at": ["500 ms"],
        "duration": "200 ms",
        "on_failure": "migrate",
    }
    drawn = charts(ran(**BUDGETED, faults=[BROWN_OUT, failure]))
    assert drawn["power"]["limit"] == {"x": [0.0, 1.0, 1.1], "y": [750.0, 500.0, 750.0]}
    for name in ("power", "waiting"):
        down, x = drawn[name]["shades"]["down"], drawn[name]["x"]
        shaded = [x[i] for i, share in enumerate(down) if share]
        assert max(down) == 1.0
        assert (min(shaded), max(shaded)) == (pytest.approx(0.5, abs=0.005), pytest.approx(0.7, abs=0.005))
        assert drawn[name]["shades"]["brown_out"] == [[1.0, 1.1]]
    assert drawn["waiting"]["limit"] is None
    plain = charts(ran())
    assert plain["power"]["limit"] == {"x": [0.0], "y": [600.0]}
    assert plain["power"]["shades"] == {}


def test_loads_of_designs_have_a_chart_and_a_colour_in_every_other_one() -> None:
    """Two cards, which hold one design at the start, and jobs that need two designs each."""
    cards = [{"device": "alveo-u50", "count": 2}]
    times = {"process": "deterministic", "rate": "0.5 /s"}
    work = [{"name": "spectra", "arrivals": times, "ops": [{"fft": {"n": 4096}}, {"vector_add": {"n": 1000}}]}]
    run = ran(fleet=cards, workload=work, policy="fifo", stop={"jobs": 2})
    drawn = charts(run)
    assert "devices that load a design (at most 2 of 2 at once)" in page(run)
    shade, x = drawn["waiting"]["shades"]["loading"], drawn["waiting"]["x"]
    load_s = run.result.designs.entries[0].load_each_s
    width_s = np.diff(x)
    assert float(np.sum(width_s * shade)) * 2 == pytest.approx(run.result.designs.loads * load_s, rel=0.01)
    assert float(np.sum(width_s * drawn["loading"]["mean"][:-1])) == pytest.approx(
        run.result.designs.loads * load_s, rel=0.01
    )
    assert "loading" not in drawn["loading"]["shades"]
    assert "Devices that load a design over time" in page(run)
    assert "loading" not in charts(ran())


def test_devices_know_their_entry_and_are_shown_by_it() -> None:
    fleet = [{"device": "server", "name": name, "speed": speed} for name, speed in (("old", 0.8), ("new", 1.2))]
    run = ran(fleet=fleet)
    assert [(device.sku, device.entry) for device in run.result.devices] == [
        ("server", "old"),
        ("server", "new"),
    ]
    assert '<tr><th scope="row">old</th><td>server</td>' in page(run)
    assert '<tr><th scope="row">new</th><td>server</td>' in page(run)


def test_devices_of_replications_are_means_and_add_up() -> None:
    run = ran(4)
    result, devices = run.result, run.result.devices
    assert sum(device.energy_j for device in devices) == pytest.approx(result.energy_j, rel=1e-12)
    assert sum(device.utilisation for device in devices) / 2 == pytest.approx(result.utilisation, rel=1e-12)
    assert sum(device.jobs for device in devices) == result.jobs.completed == 16_000
    assert devices[0].utilisation != ran().result.devices[0].utilisation


def test_commands_in_sentences_are_shown_as_code_and_nothing_of_a_text_is_markup() -> None:
    shown = prose("set `<b>fleet[0].count</b>` to 2, not ` alone")
    assert "<code>&lt;b&gt;fleet[0].count&lt;/b&gt;</code> to 2, not ` alone" in shown


def test_why_an_interval_is_missing_is_in_the_page() -> None:
    run = ran(stop={"jobs": 150})
    assert run.result.latency_s.p99.low is None
    text = unescape(page(run))
    assert "<dt>no 95% CI</dt>" in text
    assert run.result.statistics.missing_interval_reasons["latency_s"]["p99"] in text
    assert "<small>no 95% CI</small>" in text


def test_the_precision_that_was_reached_is_in_the_page_with_the_load() -> None:
    run = ran(stop={"relative_error": "20 %", "metric": "latency mean"})
    reached = run.result.statistics.stopped.achieved_error
    assert f"latency mean: error {reached * 100:.3g}% after" in page(run)
    assert "reached; offered load 0.8" in page(run)
    assert re.search(r"all jobs except the first [\d,]+ \(warm-up\)", page(run))
