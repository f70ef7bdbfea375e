"""The result of a sweep: a row for each point, whose columns are paths in result.json (``latency_s.p99``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windtunnel.core.results.data import HIDDEN, Result


@dataclass(frozen=True)
class SweepAxis(Result):
    """One swept path of the scenario, and its values."""

    path: str
    values: Sequence[object]


@dataclass(frozen=True, kw_only=True)
class PointOutcome:
    """The outcome of a point. ``met`` is None without targets; ``missed`` and ``inconclusive`` list targets.

    ``numbers`` are the numbers, words and truth values of the result by their path, with ``.low`` and ``.high``.
    """

    status: str
    """``done`` or ``failed``."""
    error: str | None = None
    met: bool | None = None
    missed: str | None = None
    inconclusive: str | None = None
    numbers: Mapping[str, bool | float | str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SweepRow(PointOutcome):
    """A point: its number from 1, the key of its record, its values on the axes by path, and its outcome."""

    point: int
    key: str
    swept: Mapping[str, object]

    def cells(self) -> dict[str, object]:
        """Return the values of the row by column."""
        own = {name: value for name, value in vars(self).items() if name not in ("numbers", "swept")}
        return {**own, **self.numbers, **self.swept}

    def number(self, path: str) -> float | None:
        """Return the number at a path of result.json, such as ``latency_s.p99``; None if the point has none."""
        value = self.numbers.get(path)
        return value if isinstance(value, (int, float)) else None


@dataclass(frozen=True)
class SweepResult(Result):
    """The result of a sweep, as sweep.json holds it: the axes, and a row for each point in the order of the grid."""

    windtunnel_sweep: int
    """The version of the format."""
    scenario: str
    axes: Sequence[SweepAxis]
    replications: int
    engine: str
    versions: Mapping[str, str]
    points: int
    failed: int
    missed: int
    exit_code: int
    columns: Sequence[str]
    rows: Sequence[SweepRow] = field(metadata=HIDDEN)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of sweep.json, in which every row has every column."""
        rows = [row.cells() for row in self.rows]
        return super().to_dict() | {"rows": [{column: row.get(column) for column in self.columns} for row in rows]}
