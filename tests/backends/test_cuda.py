"""What is special to CUDA's and ROCm's driver, over a stand-in for CuPy (fake_cupy.py): no GPU takes part."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.fake_compilers import nvrtc
from tests.backends.fake_cupy import FakeCupy
from tests.backends.test_nvml import FakeNvml

import windtunnel
from windtunnel import blockIdx, cg, f32, grid, i32, shared, syncthreads, threadIdx
from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.discovery.registry import backend
from windtunnel.codegen import transpile
from windtunnel.core import errors
from windtunnel.runtime.accelerator import Accelerator

ONES = np.ones(64, np.float32)


@windtunnel.kernel
def doubled(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] *= 2


@windtunnel.kernel
def doubled_rows(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i // a.shape[1], i % a.shape[1]] *= 2


@windtunnel.kernel
def incremented(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] += 1


@windtunnel.kernel
def added(a, b, c):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def scaled(a: f32[:, :], factor: f32, shift: i32, cooperative: bool) -> None:  # type: ignore[valid-type]
    i = grid(1)
    if i < a.shape[1]:
        a[blockIdx.y, i] = a[blockIdx.y, i] * factor + shift
        if cooperative:
            a[blockIdx.y, i] += 1000


@windtunnel.kernel
def turned(a):  # type: ignore[no-untyped-def]
    tile = shared.array(64, f32)
    tile[threadIdx.x] = a[threadIdx.x]
    syncthreads()
    a[threadIdx.x] = tile[63 - threadIdx.x]


@windtunnel.kernel
def turned_dynamic(a):  # type: ignore[no-untyped-def]
    tile = shared.array(0, f32)
    tile[threadIdx.x] = a[threadIdx.x]
    syncthreads()
    a[threadIdx.x] = tile[63 - threadIdx.x]


@windtunnel.kernel
def met(a, b):  # type: ignore[no-untyped-def]
    i = grid(1)
    a[i] = i
    cg.this_grid().sync()
    b[i] = a[a.size - 1 - i]


@windtunnel.kernel
def too_much(a):  # type: ignore[no-untyped-def]
    tile = shared.array(20_000, f32)
    tile[threadIdx.x] = 0
    a[threadIdx.x] = tile[threadIdx.x]


@pytest.fixture
def cupy() -> FakeCupy:
    return FakeCupy()


@pytest.fixture
def device(cupy: FakeCupy) -> Any:
    with Accelerator(cupy_context.open_context(cupy, "cuda", 0)) as opened:
        yield opened


# Memory.


def test_memory_is_given_back_by_free_by_reset_and_with_the_device(cupy: FakeCupy) -> None:
    device = Accelerator(cupy_context.open_context(cupy, "cuda", 0))
    buffers = [
        device.empty(size, np.uint8, kind=kind) for size in (1, 3, 1023) for kind in ("device", "unified", "pinned")
    ]
    assert cupy.allocated() == 9
    buffers[0].free()
    assert cupy.allocated() == 8
    device.reset()
    assert cupy.allocated() == 0
    device.empty(7, np.uint8)
    device.close()
    assert cupy.allocated() == 0


@pytest.mark.parametrize("kind", ["device", "unified", "pinned"])
@pytest.mark.parametrize("size", [1, 3, 5, 255, 1021])
def test_memory_of_odd_sizes_keeps_every_byte(device: Any, kind: str, size: int) -> None:
    values = np.arange(size).astype(np.uint8)
    before, buffer, after = (device.empty(size, np.uint8, kind=kind) for _ in range(3))
    for one, shift in ((before, 1), (buffer, 0), (after, 2)):
        one.copy_from(values + np.uint8(shift))
    other = device.empty(size, np.uint8)
    other.copy_within(buffer)
    for one, shift in ((before, 1), (buffer, 0), (after, 2), (other, 0)):
        assert np.array_equal(device.to_host(one), values + np.uint8(shift))


def test_what_nobody_closed_goes_back_with_the_last_who_holds_it(cupy: FakeCupy) -> None:
    device = Accelerator(cupy_context.open_context(cupy, "cuda", 0))
    buffer = device.empty(100, kind="pinned")
    view = buffer.host()
    del device, buffer
    gc.collect()
    assert cupy.allocated() == 1 and view.shape == (100,)
    del view
    gc.collect()
    assert cupy.allocated() == 0


def test_pinned_and_unified_memory_that_was_freed_lives_while_it_is_looked_at(device: Any, cupy: FakeCupy) -> None:
    for kind in ("pinned", "unified"):
        buffer = device.empty(8, kind=kind)
        view = buffer.host()
        view[:] = 5
        buffer.free()
        assert (view == 5).all() and cupy.allocated() == 1 and device.allocated_bytes == 0
        del view, buffer
        gc.collect()
        assert cupy.allocated() == 0


def test_a_copy_from_an_array_that_is_called_pinned_and_is_not_is_waited_for(device: Any) -> None:
    values, found = np.ones(64, np.float32), np.zeros(64, np.float32)
    buffer, stream = device.empty(64), device.stream()
    buffer.copy_from(values, stream, pinned=True)
    values[:] = 9
    buffer.copy_to(found, stream, pinned=True)
    assert (found == 1).all()


def test_a_copy_from_pinned_memory_goes_on_while_the_host_does(device: Any) -> None:
    held, target = (device.empty(64, kind="pinned").host() for _ in range(2))
    buffer, stream = device.empty(64), device.stream()
    held[:], target[:] = 1, 0
    buffer.copy_from(held, stream, pinned=True)
    buffer.copy_to(target, stream, pinned=True)
    assert (target == 0).all()
    held[:] = 9  # the stand-in copies only when somebody waits, and finds this
    stream.synchronize()
    assert (target == 9).all()


def test_an_array_that_ends_beyond_pinned_memory_is_not_taken_for_pinned(device: Any, cupy: FakeCupy) -> None:
    driver = device.context.driver
    buffer = device.empty(64, np.uint8, kind="pinned")
    address = buffer.memory.handle.address
    assert driver.pinned(address, 64) and not driver.pinned(address, 65)
    hip = cupy_context.open_context(FakeCupy(hip=True), "hip", 0).driver
    assert not hip.pinned(ONES.ctypes.data, ONES.nbytes)


# Streams, events and kernels.


def test_the_default_stream_is_the_legacy_one_and_no_events_are_made_to_order_it(device: Any, cupy: FakeCupy) -> None:
    buffer, stream = device.to_device(ONES), device.stream()
    assert device.context.default.native is cupy.cuda.Stream.null
    cupy.calls.clear()
    for _ in range(3):
        device.launch(incremented, 1, 64, buffer, stream=stream)
        device.launch(doubled, 1, 64, buffer)
    assert not {"eventCreate", "eventRecord", "streamWaitEvent", "streamSynchronize"} & set(cupy.calls)
    assert (device.to_host(buffer) == 22).all()


def test_time_stamps_are_the_device_s(device: Any, cupy: FakeCupy) -> None:
    first, last, buffer = device.event(), device.event(), device.to_device(ONES)
    first.record()
    for _ in range(7):
        device.launch(doubled, 1, 64, buffer)
    last.record()
    last.synchronize()
    assert last.elapsed_s(first) == pytest.approx(8e-6)  # the stand-in's clock counts what was done


def test_arguments_are_passed_as_the_kernel_has_them(device: Any) -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    buffer = device.to_device(values)
    device.launch(scaled, (1, 3), 4, buffer, 2.5, -3, True)
    assert np.array_equal(device.to_host(buffer), values * np.float32(2.5) + 997)
    device.launch(scaled, (1, 3), 4, buffer, np.float64(1), 3, False)
    assert np.array_equal(device.to_host(buffer), values * np.float32(2.5) + 1000)


def test_a_kernel_is_built_once_for_its_types_and_without_flushing_subnormals(device: Any, cupy: FakeCupy) -> None:
    for dtype in (np.float32, np.float32, np.int32):
        device.launch(doubled, 1, 64, device.to_device(ONES.astype(dtype)))
    assert cupy.calls.count("compile_using_nvrtc") == 2
    assert cupy.options == [("--fmad=false",)] * 2
    emitted = transpile(scaled, "cuda")
    text, _ = nvrtc(emitted.source, (*emitted.options, "-arch=compute_90"))
    assert b"mul.rn.f32" in text and b".ftz" not in text and b"fma." not in text


@pytest.mark.parametrize("kernel", [turned, turned_dynamic])
def test_shared_memory_is_a_block_s(device: Any, kernel: Any) -> None:
    values = np.arange(64, dtype=np.float32)
    buffer = device.to_device(values)
    device.launch(kernel, 1, 64, buffer, shared_bytes=256 if kernel is turned_dynamic else 0)
    assert np.array_equal(device.to_host(buffer), values[::-1])


def test_more_than_48_kib_of_shared_memory_is_asked_for_and_both_kinds_together_have_a_limit(
    device: Any, cupy: FakeCupy
) -> None:
    most = device.info.limits.shared_bytes
    assert most == 232448
    buffer = device.to_device(ONES)
    device.launch(turned_dynamic, 1, 64, buffer, shared_bytes=48 * 1024)
    assert "funcSetAttribute" not in cupy.calls
    device.launch(turned_dynamic, 1, 64, buffer, shared_bytes=most)
    assert "funcSetAttribute" in cupy.calls
    device.launch(turned, 1, 64, buffer, shared_bytes=most - 256)
    with pytest.raises(errors.LaunchError, match="232,449 bytes of shared memory, 256 of them static") as caught:
        device.launch(turned, 1, 64, buffer, shared_bytes=most - 255)
    assert caught.value.code.number == 9
    device.synchronize()


def test_a_barrier_of_the_grid_is_launched_as_such_and_no_further_than_all_blocks_fit(device: Any) -> None:
    a, b = (device.empty(128) for _ in range(2))
    device.launch(met, 4, 32, a, b)
    assert np.array_equal(device.to_host(b), np.arange(128)[::-1])
    big = device.empty(1024 * 9)
    with pytest.raises(errors.LaunchError, match="needs all 9 blocks resident at once; 8 fit") as caught:
        device.launch(met, 9, 1024, big, big)
    assert (caught.value.code.name, caught.value.code.number) == ("cudaErrorCooperativeLaunchTooLarge", 720)


def test_a_build_failure_names_the_kernel_and_says_what_the_compiler_did(device: Any) -> None:
    with pytest.raises(errors.LaunchError, match="launch too_much .*uses too much shared data"):
        device.launch(too_much, 1, 64, device.empty(64))


def test_headers_of_the_api_are_found_where_no_toolkit_is_installed(device: Any, cupy: FakeCupy) -> None:
    buffer = device.to_device(np.array([0.1, 1, 60000], np.float16))
    device.launch(doubled, 1, 64, buffer)
    assert np.array_equal(device.to_host(buffer), np.array([0.2, 2, np.inf], np.float16))
    (options,) = cupy.options
    assert all((Path(one.removeprefix("-I")) / "..").is_dir() for one in options if one.startswith("-I"))
    assert any((Path(one.removeprefix("-I")) / "cuda_fp16.h").is_file() for one in options)


def test_headers_that_are_not_here_are_named_with_what_has_them(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.backends.cuda.driver.CupyDriver._installations", lambda self: iter(()))
    with pytest.raises(errors.LaunchError, match="pip install nvidia-cuda-runtime-cu12"):
        device.launch(doubled, 1, 64, device.to_device(ONES.astype(np.float16)))


# Errors.


@pytest.mark.parametrize(
    ("call", "status", "kind", "name"),
    [
        ("malloc", 2, errors.DeviceOutOfMemory, "cudaErrorMemoryAllocation"),
        ("malloc", 46, errors.DeviceLost, "cudaErrorDevicesUnavailable"),
        ("memcpyAsync", 1, errors.InvalidArgument, "cudaErrorInvalidValue"),
        ("launchKernel", 719, errors.LaunchError, "cudaErrorLaunchFailure"),
        ("streamSynchronize", 214, errors.EccError, "cudaErrorECCUncorrectable"),
        ("streamSynchronize", 702, errors.DeviceHang, "cudaErrorLaunchTimeout"),
    ],
)
def test_what_the_api_says_is_the_error_s_kind_and_its_code(
    device: Any, cupy: FakeCupy, call: str, status: int, kind: type[Exception], name: str
) -> None:
    buffer = device.to_device(ONES)
    cupy.fail[call] = status
    program = {
        "malloc": lambda: device.empty(64),
        "memcpyAsync": lambda: buffer.copy_from(ONES),
        "launchKernel": lambda: device.launch(doubled, 1, 64, buffer),
        "streamSynchronize": device.synchronize,
    }[call]
    with pytest.raises(errors.DeviceError) as caught:
        program()
    assert type(caught.value) is kind
    assert (caught.value.code.api, caught.value.code.name, caught.value.code.number) == ("cuda", name, status)
    assert caught.value.device == device.name and caught.value.operation in str(caught.value)


def test_a_kernel_that_fails_is_told_when_it_is_waited_for_and_ends_the_device(device: Any, cupy: FakeCupy) -> None:
    buffer = device.to_device(ONES)
    cupy.break_next_kernel(700)
    device.launch(doubled, 1, 64, buffer)
    with pytest.raises(errors.LaunchError, match="illegal memory access") as caught:
        device.synchronize()
    assert (caught.value.code.name, caught.value.code.number) == ("cudaErrorIllegalAddress", 700)
    for program in (lambda: device.empty(3), device.synchronize, lambda: device.to_host(buffer), device.stream):
        with pytest.raises(errors.LaunchError, match="illegal memory access"):
            program()
    buffer.free()  # cleaning up does not hide what failed first
    assert buffer.freed and device.allocated_bytes == 0


def test_nothing_is_printed_on_the_way_from_opening_to_a_failure(capfd: Any) -> None:
    cupy = FakeCupy()
    device = Accelerator(cupy_context.open_context(cupy, "cuda", 0))
    buffer = device.to_device(ONES)
    with pytest.raises(errors.LaunchError):
        device.launch(too_much, 1, 64, buffer)
    cupy.break_next_kernel(719)
    device.launch(doubled, 1, 64, buffer)
    with pytest.raises(errors.LaunchError):
        device.synchronize()
    device.close()
    del device, buffer
    gc.collect()
    assert capfd.readouterr() == ("", "")


# Graphs.


def test_a_graph_forks_and_joins_and_is_one_launch(device: Any, cupy: FakeCupy) -> None:
    a, b, c, out = device.empty(64), device.empty(64), device.empty(64), np.zeros(64, np.float32)
    left, right, graph = ONES.copy(), 3 * ONES, device.graph()
    one, two = graph.copy_in(a, left), graph.copy_in(b, right)
    for _ in range(3):
        one = graph.launch(incremented, 1, 64, a, after=[one])
        two = graph.launch(doubled, 1, 64, b, after=[two])
    both = graph.launch(added, 1, 64, a, b, c, after=[one, two])
    graph.copy_out(out, c, after=[both])
    compiled = graph.compile()
    compiled.replay()
    device.synchronize()
    assert (out == 4 + 24).all()
    left[:], out[:] = 10, 0
    cupy.calls.clear()
    compiled.replay(device.stream(non_blocking=True))
    assert cupy.calls.count("graphLaunch") == 1
    assert not {"launchKernel", "memcpyAsync", "streamBeginCapture"} & set(cupy.calls)
    device.synchronize()
    assert (out == 13 + 24).all()


def test_a_graph_of_copies_takes_arrays_with_strides(device: Any) -> None:
    source, target = np.arange(24, dtype=np.float32).reshape(4, 6), np.zeros((6, 4), np.float32)
    one, other = device.empty((4, 3)), device.empty((4, 3))
    graph = device.graph()
    first = graph.copy_in(one, source[:, ::2])
    second = graph.copy_within(other, one, after=[first])
    third = graph.launch(doubled_rows, 1, 64, other, after=[second])
    graph.copy_out(target.T[:, ::2], other, after=[third])
    compiled = graph.compile()
    for shift in (0, 100):
        source += shift
        compiled.replay()
        compiled.replay()
        assert np.array_equal(target.T[:, ::2], 2 * source[:, ::2])
        assert not target.T[:, 1::2].any()


def test_a_graph_waits_for_an_event_of_another_stream(device: Any) -> None:
    buffer, out = device.to_device(ONES), np.zeros(64, np.float32)
    one, two = (device.stream(non_blocking=True) for _ in range(2))
    graph = device.graph()
    graph.copy_out(out, buffer, after=[graph.launch(doubled, 1, 64, buffer)])
    compiled, event = graph.compile(), device.event()
    for _ in range(5):
        device.launch(incremented, 1, 64, buffer, stream=one)
    event.record(one)
    two.wait(event)
    compiled.replay(two)
    two.synchronize()
    assert (out == 12).all()


def test_a_captured_graph_goes_with_what_it_was_captured_from(device: Any) -> None:
    buffer = device.to_device(ONES)
    with device.capture() as graph:
        device.launch(doubled, 1, 64, buffer)
    compiled = graph.compile()
    compiled.replay()
    assert len(device.context._graphs) == 1
    del compiled
    gc.collect()
    assert len(device.context._graphs) == 0


def test_a_graph_that_cannot_be_captured_leaves_streams_that_work(device: Any, cupy: FakeCupy) -> None:
    buffer = device.to_device(ONES)
    with device.capture() as graph:
        device.launch(doubled, 1, 64, buffer)
    compiled = graph.compile()
    cupy.fail["launchKernel"] = 1
    with pytest.raises(errors.InvalidArgument, match="replay a graph"):
        compiled.replay()
    compiled.replay()
    device.launch(incremented, 1, 64, buffer)
    assert (device.to_host(buffer) == 3).all()


def test_an_empty_graph_is_nothing(device: Any, cupy: FakeCupy) -> None:
    device.graph().compile().replay()
    assert "graphLaunch" not in cupy.calls


def test_work_of_a_stream_that_a_program_dropped_is_waited_for_all_the_same(device: Any) -> None:
    buffer, found = device.to_device(ONES), device.empty(64, kind="pinned").host()
    found[:] = 0
    device.launch(doubled, 1, 64, buffer, stream=device.stream(non_blocking=True))
    device.synchronize()
    buffer.copy_to(found, device.stream(non_blocking=True), pinned=True)
    gc.collect()
    device.synchronize()
    assert (found == 2).all()


# Several devices, threads and energy.


def test_each_thread_s_calls_go_to_their_own_device() -> None:
    cupy = FakeCupy(devices=2)
    devices = [Accelerator(cupy_context.open_context(cupy, "cuda", index)) for index in range(2)]
    found: dict[int, bool] = {}

    def work(number: int) -> None:
        device = devices[number]
        buffer, stream = device.to_device(ONES), device.stream()
        for _ in range(20):
            device.launch(incremented, 1, 64, buffer, stream=stream)
        found[number] = bool((device.to_host(buffer, stream) == 21).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: True, 1: True}
    # And in turn, in one thread.
    for device in (*devices, *devices):
        assert (device.compute(added, ONES, ONES) == 2).all()
        device.synchronize()


def test_energy_is_the_counter_s_since_it_was_opened_or_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    without = Accelerator(cupy_context.open_context(FakeCupy(), "cuda", 0))
    assert np.isnan(without.energy_j) and without.info.driver == "CUDA 12.9"
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    having = Accelerator(cupy_context.open_context(FakeCupy(), "cuda", 0))
    assert [having.energy_j, having.energy_j] == [70.0, 140.0]
    assert having.info.driver == "CUDA 12.9, driver 550.54.15"


# What is here.


def test_devices_are_found_with_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(devices=2))
    one, two = backend("cuda").find()
    assert (one.name, two.name, one.label, one.kind, one.software) == (
        "cuda:0",
        "cuda:1",
        "Stand-in (no GPU)",
        "gpu",
        False,
    )
    assert one.memory_bytes == 2**33 and one.driver == "CUDA 12.9" and one.vendor == "NVIDIA"
    make = backend("cuda").context
    assert make is not None and make(1).info.name == one.label
    with pytest.raises(errors.DeviceNotPresentError, match="cuda:2 not found: cuda has 2 devices"):
        make(2)


@pytest.mark.parametrize("driver", [0, 12090])
def test_without_a_device_or_a_driver_none_is_found(monkeypatch: pytest.MonkeyPatch, driver: int) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(devices=0, driver=driver))
    assert backend("cuda").find() == []


def test_a_driver_too_old_for_the_library_is_not_called_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(devices=0, driver=11040))
    with pytest.raises(RuntimeError, match="driver version is insufficient"):
        backend("cuda").find()


@pytest.mark.parametrize(("name", "hip"), [("cuda", True), ("hip", False)])
def test_the_other_build_of_cupy_is_a_missing_package(monkeypatch: pytest.MonkeyPatch, name: str, hip: bool) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCupy(hip=hip))
    with pytest.raises(ImportError, match="is the build for"):
        backend(name).find()


def test_a_host_without_a_driver_s_files_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    there: set[str] = set()
    monkeypatch.setattr(Path, "exists", lambda self: str(self) in there)
    for name, sign in (("cuda", "/proc/driver/nvidia"), ("cuda", "/dev/dxg"), ("hip", "/dev/kfd")):
        there.clear()
        assert not backend(name).present()
        there.add(sign)
        assert backend(name).present()


@pytest.mark.parametrize(
    ("major", "minor", "expected"),
    [
        (6, 1, {"graphs", "pinned", "unified", "float16", "int8"}),
        (7, 5, {"graphs", "pinned", "unified", "float16", "int8", "matrix"}),
        (8, 6, {"graphs", "pinned", "unified", "float16", "int8", "matrix", "bfloat16"}),
        (9, 0, {"graphs", "pinned", "unified", "float16", "int8", "matrix", "bfloat16", "fp8"}),
        (12, 0, {"graphs", "pinned", "unified", "float16", "int8", "matrix", "bfloat16", "fp8", "fp4"}),
    ],
)
def test_features_are_by_compute_capability(major: int, minor: int, expected: set[str]) -> None:
    assert cupy_context.open_context(FakeCupy(major=major, minor=minor), "cuda", 0).info.features == expected
    without = FakeCupy(major=major, minor=minor, concurrentManagedAccess=0, canMapHostMemory=0)
    assert cupy_context.open_context(without, "cuda", 0).info.features == expected - {"unified", "pinned"}


def test_rocm_has_no_graphs_and_no_barrier_of_the_grid_and_says_so() -> None:
    device = Accelerator(cupy_context.open_context(FakeCupy(hip=True, warpSize=64), "hip", 0))
    assert (
        device.info.features == {"pinned", "unified", "float16", "int8", "bfloat16"} and device.info.limits.warp == 64
    )
    with pytest.raises(errors.UnsupportedOperationError, match="does not launch kernels with a grid barrier"):
        device.launch(met, 1, 32, device.empty(32), device.empty(32))
    with device.capture() as graph:
        device.copy_in(device.empty(64), ONES)
    with pytest.raises(errors.InvalidArgument, match="does not support graphs"):
        graph.compile().replay()
    buffer = device.to_device(ONES)
    device.launch(doubled, 1, 64, buffer)
    assert (device.to_host(buffer) == 2).all()
