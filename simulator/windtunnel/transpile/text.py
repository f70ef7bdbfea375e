"""Pieces of source text: how tightly they bind, and what can be worked out while writing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar


class Piece(NamedTuple):
    """Text of an expression, and how tightly it binds."""

    text: str
    level: int


PRIMARY, UNARY, MULTIPLY, ADD, SHIFT, COMPARE, EQUAL, AND, XOR, OR, BOTH, EITHER, CHOICE = range(13, 0, -1)
LEVELS: Mapping[str, int] = {
    "*": MULTIPLY, "/": MULTIPLY, "//": MULTIPLY, "%": MULTIPLY, "+": ADD, "-": ADD, "<<": SHIFT, ">>": SHIFT,
    "<": COMPARE, "<=": COMPARE, ">": COMPARE, ">=": COMPARE, "==": EQUAL, "!=": EQUAL, "&": AND, "^": XOR, "|": OR,
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
BITS = ("&", "|", "^")
WRAPS = ("+", "-", "*")


def updated(target: str, e: ir.Expr, value: str) -> str:
    """An assignment, as ``a += b`` where that is what it is."""
    if isinstance(e, ir.Binary) and e.op in ("+", "-", "*", "/") and isinstance(e.left, (ir.Variable, ir.Load)):
        head = f"{target} {e.op} "
        if value.startswith(head):
            rest = value[len(head) :]
            whole = rest.startswith("(") and closes_last(rest, 0)
            return f"{target} {e.op}= {rest[1:-1] if whole else rest};"
    return f"{target} = {value};"


def closes_last(text: str, opened: int) -> bool:
    """Whether the parenthesis at ``opened`` is closed by the last character."""
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at == len(text) - 1
    return False


def bits_of(value: float, kind: Scalar) -> float:
    """A literal as its type holds it: integers wrapped, floats rounded."""
    if kind == BOOL:
        return bool(value)
    if kind.kind == "float":
        with np.errstate(over="ignore"):
            return float(kind.dtype.type(value))
    low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
    return (int(value) - low) % (1 << kind.bits) + low


def folded_value(e: ir.Binary) -> float | None:
    """The value of an operation on two integer literals; WGSL would refuse it if it overflows."""
    kind = e.type
    if kind is None or not isinstance(e.left, ir.Literal) or not isinstance(e.right, ir.Literal):
        return None
    if kind.kind not in ("int", "uint") or kind == BOOL or e.op in COMPARISONS:
        return None
    one, other = bits_of(e.left.value, kind), bits_of(e.right.value, kind)
    assert isinstance(one, int) and isinstance(other, int)  # noqa: S101  their type is an integer's
    match e.op:
        case "+" | "-" | "*":
            made = {"+": one + other, "-": one - other, "*": one * other}[e.op]
        case "//" | "%" if other != 0:
            made = one // other if e.op == "//" else one % other
        case "<<" | ">>" if other >= 0:
            made = one << min(other, 64) if e.op == "<<" else one >> min(other, 64)
        case "&" | "|" | "^":
            made = {"&": one & other, "|": one | other, "^": one ^ other}[e.op]
        case _:
            return None
    return bits_of(made, kind)
