"""The compiled engine: the fleet's semantics over arrays, with Numba."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

_KEPT = Path(__file__).parent / "__pycache__"
_SOURCES = (
    *sorted(Path(__file__).parent.glob("*.py")),
    *(
        Path(__file__).parents[1] / name
        for name in (
            "prepare/decoding.py",
            "prepare/fault_schedule.py",
            "prepare/prepared.py",
            "prepare/programs.py",
            "results/sketch.py",
        )
    ),
)


def _forget_stale_code() -> None:
    """Throw away machine code that was kept of other sources.

    Numba looks only at the file a function is in, not at those of the functions and constants that it uses.
    """
    digest = hashlib.blake2b(digest_size=16)
    for source in _SOURCES:
        digest.update(source.read_bytes())
    stamp = _KEPT / "sources.txt"
    with contextlib.suppress(OSError):  # installed where nothing can be written: then nothing changes either
        if stamp.exists() and stamp.read_text(encoding="utf-8") == digest.hexdigest():
            return
        for kept in _KEPT.glob("*.nb[ic]"):
            kept.unlink(missing_ok=True)
        _KEPT.mkdir(exist_ok=True)
        stamp.write_text(digest.hexdigest(), encoding="utf-8")


_forget_stale_code()
