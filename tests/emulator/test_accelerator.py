"""An emulated accelerator: its numbers, its times compared with `predict`, its errors, and the overlap of streams."""

from __future__ import annotations

import asyncio
import importlib
import re
import time
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cases import check_all

import windtunnel
from windtunnel import grid
from windtunnel.backends.common import context
from windtunnel.core import errors
from windtunnel.emulator.device.timeline import Host
from windtunnel.library.devices import open_real_device
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.budget import BudgetExceeded
from windtunnel.runtime.codes import _tables, code_of
from windtunnel.runtime.limits import dims, launch_configuration, limits_of
from windtunnel_models.catalogue import device_model

MILLION = 1_000_000


@windtunnel.kernel(work=lambda a, b, c: {"op": "vector_add", "n": a.size})
def add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[...] = a + b


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def add_one(a):
    i = grid(1)
    if i < a.size:
        a[i] += 1


@windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1})
def nothing() -> None:
    pass


@pytest.fixture
def device() -> Accelerator:
    return windtunnel.device("h100-sxm-80gb")


def predicted(op: str, device: str = "h100-sxm-80gb", **values: Any) -> float:
    return float(windtunnel.predict(op, device, values).duration_s)


def took(device: Accelerator, program: Any) -> float:
    device.synchronize()
    before = device.clock_s
    program()
    return device.clock_s - before


def test_numbers_go_there_and_back() -> None:
    device = windtunnel.device("l4")
    a, b = device.to_device(np.arange(6.0).reshape(2, 3)), device.to_device(np.ones((2, 3)))
    c = device.empty((2, 3), np.float64)
    device.launch(add, 1, 32, a, b, c)
    assert np.array_equal(device.to_host(c), np.arange(6.0).reshape(2, 3) + 1)
    assert device.allocated_bytes == 3 * 48
    for buffer in (a, b, c):
        buffer.free()
    assert device.allocated_bytes == 0


def test_empty_kernels_and_one_wait_take_what_predict_says() -> None:
    def takes_as_long(case: tuple[str, int]) -> None:
        sku, count = case
        device = windtunnel.device(sku)

        def program() -> None:
            for _ in range(count):
                device.launch(nothing, 1, 1)
            device.synchronize()

        # The empty kernel here moves one byte, which is a picosecond or two; each time is rounded to one.
        assert took(device, program) == pytest.approx(predicted("launch", sku, count=count), rel=1e-5)

    skus = ("h100-sxm-80gb", "l4", "mi300x", "rtx-4090@vulkan", "apple-m1")
    check_all(product(skus, (1, 10, 1000)), takes_as_long)


@pytest.mark.parametrize("size", [4, 4096, 10**8])
@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_a_copy_from_pageable_memory_holds_the_host_as_long_as_predict_says(
    device: Accelerator, size: int, direction: str
) -> None:
    array = np.zeros(size, np.uint8)
    buffer = device.to_device(array)
    program = (lambda: buffer.copy_from(array)) if direction == "h2d" else (lambda: buffer.copy_to(array))
    assert took(device, program) == pytest.approx(predicted("copy", bytes=size, direction=direction, memory="pageable"))


def test_a_copy_from_pinned_memory_costs_the_host_its_dispatch_only(device: Accelerator) -> None:
    array, buffer = np.zeros(10**8, np.uint8), device.empty(10**8, np.uint8)
    stream = device.stream()
    device.synchronize()
    before = device.clock_s
    buffer.copy_from(array, stream, pinned=True)
    assert device.clock_s - before < 5e-6
    stream.synchronize()
    expected = predicted("copy", bytes=10**8, direction="h2d", memory="pinned")
    assert device.clock_s - before == pytest.approx(expected, rel=0.01)


def test_a_kernel_takes_its_predicted_time_and_energy(device: Accelerator) -> None:
    buffers = [device.empty(MILLION) for _ in range(3)]
    program = lambda: (device.launch(add, *device.configuration(MILLION), *buffers), device.synchronize())  # noqa: E731
    spans = device.start_trace()
    before_j, before_s = device.energy_j, device.clock_s
    elapsed = took(device, program)
    (span,) = [s for s in spans if s.name == "add"]
    found = windtunnel.predict("vector_add", "h100-sxm-80gb", {"n": MILLION})
    assert (span.end - span.start) / 1e12 == pytest.approx(found.duration_s, rel=1e-6)
    assert elapsed == pytest.approx(predicted("launch", count=1) + found.duration_s, rel=0.4)
    idle_w = device_model("h100-sxm-80gb", windtunnel.catalogue()).idle_power_w
    above = (found.power_w - idle_w) * found.duration_s
    spent = device.energy_j - before_j
    assert spent == pytest.approx(idle_w * (device.clock_s - before_s) + above, rel=1e-6)


def test_a_program_takes_the_same_time_again_and_again() -> None:
    def run() -> tuple[float, float]:
        device = windtunnel.device("a100-sxm-80gb")
        buffers = [device.to_device(np.ones(MILLION, np.float32)) for _ in range(3)]
        for _ in range(5):
            device.launch(add, *device.configuration(MILLION), *buffers)
        device.synchronize()
        assert device.counters.launches == 5
        return device.clock_s, device.energy_j

    assert run() == run()
    assert run()[0] > 5 * predicted("vector_add", "a100-sxm-80gb", n=MILLION)


def pipeline(device: Accelerator, *streams: Any, size: int = 4_000_000) -> None:
    host = np.ones(size, np.float32)
    for stream in streams:
        found = np.empty_like(host)
        a = device.to_device(host, stream, pinned=True)
        device.launch(double, *device.configuration(size), a, stream=stream)
        a.copy_to(found, stream, pinned=True)
    device.synchronize()


def test_streams_overlap_copies_in_both_directions_and_kernels(device: Accelerator) -> None:
    one, two, three = device.stream(), device.stream(), device.stream()
    alone = took(device, lambda: pipeline(device, one))
    in_a_row = took(device, lambda: pipeline(device, one, one, one))
    beside = took(device, lambda: pipeline(device, one, two, three))
    assert in_a_row == pytest.approx(3 * alone, rel=0.02)
    # Three stages of which two are copies of equal length: the later two hide all but one copy each.
    assert alone < beside < 0.72 * in_a_row


def test_small_kernels_share_the_compute_units_and_large_ones_do_not(device: Accelerator) -> None:
    a = device.empty(64)
    streams = [device.stream() for _ in range(4)]

    def run(blocks: int) -> float:
        def program() -> None:
            for stream in streams:
                device.launch(busy, blocks, 256, a, stream=stream)
            device.synchronize()

        return took(device, program)

    @windtunnel.kernel(work={"op": "kernel", "threads": 256, "bytes": 100_000_000})
    def busy(a: np.ndarray) -> None:
        pass

    assert run(10_000) > 3.5 * run(1)


def test_events_order_streams_and_measure(device: Accelerator) -> None:
    first, second = device.stream(non_blocking=True), device.stream(non_blocking=True)
    buffers = [device.empty(10 * MILLION) for _ in range(3)]
    begin, end = device.event(), device.event()
    begin.record(first)
    device.launch(add, *device.configuration(10 * MILLION), *buffers, stream=first)
    end.record(first)
    second.wait(end)
    device.launch(add, *device.configuration(10 * MILLION), *buffers, stream=second)
    last = device.event()
    last.record(second)
    last.synchronize()
    kernel_s = predicted("vector_add", n=10 * MILLION)
    assert end.elapsed_s(begin) == pytest.approx(kernel_s, rel=0.2)
    assert last.elapsed_s(begin) > 1.9 * kernel_s
    with pytest.raises(errors.InvalidArgument, match="was not recorded"):
        device.event().synchronize()


def test_what_is_awaited_together_overlaps(device: Accelerator) -> None:
    array = np.ones(20_000_000, np.float32)

    @windtunnel.kernel
    def triple(a: np.ndarray, result: np.ndarray) -> None:
        result[...] = 3 * a

    async def both() -> list[np.ndarray]:
        return list(await asyncio.gather(*(device.async_compute(triple, array) for _ in range(2))))

    alone = took(device, lambda: device.compute(triple, array))
    found: list[np.ndarray] = []
    together = took(device, lambda: found.extend(asyncio.run(both())))
    assert all((one == 3).all() for one in found) and device.allocated_bytes == 0
    assert together < 1.9 * alone


def test_devices_of_one_host_share_its_clock() -> None:
    host = Host()
    one, other = windtunnel.device("l4", host=host), windtunnel.device("t4", host=host)
    one.to_device(np.ones(MILLION))
    assert other.clock_s == one.clock_s > 0
    with pytest.raises(errors.InvalidArgument, match="of another device"):
        other.launch(double, 1, 1, one.empty(3))


def test_unified_memory_moves_when_the_other_side_touches_it(device: Accelerator) -> None:
    a = device.empty(MILLION, kind="unified")
    device.launch(double, *device.configuration(MILLION), a)
    there = took(device, a.host)
    again = took(device, a.host)
    assert there > predicted("copy", bytes=4 * MILLION, direction="d2h", memory="unified") * 0.99 and again == 0
    a.host()[...] = 21
    moved = took(device, lambda: (device.launch(double, *device.configuration(MILLION), a), device.synchronize()))
    stays = took(device, lambda: (device.launch(double, *device.configuration(MILLION), a), device.synchronize()))
    assert moved > stays
    assert (a.host() == 84).all()
    with pytest.raises(errors.InvalidArgument, match="the host cannot access device memory"):
        device.empty(3).host()


def test_memory_that_is_shared_with_the_host_does_not_move() -> None:
    device = windtunnel.device("apple-m1")
    a = device.empty(MILLION, kind="unified")
    a.host()[...] = 3.0
    device.launch(double, *device.configuration(MILLION), a)
    device.synchronize()
    assert took(device, a.host) == 0
    assert (a.host() == 6.0).all()
    card = windtunnel.device("l4")
    b = card.to_device(np.full(MILLION, 3.0, np.float32))
    assert took(card, lambda: card.to_host(b)) > 0


# Errors.


@pytest.mark.parametrize(
    ("program", "error", "says"),
    [
        (lambda d: d.empty(10**11), errors.DeviceOutOfMemory, "80,000,000,000 bytes are free"),
        (
            lambda d: d.launch(double, 1, 2048, d.empty(3)),
            errors.LaunchError,
            "2,048 threads a block, of at most 1,024",
        ),
        (lambda d: d.launch(double, (1, 70_000), 1, d.empty(3)), errors.LaunchError, "grid.y is 70,000"),
        (lambda d: d.launch(double, 0, 1, d.empty(3)), errors.LaunchError, "0 is not a size"),
        (lambda d: d.launch(double, 1, 1, d.empty(3), shared_bytes=10**6), errors.LaunchError, "shared memory"),
        (lambda d: d.launch(double, 1, 1, np.ones(3)), errors.InvalidArgument, "an array of the host"),
        (
            lambda d: d.empty(3).copy_from(np.ones(3)),
            errors.InvalidArgument,
            "float64 elements for a buffer of float32",
        ),
        (
            lambda d: d.empty(3).copy_from(np.ones(4, np.float32)),
            errors.InvalidArgument,
            "shape (4,) for a buffer of shape (3,)",
        ),
        (
            lambda d: d.empty(3).copy_to(np.ones(4, np.float32)),
            errors.InvalidArgument,
            "(4,) for a buffer of shape (3,)",
        ),
        (
            lambda d: d.empty(10).copy_from(np.ones((2, 5), np.float32)),
            errors.InvalidArgument,
            "shape (2, 5) for a buffer of shape (10,)",
        ),
        (
            lambda d: d.empty((2, 5)).copy_to(np.ones(10, np.float32)),
            errors.InvalidArgument,
            "shape (10,) for a buffer of shape (2, 5)",
        ),
        (lambda d: d.empty((2, 5)).copy_within(d.empty((5, 2))), errors.InvalidArgument, "2 x 5"),
        (lambda d: d.empty((2, -1)), errors.InvalidArgument, "not an array of numbers"),
        (lambda d: d.empty(()), errors.InvalidArgument, "not an array of numbers"),
        (lambda d: d.empty(3, object), errors.InvalidArgument, "not an array of numbers"),
    ],
)
def test_an_error_says_what_was_being_done_where_and_the_api_s_code(
    device: Accelerator, program: Any, error: type[errors.DeviceError], says: str
) -> None:
    with pytest.raises(error) as caught:
        program(device)
    assert says in str(caught.value)
    assert caught.value.device == "h100-sxm-80gb" and caught.value.api == "cuda" and caught.value.operation
    assert str(caught.value.code) in str(caught.value)


def test_a_freed_buffer_is_not_used_again(device: Accelerator) -> None:
    a = device.empty(3)
    a.free()
    for program in (a.free, lambda: device.launch(double, 1, 1, a), lambda: device.to_host(a)):
        with pytest.raises(errors.InvalidArgument, match="was freed"):
            program()


def test_every_api_has_a_word_for_every_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DeviceError)]
    for api in (*_tables(), "xrt", "native"):
        for kind in kinds:
            if kind is not errors.DeviceError:
                assert code_of(api, kind).name


def test_every_error_has_a_name_that_a_user_imports_it_by() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.WindtunnelError):
            assert getattr(importlib.import_module("windtunnel.errors"), name) is kind
    assert windtunnel.errors.DeviceLost is errors.DeviceLost


def test_the_api_bounds_the_launch_of_the_same_silicon() -> None:
    wgpu = windtunnel.device("rtx-4090@wgpu")
    with pytest.raises(errors.LaunchError, match="512 threads a block, of at most 256"):
        wgpu.launch(double, 1, 512, wgpu.empty(3))


def test_a_launch_configuration_covers_its_elements_within_the_limits() -> None:
    def covers(case: tuple[str, int]) -> None:
        api, elements = case
        limits = limits_of(api)
        grid, block = launch_configuration(elements, limits)
        assert grid[0] <= limits.grid[0] and block[0] <= limits.threads_per_block
        assert grid[0] * block[0] >= elements and grid[1:] == block[1:] == (1, 1)
        assert block[0] % min(limits.warp, block[0]) == 0

    check_all(product(("cuda", "hip", "metal", "wgpu", "native"), (1, 31, 256, 257, MILLION, 65_535 * 256)), covers)
    check_all(product(("cuda", "hip", "metal", "native"), (10**10,)), covers)
    assert dims(7) == (7, 1, 1) and dims((1, 2)) == (1, 2, 1)
    assert launch_configuration(0, limits_of("cuda")) == launch_configuration(1, limits_of("cuda"))
    with pytest.raises(ValueError, match="-1 elements"):
        launch_configuration(-1, limits_of("cuda"))


@windtunnel.kernel
def double_in_rows(a: windtunnel.f32[:]) -> None:
    """Double each element; the threads of a grid with several rows."""
    i = windtunnel.grid(1) + windtunnel.blockIdx.y * windtunnel.gridsize(1)
    if i < len(a):
        a[i] = 2.0 * a[i]


def test_a_launch_configuration_that_one_axis_cannot_cover_names_those_that_do() -> None:
    """WebGPU allows 65,535 blocks of 256 threads along x: 16,776,960 elements."""
    wgpu = windtunnel.device("rtx-4090@wgpu")
    elements = 17_000_000
    with pytest.raises(errors.InvalidArgument, match="cover 16,776,960 elements; expected loops=True") as raised:
        wgpu.configuration(elements)
    assert wgpu.configuration(elements, loops=True) == ((65_535, 1, 1), (256, 1, 1))
    found = re.search(r"the grid \((\d+), (\d+), 1\)", str(raised.value))
    assert found is not None
    grid = (int(found[1]), int(found[2]), 1)
    ones = wgpu.to_device(np.ones(elements, np.float32))
    wgpu.launch(double_in_rows, grid, 256, ones)
    assert (wgpu.to_host(ones) == 2.0).all()
    with pytest.raises(errors.InvalidArgument, match="expected block=256, or loops=True"):
        wgpu.configuration(65_535 * 256, block=64)


# Budgets.


def test_a_budget_that_is_kept_passes_and_one_that_is_not_says_by_how_much(device: Accelerator) -> None:
    array = np.ones(1000, np.float32)
    with device.expect(time_s=1e-3, energy_j=1.0, launches=1, copied_bytes=8000):
        a = device.to_device(array)
        device.launch(double, 4, 256, a)
        device.to_host(a)
    said = r"launches 2 \(limit 1\); copied_bytes 4,000 \(limit 3,999\)"
    with pytest.raises(BudgetExceeded, match=said), device.expect(launches=1, copied_bytes=3999):
        device.launch(double, 4, 256, a)
        device.launch(double, 4, 256, a)
        device.to_host(a)
    assert issubclass(BudgetExceeded, AssertionError)
    with pytest.raises(errors.InputError, match="no limit 'time'.*did you mean 'time_s'"):
        device.expect(time=1.0)


def test_a_budget_of_time_leaves_out_the_compilation_of_a_real_devices_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(context, "time", SimpleNamespace(perf_counter=lambda: now[0], sleep=time.sleep))
    real = open_real_device("cpu:0")
    build = real.context.driver.build

    def slow_build(emitted: Any) -> Any:
        now[0] += 100.0
        return build(emitted)

    monkeypatch.setattr(real.context.driver, "build", slow_build)
    a = real.to_device(np.ones(8, np.float32))
    for _ in range(2):  # only the first launch compiles
        with real.expect(time_s=1.0, launches=1):
            real.launch(add_one, 1, 8, a)
    assert (real.to_host(a) == 3).all() and real.clock_s == 100.0
    with pytest.raises(BudgetExceeded, match=r"time_s 2.000 s \(limit 1.000 s\)"), real.expect(time_s=1.0):
        now[0] += 2.0
    real.close()


def test_copies_through_a_buffer_are_counted_and_struck_like_any_other(device: Accelerator) -> None:
    a, b = device.empty(10), device.empty(20)
    with device.faults({"kind": "copy_failure", "on": "copy_within"}):
        a.copy_from(np.ones(10, np.float32))
        with pytest.raises(errors.CopyError):
            b.copy_within(a)
    b.copy_within(a)
    found = np.zeros(10, np.float32)
    b.copy_to(found)
    assert (found == 1).all() and device.counters.copied_bytes == 3 * 40
    with pytest.raises(errors.InvalidArgument, match="does not fit into"):
        a.copy_within(b)


WITHOUT_COPIES = frozenset(("server",))


def test_every_device_of_the_catalogue_opens_and_copies() -> None:
    def opens_and_copies(sku: str) -> None:
        device = windtunnel.device(sku)
        assert device.info.virtual and device.clock_s == 0.0
        if sku in WITHOUT_COPIES:
            with pytest.raises(errors.InputError):
                device.to_device(np.ones(1000, np.float32))
            return
        device.to_device(np.ones(1000, np.float32))
        assert device.counters.copied_bytes == 4000 and device.energy_j > 0.0

    check_all(windtunnel.catalogue().skus(), opens_and_copies)


def test_what_was_there_before_a_reset_is_gone(device: Accelerator) -> None:
    a = device.to_device(np.ones(10, np.float32))
    device.reset()
    assert a.freed and device.allocated_bytes == 0
    for program in (lambda: device.launch(double, 1, 32, a), lambda: device.to_host(a), a.free):
        with pytest.raises(errors.InvalidArgument, match="was freed"):
            program()


def test_who_watches_later_takes_nothing_from_who_watched_before(device: Accelerator) -> None:
    first, second = device.start_trace(), device.start_trace()
    device.empty(3).copy_from(np.ones(3, np.float32))
    assert len(first) == len(second) == 1


def test_a_graph_moves_unified_memory_as_a_launch_does(device: Accelerator) -> None:
    a = device.empty(MILLION, kind="unified")
    graph = device.graph()
    graph.launch(double, *device.configuration(MILLION), a)
    compiled = graph.compile()
    a.host()[...] = 1
    moved = took(device, lambda: (compiled.replay(), device.synchronize()))
    stays = took(device, lambda: (compiled.replay(), device.synchronize()))
    assert moved > stays + 0.9 * predicted("copy", bytes=4 * MILLION, direction="h2d", memory="unified")
    assert (a.host() == 4).all()


def test_a_budget_counts_what_nobody_has_waited_for(device: Accelerator) -> None:
    @windtunnel.kernel(work={"op": "gemm", "m": 4096, "n": 4096, "k": 4096, "dtype": "float32"})
    def big(a: np.ndarray) -> None:
        pass

    a = device.empty(4)
    with pytest.raises(BudgetExceeded, match="time_s"), device.expect(time_s=1e-4):
        device.launch(big, 1, 32, a)
    device.synchronize()
    with pytest.raises(BudgetExceeded, match="energy_j"), device.expect(energy_j=1e-2):
        device.launch(big, 1, 32, a)
    before = device.clock_s
    with device.expect(launches=1):
        device.launch(big, 1, 32, a)
    assert device.clock_s - before < 1e-4, "asking what was spent waits for nothing"


@pytest.mark.parametrize("wrong", [{"time_s": float("nan")}, {"energy_j": -1}, {"launches": "3"}, {}])
def test_a_budget_that_is_none_is_refused(device: Accelerator, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.InputError):
        device.expect(**wrong)


def test_a_copy_to_the_host_is_there_when_it_has_ended_and_not_before(device: Accelerator) -> None:
    a, found = device.to_device(np.ones(MILLION, np.float32)), np.zeros(MILLION, np.float32)
    stream = device.stream()
    device.copy_out(found, a, stream, pinned=True)
    assert not found.any()
    stream.synchronize()
    assert (found == 1).all()
    again = np.zeros(MILLION, np.float32)
    device.copy_out(again, a, stream, pinned=True)
    device.sleep(1.0)
    assert (again == 1).all(), "time passed, and it arrived"


def test_empty_kernels_and_one_wait_take_what_predict_says_through_every_api() -> None:
    @windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1, "flops": 0.0})
    def nothing() -> None:
        pass

    def takes_as_long(case: tuple[str, int]) -> None:
        sku, count = case
        device = windtunnel.device(sku)
        device.sleep(1e-3)
        before = device.clock_s
        for _ in range(count):
            device.launch(nothing, 1, 1)
        device.synchronize()
        seconds = windtunnel.predict("launch", sku, {"mode": "stream", "count": count}).duration_s
        assert device.clock_s - before == pytest.approx(seconds, rel=0.02)

    skus = ("rtx-4090@opencl", "a100-sxm-40gb@opencl", "mi250x@opencl", "l4", "mi300x", "rtx-4090@vulkan")
    check_all(product(skus, (1, 2, 50)), takes_as_long)


def test_kernels_on_two_cores_of_a_processor_run_side_by_side() -> None:
    def took_by(streams: int) -> float:
        device = windtunnel.device("epyc-9654")
        each = [device.stream(non_blocking=True) for _ in range(streams)]
        arrays = [device.to_device(np.ones(MILLION, np.float32)) for _ in range(2)]
        before = device.clock_s
        for number, a in enumerate(arrays):
            device.launch(double, 1, 1, a, stream=each[number % streams])
        device.synchronize()
        return device.clock_s - before

    assert took_by(2) < 0.7 * took_by(1)


def test_a_kernel_that_returns_its_result_is_told_that_nobody_takes_it(device: Accelerator) -> None:
    with pytest.raises(errors.InvalidArgument, match="returned a value"):
        device.launch(lambda a: 2 * a, 1, 32, device.empty(4))
