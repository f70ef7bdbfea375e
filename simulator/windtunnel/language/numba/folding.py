"""What Python computes when it compiles a function, so that Numba never sees it: ``2 ** -1``, ``(1 << 64) - 1``.

Numba types the results, as it types any constant. They are Python's, not those of the operations on a device: 0.5, and
an integer beyond 64 bits on the way.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_NUMBERS = (bool, int, float, complex)
_MAX_BITS = 128
"""The bits of a product, power or shift of integers that Python's compiler still computes."""


def folded(node: ast.expr) -> bool | int | float | complex | str | None:
    """Return the value of an expression of constants, which Python's compiler computes; None for any other."""
    match node:
        case ast.Constant(value=value) if type(value) in _NUMBERS:
            return value  # type: ignore[return-value]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            number = folded(operand)
            return None if number is None else _applied(_UNARY[type(op)], number)
        case ast.BinOp(left=ast.Constant(value=str() as left), op=ast.Add(), right=ast.Constant(value=str() as right)):
            return left + right
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            first, second = folded(left), folded(right)
            if first is None or second is None or _is_large(op, first, second):
                return None
            return _applied(_BINARY[type(op)], first, second)
        case _:
            return None


def _applied(operation: Callable[..., Any], *numbers: Any) -> bool | int | float | complex | None:
    try:
        return operation(*numbers)  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError, TypeError):
        return None  # an error is left to the program


def _is_large(op: ast.operator, first: Any, second: Any) -> bool:
    """Return whether Python's compiler leaves an operation on integers to the program, because of its size."""
    if not (isinstance(first, int) and isinstance(second, int)):
        return False
    match op:
        case ast.Pow():
            return second > 0 and first.bit_length() * second > _MAX_BITS
        case ast.Mult():
            return first.bit_length() + second.bit_length() > _MAX_BITS
        case ast.LShift():
            return second > _MAX_BITS or first.bit_length() + second > _MAX_BITS
        case _:
            return False
