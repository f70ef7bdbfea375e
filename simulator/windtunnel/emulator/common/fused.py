"""Products and sums that are rounded once, and the errors of sums and products that are rounded to nearest."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.emulator.common.lanes import Value
from windtunnel.emulator.common.symbolic import materialise


class _FmaBudget:
    """The numbers that this process computes by `fma` in NumPy; from then on it imports the compiled one."""

    left = 1 << 22
    """Of float32; a number of float64 counts as 16."""

    @classmethod
    def is_spent(cls, count: int, size: int) -> bool:
        """Return whether so many more numbers exceed the budget, and charge them."""
        cls.left -= count * (16 if size == 8 else 1)
        return cls.left < 0


def fma(a: Value, b: Value, c: Value) -> Any:
    """Return ``a * b + c``, rounded once. Numbers of 16 bits are computed in float32."""
    a, b, c = (materialise(v) for v in (a, b, c))
    if a.dtype.itemsize == 2:
        return (a.astype(np.float32) * b.astype(np.float32) + c.astype(np.float32)).astype(a.dtype)
    if _FmaBudget.is_spent(max(np.size(a), np.size(b), np.size(c)), a.dtype.itemsize):
        from windtunnel.emulator.common import compiled_fma

        return compiled_fma.fma(a, b, c)
    return fma_f64(a, b, c) if a.dtype == np.float64 else fma_f32(a, b, c)


def fma_f32(a: Value, b: Value, c: Value) -> Any:
    """Return ``a * b + c`` of float32 numbers, by float64: the product is exact, and the sum is rounded to odd."""
    with np.errstate(all="ignore"):
        total, error = two_sum(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64))
        return to_odd(np.asarray(total), np.asarray(error)).astype(np.float32)[()]


def to_odd(total: Value, error: Value) -> Any:
    """Return rounded sums with their errors as sums rounded to odd, which may be rounded once more.

    An inexact sum whose last bit is 0 becomes its neighbour on the side of the exact sum.
    """
    even = (total.view(np.int64) & 1) == 0
    neighbour = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, neighbour, total)


def fma_f64(a: Value, b: Value, c: Value) -> Any:
    """Return the correctly rounded ``a * b + c`` of float64 numbers.

    By S. Boldo and G. Melquiond, "Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to
    Odd", IEEE Transactions on Computers 57(4), 2008. Where its intermediate results leave the range of normal numbers,
    the product and the sum are rounded separately.
    """
    with np.errstate(all="ignore"):
        product, plain = a * b, a * b + c
        size = np.abs(product)
        exact = (size > 2.0**-900) & (size < 2.0**900) & (np.abs(c) < 2.0**900)
        exact &= (np.abs(a) < 2.0**990) & (np.abs(b) < 2.0**990)
        high, low = product, product_error(a, b, product)
        sum_high, sum_low = two_sum(c, low)
        top, rest = two_sum(high, sum_high)
        small, error = two_sum(sum_low, rest)
        return np.where(exact, top + to_odd(small, error), plain)[()]


def two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return the rounded sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def product_error(a: Value, b: Value, product: Value) -> Value:
    """Return the error of a rounded product (Dekker), with factors split into halves of 26 bits (Veltkamp)."""

    def halves(x: Value) -> tuple[Value, Value]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
