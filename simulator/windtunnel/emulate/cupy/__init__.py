"""``cupy`` for emulated devices: the interface of CuPy 14.2."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

import numpy as _np  # noqa: ICN001  the package has only CuPy's names

from windtunnel.emulate.cupy import cuda, names, refusals
from windtunnel.emulate.cupy.creation import (
    arange,
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    asnumpy,
    bartlett,
    blackman,
    copy,
    empty,
    empty_like,
    eye,
    frombuffer,
    fromfile,
    full,
    full_like,
    geomspace,
    hamming,
    hanning,
    identity,
    kaiser,
    linspace,
    load,
    loadtxt,
    logspace,
    ones,
    ones_like,
    save,
    savetxt,
    savez,
    savez_compressed,
    tri,
    zeros,
    zeros_like,
)
from windtunnel.emulate.cupy.cuda.device import Device as _Device
from windtunnel.emulate.cupy.cuda.memory import default_pool as _pool
from windtunnel.emulate.cupy.cuda.pinned_memory import default_pool as _pinned_pool
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.elementwise_kernels import ElementwiseKernel
from windtunnel.emulate.cupy.functions import FUNCTIONS as _FUNCTIONS
from windtunnel.emulate.cupy.functions import ufunc
from windtunnel.emulate.cupy.fusion import fuse
from windtunnel.emulate.cupy.raw_kernels import RawKernel, RawModule
from windtunnel.emulate.cupy.reduction_kernels import ReductionKernel

__version__ = "14.2.0"
get_current_stream = cuda.get_current_stream
_MODULES = ("random", "linalg", "fft", "testing", "_core", "exceptions")
_REFUSED = ("vectorize", "RawBinary", "fromfunction", "fromiter", "fromstring", "genfromtxt")


def get_default_memory_pool() -> cuda.MemoryPool:
    """Return the pool of arrays."""
    return _pool


def get_default_pinned_memory_pool() -> cuda.PinnedMemoryPool:
    """Return the pool of page-locked memory."""
    return _pinned_pool


def get_array_module(*args: _Any) -> _Any:
    """Return ``cupy`` if an argument is one of its arrays, else ``numpy``."""
    import sys

    return sys.modules[__name__] if any(isinstance(one, ndarray) for one in args) else _np


def is_available() -> bool:
    """Return True: the emulated device is there."""
    return True


def show_config(*, _full: bool = False) -> None:
    """Print the version and the device."""
    import sys

    device = _Device()
    name = cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    sys.stdout.write(
        f"CuPy Version                 : {__version__}\nDevice 0 Name                : {name} (emulated)\n"
    )


def clear_memo() -> None:
    """Do nothing: nothing is kept that a program could see."""


def memoize(for_each_device: bool = False) -> _Any:
    """Return a decorator that keeps the results of a function."""
    from functools import cache

    del for_each_device
    return cache


def __getattr__(name: str) -> _Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name in names.TYPES or name in names.WITHOUT_ARRAYS:
        return getattr(_np, name)
    if name in _MODULES:
        return _import_module(f"windtunnel.emulate.cupy.{name}")
    if name in _REFUSED:
        raise refusals.not_available(f"cupy.{name}")
    return refusals.missing("cupy", name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_FUNCTIONS, *names.TYPES, *names.WITHOUT_ARRAYS, *_MODULES})


__all__ = [
    "ElementwiseKernel",
    "RawKernel",
    "RawModule",
    "ReductionKernel",
    "arange",
    "array",
    "asanyarray",
    "asarray",
    "ascontiguousarray",
    "asfortranarray",
    "asnumpy",
    "bartlett",
    "blackman",
    "clear_memo",
    "copy",
    "cuda",
    "empty",
    "empty_like",
    "eye",
    "frombuffer",
    "fromfile",
    "full",
    "full_like",
    "fuse",
    "geomspace",
    "get_array_module",
    "get_current_stream",
    "get_default_memory_pool",
    "get_default_pinned_memory_pool",
    "hamming",
    "hanning",
    "identity",
    "is_available",
    "kaiser",
    "linspace",
    "load",
    "loadtxt",
    "logspace",
    "memoize",
    "ndarray",
    "ones",
    "ones_like",
    "save",
    "savetxt",
    "savez",
    "savez_compressed",
    "show_config",
    "tri",
    "ufunc",
    "zeros",
    "zeros_like",
]
