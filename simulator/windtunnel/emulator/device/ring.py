"""Emulated ring kernels: when a message is seen, how long it takes, and when its reply can be read.

The kernel's part of the story is worked out only as far as the host's clock, each time that the host does something: so
neither ever sees what the other does later. A host that waits is moved to the next thing that happens; where nothing
will, it is told so.

Costs, from the API's profile: a write of a message ``persistent_write_s``, a look of the host ``persistent_poll_s``; N
empty messages and one wait take what `predict launch mode=persistent` says. A message takes the time of its work
(``Kernel.work``), and none where no work is stated: a kernel that stays has no launch; what its grid's barrier takes
instead of a kernel's floor is taken to be the same (``planning.launch_or_persist.BARRIER``). A kernel that only looks
for messages draws nothing here, which flatters it (docs/open-ends.md).
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import Deadlock, DeviceError, InvalidArgument, LaunchError
from windtunnel.emulator.device.residency import resident_blocks
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.ring import Pattern, RingSpec, Status, Termination, control_block, record_of
from windtunnel.runtime.ring_queue import RingQueue

if TYPE_CHECKING:
    from windtunnel.emulator.device.context import EmulatedContext


class EmulatedRing:
    """What both patterns share: the queues, the control block, the handler and the host's waiting."""

    pattern: Pattern

    def __init__(self, context: EmulatedContext, spec: RingSpec) -> None:
        self.context, self.spec, self.host = context, spec, context.host
        self.name = spec.handler.name
        bits = context.info.limits.atomic_bits
        queues = {"bits": bits, "api": context.info.api}
        self.input = RingQueue(spec.capacity, spec.message, name=f"input of '{self.name}'", **queues)  # type: ignore[arg-type]
        self.output = (
            None
            if spec.reply is None
            else RingQueue(spec.capacity, spec.reply, name=f"replies of '{self.name}'", **queues)  # type: ignore[arg-type]
        )
        self.control = np.zeros((), control_block(bits))
        self.control["is_active"] = 1
        self.dead = False
        self.unanswered = 0
        """Messages whose handler returned None."""
        self.failure: DeviceError | None = None
        self.failed: list[Any] = []
        """The message that the handler failed on."""
        self.launches = 0
        self.stream: StreamTime = context.time.stream(blocking=False)

    # What a pattern says.

    def advance(self, until: int) -> None:
        """Let the kernel do what it does until a tick."""
        raise NotImplementedError

    def next(self) -> int | None:
        """When the kernel will do something next if the host does nothing; None where it never will."""
        raise NotImplementedError

    def write_ticks(self) -> int:
        """What the write of a message holds the host."""
        raise NotImplementedError

    def poll_ticks(self) -> int:
        """What a look holds the host."""
        raise NotImplementedError

    def busy(self) -> int:
        """Messages that were taken and whose replies are not there yet."""
        raise NotImplementedError

    def sent(self) -> None:
        """A message was written."""

    def taken(self) -> None:
        """The host took a reply."""

    def ended(self) -> None:
        """The kernel is to end, now."""

    # The host's calls.

    def send(self, record: Any) -> bool:
        """See ``RingDevice``."""
        self._catch_up()
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        if not self.input.try_push(record):
            return False
        self.sent()
        return True

    def poll(self) -> Any | None:
        """See ``RingDevice``. What is there when the look begins is found."""
        self._catch_up()
        assert self.output is not None  # noqa: S101  who asks for replies was told that there are some
        reply = self.output.try_pop()
        if reply is not None:
            self.taken()
        self.host.spend(self.poll_ticks())
        return reply

    def wait_reply(self) -> Any:
        """See ``RingDevice``."""
        assert self.output is not None  # noqa: S101  who asks for replies was told that there are some
        self._until(lambda: len(self.output or ()) > 0, "a reply")
        return self.poll()

    def wait_room(self) -> None:
        """See ``RingDevice``."""
        self._until(lambda: len(self.input) < self.input.capacity, "room for a message")
        self.host.spend(self.poll_ticks())

    def wait_idle(self) -> None:
        """See ``RingDevice``."""
        self._until(lambda: not len(self.input) and not self.busy(), "its messages to be processed")
        self.host.spend(self.poll_ticks())

    def activate(self, active: bool) -> None:
        """See ``RingDevice``."""
        self._catch_up()
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        self.control["is_active"] = active

    def status(self) -> Status:
        """See ``RingDevice``."""
        self._catch_up()
        self.host.spend(self.poll_ticks())
        control = self.control
        return Status(
            active=bool(control["is_active"]),
            terminated=bool(control["has_terminated"]),
            errors=int(control["errors_encountered"]),
            processed=int(control["messages_processed"]),
            waiting=len(self.input),
            replies=len(self.output or ()),
            stalled_slots=[
                *self.input.stalled_slots(),
                *(self.output.stalled_slots() if self.output is not None else ()),
            ],
        )

    def terminate(self, drain: bool) -> Termination:
        """See ``RingDevice``."""
        left = Termination()
        self.advance(self.host.now)
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        if not drain:
            self.control["is_active"] = 0
        while self.busy() or (self.failure is None and self.control["is_active"] and len(self.input)):
            self._take(left)
            tick = self.next()
            if tick is None:
                break
            self._move(tick)
        self.control["should_terminate"] = 1
        self._take(left)
        left.unprocessed += self.failed
        while len(self.input):
            left.unprocessed.append(self.input.try_pop())
        self.ended()
        self.control["has_terminated"] = 1
        self.host.spend(self.poll_ticks())
        self.context.rings.remove(self)
        return left

    def _take(self, left: Termination) -> None:
        while self.output is not None and len(self.output):
            left.replies.append(self.output.try_pop())
            self.taken()

    def kill(self) -> None:
        """It goes with its device."""
        self.dead = True
        self.ended()
        self.context.rings.remove(self)

    # What the patterns use.

    def handle(self, message: Any) -> tuple[Any | None, int, float]:
        """(reply, ticks, joules) of a message; the state's arrays change at once."""
        spec = self.spec
        try:
            for argument in spec.state:
                if isinstance(argument, Buffer):
                    argument.check_not_freed(f"ring kernel '{self.name}'")
                    argument.memory.unwritten = False  # type: ignore[attr-defined]  # what it writes is not known
            given = [self.context.given(argument) for argument in spec.state]
            ticks, joules = 0, 0.0
            if spec.handler.work is not None:
                price = self.context.price(spec.handler.work_of(spec.grid, spec.block, [message, *given]))
                ticks, joules = price.ticks, price.joules
            reply = spec.handler.function(message, *given)
            if reply is None or spec.reply is None:
                self.unanswered += 1
                return None, ticks, joules
            return record_of(reply, spec.reply, TypeError), ticks, joules
        except Exception as error:
            self.control["errors_encountered"] += 1
            problem = f"its handler failed: {error!r}"
            self.failure = self.context.error(LaunchError, f"ring kernel '{self.name}'", problem, "kernel")
            self.failure.__cause__ = error
            self.failed = [message]
            return None, 0, 0.0

    def processed(self) -> None:
        """One more message is processed; the counter wraps, as one on a device does."""
        counter = self.control["messages_processed"]
        self.control["messages_processed"] = (int(counter) + 1) & (2 ** (8 * counter.dtype.itemsize) - 1)

    def _catch_up(self) -> None:
        self.advance(self.host.now)
        if self.failure is not None:
            raise self.failure

    def _move(self, tick: int) -> None:
        self.host.wait_until(tick)
        self.advance(self.host.now)

    def _until(self, there: Any, what: str) -> None:
        self._catch_up()
        while not there():
            tick = self.next()
            if tick is None:
                raise Deadlock(f"the host waits for {what} of ring kernel '{self.name}' on {self.context.info.name}, "
                               f"which cannot come: {self._why()}")  # fmt: skip
            self._move(tick)
            if self.failure is not None:
                raise self.failure

    def _why(self) -> str:
        waiting, replies = len(self.input), len(self.output or ())
        if self.output is not None and replies == self.output.capacity:
            return f"all {replies:,} slots for replies are taken, and only this host empties them"
        if waiting and not self.control["is_active"]:
            return f"it is paused, with {waiting:,} messages waiting"
        if self.unanswered:
            return f"its handler gave no reply to {self.unanswered:,} messages, and no other is under way"
        return "no message is under way"


class PersistentRing(EmulatedRing):
    """A kernel that stays: it holds its share of the device from its launch until it is terminated."""

    pattern: Pattern = "persistent"

    def __init__(self, context: EmulatedContext, spec: RingSpec) -> None:
        super().__init__(context, spec)
        blocks, threads = math.prod(spec.grid), math.prod(spec.block)
        resident = resident_blocks(context.device, context.info.limits, spec.block)
        if blocks > resident:
            problem = f"{blocks:,} blocks of {threads:,} threads, of which {resident:,} fit on the device at once"
            raise context.error(LaunchError, f"launch ring kernel '{self.name}'", problem, "cooperative")
        self._write, self._look = context.overhead("persistent_write_s"), context.overhead("persistent_poll_s")
        self.share = min(blocks / context.units, 1.0)
        self.engine = context.time.engine(context.compute_engine)
        context.host.spend(context.dispatch_ticks)
        try:
            self.free = self.engine.hold(context.host.now + context.latency_ticks, self.share)
        except ValueError:
            problem = f"it needs {self.share:.0%} of the device, and ring kernels that run leave {self.engine.free:.0%}"
            raise context.error(LaunchError, f"launch ring kernel '{self.name}'", problem) from None
        self.launches = 1
        self._arrived: deque[int] = deque()
        self._running: tuple[int, Any | None] | None = None
        self._stalled = False

    def write_ticks(self) -> int:
        """See ``EmulatedRing``."""
        return self._write

    def poll_ticks(self) -> int:
        """See ``EmulatedRing``."""
        return self._look

    def busy(self) -> int:
        """See ``EmulatedRing``."""
        return int(self._running is not None)

    def sent(self) -> None:
        """See ``EmulatedRing``."""
        self._arrived.append(self.host.now)

    def taken(self) -> None:
        """See ``EmulatedRing``: a reply that waited for room has it now."""
        if self._stalled and self._running is not None:
            self._stalled = False
            self._running = (max(self._running[0], self.host.now), self._running[1])
            self.advance(self.host.now)

    def activate(self, active: bool) -> None:
        """See ``EmulatedRing``: what waited is seen from now on."""
        super().activate(active)
        self.free = max(self.free, self.host.now) if active else self.free

    def ended(self) -> None:
        """See ``EmulatedRing``."""
        self.engine.release(max(self.free, self.host.now), self.share)

    def next(self) -> int | None:
        """See ``EmulatedRing``."""
        if self._running is not None:
            return None if self._stalled else self._running[0]
        if not self._arrived or not self.control["is_active"]:
            return None
        return max(self.free, self._arrived[0])

    def advance(self, until: int) -> None:
        """See ``EmulatedRing``."""
        while self.failure is None:
            tick = self.next()
            if tick is None or tick > until:
                return
            if self._running is None:
                self._begin(tick)
            else:
                self._end(tick)

    def _begin(self, tick: int) -> None:
        message = self.input.try_pop()
        self._arrived.popleft()
        reply, ticks, joules = self.handle(message)
        if self.failure is not None:
            self.free = tick
            return
        self.context.time.record(self.stream, self.context.compute_engine, self.name, tick, tick + ticks, joules)
        self._running = (tick + ticks, reply)

    def _end(self, tick: int) -> None:
        assert self._running is not None  # noqa: S101  next() gave its end
        reply = self._running[1]
        if reply is not None and self.output is not None and not self.output.try_push(reply):
            self._stalled = True
            return
        self._running = None
        self.free = tick
        self.processed()


class RelaunchRing(EmulatedRing):
    """A kernel that ends when its queue is empty, and is launched anew when messages are there and it is not running.

    A launch takes the messages that are there when it is enqueued. Where host and device share memory, they are seen in
    place; else they are copied there, and the replies back.
    """

    pattern: Pattern = "relaunch"

    def __init__(self, context: EmulatedContext, spec: RingSpec) -> None:
        super().__init__(context, spec)
        self._batch: tuple[int, list[Any], int] | None = None

    def write_ticks(self) -> int:
        """See ``EmulatedRing``: a store to the host's own memory."""
        return 0

    def poll_ticks(self) -> int:
        """See ``EmulatedRing``: whoever waits for a launch is told when it has ended.

        Never nothing, where the way back is hidden in the call's own time: a host that looks again and again gets on.
        """
        return max(self.context.back_ticks, self.context.overhead("synchronize_s"))

    def busy(self) -> int:
        """See ``EmulatedRing``."""
        return 0 if self._batch is None else self._batch[2]

    def sent(self) -> None:
        """See ``EmulatedRing``."""
        self._launch()

    def taken(self) -> None:
        """See ``EmulatedRing``: replies have room again."""
        self._launch()

    def activate(self, active: bool) -> None:
        """See ``EmulatedRing``."""
        super().activate(active)
        self._launch()

    def next(self) -> int | None:
        """See ``EmulatedRing``."""
        return None if self._batch is None else self._batch[0]

    def advance(self, until: int) -> None:
        """See ``EmulatedRing``."""
        if self._batch is None or self._batch[0] > until:
            return
        _, replies, count = self._batch
        self._batch = None
        for reply in replies:
            assert self.output is not None  # noqa: S101  there are replies
            self.output.try_push(reply)
        for _ in range(count):
            self.processed()
        self._launch()

    def _launch(self) -> None:
        room = self.input.capacity if self.output is None else self.output.capacity - len(self.output)
        count = min(len(self.input), room)
        if self._batch is not None or not count or not self.control["is_active"] or self.failure is not None:
            return
        context, spec = self.context, self.spec
        replies: list[Any] = []
        ticks, joules = context.empty_ticks, 0.0
        done = 0
        while done < count:
            reply, one, energy = self.handle(self.input.try_pop())
            if self.failure is not None:
                break
            done, ticks, joules = done + 1, ticks + one, joules + energy
            if reply is not None:
                replies.append(reply)
        self._copy("h2d", count * spec.message.itemsize)
        context.host.spend(context.dispatch_ticks)
        blocks = math.prod(spec.grid)
        end = context.ring_launch(self.stream, self.name, ticks, joules, min(blocks / context.units, 1.0))
        if spec.reply is not None and replies:
            end = self._copy("d2h", len(replies) * spec.reply.itemsize) or end
        self._batch = (end, replies, done)
        self.launches += 1

    def _copy(self, direction: str, size: int) -> int | None:
        if self.context.shares_memory:
            return None
        return self.context.ring_copy(self.stream, direction, size, self.name)


def refuse_waiting(context: EmulatedContext, operation: str) -> None:
    """Deadlock where the host is to wait for all work of a device on which a kernel stays."""
    staying = [ring.name for ring in context.rings if ring.pattern == "persistent"]
    if staying:
        where = context.info.name
        raise Deadlock(
            f"{operation} on {where} waits for ring kernel '{staying[0]}', which runs until it is terminated"
        )


def check_state(context: EmulatedContext, spec: RingSpec) -> None:
    """InvalidArgument where a ring kernel's state holds unified memory that would have to move while it runs."""
    for argument in spec.state:
        if isinstance(argument, Buffer) and argument.memory.kind == "unified" and not context.shares_memory:
            problem = "unified memory of its state would move under it; give it device or pinned memory"
            raise context.error(InvalidArgument, f"launch ring kernel '{spec.handler.name}'", problem)
