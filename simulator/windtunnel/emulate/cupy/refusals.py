"""What Windtunnel's CuPy does not have: every use of it is an error that names it."""

from __future__ import annotations

from typing import Any, NoReturn

from windtunnel.core.errors import UnsupportedOperationError


def not_available(name: str, reason: str = "") -> UnsupportedOperationError:
    """Return the error that something of CuPy is not available on an emulated device."""
    return UnsupportedOperationError(f"{name} is not available on an emulated device{reason and f': {reason}'}")


def missing(module: str, name: str) -> NoReturn:
    """Raise the error that a module of CuPy has no such name here."""
    raise AttributeError(f"{module}.{name} is not part of Windtunnel's cupy")


def refused(name: str, reason: str = "") -> Any:
    """Return a function in the place of one that is not available."""

    def function(*_: Any, **__: Any) -> NoReturn:
        raise not_available(name, reason)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    return function
