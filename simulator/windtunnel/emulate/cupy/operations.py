"""Functions of NumPy, executed on arrays of the emulated device and recorded as operations of the device.

Each call is one launch that reads its arrays and writes its results once. What only changes the shape or the strides
returns a view, and takes no time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.cuda.graph import open_captures
from windtunnel.emulate.cupy.cuda.memory import Access, enqueue
from windtunnel.emulate.cupy.cuda.stream import get_current_stream
from windtunnel.emulate.cupy.device_array import ndarray


def unsupported(value: Any) -> TypeError:
    """Return the error for an argument that is not one of CuPy's."""
    return TypeError(f"Unsupported type {type(value)}")


class Arguments:
    """Arguments of a function of NumPy: views of device arrays in the place of these."""

    def __init__(self) -> None:
        self.arrays: list[ndarray] = []

    def taken(self, value: Any) -> Any:
        """Return an argument for NumPy. Raises TypeError for an array of the host."""
        if isinstance(value, ndarray):
            self.arrays.append(value)
            return value.device_view()
        if isinstance(value, np.ndarray):
            if value.ndim == 0:
                return value[()]
            raise unsupported(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self.taken(one) for one in value))
        if isinstance(value, (list, tuple)):
            return type(value)(self.taken(one) for one in value)
        if hasattr(value, "__cuda_array_interface__"):
            return self.taken(ndarray.from_interface(value))
        return value

    @property
    def reads(self) -> list[Access]:
        """What the function reads."""
        return [(array.allocation, array.device_view(), None) for array in self.arrays]


def call(
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    out: Any = None,
    flops: float | None = None,
    waits: bool = False,
) -> Any:
    """Return what a function of NumPy returns, as arrays of the device.

    Args:
        name: The name of the operation.
        function: The function.
        args: Its arguments by position.
        kwargs: Its arguments by name.
        out: The array, or the tuple of arrays, that receives the result.
        flops: Its arithmetic; by default one operation for each element of the result.
        waits: Whether the shape of the result depends on the values, so that the host waits for it.
    """
    arguments = Arguments()
    given = [arguments.taken(one) for one in args]
    named = {key: arguments.taken(one) for key, one in kwargs.items()}

    def compute() -> Any:
        with np.errstate(all="ignore"):
            return function(*given, **named)

    result = compute()
    if waits:
        get_current_stream().synchronize()
    many = isinstance(result, (tuple, list))
    values = list(result) if many else [result]
    if out is not None:
        targets = list(out) if isinstance(out, (tuple, list)) else [out]
        made: list[Any] = [
            _checked(target, np.asarray(value)) if target is not None else None
            for target, value in zip(targets, values, strict=True)
        ]
    else:
        made = [None] * len(values)
    fresh: list[tuple[int, ndarray]] = []
    for number, value in enumerate(values):
        if made[number] is None:
            made[number] = _view_or_plain(value, arguments.arrays)
        if made[number] is None:
            shown = np.asarray(value)
            made[number] = ndarray.like_result(shown)
            fresh.append((number, made[number]))
        elif out is not None:
            fresh.append((number, made[number]))
    if fresh:
        _enqueue(name, compute, values, many, fresh, arguments.reads, flops)
    if not many:
        return made[0]
    return type(result)(*made) if hasattr(result, "_fields") else type(result)(made)


def _enqueue(
    name: str,
    compute: Callable[[], Any],
    values: list[Any],
    many: bool,
    fresh: list[tuple[int, ndarray]],
    reads: list[Access],
    flops: float | None,
) -> None:
    views = [(number, array.device_view()) for number, array in fresh]
    # What a captured graph computes is not known before it is launched.
    first = [] if open_captures else [[np.array(values[number]) for number, _ in fresh]]

    def action() -> None:
        if first:
            computed = first.pop()
        else:
            again = compute()
            computed = [np.asarray((again if many else [again])[number]) for number, _ in views]
        for (_, view), value in zip(views, computed, strict=True):
            np.copyto(view, value, casting="unsafe")

    writes: list[Access] = [(array.allocation, view, None) for (_, array), (_, view) in zip(fresh, views, strict=True)]
    moved = sum(view.nbytes for _, view, _ in (*reads, *writes))
    size = max((view.size for _, view, _ in (*reads, *writes)), default=1)
    work = {
        "op": "kernel",
        "threads": max(size, 1),
        "bytes": max(moved, 1),
        "flops": float(size) if flops is None else flops,
    }
    enqueue(name, action, reads, writes, work=work)


def _checked(target: Any, value: np.ndarray) -> ndarray:
    if not isinstance(target, ndarray):
        raise TypeError(f"return arrays must be of cupy.ndarray, not {type(target)}")
    if target.shape != value.shape:
        np.broadcast_shapes(target.shape, value.shape)
        raise ValueError(f"Out shape is mismatched: {target.shape} for a result of {value.shape}")
    if not np.can_cast(value.dtype, target.dtype, "same_kind"):
        raise TypeError(f"output (typecode '{value.dtype.char}') could not be coerced to provided output parameter "
                        f"(typecode '{target.dtype.char}') according to the casting rule \"same_kind\"")  # fmt: skip
    return target


def _view_or_plain(value: Any, arrays: Sequence[ndarray]) -> Any:
    """Return a view for a result that lies in the memory of an argument, and what is no array as it is; else None."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value if value is not None else _NOTHING
    if isinstance(value, np.ndarray) and value.base is not None and value.size:
        address = value.__array_interface__["data"][0]
        for array in arrays:
            contents = array.allocation.contents()
            start = contents.__array_interface__["data"][0]
            if start <= address < start + max(contents.nbytes, 1):
                return array.view_at(value.shape, value.strides, address - start, value.dtype)
    return None


class _Nothing:
    """Stands for the result None."""


_NOTHING = _Nothing()


def matmul_flops(left: Any, right: Any) -> float:
    """Return the arithmetic of a product of matrices."""
    shapes = [tuple(getattr(one, "shape", ())) for one in (left, right)]
    if not all(shapes):
        return float(max(math.prod(shape) for shape in shapes))
    rows = shapes[0][-2] if len(shapes[0]) > 1 else 1
    columns = shapes[1][-1] if len(shapes[1]) > 1 else 1
    batch = max(math.prod(shape[:-2]) for shape in shapes)
    return float(2.0 * batch * rows * columns * shapes[0][-1])


def written(
    name: str, array: ndarray, compute: Callable[[], Any], reads: Sequence[ndarray] = (), selected: Any = None
) -> ndarray:
    """Enqueue the computation of an array, and return it.

    ``selected``: a mask of the elements that are written; None for all. ``compute`` returns the others as they are.
    """
    view = array.device_view()

    def action() -> None:
        np.copyto(view, compute(), casting="unsafe")

    if array.size:
        enqueue(
            name,
            action,
            [(one.allocation, one.device_view(), None) for one in reads],
            [(array.allocation, view, selected)],
        )
    return array
