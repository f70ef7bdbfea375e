"""Comparison of models with measurements, by device and operation."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Cost, StrArray
from windtunnel.core.errors import InputError
from windtunnel.core.ops import FloatArray, Operation, Rows
from windtunnel.core.pricing import Pricing, refused_rows
from windtunnel.core.provenance import Provenance
from windtunnel.core.results.validation import (
    BoundFigures,
    ComparedRow,
    DtypeFigures,
    Figures,
    ModelBasis,
    OperationResult,
    PowerFigures,
    SuspectRow,
    TooLarge,
    UnsupportedPart,
)
from windtunnel.core.step_op import PREDICTED, Step
from windtunnel.validation.reference_points import measured_reference_points
from windtunnel.validation.rows import Measurement
from windtunnel.validation.statistics import figures, noise_floor, relative_errors

MOST_WORST = 10
"""The number of rows with the largest errors that are reported for each device and operation."""


GROWS_FROM, SAME_TIME, TOO_SHORT = 64.0, 1.1, 2.0
"""A row is suspect if another one of at most this part of its size, and no larger in any count, takes as long (within
this factor), and the model predicts at least this multiple of its time, so that the time is not that of a launch."""

MOST_LINES = 20
"""The number of lines that are listed of rows with one remark."""


@dataclass(frozen=True)
class UnsupportedRows:
    """Rows that the model does not support for one reason."""

    reason: str
    rows: tuple[Measurement, ...]

    def report(self) -> UnsupportedPart:
        """Return their number, the reason and their place."""
        first = self.rows[0]
        return UnsupportedPart(len(self.rows), self.reason, first.line, first.file, _lines(self.rows))


@dataclass(frozen=True)
class Comparison:
    """The rows of one operation on one device with their predictions, one array element each.

    Suspect rows and rows that the model does not support are excluded from all figures.

    Attributes:
        model: What predicts the rows.
        name: The device as the rows call it.
        op: The operation.
        rows: The measurements.
        modelled_s: The predicted times.
        modelled_w: The predicted powers, of all devices of a group.
        low_s: The lower end of the model's 90% interval.
        high_s: Its upper end.
        bound: What limits each row according to the model.
        size: The size of each operation, in ``size_unit``.
        size_unit: ``B``, or the name of a count.
        provenance: The least certain of all inputs.
        suspects: The suspect rows.
        unsupported: The rows that the model does not support.
        too_large: Which rows take more memory than there is.
    """

    model: Pricing
    name: str
    op: str
    rows: tuple[Measurement, ...]
    modelled_s: FloatArray
    modelled_w: FloatArray
    low_s: FloatArray
    high_s: FloatArray
    bound: StrArray
    size: FloatArray
    size_unit: str
    too_large: npt.NDArray[np.bool_]
    provenance: Provenance
    suspects: tuple[Measurement, ...] = ()
    unsupported: tuple[UnsupportedRows, ...] = ()

    @property
    def measured_s(self) -> FloatArray:
        """The measured times (s)."""
        return np.array([row.latency_s for row in self.rows])

    @property
    def errors(self) -> FloatArray:
        """The relative errors, modelled / measured - 1."""
        return relative_errors(self.modelled_s, self.measured_s)

    def figures(self, kept: npt.NDArray[np.bool_] | None = None) -> Figures:
        """Return the figures of all rows, or of those where ``kept`` is true."""
        of = np.ones(len(self.rows), dtype=bool) if kept is None else kept
        rows = [row for row, keep in zip(self.rows, of.tolist(), strict=True) if keep]
        floor, points = noise_floor(repeated(rows))
        values = figures(self.modelled_s[of], self.measured_s[of], self.low_s[of], self.high_s[of])
        return Figures(**vars(values) | {"noise_floor": floor, "noise_points": points})

    def by_bound(self) -> list[BoundFigures]:
        """Return the figures by the bound that the model predicts, the bound of most rows first."""
        return [BoundFigures(word, part) for word, part in self._split(self.bound)]

    def by_dtype(self) -> list[DtypeFigures]:
        """Return the figures by number format; an empty list for an operation without formats."""
        if not self.rows or "dtype" not in self.rows[0].columns:
            return []
        words = np.array([str(row.columns["dtype"]) for row in self.rows])
        return [DtypeFigures(word, part) for word, part in self._split(words)]

    def _split(self, words: StrArray) -> Iterator[tuple[str, Figures]]:
        names, counts = np.unique(words, return_counts=True)
        for at in np.lexsort((names, -counts)):
            yield str(names[at]), self.figures(words == names[at])

    def power(self) -> PowerFigures | None:
        """Return the errors of the predicted power, or None if no row has a measured one."""
        pairs = [(m, row.power_w) for m, row in zip(self.modelled_w.tolist(), self.rows, strict=True) if row.power_w]
        if not pairs:
            return None
        modelled, measured = np.array(pairs).T
        error, factor = relative_errors(modelled, measured), self.model.power_error
        inside = np.abs(np.log1p(error)) <= np.log(factor.value)
        return PowerFigures(
            n=len(pairs),
            mape=float(np.abs(error).mean()),
            bias=float(error.mean()),
            coverage=float(inside.mean()),
            error_factor=factor.value,
            provenance=factor.provenance.label,
        )

    def _too_large(self) -> TooLarge | None:
        rows = [row for row, large in zip(self.rows, self.too_large.tolist(), strict=True) if large]
        return TooLarge(len(rows), rows[0].file, _lines(rows)) if rows else None

    def worst(self) -> list[ComparedRow]:
        """Return the rows with the largest ratio of modelled and measured time, largest first."""
        apart = np.abs(np.log1p(self.errors))
        return [
            ComparedRow(
                columns=self.rows[i].columns,
                measured_s=self.rows[i].latency_s,
                modelled_s=float(self.modelled_s[i]),
                error=float(self.errors[i]),
                bound=str(self.bound[i]),
                inside=bool(self.low_s[i] <= self.rows[i].latency_s <= self.high_s[i]),
                source=self.rows[i].source,
                line=self.rows[i].line,
                file=self.rows[i].file,
            )
            for i in np.argsort(-apart, kind="stable")[:MOST_WORST].tolist()
        ]

    def report(self) -> OperationResult:
        """Return the errors of the model, as fractions."""
        accuracy = self.model.accuracy_of(self.op)
        return OperationResult(
            device=self.name,
            op=self.op,
            **vars(self.figures()),
            sources=sorted({row.source for row in (*self.rows, *self.suspects)}),
            model=ModelBasis(accuracy.basis, accuracy.text, accuracy.fitted_rows, self.provenance.label),
            by_bound=self.by_bound(),
            by_dtype=self.by_dtype(),
            worst=self.worst(),
            reference_points=measured_reference_points(zip(self.rows, self.modelled_s.tolist(), strict=True)),
            suspect=[SuspectRow(row.columns, row.latency_s, row.suspect, row.line, row.file) for row in self.suspects],
            unsupported=[part.report() for part in self.unsupported],
            power=self.power(),
            too_large=self._too_large(),
        )


def _lines(rows: Iterable[Measurement]) -> list[int]:
    """Return the first lines of rows, in order."""
    return sorted(row.line for row in rows if row.line is not None)[:MOST_LINES]


def repeated(rows: Iterable[Measurement]) -> Iterator[tuple[Sequence[float], int]]:
    """Yield the repeated measurements (s) of each point, and the number of its rows.

    If a point occurs in several rows of one source, these rows are the repeated measurements. Otherwise they are the
    repeats of its row.
    """
    points: dict[tuple[object, ...], list[Measurement]] = {}
    for row in rows:
        points.setdefault((row.source, *row.columns.values()), []).append(row)
    for same in points.values():
        if len(same) > 1:
            yield [row.latency_s for row in same], len(same)
        elif len(same[0].repeats) > 1:
            yield same[0].repeats, 1


def compare(measurements: Iterable[Measurement], model_of: Callable[[str, str], Pricing]) -> list[Comparison]:
    """Return the comparisons of all devices and operations, in the order in which they first occur.

    Args:
        measurements: The measurements.
        model_of: Returns what predicts an operation on a device, by the names of both.

    Raises:
        InputError: for an unknown name, or if the model supports no row of a device and operation.
    """
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for row in measurements:
        groups.setdefault((row.device, row.op), []).append(row)
    return [_compared(name, op, model_of(name, op), rows) for (name, op), rows in groups.items()]


def _compared(name: str, op_name: str, model: Pricing, measurements: Sequence[Measurement]) -> Comparison:
    op = PREDICTED.find(op_name)
    suspects = [row for row in measurements if row.suspect]
    kept: list[Measurement] = []
    parts: list[_Part] = []
    refused: dict[str, tuple[InputError, list[Measurement]]] = {}
    for members, rows in _grouped(op, [row for row in measurements if not row.suspect]):
        supported, cost = _supported(model, members, rows, refused)
        if cost is not None:
            part, flat = _growing(model, supported, _rows(op, supported, rows.choices), cost)
            kept += part.rows
            parts.append(part)
            suspects += flat
    if refused and not kept:
        error, first = next(iter(refused.values()))
        raise error.at(first[0].where)

    def joined(arrays: Sequence[npt.NDArray[Any]], empty: type = float) -> npt.NDArray[Any]:
        return np.concatenate(arrays) if arrays else np.zeros(0, dtype=empty)

    costs = [part.cost for part in parts]
    weakest = max((int(cost.provenance.max()) for cost in costs), default=int(Provenance.DATASHEET))
    return Comparison(
        model=model,
        name=name,
        op=op_name,
        rows=tuple(kept),
        modelled_s=joined([cost.duration_s for cost in costs]),
        modelled_w=joined([cost.power_w for cost in costs]),
        low_s=joined([cost.duration_low_s for cost in costs]),
        high_s=joined([cost.duration_high_s for cost in costs]),
        bound=joined([cost.bound for cost in costs], str),
        size=joined([part.size for part in parts]),
        size_unit=parts[-1].unit if parts else "s",
        too_large=joined([part.too_large for part in parts], bool),
        provenance=Provenance(weakest),
        suspects=tuple(suspects),
        unsupported=tuple(UnsupportedRows(reason, tuple(of)) for reason, (_, of) in refused.items()),
    )


@dataclass(frozen=True)
class _Part:
    """Rows that agree in every choice, with their cost, their sizes in ``unit``, and which exceed the memory."""

    rows: Sequence[Measurement]
    cost: Cost
    size: FloatArray
    unit: str
    too_large: npt.NDArray[np.bool_]


def _growing(model: Pricing, members: Sequence[Measurement], rows: Rows, cost: Cost) -> tuple[_Part, list[Measurement]]:
    """Return the rows whose times grow with their sizes, and the others as suspect rows."""
    size, unit = size_of(rows)
    why = not_growing(members, rows, size, cost.duration_s)
    grows = [i for i in range(len(members)) if i not in why]
    some = Cost(*(getattr(cost, name)[grows] for name in Cost.COLUMNS))
    part = _Part([members[i] for i in grows], some, size[grows], unit, model.exceeds_memory(rows)[grows])
    return part, [replace(members[i], suspect=reason) for i, reason in why.items()]


def not_growing(members: Sequence[Measurement], rows: Rows, size: FloatArray, modelled_s: FloatArray) -> dict[int, str]:
    """Return why rows of one operation with equal choices are suspect because their times do not grow with their size.

    See ``GROWS_FROM``. Such a device has not done the work, or the time is that of something else. Where the time of a
    small row is that of a launch, the model predicts no more for the larger one than was measured, or little.
    """
    measured_s = np.array([row.latency_s for row in members])
    order = np.argsort(size, kind="stable")
    longest_s = np.maximum.accumulate(measured_s[order])
    below = np.searchsorted(size[order], size / GROWS_FROM, side="right")
    before_s = np.where(below > 0, longest_s[np.maximum(below - 1, 0)], 0.0)
    found = {}
    for i in np.flatnonzero((modelled_s > TOO_SHORT * measured_s) & (measured_s <= SAME_TIME * before_s)).tolist():
        smaller = order[: below[i]]
        smaller = smaller[measured_s[i] <= SAME_TIME * measured_s[smaller]]
        fits = [np.broadcast_to(of, rows.shape) for of in rows.numbers.values()]
        smaller = smaller[np.all([of[smaller] <= of[i] for of in fits], axis=0)] if fits else smaller
        if len(smaller):
            other = members[int(smaller[-1])]
            where = f"line {other.line}" if other.line is not None else f"{other.latency_s:.3g} s"
            share = f"1/{size[i] / size[smaller[-1]]:,.0f}"
            found[i] = f"its time does not grow with its size: {share} of the size ({where}) takes as long"
    return found


def _supported(
    model: Pricing, members: Sequence[Measurement], rows: Rows, refused: dict[str, tuple[InputError, list[Measurement]]]
) -> tuple[Sequence[Measurement], Cost | None]:
    """Return the rows that the model supports and their cost, None without any; ``refused`` gets the others."""
    try:
        return members, model.cost(rows)
    except InputError:
        errors = refused_rows(model, rows)
    for place, error in sorted(errors.items()):
        refused.setdefault(str(error), (error, []))[1].append(members[place])
    kept = [row for place, row in enumerate(members) if place not in errors]
    return kept, model.cost(_rows(rows.op, kept, rows.choices)) if kept else None


def _rows(op: type[Operation], members: Sequence[Measurement], choices: Mapping[str, str]) -> Rows:
    """Return measurements that agree in every choice as cost functions take them."""
    counts = [column.name for column in op.all_columns() if column.is_number]
    return Rows(op, choices, {name: np.array([float(row.columns[name]) for row in members]) for name in counts})


def _grouped(op: type[Operation], rows: Sequence[Measurement]) -> Iterator[tuple[list[Measurement], Rows]]:
    """Yield rows that agree in every choice together, as cost functions take them."""
    words = [column.name for column in op.all_columns() if not column.is_number]
    groups: dict[tuple[float | str, ...], list[Measurement]] = {}
    for row in rows:
        groups.setdefault(tuple(row.columns[name] for name in words), []).append(row)
    for key, members in groups.items():
        yield members, _rows(op, members, dict(zip(words, map(str, key), strict=True)))


def size_of(rows: Rows) -> tuple[FloatArray, str]:
    """Return the size of each operation and its unit: the bytes of its operands, or else its additive count.

    The size of a step is the number of its tokens.
    """
    if rows.op is Step:
        return Step.tokens(rows.numbers), "tokens"
    numbers: Mapping[str, FloatArray] = rows.numbers
    bytes_ = rows.footprint_bytes()
    if np.all(bytes_ > 0.0):
        return bytes_.astype(np.float64), "B"
    for column in rows.op.columns:
        if column.name in numbers and (column.name in rows.op.sums or column.unit == "B"):
            return np.broadcast_to(numbers[column.name], rows.shape), "B" if column.unit == "B" else column.name
    return np.ones(rows.shape), "1"


FEWEST_SHAPES = 8
"""The number of distinct shapes below which the rows are divided by all sizes instead."""


def halves(rows: Sequence[Measurement]) -> tuple[list[Measurement], list[Measurement], str]:
    """Divide the measurements of one operation into two halves by whole shapes, and describe the division.

    A shape consists of all counts except those that add up in a batch (the ``m`` of a GEMM, for instance), so that no
    row of the second half has the shape of a fitted row in another size, number format or context. Below
    ``FEWEST_SHAPES`` shapes every size is a shape. The shapes go to the halves in turn, in the order of a checksum, so
    the same rows give the same halves.
    """
    op = PREDICTED.find(rows[0].op)
    counts = [column.name for column in op.all_columns() if column.is_number]
    by = [name for name in counts if name not in op.sums]
    if len({tuple(row.columns[name] for name in by) for row in rows}) < FEWEST_SHAPES:
        by = counts

    def shape(row: Measurement) -> tuple[float, ...]:
        return tuple(float(row.columns[name]) for name in by)

    order = sorted({shape(row) for row in rows}, key=lambda s: (zlib.crc32("/".join(map(repr, s)).encode()), s))
    half = {counts_of: i % 2 for i, counts_of in enumerate(order)}
    split = [[row for row in rows if half[shape(row)] == which] for which in (0, 1)]
    others = [name for name in counts if name not in by]
    kept = f" with all their {', '.join(others)}" if others else ""
    return split[0], split[1], f"every other ({', '.join(by)}) held out{kept}, {len(order)} in all"
