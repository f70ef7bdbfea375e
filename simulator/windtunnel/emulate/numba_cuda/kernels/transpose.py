"""``numba.cuda.kernels.transpose``."""

from __future__ import annotations

from typing import Any

from windtunnel.emulate.numba_cuda.dispatcher import jit
from windtunnel.emulate.numba_cuda.interop import auto_device
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray
from windtunnel.language.names import grid

_BLOCK = 16


@jit
def _transposed(a, b):  # type: ignore[no-untyped-def]
    position: Any = grid(2)
    x, y = position[0], position[1]
    if x < a.shape[0] and y < a.shape[1]:
        b[y, x] = a[x, y]


def transpose(a: Any, b: Any = None) -> Any:
    """Return the transposed matrix, in ``b`` if it is given."""
    stream = getattr(a, "stream", 0)
    rows, columns = a.shape
    if b is None:
        b = DeviceNDArray((columns, rows), dtype=a.dtype, stream=stream)
    source, _ = auto_device(a, stream)
    grid_shape = -(-rows // _BLOCK), -(-columns // _BLOCK)
    _transposed[grid_shape, (_BLOCK, _BLOCK), stream](source, b)
    return b
