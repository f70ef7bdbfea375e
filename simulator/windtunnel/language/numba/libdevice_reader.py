"""Calls of the functions of libdevice in a kernel."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from copy import copy

from windtunnel.language import ir
from windtunnel.language.numba import arithmetic
from windtunnel.language.numba.arithmetic import converted
from windtunnel.language.numba.intrinsics import IntrinsicReader
from windtunnel.language.numba.values import Num, Tup, Value, literal
from windtunnel.language.types import BOOL, F16, F32, F64, I32, I64, SCALARS, U32, U64, Scalar

_WAYS = {"rn": "rint", "rz": "trunc", "ru": "ceil", "rd": "floor"}
_MOST, _LEAST = 2**31 - 1, -(2**31)
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


class LibdeviceReader(IntrinsicReader):
    """Reads calls of the functions of libdevice. `libdevice.NAMES` says what each is."""

    def _call_libdevice(self, node: ast.Call, op: str, given: list[Value]) -> Value:
        family, name, type_name = op.split(" ")
        made: Value = getattr(self, f"_{family}_of_libdevice")(node, name, SCALARS[type_name], given)
        return made

    def _arguments_of(self, node: ast.Call, given: Sequence[Value], *kinds: Scalar) -> list[ir.Expr]:
        """Return the arguments as numbers of the types that the function has."""
        self._wanted(node, ast.unparse(node.func), given, len(kinds))
        return [converted(self.num(node, value).expr, kind) for value, kind in zip(given, kinds, strict=True)]

    def _math_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        if name == "ldexp":
            return self._power_of_libdevice(node, name, kind, given)
        numbers = [Num(converted(self.num(node, value).expr, kind)) for value in given]
        return arithmetic.function(node.lineno, name, numbers)

    def _power_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        x, power = self._arguments_of(node, given, kind, I32)
        if name != "powi":
            return Num(ir.Call(node.lineno, "math.ldexp", [x, power], type=kind))
        # Double precision holds every exponent.
        return Num(converted(_function("pow", converted(x, F64), converted(power, F64)), kind))

    def _convert_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        source, way = name.split(":")
        (value,) = self._arguments_of(node, given, SCALARS[source])
        if kind.kind != "float":
            return Num(_signed(_saturated(self.hold(_function(_WAYS[way], value)), kind)))
        return Num(_directed(value, way, kind))

    def _predicate_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        made = ir.Call(node.lineno, f"math.{name}", self._arguments_of(node, given, kind), type=BOOL)
        return Num(converted(made, I32))

    def _rounded_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        op, way = name.split(":")
        line = node.lineno
        row = self._arguments_of(node, given, *[kind] * {"fma": 3, "sqrt": 1, "rcp": 1}.get(op, 2))
        if op == "rcp":
            op, row = "div", [literal(line, 1.0, kind), *row]
        if way != "rn":
            if op == "sub":
                op, row = "add", [row[0], ir.Unary(line, "-", row[1], type=kind)]
            return Num(ir.Call(line, f"round.{op}_{way}", row, type=kind))
        if op == "fma":
            return Num(ir.Call(line, "fma", row, type=kind))
        return Num(_function("sqrt", *row) if op == "sqrt" else ir.Binary(line, _SYMBOLS[op], *row, type=kind))

    def _bessel_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        return Num(ir.Call(node.lineno, f"math.{name}", self._arguments_of(node, given, I32, kind), type=kind))

    def _bytes_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        return Num(ir.Call(node.lineno, f"int.{name}", self._arguments_of(node, given, *[kind] * 3), type=kind))

    def _extreme_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        a, b = self._arguments_of(node, given, kind, kind)
        return arithmetic.extreme(node.lineno, name, Num(a), Num(b))

    def _pair_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        row = [self.hold(one) for one in self._arguments_of(node, given, *[kind] * (2 if name == "remquo" else 1))]
        ops = {"sincos": ("sin", "cos"), "sincospi": ("sinpi", "cospi")}.get(name, (f"{name}_0", f"{name}_1"))
        kinds = (kind, I32 if name in ("frexp", "remquo") else kind)
        parts = [
            ir.Call(node.lineno, f"math.{one}", [copy(x) for x in row], type=of)
            for one, of in zip(ops, kinds, strict=True)
        ]
        return Tup(tuple(Num(self.hold_always(part, "part")) for part in parts))

    def _whole_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        line = node.lineno
        x = self.hold(self._arguments_of(node, given, kind)[0])
        if name != "ilogb":
            way = "rint" if name == "llrint" else "round_half_away"
            return Num(converted(_function(way, x), I64))
        finite = ir.Call(line, "math.isfinite", [copy(x)], type=BOOL)
        found = converted(_function("logb", copy(x)), I32)
        # Of infinity, and of zero and what is no number (CUDA Math API, ilogb).
        infinite = ir.Call(line, "math.isinf", [copy(x)], type=BOOL)
        other = ir.Select(line, infinite, literal(line, _MOST, I32), literal(line, _LEAST, I32), type=I32)
        zero = ir.Binary(line, "==", copy(x), literal(line, 0.0, kind), type=BOOL)
        found = ir.Select(line, zero, literal(line, _LEAST, I32), found, type=I32)
        return Num(ir.Select(line, finite, found, other, type=I32))

    def _quantile_of_libdevice(self, node: ast.Call, _: str, kind: Scalar, given: list[Value]) -> Value:
        """Return the quantile of the normal distribution: -sqrt(2) erfcinv(2 p)."""
        line = node.lineno
        twice = ir.Binary(line, "*", literal(line, 2.0, kind), self._arguments_of(node, given, kind)[0], type=kind)
        scale = literal(line, -math.sqrt(2.0), kind)
        return Num(ir.Binary(line, "*", scale, _function("erfcinv", twice), type=kind))

    def _saturate_of_libdevice(self, node: ast.Call, _: str, kind: Scalar, given: list[Value]) -> Value:
        """Return a number between 0 and 1; 0 for what is no number, which ``max`` passes over."""
        line = node.lineno
        at_least = ir.Binary(line, "max", self._arguments_of(node, given, kind)[0], literal(line, 0.0, kind), type=kind)
        return Num(ir.Binary(line, "min", at_least, literal(line, 1.0, kind), type=kind))

    def _bits_of_libdevice(self, node: ast.Call, source: str, kind: Scalar, given: list[Value]) -> Value:
        # Halves are single precision to Numba, and only their bits are 16.
        made = _bits_as(self._arguments_of(node, given, SCALARS[source])[0], kind)
        return Num(converted(made, F32) if kind == F16 else made)

    def _halves_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        line = node.lineno
        if name == "hiloint2double":
            high, low = (converted(half, U32) for half in self._arguments_of(node, given, I32, I32))
            shifted = ir.Binary(line, "<<", converted(high, U64), literal(line, 32, U64), type=U64)
            return Num(_bits_as(ir.Binary(line, "|", shifted, converted(low, U64), type=U64), kind))
        bits = _bits_as(self._arguments_of(node, given, kind)[0], U64)
        if name == "double2hiint":
            bits = ir.Binary(line, ">>", bits, literal(line, 32, U64), type=U64)
        return Num(converted(bits, I32))

    def _integer_of_libdevice(self, node: ast.Call, name: str, kind: Scalar, given: list[Value]) -> Value:
        line = node.lineno
        one_operand = name in ("abs", "popc", "clz", "ffs", "brev")
        row = self._arguments_of(node, given, *[kind] * (1 if one_operand else 3 if name == "sad" else 2))

        def binary(op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
            return ir.Binary(line, op, left, right, type=left.type)

        if name == "abs":
            return Num(ir.Unary(line, "abs", row[0], type=kind))
        if one_operand:
            unsigned = U64 if kind.bits == 64 else U32
            counted = self._call_bits(node, name, [Num(converted(row[0], unsigned if name == "brev" else kind))])
            return Num(converted(self.num(node, counted).expr, kind if name == "brev" else I32))
        a, b = (self.hold(one) for one in row[:2])
        if name in ("max", "min"):
            made = binary(name, a, b)
        elif name == "mul24":
            # The product of the low 24 bits, with the sign of the highest of them.
            shift = literal(line, 8, kind)
            low = [binary(">>", binary("<<", one, copy(shift)), copy(shift)) for one in (a, b)]
            made = binary("*", *low)
        elif name == "high" and kind.bits == 64:
            made = ir.Call(line, "int.high", [a, b], type=kind)
        elif name == "high":
            wide = I64 if kind == I32 else U64
            product = ir.Binary(line, "*", converted(a, wide), converted(b, wide), type=wide)
            made = converted(binary(">>", product, literal(line, 32, wide)), kind)
        elif name in ("hadd", "rhadd"):
            one = literal(line, 1, kind)
            shared = binary("|" if name == "rhadd" else "&", a, b)
            halves = binary("+", binary(">>", copy(a), one), binary(">>", copy(b), copy(one)))
            made = binary("+", halves, binary("&", shared, copy(one)))
        else:
            most, least = binary("max", a, b), binary("min", copy(a), copy(b))
            made = binary("+", binary("-", most, least), row[2])
        return Num(_signed(made))


def _function(name: str, *given: ir.Expr) -> ir.Expr:
    return ir.Call(given[0].line, f"math.{name}", list(given), type=given[0].type)


def _signed(e: ir.Expr) -> ir.Expr:
    """Return the bits of an integer as a signed one, which all results of libdevice are to Numba."""
    return converted(e, {U32: I32, U64: I64}.get(e.type, e.type)) if e.type is not None else e


def _saturated(x: ir.Expr, kind: Scalar) -> ir.Expr:
    """Return a whole number as the nearest integer of a type. What is no number becomes what PTX says of ``cvt``."""
    assert x.type is not None  # noqa: S101  it was converted
    line, bits = x.line, kind.bits
    least, beyond = (0, 2**bits) if kind.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    narrow = x.type != F64 and bits == 32
    none = 0 if narrow else 2 ** (bits - 1) if kind.kind == "uint" else least
    made: ir.Expr = converted(x, kind)
    for op, bound, value in ((">=", beyond, beyond - 1), ("<", least, least), ("!=", None, none)):
        limit = copy(x) if bound is None else literal(line, float(bound), x.type)
        wrong = ir.Binary(line, op, copy(x), limit, type=BOOL)
        made = ir.Select(line, wrong, literal(line, value, kind), made, type=kind)
    return made


def _bits_as(e: ir.Expr, kind: Scalar) -> ir.Expr:
    return ir.Call(e.line, f"bits.as_{kind.name}", [e], type=kind)


def _directed(e: ir.Expr, way: str, kind: Scalar) -> ir.Expr:
    """Return a number rounded to single precision in a direction, or to nearest."""
    if way == "rn":
        return converted(e, kind)
    if e.type in (I64, U64):
        return ir.Call(e.line, f"round.{kind.name}_of_{way}", [e], type=kind)
    if kind != F32:
        return converted(e, kind)  # exact
    return ir.Call(e.line, f"round.f32_{way}", [converted(e, F64)], type=F32)
