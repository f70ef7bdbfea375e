"""Fault injection: affected calls, sticky errors, faults that are never injected, and repetition by a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windtunnel
from windtunnel.core import errors
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.faults import KINDS, Fault, FaultNotFired, fault_from


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def other(a: np.ndarray) -> None:
    a += 1


@windtunnel.kernel
def broken(a: np.ndarray) -> None:
    raise ValueError("its own")


@pytest.fixture
def device() -> Accelerator:
    return windtunnel.device("l4")


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
        pytest.raises(FaultNotFired, match=r"launch_failure call=2 \(of 1 eligible calls\)"),
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
    spans = device.start_trace()
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
    with device.faults({"kind": "hang", "kernel": "other", "watchdog_timeout_s": 1.5}):
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
        device, found = windtunnel.device("l4"), []
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
        ({"kind": "hang", "on": "copy_in"}, "'hang' cannot be injected into 'copy_in'"),
        ({"kind": "ecc", "call": 1, "probability": 0.5}, "has call and probability"),
        ({"kind": "ecc", "call": 0}, "call 0 does not exist"),
        ({"kind": "ecc", "probability": 0.0}, "is not a valid probability"),
        ({"kind": "throttle", "factor": 1.0}, "would change nothing"),
        ({"kind": "throttle", "factor": float("inf")}, "expected a finite number"),
        ({"kind": "throttle", "factor": None}, "'factor' of a fault is None"),
        ({"kind": "ecc", "factor": 3.0}, "'factor' changes nothing of 'ecc'; expected it with slow_copy or throttle"),
        ({"kind": "ecc", "watchdog_timeout_s": 3.0}, "expected it with hang"),
        ({"kind": "ecc", "call": "3"}, "'call' of a fault is '3'; expected a whole number"),
        ({"kind": "ecc", "call": True}, "'call' of a fault is True"),
        ({"kind": "ecc", "times": 2.5}, "expected a whole number"),
        ({"kind": "ecc", "after_s": -1}, "after_s is -1"),
        ({"kind": "ecc", "after_s": float("nan")}, "expected a finite number"),
        ({"kind": "ecc", "on": 3}, "expected the name of an operation"),
        ({"kind": "out_of_memory", "kernel": "double"}, "'double' is never affected"),
        ({"kind": "ecc", "on": "copy_in", "kernel": "double"}, "'copy_in' does not affect kernels"),
        ({"kind": ["ecc"]}, "is not a valid fault"),
        ({"call": 3}, "has no kind"),
        ({3: 3}, "a fault has no '3'"),
        ([{"kind": "ecc"}], "is not a fault"),
    ],
)
def test_what_is_no_fault_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.InputError) as caught:
        fault_from(data)
    assert says in str(caught.value)


def test_a_fault_that_is_not_made_of_data_is_checked_alike() -> None:
    with pytest.raises(errors.InputError, match="did you mean 'out_of_memory'"):
        Fault("out_of_memry")


def test_faults_are_a_decorator_and_armed_once(device: Accelerator) -> None:
    @device.faults("queue_full")
    def program() -> None:
        with pytest.raises(errors.QueueFull):
            device.launch(double, 1, 32, device.empty(3))
        with pytest.raises(errors.InputError, match="armed already"), device.faults("ecc"):
            pass

    program()
    program()


def test_a_coroutine_is_armed_while_it_runs(device: Accelerator) -> None:
    @device.faults("out_of_memory")
    async def program() -> None:
        await asyncio.sleep(0)
        with pytest.raises(errors.DeviceOutOfMemory):
            device.empty(3)

    asyncio.run(program())


def test_a_call_that_a_fault_ends_is_struck_by_no_other(device: Accelerator) -> None:
    a = device.empty(3)
    with device.faults({"kind": "throttle", "call": 1}, {"kind": "launch_failure", "call": 1}, "device_lost") as plan:
        with pytest.raises(errors.LaunchError):
            device.launch(double, 1, 32, a)
        with pytest.raises(errors.DeviceLost):
            device.launch(double, 1, 32, a)
        assert [line.split()[0] for line in plan.log] == ["launch_failure", "device_lost"]
        device.reset()
        device.launch(double, 1, 32, device.empty(3))
    assert [line.split()[0] for line in device.injected_faults] == ["launch_failure", "device_lost", "throttle"]
    with device.faults("ecc") as plan, pytest.raises(errors.EccError):
        device.synchronize()
    assert len(plan.log) == 1 and len(device.injected_faults) == 4


def test_a_later_call_fails_in_its_own_words_after_a_sticky_error(device: Accelerator) -> None:
    a = device.empty(3)
    with device.faults("device_lost"), pytest.raises(errors.DeviceLost) as first:
        device.launch(double, 1, 32, a)
    with pytest.raises(errors.DeviceLost) as later:
        device.empty(3)
    assert later.value is not first.value and later.value.operation == "allocate"
    assert "allocate on l4: the device is lost" in str(later.value) and "since launch double" in str(later.value)


WAITS: dict[str, Callable[[Accelerator, Any, Any, Any], Any]] = {
    "device": lambda device, buffer, stream, event: device.synchronize(),
    "stream": lambda device, buffer, stream, event: stream.synchronize(),
    "event": lambda device, buffer, stream, event: event.synchronize(),
    "unified memory": lambda device, buffer, stream, event: buffer.host(),
    "pageable copy in": lambda device, buffer, stream, event: buffer.copy_from(np.ones(3, np.float32)),
    "pageable copy out": lambda device, buffer, stream, event: device.to_host(buffer),
}


@pytest.mark.parametrize("way", WAITS)
def test_every_way_to_wait_is_struck_and_meets_a_hang(device: Accelerator, way: str) -> None:
    stream, event = device.stream(), device.event()
    event.record(stream)
    if "copy" not in way:
        with device.faults({"kind": "ecc", "on": "synchronize"}), pytest.raises(errors.EccError):
            WAITS[way](device, device.empty(3, kind="unified"), stream, event)
        device.reset()
    buffer, before = device.empty(3, kind="unified"), device.clock_s
    with device.faults({"kind": "hang", "watchdog_timeout_s": 1.0}):
        device.launch(double, 1, 32, buffer)
        device.copy_in(buffer, np.ones(3, np.float32), pinned=True)
        assert device.clock_s - before < 1e-3
        with pytest.raises(errors.DeviceHang):
            WAITS[way](device, buffer, stream, event)
    assert device.clock_s - before == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(errors.DeviceHang):
        WAITS[way](device, buffer, stream, event)


def test_a_corrupted_bit_is_one_of_those_that_were_copied(device: Accelerator) -> None:
    a, one = device.to_device(np.zeros(1000, np.uint8)), np.zeros(1, np.uint8)
    strided = np.zeros((10, 10), np.uint8)[::2, ::3]
    source = device.to_device(strided)
    with device.faults({"kind": "corrupt_copy", "times": 3, "probability": 1.0}) as plan:
        a.copy_from(one)
        a.copy_within(device.empty(1, np.uint8))
        device.copy_out(strided, source)
    assert np.unpackbits(strided).sum() == 1
    assert np.unpackbits(device.to_host(a)[1:]).sum() == 0
    assert len(plan.log) == 3 and all(": bit " in line for line in plan.log)


def test_what_a_fault_keeps_from_its_owner_is_given_back(device: Accelerator) -> None:
    with device.faults({"kind": "copy_failure", "probability": 1.0}):
        for program in (lambda: device.to_device(np.ones(9)), lambda: device.compute(double, np.ones(9))):
            with pytest.raises(errors.CopyError):
                program()
    with device.faults({"kind": "launch_failure", "times": 2, "probability": 1.0}):
        with pytest.raises(errors.LaunchError):
            device.compute(double, np.ones(9))
        with pytest.raises(errors.LaunchError):
            asyncio.run(device.async_compute(double, np.ones(9)))
    assert device.allocated_bytes == 0


def test_a_kernel_that_raises_while_it_is_throttled_leaves_the_next_as_it_was(device: Accelerator) -> None:
    a, spans = device.empty(1000), device.start_trace()
    device.launch(double, 4, 256, a)
    with device.faults({"kind": "throttle", "factor": 8.0}), pytest.raises(ValueError, match="its own"):
        device.launch(broken, 4, 256, a)
    device.launch(double, 4, 256, a)
    assert spans[0].end - spans[0].start == spans[2].end - spans[2].start


def test_a_throttled_launch_does_not_slow_the_pages_that_it_moves(device: Accelerator) -> None:
    a, spans = device.empty(10**6, kind="unified"), device.start_trace()
    for fault in ((), ({"kind": "throttle", "factor": 3.0},)):
        a.host()
        with device.faults(*fault):
            device.launch(double, 1000, 256, a)
    moved, plain, _, again, throttled = (span.end - span.start for span in spans[-5:])
    assert (again, throttled) == (moved, 3 * plain)


def test_a_seed_that_is_not_stated_is_the_accelerator_s(device: Accelerator) -> None:
    device.seed = 7
    with device.faults({"kind": "ecc", "probability": 0.5}) as plan:
        assert plan.seed == 7
