"""The columns of an operation."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, float | str]
"""All columns of an operation by name, parsed (``core.ops.Column.parse``): counts are floats, choices are text."""
