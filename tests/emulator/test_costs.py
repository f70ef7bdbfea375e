"""The virtual time of opening, allocating and compiling, its intervals, and its provenance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel.emulator.device.timeline import Host
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


@windtunnel.kernel(work=lambda a: {"op": "vector_add", "n": a.size})
def double(a: np.ndarray) -> None:
    a *= 2


def overhead(accelerator: Accelerator, name: str) -> float:
    return KNOWN.device(accelerator.name).api.values[name].value  # type: ignore[no-any-return]


def opened(name: str = "l4", **options: object) -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN, **options)  # type: ignore[arg-type]


def test_a_device_with_its_own_clock_is_open_when_it_begins_and_one_on_a_hosts_clock_takes_its_time() -> None:
    alone, host = opened(), Host()
    assert alone.clock_s == 0.0
    first = opened(host=host)
    assert first.clock_s == overhead(first, "context_s") > 0.0
    second = opened("mi300x", host=host)
    assert (
        second.clock_s == first.clock_s == pytest.approx(overhead(first, "context_s") + overhead(second, "context_s"))
    )


def test_a_device_draws_nothing_before_it_was_opened() -> None:
    device = opened(host=Host())
    assert device.energy_j == 0.0


def test_memory_comes_from_the_driver_once_and_then_from_the_pool() -> None:
    device = opened()
    each = overhead(device, "allocate_s")
    first, second = device.empty(1000), device.empty(1000)
    assert device.clock_s == pytest.approx(2 * each)
    first.free()
    again = device.empty(1000)
    assert device.clock_s == pytest.approx(2 * each), "a block of this size was free"
    device.empty(100_000)
    assert device.clock_s == pytest.approx(3 * each), "a block of another size comes from the driver"
    again.free()
    second.free()
    device.reset()
    device.empty(1000)
    assert device.clock_s == pytest.approx(4 * each), "a reset empties the pool"


def test_freeing_waits_for_nobody() -> None:
    device = opened()
    a, b = device.to_device(np.ones(1 << 20, np.float32)), device.empty(10)
    device.launch(double, (4096,), (256,), a)
    before = device.clock_s
    b.free()
    assert device.clock_s == before
    device.synchronize()
    assert device.clock_s > before and device.counters.launches == 1, "no work was in progress"


def test_a_kernel_comes_as_a_binary_unless_it_is_compiled_by_a_call() -> None:
    shipped, compiled = opened(), opened()
    compiled.compile(double)
    assert compiled.clock_s == overhead(compiled, "compile_s") > 0.0
    for device in (shipped, compiled):
        device.launch(double, (1,), (32,), device.empty(32))
        device.synchronize()
    assert compiled.clock_s - shipped.clock_s == pytest.approx(overhead(compiled, "compile_s"))


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "rtx-4090@vulkan", "mi300x", "apple-m2-ultra", "l4"])
@settings(max_examples=10, deadline=None)
@given(elements=st.integers(1, 1 << 18), launches=st.integers(1, 5))
def test_a_program_takes_longer_at_the_high_end_than_at_the_low_one(name: str, elements: int, launches: int) -> None:
    clocks = {}
    for interval in ("low", "best", "high"):
        device = opened(name, interval=interval)
        a = device.to_device(np.ones(elements, np.float32))
        for _ in range(launches):
            device.launch(double, *device.configuration(elements), a)
        device.to_host(a)
        clocks[interval] = device.clock_s
    assert clocks["low"] < clocks["best"] < clocks["high"]


def test_an_unknown_end_of_the_interval_is_refused() -> None:
    with pytest.raises(windtunnel.errors.InputError, match="low, best or high"):
        opened(interval="worst")


def test_the_clock_says_where_its_figures_come_from() -> None:
    device = opened()
    assert device.provenance == "nothing", "as long as nothing was asked"
    device.synchronize()
    assert device.provenance == device.context.device.api.values["synchronize_s"].provenance.label  # type: ignore[attr-defined]
    device.empty(32)
    assert device.provenance == "assumed" == device.context.device.api.values["allocate_s"].provenance.label  # type: ignore[attr-defined]
    device.launch(double, (1,), (32,), device.empty(32))
    assert device.provenance == windtunnel.predict("vector_add", "l4", {"n": 32}).provenance == "assumed"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_no_sleep_goes_back_or_lasts_for_ever(seconds: float) -> None:
    device = opened()
    with pytest.raises(windtunnel.errors.InputError, match="sleep"):
        device.sleep(seconds)
    device.sleep(1e-3)
    assert device.clock_s == 1e-3
