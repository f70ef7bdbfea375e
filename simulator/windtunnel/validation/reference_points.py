"""Reference points: the few operations that are measured through every API of a chip, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windtunnel.core.columns import Columns
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.validation import ReferencePoint
from windtunnel.validation.measure import Point, point
from windtunnel.validation.rows import Measurement

REFERENCE_POINTS: Sequence[Point] = (
    point(OPERATIONS.find("launch")),
    point(OPERATIONS.find("vector_add"), n=1_000_000),
    point(OPERATIONS.find("vector_add"), n=1_000_000, dispatch="eager"),
    point(OPERATIONS.find("gemm"), m=1024, n=1024, k=1024, dtype="float32"),
)
"""A launch; a vector addition of a million elements and a GEMM of 1024, as in the founding documents; and the addition
with eager dispatch."""


def is_reference_point(op: str, columns: Columns) -> bool:
    """Return whether an operation is a reference point, in all its columns."""
    return any(point_.op == op and point_.columns == columns for point_ in REFERENCE_POINTS)


def measured_reference_points(rows: Iterable[tuple[Measurement, float]]) -> list[ReferencePoint]:
    """Return the reference points among ``rows``.

    Args:
        rows: Measurements with their predicted times in seconds.
    """
    return [
        ReferencePoint(
            columns=row.columns,
            measured_s=row.latency_s,
            modelled_s=modelled_s,
            low_s=row.low_s,
            high_s=row.high_s,
            source=row.source,
            timer=row.timer,
            note=row.note,
        )
        for row, modelled_s in rows
        if is_reference_point(row.op, row.columns)
    ]
