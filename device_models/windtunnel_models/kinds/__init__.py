"""Kinds of devices: one module or package for each, with ``KIND``: its parameters and its pure cost functions.

A module is imported when a device of its kind is first used; its name is the kind's.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from windtunnel.core.device import Kind
from windtunnel.core.errors import InputError, list_choices, nearest


def kind_names() -> list[str]:
    """Return every kind: the modules of this package whose names do not start with an underscore."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


@cache
def find_kind(name: str) -> Kind:
    """Return the kind called ``name``; raises InputError with the nearest right name otherwise."""
    names = kind_names()
    if name not in names:
        raise InputError(f"unknown kind '{name}'", expected=list_choices(names), nearest=nearest(name, names))
    kind: Kind = import_module(f"{__name__}.{name}").KIND
    return kind
