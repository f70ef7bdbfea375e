"""``numba.cuda.libdevice``: NVIDIA's functions of mathematics, under their names."""

from __future__ import annotations

import difflib

from windtunnel.language.numba.libdevice import NAMES

globals().update(NAMES)


def __getattr__(name: str) -> object:
    near = difflib.get_close_matches(name, NAMES, 3, 0.0)
    raise AttributeError(
        f"libdevice.{name} is not part of Windtunnel's numba.cuda; it has {', '.join(near)} and "
        f"{len(NAMES) - len(near)} others"
    )
