"""HIP C++: CUDA's language for AMD's devices. Its warps may have 64 threads, and its exchanges take no mask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.cuda import CudaEmitter
from windtunnel.codegen.text import PRIMARY, Piece
from windtunnel.language import ir
from windtunnel.language.types import BF16, F16, U32, Scalar


class HipEmitter(CudaEmitter):
    """HIP C++."""

    target = "hip"
    title = "HIP C++"
    grid_header = "hip/hip_cooperative_groups.h"
    options = ("-ffp-contract=off",)
    option_note = "a product and a sum must not become one operation."
    tf32_half = CEmitter.tf32_half
    types: ClassVar[Mapping[str, str]] = {**CudaEmitter.types, "bf16": "hip_bfloat16"}
    headers: ClassVar[Mapping[Scalar, str]] = {F16: "hip/hip_fp16.h", BF16: "hip/hip_bfloat16.h"}
    narrow: ClassVar[Mapping[Scalar, tuple[str, str]]] = {
        F16: ("__float2half_rn", "__half2float"),
        BF16: ("hip_bfloat16", "float"),
    }

    def always(self) -> Sequence[str]:
        return ("hip/hip_runtime.h",)

    def pragmas(self) -> Iterator[str]:
        yield "#pragma clang fp contract(off)"

    def barrier(self, one: ir.Barrier) -> None:
        if one.scope == "warp":
            # A wavefront runs in step; what is left is to keep the compiler from moving memory accesses over it.
            self.put('__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");')
            self.put("__builtin_amdgcn_wave_barrier();")
            return
        super().barrier(one)

    def shuffle_call(self, how: str, mask: Piece, value: Piece, lane: Piece) -> Piece:
        del mask
        return self.function(f"__shfl{'_' + how if how else ''}", value, lane)

    def vote(self, op: str, mask: Piece, value: Piece) -> Piece:
        del mask
        made = self.function(f"__{op.removeprefix('vote.')}", value)
        return self.cast(U32, made) if op == "vote.ballot" else self.infix("!=", made, Piece("0", PRIMARY))
