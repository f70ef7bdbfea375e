"""Typed expressions of the tree: conversions and arithmetic as C defines them, with what is known folded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.types import BOOL, I32, I64, U32, U64, Scalar

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def literal(line: int, value: float | bool, kind: Scalar) -> ir.Literal:
    """Return a number of a type; an integer keeps the low bits that fit, and a float becomes the nearest integer."""
    return ir.Literal(line, _fitted(value, kind), type=kind)


def _fitted(value: float | bool, kind: Scalar) -> int | float | bool:
    if kind == BOOL:
        return bool(value)
    if kind.kind == "float":
        with np.errstate(all="ignore"):
            return float(kind.dtype.type(value))
    if isinstance(value, float):
        low, high = np.iinfo(kind.dtype).min, np.iinfo(kind.dtype).max
        return 0 if math.isnan(value) else int(low) if value < low else int(high) if value > high else int(value)
    value = int(value) & (2**kind.bits - 1)
    return value - 2**kind.bits if kind.kind == "int" and value >= 2 ** (kind.bits - 1) else value


def is_integer(kind: Scalar | None) -> bool:
    """Return whether a type is one of integers, or of Booleans."""
    return kind is not None and kind.kind != "float"


# Long: one case for each pair of kinds.
def converted(e: ir.Expr, to: Scalar) -> ir.Expr:
    """Return an expression in another type, converted as C does."""
    have = e.type
    assert have is not None  # noqa: S101  all expressions here have types
    if have == to:
        return e
    if isinstance(e, ir.Literal):
        return literal(e.line, e.value, to)
    if to == BOOL and isinstance(e, ir.Convert) and e.operand.type == BOOL:
        return e.operand
    wraps = is_integer(have) and is_integer(to) and BOOL not in (have, to)
    if wraps and isinstance(e, ir.Convert):
        inner = e.operand.type
        assert inner is not None  # noqa: S101  as above
        # The low bits are those of the first operand if the conversion between kept them all.
        if (
            is_integer(inner)
            and inner != BOOL
            and have.bits >= max(to.bits, 1)
            and (to.bits <= inner.bits or have.kind == inner.kind or (have.kind == "int" and inner.kind == "uint"))
        ):
            return converted(e.operand, to)
    if wraps and to == I32 and have == U32 and isinstance(e, ir.Binary) and e.op in "+-*" and has_index(e):
        return ir.Binary(e.line, e.op, converted(e.left, to), converted(e.right, to), type=to)
    if to.kind in ("int", "uint") and have.kind == "float":
        return ir.Call(e.line, f"int.saturated_{to.name}", [e], type=to)
    return ir.Convert(e.line, to, e, type=to)


def truth(e: ir.Expr) -> ir.Expr:
    """Return a condition."""
    return converted(e, BOOL)


def has_index(e: ir.Expr) -> bool:
    """Return whether the index of a thread or a block is in an expression of sums and products."""
    return any(isinstance(one, ir.Index) for one in ir.inside(e))


def non_negative(e: ir.Expr) -> bool:
    """Return whether an i32 expression is certainly not negative: indices, and sums and products of them."""
    if isinstance(e, ir.Literal):
        return e.value >= 0
    if isinstance(e, ir.Index):
        return True
    return isinstance(e, ir.Binary) and e.op in "+*" and non_negative(e.left) and non_negative(e.right)


def is_positive(e: ir.Expr) -> bool:
    """Return whether an integer is certainly not zero: a constant, sizes of the launch, and products of them."""
    if isinstance(e, ir.Literal):
        return e.value != 0
    if isinstance(e, ir.Convert):
        return is_integer(e.type) and e.type != BOOL and is_positive(e.operand)
    if isinstance(e, ir.Index):
        return e.what.endswith("size")
    return isinstance(e, ir.Binary) and e.op == "*" and is_positive(e.left) and is_positive(e.right)


def as_signed(e: ir.Expr) -> ir.Expr | None:
    """Return an unsigned expression of thread indices as the equal i32 one; None for another expression."""
    if e.type == I32:
        return e if non_negative(e) else None
    if isinstance(e, ir.Literal) and is_integer(e.type):
        return literal(e.line, e.value, I32) if 0 <= e.value < 2**31 else None
    if isinstance(e, ir.Convert) and e.type in (U32, U64, I64) and e.operand.type in (I32, U32):
        return as_signed(e.operand)
    if isinstance(e, ir.Binary) and e.op in ("+", "*") and e.type in (U32, U64, I64):
        left, right = as_signed(e.left), as_signed(e.right)
        if left is not None and right is not None:
            return ir.Binary(e.line, e.op, left, right, type=I32)
    return None


def as_index(e: ir.Expr) -> ir.Expr:
    """Return an integer expression without conversions that do not change its value."""
    signed = as_signed(e)
    if signed is not None:
        return signed
    if isinstance(e, ir.Convert) and e.operand.type is not None and is_integer(e.operand.type):
        inner, outer = e.operand.type, e.type
        assert outer is not None  # noqa: S101  all expressions here have types
        keeps = inner != BOOL and outer.bits > inner.bits and (outer.kind == "int" or inner.kind == "uint")
        if keeps:
            return as_index(e.operand)
    return e


_FOLDED = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
}  # fmt: skip


# Long: one case for each group of operators.
def binary(line: int, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """Return an operation on two numbers of one type (shifts: on any two integers) by C's rules."""
    kind = left.type
    assert kind is not None  # noqa: S101  all expressions here have types
    both = isinstance(left, ir.Literal) and isinstance(right, ir.Literal)
    if op in COMPARISONS:
        signed = (as_signed(left), as_signed(right))
        if signed[0] is not None and signed[1] is not None:
            left, right = signed[0], signed[1]
        return ir.Binary(line, op, left, right, type=BOOL)
    if op in _FOLDED and is_integer(kind) and kind != BOOL:
        if both:
            return literal(line, _FOLDED[op](int(left.value), int(right.value)), kind)  # type: ignore[attr-defined]
        if op == "+" and isinstance(right, ir.Literal) and right.value == 0:
            return left
        if op == "*" and isinstance(right, ir.Literal) and right.value == 1:
            return left
    if op in ("<<", ">>"):
        return _shift(line, op, left, right, kind)
    if op in ("/", "%") and is_integer(kind):
        plain = kind.kind == "uint"
        if not plain and isinstance(right, ir.Literal) and right.value > 0 and non_negative(left):
            plain = True
        if plain:
            return ir.Binary(line, "//" if op == "/" else "%", left, right, type=kind)
        return ir.Call(line, "int.quotient" if op == "/" else "int.remainder", [left, right], type=kind)
    if op == "%":
        return ir.Call(line, "math.fmod", [left, right], type=kind)
    return ir.Binary(line, op, left, right, type=kind)


def _shift(line: int, op: str, left: ir.Expr, right: ir.Expr, kind: Scalar) -> ir.Expr:
    if isinstance(left, ir.Literal) and isinstance(right, ir.Literal) and 0 <= right.value < kind.bits:
        value, by = int(left.value), int(right.value)
        return literal(line, value << by if op == "<<" else value >> by, kind)
    return ir.Binary(line, op, left, converted(right, kind), type=kind)


def unary(line: int, op: str, operand: ir.Expr) -> ir.Expr:
    """Return ``-x``, ``~x`` or ``not x``."""
    kind = BOOL if op == "not" else operand.type
    assert kind is not None  # noqa: S101  all expressions here have types
    if isinstance(operand, ir.Literal):
        value: Any = operand.value
        if op == "-":
            return literal(line, -value, kind)
        if op == "~":
            return literal(line, ~int(value), kind)
        return literal(line, not value, BOOL)
    return ir.Unary(line, op, operand, type=kind)


def select(line: int, condition: ir.Expr, yes: ir.Expr, no: ir.Expr) -> ir.Expr:
    """Return ``condition ? yes : no`` of two numbers of one type."""
    if isinstance(condition, ir.Literal):
        return yes if condition.value else no
    return ir.Select(line, condition, yes, no, type=yes.type)


def bits_as(e: ir.Expr, to: Scalar) -> ir.Expr:
    """Return the bits of a number as a number of another type of the same size."""
    if e.type == to:
        return e
    assert e.type is not None and e.type.bits == to.bits, (e.type, to)  # noqa: S101  the caller has seen it
    if is_integer(e.type) and is_integer(to) and BOOL not in (e.type, to):
        return converted(e, to)
    return ir.Call(e.line, f"bits.as_{to.name}", [e], type=to)


def is_plain(e: ir.Expr) -> bool:
    """Return whether an expression may be evaluated twice, at no cost."""
    if isinstance(e, (ir.Literal, ir.Index)):
        return True
    if isinstance(e, ir.Convert):
        return is_plain(e.operand)
    return isinstance(e, ir.Binary) and e.op in "+-*" and is_plain(e.left) and is_plain(e.right)
