"""Ring kernels on an emulated device: when a message is taken, how long it takes, and when its reply can be read.

The kernel is simulated only up to the host's clock, whenever the host does something. So neither side sees what the
other does later. A host that waits advances to the next event of the kernel. If there is none, that is a deadlock.

The costs are those of the API's profile: ``persistent_write_s`` for writing a message and ``persistent_poll_s`` for a
poll by the host. N empty messages and one wait take what `predict launch mode=persistent` says. A message takes the
time of its work (``Kernel.work``), and no time if no work is stated, because a persistent kernel has no launch. Its
grid barrier is assumed to take as long as a kernel's floor (``planning.launch_or_persist.BARRIER``). A persistent
kernel draws the power of one that polls (``Device.spin_power_w``) from its launch to its end, and a message what its
work draws beyond that.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from windtunnel.core.errors import Deadlock, DeviceError, InvalidArgument, LaunchError
from windtunnel.core.ticks import TICKS_PER_SECOND
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.costs import Price
from windtunnel.emulator.device.memory import EmulatedMemory
from windtunnel.emulator.device.occupancy import resident_blocks
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.ring import Pattern, RingSpec, Status, Termination, control_block, record_of
from windtunnel.runtime.ring_queue import RingQueue


class EmulatedRing:
    """What both patterns share: the queues, the control block, the handler, and the host's calls."""

    pattern: Pattern

    def __init__(self, device: EmulatedDevice, spec: RingSpec) -> None:
        self.device, self.spec, self.host = device, spec, device.host
        self.name = spec.handler.name
        self.design: Hashable = None
        """What a persistent kernel needs of a reconfigurable device."""
        bits = device.info.limits.atomic_bits
        self.input = self._queue("input", spec.message, bits)
        self.output = None if spec.reply is None else self._queue("replies", spec.reply, bits)
        self.control = np.zeros((), control_block(bits))
        self.control["is_active"] = 1
        self.dead = False
        self.unanswered = 0
        """Messages for which the handler returned None."""
        self.failure: DeviceError | None = None
        self._failed_messages: list[Any] = []
        """The message on which the handler failed."""
        self.launches = 0
        self.stream: StreamTime = device.time.stream(blocking=False)

    def _queue(self, name: str, record: np.dtype[Any], bits: int) -> RingQueue:
        label = f"{name} of '{self.name}'"
        return RingQueue(self.spec.capacity, record, name=label, bits=bits, api=self.device.info.api)

    # What the patterns differ in.

    def advance(self, until: int) -> None:
        """Execute what the kernel does until a tick."""
        raise NotImplementedError

    def next_event(self) -> int | None:
        """Return the tick of the kernel's next action if the host does nothing; None if there is none."""
        raise NotImplementedError

    def write_ticks(self) -> int:
        """Return the time that writing a message takes the host."""
        raise NotImplementedError

    def poll_ticks(self) -> int:
        """Return the time that a poll takes the host."""
        raise NotImplementedError

    def in_progress(self) -> int:
        """Return the number of messages that were taken and are not processed yet."""
        raise NotImplementedError

    def on_sent(self) -> None:
        """React to a message that was written."""

    def on_reply_taken(self) -> None:
        """React to a reply that the host took."""

    def on_end(self) -> None:
        """End the kernel now."""

    # The host's calls.

    def send(self, record: Any) -> bool:
        """Write a message; return False if the queue is full."""
        self._catch_up()
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        if not self.input.try_push(record):
            return False
        self.on_sent()
        return True

    def poll(self) -> Any | None:
        """Return a reply that is there when the poll begins; None if there is none."""
        self._catch_up()
        assert self.output is not None  # noqa: S101  the caller has checked that the kernel replies
        reply = self.output.try_pop()
        if reply is not None:
            self.on_reply_taken()
        self.host.spend(self.poll_ticks())
        return reply

    def wait_reply(self) -> Any:
        """Wait for a reply and return it. Raises Deadlock if none can come."""
        assert self.output is not None  # noqa: S101  the caller has checked that the kernel replies
        self._wait_until(lambda: len(self.output or ()) > 0, "a reply")
        return self.poll()

    def wait_room(self) -> None:
        """Wait until a message can be sent. Raises Deadlock if it never can."""
        self._wait_until(lambda: len(self.input) < self.input.capacity, "room for a message")
        self.host.spend(self.poll_ticks())

    def wait_idle(self) -> None:
        """Wait until all messages are processed. Raises Deadlock if they never are."""
        self._wait_until(lambda: not len(self.input) and not self.in_progress(), "its messages to be processed")
        self.host.spend(self.poll_ticks())

    def activate(self, active: bool) -> None:
        """Let the kernel take messages, or pause it."""
        self._catch_up()
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        self.control["is_active"] = active

    def status(self) -> Status:
        """Read the control block and the queues."""
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
        """End the kernel; with ``drain``, after all messages that it can still process."""
        result = Termination()
        self.advance(self.host.now)
        self.host.spend(self.write_ticks())
        self.advance(self.host.now)
        if not drain:
            self.control["is_active"] = 0
        while self.in_progress() or (self.failure is None and self.control["is_active"] and len(self.input)):
            self._take_replies(result)
            tick = self.next_event()
            if tick is None:
                break
            self._advance_host(tick)
        self.control["should_terminate"] = 1
        self._take_replies(result)
        result.unprocessed += self._failed_messages
        while len(self.input):
            result.unprocessed.append(self.input.try_pop())
        self.on_end()
        self.control["has_terminated"] = 1
        self.host.spend(self.poll_ticks())
        self.device.rings.remove(self)
        return result

    def _take_replies(self, result: Termination) -> None:
        while self.output is not None and len(self.output):
            result.replies.append(self.output.try_pop())
            self.on_reply_taken()

    def kill(self) -> None:
        """End with the device."""
        self.dead = True
        self.on_end()
        self.device.rings.remove(self)

    # What the patterns use.

    def handle(self, message: Any) -> tuple[Any | None, int, float]:
        """Call the handler; return (reply, ticks, joules). The arrays of the state change at once."""
        spec, device = self.spec, self.device
        try:
            for argument in spec.state:
                if isinstance(argument, Buffer):
                    argument.check_not_freed(f"ring kernel '{self.name}'")
                    argument.memory.uninitialised = False  # type: ignore[attr-defined]  # what it writes is unknown
            state = [device.as_array(argument) for argument in spec.state]
            ticks, joules = 0, 0.0
            if spec.handler.work is not None:
                work = spec.handler.work_of(spec.grid, spec.block, [message, *state])
                price = device.costs.price_of_work(work)
                ticks, joules = price.ticks, price.joules
            reply = spec.handler.function(message, *state)
            if reply is None or spec.reply is None:
                self.unanswered += 1
                return None, ticks, joules
            return record_of(reply, spec.reply, TypeError), ticks, joules
        except Exception as error:
            self.control["errors_encountered"] += 1
            problem = f"its handler failed: {error!r}"
            self.failure = device.error(LaunchError, f"ring kernel '{self.name}'", problem, "kernel")
            self.failure.__cause__ = error
            self._failed_messages = [message]
            return None, 0, 0.0

    def count_processed(self) -> None:
        """Count a processed message. The counter wraps around, as one on a device does."""
        counter = self.control["messages_processed"]
        self.control["messages_processed"] = (int(counter) + 1) & (2 ** (8 * counter.dtype.itemsize) - 1)

    def _catch_up(self) -> None:
        self.advance(self.host.now)
        if self.failure is not None:
            raise self.failure

    def _advance_host(self, tick: int) -> None:
        self.host.wait_until(tick)
        self.advance(self.host.now)

    def _wait_until(self, is_reached: Callable[[], bool], what: str) -> None:
        self._catch_up()
        while not is_reached():
            tick = self.next_event()
            if tick is None:
                problem = f"the host waits for {what} of ring kernel '{self.name}' on {self.device.info.name}"
                raise self.device.found(Deadlock(f"deadlock: {problem}, but {self._deadlock_reason()}"))
            self._advance_host(tick)
            if self.failure is not None:
                raise self.failure

    def _deadlock_reason(self) -> str:
        waiting, replies = len(self.input), len(self.output or ())
        if self.output is not None and replies == self.output.capacity:
            return f"all {replies:,} slots for replies are full, and only this host empties them"
        if waiting and not self.control["is_active"]:
            return f"it is paused, with {waiting:,} messages waiting"
        if self.unanswered:
            return f"its handler gave no reply to {self.unanswered:,} messages, and no other message is pending"
        return "no message is pending"


class PersistentRing(EmulatedRing):
    """A persistent kernel: it holds its share of the device from its launch until it is terminated.

    Raises LaunchError if the device has no room for it.
    """

    pattern: Pattern = "persistent"

    def __init__(self, device: EmulatedDevice, spec: RingSpec) -> None:
        super().__init__(device, spec)
        costs = device.costs
        blocks, threads = math.prod(spec.grid), math.prod(spec.block)
        resident = resident_blocks(device.device, device.info.limits, spec.block)
        if blocks > resident:
            problem = f"{blocks:,} blocks of {threads:,} threads, of which {resident:,} fit on the device at once"
            raise device.error(LaunchError, f"launch ring kernel '{self.name}'", problem, "cooperative")
        self._write, self._poll = costs.overhead("persistent_write_s"), costs.overhead("persistent_poll_s")
        arrays = [device.as_array(argument) for argument in spec.state]
        self.design = device.require_design(self.stream, spec.handler, arrays)
        self.share = device.share_of(blocks)
        self.engine = device.time.engine(costs.compute_engine)
        device.host.spend(costs.dispatch_ticks)
        polling_w = self._polling_w()
        try:
            self._free_at = self.engine.hold(device.host.now + costs.latency_ticks, self.share)
        except ValueError:
            free = self.engine.free
            problem = f"it needs {self.share:.0%} of the device, and the running ring kernels leave {free:.0%}"
            raise device.error(LaunchError, f"launch ring kernel '{self.name}'", problem) from None
        device.time.hold_power(self._free_at, self._polling_w() - polling_w)
        self.launches = 1
        self._arrivals: deque[int] = deque()
        self._running: tuple[int, Any | None] | None = None
        """(end, reply) of the message that is being processed."""
        self._is_stalled = False
        """Whether a reply waits for room in the queue."""

    def write_ticks(self) -> int:
        """Return the time that writing a message takes the host."""
        return self._write

    def poll_ticks(self) -> int:
        """Return the time that a poll takes the host."""
        return self._poll

    def in_progress(self) -> int:
        """Return the number of messages that were taken and are not processed yet."""
        return int(self._running is not None)

    def on_sent(self) -> None:
        """React to a message that was written."""
        self._arrivals.append(self.host.now)

    def on_reply_taken(self) -> None:
        """Write the reply that waited for room."""
        if self._is_stalled and self._running is not None:
            self._is_stalled = False
            self._running = (max(self._running[0], self.host.now), self._running[1])
            self.advance(self.host.now)

    def activate(self, active: bool) -> None:
        """Let the kernel take messages from now on, or pause it."""
        super().activate(active)
        self._free_at = max(self._free_at, self.host.now) if active else self._free_at

    def on_end(self) -> None:
        """End the kernel now."""
        end, polling_w = max(self._free_at, self.host.now), self._polling_w()
        self.engine.release(end, self.share)
        self.device.time.hold_power(end, self._polling_w() - polling_w)

    def _polling_w(self) -> float:
        """Return the power above idle (W) of all persistent kernels of the device while they only poll."""
        held = self.engine.held
        return self.device.device.spin_power_w(held) if held > 1e-9 else 0.0

    def next_event(self) -> int | None:
        """Return the tick of the kernel's next action if the host does nothing; None if there is none."""
        if self._running is not None:
            return None if self._is_stalled else self._running[0]
        if not self._arrivals or not self.control["is_active"]:
            return None
        return max(self._free_at, self._arrivals[0])

    def advance(self, until: int) -> None:
        """Execute what the kernel does until a tick."""
        while self.failure is None:
            tick = self.next_event()
            if tick is None or tick > until:
                return
            if self._running is None:
                self._begin(tick)
            else:
                self._end(tick)

    def _begin(self, tick: int) -> None:
        message = self.input.try_pop()
        self._arrivals.popleft()
        reply, ticks, joules = self.handle(message)
        if self.failure is not None:
            self._free_at = tick
            return
        engine = self.device.costs.compute_engine
        joules = max(joules - self.device.device.spin_power_w(self.share) * ticks / TICKS_PER_SECOND, 0.0)
        self.device.time.record(self.stream, engine, self.name, tick, tick + ticks, joules)
        self._running = (tick + ticks, reply)

    def _end(self, tick: int) -> None:
        assert self._running is not None  # noqa: S101  next_event() returned its end
        reply = self._running[1]
        if reply is not None and self.output is not None and not self.output.try_push(reply):
            self._is_stalled = True
            return
        self._running = None
        self._free_at = tick
        self.count_processed()


class RelaunchRing(EmulatedRing):
    """A kernel that ends when its queue is empty, and is launched again when there are messages and it is not running.

    A launch takes the messages that are there when it is enqueued. If host and device share memory, the kernel reads
    them in place; otherwise they are copied to the device, and the replies back.
    """

    pattern: Pattern = "relaunch"

    def __init__(self, device: EmulatedDevice, spec: RingSpec) -> None:
        super().__init__(device, spec)
        self._batch: tuple[int, list[Any], int] | None = None
        """(end, replies, number of messages) of the launch that is running."""

    def write_ticks(self) -> int:
        """Return the time that writing a message takes the host: it is a store to the host's own memory."""
        return 0

    def poll_ticks(self) -> int:
        """Return the time that a poll takes the host: until it is notified that a launch has ended.

        It is never 0, even if the call hides the notification, so that a host that polls repeatedly makes progress.
        """
        return max(self.device.costs.back_ticks, self.device.costs.overhead("synchronize_s"))

    def in_progress(self) -> int:
        """Return the number of messages that were taken and are not processed yet."""
        return 0 if self._batch is None else self._batch[2]

    def on_sent(self) -> None:
        """React to a message that was written."""
        self._launch()

    def on_reply_taken(self) -> None:
        """React to room for another reply."""
        self._launch()

    def activate(self, active: bool) -> None:
        """Let the kernel take messages, or pause it."""
        super().activate(active)
        self._launch()

    def next_event(self) -> int | None:
        """Return the tick of the kernel's next action if the host does nothing; None if there is none."""
        return None if self._batch is None else self._batch[0]

    def advance(self, until: int) -> None:
        """Execute what the kernel does until a tick."""
        if self._batch is None or self._batch[0] > until:
            return
        _, replies, count = self._batch
        self._batch = None
        for reply in replies:
            assert self.output is not None  # noqa: S101  the kernel replies
            self.output.try_push(reply)
        for _ in range(count):
            self.count_processed()
        self._launch()

    def _launch(self) -> None:
        room = self.input.capacity if self.output is None else self.output.capacity - len(self.output)
        count = min(len(self.input), room)
        if self._batch is not None or not count or not self.control["is_active"] or self.failure is not None:
            return
        device, spec, costs = self.device, self.spec, self.device.costs
        replies: list[Any] = []
        ticks, joules = costs.empty_ticks, 0.0
        processed = 0
        while processed < count:
            reply, message_ticks, message_joules = self.handle(self.input.try_pop())
            if self.failure is not None:
                break
            processed, ticks, joules = processed + 1, ticks + message_ticks, joules + message_joules
            if reply is not None:
                replies.append(reply)
        self._copy("h2d", count * spec.message.itemsize)
        device.require_design(self.stream, spec.handler, [device.as_array(argument) for argument in spec.state])
        device.host.spend(costs.dispatch_ticks)
        price = Price(ticks, joules, costs.compute_engine)
        share = device.share_of(math.prod(spec.grid))
        end = device.enqueue(self.stream, price, self.name, share=share, latency=costs.latency_ticks).end
        if spec.reply is not None and replies:
            end = self._copy("d2h", len(replies) * spec.reply.itemsize) or end
        self._batch = (end, replies, processed)
        self.launches += 1

    def _copy(self, direction: str, size: int) -> int | None:
        """Enqueue a copy of messages or replies and return its end; None if host and device share memory."""
        device = self.device
        if device.shares_memory:
            return None
        price = device.costs.price_of_copy(size, direction, "pinned")
        return device.enqueue(self.stream, price, f"{self.name}: copy {direction}", size=size).end


def start_ring(device: EmulatedDevice, spec: RingSpec) -> EmulatedRing:
    """Start a ring kernel: persistent if the API supports it, otherwise relaunched.

    Raises:
        InvalidArgument: If its state holds unified memory, whose pages would have to move while it runs.
        LaunchError: If the device has no room for it.
    """
    memories = [argument.memory for argument in spec.state if isinstance(argument, Buffer)]
    if any(memory.kind == "unified" for memory in memories) and not device.shares_memory:
        problem = "unified memory of its state would move while it runs; give it device or pinned memory"
        raise device.error(InvalidArgument, f"launch ring kernel '{spec.handler.name}'", problem)
    ring = (PersistentRing if "persistent" in device.info.features else RelaunchRing)(device, spec)
    device.rings.append(ring)
    if device.order is not None:
        device.order.share([memory for memory in memories if isinstance(memory, EmulatedMemory)])
    return ring


def check_can_synchronize(device: EmulatedDevice) -> None:
    """Raise Deadlock if the host waits for all work of a device on which a persistent kernel runs."""
    persistent = [ring.name for ring in device.rings if ring.pattern == "persistent"]
    if persistent:
        problem = f"synchronize on {device.info.name} waits for ring kernel '{persistent[0]}'"
        raise device.found(Deadlock(f"deadlock: {problem}, which runs until it is terminated"))
