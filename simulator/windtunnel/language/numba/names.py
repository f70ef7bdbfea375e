"""The names of ``numba.cuda`` that kernels use beyond those of the kernel language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windtunnel.language.names import AXES, Group, Name
from windtunnel.language.names import atomic as _atomic
from windtunnel.language.names import cg as _cg

const = Group("const", {"array_like": Name("const.array_like", "constant")})
atomic = Group(
    "atomic",
    {
        **_atomic.members,
        **{name: Name(f"atomic.{name}", f"atomic.{name}") for name in ("nanmax", "nanmin", "compare_and_swap")},
    },
)
cg = Group("cg", {**_cg.members, "sync": Name("cg.sync", "grid_sync")})
syncthreads_count, syncthreads_and, syncthreads_or = (
    Name(f"syncthreads_{how}", f"counted.{how}") for how in ("count", "and", "or")
)
threadfence_system = Name("threadfence_system", "fence.device")
activemask, lanemask_lt = Name("activemask", "active"), Name("lanemask_lt", "lanes_below")
match_any_sync, match_all_sync = Name("match_any_sync", "match.any"), Name("match_all_sync", "match.all")
eq_sync = Name("eq_sync", "vote.eq")
vote_sync_intrinsic = Name("vote_sync_intrinsic", "vote.numbered")
shfl_sync_intrinsic = Name("shfl_sync_intrinsic", "shuffle.numbered")
nanosleep, selp, cbrt = Name("nanosleep", "sleep"), Name("selp", "select"), Name("cbrt", "math.cbrt")

HALF: Mapping[str, Any] = {
    **{name: ("binary", op) for name, op in {
        "hadd": "+", "hsub": "-", "hmul": "*", "hdiv": "/", "heq": "==", "hne": "!=", "hge": ">=", "hgt": ">",
        "hle": "<=", "hlt": "<",
    }.items()},
    "hneg": ("unary", "-"), "habs": ("unary", "abs"), "hfma": ("math", "fma"), "hmax": ("extreme", "max"),
    "hmin": ("extreme", "min"), "hsin": ("math", "sin"), "hcos": ("math", "cos"), "hlog": ("math", "log"),
    "hlog10": ("math", "log10"), "hlog2": ("math", "log2"), "hexp": ("math", "exp"), "hexp10": ("math", "exp10"),
    "hexp2": ("math", "exp2"), "hfloor": ("math", "floor"), "hceil": ("math", "ceil"), "hsqrt": ("math", "sqrt"),
    "hrsqrt": ("math", "rsqrt"), "hrcp": ("math", "rcp"), "hrint": ("math", "rint"), "htrunc": ("math", "trunc"),
}  # fmt: skip
"""The functions of ``cuda.fp16``, and what each computes."""
fp16 = Group("fp16", {name: Name(f"fp16.{name}", f"half.{name}") for name in HALF})
VECTOR_STEMS: Mapping[str, str] = {
    "int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
    "int64": "longlong", "uint64": "ulonglong", "float32": "float", "float64": "double",
}  # fmt: skip
"""CUDA's stem of the vector types of a type of numbers."""


class VectorType:
    """A vector type of CUDA, such as ``float4``: a call in a kernel makes one from numbers and other vectors."""

    def __init__(self, name: str, element: str, size: int) -> None:
        self.name, self.element, self.size = name, element, size
        self.names = tuple((*AXES, "w")[:size])
        self.aliases = (f"{VECTOR_STEMS[element]}{size}",)

    def __repr__(self) -> str:
        return f"<vector type {self.name}>"


VECTORS: Mapping[str, VectorType] = {
    f"{stem}x{size}": VectorType(f"{stem}x{size}", stem, size) for stem in VECTOR_STEMS for size in (1, 2, 3, 4)
}
"""The vector types by Numba's names."""
