"""The types of Numba's arithmetic, as a table of rules.

Numba computes integers in 64 bits, divides in float64, and joins float32 with integers of up to 16 bits only. The rules
are those of ``numba.core.typing.builtins`` (Numba 0.61 to 0.68); a test compares them with the installed Numba for all
pairs of types. `language.types.unify` states the other rules, which are C's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Scalar


@dataclass(frozen=True)
class Complex:
    """The type of complex numbers, a pair of ``part``."""

    name: str
    part: Scalar

    def __str__(self) -> str:
        return self.name


C64, C128 = Complex("complex64", F32), Complex("complex128", F64)
Number = Scalar | Complex
NUMBA_NAMES: Mapping[str, Number] = {
    "bool": BOOL, "boolean": BOOL, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16,
    "uint32": U32, "uint64": U64, "float16": F16,
    "bfloat16": BF16, "float32": F32, "float64": F64, "complex64": C64, "complex128": C128,
}  # fmt: skip
"""Numba's names of its types of numbers."""

ARITHMETIC = ("+", "-", "*", "//", "%")
BITWISE = ("&", "|", "^")
SHIFTS = ("<<", ">>")
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_IN_F32 = (BOOL, I8, I16, U8, F16, BF16, F32)
"""The types of which Numba converts a number to float32 rather than to float64, if a function has both."""
_SMALL = 16
"""The widest integers (bits) that a float32 holds exactly enough for Numba to keep float32."""


def is_integer(kind: Number) -> bool:
    """Return whether a type is one of integers or bool."""
    return isinstance(kind, Scalar) and kind.kind in ("int", "uint", "bool")


def name_of(kind: Number) -> str:
    """Return Numba's name of a type."""
    return next(name for name, known in NUMBA_NAMES.items() if known == kind)


def integer_result(a: Scalar, b: Scalar) -> Scalar:
    """Return the type of an operation on integers: 64 bits, unsigned if both are."""
    return U64 if a.kind == b.kind == "uint" else I64


def joined(a: Number, b: Number, *, unifies: bool = False) -> Number:
    """Return the type in which two types of which at least one is a float are computed.

    Numba computes uint16 and float32 in float64, but a variable that is one of them on each path is float32
    (``unifies``).
    """
    if isinstance(a, Complex) or isinstance(b, Complex):
        parts = [x.part if isinstance(x, Complex) else x for x in (a, b)]
        part = joined(*parts, unifies=unifies) if not all(map(is_integer, parts)) else F64
        return C64 if part in (F16, F32) else C128
    if is_integer(a) or is_integer(b):
        number, real = (a, b) if is_integer(a) else (b, a)
        if real == F64 or number.bits > _SMALL or (number == U16 and not unifies):
            return F64
        if real == BF16:  # numba-cuda has no rule: the narrowest type that holds both
            return F32
        return F32 if real == F32 or number.bits > 8 or (number == U8 and not unifies) else F16
    if {a, b} == {F16, BF16}:
        return F32
    return max((a, b), key=lambda t: t.bits)


def binary(op: str, a: Number, b: Number) -> Number | None:
    """Return the type in which an operation is computed, which is that of its result but for comparisons."""
    both_integers = is_integer(a) and is_integer(b)
    if op in BITWISE:
        if a == b == BOOL:
            return BOOL
        return integer_result(a, b) if both_integers else None  # type: ignore[arg-type]
    if op in SHIFTS:
        return (U64 if isinstance(a, Scalar) and a.kind == "uint" else I64) if both_integers else None
    is_complex = isinstance(a, Complex) or isinstance(b, Complex)
    if is_complex and op in ("//", "%", "<", "<=", ">", ">="):
        return None
    if op == "/":
        return F64 if both_integers else joined(a, b)
    if op == "**" and not is_complex and is_integer(b):
        return _whole_power(a, b)  # type: ignore[arg-type]
    if both_integers:
        return integer_result(a, b)  # type: ignore[arg-type]
    found = joined(a, b)
    return F32 if found == F16 and op in ("//", "%", "**") else found


def _whole_power(a: Scalar, b: Scalar) -> Scalar:
    """Return the type of a power with an integer exponent."""
    if a in (BOOL, F16) and (a == F16 or b == I32):
        return F32  # the only operations of these types are those on float32
    return integer_result(a, b) if is_integer(a) else a


def unary(op: str, kind: Number) -> Number | None:
    """Return the type of ``-x``, ``+x``, ``~x``, ``not x`` or ``abs(x)``."""
    if op == "not":
        return BOOL
    if isinstance(kind, Complex):
        return kind.part if op == "abs" else (None if op == "~" else kind)
    if op == "abs":
        return I8 if kind == BOOL else kind
    if op == "~":
        return None if kind.kind == "float" else BOOL if kind == BOOL else U64 if kind.kind == "uint" else I64
    return kind if kind.kind == "float" else U64 if kind.kind == "uint" else I64


def unified(a: Number, b: Number) -> Number:
    """Return the type of a variable to which values of two types are assigned on different paths."""
    if a == b:
        return a
    if isinstance(a, Complex) or isinstance(b, Complex) or "float" in (a.kind, b.kind):
        return joined(a, b, unifies=True)
    if BOOL in (a, b):
        return b if a == BOOL else a
    if a.kind == b.kind:
        return max((a, b), key=lambda t: t.bits)
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: I16, 16: I32, 32: I64}.get(unsigned.bits, F64)


def of_float(*kinds: Scalar) -> Scalar:
    """Return the type of a function that has one for float32 and one for float64, but none for integers."""
    return F32 if all(kind in _IN_F32 for kind in kinds) else F64


def of_two(name: str, a: Scalar, b: Scalar) -> Scalar:
    """Return the type of a function of ``math`` of two numbers.

    The source is the table of signatures `numba.cuda.cudamath`: ``atan2`` and ``hypot`` have one for integers, and
    ``pow`` one for an exponent of type int32.
    """
    if BF16 in (a, b):
        found = joined(mathematical(a), mathematical(b))
        assert isinstance(found, Scalar)  # noqa: S101  neither is complex
        return found
    if name in ("atan2", "hypot") and is_integer(a) and is_integer(b):
        return F64
    if name == "pow" and (b == I32 or (a == F32 and b == U16)):
        return of_float(a)
    return of_float(a, b)


def of_ufunc(*kinds: Scalar) -> Scalar:
    """Return the type of a function of NumPy of single numbers; a float32 decides, whatever the integers are."""
    if F64 in kinds:
        return F64
    return F32 if {F16, F32} & set(kinds) or all(kind in (*_IN_F32, U16) for kind in kinds) else F64


def quotient_and_rest(a: Scalar, b: Scalar) -> Scalar:
    """Return the type of both results of ``divmod``, which has none for integers of different signs."""
    if not (is_integer(a) and is_integer(b)):
        found = joined(a, b)
        assert isinstance(found, Scalar)  # noqa: S101  neither is complex
        return found
    kinds = {a.kind, b.kind}
    if kinds == {"int", "uint"} and U64 in (a, b):
        return F64
    return U64 if "uint" in kinds and "int" not in kinds else I64


def mathematical(kind: Scalar) -> Scalar:
    """Return the type in which a function of ``math`` is computed: integers as float64."""
    return kind if kind.kind == "float" else F64
