"""``cuda.reduce``: a reduction of an array by a function of two values."""

from __future__ import annotations

from typing import Any

from numba.np.numpy_support import from_dtype

from windtunnel.emulate.numba_cuda.dispatcher import jit
from windtunnel.emulate.numba_cuda.interop import auto_device
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray
from windtunnel.language.names import blockDim, blockIdx, gridDim, shared, syncthreads, threadIdx

_THREADS = 128
_BLOCKS = 64


def _kernels(function: Any, element: Any) -> Any:
    combine = jit(device=True)(function)

    @jit
    def partial(values, results, size, initial, has_initial):  # type: ignore[no-untyped-def]
        scratch: Any = shared.array(_THREADS, element)
        t = threadIdx.x
        first = blockIdx.x * blockDim.x + t
        step = blockDim.x * gridDim.x
        if first < size:
            total = values[first]
            at = first + step
            while at < size:
                total = combine(total, values[at])
                at += step
            scratch[t] = total
        syncthreads()
        # The threads of the block that have a value are the first ones.
        count = min(blockDim.x, size - blockIdx.x * blockDim.x)
        while count > 1:
            half = (count + 1) // 2
            if t + half < count:
                scratch[t] = combine(scratch[t], scratch[t + half])
            syncthreads()
            count = half
        if t == 0:
            if has_initial and gridDim.x == 1:
                results[blockIdx.x] = combine(initial, scratch[0])
            else:
                results[blockIdx.x] = scratch[0]

    return partial


class Reduce:
    """A reduction: ``cuda.reduce(function)``, called with an array."""

    _cache: dict[Any, Any] = {}  # noqa: RUF012  kernels by function and type, as in Numba

    def __init__(self, functor: Any) -> None:
        self._functor = functor

    def _compile(self, dtype: Any) -> Any:
        key = self._functor, dtype
        if key not in self._cache:
            self._cache[key] = _kernels(self._functor, from_dtype(dtype))
        return self._cache[key]

    def __call__(self, arr: Any, size: Any = None, res: Any = None, init: Any = 0, stream: Any = 0) -> Any:
        """Reduce the first ``size`` elements; into ``res`` if it is given, else return the result."""
        if arr.ndim != 1:
            raise TypeError("only support 1D array")
        if size is not None and arr.size < size:
            raise ValueError("size > array.size")
        count = arr.size if size is None else size
        if count < 1:
            if res is None:
                return init
            res[0] = init
            return None
        kernel = self._compile(arr.dtype)
        values, _ = auto_device(arr, stream)
        blocks = min(_BLOCKS, -(-count // _THREADS))
        partial = DeviceNDArray((blocks,), dtype=arr.dtype)
        initial = arr.dtype.type(init)
        kernel[blocks, _THREADS, stream](values, partial, count, initial, True)
        if blocks > 1:
            final = DeviceNDArray((1,), dtype=arr.dtype)
            kernel[1, _THREADS, stream](partial, final, blocks, initial, True)
            partial = final
        if res is not None:
            res[:1].copy_to_device(partial, stream=stream)
            return None
        return partial.copy_to_host(stream=stream)[0]
