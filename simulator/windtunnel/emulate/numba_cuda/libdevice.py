"""``numba.cuda.libdevice``: NVIDIA's functions of mathematics, under their names."""

from __future__ import annotations

from windtunnel.language.numba.libdevice import NAMES

globals().update(NAMES)


def __getattr__(name: str) -> object:
    raise AttributeError(f"libdevice.{name} is not part of Windtunnel's numba.cuda; it has {', '.join(sorted(NAMES))}")
