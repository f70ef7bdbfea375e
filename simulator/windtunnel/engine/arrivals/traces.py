"""Traces: reads the rows of a file as jobs, transforms and writes them."""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table, read_table, write_table
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.files import TABLE_BYTES, check_file, read_bytes
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, FloatArray, TickArray
from windtunnel.engine.arrivals.hash_ids import BlockRuns, block_runs, read_json_lines
from windtunnel.engine.arrivals.limits import MAX_JOBS, JobLimit
from windtunnel.engine.arrivals.processes import Draws
from windtunnel.engine.arrivals.redraw import redrawn, window
from windtunnel.scenario.arrivals import Knot, Trace
from windtunnel.scenario.lengths import Rows
from windtunnel.scenario.trace_formats import FORMATS

TIME_COLUMN = "time_s"
"""The name of the arrival-time column that ``export_trace`` writes."""


@dataclass(frozen=True)
class TraceRows:
    """The jobs of a trace in order of time: their arrivals (ticks) and rows of the table; shape (jobs,)."""

    table: Table
    ticks: TickArray
    rows: np.ndarray
    time_column: str
    blocks: BlockRuns | None = None
    """The blocks of the prompts by row of the table, if the trace has any."""
    unscaled: TickArray | None = None
    """The arrivals at the scale 1 of a trace at another one."""
    _parsed: dict[str, FloatArray] = field(default_factory=dict)
    """The numbers of columns by row of the table, NaN where a cell is no number; shared by all runs of a trace."""
    _numbers: dict[str, FloatArray] = field(default_factory=dict)

    @property
    def mean_rate_per_s(self) -> float:
        """The inverse of the mean distance between jobs; infinite if all arrive at the same time."""
        return _mean_rate_per_s(self.ticks)

    def chosen(self, jobs: np.ndarray) -> TraceRows:
        """Return the jobs with these indices."""
        return replace(self, ticks=self.ticks[jobs], rows=self.rows[jobs], _numbers={})

    def first(self, count: int) -> TraceRows:
        """Return the first ``count`` jobs."""
        if count >= len(self.ticks):
            return self
        ticks, unscaled = self.ticks[:count], self.unscaled
        if unscaled is not None:
            unscaled = unscaled[: np.searchsorted(unscaled, ticks[-1], side="right")] if count else ticks
        return replace(self, ticks=ticks, rows=self.rows[:count], unscaled=unscaled, _numbers={})

    @cached_property
    def window(self) -> int:
        """Half the window within which the arrivals are redrawn (ticks; see ``redraw``).

        At every scale it is that of the trace itself, if this has enough jobs: a scale does not change its waves, so
        that intervals at different loads can be compared.
        """
        of_trace = 0 if self.unscaled is None else window(self.unscaled)
        return of_trace or window(self.ticks)

    def redrawn(self, rng: np.random.Generator) -> TraceRows:
        """Return other jobs with the same changes of the rate (see ``redraw``)."""
        ticks, jobs = redrawn(self.ticks, rng, self.window)
        numbers = {column: values[jobs] for column, values in self._numbers.items()}
        return replace(self, ticks=ticks, rows=self.rows[jobs], _numbers=numbers)

    def words(self, column: str, where: Location) -> list[str]:
        """Return the text of a column for each job.

        Raises:
            InputError: at ``where`` in the scenario, if the trace has no such column.
        """
        texts = self._texts(column, where)
        return [texts[row] for row in self.rows.tolist()]

    def numbers(self, column: str, where: Location) -> FloatArray:
        """Return the values of a column for each job, which must be whole numbers of at least 1; shape (jobs,).

        Raises:
            InputError: with the line of the trace, for any other value.
        """
        if column not in self._numbers:
            if column not in self._parsed:
                self._parsed[column] = np.array([_number(text) for text in self._texts(column, where)])
            # Rows that no job uses may have any value.
            values = self._parsed[column][self.rows]
            is_count = (values >= 1) & (values <= 2**53) & (values == np.floor(values))
            if not is_count.all():
                row = int(self.rows[~is_count].min())
                raise InputError(
                    f"'{self._texts(column, where)[row][:40]}' is not a count",
                    where=Location(self.table.file, self.table.lines[row], field=column),
                    expected="a whole number, at least 1",
                )
            self._numbers[column] = values
        return self._numbers[column]

    def place(self, job: int, column: str | None = None) -> Location:
        """Return the location of a job's row in the file, for an error message."""
        return Location(self.table.file, self.table.lines[int(self.rows[job])], field=column)

    def _texts(self, column: str, where: Location) -> list[str]:
        if column not in self.table.header:
            raise InputError(
                f"the trace {self.table.file} has no column '{column}'",
                where=where,
                expected=list_choices(self.table.header),
                nearest=nearest(column, self.table.header),
            )
        return self.table.column(column)


def _number(text: str) -> float:
    """Return the number that a cell has; NaN if it has none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class TraceFile:
    """The contents of a trace file: its table in order of time, and the ticks of each row since the first one.

    The ticks are integers of any size, because a trace may be longer than the 106 days of a run, which can use a part
    of it or replay it faster.
    """

    table: Table
    ticks: list[int]
    time_column: str
    blocks: BlockRuns | None = None
    """The blocks of the prompts, if the format has any."""
    parsed: dict[str, FloatArray] = field(default_factory=dict)
    """The numbers of the columns that runs have asked for; see ``TraceRows``."""

    @property
    def mean_rate_per_s(self) -> float:
        """The inverse of the mean distance between rows; infinite if all have the same time."""
        return _mean_rate_per_s(self.ticks)


def _mean_rate_per_s(ticks: Sequence[int] | TickArray) -> float:
    span = int(ticks[-1]) - int(ticks[0]) if len(ticks) else 0
    return (len(ticks) - 1) * TICKS_PER_SECOND / span if span else math.inf


def read_trace(
    path: Path,
    form: str = "csv",
    time: str | None = None,
    columns: Mapping[str, str] | None = None,
    where: Callable[..., Location] = lambda *_: Location(),
) -> TraceFile:
    """Read a trace file (plain or gzip, by its name), sorted by time; the time of the first row is tick 0.

    Args:
        path: The file.
        form: csv, azure-llm, mooncake or openb-pods.
        time: The name of the arrival-time column, which csv requires.
        columns: New names of columns, each with the name in the file.
        where: Returns the location of a key of ``Trace`` for error messages.

    Raises:
        InputError: with file, line and column for a row that is not valid, or with the location of the key that does
            not fit the file.
    """
    if form != "csv" and form not in FORMATS:
        raise InputError(
            f"'{form}' is not a valid format of traces",
            where=where("format"),
            expected=list_choices(["csv", *FORMATS]),
            nearest=nearest(form, ["csv", *FORMATS]),
        )
    column = time if time is not None or form == "csv" else FORMATS[form].time
    if column is None:
        raise InputError(
            "a trace in CSV needs `time`", where=where("time"), expected="the name of the arrival-time column"
        )
    return _read(path, form, column, columns or {}, where)


def trace_jobs(
    process: Trace,
    folder: Path,
    draws: Draws,
    where: Callable[..., Location],
    limit: JobLimit | None = None,
    name: str = "the trace",
) -> TraceRows:
    """Return the jobs of ``process``, whose file is relative to ``folder``, with all its transformations.

    The number of jobs is the number of rows with from <= time < until, times ``repeat``, times ``scale``, rounded to
    the nearest integer (halves up). Each copy after the first moves a row by at most ``jitter`` in either direction,
    reflected at time 0 and at the last row. The random numbers of a copy are keyed by copy and row, so a trace at a
    larger scale has all jobs of the same trace at a smaller scale. ``limit`` counts the jobs as those of the workload
    ``name`` before they are copied.
    """
    trace = _read(folder / process.file, process.format, process.time_column, process.columns, where)
    table, total = trace.table, len(trace.ticks)
    begin, end = _ticks(process.from_), None if process.until is None else _ticks(process.until)
    first = bisect_left(trace.ticks, begin)
    last = total if end is None else bisect_left(trace.ticks, end)
    if first >= last:
        raise InputError(
            "the trace has no row in this window",
            where=where("from" if end is None else "until"),
            expected=f"a time between 0 s and {trace.ticks[-1] / TICKS_PER_SECOND:g} s",
        )

    copies = process.repeat * max(1.0, process.scale)
    if limit is not None and copies > 1:
        limit.draw((last - first) * copies, name, where("repeat" if process.repeat > 1 else "scale"))
    factor = Fraction(repr(process.speed))

    def in_run(tick: int) -> int:
        return _nearest(_mapped(tick - begin, process.time_map) * factor.denominator, factor.numerator)

    as_stated = not begin and not process.time_map and factor == 1
    kept = trace.ticks[first:last]
    ticks = _to_ticks(kept if as_stated else [in_run(t) for t in kept], table, process.time_column, first)
    rows, unscaled = np.arange(first, last), None
    distance = int(ticks[-1] - ticks[0]) // max(1, len(ticks) - 1)
    keys = rows
    if process.repeat > 1:
        period = int(ticks[-1]) + distance if end is None else in_run(end)
        ticks = _repeated(ticks, process.repeat, period, where)
        keys = (np.arange(process.repeat)[:, None] * total + rows).ravel()
        rows = np.tile(rows, process.repeat)
    if process.scale != 1.0:
        jitter = distance if process.jitter is None else min(_ticks(process.jitter), int(ticks[-1]))
        unscaled = ticks
        ticks, chosen = _scaled(ticks, keys, process.scale, jitter, draws, where)
        rows = rows[chosen]
    return TraceRows(table, ticks, rows, process.time_column, trace.blocks, unscaled, _parsed=trace.parsed)


def other_windows(process: Trace, folder: Path, where: Callable[..., Location]) -> tuple[int, int, float, float] | None:
    """Return the rows in the window of a trace, the most and the mean in windows of its length, and where it has most.

    The others are all windows of the file that begin at a row. Where that with the most rows begins is in seconds, as
    ``from`` has it. It is None where ``until`` selects no window.
    """
    if process.until is None:
        return None
    trace = _read(folder / process.file, process.format, process.time_column, process.columns, where)
    begin, end = _ticks(process.from_), _ticks(process.until)
    own = bisect_left(trace.ticks, end) - bisect_left(trace.ticks, begin)
    # As floats, because a trace may be longer than a run.
    times = np.array(trace.ticks, dtype=np.float64)
    rows = np.searchsorted(times, times + float(end - begin), side="left") - np.arange(len(times))
    length = float(end - begin)
    span = max(times[-1] - times[0], length)
    busiest = int(np.argmax(rows))
    return own, int(rows[busiest]), len(times) * length / span, trace.ticks[busiest] / TICKS_PER_SECOND


def row_draws(
    rows: Rows, folder: Path, rng: np.random.Generator, count: int, where: Callable[..., Location]
) -> TraceRows:
    """Return ``count`` jobs that each have the values of a row of a table at random; they have no arrival times.

    The first jobs do not depend on ``count``. Prompts with hash ids are other ones with the same beginnings.
    """
    path = folder / rows.file
    if rows.format in FORMATS:
        read = _read(path, rows.format, FORMATS[rows.format].time, rows.columns, where)
        table, blocks = read.table, read.blocks
    else:
        table, blocks = _renamed(read_table(path, "table", where("file")), rows.columns, where), None
    if not table.rows:
        raise InputError(f"the table '{path}' has no rows", where=where("file"), expected="at least one row")
    chosen = np.floor(rng.random(count) * len(table.rows)).astype(np.int64)
    return TraceRows(table, np.zeros(count, dtype=np.int64), chosen, "", blocks)


def export_trace(jobs: TraceRows | TraceFile, path: Path) -> None:
    """Write jobs, or the rows of a file, as a table: ``time_s``, exact decimals of a second, and all columns.

    The file is CSV, or Parquet by its name. Reading it as csv with ``time: time_s`` gives the same jobs, to the tick
    (the first at time 0).

    Raises:
        InputError: if the file cannot be written, or another column has the name ``time_s``.
    """
    table = jobs.table
    kept = [place for place, name in enumerate(table.header) if name != jobs.time_column]
    if any(table.header[place] == TIME_COLUMN for place in kept):
        raise InputError(
            f"the column '{TIME_COLUMN}' of the trace is not its arrival time",
            where=Location(table.file, 1, field=TIME_COLUMN),
            expected="another name for it",
        )

    rows = range(len(table.rows)) if isinstance(jobs, TraceFile) else jobs.rows.tolist()
    cells = (
        [_exact_seconds(tick), *(table.rows[row][place] for place in kept)]
        for tick, row in zip(map(int, jobs.ticks), rows, strict=True)
    )
    # The times stay text in Parquet, whose numbers would round them.
    types = {TIME_COLUMN: "string", **{name: kind for name, kind in table.types.items() if name != jobs.time_column}}
    write_table(path, [TIME_COLUMN, *(table.header[place] for place in kept)], cells, types)


def _exact_seconds(tick: int) -> str:
    whole, part = divmod(tick, TICKS_PER_SECOND)
    return f"{whole}.{part:012d}".rstrip("0").rstrip(".")


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS_PER_SECOND)


def _mapped(tick: int, knots: Sequence[Knot]) -> int:
    """Return a time after the piecewise-linear time map, to the nearest tick, computed in integers."""
    from_before, to_before = 0, 0
    for knot in knots:
        from_knot, to_knot = _ticks(knot.from_), _ticks(knot.to)
        if from_knot > tick:
            return to_before + _nearest((tick - from_before) * (to_knot - to_before), from_knot - from_before)
        from_before, to_before = from_knot, to_knot
    return to_before + tick - from_before


def _nearest(above: int, below: int) -> int:
    return (2 * above + below) // (2 * below)


def _repeated(ticks: TickArray, times: int, period: int, where: Callable[..., Location]) -> TickArray:
    if period == 0:
        raise InputError(
            "a trace whose rows have the same time cannot be repeated", where=where("repeat"), expected="an `until`"
        )
    if int(ticks[-1]) + (times - 1) * period > MAX_TICKS or len(ticks) * times > MAX_JOBS:
        raise InputError(
            f"{times:,} times the trace is {len(ticks) * times:,} jobs in {times * period / TICKS_PER_SECOND:,.0f} s",
            where=where("repeat"),
            expected=f"at most {MAX_JOBS:,} jobs within the 106 days a run may last",
        )
    repeated: TickArray = (np.arange(times, dtype=np.int64)[:, None] * period + ticks).ravel()
    return repeated


def _scaled(
    ticks: TickArray, keys: np.ndarray, scale: float, jitter: int, draws: Draws, where: Callable[..., Location]
) -> tuple[TickArray, np.ndarray]:
    """Return the jobs of all copies in order of time, and for each the index of its row in ``ticks``."""
    number = Fraction(repr(scale)) * len(ticks)
    jobs = _nearest(number.numerator, number.denominator)
    if not 0 < jobs <= MAX_JOBS:
        raise InputError(
            f"{scale:g} times {len(ticks):,} rows are {jobs:,} jobs",
            where=where("scale"),
            expected=f"a scale that makes 1 to {MAX_JOBS:,} jobs",
        )
    copies, rest = divmod(jobs, len(ticks))
    at: list[TickArray] = []
    chosen: list[np.ndarray] = []
    everything = np.arange(len(ticks))
    for copy in range(copies + (rest > 0)):
        places = everything
        if copy == copies:
            ranks = draws.stream("keep", str(copy)).random(int(keys[-1]) + 1)[keys]
            places = np.sort(np.argsort(ranks, kind="stable")[:rest])
        moved = ticks[places]
        if copy > 0:
            shift = 2.0 * draws.stream("jitter", str(copy)).random(int(keys[-1]) + 1)[keys[places]] - 1.0
            moved = _reflected(moved + np.rint(shift * jitter).astype(np.int64), int(ticks[-1]))
        at.append(moved)
        chosen.append(places)
    all_ticks, places = np.concatenate(at), np.concatenate(chosen)
    order = np.argsort(all_ticks, kind="stable")
    return all_ticks[order], places[order]


def _reflected(ticks: TickArray, last: int) -> TickArray:
    inside: TickArray = last - np.abs(last - np.abs(ticks))
    return np.clip(inside, 0, last)


_CACHE_SIZE = 2
_CACHED_BYTES = 2**24
"""The contents of files up to this size are cached, because all simulations of a plan read the same trace."""
_cache: dict[tuple[object, ...], TraceFile] = {}


def _read(path: Path, form: str, column: str, columns: Mapping[str, str], where: Callable[..., Location]) -> TraceFile:
    """Return the contents of a trace file with renamed columns, checked against its format, in order of time."""
    check_file(path, "trace", TABLE_BYTES, where("file"))
    if path.stat().st_size > _CACHED_BYTES:
        return _read_file(path, form, column, columns, where)
    digest = hashlib.blake2b(read_bytes(path, "trace", TABLE_BYTES, where("file"))).digest()
    key = (str(path), digest, form, column, tuple(columns.items()))
    if key not in _cache:
        trace = _read_file(path, form, column, columns, where)
        while len(_cache) >= _CACHE_SIZE:
            _cache.pop(next(iter(_cache)))
        _cache[key] = trace
    return _cache[key]


def _read_file(
    path: Path, form: str, column: str, columns: Mapping[str, str], where: Callable[..., Location]
) -> TraceFile:
    stated = FORMATS.get(form)
    if stated is not None and stated.block_tokens:
        table = read_json_lines(path, "trace", where("file"), [columns.get(name, name) for name in stated.columns])
    else:
        table = read_table(path, "trace", where("file"))
    if not table.rows:
        raise InputError(
            f"the trace '{path}' has no rows", where=where("file"), expected="a header and at least one row"
        )
    table = _renamed(table, columns, where)
    for name in stated.columns if stated is not None else ():
        if name not in table.header:
            raise InputError(
                f"the trace '{path}' has no column '{name}', which the format {form} requires",
                where=where("format"),
                expected=f"{list_choices(table.header)}; or columns: {{{name}: A-COLUMN-OF-THE-FILE}}",
                nearest=nearest(name, table.header),
            )
    if column not in table.header:
        raise InputError(
            f"the trace '{path}' has no column '{column}'",
            where=where("time"),
            expected=list_choices(table.header),
            nearest=nearest(column, table.header),
        )
    per_second = 1 if stated is None else stated.per_second
    since = _parse_times(table.column(column), table.lines, table.file, column, per_second)
    order = sorted(range(len(since)), key=since.__getitem__)
    if any(place != i for i, place in enumerate(order)):
        since = [since[i] for i in order]
        rows, lines = [table.rows[i] for i in order], [table.lines[i] for i in order]
        table = Table(table.file, table.header, rows, lines)
    blocks = block_runs(table) if stated is not None and stated.block_tokens else None
    return TraceFile(table, since, column, blocks)


def _renamed(table: Table, columns: Mapping[str, str], where: Callable[..., Location]) -> Table:
    """Return the table with its columns renamed."""
    header = list(table.header)
    renamed: dict[str, str] = {}
    for name, column in columns.items():
        if column not in table.header:
            raise InputError(
                f"the trace {table.file} has no column '{column}'",
                where=where("columns", name),
                expected=list_choices(table.header),
                nearest=nearest(column, table.header),
            )
        if column in renamed:
            raise InputError(
                f"the column '{column}' is already renamed to '{renamed[column]}'",
                where=where("columns", name),
                expected="each column once",
            )
        renamed[column] = name
        header[table.header.index(column)] = name
    for name in columns:
        if header.count(name) > 1:
            raise InputError(
                f"the trace {table.file} already has a column '{name}'",
                where=where("columns", name),
                expected="another name, or one for that column too",
            )
    return Table(table.file, tuple(header), table.rows, table.lines)


def _to_ticks(since: Sequence[int], table: Table, column: str, first: int = 0) -> TickArray:
    """Return times as an array of ticks.

    Raises:
        InputError: for the first row (counted from ``first``) that is beyond the longest run.
    """
    late = bisect_left(since, MAX_TICKS + 1)
    if late < len(since):
        raise InputError(
            "this time is more than 106 days after the first one",
            where=Location(table.file, table.lines[first + late], field=column),
            expected="a shorter trace: a part of it (until: 30 d), or a faster one (speed: 60)",
        )
    return np.array(since, dtype=np.int64)


# Fractions of a minute or an hour, which ISO 8601 permits, are not supported.
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d)(:\d\d(?:[.,](\d+))?)?(Z|z|[+-]\d\d:?\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS = 12
"""The digits of a fraction of a second in picoseconds."""


def _parse_times(texts: Sequence[str], lines: Sequence[int], file: str, column: str, per_second: int = 1) -> list[int]:
    """Return times as ticks since the earliest of them, exact to a picosecond: ISO 8601, or in 1 / ``per_second`` s."""
    ticks: list[int] = []
    for text, line in zip(texts, lines, strict=True):
        try:
            ticks.append(_iso_ticks(text) if ":" in text else _second_ticks(text, per_second))
        except (ValueError, OverflowError, TypeError, ArithmeticError):
            raise InputError(
                f"'{text[:40]}' is not a time",
                where=Location(file, line, field=column),
                expected="seconds, or a time such as 2023-11-16 18:17:03.97",
            ) from None
    first = min(ticks)
    return [tick - first for tick in ticks]


def _second_ticks(text: str, per_second: int) -> int:
    """Return a decimal number of 1 / ``per_second`` s, a power of ten, as ticks, to the nearest one."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    seconds = Decimal(text)
    if not seconds.is_finite() or seconds.adjusted() > 18:
        raise ValueError(text)
    return int(seconds.scaleb(13 - len(str(per_second))).to_integral_value())


def _iso_ticks(text: str) -> int:
    """Return an ISO 8601 time as ticks since 1970; the fraction is parsed apart, as datetime has only microseconds."""
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    minute, second, digits, zone = match.groups("")
    since = datetime.fromisoformat(minute + second[:3] + ("+00:00" if zone in "Zz" else zone)) - _EPOCH
    if len(digits) <= _DIGITS:
        fraction = int(digits.ljust(_DIGITS, "0"))
    else:
        fraction = int(Decimal(f"0.{digits}").scaleb(_DIGITS).to_integral_value())
    return (since.days * 86_400 + since.seconds) * TICKS_PER_SECOND + fraction
