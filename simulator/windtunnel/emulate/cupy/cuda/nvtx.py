"""``cupy.cuda.nvtx``: marks and ranges, which have no effect."""

from __future__ import annotations

from typing import Any


def Mark(message: str, id_color: int = -1) -> None:  # noqa: N802  CuPy's name
    """Do nothing."""
    del message, id_color


def RangePush(message: str, id_color: int = -1) -> None:  # noqa: N802  CuPy's name
    """Do nothing."""
    del message, id_color


def RangePop() -> None:  # noqa: N802  CuPy's name
    """Do nothing."""


MarkC = Mark
RangePushC = RangePush


def __getattr__(name: str) -> Any:
    from windtunnel.emulate.cupy.refusals import missing

    missing("cupy.cuda.nvtx", name)
