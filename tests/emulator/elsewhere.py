"""Functions that kernels of other files call. Findings in them must name this file."""

from __future__ import annotations

from typing import Any

from windtunnel import syncthreads


def put(a: Any, i: int, value: int) -> None:
    """Set an element."""
    a[i] = value


def first(a: Any) -> int:
    """An element that all read."""
    return a[0]


def meet_half(i: int) -> None:
    """A barrier for some."""
    if i < 3:
        syncthreads()


def wait_for(a: Any, i: int) -> None:
    """A loop that only another thread could end."""
    while a[i] == 0:
        pass


def unknown(a: Any, i: int) -> None:
    """What no kernel says."""
    with a[i]:
        pass


def mixed(a: Any, i: int) -> None:
    """An operation that no type has."""
    a[i] = ~1.5
