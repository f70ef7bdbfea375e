"""Measuring operations on a device: with warm-up, in shuffled rounds, repeated until the interval is narrow.

Each round visits all points in a new order, so that drift (clocks, temperature, other processes) affects all points
alike. For each visit the operation is prepared, a GPU is put to work, and the operation is warmed up and sampled; the
median of the samples is one repeat. The repeats of different rounds show the error of one measurement, because each
visit has its own operands and graphs. The samples of one visit do not, because they are correlated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np
from scipy import stats

from windtunnel.core.columns import Columns
from windtunnel.core.errors import (
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    UnsupportedOperationError,
)
from windtunnel.core.ops import Operation
from windtunnel.core.results.validation import Conditions, ConditionsSeen
from windtunnel.core.student import student
from windtunnel.runtime.trial import Conditioned, Operations, Trial
from windtunnel.validation.budget import Budget
from windtunnel.validation.load import POWER_S, SLOW_CLOCK, Load, power_w
from windtunnel.validation.rows import Measurement

TIGHT = 0.015
"""A point is complete if the relative half-width of its interval is at most this."""
LEAST_ROUNDS, MOST_ROUNDS = 3, 12
"""The least and the most rounds of a point."""
LEAST_VISITS = 6
"""After this number of visits the duration of further ones is known well enough to leave out points."""
SAMPLE_S = 1e-3
"""The least duration of a sample (s): it has as many runs, so that the resolution of the clock is negligible."""
VISIT_S = 0.06
"""The approximate duration of the samples of one visit (s), less if the budget is small. Rounds differ by more than the
samples of one visit, so many short visits give more information than few long ones."""
LEAST_SAMPLES, MOST_SAMPLES = 3, 51
LEAST_RUNS = LEAST_ROUNDS * (LEAST_SAMPLES + 2)
"""The least number of runs of a point: warm-ups and samples of each round."""
POWER_SHARE = 0.2
"""The share of the budget that measurements of power may take; each is made when a point has `LEAST_ROUNDS` repeats."""
FIRST_S, TIMES, AGAIN = 20.0, 20.0, 10.0
"""The usual duration of a call in the first visit is ``FIRST_S`` (s), for compilers and operands, plus ``TIMES``
predicted runs. In a later visit it is ``AGAIN`` times the longest visit so far."""
MOST_HUNG = 2
"""After this number of hangs of similar points the others like them are not tried."""
UNSTEADY = 0.5
"""A row is suspect if the relative half-width of its interval exceeds this; the noise floor accounts for less."""


@dataclass(frozen=True)
class Point:
    """An operation with all of its columns, parsed."""

    op: str
    columns: Columns
    share: float = 1 / 20
    """The share of the budget that this point may take."""

    def __str__(self) -> str:
        given = " ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                         for name, value in self.columns.items())  # fmt: skip
        return f"{self.op} {given}"


@dataclass
class _Record:
    """The measurements of a point so far."""

    repeats: list[float] = field(default_factory=list)
    samples: int = 0
    timer: str = ""
    note: str = ""
    share: float | None = None
    power_w: float | None = None
    spread: tuple[float, float] | None = None
    """The 95% interval of the median of the first visit's samples."""
    longest_s: float = 0.0
    """The duration of the longest visit, with preparation."""
    states: list[Conditions] = field(default_factory=list)
    """The state of the device at the end of each visit's samples, if it reports one."""

    @property
    def half(self) -> float:
        """The relative half-width of the 95% interval of the repeats' median; infinite for fewer than two.

        This is Student's interval of the mean of their logarithms times sqrt(pi / 2), the ratio of the standard errors
        of median and mean of normal numbers (less for few numbers). One bad round does not move the median.
        """
        count = len(self.repeats)
        if count < 2:
            return math.inf
        deviation = float(np.std(np.log(self.repeats), ddof=1))
        return math.sqrt(math.pi / 2) * student(count - 1) * deviation / math.sqrt(count)


@dataclass(frozen=True)
class Measured:
    """The result of a session.

    Attributes:
        rows: The measurements.
        refused: The points that the device does not support or that failed, with the reason.
        over_budget: The points for which the budget was too small.
        rounds: The number of rounds.
        spent_s: The time spent, on the budget's clock.
        conditions: Clocks, temperature and power at the beginning, after each visit and at the end. None if the device
            does not report any.
        hung: Those reasons of ``refused`` that are calls without an answer.
    """

    rows: Sequence[Measurement]
    refused: Sequence[tuple[Point, str]]
    over_budget: Sequence[Point]
    rounds: int
    spent_s: float
    conditions: ConditionsSeen | None = None
    hung: Sequence[str] = ()


@dataclass
class _Campaign:
    """The points of a session with their predicted durations, and the errors of these predictions so far.

    ``errors`` has the measured over the predicted duration of the last point of each operation, and of each operation
    and choices. ``too_long`` are the points that would take more than their share of the budget.
    """

    points: Sequence[Point]
    expected_s: Sequence[float]
    records: Mapping[int, _Record]
    errors: dict[tuple[str, ...], float] = field(default_factory=dict)
    too_long: set[int] = field(default_factory=set)

    def likely_s(self, number: int) -> float:
        """Return the likely duration of a point (s): the prediction times the error of the last similar point."""
        point = self.points[number]
        return self.expected_s[number] * max(self.errors.get(_family(point), self.errors.get((point.op,), 1.0)), 1.0)

    def learn(self, number: int) -> None:
        """Record the error of the prediction of a measured point."""
        point, repeats = self.points[number], self.records[number].repeats
        if repeats:
            self.errors[_family(point)] = self.errors[point.op,] = repeats[-1] / max(self.expected_s[number], 1e-12)


class Session:
    """The measurement of one device.

    Args:
        open: Returns the device's operations. It is called again if a driver hung or died.
        budget: The time limit.
        seed: The seed of the order of points.
        progress: Receives a line of text for each visit.
        wait: Sets the time (s) after which a call of the given operations raises DeviceHang.
    """

    def __init__(
        self,
        open: Callable[[], Operations],  # noqa: A002
        *,
        budget: Budget,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
        wait: Callable[[Operations, float], None] = lambda _, __: None,
    ) -> None:
        self.open, self.budget, self.clock, self.wait = open, budget, budget.clock, wait
        self.progress = progress or (lambda _: None)
        self.rng = np.random.default_rng(seed)
        self.operations = open()
        self.began = self.clock()
        self.refused: list[tuple[Point, str]] = []
        self.seen: list[Conditions] = []
        """Clocks and temperature at the beginning, after each visit's samples, and at the end."""
        self.fastest_hz = 0.0
        """The highest SM clock that was seen or that the device has if nothing limits it."""
        self.load = Load(self.operations, self.clock)
        self._power_left_s = 0.0
        """The time that measurements of power may still take; 0 for a device without an energy counter."""
        self.lost = ""
        """The reason if the device was lost and did not open again. The measurements so far are kept."""
        self._hung: dict[tuple[str, ...], list[Point]] = {}
        """The points that hung, by operation, and by operation and choices."""
        self._hangs: list[str] = []
        self._waits_s = math.inf

    @property
    def left_s(self) -> float:
        """The rest of the budget, in seconds."""
        return self.budget.seconds - (self.clock() - self.began)

    def supported(self, points: Sequence[Point]) -> list[Point]:
        """Return the points that the device supports; the reasons for the others are recorded."""
        supported = []
        for point in points:
            try:
                self._wait(FIRST_S)
                why = self.lost or self.operations.refusal(point.op, point.columns) or None
            except (DeviceHang, DeviceLost) as error:
                self._lost(point, error)
                continue
            if why is None:
                supported.append(point)
            else:
                self.refused.append((point, why))
        return supported

    def run(self, points: Sequence[Point], expected_s: Sequence[float], *, device: str, source: str) -> Measured:
        """Measure points.

        The first round goes from the shortest predicted time to the longest and learns the error of the predictions: a
        point that would take more than its share of the budget is skipped and reported. Later rounds are shuffled, and
        have as many points as there is time to complete.

        Args:
            points: The points.
            expected_s: The predicted duration of each, in seconds.
            device: The model's name, for the rows (see ``Measurement``).
            source: The device's name, for the rows.
        """
        records = {number: _Record() for number in range(len(points))}
        campaign = _Campaign(points, expected_s, records)
        active = sorted(range(len(points)), key=lambda number: expected_s[number])
        self._look()
        with suppress(DeviceError, RuntimeError):
            self._power_left_s = 0.0 if self.operations.energy_j() is None else POWER_SHARE * self.budget.seconds
        visit_s = min(VISIT_S, self.budget.seconds / (max(len(active), 1) * (LEAST_ROUNDS + 1)))
        rounds = 0
        while active and rounds < MOST_ROUNDS and self.left_s > 0 and not self.lost:
            chosen = self._affordable(points, records, active) if rounds else active
            order = list(active) if rounds == 0 else self.rng.permutation(chosen).tolist()
            rounds += 1
            self._round(campaign, order, visit_s, rounds)
            active = self._unfinished(campaign, active)
        rows = [self._row(points[n], r, device, source, self.fastest_hz) for n, r in records.items() if r.repeats]
        refused = {id(point) for point, _ in self.refused}
        left = [points[n] for n, r in records.items() if not r.repeats and id(points[n]) not in refused]
        if self.lost:
            self.refused += [(skipped, self.lost) for skipped in left]
            left = []
        self._look()
        spent_s = self.clock() - self.began
        seen, hung = summary(self.seen), tuple(self._hangs)
        return Measured(rows, tuple(self.refused), left, rounds, spent_s, seen, hung)

    def _unfinished(self, campaign: _Campaign, active: Sequence[int]) -> list[int]:
        """Return the active points that are neither complete, nor refused, nor too long."""
        skipped = {id(point) for point, _ in self.refused}
        return [
            number
            for number in active
            if number not in campaign.too_long
            and id(campaign.points[number]) not in skipped
            and not self._settled(campaign.records[number])
        ]

    def _round(self, campaign: _Campaign, order: list[int], visit_s: float, number_of_round: int) -> None:
        """Visit the points of ``order``, which grows by those that are postponed."""
        postponed: set[int] = set()
        began, visits, left_out = self.clock(), 0, set[int]()
        for place, number in enumerate(order):
            if self.left_s <= 0 or self.lost:
                break
            if number in left_out:
                continue
            if number_of_round == 1 and visits >= LEAST_VISITS:
                ahead = [later for later in order[place:] if later not in left_out]
                mean_s = (self.clock() - began) / visits
                for later in self._unaffordable(campaign.points, ahead, visits, mean_s):
                    left_out.add(later)
                    campaign.records[later].longest_s = mean_s  # for later rounds, if they have time for it
                if number in left_out:
                    continue
            point, record = campaign.points[number], campaign.records[number]
            likely_s = campaign.likely_s(number)
            if not record.repeats and likely_s * LEAST_RUNS > self.budget.seconds * point.share:
                campaign.too_long.add(number)
                continue
            if not record.repeats and (similar := self._hung_like(point)):
                if len(similar) >= MOST_HUNG:
                    self.refused.append((point, f"not tried: {similar[0]} hung, and {similar[1]}"))
                    continue
                if number not in postponed:  # until the others are measured, because it may hang too
                    postponed.add(number)
                    order.append(number)
                    continue
            self.progress(f"round {number_of_round}: {point}")
            self._wait(AGAIN * record.longest_s if record.repeats else FIRST_S + TIMES * likely_s)
            self._visit(point, record, visit_s)
            visits += 1
            campaign.learn(number)

    def close(self) -> None:
        """Close the device."""
        self.operations.close()

    def _look(self) -> Conditions | None:
        """Record and return the current clocks and temperature; None if there are none. A failed reading is ignored."""
        conditions = None
        if isinstance(self.operations, Conditioned) and not self.lost:
            with suppress(DeviceError, RuntimeError):
                self.wait(self.operations, self.budget.least_patience_s)
                conditions = self.operations.conditions()
                if conditions != Conditions():
                    self.seen.append(conditions)
                    clocks = (conditions.sm_clock_hz, conditions.application_clock_hz)
                    self.fastest_hz = max(self.fastest_hz, *(clock_hz or 0.0 for clock_hz in clocks))
            self.wait(self.operations, self._waits_s)
        return conditions

    def _affordable(
        self, points: Sequence[Point], records: Mapping[int, _Record], active: Sequence[int]
    ) -> Sequence[int]:
        """Return the active points that the rest of the budget can complete, or all of them if it can complete none.

        Few well-measured points, spread over operations and sizes, give more information than many points with one
        measurement. Points with too few rounds for an interval come first, then those that the first round left out.
        """
        order = {number: place for place, number in enumerate(spread_order(sorted(active), points))}
        lacking = {number: max(LEAST_ROUNDS - len(records[number].repeats), 0) for number in active}
        left_s = self.left_s - self._power_left_s
        chosen = []
        stage = {n: 1 if not records[n].repeats else 0 if lacking[n] else 2 for n in active}
        for number in sorted(active, key=lambda n: (stage[n], -points[n].share, order[n])):
            needed_s = max(lacking[number], 1) * records[number].longest_s
            if needed_s <= left_s:
                chosen.append(number)
                left_s -= needed_s
        return chosen or active

    def _unaffordable(self, points: Sequence[Point], ahead: Sequence[int], visits: int, visit_s: float) -> set[int]:
        """Return which of the points ``ahead`` in the first round to leave out, so that the others get their rounds.

        ``visits`` is the number of visits so far, and ``visit_s`` their mean duration. The rest is spread over
        operations and sizes, and has at least one point of each operation.
        """
        affordable = (self.left_s - self._power_left_s) / visit_s - (LEAST_ROUNDS - 1) * visits
        count = max(int(affordable / LEAST_ROUNDS), len({points[number].op for number in ahead}))
        order = sorted(spread_order(sorted(ahead), points), key=lambda number: -points[number].share)
        return set(order[count:])

    @staticmethod
    def _settled(record: _Record) -> bool:
        return len(record.repeats) >= LEAST_ROUNDS and record.half <= TIGHT

    def _visit(self, point: Point, record: _Record, visit_s: float) -> None:
        try:
            self.load.prepare()
            began = self.clock()
            trial = self.operations.trial(point.op, point.columns)
            try:
                self._sample(trial, record, visit_s)
                record.longest_s = max(record.longest_s, self.clock() - began)
                if len(record.repeats) == LEAST_ROUNDS:
                    self._power(trial, record)
            finally:
                trial.close()
        except (UnsupportedOperationError, DeviceOutOfMemory) as error:
            self.refused.append((point, str(error)))
        except (DeviceHang, DeviceLost) as error:
            self._lost(point, error)
        except DeviceError as error:
            self.refused.append((point, str(error)))

    def _lost(self, point: Point, error: DeviceError) -> None:
        """Record that ``point`` lost the device, and open the device again for the other points."""
        why = f"{point}: {error}"
        self.refused.append((point, why))
        if isinstance(error, DeviceHang):
            self._hangs.append(why)
            for like in (_family(point), (point.op,)):
                self._hung.setdefault(like, []).append(point)
        self.operations.close()
        try:
            self.operations = self.open()
            self.load = Load(self.operations, self.clock, self.load.why_not)
        except (DeviceError, DeviceNotPresentError) as again:
            self.lost = f"the device did not open again: {again}"

    def _hung_like(self, point: Point) -> list[Point]:
        """Return the points that hung: of the operation if they are enough to skip it, else of the same choices."""
        of_it = self._hung.get((point.op,), [])
        return of_it if len(of_it) > MOST_HUNG else self._hung.get(_family(point), [])

    def _wait(self, usual_s: float) -> None:
        """Set the patience for calls that take at most ``usual_s`` (s) if nothing hangs."""
        self._waits_s = self.budget.patience_s(usual_s, self.left_s)
        self.wait(self.operations, self._waits_s)

    def _sample(self, trial: Trial, record: _Record, visit_s: float) -> None:
        trial.run(1)  # the first run compiles, allocates and loads
        self.load.work(self.fastest_hz)
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
        state = self._look()  # while the device is still warm
        if state is not None:
            record.states.append(state)
        if not record.repeats:
            record.timer, record.note, record.share = trial.timer, trial.note, trial.check()
            if self.load.why_not:
                record.note += f"; the device was not put to work before: {self.load.why_not}"
            record.spread = _interval_of_median(samples)
        record.samples += len(samples)
        record.repeats.append(float(np.median(samples)))

    def _power(self, trial: Trial, record: _Record) -> None:
        """Measure the average power if there is time."""
        if min(self._power_left_s, self.left_s) < POWER_S + 4 * record.repeats[-1]:
            return
        began = self.clock()
        record.power_w, why_not = power_w(trial, self.operations, self.clock)
        record.note += f"; {why_not}" if why_not else ""
        self._power_left_s -= self.clock() - began

    @staticmethod
    def _row(point: Point, record: _Record, device: str, source: str, fastest_hz: float = 0.0) -> Measurement:
        latency = float(np.median(record.repeats))
        low = high = None
        if len(record.repeats) >= LEAST_ROUNDS:
            low, high = latency * math.exp(-record.half), latency * math.exp(record.half)
        elif record.spread is not None and len(record.repeats) == 1:
            # From the samples of the only visit; two visits would not give an interval.
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
            suspect=_suspect(record, fastest_hz),
            error_over_tolerance=record.share if record.share is None or math.isfinite(record.share) else None,
        )


def summary(seen: Sequence[Conditions]) -> ConditionsSeen | None:
    """Return the first, the last and the extremes of all readings; None if there are none."""
    if not seen:
        return None
    reasons = [state.held_back for state in seen if state.held_back is not None]
    held_back = sorted({reason for stated in reasons for reason in stated}) if reasons else None
    highest = replace(_extreme(seen, max), held_back=held_back)
    return ConditionsSeen(seen[0], seen[-1], _extreme(seen, min), highest)


def _extreme(seen: Sequence[Conditions], choose: Callable[[Iterable[float]], float]) -> Conditions:
    """Return the lowest or the highest of each number."""

    def of(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return Conditions(
        power_w=of(state.power_w for state in seen),
        sm_clock_hz=of(state.sm_clock_hz for state in seen),
        memory_clock_hz=of(state.memory_clock_hz for state in seen),
        temperature_c=of(state.temperature_c for state in seen),
        power_limit_w=of(state.power_limit_w for state in seen),
    )


def _family(point: Point) -> tuple[str, ...]:
    """Return the key of points with the same model error: the operation and its choices."""
    return (point.op, *(value for value in point.columns.values() if isinstance(value, str)))


def _suspect(record: _Record, fastest_hz: float) -> str:
    """Return the reason why a row is suspect, or an empty string."""
    if record.share is not None and not math.isfinite(record.share):
        return "its results are not finite, or have the wrong shape"
    if record.share is not None and record.share > 1.0:
        return f"the error of its results is {record.share:.3g} times the tolerance"
    if (slow_hz := _slow_clock_hz(record, fastest_hz)) is not None:
        return f"the clock was {slow_hz / 1e6:.0f} MHz, and the device's is {fastest_hz / 1e6:.0f} MHz under load"
    if len(record.repeats) >= LEAST_ROUNDS and record.half > UNSTEADY:
        return f"unsteady: rounds differ, and the 95% interval of the median is ±{record.half:.0%}"
    return ""


def _slow_clock_hz(record: _Record, fastest_hz: float) -> float | None:
    """Return the lowest SM clock if it was low in half of the visits or more; None otherwise.

    A clock that the power cap lowers is the device's own under this operation, and not counted.
    """
    free = [state for state in record.states if "power cap" not in (state.held_back or ())]
    slow = [s.sm_clock_hz for s in free if s.sm_clock_hz is not None and s.sm_clock_hz < SLOW_CLOCK * fastest_hz]
    return min(slow) if slow and 2 * len(slow) >= len(record.repeats) else None


def _interval_of_median(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95% interval of a median from order statistics (binomial), or None for fewer than six samples."""
    count = len(samples)
    if count < 6:
        return None
    below = int(stats.binom.ppf(0.025, count, 0.5))
    ordered = sorted(samples)
    return ordered[max(below - 1, 0)], ordered[min(count - below, count - 1)]


def point(op: type[Operation], /, **given: object) -> Point:
    """Return a point of the operation ``op``, with the defaults of columns that are not given."""
    values = {column.name: column.parse(given.pop(column.name, column.default)) for column in op.all_columns()}
    if given:
        raise TypeError(f"{op.name} has no column {', '.join(given)}")
    return Point(op.name, values)


def spread_order(numbers: Sequence[int], wanted: Sequence[Point]) -> list[int]:
    """Return indices into ``wanted`` in an order of which every prefix is spread over operations and sizes."""
    families: dict[str, list[int]] = {}
    for number in numbers:
        families.setdefault(wanted[number].op, []).append(number)
    turns = zip_longest(*(_halving(mine) for mine in families.values()))
    return [number for turn in turns for number in turn if number is not None]


def _halving(numbers: Sequence[int]) -> list[int]:
    """Return the ends, then the middle, then the middles of the gaps, so that every prefix is spread."""
    order = [numbers[0]] + ([numbers[-1]] if len(numbers) > 1 else [])
    gaps = deque([(0, len(numbers) - 1)])
    while gaps:
        low, high = gaps.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            order.append(numbers[middle])
            gaps += [(low, middle), (middle, high)]
    return order
