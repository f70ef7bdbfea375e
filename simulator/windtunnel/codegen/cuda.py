"""CUDA C++. A block's size is given at launch; ``i32`` and the like are C's own, ``f16`` is ``__half``.

16-bit floats are worked with in f32 and rounded after every operation: the operators of ``__half`` may be contracted by
the assembler whatever the compiler is told, and then give other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.signature import Buffer, Value
from windtunnel.codegen.text import PRIMARY, WRAPS, Piece
from windtunnel.language import ir
from windtunnel.language.types import BF16, BOOL, F16, F32, F64, I32, I64, U32, U64, Scalar

_INDICES = {"thread": "threadIdx", "block": "blockIdx", "block_size": "blockDim", "grid_size": "gridDim"}


class CudaEmitter(CEmitter):
    """CUDA C++."""

    target = "cuda"
    title = "CUDA C++"
    grid_barrier = True
    grid_header = "cooperative_groups.h"
    emulated = frozenset((F16, BF16))
    helper = "static __device__ __forceinline__"
    word = ("__float_as_uint", "__uint_as_float")
    # As cvt.rna.tf32.f32, which devices before compute capability 8.0 lack.
    tf32_half = ("0x1000u", "away from zero, as cvt.rna.tf32.f32")
    # NVRTC has no header of C's that has their names.
    infinity = "__uint_as_float(0x7f800000u)"
    not_a_number = "__uint_as_float(0x7fc00000u)"
    long_word = ("(unsigned long long)__double_as_longlong", "__longlong_as_double")
    options = ("--fmad=false",)
    option_note = "a product and a sum must not become one operation."
    types: ClassVar[Mapping[str, str]] = {
        "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long", "u8": "unsigned char",
        "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long", "f16": "__half",
        "bf16": "__nv_bfloat16", "f32": "float", "f64": "double",
    }  # fmt: skip
    headers: ClassVar[Mapping[Scalar, str]] = {F16: "cuda_fp16.h", BF16: "cuda_bf16.h"}
    narrow: ClassVar[Mapping[Scalar, tuple[str, str]]] = {
        F16: ("__float2half_rn", "__half2float"),
        BF16: ("__float2bfloat16_rn", "__bfloat162float"),
    }
    """(f32 to the type, and back)."""

    # The whole.

    def whole(self, body: Sequence[str]) -> Iterator[str]:
        tops = self.lines_of(self.tops)
        grid = [self.grid_header] if any("this_grid()" in line for line in body) else []
        includes = [*self.always(), *grid, *(h for kind, h in self.headers.items() if self._uses(kind))]
        yield from (f"#include <{name}>" for name in includes)
        yield from self.pragmas()
        yield ""
        yield from self.helper_lines(body)
        arguments = ", ".join(self.argument(one) for one in self.sorted_arguments())
        yield f'extern "C" __global__ void {self.spelled[self.program.name]}({arguments}) {{'
        yield from tops
        yield from body
        yield "}"

    def always(self) -> Sequence[str]:
        """Headers that every kernel needs."""
        return ()

    def pragmas(self) -> Iterator[str]:
        """Lines before the first function."""
        yield from ()

    def _uses(self, kind: Scalar) -> bool:
        if any(array.element == kind for array in self.program.arrays.values()):
            return True
        return any(name.endswith(f"_{kind}") for name in self.helpers)

    def argument(self, one: Buffer | object) -> str:
        """A parameter of the kernel."""
        if isinstance(one, Buffer):
            const = "" if one.written else "const "
            return f"{const}{self.types[one.element.name]} *{self.spelled[one.name]}"
        if isinstance(one, Value):
            return self.parameter(one)
        return f"int {self.spelled[getattr(one, 'name')]}"  # noqa: B009  sides and sizes have one

    def check_sizes(self, unsized: Sequence[ir.Declare]) -> None:
        """The launch gives the size of one."""

    def declare_array(self, one: ir.Declare) -> None:
        if one.shape == (0,):
            self.put(f"extern __shared__ {self.types[one.element.name]} {self.name(one.name)}[];")
            return
        shared = "__shared__ " if one.space == "shared" else ""
        self.put(f"{shared}{self.types[one.element.name]} {self.name(one.name)}[{self.sides_product(one.shape)}];")

    def barrier(self, one: ir.Barrier) -> None:
        mask = "" if one.mask is None else self.expression(one.mask).text
        self.put(
            {
                "block": "__syncthreads();",
                "warp": f"__syncwarp({mask});",
                "grid": "cooperative_groups::this_grid().sync();",
                "fence.device": "__threadfence();",
                "fence.block": "__threadfence_block();",
            }[one.scope]
        )

    def do(self, e: ir.Expr) -> None:
        if isinstance(e, ir.Atomic):
            # What it was is not asked for, and need not be converted.
            text = self.expression(e).text
            cast = next((c for c in (f"({self.types[k]})" for k in ("i64", "i32")) if text.startswith(c)), "")
            self.put(f"{text.removeprefix(cast)};")
            return
        super().do(e)

    # Expressions.

    def thread_index(self, e: ir.Index) -> Piece:
        return self.cast(I32, self._unsigned_index(e))

    def _unsigned_index(self, e: ir.Index) -> Piece:
        return Piece(f"{_INDICES[e.what]}.{'xyz'[e.axis]}", PRIMARY)

    def unsigned(self, e: ir.Expr) -> Piece:
        return self._unsigned_index(e) if isinstance(e, ir.Index) else super().unsigned(e)

    def wrapping(self, e: ir.Binary, kind: Scalar, address: bool) -> Piece:
        # Indices of threads are unsigned already.
        if kind == I32 and all(
            isinstance(i, ir.Index) or (isinstance(i, ir.Binary) and i.op in WRAPS) for i in ir.inside(e)
        ):
            return self.cast(kind, self.unsigned(e))
        return super().wrapping(e, kind, address)

    def load(self, e: ir.Load) -> Piece:
        text = Piece(self.element(e.array, e.indices), PRIMARY)
        kind = self.program.arrays[e.array].element
        return self.function(self.narrow[kind][1], text) if kind in self.emulated else text

    def store(self, one: ir.Store) -> None:
        kind = self.program.arrays[one.array].element
        value = self.expression(one.value)
        # What was rounded last is rounded here in any case.
        if kind in self.emulated:
            value = self.function(self.narrow[kind][0], self.unrounded(value, kind))
        self.put(f"{self.element(one.array, one.indices)} = {value.text};")

    def unrounded(self, piece: Piece, kind: Scalar) -> Piece:
        """A value without the rounding that comes last: storing does the same."""
        head = f"wt_round_{kind}("
        if piece.text.startswith(head) and piece.text.find(")") == len(piece.text) - 1:
            return Piece(piece.text[len(head) : -1], 0)
        return piece

    def narrow_helper(self, root: str, kind: str, name: str) -> str:
        if root == "round" and kind in ("f16", "bf16"):
            to, back = self.narrow[F16 if kind == "f16" else BF16]
            return f"float {name}(float x) {{\n    return {back}({to}(x));\n}}"
        return super().narrow_helper(root, kind, name)

    def parameter(self, one: Value) -> str:
        if one.type == BOOL:
            return f"bool {self.spelled[one.name]}"  # one byte
        return super().parameter(one)

    def helper_text(self, helper: str, name: str) -> str:
        bits = {
            "popc": ("__popc", "__popcll"), "clz": ("__clz", "__clzll"), "ffs": ("__ffs", "__ffsll"),
            "brev": ("__brev", "__brevll"),
        }  # fmt: skip
        root, _, kind = helper.rpartition("_")
        if root in bits:
            wide = self.types[kind]
            result = wide if root == "brev" else "int"
            signed = {"clz": "int", "ffs": "int"}.get(root)
            given = "x" if signed is None else f"({signed})x" if kind == "u32" else "(long long)x"
            return f"{self.helper} {result} {name}({wide} x) {{\n    return {bits[root][kind == 'u64']}({given});\n}}"
        if helper == "lane_i32":
            return (
                f"{self.helper} int {name}() {{\n"
                "    return ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % warpSize;\n}"
            )
        if helper.startswith("atomic_"):
            return self.exchange_loop(helper, name)
        return super().helper_text(helper, name)

    # Warps.

    def warp(self, e: ir.Warp) -> Piece:
        if e.op == "lane":
            return self.function(self.need("lane_i32"))
        if e.op == "warp_size":
            return Piece("warpSize", PRIMARY)
        mask, value, *rest = (self.expression(a) for a in e.arguments)
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        if e.op.startswith("shuffle"):
            return self.shuffle(e.op, mask, value, rest[0], kind)
        return self.vote(e.op, mask, value)

    def shuffle(self, op: str, mask: Piece, value: Piece, lane: Piece, kind: Scalar) -> Piece:
        """A value of another thread."""
        if kind.bits < 32 and kind.kind != "float":
            value = self.cast(I32, value)
        made = self.shuffle_call(op.removeprefix("shuffle.").replace("index", ""), mask, value, lane)
        return self.converted_back(made, kind)

    def converted_back(self, piece: Piece, kind: Scalar) -> Piece:
        """What was exchanged as an int, in its own type."""
        return self.cast(kind, piece) if kind.bits < 32 and kind.kind != "float" else piece

    def shuffle_call(self, how: str, mask: Piece, value: Piece, lane: Piece) -> Piece:
        """The function of CUDA."""
        return self.function(f"__shfl_{how + '_' if how else ''}sync", mask, value, lane)

    def vote(self, op: str, mask: Piece, value: Piece) -> Piece:
        """any, all, ballot."""
        made = self.function(f"__{op.removeprefix('vote.')}_sync", mask, value)
        return made if op == "vote.ballot" else self.infix("!=", made, Piece("0", PRIMARY))

    # Atomics.

    def atomically(self, e: ir.Atomic) -> Piece:
        kind = e.type
        assert kind is not None  # noqa: S101  inference has been here
        at = Piece(f"&{self.element(e.array, e.indices)}", PRIMARY)
        values = [self.expression(v) for v in e.values]
        op = e.op.rstrip("_")
        name = {"add": "Add", "sub": "Sub", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor",
                "exch": "Exch", "cas": "CAS", "inc": "Inc", "dec": "Dec"}[op]  # fmt: skip
        if kind in (I32, U32) or (kind == U64 and op != "sub"):
            return self.function(f"atomic{name}", at, *values)
        if op in ("min", "max") and kind == I64:
            return self.function(f"atomic{name}", at, *values)
        if kind.kind == "float" and op == "add":
            return self.function("atomicAdd", at, *values)
        if kind.kind == "float" and op == "sub":
            return self.function("atomicAdd", at, self.minus(values[0]))
        if kind == F32 and op == "exch":
            return self.function("atomicExch", at, *values)
        if kind.kind == "float" and op in ("min", "max"):
            return self.function(self.need(f"atomic_{op}_{kind}"), at, *values)
        # By the bits of the unsigned number of the same width.
        to, back = self.bits_and_back(kind)
        wide = self.types[f"u{kind.bits}"]
        texts = [to(v.text) for v in values] if kind.kind == "float" else [self.unsigned(v).text for v in e.values]
        if op == "sub":
            name, texts = "Add", [self.infix("-", self.literal(0, U64), self.unsigned(e.values[0])).text]
        call = f"atomic{name}(({wide} *){at.text}, {', '.join(texts)})"
        return Piece(back(call), PRIMARY if kind.kind in ("float", "uint") else PRIMARY - 1)

    def exchange_loop(self, helper: str, name: str) -> str:
        """Min and max of floats, which there is no instruction for."""
        op, kind_name = helper.split("_")[1:]
        kind = F32 if kind_name == "f32" else F64
        to, back = self.bits_and_back(kind)
        word = self.types[f"u{kind.bits}"]
        value = self.changed(op, kind, Piece(back("seen"), PRIMARY), Piece("value", PRIMARY), 0)
        t = self.types[kind_name]
        return (
            f"{self.helper} {t} {name}({t} *at, {t} value) {{\n"
            f"    {word} seen = *(volatile {word} *)at, before;\n    do {{\n"
            f"        before = seen;\n        seen = atomicCAS(({word} *)at, before, {to(value)});\n"
            f"    }} while (seen != before);\n    return {back('seen')};\n}}"
        )
