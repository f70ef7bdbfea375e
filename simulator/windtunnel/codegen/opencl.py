"""OpenCL C 1.2 and later. A work-group's size is given at launch.

``f16`` is held as ``half`` in buffers, which every device has, and worked with in f32, rounded after every operation:
arithmetic on ``half`` is an extension. ``bf16`` is held as ``ushort``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.signature import Buffer, Value
from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, I64, U32, U64, Scalar

_INDICES = {
    "thread": "get_local_id",
    "block": "get_group_id",
    "block_size": "get_local_size",
    "grid_size": "get_num_groups",
}


class OpenClEmitter(CEmitter):
    """OpenCL C."""

    target = "opencl"
    title = "OpenCL C"
    emulated = frozenset((F16, BF16))
    helper = "static inline"
    short_suffix = ""
    wide_suffix = "l"
    word = ("as_uint", "as_float")
    long_word = ("as_ulong", "as_double")
    options = ("-cl-fp32-correctly-rounded-divide-sqrt",)
    option_note = (
        "where the device has it; nothing that relaxes floating point (-cl-mad-enable, -cl-fast-relaxed-math)."
    )
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "i8": "char", "i16": "short", "i32": "int", "i64": "long", "u8": "uchar", "u16": "ushort",
        "u32": "uint", "u64": "ulong", "f16": "half", "bf16": "ushort", "f32": "float", "f64": "double",
    }  # fmt: skip

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = self.lines_of(self.tops)
        yield "#pragma OPENCL FP_CONTRACT OFF"
        if any(kind == F64 for kind in self._every_type()):
            self.used.add("cl_khr_fp64")
        yield from (f"#pragma OPENCL EXTENSION {name} : enable" for name in sorted(self.used))
        yield ""
        yield from self.helper_lines(body)
        arguments = ", ".join(self.argument(one) for one in self.sorted_arguments())
        yield f"__kernel void {self.spelled[self.program.name]}({arguments}) {{"
        yield from tops
        yield from body
        yield "}"

    def _every_type(self) -> Iterator[Scalar]:
        yield from (array.element for array in self.program.arrays.values())
        yield from self.kinds.values()
        for one in ir.walk(self.body):
            yield from (e.type for e in ir.expressions(one) if e.type is not None)

    def stored(self, kind: Scalar, declared: bool) -> str:
        """The type of an array's elements. Arrays of the kernel's own of 16-bit floats are of f32."""
        if kind == BOOL:
            return "uchar"
        return self.value_type(kind) if declared else self.types[kind.name]

    def argument(self, one: Buffer | object) -> str:
        """A parameter of the kernel."""
        if isinstance(one, Buffer):
            const = "" if one.written else "const "
            volatile = "volatile " if one.name in self.facts.atomic else ""
            return f"__global {volatile}{const}{self.stored(one.element, False)} *{self.spelled[one.name]}"
        if isinstance(one, Value):
            return self.parameter(one)
        return f"int {self.spelled[getattr(one, 'name')]}"  # noqa: B009  sides have one

    def declare_array(self, one: ir.Declare) -> None:
        space = "__local " if one.space == "shared" else ""
        volatile = "volatile " if one.name in self.facts.atomic else ""
        self.put(
            f"{space}{volatile}{self.stored(one.element, True)} {self.name(one.name)}[{self.sides_product(one.shape)}];"
        )

    def barrier(self, one: ir.Barrier) -> None:
        both = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"
        if one.scope == "warp":
            self.used.add("cl_khr_subgroups")
            self.put(f"sub_group_barrier({both});")
        elif one.scope == "block":
            self.put(f"barrier({both});")
        elif one.scope == "fence.block":
            self.put(f"mem_fence({both});")
        else:
            self.put(f"{self.need('device_fence')}();")

    # Expressions.

    def thread_index(self, e: ir.Index) -> Piece:
        return self.cast(I32, Piece(f"{_INDICES[e.what]}({e.axis})", PRIMARY))

    def load(self, e: ir.Load) -> Piece:
        kind = self.program.arrays[e.array].element
        if e.array in self.program.declared or kind not in (F16, BF16, BOOL):
            text = Piece(self.element(e.array, e.indices), PRIMARY)
            return self.infix("!=", text, Piece("0", PRIMARY)) if kind == BOOL else text
        if kind == F16:
            place = self.expression(self.place(e.array, e.indices), address=True)
            return Piece(f"vload_half({place.text}, {self.name(e.array)})", PRIMARY)
        text = Piece(self.element(e.array, e.indices), PRIMARY)
        if kind == BOOL:
            return self.infix("!=", text, Piece("0", PRIMARY))
        return self.function(self.need("load_bf16"), text)

    def store(self, one: ir.Store) -> None:
        kind = self.program.arrays[one.array].element
        if one.array in self.program.declared or kind not in (F16, BF16):
            super().store(one)
            return
        value = self.expression(one.value)
        if kind == F16:
            place = self.expression(self.place(one.array, one.indices), address=True)
            self.put(f"vstore_half_rte({value.text}, {place.text}, {self.name(one.array)});")
            return
        made = self.function(self.need("store_bf16"), value)
        self.put(f"{self.element(one.array, one.indices)} = {made.text};")

    def narrow_helper(self, root: str, kind: str, name: str) -> str:
        if (root, kind) == ("round", "f16"):
            return (
                f"float {name}(float x) {{\n    ushort bits;\n    vstore_half_rte(x, 0, (half *)&bits);\n"
                "    return vload_half(0, (const half *)&bits);\n}"
            )
        return super().narrow_helper(root, kind, name)

    def helper_text(self, helper: str, name: str) -> str:
        root, _, kind = helper.rpartition("_")
        if helper == "device_fence":
            return (
                f"{self.helper} void {name}(void) {{\n#if __OPENCL_C_VERSION__ >= 200\n"
                "    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);\n#else\n"
                "    mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);\n#endif\n}"
            )
        if helper == "source_lane":
            return (
                f"{self.helper} uint {name}(int wanted) {{\n    // One's own where there is no such lane.\n"
                "    return (uint)wanted < get_sub_group_size() ? (uint)wanted : get_sub_group_local_id();\n}"
            )
        wide = self.types.get(kind, "")
        made = {
            "popc": f"int {name}({wide} x) {{\n    return (int)popcount(x);\n}}",
            "clz": f"int {name}({wide} x) {{\n    return (int)clz(x);\n}}",
            "ffs": f"int {name}({wide} x) {{\n    return x ? {32 if kind == 'u32' else 64} - (int)clz(x & -x) : 0;\n}}",
            "brev": f"{wide} {name}({wide} x) {{\n    {wide} y = 0;\n"
            f"    for (int n = 0; n < {32 if kind == 'u32' else 64}; ++n) y |= (x >> n & 1) << "
            f"({31 if kind == 'u32' else 63} - n);\n"
            "    return y;\n}",
        }.get(root)
        if made is not None:
            return f"{self.helper} {made}"
        if helper.startswith("atomic_"):
            return self.exchange_loop(helper, name)
        return super().helper_text(helper, name)

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        self.used.add("cl_khr_subgroups")
        if e.op == "lane":
            return self.cast(I32, Piece("get_sub_group_local_id()", PRIMARY))
        if e.op == "warp_size":
            return self.cast(I32, Piece("get_max_sub_group_size()", PRIMARY))
        value = self.expression(e.arguments[1])
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        if e.op == "vote.ballot":
            self.used.add("cl_khr_subgroup_ballot")
            return Piece(f"sub_group_ballot({value.text}).x", PRIMARY)
        if e.op.startswith("vote"):
            made = self.function(f"sub_group_{e.op.removeprefix('vote.')}", value)
            return self.infix("!=", made, Piece("0", PRIMARY))
        self.used.add("cl_khr_subgroup_shuffle")
        lane, own = self.expression(e.arguments[2]), Piece("(int)get_sub_group_local_id()", PRIMARY)
        op = e.op.removeprefix("shuffle.")
        if op == "index":
            source = self.infix("&", self.unsigned(e.arguments[2]), Piece("(get_max_sub_group_size() - 1)", PRIMARY))
        else:
            wanted = self.infix({"up": "-", "down": "+", "xor": "^"}[op], own, lane)
            source = self.function(self.need("source_lane"), wanted)
        if kind == BOOL:
            value = self.cast(I32, value)
        made = self.function("sub_group_shuffle", value, source)
        return self.infix("!=", made, Piece("0", PRIMARY)) if kind == BOOL else made

    # Atomics.

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        at = Piece(f"&{self.element(e.array, e.indices)}", PRIMARY)
        values = [self.expression(v) for v in e.values]
        op = e.op.rstrip("_")
        if kind in (I32, U32) and op not in ("inc", "dec"):
            return self.function(f"atomic_{op.replace('exch', 'xchg').replace('cas', 'cmpxchg')}", at, *values)
        if kind in (I64, U64):
            basic = op in ("add", "sub", "exch", "cas")
            self.used.add(f"cl_khr_int64_{'base' if basic else 'extended'}_atomics")
            return self.function(f"atom_{op.replace('exch', 'xchg').replace('cas', 'cmpxchg')}", at, *values)
        space = "local" if e.array in self.program.declared else "global"
        if kind == F64:
            self.used.add("cl_khr_int64_base_atomics")
        return self.function(self.need(f"atomic_{op}_{space}_{kind}"), at, *values)

    def exchange_loop(self, helper: str, name: str) -> str:
        """What OpenCL C has no atomic function for."""
        op, space, kind_name = helper.split("_")[1:]
        kind = {"f32": F32, "f64": F64}.get(kind_name, U32)
        to, back = self.bits_and_back(kind)
        word, t = self.types[f"u{kind.bits}"], self.types[kind_name]
        exchange = "atomic_cmpxchg" if kind.bits == 32 else "atom_cmpxchg"
        head = f"{self.helper} {t} {name}(volatile __{space} {t} *at, "
        at = f"(volatile __{space} {word} *)at"
        if op == "cas":
            call = back(f"{exchange}({at}, {to('expected')}, {to('value')})")
            return f"{head}{t} expected, {t} value) {{\n    return {call};\n}}"
        value = self.changed(op, kind, Piece(back("before"), PRIMARY), Piece("value", PRIMARY), 0)
        return (
            f"{head}{t} value) {{\n    {word} seen = *({at}), before;\n    do {{\n        before = seen;\n"
            f"        seen = {exchange}({at}, before, {to(value)});\n"
            f"    }} while (seen != before);\n    return {back('seen')};\n}}"
        )
