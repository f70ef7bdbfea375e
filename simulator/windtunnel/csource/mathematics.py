"""Functions of numbers: of bits, conversions, mathematics, and the clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import CType, Number, Pointer, Vector
from windtunnel.csource.statements import Statements
from windtunnel.csource.values import Aggregate, Mem, Ptr, Value
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, F32, F64, I32, I64, U32, Scalar

_UNARY = (
    "sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "floor", "ceil", "trunc", "fabs", "erf", "erfc", "expm1", "log1p", "cbrt", "rint", "round", "asinh", "acosh",
    "atanh", "exp10", "lgamma", "tgamma", "erfinv", "erfcinv", "normcdf", "rsqrt", "sinpi", "cospi", "tanpi", "j0",
    "j1", "y0", "y1", "logb", "rcbrt", "asinpi", "acospi", "atanpi",
)  # fmt: skip
_OTHER = ("atan2", "pow", "fmod", "copysign", "hypot", "nextafter", "remainder", "fdim", "ldexp", "atan2pi")
_TESTS = ("isnan", "isinf", "isfinite", "signbit", "isnormal")
_FAST = ("sin", "cos", "tan", "exp", "exp2", "exp10", "log", "log2", "log10", "sqrt", "rsqrt", "powr")
MATH: Mapping[str, str] = {
    **{name: f"math.{name}" for name in (*_UNARY, *_OTHER)},
    "nearbyint": "math.rint", "powr": "math.pow", "pown": "math.pow", "fma": "fma",
    **{f"__{name}f": f"math.{name}" for name in ("sin", "cos", "tan", "exp", "log", "log2", "log10", "pow", "exp10")},
    **{f"{kind}_{name}": f"math.{'pow' if name == 'powr' else name}" for kind in ("native", "half") for name in _FAST},
}  # fmt: skip
CONSTANTS = (
    "__builtin_nanf", "__builtin_nan", "__builtin_inff", "__builtin_inf", "__builtin_huge_valf", "__builtin_huge_val",
)  # fmt: skip
_BITS = {"popc": "popc", "clz": "clz", "ffs": "ffs", "brev": "brev"}
_AS = {"int": I32, "uint": U32, "float": F32, "double": F64, "longlong": I64}
_ROUNDED = re.compile(r"__[fd](add|sub|mul|div|sqrt|rcp|maf|ma)_(rn|rz|ru|rd)$|__(fmaf|fma)_(rn|rz|ru|rd)$")
CLOCK = "clock_of_the_thread"
"""The variable of a thread's clock."""


class Mathematics(Statements):
    """Translates calls of functions of numbers."""

    def _reinterpreted(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate ``__float_as_int`` and its kin, and functions of bits."""
        line = self.line(node)
        if name == "__wt_h2f":
            return build.converted(build.bits_as(self.number(arguments[0]), types.F16), F32)
        if name == "__wt_f2h":
            half = build.converted(build.converted(self.number(arguments[0]), F32), types.F16)
            return build.bits_as(half, types.U16)
        parts = name.strip("_").split("_as_")
        if name.startswith("__") and len(parts) == 2 and parts[0] in _AS and parts[1] in _AS:
            return build.bits_as(self._cast_to(self.number(arguments[0]), _AS[parts[0]]), _AS[parts[1]])
        if name.startswith("__wt_bits_"):
            return build.bits_as(self.number(arguments[0]), number_type(node.type))
        stem = name.strip("_").removesuffix("ll")
        if name.startswith("__") and stem in _BITS and len(arguments) == 1:
            value = self.number(arguments[0])
            kind = value.type if stem == "brev" else I32
            made = ir.Call(line, f"bits.{stem}", [value], type=kind)
            return build.converted(made, number_type(node.type))
        return NotImplemented

    def _cast_to(self, e: ir.Expr, kind: Scalar) -> ir.Expr:
        return build.converted(e, kind)

    def elementwise(
        self, node: Node, arguments: Sequence[Value], act: Callable[[list[ir.Expr], Scalar], ir.Expr]
    ) -> Value:
        """Apply a function of numbers to numbers, or to each element of vectors."""
        kind = node.type
        if not isinstance(kind, Vector):
            return act([one for one in arguments if isinstance(one, ir.Expr)], number_type(kind))
        parts: dict[int, ir.Expr | Ptr] = {}
        held = [self.hold_value(one) for one in arguments]
        for number in range(kind.count):
            row: list[ir.Expr] = []
            for one in held:
                if isinstance(one, Aggregate) and isinstance(one.type, Vector):
                    part = one.parts[number * one.type.element.size]
                    assert isinstance(part, ir.Expr)  # noqa: S101  vectors are of numbers
                    row.append(part)
                elif isinstance(one, ir.Expr):
                    row.append(one)
            parts[number * kind.element.size] = act(row, kind.element.scalar)
        return Aggregate(kind, parts)

    # Long: one case for each group of functions.
    def _mathematics(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        line = self.line(node)
        values = [self.value(one) for one in arguments]
        plain = name if name in MATH else name.removesuffix("f")
        if plain in MATH and not any(isinstance(one, Ptr) for one in values):
            op = MATH[plain]

            def function(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
                if plain in ("sinpi", "cospi"):
                    return self._of_pi(line, op, build.converted(row[0], kind), kind)
                if plain == "pown" and kind == F32:  # a double holds every int
                    made = ir.Call(line, op, [build.converted(one, F64) for one in row], type=F64)
                    return build.converted(made, kind)
                if plain == "fdim":
                    a, b = (self.hold(build.converted(one, kind)) for one in row)
                    less = build.binary(line, "<=", a, b)
                    return build.select(line, less, build.literal(line, 0, kind), build.binary(line, "-", a, b))
                given = row if op == "math.ldexp" else [build.converted(one, kind) for one in row]
                return ir.Call(line, op, given, type=kind)

            return self.elementwise(node, values, function)
        if plain in ("fmin", "fmax", "min", "max", "umin", "umax", "llmin", "llmax", "ullmin", "ullmax"):
            which = plain[-3:]
            return self.elementwise(
                node,
                values,
                lambda row, kind: ir.Binary(line, which, *(build.converted(one, kind) for one in row), type=kind),
            )
        if name in ("abs", "labs", "llabs"):
            # OpenCL's abs of an int is a uint.
            def absolute(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
                e = row[0]
                assert e.type is not None  # noqa: S101  all expressions here have types
                return build.converted(e if e.type.kind == "uint" else ir.Unary(line, "abs", e, type=e.type), kind)

            return self.elementwise(node, values, absolute)
        if name in _TESTS or name.removeprefix("__").removesuffix("f") in _TESTS:
            test = name.removeprefix("__") if name in _TESTS else name.removeprefix("__").removesuffix("f")

            def tested(row: list[ir.Expr], kind: Scalar) -> ir.Expr:
                made = ir.Call(line, f"math.{test}", [row[0]], type=BOOL)
                if isinstance(node.type, Vector):
                    return build.select(line, made, build.literal(line, -1, kind), build.literal(line, 0, kind))
                return build.converted(made, kind)

            return self.elementwise(node, values, tested)
        return self._rounded(node, name, values)

    def _rounded(self, node: Node, name: str, values: Sequence[Value]) -> Any:
        """Translate operations and conversions that round in a stated direction."""
        line = self.line(node)
        row = [one for one in values if isinstance(one, ir.Expr)]
        found = _ROUNDED.match(name)
        if found is not None:
            op, mode = (found[1] or "ma"), found[2] or found[4]
            kind = number_type(node.type)
            row = [build.converted(one, kind) for one in row]
            if mode == "rn":
                return self._operation(line, op, row, kind)
            wide = self._operation(line, op, [build.converted(one, F64) for one in row], F64)
            return ir.Call(line, f"round.f32_{mode}", [wide], type=F32)
        found = re.match(r"__(\w+)2(\w+)_(rn|rz|ru|rd)$", name)
        if found is not None and row:
            return self._conversion(node, found[2], found[3], row[0])
        found = re.match(r"(?:ll|l)(rint|round)f?$", name)
        if found is not None:
            whole = ir.Call(line, f"math.{found[1]}", [row[0]], type=row[0].type)
            return build.converted(whole, number_type(node.type))
        return NotImplemented

    def _operation(self, line: int, op: str, row: Sequence[ir.Expr], kind: Scalar) -> ir.Expr:
        if op in ("ma", "maf"):
            return ir.Call(line, "fma", list(row), type=kind)
        if op == "sqrt":
            return ir.Call(line, "math.sqrt", list(row), type=kind)
        if op == "rcp":
            return build.binary(line, "/", build.literal(line, 1, kind), row[0])
        return build.binary(line, {"add": "+", "sub": "-", "mul": "*", "div": "/"}[op], row[0], row[1])

    def _conversion(self, node: Node, to: str, mode: str, value: ir.Expr) -> ir.Expr:
        line, kind = self.line(node), number_type(node.type)
        if kind.kind != "float":
            op = {"rn": "rint", "rz": "trunc", "ru": "ceil", "rd": "floor"}[mode]
            return build.converted(ir.Call(line, f"math.{op}", [value], type=value.type), kind)
        if mode == "rn" or kind == F64:
            return build.converted(value, kind)
        return ir.Call(line, f"round.f32_{mode}", [build.converted(value, F64)], type=F32)

    def _sincos(self, node: Node, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        value = self.hold(self.number(arguments[0]))
        for op, to in zip(("sin", "cos"), arguments[1:], strict=True):
            kind = Number(value.type or F32)
            self.store(line, Mem(self.pointer(to), kind), ir.Call(line, f"math.{op}", [value], type=value.type))
        return None

    def _modf(self, node: Node, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        value = self.hold(self.number(arguments[0]))
        whole = self.hold(ir.Call(line, "math.trunc", [value], type=value.type))
        self.store(line, Mem(self.pointer(arguments[1]), Number(value.type or F32)), whole)
        return build.binary(line, "-", value, whole)

    def with_integer(self, line: int, name: str, row: Sequence[ir.Expr], kind: Scalar) -> tuple[ir.Expr, ir.Expr]:
        """Return what ``frexp``, ``remquo`` or ``lgamma_r`` returns, and the integer that it stores."""

        def op(which: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
            return build.binary(line, which, a, b)

        def function(which: str, *given: ir.Expr) -> ir.Expr:
            return self.hold(ir.Call(line, f"math.{which}", list(given), type=kind))

        x, zero, none = row[0], build.literal(line, 0, kind), build.literal(line, 0, I32)
        if name == "remquo":
            rest = function("remainder", x, row[1])
            times = function("rint", op("/", op("-", x, rest), row[1]))
            size = op("&", build.converted(function("fabs", times), I32), build.literal(line, 0x7F, I32))
            return rest, build.select(line, op("<", times, zero), build.unary(line, "-", size), size)
        if name == "lgamma_r":
            floor = function("floor", x)
            odd = build.truth(op("&", build.converted(floor, I32), build.literal(line, 1, I32)))
            negative = ir.Logic(line, "and", op("<", x, zero), odd, type=BOOL)
            sign = build.select(line, negative, build.literal(line, -1, I32), build.literal(line, 1, I32))
            return function("lgamma", x), sign
        finite = ir.Call(line, "math.isfinite", [x], type=BOOL)
        plain = self.hold(ir.Logic(line, "and", finite, op("!=", x, zero), type=BOOL))
        exponent = op("+", build.converted(function("logb", x), I32), build.literal(line, 1, I32))
        exponent = self.hold(build.select(line, plain, exponent, none))
        # In two steps, because the power of two alone may not be a number of the type.
        half = self.hold(op("/", exponent, build.literal(line, 2, I32)))
        part = function("ldexp", x, build.unary(line, "-", half))
        part = function("ldexp", part, build.unary(line, "-", op("-", exponent, half)))
        return build.select(line, plain, part, x), exponent

    def _with_integer(self, node: Node, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        name = node.name.removesuffix("f") if node.name != "remquof" else "remquo"
        kind = number_type(node.type)
        row = [self.hold(build.converted(self.number(one), kind)) for one in arguments[:-1]]
        made, integer = self.with_integer(line, name, row, kind)
        self.store(line, Mem(self.pointer(arguments[-1]), Number(I32)), integer)
        return made

    def _constant(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        value = float("nan") if "nan" in node.name else float("inf")
        return build.literal(self.line(node), value, number_type(node.type))

    def _of_pi(self, line: int, op: str, x: ir.Expr, kind: Scalar) -> ir.Expr:
        """Return the sine or cosine of a number times pi: of the rest of 2, which is exact, and 0 where it is 0."""
        rest = self.hold(ir.Call(line, "math.fmod", [x, build.literal(line, 2, kind)], type=kind))
        zeros = rest if op == "math.sinpi" else build.binary(line, "+", rest, build.literal(line, 0.5, kind))
        zeros = self.hold(zeros)
        whole = build.binary(line, "==", ir.Call(line, "math.rint", [zeros], type=kind), zeros)
        return build.select(line, whole, build.literal(line, 0, kind), ir.Call(line, op, [rest], type=kind))

    def _clock(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Return a time that advances at each call, so that a loop that waits for it ends."""
        del arguments
        return build.converted(self.clock(self.line(node)), number_type(node.type))

    def clock(self, line: int) -> ir.Expr:
        """Return the time of a thread, which has advanced."""
        self.variables[CLOCK] = I64
        now = ir.Variable(line, CLOCK, type=I64)
        self.emit(ir.Assign(line, CLOCK, build.binary(line, "+", now, build.literal(line, 1 << 16, I64))))
        return now


def number_type(kind: CType) -> Scalar:
    """Return the type of a number, or of the elements of a vector."""
    if isinstance(kind, Pointer) and kind.reference:
        kind = kind.pointee
    if isinstance(kind, Number):
        return kind.scalar
    if isinstance(kind, Vector):
        return kind.element.scalar
    return I32
