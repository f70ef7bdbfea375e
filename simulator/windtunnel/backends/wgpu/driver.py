"""wgpu-py's calls as a driver's, and a device of WebGPU's opened through them.

A device has one queue, in which all work is in the order of its submission: streams are names, and nothing has to wait
for anything. Times are the device's own time stamps where it has them; else those of the host's clock once all work
before is done, and the driver's text says so. What crosses a copy is a multiple of 4 bytes, so buffers are padded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import Found
from windtunnel.backends.common.context import RealContext
from windtunnel.backends.common.trials import KernelOperations
from windtunnel.backends.wgpu.native import Failed, Native, Reading, library
from windtunnel.codegen import Buffer, Emitted, Signature
from windtunnel.core.errors import DeviceError, DeviceLost, DeviceOutOfMemory
from windtunnel.language.types import U32
from windtunnel.runtime.codes import Reason
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits, MemoryKind

_WANTED = frozenset({"shader-f16", "subgroup", "timestamp-query"})
_STAGED = 64 << 20
"""Bytes that the host has written and not submitted, at most: what is staged is given back once it is done."""
_BOUND = 256
"""Sets of arguments that are kept bound, at most."""
_STAMPS = 4096
"""Of a query set, at most, says the standard: two of each of the last launches."""
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
"""Copies some bytes of a word, and keeps the others."""
_WARP = Emitted(
    """
@group(0) @binding(0) var<storage, read_write> width: array<u32>;
@compute @workgroup_size(256) fn warp(@builtin(subgroup_size) found: u32) { width[0] = found; }
""",
    Signature("warp", (Buffer("width", U32, 1, written=True, position=0),)),
    (),
)


def _info(found: Found, most: Mapping[str, int], features: frozenset[str], warp: int) -> DeviceInfo:
    """``most``: the device's limits, by WebGPU's names."""
    x, y, z = (int(most[f"max-compute-workgroup-size-{axis}"]) for axis in "xyz")
    side = int(most["max-compute-workgroups-per-dimension"])
    memory = "memory is the host's" if found.memory_bytes else "memory, which WebGPU does not tell, is max-buffer-size"
    limits = Limits(
        threads_per_block=int(most["max-compute-invocations-per-workgroup"]),
        block=(x, y, z),
        grid=(side, side, side),
        shared_bytes=int(most["max-compute-workgroup-storage-size"]),
        warp=warp,
        source=f"the adapter's own limits; the warp is what a kernel saw; {memory}",
        atomic_bits=32,
    )
    return DeviceInfo(
        name=found.label,
        kind=found.kind,
        api="wgpu",
        memory_bytes=found.memory_bytes or float(most["max-buffer-size"]),
        limits=limits,
        features=frozenset({"float16"} if "shader-f16" in features else ()),
        virtual=False,
        software=found.software,
        driver=found.driver,
    )


@dataclass(eq=False)
class _Memory:
    """A buffer, which is padded to a multiple of 4, and the bytes that were asked for."""

    buffer: Any
    size: int


@dataclass(eq=False)
class _Kernel:
    """A pipeline. Its layout is written out: one that is derived leaves out arrays that the kernel never touches."""

    pipeline: Any
    layout: Any


@dataclass(eq=False)
class _Queue:
    """A stream: a name, and the last submission that has something of it."""

    last: int = 0


@dataclass(eq=False)
class _Mark:
    """After a submission, and what may be known of its time."""

    submission: int
    launch: int | None = None
    """Which of the driver's timed launches it is."""
    stamp: Reading | None = None
    """A time stamp on its way to the host."""
    ticks: int | None = None
    """The time stamp."""


class WgpuDriver:
    """wgpu-py's calls; see ``_context.Driver``."""

    target = "wgsl"

    def __init__(self, adapter: Any) -> None:
        self.wgpu, self.heard = library()
        self.usage = self.wgpu.BufferUsage
        self.features = _WANTED & frozenset(adapter.features)
        # Without limits that are asked for, wgpu-py asks for all that the adapter has.
        self.device = adapter.request_device_sync(required_features=sorted(self.features))
        self.limits: Mapping[str, int] = self.device.limits
        self.native = Native(self.device)
        self.stamps = "timestamp-query" in self.features
        self.timed = False
        """Whether launches are, for `busy_s`: whoever measures asks for it, since each takes a quarter longer then."""
        self.tick_s = self.native.tick_s if self.stamps else 1e-9
        self.sent = self.done = self.unsent = self.launches = 0
        """Numbers of submissions; bytes that wait for one; timed launches so far."""
        self.landings: list[tuple[Reading, np.ndarray]] = []
        """Copies to the host under way, in order."""
        self.bound: dict[Any, Any] = {}
        """Bind groups by kernel, memory and numbers. Their uniforms are never written again, so none can race."""
        self.read_stamps: tuple[int, np.ndarray] | None = None
        """The timed launches so far, and the time stamps of all, when they were last read."""

    # Memory.

    def allocate(self, size: int, kind: MemoryKind) -> _Memory:
        """See ``Driver``."""
        usage = self.usage.STORAGE | self.usage.COPY_SRC | self.usage.COPY_DST
        return _Memory(self.device.create_buffer(size=-(-size // 4) * 4, usage=usage), size)

    def free(self, memory: _Memory) -> None:
        """See ``Driver``."""
        self.bound.clear()
        memory.buffer.destroy()

    def write(self, memory: _Memory, data: np.ndarray, queue: _Queue, after: Sequence[_Mark], *, hold: bool) -> _Mark:
        """See ``Driver``. The library takes a copy at once, so the host never has to wait for the device."""
        whole, rest = data.size // 4 * 4, data.size % 4
        if whole:
            self.device.queue.write_buffer(memory.buffer, 0, data, 0, whole)
        self.unsent += whole
        if rest:
            word = np.zeros(4, np.uint8)
            word[:rest] = data[whole:]
            if data.size == memory.size:  # the padding is nobody's
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
        queue.last = self.sent + 1  # it goes with whatever is submitted next
        return _Mark(queue.last)

    def read(self, data: np.ndarray, memory: _Memory, queue: _Queue, after: Sequence[_Mark], *, hold: bool) -> _Mark:
        """See ``Driver``. What is not held for lands when the host next waits for it, or for what comes after."""
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
        """See ``Driver``."""
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
        """No memory of this back end is the host's."""
        raise NotImplementedError

    def _copy_tail(self, encoder: Any, to: Any, at: int, source: Any, source_at: int, count: int) -> None:
        """``count`` bytes, less than 4, of the word at ``source_at`` to the one at ``at``, whose others are kept."""
        # Buffers may be larger than what can be bound, so only a window with the word is.
        align = int(self.limits["min-storage-buffer-offset-alignment"])
        numbers, bound = [], []
        for buffer, place in ((to, at), (source, source_at)):
            start = place // align * align
            numbers.append((place - start) // 4)
            bound.append({"buffer": buffer, "offset": start, "size": min(align, buffer.size - start)})
        numbers.append((1 << 8 * count) - 1)
        bound.append({"buffer": self._uniform(np.array(numbers, np.uint32).tobytes())})
        entries = [{"binding": place, "resource": one} for place, one in enumerate(bound)]
        group = self.device.create_bind_group(layout=self._tail.layout, entries=entries)
        self._encode(encoder, self._tail, group, (1, 1, 1))

    # Kernels.

    def build(self, emitted: Emitted) -> _Kernel:
        """See ``Driver``."""
        most = self.limits["max-compute-workgroup-storage-size"]
        if emitted.shared_bytes > most:  # which the library does not look at
            problem = f"{emitted.shared_bytes:,} bytes of shared memory, of at most {most:,}"
            raise self.wgpu.GPUValidationError(problem)
        # Naga knows subgroups, but not the directive that the standard wants before their use.
        source = emitted.source.replace("enable subgroups;\n", "")
        kinds = {one.position: "storage" if one.written else "read-only-storage" for one in emitted.signature.buffers}
        if emitted.signature.uniform is not None:
            kinds[emitted.signature.uniform] = "uniform"
        return self._built(source, emitted.signature.name, kinds)

    def launch(
        self, kernel: _Kernel, emitted: Emitted, grid: Dims, block: Dims, values: Sequence[Any], queue: _Queue,
        after: Sequence[_Mark],
    ) -> _Mark:  # fmt: skip
        """See ``Driver``."""
        memories = tuple(one for one in values if isinstance(one, _Memory))
        numbers = b"".join(one.tobytes() for one in values if not isinstance(one, _Memory))
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
        entries = [{"binding": one.position, "resource": {"buffer": memory.buffer}} for one, memory in buffers]
        if emitted.signature.uniform is not None:
            uniform = self._uniform(numbers)
            entries.append({"binding": emitted.signature.uniform, "resource": {"buffer": uniform}})
        return self.device.create_bind_group(label=emitted.signature.name, layout=kernel.layout, entries=entries)

    def _uniform(self, numbers: bytes) -> Any:
        padded = numbers + bytes(-len(numbers) % 16)
        return self.device.create_buffer_with_data(data=padded, usage=self.usage.UNIFORM)

    def _built(self, source: str, name: str, kinds: Mapping[int, str]) -> _Kernel:
        """A pipeline whose bindings are of these kinds. Labels put the kernel's name into the library's messages."""
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
        job = encoder.begin_compute_pass(timestamp_writes=stamps)
        job.set_pipeline(kernel.pipeline)
        job.set_bind_group(0, group)
        job.dispatch_workgroups(*grid)
        job.end()

    @cached_property
    def _tail(self) -> _Kernel:
        return self._built(_TAIL, "copy_tail", {0: "storage", 1: "read-only-storage", 2: "uniform"})

    def warp(self) -> int:
        """Threads of a subgroup, as a kernel sees it: wgpu-py does not pass on what the adapter says. 1: has none."""
        if "subgroup" not in self.features:
            return 1
        width, queue = self.allocate(4, "device"), self.queue(non_blocking=False)
        found = np.zeros(4, np.uint8)
        self.launch(self.build(_WARP), _WARP, (1, 1, 1), (256, 1, 1), [width], queue, ())
        self.read(found, width, queue, (), hold=True)
        self.free(width)
        return int(found.view(np.uint32)[0])

    # Order and time.

    def queue(self, *, non_blocking: bool) -> _Queue:
        """See ``Driver``."""
        return _Queue()

    def mark(self, queue: _Queue, after: Sequence[_Mark]) -> _Mark:
        """See ``Driver``. Without time stamps the host waits, and takes its own time."""
        if not self.stamps:
            mark = self._send([], queue)
            self._wait(mark.submission)
            mark.ticks = time.perf_counter_ns()
            return mark
        encoder = self.device.create_command_encoder()
        stamps = {"query_set": self._stamp, "end_of_pass_write_index": 0}
        # A pass that dispatches nothing gets no time from Metal (gfx-rs/wgpu-native issue 625).
        self._encode(encoder, self._instant, self._nothing, (1, 1, 1), stamps)
        staged = self._resolved(encoder, self._stamp, 1)
        mark = self._send([encoder.finish()], queue)
        mark.stamp = Reading(self.native, staged, mark.submission)
        return mark

    def reached(self, mark: _Mark) -> bool:
        """See ``Driver``."""
        if mark.submission > self.done and self.native.idle():
            self._came(self.sent)
        return mark.submission <= self.done or (mark.stamp is not None and mark.stamp.here)

    def wait(self, mark: _Mark) -> None:
        """See ``Driver``."""
        self._wait(mark.submission)

    def finish(self, queue: _Queue) -> None:
        """See ``Driver``."""
        self._wait(queue.last)

    def elapsed_s(self, mark: _Mark, since: _Mark) -> float:
        """See ``Driver``."""
        return (self._ticks(mark) - self._ticks(since)) * self.tick_s

    def busy_s(self, mark: _Mark) -> float | None:
        """How long the device was at the launch that ends with this mark; None of what was not timed, or long ago."""
        if mark.launch is None or mark.launch < self.launches - _STAMPS // 2:
            return None
        if self.read_stamps is None or self.read_stamps[0] <= mark.launch:
            count = min(2 * self.launches, _STAMPS)
            encoder = self.device.create_command_encoder()
            staged = self._resolved(encoder, self._ring, count)
            submission = self._send([encoder.finish()]).submission
            found = np.empty(8 * count, np.uint8)
            Reading(self.native, staged, submission).into(found)
            self._came(submission)
            self.read_stamps = (self.launches, found.view(np.uint64))
        began, ended = (int(one) for one in self.read_stamps[1][2 * mark.launch % _STAMPS :][:2])
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
        return self._built(_STAMP, "stamp", {})

    @cached_property
    def _nothing(self) -> Any:
        return self.device.create_bind_group(layout=self._instant.layout, entries=[])

    def _resolved(self, encoder: Any, queries: Any, count: int) -> Any:
        """A buffer for the host to which the first time stamps of a set are copied."""
        staged = self.device.create_buffer(size=8 * count, usage=self.usage.COPY_DST | self.usage.MAP_READ)
        encoder.resolve_query_set(queries, 0, count, self._resolve, 0)
        encoder.copy_buffer_to_buffer(self._resolve, 0, staged, 0, 8 * count)
        return staged

    def _ticks(self, mark: _Mark) -> int:
        if mark.ticks is None:
            assert mark.stamp is not None  # noqa: S101  an event's mark has one
            found = np.empty(8, np.uint8)
            mark.stamp.into(found)
            mark.ticks, mark.stamp = int(found.view(np.uint64)[0]), None
            if mark.ticks == 0:
                raise Failed("the device has written no time stamp")
        return mark.ticks

    # Submissions.

    def _send(self, commands: Sequence[Any], queue: _Queue | None = None) -> _Mark:
        self.sent, self.unsent = self.native.submit(commands), 0
        self._listen()
        if queue is not None:
            queue.last = self.sent
        return _Mark(self.sent)

    def _wait(self, submission: int) -> None:
        if submission > self.sent:  # writes that were not submitted yet
            self._send([])
        if submission > self.done:
            self.native.wait(submission)
            self._came(submission)

    def _came(self, submission: int) -> None:
        """All submissions up to this are done: what they copy to the host lands."""
        self._listen()
        self.done = max(self.done, submission)
        while self.landings and self.landings[0][0].submission <= self.done:
            reading, data = self.landings.pop(0)
            reading.into(data)

    def _listen(self) -> None:
        said = self.heard.taken()
        if said:
            raise Failed("; ".join(said))

    # What goes wrong.

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str, Reason | None] | None:
        """See ``Driver``. The library's calls raise what they meet; what is only logged is raised here."""
        if not isinstance(error, (self.wgpu.GPUError, Failed)):
            return None
        words = _words(str(error))
        if "device" in words.lower() and " lost" in words.lower():
            return DeviceLost, words, None
        if isinstance(error, self.wgpu.GPUOutOfMemoryError):
            return DeviceOutOfMemory, words, None
        return None, words, "configuration" if isinstance(error, self.wgpu.GPUValidationError) else None

    def close(self) -> None:
        """See ``Driver``: all that it holds goes with it."""

    def energy_j(self) -> float | None:
        """WebGPU has no counter of energy."""
        return None


def _words(message: str) -> str:
    """The library's message on one line, from what to where; a compiler's as it is, since it points at the source."""
    lines = [line.strip() for line in message.splitlines()]
    if any(line.startswith("┌") for line in lines):
        return message.strip()
    return ": ".join(line for line in lines if line and line not in ("Validation Error", "Caused by:"))


_WARPS: dict[tuple[str, str], int] = {}
"""By device and driver, since the kernel that looks has to be compiled."""


def context(found: Found, adapter: Any) -> RealContext[Any, Any]:
    """The device, opened for a program."""
    driver = WgpuDriver(adapter)
    key = (found.label, found.driver)
    if key not in _WARPS:
        _WARPS[key] = driver.warp()
    return RealContext(driver, _info(found, driver.limits, driver.features, _WARPS[key]))


def operations(found: Found, adapter: Any) -> KernelOperations:
    """The device, as one that does operations."""
    opened = context(found, adapter)
    lacks = {"int8": "WGSL has no 8-bit integers", "bfloat16": "WGSL has no bfloat16"}
    if "float16" not in opened.info.features:
        lacks["float16"] = "this device has no shader-f16"
    return KernelOperations(opened, {"driver": opened.info.driver, "wgpu": version("wgpu")}, lacks)
