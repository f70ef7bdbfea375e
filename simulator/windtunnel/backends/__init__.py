"""Back ends of real devices. Each is one module, found by its name; only these modules import a driver.

A module without a leading underscore is a back end: it has ``BACKEND``, a `known.RealBackend`, and imports its driver
only when it is asked for devices. All of these modules are imported wherever devices are looked for, and each once more
by the process that asks its driver: what they import at once is waited for, so that it had better be little.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from windtunnel.backends._known import Found, RealBackend
from windtunnel.core.errors import InputError, nearest, one_of

__all__ = ["Found", "RealBackend", "backend", "backends"]


@cache
def names() -> tuple[str, ...]:
    """The names of all back ends."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if not module.name.startswith("_")))


@cache
def backend(name: str) -> RealBackend:
    """The back end of this name; InputError for one that is none."""
    if name not in names():
        raise InputError(f"unknown back end '{name}'", expected=one_of(names()), nearest=nearest(name, names()))
    found = import_module(f"{__name__}.{name}").BACKEND
    assert isinstance(found, RealBackend) and found.name == name  # noqa: S101  what each module promises
    return found


def backends() -> tuple[RealBackend, ...]:
    """All back ends, whether their drivers are here or not."""
    return tuple(backend(name) for name in names())
