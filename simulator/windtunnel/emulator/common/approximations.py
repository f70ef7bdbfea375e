"""Functions of float32 that NVIDIA's GPUs approximate, ``fast_sinf`` and its like, from PTX's instructions.

Each is the formula of the CUDA C++ Programming Guide ("Intrinsic Functions") with the instruction's own result computed
exactly, so that it has the errors of the formula (large arguments, rounded products) and not those of the tables.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.emulator.common.lanes import Value
from windtunnel.emulator.common.symbolic import materialise


def _single(value: Value) -> np.ndarray:
    return np.asarray(materialise(value), np.float32)


def _turns(value: Value) -> np.ndarray:
    """Return the fraction of a turn, in radians: the number of turns is rounded to float32."""
    turns = (_single(value) * np.float32(1 / (2 * np.pi))).astype(np.float64)
    return np.asarray(np.fmod(turns, 1.0) * (2 * np.pi))


def _exp2(power: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp2(power.astype(np.float64)).astype(np.float32))


def fast_sin(value: Value) -> Any:
    """Return the sine of a number of turns in float32."""
    return np.sin(_turns(value)).astype(np.float32)[()]


def fast_cos(value: Value) -> Any:
    """Return the cosine of a number of turns in float32."""
    return np.cos(_turns(value)).astype(np.float32)[()]


def fast_tan(value: Value) -> Any:
    """Return the quotient of sine and cosine."""
    return np.asarray(fast_divide(fast_sin(value), fast_cos(value)))[()]


def fast_exp(value: Value) -> Any:
    """Return 2 to the power of the rounded product with log2(e)."""
    return _exp2(_single(value) * np.float32(math.log2(math.e)))[()]


def fast_exp10(value: Value) -> Any:
    """Return 2 to the power of the rounded product with log2(10)."""
    return _exp2(_single(value) * np.float32(np.log2(10)))[()]


def fast_log2(value: Value) -> Any:
    """Return the logarithm to the base 2."""
    return np.log2(_single(value).astype(np.float64)).astype(np.float32)[()]


def fast_log(value: Value) -> Any:
    """Return the logarithm to the base 2 times log(2)."""
    return (_single(fast_log2(value)) * np.float32(np.log(2)))[()]


def fast_log10(value: Value) -> Any:
    """Return the logarithm to the base 2 times log10(2)."""
    return (_single(fast_log2(value)) * np.float32(np.log10(2)))[()]


def fast_pow(base: Value, exponent: Value) -> Any:
    """Return 2 to the power of the exponent times the base's logarithm: NaN for negative bases and for 0 to the 0."""
    return _exp2(_single(exponent) * _single(fast_log2(base)))[()]


def fast_divide(a: Value, b: Value) -> Any:
    """Return a quotient: 0 for a divisor of 2**126 or more, and NaN if the dividend is infinite."""
    x, y = _single(a), _single(b)
    size = np.abs(y)
    is_large = (size > np.float32(2.0**126)) & np.isfinite(y)
    return np.where(is_large, np.where(np.isfinite(x), np.copysign(np.float32(0), x * y), np.float32(np.nan)), x / y)[
        ()
    ]


FUNCTIONS = {name: value for name, value in list(globals().items()) if name.startswith("fast_")}
"""All functions by the names that the emitted code uses."""
