"""``numba.cuda.vectorizers``: ``vectorize`` and ``guvectorize`` with ``target="cuda"``.

The rules of broadcasting and of types are those of Numba's ``deviceufunc``, which is loaded from the installed Numba.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from windtunnel.emulate import numba_cuda as cuda
from windtunnel.emulate.generated import executed
from windtunnel.emulate.numba_cuda.hostmemory import is_cuda_ndarray
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray

deviceufunc: Any = importlib.import_module("numba.cuda.deviceufunc")
# Numba generates the kernels as text.
deviceufunc.exec = executed


class CUDAUFuncMechanism(deviceufunc.UFuncMechanism):  # type: ignore[misc]
    """What a vectorized function does on the device."""

    DEFAULT_STREAM = 0

    def launch(self, func: Any, count: int, stream: Any, args: Any) -> None:
        """Launch a kernel."""
        func.forall(count, stream=stream)(*args)

    def is_device_array(self, obj: Any) -> bool:
        """Return whether a value is an array of the device."""
        return bool(cuda.is_cuda_array(obj))

    def as_device_array(self, obj: Any) -> Any:
        """Return a value as a device array."""
        return obj if is_cuda_ndarray(obj) else cuda.as_cuda_array(obj)

    def to_device(self, hostary: Any, stream: Any) -> Any:
        """Copy to the device."""
        return cuda.to_device(hostary, stream=stream)

    def to_host(self, devary: Any, stream: Any) -> Any:
        """Copy to the host."""
        return devary.copy_to_host(stream=stream)

    def allocate_device_array(self, shape: Any, dtype: Any, stream: Any) -> Any:
        """Allocate an array."""
        return cuda.device_array(shape=shape, dtype=dtype, stream=stream)

    def broadcast_device(self, ary: Any, shape: Any) -> Any:
        """Return a view of a shape."""
        differs = [axis for axis in range(len(shape)) if axis >= ary.ndim or ary.shape[axis] != shape[axis]]
        strides = [0] * (len(shape) - len(ary.shape)) + list(ary.strides)
        for axis in differs:
            strides[axis] = 0
        return DeviceNDArray(shape=shape, strides=strides, dtype=ary.dtype, gpu_data=ary.gpu_data)


class CUDAUFuncDispatcher:
    """A vectorized function."""

    def __init__(self, types_to_retty_kernels: Any, pyfunc: Any) -> None:
        self.functions, self.__name__ = types_to_retty_kernels, pyfunc.__name__

    def __call__(self, *args: Any, **kws: Any) -> Any:
        """Apply the function to arrays and numbers, which are broadcast."""
        return CUDAUFuncMechanism.call(self.functions, args, kws)

    def reduce(self, arg: Any, stream: Any = 0) -> Any:
        """Reduce an array of one dimension by the function, which takes two values."""
        if arg.shape[0] == 0:
            raise TypeError("Reduction on an empty array.")
        if arg.shape[0] == 1:
            return arg[0]
        stream = stream or cuda.stream()
        with stream.auto_synchronize():
            out = self._reduced(arg if is_cuda_ndarray(arg) else cuda.to_device(arg, stream), stream)
            buffer = np.array((1,), dtype=arg.dtype)
            out.copy_to_host(buffer, stream=stream)
        return buffer[0]

    def _reduced(self, memory: Any, stream: Any) -> Any:
        """Reduce an array in place, as Numba does, which overwrites a device array that is its argument."""
        count = memory.shape[0]
        if count % 2:
            most, last = memory.split(count - 1)
            out = self._reduced(most, stream)
            return self(out, last, out=out, stream=stream)
        left, right = memory.split(count // 2)
        self(left, right, out=left, stream=stream)
        return self._reduced(left, stream) if count // 2 > 1 else left


class _CUDAGUFuncCallSteps(deviceufunc.GUFuncCallSteps):  # type: ignore[misc]
    """What a call of a generalised function does on the device."""

    __slots__ = ["_stream"]

    def __init__(self, nin: int, nout: int, args: Any, kwargs: Any) -> None:
        super().__init__(nin, nout, args, kwargs)
        self._stream = kwargs.get("stream", 0)

    def is_device_array(self, obj: Any) -> bool:
        """Return whether a value is an array of the device."""
        return bool(cuda.is_cuda_array(obj))

    def as_device_array(self, obj: Any) -> Any:
        """Return a value as a device array."""
        return obj if is_cuda_ndarray(obj) else cuda.as_cuda_array(obj)

    def to_device(self, hostary: Any) -> Any:
        """Copy to the device."""
        return cuda.to_device(hostary, stream=self._stream)

    def to_host(self, devary: Any, hostary: Any) -> Any:
        """Copy to the host."""
        return devary.copy_to_host(hostary, stream=self._stream)

    def allocate_device_array(self, shape: Any, dtype: Any) -> Any:
        """Allocate an array."""
        return cuda.device_array(shape=shape, dtype=dtype, stream=self._stream)

    def launch_kernel(self, kernel: Any, nelem: int, args: Any) -> None:
        """Launch a kernel."""
        kernel.forall(nelem, stream=self._stream)(*args)


class CUDAGeneralizedUFunc(deviceufunc.GeneralizedUFunc):  # type: ignore[misc]
    """A generalised function."""

    def __init__(self, kernelmap: Any, engine: Any, pyfunc: Any) -> None:
        self.__name__ = pyfunc.__name__
        super().__init__(kernelmap, engine)

    @property
    def _call_steps(self) -> Any:
        return _CUDAGUFuncCallSteps

    def _broadcast_scalar_input(self, ary: Any, shape: Any) -> Any:
        return DeviceNDArray(shape=shape, strides=(0,), dtype=ary.dtype, gpu_data=ary.gpu_data)

    def _broadcast_add_axis(self, ary: Any, newshape: Any) -> Any:
        strides = (0,) * (len(newshape) - len(ary.shape)) + ary.strides
        return DeviceNDArray(shape=newshape, strides=strides, dtype=ary.dtype, gpu_data=ary.gpu_data)


_VECTORIZED = """
def __vectorized_{name}({args}, __out__):
    __tid__ = __cuda__.grid(1)
    if __tid__ < __out__.shape[0]:
        __out__[__tid__] = __core__({argitems})
"""
_GENERALISED = """
def __gufunc_{name}({args}):
    __tid__ = __cuda__.grid(1)
    if __tid__ < {checkedarg}:
        __core__({argitems})
"""


def _shown_as(kernel: Any, function: Any) -> Any:
    """Give a generated kernel the names of the program's function, for messages."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    generated = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    kernel.shown_as = function.__name__
    kernel.shown_parameters = {"__out__": "the result", **dict(zip(generated, names, strict=False))}
    return kernel


class CUDAVectorize(deviceufunc.DeviceVectorize):  # type: ignore[misc]
    """``vectorize`` for the device."""

    def _compile_core(self, sig: Any) -> Any:
        core = cuda.jit(sig, device=True, inline=True)(self.pyfunc)
        return core, core.overloads[sig.args].signature.return_type

    def _get_globals(self, corefn: Any) -> dict[str, Any]:
        return {**self.pyfunc.__globals__, "__cuda__": cuda, "__core__": corefn}

    def _compile_kernel(self, fnobj: Any, sig: Any) -> Any:
        del sig
        return cuda.jit(_shown_as(fnobj, self.pyfunc))

    def build_ufunc(self) -> CUDAUFuncDispatcher:
        """Return the function."""
        return CUDAUFuncDispatcher(self.kernelmap, self.pyfunc)

    @property
    def _kernel_template(self) -> str:
        return _VECTORIZED


class CUDAGUFuncVectorize(deviceufunc.DeviceGUFuncVectorize):  # type: ignore[misc]
    """``guvectorize`` for the device."""

    def build_ufunc(self) -> CUDAGeneralizedUFunc:
        """Return the function."""
        engine = deviceufunc.GUFuncEngine(self.inputsig, self.outputsig)
        return CUDAGeneralizedUFunc(kernelmap=self.kernelmap, engine=engine, pyfunc=self.pyfunc)

    def _compile_kernel(self, fnobj: Any, sig: Any) -> Any:
        return cuda.jit(sig)(_shown_as(fnobj, self.pyfunc))

    @property
    def _kernel_template(self) -> str:
        return _GENERALISED

    def _get_globals(self, sig: Any) -> dict[str, Any]:
        core = cuda.jit(sig, device=True)(self.pyfunc)
        return {**self.py_func.__globals__, "__cuda__": cuda, "__core__": core}
