"""Keeps the corrections of tables of rows, because plans price the same rows for several speeds and values of a device.

A residual is a pure function of the rows, and takes most of the time of a cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from windtunnel.core.operation import Rows

Found = TypeVar("Found")

_LEAST_ROWS, _MOST_ROWS = 64, 200_000
"""Rows of which a correction is kept: fewer take no time, and more take too much memory."""
_MOST_KEPT = 2_000_000
"""The rows of all corrections that are kept; each takes 16 bytes."""
_kept: dict[tuple[object, ...], tuple[int, object, object]] = {}


def correction_of(residual: Callable[[Rows], Found], rows: Rows) -> Found:
    """Return the correction of ``rows``: that of equal rows if it was computed before, whose arrays are not written."""
    size = int(np.prod(rows.shape))
    if not _LEAST_ROWS <= size <= _MOST_ROWS:
        return residual(rows)
    numbers = ((name, np.shape(values), np.asarray(values).tobytes()) for name, values in rows.numbers.items())
    # The residual is kept too, so that its identity stays unique.
    key = (id(residual), rows.op.name, *rows.choices.items(), *numbers)
    found = _kept.pop(key, None)
    if found is None:
        found = size, residual, residual(rows)
        while _kept and size + sum(n for n, _, _ in _kept.values()) > _MOST_KEPT:
            _kept.pop(next(iter(_kept)), None)
    _kept[key] = found
    return cast(Found, found[2])
