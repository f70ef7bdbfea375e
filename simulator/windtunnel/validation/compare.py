"""Model against measurement, by device and operation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Cost, Device, StrArray
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, FloatArray, Operation, Rows
from windtunnel.core.provenance import Provenance
from windtunnel.validation.landmarks import landmarks
from windtunnel.validation.rows import Measurement
from windtunnel.validation.statistics import figures, noise_floor, relative_errors

MOST_WORST = 10
"""Rows that are furthest off, of each device and operation."""


@dataclass(frozen=True)
class Refusal:
    """Rows that the model does not answer for: how many, why, and the first of them."""

    n: int
    why: str
    first: Measurement


@dataclass(frozen=True)
class Comparison:
    """The rows of one operation on one device beside what the model says of them: one array element each.

    ``low_s`` and ``high_s``: the model's 90% interval. ``size``: of the operation, in ``size_unit``. Rows that are
    suspect, or that the model refuses, are kept apart and enter no figure.
    """

    device: Device
    name: str
    """The device as the rows call it."""
    op: str
    rows: tuple[Measurement, ...]
    modelled_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    bound: StrArray
    size: FloatArray
    size_unit: str
    provenance: Provenance
    """The weakest of the numbers that entered."""
    suspects: tuple[Measurement, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def measured_s(self) -> FloatArray:
        """What was measured."""
        return np.array([row.latency_s for row in self.rows])

    @property
    def errors(self) -> FloatArray:
        """Relative errors."""
        return relative_errors(self.modelled_s, self.measured_s)

    def figures(self, kept: npt.NDArray[np.bool_] | None = None) -> dict[str, Any]:
        """The figures of all rows, or of those that are ``kept``."""
        of = np.ones(len(self.rows), dtype=bool) if kept is None else kept
        rows = [row for row, keep in zip(self.rows, of.tolist(), strict=True) if keep]
        floor, points = noise_floor(repeated(rows))
        found = figures(self.modelled_s[of], self.measured_s[of], self.low_s[of], self.high_s[of])
        return {**found, "noise_floor": floor, "noise_points": points}

    def by_bound(self) -> list[dict[str, Any]]:
        """The figures of each regime: what the model says limits the rows. The most rows first."""
        return [{"bound": word, **part} for word, part in self._split(self.bound)]

    def by_dtype(self) -> list[dict[str, Any]]:
        """The figures of each number format; none for an operation without."""
        if not self.rows or "dtype" not in self.rows[0].columns:
            return []
        words = np.array([str(row.columns["dtype"]) for row in self.rows])
        return [{"dtype": word, **part} for word, part in self._split(words)]

    def _split(self, words: StrArray) -> Iterator[tuple[str, dict[str, Any]]]:
        names, counts = np.unique(words, return_counts=True)
        for at in np.lexsort((names, -counts)):
            yield str(names[at]), self.figures(words == names[at])

    def worst(self) -> list[dict[str, Any]]:
        """The rows furthest off by factor, the furthest first."""
        apart = np.abs(np.log1p(self.errors))
        return [
            {
                "columns": dict(self.rows[i].columns),
                "measured_s": self.rows[i].latency_s,
                "modelled_s": float(self.modelled_s[i]),
                "error": float(self.errors[i]),
                "bound": str(self.bound[i]),
                "inside": bool(self.low_s[i] <= self.rows[i].latency_s <= self.high_s[i]),
                "source": self.rows[i].source,
                "line": self.rows[i].line,
            }
            for i in np.argsort(-apart, kind="stable")[:MOST_WORST].tolist()
        ]

    def report(self) -> dict[str, Any]:
        """The comparison as plain data: the contract's keys first, then what they rest on. Errors are fractions."""
        accuracy = self.device.accuracy_of(self.op)
        whole = self.figures()
        first = ("n", "mape", "median_ape", "p90_ape", "bias", "noise_floor")
        return {
            "device": self.name,
            "op": self.op,
            **{key: whole[key] for key in first},
            **{key: value for key, value in whole.items() if key not in first},
            "sources": sorted({row.source for row in (*self.rows, *self.suspects)}),
            "model": {
                "basis": accuracy.basis,
                "text": accuracy.text,
                "fitted_rows": accuracy.fitted_rows,
                "provenance": self.provenance.label,
            },
            "by_bound": self.by_bound(),
            "by_dtype": self.by_dtype(),
            "worst": self.worst(),
            "landmarks": landmarks(zip(self.rows, self.modelled_s.tolist(), strict=True)),
            "suspect": [
                {"columns": dict(row.columns), "measured_s": row.latency_s, "why": row.suspect, "line": row.line}
                for row in self.suspects
            ],
            "refused": [{"n": one.n, "why": one.why, "line": one.first.line} for one in self.refusals],
        }


def repeated(rows: Iterable[Measurement]) -> Iterator[tuple[Sequence[float], int]]:
    """What repeated measurements each point has, and how many rows stand for it.

    A point that occurs in several rows (of one source) was measured that often: those are the single measurements that
    figures are made of. A point of one row has its repetitions.
    """
    points: dict[tuple[object, ...], list[Measurement]] = {}
    for row in rows:
        points.setdefault((row.source, *row.columns.values()), []).append(row)
    for same in points.values():
        if len(same) > 1:
            yield [row.latency_s for row in same], len(same)
        elif len(same[0].repeats) > 1:
            yield same[0].repeats, 1


def compare(measurements: Iterable[Measurement], device_of: Callable[[str], Device]) -> list[Comparison]:
    """The comparisons of all devices and operations, in the order in which they first occur.

    ``device_of``: the model that a name stands for. Raises InputError for an unknown name, and where the model refuses
    every row of a device and operation.
    """
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in measurements:
        groups.setdefault((row.device, row.op), []).append(row)
    return [_compared(name, op, device_of(name), rows) for (name, op), rows in groups.items()]


def _compared(name: str, op_name: str, device: Device, measurements: Sequence[Measurement]) -> Comparison:
    op = OPERATIONS.find(op_name)
    suspects = tuple(row for row in measurements if row.suspect)
    trusted = [row for row in measurements if not row.suspect]
    kept: list[Measurement] = []
    parts: list[tuple[Cost, FloatArray]] = []
    refusals: dict[str, Refusal] = {}
    unit, error = "s", None
    for members, rows in _grouped(op, trusted):
        try:
            cost = device.cost(rows)
        except InputError as problem:
            why, error = str(problem), problem
            before = refusals[why].n if why in refusals else 0
            first = refusals[why].first if why in refusals else members[0]
            refusals[why] = Refusal(before + len(members), why, first)
            continue
        size, unit = size_of(rows)
        kept += members
        parts.append((cost, size))
    if error is not None and not kept:
        raise error.at(next(iter(refusals.values())).first.where)

    def joined(arrays: Sequence[npt.NDArray[Any]], empty: type = float) -> npt.NDArray[Any]:
        return np.concatenate(arrays) if arrays else np.zeros(0, dtype=empty)

    weakest = max((int(cost.provenance.max()) for cost, _ in parts), default=int(Provenance.DATASHEET))
    return Comparison(
        device=device,
        name=name,
        op=op_name,
        rows=tuple(kept),
        modelled_s=joined([cost.duration_s for cost, _ in parts]),
        low_s=joined([cost.duration_low_s for cost, _ in parts]),
        high_s=joined([cost.duration_high_s for cost, _ in parts]),
        bound=joined([cost.bound for cost, _ in parts], str),
        size=joined([size for _, size in parts]),
        size_unit=unit,
        provenance=Provenance(weakest),
        suspects=suspects,
        refusals=tuple(refusals.values()),
    )


def _grouped(op: type[Operation], rows: Sequence[Measurement]) -> Iterator[tuple[list[Measurement], Rows]]:
    """Rows that agree in every choice together, as cost functions take them."""
    words = [column.name for column in op.all_columns() if column.kind == "choice"]
    counts = [column.name for column in op.all_columns() if column.kind != "choice"]
    groups: dict[tuple[float | str, ...], list[Measurement]] = {}
    for row in rows:
        groups.setdefault(tuple(row.columns[name] for name in words), []).append(row)
    for key, members in groups.items():
        choices = dict(zip(words, map(str, key), strict=True))
        numbers = {name: np.array([float(row.columns[name]) for row in members]) for name in counts}
        yield members, Rows(op, choices, numbers)


def size_of(rows: Rows) -> tuple[FloatArray, str]:
    """How large each operation is, and in what: the bytes of its operands, else its count of what adds up."""
    numbers: Mapping[str, FloatArray] = rows.numbers
    bytes_ = rows.footprint_bytes()
    if np.all(bytes_ > 0.0):
        return bytes_.astype(np.float64), "B"
    for column in rows.op.columns:
        if column.name in numbers and (column.name in rows.op.sums or column.unit == "B"):
            return np.broadcast_to(numbers[column.name], rows.shape), "B" if column.unit == "B" else column.name
    return np.ones(rows.shape), "1"


FEWEST_SHAPES = 8
"""Distinct shapes below which halves are made of sizes instead: four a half would say nothing of a fifth."""


def halves(rows: Sequence[Measurement]) -> tuple[list[Measurement], list[Measurement], str]:
    """Measurements of one operation in two halves by whole shapes, and how, in words. The same rows, the same halves.

    A shape is all columns that count something but those by which requests combine (a product's ``m``, a batch), so
    that no row of a held-back shape was fitted with another size of it, number format or context. Where that makes
    fewer than ``FEWEST_SHAPES``, every size is a shape. Shapes, in the order of a checksum, go to the halves in turn.
    """
    op = OPERATIONS.find(rows[0].op)
    counts = [column.name for column in op.all_columns() if column.kind != "choice"]
    by = [name for name in counts if name not in op.sums]
    if len({tuple(row.columns[name] for name in by) for row in rows}) < FEWEST_SHAPES:
        by = counts

    def shape(row: Measurement) -> tuple[float, ...]:
        return tuple(float(row.columns[name]) for name in by)

    order = sorted({shape(row) for row in rows}, key=lambda s: (zlib.crc32("/".join(map(repr, s)).encode()), s))
    half = {one: i % 2 for i, one in enumerate(order)}
    split = [[row for row in rows if half[shape(row)] == which] for which in (0, 1)]
    others = [name for name in counts if name not in by]
    kept = f" with all their {', '.join(others)}" if others else ""
    return split[0], split[1], f"every other ({', '.join(by)}) held back{kept}, {len(order)} in all"
