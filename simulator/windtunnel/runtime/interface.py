"""The one interface of emulated and real devices: back end, context, stream, event, memory, function.

An accelerator program holds an `Accelerator` (accelerator.py) on top of it; a new back end is one module that
has these. Memory is untyped here; shapes and types are `Buffer`'s. Times are seconds of the back end's own clock:
virtual for an emulated device, measured for a real one; they never go back.

What `tests/conformance` holds every back end to, where APIs differ or are silent. As CUDA does, unless it is said:

- Zero bytes are refused (CUDA gives a null pointer); a copy of no elements does nothing.
- A copy whose two sides share memory is refused (CUDA leaves it undefined, OpenCL and WebGPU refuse it).
- Work in a stream is in order. Blocking streams and the default stream wait for each other, non-blocking ones do not.
- A stream that waits for an event that was not recorded waits for nothing; the host that does is told so (CUDA returns
  at once). An event is recorded again from scratch. Elapsed time of an event that was not reached is an error, and so
  is that from a later event to an earlier.
- A stream waits for events of any device of its program (of its ``Host``, where devices are emulated).
- A launch exactly at a limit is made; beyond it, the error names the limit.
- A sticky error is raised by every later call that asks for memory, work or a wait. Giving memory back is not refused
  (CUDA refuses it too), so that cleaning up does not hide what failed first.
- Reset takes all memory. What streams and events of before do then is not said: make new ones.
- A closed device refuses all calls; its clock and its counts can still be read, and closing again does nothing.
- A context, with all that it gave, is for one thread at a time; contexts of different threads do not know each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # back ends read this to find devices, and do not wait for NumPy
    import numpy as np

MemoryKind = Literal["device", "pinned", "unified"]
Dims = tuple[int, int, int]
Interval = Literal["low", "best", "high"]
"""Which of the model's values a virtual clock takes: its best, or an end of the 90% interval."""


@dataclass(frozen=True)
class Limits:
    """What a launch and a device allow, through an API: ``source`` says where the numbers are from."""

    threads_per_block: int
    block: Dims
    grid: Dims
    shared_bytes: int
    warp: int
    source: str
    atomic_bits: int = 64
    """Of the widest atomic integers: WGSL has none of 64 bits."""


@dataclass(frozen=True)
class DeviceInfo:
    """What a back end says of a device. ``virtual``: emulated. ``software``: real code, but no accelerator."""

    name: str
    kind: str
    api: str
    memory_bytes: float
    limits: Limits
    features: frozenset[str]
    virtual: bool
    software: bool = False
    compute_units: int = 1
    """Multiprocessors, compute units or cores: how many blocks run side by side at least."""
    driver: str = ""
    """Name and version of a real device's driver or library."""


class Memory(Protocol):
    """A piece of memory of a context."""

    kind: MemoryKind
    size: int
    """Bytes."""
    address: int
    """Unique in the context, while it is allocated and after."""
    freed: bool
    """Whether it was given back, by the program or by a reset."""
    freed_at: tuple[str, int] | None
    """The line of the program that gave it back; None where it was not, or that is not known."""

    @property
    def allocated_at(self) -> tuple[str, int] | None:
        """The line of the program that allocated it; None where that is not known."""


class Event(Protocol):
    """A point in a stream's work."""

    def record(self, stream: Any = None) -> None:
        """Mark where ``stream`` is now."""

    def synchronize(self) -> None:
        """Wait until the work before it has ended."""

    def elapsed_s(self, since: Any) -> float:
        """Seconds from another event to this one, both reached."""


class Stream(Protocol):
    """A queue of work that is done in order."""

    def synchronize(self) -> None:
        """Wait until all of its work has ended."""

    def wait(self, event: Any) -> None:
        """Work given from now on begins after the event."""


class Function(Protocol):
    """A kernel, compiled for a device."""

    name: str


class Context(Protocol):
    """A device, opened. All calls raise ``DeviceError`` with the operation, the API and its code.

    What one context gives (``Memory``, ``Stream``, ``Event``, ``Function``) only it takes back.
    """

    @property
    def info(self) -> DeviceInfo:
        """What is known of the device."""

    def allocate(self, size: int, kind: MemoryKind = "device") -> Any:
        """``size`` bytes; DeviceOutOfMemory when so much is not free."""

    def free(self, memory: Any) -> None:
        """Give memory back."""

    def copy_in(self, memory: Any, array: np.ndarray, stream: Any, *, pinned: bool = False) -> None:
        """Host to device. From pageable memory the host waits for it."""

    def copy_out(self, array: np.ndarray, memory: Any, stream: Any, *, pinned: bool = False) -> None:
        """Device to host, into ``array``. To pageable memory the host waits for it."""

    def copy_within(self, to: Any, memory: Any, stream: Any) -> None:
        """Device to device."""

    def view(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        """Memory as a kernel takes it."""

    def host_view(self, memory: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        """Unified memory as the host sees it; the host waits until it may."""

    def compile(self, kernel: Callable[..., Any], *, shipped: bool = False) -> Any:
        """A kernel made ready to launch. ``shipped``: as a binary that came with the program, where there is one."""

    def launch(
        self, function: Any, grid: Dims, block: Dims, arguments: Sequence[Any], stream: Any, shared: int
    ) -> None:
        """Enqueue a kernel."""

    def ring(self, spec: Any) -> Any:
        """Start a ring kernel (``ring.RingSpec``): the device's side of it (``ring.RingDevice``)."""

    before_mark: Callable[[str], None]
    """Called, with its words, before an event is recorded and before a stream is told to wait: nothing is marked on a
    device that was closed."""
    before_wait: Callable[[], None]
    after_wait: Callable[[], None]
    """Called before and after the host waits for the device, a stream, an event or unified memory, not for a copy.

    Whoever holds the context sets them, to make waits fail on demand.
    """

    capturing: Any
    """A ``graph.Capture`` while streams are captured: events then tie its nodes, and mark no time."""

    def replay(self, nodes: Sequence[Any], stream: Any) -> None:
        """Do the nodes of a graph (``graph.Node``), in order, for one dispatch."""

    def check_stream(self, stream: Any) -> None:
        """InvalidArgument for what is no stream of this device."""

    def stream(self, *, non_blocking: bool = False) -> Any:
        """A new stream; a blocking one and the default stream wait for each other (CUDA's legacy rule)."""

    def event(self) -> Any:
        """A new event."""

    def synchronize(self) -> None:
        """Wait until all work has ended."""

    @property
    def trace_hash(self) -> str:
        """Of all steps that threads could see of each other, in their order; "" where that is not followed."""

    @property
    def clock_s(self) -> float:
        """The host's clock (s)."""

    @property
    def provenance(self) -> str:
        """Where the clock's figures come from: the weakest word of all that entered so far (core.provenance)."""

    @property
    def energy_j(self) -> float:
        """Energy of the device since the context was opened (J)."""

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use."""

    def live_allocations(self) -> Sequence[tuple[int, str, int]]:
        """(bytes, file, line) of every allocation that was not freed: the program's line that asked for it."""

    def start_trace(self) -> list[Any]:
        """A list that fills with what is done from now on (``emulator.device.timeline.Span``); stays empty if unknown."""

    def pass_time(self, seconds: float) -> None:
        """The host waits for so long."""

    def scale_durations(self, factor: float) -> None:
        """What is enqueued from now on takes ``factor`` times its time (emulated devices only)."""

    @property
    def running(self) -> list[str]:
        """The names of ring kernels that have not been terminated."""

    def totals_when_idle(self) -> tuple[float, float]:
        """(clock (s), energy (J)) when all work that was given has ended, without waiting where that can be known."""

    def pending_copy_view(self, array: np.ndarray) -> np.ndarray:
        """Where what is being copied to a host's array is now (emulated devices only)."""

    def clear(self) -> None:
        """Free what a program left, and end its ring kernels; the device stays open, with its pool of memory."""

    def close(self) -> None:
        """Free all that is left."""


class Backend(Protocol):
    """A way to devices."""

    name: str

    def count(self) -> int:
        """How many devices there are."""

    def info(self, index: int = 0) -> DeviceInfo:
        """What is known of one."""

    def context(self, index: int = 0) -> Context:
        """Open one."""
