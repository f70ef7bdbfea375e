"""Sources in CUDA C, read for the emulated device: options of the compiler, and arguments of kernels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, InvalidArgument
from windtunnel.csource.ctype import Number, Vector
from windtunnel.csource.facts import stored
from windtunnel.csource.kernel import CFunction, CModule, KernelParameter
from windtunnel.emulate.common.current import current_accelerator
from windtunnel.emulate.common.memory import Allocation, allocation_at
from windtunnel.emulate.cupy.cuda.compiler import CompileException
from windtunnel.emulate.cupy.cuda.graph import hold
from windtunnel.emulate.cupy.cuda.memory import MemoryPointer
from windtunnel.emulate.cupy.cuda.stream import current_raw
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.refusals import not_available
from windtunnel.emulate.cupy.source_lines import Origins
from windtunnel.runtime.buffers import Position
from windtunnel.runtime.kernels import Kernel

_WITHOUT_EFFECT = (
    "-std", "--std", "-lineinfo", "--generate-line-info", "-G", "--device-debug", "-O", "--ptxas-options", "-Xptxas",
    "--maxrregcount", "-maxrregcount", "-default-device", "--default-device", "-use_fast_math", "--use_fast_math",
    "-ftz", "--ftz", "-prec-div", "--prec-div", "-prec-sqrt", "--prec-sqrt", "-fmad", "--fmad", "-w",
    "--disable-warnings", "-restrict", "--restrict", "--extra-device-vectorization", "--expt-relaxed-constexpr",
    "-extra-device-vectorization", "--diag-suppress", "-diag-suppress", "--display-error-number", "-arch",
    "--gpu-architecture", "-Wno-", "-v", "--pre-include", "--split-compile", "--device-as-default-execution-space",
)  # fmt: skip
"""Options that do not change what a kernel computes here. Fast functions are computed as the accurate ones."""


def split_options(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the macros and the folders of headers in a compiler's options. Raises for one that is not known."""
    defines: list[str] = []
    folders: list[str] = []
    given = iter(options)
    for option in given:
        for short, full, into in (("-D", "--define-macro", defines), ("-I", "--include-path", folders)):
            if option in (short, full):
                into.append(next(given, ""))
                break
            if option.startswith(f"{full}="):
                into.append(option.partition("=")[2])
                break
            if option.startswith(short):
                into.append(option.removeprefix(short).lstrip())
                break
        else:
            if not option.startswith(_WITHOUT_EFFECT):
                raise not_available(f"the compiler's option '{option}'")
    return defines, [os.fspath(Path(folder)) for folder in folders]


def read_source(
    code: str,
    name: str,
    options: Sequence[str],
    backend: str,
    origins: Origins,
    instances: Sequence[str] = (),
    *,
    warnings: bool = False,
) -> CModule:
    """Return the kernels of a source. Raises CompileException with Clang's message."""
    defines, folders = split_options(options)
    fmad = not any(option.lstrip("-") == "fmad=false" for option in options)
    beside = Path(origins[0][0]).parent if origins and not origins[0][0].startswith("<") else Path()
    try:
        file = str(beside / f"<{name}>")
        return CModule(file, defines, folders, code, instances, origins, warnings=warnings, fmad=fmad)
    except InputError as error:
        if "libclang" in str(error):
            raise
        raise CompileException(str(error), code, name, options, backend) from None


def launch(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[Any],
    shared_mem: int = 0,
    stream: Any = None,
) -> None:
    """Launch a kernel with arguments of CuPy. Raises a finding."""
    function = kernel.function
    assert isinstance(function, CFunction)  # noqa: S101  the kernels here are in C
    stated = function.parameters
    if len(args) != len(stated):
        names = ", ".join(one.name for one in stated)
        raise _refused(kernel.name, f"{len(args)} arguments for a kernel of {len(stated)}: {names}")
    given = [_argument(kernel.name, value, parameter) for value, parameter in zip(args, stated, strict=True)]
    hold(*args)
    current_accelerator().launch(
        kernel, _sides(grid), _sides(block), *given, stream=current_raw(stream), shared_bytes=int(shared_mem)
    )


def _sides(given: Any) -> tuple[int, ...]:
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    return tuple(int(side) for side in sides)


def _argument(kernel: str, value: Any, parameter: KernelParameter) -> Any:
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise TypeError(
                f"You are trying to pass a numpy.ndarray of shape {value.shape} as a kernel parameter. Only "
                "numpy.ndarrays of size one can be passed by value. If you meant to pass a pointer to __global__ "
                "memory, you need to pass a cupy.ndarray instead."
            )
        value = value.reshape(())[()]
    if parameter.space:
        return _pointer(kernel, value, parameter)
    if isinstance(value, (ndarray, MemoryPointer)) or value is None:
        raise _wrong(kernel, parameter, f"{type(value).__name__}", "a number")
    return _number(kernel, value, parameter)


def _pointer(kernel: str, value: Any, parameter: KernelParameter) -> Any:
    if value is None:
        return 0
    if isinstance(value, ndarray):
        return position_of(value.allocation, value.offset, value.nbytes)
    if isinstance(value, MemoryPointer):
        return position_of(value.allocation, value.offset)
    if hasattr(value, "__cuda_array_interface__"):
        value = value.__cuda_array_interface__["data"][0]
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        if not value:
            return 0
        found = allocation_at(int(value))
        if found is not None:
            return position_of(found, int(value) - found.address)
        raise _wrong(kernel, parameter, f"the address {int(value):#x}, which is not memory in use", "an array")
    raise _wrong(kernel, parameter, f"{value!r}", "an array, for a pointer")


def position_of(allocation: Allocation, start: int, span: int | None = None) -> Any:
    """Return a kernel's argument for a position in memory; 0, the null pointer, for memory of no bytes.

    ``span``: the bytes that the program passes; by default all from there on.
    """
    if allocation.buffer is None:
        return 0
    memory = allocation.buffer.memory
    return Position(allocation.accelerator, memory, (memory.size,), np.dtype(np.uint8), start,
                    allocation.size - start if span is None else span)  # fmt: skip


def _number(kernel: str, value: Any, parameter: KernelParameter) -> Any:
    """Return a number. Its size and kind must be those of the parameter, because CUDA copies its bytes."""
    kind = parameter.type
    if isinstance(value, (np.void, complex, np.complexfloating)):
        return _structure(kernel, value, parameter)
    if not isinstance(value, (int, float, np.generic)):
        raise TypeError(f"Unsupported type {type(value)}")
    have = np.asarray(value).dtype
    if have == np.float16 and kind.size == have.itemsize:
        return np.asarray(value).view(np.uint16)[()]  # a number of 16 bits is its bits in C
    leaves = [stored(leaf) for _, leaf in kind.leaves]
    if len(leaves) != 1 or isinstance(kind, Vector):
        raise _wrong(kernel, parameter, f"{value!r}", f"a structure of {kind.size} bytes")
    scalar = leaves[0]
    if have.kind in "iu":
        if scalar.kind == "float":
            raise _wrong(kernel, parameter, f"the integer {value!r} ({have})", _example(scalar))
        if not isinstance(value, int) and have.itemsize * 8 < scalar.bits:
            raise _wrong(kernel, parameter, f"{value!r} of {have.itemsize} bytes", _example(scalar))
    elif have.kind == "f" and (scalar.kind != "float" or have.itemsize * 8 != scalar.bits):
        raise _wrong(kernel, parameter, f"{value!r} ({have})", _example(scalar))
    return int(value) if have.kind == "b" and scalar.bits > 8 else value


def _structure(kernel: str, value: Any, parameter: KernelParameter) -> Any:
    """Return a record, or a complex number as one."""
    data, kind = np.asarray(value), parameter.type
    if data.dtype.itemsize != kind.size or isinstance(kind, Number):
        raise _wrong(kernel, parameter, f"{value!r}, of {data.dtype.itemsize} bytes", f"one of {kind.size} bytes")
    if data.dtype.kind == "c":
        data = data.reshape(()).view([("x", data.real.dtype), ("y", data.real.dtype)])
    return data[()]


def _example(scalar: Any) -> str:
    name = scalar.dtype.name
    return f"cupy.{name}(...): CUDA copies the bytes of an argument, and does not convert it"


def _wrong(kernel: str, parameter: KernelParameter, problem: str, expected: str) -> InvalidArgument:
    return _refused(kernel, f"the argument '{parameter.name}' is {problem}; expected {expected}")


def _refused(kernel: str, problem: str) -> InvalidArgument:
    error: InvalidArgument = current_accelerator().make_error(InvalidArgument, f"launch {kernel}", problem)
    return error
