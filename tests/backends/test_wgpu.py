"""What is special to devices behind wgpu: the rest of them goes through `tests/conformance`."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.backends.test_nvml import FakeNvml

import windtunnel
from windtunnel import f32, grid, i32, shared, syncthreads, threadIdx, u32
from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.wgpu import backend as module
from windtunnel.backends.wgpu import driver as driver_module
from windtunnel.codegen import transpile
from windtunnel.core import errors
from windtunnel.runtime.accelerator import Accelerator

# ruff: noqa: ANN001


@windtunnel.kernel
def add_number(a: u32[:], n: u32):
    i = grid(1)
    if i < a.size:
        a[i] += n


@windtunnel.kernel
def store_number(a: u32[:], place: i32, n: u32):
    a[place] = n


@windtunnel.kernel
def stir(a: u32[:], rounds: i32):
    i = grid(1)
    x = a[i]
    for _ in range(rounds):
        x = x * u32(1664525) + u32(1013904223)
    a[i] = x


@windtunnel.kernel
def first_of_two(a: f32[:], unused: f32[:, :], n: i32, out: f32[:]):
    i = grid(1)
    if i < out.size:
        out[i] = a[i]


@windtunnel.kernel
def copy_each(a: f32[:], out: f32[:]):
    i = grid(1)
    if i < out.size:
        out[i] = a[i]


@windtunnel.kernel
def much_shared(out: f32[:]):
    held = shared.array(10_000, f32)
    held[threadIdx.x] = out[threadIdx.x]
    syncthreads()
    out[threadIdx.x] = held[threadIdx.x ^ 1]


def opened(index: int = 0) -> Accelerator:
    context = backend("wgpu").context
    assert context is not None
    return Accelerator(context(index))


@pytest.fixture
def device() -> Any:
    with opened() as found:
        yield found


def driver_of(device: Accelerator) -> driver_module.WgpuDriver:
    driver = device.context.driver  # type: ignore[attr-defined]
    assert isinstance(driver, driver_module.WgpuDriver)
    return driver


# What it says of itself.


def test_the_device_says_what_it_is_and_where_its_figures_come_from(device: Accelerator) -> None:
    info, limits = device.info, driver_of(device).limits
    (found,) = [one for one in backend("wgpu").find() if one.index == 0]
    assert (found.label, found.kind, found.software, found.driver) == (info.name, info.kind, info.software, info.driver)
    assert info.driver.startswith("wgpu-native ") and " on " in info.driver
    assert info.limits.threads_per_block == limits["max-compute-invocations-per-workgroup"]
    assert (
        info.limits.atomic_bits == 32
        and "limits of the adapter" in info.limits.source
        and "memory" in info.limits.source
    )
    assert ("float16" in info.features) == ("shader-f16" in driver_of(device).features)
    # Of a software device the memory is the host's.
    if info.software:
        assert info.memory_bytes == found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_adapter_s_limits_are_asked_for_and_not_the_standard_s(device: Accelerator) -> None:
    from wgpu import gpu

    adapter = module._best(gpu.enumerate_adapters_sync())[0]
    limits = driver_of(device).limits
    for name in ("max-buffer-size", "max-storage-buffer-binding-size", "max-compute-invocations-per-workgroup"):
        assert limits[name] == adapter.limits[name]
    # WebGPU's default is 256 MiB, and no Vulkan driver offers as little.
    assert limits["max-buffer-size"] > 1 << 28


def adapter_like(device: str, way: str, kind: str, features: frozenset[str] = frozenset(), threads: int = 256) -> Any:
    info = {"device": device, "backend_type": way, "adapter_type": kind, "description": "565.1", "vendor": ""}
    return SimpleNamespace(info=info, features=features, limits={"max-compute-invocations-per-workgroup": threads})


def test_hardware_comes_first_and_opengl_only_where_nothing_better_reaches_the_device() -> None:
    software = adapter_like("llvmpipe", "Vulkan", "CPU")
    card = adapter_like("NVIDIA H200", "Vulkan", "DiscreteGPU")
    old = adapter_like("Old card", "OpenGL", "Unknown")
    twice = [adapter_like("llvmpipe", "OpenGL", "CPU"), adapter_like("NVIDIA H200/PCIe/SSE2", "OpenGL", "DiscreteGPU")]
    useless = adapter_like("Draws only", "OpenGL", "Unknown", threads=0)
    assert module._best([software, *twice, useless, card, old]) == [card, old, software]
    assert module._best(twice) == [twice[1], twice[0]]


def test_a_device_without_time_stamps_says_so_and_whose_memory_is_not_known_says_so() -> None:
    card = adapter_like("A card", "D3D12", "DiscreteGPU")
    assert "host's clock" in module._detected(0, card).driver
    timed = adapter_like("A card", "D3D12", "DiscreteGPU", frozenset({"timestamp-query"}))
    found = module._detected(0, timed)
    assert "clock" not in found.driver and "565.1" in found.driver
    assert (found.kind, found.software, found.memory_bytes) == ("gpu", False, 0.0)
    most = {
        "max-compute-workgroup-size-x": 1024, "max-compute-workgroup-size-y": 1024, "max-compute-workgroup-size-z": 64,
        "max-compute-workgroups-per-dimension": 65535, "max-compute-invocations-per-workgroup": 1024,
        "max-compute-workgroup-storage-size": 49152, "max-buffer-size": 1 << 40,
    }  # fmt: skip
    info = driver_module._info(found, most, frozenset(), 32)
    assert info.memory_bytes == 1 << 40 and "WebGPU reports no size" in info.limits.source


def test_a_device_that_is_not_here_is_none() -> None:
    with pytest.raises(errors.DeviceNotPresentError, match="wgpu:99 not found"):
        opened(99)


# Memory of any size.


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 65, 1001])
def test_bytes_of_any_number_are_written_and_the_neighbours_kept(device: Accelerator, size: int) -> None:
    before = np.full(2000, 7, np.uint8)
    for room in (size, size + 1, size + 2, 2000):
        buffer = device.to_device(before[:room])
        values = (np.arange(size) % 251 + 1).astype(np.uint8)
        buffer.copy_from(values)
        found = device.to_host(buffer)
        assert np.array_equal(found[:size], values) and (found[size:] == 7).all()
        part = np.full(size, 9, np.uint8)
        buffer.copy_to(part)
        assert np.array_equal(part, values)
        buffer.free()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 65, 1001])
def test_bytes_of_any_number_are_copied_and_the_neighbours_kept(device: Accelerator, size: int) -> None:
    values = (np.arange(size) % 251 + 1).astype(np.uint8)
    source = device.to_device(values)
    for room in (size, size + 1, size + 3, 2000):
        buffer = device.to_device(np.full(room, 7, np.uint8))
        buffer.copy_within(source)
        found = device.to_host(buffer)
        assert np.array_equal(found[:size], values) and (found[size:] == 7).all()
        buffer.free()


def test_a_write_that_ends_in_a_word_comes_after_the_work_before_it_and_before_the_next(device: Accelerator) -> None:
    buffer = device.to_device(np.zeros(4, np.uint32))
    tail = np.array([1, 2, 3, 4, 5, 6], np.uint8)
    view = windtunnel.runtime.buffers.Buffer(device, buffer.memory, (16,), np.dtype(np.uint8))
    device.launch(store_number, 1, 1, buffer, 1, 0xAABBCCDD)
    view.copy_from(tail)
    device.launch(add_number, 1, 4, buffer, 1)
    expected = np.array([0x04030201, 0xAABB0605, 0, 0], np.uint32) + np.uint32(1)
    assert np.array_equal(device.to_host(buffer), expected)


def test_more_than_is_staged_at_once_is_written_whole(device: Accelerator) -> None:
    values = np.random.default_rng(1).integers(0, 256, driver_module._STAGED + 5, np.uint8)
    buffer = device.to_device(values)
    assert driver_of(device).unsent == 0
    assert np.array_equal(device.to_host(buffer), values)


def test_a_wait_is_for_what_was_only_written_too(device: Accelerator) -> None:
    driver, stream = driver_of(device), device.stream()
    buffer = device.to_device(np.zeros(64, np.uint32), stream)
    assert driver.unsent == 256
    stream.synchronize()
    assert driver.unsent == 0 and driver.done == driver.sent > 0
    buffer.copy_from(np.ones(64, np.uint32))
    device.synchronize()
    assert driver.unsent == 0 and driver.done == driver.sent


def test_copies_to_pinned_arrays_land_when_the_stream_is_waited_for(device: Accelerator) -> None:
    streams = [device.stream(), device.stream(non_blocking=True)]
    buffers = [device.to_device(np.full(64, i, np.uint32)) for i in range(2)]
    arrays = [np.zeros(64, np.uint32) for _ in range(2)]
    for stream, buffer, array in zip(streams, buffers, arrays, strict=True):
        device.launch(add_number, 1, 64, buffer, 5, stream=stream)
        buffer.copy_to(array, stream, pinned=True)
    assert not arrays[0].any() and not arrays[1].any()
    streams[0].synchronize()
    assert (arrays[0] == 5).all() and not arrays[1].any()
    event = device.event()
    event.record(streams[1])
    event.synchronize()
    assert (arrays[1] == 6).all()


# Kernels.


def test_numbers_of_launches_under_way_are_not_overwritten(device: Accelerator) -> None:
    count = 2 * driver_module._BOUND + 3
    buffer = device.to_device(np.zeros(count, np.uint32))
    for _ in range(2):
        for i in range(count):
            device.launch(store_number, 1, 1, buffer, i, 7 * i + 1)
    assert np.array_equal(device.to_host(buffer), 7 * np.arange(count, dtype=np.uint32) + 1)
    assert len(driver_of(device).bound) <= driver_module._BOUND


def test_memory_that_was_given_back_is_bound_no_more(device: Accelerator) -> None:
    for value in range(3):
        buffer = device.to_device(np.full(4, value, np.uint32))
        device.launch(add_number, 1, 4, buffer, 1)
        assert (device.to_host(buffer) == value + 1).all()
        buffer.free()
        assert not driver_of(device).bound


def test_an_array_that_a_kernel_never_touches_is_taken(device: Accelerator) -> None:
    a, unused = device.to_device(np.arange(8, dtype=np.float32)), device.to_device(np.ones((2, 3), np.float32))
    out = device.empty(8)
    device.launch(first_of_two, 1, 8, a, unused, 3, out)
    assert np.array_equal(device.to_host(out), np.arange(8))


def refused(device: Accelerator, *launch: Any) -> errors.LaunchError:
    with pytest.raises(errors.LaunchError) as caught:
        device.launch(*launch)
    assert caught.value.code == errors.ApiCode("wgpu", "GPUValidationError")
    return caught.value


def test_more_shared_memory_than_there_is_is_refused(device: Accelerator) -> None:
    error = refused(device, much_shared, 1, 64, device.to_device(np.zeros(64, np.float32)))
    assert error.operation == "launch much_shared"
    assert error.problem == f"40,000 bytes of shared memory exceed the limit of {device.info.limits.shared_bytes:,}"


def test_an_array_larger_than_can_be_bound_is_refused_in_words(device: Accelerator) -> None:
    most = driver_of(device).limits["max-storage-buffer-binding-size"]
    large = device.empty(most // 4 + 1, np.uint32)
    error = refused(device, add_number, 1, 64, large, 1)
    assert str(most) in error.problem and "CreateBindGroup" in error.problem and "\n" not in error.problem


def test_one_array_read_and_written_under_two_names_is_refused(device: Accelerator) -> None:
    a = device.to_device(np.zeros(8, np.float32))
    assert "conflicting usages" in refused(device, copy_each, 1, 8, a, a).problem
    # The device is as it was.
    out = device.empty(8)
    device.launch(copy_each, 1, 8, a, out)
    assert not device.to_host(out).any()


def test_a_text_that_the_compiler_refuses_names_the_kernel_and_the_place(device: Accelerator) -> None:
    emitted = transpile(copy_each, "wgsl")
    broken = replace(emitted, source=emitted.source.replace("out[", "nowhere["))
    context: Any = device.context
    with pytest.raises(errors.LaunchError) as caught, context.driving("launch copy_each"):
        context.driver.build(broken)
    assert "'copy_each'" in caught.value.problem and "nowhere[" in caught.value.problem
    assert caught.value.code.name == "GPUValidationError"


def test_a_buffer_larger_than_the_largest_is_out_of_memory(device: Accelerator) -> None:
    most = driver_of(device).limits["max-buffer-size"]
    assert most < device.info.memory_bytes, "or else it is refused for want of memory, before the driver is asked"
    with pytest.raises(errors.DeviceOutOfMemory, match=f"greater than the maximum buffer size.*{most}") as caught:
        device.empty(most + 1, np.uint8)
    assert caught.value.code.name == "GPUValidationError" and device.allocated_bytes == 0


def test_a_lost_device_is_said_to_be_lost() -> None:
    device = opened()
    driver_of(device).device.destroy()
    with pytest.raises(errors.DeviceLost, match="Parent device is lost") as caught:
        device.to_device(np.zeros(4))
    assert caught.value.code.name == "GPUDeviceLostInfo: unknown" and caught.value.sticky


def test_what_the_library_only_logs_is_raised_in_its_thread_alone(
    device: Accelerator, capfd: pytest.CaptureFixture[str]
) -> None:
    buffer = device.to_device(np.zeros(4, np.uint32))
    other = threading.Thread(target=logging.getLogger("wgpu").error, args=("elsewhere",))
    other.start()
    other.join()
    device.launch(add_number, 1, 4, buffer, 1)
    logging.getLogger("wgpu").error("The WGPU device was lost (Unknown):\nit fell off the bus")
    with pytest.raises(errors.DeviceLost, match="it fell off the bus"):
        device.launch(add_number, 1, 4, buffer, 1)
    # It is said once.
    device.synchronize()
    assert capfd.readouterr() == ("", "")


def test_messages_are_one_line_but_for_what_points_at_a_source() -> None:
    told = "Validation Error\n\nCaused by:\n  In wgpuDeviceCreateBuffer\n    Too large\n"
    assert driver_module._one_line(told) == "In wgpuDeviceCreateBuffer: Too large"
    pointed = "Validation Error\n\nparsing error\n  ┌─ wgsl:1:45\n  │\n1 │ let x = ;"
    assert driver_module._one_line(pointed) == pointed


# Threads.


def test_each_thread_has_its_device_and_its_errors() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        with opened() as device:
            buffer = device.to_device(np.zeros(256, np.uint32))
            for _ in range(20):
                device.launch(add_number, 1, 256, buffer, number)
            said = None
            if number == 2:
                said = refused(device, much_shared, 1, 64, device.empty(64)).operation
            found[number] = (int(device.to_host(buffer).sum()), said)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {1: (20 * 256, None), 2: (2 * 20 * 256, "launch much_shared")}


def test_no_thread_stays_beside_a_device() -> None:
    before = set(threading.enumerate())
    device = opened()
    buffer, event = device.to_device(np.zeros(4, np.uint32)), device.event()
    event.record()
    event.synchronize()
    device.to_host(buffer)
    assert set(threading.enumerate()) == before
    del device, buffer, event
    gc.collect()


# Time.


def long_work(device: Accelerator) -> Any:
    return device.to_device(np.arange(4096, dtype=np.uint32))


def test_an_event_s_time_is_the_device_s_own(device: Accelerator) -> None:
    assert driver_of(device).stamps, "this host's device has time stamps"
    buffer = long_work(device)
    device.launch(stir, 16, 256, buffer, 1)
    device.synchronize()

    def elapsed_s(rounds: int) -> float:
        first, last, began = device.event(), device.event(), device.clock_s
        first.record()
        device.launch(stir, 16, 256, buffer, rounds)
        last.record()
        last.synchronize()
        seconds = last.elapsed_s(first)
        assert 0.0 < seconds < device.clock_s - began
        # Nanoseconds of a counter, whole numbers of its unit.
        ticks = seconds / driver_of(device).tick_s
        assert ticks == pytest.approx(round(ticks))
        return seconds

    # Other processes may delay the shorter kernel, but not every time.
    assert any(elapsed_s(20_000) < elapsed_s(200_000) for _ in range(100))


def test_what_was_reached_is_found_out_without_waiting(device: Accelerator) -> None:
    buffer, first, last = long_work(device), device.event(), device.event()
    first.record()
    device.launch(stir, 16, 256, buffer, 1000)
    last.record()
    driver: Any = driver_of(device)
    for event in (first, last):
        until = time.monotonic() + 600  # only a guard against hanging for ever
        while not driver.reached(event.mark):  # type: ignore[attr-defined]
            assert time.monotonic() < until
    assert last.elapsed_s(first) > 0.0


def test_launches_are_timed_one_by_one_when_that_is_asked_for(device: Accelerator) -> None:
    driver, buffer, context = driver_of(device), long_work(device), device.context
    device.launch(stir, 16, 256, buffer, 10)
    assert driver.busy_s(context.default.last) is None  # type: ignore[attr-defined]
    driver.timed = True
    marks: list[Any] = []

    def ascending() -> bool:
        marks.clear()
        first, last = device.event(), device.event()
        first.record()
        for rounds in (1, 5000, 50_000):
            device.launch(stir, 16, 256, buffer, rounds)
            marks.append(context.default.last)  # type: ignore[attr-defined]
        last.record()
        last.synchronize()
        short, middle, longest = (driver.busy_s(mark) for mark in marks)
        assert min(short, middle, longest) > 0.0
        assert short + middle + longest <= last.elapsed_s(first)
        return short < middle < longest

    # Other processes may delay the shorter kernels, but not every time.
    assert any(ascending() for _ in range(100))
    # Only of the last launches the stamps are kept.
    for _ in range(driver_module._STAMPS // 2):
        device.launch(add_number, 1, 1, buffer, 1)
    assert driver.busy_s(marks[0]) is None
    assert driver.busy_s(context.default.last) > 0.0  # type: ignore[attr-defined]


def test_without_time_stamps_an_event_is_the_host_s_time_once_the_work_is_done(device: Accelerator) -> None:
    driver = driver_of(device)
    driver.stamps, driver.tick_s = False, 1e-9
    buffer, first, last, began = long_work(device), device.event(), device.event(), device.clock_s
    first.record()
    device.launch(stir, 16, 256, buffer, 20_000)
    last.record()
    assert driver.done == driver.sent
    assert 0.0 < last.elapsed_s(first) <= device.clock_s - began


# Silence.


def test_nothing_is_printed_where_the_system_has_no_runtime_folder(tmp_path: Any) -> None:
    program = """
        import os
        import numpy as np
        import windtunnel
        from windtunnel import grid
        from windtunnel.backends.discovery.registry import backend
        from windtunnel.core import errors
        from windtunnel.runtime.accelerator import Accelerator
        assert "XDG_RUNTIME_DIR" not in os.environ

        @windtunnel.kernel
        def double(a):
            i = grid(1)
            if i < a.size:
                a[i] *= 2

        backend("wgpu").find()
        device = Accelerator(backend("wgpu").context(0))
        buffer = device.to_device(np.ones(64, np.float32))
        device.launch(double, 1, 64, buffer)
        assert (device.to_host(buffer) == 2).all()
        try:
            device.launch(double, 1, 64, device.empty(1 << 29, np.uint8))
        except (errors.DeviceError, errors.InputError) as error:
            assert str(error)
        else:
            raise AssertionError
        assert os.path.isdir(os.environ["XDG_RUNTIME_DIR"])
        open("folder", "w").write(os.environ["XDG_RUNTIME_DIR"])
    """
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    env = {key: value for key, value in os.environ.items() if key != "XDG_RUNTIME_DIR"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    made = subprocess.run([sys.executable, file], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    assert not Path((tmp_path / "folder").read_text()).exists()


def test_opening_and_working_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with opened() as device:
        buffer = device.to_device(np.zeros(4, np.uint32))
        device.launch(add_number, 1, 4, buffer, 1)
        refused(device, much_shared, 1, 64, device.empty(64))
        assert (device.to_host(buffer) == 1).all()
    del device, buffer
    gc.collect()
    assert capfd.readouterr() == ("", "")


def test_clocks_are_those_of_the_only_device_in_nvml_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    detected, adapter = module._device(0)
    seen = []
    for label, software in (("NVIDIA stand-in", False), ("NVIDIA twin", False), ("NVIDIA stand-in", True)):
        device = driver_module.operations(replace(detected, label=label, software=software), adapter)
        seen.append(device.conditions().sm_clock_hz)
        device.close()
    assert seen == [1.98e9, None, None]
