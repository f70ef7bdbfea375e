"""WGSL, the shading language of WebGPU. The size of a workgroup is a part of the source.

It has i32, u32, f32, bool and, with an extension that is asked for, f16: no other numbers. Arrays in buffers are
bindings 0, 1 ... of group 0; sides and scalars are members of one uniform struct after them. Arrays with atomic
operations are of atomics throughout, and floats in them of their bits.

WGSL lets an implementation contract, reassociate and flush subnormal numbers, and assume that there is no NaN; nothing
can be passed against that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from windtunnel.codegen.base import Emitter
from windtunnel.codegen.signature import Value
from windtunnel.codegen.text import CHOICE, PRIMARY, UNARY, Piece, bits_of, folded_value
from windtunnel.codegen.wgsl_helpers import helper_text
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F16, F32, I32, U32, Scalar

_ONLY = "i32, u32, f32, f16 or bool"
_INDICES = {
    "thread": ("threadIdx", "local_invocation_id"),
    "block": ("blockIdx", "workgroup_id"),
    "grid_size": ("gridDim", "num_workgroups"),
}
_MATH = {"fabs": "abs", "rsqrt": "inverseSqrt"}
_SAME = frozenset(
    [
        "sqrt",
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "floor",
        "ceil",
        "trunc",
        "atan2",
        "pow",
        "fma",
    ]
)
_LAZY = (ir.Load, ir.Atomic, ir.Warp)
"""What must not be evaluated where Python would not."""


class WgslEmitter(Emitter):
    """WGSL."""

    target = "wgsl"
    title = "WGSL"
    wraps = True
    missing: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("i8", "i16", "u8", "u16"), "i32 or u32"),
        **dict.fromkeys(("i64", "u64"), "i32 or u32"),
        "f64": "f32",
        "bf16": "f16 or f32",
    }
    option_note = (
        "There is no option against contraction: where an implementation fuses or flushes, the last bit may differ."
    )

    def check_element(self, kind: Scalar, line: int) -> None:
        if kind == BOOL:
            self.refuse(line, "a WGSL buffer holds no bool", "u32")

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = self.lines_of(self.tops)
        if self._has_half():
            yield "enable f16;"
        if self.facts.calls:
            yield "enable subgroups;"
        yield ""
        numbers = [one for one in self.sorted_arguments() if one not in self.signature.buffers]
        if numbers:
            yield "struct Params {"
            yield from (f"    {self.spelled[one.name]}: {self._member(one)}," for one in numbers)
            yield "}"
            yield ""
        for buffer in self.signature.buffers:
            access = "read_write" if buffer.written else "read"
            element = self.stored(buffer.name, buffer.element)
            name = self.spelled[buffer.name]
            yield f"@group(0) @binding({buffer.position}) var<storage, {access}> {name}: array<{element}>;"
        if numbers:
            yield f"@group(0) @binding({self.signature.uniform}) var<uniform> params: Params;"
        for declared in self.program.declared.values():
            if declared.space == "shared":
                kind = f"array<{self.stored(declared.name, declared.element)}, {math.prod(declared.shape)}>"
                yield f"var<workgroup> {self.spelled[declared.name]}: {kind};"
        size = ", ".join(map(str, self.block))
        if "block_size" in self.used:
            yield f"const blockDim = vec3<i32>({size});"
        yield ""
        for text in self.helpers.values():
            yield from text.splitlines()
            yield ""
        yield f"@compute @workgroup_size({size})"
        given = [
            f"@builtin({builtin}) {builtin}: vec3<u32>" for what, (_, builtin) in _INDICES.items() if what in self.used
        ]
        given += [
            f"@builtin({builtin}) {builtin}: u32"
            for builtin in ("subgroup_invocation_id", "subgroup_size")
            if builtin in self.used
        ]
        yield f"fn {self.spelled[self.program.name]}({', '.join(given)}) {{"
        for what, (name, builtin) in _INDICES.items():
            if what in self.used:
                yield f"    let {name} = vec3<i32>({builtin});"
        for one in numbers:
            if isinstance(one, Value):
                yield from self._taken(one)
        yield from tops
        yield from body
        yield "}"

    def _has_half(self) -> bool:
        kinds = [*self.kinds.values(), *(a.element for a in self.program.arrays.values())]
        inner = (e.type for one in ir.walk(self.body) for e in ir.expressions(one))
        return F16 in kinds or F16 in inner

    def _member(self, one: object) -> str:
        return self.value_type(one.passed) if isinstance(one, Value) else "i32"

    def _taken(self, one: Value) -> Iterator[str]:
        how = "var" if one.name in self.facts.assigned else "let"
        name = self.spelled[one.name]
        value = f"params.{name}"
        if one.type == BOOL:
            value += " != 0u"
        elif one.type != one.passed:
            value = f"{self.value_type(one.type)}({value})"
        yield f"    {how} {name} = {value};"

    def stored(self, array: str, element: Scalar) -> str:
        """The type of an array's elements."""
        if array in self.facts.atomic:
            return "atomic<i32>" if element == I32 else "atomic<u32>"
        return self.value_type(element)

    # Statements.

    def declare(self, name: str, value: str | None) -> None:
        kind = self.value_type(self.kinds[name])
        self.put(f"var {self.name(name)}: {kind}{f' = {value}' if value is not None else ''};")

    def constant(self, name: str, kind: Scalar, value: str) -> None:
        self.put(f"let {name}: {self.value_type(kind)} = {value};")

    def counter(self, name: str, kind: Scalar, start: str) -> str:
        return f"var {name}: {self.value_type(kind)} = {start}"

    def stepped(self, counter: Piece, step: ir.Expr, text: Piece) -> str:
        if isinstance(step, ir.Literal) and step.value in (1, -1) and step.type == I32:
            return f"{counter.text}{'++' if step.value == 1 else '--'}"
        if isinstance(step, ir.Literal) and step.value == 1:
            return f"{counter.text}++"
        return super().stepped(counter, step, text)

    def declare_array(self, one: ir.Declare) -> None:
        if one.space == "local":
            self.put(f"var {self.name(one.name)}: array<{self.value_type(one.element)}, {math.prod(one.shape)}>;")

    def store(self, one: ir.Store) -> None:
        if one.array not in self.facts.atomic:
            super().store(one)
            return
        value = self.expression(one.value)
        if one.value.type == F32:
            value = Piece(f"bitcast<u32>({value.text})", PRIMARY)
        self.put(f"atomicStore(&{self.element(one.array, one.indices)}, {value.text});")

    def do(self, e: ir.Expr) -> None:
        if isinstance(e, (ir.Atomic, ir.Warp)):
            self.put(f"{'_ = ' if isinstance(e, ir.Warp) else ''}{self.expression(e).text};")
        elif any(isinstance(inner, (ir.Atomic, ir.Warp)) for inner in ir.inside(e)):
            self.put(f"_ = {self.expression(e).text};")

    def barrier(self, one: ir.Barrier) -> None:
        if one.scope != "block":
            what = "barrier of a warp" if one.scope == "warp" else "fence without a barrier"
            self.refuse(one.line, f"WGSL has no {what}", "syncthreads()")
        self.put("workgroupBarrier();")
        self.put("storageBarrier();")

    def loop(self, one: ir.While) -> None:
        condition, ahead = self._ahead(one.condition)
        if not ahead:
            with self.inner(f"while ({condition.text}) {{"):
                self.statements(one.body)
            return
        with self.inner("loop {"):
            self.lines += ["    " + line for line in ahead]
            self.put(f"if (!{self.at(condition, UNARY)}) {{ break; }}")
            self.statements(one.body)

    def _ahead(self, e: ir.Expr) -> tuple[Piece, list[str]]:
        """An expression, and the statements that it needs first."""
        found: list[Piece] = []
        lines = self.lines_of(lambda: found.append(self.expression(e)))
        return found[0], lines

    def joins(self, one: ir.If) -> bool:
        return super().joins(one) and not any(isinstance(e, ir.Select) for e in ir.inside(one.condition))

    # Expressions.

    def value_type(self, kind: Scalar) -> str:
        return kind.name

    def literal(self, value: float, kind: Scalar) -> Piece:
        value = bits_of(value, kind)
        if kind == BOOL:
            return Piece("true" if value else "false", PRIMARY)
        if kind.kind == "float":
            if math.isnan(value) or math.isinf(value):
                # WGSL has no spelling of them, and refuses to make them of constants: they are taken from a variable.
                bits = int(np.float32(value).view(np.uint32))
                made = self.function(self.need("from_bits"), Piece(f"0x{bits:x}u", PRIMARY))
                return made if kind == F32 else self.cast(kind, made)
            number = np.float16(value) if kind == F16 else np.float32(value)
            text = np.format_float_positional(number, trim="0")
            if len(text) > 18:
                text = np.format_float_scientific(number, trim="0")
            return Piece(text + ("h" if kind == F16 else "f"), UNARY if text.startswith("-") else PRIMARY)
        if kind == I32 and value == -(2**31):
            return Piece("i32(-2147483648)", PRIMARY)
        return Piece(f"{value}{'u' if kind == U32 else ''}", PRIMARY if value >= 0 else UNARY)

    def cast(self, to: Scalar, inner: Piece) -> Piece:
        return Piece(f"{self.value_type(to)}({inner.text})", PRIMARY)

    def converted(self, e: ir.Convert) -> Piece:
        if isinstance(e.operand, ir.Literal) and e.to in (I32, U32) and e.operand.type in (I32, U32):
            return self.literal(e.operand.value, e.to)
        return super().converted(e)

    def function(self, name: str, *arguments: Piece) -> Piece:
        # f(a < b, c > d) would be a template's parameters.
        return Piece(
            f"{name}({', '.join(self.at(a, CHOICE + 6) if '<' in a.text else a.text for a in arguments)})", PRIMARY
        )

    def thread_index(self, e: ir.Index) -> Piece:
        self.used.add(e.what)
        name = "blockDim" if e.what == "block_size" else _INDICES[e.what][0]
        return Piece(f"{name}.{'xyz'[e.axis]}", PRIMARY)

    def size(self, e: ir.Size) -> Piece:
        found = super().size(e)
        return found if e.array in self.program.declared else Piece(f"params.{found.text}", PRIMARY)

    def load(self, e: ir.Load) -> Piece:
        text = self.element(e.array, e.indices)
        if e.array not in self.facts.atomic:
            return Piece(text, PRIMARY)
        loaded = f"atomicLoad(&{text})"
        return Piece(f"bitcast<f32>({loaded})" if e.type == F32 else loaded, PRIMARY)

    def expression(self, e: ir.Expr, address: bool = False) -> Piece:
        if isinstance(e, ir.Select) and folded_value(e) is None:
            return self._choose(e)
        return super().expression(e, address)

    def _choose(self, e: ir.Select) -> Piece:
        """Select where both sides may be evaluated; else a variable that is set first."""
        assert e.type is not None  # noqa: S101  inference has been here
        if not any(isinstance(i, _LAZY) or _divides(i) for side in (e.yes, e.no) for i in ir.inside(side)):
            return self.chosen(self.expression(e.condition), self.expression(e.yes), self.expression(e.no), e.type)
        condition = self.expression(e.condition)
        name = self.fresh("chosen")
        self.put(f"var {name}: {self.value_type(e.type)};")
        with self.inner(f"if ({condition.text}) {{", "} else {"):
            self.put(f"{name} = {self.expression(e.yes).text};")
        self.depth += 1
        self.put(f"{name} = {self.expression(e.no).text};")
        self.depth -= 1
        self.put("}")
        return Piece(name, PRIMARY)

    def logic(self, op: str, left: ir.Expr, right: ir.Expr) -> Piece:
        one = self.expression(left)
        self.depth += 1
        other, ahead = self._ahead(right)
        self.depth -= 1
        if not ahead:
            return self.infix("&&" if op == "and" else "||", one, other)
        # What the right side needs first is only done where Python would come to it.
        name = self.fresh("holds")
        self.put(f"var {name}: bool = {one.text};")
        self.put(f"if ({name}) {{" if op == "and" else f"if (!{name}) {{")
        self.lines += ahead
        self.depth += 1
        self.put(f"{name} = {other.text};")
        self.depth -= 1
        self.put("}")
        return Piece(name, PRIMARY)

    def chosen(self, condition: Piece, yes: Piece, no: Piece, kind: Scalar) -> Piece:
        del kind
        return self.function("select", no, yes, condition)

    def extreme(self, e: ir.Binary, kind: Scalar) -> Piece:
        given = [self.expression(s) for s in (e.left, e.right)]
        if kind == BOOL:
            return self.infix("&&" if e.op == "min" else "||", *given)
        return self.function(e.op, *given)

    def absolute(self, e: ir.Unary, inner: Piece, kind: Scalar) -> Piece:
        return inner if kind == U32 else self.function("abs", inner)

    def shift_amount(self, e: ir.Expr) -> Piece:
        if isinstance(e, ir.Literal):
            return self.literal(e.value, U32)
        found = self.expression(e)
        return found if e.type == U32 else self.cast(U32, found)

    def math(self, name: str, kind: Scalar, line: int) -> str:
        del kind
        name = _MATH.get(name, name)
        if name not in _SAME and name not in ("abs", "inverseSqrt"):
            self.refuse(line, f"WGSL has no {name}", "an approximation of your own")
        return name

    def call(self, e: ir.Call) -> Piece:
        given = [self.expression(a) for a in e.arguments]
        worked, kind = e.arguments[0].type, e.type
        assert worked is not None and kind is not None  # noqa: S101  inference has been here
        name = e.op.removeprefix("math.").removeprefix("bits.")
        match name:
            case "popc" | "clz":
                made = self.function("countOneBits" if name == "popc" else "countLeadingZeros", *given)
                return made if worked == I32 else self.cast(I32, made)
            case "ffs":
                # Of zero, all bits are set, and one more is zero.
                made = self.function("firstTrailingBit", *given)
                return self.infix("+", made if worked == I32 else self.cast(I32, made), Piece("1", PRIMARY))
            case "brev":
                return self.function("reverseBits", *given)
            case "round.tf32":
                return self.function(self.need("round_tf32"), *given)
            case "isnan" | "isinf":
                value = given[0] if worked == F32 else self.cast(F32, given[0])
                bits = f"(bitcast<u32>({value.text}) & 0x7fffffffu) {'>' if name == 'isnan' else '=='} 0x7f800000u"
                return Piece(f"({bits})", PRIMARY)
        if kind == F16:
            # As NumPy's: in 32 bits, and rounded. A product is exact there, and needs no fma.
            wide = [self.cast(F32, g) for g in given]
            if name == "fma":
                return self.cast(kind, self.infix("+", self.infix("*", wide[0], wide[1]), wide[2]))
            return self.cast(kind, self._float_call(name, wide, e.line))
        return self._float_call(name, given, e.line)

    def _float_call(self, name: str, given: Sequence[Piece], line: int) -> Piece:
        """A function of f32."""
        match name:
            case "fmod":
                return self.infix("%", *given)
            case "log10" | "copysign":
                return self.function(self.need(name), *given)
        return self.function(self.math(name, F32, line), *given)

    # Warps and atomics.

    def warp(self, e: ir.Warp) -> Piece:
        own, size = Piece("subgroup_invocation_id", PRIMARY), Piece("subgroup_size", PRIMARY)
        if e.op in ("lane", "warp_size"):
            found = own if e.op == "lane" else size
            self.used.add(found.text)
            return self.cast(I32, found)
        value = self.expression(e.arguments[1])
        if e.op == "vote.ballot":
            return Piece(f"subgroupBallot({value.text}).x", PRIMARY)
        if e.op.startswith("vote"):
            return self.function("subgroupAny" if e.op == "vote.any" else "subgroupAll", value)
        self.used |= {own.text, size.text}
        lane = self.expression(e.arguments[2])
        op = e.op.removeprefix("shuffle.")
        if op == "index":
            source = self.infix(
                "&",
                self.converted(ir.Convert(e.line, U32, e.arguments[2], type=U32)),
                Piece("(subgroup_size - 1u)", PRIMARY),
            )
        else:
            wanted = self.infix({"up": "-", "down": "+", "xor": "^"}[op], self.cast(I32, own), lane)
            source = self.function(self.need("source_lane"), wanted, own, size)
        if e.type == BOOL:
            made = self.function("subgroupShuffle", self.cast(U32, value), source)
            return self.infix("!=", made, self.literal(0, U32))
        return self.function("subgroupShuffle", value, source)

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        op = e.op.rstrip("_")
        values = [self.expression(v) for v in e.values]
        whole = kind in (I32, U32)
        if whole and op not in ("inc", "dec", "cas"):
            name = {"exch": "Exchange"}.get(op, op.title())
            return Piece(f"atomic{name}(&{self.element(e.array, e.indices)}, {values[0].text})", PRIMARY)
        place = self.expression(self.place(e.array, e.indices), address=True)
        if self.place(e.array, e.indices).type == U32:
            place = self.cast(I32, place)
        # An array in a buffer cannot be passed to a function, which is therefore of the array.
        helper = self.need(f"atomic_{op}_{kind}_{self.spelled[e.array]}")
        return self.function(helper, place, *values)

    def need(self, helper: str) -> str:
        name = f"wt_{helper}"
        if name not in self.helpers:
            self.helpers[name] = helper_text(helper, name)
        return name


def _divides(e: ir.Expr) -> bool:
    """Whether an expression may be guarded by the condition that chooses it: a division by what may be 0."""
    return isinstance(e, ir.Binary) and e.op in ("//", "%") and not isinstance(e.right, ir.Literal)
