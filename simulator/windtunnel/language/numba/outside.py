"""What the names of a function mean outside of it. As in Numba, a compilation reads each of them once and keeps it."""

from __future__ import annotations

import builtins
import inspect
from collections import ChainMap
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.language.numba.lambdas import function_source
from windtunnel.language.numba.values import Closure, Const, Cplx, Num, Records, Tup, Value, View
from windtunnel.language.source import Source

_COMPILED: WeakKeyDictionary[Any, dict[Hashable, Source]] = WeakKeyDictionary()
"""The device functions of the program, with their outer names, for each types of arguments in a call."""


class Outside(Mapping[str, object]):
    """The globals, the closure and the builtins of a function: each as it was when it was first asked for."""

    def __init__(self, function: Any) -> None:
        plain = inspect.unwrap(function)
        cells = dict(zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True))
        self._now: ChainMap[str, object] = ChainMap(_Contents(cells), plain.__globals__, vars(builtins))
        self._kept: dict[str, object] = {}

    def __getitem__(self, name: str) -> object:
        if name not in self._kept:
            self._kept[name] = _frozen(self._now[name])
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)


class _Contents(dict[str, Any]):
    """The values in the cells of a closure. A cell without one has no name."""

    def __getitem__(self, name: str) -> object:
        try:
            return super().__getitem__(name).cell_contents
        except ValueError:
            raise KeyError(name) from None


def _frozen(value: Any) -> Any:
    """Return a value with copies of its host arrays, which are constants of what is compiled."""
    if isinstance(value, (np.ndarray, np.void)):
        return value.copy()
    if isinstance(value, tuple) and any(isinstance(item, (np.ndarray, np.void, tuple)) for item in value):
        items = [_frozen(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def compiled_source(function: Any, owner: Any = None, given: Hashable = ()) -> Source:
    """Return the source of a function as it is compiled now. Raises KernelError if it cannot be read.

    ``owner``: the device function, which is compiled once for each ``given``, the types of its arguments (`type_key`).
    """
    if owner is None:
        return replace(function_source(function), environment=Outside(function))
    known = _COMPILED.setdefault(owner, {})
    if given not in known:
        known[given] = compiled_source(function)
    return known[given]


def type_key(value: Value) -> Hashable:
    """Return what tells the type of a value from others. As in Numba, a constant is a type of its own."""
    match value:
        case Num(type=kind, unit=unit):
            return (kind, unit)
        case Cplx(type=kind):
            return kind
        case View():
            return (value.element, len(value.dims), value.unit, value.text, value.writable, value.contiguous)
        case Tup(items=items, names=names):
            return (tuple(map(type_key, items)), names)
        case Records(fields=fields, dims=dims):
            return (tuple((name, type_key(one)) for name, one in fields.items()), len(dims))
        case Const(value=known):
            return (type(known), known if isinstance(known, Hashable) else id(known))
        case Closure(node=node):
            return id(node)
        case _:
            return id(type(value))
