"""Operations of floats whose results are rounded up, down or towards zero, exactly as IEEE 754 defines them.

Each computes the result that is rounded to nearest and the sign of its error, and moves to the neighbour if the nearest
is on the wrong side. The sign follows from error-free transformations, and from exact fractions where their
intermediate results would leave the range of normal numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from windtunnel.emulator.common.fused import fma_f64, product_error, to_odd, two_sum
from windtunnel.emulator.common.lanes import Value
from windtunnel.emulator.common.symbolic import materialise

WAYS = ("rz", "ru", "rd")
"""Towards zero, up, down."""
_LARGE = 2.0**900


def _moved(near: np.ndarray, sign: np.ndarray, way: str) -> np.ndarray:
    """Return the result in a direction, given the one that is rounded to nearest and the sign of what it lacks."""
    kind = near.dtype.type
    if way == "ru":
        return np.where(sign > 0, np.nextafter(near, kind(np.inf)), near)
    if way == "rd":
        return np.where(sign < 0, np.nextafter(near, kind(-np.inf)), near)
    return np.where(sign * np.sign(near) < 0, np.nextafter(near, kind(0)), near)


def _single(way: str) -> Any:
    def function(value: Value) -> Any:
        wide = np.asarray(materialise(value), np.float64)
        with np.errstate(all="ignore"):
            near = wide.astype(np.float32)
            return _moved(near, np.sign(wide - near), way)[()]

    return function


def _integer(kind: Any, way: str) -> Any:
    def function(value: Value) -> Any:
        whole = np.asarray(materialise(value))
        near = whole.astype(kind)
        # The largest integers are rounded to a power of two that their type does not have.
        beyond = near >= kind(2.0 ** (8 * whole.dtype.itemsize - (whole.dtype.kind == "i")))
        back = np.where(beyond, kind(0), near).astype(whole.dtype)
        sign = np.where(beyond, -1, (whole > back).astype(np.int8) - (whole < back))
        return _moved(near, sign, way)[()]

    return function


# The sign of what the nearest result lacks, for numbers of ordinary size.


def _of_sum(_: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    return np.sign(two_sum(a, b)[1])


def _of_product(product: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    return np.sign(product_error(a, b, product))


def _of_quotient(quotient: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
    product = quotient * b
    return np.sign((a - product) - product_error(quotient, b, product)) * np.sign(b)


def _of_root(root: np.ndarray, x: np.ndarray) -> Any:
    product = root * root
    return np.sign((x - product) - product_error(root, root, product))


def _of_fused(fused: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Any:
    """Return the sign of the error of a fused product and sum.

    The exact sum is ``top``, ``small`` and ``error``, which do not overlap. What the fused result lacks of the first
    two is a multiple of the last bit of ``small``, and so more than ``error``, or nothing.
    """
    product = a * b
    high, part = two_sum(c, product_error(a, b, product))
    top, rest = two_sum(product, high)
    small, error = two_sum(part, rest)
    missing, left = two_sum(top - fused, small)
    return np.where(missing != 0, np.sign(missing), np.where(left != 0, np.sign(left), np.sign(error)))


_OPERATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Fraction]]] = {
    "add": (np.add, _of_sum, operator.add),
    "mul": (np.multiply, _of_product, operator.mul),
    "div": (np.divide, _of_quotient, operator.truediv),
    "sqrt": (np.sqrt, _of_root, lambda x: x),
    "fma": (fma_f64, _of_fused, lambda a, b, c: a * b + c),
}
"""What rounds to nearest, the sign of its error, and the exact result; of a root, the square of that."""


def _by_fractions(name: str, near: float, given: tuple[float, ...]) -> tuple[float, int]:
    """Return the result of finite numbers that is rounded to nearest, and the sign of what it lacks."""
    exact = _OPERATIONS[name][2](*map(Fraction, given))
    if name == "fma" and exact:
        try:
            near = float(exact)
        except OverflowError:
            near = np.inf if exact > 0 else -np.inf
    if np.isinf(near):
        return near, -1 if near > 0 else 1
    difference = exact - Fraction(near) ** (2 if name == "sqrt" else 1)
    return near, (difference > 0) - (difference < 0)


def _is_usual(name: str, near: np.ndarray, given: list[np.ndarray]) -> np.ndarray:
    """Return where no intermediate result of the error-free transformations leaves the range of normal numbers."""
    usual: np.ndarray = np.logical_and.reduce([np.abs(one) < _LARGE for one in (*given, near)])
    if name == "add":
        return usual  # errors of sums do not underflow
    for one in given:
        usual &= (np.abs(one) > 1 / _LARGE) | (one == 0)
    product = given[0] * given[1] if name == "fma" else near
    is_zero = np.logical_or.reduce([one == 0 for one in (given[:1] if name == "div" else given[:2])])
    usual &= (np.abs(product) < _LARGE) & ((np.abs(product) > 1 / _LARGE) | is_zero)
    return usual


def _double(name: str, way: str, given: list[np.ndarray]) -> np.ndarray:
    nearest, error_sign, _ = _OPERATIONS[name]
    near = np.array(nearest(*given), ndmin=1)
    sign = np.array(error_sign(near, *given), ndmin=1)
    finite = ~np.isnan(near) & np.logical_and.reduce([np.isfinite(one) for one in given])
    if name == "div":
        finite &= given[1] != 0
    for place in zip(*np.nonzero(finite & ~_is_usual(name, near, given)), strict=True):
        near[place], sign[place] = _by_fractions(name, float(near[place]), tuple(float(one[place]) for one in given))
    return _moved(near, np.where(finite, sign, 0), way)


def _directed(name: str, way: str) -> Any:
    """Return an operation that is rounded in a direction."""
    single = _single(way)

    def function(*values: Value) -> Any:
        arrays = [np.asarray(materialise(value)) for value in values]
        shape, kind = np.broadcast_shapes(*(one.shape for one in arrays)), arrays[0].dtype
        given = [np.broadcast_to(one.astype(np.float64), shape or (1,)) for one in arrays]
        with np.errstate(all="ignore"):
            if kind == np.float64:
                made = _double(name, way, given)
            elif name in ("add", "fma"):
                first = given[0] if name == "add" else given[0] * given[1]  # exact
                total, error = two_sum(first, given[-1])
                made = single(to_odd(total, np.where(np.isfinite(total), error, 0)))
            else:
                # These are exact in float64, or too far from a float32 for a second rounding to matter.
                made = single(_OPERATIONS[name][0](*given))
            if way == "rd" and name in ("add", "fma"):
                made = _with_zero(made, given)
        return made.astype(kind).reshape(shape)[()]

    return function


def _with_zero(made: np.ndarray, given: list[np.ndarray]) -> np.ndarray:
    """Return sums that are rounded down: one that is exactly zero is negative, unless both terms are positive zeros."""
    *factors, last = given
    first = factors[0] if len(factors) == 1 else factors[0] * factors[1]
    both_positive = ~np.signbit(first) & ~np.signbit(last)
    return np.where((made == 0) & ~both_positive, made.dtype.type(-0.0), made)


FUNCTIONS = {
    **{f"f32_{way}": _single(way) for way in WAYS},
    **{f"{name}_{way}": _directed(name, way) for name in _OPERATIONS for way in WAYS},
    **{f"{name}_of_{way}": _integer(kind, way) for name, kind in (("f32", np.float32), ("f64", np.float64))
       for way in WAYS},
}  # fmt: skip
"""All functions by the names that the emitted code uses."""
