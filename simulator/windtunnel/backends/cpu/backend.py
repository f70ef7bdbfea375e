"""The host's own processors: NumPy, its BLAS, SciPy's transforms, loops on Numba's threads. The API is ``native``.

Here is what finds them; `_cpu_jobs` has their operations, and `_cpu_context` opens them for programs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.common.host_work import HostDevice, host_found, only_one, processor_name

if TYPE_CHECKING:
    from windtunnel.backends.cpu.context import HostContext


def _find() -> list[Found]:
    return [host_found("cpu", processor_name(), f"NumPy {version('numpy')}")]


def _context(index: int) -> HostContext:
    only_one("cpu", index)
    from windtunnel.backends.cpu.context import opened

    return opened(_find()[0])


def _operations(index: int) -> HostDevice:
    only_one("cpu", index)
    from windtunnel.backends.cpu.jobs import operations

    return operations(_find()[0])


BACKEND = RealBackend(
    name="cpu",
    reaches="the host's processors",
    install="nothing; kernels of threads need a C++ compiler (g++)",
    find=_find,
    operations=_operations,
    context=_context,
)
