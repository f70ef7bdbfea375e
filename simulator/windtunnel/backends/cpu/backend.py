"""The host's processor: NumPy with its BLAS, SciPy's FFT, and loops on Numba's threads. The API is ``native``.

`cpu.trials` has the operations, and `cpu.context` opens the processor for programs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.backends.common.host_work import HostDevice, detected_host, processor_name, require_first

if TYPE_CHECKING:
    from windtunnel.backends.cpu.context import HostContext


def _find() -> list[DetectedDevice]:
    return [detected_host("cpu", processor_name(), f"NumPy {version('numpy')}")]


def _context(index: int) -> HostContext:
    require_first("cpu", index)
    from windtunnel.backends.cpu.context import open_context

    return open_context(_find()[0])


def _operations(index: int) -> HostDevice:
    require_first("cpu", index)
    from windtunnel.backends.cpu.trials import operations

    return operations(_find()[0])


BACKEND = RealBackend(
    name="cpu",
    description="the host's processors",
    install="nothing; kernels of threads need a C++ compiler (g++)",
    find=_find,
    operations=_operations,
    context=_context,
)
