"""The queue of ring kernels: a bounded lock-free queue for several producers and consumers in mapped memory.

The algorithm is written once, as generators of memory steps (``push_steps``, ``pop_steps``). ``RingQueue`` executes
them on NumPy arrays; the tests execute the same source step by step, in every interleaving of the processes.

It is the bounded MPMC queue of Dmitry Vyukov (1024cores.net, "Bounded MPMC queue"): free-running counters ``head`` and
``tail``, and in every slot a sequence number. It is ``p`` if the producer of position ``p`` may claim the slot,
``p + 1`` once that message is published, and ``p + capacity`` once its consumer released it. Two things differ:

- **Full and empty are exact.** Vyukov's queue returns "full" while a consumer still holds the slot, and "empty" while
  the producer of the oldest message has not published it, although later messages may exist. This queue also reads the
  other counter. If that contradicts, it returns ``BUSY``: another process is in the middle of an operation; try again.
- Numbers are only compared for equality, never by the sign of a difference. Counters may therefore be as narrow as
  ``narrowest(capacity)``. Only an operation that is overtaken by almost a counter's whole range fails.

As in Vyukov's queue, an attempt never waits for others, but a process that stops in the middle of one blocks the rest.

The tests prove this for every interleaving of small cases, with indivisible steps that all processes observe in one
order (docs/decisions/0015-ring-queue.md). Real memory has that order if ``head``, ``tail`` and the sequence numbers are
sequentially consistent atomics at system scope (CUDA: the default of ``cuda::atomic``), because two processes never
access a message at once. WGSL's atomics order only themselves: a message that another workgroup pushed may be read
stale, and the proof does not hold.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError, InvalidArgument
from windtunnel.runtime.codes import code_of

# The kinds of steps. An atomic load returns the value, an atomic store None, and a compare-exchange whether it
# exchanged and the value it read. READ and WRITE are plain accesses to a message, which must never be concurrent.
LOAD, STORE, EXCHANGE, READ, WRITE = "load", "store", "compare-exchange", "read", "write"
HEAD, TAIL, SEQUENCE, MESSAGE = "head", "tail", "sequence", "message"

Step: TypeAlias = "tuple[Any, ...]"
"""(kind, memory, index, ...), followed by the value of a store or write, or the two values of an exchange."""


class Outcome(Enum):
    """The outcome of an attempt to push or pop; only DONE is true."""

    DONE = "done"
    FULL = "full"
    """At one moment during the attempt the queue held ``capacity`` messages."""
    EMPTY = "empty"
    """At one moment during the attempt the queue was empty."""
    BUSY = "busy"
    """Neither: the slot's consumer or the oldest message's producer was in the middle of an operation. Try again."""

    def __bool__(self) -> bool:
        return self is Outcome.DONE


_DONE, _FULL, _EMPTY, _BUSY = Outcome


def narrowest(capacity: int) -> int:
    """Return the fewest bits of a counter that distinguish a full queue from an empty one: log2(capacity) + 1.

    With ``bits`` of them an operation is safe while each counter moves by fewer than ``2**bits - capacity`` between its
    first step and its last (with 32 bits, for 4.3 s at a billion messages a second).
    """
    return capacity.bit_length()


@dataclass(frozen=True)
class Layout:
    """The ``capacity`` of a queue in messages (a power of two of at least 2) and the ``bits`` of its counters."""

    capacity: int
    bits: int = 64
    mask: int = field(init=False, repr=False)
    """The bits of a counter that are the slot's index."""
    wrap: int = field(init=False, repr=False)
    """The largest value of a counter."""

    def __post_init__(self) -> None:
        if self.capacity < 2 or self.capacity & (self.capacity - 1):
            below = 1 << max(self.capacity, 2).bit_length() - 1
            near = below if self.capacity - below <= 2 * below - self.capacity else 2 * below
            raise InputError(
                f"a ring queue of {self.capacity:,} messages", expected=f"a power of two from 2, such as {near:,}"
            )
        if not narrowest(self.capacity) <= self.bits <= 64:
            raise InputError(
                f"counters of {self.bits} bits for a ring queue of {self.capacity:,} messages",
                expected=f"from {narrowest(self.capacity)} to 64 bits, so that full and empty differ",
            )
        object.__setattr__(self, "mask", self.capacity - 1)
        object.__setattr__(self, "wrap", (1 << self.bits) - 1)

    def fresh(self, start: int = 0) -> tuple[int, list[int]]:
        """Return the counters and the sequence numbers of an empty queue whose next position is ``start``."""
        first = start & self.wrap
        return first, [(first + (slot - first) % self.capacity) & self.wrap for slot in range(self.capacity)]


def push_steps(layout: Layout, message: Any) -> Generator[Step, Any, Outcome]:
    """Append ``message``; return DONE, FULL or BUSY. It takes effect at the exchange of the tail."""
    position = yield LOAD, TAIL, 0
    while True:
        slot = position & layout.mask
        if (yield LOAD, SEQUENCE, slot) == position:
            claimed, position = yield EXCHANGE, TAIL, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif (yield LOAD, HEAD, 0) == (position - layout.capacity) & layout.wrap:
            return _FULL
        else:
            before, position = position, (yield LOAD, TAIL, 0)
            if position == before:
                return _BUSY
    yield WRITE, MESSAGE, slot, message
    yield STORE, SEQUENCE, slot, (position + 1) & layout.wrap
    return _DONE


def pop_steps(layout: Layout) -> Generator[Step, Any, tuple[Outcome, Any]]:
    """Remove the oldest message; return (DONE, message), or EMPTY or BUSY and None."""
    position = yield LOAD, HEAD, 0
    while True:
        slot = position & layout.mask
        if (yield LOAD, SEQUENCE, slot) == (position + 1) & layout.wrap:
            claimed, position = yield EXCHANGE, HEAD, 0, position, (position + 1) & layout.wrap
            if claimed:
                break
        elif (yield LOAD, TAIL, 0) == position:
            return _EMPTY, None
        else:
            before, position = position, (yield LOAD, HEAD, 0)
            if position == before:
                return _BUSY, None
    message = yield READ, MESSAGE, slot
    yield STORE, SEQUENCE, slot, (position + layout.capacity) & layout.wrap
    return _DONE, message


@dataclass(frozen=True)
class StalledSlot:
    """A position that a process claimed and did not release: it is in the middle of an operation, or it died.

    ``position`` is the counter's value. ``by`` is ``producer`` (claimed, not published: this and later messages cannot
    be received) or ``consumer`` (claimed, not released: the queue is full once the tail reaches the slot).
    ``observations`` is the number of consecutive calls of ``RingQueue.stalled_slots`` that reported it.
    """

    position: int
    slot: int
    by: str
    observations: int


class RingQueue:
    """A queue of fixed-size records of type ``dtype``.

    ``start`` is the position of the first message, for tests of counters that wrap. ``name`` and ``api`` appear in
    errors. Raises InputError for an invalid capacity, width or type.
    """

    def __init__(
        self,
        capacity: int,
        dtype: npt.DTypeLike,
        *,
        bits: int = 64,
        start: int = 0,
        name: str = "ring queue",
        api: str = "native",
    ) -> None:
        self.layout = Layout(capacity, bits)
        self.dtype, self.name, self.api = np.dtype(dtype), name, api
        plain = self.dtype.isnative and not self.dtype.hasobject and self.dtype.subdtype is None
        if not plain or not self.dtype.itemsize:
            raise InputError(
                f"messages of type {self.dtype}",
                expected="a NumPy type of fixed size, in this machine's byte order, without objects "
                "(arrays: as fields of a structured type)",
            )
        self.slots = np.zeros(capacity, self.dtype)
        """The memory of the messages."""
        unsigned = next(f"u{size}" for size in (1, 2, 4, 8) if bits <= 8 * size)
        first, sequences = self.layout.fresh(start)
        self.counters = np.array([first, first, *sequences], unsigned)
        """Head, tail and the slots' sequence numbers, which are accessed by atomic operations."""
        # Memory views give Python integers: NumPy's scalars are three times slower, and warn when they wrap.
        counters = self.counters.data
        self._cells = {HEAD: counters[:1], TAIL: counters[1:2], SEQUENCE: counters[2:]}
        self._held: dict[tuple[int, str], int] = {}
        self.pushed = 0
        """The number of messages that ``push`` appended."""
        self.popped = 0
        """The number of messages that ``pop`` removed."""

    @property
    def capacity(self) -> int:
        """The number of messages that fit."""
        return self.layout.capacity

    @property
    def nbytes(self) -> int:
        """The size of messages and counters in bytes, without the padding of counters to cache lines."""
        return self.slots.nbytes + self.counters.nbytes

    def __len__(self) -> int:
        """Return the number of positions that a producer claimed and no consumer yet, published or not."""
        return (self._cells[TAIL][0] - self._cells[HEAD][0]) & self.layout.wrap

    def __bool__(self) -> bool:
        return True  # an empty queue is true as well

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self):,} of {self.capacity:,} messages of {self.dtype}>"

    def push(self, message: Any) -> Outcome:
        """Append a record without waiting; return DONE, FULL, or BUSY during another process's operation."""
        outcome: Outcome = self._run(push_steps(self.layout, self.checked(message)))
        self.pushed += outcome is _DONE
        return outcome

    def pop(self) -> tuple[Outcome, Any]:
        """Remove the oldest record without waiting; return (DONE, a copy of it), or EMPTY or BUSY and None."""
        outcome, message = self._run(pop_steps(self.layout))
        self.popped += outcome is _DONE
        return outcome, message

    def try_push(self, message: Any) -> bool:
        """Append a record; return whether that was possible. ``push`` returns the reason."""
        return self.push(message) is _DONE

    def try_pop(self) -> Any | None:
        """Return the oldest record, or None if that is not possible. ``pop`` returns the reason."""
        return self.pop()[1]

    def checked(self, message: Any) -> Any:
        """Return ``message`` if it is one record of the queue's type; else raise InvalidArgument."""
        kind = getattr(message, "dtype", None)
        if kind is None:
            problem = f"{type(message).__name__} {message!r} is not a record"
        elif kind != self.dtype and not self._shorter(kind):
            problem = f"{kind} of {kind.itemsize:,} bytes"
        elif message.ndim:
            problem = f"{message.size:,} records at once"
        else:
            return message
        problem += (
            f"; the queue takes one record of {self.dtype}, {self.dtype.itemsize:,} bytes (np.array(..., dtype)[()])"
        )
        raise InvalidArgument(problem, operation="push", device=self.name, code=code_of(self.api, InvalidArgument))

    def _shorter(self, kind: np.dtype[Any]) -> bool:
        """Return whether a type is that of a shorter string; NumPy strips trailing zeros from strings."""
        return kind.kind in "SU" and kind.kind == self.dtype.kind and kind.itemsize <= self.dtype.itemsize

    def apply(self, step: Step) -> Any:
        """Execute one step on the queue's memory and return its result, for a stepwise run of ``push_steps``."""
        what, which, index = step[:3]
        if what == LOAD:
            return self._cells[which][index]
        if what == EXCHANGE:
            cell = self._cells[which]
            value = cell[index]
            if value != step[3]:
                return False, value
            cell[index] = step[4]
            return True, value
        if what == STORE:
            self._cells[which][index] = step[3]
        elif what == WRITE:
            self.slots[index] = step[3]
        else:
            return self.slots[index].copy()  # of a structured type NumPy would give a view of the slot
        return None

    def _run(self, steps: Generator[Step, Any, Any]) -> Any:
        apply, send = self.apply, steps.send
        answer = None
        try:
            while True:
                answer = apply(send(answer))
        except StopIteration as end:
            return end.value

    def stalled_slots(self, observations: int = 1) -> list[StalledSlot]:
        """Return claimed positions that were not released in ``observations`` or more consecutive calls, oldest first.

        Memory does not distinguish a slow process from a dead one, nor does it identify the process. More observations,
        and longer times between them, make a dead process more likely, but never certain. A process that died before it
        claimed a slot, or after it published or released it, is not reported and does no harm.

        Each report holds for the moment at which its sequence number was read. On real hardware a slot may be released
        before the report is used. A slot in two consecutive reports was held between them, unless a counter wrapped.
        """
        layout = self.layout
        head, tail, sequences = self._cells[HEAD][0], self._cells[TAIL][0], self._cells[SEQUENCE]
        stalled: list[tuple[int, str]] = []
        for back in range(layout.capacity, 0, -1):
            position = (head - back) & layout.wrap
            # Only the consumer changes the sequence number of a published message, so it has not released it.
            if sequences[position & layout.mask] == (position + 1) & layout.wrap:
                stalled.append((position, "consumer"))
        for ahead in range((tail - head) & layout.wrap):
            position = (head + ahead) & layout.wrap
            if sequences[position & layout.mask] == position:
                stalled.append((position, "producer"))
        self._held = {key: self._held.get(key, 0) + 1 for key in stalled}
        return [
            StalledSlot(key[0], key[0] & layout.mask, key[1], n) for key, n in self._held.items() if n >= observations
        ]
