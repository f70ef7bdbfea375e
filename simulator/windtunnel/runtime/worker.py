"""Shared-nothing workers: each owns its state and its accelerator, takes messages from a mailbox, and shares no memory.

>>> with WorkerGroup() as group:
...     adder = AcceleratedWorker(group, "adder", lambda: windtunnel.device("l4"))
...     reply = adder.address.send(ComputeTask(add, (a, b)))
...     reply.result()

Every worker is a host thread of its own, so each has a clock of its own: that of its accelerator. A message that is
sent at one worker's time is taken up no earlier at another's, ``max(its own, sent)``, as Lamport's clocks are;
sending costs nothing. What happens goes by virtual time alone: of all that could happen next in the group, the
earliest does, and of what happens at once deliveries come first, then names. So a message is never handled while an
earlier one could still come, and who drives the group (``run``, ``Reply.result``, asyncio's event loop) and in what
turns decides only when something is worked out, and never what.

A mailbox holds so many messages. One that finds it full waits at its door, and its sender stands still from the end of
what it is doing until the message is in (blocking after service); senders that wait for each other so are a `Deadlock`.
Each message is handled once, or its reply says why it was not.
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
"""The program outside all workers, as a sender."""


class HandlerError(WindtunnelError):
    """A worker's handler raised what is no device's error. ``kind``: its class; ``details``: its traceback, as text."""

    def __init__(self, text: str, kind: str, details: str) -> None:
        self.kind, self.details = kind, details
        super().__init__(text)


class UndeliveredMessage(WindtunnelError):
    """A message came back unread: its worker had failed."""


class UnhandledWorkerFailures(WindtunnelError, AssertionError):
    """Messages failed, and nobody looked: what was to be done was not done."""


@dataclass(frozen=True)
class ComputeTask:
    """A computation to do: ``kernel`` of ``arrays``, as ``Accelerator.compute`` takes them."""

    kernel: Kernel | Callable[..., Any]
    arrays: tuple[npt.ArrayLike, ...]


@dataclass(frozen=True)
class Address(Sendable):
    """Where messages to a worker go. It can itself be sent."""

    name: str
    _group: WorkerGroup = field(repr=False)

    def send(self, payload: Any) -> Reply:
        """Send a copy of ``payload`` from whoever runs: the worker whose handler this is called in, else the program.

        Within a handler it returns at once; the program outside stands still until the mailbox has room. InputError
        for what cannot be sent (see ``message``).
        """
        return self._group._send(self, payload)


@dataclass(frozen=True, eq=False)
class Envelope:
    """A message under way. ``sender`` is None for the program outside; ``number`` counts its messages, from 1."""

    sender: Address | None
    to: Address
    number: int
    payload: Any
    sent_s: float
    """The sender's clock (s) as it was sent."""
    reply: Reply = field(repr=False)

    def __str__(self) -> str:
        return f"message {self.number} from {self.sender.name if self.sender else MAIN} to {self.to.name}"


class Reply:
    """What comes back: the handler's result or its error. ``result()`` or ``await`` gives it, and waits for it."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group
        self.done = False
        self.arrived_s: float | None = None
        """Virtual time at which it came back."""
        self._value: Any = None
        self._error: Exception | None = None
        self._entered = False
        self._waiters: list[asyncio.Future[None]] = []

    def result(self) -> Any:
        """The result, once the group has come so far; raises the handler's error. Refused within a handler."""
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
    """A host's clock in ticks: an accelerator's, or a bare number."""

    def __init__(self, accelerator: Accelerator | None) -> None:
        self._accelerator = accelerator
        self._tick = 0

    @property
    def tick(self) -> int:
        if self._accelerator is not None:
            self._tick = max(self._tick, to_ticks(self._accelerator.clock_s))
        return self._tick

    def wait_until(self, tick: int) -> None:
        wait = tick - self.tick
        if wait > 0:
            if self._accelerator is not None:
                self._accelerator.sleep(to_seconds(wait))
            self._tick = tick


class AcceleratedWorker:
    """A worker: override ``handle_message`` for other messages than `ComputeTask`.

    ``open`` opens the accelerator, which nobody else may hold; ``state`` makes the state. ``capacity``: messages that
    its mailbox holds. ``restarts``: how often it goes on after a sticky error of its device, by resetting that; else it
    has ``failed``, and its mail is ``returned``.
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
        """Messages that its handler was given, failed ones included."""
        self.failed: Exception | None = None
        self.returned: list[Envelope] = []
        """Mail that came back unread because it had failed."""
        self._state = state()
        self._mail: deque[tuple[int, Envelope]] = deque()
        self._door: deque[Envelope] = deque()
        self._to_come = 0
        self._held = 0
        self._clock = _Clock(self.accelerator)
        self.address = group._add(name, self)
        self._group = group

    # What a program's own worker overrides.

    def handle_message(self, state: Any, envelope: Envelope) -> Any:
        """Do what a message says; the result goes back to its sender. Here: compute, and add it to the state."""
        task = envelope.payload
        if not isinstance(task, ComputeTask):
            raise InputError(f"{envelope} is a {type(task).__name__}", expected="a ComputeTask, or a worker of its own")
        result = self.accelerator.compute(task.kernel, *task.arrays)
        state.extend(result.reshape(-1))
        return result

    def on_restart(self, state: Any) -> Any:
        """The state to go on with after a reset, when all that was on the device is gone. Here: the same."""
        return state

    # What a program asks.

    @property
    def name(self) -> str:
        """Its name in the group."""
        return self.address.name

    @property
    def clock_s(self) -> float:
        """Its own clock (s)."""
        return to_seconds(self._clock.tick)

    @property
    def state(self) -> Any:
        """A copy of its state; InputError where that holds what cannot be sent, such as buffers."""
        return carried(self._state, f"the state of '{self.name}'")

    @property
    def waiting(self) -> int:
        """Messages in its mailbox and at its door."""
        return len(self._mail) + len(self._door)

    def run(self) -> None:
        """Drive the group until no message to this worker is under way, and wait for it."""
        self._group._outside("run a worker")
        self._group._until(lambda: not self._to_come)
        self._group._clock.wait_until(self._clock.tick)

    def restart(self) -> None:
        """Take mail again after a failure, on a device that was reset; what was returned stays returned."""
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
    """Workers that send to each other, and the program that sends to them; see the module.

    ``accelerator``: the program's own, where it has one; its clock is then the program's. Left as a context manager,
    it finishes what is under way, and raises `UnhandledWorkerFailures` for failed messages that nobody asked about.
    """

    def __init__(self, accelerator: Accelerator | None = None) -> None:
        if accelerator is not None:
            _check_virtual(accelerator)
        self.workers: dict[str, AcceleratedWorker] = {}
        self._program = accelerator
        self._clock = _Clock(accelerator)
        self._events: list[_Event] = []
        """What was sent and what goes back, by virtual time, then by who sends it, then by order of its doing."""
        self._sent: dict[str, int] = {}
        self._pushed: dict[str, int] = {}
        self._handling: AcceleratedWorker | None = None
        self._unseen: dict[Reply, tuple[Envelope, Exception]] = {}
        self._pumped: list[asyncio.Future[None]] = []
        self._pumping = False

    @property
    def clock_s(self) -> float:
        """The clock (s) of the program outside: where it stands after what it has waited for."""
        return to_seconds(self._clock.tick)

    def address(self, name: str) -> Address:
        """A worker's address, by its name."""
        if name not in self.workers:
            raise InputError(f"there is no worker '{name}'", nearest=nearest(name, self.workers))
        return self.workers[name].address

    def run(self) -> None:
        """Drive until nothing is under way, and wait for every worker. Deadlock where that does not come."""
        self._outside("run a group")
        self._until(lambda: not any(worker._to_come for worker in self.workers.values()) and not self._events)
        for worker in self.workers.values():
            self._clock.wait_until(worker._clock.tick)

    def sleep(self, seconds: float) -> None:
        """The program outside does something else for so long."""
        self._outside("sleep")
        self._clock.wait_until(self._clock.tick + to_ticks(seconds))

    def failures(self) -> list[tuple[Envelope, Exception]]:
        """Messages that failed or came back unread and whose replies nobody took, with why; they are seen now."""
        found = list(self._unseen.values())
        self._unseen.clear()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        self.run()
        if self._unseen:
            said = [f"{envelope}: {error}" for envelope, error in self.failures()]
            more = f" (and {len(said) - 5} more)" if len(said) > 5 else ""
            raise UnhandledWorkerFailures(
                f"{len(said)} messages failed and were not handled: {'; '.join(said[:5])}{more}"
            )

    # Sending.

    def _add(self, name: str, worker: AcceleratedWorker) -> Address:
        if not name or name == MAIN or name in self.workers:
            raise InputError(f"a worker cannot be called '{name}'", expected=f"a name of its own, not '{MAIN}'")
        _check_virtual(worker.accelerator)
        others = {other.name: other.accelerator for other in self.workers.values()}
        if self._program is not None:
            others[MAIN] = self._program
        for other, accelerator in others.items():
            if _clock_of(accelerator) is _clock_of(worker.accelerator):
                same = accelerator.context is worker.accelerator.context
                raise InputError(
                    f"'{name}' shares {'an accelerator' if same else 'a clock'} with '{other}'",
                    expected="an accelerator of its own, opened without a `host`",
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

    # What happens, in order of virtual time.

    def _step(self) -> bool:
        """Let the earliest of all that can happen happen; False where nothing can."""
        starts = [
            (max(worker._clock.tick, worker._mail[0][0]), name)
            for name, worker in self.workers.items()
            if worker._mail and not worker._held
        ]
        start = min(starts, default=None)
        if self._events and (start is None or self._events[0][0] <= start[0]):
            tick, _, _, event = heapq.heappop(self._events)
            # The program is never behind what has happened: nothing it sends from now on can come before that.
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
                raise self._stuck()

    def _stuck(self) -> Deadlock:
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
        """The first at the door comes in, and its sender goes on from there."""
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
            self._answer(worker, envelope, worker._clock.tick, error=_told(error, envelope))
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
        # It comes back when the worker has failed, or is seen to have.
        self._answer(worker, envelope, max(tick, worker._clock.tick), error=why)

    def _outside(self, what: str) -> None:
        if self._handling is not None:
            raise InputError(
                f"the handler of '{self._handling.name}' would {what}", expected="a message to itself from who answers"
            )

    # Asyncio: the loop's tasks are the program outside, one host thread.

    def _pump_soon(self, waiter: asyncio.Future[None]) -> None:
        self._pumped.append(waiter)
        if not self._pumping:
            self._pumping = True
            # Not now: other tasks that are ready may yet send at the program's present time.
            waiter.get_loop().call_soon(self._pump, waiter.get_loop())

    def _pump(self, loop: asyncio.AbstractEventLoop) -> None:
        """Drive until somebody's reply is there; who waited for it runs before anything else happens."""
        self._pumping = False
        self._pumped = [waiter for waiter in self._pumped if not waiter.done()]
        while self._pumped:
            if not self._step():
                for waiter in self._pumped:
                    waiter.set_exception(self._stuck())
            if any(waiter.done() for waiter in self._pumped):
                break
        if self._pumped:
            self._pumping = True
            loop.call_soon(self._pump, loop)


def _check_virtual(accelerator: Accelerator) -> None:
    if not accelerator.info.virtual:
        raise InputError(
            f"{accelerator!r} has no virtual clock, and workers go by virtual time", expected="an emulated accelerator"
        )


def _clock_of(accelerator: Accelerator) -> Any:
    return getattr(accelerator.context, "host", accelerator.context)


def _sticky(error: BaseException | None) -> DeviceError | None:
    """The sticky device error that ``error`` is, or came of."""
    while error is not None:
        if isinstance(error, DeviceError) and error.sticky:
            return error
        error = error.__cause__ or error.__context__
    return None


def _told(error: BaseException, envelope: Envelope) -> Exception:
    """The error as its sender gets it: a new one, since the handler's own leads, by its traceback, into the worker."""
    if isinstance(error, DeviceError):
        told: Exception = type(error)(error.problem, operation=error.operation, device=error.device, code=error.code)
        told.add_note(f"while handling {envelope}")
        return told
    lines = "".join(traceback.format_exception(error))
    kind = type(error).__name__
    return HandlerError(f"{envelope} failed: {kind}: {error}".rstrip(": "), kind, lines)
