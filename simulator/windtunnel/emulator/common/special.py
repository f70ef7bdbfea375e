"""The functions of `scipy.special`, which is imported when one is called: that takes as long as a small launch."""

from __future__ import annotations

from functools import cache
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _deferred(name)


@cache
def _deferred(name: str) -> Any:
    def function(*values: Any) -> Any:
        from scipy import special

        return getattr(special, name)(*values)

    return function
