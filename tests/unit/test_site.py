"""Money and carbon: closed forms, prices by the hour, and what is refused when it was not stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.core.recording import Steps
from windtunnel.engine.results.economics import economics, joules_by_hour
from windtunnel.scenario.read import scenario_from_data
from windtunnel.scenario.site import Site

HOUR = 3600 * 10**12


def steps(*pieces: tuple[int, float], end: int) -> Steps:
    return Steps(
        np.array([t for t, _ in pieces], dtype=np.int64), np.array([w for _, w in pieces], dtype=np.float64), end
    )


def test_constant_power_costs_its_watts_times_hours_times_price_times_pue() -> None:
    site = Site.model_validate({"pue": 1.25, "energy_price": "0.20 USD/kWh", "carbon": "400 g/kWh"})
    found = economics(steps((0, 2000.0), end=3 * HOUR), site, 4.0 / 3600)
    assert found is not None
    # 2 kW for 3 h are 6 kWh, 7.5 at the meter.
    assert found.energy_kwh == pytest.approx(7.5, rel=1e-12)
    assert found.energy_cost_usd == pytest.approx(1.5, rel=1e-12)
    assert found.energy_cost_usd_per_h == pytest.approx(0.5, rel=1e-12)
    assert found.carbon_kg == pytest.approx(3.0, rel=1e-12)
    assert found.cost_usd == pytest.approx(12 + 1.5, rel=1e-12)
    assert found.cost_usd_per_h == pytest.approx(4.5, rel=1e-12)


def test_a_price_by_the_hour_is_the_price_of_that_hour_across_midnight() -> None:
    prices = [f"{hour / 100} USD/kWh" for hour in range(24)]
    site = Site.model_validate({"energy_price": prices, "start_time": "22:30"})
    # 1 kW from 22:30 to 01:15, then 4 kW to 02:00: half an hour at 0.22, one at 0.23, one at 0.00, a quarter at 0.01, ...
    power = steps((0, 1000.0), (HOUR * 11 // 4, 4000.0), end=HOUR * 7 // 2)
    found = economics(power, site, None)
    assert found is not None
    assert found.energy_cost_usd == pytest.approx(0.5 * 0.22 + 0.23 + 0.0 + 0.25 * 0.01 + 0.75 * 4 * 0.01, rel=1e-12)
    assert found.cost_usd is None
    assert found.carbon_kg is None


@given(
    pieces=st.lists(st.tuples(st.integers(1, 40 * HOUR), st.floats(0, 1e6)), max_size=20),
    end=st.integers(1, 100 * HOUR),
    start_time=st.integers(0, 86_399),
)
def test_the_hours_add_up_to_the_whole_and_a_day_later_is_the_same(
    pieces: list[tuple[int, float]], end: int, start_time: int
) -> None:
    kept = dict(sorted((t, w) for t, w in pieces if t < end))
    power = steps((0, 100.0), *kept.items(), end=end)
    hours = joules_by_hour(power, start_time)
    assert hours.sum() == pytest.approx(power.integral(), rel=1e-9)
    assert (hours >= 0).all()
    # What was drawn in the first minute belongs to the hour in which the run starts.
    assert hours[start_time // 3600] > 0
    assert joules_by_hour(power, start_time + 86_400) == pytest.approx(hours, rel=1e-12)


def site_scenario(queue: Any, **changes: Any) -> dict[str, Any]:
    fleet = [{"device": "server", "count": 2, "price": "2 USD/h", "power": {"idle": "60 W", "max": "300 W"}}]
    return queue(fleet=fleet, **changes)


def test_a_run_reports_its_site_and_judges_targets_on_it(queue: Any) -> None:
    data = site_scenario(
        queue,
        site={"pue": 1.2, "energy_price": "0.12 USD/kWh", "carbon": "350 g/kWh", "start_time": "08:00"},
        targets=["energy_cost <= 0.001 USD/h", "total_cost <= 5 USD/h", "carbon <= 1 kg/h"],
    )
    result = windtunnel.run(scenario_from_data(data)).result
    kwh = result.energy_j * 1.2 / 3.6e6
    assert result.site.energy_cost_usd == pytest.approx(kwh * 0.12, rel=1e-9)
    assert result.site.carbon_kg == pytest.approx(kwh * 0.35, rel=1e-9)
    assert result.total_cost_usd == pytest.approx(result.cost_usd + kwh * 0.12, rel=1e-9)
    assert [t.met for t in result.targets] == [False, True, True]
    assert result.targets[2].value == pytest.approx(result.site.carbon_kg / result.simulated_s * 3600)
    twice = windtunnel.run(scenario_from_data(data), replications=2).result
    assert twice.site.energy_kwh == pytest.approx(kwh, rel=0.2)
    assert (
        scenario_from_data(windtunnel.run(scenario_from_data(data)).result.scenario).site
        == scenario_from_data(data).site
    )


def test_without_a_site_the_rent_is_all_that_is_known(queue: Any) -> None:
    result = windtunnel.run(scenario_from_data(site_scenario(queue))).result
    assert result.site is None
    assert result.total_cost_usd is None
    assert result.cost_usd > 0


@pytest.mark.parametrize(
    ("site", "target", "problem"),
    [
        (None, "energy_cost <= 1 USD/h", "price of energy"),
        ({"carbon": "1 g/kWh"}, "total_cost <= 1 USD/h", "price of energy"),
        ({"energy_price": "1 USD/kWh"}, "carbon <= 1 kg/h", "carbon intensity"),
        ({"energy_price": ["1 USD/kWh"] * 23}, "cost <= 1 USD/h", "23 values"),
        ({"energy_price": "1 USD/h"}, "cost <= 1 USD/h", "measured in"),
        ({"start_time": "8:00"}, "cost <= 1 USD/h", "time of day"),
        ({"pue": 0.9}, "cost <= 1 USD/h", "pue"),
    ],
)
def test_what_cannot_be_worked_out_is_refused(queue: Any, site: Any, target: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        windtunnel.run(scenario_from_data(site_scenario(queue, site=site, targets=[target])))


def test_a_trace_played_faster_has_its_times_divided(tmp_path: Any) -> None:
    from windtunnel.scenario.read import read_scenario

    (tmp_path / "t.csv").write_text("at\n0\n1\n4\n")
    (tmp_path / "s.yaml").write_text(
        "schema: 1\nname: x\nfleet: [{device: server}]\nworkload:\n  - name: a\n"
        "    arrivals: {process: trace, file: t.csv, time: at, speed: 4}\n"
        "    ops: [{service: {distribution: deterministic, mean: 1 ms}}]\n"
    )
    recording = windtunnel.run(read_scenario(tmp_path / "s.yaml")).recording
    assert recording.jobs.arrival.tolist() == [0, 10**12 // 4, 10**12]
