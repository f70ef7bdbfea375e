"""Time in the process engine: SimPy processes for the devices, the arrivals, the faults and the timers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import simpy

from windtunnel.engine.transitions.tables import ARRIVAL_EVENT, COMPLETION, ENTITIES, FAULT_EVENT, NEVER

Process = Generator[simpy.Event, Any, None]


class Clock:
    """Notes what happens at the present tick, in the order in which the fleet must process it.

    SimPy orders the events of one tick by when they were scheduled. A fleet needs another order: completions by device,
    then faults, timers and arrivals. So the processes only note that something happens, and `next` returns it in order.

    Args:
        env: The SimPy environment; its times are ticks.
        devices: The number of devices.
    """

    def __init__(self, env: simpy.Environment, devices: int) -> None:
        self.env = env
        self._ends: list[int | None] = [None] * devices
        """The tick at which each device's present work ends."""
        self._work = [env.event() for _ in range(devices)]
        """Succeeds when the device has work."""
        self._devices = [env.process(self._device(number)) for number in range(devices)]
        self.arrived = env.event()
        """Succeeds when the last arrival has been processed."""
        self._is_looking = False
        self._happening: list[tuple[int, int, Any]] = []
        self._noted = 0

    # What the transitions call.

    def set_end(self, device: int, tick: int) -> None:
        """Let the device's work end at ``tick``."""
        self._ends[device] = tick
        if not self._work[device].triggered:
            self._work[device].succeed()

    def cancel_end(self, device: int) -> None:
        """Stop the device's work."""
        self._ends[device] = None
        noted = COMPLETION * ENTITIES + device
        if any(order == noted for order, _, _ in self._happening):  # another event of this tick changes the work
            self._happening = [event for event in self._happening if event[0] != noted]
            heapify(self._happening)
        elif self._work[device].triggered:
            self._devices[device].interrupt()

    def arrivals_changed(self) -> None:
        """Look again for the next arrival, because a user will submit a job."""
        if self._is_looking:
            self._is_looking = False
            self._arriving.interrupt()

    def set_timer(self, tick: int, order: int) -> None:
        """Let an event of this order happen at ``tick``."""
        self.env.process(self._timer(tick, order))

    def never_ends(self) -> bool:
        """Return whether some work would end after the last tick."""
        return any(end == NEVER for end in self._ends)

    # The processes.

    def _device(self, number: int) -> Process:
        """A device: it waits for work, and lets the time of the work pass. A fault may stop it or move its end."""
        while True:
            try:
                end = self._ends[number]
                if end is None:
                    self._work[number] = self.env.event()
                    yield self._work[number]
                else:
                    yield self.env.timeout(end - self.env.now)
                    self._ends[number] = None
                    self._note(COMPLETION * ENTITIES + number)
            except simpy.Interrupt:
                pass  # look again when the work ends

    def _timer(self, tick: int, order: int) -> Process:
        """A timer."""
        yield self.env.timeout(tick - self.env.now)
        self._note(order)

    def follow_arrivals(self, next_arrival: Callable[[], int | None]) -> None:
        """Start the process of arrivals. ``next_arrival`` returns the tick of the next one, None if none is known."""
        self._arriving = self.env.process(self._arrivals(next_arrival))

    def _arrivals(self, next_arrival: Callable[[], int | None]) -> Process:
        """The arrivals: each job arrives at its tick. A user who has thought may submit a job before the next one."""
        while True:
            try:
                tick = next_arrival()
                self.arrived = self.env.event()
                self._is_looking = True
                if tick is None:
                    yield self.arrived
                else:
                    yield self.env.timeout(tick - self.env.now)
                    self._is_looking = False
                    self._note(ARRIVAL_EVENT * ENTITIES)
                    yield self.arrived
            except simpy.Interrupt:
                pass  # look again which job is next

    def follow_faults(self, events: Callable[[int], Sequence[Any]], horizon: int, last: int) -> Process:
        """The faults: each event takes effect at its tick. Events up to ``horizon`` are computed, then further ones."""
        known = 0
        while True:
            schedule = events(horizon)
            for event in schedule[known:]:
                yield self.env.timeout(event.tick - self.env.now)
                self._note(FAULT_EVENT * ENTITIES, event)
            if horizon >= last:
                return
            known = len(schedule)
            yield self.env.timeout(horizon - self.env.now)
            self._note(FAULT_EVENT * ENTITIES, None)  # the run may be over
            horizon = min(2 * horizon, last)

    # What happens next.

    def _note(self, order: int, subject: Any = None) -> None:
        self._noted += 1
        heappush(self._happening, (order, self._noted, subject))

    def next(self, end: int) -> tuple[int, Any] | None:
        """Return the next event up to the tick ``end``: its order and subject; None if there is none."""
        env = self.env
        while env.peek() <= (env.now if self._happening else end):
            env.step()
        if not self._happening:
            return None
        order, _, subject = heappop(self._happening)
        return order, subject
