"""``cupy.fft``: discrete Fourier transforms, as operations of the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.creation import made_from
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.names import TRANSFORMS
from windtunnel.emulate.cupy.operations import call, unsupported
from windtunnel.emulate.cupy.refusals import missing


def _made(name: str) -> Callable[..., Any]:
    plain = getattr(np.fft, name)

    def function(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(a, ndarray):
            raise unsupported(a)
        # A transform of n numbers takes some 5 n log2(n) operations (Cooley and Tukey, 1965).
        flops = 0.0 if name.endswith("shift") else 5.0 * a.size * math.log2(max(a.size, 2))
        return call(f"cupy_{name}", plain, (a, *args), kwargs, flops=flops)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return what ``numpy.fft.{name}`` does, as an operation of the device."
    return function


_FUNCTIONS = {name: _made(name) for name in TRANSFORMS}


def fftfreq(n: int, d: float = 1.0) -> ndarray:
    """Return the frequencies of a transform."""
    return made_from("fftfreq", np.fft.fftfreq(n, d))


def rfftfreq(n: int, d: float = 1.0) -> ndarray:
    """Return the frequencies of a transform of real numbers."""
    return made_from("rfftfreq", np.fft.rfftfreq(n, d))


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    return missing("cupy.fft", name)
