"""``numba.cuda.types``, which are Numba's, and the types of the front end that they stand for."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
from numba.core import types as _types
from numba.core import typing
from numba.np import numpy_support

from windtunnel.emulate.numba_cuda.ext_types import bfloat16, dtype_of, is_bfloat16
from windtunnel.language.numba.program import Argument, ArrayArgument, KnownArgument, NumberArgument, TupleArgument
from windtunnel.language.numba.rules import NUMBA_NAMES

nb: Any = _types  # its names are made at run time
globals().update({name: value for name, value in vars(_types).items() if not name.startswith("__")})
dim3 = nb.Opaque("Dim3")
grid_group = nb.Opaque("GridGroup")
CUDADispatcher = nb.Dispatcher
_FUNCTION = nb.Opaque("function of the kernel")


def argument_of(kind: Any, value: Any = None) -> Argument:
    """Return the argument of a kernel for one of Numba's types. Raises TypeError for a type that kernels do not have.

    ``value`` is the value, if there is one: its layout counts, because ``float64[:]`` states any.
    """
    name = str(kind)
    if name in NUMBA_NAMES:
        return NumberArgument(NUMBA_NAMES[name])
    if isinstance(kind, (nb.IntegerLiteral, nb.BooleanLiteral)):
        return argument_of(kind.literal_type)
    if isinstance(kind, nb.Array):
        layout = kind.layout
        actual = getattr(value, "argument_layout", None)
        if actual is not None:
            layout = actual
        elif value is None and layout == "A":
            layout = "C"
        return ArrayArgument(dtype_of(kind.dtype), kind.ndim, layout, builtins.bool(kind.mutable))
    if isinstance(kind, nb.CPointer):
        return ArrayArgument(dtype_of(kind.dtype), 1, "A")  # the memory from an address on
    if isinstance(kind, nb.Record):
        return ArrayArgument(numpy_support.as_dtype(kind), 0, "C")
    if isinstance(kind, (nb.NPDatetime, nb.NPTimedelta)):
        from windtunnel.language.types import I64

        return NumberArgument(I64, str(numpy_support.as_dtype(kind)))
    if isinstance(kind, nb.BaseNamedTuple):
        items = tuple(argument_of(item, _item(value, at)) for at, item in enumerate(kind))
        return TupleArgument(items, tuple(kind.fields))
    if isinstance(kind, nb.BaseTuple):
        return TupleArgument(tuple(argument_of(item, _item(value, at)) for at, item in enumerate(kind)))
    if isinstance(kind, nb.EnumMember):
        return argument_of(kind.dtype) if value is None else KnownArgument(value)
    if isinstance(kind, (nb.Dispatcher, nb.TypeRef, nb.NumberClass, nb.Function, nb.StringLiteral)) or kind in (
        nb.none,
        nb.unicode_type,
    ):
        return KnownArgument(value)
    own = not type(kind).__module__.startswith("numba.")
    raise TypeError(f"an argument of type {kind}{', whose data model (register_model) is for LLVM,' if own else ''}")


def _item(value: Any, at: int) -> Any:
    return None if value is None else value[at]


def type_of(value: Any) -> Any:
    """Return Numba's type of a value."""
    kind = getattr(value, "_numba_type_", None)
    if kind is not None:
        return kind
    if hasattr(value, "__cuda_array_interface__") and not isinstance(value, np.ndarray):
        from windtunnel.emulate.numba_cuda.ndarray import as_cuda_array

        return as_cuda_array(value, sync=False)._numba_type_
    if is_bfloat16(value):
        return bfloat16
    return typing.typeof.typeof(value, typing.typeof.Purpose.argument)


def numba_number(name: str) -> Any:
    """Return Numba's type of numbers of a name."""
    return bfloat16 if name == "bfloat16" else getattr(nb, name)


def numba_type_of(value: Any) -> Any:
    """Return Numba's type of a value of the front end, for functions that choose code by types."""
    from windtunnel.language.numba import rules
    from windtunnel.language.numba.values import Closure, Const, Cplx, Num, Tup, View

    match value:
        case Num() | Cplx():
            return numba_number(rules.name_of(value.type))
        case View(dims=dims):
            element = numba_number(rules.name_of(value.element))
            return nb.Array(element, len(dims), "C") if dims else element
        case Tup(items=items):
            return nb.BaseTuple.from_types(tuple(numba_type_of(item) for item in items))
        case Closure():
            return _FUNCTION
        case Const(value=known):
            # Some of Numba's types have the names of Python's.
            if isinstance(known, (builtins.bool, builtins.int, builtins.str)):
                return nb.literal(known)
            return typing.typeof.typeof(known, typing.typeof.Purpose.constant)
        case _:
            raise TypeError(f"{value.description} has no type")
