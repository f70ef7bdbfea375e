"""``cupy.fuse``: a function of arrays as one operation of the device, which reads and writes its arrays once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from windtunnel.emulate.cupy.operations import call

_local = threading.local()


def is_fusing() -> bool:
    """Return whether a fused function is being computed."""
    return bool(getattr(_local, "fusing", False))


def fuse(*args: Any, kernel_name: str | None = None) -> Any:
    """Return a function whose operations are one operation of the device."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        def plain(*given: Any, **named: Any) -> Any:
            before, _local.fusing = is_fusing(), True
            try:
                return function(*given, **named)
            finally:
                _local.fusing = before

        @functools.wraps(function)
        def fused(*given: Any, **named: Any) -> Any:
            if is_fusing():
                return function(*given, **named)
            return call(kernel_name or function.__name__, plain, given, named)

        return fused

    return decorated(args[0]) if args and callable(args[0]) else decorated
