"""The functions of CuPy that NumPy has too, by their names: universal functions, and functions of whole arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.emulate.cupy.creation import made_from
from windtunnel.emulate.cupy.device_array import add_methods, known, ndarray
from windtunnel.emulate.cupy.fusion import is_fusing
from windtunnel.emulate.cupy.names import METHODS, PLAIN, UFUNCS
from windtunnel.emulate.cupy.operations import Arguments, call, matmul_flops, unsupported, written
from windtunnel.emulate.cupy.refusals import missing, not_available

WAITING = ("nonzero", "flatnonzero", "argwhere", "unique", "extract", "compress", "union1d", "intersect1d", "setdiff1d",
           "setxor1d", "unique_values", "unique_counts", "unique_inverse", "unique_all")  # fmt: skip
"""Functions whose results have a shape that depends on the values, so that the host waits."""
_MATMULS = {"matmul", "dot", "inner", "vdot", "vecdot", "matvec", "vecmat"}
_INDEX_TABLES = ("indices", "tril_indices", "triu_indices", "diag_indices", "ix_")


class ufunc:  # noqa: N801  CuPy's name
    """A universal function."""

    def __init__(self, name: str, plain: Any) -> None:
        self.name, self._plain = name, plain
        self.__name__, self.__doc__ = name, f"Apply ``numpy.{name}`` to the elements of arrays."
        self.nin, self.nout, self.nargs = plain.nin, plain.nout, plain.nargs
        self.types = plain.types

    def __repr__(self) -> str:
        return f"<ufunc 'cupy_{self.name}'>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply it to arrays and numbers, which are broadcast."""
        if is_fusing():
            return self._plain(*args, **kwargs)
        out = kwargs.pop("out", None)
        if len(args) > self.nin:
            out, args = args[self.nin :], args[: self.nin]
        if isinstance(out, tuple) and len(out) == 1:
            out = out[0]
        if any(isinstance(one, (list, str)) for one in args):
            raise unsupported(next(one for one in args if isinstance(one, (list, str))))
        if kwargs.get("where") is not None and out is not None:
            return self._masked(args, out, kwargs)
        flops = matmul_flops(*args) if self.name == "matmul" else None
        return call(f"cupy_{self.name}", self._plain, args, kwargs, out=out, flops=flops)

    def _masked(self, args: Any, out: ndarray, kwargs: dict[str, Any]) -> Any:
        mask = kwargs.pop("where")
        arguments = Arguments()
        given, shown = [arguments.taken(one) for one in args], arguments.taken(mask)
        view = out.device_view()

        def compute() -> Any:
            made = view.copy()
            self._plain(*given, out=made, where=shown, **kwargs)
            return made

        return written(f"cupy_{self.name}", out, compute, arguments.arrays, np.broadcast_to(shown, out.shape))

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Reduce an array along an axis."""
        options = {"axis": axis, "dtype": dtype, "keepdims": keepdims}
        return call(f"cupy_{self.name}_reduce", self._plain.reduce, (array,), options, out=out)

    def accumulate(self, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Accumulate the results along an axis."""
        options = {"axis": axis, "dtype": dtype}
        return call(f"cupy_{self.name}_accumulate", self._plain.accumulate, (array,), options, out=out)

    def outer(self, A: Any, B: Any, **kwargs: Any) -> Any:  # noqa: N803  NumPy's names
        """Apply it to all pairs of elements."""
        return call(f"cupy_{self.name}_outer", self._plain.outer, (A, B), kwargs)

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        """Apply it to elements in place, also to one that occurs several times."""
        arguments = Arguments()
        view = arguments.taken(a)
        places = arguments.taken(np.asarray(indices).tolist() if isinstance(indices, np.ndarray) else indices)
        rest = () if b is None else (arguments.taken(b),)

        def compute() -> Any:
            made = view.copy()
            self._plain.at(made, places, *rest)
            return made

        written(f"cupy_{self.name}_at", a, compute, arguments.arrays)


def _function(name: str) -> Callable[..., Any]:
    plain, waits = getattr(np, name), name in WAITING

    def function(*args: Any, **kwargs: Any) -> Any:
        if is_fusing():
            return plain(*args, **kwargs)
        out = kwargs.pop("out", None)
        if not _has_arrays((args, kwargs, out)):
            raise unsupported(args[0] if args else None)
        flops = matmul_flops(*args[:2]) if name in _MATMULS and len(args) > 1 else None
        return call(f"cupy_{name}", plain, args, kwargs, out=out, flops=flops, waits=waits)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return what ``numpy.{name}`` does, as an operation of the device."
    return function


def _has_arrays(value: Any) -> bool:
    """Return whether a value is, or has in it, an array of a device; a number is as good."""
    if isinstance(value, dict):
        return any(_has_arrays(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_arrays(one) for one in value)
    return isinstance(value, ndarray) or (
        hasattr(value, "__cuda_array_interface__") or (np.isscalar(value) and not isinstance(value, str))
    )


def _table(name: str) -> Callable[..., Any]:
    """Return a function that makes arrays of indices from numbers."""
    plain = getattr(np, name)

    def function(*args: Any, **kwargs: Any) -> Any:
        made = plain(*(one.get() if isinstance(one, ndarray) else one for one in args), **kwargs)
        return tuple(made_from(name, one) for one in made) if isinstance(made, tuple) else made_from(name, made)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the arrays of ``numpy.{name}``."
    return function


FUNCTIONS: dict[str, Any] = {
    **{name: _function(name) for name in (*PLAIN, *WAITING) if callable(getattr(np, name, None))},
    **{name: ufunc(name, getattr(np, name)) for name in UFUNCS if hasattr(np, name)},
    **{name: _table(name) for name in _INDEX_TABLES},
}
"""All functions by name."""


def ndim(a: Any) -> int:
    """Return the number of dimensions."""
    return a.ndim if isinstance(a, ndarray) else np.ndim(a)


def size(a: Any, axis: Any = None) -> int:
    """Return the number of elements."""
    if isinstance(a, ndarray):
        return a.size if axis is None else int(a.shape[axis])
    return np.size(a, axis)


def shape(a: Any) -> tuple[int, ...]:
    """Return the shape."""
    return a.shape if isinstance(a, ndarray) else np.shape(a)


def iscomplexobj(x: Any) -> bool:
    """Return whether the type of the elements is complex."""
    return bool(x.dtype.kind == "c") if isinstance(x, ndarray) else bool(np.iscomplexobj(x))


def isrealobj(x: Any) -> bool:
    """Return whether the type of the elements is not complex."""
    return not iscomplexobj(x)


def copyto(dst: ndarray, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    """Copy values to an array, where a mask is set."""
    kind = src.dtype if isinstance(src, ndarray) else np.asarray(src).dtype
    rule: Any = casting
    weak = isinstance(src, (int, float, complex))
    if not weak and not np.can_cast(kind, dst.dtype, rule):
        raise TypeError(f"Cannot cast {kind} to {dst.dtype} in {casting} casting mode")
    if where is None:
        dst[...] = src
        return
    arguments, view = Arguments(), dst.device_view()
    values, shown = arguments.taken(src), arguments.taken(where)

    def compute() -> Any:
        made = view.copy()
        np.copyto(made, values, casting=rule, where=shown)
        return made

    written("cupy_copyto", dst, compute, arguments.arrays, np.broadcast_to(shown, dst.shape))


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = None) -> ndarray:
    """Return the elements at some places. Places out of bounds wrap around."""
    if mode not in (None, "wrap"):
        raise not_available(f"mode={mode!r} of take", "places out of bounds wrap around")
    if not isinstance(a, ndarray):
        raise unsupported(a)
    return a.take(indices, axis, out)


def put(a: ndarray, ind: Any, v: Any, mode: str = "wrap") -> None:
    """Set the elements at some places of the flat array."""
    a.put(ind, v, mode)


def place(arr: ndarray, mask: ndarray, vals: ndarray) -> None:
    """Set the elements where a mask is set."""
    _where_set("cupy_place", np.place, arr, mask, vals)


def putmask(a: ndarray, mask: ndarray, values: Any) -> None:
    """Set the elements where a mask is set."""
    _where_set("cupy_putmask", np.putmask, a, mask, values)


def _where_set(name: str, function: Callable[..., None], array: ndarray, mask: ndarray, values: Any) -> None:
    arguments = Arguments()
    view = array.device_view()
    shown, given = arguments.taken(mask), arguments.taken(values)

    def compute() -> Any:
        made = view.copy()
        function(made, shown, given)
        return made

    written(name, array, compute, arguments.arrays, shown.reshape(array.shape))


def choose(a: ndarray, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Return elements of arrays by the number of the array."""
    return call("cupy_choose", np.choose, (a, choices), {"mode": mode}, out=out)


def fill_diagonal(a: ndarray, val: Any, wrap: bool = False) -> None:
    """Set the elements of the diagonal."""
    arguments, view = Arguments(), a.device_view()
    value = arguments.taken(val)
    diagonal = np.zeros(a.shape, bool)
    np.fill_diagonal(diagonal, True, wrap)

    def compute() -> Any:
        made = view.copy()
        np.fill_diagonal(made, value, wrap)
        return made

    written("cupy_fill_diagonal", a, compute, arguments.arrays, diagonal)


FUNCTIONS.update(
    {
        "ndim": ndim, "size": size, "shape": shape, "iscomplexobj": iscomplexobj, "isrealobj": isrealobj,
        "copyto": copyto, "take": take, "put": put, "place": place, "putmask": putmask, "choose": choose,
        "fill_diagonal": fill_diagonal,
    }
)  # fmt: skip


known.update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    return missing("cupy", name)


# Operators and methods.

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "lshift": "left_shift", "rshift": "right_shift",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "divmod": "divmod",
}  # fmt: skip
_COMPARISONS = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
_UNARY = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


def _binary(name: str, *, reflected: bool = False) -> Callable[..., Any]:
    function = FUNCTIONS[name]

    def operator(self: ndarray, other: Any) -> Any:
        if _defers(other):
            return NotImplemented
        return function(other, self) if reflected else function(self, other)

    return operator


def _defers(other: Any) -> bool:
    """Return whether the other operand has an operator for arrays of CuPy."""
    return not isinstance(other, (ndarray, np.ndarray, np.generic)) and (
        getattr(other, "__array_ufunc__", False) is None
        or getattr(other, "__array_priority__", 0) > ndarray.__array_priority__
    )


def _updating(name: str) -> Callable[..., Any]:
    """Return the operator ``a += b``: one operation that reads and writes the array."""
    function = FUNCTIONS[name]

    def operator(self: ndarray, other: Any) -> ndarray:
        function(self, other, out=self)
        return self

    return operator


def _unary(name: str) -> Callable[..., Any]:
    function = FUNCTIONS[name]

    def operator(self: ndarray) -> Any:
        return function(self)

    return operator


def _method(name: str) -> Callable[..., Any]:
    function = FUNCTIONS[name]

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"Return ``cupy.{name}`` of the array."
    return method


def _reshape(self: ndarray, *shape: Any, order: str = "C") -> ndarray:
    """Return it with another shape: a view if that is possible."""
    given = shape[0] if len(shape) == 1 else shape
    return FUNCTIONS["reshape"](self, given, order=order)  # type: ignore[no-any-return]


def _transpose(self: ndarray, *axes: Any) -> ndarray:
    """Return a view with the dimensions in another order."""
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else (axes or None)
    return FUNCTIONS["transpose"](self, given)  # type: ignore[no-any-return]


def _flatten(self: ndarray, order: str = "C") -> ndarray:
    """Return a copy of one dimension."""
    made = FUNCTIONS["ravel"](self, order)
    return made.copy() if made.base is not None else made  # type: ignore[no-any-return]


add_methods({f"__{short}__": _binary(name) for short, name in (*_BINARY.items(), *_COMPARISONS.items())})
add_methods({f"__r{short}__": _binary(name, reflected=True) for short, name in _BINARY.items()})
add_methods({f"__i{short}__": _updating(name) for short, name in _BINARY.items() if short != "divmod"})
add_methods({f"__{short}__": _unary(name) for short, name in _UNARY.items()})
add_methods({name: _method(name) for name in METHODS})
add_methods({"reshape": _reshape, "transpose": _transpose, "flatten": _flatten})
