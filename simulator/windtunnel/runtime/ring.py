"""Ring kernels: persistent kernels that take commands from a queue in memory that host and device both map.

>>> with accelerator.ring(step, (142,), (256,), state, message=np.uint32, reply=np.float32, capacity=64) as ring:
...     ring.send(5)
...     pressure = ring.receive()

The handler takes a message and the state's arrays, and returns a reply or None. Messages and replies are records of
fixed size. Some APIs cannot keep a kernel running (Metal, WebGPU, Vulkan, OpenCL). There the kernel is launched again
whenever messages are waiting and it is not running. ``pattern`` tells which of the two applies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InvalidArgument, QueueFull
from windtunnel.runtime.interface import Dims
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.ring_queue import RingQueue, StalledSlot

Pattern = Literal["persistent", "relaunch"]


def control_block(bits: int) -> np.dtype[Any]:
    """Return the type of the control block: four 32-bit fields, and the number of processed messages in ``bits``."""
    flags = ("is_active", "should_terminate", "has_terminated", "errors_encountered")
    return np.dtype([*((name, "<i4") for name in flags), ("messages_processed", f"<u{bits // 8}")])


@dataclass(frozen=True)
class RingSpec:
    """The parameters of a ring kernel. ``state`` holds the arrays and scalars that the handler receives each time."""

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
    """The contents of the queues when a ring kernel ended: replies not yet received, and messages not processed."""

    replies: list[Any] = field(default_factory=list)
    unprocessed: list[Any] = field(default_factory=list)


class RingDevice(Protocol):
    """A ring kernel as a back end implements it."""

    name: str
    pattern: Pattern
    input: RingQueue
    output: RingQueue | None
    dead: bool
    """Whether it ended because its device was reset or closed."""
    launches: int
    """The number of launches so far."""
    failure: Exception | None
    """The error that its handler raised; None while it works."""

    def send(self, record: Any) -> bool:
        """Write a message; return False if the queue is full."""

    def poll(self) -> Any | None:
        """Return the next reply, or None if there is none yet."""

    def wait_reply(self) -> Any:
        """Wait for the next reply. Raises Deadlock if none can arrive."""

    def wait_room(self) -> None:
        """Wait until the queue has a free slot. Raises Deadlock if none can become free."""

    def wait_idle(self) -> None:
        """Wait until all messages are processed. Raises Deadlock if that cannot happen."""

    def activate(self, active: bool) -> None:
        """Set whether the kernel takes messages."""

    def status(self) -> Status:
        """Read the control block."""

    def terminate(self, drain: bool) -> Termination:
        """End the kernel; with ``drain``, after the messages that it can still process."""


class RingOwner(Protocol):
    """The accelerator that runs a ring kernel, as far as the ring kernel uses it."""

    @property
    def name(self) -> str:
        """The device's label."""

    def make_error(self, error: type[Any], operation: str, problem: str) -> Any:
        """Create an error of this device, with the API's code."""

    def ring_call(self, operation: str, name: str) -> None:
        """Inject faults into a call on a ring kernel."""

    def count_launches(self, launches: int) -> None:
        """Count launches that a ring kernel made."""


class RingKernel:
    """The host's interface to a ring kernel, emulated or real."""

    def __init__(self, owner: RingOwner, device: RingDevice) -> None:
        self.owner, self.device = owner, device
        self._counted = device.launches
        self.left: Termination | None = None
        """The contents of the queues at termination; None while it runs."""

    @property
    def name(self) -> str:
        """The name of the handler."""
        return self.device.name

    @property
    def pattern(self) -> Pattern:
        """``persistent`` if the kernel keeps running, ``relaunch`` if it is launched whenever messages are waiting."""
        return self.device.pattern

    @property
    def capacity(self) -> int:
        """The number of messages that the input queue can hold."""
        return self.device.input.capacity

    def try_send(self, message: Any) -> bool:
        """Write a message; return False if the queue is full."""
        self._alive("send")
        return self.device.send(self._record(message))

    def send(self, message: Any, *, wait: bool = False) -> None:
        """Write a message. If the queue is full, wait for a free slot with ``wait``, else raise QueueFull."""
        self._alive("send")
        record = self._record(message)
        while not self.device.send(record):
            if not wait:
                problem = f"all {self.capacity:,} slots are taken"
                raise self.owner.make_error(QueueFull, f"send to ring kernel '{self.name}'", problem)
            self.device.wait_room()

    def poll(self) -> Any | None:
        """Return the next reply, or None if there is none yet."""
        self._answers("poll")
        return self.device.poll()

    def receive(self) -> Any:
        """Wait for the next reply. Raises Deadlock, with the reason, if none can arrive."""
        self._answers("receive")
        return self.device.wait_reply()

    def drain(self) -> None:
        """Wait until all messages are processed."""
        self._alive("drain")
        self.device.wait_idle()

    def call(self, message: Any) -> Any:
        """Send a message and wait for its reply."""
        self.send(message)
        return self.receive()

    def activate(self) -> None:
        """Take messages again after ``pause``."""
        self._alive("activate")
        self.device.activate(True)

    def pause(self) -> None:
        """Stop taking messages. The message that is being processed is completed."""
        self._alive("pause")
        self.device.activate(False)

    def status(self) -> Status:
        """Read the control block and the state of the queues."""
        self._alive("status")
        return self.device.status()

    def terminate(self, *, drain: bool = True) -> Termination:
        """End the kernel after the message that is being processed.

        Args:
            drain: Process all other messages first, unless the kernel is paused.

        Returns:
            The replies not yet received and the messages not processed, also kept in ``left``. If the handler failed,
            the first unprocessed message is the one that it failed on.

        Raises:
            Exception: The handler's error, if it failed.
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
        self.owner.count_launches(self.device.launches - self._counted)
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
            reason = "ended with its device" if self.device.dead else "was terminated"
            raise self.owner.make_error(InvalidArgument, what, f"the kernel {reason}")
        self._count()
        self.owner.ring_call("send" if operation == "send" else "receive", self.name)

    def _answers(self, operation: str) -> None:
        self._alive(operation)
        if self.device.output is None:
            problem = "its handler sends no replies (reply=None); use drain() to wait for it"
            raise self.owner.make_error(InvalidArgument, f"{operation} ring kernel '{self.name}'", problem)

    def _record(self, message: Any) -> Any:
        return record_of(message, self.device.input.dtype, self._refuse)

    def _refuse(self, problem: str) -> Exception:
        error: Exception = self.owner.make_error(InvalidArgument, f"send to ring kernel '{self.name}'", problem)
        return error


def record_of(value: Any, dtype: np.dtype[Any], refuse: Callable[[str], Exception]) -> Any:
    """Return ``value`` as one record of ``dtype``. Only rounding to a narrower float may change it.

    Args:
        value: A scalar, a tuple or list of the fields' values, or a record.
        dtype: The type of the queue's records.
        refuse: Creates the error that is raised for a value that is not such a record.
    """
    kind = getattr(value, "dtype", None)
    if kind is not None and kind == dtype and not getattr(value, "ndim", 0):
        return value[()] if isinstance(value, np.ndarray) else value
    if isinstance(value, list):
        value = tuple(value)
    try:
        with np.errstate(all="ignore"):  # an overflow is refused below
            record = np.array(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise refuse(f"{value!r} is not a record of {dtype}: {error}") from None
    if record.ndim:
        raise refuse(f"{record.size:,} records at once; a message is one record of {dtype}")
    if not _is_preserved(record[()], value):
        raise refuse(f"{value!r} is not a {dtype}")
    return record[()]


def _is_preserved(record: Any, value: Any) -> bool:
    """Return whether a record still has the value that it was created from."""
    names = record.dtype.names
    if names is not None:
        fields = value if isinstance(value, tuple) else (value.item() if hasattr(value, "item") else ())
        return len(fields) == len(names) and all(map(_is_preserved, (record[name] for name in names), fields))
    if value is None or record.ndim:
        return value is not None
    if record.dtype.kind in "fc":
        if not isinstance(value, (Number, np.generic, np.ndarray)):
            return False
        return bool(np.isfinite(record) == np.isfinite(np.asarray(value)))
    return bool(record == value)


def record_type(value: npt.DTypeLike, refuse: Callable[[str], Exception]) -> np.dtype[Any]:
    """Return the type of messages or replies; raise ``refuse(problem)`` if it has objects or no fixed size."""
    dtype = np.dtype(value)
    if dtype.hasobject or dtype.itemsize == 0:
        raise refuse(f"{dtype} is not a type of fixed size for messages")
    return dtype
