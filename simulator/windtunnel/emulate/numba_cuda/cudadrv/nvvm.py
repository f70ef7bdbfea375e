"""``numba.cuda.cudadrv.nvvm``: Windtunnel has no NVVM."""

from __future__ import annotations

from typing import Any

from windtunnel.core.errors import UnsupportedOperationError


def is_available() -> bool:
    """Return False: there is no NVVM."""
    return False


def get_supported_ccs() -> tuple[tuple[int, int], ...]:
    """Return the compute capabilities of the devices of the catalogue."""
    return (5, 0), (5, 3), (6, 0), (6, 1), (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)


def compile_ir(*_: Any, **__: Any) -> Any:
    """Raise UnsupportedOperationError."""
    raise UnsupportedOperationError("NVVM is not available: Windtunnel compiles kernels to neither NVVM IR nor PTX")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"numba.cuda.cudadrv.nvvm.{name} is not part of Windtunnel's numba.cuda")
