"""The compiled engine: the transitions of a fleet, compiled by Numba."""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

_TRANSITIONS = Path(__file__).parents[1] / "transitions"
_CACHE = _TRANSITIONS / "__pycache__"
_IMPORT = re.compile(r"^from (windtunnel[\w.]*) import", re.MULTILINE)


def kernel_sources() -> list[Path]:
    """Return the files on which the machine code depends, sorted.

    These are the module of the loop of events, the transitions that it imports, the modules outside of that package
    from which any of these takes a constant or a function, and the modules that compile them.
    """
    package = Path(__file__).parents[2]
    sources: set[Path] = {Path(__file__).parent / "jit.py", Path(__file__).parent / "kernels.py"}
    remaining = [_TRANSITIONS / "events.py"]
    while remaining:
        source = remaining.pop()
        if source in sources:
            continue
        sources.add(source)
        if source.parent == _TRANSITIONS:
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
