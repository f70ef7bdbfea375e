"""``and``, ``or`` and conditional expressions as statements, for a side that other statements must precede."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.language import ir
from windtunnel.language.types import BOOL

_TRUTHS = ("<", "<=", ">", ">=", "==", "!=")


def decided(op: str, left: ir.Expr, ahead: Sequence[ir.Stmt], right: ir.Expr, name: str) -> list[ir.Stmt]:
    """Return ``name = left and right`` (or ``or``); the statements ``ahead`` belong to the right side."""
    line = left.line
    value = ir.Variable(line, name)
    condition = value if op == "and" else ir.Unary(line, "not", value)
    goes_on = [*ahead, ir.Assign(right.line, name, _truth(right))]
    return [ir.Assign(line, name, _truth(left)), ir.If(line, condition, goes_on, [])]


def chosen(
    condition: ir.Expr, yes: tuple[list[ir.Stmt], ir.Expr], no: tuple[list[ir.Stmt], ir.Expr], name: str
) -> ir.If:
    """Return ``name = yes if condition else no``; each side has the statements that must precede it."""
    sides = [[*ahead, ir.Assign(value.line, name, value)] for ahead, value in (yes, no)]
    return ir.If(condition.line, condition, *sides)


def _truth(value: ir.Expr) -> ir.Expr:
    """Convert a side of ``and`` to a bool, because the variable is one."""
    known = (
        isinstance(value, ir.Logic)
        or (isinstance(value, ir.Unary) and value.op == "not")
        or (isinstance(value, ir.Binary) and value.op in _TRUTHS)
    )
    return value if known else ir.Convert(value.line, BOOL, value)
