"""Limits on the time that Windtunnel waits for a process or a driver, which a slow or busy host may lengthen."""

from __future__ import annotations

import math
import os

from windtunnel.core.errors import InputError

VARIABLE = "WINDTUNNEL_TIMEOUT_FACTOR"
"""The environment variable for slow or busy hosts. It multiplies every limit on the time that Windtunnel waits for a
process or a driver. Child processes inherit it."""


def time_limit(seconds: float) -> float:
    """Return ``seconds`` times the factor of the environment, which is 1 if the variable is not set or empty.

    Raises InputError if the variable is not a positive finite number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return seconds
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0.0 < factor < math.inf:
        raise InputError(f"the environment variable {VARIABLE} is '{text}'", expected="a positive number, such as 10")
    return seconds * factor
