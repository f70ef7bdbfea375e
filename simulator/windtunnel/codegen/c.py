"""What the targets share whose languages are C's: CUDA C, HIP, OpenCL C, Metal and the C++ of high-level synthesis."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from windtunnel.codegen.base import Emitter
from windtunnel.codegen.signature import Value
from windtunnel.codegen.text import PRIMARY, UNARY, Piece, bits_of, closes_last
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, Scalar


class CEmitter(Emitter):
    """C, with what each target adds to it."""

    types: ClassVar[Mapping[str, str]]
    """The target's spelling of each type."""
    wide_suffix: ClassVar[str] = "ll"
    helper: ClassVar[str] = "static inline"
    """What comes before the type of a function of ours."""
    short_suffix: ClassVar[str] = "f"
    """What C adds to the names of its functions for f32; overloaded elsewhere."""
    word: ClassVar[tuple[str, str]] = ("", "")
    """(f32 to the u32 with its bits, and back)."""
    tf32_half: ClassVar[tuple[str, str]] = ("0xfffu + ((b >> 13) & 1u)", "to even")
    """(what is added to round half of a unit, where it then goes)."""
    infinity: ClassVar[str] = "INFINITY"
    not_a_number: ClassVar[str] = "NAN"
    long_word: ClassVar[tuple[str, str]] = ("", "")
    """The same of f64 and u64."""

    # Types and numbers.

    def value_type(self, kind: Scalar) -> str:
        return self.types["f32" if kind in self.emulated else kind.name]

    def literal(self, value: float, kind: Scalar) -> Piece:
        value = bits_of(value, kind)
        if kind == BOOL:
            return Piece("true" if value else "false", PRIMARY)
        if kind.kind == "float":
            return self.float_literal(value, kind)
        suffix = {"u32": "u", "i64": self.wide_suffix, "u64": "u" + self.wide_suffix}.get(kind.name, "")
        if kind.bits >= 32 and value == -(2 ** (kind.bits - 1)):
            return Piece(f"(-{-value - 1}{suffix} - 1{suffix})", PRIMARY)  # C has no negative literals
        return Piece(f"{value}{suffix}", PRIMARY if value >= 0 else UNARY)

    def float_literal(self, value: float, kind: Scalar) -> Piece:
        """A float; infinities and NaN by the name that the target has for them."""
        if math.isnan(value) or math.isinf(value):
            text = self.not_a_number if math.isnan(value) else self.infinity
            text = f"-{text}" if value < 0 else text
            found = Piece(text, UNARY if text.startswith("-") else PRIMARY)
            return found if kind == F32 or kind in self.emulated else self.cast(kind, found)
        text = np.format_float_positional(np.float64(value) if kind == F64 else np.float32(value), trim="0")
        if len(text) > 18:
            text = np.format_float_scientific(np.float64(value) if kind == F64 else np.float32(value), trim="0")
        return Piece(text + self.float_suffix(kind), UNARY if text.startswith("-") else PRIMARY)

    def float_suffix(self, kind: Scalar) -> str:
        """What comes after a float's digits."""
        return "" if kind == F64 else "f"

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        return Piece(f"({self.value_type(to)}){self.at(inner, UNARY)}", UNARY)

    def whole_value(self, e: ir.Expr, address: bool = False) -> str:
        found = super().whole_value(e, address)
        # A variable of the type converts by itself what was worked out on unsigned numbers.
        head = f"({self.types['i32']})("
        if e.type == I32 and isinstance(e, ir.Binary) and found.startswith(head) and closes_last(found, len(head) - 1):
            return found[len(head) : -1]
        return found

    # Functions of numbers.

    def math(self, name: str, kind: Scalar, line: int) -> str:
        del line
        return name if kind == F64 else name + self.short_suffix

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        if kind.kind == "float":
            name = self.math("fmin" if e.op == "min" else "fmax", kind, e.line)
            return self.function(name, self.expression(e.left), self.expression(e.right))
        wide = kind if kind.bits >= 32 and kind != BOOL else I32
        given = [self.widened(s, wide) for s in (e.left, e.right)]
        return self.narrowed(self.integer_extreme(e.op, wide, given), kind, e.op)

    def widened(self, e: ir.Expr, wide: Scalar) -> Piece:
        """An integer in a type that holds it."""
        if isinstance(e, ir.Literal):
            return self.literal(e.value, wide)
        return self.expression(e) if e.type == wide else self.cast(wide, self.expression(e))

    def integer_extreme(self, op: str, kind: Scalar, given: Sequence[Piece]) -> Piece:
        """min, max of integers of at least 32 bits."""
        del kind
        return self.function(op, *given)

    def call(self, e: ir.Call) -> Piece:
        kind, given = e.type, [self.expression(a) for a in e.arguments]
        worked = e.arguments[0].type
        assert kind is not None and worked is not None  # noqa: S101  inference has been here
        if e.op.startswith("bits."):
            return self.bit_function(e.op.removeprefix("bits."), given[0], worked, kind)
        if e.op == "round.tf32":
            return self.function(self.need("round_tf32"), *given)
        if kind in (F16, BF16):
            # As NumPy's: in 32 bits, and rounded.
            return self.from_wide(self.narrow_call(e, self.wide_floats(kind, *e.arguments)), kind)
        name = e.op.removeprefix("math.")
        if name in ("isnan", "isinf"):
            return self.infix("!=", self.function(name, *given), Piece("0", PRIMARY))
        return self.math_call(name, given, kind, e.line)

    def narrow_call(self, e: ir.Call, given: Sequence[Piece]) -> Piece:
        """A function of 16-bit floats, in 32 bits. A product is exact there, and needs no fma."""
        if e.op == "fma":
            return self.infix("+", self.infix("*", given[0], given[1]), given[2])
        return self.math_call(e.op.removeprefix("math."), given, F32, e.line)

    def math_call(self, name: str, given: Sequence[Piece], kind: Scalar, line: int) -> Piece:
        """A function of floats."""
        return self.function(self.math(name, kind, line), *given)

    def bit_function(self, name: str, given: Piece, worked: Scalar, kind: Scalar) -> Piece:
        """popc, clz, ffs, brev; of narrow integers, on the 32 bits that begin with zeros."""
        wide = Scalar(f"u{max(worked.bits, 32)}", "uint", max(worked.bits, 32))
        if worked.bits < 32:
            given = self.cast(Scalar(f"u{worked.bits}", "uint", worked.bits), given)
        if worked != wide:
            given = self.cast(wide, given)
        found = self.function(self.need(f"{name}_{wide}"), given)
        spare = 32 - worked.bits
        if spare > 0 and name == "clz":
            return self.infix("-", found, self.literal(spare, I32))
        if name == "brev":
            if spare > 0:
                found = self.infix(">>", found, self.literal(spare, I32))
            return found if worked == wide else self.cast(kind, found)
        return found

    # Arrays.

    def sides_product(self, shape: Sequence[int]) -> str:
        """The elements of a declared array, side by side."""
        return " * ".join(map(str, shape))

    # Functions of ours.

    def need(self, helper: str) -> str:
        name = f"wt_{helper}"
        if name not in self.helpers:
            self.helpers[name] = ""  # its place; what it needs in its turn comes before
            text = self.helper_text(helper, name)
            del self.helpers[name]
            self.helpers[name] = text
        return name

    def helper_text(self, helper: str, name: str) -> str:
        """The source of a function of ours."""
        root, _, kind_name = helper.rpartition("_")
        if kind_name in ("f16", "bf16", "tf32"):
            return f"{self.helper} {self.narrow_helper(root, kind_name, name)}"
        written = _HELPERS.get(root, "")
        if not written:
            raise AssertionError(helper)
        bits = 64 if kind_name.endswith("64") else 32
        types = {
            "fn": self.helper,
            "name": name,
            "t": self.types[kind_name],
            "u": self.types[f"u{bits}"],
            "i": self.types["i32"],
            "bits": str(bits),
            "zero": self.literal(0, Scalar(f"u{bits}", "uint", bits)).text,
            "one": self.literal(1, Scalar(f"u{bits}", "uint", bits)).text,
            "half": "0.5" + ("" if bits == 64 else "f"),
            "null": "0.0" + ("" if bits == 64 else "f"),
            "unit": "1.0" + ("" if bits == 64 else "f"),
        }
        for function in ("fmod", "floor", "copysign"):
            types[function] = function if bits == 64 else function + self.short_suffix
        if kind_name.startswith("u"):
            written = _UNSIGNED_HELPERS.get(root, written)
        elif kind_name.startswith("f"):
            written = _FLOAT_HELPERS.get(root, written)
        for key, value in types.items():
            written = written.replace(f"${key}$", value)
        return written.strip("\n")

    def narrow_helper(self, root: str, kind: str, name: str) -> str:
        """Rounding to a type of 16 bits or less of mantissa, and reading and writing it where the target cannot."""
        f, u, h = self.types["f32"], self.types["u32"], self.types["u16"]
        to, back = self.word
        match root, kind:
            case "round", "tf32":
                half, says = self.tf32_half
                return (
                    f"{f} {name}({f} x) {{\n    // To 10 bits of mantissa, half {says}.\n    {u} b = {to}(x);\n"
                    f"    if ((b & 0x7f800000u) != 0x7f800000u) b = (b + {half}) & 0xffffe000u;\n"
                    f"    return {back}(b);\n}}"
                )
            case "round", "bf16":
                return f"{f} {name}({f} x) {{\n    return {self.need('load_bf16')}({self.need('store_bf16')}(x));\n}}"
            case "load", "bf16":
                return f"{f} {name}({h} b) {{\n    return {back}(({u})b << 16);\n}}"
            case "store", "bf16":
                return (
                    f"{h} {name}({f} x) {{\n    {u} b = {to}(x);\n"
                    "    // A NaN stays one, and is not rounded to infinity.\n"
                    f"    if ((b & 0x7fffffffu) > 0x7f800000u) return ({h})((b >> 16) | 0x40u);\n"
                    f"    return ({h})((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);\n}}"
                )
        raise AssertionError(root, kind)

    def helper_lines(self, body: Sequence[str]) -> Iterator[str]:
        """The functions of ours that the kernel's statements call, and those that these call."""
        calls = "\n".join(body)
        # What a function needs comes before it.
        for name, text in reversed(list(self.helpers.items())):
            if re.search(rf"\b{name}\b", calls):
                calls += text
            else:
                del self.helpers[name]  # the last rounding before a store is the store's
        for text in self.helpers.values():
            yield from text.splitlines()
            yield ""

    # Atomic operations that the target lacks: a compare-and-exchange loop.

    def changed(self, op: str, kind: Scalar, old: Piece, value: Piece, line: int) -> str:
        """What an atomic operation makes of what is there."""
        match op:
            case "add" | "sub":
                return self.infix("+" if op == "add" else "-", old, value).text
            case "min" | "max":
                if kind.kind == "float":
                    return self.function(self.math(f"f{op}", kind, line), old, value).text
                return self.integer_extreme(op, kind, [old, value]).text
            case "inc":
                return f"{old.text} >= {value.text} ? 0u : {old.text} + 1u"
            case "dec":
                return f"{old.text} == 0u || {old.text} > {value.text} ? {value.text} : {old.text} - 1u"
            case "exch":
                return value.text
        raise AssertionError(op)

    def parameter(self, one: Value) -> str:
        """A scalar parameter, passed by value."""
        passed = "u8" if one.type == BOOL else one.passed.name
        return f"{self.types[passed]} {self.spelled[one.name]}"

    def bits_and_back(self, kind: Scalar) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """How a number of 32 or 64 bits becomes the unsigned one with its bits, and back."""
        if kind.kind == "float":
            to, back = self.word if kind == F32 else self.long_word
            return (lambda x: f"{to}({x})"), (lambda x: f"{back}({x})")
        if kind.kind == "uint":
            return (lambda x: x), (lambda x: x)
        wide = "u32" if kind.bits == 32 else "u64"
        return (lambda x: f"({self.types[wide]}){x}"), (lambda x: f"({self.types[kind.name]}){x}")


_HELPERS: Mapping[str, str] = {
    "floor_div": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Rounds down, as Python does; of the smallest number and -1 it wraps, of 0 it is 0.
    if (b == 0) return 0;
    if (b == -1) return ($t$)($zero$ - ($u$)a);
    $t$ q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floor_mod": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Has the sign of b, as Python's.
    if (b == 0 || b == -1) return 0;
    $t$ r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "abs": """
$fn$ $t$ $name$($t$ a) {
    return a < 0 ? ($t$)($zero$ - ($u$)a) : a;
}
""",
    "power": """
$fn$ $t$ $name$($t$ base, int exponent) {
    $u$ product = $one$;
    for (int n = 0; n < exponent; ++n) product *= ($u$)base;
    return ($t$)product;
}
""",
    "shift_left": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // All bits are shifted out by as many as there are, or more.
    return ($u$)b < $bits$ ? ($t$)(($u$)a << b) : 0;
}
""",
    "shift_right": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    return ($u$)b < $bits$ ? a >> b : a < 0 ? -1 : 0;
}
""",
    "square": """
$fn$ $t$ $name$($t$ x) {
    return x * x;
}
""",
}
_FLOAT_HELPERS: Mapping[str, str] = {
    "floor_div": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Rounds down, as Python and NumPy do, from the exact remainder.
    if (b == $null$) return a / b;
    $t$ r = $fmod$(a, b);
    $t$ q = (a - r) / b;
    if (r != $null$ && (b < $null$) != (r < $null$)) q -= $unit$;
    if (q == $null$) return $copysign$($null$, a / b);
    $t$ down = $floor$(q);
    return q - down > $half$ ? down + $unit$ : down;
}
""",
    "floor_mod": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // Has the sign of b, as Python's.
    $t$ r = $fmod$(a, b);
    if (b == $null$) return r;
    if (r == $null$) return $copysign$($null$, b);
    return (b < $null$) != (r < $null$) ? r + b : r;
}
""",
}
_UNSIGNED_HELPERS: Mapping[str, str] = {
    "shift_left": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    // All bits are shifted out by as many as there are, or more.
    return b < $bits$ ? a << b : 0;
}
""",
    "shift_right": """
$fn$ $t$ $name$($t$ a, $t$ b) {
    return b < $bits$ ? a >> b : 0;
}
""",
}
