"""Expressions in the dialects of C: types, numbers, functions of numbers, and the helper functions that they call."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from windtunnel.codegen import c_helpers, c_numbers
from windtunnel.codegen.emitter import Emitter
from windtunnel.codegen.text import PRIMARY, UNARY, WRAPS, Piece, bits_of, closes_last, folded_value
from windtunnel.codegen.tokens import CTokens
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, SCALARS, U32, U64, Scalar


class CExpressions(Emitter):
    """Writes expressions in a dialect of C that ``tokens`` describes."""

    tokens: CTokens

    # Types and numbers.

    def value_type(self, kind: Scalar) -> str:
        """Return the type of a local variable."""
        return self.tokens.types["f32" if kind in self.tokens.emulated else kind.name]

    def array_type(self, kind: Scalar, *, declared: bool) -> str:
        """Return the type of the elements of a global or a declared (shared, local) array."""
        if kind.name in self.tokens.array_types:
            return self.tokens.array_types[kind.name]
        return self.value_type(kind) if declared and not self.tokens.narrow_declared else self.tokens.types[kind.name]

    def literal(self, value: float, kind: Scalar) -> Piece:
        """Return a number with the suffix of its type."""
        value = bits_of(value, kind)
        if kind == BOOL:
            return Piece("true" if value else "false", PRIMARY)
        if kind.kind == "float":
            return self.float_literal(value, kind)
        wide = self.tokens.wide_suffix
        suffix = {"u32": "u", "i64": wide, "u64": "u" + wide}.get(kind.name, "")
        if kind.bits >= 32 and value == -(2 ** (kind.bits - 1)):
            return Piece(f"(-{-value - 1}{suffix} - 1{suffix})", PRIMARY)  # C has no negative literals
        return Piece(f"{value}{suffix}", PRIMARY if value >= 0 else UNARY)

    def float_literal(self, value: float, kind: Scalar) -> Piece:
        """Return a float; an infinity or a NaN by its name."""
        tokens = self.tokens
        if math.isnan(value) or math.isinf(value):
            text = tokens.not_a_number if math.isnan(value) else tokens.infinity
            piece = Piece(f"-{text}", UNARY) if value < 0 else Piece(text, PRIMARY)
            return piece if kind == F32 or kind in tokens.emulated else self.cast(kind, piece)
        number = np.float64(value) if kind == F64 else np.float32(value)
        text = np.format_float_positional(number, trim="0")
        if len(text) > 18:
            text = np.format_float_scientific(number, trim="0")
        text += tokens.float_suffixes.get(kind.name, "f")
        piece = Piece(text, UNARY if text.startswith("-") else PRIMARY)
        return self.cast(kind, piece) if kind.name in tokens.cast_literals else piece

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        """Return a cast."""
        return Piece(f"({self.value_type(to)}){self.at(inner, UNARY)}", UNARY)

    def whole_value(self, e: ir.Expr, address: bool = False) -> str:
        """Return the right side of an assignment; a variable converts unsigned results to int by itself."""
        text = super().whole_value(e, address)
        head = f"({self.tokens.types['i32']})("
        if e.type == I32 and isinstance(e, ir.Binary) and text.startswith(head) and closes_last(text, len(head) - 1):
            return text[len(head) : -1]
        return text

    def thread_index(self, e: ir.Index) -> Piece:
        """Return an index of the thread."""
        self.used.add(e.what)
        index = self._index(e)
        return index if self.tokens.signed_indices else self.cast(I32, index)

    def _index(self, e: ir.Index) -> Piece:
        return Piece(self.tokens.indices[e.what].format(x="xyz"[e.axis], axis=e.axis), PRIMARY)

    def unsigned(self, e: ir.Expr) -> Piece:
        """Return an integer as an unsigned number; CUDA's thread indices already are."""
        if self.tokens.folds_indices and isinstance(e, ir.Index):
            return self._index(e)
        return super().unsigned(e)

    def wrapping(self, e: ir.Binary, kind: Scalar, address: bool) -> Piece:
        """Return ``+``, ``-`` or ``*``, which may overflow."""
        if (
            self.tokens.folds_indices
            and kind == I32
            and all(isinstance(i, ir.Index) or (isinstance(i, ir.Binary) and i.op in WRAPS) for i in ir.inside(e))
        ):
            return self.cast(kind, self.unsigned(e))
        return super().wrapping(e, kind, address)

    # Functions of numbers.

    def math(self, name: str, kind: Scalar, line: int) -> str:
        """Return the name of a function of floats."""
        if name in self.tokens.no_functions or (
            name in c_numbers.BEYOND_PYTHON and name not in self.tokens.more_functions
        ):
            self.refuse(
                line, f"{self.tokens.short_title or self.tokens.title} has no {name}", "an approximation of your own"
            )
        return name if kind == F64 else name + self.tokens.short_suffix

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        """Return a minimum or maximum."""
        if kind.kind == "float":
            name = self.math("fmin" if e.op == "min" else "fmax", kind, e.line)
            return self.function(name, self.expression(e.left), self.expression(e.right))
        wide = kind if kind.bits >= 32 and kind != BOOL else I32
        sides = [self.widened(side, wide) for side in (e.left, e.right)]
        return self.narrowed(self.integer_extreme(e.op, wide, sides), kind, e.op)

    def widened(self, e: ir.Expr, wide: Scalar) -> Piece:
        """Return an integer in a wider type."""
        if isinstance(e, ir.Literal):
            return self.literal(e.value, wide)
        return self.expression(e) if e.type == wide else self.cast(wide, self.expression(e))

    def integer_extreme(self, op: str, kind: Scalar, sides: Sequence[Piece]) -> Piece:
        """Return the minimum or maximum of integers of at least 32 bits."""
        return self.function(op if self.tokens.integer_extremes else self.need(f"{op}_{kind}"), *sides)

    def call(self, e: ir.Call) -> Piece:
        """Return a call of a mathematical function."""
        kind, arguments = e.type, [self.expression(argument) for argument in e.arguments]
        worked = e.arguments[0].type
        assert kind is not None and worked is not None  # noqa: S101  inference has been here
        if e.op.startswith("bits.as_"):
            return self.reinterpreted(arguments[0], worked, kind)
        if e.op.startswith("int."):
            return self.integer_call(e.op.removeprefix("int."), e, arguments)
        if e.op.startswith("round.f32_"):
            return self.directed(e.op.removeprefix("round.f32_"), arguments[0], e.line)
        if e.op.startswith("bits."):
            return self.bit_function(e.op.removeprefix("bits."), arguments[0], worked, kind)
        if e.op == "round.tf32":
            return self.function(self.need("round_tf32"), *arguments)
        if kind in (F16, BF16):
            # As in NumPy, computed in 32 bits and rounded.
            return self.from_wide(self.narrow_call(e, self.wide_floats(kind, *e.arguments)), kind)
        name = e.op.removeprefix("math.")
        if name in c_numbers.TESTS:
            return self.tested(name, arguments[0], worked)
        return self.math_call(name, arguments, kind, e.line)

    def tested(self, name: str, value: Piece, worked: Scalar) -> Piece:
        """Return a test of a float."""
        if worked in (F16, BF16) and worked not in self.tokens.emulated:
            value = self.cast(F32, value)
        if name not in ("isnan", "isinf"):
            return self.function(self.need(f"{name}_{F64 if worked == F64 else F32}"), value)
        return self.infix("!=", self.function(name, value), Piece("0", PRIMARY))

    def reinterpreted(self, value: Piece, have: Scalar, to: Scalar) -> Piece:
        """Return the bits of a number as a number of another type of the same size."""
        if have.kind == "float":
            unsigned = SCALARS[f"u{have.bits}"]
            word = self.word_of(have, value.text) if have.bits >= 32 else f"{self.need(f'bits_{have}')}({value.text})"
            made = Piece(word, PRIMARY)
            return made if to == unsigned else self.cast(to, made)
        unsigned = SCALARS[f"u{to.bits}"]
        value = value if have == unsigned else self.cast(unsigned, value)
        if to.bits < 32:
            return self.function(self.need(f"from_bits_{to}"), value)
        return Piece(self.float_of(to, value.text), PRIMARY)

    def word_of(self, kind: Scalar, text: str) -> str:
        """Return the bits of a float of 32 or 64 bits, as an unsigned number."""
        return self.bits_and_back(kind)[0](text)

    def float_of(self, kind: Scalar, text: str) -> str:
        """Return the float of 32 or 64 bits that has these bits."""
        return self.bits_and_back(kind)[1](text)

    def integer_call(self, op: str, e: ir.Call, arguments: Sequence[Piece]) -> Piece:
        """Return an operation on integers that only kernels in C have."""
        kind, worked = e.type, e.arguments[0].type
        assert kind is not None and worked is not None  # noqa: S101  the tree is typed
        if op in ("quotient", "remainder"):
            divisor = folded_value(e.arguments[1])
            if divisor is not None and divisor > 0 and self.tokens.truncates:
                return self.narrowed(self.infix("/" if op == "quotient" else "%", *arguments), kind, op)
        stem = op.partition("_")[0]
        named = f"{stem}_{worked}_{kind}" if stem in ("saturated", "limited") else f"{op}_{kind}"
        return self.function(self.need(named), *arguments)

    def directed(self, mode: str, value: Piece, line: int) -> Piece:
        """Return an f64 as an f32, rounded in a direction."""
        name = self.tokens.directed.get(mode)
        if name is None and "nextafter" in self.tokens.more_functions:
            name = self.need(f"f32_{mode}")
        if name is None:
            self.refuse(line, f"{self.tokens.short_title or self.tokens.title} rounds to nearest only", "f32(...)")
        return self.function(name, value)

    def narrow_call(self, e: ir.Call, arguments: Sequence[Piece]) -> Piece:
        """Return a function of 16-bit floats in 32 bits. A product is exact there, so no fma is needed."""
        if e.op == "fma":
            return self.infix("+", self.infix("*", arguments[0], arguments[1]), arguments[2])
        return self.math_call(e.op.removeprefix("math."), arguments, F32, e.line)

    def math_call(self, name: str, arguments: Sequence[Piece], kind: Scalar, line: int) -> Piece:
        """Return a function of floats of at least 32 bits."""
        if name == "rsqrt" and not self.tokens.has_rsqrt:
            return self.infix("/", self.literal(1.0, kind), self.function(self.math("sqrt", kind, line), *arguments))
        return self.function(self.math(name, kind, line), *arguments)

    def bit_function(self, name: str, argument: Piece, worked: Scalar, kind: Scalar) -> Piece:
        """Return popc, clz, ffs or brev. A narrow integer is extended with zeros to 32 bits."""
        wide = Scalar(f"u{max(worked.bits, 32)}", "uint", max(worked.bits, 32))
        if worked.bits < 32:
            argument = self.cast(Scalar(f"u{worked.bits}", "uint", worked.bits), argument)
        if worked != wide:
            argument = self.cast(wide, argument)
        result = self.function(self.need(f"{name}_{wide}"), argument)
        spare = 32 - worked.bits
        if spare > 0 and name == "clz":
            return self.infix("-", result, self.literal(spare, I32))
        if name == "brev":
            if spare > 0:
                result = self.infix(">>", result, self.literal(spare, I32))
            return result if worked == wide else self.cast(kind, result)
        return result

    def bits_and_back(self, kind: Scalar) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Return the conversions of a 32- or 64-bit number to the unsigned number with the same bits, and back."""
        if kind.kind == "float":
            to, back = self.tokens.word if kind == F32 else self.tokens.long_word
            return (lambda text: f"{to}({text})"), (lambda text: f"{back}({text})")
        if kind.kind == "uint":
            return (lambda text: text), (lambda text: text)
        word = self.tokens.types[f"u{kind.bits}"]
        return (lambda text: f"({word}){text}"), (lambda text: f"({self.tokens.types[kind.name]}){text}")

    # Helper functions.

    def need(self, helper: str) -> str:
        """Add a helper function to the source, after those that it calls, and return its name."""
        name = f"wt_{helper}"
        if name not in self.helpers:
            self.helpers[name] = ""  # prevents an endless recursion
            text = self.helper_text(helper, name)
            del self.helpers[name]
            self.helpers[name] = text
        return name

    def helper_text(self, helper: str, name: str) -> str:
        """Return the source of a helper function."""
        root, _, kind = helper.rpartition("_")
        tokens = self.tokens
        made = c_numbers.helper_text(self, helper, name, f"{tokens.helper} ")
        if made is not None:
            return made
        text = tokens.helpers.get(helper) or c_helpers.NARROW.get(helper) or tokens.helpers.get(root)
        if text is None:
            variant = c_helpers.UNSIGNED if kind.startswith("u") else c_helpers.FLOATS if kind.startswith("f") else {}
            text = variant.get(root) or c_helpers.INTEGERS[root]
        return self.filled(text, name, kind)

    def filled(self, text: str, name: str, kind: str, values: Mapping[str, str] | None = None) -> str:
        """Fill the text of a helper of the type ``kind``."""
        tokens, types = self.tokens, self.tokens.types
        bits, wide = ("64", True) if kind.endswith("64") else ("32", False)
        unsigned = U64 if wide else U32
        suffix = "" if wide else "f"
        words = {
            "fn": tokens.helper, "name": name, "t": types.get(kind, ""), "u": types.get(f"u{bits}", ""),
            "s": types.get(f"i{bits}", ""), "i": types["i32"], "bits": bits, "last": str(int(bits) - 1),
            "ll": "ll" if wide else "", "zero": self.literal(0, unsigned).text, "one": self.literal(1, unsigned).text,
            "half": f"0.5{suffix}", "null": f"0.0{suffix}", "unit": f"1.0{suffix}",
            "f": types["f32"], "w": types["u32"], "h": types["u16"], "to": tokens.word[0], "back": tokens.word[1],
            "half_unit": tokens.tf32_half[0], "tie": tokens.tf32_half[1],
            **{n: n if wide else n + tokens.short_suffix for n in ("fmod", "floor", "copysign")},
            **(values or {}),
        }  # fmt: skip
        text = re.sub(r"\$(\w+)\$", lambda match: words[match[1]] if match[1] in words else self.need(match[1]), text)
        return text.strip("\n")

    def helper_lines(self, body: Sequence[str]) -> Iterator[str]:
        """Yield the helper functions that the kernel calls, directly or indirectly, in order of their calls."""
        calls = "\n".join(body)
        for name, text in reversed(list(self.helpers.items())):
            if re.search(rf"\b{name}\b", calls):
                calls += text
            else:
                del self.helpers[name]  # its only call was removed, because a store rounds
        for text in self.helpers.values():
            yield from text.splitlines()
            yield ""

    def named(self, template: str) -> str:
        """Replace ``$helper$`` by the helper's name."""
        return re.sub(r"\$(\w+)\$", lambda match: self.need(match[1]), template)
