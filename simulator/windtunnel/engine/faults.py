"""When faults happen: one schedule of a run, in order, that both engines go by.

A schedule does not depend on what the jobs do. Its draws come from one named stream a fault, in blocks over all of its
devices, so that looking further ahead changes nothing of what was there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from windtunnel.core.faults import BrownOut, Failure, Fault, LinkLoss, Straggler, Throttle
from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray

FAIL, REPAIR, SPEED, LINK_DOWN, LINK_UP, CAP = range(6)
RETRY, MIGRATE, LOSE = range(3)
"""What becomes of the jobs of a device that fails."""
_JOBS = {"retry": RETRY, "migrate": MIGRATE, "lose": LOSE}
EVENT = np.dtype(
    [("tick", "i8"), ("on", "i8"), ("code", "i8"), ("jobs", "i8"), ("attempts", "i8"), ("value", "f8")], align=True
)
"""One fault: when, on which device (-1: all of them), what; for FAIL what becomes of jobs and how often one may be
started; for SPEED and CAP the new speed or budget (W)."""
_CYCLES = 8
_NEVER = MAX_TICKS
"""The end of what lasts for good."""
_LAST_S = 9.2e6
"""Seconds beyond which no draw matters: a run is refused before."""


@dataclass
class FaultSchedule:
    """The faults of a scenario.

    ``stated``: as the scenario has them; ``devices``: for each, the numbers of the devices it strikes; ``budget_w``:
    what the fleet may draw when nothing is wrong (infinite without a limit).
    """

    stated: Sequence[Fault]
    devices: Sequence[np.ndarray]
    budget_w: float
    seed: int
    _spells: dict[int, tuple[int, list[np.ndarray], np.ndarray]] = field(default_factory=dict)

    def until(self, tick: int) -> np.ndarray:
        """All events before ``tick`` (at least), by tick and device; those of one device in the order they happen.

        The events of a longer look ahead begin with those of a shorter one.
        """
        parts = [self._events(tick, kind) for kind in (Failure, LinkLoss, Throttle, BrownOut)]
        events = np.concatenate(parts)
        events = events[events["tick"] < tick]
        return events[np.lexsort((np.arange(len(events)), events["on"], events["tick"]))]

    def _events(self, tick: int, kind: type) -> np.ndarray:
        """What the faults of one kind come to: where two of them strike a device together, they are one."""
        marks: list[np.ndarray] = []
        for number, fault in enumerate(self.stated):
            if isinstance(fault, kind):
                marks += self._marks(number, fault, tick)
        if not marks:
            return np.zeros(0, dtype=EVENT)
        table = np.concatenate(marks)
        # Of one device at one tick, what begins goes before what ends, so that spells that touch are one.
        table = table[np.lexsort((~table["begins"], table["tick"], table["on"]))]
        events = list(_FOLDS[kind](table, self))
        return np.array(events, dtype=EVENT) if events else np.zeros(0, dtype=EVENT)

    def _marks(self, number: int, fault: Fault, tick: int) -> list[np.ndarray]:
        """Beginnings and ends of a fault's spells."""
        on = self.devices[number]
        at = getattr(fault, "at", None)
        if at is not None:
            begins = np.rint(np.asarray(at) * TICKS_PER_SECOND).astype(np.int64)
            lasts = getattr(fault, "lasts", None)
            ends = np.full(len(begins), _NEVER) if lasts is None else begins + round(lasts * TICKS_PER_SECOND)
            return [_rows(np.repeat(on, len(begins)), np.tile(begins, len(on)), np.tile(ends, len(on)), number)]
        names = ("mtbf", "mttr") if isinstance(fault, Failure) else ("every", "lasts")
        between, length_s = (getattr(fault, name) for name in names)
        begins, ends = self._drawn(number, float(between), float(length_s), tick)
        return [_rows(np.repeat(on, begins.shape[1]), begins.ravel(), ends.ravel(), number)]

    def _drawn(self, number: int, between_s: float, length_s: float, tick: int) -> tuple[np.ndarray, np.ndarray]:
        """Beginnings and ends of spells by device, until every device has one that begins after ``tick``."""
        on = self.devices[number]
        rng = stream(self.seed, "faults", str(number))
        clock = np.zeros(len(on))
        begins: list[np.ndarray] = []
        ends: list[np.ndarray] = []
        horizon = tick / TICKS_PER_SECOND
        while True:
            gaps = rng.exponential(1.0, (_CYCLES, len(on), 2)) * (between_s, length_s)
            times = clock + np.cumsum(gaps.transpose(0, 2, 1).reshape(2 * _CYCLES, len(on)), axis=0)
            clock = times[-1]
            begins.append(times[0::2].T)
            ends.append(times[1::2].T)
            if not len(on) or clock.min() > horizon:
                break
        joined = (np.minimum(np.concatenate(parts, axis=1), _LAST_S) for parts in (begins, ends))
        first, second = (np.rint(part * TICKS_PER_SECOND).astype(np.int64) for part in joined)
        return first, second


def look_ahead(arrival: TickArray, end: int | None) -> int:
    """A tick to ask a schedule for at first: most runs end before it."""
    last = int(arrival[-1]) if len(arrival) else 0
    return (last + last // 4 if end is None else end) + TICKS_PER_SECOND


def _rows(on: np.ndarray, begins: np.ndarray, ends: np.ndarray, number: int) -> np.ndarray:
    table = np.zeros(2 * len(on), dtype=[("tick", "i8"), ("on", "i8"), ("begins", "?"), ("number", "i8")])
    table["on"], table["number"] = np.tile(on, 2), number
    table["tick"] = np.concatenate([begins, ends])
    table["begins"][: len(on)] = True
    return table


def _open_spells(table: np.ndarray) -> Iterator[tuple[int, int, dict[int, int], int]]:
    """(tick, device, faults that strike it now, the one that changed) after every change."""
    on: int | None = None
    active: dict[int, int] = {}
    for tick, device, begins, number in table.tolist():
        if device != on:
            on, active = device, {}
        active[number] = active.get(number, 0) + (1 if begins else -1)
        if not active[number]:
            del active[number]
        yield tick, device, active, number


def _failures(table: np.ndarray, schedule: FaultSchedule) -> Iterator[tuple[int, int, int, int, int, float]]:
    down: set[int] = set()
    for tick, device, active, number in _open_spells(table):
        if active and device not in down:
            fault = schedule.stated[number]
            assert isinstance(fault, Failure)  # noqa: S101
            down.add(device)
            yield tick, device, FAIL, _JOBS[fault.jobs], fault.attempts, 0.0
        elif not active:
            down.discard(device)
            yield tick, device, REPAIR, 0, 0, 0.0


def _links(table: np.ndarray, _schedule: FaultSchedule) -> Iterator[tuple[int, int, int, int, int, float]]:
    down: set[int] = set()
    for tick, device, active, _ in _open_spells(table):
        if active and device not in down:
            down.add(device)
            yield tick, device, LINK_DOWN, 0, 0, 0.0
        elif not active:
            down.discard(device)
            yield tick, device, LINK_UP, 0, 0, 0.0


def _speeds(table: np.ndarray, schedule: FaultSchedule) -> Iterator[tuple[int, int, int, int, int, float]]:
    speed: dict[int, float] = {}
    for tick, device, active, _ in _open_spells(table):
        now = min((f.speed for f in (schedule.stated[n] for n in active) if isinstance(f, Throttle)), default=1.0)
        if now != speed.get(device, 1.0):
            speed[device] = now
            yield tick, device, SPEED, 0, 0, now


def _caps(table: np.ndarray, schedule: FaultSchedule) -> Iterator[tuple[int, int, int, int, int, float]]:
    cap = schedule.budget_w
    for tick, device, active, _ in _open_spells(table):
        stated = [f.budget for f in (schedule.stated[n] for n in active) if isinstance(f, BrownOut)]
        now = min([schedule.budget_w, *stated])
        if now != cap:
            cap = now
            yield tick, device, CAP, 0, 0, now


_Event = tuple[int, int, int, int, int, float]
_FOLDS: dict[type, Callable[[np.ndarray, FaultSchedule], Iterator[_Event]]] = {
    Failure: _failures,
    LinkLoss: _links,
    Throttle: _speeds,
    BrownOut: _caps,
}


def stretches(
    stated: Sequence[Fault], seed: int, names: Sequence[str], workload_of: np.ndarray, rank: np.ndarray
) -> FloatArray | None:
    """How much longer each job takes than it should, by its number; None where no straggler is stated.

    Whether a job straggles is drawn by its place in its workload.
    """
    if not any(isinstance(fault, Straggler) for fault in stated):
        return None
    stretch = np.ones(len(workload_of))
    for number, fault in enumerate(stated):
        if not isinstance(fault, Straggler):
            continue
        for work, name in enumerate(names):
            mine = np.flatnonzero(workload_of == work)
            if not len(mine) or (fault.workloads is not None and name not in fault.workloads):
                continue
            slow = stream(seed, "faults", str(number), name).random(int(rank[mine].max()) + 1) < fault.probability
            stretch[mine] = np.where(slow[rank[mine]], stretch[mine] * fault.slowdown, stretch[mine])
    return stretch


def down_ticks(events: np.ndarray, end: int, devices: int) -> np.ndarray:
    """For each device, how long it had failed by ``end``."""
    down = np.zeros(devices, dtype=np.int64)
    since = np.full(devices, -1, dtype=np.int64)
    for event in events[(events["code"] == FAIL) | (events["code"] == REPAIR)]:
        tick, on = min(int(event["tick"]), end), int(event["on"])
        if event["code"] == FAIL:
            since[on] = tick
        elif since[on] >= 0:
            down[on] += tick - since[on]
            since[on] = -1
    left = since >= 0
    down[left] += end - since[left]
    return down
