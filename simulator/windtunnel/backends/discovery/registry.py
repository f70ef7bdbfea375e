"""Finds the back ends: each folder of `windtunnel.backends` except ``common`` and ``discovery`` is one.

The module ``backend`` of every folder is imported whenever devices are listed, and once more by each process that
queries a driver. It should therefore import little, and its driver only inside the functions that need it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import windtunnel.backends as package
from windtunnel.backends.common.backend import RealBackend
from windtunnel.core.errors import InputError, list_choices, nearest

_NOT_BACK_ENDS = {"common", "discovery"}


@cache
def names() -> tuple[str, ...]:
    """Return the names of all back ends, sorted."""
    return tuple(sorted(m.name for m in iter_modules(package.__path__) if m.ispkg and m.name not in _NOT_BACK_ENDS))


@cache
def backend(name: str) -> RealBackend:
    """Return the back end of this name. Raises InputError for an unknown name."""
    if name not in names():
        raise InputError(f"unknown back end '{name}'", expected=list_choices(names()), nearest=nearest(name, names()))
    declared = import_module(f"windtunnel.backends.{name}.backend").BACKEND
    assert isinstance(declared, RealBackend) and declared.name == name  # noqa: S101  the contract of a back end
    return declared


def backends() -> tuple[RealBackend, ...]:
    """Return all back ends, whether or not their drivers are installed."""
    return tuple(backend(name) for name in names())
