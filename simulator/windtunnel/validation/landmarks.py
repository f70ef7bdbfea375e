"""The few points that every API is asked for, so that the APIs of one chip stand side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windtunnel.core.ops import OPERATIONS
from windtunnel.validation.measure import Point, point
from windtunnel.validation.rows import Measurement

LANDMARKS: Sequence[Point] = (
    point(OPERATIONS.find("launch")),
    point(OPERATIONS.find("vector_add"), n=1_000_000),
    point(OPERATIONS.find("vector_add"), n=1_000_000, dispatch="eager"),
    point(OPERATIONS.find("gemm"), m=1024, n=1024, k=1024, dtype="float32"),
)
"""A vector addition of a million elements and a product of 1024, as the founding documents compare APIs; what a launch
takes; and the addition as a caller that waits for it sees it."""


def is_landmark(op: str, columns: Mapping[str, float | str]) -> bool:
    """Whether it is one of them, in all its columns."""
    return any(one.op == op and one.columns == columns for one in LANDMARKS)


def landmarks(rows: Iterable[tuple[Measurement, float]]) -> list[dict[str, Any]]:
    """Those among ``rows`` (measured, and modelled in seconds), as plain data."""
    return [
        {
            "columns": dict(row.columns),
            "measured_s": row.latency_s,
            "modelled_s": modelled_s,
            "low_s": row.low_s,
            "high_s": row.high_s,
            "source": row.source,
            "timer": row.timer,
            "note": row.note,
        }
        for row, modelled_s in rows
        if is_landmark(row.op, row.columns)
    ]
