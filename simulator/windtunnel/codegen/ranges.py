"""Which integers of 64 bits have values of 32 bits, for languages that lack the wide ones.

Sizes and indices of threads are of 64 bits in OpenCL C, and so are offsets of pointers. Grids have fewer than 2^31
threads along an axis, and pointers stay within arrays of fewer than 2^31 elements, so these numbers fit into 32 bits.
"""

from __future__ import annotations

from math import gcd

from windtunnel.language import ir
from windtunnel.language.types import I64, Scalar

_LITERAL = 1 << 16
"""The largest literal in a product of sizes."""
_KEEPS = ("+", "*", "//", "%", ">>", "&", "min", "max")


def is_wide(kind: Scalar | None) -> bool:
    """Return whether a type is of integers with 64 bits."""
    return kind is not None and kind.kind in ("int", "uint") and kind.bits == 64


class Ranges:
    """The values of a kernel's expressions. Without ``assumed``, none is known to fit."""

    def __init__(self, program: ir.Program, *, assumed: bool) -> None:
        self.assumed = assumed
        self.variables = {name for name, kind in program.variables.items() if is_wide(kind)} if assumed else set()
        """The variables of 64 bits whose values fit into 32."""
        while True:
            body = list(ir.walk(program.body))
            wrong = {one.name for one in body if isinstance(one, ir.Assign) and not self.fits(one.value)}
            wrong |= {one.name for one in body if isinstance(one, ir.For) and not self.counts(one)}
            if not wrong & self.variables:
                return
            self.variables -= wrong

    def counts(self, loop: ir.For) -> bool:
        """Return whether a loop's counter fits."""
        return all(self.fits(e) for e in (loop.start, loop.stop, loop.step))

    def fits(self, e: ir.Expr) -> bool:
        """Return whether the value of an integer fits into 32 bits, with its sign."""
        if not self.assumed:
            return False
        match e:
            case ir.Literal(value=value):
                return -(2**31) <= value < 2**31
            case ir.Variable(name=name) if is_wide(e.type):
                return name in self.variables
            case ir.Call(op=op):
                return op.startswith("index.")  # an offset within an array
            case ir.Convert(operand=operand) if operand.type is not None and operand.type.kind != "float":
                signed = operand.type.kind == "int" and e.type == I64
                return _small(e) or (signed and (operand.type.bits <= 32 or self.fits(operand)))
            case ir.Select(yes=yes, no=no):
                return self.fits(yes) and self.fits(no)
        return _small(e)


def _small(e: ir.Expr) -> bool:
    """Return whether an expression is of sizes, indices and small literals only, and not negative."""
    match e:
        case ir.Literal(value=value):
            return isinstance(value, int) and 0 <= value <= _LITERAL
        case ir.Index() | ir.Size():
            return True
        case ir.Convert(operand=operand):
            return operand.type is not None and operand.type.kind != "float" and _small(operand)
        case ir.Binary(op=op, left=left, right=right):
            return op in _KEEPS and _small(left) and _small(right)
    return False


def in_elements(left: ir.Expr, right: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Return two offsets that are compared, in the largest unit of which both are multiples."""
    sums = [_sum_of(e) for e in (left, right)]
    numbers = [n for one in sums if one is not None for n in _constants(one)]
    unit = gcd(*numbers) if numbers and None not in sums else 1
    if unit <= 1:
        return left, right
    a, b = (_divided(one, unit) for one in sums if one is not None)
    return a, b


def _sum_of(e: ir.Expr) -> ir.Call | ir.Literal | None:
    while isinstance(e, ir.Call) and e.op == "index.exact":
        e = e.arguments[0]
    return e if isinstance(e, ir.Literal) or (isinstance(e, ir.Call) and e.op == "index.linear") else None


def _constants(e: ir.Call | ir.Literal) -> list[int]:
    literals = [e] if isinstance(e, ir.Literal) else [e.arguments[0], *e.arguments[2::2]]
    return [int(one.value) for one in literals if isinstance(one, ir.Literal)]


def _divided(e: ir.Call | ir.Literal, unit: int) -> ir.Expr:
    if isinstance(e, ir.Literal):
        return ir.Literal(e.line, int(e.value) // unit, type=e.type)
    scaled = [
        ir.Literal(one.line, int(one.value) // unit, type=one.type)
        if number % 2 == 0 and isinstance(one, ir.Literal)
        else one
        for number, one in enumerate(e.arguments)
    ]
    return ir.Call(e.line, e.op, scaled, type=e.type)
