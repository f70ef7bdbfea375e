"""When faults happen: one schedule of a run, in order, that both engines go by.

A schedule does not depend on what the jobs do. Its draws come from streams named by fault, fleet entry and block of
devices, always of the same shape: looking further ahead, another fault at the end of the list, or more devices change
nothing of what was there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray
from windtunnel.scenario.faults import BrownOut, Failure, Fault, LinkLoss, OperationFault, Straggler, Throttle

FAIL, REPAIR, SPEED, LINK_DOWN, LINK_UP, CAP = range(6)
RETRY, MIGRATE, LOSE = range(3)
"""What becomes of the jobs of a device that fails."""
JOBS = {"retry": RETRY, "migrate": MIGRATE, "fail": LOSE}
EVENT = np.dtype(
    [("tick", "i8"), ("on", "i8"), ("code", "i8"), ("jobs", "i8"), ("attempts", "i8"), ("value", "f8")], align=True
)
"""One fault: when, on which device (-1: all of them), what; for FAIL what becomes of jobs and how often one may be
started; for SPEED and CAP the new speed or budget (W)."""
_MARK = np.dtype([("tick", "i8"), ("on", "i8"), ("begins", "?"), ("number", "i8")])
_CYCLES, _BLOCK = 8, 256
"""Spells and devices of which draws are made at once."""
NEVER = MAX_TICKS
"""The end of what lasts for good."""
MAX_INTERVALS = 5_000_000
"""Spells of one fault above which a run is refused: its schedule alone would take a gigabyte."""


@dataclass(frozen=True)
class AffectedDevices:
    """Devices that a fault strikes, of one fleet entry: ``count`` from number ``first`` (-1: the fleet's power)."""

    name: str
    first: int
    count: int

    @property
    def numbers(self) -> np.ndarray:
        """The devices' numbers."""
        return np.arange(self.first, self.first + self.count)


@dataclass
class FaultSchedule:
    """The faults of a scenario.

    ``stated``: as the scenario has them; ``struck``: for each, what it strikes; ``budget_w``: what the fleet may draw
    when nothing is wrong (infinite without a limit).
    """

    stated: Sequence[Fault]
    struck: Sequence[Sequence[AffectedDevices]]
    budget_w: float
    seed: int
    _known: tuple[int, np.ndarray] = field(default_factory=lambda: (0, np.zeros(0, dtype=EVENT)))

    def until(self, tick: int) -> np.ndarray:
        """All events before ``tick``, by tick and device; those of one device in the order they happen.

        The events of a longer look ahead begin with those of a shorter one.
        """
        if tick > self._known[0]:
            events = np.concatenate([self._events(tick, kind) for kind in (Failure, LinkLoss, Throttle, BrownOut)])
            events = events[events["tick"] < tick]
            self._known = tick, events[np.lexsort((np.arange(len(events)), events["on"], events["tick"]))]
        events = self._known[1]
        return events[: np.searchsorted(events["tick"], tick)]

    def count_begun(self, number: int, tick: int) -> int:
        """How many spells of the fault at this place in the list begin before ``tick``, on all it strikes together."""
        fault = self.stated[number]
        return sum(len(self._marks(number, fault, part, tick)) // 2 for part in self.struck[number])

    def gone(self, devices: int) -> TickArray:
        """For each device, the tick from which it has failed for good; ``NEVER`` for those that are always repaired."""
        ticks = np.full(devices, NEVER)
        for fault, struck in zip(self.stated, self.struck, strict=True):
            if isinstance(fault, Failure) and fault.at is not None and fault.duration is None:
                begins = int(_at(fault.at).min())
                for part in struck:
                    ticks[part.numbers] = np.minimum(ticks[part.numbers], begins)
        return ticks

    def _events(self, tick: int, kind: type) -> np.ndarray:
        """What the faults of one kind come to: where two of them strike a device together, they are one."""
        marks = [
            self._marks(number, fault, part, tick)
            for number, fault in enumerate(self.stated)
            if isinstance(fault, kind)
            for part in self.struck[number]
        ]
        if not marks:
            return np.zeros(0, dtype=EVENT)
        table = np.concatenate(marks)
        # Of one device at one tick, what begins goes before what ends, so that spells that touch are one.
        table = table[np.lexsort((~table["begins"], table["tick"], table["on"]))]
        if kind is Failure:
            return self._failures(table)
        if kind is LinkLoss:
            return _turns(table, LINK_DOWN, LINK_UP)
        return self._levels(table, kind)

    def _marks(self, number: int, fault: Fault, part: AffectedDevices, tick: int) -> np.ndarray:
        """Beginnings and ends of a fault's spells that begin before ``tick``, on some devices."""
        at = getattr(fault, "at", None)
        if at is not None:
            lasts = getattr(fault, "duration", None)
            first = _at(at)
            length = NEVER if lasts is None else int(_ticks(np.array([lasts]))[0])
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
        """(devices, beginnings, ends) of drawn spells: of each device all that begin before ``tick``, and more."""
        means = _means(fault)
        found: tuple[list[np.ndarray], ...] = ([], [], [])
        for block in range(-(-part.count // _BLOCK)):
            rng = stream(self.seed, "faults", str(number), part.name, str(block))
            on = part.first + block * _BLOCK + np.arange(min(_BLOCK, part.count - block * _BLOCK))
            clock = np.zeros(_BLOCK)
            while clock[: len(on)].min() * TICKS_PER_SECOND <= tick:
                gaps = rng.exponential(1.0, (_CYCLES, _BLOCK, 2)) * means
                times = clock + np.cumsum(gaps.transpose(0, 2, 1).reshape(2 * _CYCLES, _BLOCK), axis=0)
                clock = times[-1]
                spells = _ticks(times[:, : len(on)])
                begins, ends = spells[0::2].T, spells[1::2].T
                kept = begins < tick
                for column, values in zip(found, (np.broadcast_to(on[:, None], kept.shape), begins, ends), strict=True):
                    column.append(values[kept])
        first, second, third = (np.concatenate(parts) for parts in found)
        return first, second, third

    def _failures(self, table: np.ndarray) -> np.ndarray:
        """What becomes of the jobs, and how often one may be started, is as the failure says that came first."""
        events = _turns(table, FAIL, REPAIR)
        becomes, attempts = np.zeros((2, len(self.stated)), dtype=np.int64)
        for number, fault in enumerate(self.stated):
            if isinstance(fault, Failure):
                becomes[number], attempts[number] = JOBS[fault.on_failure], fault.max_attempts
        fails = events["code"] == FAIL
        causes = table["number"][_edges(table)][fails]
        events["jobs"][fails], events["attempts"][fails] = becomes[causes], attempts[causes]
        return events

    def _levels(self, table: np.ndarray, kind: type) -> np.ndarray:
        """Speeds or budgets: of those that hold at once, the least."""
        normal = 1.0 if kind is Throttle else self.budget_w
        values = [getattr(f, "speed" if kind is Throttle else "budget", normal) for f in self.stated]
        code = SPEED if kind is Throttle else CAP
        if len(np.unique(table["number"])) == 1:
            events = _turns(table, code, code)
            low = min(normal, values[int(table["number"][0])])
            events["value"] = np.where(table["begins"][_edges(table)], low, normal)
            return events if low != normal else events[:0]
        found: list[tuple[int, int, int, int, int, float]] = []
        level: dict[int, float] = {}
        for tick, device, active in _open_spells(table):
            now = min([normal, *(values[number] for number in active)])
            if now != level.get(device, normal):
                level[device] = now
                found.append((tick, device, code, 0, 0, now))
        return np.array(found, dtype=EVENT) if found else np.zeros(0, dtype=EVENT)


def _at(seconds: Sequence[float]) -> TickArray:
    return _ticks(np.asarray(seconds, dtype=np.float64))


def _ticks(seconds: FloatArray) -> TickArray:
    """To the nearest tick; ``NEVER`` for what lies beyond the last that a run may reach."""
    scaled = np.rint(seconds * TICKS_PER_SECOND)
    within = scaled < float(NEVER)
    return np.where(within, np.where(within, scaled, 0.0).astype(np.int64), NEVER)


def _means(fault: Fault) -> tuple[float, float]:
    """Mean time from the end of a spell to the next, and mean length of one (s), of a fault whose times are drawn."""
    names = ("mtbf", "mttr") if isinstance(fault, Failure) else ("mean_interval", "duration")
    between, length = (getattr(fault, name) for name in names)
    return float(between), float(length)


def expected_count(fault: Fault, devices: int, span_s: float) -> float:
    """How many spells a fault will have on so many devices in ``span_s`` seconds, about."""
    if isinstance(fault, Straggler | OperationFault):
        return 0.0
    if fault.at is not None:
        return float(len(fault.at) * devices)
    return devices * span_s / sum(_means(fault))


def initial_horizon(arrival: TickArray, end: int | None) -> int:
    """A tick to ask a schedule for at first: most runs end before it, and what stops at a time does so there.

    What would strike at the very tick of a run's end does not strike any more.
    """
    last = int(arrival[-1]) if len(arrival) else 0
    return min(last + last // 4 + TICKS_PER_SECOND if end is None else end, MAX_TICKS)


def _edges(table: np.ndarray) -> np.ndarray:
    """Where in a sorted table of spells a device's first begins, or its last ends, of those that overlap."""
    depth = np.cumsum(np.where(table["begins"], 1, -1))
    return np.flatnonzero(np.where(table["begins"], depth == 1, depth == 0))


def _turns(table: np.ndarray, begins: int, ends: int) -> np.ndarray:
    """Events at the edges of overlapping spells."""
    rows = table[_edges(table)]
    events = np.zeros(len(rows), dtype=EVENT)
    events["tick"], events["on"] = rows["tick"], rows["on"]
    events["code"] = np.where(rows["begins"], begins, ends)
    return events


def _open_spells(table: np.ndarray) -> Iterator[tuple[int, int, dict[int, int]]]:
    """(tick, device, faults that strike it now and how often each) after every change."""
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
    stated: Sequence[Fault], seed: int, names: Sequence[str], workload_of: np.ndarray, rank: np.ndarray
) -> FloatArray | None:
    """How much longer each job takes than it should, by its number; None where no straggler is stated.

    Whether a job straggles is drawn by its place in its workload.
    """
    if not any(isinstance(fault, Straggler) for fault in stated):
        return None
    slowdown = np.ones(len(workload_of))
    for number, fault in enumerate(stated):
        if isinstance(fault, Straggler):
            slow = is_straggler(fault, number, seed, names, workload_of, rank)
            slowdown = np.where(slow, slowdown * fault.slowdown, slowdown)
    return slowdown


def is_straggler(
    fault: Straggler, number: int, seed: int, names: Sequence[str], workload_of: np.ndarray, rank: np.ndarray
) -> np.ndarray:
    """Which jobs a fault at this place in the list makes stragglers."""
    struck = np.zeros(len(workload_of), dtype=bool)
    for work, name in enumerate(names):
        mine = np.flatnonzero(workload_of == work)
        if not len(mine) or (fault.workloads is not None and name not in fault.workloads):
            continue
        slow = stream(seed, "faults", str(number), name).random(int(rank[mine].max()) + 1) < fault.probability
        struck[mine] = slow[rank[mine]]
    return struck


def down_ticks(events: np.ndarray, end: int, devices: int) -> np.ndarray:
    """For each device, how long it had failed by ``end``."""
    down = np.zeros(devices, dtype=np.int64)
    for on, begins, ends in spans(events, end, FAIL, REPAIR):
        down[on] += ends - begins
    return down


def spans(events: np.ndarray, end: int, begins: int, ends: int) -> Iterator[tuple[int, int, int]]:
    """(device, from, until) of what events of two codes begin and end, cut at ``end``, by device and time."""
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
    """(device, what, from, until) of all that is wrong before ``end``, by device, what and time (``result.SPELLS``)."""
    found = [(on, 0, first, last) for on, first, last in spans(events, end, FAIL, REPAIR)]
    found += [(on, 1, first, last) for on, first, last in spans(events, end, LINK_DOWN, LINK_UP)]
    for what, code, normal in ((2, SPEED, 1.0), (3, CAP, budget_w)):
        # One that becomes worse or better while it lasts is one spell.
        levels = events[events["code"] == code].copy()
        levels["code"] = np.where(levels["value"] == normal, REPAIR, FAIL)
        found += [(on, what, first, last) for on, first, last in spans(levels, end, FAIL, REPAIR)]
    return sorted(found)
