"""The common interface of emulated and real devices: back end, context, stream, event, memory, function.

A program uses an `Accelerator` (accelerator.py) on top of it. A back end implements these protocols. Memory is untyped
here; shapes and types belong to `Buffer`. Times are seconds of the back end's clock, which is virtual for an emulated
device and measured for a real one, and never goes back.

`tests/conformance` checks every back end for the following rules, where APIs differ or do not specify the behaviour.
The rules are CUDA's, unless stated otherwise:

- An allocation of zero bytes is an error (CUDA returns a null pointer), so a buffer without elements has the memory of
  one; a copy of no elements has no effect.
- A copy whose two sides overlap is an error (undefined in CUDA, an error in OpenCL and WebGPU).
- Work in a stream is in order. Blocking streams and the default stream wait for each other, non-blocking ones do not.
- A stream that waits for an event that was not recorded does not wait; a host that does gets an error (CUDA returns at
  once). Recording an event again replaces it. The elapsed time of an event that was not reached is an error, and so is
  that from a later event to an earlier one.
- A stream can wait for events of any device of its program (of its ``Host``, if devices are emulated).
- A launch exactly at a limit is valid; the error of a larger one names the limit.
- A sticky error is raised by every later call for memory, work or a wait. Freeing memory remains possible (not in
CUDA), so that clean-up does not hide the first error. - A reset frees all memory. Streams and events created before it
must not be used. - A closed device rejects all calls. Its clock and counters can still be read, and closing again has
no effect. - A context and its objects are for one thread at a time; contexts of different threads are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # device discovery imports this module and must not load NumPy
    import numpy as np

from windtunnel.core.errors import Finding

MemoryKind = Literal["device", "pinned", "unified"]
Dims = tuple[int, int, int]
Interval = Literal["low", "best", "high"]
"""The model's value that a virtual clock uses: the best estimate, or an end of the 90% interval."""


@dataclass(frozen=True)
class Limits:
    """The limits of launches and devices through an API; ``source`` is the origin of the numbers."""

    threads_per_block: int
    block: Dims
    grid: Dims
    shared_bytes: int
    warp: int
    source: str
    atomic_bits: int = 64
    """The width of the widest atomic integers: WGSL has none of 64 bits."""


@dataclass(frozen=True)
class DeviceInfo:
    """The description of a device. ``virtual``: emulated. ``software``: the host's processor executes its code."""

    name: str
    kind: str
    api: str
    memory_bytes: float
    limits: Limits
    features: frozenset[str]
    virtual: bool
    software: bool = False
    compute_units: int = 1
    """The number of multiprocessors, compute units or cores."""
    driver: str = ""
    """The name and version of a real device's driver or library."""


class Memory(Protocol):
    """An allocation of a context."""

    kind: MemoryKind
    size: int
    """The size in bytes."""
    address: int
    """An address that is never used again in the context."""
    freed: bool
    """Whether it was freed, by the program or by a reset."""
    freed_at: tuple[str, int] | None
    """The file and line of the program that freed it; None if it was not freed or the line is unknown."""

    @property
    def allocated_at(self) -> tuple[str, int] | None:
        """The file and line of the program that allocated it; None if unknown."""


class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: Any = None) -> None:
        """Record the current position of ``stream``."""

    def synchronize(self) -> None:
        """Wait until the work before the event has ended."""

    def elapsed_s(self, since: Any) -> float:
        """Return the time (s) from another event to this one; both must have been reached."""


class Stream(Protocol):
    """A queue of work that executes in order."""

    def synchronize(self) -> None:
        """Wait until all work of the stream has ended."""

    def wait(self, event: Any) -> None:
        """Make later work of the stream wait for the event."""


class Function(Protocol):
    """A kernel, compiled for a device."""

    name: str


class Context(Protocol):
    """An opened device. All calls raise ``DeviceError`` with the operation, the API and its code.

    The objects of a context (``Memory``, ``Stream``, ``Event``, ``Function``) can be used only with that context.
    """

    @property
    def info(self) -> DeviceInfo:
        """The description of the device."""

    def allocate(self, size: int, kind: MemoryKind = "device") -> Any:
        """Allocate ``size`` bytes. Raises DeviceOutOfMemory if not enough memory is free."""

    def free(self, memory: Any) -> None:
        """Free memory."""

    def copy_in(self, memory: Any, array: np.ndarray, stream: Any, *, pinned: bool = False) -> None:
        """Copy from the host to the device. From pageable memory the host waits for the copy."""

    def copy_out(self, array: np.ndarray, memory: Any, stream: Any, *, pinned: bool = False) -> None:
        """Copy from the device to ``array``. To pageable memory the host waits for the copy."""

    def copy_within(self, to: Any, memory: Any, stream: Any) -> None:
        """Copy on the device."""

    def view(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Return memory as a kernel's argument."""

    def host_view(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Return unified or pinned memory as an array of the host, after waiting for the device."""

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> Any:
        """Compile a kernel. ``shipped``: load the binary that the program contains, if there is one."""

    def launch(
        self, function: Any, grid: Dims, block: Dims, arguments: Sequence[Any], stream: Any, shared: int
    ) -> None:
        """Enqueue a kernel."""

    def ring(self, spec: Any) -> Any:
        """Start a ring kernel (``ring.RingSpec``) and return its ``ring.RingDevice``."""

    before_mark: Callable[[str], None]
    """Called with the operation before an event is recorded and before a stream waits for one, to reject calls to a
    closed device."""
    before_wait: Callable[[], None]
    after_wait: Callable[[], None]
    """Called before and after the host waits for the device, a stream, an event or unified memory, but not for a copy.

    The accelerator sets them, to inject faults into waits.
    """

    work: Any
    """What counts and profiles launches; None on a real device."""

    findings: list[Finding]
    """The findings that were raised, in order; none on a real device."""

    capturing: Any
    """The ``graph.Capture`` while streams are captured; events then order its nodes and record no time."""

    def replay(self, nodes: Sequence[Any], stream: Any) -> None:
        """Execute the nodes of a graph (``graph.Node``) in order, at the cost of one dispatch."""

    def check_stream(self, stream: Any) -> None:
        """Raise InvalidArgument if ``stream`` is not a stream of this device."""

    def stream(self, *, non_blocking: bool = False) -> Any:
        """Create a stream. A blocking one and the default stream wait for each other (CUDA's legacy rule)."""

    def event(self) -> Any:
        """Create an event."""

    def synchronize(self) -> None:
        """Wait until all work has ended."""

    @property
    def trace_hash(self) -> str:
        """A hash of all steps that threads can observe of each other, in order; "" if not recorded."""

    @property
    def clock_s(self) -> float:
        """The host's clock (s)."""

    @property
    def program_clock_s(self) -> float:
        """The host's clock without the time for which kernels were translated and compiled (s)."""

    @property
    def provenance(self) -> str:
        """The least certain origin of the inputs of the clock so far (core.provenance)."""

    @property
    def energy_j(self) -> float:
        """The energy of the device since the context was opened (J)."""

    @property
    def allocated_bytes(self) -> int:
        """The device memory in use (bytes)."""

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """Return (bytes, file, line) of every allocation that was not freed, with the program's line that made it."""

    def start_trace(self) -> list[Any]:
        """Return a list that grows with all later work (``emulator.device.timeline.Span``); empty if unknown."""

    def stop_trace(self, spans: list[Any]) -> None:
        """Add nothing more to a list of `start_trace`."""

    def pass_time(self, seconds: float) -> None:
        """Let the host wait for a time (s)."""

    def scale_durations(self, factor: float) -> None:
        """Multiply the duration of all later work by ``factor`` (emulated devices only)."""

    @property
    def running(self) -> list[str]:
        """The names of ring kernels that have not been terminated."""

    def totals_when_idle(self) -> tuple[float, float]:
        """Return program clock (s) and energy (J) at the end of all enqueued work; emulated devices do not wait."""

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """Return the data that a pending copy writes to a host array (emulated devices only)."""

    def clear(self) -> None:
        """Free all memory and end all ring kernels of a program; the device stays open and keeps its memory pool."""

    def close(self) -> None:
        """Free all resources."""


class Backend(Protocol):
    """An interface to devices."""

    name: str

    def count(self) -> int:
        """Return the number of devices."""

    def info(self, index: int = 0) -> DeviceInfo:
        """Return the description of a device."""

    def context(self, index: int = 0) -> Context:
        """Open a device."""
