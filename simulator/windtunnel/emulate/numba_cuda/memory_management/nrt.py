"""``numba.cuda.memory_management.nrt``: the runtime that counts what kernels allocate, which is nothing here."""

from __future__ import annotations

from typing import NamedTuple

from windtunnel.core.errors import UnsupportedOperationError


class AllocationStats(NamedTuple):
    """How many blocks of memory kernels allocated and freed."""

    alloc: int = 0
    free: int = 0
    mi_alloc: int = 0
    mi_free: int = 0


class _Runtime:
    """The counters of allocations. Emulated kernels have local arrays instead of a heap, so they stay at 0."""

    def initialize(self, stream: object = None) -> None:
        """Do nothing."""

    def memsys_enable_stats(self, stream: object = None) -> None:
        """Do nothing: there is nothing to count."""

    memsys_disable_stats = memsys_enable_stats

    def memsys_stats_enabled(self, stream: object = None) -> bool:
        """Return True."""
        return True

    def get_allocation_stats(self, stream: object = None) -> AllocationStats:
        """Return the counters."""
        return AllocationStats()


rtsys = _Runtime()


def get_include() -> str:
    """Raise UnsupportedOperationError: there are no header files."""
    raise UnsupportedOperationError("the header files of numba-cuda are not available on an emulated device")
