"""``numba.cuda.extending``: functions that stand for others in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def overload_of(function: Any) -> Callable[..., Any] | None:
    """Return the function that stands for another in kernels; None if there is none."""
    del function
    return None
