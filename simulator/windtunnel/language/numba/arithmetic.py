"""Typed expressions of Numba's arithmetic on numbers and complex numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import rules
from windtunnel.language.numba.rules import COMPARISONS, Complex, is_integer
from windtunnel.language.numba.values import Cplx, Num, literal
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I64, U8, U16, U32, U64, Scalar, scalar_of

_OF_HALVES = (
    "fabs", "sqrt", "exp", "exp2", "exp10", "log", "log2", "log10", "sin", "cos", "floor", "ceil", "trunc", "rcp",
    "rint", "isnan", "isinf", "fma",
)  # fmt: skip
"""The functions that are computed in float16; others, such as `rsqrt`, are computed in float32 and rounded."""
_EXPONENT_LIMIT = 0x10000
"""The largest constant exponent that Numba expands to multiplications."""


def converted(e: ir.Expr, to: Scalar) -> ir.Expr:
    """Return an expression converted to a type, as C converts."""
    if e.type == to:
        return e
    if isinstance(e, ir.Literal):
        if to == BOOL:
            return literal(e.line, bool(e.value), BOOL)
        if to.kind == "float" and (e.type in (I64, U64, BOOL) or e.type == F64):
            return literal(e.line, float(e.value), to)
        if to.kind in ("int", "uint") and not isinstance(e.value, float):
            bits = int(e.value) & (2**to.bits - 1)
            return literal(e.line, bits - (2**to.bits if to.kind == "int" and bits >> (to.bits - 1) else 0), to)
    if isinstance(e, ir.Convert) and e.operand.type == BOOL and to == BOOL:
        return e.operand
    return ir.Convert(e.line, to, e, type=to)


def number(value: Num | Cplx, to: rules.Number) -> Num | Cplx:
    """Return a number converted to a type; a complex one only to complex."""
    if isinstance(to, Complex):
        if isinstance(value, Cplx):
            return Cplx(converted(value.re, to.part), converted(value.im, to.part), to)
        return Cplx(converted(value.expr, to.part), literal(value.expr.line, 0.0, to.part), to)
    assert isinstance(value, Num)  # noqa: S101  the callers have checked it
    return Num(converted(value.expr, to), value.unit)


def truth(value: Num | Cplx) -> ir.Expr:
    """Return whether a number is not 0."""
    if isinstance(value, Cplx):
        zero = literal(value.re.line, 0.0, value.type.part)
        parts = [ir.Binary(part.line, "!=", part, deepcopy(zero), type=BOOL) for part in (value.re, value.im)]
        return ir.Logic(value.re.line, "or", *parts, type=BOOL)
    return converted(value.expr, BOOL)


def _op(op: str, left: ir.Expr, right: ir.Expr, kind: Scalar | None = None) -> ir.Expr:
    made = left.type if kind is None else kind
    return ir.Binary(left.line, op, left, right, type=made)


def binary(line: int, op: str, left: Num | Cplx, right: Num | Cplx) -> Num | Cplx | None:
    """Return ``left op right``; None if the types have no such operation. Operands may occur twice in the result."""
    kind = rules.binary(op, left.type, right.type)
    if kind is None:
        return None
    if isinstance(kind, Complex):
        a, b = number(left, kind), number(right, kind)
        assert isinstance(a, Cplx) and isinstance(b, Cplx)  # noqa: S101  both were converted to complex
        return _complex(line, op, a, b, kind)
    assert isinstance(left, Num) and isinstance(right, Num)  # noqa: S101  no operand is complex
    if op in COMPARISONS:
        return Num(_comparison(line, op, left, right, kind))
    if op in rules.SHIFTS:
        return Num(ir.Binary(line, op, converted(left.expr, kind), converted(right.expr, kind), type=kind))
    if op == "**":
        return Num(_power(line, left, right, kind))
    if op in ("//", "%") and kind.kind == "float":
        name = "math.float_floor_divide" if op == "//" else "math.float_modulo"
        return Num(ir.Call(line, name, [converted(left.expr, kind), converted(right.expr, kind)], type=kind))
    return Num(ir.Binary(line, op, converted(left.expr, kind), converted(right.expr, kind), type=kind))


def _comparison(line: int, op: str, left: Num, right: Num, kind: Scalar) -> ir.Expr:
    if {left.type.kind, right.type.kind} == {"int", "uint"} and U64 in (left.type, right.type):
        kind = F64  # the only type that Numba finds for both, although it does not hold all their values
    if left.type == right.type:
        kind = left.type
    return ir.Binary(line, op, converted(left.expr, kind), converted(right.expr, kind), type=BOOL)


def _power(line: int, left: Num, right: Num, kind: Scalar) -> ir.Expr:
    base = converted(left.expr, kind)
    exponent = right.expr.value if isinstance(right.expr, ir.Literal) else None
    if is_integer(right.type) and isinstance(exponent, int) and abs(exponent) < _EXPONENT_LIMIT:
        return ir.Call(line, "math.integer_power", [base, converted(right.expr, I64)], type=kind)
    if is_integer(right.type):
        return ir.Call(line, "math.integer_power", [base, converted(right.expr, I64)], type=kind)
    return ir.Binary(line, "**", base, converted(right.expr, kind), type=kind)


def _complex(line: int, op: str, a: Cplx, b: Cplx, kind: Complex) -> Num | Cplx | None:
    ar, ai, br, bi = a.re, a.im, b.re, b.im

    def again(e: ir.Expr) -> ir.Expr:
        return deepcopy(e)

    if op in ("+", "-"):
        return Cplx(_op(op, ar, br), _op(op, ai, bi), kind)
    if op == "*":
        real = _op("-", _op("*", ar, br), _op("*", ai, bi))
        return Cplx(real, _op("+", _op("*", again(ar), again(bi)), _op("*", again(ai), again(br))), kind)
    if op in ("==", "!="):
        sides = [_op(op, ar, br, BOOL), _op(op, ai, bi, BOOL)]
        return Num(ir.Logic(line, "and" if op == "==" else "or", *sides, type=BOOL))
    if op in ("/", "**"):
        stem = "divide" if op == "/" else "power"
        parts = [ir.Call(line, f"complex.{stem}_{part}", [again(e) for e in (ar, ai, br, bi)], type=kind.part)
                 for part in ("re", "im")]  # fmt: skip
        return Cplx(parts[0], parts[1], kind)
    return None


def unary(line: int, op: str, value: Num | Cplx) -> Num | Cplx | None:
    """Return ``op value``; None if the type has no such operation."""
    if op == "not":
        return Num(ir.Unary(line, "not", truth(value), type=BOOL))
    kind = rules.unary(op, value.type)
    if kind is None:
        return None
    if isinstance(value, Cplx):
        if op == "abs":
            return Num(ir.Call(line, "math.hypot", [value.re, value.im], type=value.type.part))
        if op == "+":
            return value
        parts = [ir.Unary(line, op, part, type=part.type) for part in (value.re, value.im)]
        return Cplx(parts[0], parts[1], value.type)
    assert isinstance(kind, Scalar)  # noqa: S101  the operand is no complex number
    if op == "~" and value.type == BOOL:
        return Num(ir.Unary(line, "not", value.expr, type=BOOL))
    if op == "+":
        return Num(converted(value.expr, kind))
    # Numba negates and inverts integers before it widens them.
    own = value.type if value.type != BOOL else kind
    operand = converted(value.expr, own)
    if op == "-" and isinstance(operand, ir.Literal) and own.kind != "uint" and operand.value != -(2 ** (own.bits - 1)):
        return Num(converted(literal(line, -operand.value, own), kind))
    return Num(converted(ir.Unary(line, op, operand, type=own), kind))


def extreme(line: int, op: str, left: Num, right: Num) -> Num:
    """Return ``min`` or ``max`` of two numbers. Python's returns the first operand unless the second is beyond it."""
    kind = rules.unified(left.type, right.type)
    assert isinstance(kind, Scalar)  # noqa: S101  both are numbers
    a, b = converted(left.expr, kind), converted(right.expr, kind)
    return Num(ir.Binary(line, op, a, b, type=kind))


def function(line: int, name: str, arguments: list[Num], kind: Scalar | None = None) -> Num:
    """Return a function of ``math``, computed in the type that its arguments have in common."""
    wide: Scalar = rules.mathematical(arguments[0].type)
    for other in arguments[1:]:
        joined = rules.joined(wide, rules.mathematical(other.type))
        assert isinstance(joined, Scalar)  # noqa: S101  no argument is complex
        wide = joined
    if wide == BF16:
        single = function(line, name, [Num(converted(argument.expr, F32)) for argument in arguments], kind)
        return single if kind is not None else Num(converted(single.expr, BF16))
    if wide == F16 and name not in _OF_HALVES:
        wide = F32
    given = [converted(argument.expr, wide) for argument in arguments]
    return Num(ir.Call(line, f"math.{name}", given, type=wide if kind is None else kind))


def number_of(line: int, value: Any) -> Num | Cplx | None:
    """Return a Python or NumPy number with Numba's type of it; None for another object."""
    if isinstance(value, (bool, np.bool_)):
        return Num(literal(line, bool(value), BOOL))
    if isinstance(value, np.generic):
        return _numpy_number(line, value)
    if isinstance(value, int):
        plain = int(value)
        return Num(literal(line, plain, U64 if plain >= 2**63 else I64))
    if isinstance(value, float):
        return Num(literal(line, float(value), F64))
    if isinstance(value, complex):
        return Cplx(literal(line, value.real, F64), literal(line, value.imag, F64), rules.C128)
    plain_value = getattr(value, "value", None)
    if type(type(value)).__name__ in ("EnumMeta", "EnumType") and isinstance(plain_value, (int, float)):
        return number_of(line, plain_value)
    return None


def _numpy_number(line: int, value: np.generic) -> Num | Cplx | None:
    kind = value.dtype.kind
    if kind == "c":
        complex_kind = rules.C64 if value.dtype.itemsize == 8 else rules.C128
        whole = complex(value)
        return Cplx(
            literal(line, whole.real, complex_kind.part), literal(line, whole.imag, complex_kind.part), complex_kind
        )
    if kind in "mM":
        return Num(literal(line, int(value.astype(np.int64)), I64), str(value.dtype))
    if kind in "iufb":
        return Num(literal(line, value.item(), scalar_of(value.dtype)))
    return None


UNSIGNED: Mapping[int, Scalar] = {8: U8, 16: U16, 32: U32, 64: U64}


def as_type(e: ir.Expr, kind: Scalar) -> ir.Expr:
    """Return the bits of a value as another type of the same size."""
    if e.type == kind:
        return e
    if BOOL in (e.type, kind):
        return converted(e, kind)
    return ir.Call(e.line, f"bits.as_{kind.name}", [e], type=kind)


def moved(indices: Sequence[ir.Expr], by: int) -> list[ir.Expr]:
    """Return copies of indices with the last one moved."""
    copies = [copy(index) for index in indices]
    if by:
        last = copies[-1]
        copies[-1] = ir.Binary(last.line, "+", converted(last, I64), literal(last.line, by), type=I64)
    return copies
