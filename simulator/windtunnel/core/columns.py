"""The columns of an operation."""

from __future__ import annotations

from collections.abc import Mapping

Columns = Mapping[str, float | str]
"""Values of the columns of an operation by name: counts are numbers, choices are text (``core.ops.Column``)."""
