"""The autoscaling controller: at fixed times it provisions, drains and stops devices of the scaled fleet entries."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, to_ticks
from windtunnel.engine.prepare.autoscaling import DRAINING, OFF, ON, PROVISIONING
from windtunnel.engine.prepare.prepared import FleetClass, PreparedRun
from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.consequences import sweep_classes, to_place
from windtunnel.engine.transitions.faults import come_back
from windtunnel.engine.transitions.jobs import become, count_working
from windtunnel.engine.transitions.loading import admitted
from windtunnel.engine.transitions.power import shed
from windtunnel.engine.transitions.queues import best_queue, left, pop, reindex
from windtunnel.engine.transitions.tables import DECIDE, PREFILLS, READY, SERVER_KIND, World
from windtunnel.scenario.autoscale import Autoscale, Signals


@dataclass
class _Group:
    """The devices of one scaled entry."""

    rule: Autoscale
    fleet_class: FleetClass
    every: int
    provisioning: int
    window: int
    recent: deque[tuple[int, int]] = field(default_factory=deque)
    """Tick and target of the decisions within the stabilisation window."""
    ups: int = 0
    downs: int = 0
    tokens: int = 0
    """The tokens that all devices had processed at the last decision."""

    def members(self, w: World, state: int) -> list[int]:
        """Return the devices in a state."""
        first = self.fleet_class.first
        return [device for device in range(first, first + self.fleet_class.count) if w.extras[device].state == state]

    def working(self, w: World) -> list[int]:
        """Return the devices in service that are up. Another device is requested in place of one that failed."""
        return [device for device in self.members(w, ON) if w.devices[device].outages == 0]


def _loading_s(prepared: PreparedRun, fleet_class: FleetClass, rule: Autoscale) -> float:
    """Return the time (s) in which a replica loads the weights of its models."""
    if rule.weights_bandwidth is None:
        return 0.0
    models = {
        program.decoder.model
        for (number, _), program in prepared.compiled.items()
        if number == fleet_class.number and program.decoder is not None
    }
    return sum(model.weight_bytes for model in models) / rule.weights_bandwidth


class AutoscaleController:
    """Scales fleet entries at fixed times."""

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        self._requests = 0
        self._ready_at: dict[int, int] = {}
        """The tick at which each device that is being provisioned will be ready."""
        self._groups = {
            c.number: _Group(
                rule,
                c,
                to_ticks(rule.every),
                to_ticks(rule.provisioning + _loading_s(prepared, c, rule)),
                to_ticks(rule.down.for_) if rule.down else 0,
            )
            for c, rule in prepared.scaled
        }

    @property
    def scaled(self) -> list[tuple[int, int]]:
        """How often each entry was scaled up and down."""
        return [(group.ups, group.downs) for group in self._groups.values()]

    def begin(self, w: World) -> None:
        """Schedule the first decisions."""
        for group in self._groups.values():
            self._schedule(w, group)

    def _schedule(self, w: World, group: _Group) -> None:
        tick = int(w.run[0].now) + group.every
        if tick <= MAX_TICKS:
            set_timer(w, DECIDE, group.fleet_class.number, tick)

    def decide(self, w: World, number: int) -> None:
        """Decide how many devices of a class are in service."""
        group = self._groups[number]
        r, c, rule = w.run[0], w.classes[number], group.rule
        now = int(r.now)
        count_working(w, number, 0)
        working, c.worked = int(c.worked) / group.every, 0
        signals = Signals(self._waiting(w, group.fleet_class), working, *self._serving(w, group))
        present = len(group.working(w)) + len(group.members(w, PROVISIONING))
        upwards = rule.up.wanted(signals)
        wanted = min(max(upwards, rule.min), rule.max, present + (rule.up.step or rule.max))
        fewer = present
        if rule.down is not None:
            recent = group.recent
            # Saturated devices do not show the demand, so the waiting jobs limit scaling down too.
            recent.append((now, max(upwards, rule.down.wanted(signals))))
            while recent[0][0] <= now - max(group.window, 1):
                recent.popleft()
            if now >= group.window:
                lowest = max(rule.min, present - (rule.down.step or rule.max))
                fewer = max(lowest, *(devices for _, devices in recent))
        if wanted > present:
            group.ups += 1
            self._add_devices(w, group, wanted - present)
        elif fewer < present:
            group.downs += 1
            self._fewer(w, group, present - fewer)
        # Decisions must not prolong a run that ends when it has drained.
        more = r.next < len(w.arrivals) or not r.last or r.running + r.waiting > 0
        if self._prepared.end is not None or more:
            self._schedule(w, group)

    def _waiting(self, w: World, fleet_class: FleetClass) -> int:
        """Return how many jobs wait that devices of the class can run."""
        r = w.run[0]
        works = r.lines
        awaiting = 0
        if r.disaggregated and w.classes[fleet_class.number].role != PREFILLS:
            first = fleet_class.first
            awaiting = int(r.strandeds)
            awaiting += sum(int(w.ports[device].waiting) for device in range(first, first + fleet_class.count))
        if r.routed:
            queues = range(fleet_class.first * works, (fleet_class.first + fleet_class.count) * works)
            return awaiting + sum(int(w.queues[queue].number) for queue in queues)
        at = r.queue_at + fleet_class.number
        places = range(int(w.ints[at]), int(w.ints[at + 1]))
        return awaiting + sum(int(w.queues[w.ints[r.queues_of + place]].number) for place in places)

    def _serving(self, w: World, group: _Group) -> tuple[int, float, float]:
        """Return sequences in batches, shares of cache in use and tokens a second, as sums over devices in service."""
        c = w.classes[group.fleet_class.number]
        if c.kind != SERVER_KIND:
            return 0, 0.0, 0.0
        servers = [w.servers[device] for device in group.working(w)]
        running = sum(int(admitted(v)) for v in servers)
        use = sum(float(v.cached) / max(float(c.capacity), 1.0) for v in servers)
        first = group.fleet_class.first
        total = sum(int(w.servers[device].tokens) for device in range(first, first + group.fleet_class.count))
        new, group.tokens = total - group.tokens, total
        return running, use, new * TICKS_PER_SECOND / group.every

    def _add_devices(self, w: World, group: _Group, count: int) -> None:
        """Return draining devices to service, which are still rented, then provision others, lowest numbers first."""
        back = group.members(w, DRAINING)[:count]
        for device in back:
            self._serve(w, device)
            reindex(w, device)
        r = w.run[0]
        now = int(r.now)
        if back and not r.routed and not r.paused:
            place = r.all_classes + group.fleet_class.number
            sweep_classes(w, place, place + 1)
        off = sorted(group.members(w, OFF), key=lambda device: w.devices[device].outages)  # those that are up first
        for device in off[: count - len(back)]:
            self._requests += 1
            w.extras[device].request = self._requests
            self._ready_at[device] = now + group.provisioning
            become(w, device, PROVISIONING)
            set_timer(w, READY, device, now + group.provisioning)
        if r.gated:
            shed(w)  # a provisioned device draws its idle power

    def _fewer(self, w: World, group: _Group, count: int) -> None:
        """Withdraw requests, the latest first, then drain devices, those with the fewest jobs first."""
        asked = sorted(group.members(w, PROVISIONING), key=lambda device: -w.extras[device].request)[:count]
        for device in asked:
            self._ready_at.pop(device)
            become(w, device, OFF)
        idle_first = sorted(group.working(w), key=lambda device: (w.extras[device].running, -device))
        drained = idle_first[: count - len(asked)]
        for device in drained:
            self._drain(w, device)
        # Drained together, so that no job is routed to a device that drains too.
        moved: list[tuple[int, int]] = []
        for device in drained:
            while w.run[0].routed and (queue := best_queue(w, device, -math.inf, -1)) >= 0:
                slot = pop(w, queue)
                w.run[0].waiting -= 1
                left(w, device)
                moved.append((int(w.slots[slot].job), slot))
            reindex(w, device)
        for _, slot in sorted(moved):
            to_place(w, slot)

    def ready(self, w: World, device: int) -> None:
        """Put a provisioned device into service, unless its request was withdrawn."""
        if self._ready_at.get(device) == w.run[0].now:
            del self._ready_at[device]
            self._serve(w, device)
            come_back(w, device)

    def _serve(self, w: World, device: int) -> None:
        if w.extras[device].running:
            count_working(w, int(w.devices[device].cls), 1)
        become(w, device, ON)
        w.devices[device].enlisted = 1

    def _drain(self, w: World, device: int) -> None:
        w.devices[device].enlisted = 0
        running = w.extras[device].running
        if running:
            count_working(w, int(w.devices[device].cls), -1)
        become(w, device, DRAINING)
        if not running:
            become(w, device, OFF)
