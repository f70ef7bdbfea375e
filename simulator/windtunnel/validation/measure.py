"""Measuring operations on a device: warmed up, in shuffled rounds, repeated until the interval is tight.

Each round goes through all points in an order of its own, so that what drifts (clocks, heat, neighbours) falls on all
alike; a point's visit makes it ready anew, warms it up and takes samples, whose median is one repeat. Repeats of
different rounds tell how far one measurement may be off, which samples of one visit do not: they share its luck.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from scipy import stats

from windtunnel.core.errors import (
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    UnsupportedOperationError,
)
from windtunnel.runtime.trial import Conditioned, Conditions, Operations, Trial
from windtunnel.validation.budget import Budget
from windtunnel.validation.rows import Measurement

TIGHT = 0.015
"""A point is measured no more once its interval reaches no further than this to either side, relatively..."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
"""...after so many rounds at least; and after so many anyway."""
SAMPLE_S = 1e-3
"""What a sample lasts at least: as many runs as that takes, so that a clock's grain and a wait do not show."""
VISIT_S = 0.06
"""What a visit's samples last together, about, less where the budget is small. Rounds differ by more than the samples
of one visit do, so that many short visits tell more than few long ones."""
LEAST_SAMPLES, MOST_SAMPLES = 3, 51
LEAST_RUNS = LEAST_ROUNDS * (LEAST_SAMPLES + 2)
"""Of a point, however long it takes: warm-ups and samples of each round."""
POWER_S = 1.0
"""How long an operation runs for its power: counters of energy tick every tenth of a second."""
FIRST_S, TIMES, AGAIN = 20.0, 20.0, 10.0
"""Where the budget has it, a call of a point's first visit may take so long, for compilers and operands, and so many
times what a run is said to take; one of a later visit, so many times the longest visit before."""
MOST_HUNG = 2
"""After so many hangs of points that are alike, the others like them are not tried."""
UNSTEADY = 0.5
"""A median that is known no better than this, relatively, says nothing of a model; a smaller doubt is what the noise
floor is for."""


@dataclass(frozen=True)
class Point:
    """An operation with all of its columns, parsed."""

    op: str
    columns: Mapping[str, float | str]
    share: float = 1 / 20
    """Of the budget, that it may take alone."""

    def __str__(self) -> str:
        given = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in self.columns.items())  # fmt: skip
        return f"{self.op} {given}"


@dataclass
class _Record:
    """What is known of a point so far."""

    repeats: list[float] = field(default_factory=list)
    samples: int = 0
    timer: str = ""
    note: str = ""
    share: float | None = None
    power_w: float | None = None
    spread: tuple[float, float] | None = None
    """Of a lone visit's samples: the 95% interval of their median."""
    longest_s: float = 0.0
    """What the longest visit took, all of it."""

    @property
    def half(self) -> float:
        """Half the width of the 95% interval of the repeats' median, relatively; infinite for fewer than two.

        Student's for the mean of their logarithms, times sqrt(pi / 2), by which a median of normal numbers is less
        certain than their mean (of few numbers it is by less). The median is what one bad round does not move.
        """
        count = len(self.repeats)
        if count < 2:
            return math.inf
        deviation = float(np.std(np.log(self.repeats), ddof=1))
        return math.sqrt(math.pi / 2) * float(stats.t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)


@dataclass(frozen=True)
class Measured:
    """What came of it.

    ``refused``: what the device does not do, and why; ``left``: what the budget was too small for; ``hung``: which of
    the reasons are calls that were not answered.
    """

    rows: Sequence[Measurement]
    refused: Sequence[tuple[Point, str]]
    left: Sequence[Point]
    rounds: int
    spent_s: float
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    """Clocks and heat at the ``begin`` and at the ``end``, and the ``lowest`` and the ``highest`` of those and of after
    each visit's samples; ``held_back`` has whatever was seen. Empty where the device tells none."""
    hung: Sequence[str] = ()


class Session:
    """A device being measured. ``open`` gives its operations, again where a driver hung or died and was abandoned.

    ``wait``: told how long (s) no call of these operations may take from now on; one that does raises DeviceHang.
    """

    def __init__(
        self,
        open: Callable[[], Operations],  # noqa: A002
        *,
        budget: Budget,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
        wait: Callable[[Any, float], None] = lambda _, __: None,
    ) -> None:
        self.open, self.budget, self.clock, self.wait = open, budget, budget.clock, wait
        self.progress = progress or (lambda _: None)
        self.rng = np.random.default_rng(seed)
        self.operations = open()
        self.began = self.clock()
        self.refused: list[tuple[Point, str]] = []
        self.seen: list[Conditions] = []
        """Clocks and heat, at the begin, after each visit's samples, and at the end."""
        self.gone = ""
        """Why the device is not measured any more: it was lost, and did not come back. What was measured counts."""
        self._hung: dict[tuple[str, ...], list[Point]] = {}
        """What hung, by operation, and by operation and choices."""
        self._hangs: list[str] = []
        self._waits_s = math.inf

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return self.budget.seconds - (self.clock() - self.began)

    def able(self, points: Sequence[Point]) -> list[Point]:
        """Those that the device does; of the others its reasons are kept."""
        found = []
        for point in points:
            try:
                self._wait(FIRST_S)
                why = self.gone or self.operations.refusal(point.op, point.columns) or None
            except (DeviceHang, DeviceLost) as error:
                self._lost(point, error)
                continue
            if why is None:
                found.append(point)
            else:
                self.refused.append((point, why))
        return found

    def run(self, points: Sequence[Point], expected_s: Sequence[float], *, device: str, source: str) -> Measured:
        """Measure ``points``; ``device`` and ``source`` are said of each row (see ``Measurement``).

        ``expected_s``: what a model says each takes. The first round goes by it, the quickest first, and learns by how
        much it errs: a point that would take more than its share of the budget is left, and said to be. The rounds
        after it are shuffled, and of as many points as there is time to give enough rounds to.
        """
        records = {number: _Record() for number in range(len(points))}
        active = sorted(range(len(points)), key=lambda number: expected_s[number])
        errs: dict[tuple[str, ...], float] = {}
        long: set[int] = set()
        self._look()
        visit_s = min(VISIT_S, self.budget.seconds / (max(len(active), 1) * (LEAST_ROUNDS + 1)))
        rounds = 0
        while active and rounds < MOST_ROUNDS and self.left_s > 0 and not self.gone:
            chosen = self._affordable(points, records, active) if rounds else active
            order = list(active) if rounds == 0 else self.rng.permutation(chosen).tolist()
            put_off: set[int] = set()
            for number in order:
                if self.left_s <= 0 or self.gone:
                    break
                one, record = points[number], records[number]
                likely_s = _likely(one, expected_s[number], errs)
                if not record.repeats and likely_s * LEAST_RUNS > self.budget.seconds * one.share:
                    long.add(number)
                    continue
                if not record.repeats and (like := self._hung_like(one)):
                    if len(like) >= MOST_HUNG:
                        self.refused.append((one, f"not tried: {like[0]} hung, and {like[1]}"))
                        continue
                    if number not in put_off:  # until the others were measured, since it may cost as much again
                        put_off.add(number)
                        order.append(number)
                        continue
                self.progress(f"round {rounds + 1}: {one}")
                usual_s = AGAIN * record.longest_s if record.repeats else FIRST_S + TIMES * likely_s
                self._wait(usual_s)
                began = self.clock()
                self._visit(one, record, visit_s)
                record.longest_s = max(record.longest_s, self.clock() - began)
                if record.repeats:
                    errs[_family(one)] = errs[one.op,] = record.repeats[-1] / max(expected_s[number], 1e-12)
            rounds += 1
            gone = {id(point) for point, _ in self.refused}
            active = [
                n for n in active if n not in long and id(points[n]) not in gone and not self._settled(records[n])
            ]
        rows = [self._row(points[n], r, device, source) for n, r in records.items() if r.repeats]
        refused = {id(point) for point, _ in self.refused}
        left = [points[n] for n, r in records.items() if not r.repeats and id(points[n]) not in refused]
        if self.gone:
            self.refused += [(one, self.gone) for one in left]
            left = []
        self._look()
        spent_s = self.clock() - self.began
        seen, hung = summary(self.seen), tuple(self._hangs)
        return Measured(rows, tuple(self.refused), left, rounds, spent_s, seen, hung)

    def close(self) -> None:
        """Give the device back."""
        self.operations.close()

    def _look(self) -> None:
        """Clocks and heat as they are now. A look that fails tells nothing, and costs no measurement."""
        if isinstance(self.operations, Conditioned) and not self.gone:
            with suppress(DeviceError, RuntimeError):
                self.wait(self.operations, self.budget.least_patience_s)
                told = self.operations.conditions()
                if told:
                    self.seen.append(told)
            self.wait(self.operations, self._waits_s)

    def _affordable(
        self, points: Sequence[Point], records: Mapping[int, _Record], active: Sequence[int]
    ) -> Sequence[int]:
        """Of those that are still measured, what the rest of the budget has rounds for: a few points that are known
        well, spread over operations and sizes, tell more than many that were measured once. Who has too few rounds for
        an interval comes first. All, where there is room for none.
        """
        order = {number: place for place, number in enumerate(spread_order(sorted(active), points))}
        lacking = {number: max(LEAST_ROUNDS - len(records[number].repeats), 0) for number in active}
        left_s = self.left_s
        chosen = []
        for number in sorted(active, key=lambda n: (lacking[n] == 0, -points[n].share, order[n])):
            needed_s = max(lacking[number], 1) * records[number].longest_s
            if needed_s <= left_s:
                chosen.append(number)
                left_s -= needed_s
        return chosen or active

    @staticmethod
    def _settled(record: _Record) -> bool:
        return len(record.repeats) >= LEAST_ROUNDS and record.half <= TIGHT

    def _visit(self, point: Point, record: _Record, visit_s: float) -> None:
        try:
            trial = self.operations.trial(point.op, point.columns)
            try:
                self._sample(trial, record, visit_s)
            finally:
                trial.close()
        except (UnsupportedOperationError, DeviceOutOfMemory) as error:
            self.refused.append((point, str(error)))
        except (DeviceHang, DeviceLost) as error:
            self._lost(point, error)
        except DeviceError as error:
            self.refused.append((point, str(error)))

    def _lost(self, point: Point, error: DeviceError) -> None:
        """The device is not there any more, and this point is why: the others may still be measured."""
        why = f"{point}: {error}"
        self.refused.append((point, why))
        if isinstance(error, DeviceHang):
            self._hangs.append(why)
            for like in (_family(point), (point.op,)):
                self._hung.setdefault(like, []).append(point)
        self.operations.close()
        try:
            self.operations = self.open()
        except (DeviceError, DeviceNotPresentError) as again:
            self.gone = f"the device did not come back: {again}"

    def _hung_like(self, one: Point) -> list[Point]:
        """What hung and is like it: of the operation where that is enough to give it up, else of the same choices."""
        of_it = self._hung.get((one.op,), [])
        return of_it if len(of_it) > MOST_HUNG else self._hung.get(_family(one), [])

    def _wait(self, usual_s: float) -> None:
        """From now on, for a call that takes no longer than ``usual_s`` where nothing hangs."""
        self._waits_s = self.budget.patience_s(usual_s, self.left_s)
        self.wait(self.operations, self._waits_s)

    def _sample(self, trial: Trial, record: _Record, visit_s: float) -> None:
        trial.run(1)  # compiles, allocates and loads what is used for the first time
        once = max(trial.run(1), 1e-9)
        count = max(1, min(math.ceil(SAMPLE_S / once), 10_000))
        if once < visit_s:
            trial.run(count)
        samples: list[float] = []
        until = self.clock() + visit_s
        while len(samples) < LEAST_SAMPLES or (self.clock() < until and len(samples) < MOST_SAMPLES):
            samples.append(trial.run(count))
            if self.left_s <= 0:
                break
        self._look()  # while it is still warm
        if not record.repeats:
            record.timer, record.note, record.share = trial.timer, trial.note, trial.check()
            record.spread = _interval_of_median(samples)
            record.power_w = self._power(trial, float(np.median(samples)))
        record.samples += len(samples)
        record.repeats.append(float(np.median(samples)))

    def _power(self, trial: Trial, latency_s: float) -> float | None:
        """Average power over about a second of it; None without a counter, and where the budget has no second."""
        before = self.operations.energy_j()
        if before is None or self.left_s < 10 * POWER_S:
            return None
        began = self.clock()
        trial.run(max(1, math.ceil(POWER_S / latency_s)))
        spent, after = self.clock() - began, self.operations.energy_j()
        return None if after is None or spent <= 0 else (after - before) / spent

    @staticmethod
    def _row(point: Point, record: _Record, device: str, source: str) -> Measurement:
        latency = float(np.median(record.repeats))
        low = high = None
        if len(record.repeats) >= LEAST_ROUNDS:
            low, high = latency * math.exp(-record.half), latency * math.exp(record.half)
        elif record.spread is not None and len(record.repeats) == 1:
            # Of one visit alone; two say nothing of how far a third would be off.
            low, high = record.spread
        return Measurement(
            device=device,
            source=source,
            op=point.op,
            columns=dict(point.columns),
            latency_s=latency,
            low_s=low,
            high_s=high,
            samples=record.samples,
            repeats=tuple(record.repeats),
            power_w=record.power_w,
            timer=record.timer,
            note=record.note,
            suspect=_suspect(record),
            error_share=record.share if record.share is None or math.isfinite(record.share) else None,
        )


def summary(seen: Sequence[Conditions]) -> dict[str, Conditions]:
    """See ``Measured.conditions``."""
    if not seen:
        return {}
    lowest: dict[str, float | Sequence[str]] = {}
    highest: dict[str, float | Sequence[str]] = {}
    for one in seen:
        for name, value in one.items():
            low, high = lowest.get(name, value), highest.get(name, value)
            if isinstance(value, float) and isinstance(low, float) and isinstance(high, float):
                lowest[name], highest[name] = min(low, value), max(high, value)
            elif not isinstance(value, float) and not isinstance(high, float):
                highest[name] = sorted({*high, *value})
    return {"begin": seen[0], "end": seen[-1], "lowest": lowest, "highest": highest}


def _family(one: Point) -> tuple[str, ...]:
    """Points that a model errs about alike: of one operation, with the same choices."""
    return (one.op, *(value for value in one.columns.values() if isinstance(value, str)))


def _likely(one: Point, expected_s: float, errs: Mapping[tuple[str, ...], float]) -> float:
    """What a point will take, by the model and how far it was off for the last that is like it."""
    return expected_s * max(errs.get(_family(one), errs.get((one.op,), 1.0)), 1.0)


def _suspect(record: _Record) -> str:
    """Why a row is not to be trusted; empty where nothing speaks against it."""
    if record.share is not None and not math.isfinite(record.share):
        return "its numbers are not finite, or are not what they should be at all"
    if record.share is not None and record.share > 1.0:
        return f"its numbers are off by {record.share:.3g} times what is allowed"
    if len(record.repeats) >= LEAST_ROUNDS and record.half > UNSTEADY:
        return f"unsteady: rounds differ, and the median is known no better than ±{record.half:.0%}"
    return ""


def _interval_of_median(samples: Sequence[float]) -> tuple[float, float] | None:
    """The 95% interval of a median, from order statistics (binomial); None for fewer than six samples."""
    count = len(samples)
    if count < 6:
        return None
    below = int(stats.binom.ppf(0.025, count, 0.5))
    ordered = sorted(samples)
    return ordered[max(below - 1, 0)], ordered[min(count - below, count - 1)]


def point(op: Any, /, **given: object) -> Point:
    """A point with the operation's defaults for what is not given. ``op``: of ``core.ops.OPERATIONS``."""
    values = {column.name: column.parse(given.pop(column.name, column.default)) for column in op.all_columns()}
    if given:
        raise TypeError(f"{op.name} has no column {', '.join(given)}")
    return Point(op.name, values)


def spread_order(numbers: Sequence[int], wanted: Sequence[Point]) -> list[int]:
    """Places in ``wanted`` in an order any beginning of which is spread over operations and their sizes."""
    families: dict[str, list[int]] = {}
    for number in numbers:
        families.setdefault(wanted[number].op, []).append(number)
    turns = zip_longest(*(_halving(mine) for mine in families.values()))
    return [number for turn in turns for number in turn if number is not None]


def _halving(numbers: Sequence[int]) -> list[int]:
    """The ends first, then the middle, then the middles of what is between: any beginning of it is spread."""
    found = [numbers[0]] + ([numbers[-1]] if len(numbers) > 1 else [])
    gaps = deque([(0, len(numbers) - 1)])
    while gaps:
        low, high = gaps.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            found.append(numbers[middle])
            gaps += [(low, middle), (middle, high)]
    return found
