"""What is said of a device and of what goes wrong; reset, close, several devices, threads, and clocks."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from windtunnel.core import errors

ONES = np.ones(64, np.float32)
FEATURES = {
    "matrix", "graphs", "persistent", "float16", "bfloat16", "int8", "fp8", "fp4", "unified", "pinned", "threads",
}  # fmt: skip


def test_a_device_says_what_it_is(device_under_test: Any, subject: Any) -> None:
    info, again = device_under_test.info, subject.open().info
    assert info == again
    assert info.name and info.kind and info.api and info.memory_bytes >= 2**30
    assert info.features <= FEATURES, "a feature that nobody asks about is a slip"
    limits = info.limits
    assert limits.source and limits.warp >= 1 and limits.shared_bytes >= 0
    assert 1 <= limits.threads_per_block <= np.prod([float(side) for side in limits.block])
    assert min(limits.grid) >= 1 and (max(limits.block) <= limits.threads_per_block or limits.block[2] == 64)


def test_an_emulated_device_says_that_it_is_none(emulated: Any) -> None:
    assert emulated.info.virtual and not emulated.info.software
    assert repr(emulated) == f"<emulated {emulated.name}>"


def failures(device: Any, kernels: Any) -> dict[str, Any]:
    gone = device.empty(3)
    gone.free()
    return {
        "allocate": lambda: device.empty(int(device.info.memory_bytes) + 1, np.uint8),
        "free": gone.free,
        "copy in": lambda: device.copy_in(device.empty(3), np.ones(3)),
        "copy out": lambda: device.copy_out(ONES, device.empty(3)),
        "copy within": lambda: device.copy_within(device.empty(1), device.empty(2)),
        "launch": lambda: device.launch(kernels.nothing, 1, 10**6),
        "event": lambda: device.event().synchronize(),
    }


@pytest.mark.parametrize("operation", ["allocate", "free", "copy in", "copy out", "copy within", "launch", "event"])
def test_an_error_has_the_operation_the_api_its_code_and_the_device(
    device_under_test: Any, kernels: Any, operation: str
) -> None:
    with pytest.raises(errors.DeviceError) as caught:
        failures(device_under_test, kernels)[operation]()
    error, info = caught.value, device_under_test.info
    assert error.operation.startswith(operation) and error.problem
    assert (error.device, error.api, error.code.api) == (info.name, info.api, info.api) and error.code.name
    for part in (error.operation, error.device, error.problem, str(error.code)):
        assert part in str(error)


def test_a_reset_takes_all_memory_and_leaves_a_device(device_under_test: Any, kernels: Any) -> None:
    buffer = device_under_test.to_device(ONES)
    device_under_test.reset()
    assert buffer.freed and device_under_test.allocated_bytes == 0
    with pytest.raises(errors.InvalidArgument, match="was freed"):
        device_under_test.launch(kernels.double, 1, 64, buffer)
    again = device_under_test.to_device(ONES)
    device_under_test.launch(kernels.double, 1, 64, again)
    assert (device_under_test.to_host(again) == 2).all()


def test_a_device_that_was_closed_is_used_no_more(subject: Any, kernels: Any) -> None:
    device = subject.open()
    buffer, stream, event = device.to_device(ONES), device.stream(), device.event()
    event.record(stream)
    with device.capture() as graph:
        device.launch(kernels.nothing, 1, 1)
    compiled = graph.compile()
    with device:
        pass
    device.close()
    for program in (
        lambda: device.empty(3),
        lambda: device.to_device(ONES),
        lambda: device.launch(kernels.nothing, 1, 1),
        device.synchronize,
        device.stream,
        device.event,
        device.reset,
        stream.synchronize,
        event.synchronize,
        event.record,
        lambda: stream.wait(event),
        lambda: device.compute(kernels.add, ONES, ONES),
        compiled.replay,
    ):
        with pytest.raises(errors.InvalidArgument, match="was closed"):
            program()
    for program in (lambda: device.to_host(buffer), buffer.free):
        with pytest.raises(errors.InvalidArgument, match="was freed"):
            program()
    assert device.allocated_bytes == 0 and device.counters.launches == 0 and device.clock_s >= 0.0


def test_devices_of_one_program_do_not_disturb_each_other(
    device_under_test: Any, other_device: Any, kernels: Any
) -> None:
    mine, theirs = device_under_test.to_device(ONES), other_device.to_device(3 * ONES)
    device_under_test.launch(kernels.double, 1, 64, mine)
    device_under_test.reset()
    other_device.launch(kernels.double, 1, 64, theirs)
    assert (other_device.to_host(theirs) == 6).all() and other_device.counters.launches == 1
    device_under_test.close()
    assert (other_device.to_host(theirs) == 6).all() and other_device.allocated_bytes == theirs.nbytes


def test_each_thread_may_have_a_device_of_its_own(subject: Any, kernels: Any) -> None:
    found: dict[int, tuple[bool, int]] = {}

    def work(number: int) -> None:
        with subject.open() as device:
            buffer = device.to_device(np.full(64, number, np.float32))
            for _ in range(50):
                device.launch(kernels.increment, 1, 64, buffer)
            found[number] = (bool((device.to_host(buffer) == number + 50).all()), device.counters.launches)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(4), (True, 50))


def test_the_clock_never_goes_back(device_under_test: Any, kernels: Any) -> None:
    device, stream, event = device_under_test, device_under_test.stream(), device_under_test.event()
    buffer, times = device.empty(64), [device.clock_s]
    for program in (
        lambda: buffer.copy_from(ONES),
        lambda: device.launch(kernels.double, 1, 64, buffer, stream=stream),
        lambda: event.record(stream),
        event.synchronize,
        stream.synchronize,
        lambda: device.to_host(buffer),
        device.synchronize,
        lambda: device.context.pass_time(1e-3),
        device.reset,
        device.close,
    ):
        program()
        times.append(device.clock_s)
    assert times == sorted(times)
    assert times[-1] - times[0] >= 1e-3


# Virtual time: of emulated devices alone.


def spent(device: Any, program: Any) -> float:
    before = device.clock_s
    program()
    return float(device.clock_s - before)


def test_a_wait_for_nothing_and_what_is_only_said_takes_no_device_time(emulated: Any) -> None:
    stream, event, spans = emulated.stream(), emulated.event(), emulated.start_trace()
    assert spent(emulated, lambda: (event.record(stream), stream.wait(event), emulated.stream())) == 0.0
    once = spent(emulated, emulated.synchronize)
    assert spent(emulated, emulated.synchronize) == once
    assert [span for span in spans if span.end > span.start] == []


def test_non_blocking_streams_pass_the_default_stream_and_blocking_ones_do_not(emulated: Any, kernels: Any) -> None:
    size = 10_000_000
    buffer, launch = emulated.empty(size), emulated.configuration(size)
    other = emulated.to_device(np.ones(64, np.float32))
    spans = emulated.start_trace()
    blocking, free = emulated.stream(), emulated.stream(non_blocking=True)
    emulated.launch(kernels.double, *launch, buffer)
    emulated.copy_out(np.zeros(64, np.float32), other, free, pinned=True)
    emulated.copy_out(np.zeros(64, np.float32), buffer, blocking, pinned=True)
    emulated.copy_out(np.zeros(64, np.float32), buffer, pinned=True)
    kernel, passed, waited, last = spans
    assert kernel.end <= waited.start and waited.end <= last.start
    # A processor copies with the cores that compute.
    assert passed.start < kernel.end or (passed.engine == kernel.engine and emulated.info.kind == "cpu")


def test_the_default_stream_waits_for_blocking_streams_and_a_stream_for_an_event(emulated: Any, kernels: Any) -> None:
    size = 10_000_000
    buffer, launch = emulated.empty(size), emulated.configuration(size)
    one, two, event = emulated.stream(), emulated.stream(non_blocking=True), emulated.event()
    spans = emulated.start_trace()
    emulated.launch(kernels.double, *launch, buffer, stream=one)
    event.record(one)
    two.wait(event)
    emulated.copy_out(np.zeros(64, np.float32), buffer, two, pinned=True)
    emulated.copy_out(np.zeros(64, np.float32), buffer, pinned=True)
    kernel, after_event, by_default = (span for span in spans if span.engine != "markers")
    assert kernel.end <= after_event.start and kernel.end <= by_default.start


def test_an_event_is_not_reached_before_the_host_has_waited_that_long(emulated: Any, kernels: Any) -> None:
    size = 10_000_000
    first, last = emulated.event(), emulated.event()
    first.record()
    emulated.launch(kernels.double, *emulated.configuration(size), emulated.empty(size))
    last.record()
    with pytest.raises(errors.InvalidArgument, match="not reached yet"):
        last.elapsed_s(first)
    last.synchronize()
    assert last.elapsed_s(first) > 0.0


def test_pageable_copies_hold_the_host_and_pinned_ones_do_not(emulated: Any) -> None:
    array = np.zeros(10_000_000, np.uint8)
    buffer = emulated.to_device(array)
    for copy in (buffer.copy_from, buffer.copy_to):
        emulated.synchronize()
        spans = emulated.start_trace()
        held = spent(emulated, lambda copy=copy: copy(array))
        assert held == pytest.approx((spans[0].end - spans[0].start) / 1e12)
        dispatch_s = emulated.context.costs.dispatch_ticks / 1e12
        assert spent(emulated, lambda copy=copy: copy(array, pinned=True)) == pytest.approx(dispatch_s)
