"""Faults on demand: what strikes which call, what sticks, what is missed, and that a seed repeats it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel import app
from windtunnel.core import errors
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.faults import KINDS, FaultNotFired, fault_from


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def other(a: np.ndarray) -> None:
    a += 1


@pytest.fixture
def device() -> Accelerator:
    return app.accelerator("l4")


@pytest.mark.parametrize("kind", [kind for kind, found in KINDS.items() if found.error is not None])
def test_each_fault_raises_its_error_at_the_call_that_it_names(device: Accelerator, kind: str) -> None:
    error = KINDS[kind].error
    assert error is not None
    a = device.to_device(np.ones(10, np.float32))
    calls = {
        "allocate": lambda: device.empty(3),
        "copy_in": lambda: device.copy_in(a, np.ones(3, np.float32)),
        "copy_out": lambda: device.to_host(a),
        "copy_within": lambda: device.copy_in(a, np.ones(3, np.float32)),
        "launch": lambda: device.launch(double, 1, 32, a),
        "synchronize": device.synchronize,
    }
    call = calls[KINDS[kind].on[0]]
    with device.faults({"kind": kind, "call": 3}) as plan:
        call()
        call()
        with pytest.raises(error, match=f"fault '{kind} call=3', seed 0"):
            call()
            device.synchronize()
    assert len(plan.log) == 1 and kind in plan.log[0]
    if error.sticky:
        for again in (device.synchronize, lambda: device.empty(3)):
            with pytest.raises(error):
                again()
        device.reset()
    device.empty(3)


def test_a_fault_that_never_strikes_fails_the_test(device: Accelerator) -> None:
    with (
        pytest.raises(FaultNotFired, match=r"launch_failure call=2 \(of 1 calls that it concerns\)"),
        device.faults({"kind": "launch_failure", "call": 2}),
    ):
        device.launch(double, 1, 32, device.empty(3))
    assert issubclass(FaultNotFired, AssertionError)


def test_what_fails_for_another_reason_is_said_first(device: Accelerator) -> None:
    with pytest.raises(ZeroDivisionError), device.faults("device_lost"):
        raise ZeroDivisionError
    assert device.plan is None


def test_a_slow_copy_and_a_throttled_kernel_take_so_many_times_as_long(device: Accelerator) -> None:
    array = np.ones(10**6, np.float32)
    a = device.empty(10**6)

    def took() -> float:
        before = device.clock_s
        device.copy_in(a, array)
        return device.clock_s - before

    plain = took()
    with device.faults({"kind": "slow_copy", "factor": 3.0}):
        assert took() == pytest.approx(3 * plain)
        assert took() == pytest.approx(plain)
    spans = device.watch()
    with device.faults({"kind": "throttle", "factor": 2.0, "call": 2}):
        for _ in range(2):
            device.launch(double, 1000, 256, a)
    assert spans[1].end - spans[1].start == 2 * (spans[0].end - spans[0].start)


def test_a_corrupted_copy_flips_one_bit_the_same_for_the_same_seed(device: Accelerator) -> None:
    array = np.zeros(1000, np.uint8)

    def flipped(seed: int) -> np.ndarray:
        a = device.to_device(array)
        with device.faults({"kind": "corrupt_copy", "on": "copy_out"}, seed=seed):
            return np.unpackbits(device.to_host(a))

    one = flipped(1)
    assert one.sum() == 1
    assert np.array_equal(one, flipped(1)) and not np.array_equal(one, flipped(2))


def test_whoever_waits_for_a_kernel_that_hangs_waits_for_the_watchdog(device: Accelerator) -> None:
    a = device.empty(3)
    with device.faults({"kind": "hang", "kernel": "other", "hang_s": 1.5}):
        device.launch(double, 1, 32, a)
        before = device.clock_s
        device.launch(other, 1, 32, a)
        assert device.clock_s - before < 1e-4  # a launch does not wait
        with pytest.raises(errors.DeviceHang, match="launch other"):
            device.to_host(a)
    assert device.clock_s - before == pytest.approx(1.5, rel=1e-3)


def test_a_fault_strikes_from_a_moment_of_virtual_time_on(device: Accelerator) -> None:
    with device.faults({"kind": "link_down", "after_s": 0.01, "times": 2}):
        count = 0
        while count < 1000:
            try:
                device.to_device(np.ones(10**6, np.float32))
            except errors.LinkDown:
                break
            count += 1
        assert 0.01 <= device.clock_s < 0.011 and count > 3
        with pytest.raises(errors.LinkDown):
            device.to_device(np.ones(3))
        device.to_device(np.ones(3))


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.95), st.integers(0, 2**32), st.integers(1, 40))
def test_chance_is_the_seed_s_and_what_else_is_declared_changes_none_of_it(p: float, seed: int, calls: int) -> None:
    def struck(*more: dict[str, Any]) -> list[int]:
        device, found = app.accelerator("l4"), []
        with device.faults({"kind": "out_of_memory", "probability": p}, *more, seed=seed):
            for i in range(calls):
                try:
                    device.empty(3)
                except errors.DeviceOutOfMemory:
                    found.append(i)
        return found

    one = struck()
    assert one == struck()
    assert one == struck({"kind": "slow_copy", "probability": 0.5})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"kind": "out_of_memry"}, "did you mean 'out_of_memory'"),
        ({"kind": "ecc", "cal": 3}, "did you mean 'call'"),
        ({"kind": "hang", "on": "copy_in"}, "'hang' does not strike 'copy_in'"),
        ({"kind": "ecc", "call": 1, "probability": 0.5}, "strikes by call and by probability"),
        ({"kind": "ecc", "call": 0}, "there is no call 0"),
        ({"kind": "ecc", "probability": 0.0}, "no probability"),
        ({"kind": "throttle", "factor": 1.0}, "would change nothing"),
    ],
)
def test_what_is_no_fault_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        fault_from(data)
    assert says in str(caught.value)


def test_faults_are_a_decorator_and_armed_once(device: Accelerator) -> None:
    @device.faults("queue_full")
    def program() -> None:
        with pytest.raises(errors.QueueFull):
            device.launch(double, 1, 32, device.empty(3))
        with pytest.raises(errors.InputError, match="armed already"), device.faults("ecc"):
            pass

    program()
    program()
