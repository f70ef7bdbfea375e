"""The power of a chip that several devices reach is counted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import Run
from windtunnel_models.catalogue import Catalogue

pytestmark = pytest.mark.usefixtures("stated_host")
KNOWN = Catalogue()


def run(fleet: list[dict[str, Any]], rate: float = 4000.0, jobs: int = 300, **more: Any) -> Run:
    data = {
        "schema": 1,
        "name": "chips",
        "fleet": fleet,
        "workload": [
            {
                "name": "w",
                "arrivals": {"process": "poisson", "rate": f"{rate} /s"},
                "ops": [{"stencil": {"nx": 512, "ny": 512}}],
            }
        ],
        "policy": "round-robin",
        "stop": {"jobs": jobs},
    }
    engine = more.pop("engine", "process")
    finished = windtunnel.run(scenario_from_data(data | more), engine=engine, catalogue=KNOWN)
    assert isinstance(finished, Run)
    return finished


APIS = ["host@native", "host@opencl", "host@vulkan"]


def test_an_idle_chip_behind_three_apis_draws_its_idle_power_once() -> None:
    finished = run([{"device": name} for name in APIS], rate=0.01, jobs=3)
    idle_w, limit_w = KNOWN.device("host").idle_power_w, KNOWN.device("host").power_limit_w
    assert finished.result.average_power_w == pytest.approx(idle_w, rel=1e-3)
    assert finished.result.power_limit_w == limit_w
    (chip,) = finished.result.chips or ()
    assert (chip.name, chip.devices) == ("host", ["host@native", "host@opencl", "host@vulkan"])
    assert (chip.idle_power_w, chip.power_limit_w) == (idle_w, limit_w)
    assert chip.energy_j == pytest.approx(finished.result.energy_j)
    assert any("'host'" in note and "counted once" in note for note in finished.result.notes)


def test_a_busy_chip_never_draws_more_than_its_limit_and_works_while_any_of_its_devices_does() -> None:
    both = {engine: run([{"device": name} for name in APIS], engine=engine) for engine in ("process", "compiled")}
    result = both["process"].result
    assert result.to_dict() | {"engine": "", "engine_reason": ""} == (
        both["compiled"].result.to_dict() | {"engine": "", "engine_reason": ""}
    )
    (chip,) = result.chips or ()
    assert KNOWN.device("host").idle_power_w < result.average_power_w <= result.peak_power_w <= chip.power_limit_w
    assert sum(device.energy_j for device in result.devices) == pytest.approx(result.energy_j)
    utilisations = [device.utilisation for device in result.devices]
    assert max(utilisations) <= chip.utilisation <= min(1.0, sum(utilisations))
    alone = run([{"device": name, "chip": name} for name in APIS]).result
    assert alone.chips is None
    assert alone.latency_s == result.latency_s, "the power does not change the times"
    assert alone.peak_power_w > chip.power_limit_w
    assert alone.energy_j > 1.5 * result.energy_j


def test_what_a_chip_draws_is_what_the_definition_says_at_every_tick() -> None:
    recording = run([{"device": name} for name in APIS]).recording
    table, host = recording.intervals, KNOWN.device("host")
    assert table is not None
    base = host.active_power_w
    middles = (recording.power.ticks + np.append(recording.power.ticks[1:], recording.end)) // 2
    for middle, watts in zip(middles.tolist()[::7], recording.power.values.tolist()[::7], strict=True):
        running = (table.start <= middle) & (middle < table.end)
        parts = table.watts[running]
        expected = max(np.minimum(parts, base), default=0.0) + sum(np.maximum(parts - base, 0.0))
        assert watts == pytest.approx(
            host.idle_power_w + min(expected, host.power_limit_w - host.idle_power_w), abs=1e-4
        )


def test_the_second_device_of_an_entry_is_another_chip() -> None:
    fleet = [{"device": "host@native", "count": 2, "name": "a"}, {"device": "host@opencl", "count": 3, "name": "b"}]
    result = run(fleet, rate=0.01, jobs=3).result
    assert [chip.devices for chip in result.chips or ()] == [["a-0", "b-0"], ["a-1", "b-1"]]
    assert result.average_power_w == pytest.approx(3 * KNOWN.device("host").idle_power_w, rel=1e-3)


def test_a_card_behind_two_apis_is_one_chip_where_the_fleet_says_so() -> None:
    fleet = [{"device": "l4", "chip": "card"}, {"device": "l4@vulkan", "chip": "card"}]
    one = run(fleet, rate=0.01, jobs=3).result
    two = run([{"device": "l4"}, {"device": "l4@vulkan"}], rate=0.01, jobs=3).result
    assert two.chips is None
    assert two.average_power_w == pytest.approx(2 * one.average_power_w, rel=1e-3)


def test_a_power_budget_counts_the_idle_power_of_a_chip_once() -> None:
    fleet = [{"device": name} for name in APIS]
    device = KNOWN.device("host")
    budget = f"{device.power_limit_w} W"
    assert run(fleet, jobs=30, power_budget=budget).result.peak_power_w <= device.power_limit_w
    with pytest.raises(InputError, match="could never start"):
        run([{**entry, "chip": str(i)} for i, entry in enumerate(fleet)], jobs=30, power_budget=budget)


def test_chips_of_two_skus_and_scaled_chips_are_errors_at_their_place() -> None:
    with pytest.raises(InputError, match="is a h100-sxm-80gb, and of l4 a l4") as found:
        run([{"device": "l4", "chip": "card"}, {"device": "h100-sxm-80gb", "chip": "card"}])
    assert "fleet[1].chip" in str(found.value)
    scale = [{"entry": "a", "max": 2, "up": {"queue_per_device": 1}, "provisioning": "1 s"}]
    with pytest.raises(InputError, match="is scaled, and other entries reach its chip 'host'"):
        run([{"device": "host@native", "name": "a"}, {"device": "host@opencl"}], autoscale=scale)
