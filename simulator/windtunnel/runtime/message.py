"""Messages between workers: which objects can be sent, and how they are copied.

Workers share no memory. A payload is copied when it is sent, and its arrays become read-only. Objects of one
accelerator (buffers, streams, events, the accelerator itself) cannot be sent, nor can objects that may share memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel

_PLAIN = {type(None), bool, int, float, complex, str, bytes}
"""Types that are sent unchanged, without their subclasses, which may have more state."""
_UNCHANGING = (np.generic, np.dtype, Enum)
_CODE = (type, BuiltinFunctionType, ModuleType, np.ufunc)
_CARRIES = "numbers, text, NumPy arrays, kernels, addresses; lists, tuples, sets, dicts and frozen dataclasses of them"


class Sendable:
    """An immutable object that is sent unchanged: an address. It is not a base of user classes."""


def carried(value: Any, name: str = "the payload") -> Any:
    """Return a copy of ``value`` that shares no memory with it; its arrays are read-only.

    Raises InputError, with the path in ``value`` (such as ``the payload.arrays[1]``), for an object that cannot be
    sent.
    """
    return _copy(value, name, ())


def _copy(value: Any, name: str, within: tuple[int, ...]) -> Any:
    if isinstance(value, np.void):  # a record is the only mutable scalar
        if value.dtype.hasobject:
            raise _refused(value, name)
        return value.copy()
    if type(value) in _PLAIN or isinstance(value, (*_UNCHANGING, Sendable)):
        return value
    if type(value) is np.ndarray:
        if value.dtype.hasobject:
            raise _refused(value, name, f"an array of objects ({value.dtype})")
        copy = value.copy()
        copy.flags.writeable = False
        return copy
    if isinstance(value, (Kernel, FunctionType)):
        _check_code(value, name)
        return value
    if id(value) in within:
        raise InputError(f"{name} contains itself", expected="a payload without cycles")
    return _copy_container(value, name, (*within, id(value)))


def _copy_container(value: Any, name: str, inside: tuple[int, ...]) -> Any:
    """Copy an object with its members; ``inside`` are the identities of the objects that contain them."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(_copy(item, f"{name}[{i}]", inside) for i, item in enumerate(value))
    if kind is dict:
        return {
            _copy(k, f"a key of {name}", inside): _copy(item, f"{name}[{k!r}]", inside) for k, item in value.items()
        }
    if kind is bytearray:
        return bytearray(value)
    if isinstance(value, tuple) and hasattr(kind, "_make"):  # a named tuple
        return kind._make(_copy(getattr(value, field), f"{name}.{field}", inside) for field in kind._fields)
    if dataclasses.is_dataclass(value) and kind.__dataclass_params__.frozen:
        # Without __init__, whose checks and computations were done already.
        copied = object.__new__(kind)
        fields = {field.name for field in dataclasses.fields(value)} | set(getattr(value, "__dict__", ()))
        for field in sorted(fields):
            object.__setattr__(copied, field, _copy(getattr(value, field), f"{name}.{field}", inside))
        return copied
    raise _refused(value, name)


def _check_code(kernel: Kernel | Callable[..., Any], name: str) -> None:
    """Raise InputError for a function whose closure or defaults share memory with the sender."""
    parts = [kernel.function, kernel.work] if isinstance(kernel, Kernel) else [kernel]
    for part in parts:
        if not isinstance(part, FunctionType):
            if part is not None and not isinstance(part, (dict, *_CODE)):
                raise _refused(part, name)
            continue
        given = [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
        cells = [cell.cell_contents for cell in part.__closure__ or ()]
        for held in (*given, *cells):
            if not _constant(held):
                raise InputError(
                    f"{name}: '{part.__name__}' holds a {type(held).__name__} that it shares with its sender",
                    expected="a function of its arguments; send what it needs as arrays of the message",
                )


def _constant(value: Any) -> bool:
    if type(value) in _PLAIN or (isinstance(value, (*_UNCHANGING, *_CODE)) and not isinstance(value, np.void)):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(_constant(item) for item in value)
    if isinstance(value, (Kernel, FunctionType)):
        try:
            _check_code(value, "")
        except InputError:
            return False
        return True
    return False


def _refused(value: Any, name: str, what: str | None = None) -> InputError:
    if isinstance(value, Buffer):
        return InputError(
            f"{name} is {value!r}, memory that belongs to its accelerator", expected="the array that to_host() gives"
        )
    if isinstance(value, Accelerator):
        return InputError(f"{name} is the accelerator {value!r}, which belongs to one worker", expected=_CARRIES)
    description = what or f"a {type(value).__module__}.{type(value).__qualname__}"
    return InputError(f"{name} is {description}, which may share memory with its sender", expected=_CARRIES)
