"""The compiled engine: the fleet as a state machine over arrays, compiled by Numba."""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

_HERE = Path(__file__).parent
_CACHE = _HERE / "__pycache__"
_KERNELS = ("kernel", "continuous")
"""The modules whose functions Numba compiles. The modules that they import are found in their text."""
_IMPORT = re.compile(r"^from (windtunnel[\w.]*) import", re.MULTILINE)


def kernel_sources() -> list[Path]:
    """Return the files on which the kernels' machine code depends, sorted.

    These are the modules of the kernels, the modules of this package that they import, and the modules outside of it
    from which any of these takes a constant or a function.
    """
    package = Path(__file__).parents[2]
    sources: set[Path] = set()
    remaining = [_HERE / f"{name}.py" for name in _KERNELS]
    while remaining:
        source = remaining.pop()
        if source in sources:
            continue
        sources.add(source)
        if source.parent == _HERE:
            modules = _IMPORT.findall(source.read_text(encoding="utf-8"))
            remaining += [package.joinpath(*module.split(".")[1:]).with_suffix(".py") for module in modules]
    return sorted(sources)


def _delete_stale_code() -> None:
    """Delete cached machine code that was compiled from other sources.

    Numba compares only the file of a function, and not the files of the functions and constants that it uses.
    """
    digest = hashlib.blake2b(digest_size=16)
    for source in kernel_sources():
        digest.update(source.read_bytes())
    stamp = _CACHE / "sources.txt"
    with contextlib.suppress(OSError):  # a read-only installation keeps its files
        if stamp.exists() and stamp.read_text(encoding="utf-8") == digest.hexdigest():
            return
        for code in _CACHE.glob("*.nb[ic]"):
            code.unlink(missing_ok=True)
        _CACHE.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest(), encoding="utf-8")


_delete_stale_code()
