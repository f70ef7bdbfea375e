"""When jobs arrive, in ticks, and what a trace says of each.

Draws are made in blocks from one named stream a workload; the i-th belongs to the i-th job however many
are asked for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table, read_csv
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.rng import stream
from windtunnel.core.scenario import Burst, Deterministic, GammaRenewal, Poisson, Stop, Trace, Workload
from windtunnel.core.ticks import MAX_SECONDS, MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray, to_tick_array

_BLOCK = 65_536
_MAX_JOBS = 200_000_000


@dataclass(frozen=True)
class TraceRows:
    """A CSV trace: its table in order of time, and each row's arrival (ticks)."""

    table: Table
    ticks: TickArray
    _numbers: dict[str, FloatArray] = field(default_factory=dict)

    def first(self, count: int) -> TraceRows:
        """The trace's first ``count`` rows."""
        if count >= len(self.ticks):
            return self
        table = Table(self.table.file, self.table.header, self.table.rows[:count], self.table.lines[:count])
        return TraceRows(table, self.ticks[:count])

    def words(self, column: str, where: Where) -> list[str]:
        """A column's text; InputError at ``where`` (in the scenario) for a column that is not there."""
        if column not in self.table.header:
            raise InputError(
                f"the trace {self.table.file} has no column '{column}'",
                where=where,
                expected=one_of(self.table.header),
                nearest=nearest(column, self.table.header),
            )
        return self.table.column(column)

    def numbers(self, column: str, where: Where) -> FloatArray:
        """A column's whole numbers, at least 1; InputError with the trace's line for anything else."""
        if column not in self._numbers:
            texts = self.words(column, where)
            values = np.empty(len(texts))
            for i, text in enumerate(texts):
                try:
                    values[i] = float(text)
                except ValueError:
                    values[i] = math.nan
                if not (1 <= values[i] <= 2**53 and values[i] == int(values[i])):
                    raise InputError(
                        f"'{text[:40]}' is not a count",
                        where=self.place(i, column),
                        expected="a whole number, at least 1",
                    )
            self._numbers[column] = values
        return self._numbers[column]

    def place(self, row: int, column: str | None = None) -> Where:
        """The line of a row, for an error."""
        return Where(self.table.file, self.table.lines[row], field=column)


@dataclass(frozen=True)
class Stream:
    """One workload's arrivals: ticks in order, and the trace they came from, if any."""

    ticks: TickArray
    trace: TraceRows | None = None


def arrivals(workload: Workload, seed: int, stop: Stop | None, folder: Path, where: Callable[..., Where]) -> Stream:
    """The arrivals of ``workload`` until ``stop`` (at most ``stop.jobs`` of them, or before ``stop.time``).

    ``where`` gives a place under the workload's ``arrivals``. Raises InputError for an endless source without a
    stop, and for a trace that is missing, empty or broken.
    """
    process = workload.arrivals
    limit = stop.jobs if stop is not None else None
    horizon = stop.time if stop is not None else None
    if isinstance(process, Trace):
        rows = read_trace(folder / process.file, process.time, where("file"), where("time"))
        if process.speed != 1.0:
            rows = TraceRows(rows.table, np.rint(rows.ticks / process.speed).astype(np.int64))
        keep = len(rows.ticks)
        if limit is not None:
            keep = min(keep, limit)
        if horizon is not None:
            keep = min(keep, int(np.searchsorted(rows.ticks, round(horizon * TICKS_PER_SECOND), side="left")))
        rows = rows.first(keep)
        return Stream(rows.ticks, rows)
    if stop is None:
        raise InputError(
            f"the {process.process} arrivals of '{workload.name}' never end",
            where=where(),
            expected="a stop, such as `stop: {jobs: 10000}` or `stop: {time: 10 s}`",
        )
    return Stream(_drawn(process, seed, workload.name, limit, horizon, where()))


def _drawn(
    process: Poisson | Deterministic | GammaRenewal | Burst,
    seed: int,
    name: str,
    limit: int | None,
    horizon: float | None,
    where: Where,
) -> TickArray:
    rng = stream(seed, name, "arrivals")
    end = MAX_TICKS if horizon is None else round(horizon * TICKS_PER_SECOND)
    blocks: list[TickArray] = []
    total = 0
    for times in _times(process, rng):
        if limit is not None:
            times = times[: limit - total]  # noqa: PLW2901  what comes after the limit is nobody's business
        whole = times < MAX_SECONDS
        ticks = to_tick_array(times[whole])
        ticks = ticks[ticks < end]
        over = len(ticks) < len(times)
        if over and limit is not None:
            raise InputError(
                f"{limit:,} jobs of '{name}' take longer than the 106 days a run may last",
                where=where,
                expected="a higher rate or fewer jobs",
            )
        blocks.append(ticks)
        total += len(blocks[-1])
        if total > _MAX_JOBS:
            raise InputError(
                f"'{name}' would have more than {_MAX_JOBS:,} jobs",
                where=where,
                expected="a lower rate or an earlier stop",
            )
        if over or total == limit:
            break
    return np.concatenate(blocks)


def _times(process: Poisson | Deterministic | GammaRenewal | Burst, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Blocks of arrival times (s), increasing without end."""
    last = 0.0
    for block in count():
        if isinstance(process, Deterministic):
            # Worked out anew for each, so that the thousandth is at exactly a thousand times the distance.
            yield np.arange(block * _BLOCK + 1, (block + 1) * _BLOCK + 1) / process.rate
            continue
        if isinstance(process, Poisson):
            gaps = rng.exponential(1.0 / process.rate, _BLOCK)
        elif isinstance(process, GammaRenewal):
            shape = process.cv**-2
            gaps = rng.gamma(shape, 1.0 / (shape * process.rate), _BLOCK)
        else:
            gaps = rng.exponential(1.0, _BLOCK)
        times = last + np.cumsum(gaps)
        last = float(times[-1])
        yield _through_bursts(times, process) if isinstance(process, Burst) else times


def _through_bursts(counts: FloatArray, burst: Burst) -> FloatArray:
    """Times at which the expected number of arrivals reaches each of ``counts``: the time change of a Poisson process.

    A Poisson process of varying rate is one of rate 1 read at the integral of the rate (Çinlar, Introduction to
    Stochastic Processes, 1975, section 4.7).
    """
    in_burst = burst.burst_rate * burst.length
    a_period = in_burst + burst.rate * (burst.every - burst.length)
    periods = np.floor(counts / a_period)
    rest = counts - periods * a_period
    offset = np.where(rest <= in_burst, rest / burst.burst_rate, burst.length + (rest - in_burst) / burst.rate)
    times: FloatArray = periods * burst.every + offset
    return times


def read_trace(path: Path, time_column: str, where_file: Where, where_time: Where) -> TraceRows:
    """A CSV trace (plain, or gzip by its name), sorted by time; the first row's time is tick 0.

    Raises InputError with the trace's own file, line and column for a broken row.
    """
    table = read_csv(path, "trace", where_file)
    if not table.rows:
        raise InputError(
            f"the trace '{path}' holds no rows", where=where_file, expected="a header and at least one row"
        )
    if time_column not in table.header:
        raise InputError(
            f"the trace '{path}' has no column '{time_column}'",
            where=where_time,
            expected=one_of(table.header),
            nearest=nearest(time_column, table.header),
        )
    ticks = _parse_times(table.column(time_column), table.lines, table.file, time_column)
    order = np.argsort(ticks, kind="stable")
    if (order[:-1] > order[1:]).any():
        places = order.tolist()
        ticks = ticks[order]
        rows, lines = [table.rows[i] for i in places], [table.lines[i] for i in places]
        table = Table(table.file, table.header, rows, lines)
    return TraceRows(table, ticks)


_ISO = re.compile(r"(?P<whole>[^.]+?)(?:\.(?P<fraction>\d+))?(?P<zone>Z|z|[+-]\d\d:?\d\d)?")


def _parse_times(texts: Sequence[str], lines: Sequence[int], file: str, column: str) -> TickArray:
    """Seconds or ISO 8601 times as ticks since the earliest of them, every digit kept down to a picosecond."""
    ticks: list[int] = []
    for text, line in zip(texts, lines, strict=True):
        try:
            ticks.append(_iso_ticks(text) if ":" in text else _second_ticks(text))
        except (ValueError, OverflowError, TypeError, ArithmeticError):
            raise InputError(
                f"'{text[:40]}' is not a time",
                where=Where(file, line, field=column),
                expected="seconds, or a time such as 2023-11-16 18:17:03.97",
            ) from None
    first = min(ticks)
    for tick, line in zip(ticks, lines, strict=True):
        if tick - first > MAX_TICKS:
            raise InputError(
                "this is more than 106 days after the first time",
                where=Where(file, line, field=column),
                expected="a shorter trace",
            )
    return np.array([tick - first for tick in ticks], dtype=np.int64)


def _second_ticks(text: str) -> int:
    """Seconds, as a decimal number, to the nearest tick."""
    seconds = Decimal(text)
    if not seconds.is_finite() or seconds.adjusted() > 18:
        raise ValueError(text)
    return int(seconds.scaleb(12).to_integral_value())


def _iso_ticks(text: str) -> int:
    """An ISO 8601 time as ticks since 1970. datetime stops at microseconds, so the fraction is read apart."""
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    zone = match["zone"] or "+00:00"
    moment = datetime.fromisoformat(match["whole"] + ("+00:00" if zone in "Zz" else zone))
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    fraction = int((match["fraction"] or "0").ljust(12, "0")[:12])
    return (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + fraction


def merged(streams: Mapping[int, TickArray], limit: int | None) -> tuple[TickArray, np.ndarray, np.ndarray]:
    """All streams in one order: (arrival tick, workload, rank within its workload); at most ``limit`` jobs.

    Ties go to the workload that is listed first.
    """
    if len(streams) == 1:
        ((number, only),) = streams.items()
        return only, np.full(len(only), number, dtype=np.int64), np.arange(len(only), dtype=np.int64)
    ticks = np.concatenate(list(streams.values()))
    workload = np.concatenate([np.full(len(s), w, dtype=np.int64) for w, s in streams.items()])
    rank = np.concatenate([np.arange(len(s), dtype=np.int64) for s in streams.values()])
    order = np.lexsort((workload, ticks))[:limit]
    return ticks[order], workload[order], rank[order]
