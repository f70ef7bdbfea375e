"""Number formats of the device's API: missing types, rounding to TF32, and subnormal numbers.

The typed tree of a kernel is changed before it is compiled, so that its execution does not depend on the device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from windtunnel.core.spec import Numbers
from windtunnel.language import ir
from windtunnel.language.types import F32, Scalar

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_OPERATORS = ("+", "-", "*", "/", "//", "%", "**", *_COMPARISONS)
_BIT_FUNCTIONS = ("math.fabs", "math.copysign", "math.isnan", "math.isinf")
"""Functions that read or set bits of a number and are not arithmetic."""


def first_missing_type(program: ir.Program, lacks: Collection[str]) -> tuple[Scalar, int] | None:
    """Return a type that a kernel needs and the API ``lacks``, with the first such line; None if there is none."""
    missing = ((kind, line) for kind, line in _types(program) if kind.name in lacks)
    return min(missing, key=lambda type_and_line: type_and_line[1], default=None)


def _types(program: ir.Program) -> Iterator[tuple[Scalar, int]]:
    for parameter in program.parameters:
        array = program.arrays.get(parameter.name)
        yield (array.element if array is not None else program.scalars[parameter.name]), parameter.line
    for declared in program.declared.values():
        yield declared.element, declared.line
    for statement in ir.walk(program.body):
        for e in ir.expressions(statement):
            if e.type is not None:
                yield e.type, e.line


def adapt_numbers(program: ir.Program, numbers: Numbers) -> ir.Program:
    """Change a typed kernel in place, so that it rounds and flushes as the API does, and return it.

    If the API flushes subnormal ``f32`` numbers, operands and results of arithmetic, functions and comparisons are
    replaced by zero of the same sign. Loads, stores, selections, ``min``, ``max``, signs and atomic operations keep
    subnormal numbers.
    """
    away, flushes = numbers.tf32 == "nearest-away", numbers.subnormals == "flushed"
    if away or flushes:
        for statement in ir.walk(program.body):
            _adapt_operands(statement, away, flushes)
    return program


def _adapt_operands(holder: ir.Stmt | ir.Expr, away: bool, flushes: bool) -> None:
    """Adapt the expressions directly in a statement or an expression."""
    for name, value in list(vars(holder).items()):
        if isinstance(value, ir.Expr):
            setattr(holder, name, _adapt(value, away, flushes))
        elif isinstance(value, (list, tuple)) and any(isinstance(item, ir.Expr) for item in value):
            setattr(holder, name, [_adapt(item, away, flushes) for item in value])


def _adapt(e: ir.Expr, away: bool, flushes: bool) -> ir.Expr:
    _adapt_operands(e, away, flushes)
    if away and isinstance(e, ir.Call) and e.op == "round.tf32":
        e.op = "round.tf32_away"
    if not flushes:
        return e
    match e:
        case ir.Binary(op=op, left=left, right=right) if op in _OPERATORS and F32 in (left.type, right.type):
            e.left, e.right = _flushed(left), _flushed(right)
        case ir.Call(op=op, arguments=arguments) if (
            e.type == F32 and op not in _BIT_FUNCTIONS and not op.startswith("round.")
        ):
            e.arguments = [_flushed(argument) for argument in arguments]
        case _:
            return e
    return _flushed(e)


def _flushed(e: ir.Expr) -> ir.Expr:
    is_flushed = isinstance(e, ir.Call) and e.op == "round.flush"
    return e if is_flushed or e.type != F32 else ir.Call(e.line, "round.flush", [e], type=F32)
