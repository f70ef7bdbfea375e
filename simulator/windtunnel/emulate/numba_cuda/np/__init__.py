"""``numba.cuda.np``: modules of Numba, and functions of arrays with the device as their target."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return _import_module(f"numba.cuda.np.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(str(error)) from None
