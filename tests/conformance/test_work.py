"""Launches, streams, events and graphs, on whatever is a device."""

from __future__ import annotations

import asyncio
import functools
import math
from typing import Any

import numpy as np
import pytest
from tests.conformance.cases import for_each

import windtunnel
from windtunnel.core import errors

ONES = np.ones(64, np.float32)


# Launches.


def test_a_kernel_computes_what_it_says(device_under_test: Any, kernels: Any) -> None:
    a, b = (device_under_test.to_device(np.arange(100, dtype=np.float32) + i) for i in (0, 1))
    c = device_under_test.empty(100)
    device_under_test.launch(kernels.add, *device_under_test.configuration(100), a, b, c)
    assert np.array_equal(device_under_test.to_host(c), 2 * np.arange(100) + 1)


def over(limits: Any) -> dict[str, tuple[tuple[int, int, int], tuple[int, int, int], int, int]]:
    """By the limit that each passes by one: grid, block, shared bytes, and the limit."""
    found = {"threads": ((1, 1, 1), (limits.threads_per_block + 1, 1, 1), 0, limits.threads_per_block)}
    for i, axis in enumerate("xyz"):
        for what in ("block", "grid"):
            most = getattr(limits, what)
            sides = tuple(most[j] + 1 if i == j else 1 for j in range(3))
            pair = ((1, 1, 1), sides) if what == "block" else (sides, (1, 1, 1))
            found[f"{what}.{axis}"] = (*pair, 0, most[i])
    found["shared"] = ((1, 1, 1), (1, 1, 1), limits.shared_bytes + 1, limits.shared_bytes)
    return found


LIMITS = ("threads", "block.x", "block.y", "block.z", "grid.x", "grid.y", "grid.z", "shared")


def test_one_over_a_limit_is_an_error_that_names_it(device_under_test: Any, kernels: Any) -> None:
    limits = device_under_test.info.limits

    def check(limit: str) -> None:
        grid, block, shared, most = over(limits)[limit]
        with pytest.raises(errors.LaunchError) as caught:
            device_under_test.launch(kernels.nothing, grid, block, shared_bytes=shared)
        # More threads along an axis than a block has in all are too many threads first.
        name = "threads" if limit.startswith("block") and math.prod(block) > limits.threads_per_block else limit
        said = limits.threads_per_block if name == "threads" else most
        assert name in str(caught.value) and f"{said:,}" in str(caught.value)
        assert device_under_test.counters.launches == 0

    for_each(LIMITS, check)


def exact(limits: Any, limit: str) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    grid, block, shared, most = over(limits)[limit]
    lower = lambda sides: tuple(min(side, most) for side in sides)  # noqa: E731
    if limit.startswith(("block", "threads")):
        block = tuple(min(side, limits.threads_per_block) for side in lower(block))
    return lower(grid), block, min(shared, limits.shared_bytes)


def test_exactly_at_a_limit_is_launched(device_under_test: Any, kernels: Any) -> None:
    def check(limit: str) -> None:
        grid, block, shared = exact(device_under_test.info.limits, limit)
        before = device_under_test.counters.launches
        device_under_test.launch(kernels.nothing, grid, block, shared_bytes=shared)
        device_under_test.synchronize()
        assert device_under_test.counters.launches == before + 1

    for_each(["threads", "block.x", "block.y", "block.z", "shared"], check)


# On a real device two thousand million blocks take a while.
@pytest.mark.parametrize("limit", ["grid.x", "grid.y", "grid.z"])
def test_exactly_at_a_limit_of_the_grid_is_launched(emulated: Any, kernels: Any, limit: str) -> None:
    grid, block, shared = exact(emulated.info.limits, limit)
    emulated.launch(kernels.nothing, grid, block, shared_bytes=shared)
    assert emulated.counters.launches == 1


def test_what_is_no_size_of_a_launch_is_refused(device_under_test: Any, kernels: Any) -> None:
    def check(size: Any) -> None:
        for sizes in ((size, 1), (1, size)):
            with pytest.raises(errors.LaunchError, match="is not a size of a grid or block"):
                device_under_test.launch(kernels.nothing, *sizes)
        with pytest.raises(errors.LaunchError, match="-1 bytes of shared memory"):
            device_under_test.launch(kernels.nothing, 1, 1, shared_bytes=-1)

    for_each([0, -1, (1, 0), (), (1, 1, 1, 1), 1.5, (1.5,), "3", None], check)


def test_sizes_of_a_launch_are_whole_numbers_of_any_kind(device_under_test: Any, kernels: Any) -> None:
    sizes = [np.int64(2), (np.int32(2), 1), [2, 1, 1], np.array([2, 1])]

    def check(size: Any) -> None:
        before = device_under_test.counters.launches
        device_under_test.launch(kernels.nothing, size, size)
        assert device_under_test.counters.launches == before + 1

    for_each(sizes, check)


def test_numbers_are_given_to_kernels_as_they_are(device_under_test: Any, kernels: Any) -> None:
    def check(factor: Any) -> None:
        buffer = device_under_test.to_device(ONES)
        device_under_test.launch(kernels.scale, 1, 64, buffer, factor)
        assert (device_under_test.to_host(buffer) == 3).all()

    for_each([3, 3.0, np.float32(3), np.int64(3), np.array(3.0), True + 2], check)


def test_what_no_kernel_can_take_is_refused_with_its_place(device_under_test: Any, kernels: Any) -> None:
    def check(argument: Any) -> None:
        with pytest.raises(errors.InvalidArgument, match="argument 1 is"):
            device_under_test.launch(kernels.scale, 1, 64, device_under_test.empty(3), argument)

    for_each([[1.0], "3", None, {"a": 1}, np.ones(3, np.float32)], check)


def test_what_is_no_kernel_is_refused(device_under_test: Any) -> None:
    with pytest.raises(errors.InputError, match="3 is not a kernel"):
        device_under_test.launch(3, 1, 1)


def test_launches_of_a_stream_are_in_order(device_under_test: Any, kernels: Any) -> None:
    for stream in (None, device_under_test.stream(), device_under_test.stream(non_blocking=True)):
        buffer = device_under_test.to_device(ONES, stream)
        for kernel in (kernels.increment, kernels.double, kernels.increment, kernels.double):
            device_under_test.launch(kernel, 1, 64, buffer, stream=stream)
        assert (device_under_test.to_host(buffer, stream) == 10).all()


# Streams and events.


def test_an_event_orders_streams(device_under_test: Any, kernels: Any) -> None:
    one, two = (device_under_test.stream(non_blocking=True) for _ in range(2))
    buffer, event = device_under_test.to_device(ONES), device_under_test.event()
    for _ in range(5):
        device_under_test.launch(kernels.increment, 1, 64, buffer, stream=one)
    event.record(one)
    two.wait(event)
    device_under_test.launch(kernels.double, 1, 64, buffer, stream=two)
    two.synchronize()
    assert (device_under_test.to_host(buffer, two) == 12).all()


def test_the_default_stream_and_blocking_streams_wait_for_each_other(device_under_test: Any, kernels: Any) -> None:
    one, two = device_under_test.stream(), device_under_test.stream()
    buffer = device_under_test.to_device(ONES)
    device_under_test.launch(kernels.increment, 1, 64, buffer, stream=one)
    device_under_test.launch(kernels.double, 1, 64, buffer)
    device_under_test.launch(kernels.increment, 1, 64, buffer, stream=two)
    device_under_test.synchronize()
    assert (device_under_test.to_host(buffer) == 5).all()


def test_an_event_measures_what_lies_between(device_under_test: Any, kernels: Any) -> None:
    first, last, stream = device_under_test.event(), device_under_test.event(), device_under_test.stream()
    buffer = device_under_test.empty(1_000_000)
    first.record(stream)
    for _ in range(3):
        device_under_test.launch(kernels.double, *device_under_test.configuration(1_000_000), buffer, stream=stream)
    last.record(stream)
    last.synchronize()
    assert last.elapsed_s(first) > 0.0 == first.elapsed_s(first)
    with pytest.raises(errors.InvalidArgument, match="the other event is (the )?later"):
        first.elapsed_s(last)
    # Recorded again it marks the later point.
    first.record(stream)
    first.synchronize()
    assert first.elapsed_s(last) >= 0.0


def test_an_event_that_was_not_recorded_is_an_error_to_wait_for_and_nothing_to_a_stream(
    device_under_test: Any, kernels: Any
) -> None:
    event, recorded = device_under_test.event(), device_under_test.event()
    recorded.record()
    recorded.synchronize()
    for program in (event.synchronize, lambda: event.elapsed_s(recorded), lambda: recorded.elapsed_s(event)):
        with pytest.raises(errors.InvalidArgument, match="was not recorded"):
            program()
    stream = device_under_test.stream()
    stream.wait(event)
    buffer = device_under_test.to_device(ONES, stream)
    device_under_test.launch(kernels.double, 1, 64, buffer, stream=stream)
    assert (device_under_test.to_host(buffer, stream) == 2).all()


def test_streams_and_events_of_another_device_are_refused(
    device_under_test: Any, other_device: Any, kernels: Any
) -> None:
    device, buffer = device_under_test, device_under_test.empty(64)
    stream, event = other_device.stream(), other_device.event()
    event.record()
    event.synchronize()
    mine = device.event()
    mine.record()
    mine.synchronize()
    for program in (
        lambda: device.launch(kernels.double, 1, 64, buffer, stream=stream),
        lambda: buffer.copy_from(ONES, stream),
        lambda: buffer.copy_to(ONES.copy(), stream),
        lambda: buffer.copy_within(device.empty(64), stream),
        lambda: mine.record(stream),
        lambda: device.stream().wait(event),
        lambda: mine.elapsed_s(event),
    ):
        with pytest.raises(errors.InvalidArgument):
            program()


# Graphs.


def graph_of(device: Any, kernels: Any) -> Any:
    buffer, found = device.empty(64), np.zeros(64, np.float32)
    with device.capture() as graph:
        device.copy_in(buffer, ONES)
        device.launch(kernels.increment, 1, 64, buffer)
        device.launch(kernels.double, 1, 64, buffer)
        device.copy_out(found, buffer)
    return buffer, found, graph


def test_a_graph_does_what_was_captured_or_is_refused(device_under_test: Any, kernels: Any) -> None:
    _, found, graph = graph_of(device_under_test, kernels)
    assert not found.any()
    compiled = graph.compile()
    if "graphs" not in device_under_test.info.features:
        with pytest.raises(errors.InvalidArgument, match="has no graphs|does not support graphs"):
            compiled.replay()
        assert not found.any()
        return
    for stream in (None, device_under_test.stream(), device_under_test.stream(non_blocking=True)):
        found[:] = 0
        compiled.replay(stream)
        device_under_test.synchronize()
        assert (found == 4).all()


def test_nothing_is_done_or_waited_for_while_a_graph_is_captured(device_under_test: Any, kernels: Any) -> None:
    device = device_under_test
    _, _, graph = graph_of(device, kernels)
    compiled, stream, event, buffer = graph.compile(), device.stream(), device.event(), device.empty(64)
    event.record()
    with device.capture():
        for program in (
            device.synchronize,
            stream.synchronize,
            event.synchronize,
            compiled.replay,
            lambda: device.to_host(buffer),
        ):
            with pytest.raises(errors.InvalidArgument, match="this call is not allowed while a graph is captured"):
                program()
        with pytest.raises(errors.InvalidArgument, match="captured already"), device.capture():
            pass
    device.synchronize()


def test_a_graph_is_of_its_device_and_its_buffers(device_under_test: Any, other_device: Any, kernels: Any) -> None:
    buffer, _, graph = graph_of(device_under_test, kernels)
    compiled = graph.compile()
    with pytest.raises(errors.InvalidArgument, match="replay a graph"):
        other_device.replay(compiled)
    buffer.free()
    with pytest.raises(errors.InvalidArgument, match="was freed"):
        compiled.replay()


def test_a_cycle_is_refused(device_under_test: Any, kernels: Any) -> None:
    graph = device_under_test.graph()
    one = graph.launch(kernels.nothing, 1, 1)
    graph.depend(one, graph.launch(kernels.nothing, 1, 1, after=[one]))
    with pytest.raises(errors.InputError, match="has a cycle"):
        graph.compile()


# Whole computations.


def test_compute_gives_the_result_and_leaves_nothing(device_under_test: Any, kernels: Any) -> None:
    a = np.arange(100, dtype=np.float32)
    assert np.array_equal(device_under_test.compute(kernels.add, a, a), 2 * a)

    async def several() -> list[np.ndarray]:
        return list(await asyncio.gather(*(device_under_test.async_compute(kernels.add, a, a + i) for i in range(4))))

    for i, found in enumerate(asyncio.run(several())):
        assert np.array_equal(found, 2 * a + i)
    with pytest.raises(errors.InvalidArgument, match="expected at least one array"):
        device_under_test.compute(kernels.nothing)
    assert device_under_test.allocated_bytes == 0


def test_what_fails_leaves_nothing_either(emulated: Any) -> None:
    @windtunnel.kernel
    def broken(a: np.ndarray, result: np.ndarray) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        emulated.compute(broken, ONES)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(emulated.async_compute(broken, ONES))

    async def cancelled() -> None:
        task = asyncio.create_task(emulated.async_compute(functools.partial(np.add, 1), ONES))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert emulated.allocated_bytes == 0
