"""The names of ``numba.cuda`` that kernels use beyond those of the kernel language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
_ROUNDINGS = ("rn", "rz", "rd", "ru")
_WIDTHS = (8, 16, 32, 64)
BRAIN: Sequence[str] = (
    *(f"h{op}{end}" for op in ("add", "sub", "mul") for end in ("", "_rn", "_sat")), "hdiv", "hneg", "habs",
    "hfma", "hfma_sat", "hfma_relu",
    *(f"h{op}{end}" for op in ("eq", "ne", "ge", "gt", "le", "lt") for end in ("", "u")),
    "hmax", "hmin", "hmax_nan", "hmin_nan", "hisinf", "hisnan",
    *(f"h{name}" for name in (
        "trunc", "ceil", "floor", "rint", "sqrt", "rsqrt", "rcp", "log", "log2", "log10", "cos", "sin", "tanh",
        "tanh_approx", "exp", "exp2", "exp10",
    )),
    "bfloat16_to_float32", "float32_to_bfloat16", "float64_to_bfloat16",
    *(f"float32_to_bfloat16_{how}" for how in _ROUNDINGS),
    *(f"{sign}int{bits}_to_bfloat16_{how}" for sign in ("", "u") for bits in _WIDTHS[1:] for how in _ROUNDINGS),
    *(f"bfloat16_to_{sign}int{bits}_{how}" for sign in ("", "u") for bits in _WIDTHS for how in _ROUNDINGS),
    *(f"{a}_as_{b}" for one in ("int16", "uint16") for a, b in ((one, "bfloat16"), ("bfloat16", one))),
)  # fmt: skip
"""The functions of ``cuda.bf16``."""
bf16 = Group("bf16", {name: Name(f"bf16.{name}", f"brain.{name}") for name in BRAIN})
HINTED_LOADS, HINTED_STORES = ("ldca", "ldcg", "ldcs", "ldlu", "ldcv"), ("stcg", "stcs", "stwb", "stwt")
"""Loads and stores with a hint for the caches, which the emulation of memory does not have."""
HINTED: Mapping[str, Name] = {
    **{name: Name(name, f"hinted_load.{name}") for name in HINTED_LOADS},
    **{name: Name(name, f"hinted_store.{name}") for name in HINTED_STORES},
}
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
