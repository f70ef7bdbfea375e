"""The device beside a ring kernel: the units that it leaves, and the power that polling draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulator.rings import KNOWN, PERSISTENT, RELAUNCHED, opened, ring_of, square

import windtunnel
from windtunnel.core.errors import (
    LaunchError,
)


def test_kernels_run_beside_a_ring_on_the_units_it_leaves_and_not_beside_one_that_has_all() -> None:
    device = opened()
    units = int(KNOWN.device("l4").number("compute_units") or 0)

    @windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1e8, "flops": 0.0})
    def work(a: np.ndarray) -> None:
        a += 1

    a = device.to_device(np.zeros(4, np.float32))

    def timed() -> float:
        stream = device.stream(non_blocking=True)
        before = device.clock_s
        device.launch(work, units, 32, a, stream=stream)
        stream.synchronize()
        return device.clock_s - before

    alone = timed()
    with ring_of(device, grid=units // 2):
        device.sleep(1e-3)
        assert timed() > 1.9 * alone
    assert timed() == pytest.approx(alone)
    with ring_of(device, grid=units), pytest.raises(LaunchError, match="holds all 58 compute units"):
        timed()
    with ring_of(device, grid=units), pytest.raises(LaunchError, match="leave 0%"):
        ring_of(device)


def test_a_ring_waits_for_kernels_that_have_its_units() -> None:
    device = opened()

    @windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1e9, "flops": 0.0})
    def long(a: np.ndarray) -> None:
        a += 1

    a = device.to_device(np.zeros(4, np.float32))
    took = windtunnel.predict("kernel", "l4", {"threads": 1, "bytes": 1e9, "flops": 0.0}).duration_s
    device.launch(long, 58, 32, a)
    ring = ring_of(device)
    before = device.clock_s
    ring.call(1)
    assert device.clock_s - before == pytest.approx(took, rel=0.1)


def test_more_blocks_than_fit_at_once_are_refused() -> None:
    """An L4's 58 units hold 1,536 threads each."""
    device = opened()
    with pytest.raises(LaunchError, match="175 blocks of 512 threads, of which 174 fit on the device at once"):
        device.ring(square, 175, 512, message="u4", reply="u8")
    device.ring(square, 174, 512, message="u4", reply="u8").terminate()


def test_messages_take_what_their_work_draws_beyond_a_kernel_that_polls() -> None:
    device, model = opened(), KNOWN.device("l4")

    @windtunnel.kernel(work=lambda message: {"op": "kernel", "threads": 1, "bytes": 1e9, "flops": 0.0})
    def work(message: Any) -> int:
        return 1

    predicted = windtunnel.predict("kernel", "l4", {"threads": 1, "bytes": 1e9, "flops": 0.0})
    with ring_of(device, work) as ring:
        device.sleep(1e-3)  # until the kernel runs
        before, clock = device.energy_j, device.clock_s
        ring.call(1)
        took, drew = device.clock_s - clock, device.energy_j - before
    polling_w = model.idle_power_w + model.spin_power_w(1 / 58)
    assert predicted.power_w > polling_w
    above = (predicted.power_w - polling_w) * predicted.duration_s
    assert drew == pytest.approx(took * polling_w + above)


@pytest.mark.parametrize("name", [*PERSISTENT, "alveo-u50"])
def test_a_persistent_kernel_that_only_polls_draws_more_than_an_idle_device(name: str) -> None:
    device, model = opened(name), KNOWN.device(name)
    units = model.number("compute_units") or 1.0
    few, all_units = model.spin_power_w(1 / units), model.spin_power_w(1.0)
    assert 0.0 < few <= all_units < 0.65 * (model.power_limit_w - model.idle_power_w)

    def power_w() -> float:
        before, clock = device.energy_j, device.clock_s
        device.sleep(1e-2)
        return (device.energy_j - before) / (device.clock_s - clock)

    assert power_w() == pytest.approx(model.idle_power_w)
    first = ring_of(device)
    device.sleep(1e-3)
    assert power_w() == pytest.approx(model.idle_power_w + few)
    assert (few < all_units) == (units > 1)
    if units > 1:
        # A second kernel adds its units, and the chip is awake already.
        second = ring_of(device)
        device.sleep(1e-3)
        assert power_w() == pytest.approx(model.idle_power_w + model.spin_power_w(2 / units))
        second.terminate()
        device.sleep(1e-3)
    assert power_w() == pytest.approx(model.idle_power_w + few)
    first.terminate()
    device.sleep(1e-3)
    assert power_w() == pytest.approx(model.idle_power_w)


@pytest.mark.parametrize("name", RELAUNCHED)
def test_a_kernel_that_is_launched_again_draws_nothing_while_no_message_waits(name: str) -> None:
    device = opened(name)
    with ring_of(device):
        before, clock = device.energy_j, device.clock_s
        device.sleep(1e-2)
        power_w = (device.energy_j - before) / (device.clock_s - clock)
    assert power_w == pytest.approx(KNOWN.device(name).idle_power_w)


def test_the_power_of_a_kernel_that_polls_is_assumed_with_a_range_and_a_reason() -> None:
    for name in [*PERSISTENT, "alveo-u50", "epyc-9654"]:
        device = KNOWN.device(name)
        share = device.values["spin_power_share"]
        assert share.low is not None and share.high is not None and share.low < share.value < share.high
        assert share.provenance.label == "assumed" and "no published measurement was found" in (share.reason or "")
        launch = windtunnel.predict("launch", name, {"mode": "persistent"})
        occupied = 1.0 if device.kind.name != "cpu" else 1.0 / (device.number("cores") or 1.0)
        assert launch.power_w == pytest.approx(device.idle_power_w + device.spin_power_w(occupied))


def test_a_reset_gives_the_units_back() -> None:
    device = opened()
    ring_of(device, grid=58)
    with pytest.raises(LaunchError):
        ring_of(device, grid=58)
    device.reset()
    ring_of(device, grid=58).terminate()


def test_a_throttled_launch_slows_nobodys_ring() -> None:
    def took(throttled: bool) -> list[float]:
        device = opened("rtx-4090@vulkan")
        seen = device.start_trace()
        ring = ring_of(device)
        for i in range(4):
            ring.send(i)
        a = device.to_device(np.ones(4, np.float32))
        device.sleep(1e-3)
        fault = {"kind": "throttle", "factor": 10, "kernel": "other"}

        def other(x: np.ndarray) -> None:
            pass

        if throttled:
            with device.faults(fault):
                device.launch(other, 1, 32, a)
        else:
            device.launch(other, 1, 32, a)
        ring.drain()
        return [span.end - span.start for span in seen if span.name.startswith("square")]

    assert took(True) == took(False)
