"""The emitter of all dialects of C: CUDA C++, HIP, OpenCL C, Metal, C++ for high-level synthesis, and GLSL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from windtunnel.codegen import c_helpers, c_numbers
from windtunnel.codegen.emitter import Emitter
from windtunnel.codegen.signature import Argument, Buffer, Value
from windtunnel.codegen.text import EQUAL, PRIMARY, UNARY, WRAPS, Piece, bits_of, c_string, closes_last, folded_value
from windtunnel.codegen.tokens import AtomicRule, CTokens
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, SCALARS, U32, U64, Scalar


class CEmitter(Emitter):
    """Writes one kernel in a dialect of C that ``tokens`` describes."""

    tokens: CTokens
    prints = False
    """Whether the kernel prints."""

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        """Yield headers, helper functions and the kernel."""
        tokens, tops = self.tokens, self.lines_of(self.tops)
        if tokens.f64_extension and F64 in self.every_type():
            self.extensions.add(tokens.f64_extension)
        yield from (f"#include <{name}>" for name in self._headers(body))
        yield from tokens.prologue
        yield from (tokens.extension.format(name) for name in sorted(self.extensions))
        yield ""
        yield from self.helper_lines(body)
        yield from self._head()
        yield from tops
        yield from self._scalar_copies()
        yield from body
        yield "}"

    def _headers(self, body: Sequence[str]) -> Iterator[str]:
        yield from self.tokens.headers
        for feature, header in self.tokens.feature_headers.items():
            elements = (array.element.name for array in self.program.arrays.values())
            in_helpers = any(name.endswith(f"_{feature}") for name in self.helpers)
            if in_helpers or feature in elements or any(f"this_{feature}()" in line for line in body):
                yield header

    def _head(self) -> Iterator[str]:
        tokens = self.tokens
        arguments = [self.argument(argument) for argument in self.sorted_arguments()]
        arguments += [text for index, text in tokens.builtin_arguments.items() if index in self.used]
        head = tokens.entry.format(name=self.spelled[self.program.name], arguments="\n")
        if not tokens.entry_lines:
            yield head.replace("\n", ", ".join(arguments))
            return
        first, last = head.split("\n")
        yield first
        yield from (f"    {text}," for text in arguments[:-1])
        yield f"    {arguments[-1]}{last}" if arguments else last

    def argument(self, argument: Argument) -> str:
        """Return a parameter of the kernel."""
        if isinstance(argument, Buffer):
            return self.tokens.pointer.format(
                const="" if argument.written else "const ",
                volatile=self._volatile(argument.name),
                type=self.array_type(argument.element, declared=False),
                name=self.spelled[argument.name],
                position=argument.position,
            )
        kind, name = "int", self.spelled[argument.name]
        if isinstance(argument, Value):
            kind = self.tokens.passed_bool if argument.type == BOOL else self.tokens.types[argument.passed.name]
            name = f"wt_{name}" if self.is_copied(argument) else name
        return self.tokens.scalar.format(type=kind, name=name, position=argument.position)

    def is_copied(self, value: Value) -> bool:
        """Return whether a scalar parameter is copied to a variable, because its name or type differs."""
        is_changed = value.name in self.facts.assigned or value.type not in (value.passed, BOOL)
        return self.tokens.copies_scalars and is_changed

    def _scalar_copies(self) -> Iterator[str]:
        for argument in self.sorted_arguments():
            if isinstance(argument, Value) and self.is_copied(argument):
                kind, name = self.tokens.types[argument.type.name], self.spelled[argument.name]
                yield f"    {kind} {name} = ({kind})wt_{name};"

    def every_type(self) -> set[Scalar]:
        """Return the types of all arrays, variables and expressions."""
        kinds = {*self.kinds.values(), *(array.element for array in self.program.arrays.values())}
        for statement in ir.walk(self.body):
            kinds |= {e.type for e in ir.expressions(statement) if e.type is not None}
        return kinds

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

    # Arrays.

    def _volatile(self, array: str) -> str:
        return self.tokens.volatile if array in self.facts.atomic else ""

    def declare_array(self, array: ir.Declare) -> None:
        """Declare a shared or local array."""
        kind, name = self.array_type(array.element, declared=True), self.name(array.name)
        if array.shape == (0,) and self.tokens.dynamic_shared is not None:
            self.put(self.tokens.dynamic_shared.format(type=kind, name=name))
            return
        space = self.tokens.shared if array.space == "shared" else ""
        self.put(f"{space}{self._volatile(array.name)}{kind} {name}[{self.sides_product(array.shape)}];")

    def sides_product(self, shape: Sequence[int]) -> str:
        """Return the number of elements of a declared array as a product."""
        return " * ".join(map(str, shape))

    def _template(self, templates: Mapping[str, str], array: str) -> str | None:
        """Return the template of an access whose value needs a conversion."""
        kind = self.program.arrays[array].element
        plain = kind in self.tokens.emulated and array in self.program.declared and not self.tokens.narrow_declared
        return None if plain else templates.get(kind.name)

    def _filled(self, template: str, array: str, indices: Sequence[ir.Expr], value: str = "") -> str:
        place = self.expression(self.place(array, indices), address=True).text
        text = self._named(template)
        return text.format(element=f"{self.name(array)}[{place}]", array=self.name(array), place=place, value=value)

    def _named(self, template: str) -> str:
        """Replace ``$helper$`` by the helper's name."""
        return re.sub(r"\$(\w+)\$", lambda match: self.need(match[1]), template)

    def load(self, e: ir.Load) -> Piece:
        """Return the value of an element."""
        template = self._template(self.tokens.loads, e.array)
        if template is None:
            return super().load(e)
        return Piece(self._filled(template, e.array, e.indices), EQUAL if e.type == BOOL else PRIMARY)

    def store(self, store: ir.Store) -> None:
        """Write an assignment to an element."""
        template = self._template(self.tokens.stores, store.array)
        if template is None and self.tokens.compound_stores:
            super().store(store)
            return
        template = template or "{element} = {value};"
        if self.tokens.helper_first:
            template = self._named(template)
        value = self.expression(store.value)
        if self.tokens.stores_round:
            value = self._unrounded(value, self.program.arrays[store.array].element)
        self.put(self._filled(template, store.array, store.indices, value.text))

    def _unrounded(self, piece: Piece, kind: Scalar) -> Piece:
        """Remove the last rounding of a value, which the store repeats."""
        head = f"wt_round_{kind}("
        if piece.text.startswith(head) and piece.text.find(")") == len(piece.text) - 1:
            return Piece(piece.text[len(head) : -1], 0)
        return piece

    def do(self, e: ir.Expr) -> None:
        """Write an expression for its effect; the unused result of an atomic operation needs no cast."""
        if not isinstance(e, ir.Atomic):
            super().do(e)
            return
        text = self.expression(e).text
        casts = (f"({self.tokens.types[kind]})" for kind in ("i64", "i32"))
        self.put(f"{text.removeprefix(next((cast for cast in casts if text.startswith(cast)), ''))};")

    def require(self, statement: ir.Require) -> None:
        """Write an assertion: where it does not hold, the kernel ends."""
        if self.tokens.trap is None:
            super().require(statement)
        elif isinstance(statement.condition, ir.Literal):
            self.put(self.tokens.trap if not statement.condition.value else "")
        else:
            self.put(f"if (!{self.at(self.expression(statement.condition), UNARY)}) {self.tokens.trap}")

    def print_line(self, statement: ir.Print) -> None:
        """Write a line that each thread prints, in C's format."""
        if self.tokens.prints is None:
            super().print_line(statement)
            return
        if "%v" in statement.form:
            self.refuse(statement.line, "vectors in the format of printf", "one number after another")
        numbers = iter(statement.numbers)
        values = [c_string(text) if text is not None else self._printed(next(numbers)) for text in statement.texts]
        self.prints = True
        self.put(self.tokens.prints.format(form=c_string(statement.form), values="".join(f", {v}" for v in values)))

    def _printed(self, e: ir.Expr) -> str:
        """Return an argument of ``printf``, in its own type: a built-in index may be of another one."""
        piece = self.expression(e)
        assert e.type is not None  # noqa: S101  the tree is typed
        return piece.text if isinstance(e, (ir.Literal, ir.Variable)) else self.cast(e.type, piece).text

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
        if helper.startswith("atomic_"):
            return self._atomic_text(helper, name)
        made = c_numbers.helper_text(self, helper, name, f"{tokens.helper} ")
        if made is not None:
            return made
        text = tokens.helpers.get(helper) or c_helpers.NARROW.get(helper) or tokens.helpers.get(root)
        if text is None:
            variant = c_helpers.UNSIGNED if kind.startswith("u") else c_helpers.FLOATS if kind.startswith("f") else {}
            text = variant.get(root) or c_helpers.INTEGERS[root]
        return self._fill(text, name, kind)

    def _fill(self, text: str, name: str, kind: str, values: Mapping[str, str] | None = None) -> str:
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

    # Barriers and warps.

    def barrier(self, barrier: ir.Barrier) -> None:
        """Write a barrier or a fence."""
        lines = self.tokens.barriers.get(barrier.scope)
        if lines is None:
            self.refuse(barrier.line, f"{self.tokens.title} has no warps", "syncthreads()")
        if barrier.scope in self.tokens.barrier_features:
            self.extensions.add(self.tokens.barrier_features[barrier.scope])
        for line in lines:
            mask = self.expression(barrier.mask).text if barrier.mask is not None and "{mask}" in line else ""
            self.put(self._named(line.replace("{mask}", mask)))

    def warp(self, e: ir.Warp) -> Piece:
        """Return an exchange between the threads of a warp; in CUDA and HIP with a mask of the threads."""
        tokens = self.tokens
        if not tokens.shuffle:
            return super().warp(e)
        if e.op == "lane":
            return self.function(self.need("lane_i32"))
        if e.op == "warp_size":
            return Piece("warpSize", PRIMARY)
        if e.op == "active":
            return super().warp(e) if tokens.active is None else Piece(tokens.active, PRIMARY)
        mask, value, *rest = (self.expression(argument) for argument in e.arguments)
        kind, how = e.type, e.op.partition(".")[2].replace("index", "")
        assert kind is not None  # noqa: S101  inference has been here
        if e.op.startswith("vote"):
            vote = Piece(tokens.vote.format(how=how, mask=mask.text, value=value.text), PRIMARY)
            if e.op == "vote.ballot":
                return self.cast(U32, vote) if tokens.ballot_is_wide else vote
            return self.infix("!=", vote, Piece("0", PRIMARY))
        narrow = kind.bits < 32 and kind.kind != "float"
        if narrow:
            value = self.cast(I32, value)
        how = f"_{how}" if how else ""
        text = tokens.shuffle.format(how=how, mask=mask.text, value=value.text, lane=rest[0].text)
        return self.cast(kind, Piece(text, PRIMARY)) if narrow else Piece(text, PRIMARY)

    def check_exchange(self, kind: Scalar, line: int) -> None:
        """Raise KernelError if the threads of a warp cannot exchange numbers of a type."""
        if kind.bits > self.tokens.exchange_bits:
            self.refuse(line, f"{self.tokens.short_title}'s simdgroups exchange no {kind}", "two exchanges of 32 bits")

    # Atomic operations.

    def atomically(self, e: ir.Atomic) -> Piece:
        """Return an atomic operation: the language's own, or a call of a helper function."""
        kind, op, tokens = e.type, e.op.rstrip("_"), self.tokens
        assert kind is not None  # noqa: S101  inference has been here
        if kind.bits > tokens.atomic_bits:
            problem = f"{tokens.short_title} has no atomic operations on {kind}"
            self.refuse(e.line, problem, f"elements of {tokens.atomic_bits} bits")
        at = Piece(f"&{self.element(e.array, e.indices)}", PRIMARY)
        space = tokens.spaces[e.array in self.program.declared]
        helper = tokens.atomic_helper.format(op=op, kind=kind, space=space)
        if tokens.helper_first:
            self.need(helper)
        values = [self.expression(value) for value in e.values]
        rule = next((r for r in tokens.atomics if kind.name in r.kinds and op in r.ops), None)
        if rule is not None and rule.extension:
            self.extensions.add(rule.extension)
        if rule is None or not rule.template:
            return self.function(self.need(helper), at, *values)
        return self._native_atomic(rule, e, kind, at, values, space)

    def _native_atomic(
        self, rule: AtomicRule, e: ir.Atomic, kind: Scalar, at: Piece, values: Sequence[Piece], space: str
    ) -> Piece:
        op, types = e.op.rstrip("_"), self.tokens.types
        words = {
            "at": at.text, "values": ", ".join(value.text for value in values), "space": space,
            "op": rule.names.get(op, op), "type": types[kind.name], "word": types[f"u{max(kind.bits, 32)}"],
        }  # fmt: skip
        if "{negative}" in rule.template:
            words["negative"] = self.minus(values[0]).text
        if "{bits}" not in rule.template:
            return Piece(rule.template.format(**words), PRIMARY)
        # On the bits, as an unsigned number of the same width.
        to, back = self.bits_and_back(kind)
        bits = [to(v.text) for v in values] if kind.kind == "float" else [self.unsigned(v).text for v in e.values]
        if op == "sub":
            bits = [self.infix("-", self.literal(0, U64), self.unsigned(e.values[0])).text]
        call = back(rule.template.format(**words, bits=", ".join(bits)))
        return Piece(call, PRIMARY if kind.kind in ("float", "uint") else UNARY)

    def _atomic_text(self, helper: str, name: str) -> str:
        """Return the helper of an atomic operation that the language lacks."""
        tokens = self.tokens
        _, op, *space, kind_name = helper.split("_")
        kind = SCALARS[kind_name]
        to, back = self.bits_and_back(kind)
        text = tokens.atomic_cas if op == "cas" else tokens.atomic_loop
        values = {
            "word": tokens.types[f"u{kind.bits}"], "space": "".join(space), "expected": to("expected"),
            "seen": back("seen"), "atom": "atomic" if kind.bits == 32 else "atom", "new": to("value"),
            "from_bits": (tokens.word if kind.bits == 32 else tokens.long_word)[1],
        }  # fmt: skip
        value = Piece("value", PRIMARY)
        if op != "cas" and "$change$" in text:
            values["change"] = self.changed(op, kind, Piece(tokens.atomic_old, PRIMARY), value, 0)
        elif op != "cas":
            values["new"] = to(self.changed(op, kind, Piece(back(tokens.atomic_old), PRIMARY), value, 0))
        return self._fill(text, name, kind_name, values)

    def changed(self, op: str, kind: Scalar, old: Piece, value: Piece, line: int) -> str:
        """Return the new value of an atomic operation."""
        match op:
            case "add" | "sub" if kind.kind == "int":
                t, u = self.tokens.types[kind.name], self.tokens.types[f"u{kind.bits}"]
                return f"({t})(({u}){old.text} {'+' if op == 'add' else '-'} ({u}){value.text})"
            case "add" | "sub":
                return self.infix("+" if op == "add" else "-", old, value).text
            case "and" | "or" | "xor":
                return self.infix({"and": "&", "or": "|", "xor": "^"}[op], old, value).text
            case "min" | "max" if kind.kind == "float":
                return self.function(self.math(f"f{op}", kind, line), old, value).text
            case "min" | "max":
                return self.integer_extreme(op, kind, [old, value]).text
            case "inc":
                return f"{old.text} >= {value.text} ? 0u : {old.text} + 1u"
            case "dec":
                return f"{old.text} == 0u || {old.text} > {value.text} ? {value.text} : {old.text} - 1u"
            case "exch":
                return value.text
        raise AssertionError(op)

    def bits_and_back(self, kind: Scalar) -> tuple[Callable[[str], str], Callable[[str], str]]:
        """Return the conversions of a 32- or 64-bit number to the unsigned number with the same bits, and back."""
        if kind.kind == "float":
            to, back = self.tokens.word if kind == F32 else self.tokens.long_word
            return (lambda text: f"{to}({text})"), (lambda text: f"{back}({text})")
        if kind.kind == "uint":
            return (lambda text: text), (lambda text: text)
        word = self.tokens.types[f"u{kind.bits}"]
        return (lambda text: f"({word}){text}"), (lambda text: f"({self.tokens.types[kind.name]}){text}")
