"""``cupy.ElementwiseKernel``: an operation in C for each element of arrays that are broadcast."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.core.errors import caller
from windtunnel.emulate.cupy.compiled import launch, read_source
from windtunnel.emulate.cupy.cuda.compiler import is_valid_kernel_name
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.kernel_parameters import (
    Parameter,
    c_type,
    checked,
    element_strides,
    number,
    parse,
    place,
    types_of,
    with_members,
)
from windtunnel.emulate.cupy.source_lines import SourceText, origins_of
from windtunnel.runtime.kernels import Kernel

_INCLUDES = "#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>"


class Layout:
    """The parameters of a generated kernel, and the arguments of one launch of it."""

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.arguments: list[Any] = []

    def add(self, text: str, argument: Any) -> None:
        """Add a parameter."""
        self.parameters.append(text)
        self.arguments.append(argument)

    def numbers(self, given: Sequence[tuple[str, int]]) -> None:
        """Add numbers of the index."""
        for name, value in given:
            self.add(f"long long {name}", np.int64(value))


class ElementwiseKernel:
    """A kernel of an operation for each element."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        **kwargs: Any,
    ) -> None:
        if not is_valid_kernel_name(name):
            raise ValueError(f'Invalid kernel name: "{name}"')
        if not isinstance(operation, str) or not isinstance(in_params, str):
            raise TypeError("parameters and operations of kernels are texts")
        self.in_params, self.out_params = parse(in_params, constant=True), parse(out_params, constant=False)
        self.params = (*self.in_params, *self.out_params)
        if len({one.name for one in self.params}) != len(self.params):
            raise ValueError("a parameter occurs twice")
        self.nin, self.nout, self.nargs = len(self.in_params), len(self.out_params), len(self.params)
        self.operation, self.name, self.preamble = operation, name, preamble
        self.reduce_dims, self.no_return, self.return_tuple = reduce_dims, no_return, return_tuple
        self._before, self._after = str(kwargs.pop("loop_prep", "")), str(kwargs.pop("after_loop", ""))
        self.options: Sequence[str] = tuple(kwargs.pop("options", ()))
        if kwargs:
            raise TypeError(f"unexpected keyword arguments {sorted(kwargs)}")
        self._at = caller()
        self._kernels: dict[str, Kernel] = {}

    @property
    def kwargs(self) -> dict[str, Any]:
        """The further options."""
        return {"loop_prep": self._before, "after_loop": self._after, "options": self.options}

    def __repr__(self) -> str:
        return f"<cupy.ElementwiseKernel '{self.name}'>"

    def __call__(self, *args: Any, size: int = -1, stream: Any = None, block_size: int = 128, **unknown: Any) -> Any:
        """Launch it, and return the arrays of its results."""
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}")
        if block_size <= 0:
            raise ValueError("block_size must be greater than zero")
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for '{self.name}'. It must be either {self.nin} or {self.nargs} (with "
                f"outputs), but given {len(args)}."
            )
        given = checked(args)
        values, out = given[: self.nin], given[self.nin :]
        letters, types = types_of(self.in_params, self.out_params, values, out)
        shape = self._shape(values, out, size)
        for parameter, array, dtype in zip(self.out_params, out, types[self.nin :], strict=False):
            if not isinstance(array, ndarray):
                raise TypeError(f"Output arguments type must be cupy.ndarray, not {type(array)}")
            if not parameter.raw and array.shape != shape:
                raise ValueError(f"Out shape is mismatched: {array.shape} for {shape}")
            del dtype
        if not out:
            out = [ndarray(shape, dtype) for dtype in types[self.nin :]]
        count = math.prod(shape)
        if count:
            self._launch([*values, *out], types, letters, shape, count, stream, block_size)
        if self.no_return:
            return None
        return tuple(out) if self.nout != 1 or self.return_tuple else out[0]

    def _shape(self, values: Sequence[Any], out: Sequence[Any], size: int) -> tuple[int, ...]:
        pairs = [*zip(self.in_params, values, strict=True), *zip(self.out_params, out, strict=False)]
        shapes = [value.shape for parameter, value in pairs if isinstance(value, ndarray) and not parameter.raw]
        if size != -1:
            if shapes:
                raise ValueError("Specified 'size' can be used only if all of the ndarray are 'raw'.")
            return (int(size),)
        if not shapes:
            raise ValueError("Loop size is undecided.")
        inputs = [v.shape for p, v in pairs[: self.nin] if isinstance(v, ndarray) and not p.raw]
        made: tuple[int, ...] = np.broadcast_shapes(*shapes)
        if inputs and out and np.broadcast_shapes(*inputs) != made:
            outputs = [v.shape for p, v in pairs[self.nin :] if not p.raw]
            if outputs and outputs[0] != made:
                raise ValueError(f"Out shape is mismatched: {outputs[0]} for {made}")
        return made

    def _launch(
        self,
        values: list[Any],
        types: Sequence[np.dtype[Any]],
        letters: dict[str, np.dtype[Any]],
        shape: tuple[int, ...],
        count: int,
        stream: Any,
        block: int,
    ) -> None:
        layout = Layout()
        head: list[str] = []
        raws: dict[str, ndarray] = {}
        for parameter, value, dtype in zip(self.params, values, types, strict=True):
            if not isinstance(value, ndarray):
                layout.add(f"{c_type(dtype)} {parameter.name}", number(value, dtype))
            elif parameter.raw:
                raws[parameter.name] = value
                head += raw_array(layout, parameter, value)
            else:
                head.append(element(layout, parameter, value, shape))
        used: dict[str, int] = {}
        texts = [with_members(text, raws, used) for text in (self.operation, self._before, self._after)]
        layout.numbers([*used.items(), ("_n", count)])
        blocks = min(-(-count // block), 2**31 - 1)
        loops = bool(self._before or self._after or re.search(r"\b(continue|break)\b", self.operation))
        kernel = self._kernel(layout, letters, head, texts, loops=loops or blocks * block < count)
        launch(kernel, (blocks,), (block,), layout.arguments, 0, stream)

    def _kernel(
        self,
        layout: Layout,
        letters: dict[str, np.dtype[Any]],
        head: Sequence[str],
        texts: Sequence[str],
        *,
        loops: bool,
    ) -> Kernel:
        key = repr((layout.parameters, sorted(letters.items()), head, texts, loops))
        if key in self._kernels:
            return self._kernels[key]
        source = SourceText(self.name)
        source.add(_INCLUDES, [self._at] * 2)
        add_types(source, letters)
        if self.preamble:
            source.add(self.preamble, origins_of(self.preamble, self.name, at=self._at))
        place_of = origins_of(self.operation, self.name, at=self._at)
        source.add(f'extern "C" __global__ void {self.name}({", ".join(layout.parameters)}) {{', place_of[:1])
        source.add(texts[1] + ";" if texts[1] else "")
        start = "blockIdx.x * (long long)blockDim.x + threadIdx.x"
        if loops:
            step = "(long long)blockDim.x * gridDim.x"
            source.add(f"for (long long i = {start}; i < _n; i += {step}) {{")
        else:
            source.add(f"long long i = {start};\nif (i < _n) {{")
        for line in head:
            source.add(line)
        source.add(texts[0], place_of)
        source.add(f";\n}}\n{texts[2]};\n}}")
        module = read_source(source.text, self.name, self.options, "nvrtc", source.origins)
        made = self._kernels[key] = Kernel(module.kernel(self.name))
        return made


def add_types(source: SourceText, letters: dict[str, np.dtype[Any]]) -> None:
    """Add the types that letters stand for."""
    for letter, dtype in sorted(letters.items()):
        source.add(f"typedef {c_type(dtype)} {letter};")


def element(layout: Layout, parameter: Parameter, array: ndarray, shape: Sequence[int], index: str = "i") -> str:
    """Return the declaration of an element of an array that is broadcast to a shape."""
    view = np.broadcast_to(np.lib.stride_tricks.as_strided(np.empty(0, array.dtype), array.shape, array.strides), shape)
    strides = element_strides(array)
    if strides is None:
        array = array.copy()
        view = np.broadcast_to(np.empty(array.shape, array.dtype), shape)
    size = array.dtype.itemsize
    where = place(parameter.name, index, [(side, step // size) for side, step in zip(shape, view.strides, strict=True)])
    kind = c_type(array.dtype)
    const = "const " if parameter.constant else ""
    layout.add(f"{const}{kind}* _p_{parameter.name}", array)
    layout.numbers(where.numbers)
    return f"{const}{kind} &{parameter.name} = _p_{parameter.name}[{where.text}];"


def raw_array(layout: Layout, parameter: Parameter, array: ndarray) -> list[str]:
    """Return the declarations of an array that the operation indexes itself."""
    kind = c_type(array.dtype)
    const = "const " if parameter.constant else ""
    name = parameter.name
    if array.is_c_contiguous():
        layout.add(f"{const}{kind}* {name}", array)
        return []
    if element_strides(array) is None:
        layout.add(f"{const}{kind}* {name}", array.copy())
        return []
    size = array.dtype.itemsize
    where = place(name, "_at", [(side, step // size) for side, step in zip(array.shape, array.strides, strict=True)])
    layout.add(f"{const}{kind}* _p_{name}", array)
    layout.numbers(where.numbers)
    members = [one for one, _ in where.numbers]
    fields = "".join(f"long long {one}; " for one in members)
    body = f"__device__ {const}{kind}& operator[](long long _at) const {{ return _p[{where.text}]; }}"
    filled = ", ".join([f"_p_{name}", *members])
    return [f"struct _raw_{name} {{ {const}{kind}* _p; {fields}{body} }}; const _raw_{name} {name} = {{{filled}}};"]
