"""Choices that decide what is evaluated, as statements: for a side that other statements have to come ahead of."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.language import ir
from windtunnel.language.types import BOOL

_TRUTHS = ("<", "<=", ">", ">=", "==", "!=")


def decided(op: str, left: ir.Expr, ahead: Sequence[ir.Stmt], right: ir.Expr, name: str) -> list[ir.Stmt]:
    """``name = left and right`` (or ``or``), where ``ahead`` is for the right side alone."""
    line = left.line
    value = ir.Variable(line, name)
    condition = value if op == "and" else ir.Unary(line, "not", value)
    goes_on = [*ahead, ir.Assign(right.line, name, _truth(right))]
    return [ir.Assign(line, name, _truth(left)), ir.If(line, condition, goes_on, [])]


def chosen(
    condition: ir.Expr, yes: tuple[list[ir.Stmt], ir.Expr], no: tuple[list[ir.Stmt], ir.Expr], name: str
) -> ir.If:
    """``name = yes if condition else no``, each with what has to come ahead of it."""
    sides = [[*ahead, ir.Assign(value.line, name, value)] for ahead, value in (yes, no)]
    return ir.If(condition.line, condition, *sides)


def _truth(value: ir.Expr) -> ir.Expr:
    """A number on a side of ``and`` counts as true or false: the variable is no number."""
    known = (
        isinstance(value, ir.Logic)
        or (isinstance(value, ir.Unary) and value.op == "not")
        or (isinstance(value, ir.Binary) and value.op in _TRUTHS)
    )
    return value if known else ir.Convert(value.line, BOOL, value)
