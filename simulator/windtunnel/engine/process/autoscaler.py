"""The autoscaling controller of the process engine.

At one tick, devices become ready after completions, faults and timers. Decisions follow in the order of the fleet, and
then arrivals.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial

import simpy

from windtunnel.core.ticks import MAX_TICKS, to_ticks
from windtunnel.engine.prepare.autoscaling import DRAINING, OFF, ON, PROVISIONING
from windtunnel.engine.prepare.prepared import FleetClass
from windtunnel.engine.process.stations import SCALE, Alarm, RunContext, Station, event_order
from windtunnel.scenario.autoscale import Autoscale

_CONTROL = 2**39
"""Entities from here on are controllers, below it devices."""


@dataclass
class _Group:
    """The devices of one scaled entry."""

    rule: Autoscale
    fleet_class: FleetClass
    every: int
    provisioning: int
    window: int

    def __post_init__(self) -> None:
        count, begin = self.fleet_class.count, self.fleet_class.begin
        self.state = [ON] * begin + [OFF] * (count - begin)
        self.asked = [0] * count
        """The number of the last request for each device; 0 after it was withdrawn."""
        self.in_hand = [0] * count
        self.working = 0
        """The number of devices in service that have a job."""
        self.worked = 0
        """The device-ticks of these devices since the last decision."""
        self.since = 0
        self.recent: deque[tuple[int, int]] = deque()
        """Tick and target of the decisions within the stabilisation window."""
        self.ups = self.downs = 0

    def members(self, state: int) -> list[int]:
        """Return the devices in a state, by their index within the entry."""
        return [i for i, now in enumerate(self.state) if now == state]

    def work(self, change: int, now: int) -> None:
        """Change the number of working devices from now on."""
        self.worked += self.working * (now - self.since)
        self.since = now
        self.working += change


class AutoscaleController:
    """Scales fleet entries at fixed times: it provisions, drains and stops devices."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._requests = 0
        self.groups = [
            _Group(
                rule, c, to_ticks(rule.every), to_ticks(rule.provisioning), to_ticks(rule.down.for_) if rule.down else 0
            )
            for c, rule in context.prepared.scaled
        ]
        self._of = {c.first + i: g for g in self.groups for c in [g.fleet_class] for i in range(c.count)}
        for group in self.groups:
            for place in group.members(OFF):
                station = self._station(group, place)
                station.up = False
                context.dispatcher.refresh(station)
            self._arm(group)

    def _station(self, group: _Group, place: int) -> Station:
        return self._context.stations[group.fleet_class.first + place]

    def _arm(self, group: _Group) -> None:
        env = self._context.env
        if env.now + group.every <= MAX_TICKS:
            order = event_order(SCALE, _CONTROL + group.fleet_class.number)
            Alarm(env, partial(self._decide, group), order).set(group.every)

    def started(self, station: Station) -> None:
        """Record that the station has taken a job."""
        group = self._of.get(station.number)
        if group is None:
            return
        place = station.number - group.fleet_class.first
        group.in_hand[place] += 1
        if group.in_hand[place] == 1 and group.state[place] == ON:
            group.work(1, self._context.env.now)

    def ended(self, station: Station) -> None:
        """Record that a job on the station has completed or failed."""
        group = self._of.get(station.number)
        if group is None:
            return
        place = station.number - group.fleet_class.first
        group.in_hand[place] -= 1
        if not group.in_hand[place]:
            if group.state[place] == ON:
                group.work(-1, self._context.env.now)
            else:
                self._becomes(group, place, OFF)

    def _decide(self, group: _Group, _event: simpy.Event) -> None:
        context, rule = self._context, group.rule
        now = context.env.now
        group.work(0, now)
        working, group.worked = group.worked / group.every, 0
        waiting = context.dispatcher.waiting(group.fleet_class)
        present = len(group.members(ON)) + len(group.members(PROVISIONING))
        upwards = rule.up.wanted(waiting, working)
        wanted = min(upwards, rule.max, present + (rule.up.step or rule.max))
        fewer = present
        if rule.down is not None:
            recent = group.recent
            # Saturated devices do not show the demand, so the waiting jobs limit scaling down too.
            recent.append((now, max(upwards, rule.down.wanted(waiting, working))))
            while recent[0][0] <= now - max(group.window, 1):
                recent.popleft()
            if now >= group.window:
                lowest = max(rule.min, present - (rule.down.step or rule.max))
                fewer = max(lowest, *(devices for _, devices in recent))
        if wanted > present:
            group.ups += 1
            self._add_devices(group, wanted - present)
        elif fewer < present:
            group.downs += 1
            self._fewer(group, present - fewer)
        # Decisions must not prolong a run that ends when it has drained.
        if context.prepared.end is not None or not context.over():
            self._arm(group)

    def _add_devices(self, group: _Group, count: int) -> None:
        """Return draining devices to service, which are still rented, then provision others, lowest numbers first."""
        back = group.members(DRAINING)[:count]
        for place in back:
            self._serves(group, place)
        for place in group.members(OFF)[: count - len(back)]:
            self._requests += 1
            group.asked[place] = self._requests
            self._becomes(group, place, PROVISIONING)
            order = event_order(SCALE, group.fleet_class.first + place)
            Alarm(self._context.env, partial(self._ready, group, place, self._requests), order).set(group.provisioning)

    def _fewer(self, group: _Group, count: int) -> None:
        """Withdraw requests, the latest first, then drain devices, those with the fewest jobs first."""
        asked = sorted(group.members(PROVISIONING), key=lambda place: -group.asked[place])[:count]
        for place in asked:
            group.asked[place] = 0
            self._becomes(group, place, OFF)
        idle_first = sorted(group.members(ON), key=lambda place: (group.in_hand[place], -place))
        drained = idle_first[: count - len(asked)]
        for place in drained:
            self._drains(group, place)
        # Drained together, so that no job is routed to a device that drains too.
        dispatcher = self._context.dispatcher
        moved: list[int] = []
        for place in drained:
            station = self._station(group, place)
            for job in dispatcher.take_all(station):
                dispatcher.left(job, station)
                moved.append(job)
            dispatcher.refresh(station)
        for job in sorted(moved):
            dispatcher.place(job)

    def _ready(self, group: _Group, place: int, request: int, _event: simpy.Event) -> None:
        if group.asked[place] == request:
            self._serves(group, place)

    def _serves(self, group: _Group, place: int) -> None:
        station = self._station(group, place)
        if group.in_hand[place]:
            group.work(1, self._context.env.now)
        self._becomes(group, place, ON)
        station.up = True
        self._context.dispatcher.refresh(station)
        self._context.dispatcher.feed(station)

    def _drains(self, group: _Group, place: int) -> None:
        self._station(group, place).up = False
        if group.in_hand[place]:
            group.work(-1, self._context.env.now)
        self._becomes(group, place, DRAINING)
        if not group.in_hand[place]:
            self._becomes(group, place, OFF)

    def _becomes(self, group: _Group, place: int, state: int) -> None:
        before, group.state[place] = group.state[place], state
        self._context.log.add_change(self._context.env.now, group.fleet_class.first + place, before, state)

    def close(self) -> None:
        """Write to the event log how often each entry was scaled up and down."""
        self._context.log.scaled = [(group.ups, group.downs) for group in self.groups]
