"""``cupy.linalg``: linear algebra, as operations of the device with the arithmetic of the usual algorithms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.operations import call, matmul_flops, unsupported
from windtunnel.emulate.cupy.refusals import missing

LinAlgError = np.linalg.LinAlgError
_CUBIC = {
    "cholesky": 1 / 3, "qr": 4 / 3, "svd": 22.0, "svdvals": 4.0, "eigh": 9.0, "eigvalsh": 4 / 3, "eig": 25.0,
    "eigvals": 10.0, "inv": 2.0, "solve": 2 / 3, "det": 2 / 3, "slogdet": 2 / 3, "pinv": 26.0, "matrix_rank": 4.0,
    "lstsq": 4.0, "tensorsolve": 2 / 3, "tensorinv": 2.0, "cond": 4.0, "matrix_power": 2.0,
}  # fmt: skip
"""The arithmetic for matrices of n rows and columns, as a multiple of n cubed (Golub and Van Loan, Matrix
Computations, 4th edition)."""
_OTHERS = ("norm", "matmul", "outer", "cross", "diagonal", "trace", "vector_norm", "matrix_norm", "vecdot", "tensordot",
           "matrix_transpose", "multi_dot")  # fmt: skip


def _made(name: str) -> Callable[..., Any]:
    plain = getattr(np.linalg, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(one, (ndarray, list, tuple)) for one in args):
            raise unsupported(args[0] if args else None)
        flops: float | None = None
        shape = args[0].shape if isinstance(args[0], ndarray) else ()
        if name in _CUBIC and len(shape) > 1:
            flops = _CUBIC[name] * float(np.prod(shape)) * min(shape[-2:])
        elif name == "matmul":
            flops = matmul_flops(*args[:2])
        out = kwargs.pop("out", None)
        return call(f"cupy_{name}", plain, args, kwargs, out=out, flops=flops)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return what ``numpy.linalg.{name}`` does, as an operation of the device."
    return function


_FUNCTIONS = {name: _made(name) for name in (*_CUBIC, *_OTHERS) if hasattr(np.linalg, name)}


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    return missing("cupy.linalg", name)
