"""Simulated time in integer picoseconds (ticks), and the conversion from and to seconds.

Sums of floats are inexact (ten times 0.1 s is not 1.0 s), which would change the order of simultaneous events. An int64
of picoseconds reaches 106 days; a longer time is an error.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError

TICKS_PER_SECOND = 10**12
MAX_TICKS = 2**63 - 1
MAX_SECONDS = MAX_TICKS / TICKS_PER_SECOND
LONGEST = f"{MAX_SECONDS // 86400:.0f} days"
"""The longest simulated time, as text."""

Ticks = int
TickArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def to_ticks(seconds: float) -> Ticks:
    """Return ``seconds`` rounded to the nearest tick.

    Raises:
        InputError: The value is NaN, infinite, negative, or longer than 106 days.
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise InputError(f"{seconds!r} s is not a time", expected="a finite number of seconds, not negative")
    ticks = round(seconds * TICKS_PER_SECOND)
    if ticks > MAX_TICKS:
        raise InputError(f"{seconds:g} s is too long", expected=f"at most {LONGEST}")
    return ticks


def to_tick_array(seconds: npt.ArrayLike) -> TickArray:
    """Return every element rounded to the nearest tick, in the same shape; raises InputError like ``to_ticks``."""
    values = np.asarray(seconds, dtype=np.float64)
    if values.size and not (np.isfinite(values).all() and values.min() >= 0):
        bad = values[~(np.isfinite(values) & (values >= 0))].flat[0]
        raise InputError(f"{float(bad)!r} s is not a time", expected="a finite number of seconds, not negative")
    # 2**63 is exact in float64; anything at or above it would wrap.
    scaled = np.rint(values * TICKS_PER_SECOND)
    if values.size and scaled.max() >= 2.0**63:
        raise InputError(f"{float(values.max()):g} s is too long", expected=f"at most {LONGEST}")
    return scaled.astype(np.int64)


def to_seconds(ticks: Ticks) -> float:
    """Return a time in ticks as seconds, rounded in the same way as by ``to_second_array``."""
    return float(ticks) / TICKS_PER_SECOND


def to_second_array(ticks: npt.ArrayLike) -> FloatArray:
    """Return times in ticks as seconds, in the same shape."""
    return np.asarray(ticks, dtype=np.int64) / TICKS_PER_SECOND
