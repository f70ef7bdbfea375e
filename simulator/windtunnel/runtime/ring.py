"""Ring kernels: one launch, then commands through queues in memory that host and device both see (persistent actors).

>>> with accelerator.ring(step, (142,), (256,), state, message=np.uint32, reply=np.float32, capacity=64) as ring:
...     ring.send(5)
...     pressure = ring.receive()

The handler takes a message and the state's arrays, and returns a reply or None. Messages and replies are records of
fixed size. Where an API keeps no kernel running (Metal, WebGPU, Vulkan, OpenCL), the kernel is launched anew whenever
messages are there and it is not running: ``pattern`` says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InvalidArgument, QueueFull
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.ring_queue import RingQueue, StalledSlot

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator

Pattern = Literal["persistent", "relaunch"]


def control_block(bits: int) -> np.dtype[Any]:
    """The control block's layout: four flags and counters of 32 bits, and the messages processed, in ``bits`` bits."""
    flags = ("is_active", "should_terminate", "has_terminated", "errors_encountered")
    return np.dtype([*((name, "<i4") for name in flags), ("messages_processed", f"<u{bits // 8}")])


@dataclass(frozen=True)
class RingSpec:
    """What a back end needs to start a ring kernel. ``state``: arrays and scalars that the handler keeps."""

    handler: Kernel
    grid: Dims
    block: Dims
    state: Sequence[Any]
    message: np.dtype[Any]
    reply: np.dtype[Any] | None
    capacity: int


@dataclass(frozen=True)
class Status:
    """The state of the control block and the queues, as the host reads it.

    ``stalled_slots``: slots that a producer or consumer claimed and did not release (see ``ring_queue.StalledSlot``).
    """

    active: bool
    terminated: bool
    errors: int
    processed: int
    waiting: int
    replies: int
    stalled_slots: Sequence[StalledSlot]


@dataclass
class Termination:
    """What a ring kernel left: nothing of it is lost. ``replies``: not yet received; ``unprocessed``: messages."""

    replies: list[Any] = field(default_factory=list)
    unprocessed: list[Any] = field(default_factory=list)


class RingDevice(Protocol):
    """A back end's side of a ring kernel."""

    name: str
    pattern: Pattern
    input: RingQueue
    output: RingQueue | None
    dead: bool
    """Whether it went with its device, by a reset or the device's end."""
    launches: int
    """How often it was launched."""
    failure: Exception | None
    """What its handler failed with, from then on."""

    def send(self, record: Any) -> bool:
        """Write a message; False where the queue is full."""

    def poll(self) -> Any | None:
        """Look once for a reply."""

    def wait_reply(self) -> Any:
        """Wait for a reply; Deadlock where none can come."""

    def wait_room(self) -> None:
        """Wait until a message can be sent; Deadlock where it never can."""

    def wait_idle(self) -> None:
        """Wait until all that was sent is processed; Deadlock where it never is."""

    def activate(self, active: bool) -> None:
        """Let it take messages, or not."""

    def status(self) -> Status:
        """Look at the control block."""

    def terminate(self, drain: bool) -> Termination:
        """End it, after all messages that it can still process where ``drain``."""


class RingKernel:
    """The host's side of a ring kernel, emulated or real. See the module."""

    def __init__(self, owner: Accelerator, device: RingDevice) -> None:
        self.owner, self.device = owner, device
        self._counted = device.launches
        self.left: Termination | None = None
        """What it left when it was terminated."""

    @property
    def name(self) -> str:
        """The handler's name."""
        return self.device.name

    @property
    def pattern(self) -> Pattern:
        """``persistent``: it stays; ``relaunch``: it is launched whenever messages are there."""
        return self.device.pattern

    @property
    def capacity(self) -> int:
        """Messages that the queue holds."""
        return self.device.input.capacity

    def try_send(self, message: Any) -> bool:
        """Write a message; False where the queue is full."""
        self._alive("send")
        return self.device.send(self._record(message))

    def send(self, message: Any, *, wait: bool = False) -> None:
        """Write a message. QueueFull where there is no room, unless it is to ``wait`` for some."""
        self._alive("send")
        record = self._record(message)
        while not self.device.send(record):
            if not wait:
                problem = f"all {self.capacity:,} slots are taken"
                raise self.owner.make_error(QueueFull, f"send to ring kernel '{self.name}'", problem)
            self.device.wait_room()

    def poll(self) -> Any | None:
        """Look once: a reply, or None where none is there yet."""
        self._answers("poll")
        return self.device.poll()

    def receive(self) -> Any:
        """Wait for the next reply. Deadlock, with the reason, where none can come."""
        self._answers("receive")
        return self.device.wait_reply()

    def drain(self) -> None:
        """Wait until all that was sent is processed."""
        self._alive("drain")
        self.device.wait_idle()

    def call(self, message: Any) -> Any:
        """Send and receive."""
        self.send(message)
        return self.receive()

    def activate(self) -> None:
        """Let it take messages: it does from the beginning, unless it was paused."""
        self._alive("activate")
        self.device.activate(True)

    def pause(self) -> None:
        """Let messages wait; the one under way is finished."""
        self._alive("pause")
        self.device.activate(False)

    def status(self) -> Status:
        """Look at the control block and the queues."""
        self._alive("status")
        return self.device.status()

    def terminate(self, *, drain: bool = True) -> Termination:
        """End it gracefully: what is under way is finished, and with ``drain`` all that was sent, if it is not paused.

        Returns (and keeps in ``left``) the replies that were not received and the messages that were not processed.
        Raises what its handler failed with, if it did; the message that it failed on is the first that was not.
        """
        self._alive("terminate")
        return self._end(drain)

    def _end(self, drain: bool) -> Termination:
        self.left = self.device.terminate(drain)
        self._count()
        if self.device.failure is not None:
            raise self.device.failure
        return self.left

    def _count(self) -> None:
        self.owner.counters.launches += self.device.launches - self._counted
        self._counted = self.device.launches

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.left is not None or self.device.dead:
            return
        if kind is None:
            self._end(True)
        else:
            self.left = self.device.terminate(False)

    def __repr__(self) -> str:
        return f"<{self.pattern} ring kernel '{self.name}' on {self.owner.name}>"

    def _alive(self, operation: str) -> None:
        what = f"{operation} ring kernel '{self.name}'"
        if self.left is not None or self.device.dead:
            gone = "went with its device" if self.device.dead else "was terminated"
            raise self.owner.make_error(InvalidArgument, what, f"the kernel {gone}")
        self._count()
        self.owner.ring_call("send" if operation == "send" else "receive", self.name)

    def _answers(self, operation: str) -> None:
        self._alive(operation)
        if self.device.output is None:
            problem = "its handler gives no replies (reply=None); drain() waits for it"
            raise self.owner.make_error(InvalidArgument, f"{operation} ring kernel '{self.name}'", problem)

    def _record(self, message: Any) -> Any:
        return record_of(message, self.device.input.dtype, self._refuse)

    def _refuse(self, problem: str) -> Exception:
        found: Exception = self.owner.make_error(InvalidArgument, f"send to ring kernel '{self.name}'", problem)
        return found


def record_of(value: Any, dtype: np.dtype[Any], refuse: Callable[[str], Exception]) -> Any:
    """``value`` as one record of ``dtype``; raises what ``refuse`` makes of a problem where it is none.

    Nothing is lost on the way but what rounding to a narrower float takes.
    """
    kind = getattr(value, "dtype", None)
    if kind is not None and kind == dtype and not getattr(value, "ndim", 0):
        return value[()] if isinstance(value, np.ndarray) else value
    if isinstance(value, list):
        value = tuple(value)
    try:
        with np.errstate(all="ignore"):  # what overflows is refused below
            found = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse(f"{value!r} is no record of {dtype}: {error}") from None
    if found.ndim:
        raise refuse(f"{found.size:,} records at once, where a message is one of {dtype}")
    if not _kept(found[()], value):
        raise refuse(f"{value!r} is no {dtype}")
    return found[()]


def _kept(record: Any, value: Any) -> bool:
    """Whether a record still is what it was made of."""
    names = record.dtype.names
    if names is not None:
        given = value if isinstance(value, tuple) else (value.item() if hasattr(value, "item") else ())
        return len(given) == len(names) and all(_kept(record[n], one) for n, one in zip(names, given, strict=True))
    if value is None or record.ndim:
        return value is not None
    if record.dtype.kind in "fc":
        if not isinstance(value, (Number, np.generic, np.ndarray)):
            return False
        return bool(np.isfinite(record) == np.isfinite(np.asarray(value)))
    return bool(record == value)


def record_type(given: npt.DTypeLike, refuse: Callable[[str], Exception]) -> np.dtype[Any]:
    """A type of messages: of fixed size, without objects."""
    found = np.dtype(given)
    if found.hasobject or found.itemsize == 0:
        raise refuse(f"{found} is no type of fixed size for messages")
    return found
