"""The memory of this machine that is still available, and checks of estimates against it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from windtunnel.core.errors import InputError, Location

_SHARE = 0.8
"""The share of the available memory that one estimate may take. The rest is for what estimates leave out."""


def available_bytes(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> float:
    """Return the memory (bytes) that this process may still take without swapping.

    On Linux it is the memory that the kernel reports as available, or what the container may still take (cgroup
    version 2 or 1) if that is less; elsewhere half of the installed memory, or 0 if the system does not report it.
    """
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
        available = next(float(line.split()[1]) * 1024.0 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return 0.5 * _installed_bytes()
    for limit, usage, stat in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        with suppress(OSError, ValueError):
            most = float((cgroup / limit).read_text(encoding="utf-8"))
            used = float((cgroup / usage).read_text(encoding="utf-8"))
            available = min(available, max(0.0, most - used + _reclaimable_bytes(cgroup / stat)))
    return available


def _reclaimable_bytes(stat: Path) -> float:
    """Return the cached files (bytes) that a container counts as used and gives up when it needs memory."""
    for line in stat.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return float(value)
    return 0.0


def _installed_bytes() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 0.0


def require_memory(needed_bytes: float, what: str, where: Location, expected: str) -> None:
    """Check an estimate of memory before it is taken.

    Args:
        needed_bytes: The estimate.
        what: What needs the memory, as the subject of a sentence.
        where: The place in the input that asks for it.
        expected: What would need less.

    Raises:
        InputError: The estimate exceeds 80% of the available memory.
    """
    available = available_bytes()
    if available and needed_bytes > _SHARE * available:
        raise InputError(
            f"{what} would take about {_gib(needed_bytes)} of memory, and this machine has {_gib(available)} available",
            where=where,
            expected=expected,
        )


def _gib(size: float) -> str:
    return f"{size / 2**30:,.3g} GiB"
