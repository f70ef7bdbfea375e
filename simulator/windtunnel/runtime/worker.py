"""Workers that share nothing: each owns its state and its accelerator, and takes messages from a mailbox.

>>> with WorkerGroup() as group:
...     adder = AcceleratedWorker(group, "adder", lambda: windtunnel.device("l4"))
...     reply = adder.address.send(ComputeTask(add, (a, b)))
...     reply.result()

Every worker represents a separate host thread with its own clock, that of its accelerator. A worker handles a message
no earlier than it was sent, at ``max(own clock, sent)``, as in Lamport clocks. Sending takes no time. The group
executes events in order of virtual time; at equal times deliveries come first, then workers by name. A message is
therefore never handled while an earlier one could still arrive. The call that drives the group (``run``,
``Reply.result``, asyncio's event loop) decides only when results are computed, and never which.

A mailbox has a capacity. A message to a full mailbox waits, and blocks its sender, from the end of the sender's current
handler until the message is accepted (blocking after service). A cycle of blocked senders is a `Deadlock`. Each message
is handled once, or its reply has the reason why it was not.
"""

from __future__ import annotations

import asyncio
import heapq
import traceback
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy.typing as npt

from windtunnel.core.errors import Deadlock, DeviceError, InputError, WindtunnelError, nearest
from windtunnel.core.ticks import to_seconds, to_ticks
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.message import Sendable, carried

MAIN = "main"
"""The name of the program outside of all workers, as a sender."""


class HandlerError(WindtunnelError):
    """A worker's handler raised an error other than a device error.

    ``kind`` is its class, ``details`` its traceback.
    """

    def __init__(self, text: str, kind: str, details: str) -> None:
        self.kind, self.details = kind, details
        super().__init__(text)


class UndeliveredMessage(WindtunnelError):
    """A message was not handled, because its worker had failed."""


class UnhandledWorkerFailures(WindtunnelError, AssertionError):
    """Messages failed, and the program did not handle the failures."""


@dataclass(frozen=True)
class ComputeTask:
    """A request to compute ``kernel`` on ``arrays``, as ``Accelerator.compute`` does."""

    kernel: Kernel | Callable[..., Any]
    arrays: tuple[npt.ArrayLike, ...]


@dataclass(frozen=True)
class Address(Sendable):
    """The address of a worker. It can be sent in messages."""

    name: str
    _group: WorkerGroup = field(repr=False)

    def send(self, payload: Any) -> Reply:
        """Send a copy of ``payload``. The sender is the worker whose handler calls this, else the program.

        In a handler the call returns at once; the program waits until the mailbox accepts the message. Raises
        InputError for a payload that cannot be sent (see ``message``).
        """
        return self._group._send(self, payload)


@dataclass(frozen=True, eq=False)
class Envelope:
    """A message. ``sender`` is None for the program; ``number`` counts the sender's messages from 1."""

    sender: Address | None
    to: Address
    number: int
    payload: Any
    sent_s: float
    """The sender's clock (s) when it was sent."""
    reply: Reply = field(repr=False)

    def __str__(self) -> str:
        return f"message {self.number} from {self.sender.name if self.sender else MAIN} to {self.to.name}"


class Reply:
    """The handler's result or error; ``result()`` and ``await`` wait for it."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self.done = False
        self.arrived_s: float | None = None
        """The virtual time (s) at which it arrived."""
        self._value: Any = None
        self._error: Exception | None = None
        self._entered = False
        self._waiters: list[asyncio.Future[None]] = []

    def result(self) -> Any:
        """Wait for the result, or raise the handler's error. Raises InputError inside a handler."""
        if not self.done:
            self._group._outside("wait for a reply")
            self._group._until(lambda: self.done)
        return self._take()

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done:
            self._group._outside("wait for a reply")
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._group._pump_soon(waiter)
            yield from waiter
        return self._take()

    def _take(self) -> Any:
        self._group._unseen.pop(self, None)
        if self._error is not None:
            raise self._error
        return self._value


class _Clock:
    """A host's clock in ticks: that of an accelerator, or a number."""

    def __init__(self, accelerator: Accelerator | None) -> None:
        self._accelerator = accelerator
        self._tick = 0

    @property
    def tick(self) -> int:
        """The current time (ticks)."""
        if self._accelerator is not None:
            self._tick = max(self._tick, to_ticks(self._accelerator.clock_s))
        return self._tick

    def wait_until(self, tick: int) -> None:
        """Advance to ``tick`` if it is in the future."""
        wait = tick - self.tick
        if wait > 0:
            if self._accelerator is not None:
                self._accelerator.sleep(to_seconds(wait))
            self._tick = tick


class AcceleratedWorker:
    """A worker. Override ``handle_message`` for messages other than `ComputeTask`.

    ``open`` opens the accelerator, which no other worker may use, and ``state`` creates the state. ``capacity`` is the
    number of messages in the mailbox. After a sticky error of its device the worker resets it, at most ``restarts``
    times. Then it has ``failed``, and its messages are ``returned``.
    """

    def __init__(
        self,
        group: WorkerGroup,
        name: str,
        open: Callable[[], Accelerator],  # noqa: A002  as DevicePool calls it
        *,
        state: Callable[[], Any] = list,
        capacity: int = 64,
        restarts: int = 0,
    ) -> None:
        if capacity < 1 or restarts < 0:
            raise InputError(
                f"a mailbox of {capacity}, {restarts} restarts", expected="capacity from 1, restarts from 0"
            )
        self.accelerator = open()
        self.capacity, self.restarts = capacity, restarts
        self.handled = 0
        """The number of messages that its handler received, including failed ones."""
        self.failed: Exception | None = None
        self.returned: list[Envelope] = []
        """Messages that were not handled because it had failed."""
        self._state = state()
        self._mail: deque[tuple[int, Envelope]] = deque()
        self._door: deque[Envelope] = deque()
        self._to_come = 0
        self._held = 0
        self._clock = _Clock(self.accelerator)
        self.address = group._add(name, self)
        self._group = group

    # Methods that a subclass overrides.

    def handle_message(self, state: Any, envelope: Envelope) -> Any:
        """Handle a message and return the reply.

        This one computes a `ComputeTask` and appends the result to the state.
        """
        task = envelope.payload
        if not isinstance(task, ComputeTask):
            raise InputError(
                f"{envelope} is a {type(task).__name__}", expected="a ComputeTask, or a subclass that handles it"
            )
        result = self.accelerator.compute(task.kernel, *task.arrays)
        state.extend(result.reshape(-1))
        return result

    def on_restart(self, state: Any) -> Any:
        """Return the state after a reset, in which the device lost its memory; default: the same state."""
        return state

    # State and control.

    @property
    def name(self) -> str:
        """The worker's name in the group."""
        return self.address.name

    @property
    def clock_s(self) -> float:
        """The worker's clock (s)."""
        return to_seconds(self._clock.tick)

    @property
    def state(self) -> Any:
        """A copy of the state; InputError if it contains objects that cannot be sent, such as buffers."""
        return carried(self._state, f"the state of '{self.name}'")

    @property
    def waiting(self) -> int:
        """The number of messages in the mailbox and waiting for a place in it."""
        return len(self._mail) + len(self._door)

    def run(self) -> None:
        """Drive the group until this worker has no messages left, and wait for it."""
        self._group._outside("run a worker")
        self._group._until(lambda: not self._to_come)
        self._group._clock.wait_until(self._clock.tick)

    def restart(self) -> None:
        """Reset the device and accept messages again after a failure; returned messages are not handled again."""
        self._group._outside("restart a worker")
        self._clock.wait_until(self._group._clock.tick)
        self._reset()

    def _reset(self) -> None:
        self.accelerator.reset()
        self._state = self.on_restart(self._state)
        self.failed = None

    def __repr__(self) -> str:
        return f"<worker {self.name} on {self.accelerator.name}{', failed' if self.failed else ''}>"


_Event = tuple[int, str, int, Callable[[int], None]]


class WorkerGroup:
    """Workers that send messages to each other, and the program that sends messages to them.

    ``accelerator`` is the program's own, whose clock then is the program's. At the end of a ``with`` block the group
    handles all remaining messages, and raises `UnhandledWorkerFailures` for failures that the program did not read.
    """

    def __init__(self, accelerator: Accelerator | None = None) -> None:
        if accelerator is not None:
            _check_virtual(accelerator)
        self.workers: dict[str, AcceleratedWorker] = {}
        self._program = accelerator
        self._clock = _Clock(accelerator)
        self._events: list[_Event] = []
        """Messages and replies, ordered by virtual time, then sender, then order of sending."""
        self._sent: dict[str, int] = {}
        self._pushed: dict[str, int] = {}
        self._handling: AcceleratedWorker | None = None
        self._unseen: dict[Reply, tuple[Envelope, Exception]] = {}
        self._pumped: list[asyncio.Future[None]] = []
        self._pumping = False

    @property
    def clock_s(self) -> float:
        """The clock (s) of the program, after everything that it has waited for."""
        return to_seconds(self._clock.tick)

    def address(self, name: str) -> Address:
        """Return the address of a worker."""
        if name not in self.workers:
            raise InputError(f"there is no worker '{name}'", nearest=nearest(name, self.workers))
        return self.workers[name].address

    def run(self) -> None:
        """Handle all messages, and wait for every worker. Raises Deadlock if that cannot happen."""
        self._outside("run a group")
        self._until(lambda: not any(worker._to_come for worker in self.workers.values()) and not self._events)
        for worker in self.workers.values():
            self._clock.wait_until(worker._clock.tick)

    def sleep(self, seconds: float) -> None:
        """Advance the program's clock by a time (s)."""
        self._outside("sleep")
        self._clock.wait_until(self._clock.tick + to_ticks(seconds))

    def failures(self) -> list[tuple[Envelope, Exception]]:
        """Return the failed messages whose replies were not read, with their errors; they then count as read."""
        failures = list(self._unseen.values())
        self._unseen.clear()
        return failures

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        self.run()
        if self._unseen:
            messages = [f"{envelope}: {error}" for envelope, error in self.failures()]
            remainder = f" (and {len(messages) - 5} more)" if len(messages) > 5 else ""
            raise UnhandledWorkerFailures(
                f"{len(messages)} messages failed and were not handled: {'; '.join(messages[:5])}{remainder}"
            )

    # Sending.

    def _add(self, name: str, worker: AcceleratedWorker) -> Address:
        if not name or name == MAIN or name in self.workers:
            raise InputError(f"'{name}' is not a valid name of a worker", expected=f"a unique name other than '{MAIN}'")
        _check_virtual(worker.accelerator)
        others = {other.name: other.accelerator for other in self.workers.values()}
        if self._program is not None:
            others[MAIN] = self._program
        for other, accelerator in others.items():
            if _clock_of(accelerator) is _clock_of(worker.accelerator):
                same = accelerator.context is worker.accelerator.context
                raise InputError(
                    f"'{name}' shares {'an accelerator' if same else 'a clock'} with '{other}'",
                    expected="a separate accelerator, opened without a `host`",
                )
        self._outside("start a worker")
        worker._clock.wait_until(self._clock.tick)
        self.workers[name] = worker
        return Address(name, self)

    def _send(self, to: Address, payload: Any) -> Reply:
        if to._group is not self or to.name not in self.workers:
            raise InputError(f"'{to.name}' is not a worker of this group", nearest=nearest(to.name, self.workers))
        sender = self._handling
        name, clock = (MAIN, self._clock) if sender is None else (sender.name, sender._clock)
        copy = carried(payload)
        number = self._sent[name] = self._sent.get(name, 0) + 1
        reply = Reply(self)
        envelope = Envelope(None if sender is None else sender.address, to, number, copy, to_seconds(clock.tick), reply)
        self.workers[to.name]._to_come += 1
        self._push(clock.tick, name, lambda tick: self._deliver(envelope, tick))
        if sender is None:
            self._until(lambda: reply._entered)
        return reply

    def _push(self, tick: int, source: str, event: Callable[[int], None]) -> None:
        order = self._pushed[source] = self._pushed.get(source, 0) + 1
        heapq.heappush(self._events, (tick, source, order, event))

    # Events, in order of virtual time.

    def _step(self) -> bool:
        """Execute the earliest event; return False if there is none."""
        starts = [
            (max(worker._clock.tick, worker._mail[0][0]), name)
            for name, worker in self.workers.items()
            if worker._mail and not worker._held
        ]
        start = min(starts, default=None)
        if self._events and (start is None or self._events[0][0] <= start[0]):
            tick, _, _, event = heapq.heappop(self._events)
            # The program's clock follows all events, so that it cannot send a message before them.
            self._clock.wait_until(tick)
            event(tick)
        elif start is not None:
            self._clock.wait_until(start[0])
            self._handle(self.workers[start[1]], start[0])
        else:
            return False
        return True

    def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if not self._step():
                raise self._deadlock()

    def _deadlock(self) -> Deadlock:
        waits = [
            f"{envelope.sender.name if envelope.sender else MAIN} for room with {worker.name} "
            f"({len(worker._mail)} of {worker.capacity} taken)"
            for worker in self.workers.values()
            for envelope in worker._door
        ]
        return Deadlock(f"deadlock: {'; '.join(waits)}")

    def _deliver(self, envelope: Envelope, tick: int) -> None:
        worker = self.workers[envelope.to.name]
        if worker.failed is not None:
            self._return(worker, envelope, tick)
        elif len(worker._mail) < worker.capacity:
            worker._mail.append((tick, envelope))
            envelope.reply._entered = True
        else:
            worker._door.append(envelope)
            if envelope.sender is not None:
                self.workers[envelope.sender.name]._held += 1

    def _admit(self, worker: AcceleratedWorker, tick: int) -> Envelope:
        """Accept the first waiting message, and unblock its sender."""
        envelope = worker._door.popleft()
        envelope.reply._entered = True
        if envelope.sender is not None:
            sender = self.workers[envelope.sender.name]
            sender._held -= 1
            sender._clock.wait_until(tick)
        return envelope

    def _handle(self, worker: AcceleratedWorker, start: int) -> None:
        _, envelope = worker._mail.popleft()
        if worker._door:
            worker._mail.append((start, self._admit(worker, start)))
        worker._clock.wait_until(start)
        worker.handled += 1
        worker._to_come -= 1
        self._handling = worker
        try:
            value = carried(worker.handle_message(worker._state, envelope), "the result")
        except BaseException as error:
            self._answer(worker, envelope, worker._clock.tick, error=_error_for_sender(error, envelope))
            sticky = _sticky(error)
            if sticky is not None:
                self._fail(worker, sticky)
            if not isinstance(error, Exception):
                raise
        else:
            self._answer(worker, envelope, worker._clock.tick, value)
        finally:
            self._handling = None

    def _answer(
        self,
        worker: AcceleratedWorker,
        envelope: Envelope,
        tick: int,
        value: Any = None,
        error: Exception | None = None,
    ) -> None:
        reply = envelope.reply
        if error is not None:
            self._unseen[reply] = (envelope, error)

        def arrive(tick: int) -> None:
            reply._entered = reply.done = True
            reply.arrived_s = to_seconds(tick)
            reply._value, reply._error = value, error
            for waiter in reply._waiters:
                if not waiter.done():
                    waiter.set_result(None)

        self._push(tick, worker.name, arrive)

    def _fail(self, worker: AcceleratedWorker, error: Exception) -> None:
        if worker.restarts > 0:
            worker.restarts -= 1
            try:
                worker._reset()
            except Exception as another:
                error = another
            else:
                return
        worker.failed = error
        tick = worker._clock.tick
        for _, envelope in worker._mail:
            self._return(worker, envelope, tick)
        worker._mail.clear()
        while worker._door:
            self._return(worker, self._admit(worker, tick), tick)

    def _return(self, worker: AcceleratedWorker, envelope: Envelope, tick: int) -> None:
        worker._to_come -= 1
        worker.returned.append(envelope)
        envelope.reply._entered = True
        why = UndeliveredMessage(f"{envelope} was not delivered: the worker failed: {worker.failed}")
        # The reply arrives no earlier than the worker failed.
        self._answer(worker, envelope, max(tick, worker._clock.tick), error=why)

    def _outside(self, what: str) -> None:
        if self._handling is not None:
            raise InputError(
                f"the handler of '{self._handling.name}' must not {what}",
                expected="a message whose handler sends the reply",
            )

    # Asyncio: all tasks of the loop are the program, one host thread.

    def _pump_soon(self, waiter: asyncio.Future[None]) -> None:
        self._pumped.append(waiter)
        if not self._pumping:
            self._pumping = True
            # Deferred, because other ready tasks may still send messages at the current time.
            waiter.get_loop().call_soon(self._pump, waiter.get_loop())

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Execute events until a reply arrives; the task that waits for it runs before the next event."""
        self._pumping = False
        self._pumped = [waiter for waiter in self._pumped if not waiter.done()]
        while self._pumped:
            if not self._step():
                for waiter in self._pumped:
                    waiter.set_exception(self._deadlock())
            if any(waiter.done() for waiter in self._pumped):
                break
        if self._pumped:
            self._pumping = True
            loop.call_soon(self._pump, loop)


def _check_virtual(accelerator: Accelerator) -> None:
    if not accelerator.info.virtual:
        raise InputError(
            f"{accelerator!r} has no virtual clock, which workers need", expected="an emulated accelerator"
        )


def _clock_of(accelerator: Accelerator) -> Any:
    return getattr(accelerator.context, "host", accelerator.context)


def _sticky(error: BaseException | None) -> DeviceError | None:
    """Return the sticky device error that ``error`` is or was caused by."""
    while error is not None:
        if isinstance(error, DeviceError) and error.sticky:
            return error
        error = error.__cause__ or error.__context__
    return None


def _error_for_sender(error: BaseException, envelope: Envelope) -> Exception:
    """Return the error for the sender: a new one, because the original's traceback refers to the worker's objects."""
    if isinstance(error, DeviceError):
        copy: Exception = type(error)(error.problem, operation=error.operation, device=error.device, code=error.code)
        copy.add_note(f"while handling {envelope}")
        return copy
    lines = "".join(traceback.format_exception(error))
    kind = type(error).__name__
    return HandlerError(f"{envelope} failed: {kind}: {error}".rstrip(": "), kind, lines)
