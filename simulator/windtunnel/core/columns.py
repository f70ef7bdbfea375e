"""The columns of an operation."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, float | str]
"""Values of the columns of an operation by name: counts are numbers, choices are text (``core.ops.Column``)."""


def numbers_of(columns: Columns) -> dict[str, float]:
    """Return the columns that are numbers."""
    return {name: value for name, value in columns.items() if not isinstance(value, str)}
