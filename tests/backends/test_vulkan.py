"""What is special to the Vulkan back end; what every device does is tests/conformance's, on `vulkan:0` too."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.test_nvml import FakeNvml

import windtunnel
from windtunnel import atomic, errors, f32, f64, grid, i8, i16, i32, u64
from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.vulkan import backend as vulkan
from windtunnel.backends.vulkan import spirv
from windtunnel.backends.vulkan.api import RefusedError, VulkanError, api
from windtunnel.backends.vulkan.device import Device
from windtunnel.backends.vulkan.driver import VulkanDriver, operations
from windtunnel.codegen import ForArguments, transpile
from windtunnel.language.source import KernelError
from windtunnel.runtime.accelerator import Accelerator

ROOT = Path(__file__).resolve().parents[2]


@windtunnel.kernel
def plus_one(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] += 1


@windtunnel.kernel
def axpy(x, y, a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@windtunnel.kernel
def of_all_widths(a: i8[:], b: i16[:], x: f64[:], n: u64, scale: f64, first: i32, factor: f32):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < x.size:
        x[i] = x[i] * scale + f64(n) + a[i] * b[i] + first + factor


@windtunnel.kernel
def count_64(total: u64[:], n: u64):  # type: ignore[no-untyped-def]
    if grid(1) < 1000:
        atomic.add(total, 0, n)


@pytest.fixture(params=[False, True], ids=["mapped", "staged"])
def device(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    """Both ways of copying, whichever the device is for."""
    with Accelerator(vulkan.open_device(0, staged=request.param)) as found:
        yield found


@pytest.fixture
def plain() -> Iterator[Accelerator]:
    with Accelerator(vulkan.open_device(0)) as found:
        yield found


def driver_of(device: Accelerator) -> VulkanDriver:
    found = device.context.driver
    assert isinstance(found, VulkanDriver)
    return found


# Devices.


def test_hardware_comes_first_and_software_is_told() -> None:
    found = backend("vulkan").find()
    assert found
    assert [one.software for one in found] == sorted(one.software for one in found)
    for one in found:
        assert one.software == (one.kind == "cpu")
        assert one.memory_bytes > 2**28
        assert one.driver and one.vendor and one.name == f"vulkan:{one.index}"
    assert any(one.software for one in found), "lavapipe not found: install mesa-vulkan-drivers"


def test_what_a_device_is_said_to_be_does_not_change_from_one_time_to_the_next() -> None:
    """It is kept when what the driver wrote it into is gone."""
    first = vulkan._physical()
    for _ in range(20):
        np.full(10_000, 0xA5, np.uint8)
        assert vulkan._physical() == first
    assert all(one.stamp_bits and one.threads >= 128 for one in first)


def test_a_device_that_is_not_here_is_named() -> None:
    count = len(backend("vulkan").find())
    with pytest.raises(errors.DeviceNotPresentError, match=f"vulkan:{count} not found: vulkan has {count} device"):
        vulkan.open_device(count)


def test_staged_memory_is_not_mapped_and_mapped_is(device: Accelerator, request: pytest.FixtureRequest) -> None:
    buffer = device.to_device(np.ones(10, np.float32))
    assert (buffer.memory.handle.host_bytes is None) == request.node.callspec.params["device"]


@pytest.mark.parametrize("call", ["find", "open"])
def test_nothing_is_written_to_the_terminal_without_a_runtime_folder(call: str) -> None:
    """In a process of its own: a driver says what it says once."""
    work = {"find": "vulkan._find()", "open": "vulkan.open_device(0).close()"}[call]
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", f"from windtunnel.backends.vulkan import backend as vulkan; {work}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_work_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with Accelerator(vulkan.open_device(0)) as device:
        buffer = device.to_device(np.zeros(100, np.float32))
        device.launch(plus_one, 1, 128, buffer)
        assert device.to_host(buffer).tolist() == [1.0] * 100
    assert capfd.readouterr() == ("", "")


# Memory.


@pytest.mark.parametrize("size", [1, 2, 3, 5, 255, 65_537])
def test_memory_of_odd_sizes_keeps_every_byte(device: Accelerator, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    one, other = device.to_device(data), device.empty(size, np.uint8)
    device.copy_within(other, one)
    assert (device.to_host(one) == data).all()
    assert (device.to_host(other) == data).all()
    device.launch(plus_one, -(-size // 64), 64, one)
    assert (device.to_host(one) == data + np.uint8(1)).all()


def test_copies_longer_than_a_stage_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windtunnel.backends.vulkan.device._CHUNK", 1000)
    data = np.random.default_rng(5).integers(0, 256, 70_123).astype(np.uint8)
    with Accelerator(vulkan.open_device(0, staged=True)) as device:
        assert (device.to_host(device.to_device(data)) == data).all()


def test_what_is_staged_may_be_changed_at_once() -> None:
    with Accelerator(vulkan.open_device(0, staged=True)) as device:
        buffer, data = device.empty(100_000, np.int32), np.zeros(100_000, np.int32)
        for turn in range(20):
            data[:] = turn
            buffer.copy_from(data, pinned=True)
        data[:] = -1
        assert (device.to_host(buffer) == 19).all()


def test_a_larger_array_than_a_kernel_takes_is_refused(plain: Accelerator) -> None:
    device = driver_of(plain).device
    device.physical = replace(device.physical, bound_bytes=399)
    buffer = plain.to_device(np.zeros(100, np.float32))
    with pytest.raises(errors.InvalidArgument, match="'a' has 400 bytes; kernel arguments are limited to 399"):
        plain.launch(plus_one, 1, 128, buffer)


# Errors.


@pytest.mark.parametrize(
    ("code", "kind", "name"),
    [
        (-2, errors.DeviceOutOfMemory, "VK_ERROR_OUT_OF_DEVICE_MEMORY"),
        (-4, errors.DeviceLost, "VK_ERROR_DEVICE_LOST"),
        (-10, errors.DeviceOutOfMemory, "VK_ERROR_TOO_MANY_OBJECTS"),
        (-1000069000, errors.DeviceOutOfMemory, "VK_ERROR_OUT_OF_POOL_MEMORY"),
        (-1000174001, errors.LaunchError, "VkResult -1000174001"),
    ],
)
def test_a_result_is_the_apis_error_with_its_code(
    plain: Accelerator, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[errors.DeviceError], name: str
) -> None:
    buffer = plain.to_device(np.zeros(10, np.float32))
    plain.launch(plus_one, 1, 32, buffer)
    bindings = driver_of(plain).api
    monkeypatch.setitem(bindings._calls, "vkQueueSubmit", lambda *_: code)
    with pytest.raises(kind, match=f"launch plus_one.*vkQueueSubmit failed: {name}") as caught:
        plain.launch(plus_one, 1, 32, buffer)
    assert caught.value.code.api == "vulkan"


def test_more_at_once_than_the_driver_gives_is_out_of_memory(plain: Accelerator) -> None:
    device = driver_of(plain).device
    device.physical = replace(device.physical, largest_bytes=1000)
    with pytest.raises(errors.DeviceOutOfMemory, match="1,001 bytes exceed the largest allocation, 1,000") as caught:
        plain.empty(1001, np.uint8)
    assert (caught.value.code.name, caught.value.code.number) == ("VK_ERROR_OUT_OF_DEVICE_MEMORY", -2)


def test_a_failed_allocation_leaves_nothing(plain: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    device = driver_of(plain).device
    calls: list[str] = []
    original = type(device.api).__call__

    def counted(self: Any, name: str, *arguments: Any) -> int:
        calls.append(name)
        if name == "vkBindBufferMemory":
            raise VulkanError(name, -2)
        return original(self, name, *arguments)

    monkeypatch.setattr(type(device.api), "__call__", counted)
    with pytest.raises(errors.DeviceOutOfMemory):
        plain.empty(64, np.uint8)
    assert calls[-2:] == ["vkDestroyBuffer", "vkFreeMemory"]
    assert plain.allocated_bytes == 0


def test_a_build_failure_names_the_kernel_and_the_compilers_words(
    plain: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ForArguments.emitted

    def broken(self: ForArguments, *given: Any) -> Any:
        made = original(self, *given)
        return replace(made, source=made.source.replace("void main() {", "void main() { nonsense;"))

    monkeypatch.setattr(ForArguments, "emitted", broken)
    buffer = plain.to_device(np.zeros(10, np.float32))
    with pytest.raises(errors.LaunchError, match=r"launch plus_one.*'nonsense' : undeclared identifier"):
        plain.launch(plus_one, 1, 32, buffer)


def test_a_missing_compiler_is_said_with_what_to_install(plain: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    spirv._compiled.cache_clear()
    monkeypatch.setenv("PATH", "")
    buffer = plain.to_device(np.zeros(10, np.float32))
    with pytest.raises(errors.LaunchError, match="kernels require glslang to compile SPIR-V: apt install"):
        plain.launch(plus_one, 1, 32, buffer)


def test_what_a_device_cannot_do_is_refused_with_its_name(plain: Accelerator) -> None:
    driver = driver_of(plain)
    driver.physical = replace(driver.physical, features=driver.physical.features - {"shaderFloat64"})
    buffer = plain.to_device(np.zeros(10, np.float64))
    with pytest.raises(errors.LaunchError, match=r"launch plus_one.*has no 64-bit floats \(shaderFloat64\)"):
        plain.launch(plus_one, 1, 32, buffer)


def test_more_numbers_than_the_device_takes_are_refused(plain: Accelerator) -> None:
    driver = driver_of(plain)
    driver.physical = replace(driver.physical, push_bytes=4)
    emitted = transpile(of_all_widths, "glsl")
    with pytest.raises(RefusedError, match="kernel 'of_all_widths' takes 32 bytes of scalar arguments; the limit is 4"):
        driver.build(emitted)


# Kernels.


def test_numbers_of_4_and_8_bytes_come_to_their_places(device: Accelerator) -> None:
    a, b = np.arange(-50, 50, dtype=np.int8), np.arange(100, dtype=np.int16)
    x = np.random.default_rng(1).standard_normal(100)
    buffers = [device.to_device(one) for one in (a, b, x)]
    device.launch(of_all_widths, 2, 64, *buffers, 2**40 + 1, 0.5, -7, 1.25)
    wanted = x * 0.5 + float(2**40 + 1) + a.astype(np.int16) * b + -7 + 1.25
    np.testing.assert_allclose(device.to_host(buffers[2]), wanted, rtol=1e-15)


def test_atomic_operations_of_64_bits_lose_nothing(plain: Accelerator) -> None:
    total = plain.to_device(np.zeros(1, np.uint64))
    plain.launch(count_64, 16, 64, total, 2**33 + 1)
    assert plain.to_host(total)[0] == 1000 * (2**33 + 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_and_a_sum_round_one_by_one(plain: Accelerator, dtype: Any) -> None:
    random = np.random.default_rng(3)
    x, y = (random.standard_normal(4096).astype(dtype) for _ in range(2))
    a = dtype(1.7)
    fused = (np.longdouble(a) * x + y).astype(dtype)
    wanted = a * x + y
    assert (fused != wanted).any()
    buffers = plain.to_device(x), plain.to_device(y)
    plain.launch(axpy, 32, 128, *buffers, a)
    assert (plain.to_host(buffers[1]) == wanted).all()


@pytest.mark.parametrize("block", [1, 7, 32, 64, 1000, (16, 8, 1)])
def test_one_module_serves_blocks_of_every_size(plain: Accelerator, block: Any) -> None:
    buffer = plain.to_device(np.zeros(1000, np.float32))
    threads = int(np.prod(block))
    plain.launch(plus_one, -(-1000 // threads), threads, buffer)
    plain.launch(plus_one, -(-1000 // 250), 250, buffer)
    assert (plain.to_host(buffer) == 2).all()
    assert len(driver_of(plain).device._kernels) == 1


def test_thousands_of_launches_under_way_use_few_command_buffers_and_sets(plain: Accelerator) -> None:
    one, other = plain.to_device(np.zeros(64, np.float32)), plain.to_device(np.zeros(64, np.float32))
    for _ in range(1500):
        plain.launch(plus_one, 1, 64, one)
        plain.launch(plus_one, 1, 64, other)
    assert plain.to_host(one)[0] == plain.to_host(other)[0] == 1500
    device = driver_of(plain).device
    assert len(device._commands) + len(device._flight) <= 1025
    ((_, loaded),) = device._kernels.values()
    assert len(loaded.free) <= 1025


def test_two_contexts_in_two_threads_do_not_disturb_each_other() -> None:
    found: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        with Accelerator(vulkan.open_device(0)) as device:
            buffer = device.to_device(np.full(10_000, number, np.float32))
            for _ in range(100):
                device.launch(plus_one, 79, 128, buffer)
            found[number] = device.to_host(buffer)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 1000)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert {number: set(values.tolist()) for number, values in found.items()} == {1: {101.0}, 1000: {1100.0}}


# Time.


def test_time_stamps_are_the_devices_own(plain: Accelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the ticks are twice the time: it is not the host's clock."""
    first, last = plain.event(), plain.event()
    buffer = plain.to_device(np.zeros(100_000, np.float32))
    first.record()
    for _ in range(10):
        plain.launch(plus_one, 782, 128, buffer)
    last.record()
    plain.synchronize()
    device = driver_of(plain).device
    ticks = device._ticks(last.mark.stamp) - device._ticks(first.mark.stamp)  # type: ignore[attr-defined]
    assert ticks > 0
    assert last.elapsed_s(first) == pytest.approx(ticks * device.physical.tick_s)
    monkeypatch.setattr(device, "physical", replace(device.physical, tick_s=2 * device.physical.tick_s))
    assert last.elapsed_s(first) == pytest.approx(ticks * device.physical.tick_s)


def test_a_counter_that_begins_anew_between_two_stamps_still_gives_the_time(
    plain: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(plain)
    queue = driver.queue(non_blocking=False)
    one, other = driver.mark(queue, ()), driver.mark(queue, ())
    device = driver.device
    monkeypatch.setattr(device, "physical", replace(device.physical, stamp_bits=36, tick_s=1e-9))
    ticks = {id(one.stamp): 2**36 - 10, id(other.stamp): 20}
    monkeypatch.setattr(device, "_ticks", lambda stamp: ticks[id(stamp)])
    assert device.elapsed_s(other, one) == pytest.approx(30e-9)
    assert device.elapsed_s(one, other) == pytest.approx(-30e-9)


def test_places_of_time_stamps_are_used_again(plain: Accelerator) -> None:
    event = plain.event()
    for _ in range(1000):
        event.record()
    device = driver_of(plain).device
    assert len(device.stamps) + 1 == 256


def test_a_queue_without_time_stamps_says_so(plain: Accelerator) -> None:
    device = driver_of(plain).device
    device.physical = replace(device.physical, stamp_bits=0)
    first, last = plain.event(), plain.event()
    first.record()
    last.record()
    last.synchronize()
    with pytest.raises(errors.InvalidArgument, match="have no timestamps"):
        last.elapsed_s(first)


# What was created is destroyed.


def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, int]]:
    """How many of each kind of object there are, by the calls that were made."""
    kinds: dict[str, int] = {}
    bindings = api()
    assert bindings is not None
    original = type(bindings).__call__

    def counted(self: Any, name: str, *arguments: Any) -> int:
        code = original(self, name, *arguments)
        what = name.removeprefix("vkCreate").removeprefix("vkDestroy").removesuffix("s")
        if name.startswith("vkCreate"):
            kinds[what] = kinds.get(what, 0) + 1
        elif name.startswith("vkDestroy"):
            kinds[what.replace("Pipeline", "ComputePipeline") if what == "Pipeline" else what] -= 1
        elif name in ("vkAllocateMemory", "vkFreeMemory"):
            kinds["Memory"] = kinds.get("Memory", 0) + (1 if name == "vkAllocateMemory" else -1)
        return code

    monkeypatch.setattr(type(bindings), "__call__", counted)
    return lambda: kinds


def used(staged: bool) -> Accelerator:
    device = Accelerator(vulkan.open_device(0, staged))
    buffer = device.to_device(np.zeros(1000, np.float32))
    event = device.event()
    event.record()
    device.launch(plus_one, 8, 128, buffer)
    assert device.to_host(buffer)[-1] == 1
    return device


@pytest.mark.parametrize("staged", [False, True])
def test_opening_and_closing_many_times_leaves_nothing(monkeypatch: pytest.MonkeyPatch, staged: bool) -> None:
    left = counting(monkeypatch)

    def count(kind: str) -> int:
        return len(list(Path("/proc/self", kind).iterdir()))

    descriptors = count("fd")
    used(staged).close()
    threads = count("task")
    for _ in range(12):
        used(staged).close()
    assert left()["Device"] == 0 and len(left()) >= 10
    assert {name: count for name, count in left().items() if count} == {}
    assert count("fd") == descriptors
    # A device of lavapipe that is kept keeps its threads.
    assert count("task") == threads


def test_a_device_that_is_only_forgotten_is_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    left = counting(monkeypatch)
    device = used(False)
    assert left()["Device"] == 1
    del device
    gc.collect()
    assert {name: count for name, count in left().items() if count} == {}


def test_a_device_is_closed_when_its_work_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Accelerator(vulkan.open_device(0))
    buffer = device.to_device(np.zeros(1_000_000, np.float32))
    for _ in range(50):
        device.launch(plus_one, 7813, 128, buffer)
    bindings, native = driver_of(device).api, driver_of(device).device
    calls: list[str] = []
    original = type(bindings).__call__

    def noted(self: Any, name: str, *arguments: Any) -> int:
        calls.append(name)
        return original(self, name, *arguments)

    monkeypatch.setattr(type(bindings), "__call__", noted)
    native.close()  # as when it is only forgotten: nobody has waited
    assert calls[0] == "vkDeviceWaitIdle" and calls[-2:] == ["vkDestroyDevice", "vkDestroyInstance"]
    assert "vkFreeMemory" in calls
    done = len(calls)
    native.close()
    assert len(calls) == done


def test_a_reset_device_works_anew(device: Accelerator) -> None:
    buffer = device.to_device(np.zeros(100, np.float32))
    device.launch(plus_one, 1, 128, buffer)
    native = driver_of(device).device.native
    device.reset()
    buffer = device.to_device(np.ones(100, np.float32))
    device.launch(plus_one, 1, 128, buffer)
    assert (device.to_host(buffer) == 2).all()
    assert driver_of(device).device.native is not native


def test_a_device_that_cannot_be_opened_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    left = counting(monkeypatch)
    monkeypatch.setattr(Device, "_make_structs", lambda self: (_ for _ in ()).throw(VulkanError("vkTest", -3)))
    with pytest.raises(VulkanError, match="VK_ERROR_INITIALIZATION_FAILED"):
        vulkan.open_device(0)
    assert left()["Device"] == 0
    assert {name: count for name, count in left().items() if count} == {}


# SPIR-V.


def test_every_operation_on_floats_is_marked_and_the_rest_is_as_it_was() -> None:
    emitted = transpile(of_all_widths, "glsl")
    bare = spirv._compiled(emitted.source, tuple(emitted.options))
    made = spirv.compiled(emitted, [("special", 64), ("special", 16), ("nearest", 64)])
    results = [int(words[2]) for opcode, words in spirv.instructions(made) if opcode in spirv._ARITHMETIC]
    marked = [
        int(words[1])
        for opcode, words in spirv.instructions(made)
        if opcode == 71 and len(words) == 3 and words[2] == 42
    ]
    assert results and sorted(set(marked)) == sorted(results)
    added = len(results) + 2 + 2 + 1  # capabilities, modes and the extension; no mode of 16 bits, which are not there
    rows = [words.tolist() for _, words in spirv.instructions(bare)]
    more = [words.tolist() for _, words in spirv.instructions(made)]
    assert len(more) == len(rows) + added
    assert [row for row in more if row in rows] == rows
    modes = [words.tolist()[2:] for opcode, words in spirv.instructions(made) if opcode == 16 and len(words) == 4]
    assert modes == [[4461, 64], [4462, 64]]
    assert made[:20] == bare[:20]
    assert {11, 10, 4433, 4448, 4466, 4467} <= spirv.capabilities(made)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(spirv.CompilerError, match="not SPIR-V"):
        spirv.capabilities(struct.pack("<8I", *range(8)))


def test_f64_of_what_glsl_has_for_f32_alone_is_refused_at_its_line() -> None:
    def sine(x: f64[:]):  # type: ignore[no-untyped-def]
        i = grid(1)
        x[i] = np.sin(x[i])

    with pytest.raises(KernelError, match="GLSL has no sin of f64; expected f32"):
        transpile(sine, "glsl")


def test_memory_that_is_allocated_where_another_was_is_what_kernels_then_see() -> None:
    """A buffer may get the handle of one that was freed; a descriptor set that was bound to that one is not its."""
    with Accelerator(vulkan.open_device(0)) as device:
        for turn in range(200):
            buffers = [device.to_device(np.full(64 * (1 + turn % 3), turn, np.float32)) for _ in range(4)]
            for buffer in buffers:
                device.launch(plus_one, 1, 256, buffer)
            assert all((device.to_host(buffer) == turn + 1).all() for buffer in buffers)
            for buffer in buffers:
                buffer.free()


def test_clocks_and_energy_are_those_of_the_device_in_nvml_with_the_uuid_that_vulkan_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    context = vulkan.open_device(0)
    driver: Any = context.driver
    own = driver.physical
    assert len(own.uuid) == 16
    found = {}
    for name, uuid, vendor in (("a", range(16), "NVIDIA"), ("NVIDIA stand-in", [0] * 16, "NVIDIA"),
                               ("NVIDIA twin", [0] * 16, "NVIDIA"), ("NVIDIA stand-in", range(16), "Mesa")):  # fmt: skip
        driver.physical = replace(own, name=name, uuid=bytes(uuid), vendor=vendor)
        device = operations(context)
        found[name, vendor] = device.conditions().sm_clock_hz, device.energy_j()
    assert found == {
        ("a", "NVIDIA"): (1.98e9, 1000.0),  # by its UUID
        ("NVIDIA stand-in", "NVIDIA"): (1.98e9, 1070.0),  # by its name, which no other device has
        ("NVIDIA twin", "NVIDIA"): (None, None),
        ("NVIDIA stand-in", "Mesa"): (None, None),
    }
    context.close()
