"""The source of the values and random numbers of a workload's jobs.

Every random number belongs to a job by its index within the workload, so none depends on the order of events in a run,
and a longer run only adds numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.rng import stream
from windtunnel.core.ticks import FloatArray, TickArray
from windtunnel.engine.arrivals import TraceRows
from windtunnel.engine.arrivals.distributions import unit_variates
from windtunnel.engine.arrivals.hash_ids import read_json_lines
from windtunnel.scenario.lengths import Length
from windtunnel.scenario.program import ColumnRef, OpStage, TokenCount

_LARGEST = 2.0**53


def drawn_lengths(length: Length, rng: np.random.Generator, count: int, folder: Path, where: Location) -> FloatArray:
    """Return ``count`` whole numbers of at least 1; shape (count,). The first ones do not depend on ``count``.

    Files are relative to ``folder``.

    Raises:
        InputError: if the file cannot be read, or its column has other values than counts.
    """
    if length.distribution == "empirical":
        values = _column(length, folder, where)
        drawn: FloatArray = values[np.floor(rng.random(count) * len(values)).astype(np.int64)]
    elif length.distribution == "uniform":
        assert length.max is not None  # noqa: S101  checked when it was read
        drawn = length.min + np.floor(rng.random(count) * (length.max - length.min + 1))
    else:
        assert length.mean is not None  # noqa: S101  likewise
        if length.distribution == "geometric":
            drawn = rng.geometric(1.0 / length.mean, count).astype(np.float64)
        else:
            cv = 1.0 if length.cv is None else length.cv
            drawn = np.rint(length.mean * unit_variates(rng, length.distribution, cv, count))
    return np.clip(drawn, length.min, _LARGEST if length.max is None else length.max)


def _column(length: Length, folder: Path, where: Location) -> FloatArray:
    """Return the values of the column from which an empirical distribution is drawn."""
    assert length.file is not None and length.column is not None  # noqa: S101  checked when it was read
    path = folder / length.file
    table: Table
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        table = read_json_lines(path, "table", where, [])
    else:
        table = read_table(path, "table", where)
    if length.column not in table.header:
        raise InputError(
            f"the table {table.file} has no column '{length.column}'",
            where=where,
            expected=list_choices(table.header),
            nearest=nearest(length.column, table.header),
        )
    texts = table.column(length.column)
    if not texts:
        raise InputError(f"the table {table.file} has no rows", where=where, expected="a header and at least one row")
    values = np.zeros(len(texts))
    for row, text in enumerate(texts):
        try:
            values[row] = float(text)
        except ValueError:
            values[row] = np.nan
        if not (1 <= values[row] <= _LARGEST and values[row] == int(values[row])):
            raise InputError(
                f"'{text[:40]}' is not a count",
                where=Location(table.file, table.lines[row], field=length.column),
                expected="a whole number, at least 1",
            )
    return values


@dataclass(frozen=True)
class ServiceTimeDraws:
    """Random factors with mean 1 on a stated service time, one for each job of a workload.

    They are keyed by seed, workload and stage, so the i-th belongs to the i-th job, independent of the sizes of blocks.
    """

    seed: int
    name: tuple[str, ...]
    distribution: str
    cv: float
    count: int

    @cached_property
    def values(self) -> FloatArray:
        """The factors of all jobs; shape (count,)."""
        return self.drawing()(self.count)

    def drawing(self) -> Callable[[int], FloatArray]:
        """Return a function that returns the next ``n`` factors at each call, beginning with the first."""
        rng = stream(self.seed, *self.name)
        return lambda count: unit_variates(rng, self.distribution, self.cv, count)


@dataclass(frozen=True)
class Sessions:
    """The sessions of a workload, whose requests have consecutive ranks.

    Attributes:
        first: The rank of the first request of each session, and after the last one; shape (sessions + 1,).
        think: The time between the end of the request before and each request, 0 for first ones (ticks); (jobs,).
    """

    first: np.ndarray
    think: TickArray

    @property
    def count(self) -> int:
        """The number of sessions."""
        return len(self.first) - 1

    @cached_property
    def of_job(self) -> np.ndarray:
        """The session of each request; shape (jobs,)."""
        return np.repeat(np.arange(self.count), np.diff(self.first))


@dataclass(frozen=True)
class RequestLengths:
    """The tokens of the requests of a workload.

    Attributes:
        prompts: Shape (jobs,).
        outputs: Likewise.
        groups: The prefix of each request; shape (jobs,).
        prefixes: The tokens of each prefix with which prompts begin; 0 if they share none.
        sessions: The sessions that the requests belong to, if they do.
    """

    prompts: np.ndarray
    outputs: np.ndarray
    groups: np.ndarray
    prefixes: np.ndarray
    sessions: Sessions | None = None


@dataclass
class Source:
    """The arrivals of a workload, and the trace and seed from which its jobs take values and random numbers."""

    name: str
    seed: int
    ticks: TickArray
    trace: TraceRows | None
    where: Callable[[tuple[str | int, ...]], Location]
    folder: Path = Path()
    """The folder to which the files of distributions are relative."""
    requests: dict[tuple[str | int, ...], RequestLengths] = field(default_factory=dict)
    """The lengths of the requests of a stage that were drawn, by its path."""
    begins: TickArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The arrivals of sessions, whose later requests the engine computes; shape (sessions,)."""
    _variates: dict[tuple[str | int, ...], ServiceTimeDraws] = field(default_factory=dict)
    _lengths: dict[tuple[str | int, ...], FloatArray] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of jobs of the workload."""
        return len(self.ticks)

    @property
    def sessions(self) -> Sessions | None:
        """The sessions of the workload, if its requests belong to any."""
        return next((lengths.sessions for lengths in self.requests.values() if lengths.sessions is not None), None)

    def value(self, value: TokenCount, path: tuple[str | int, ...]) -> FloatArray:
        """Return a value for every job; shape (jobs,), or (1,) if all jobs have the same value."""
        if isinstance(value, Length):
            if path not in self._lengths:
                rng = stream(self.seed, self.name, "length", *(str(part) for part in path[2:]))
                self._lengths[path] = drawn_lengths(value, rng, self.count, self.folder, self.where(path))
            return self._lengths[path]
        if not isinstance(value, ColumnRef):
            return np.array([value], dtype=np.float64)
        return self._trace(value.name, path).numbers(value.name, self.where(path))

    def words(self, column: str, path: tuple[str | int, ...]) -> list[str]:
        """Return the text of a trace column for each job."""
        return self._trace(column, path).words(column, self.where(path))

    def variates(self, stage: OpStage) -> ServiceTimeDraws:
        """Return the random factors of a stated service time, one for each job."""
        if stage.path not in self._variates:
            cv = stage.numbers["cv"]
            if isinstance(cv, ColumnRef):
                raise InputError(
                    "cv must be a number, and not a column of the trace",
                    where=self.where(stage.path),
                    expected="a number",
                )
            name = (self.name, "service", *(str(part) for part in stage.path[2:]))
            self._variates[stage.path] = ServiceTimeDraws(
                self.seed, name, stage.choices["distribution"], cv, self.count
            )
        return self._variates[stage.path]

    def _trace(self, column: str, path: tuple[str | int, ...]) -> TraceRows:
        if self.trace is None:
            raise InputError(
                f"'${column}' requires a trace, and the arrivals of '{self.name}' are not a trace",
                where=self.where(path),
                expected="a number, arrivals: {process: trace, ...}, or `rows` of the workload",
            )
        return self.trace
