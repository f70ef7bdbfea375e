"""The Metal shading language (3.1 for bf16). A threadgroup's size is given at launch. There is no f64.

Metal's atomics are types of their own; elements are cast to them. It has none of 64 bits, and not every version has
those of floats, so these are compare-and-exchange loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.signature import Buffer, Value
from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F32, I32, U32, Scalar

_INDICES = {"thread": "threadIdx", "block": "blockIdx", "block_size": "blockDim", "grid_size": "gridDim"}
_ATTRIBUTES = {
    "thread": "thread_position_in_threadgroup",
    "block": "threadgroup_position_in_grid",
    "block_size": "threads_per_threadgroup",
    "grid_size": "threadgroups_per_grid",
}
_NO_FUNCTIONS = frozenset(("erf", "erfc", "expm1", "log1p", "cbrt", "hypot"))
"""Of C's functions those that the specification (3.1, section 6.5, math functions) does not list."""
_RELAXED = "memory_order_relaxed"


class MetalEmitter(CEmitter):
    """The Metal shading language."""

    target = "metal"
    title = "the Metal shading language"
    missing: ClassVar[Mapping[str, str]] = {"f64": "f32"}
    short_suffix = ""
    wide_suffix = "l"
    word = ("as_type<uint>", "as_type<float>")
    options = ("-fno-fast-math", "-ffp-contract=off")
    option_note = "in a program, MTLCompileOptions.mathMode = .safe; a product and a sum must not become one operation."
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar", "u16": "ushort",
        "u32": "uint", "u64": "ulong", "f16": "half", "bf16": "bfloat", "f32": "float",
    }  # fmt: skip

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = self.lines_of(self.tops)
        yield "#include <metal_stdlib>"
        yield "using namespace metal;"
        yield "#pragma clang fp contract(off)"
        yield ""
        yield from self.helper_lines(body)
        arguments = [self.argument(one) for one in self.sorted_arguments()]
        for what, attribute in _ATTRIBUTES.items():
            if what in self.used:
                arguments.append(f"uint3 {_INDICES[what]} [[{attribute}]]")
        for name, attribute in (("lane", "thread_index_in_simdgroup"), ("lanes", "threads_per_simdgroup")):
            if name in self.used:
                arguments.append(f"uint wt_{name} [[{attribute}]]")
        yield f"kernel void {self.spelled[self.program.name]}("
        yield from (f"    {one}{',' if at + 1 < len(arguments) else ') {'}" for at, one in enumerate(arguments))
        if not arguments:
            yield ") {"
        yield from tops
        yield from self._passed()
        yield from body
        yield "}"

    def argument(self, one: Buffer | object) -> str:
        """A parameter of the kernel, with the buffer that it is bound to."""
        place = f"[[buffer({getattr(one, 'position')})]]"  # noqa: B009  every argument has one
        if isinstance(one, Buffer):
            const = "" if one.written else "const "
            return f"device {const}{self.types[one.element.name]} *{self.spelled[one.name]} {place}"
        if isinstance(one, Value):
            passed = "bool" if one.type == BOOL else self.types[one.passed.name]
            return f"constant {passed} &{self._given(one)} {place}"
        return f"constant int &{self.spelled[getattr(one, 'name')]} {place}"  # noqa: B009  sides have one

    def _given(self, one: Value) -> str:
        """A scalar's name as a parameter; its own, where the kernel neither sets it nor calls it another type."""
        name = self.spelled[one.name]
        return f"wt_{name}" if self._copied(one) else name

    def _copied(self, one: Value) -> bool:
        return one.name in self.facts.assigned or (one.type not in (one.passed, BOOL))

    def _passed(self) -> Iterator[str]:
        for one in self.sorted_arguments():
            if isinstance(one, Value) and self._copied(one):
                kind = self.types[one.type.name]
                yield f"    {kind} {self.spelled[one.name]} = ({kind}){self._given(one)};"

    def float_suffix(self, kind: Scalar) -> str:
        return "h" if kind.name == "f16" else "f"

    def float_literal(self, value: float, kind: Scalar) -> Piece:
        found = super().float_literal(value, F32 if kind.name == "bf16" else kind)
        return self.cast(kind, found) if kind.name == "bf16" else found

    def declare_array(self, one: ir.Declare) -> None:
        space = "threadgroup " if one.space == "shared" else ""
        self.put(f"{space}{self.types[one.element.name]} {self.name(one.name)}[{self.sides_product(one.shape)}];")

    def barrier(self, one: ir.Barrier) -> None:
        both = "mem_flags::mem_threadgroup | mem_flags::mem_device"
        match one.scope:
            case "block":
                self.put(f"threadgroup_barrier({both});")
            case "warp":
                self.put(f"simdgroup_barrier({both});")
            case scope:
                whose = "threadgroup" if scope == "fence.block" else "device"
                self.put(f"atomic_thread_fence({both}, memory_order_seq_cst, thread_scope_{whose});  // Metal 3.2")

    # Expressions.

    def thread_index(self, e: ir.Index) -> Piece:
        self.used.add(e.what)
        return self.cast(I32, Piece(f"{_INDICES[e.what]}.{'xyz'[e.axis]}", PRIMARY))

    def math(self, name: str, kind: Scalar, line: int) -> str:
        del kind
        if name in _NO_FUNCTIONS:
            self.refuse(line, f"Metal has no {name}", "an approximation of your own")
        return name

    def helper_text(self, helper: str, name: str) -> str:
        if helper == "source_lane":
            return (
                f"{self.helper} ushort {name}(int wanted, uint own, uint lanes) {{\n"
                "    // One's own where there is no such lane.\n"
                "    return (ushort)((uint)wanted < lanes ? (uint)wanted : own);\n}"
            )
        root, _, kind = helper.rpartition("_")
        wide = self.types.get(kind, "")
        made = {
            "popc": f"int {name}({wide} x) {{\n    return (int)popcount(x);\n}}",
            "clz": f"int {name}({wide} x) {{\n    return (int)clz(x);\n}}",
            "ffs": f"int {name}({wide} x) {{\n    return x ? (int)ctz(x) + 1 : 0;\n}}",
            "brev": f"{wide} {name}({wide} x) {{\n    return reverse_bits(x);\n}}",
        }.get(root)
        if made is not None:
            return f"{self.helper} {made}"
        if helper.startswith("atomic_"):
            return self.exchange_loop(helper, name)
        return super().helper_text(helper, name)

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        lane, lanes = Piece("wt_lane", PRIMARY), Piece("wt_lanes", PRIMARY)
        if e.op in ("lane", "warp_size"):
            self.used.add("lane" if e.op == "lane" else "lanes")
            return self.cast(I32, lane if e.op == "lane" else lanes)
        value = self.expression(e.arguments[1])
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        if kind.bits == 64:
            self.refuse(e.line, f"Metal's simdgroups exchange no {kind}", "two exchanges of 32 bits")
        if e.op == "vote.ballot":
            return Piece(f"(uint)(simd_vote::vote_t)simd_ballot({value.text})", PRIMARY - 1)
        if e.op.startswith("vote"):
            return self.function(f"simd_{e.op.removeprefix('vote.')}", value)
        self.used |= {"lane", "lanes"}
        other = self.expression(e.arguments[2])
        op = e.op.removeprefix("shuffle.")
        if op == "index":
            source = Piece(
                f"(ushort)({self.infix('&', self.unsigned(e.arguments[2]), Piece('(wt_lanes - 1)', PRIMARY)).text})",
                PRIMARY,
            )
        else:
            wanted = self.infix({"up": "-", "down": "+", "xor": "^"}[op], self.cast(I32, lane), other)
            source = self.function(self.need("source_lane"), wanted, lane, lanes)
        if kind == BOOL:
            value = self.cast(I32, value)
        made = self.function("simd_shuffle", value, source)
        return self.infix("!=", made, Piece("0", PRIMARY)) if kind == BOOL else made

    # Atomics.

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        if kind.bits == 64:
            self.refuse(e.line, f"Metal has no atomic operations on {kind}", "elements of 32 bits")
        space = "threadgroup" if e.array in self.program.declared else "device"
        at = f"&{self.element(e.array, e.indices)}"
        values = [self.expression(v) for v in e.values]
        op = e.op.rstrip("_")
        if kind in (I32, U32) and op not in ("inc", "dec", "cas"):
            name = "atomic_exchange" if op == "exch" else f"atomic_fetch_{op}"
            return Piece(
                f"{name}_explicit(({space} atomic_{self.types[kind.name]} *){at}, {values[0].text}, {_RELAXED})",
                PRIMARY,
            )
        return self.function(self.need(f"atomic_{op}_{space}_{kind}"), Piece(at, PRIMARY), *values)

    def exchange_loop(self, helper: str, name: str) -> str:
        """What Metal has no atomic function for."""
        op, space, kind_name = helper.split("_")[1:]
        kind = {"f32": F32, "i32": I32}.get(kind_name, U32)
        to, back = self.bits_and_back(kind)
        t = self.types[kind_name]
        head = f"{self.helper} {t} {name}({space} {t} *at, "
        word = f"({space} atomic_uint *)at"
        swap = f"atomic_compare_exchange_weak_explicit(word, &seen, {{}}, {_RELAXED}, {_RELAXED})"
        if op == "cas":
            return (
                f"{head}{t} expected, {t} value) {{\n    {space} atomic_uint *word = {word};\n"
                f"    uint seen;\n    do {{\n"
                f"        seen = {to('expected')};\n        if ({swap.format(to('value'))}) break;\n"
                f"    }} while (seen == {to('expected')});  // it may fail for no reason\n"
                f"    return {back('seen')};\n}}"
            )
        value = self.changed(op, kind, Piece(back("seen"), PRIMARY), Piece("value", PRIMARY), 0)
        return (
            f"{head}{t} value) {{\n    {space} atomic_uint *word = {word};\n"
            f"    uint seen = atomic_load_explicit(word, {_RELAXED});\n"
            f"    while (!{swap.format(to(value))}) {{\n    }}\n    return {back('seen')};\n}}"
        )
