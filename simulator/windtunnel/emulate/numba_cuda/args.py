"""``cuda.In``, ``cuda.Out``, ``cuda.InOut``: how an array of the host is copied for a launch."""

from __future__ import annotations

from typing import Any

import numpy as np


class ArgHint:
    """An argument, and which ways it is copied."""

    copies_in = copies_out = True

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def _numba_type_(self) -> Any:
        from windtunnel.emulate.numba_cuda.types import type_of

        return type_of(np.asarray(self.value) if isinstance(self.value, np.void) else self.value)


class In(ArgHint):
    """Copied to the device only."""

    copies_out = False


class Out(ArgHint):
    """Copied back only."""

    copies_in = False


class InOut(ArgHint):
    """Copied both ways."""


def wrap_arg(value: Any, default: type[ArgHint] = InOut) -> ArgHint:
    """Return an argument with a hint."""
    return value if isinstance(value, ArgHint) else default(value)
