"""The calls of wgpu-py as a driver, and a WebGPU device opened with them.

A device has one queue, which executes all work in the order of submission, so that no stream has to wait for another.
Times are the device's own timestamps if it has them. Otherwise they are the host's, taken after all earlier work has
completed, and the driver text says so. WebGPU copies multiples of 4 bytes, so buffers are padded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.driver import Problem
from windtunnel.backends.common.nvml import nvml_named
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.wgpu.native import Native, Reading, SubmitError, library
from windtunnel.codegen import Buffer, Emitted, Signature
from windtunnel.core.errors import DeviceLost, DeviceOutOfMemory
from windtunnel.language.types import U32
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_OPTIONAL = frozenset({"shader-f16", "subgroup", "timestamp-query"})
_STAGED = 64 << 20
"""Limit of bytes that are written and not submitted. Staging memory is freed after the work has completed."""
_BOUND = 256
"""Maximum number of bind groups that are kept."""
_STAMPS = 4096
"""Size of the query set, which is the standard's maximum: two timestamps for each of the last launches."""
_STAMP = "@compute @workgroup_size(1) fn stamp() {}"
_TAIL = """
struct Tail { to: u32, from_: u32, mask: u32 }
@group(0) @binding(0) var<storage, read_write> to: array<u32>;
@group(0) @binding(1) var<storage, read> from_: array<u32>;
@group(0) @binding(2) var<uniform> tail: Tail;
@compute @workgroup_size(1) fn copy_tail() {
    to[tail.to] = (to[tail.to] & ~tail.mask) | (from_[tail.from_] & tail.mask);
}
"""
"""Copies some bytes of a word and keeps the others."""
_WARP = Emitted(
    """
@group(0) @binding(0) var<storage, read_write> width: array<u32>;
@compute @workgroup_size(256) fn warp(@builtin(subgroup_size) found: u32) { width[0] = found; }
""",
    Signature("warp", (Buffer("width", U32, 1, written=True, position=0),)),
    (),
)


def _info(
    detected: DetectedDevice, device_limits: Mapping[str, int], features: frozenset[str], warp: int
) -> DeviceInfo:
    """Describe the device. ``device_limits`` have WebGPU's names."""
    x, y, z = (int(device_limits[f"max-compute-workgroup-size-{axis}"]) for axis in "xyz")
    side = int(device_limits["max-compute-workgroups-per-dimension"])
    memory = "memory is the host's" if detected.memory_bytes else "memory is max-buffer-size, as WebGPU reports no size"
    limits = Limits(
        threads_per_block=int(device_limits["max-compute-invocations-per-workgroup"]),
        block=(x, y, z),
        grid=(side, side, side),
        shared_bytes=int(device_limits["max-compute-workgroup-storage-size"]),
        warp=warp,
        source=f"limits of the adapter; the warp size was measured by a kernel; {memory}",
        atomic_bits=32,
    )
    sized = replace(detected, memory_bytes=detected.memory_bytes or float(device_limits["max-buffer-size"]))
    return sized.opened(limits, {"float16"} if "shader-f16" in features else ())


@dataclass(eq=False)
class _Memory:
    """A buffer, which is padded to a multiple of 4 bytes, and the requested size (bytes)."""

    buffer: Any
    size: int


@dataclass(eq=False)
class _Kernel:
    """A pipeline. Its layout is explicit, because a derived one omits arrays that the kernel does not use."""

    pipeline: Any
    layout: Any


@dataclass(eq=False)
class _Queue:
    """A stream: the number of the last submission with work of it."""

    last: int = 0


@dataclass(eq=False)
class _Mark:
    """The point after a submission, and its time if it is known."""

    submission: int
    launch: int | None = None
    """Number of the timed launch that it ends."""
    stamp: Reading | None = None
    """A timestamp that is being copied to the host."""
    ticks: int | None = None
    """The timestamp."""


class WgpuDriver:
    """Implements `common.driver.Driver` with wgpu-py."""

    target = "wgsl"

    def __init__(self, adapter: Any) -> None:
        self.wgpu, self.log = library()
        self.usage = self.wgpu.BufferUsage
        self.features = _OPTIONAL & frozenset(adapter.features)
        # Without explicit limits wgpu-py requests all that the adapter has.
        self.device = adapter.request_device_sync(required_features=sorted(self.features))
        self.limits: Mapping[str, int] = self.device.limits
        self.native = Native(self.device)
        self.stamps = "timestamp-query" in self.features
        self.timed = False
        """Whether launches are timed for `busy_s`. A timed launch takes about a quarter longer."""
        self.tick_s = self.native.tick_s if self.stamps else 1e-9
        self.sent = self.done = self.unsent = self.launches = 0
        """Numbers of submissions sent and completed; bytes not submitted yet; number of timed launches."""
        self.landings: list[tuple[Reading, np.ndarray]] = []
        """Pending copies to the host, in order."""
        self.bound: dict[Any, Any] = {}
        """Bind groups by kernel, memory and numbers. Their uniforms are written once, so that they cannot race."""
        self.read_stamps: tuple[int, np.ndarray] | None = None
        """(number of timed launches, timestamps) when the timestamps were last read."""

    # Memory.

    def allocate(self, size: int, kind: MemoryKind) -> _Memory:
        """Allocate ``size`` bytes."""
        usage = self.usage.STORAGE | self.usage.COPY_SRC | self.usage.COPY_DST
        return _Memory(self.device.create_buffer(size=-(-size // 4) * 4, usage=usage), size)

    def free(self, memory: _Memory) -> None:
        """Free memory."""
        self.bound.clear()
        memory.buffer.destroy()

    def write(self, memory: _Memory, data: np.ndarray, queue: _Queue, after: Sequence[_Mark], *, hold: bool) -> _Mark:
        """Copy from host to device. The library copies ``data`` at once, so the host need not wait for the device."""
        whole, rest = data.size // 4 * 4, data.size % 4
        if whole:
            self.device.queue.write_buffer(memory.buffer, 0, data, 0, whole)
        self.unsent += whole
        if rest:
            word = np.zeros(4, np.uint8)
            word[:rest] = data[whole:]
            if data.size == memory.size:  # the padding may be overwritten
                self.device.queue.write_buffer(memory.buffer, whole, word)
                self.unsent += 4
            else:
                staged = self.device.create_buffer_with_data(data=word, usage=self.usage.STORAGE)
                encoder = self.device.create_command_encoder()
                self._copy_tail(encoder, memory.buffer, whole, staged, 0, rest)
                return self._send([encoder.finish()], queue)
        if self.unsent >= _STAGED:
            mark = self._send([], queue)
            if hold:
                self._wait(mark.submission)
            return mark
        queue.last = self.sent + 1  # the write is part of the next submission
        return _Mark(queue.last)

    def read(self, data: np.ndarray, memory: _Memory, queue: _Queue, after: Sequence[_Mark], *, hold: bool) -> _Mark:
        """Copy from device to host. Without ``hold`` the data arrive at the next wait."""
        size = -(-data.size // 4) * 4
        staged = self.device.create_buffer(size=size, usage=self.usage.COPY_DST | self.usage.MAP_READ)
        encoder = self.device.create_command_encoder()
        encoder.copy_buffer_to_buffer(memory.buffer, 0, staged, 0, size)
        mark = self._send([encoder.finish()], queue)
        self.landings.append((Reading(self.native, staged, mark.submission), data))
        if hold:
            self._wait(mark.submission)
        return mark

    def copy(self, to: _Memory, memory: _Memory, size: int, queue: _Queue, after: Sequence[_Mark]) -> _Mark:
        """Copy within the device."""
        whole, rest = size // 4 * 4, size % 4
        if rest and size == to.size:
            whole, rest = whole + 4, 0
        encoder = self.device.create_command_encoder()
        if whole:
            encoder.copy_buffer_to_buffer(memory.buffer, 0, to.buffer, 0, whole)
        if rest:
            self._copy_tail(encoder, to.buffer, whole, memory.buffer, whole, rest)
        return self._send([encoder.finish()], queue)

    def host_view(self, memory: _Memory, size: int) -> np.ndarray:
        """Raise NotImplementedError: there is no pinned or unified memory."""
        raise NotImplementedError

    def _copy_tail(self, encoder: Any, to: Any, at: int, source: Any, source_at: int, count: int) -> None:
        """Copy ``count`` bytes, less than 4, of the word at ``source_at`` to the word at ``at``."""
        # A buffer may be larger than the largest binding, so only a window with the word is bound.
        align = int(self.limits["min-storage-buffer-offset-alignment"])
        numbers, bound = [], []
        for buffer, place in ((to, at), (source, source_at)):
            start = place // align * align
            numbers.append((place - start) // 4)
            bound.append({"buffer": buffer, "offset": start, "size": min(align, buffer.size - start)})
        numbers.append((1 << 8 * count) - 1)
        bound.append({"buffer": self._uniform(np.array(numbers, np.uint32).tobytes())})
        entries = [{"binding": place, "resource": resource} for place, resource in enumerate(bound)]
        group = self.device.create_bind_group(layout=self._tail.layout, entries=entries)
        self._encode(encoder, self._tail, group, (1, 1, 1))

    # Kernels.

    def build(self, emitted: Emitted) -> _Kernel:
        """Compile a kernel. Raises GPUValidationError if it needs too much shared memory."""
        limit = self.limits["max-compute-workgroup-storage-size"]
        if emitted.shared_bytes > limit:  # the library does not check this
            problem = f"{emitted.shared_bytes:,} bytes of shared memory exceed the limit of {limit:,}"
            raise self.wgpu.GPUValidationError(problem)
        # Naga supports subgroups, but rejects the directive that the standard requires before their use.
        source = emitted.source.replace("enable subgroups;\n", "")
        kinds = {b.position: "storage" if b.written else "read-only-storage" for b in emitted.signature.buffers}
        if emitted.signature.uniform is not None:
            kinds[emitted.signature.uniform] = "uniform"
        return self._pipeline(source, emitted.signature.name, kinds)

    def launch(
        self, kernel: _Kernel, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: _Queue,
        after: Sequence[_Mark],
    ) -> _Mark:  # fmt: skip
        """Enqueue a kernel."""
        memories = tuple(value for value in values if isinstance(value, _Memory))
        numbers = b"".join(value.tobytes() for value in values if not isinstance(value, _Memory))
        key = (kernel, memories, numbers)
        group = self.bound.get(key)
        if group is None:
            group = self._group(kernel, emitted, memories, numbers)
            if len(self.bound) == _BOUND:
                self.bound.clear()
            self.bound[key] = group
        encoder = self.device.create_command_encoder()
        stamps = None
        timed = self.stamps and self.timed
        if timed:
            first = 2 * self.launches % _STAMPS
            stamps = {"query_set": self._ring, "beginning_of_pass_write_index": first}
            stamps["end_of_pass_write_index"] = first + 1
        self._encode(encoder, kernel, group, grid, stamps)
        mark = self._send([encoder.finish()], queue)
        if timed:
            mark.launch, self.launches = self.launches, self.launches + 1
        return mark

    def _group(self, kernel: _Kernel, emitted: Emitted, memories: Sequence[_Memory], numbers: bytes) -> Any:
        buffers = zip(emitted.signature.buffers, memories, strict=True)
        entries = [{"binding": b.position, "resource": {"buffer": memory.buffer}} for b, memory in buffers]
        if emitted.signature.uniform is not None:
            uniform = self._uniform(numbers)
            entries.append({"binding": emitted.signature.uniform, "resource": {"buffer": uniform}})
        return self.device.create_bind_group(label=emitted.signature.name, layout=kernel.layout, entries=entries)

    def _uniform(self, numbers: bytes) -> Any:
        padded = numbers + bytes(-len(numbers) % 16)
        return self.device.create_buffer_with_data(data=padded, usage=self.usage.UNIFORM)

    def _pipeline(self, source: str, name: str, kinds: Mapping[int, str]) -> _Kernel:
        """Create a pipeline with bindings of these kinds. Labels add the kernel's name to the library's messages."""
        module = self.device.create_shader_module(label=name, code=source)
        entries = [
            {"binding": place, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for place, kind in kinds.items()
        ]
        layout = self.device.create_bind_group_layout(label=name, entries=entries)
        pipeline = self.device.create_compute_pipeline(
            label=name,
            layout=self.device.create_pipeline_layout(label=name, bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": name},
        )
        return _Kernel(pipeline, layout)

    def _encode(self, encoder: Any, kernel: _Kernel, group: Any, grid: Dims, stamps: Any = None) -> None:
        compute_pass = encoder.begin_compute_pass(timestamp_writes=stamps)
        compute_pass.set_pipeline(kernel.pipeline)
        compute_pass.set_bind_group(0, group)
        compute_pass.dispatch_workgroups(*grid)
        compute_pass.end()

    @cached_property
    def _tail(self) -> _Kernel:
        return self._pipeline(_TAIL, "copy_tail", {0: "storage", 1: "read-only-storage", 2: "uniform"})

    def warp(self) -> int:
        """Return the subgroup size that a kernel observes, which wgpu-py does not report; 1 without subgroups."""
        if "subgroup" not in self.features:
            return 1
        width, queue = self.allocate(4, "device"), self.queue(non_blocking=False)
        result = np.zeros(4, np.uint8)
        self.launch(self.build(_WARP), _WARP, (1, 1, 1), (256, 1, 1), [width], queue, ())
        self.read(result, width, queue, (), hold=True)
        self.free(width)
        return int(result.view(np.uint32)[0])

    # Order and time.

    def queue(self, *, non_blocking: bool) -> _Queue:
        """Create a queue."""
        return _Queue()

    def mark(self, queue: _Queue, after: Sequence[_Mark]) -> _Mark:
        """Submit a timestamp. Without timestamps the host waits, and its own time is used."""
        if not self.stamps:
            mark = self._send([], queue)
            self._wait(mark.submission)
            mark.ticks = time.perf_counter_ns()
            return mark
        encoder = self.device.create_command_encoder()
        stamps = {"query_set": self._stamp, "end_of_pass_write_index": 0}
        # Metal writes no timestamp for a pass that dispatches nothing (gfx-rs/wgpu-native issue 625).
        self._encode(encoder, self._instant, self._nothing, (1, 1, 1), stamps)
        staged = self._stamps_to_host(encoder, self._stamp, 1)
        mark = self._send([encoder.finish()], queue)
        mark.stamp = Reading(self.native, staged, mark.submission)
        return mark

    def reached(self, mark: _Mark) -> bool:
        """Return whether the device has reached the mark."""
        if mark.submission > self.done and self.native.idle():
            self._completed(self.sent)
        return mark.submission <= self.done or (mark.stamp is not None and mark.stamp.here)

    def wait(self, mark: _Mark) -> None:
        """Wait until the device has reached the mark."""
        self._wait(mark.submission)

    def finish(self, queue: _Queue) -> None:
        """Wait until all work of the queue has completed."""
        self._wait(queue.last)

    def elapsed_s(self, mark: _Mark, since: _Mark) -> float:
        """Return the seconds between two marks."""
        return (self._ticks(mark) - self._ticks(since)) * self.tick_s

    def busy_s(self, mark: _Mark) -> float | None:
        """Return the device time of a launch; None if it was not timed, or is too long ago."""
        if mark.launch is None or mark.launch < self.launches - _STAMPS // 2:
            return None
        if self.read_stamps is None or self.read_stamps[0] <= mark.launch:
            count = min(2 * self.launches, _STAMPS)
            encoder = self.device.create_command_encoder()
            staged = self._stamps_to_host(encoder, self._ring, count)
            submission = self._send([encoder.finish()]).submission
            data = np.empty(8 * count, np.uint8)
            Reading(self.native, staged, submission).into(data)
            self._completed(submission)
            self.read_stamps = (self.launches, data.view(np.uint64))
        began, ended = (int(stamp) for stamp in self.read_stamps[1][2 * mark.launch % _STAMPS :][:2])
        return (ended - began) * self.tick_s

    @cached_property
    def _stamp(self) -> Any:
        return self.device.create_query_set(type="timestamp", count=1)

    @cached_property
    def _ring(self) -> Any:
        return self.device.create_query_set(type="timestamp", count=_STAMPS)

    @cached_property
    def _resolve(self) -> Any:
        return self.device.create_buffer(size=8 * _STAMPS, usage=self.usage.QUERY_RESOLVE | self.usage.COPY_SRC)

    @cached_property
    def _instant(self) -> _Kernel:
        return self._pipeline(_STAMP, "stamp", {})

    @cached_property
    def _nothing(self) -> Any:
        return self.device.create_bind_group(layout=self._instant.layout, entries=[])

    def _stamps_to_host(self, encoder: Any, queries: Any, count: int) -> Any:
        """Encode a copy of the first timestamps of a set to the host; return the buffer they are copied to."""
        staged = self.device.create_buffer(size=8 * count, usage=self.usage.COPY_DST | self.usage.MAP_READ)
        encoder.resolve_query_set(queries, 0, count, self._resolve, 0)
        encoder.copy_buffer_to_buffer(self._resolve, 0, staged, 0, 8 * count)
        return staged

    def _ticks(self, mark: _Mark) -> int:
        if mark.ticks is None:
            assert mark.stamp is not None  # noqa: S101  an event's mark has one
            data = np.empty(8, np.uint8)
            mark.stamp.into(data)
            mark.ticks, mark.stamp = int(data.view(np.uint64)[0]), None
            if mark.ticks == 0:
                raise SubmitError("the device did not write a timestamp")
        return mark.ticks

    # Submissions.

    def _send(self, commands: Sequence[Any], queue: _Queue | None = None) -> _Mark:
        self.sent, self.unsent = self.native.submit(commands), 0
        self._raise_logged()
        if queue is not None:
            queue.last = self.sent
        return _Mark(self.sent)

    def _wait(self, submission: int) -> None:
        if submission > self.sent:  # writes that are not submitted yet
            self._send([])
        if submission > self.done:
            self.native.wait(submission)
            self._completed(submission)

    def _completed(self, submission: int) -> None:
        """Register that all submissions up to this one have completed, and store what they copy to the host."""
        self._raise_logged()
        self.done = max(self.done, submission)
        while self.landings and self.landings[0][0].submission <= self.done:
            reading, data = self.landings.pop(0)
            reading.into(data)

    def _raise_logged(self) -> None:
        messages = self.log.take()
        if messages:
            raise SubmitError("; ".join(messages))

    # Errors.

    def problem(self, error: Exception) -> Problem | None:
        """Return the kind of error and its description for an error of the library; None for any other.

        Errors that the library only logs are raised as SubmitError.
        """
        if not isinstance(error, (self.wgpu.GPUError, SubmitError)):
            return None
        message = _one_line(str(error))
        if "device" in message.lower() and " lost" in message.lower():
            return Problem(DeviceLost, message)
        if isinstance(error, self.wgpu.GPUOutOfMemoryError):
            return Problem(DeviceOutOfMemory, message)
        return Problem(None, message, "configuration" if isinstance(error, self.wgpu.GPUValidationError) else None)

    def close(self) -> None:
        """Do nothing: all resources are freed with this object."""

    def energy_j(self) -> float | None:
        """Return None: WebGPU has no energy counter."""
        return None


def _one_line(message: str) -> str:
    """Return the library's message on one line. A compiler's message is unchanged, because it shows the source."""
    lines = [line.strip() for line in message.splitlines()]
    if any(line.startswith("┌") for line in lines):
        return message.strip()
    return ": ".join(line for line in lines if line and line not in ("Validation Error", "Caused by:"))


_WARPS: dict[tuple[str, str], int] = {}
"""Subgroup sizes by device and driver, because measuring one requires compiling a kernel."""


def open_context(detected: DetectedDevice, adapter: Any) -> RealContext[Any, Any]:
    """Open the device for programs."""
    driver = WgpuDriver(adapter)
    key = (detected.label, detected.driver)
    if key not in _WARPS:
        _WARPS[key] = driver.warp()
    return RealContext(driver, _info(detected, driver.limits, driver.features, _WARPS[key]))


def operations(detected: DetectedDevice, adapter: Any) -> KernelOperations:
    """Open the device for single operations."""
    context = open_context(detected, adapter)
    lacks = {"int8": "WGSL has no 8-bit integers", "bfloat16": "WGSL has no bfloat16"}
    if "float16" not in context.info.features:
        lacks["float16"] = "this device has no shader-f16"
    nvml = None if detected.software else nvml_named(detected.label)
    return KernelOperations(context, {"driver": context.info.driver, "wgpu": version("wgpu")}, lacks, nvml)
