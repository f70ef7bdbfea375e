"""A kernel's numbers as its device's API has them: types that it lacks, TF32, subnormal numbers.

The typed tree is changed before anything executes it, so that whatever executes it need not know of devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from windtunnel.core.device import Numbers
from windtunnel.language import ir
from windtunnel.language.types import F32, Scalar

_COMPARED = ("<", "<=", ">", ">=", "==", "!=")
_WORKED = ("+", "-", "*", "/", "//", "%", "**", *_COMPARED)
_MOVES = ("math.fabs", "math.copysign", "math.isnan", "math.isinf")
"""Functions that look at a number's bits, or set them, and are no arithmetic."""


def lacking(program: ir.Program, lacks: Collection[str]) -> tuple[Scalar, int] | None:
    """(a type that an inferred kernel needs and the API lacks, the first line that needs it); None where it lacks none.

    ``lacks``: names of types.
    """
    return min((found for found in _types(program) if found[0].name in lacks), key=lambda one: one[1], default=None)


def _types(program: ir.Program) -> Iterator[tuple[Scalar, int]]:
    for parameter in program.parameters:
        array = program.arrays.get(parameter.name)
        yield (array.element if array is not None else program.scalars[parameter.name]), parameter.line
    for declared in program.declared.values():
        yield declared.element, declared.line
    for one in ir.walk(program.body):
        for e in ir.expressions(one):
            if e.type is not None:
                yield e.type, e.line


def adapted(program: ir.Program, numbers: Numbers) -> ir.Program:
    """An inferred kernel, changed in place to round as the API's numbers are, and to flush where they are flushed.

    Subnormal numbers of ``f32`` that are flushed are zero, with their sign, to arithmetic, functions and comparisons,
    and where these give them. Loads, stores, choices, ``min``, ``max``, signs and atomic operations leave them.
    """
    away, flushed = numbers.tf32 == "nearest-away", numbers.subnormals == "flushed"
    if away or flushed:
        for one in ir.walk(program.body):
            _within(one, away, flushed)
    return program


def _within(holder: ir.Stmt | ir.Expr, away: bool, flushed: bool) -> None:
    """Change the expressions directly in a statement or an expression."""
    for name, value in list(vars(holder).items()):
        if isinstance(value, ir.Expr):
            setattr(holder, name, _changed(value, away, flushed))
        elif isinstance(value, (list, tuple)) and any(isinstance(item, ir.Expr) for item in value):
            setattr(holder, name, [_changed(item, away, flushed) for item in value])


def _changed(e: ir.Expr, away: bool, flushed: bool) -> ir.Expr:
    _within(e, away, flushed)
    if away and isinstance(e, ir.Call) and e.op == "round.tf32":
        e.op = "round.tf32_away"
    if not flushed:
        return e
    match e:
        case ir.Binary(op=op, left=left, right=right) if op in _WORKED and F32 in (left.type, right.type):
            e.left, e.right = _flushed(left), _flushed(right)
        case ir.Call(op=op, arguments=arguments) if e.type == F32 and op not in _MOVES and not op.startswith("round."):
            e.arguments = [_flushed(argument) for argument in arguments]
        case _:
            return e
    return _flushed(e)


def _flushed(e: ir.Expr) -> ir.Expr:
    done = isinstance(e, ir.Call) and e.op == "round.flush"
    return e if done or e.type != F32 else ir.Call(e.line, "round.flush", [e], type=F32)
