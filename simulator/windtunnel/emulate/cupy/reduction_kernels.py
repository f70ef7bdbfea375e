"""``cupy.ReductionKernel``: a reduction in C along dimensions of arrays that are broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.core.errors import caller
from windtunnel.emulate.cupy.compiled import launch, read_source
from windtunnel.emulate.cupy.cuda.compiler import is_valid_kernel_name
from windtunnel.emulate.cupy.device_array import ndarray
from windtunnel.emulate.cupy.elementwise_kernels import _INCLUDES, Layout, add_types, raw_array
from windtunnel.emulate.cupy.kernel_parameters import (
    Parameter,
    c_type,
    checked,
    number,
    parse,
    place,
    types_of,
    with_members,
)
from windtunnel.emulate.cupy.source_lines import SourceText, origins_of
from windtunnel.runtime.kernels import Kernel

_BLOCK = 512
"""The most threads that reduce one element of the result, as in CuPy."""
_FEW = 32
"""Up to so many elements are reduced by one thread."""
_MANY = 2048
"""With so many results, each is reduced by one thread."""


class ReductionKernel:
    """A kernel that maps elements, reduces them along dimensions, and maps the results."""

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
    ) -> None:
        if not is_valid_kernel_name(name):
            raise ValueError(f'Invalid kernel name: "{name}"')
        self.in_params, self.out_params = parse(in_params, constant=True), parse(out_params, constant=False)
        self.params = (*self.in_params, *self.out_params)
        self.nin, self.nout, self.nargs = len(self.in_params), len(self.out_params), len(self.params)
        self.map_expr, self.reduce_expr, self.post_map_expr = map_expr, reduce_expr, post_map_expr
        self.identity = "" if identity is None else str(identity)
        self.name, self.reduce_dims, self.preamble, self.options = name, reduce_dims, preamble, tuple(options)
        self.reduce_type = reduce_type
        self._at = caller()
        self._kernels: dict[str, Kernel] = {}

    def __repr__(self) -> str:
        return f"<cupy.ReductionKernel '{self.name}'>"

    def __call__(
        self, *args: Any, out: Any = None, axis: Any = None, keepdims: bool = False, stream: Any = None, **unknown: Any
    ) -> Any:
        """Launch it, and return the arrays of its results."""
        if unknown:
            raise TypeError(f"Wrong arguments {unknown}")
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(f"Wrong number of arguments for {self.name}")
        given = checked(args)
        values, results = given[: self.nin], given[self.nin :]
        if out is not None:
            if self.nout != 1:
                raise NotImplementedError("out= of a kernel with several results")
            if results:
                raise ValueError("cannot specify 'out' as both a positional and keyword argument")
            results = [out]
        letters, types = types_of(self.in_params, self.out_params, values, results)
        shapes = [v.shape for p, v in zip(self.in_params, values, strict=True) if isinstance(v, ndarray) and not p.raw]
        if not shapes:
            raise ValueError("Loop size is undecided.")
        shape: tuple[int, ...] = np.broadcast_shapes(*shapes)
        reduced = _axes(axis, len(shape))
        kept = [at for at in range(len(shape)) if at not in reduced]
        target = _kept(shape, reduced, keepdims=keepdims)
        results = results or [ndarray(target, dtype) for dtype in types[self.nin :]]
        _check_results(results, target)
        if 0 in shape and 0 not in target and not self.identity:
            raise ValueError(f"zero-size array to reduction operation {self.name} which has no identity")
        if math.prod(target):
            self._launch(values, results, types, letters, shape, (kept, sorted(reduced)), stream)
        return tuple(results) if self.nout != 1 else results[0]

    def _launch(
        self,
        values: Sequence[Any],
        results: Sequence[ndarray],
        types: Sequence[np.dtype[Any]],
        letters: dict[str, np.dtype[Any]],
        shape: tuple[int, ...],
        axes: tuple[list[int], list[int]],
        stream: Any,
    ) -> None:
        layout = Layout()
        reads: list[str] = []
        writes: list[str] = []
        setup: list[str] = []
        raws: dict[str, ndarray] = {}
        for parameter, value, dtype in zip(self.in_params, values, types, strict=False):
            if not isinstance(value, ndarray):
                layout.add(f"{c_type(dtype)} {parameter.name}", number(value, dtype))
            elif parameter.raw:
                raws[parameter.name] = value
                setup += raw_array(layout, parameter, value)
            else:
                reads.append(_element(layout, parameter, value, shape, axes))
        for parameter, array in zip(self.out_params, results, strict=True):
            writes.append(_result(layout, parameter, array))
        used: dict[str, int] = {}
        texts = [with_members(text, raws, used) for text in (self.map_expr, self.reduce_expr, self.post_map_expr)]
        kept, reduced = (math.prod(shape[at] for at in chosen) for chosen in axes)
        layout.numbers([*used.items(), ("_kept", kept), ("_reduced", reduced)])
        threads = 1 if reduced <= _FEW or kept >= _MANY else min(1 << (reduced - 1).bit_length(), _BLOCK)
        kernel = self._kernel(layout, letters, setup, (reads, writes), texts, threads)
        grid, block = (-(-kept // 128), 128) if threads == 1 else (kept, threads)
        launch(kernel, (grid,), (block,), layout.arguments, 0, stream)

    def _kernel(
        self,
        layout: Layout,
        letters: dict[str, np.dtype[Any]],
        setup: Sequence[str],
        elements: tuple[Sequence[str], Sequence[str]],
        texts: Sequence[str],
        threads: int,
    ) -> Kernel:
        key = repr((layout.parameters, sorted(letters.items()), setup, elements, texts, threads))
        if key in self._kernels:
            return self._kernels[key]
        mapped, reduce, post = (origins_of(text, self.name, at=self._at) for text in
                                (self.map_expr, self.reduce_expr, self.post_map_expr))  # fmt: skip
        source = SourceText(self.name)
        source.add(_INCLUDES, [self._at] * 2)
        add_types(source, letters)
        if self.preamble:
            source.add(self.preamble, origins_of(self.preamble, self.name, at=self._at))
        kind = self.reduce_type or self._result_type(letters)
        source.add(f"typedef {kind} _type_reduce;\n__device__ inline _type_reduce _combined(const _type_reduce &a, "
                   "const _type_reduce &b) {\nreturn (", [reduce[0]] * 3)  # fmt: skip
        source.add(texts[1], reduce)
        source.add(");\n}")
        source.add(f'extern "C" __global__ void {self.name}({", ".join(layout.parameters)}) {{', mapped[:1])
        alone = threads == 1
        if not alone:
            source.add(f"__shared__ _type_reduce _sdata[{threads}];")
        source.add("long long _o = blockIdx.x * (long long)blockDim.x + threadIdx.x;\nif (_o < _kept) {" if alone
                   else "long long _o = blockIdx.x;\n{")  # fmt: skip
        for line in setup:
            source.add(line)
        source.add(f"_type_reduce _s = _type_reduce({self.identity});")
        source.add(f"for (long long _j = {'0' if alone else 'threadIdx.x'}; _j < _reduced; _j += {threads}) {{")
        for line in elements[0]:
            source.add(line)
        source.add("const long long i = _j;\n_type_reduce _a = static_cast<_type_reduce>(")
        source.add(texts[0], mapped)
        source.add(");\n_s = _combined(_s, _a);\n}")
        if not alone:
            source.add("_sdata[threadIdx.x] = _s;\n__syncthreads();", [reduce[0]] * 2)
            source.add(f"for (int _step = {threads // 2}; _step > 0; _step /= 2) {{\nif (threadIdx.x < _step) "
                       "_sdata[threadIdx.x] = _combined(_sdata[threadIdx.x], _sdata[threadIdx.x + _step]);\n"
                       "__syncthreads();\n}\nif (threadIdx.x == 0) {\n_s = _sdata[0];")  # fmt: skip
        source.add("{\n_type_reduce &a = _s;\nconst long long i = _o;", [post[0]] * 3)
        for line in elements[1]:
            source.add(line)
        source.add(texts[2], post)
        source.add(";\n}\n}\n}" + ("" if alone else "\n}"))
        module = read_source(source.text, self.name, self.options, "nvrtc", source.origins)
        made = self._kernels[key] = Kernel(module.kernel(self.name))
        return made

    def _result_type(self, letters: dict[str, np.dtype[Any]]) -> str:
        first = self.out_params[0]
        return first.kind if first.is_letter else c_type(first.dtype)


def _kept(shape: Sequence[int], reduced: set[int], *, keepdims: bool) -> tuple[int, ...]:
    """Return the shape of the results."""
    if keepdims:
        return tuple(1 if at in reduced else side for at, side in enumerate(shape))
    return tuple(side for at, side in enumerate(shape) if at not in reduced)


def _check_results(results: Sequence[Any], shape: tuple[int, ...]) -> None:
    for one in results:
        if not isinstance(one, ndarray):
            raise TypeError(f"Output arguments type must be cupy.ndarray, not {type(one)}")
        if one.shape != shape:
            raise ValueError(f"Out shape is mismatched: {one.shape} for {shape}")


def _axes(axis: Any, ndim: int) -> set[int]:
    if axis is None:
        return set(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    made = [int(one) + ndim if one < 0 else int(one) for one in given]
    for one in made:
        if not 0 <= one < ndim:
            raise np.exceptions.AxisError(int(axis) if not isinstance(axis, tuple) else one, ndim)
    if len(set(made)) != len(made):
        raise ValueError("duplicate value in 'axis'")
    return set(made)


def _element(
    layout: Layout, parameter: Parameter, array: ndarray, shape: Sequence[int], axes: tuple[list[int], list[int]]
) -> str:
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides) or array.offset % size:
        array = array.copy()
    base = np.lib.stride_tricks.as_strided(np.empty(0, array.dtype), array.shape, array.strides)
    strides = [stride // size for stride in np.broadcast_to(base, shape).strides]
    texts = []
    kind = c_type(array.dtype)
    layout.add(f"const {kind}* _p_{parameter.name}", array)
    for index, word, chosen in (("_o", "kept", axes[0]), ("_j", "reduced", axes[1])):
        where = place(f"{parameter.name}_{word}", index, [(shape[at], strides[at]) for at in chosen])
        layout.numbers(where.numbers)
        texts.append(where.text)
    whole = " + ".join(text for text in texts if text != "0") or "0"
    return f"const {kind} &{parameter.name} = _p_{parameter.name}[{whole}];"


def _result(layout: Layout, parameter: Parameter, array: ndarray) -> str:
    size, kind, name = array.dtype.itemsize, c_type(array.dtype), parameter.name
    where = place(name, "_o", [(side, step // size) for side, step in zip(array.shape, array.strides, strict=True)])
    layout.add(f"{kind}* _p_{name}", array)
    layout.numbers(where.numbers)
    return f"{kind} &{name} = _p_{name}[{where.text}];"
