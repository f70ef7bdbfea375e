"""``numba.cuda.memory_management.nrt``: the runtime that counts allocations of kernels, which emulated ones do not."""

from __future__ import annotations

from typing import Any

from windtunnel.core.errors import UnsupportedOperationError


class _Runtime:
    """Refuses what asks for the runtime's counters."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedOperationError(f"rtsys.{name} is not available: emulated kernels allocate no counted memory")


rtsys = _Runtime()


def get_include() -> str:
    """Raise UnsupportedOperationError: there are no header files."""
    raise UnsupportedOperationError("the header files of numba-cuda are not available on an emulated device")
