"""Functions of ``math``, ``cmath`` and NumPy in a Numba kernel."""

from __future__ import annotations

import ast
import cmath
import math
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import arithmetic, rules
from windtunnel.language.numba.arithmetic import converted, number, truth
from windtunnel.language.numba.libdevice import FAST
from windtunnel.language.numba.libdevice_reader import LibdeviceReader
from windtunnel.language.numba.values import Const, Cplx, Num, Tup, Value, View, literal
from windtunnel.language.types import BF16, BOOL, F32, F64, I8, I32, I64

_ONE = (
    "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "fabs", "erf", "erfc", "gamma", "lgamma", "cbrt", "degrees",
    "radians", "rint", "sign",
)  # fmt: skip
_TWO = ("atan2", "pow", "fmod", "copysign", "hypot", "remainder", "nextafter", "logaddexp", "logaddexp2")
_WHOLE = ("floor", "ceil", "trunc")
_TESTS = ("isnan", "isinf", "isfinite", "signbit")
_NUMPY_NAMES: Mapping[str, str] = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "deg2rad": "radians", "rad2deg": "degrees", "float_power": "pow",
}  # fmt: skip
_NUMPY_OPERATORS: Mapping[str, str] = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "floor_divide": "//",
    "remainder": "%", "mod": "%", "power": "**", "left_shift": "<<", "right_shift": ">>", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
    "equal": "==", "not_equal": "!=",
}  # fmt: skip
_COMPLEX_FUNCTIONS = (
    "exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    "acosh", "atanh",
)  # fmt: skip


_NUMPY_REDUCTIONS = (
    "sum", "prod", "min", "max", "mean", "var", "std", "any", "all", "count_nonzero", "nansum", "nanprod", "nanmin",
    "nanmax", "nanmean", "nanvar", "nanstd",
)  # fmt: skip


class FunctionReader(LibdeviceReader):
    """Reads calls of mathematical functions."""

    def reduced(self, node: ast.Call, name: str, owner: View, given: list[Value]) -> Value:
        """Return one number of an array."""
        raise NotImplementedError

    def place_of(self, node: ast.Call, name: str, owner: View, given: list[Value]) -> Value:
        """Return the number of the largest or smallest element of an array."""
        raise NotImplementedError

    # Long: one decision over where a function comes from and what its arguments are.
    def mathematical(self, node: ast.Call, function: Any, name: str, given: list[Value]) -> Value | None:
        """Return a call of a function of ``math``, ``cmath`` or NumPy; None if it is none."""
        from_numpy = getattr(np, name, None) is function
        if getattr(cmath, name, None) is function and getattr(math, name, None) is not function:
            return self._complex_function(node, name, [self.numeric(node, value) for value in given])
        if not from_numpy and getattr(math, name, None) is not function:
            return None
        reduction = {"amax": "max", "amin": "min"}.get(name, name)
        if from_numpy and reduction in _NUMPY_REDUCTIONS and len(given) == 1 and isinstance(given[0], View):
            return self.reduced(node, reduction, given[0], [])
        if from_numpy and name in ("argmax", "argmin") and len(given) == 1 and isinstance(given[0], View):
            return self.place_of(node, name.removeprefix("arg"), given[0], [])
        if function is np.count_nonzero and len(given) == 1 and not isinstance(given[0], View):
            return Num(converted(truth(self.numeric(node, given[0])), I64))
        on_arrays = any(isinstance(value, View) and value.dims for value in given)
        if from_numpy and name in _NUMPY_OPERATORS and len(given) == 2 and not on_arrays:
            ordered = _NUMPY_OPERATORS[name] in ("<", "<=", ">", ">=")
            if ordered and any(isinstance(value, Cplx) for value in given):
                return self._complex_pair(node, name, [self.numeric(node, value) for value in given])
            return self.binary(node, _NUMPY_OPERATORS[name], *given)
        plain = _NUMPY_NAMES.get(name, name) if from_numpy else name
        if name in ("dot", "array", "zeros", "ones", "empty"):
            return None
        if isinstance(function, np.ufunc) and any(isinstance(value, View) and value.dims for value in given):
            return self._on_arrays(node, function, name, given)
        self.refuse_arrays(node, f"'{ast.unparse(node.func)}'", given, "numbers")
        numbers = [self.numeric(node, value) for value in given]
        if any(isinstance(value, Cplx) for value in numbers):
            if from_numpy and (len(numbers) == 2 or name == "logical_not"):
                return self._complex_pair(node, name, numbers)
            return self._complex_function(node, plain, numbers)
        return self._real_function(node, plain, [value for value in numbers if isinstance(value, Num)], from_numpy)

    def _on_arrays(self, node: ast.Call, function: np.ufunc, name: str, given: list[Value]) -> Value:
        """Read a function of NumPy with an array for its result, as a loop over the elements."""
        results = given[function.nin :]
        if len(results) != 1 or not isinstance(results[0], View):
            self.refuse(node, f"np.{name} of arrays without an array for the result", f"np.{name}(a, out)")
        inputs = [self.stored(value, "held") for value in given[: function.nin]]

        def element(at: list[Num]) -> Value:
            parts: list[Value] = []
            for value in inputs:
                if isinstance(value, View) and value.dims:
                    value = self.part(node, value, at[len(at) - len(value.dims) :])  # noqa: PLW2901
                    assert isinstance(value, View)  # noqa: S101  all dimensions have an index
                    value = self.load(node, value)  # noqa: PLW2901
                parts.append(self.at(node.lineno, value))
            made = self.mathematical(node, function, name, parts)
            if made is None:
                self.refuse(node, f"np.{name} of arrays", "a function of single elements")
            return made

        self.filled(node, results[0], element)
        return results[0]

    # Long: one case for each family of functions, each a line or two.
    def _real_function(self, node: ast.Call, name: str, given: list[Num], from_numpy: bool) -> Value | None:
        line = node.lineno
        if self.fastmath and name in FAST and given[0].type == F32 and rules.of_float(*(v.type for v in given)) == F32:
            fast = arithmetic.function(line, f"fast_{name}", [Num(converted(value.expr, F32)) for value in given])
            return Num(ir.Call(line, "math.flush", [fast.expr], type=F32))
        if from_numpy:
            special = self._numpy_function(node, name, given)
            if special is not None:
                return special
            if name in (*_ONE, *_TWO, *_WHOLE) and BF16 not in [value.type for value in given]:
                kind = rules.of_ufunc(*(value.type for value in given))
                return arithmetic.function(line, name, [Num(converted(value.expr, kind)) for value in given])
        if name in _ONE and len(given) == 1:
            return arithmetic.function(line, name, given)
        if name in _TWO and len(given) == 2:
            kind = rules.of_two(name, given[0].type, given[1].type)
            base = converted(given[0].expr, kind)
            if name == "pow" and rules.is_power_of_i32(given[0].type, given[1].type):
                return Num(ir.Call(line, "math.powi", [base, converted(given[1].expr, I32)], type=kind))
            return arithmetic.function(line, name, [Num(base), Num(converted(given[1].expr, kind))])
        if name in _WHOLE:  # unlike Numba on the host, floats
            if rules.is_integer(given[0].type):
                return Num(converted(given[0].expr, F64))
            return arithmetic.function(line, name, given)
        if name in _TESTS:
            if rules.is_integer(given[0].type):
                return Const(name == "isfinite")
            return arithmetic.function(line, name, given, BOOL)
        if name == "ldexp":
            base = converted(given[0].expr, rules.of_float(given[0].type))
            return Num(ir.Call(line, "math.ldexp", [base, converted(given[1].expr, I32)], type=base.type))
        if name in ("modf", "frexp"):
            of = rules.of_float if name == "frexp" else rules.mathematical
            x = self.hold(converted(given[0].expr, of(given[0].type)))
            assert x.type is not None  # noqa: S101  it was converted
            second = I32 if name == "frexp" else x.type
            first = ir.Call(line, f"math.{name}_0", [copy(x)], type=x.type)
            rest = ir.Call(line, f"math.{name}_1", [copy(x)], type=second)
            return Tup((Num(self.hold_always(first, "part")), Num(self.hold_always(rest, "part"))))
        if name == "fma":
            return self._call_fma(node, "", list(given))
        if name == "gcd" and len(given) == 2:
            kind = rules.integer_result(given[0].type, given[1].type)
            return Num(ir.Call(line, "math.gcd", [converted(value.expr, kind) for value in given], type=kind))
        if name in ("log",) and len(given) == 2:
            return self.binary(node, "/", *(arithmetic.function(line, "log", [value]) for value in given))
        return None

    def _numpy_function(self, node: ast.Call, name: str, given: list[Num]) -> Value | None:
        line = node.lineno
        if name in ("abs", "absolute", "negative", "positive", "invert", "bitwise_not", "logical_not"):
            op = {"negative": "-", "positive": "+", "invert": "~", "bitwise_not": "~", "logical_not": "not"}.get(
                name, "abs"
            )
            kind = given[0].type
            made = self.unary(node, op, given[0])
            # NumPy keeps the type of narrow integers.
            return Num(converted(made.expr, kind)) if isinstance(made, Num) and op != "not" and kind != BOOL else made
        if name in ("conj", "conjugate"):
            return Num(converted(given[0].expr, I8 if given[0].type == BOOL else given[0].type))
        if name in ("maximum", "minimum", "fmax", "fmin"):
            op = "max" if "max" in name else "min"
            a, b = (self.held(value) for value in given)
            assert isinstance(a, Num) and isinstance(b, Num)  # noqa: S101  both are real
            best = arithmetic.extreme(line, op, a, b)
            if best.type.kind != "float" or name[0] == "f":
                return best
            sides = [converted(copy(value.expr), best.type) for value in (a, b)]
            nans = [ir.Binary(line, "!=", copy(side), copy(side), type=BOOL) for side in sides]
            either = ir.Logic(line, "or", *nans, type=BOOL)
            total = ir.Binary(line, "+", *map(copy, sides), type=best.type)
            return Num(ir.Select(line, either, total, best.expr, type=best.type))
        if name in ("logical_and", "logical_or", "logical_xor"):
            truths = [truth(value) for value in given]
            if name == "logical_xor":
                return Num(ir.Binary(line, "!=", *truths, type=BOOL))
            return Num(ir.Logic(line, name[8:], *truths, type=BOOL))
        if name == "square":
            value = self.held(given[0])
            return self.binary(node, "*", value, value)
        if name == "reciprocal":
            return self.binary(node, "/", Num(literal(line, 1.0, rules.mathematical(given[0].type))), given[0])
        return None

    def _complex_pair(self, node: ast.Call, name: str, given: list[Num | Cplx]) -> Value:
        """Return a function of NumPy of complex numbers, which are ordered by real and then by imaginary part."""
        line = node.lineno
        if name.startswith("logical_"):
            truths = [truth(self.held(value)) for value in given]
            if name == "logical_not":
                return Num(ir.Unary(line, "not", truths[0], type=BOOL))
            if name == "logical_xor":
                return Num(ir.Binary(line, "!=", *truths, type=BOOL))
            return Num(ir.Logic(line, name[8:], *truths, type=BOOL))
        kind = rules.unified(given[0].type, given[1].type)
        a, b = (self.held(number(value, kind)) for value in given)
        assert isinstance(a, Cplx) and isinstance(b, Cplx) and isinstance(kind, rules.Complex)  # noqa: S101  one is

        def compared(op: str) -> ir.Expr:
            strict = ir.Binary(line, op[0], copy(a.re), copy(b.re), type=BOOL)
            same = ir.Binary(line, "==", copy(a.re), copy(b.re), type=BOOL)
            inner = ir.Binary(line, op, copy(a.im), copy(b.im), type=BOOL)
            return ir.Logic(line, "or", strict, ir.Logic(line, "and", same, inner, type=BOOL), type=BOOL)

        if name in _NUMPY_OPERATORS:
            return Num(compared(_NUMPY_OPERATORS[name]))
        if name not in ("maximum", "minimum", "fmax", "fmin"):
            self.refuse(node, f"{name} of complex numbers", "real numbers")
        nans = []
        for value in (a, b):
            sides = [ir.Binary(line, "!=", copy(part), copy(part), type=BOOL) for part in (value.re, value.im)]
            nans.append(ir.Logic(line, "or", *sides, type=BOOL))
        first = compared(">=" if "max" in name else "<=")
        if name[0] == "f":
            first = ir.Logic(line, "or", first, nans[1], type=BOOL)
            first = self.hold(ir.Logic(line, "and", first, ir.Unary(line, "not", nans[0], type=BOOL), type=BOOL))
        else:
            first = self.hold(ir.Logic(line, "or", first, nans[0], type=BOOL))
        parts = [
            ir.Select(line, copy(first), copy(x), copy(y), type=kind.part) for x, y in ((a.re, b.re), (a.im, b.im))
        ]
        return self.held(Cplx(parts[0], parts[1], kind))

    def _rect(self, node: ast.Call, given: list[Num | Cplx]) -> Value:
        """Return the complex number of a length and an angle, as Numba's ``cmath.rect`` does."""
        line = node.lineno
        single = all(value.type == F32 for value in given)
        part, kind = (F32, rules.C64) if single else (F64, rules.C128)
        radius, angle = (self.hold(converted(self.num(node, value).expr, part)) for value in given)
        zero = literal(line, 0.0, part)
        endless = self.hold(ir.Call(line, "math.isinf", [copy(radius)], type=BOOL))
        no_length = ir.Binary(line, "==", copy(radius), zero, type=BOOL)
        finite = ir.Call(line, "math.isfinite", [copy(angle)], type=BOOL)
        unclear = self.hold(ir.Unary(line, "not", finite, type=BOOL))
        nowhere = self.hold(ir.Logic(line, "and", no_length, copy(unclear), type=BOOL))
        far = self.hold(ir.Logic(line, "and", copy(endless), copy(unclear), type=BOOL))
        both: list[ir.Expr] = []
        for f, special in (("cos", radius), ("sin", angle)):
            side = self.hold(ir.Call(line, f"math.{f}", [copy(angle)], type=part))
            # 0 times an endless length stays 0, with the sign of the quotient.
            no_part = ir.Binary(line, "==", copy(side), copy(zero), type=BOOL)
            on_axis = ir.Logic(line, "and", no_part, copy(endless), type=BOOL)
            scaled = ir.Binary(line, "*", copy(side), copy(radius), type=part)
            shrunk = ir.Binary(line, "/", copy(side), copy(radius), type=part)
            usual = ir.Select(line, on_axis, shrunk, scaled, type=part)
            usual = ir.Select(line, copy(far), copy(special), usual, type=part)
            none = ir.Unary(line, "abs", copy(radius), type=part) if f == "cos" else copy(zero)
            both.append(ir.Select(line, copy(nowhere), none, usual, type=part))
        return self.held(Cplx(both[0], both[1], kind))

    def _complex_function(self, node: ast.Call, name: str, given: list[Num | Cplx]) -> Value:
        line = node.lineno
        kind = given[0].type if isinstance(given[0].type, rules.Complex) else rules.C128
        if given[0].type == F32:
            kind = rules.C64
        if name == "log" and len(given) == 2:
            quotient = [self._complex_function(node, name, [value]) for value in given]
            return self.binary(node, "/", *quotient)
        if name == "rect":
            return self._rect(node, given)
        if name == "acosh":  # computed with constants of float64
            kind = rules.C128
        value = self.held(number(given[0], kind))
        assert isinstance(value, Cplx)  # noqa: S101  it was converted to complex
        re, im = value.re, value.im
        if name in ("log10", "tanh"):
            kind = rules.C128
        if name in ("phase", "angle"):
            return Num(ir.Call(line, "math.atan2", [copy(im), copy(re)], type=kind.part))
        if name == "polar":
            angle = ir.Call(line, "math.atan2", [copy(im), copy(re)], type=kind.part)
            return Tup((Num(ir.Call(line, "math.hypot", [copy(re), copy(im)], type=kind.part)), Num(angle)))
        if name in ("absolute", "abs"):
            return Num(ir.Call(line, "math.hypot", [copy(re), copy(im)], type=kind.part))
        if name in ("isnan", "isinf", "isfinite"):
            sides = [ir.Call(line, f"math.{name}", [copy(part)], type=BOOL) for part in (re, im)]
            return Num(ir.Logic(line, "and" if name == "isfinite" else "or", *sides, type=BOOL))
        if name in ("conj", "conjugate"):
            return Cplx(re, ir.Unary(line, "-", im, type=kind.part), kind)
        if name in _COMPLEX_FUNCTIONS:
            made = [
                ir.Call(line, f"complex.{name}_{part}", [copy(re), copy(im)], type=kind.part) for part in ("re", "im")
            ]
            return self.held(Cplx(made[0], made[1], kind))
        self.refuse(node, f"{name} of a complex number", ", ".join(_COMPLEX_FUNCTIONS))
