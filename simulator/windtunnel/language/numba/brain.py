"""The functions of ``cuda.bf16``: computed in float32, which holds sums and products exactly enough, then rounded."""

from __future__ import annotations

import ast
import re
from copy import copy

from windtunnel.language import ir
from windtunnel.language.numba import arithmetic, rules
from windtunnel.language.numba.arithmetic import converted
from windtunnel.language.numba.methods import MethodReader
from windtunnel.language.numba.values import Num, Value, literal
from windtunnel.language.types import BF16, BOOL, F32, F64, I16, I32, U16, U32, Scalar

_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARED = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
_WHOLE = {"rn": "rint", "rz": "trunc", "rd": "floor", "ru": "ceil"}
_CONVERSION = re.compile(r"(\w+?)_to_(\w+?)(?:_(r[nzdu]))?$")
_DROPPED_BITS = 0xFFFF
"""The bits of a float32 that a bfloat16 does not have."""


class BrainReader(MethodReader):
    """Reads calls of the functions of ``cuda.bf16``."""

    def _call_brain(self, node: ast.Call, name: str, given: list[Value]) -> Value:
        line = node.lineno
        conversion = _CONVERSION.match(name)
        if conversion is not None:
            return self._to_or_from(node, conversion, self.num(node, given[0]))
        if "_as_" in name:
            kinds = {"bfloat16": BF16, "int16": I16, "uint16": U16}
            source, target = (kinds[part] for part in name.split("_as_"))
            bits = converted(self.num(node, given[0]).expr, source)
            return Num(ir.Call(line, f"bits.as_{target.name}", [bits], type=target))
        x = [self.hold(converted(converted(self.num(node, value).expr, BF16), F32)) for value in given]
        plain, _, end = name[1:].partition("_")
        if plain in _BINARY:
            return self._rounded(line, ir.Binary(line, _BINARY[plain], x[0], x[1], type=F32), end)
        if plain == "fma":
            return self._rounded(line, ir.Call(line, "fma", x, type=F32), end)
        if plain in ("neg", "abs"):
            return Num(converted(ir.Unary(line, "-" if plain == "neg" else "abs", x[0], type=F32), BF16))
        if plain in ("isnan", "isinf"):
            test = ir.Call(line, f"math.{plain}", [x[0]], type=BOOL)
            return Num(test if plain == "isnan" else converted(test, I32))
        if plain in ("max", "min"):
            return self._extreme(line, plain, x, propagates=end == "nan")
        if plain in _COMPARED or plain.removesuffix("u") in _COMPARED:
            unordered = plain not in _COMPARED
            return self._compared_brain(line, _COMPARED[plain.removesuffix("u") if unordered else plain], x, unordered)
        return Num(converted(arithmetic.function(line, plain, [Num(x[0])]).expr, BF16))

    def _rounded(self, line: int, e: ir.Expr, end: str) -> Num:
        """Return a result in bfloat16: between 0 and 1 (``sat``), or at least 0 (``relu``)."""
        if end in ("sat", "relu"):
            held = self.hold(e)
            low = literal(line, 0.0, F32)
            # NaN becomes 0 between 0 and 1, and stays NaN where only negative numbers become 0.
            below = ir.Binary(line, "<" if end == "relu" else ">", copy(held), copy(low), type=BOOL)
            sides = (low, held) if end == "relu" else (held, low)
            e = ir.Select(line, below, *map(copy, sides), type=F32)
            if end == "sat":
                e = ir.Binary(line, "min", e, literal(line, 1.0, F32), type=F32)
        return Num(converted(e, BF16))

    def _extreme(self, line: int, op: str, x: list[ir.Expr], *, propagates: bool) -> Num:
        nans = [ir.Call(line, "math.isnan", [copy(side)], type=BOOL) for side in x]
        beyond = ir.Binary(line, ">" if op == "max" else "<", copy(x[0]), copy(x[1]), type=BOOL)
        first = ir.Logic(line, "or", beyond, nans[0 if propagates else 1], type=BOOL)
        if not propagates:
            first = ir.Logic(line, "and", first, ir.Unary(line, "not", nans[0], type=BOOL), type=BOOL)
        else:
            second = ir.Unary(line, "not", copy(nans[1]), type=BOOL)
            first = ir.Logic(line, "or", copy(nans[0]), ir.Logic(line, "and", second, beyond, type=BOOL), type=BOOL)
        return Num(converted(ir.Select(line, first, copy(x[0]), copy(x[1]), type=F32), BF16))

    def _compared_brain(self, line: int, op: str, x: list[ir.Expr], unordered: bool) -> Num:
        result: ir.Expr = ir.Binary(line, op, *x, type=BOOL)
        nans = [ir.Call(line, "math.isnan", [copy(side)], type=BOOL) for side in x]
        either = ir.Logic(line, "or", *nans, type=BOOL)
        if unordered:
            return Num(ir.Logic(line, "or", either, result, type=BOOL))
        return Num(ir.Logic(line, "and", ir.Unary(line, "not", either, type=BOOL), result, type=BOOL))

    def _to_or_from(self, node: ast.Call, found: re.Match[str], value: Num) -> Num:
        """Return a conversion to or from bfloat16 with a direction of rounding."""
        line = node.lineno
        source, target, how = found.groups()
        kinds = rules.NUMBA_NAMES
        begin, to = kinds[source], kinds[target]
        assert isinstance(begin, Scalar) and isinstance(to, Scalar)  # noqa: S101  the names are of real numbers
        e = converted(value.expr, begin)
        if begin == BF16:
            single = converted(e, F32)
            if to == F32:
                return Num(single)
            whole = ir.Call(line, f"math.{_WHOLE[how]}", [single], type=F32)
            return Num(converted(whole, to))
        if how in (None, "rn"):
            return Num(converted(e, BF16))
        return Num(self._directed(line, e, how))

    def _directed(self, line: int, e: ir.Expr, how: str) -> ir.Expr:
        """Return a number rounded to bfloat16 towards 0, down or up: the upper half of a float32, or the next one."""
        single = e if e.type == F32 else ir.Call(line, f"f32_{how}", [converted(e, F64)], type=F32)
        held = self.hold(single)
        bits = self.hold(ir.Call(line, "bits.as_u32", [copy(held)], type=U32))
        rest = ir.Binary(line, "&", copy(bits), literal(line, _DROPPED_BITS, U32), type=U32)
        upper: ir.Expr = ir.Binary(line, "-", copy(bits), copy(rest), type=U32)
        if how != "rz":
            outward = ir.Binary(line, "<" if how == "rd" else ">", copy(held), literal(line, 0.0, F32), type=BOOL)
            inexact = ir.Binary(line, "!=", copy(rest), literal(line, 0, U32), type=BOOL)
            following = ir.Binary(line, "+", copy(upper), literal(line, _DROPPED_BITS + 1, U32), type=U32)
            away = ir.Logic(line, "and", outward, inexact, type=BOOL)
            upper = ir.Select(line, away, following, upper, type=U32)
        return converted(ir.Call(line, "bits.as_f32", [upper], type=F32), BF16)
