"""Windtunnel: a hardware simulation and emulation testbed for accelerator fleets.

The names a user needs are attributes of this package and are imported on first use, so that
``import windtunnel`` itself (and so the pytest plugin) stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from windtunnel.app import catalogue, predict, run
    from windtunnel.core import errors

__all__ = ["__version__", "catalogue", "errors", "predict", "run"]

_LAZY = {
    "catalogue": "windtunnel.app",
    "predict": "windtunnel.app",
    "run": "windtunnel.app",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("windtunnel.core.errors")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'windtunnel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
