"""The schedule of faults: when and where they take effect, in the order that both engines use.

A schedule does not depend on the jobs. Its random numbers come from streams that are named by fault, fleet entry and
block of devices, and are always drawn in the same shape. A longer horizon, another fault at the end of the list, or
more devices therefore do not change earlier events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray
from windtunnel.scenario.faults import BrownOut, Failure, Fault, LinkLoss, OperationFault, Straggler, Throttle

FAIL, REPAIR, SPEED, LINK_DOWN, LINK_UP, CAP, INTERRUPT = range(7)
RETRY, MIGRATE, LOSE = range(3)
"""What happens to the jobs of a device that fails."""
JOBS = {"retry": RETRY, "migrate": MIGRATE, "fail": LOSE}
EVENT = np.dtype([("tick", "i8"), ("on", "i8"), ("code", "i8"), ("rule", "i8"), ("value", "f8")], align=True)
"""One event: its tick, device (-1 for all) and code. For FAIL and INTERRUPT, the rule for the jobs: 1 + the index of
the fault. For SPEED and CAP, the new speed or budget (W).

All devices that fail at one tick are down (FAIL) before the jobs of the first one are interrupted (INTERRUPT), so that
none of these starts on another device that fails at that tick."""
_MARK = np.dtype([("tick", "i8"), ("on", "i8"), ("begins", "?"), ("number", "i8")])
_CYCLES, _BLOCK = 8, 256
"""The numbers of intervals and of devices for which random numbers are drawn together."""
NEVER = MAX_TICKS
"""The end of a permanent fault."""
MAX_INTERVALS = 5_000_000
"""The largest number of intervals of one fault in a run; a schedule with more would take a gigabyte of memory."""


@dataclass(frozen=True)
class AffectedDevices:
    """The devices of one fleet entry that a fault affects, from number ``first`` on (-1 for the fleet's power).

    ``members`` devices form a group, which has one number: a fault of one of them affects the whole group.
    """

    name: str
    first: int
    count: int
    members: int = 1

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of the groups; shape (count,)."""
        return np.arange(self.first, self.first + self.count)

    @property
    def devices(self) -> int:
        """The devices of all groups."""
        return self.count * self.members


@dataclass
class FaultSchedule:
    """The schedule of the faults of a scenario.

    Attributes:
        faults: The faults, in the order of the scenario.
        affected: The devices that each fault affects.
        budget_w: The power budget without a brown-out (W); infinite if there is none.
        seed: The seed of the run.
    """

    faults: Sequence[Fault]
    affected: Sequence[Sequence[AffectedDevices]]
    budget_w: float
    seed: int
    _computed: tuple[int, np.ndarray] = field(default_factory=lambda: (0, np.zeros(0, dtype=EVENT)))

    def until(self, tick: int) -> np.ndarray:
        """Return all events before ``tick``, in their order: by tick, and at one tick as docs/engine.md says.

        The events for a later tick begin with those for an earlier one.
        """
        if tick > self._computed[0]:
            events = np.concatenate([self._events(tick, kind) for kind in (Failure, LinkLoss, Throttle, BrownOut)])
            events = events[events["tick"] < tick]
            interrupts = events[events["code"] == FAIL]
            interrupts["code"] = INTERRUPT
            events = np.concatenate([events, interrupts])
            phase = np.full(len(events), 3)
            for first, code in enumerate((CAP, FAIL, INTERRUPT)):
                phase[events["code"] == code] = first
            self._computed = tick, events[np.lexsort((np.arange(len(events)), events["on"], phase, events["tick"]))]
        events = self._computed[1]
        return events[: np.searchsorted(events["tick"], tick)]

    def count_begun(self, number: int, tick: int) -> int:
        """Return how many intervals of fault ``number`` begin before ``tick``, on all devices together."""
        fault = self.faults[number]
        return sum(len(self._marks(number, fault, part, tick)) // 2 for part in self.affected[number])

    def gone(self, devices: int) -> TickArray:
        """Return the tick from which each device has failed permanently, or ``NEVER``; shape (devices,)."""
        ticks = np.full(devices, NEVER)
        for fault, affected in zip(self.faults, self.affected, strict=True):
            if isinstance(fault, Failure) and fault.at is not None and fault.duration is None:
                begins = int(_at(fault.at).min())
                for part in affected:
                    ticks[part.numbers] = np.minimum(ticks[part.numbers], begins)
        return ticks

    def _events(self, tick: int, kind: type) -> np.ndarray:
        """Return the events of the faults of one kind; overlapping faults of a device are merged."""
        marks = [
            self._marks(number, fault, part, tick)
            for number, fault in enumerate(self.faults)
            if isinstance(fault, kind)
            for part in self.affected[number]
        ]
        if not marks:
            return np.zeros(0, dtype=EVENT)
        table = np.concatenate(marks)
        # At one tick of a device, beginnings come before ends, so that adjacent intervals are merged.
        table = table[np.lexsort((~table["begins"], table["tick"], table["on"]))]
        if kind is Failure:
            return self._failures(table)
        if kind is LinkLoss:
            return _turns(table, LINK_DOWN, LINK_UP)
        return self._levels(table, kind)

    def _marks(self, number: int, fault: Fault, part: AffectedDevices, tick: int) -> np.ndarray:
        """Return the beginnings and ends of a fault's intervals that begin before ``tick``, on some devices."""
        at = getattr(fault, "at", None)
        if at is not None:
            duration_s = getattr(fault, "duration", None)
            first = _at(at)
            length = NEVER if duration_s is None else int(_ticks(np.array([duration_s]))[0])
            last = first + np.minimum(length, NEVER - first)
            on = np.repeat(part.numbers, len(first))
            begins, ends = np.tile(first, part.count), np.tile(last, part.count)
        else:
            on, begins, ends = self._drawn(number, fault, part, tick)
        kept = begins < tick
        on, begins, ends = on[kept], begins[kept], ends[kept]
        table = np.zeros(2 * len(on), dtype=_MARK)
        table["on"], table["number"] = np.tile(on, 2), number
        table["tick"] = np.concatenate([begins, ends])
        table["begins"][: len(on)] = True
        return table

    def _drawn(
        self, number: int, fault: Fault, part: AffectedDevices, tick: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return devices, beginnings and ends of all random intervals that begin before ``tick``."""
        means = _means(fault)
        domain = getattr(fault, "domain", None)
        units = part.devices if domain is None else -(-part.devices // domain)
        name = [str(number), part.name] if domain is None else [str(number), part.name, "domain"]
        columns: tuple[list[np.ndarray], ...] = ([], [], [])
        for block in range(-(-units // _BLOCK)):
            rng = stream(self.seed, "faults", *name, str(block))
            on = block * _BLOCK + np.arange(min(_BLOCK, units - block * _BLOCK))
            clock = np.zeros(_BLOCK)
            while clock[: len(on)].min() * TICKS_PER_SECOND <= tick:
                gaps = rng.exponential(1.0, (_CYCLES, _BLOCK, 2)) * means
                times = clock + np.cumsum(gaps.transpose(0, 2, 1).reshape(2 * _CYCLES, _BLOCK), axis=0)
                clock = times[-1]
                edges = _ticks(times[:, : len(on)])
                begins, ends = edges[0::2].T, edges[1::2].T
                kept = begins < tick
                for column, values in zip(
                    columns, (np.broadcast_to(on[:, None], kept.shape), begins, ends), strict=True
                ):
                    column.append(values[kept])
        unit, begins, ends = (np.concatenate(parts) for parts in columns)
        if domain is None:
            return part.first + unit // part.members, begins, ends
        members = unit[:, None] * domain + np.arange(domain)
        exists = members < part.devices  # the last domain may be smaller
        begins, ends = (np.broadcast_to(column[:, None], members.shape)[exists] for column in (begins, ends))
        return part.first + members[exists] // part.members, begins, ends

    def _failures(self, table: np.ndarray) -> np.ndarray:
        """Return the events of failures; of overlapping ones the first decides what happens to the jobs."""
        events = _turns(table, FAIL, REPAIR)
        fails = events["code"] == FAIL
        events["rule"][fails] = 1 + table["number"][_edges(table)][fails]
        return events

    def _levels(self, table: np.ndarray, kind: type) -> np.ndarray:
        """Return the events of throttling or brown-outs; of overlapping ones the lowest value applies."""
        normal = 1.0 if kind is Throttle else self.budget_w
        values = [getattr(f, "speed" if kind is Throttle else "budget", normal) for f in self.faults]
        code = SPEED if kind is Throttle else CAP
        if len(np.unique(table["number"])) == 1:
            events = _turns(table, code, code)
            low = min(normal, values[int(table["number"][0])])
            events["value"] = np.where(table["begins"][_edges(table)], low, normal)
            return events if low != normal else events[:0]
        rows: list[tuple[int, int, int, int, float]] = []
        level: dict[int, float] = {}
        for tick, device, active in _active_faults(table):
            now = min([normal, *(values[number] for number in active)])
            if now != level.get(device, normal):
                level[device] = now
                rows.append((tick, device, code, 0, now))
        return np.array(rows, dtype=EVENT) if rows else np.zeros(0, dtype=EVENT)


def _at(seconds: Sequence[float]) -> TickArray:
    return _ticks(np.asarray(seconds, dtype=np.float64))


def _ticks(seconds: FloatArray) -> TickArray:
    """Return times as ticks, rounded; ``NEVER`` for times beyond the longest run."""
    scaled = np.rint(seconds * TICKS_PER_SECOND)
    within = scaled < float(NEVER)
    return np.where(within, np.where(within, scaled, 0.0).astype(np.int64), NEVER)


def _means(fault: Fault) -> tuple[float, float]:
    """Return the mean time between the intervals of a random fault, and their mean length (s)."""
    names = ("mtbf", "mttr") if isinstance(fault, Failure) else ("mean_interval", "duration")
    between, length = (getattr(fault, name) for name in names)
    return float(between), float(length)


def expected_count(fault: Fault, devices: int, span_s: float) -> float:
    """Return the approximate number of intervals of a fault on ``devices`` devices in ``span_s`` seconds."""
    if isinstance(fault, Straggler | OperationFault):
        return 0.0
    if fault.at is not None:
        return float(len(fault.at) * devices)
    return devices * span_s / sum(_means(fault))


def initial_horizon(arrival: TickArray, end: int | None) -> int:
    """Return the first horizon of a schedule: the end of a run that stops at a time, or a tick after most runs end.

    A fault at the last tick of a run has no effect.
    """
    last = int(arrival[-1]) if len(arrival) else 0
    return min(last + last // 4 + TICKS_PER_SECOND if end is None else end, MAX_TICKS)


def _edges(table: np.ndarray) -> np.ndarray:
    """Return the rows of a sorted table at which a union of overlapping intervals begins or ends."""
    depth = np.cumsum(np.where(table["begins"], 1, -1))
    return np.flatnonzero(np.where(table["begins"], depth == 1, depth == 0))


def _turns(table: np.ndarray, begins: int, ends: int) -> np.ndarray:
    """Return events at the edges of the unions of overlapping intervals."""
    rows = table[_edges(table)]
    events = np.zeros(len(rows), dtype=EVENT)
    events["tick"], events["on"] = rows["tick"], rows["on"]
    events["code"] = np.where(rows["begins"], begins, ends)
    return events


def _active_faults(table: np.ndarray) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Yield tick, device, and the number of active intervals of each fault, after every change."""
    on: int | None = None
    active: dict[int, int] = {}
    for tick, device, begins, number in table.tolist():
        if device != on:
            on, active = device, {}
        active[number] = active.get(number, 0) + (1 if begins else -1)
        if not active[number]:
            del active[number]
        yield tick, device, active


def straggler_slowdowns(
    faults: Sequence[Fault], seed: int, names: Sequence[str], workload_of: np.ndarray, rank: np.ndarray
) -> FloatArray | None:
    """Return the factor on the execution time of each job; None if the scenario has no straggler fault.

    The random decision is keyed by the index of the job within its workload.
    """
    if not any(isinstance(fault, Straggler) for fault in faults):
        return None
    slowdown = np.ones(len(workload_of))
    for number, fault in enumerate(faults):
        if isinstance(fault, Straggler):
            slow = is_straggler(fault, number, seed, names, workload_of, rank)
            slowdown = np.where(slow, slowdown * fault.slowdown, slowdown)
    return slowdown


def is_straggler(
    fault: Straggler, number: int, seed: int, names: Sequence[str], workload_of: np.ndarray, rank: np.ndarray
) -> np.ndarray:
    """Return which jobs the straggler fault ``number`` slows down; shape (jobs,)."""
    affected = np.zeros(len(workload_of), dtype=bool)
    for work, name in enumerate(names):
        members = np.flatnonzero(workload_of == work)
        if not len(members) or (fault.workloads is not None and name not in fault.workloads):
            continue
        slow = stream(seed, "faults", str(number), name).random(int(rank[members].max()) + 1) < fault.probability
        affected[members] = slow[rank[members]]
    return affected


def down_ticks(events: np.ndarray, end: int, devices: int) -> np.ndarray:
    """Return how long each device was down because of failures until ``end`` (ticks); shape (devices,)."""
    down = np.zeros(devices, dtype=np.int64)
    for on, begins, ends in spans(events, end, FAIL, REPAIR):
        down[on] += ends - begins
    return down


def spans(events: np.ndarray, end: int, begins: int, ends: int) -> Iterator[tuple[int, int, int]]:
    """Yield device, start and end of the intervals between two codes of events, limited to ``end``, sorted."""
    chosen = events[((events["code"] == begins) | (events["code"] == ends)) & (events["tick"] < end)]
    chosen = chosen[np.argsort(chosen["on"], kind="stable")]
    since, last = -1, -1
    for tick, on, code in zip(chosen["tick"].tolist(), chosen["on"].tolist(), chosen["code"].tolist(), strict=True):
        if on != last and since >= 0:
            yield last, since, end
            since = -1
        last = on
        if code == begins:
            since = tick if since < 0 else since
        else:
            yield on, since, tick
            since = -1
    if since >= 0:
        yield last, since, end


def intervals_until(events: np.ndarray, end: int, budget_w: float) -> list[tuple[int, int, int, int]]:
    """Return (device, cause, start, end) of all degraded intervals before ``end``, sorted."""
    intervals = [(on, 0, first, last) for on, first, last in spans(events, end, FAIL, REPAIR)]
    intervals += [(on, 1, first, last) for on, first, last in spans(events, end, LINK_DOWN, LINK_UP)]
    for cause, code, normal in ((2, SPEED, 1.0), (3, CAP, budget_w)):
        # A change between two degraded levels does not end an interval.
        levels = events[events["code"] == code].copy()
        levels["code"] = np.where(levels["value"] == normal, REPAIR, FAIL)
        intervals += [(on, cause, first, last) for on, first, last in spans(levels, end, FAIL, REPAIR)]
    return sorted(intervals)
