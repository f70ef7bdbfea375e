"""The names of the kernel language: indices, barriers, shared memory, atomic operations, warps, conversions.

They are Numba's names for CUDA. Calling one outside of a kernel raises InputError.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from windtunnel.core.errors import InputError


@dataclass(frozen=True)
class Name:
    """A name that a kernel may use. ``op`` identifies it in the compiler."""

    spelling: str
    op: str

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: the call is outside of a kernel."""
        raise InputError(
            f"{self.spelling} can be used only in a kernel that a device executes",
            expected="a function under @windtunnel.kernel, launched",
        )

    def __repr__(self) -> str:
        return f"<{self.spelling} of the kernel language>"


_MOST_LISTED = 12
"""The most names that a message lists."""


def _some(names: Mapping[str, object], wanted: str) -> str:
    """Return the names of a group, or of a large one those that are most like another name."""
    if len(names) <= _MOST_LISTED:
        return ", ".join(names)
    near = difflib.get_close_matches(wanted, names, 3, 0.0)
    return f"{', '.join(near)} and {len(names) - len(near)} others"


@dataclass(frozen=True)
class Group:
    """Names with a common prefix: ``threadIdx.x``, ``atomic.add``."""

    spelling: str
    members: Mapping[str, Name] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Name:
        # Python calls this only for names that are not dataclass fields.
        member: Name | None = object.__getattribute__(self, "members").get(name)
        if member is None:
            raise AttributeError(f"{self.spelling} has no '{name}': it has {_some(self.members, name)}")
        return member

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise InputError: the call is outside of a kernel."""
        raise InputError(
            f"{self.spelling} is not a function", expected=", ".join(f"{self.spelling}.{m}" for m in self.members)
        )

    def __repr__(self) -> str:
        return f"<{self.spelling} of the kernel language>"


AXES = "xyz"
_INDICES = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "block_size", "gridDim": "grid_size"}


def _indices(spelling: str, op: str) -> Group:
    return Group(spelling, {axis: Name(f"{spelling}.{axis}", f"{op}.{axis}") for axis in AXES})


threadIdx, blockIdx, blockDim, gridDim = (_indices(spelling, op) for spelling, op in _INDICES.items())  # noqa: N816
grid, gridsize = Name("grid", "grid"), Name("gridsize", "gridsize")
syncthreads, syncwarp = Name("syncthreads", "barrier"), Name("syncwarp", "warp_barrier")
threadfence, threadfence_block = Name("threadfence", "fence.device"), Name("threadfence_block", "fence.block")
cg = Group("cg", {"this_grid": Name("cg.this_grid", "this_grid")})
"""Cooperative groups; only the grid exists: ``cg.this_grid().sync()`` is a barrier of all blocks."""
laneid, warpsize = Name("laneid", "lane"), Name("warpsize", "warp_size")
shared = Group("shared", {"array": Name("shared.array", "shared")})
local = Group("local", {"array": Name("local.array", "local")})
ATOMICS = ("add", "sub", "max", "min", "and_", "or_", "xor", "exch", "cas", "inc", "dec", "load", "store")
atomic = Group("atomic", {name: Name(f"atomic.{name}", f"atomic.{name}") for name in ATOMICS})
shfl_sync, shfl_up_sync, shfl_down_sync, shfl_xor_sync = (
    Name(name, f"shuffle.{how}")
    for name, how in (
        ("shfl_sync", "index"),
        ("shfl_up_sync", "up"),
        ("shfl_down_sync", "down"),
        ("shfl_xor_sync", "xor"),
    )
)
all_sync, any_sync, ballot_sync = (Name(f"{how}_sync", f"vote.{how}") for how in ("all", "any", "ballot"))
popc, clz, ffs, brev = (Name(name, f"bits.{name}") for name in ("popc", "clz", "ffs", "brev"))
fma = Name("fma", "fma")
rsqrt = Name("rsqrt", "math.rsqrt")
tf32 = Name("tf32", "round.tf32")
"""Rounds a float32 to the 10 bits of mantissa that matrix units use."""

POSITION = Name("GridPos", "position")
"""The annotation of a stencil's position (``language.stencil``)."""

THREAD_LANGUAGE: Mapping[str, Name | Group] = {
    **{g.spelling: g for g in (threadIdx, blockIdx, blockDim, gridDim, shared, local, atomic, cg)},
    **{
        n.spelling: n
        for n in (
            grid, gridsize, syncthreads, syncwarp, threadfence, threadfence_block, laneid, warpsize,
            shfl_sync, shfl_up_sync, shfl_down_sync, shfl_xor_sync, all_sync, any_sync, ballot_sync,
            popc, clz, ffs, brev, fma, rsqrt, tf32,
        )
    },
    # The functions of the founding documents.
    **{
        f"{snake}_{axis}": Name(f"{snake}_{axis}", f"{op}.{axis}")
        for snake, op in (
            ("thread_idx", "thread"), ("block_idx", "block"), ("block_dim", "block_size"), ("grid_dim", "grid_size"),
        )
        for axis in AXES
    },
    "sync_threads": Name("sync_threads", "barrier"),
    "sync_warp": Name("sync_warp", "warp_barrier"),
    "thread_fence": Name("thread_fence", "fence.device"),
    "thread_fence_block": Name("thread_fence_block", "fence.block"),
    "GridPos": POSITION,
}  # fmt: skip
"""Each public name. A function that uses one of them is a kernel written for one thread."""


def __getattr__(name: str) -> Name | Group:
    name_or_group = THREAD_LANGUAGE.get(name)
    if name_or_group is None:
        raise AttributeError(f"the kernel language has no {name!r}")
    return name_or_group
