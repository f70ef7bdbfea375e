"""Pieces of source text with their precedence, and constant folding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar


class Piece(NamedTuple):
    """The text of an expression, and its precedence."""

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
    """Return an assignment, as ``a += b`` if possible."""
    if isinstance(e, ir.Binary) and e.op in ("+", "-", "*", "/") and isinstance(e.left, (ir.Variable, ir.Load)):
        head = f"{target} {e.op} "
        if value.startswith(head):
            rest = value[len(head) :]
            whole = rest.startswith("(") and closes_last(rest, 0)
            return f"{target} {e.op}= {rest[1:-1] if whole else rest};"
    return f"{target} = {value};"


def closes_last(text: str, opened: int) -> bool:
    """Return whether the last character closes the parenthesis at ``opened``."""
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at == len(text) - 1
    return False


def bits_of(value: float, kind: Scalar) -> float:
    """Return a number as its type represents it: integers wrap, floats are rounded."""
    if kind == BOOL:
        return bool(value)
    if kind.kind == "float":
        with np.errstate(over="ignore"):
            return float(kind.dtype.type(value))
    low = -(1 << (kind.bits - 1)) if kind.kind == "int" else 0
    return (int(value) - low) % (1 << kind.bits) + low


def folded_value(e: ir.Expr) -> float | None:
    """Return the value of an expression of literals, in the arithmetic of its types; None for another expression.

    WGSL itself would evaluate such an expression without rounding, and reject an overflow.
    """
    kind = e.type
    if kind is None:
        return None
    match e:
        case ir.Literal(value=value):
            return bits_of(value, kind)
        case ir.Convert(operand=operand):
            inner = folded_value(operand)
            if inner is None or operand.type is None or (operand.type.kind == "float" and kind.kind != "float"):
                return None
            return bits_of(inner, kind)
        case ir.Unary(op=op, operand=operand):
            inner = folded_value(operand)
            return None if inner is None else _unary(op, inner, kind)
        case ir.Select(condition=condition, yes=yes, no=no):
            holds, left, right = folded_value(condition), folded_value(yes), folded_value(no)
            return None if holds is None or left is None or right is None else left if holds else right
        case ir.Binary(op=op, left=left, right=right):
            first, second = folded_value(left), folded_value(right)
            return None if first is None or second is None else _binary(op, first, second, kind)
    return None


def _unary(op: str, value: float, kind: Scalar) -> float | None:
    match op:
        case "-":
            return bits_of(-value, kind)
        case "~" if isinstance(value, int) and kind != BOOL:
            return bits_of(~value, kind)
        case "abs":
            return bits_of(abs(value), kind)
        case "not":
            return not value
    return value if op == "+" else None


def _binary(op: str, a: float, b: float, kind: Scalar) -> float | None:
    if op in COMPARISONS:
        return {
            "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b,
            "!=": a != b,
        }[op]  # fmt: skip
    if kind == BOOL or (kind.kind == "float" and not np.isfinite([a, b]).all()):
        return None
    match op:
        case "+" | "-" | "*":
            # Rounding twice, first to 53 and then to at most 24 bits, gives the same number.
            return bits_of({"+": a + b, "-": a - b, "*": a * b}[op], kind)
        case "/" if b != 0:
            return bits_of(a / b, kind)
    if not isinstance(a, int) or not isinstance(b, int):
        return None
    match op:
        case "min" | "max":
            return min(a, b) if op == "min" else max(a, b)
        case "//" | "%" if b != 0:
            return bits_of(a // b if op == "//" else a % b, kind)
        case "<<" | ">>" if b >= 0:
            return bits_of(a << min(b, 64) if op == "<<" else a >> min(b, 64), kind)
        case "&" | "|" | "^":
            return bits_of({"&": a & b, "|": a | b, "^": a ^ b}[op], kind)
    return None


def c_string(text: str) -> str:
    """Return a text as a literal of C."""
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
    made = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in escaped else escaped.get(chr(byte), f"\\{byte:03o}")
        for byte in text.encode()
    )
    return f'"{made}"'
