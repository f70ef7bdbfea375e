"""The queue of ring kernels: bounded, lock-free, many producers and consumers, in memory that host and device map.

The algorithm is written once, as generators of steps on memory (``push_steps``, ``pop_steps``). ``RingQueue`` runs
them to their end on NumPy arrays; the tests run the same source step by step, in every order that processes can take.

It is the bounded MPMC queue of Dmitry Vyukov (1024cores.net, "Bounded MPMC queue"): free-running counters ``head`` and
``tail``, and in every slot a sequence number that says whose turn it is: ``p`` where the producer of position ``p`` may
claim it, ``p + 1`` once that message is published, ``p + capacity`` once its consumer let go. Two things differ:

- **Full and empty are exact.** Vyukov's answers "full" while a consumer still holds the slot, and "empty" while the
  producer of the oldest message has not published it, though later messages may be there. Here the other counter is
  read before either is said; where it denies it the answer is ``BUSY``: neither, somebody is in the middle, look again.
- Numbers are compared for equality alone, never by the sign of a difference. So counters may be as narrow as
  ``narrowest(capacity)``, and only an operation that is overtaken by almost all of a counter's range goes wrong.

As with Vyukov's, an attempt never waits for others, but a process that stops in the middle of one holds up the rest.

What is proved, and how (docs/decisions/0015-ring-queue.md): every interleaving of small cases, where each step is
indivisible and all see the steps in one order. Real memory keeps that order where ``head``, ``tail`` and the sequence
numbers are sequentially consistent atomics at system scope (CUDA: the default of ``cuda::atomic``), because two
processes never access a message at once. WGSL's atomics order nothing but themselves: there a message that was pushed
in another workgroup may be read stale, and this proof does not hold.
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

# What a step does, and what it answers: an atomic load, the value; an atomic store, None; a compare-exchange, whether
# it exchanged and the value seen; plain accesses to a slot's message, which must never meet another's.
LOAD, STORE, EXCHANGE, READ, WRITE = "load", "store", "compare-exchange", "read", "write"
HEAD, TAIL, SEQUENCE, MESSAGE = "head", "tail", "sequence", "message"

Step: TypeAlias = "tuple[Any, ...]"
"""(what, which, index, ...): a store's or write's value, or an exchange's expected and new value, at the end."""


class Outcome(Enum):
    """What came of one attempt to push or to pop. True only where it was done."""

    DONE = "done"
    FULL = "full"
    """At one moment during the attempt the queue held ``capacity`` messages."""
    EMPTY = "empty"
    """At one moment during the attempt the queue held none."""
    BUSY = "busy"
    """Neither: the consumer of the slot, or the producer of the oldest message, was in the middle of it. Look again."""

    def __bool__(self) -> bool:
        return self is Outcome.DONE


_DONE, _FULL, _EMPTY, _BUSY = Outcome


def narrowest(capacity: int) -> int:
    """The fewest bits of a counter that tell a full queue from an empty one: one more than the capacity's logarithm.

    With ``bits`` of them an operation is safe while each counter moves by fewer than ``2**bits - capacity`` between its
    first step and its last (of 32 bits, for 4.3 s at a billion messages a second); held up longer it may go wrong.
    """
    return capacity.bit_length()


@dataclass(frozen=True)
class Layout:
    """A queue's ``capacity`` in messages (a power of two from 2) and the ``bits`` of its counters; else InputError."""

    capacity: int
    bits: int = 64
    mask: int = field(init=False, repr=False)
    """Of a counter, the bits that are the slot's index."""
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
        """(head and tail, sequence numbers) of an empty queue whose next position is ``start``."""
        first = start & self.wrap
        return first, [(first + (slot - first) % self.capacity) & self.wrap for slot in range(self.capacity)]


def push_steps(layout: Layout, message: Any) -> Generator[Step, Any, Outcome]:
    """Append ``message`` at the tail: DONE, FULL or BUSY. It takes effect at the exchange of the tail."""
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
    """Take the oldest message: (DONE, it), or EMPTY or BUSY and None. It takes effect at the exchange of the head."""
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
    """A position that a process claimed and has not let go: it is in the middle, or it never comes back.

    ``position``: the counter's value; ``by``: ``producer`` (claimed, not published: the message, and all behind it,
    reach nobody) or ``consumer`` (claimed, not released: once the tail has come round to it, nothing more goes in).
    ``observations``: calls of ``RingQueue.stalled_slots`` in a row, this one included, that found it so.
    """

    position: int
    slot: int
    by: str
    observations: int


class RingQueue:
    """A queue of fixed-size records (``dtype``) that runs each attempt to its end.

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
        """The messages' memory."""
        unsigned = next(f"u{size}" for size in (1, 2, 4, 8) if bits <= 8 * size)
        first, sequences = self.layout.fresh(start)
        self.counters = np.array([first, first, *sequences], unsigned)
        """Head, tail, and the slots' sequence numbers: the memory that is accessed with atomics."""
        # Views whose elements are Python's own numbers: NumPy's take three times as long, and warn where they wrap.
        counters = self.counters.data
        self._cells = {HEAD: counters[:1], TAIL: counters[1:2], SEQUENCE: counters[2:]}
        self._held: dict[tuple[int, str], int] = {}
        self.pushed = 0
        """Messages that ``push`` put in."""
        self.popped = 0
        """Messages that ``pop`` took out."""

    @property
    def capacity(self) -> int:
        """Messages that fit; every slot is used."""
        return self.layout.capacity

    @property
    def nbytes(self) -> int:
        """Bytes of messages and counters, without the padding that keeps counters on cache lines of their own."""
        return self.slots.nbytes + self.counters.nbytes

    def __len__(self) -> int:
        """Messages whose place was claimed by a producer and by no consumer yet, published or not."""
        return (self._cells[TAIL][0] - self._cells[HEAD][0]) & self.layout.wrap

    def __bool__(self) -> bool:
        return True  # a queue is there, however empty

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self):,} of {self.capacity:,} messages of {self.dtype}>"

    def push(self, message: Any) -> Outcome:
        """Append a record: DONE, FULL, or BUSY while somebody else is in the middle. Never waits."""
        outcome: Outcome = self._run(push_steps(self.layout, self.checked(message)))
        self.pushed += outcome is _DONE
        return outcome

    def pop(self) -> tuple[Outcome, Any]:
        """Take the oldest record: (DONE, a copy of it), or EMPTY or BUSY and None. Never waits."""
        outcome, message = self._run(pop_steps(self.layout))
        self.popped += outcome is _DONE
        return outcome, message

    def try_push(self, message: Any) -> bool:
        """Append a record if that can be done now; ``push`` says what stood against it."""
        return self.push(message) is _DONE

    def try_pop(self) -> Any | None:
        """The oldest record if it can be had now, or None; ``pop`` says what stood against it."""
        return self.pop()[1]

    def checked(self, message: Any) -> Any:
        """``message`` where it is one record of the queue's type; InvalidArgument in words where not."""
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
        """Whether it is a string that fits: NumPy's own have lost the zeros at their end."""
        return kind.kind in "SU" and kind.kind == self.dtype.kind and kind.itemsize <= self.dtype.itemsize

    def apply(self, step: Step) -> Any:
        """Do one step on the queue's memory and return what it answers. For who runs ``push_steps`` step by step."""
        what, which, index = step[:3]
        if what == LOAD:
            return self._cells[which][index]
        if what == EXCHANGE:
            cell = self._cells[which]
            found = cell[index]
            if found != step[3]:
                return False, found
            cell[index] = step[4]
            return True, found
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

        That is all that memory tells: a producer that is slow and one that is dead look alike, and which process it was
        is written nowhere. The longer the time between looks, and the more of them, the likelier it is lost; it is
        never certain. One that died before it claimed, or after it published or released, is not seen and did no harm.

        Each is true of the moment at which its sequence number was read, since head and tail were read before. On real
        hardware others go on meanwhile: it may have been let go by the time it is reported, but what two looks found
        was held from one to the other (unless a counter went all the way round between them).
        """
        layout = self.layout
        head, tail, sequences = self._cells[HEAD][0], self._cells[TAIL][0], self._cells[SEQUENCE]
        found: list[tuple[int, str]] = []
        for back in range(layout.capacity, 0, -1):
            position = (head - back) & layout.wrap
            # Only its consumer moves a sequence number on from "published", so this one has not.
            if sequences[position & layout.mask] == (position + 1) & layout.wrap:
                found.append((position, "consumer"))
        for ahead in range((tail - head) & layout.wrap):
            position = (head + ahead) & layout.wrap
            if sequences[position & layout.mask] == position:
                found.append((position, "producer"))
        self._held = {key: self._held.get(key, 0) + 1 for key in found}
        return [
            StalledSlot(key[0], key[0] & layout.mask, key[1], n) for key, n in self._held.items() if n >= observations
        ]
