"""``numba.cuda`` for emulated devices: the interface of Numba 0.61 to 0.68 and numba-cuda 0.30."""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from typing import Any as _Any

from numba.core import config
from numba.core import types as _types
from numba.misc.special import literal_unroll

from windtunnel.core.errors import UnsupportedOperationError as _Unsupported
from windtunnel.emulate.numba_cuda import api as _api
from windtunnel.emulate.numba_cuda import cudadrv
from windtunnel.emulate.numba_cuda.args import In, InOut, Out
from windtunnel.emulate.numba_cuda.cudadrv import devicearray
from windtunnel.emulate.numba_cuda.cudadrv import devices as _devices
from windtunnel.emulate.numba_cuda.cudadrv import driver as _driver  # noqa: F401  an attribute of cudadrv
from windtunnel.emulate.numba_cuda.cudadrv.driver import (
    BaseCUDAMemoryManager,
    GetIpcHandleMixin,
    HostOnlyCUDAMemoryManager,
    IpcHandle,
    ManagedMemory,
    MappedMemory,
    MemoryInfo,
    MemoryPointer,
    PinnedMemory,
    set_memory_manager,
)
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaSupportError
from windtunnel.emulate.numba_cuda.cudadrv.linkable_code import (
    LTOIR,
    Archive,
    Cubin,
    CUSource,
    Fatbin,
    LinkableCode,
    Object,
    PTXSource,
)
from windtunnel.emulate.numba_cuda.dispatcher import declare_device, jit
from windtunnel.emulate.numba_cuda.errors import KernelRuntimeError
from windtunnel.emulate.numba_cuda.ext_types import bfloat16
from windtunnel.emulate.numba_cuda.reduction import Reduce
from windtunnel.emulate.numba_cuda.streams import (
    default_stream,
    event,
    event_elapsed_time,
    external_stream,
    legacy_default_stream,
    per_thread_default_stream,
    stream,
)
from windtunnel.language.names import (
    all_sync,
    any_sync,
    ballot_sync,
    blockDim,
    blockIdx,
    brev,
    clz,
    ffs,
    fma,
    grid,
    gridDim,
    gridsize,
    laneid,
    local,
    popc,
    shared,
    shfl_down_sync,
    shfl_sync,
    shfl_up_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    warpsize,
)
from windtunnel.language.numba.names import (
    HINTED as _HINTED,
)
from windtunnel.language.numba.names import (
    VECTOR_STEMS as _STEMS,
)
from windtunnel.language.numba.names import (
    VECTORS as _VECTORS,
)
from windtunnel.language.numba.names import (
    activemask,
    atomic,
    cbrt,
    cg,
    const,
    eq_sync,
    fp16,
    lanemask_lt,
    match_all_sync,
    match_any_sync,
    nanosleep,
    selp,
    shfl_sync_intrinsic,
    syncthreads_and,
    syncthreads_count,
    syncthreads_or,
    threadfence_system,
    vote_sync_intrinsic,
)

_auto_device = _api._auto_device
HAS_NUMBA = True
if not hasattr(config, "CUDA_ENABLE_NRT"):  # an option of numba-cuda
    config.CUDA_ENABLE_NRT = False
globals().update({name: getattr(_types, name) for name in _types.__all__ if hasattr(_types, name)})
globals().update(_HINTED)
globals().update({name: value for name, value in vars(_api).items() if not name.startswith("_")})
reduce = Reduce
implementation = "Windtunnel"
current_context = _devices.get_context
gpus = _devices.gpus
for _name, _vector in _VECTORS.items():
    setattr(_sys.modules[__name__], _name, _vector)
    _stem = _STEMS[_vector.element]
    setattr(_sys.modules[__name__], f"{_stem}{_vector.size}", _vector)
    if _stem.endswith("longlong"):
        setattr(_sys.modules[__name__], f"{_stem.removesuffix('long')}{_vector.size}", _vector)  # on 64-bit Linux


_SHARED_MODULES = ("cgutils", "core", "cpython", "datamodel", "misc", "serialize", "typeconv", "typing", "utils")
"""Modules that are Numba's own (`emulate.hooks`)."""


def __getattr__(name: str) -> _Any:
    if name in ("vectorize", "guvectorize"):
        return getattr(_import_module("windtunnel.emulate.numba_cuda.np.ufunc"), name)
    if name in _SHARED_MODULES or name in (
        "random",
        "deviceufunc",
        "libdevicefuncs",
        "tests",
    ):  # modules of the real package
        return _import_module(f"numba.cuda.{name}")
    if name == "runtime":
        return _import_module("windtunnel.emulate.numba_cuda.cudadrv.runtime").runtime
    if name in ("compiler", "cuda_paths", "decorators", "dispatcher", "kernels", "libdevice"):
        return _import_module(f"windtunnel.emulate.numba_cuda.{name}")
    raise AttributeError(f"numba.cuda.{name} is not part of Windtunnel's numba.cuda")


def compile(*_: _Any, **__: _Any) -> _Any:  # noqa: A001  the name in numba.cuda
    """Raise UnsupportedOperationError: Windtunnel compiles kernels to neither PTX nor LTO-IR."""
    raise _Unsupported("cuda.compile is not available: Windtunnel compiles kernels to neither PTX nor LTO-IR")


compile_ptx = compile_for_current_device = compile_ptx_for_current_device = compile_all = compile
__all__ = [
    "LTOIR",
    "Archive",
    "BaseCUDAMemoryManager",
    "CUSource",
    "Cubin",
    "CudaSupportError",
    "Fatbin",
    "GetIpcHandleMixin",
    "HostOnlyCUDAMemoryManager",
    "In",
    "InOut",
    "IpcHandle",
    "KernelRuntimeError",
    "LinkableCode",
    "ManagedMemory",
    "MappedMemory",
    "MemoryInfo",
    "MemoryPointer",
    "Object",
    "Out",
    "PTXSource",
    "PinnedMemory",
    "Reduce",
    "activemask",
    "all_sync",
    "any_sync",
    "atomic",
    "ballot_sync",
    "bfloat16",
    "blockDim",
    "blockIdx",
    "brev",
    "cbrt",
    "cg",
    "clz",
    "const",
    "cudadrv",
    "declare_device",
    "default_stream",
    "devicearray",
    "eq_sync",
    "event",
    "event_elapsed_time",
    "external_stream",
    "ffs",
    "fma",
    "fp16",
    "grid",
    "gridDim",
    "gridsize",
    "jit",
    "laneid",
    "lanemask_lt",
    "legacy_default_stream",
    "literal_unroll",
    "local",
    "match_all_sync",
    "match_any_sync",
    "nanosleep",
    "per_thread_default_stream",
    "popc",
    "reduce",
    "selp",
    "set_memory_manager",
    "shared",
    "shfl_down_sync",
    "shfl_sync",
    "shfl_sync_intrinsic",
    "shfl_up_sync",
    "shfl_xor_sync",
    "stream",
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
    "syncwarp",
    "threadIdx",
    "threadfence",
    "threadfence_block",
    "threadfence_system",
    "vote_sync_intrinsic",
    "warpsize",
]  # fmt: skip
__all__ += [name for name in vars(_api) if not name.startswith("_")]
