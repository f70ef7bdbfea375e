"""AMD's devices through CuPy's build for ROCm: `cuda`'s own module, with kernels in HIP C++ by hipRTC.

CuPy captures no graphs there, and launches no kernel with a barrier of the whole grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import Found, RealBackend

if TYPE_CHECKING:
    from windtunnel.backends.cuda.driver import CupyContext
    from windtunnel.runtime.trial import Operations


def _present() -> bool:
    return Path("/dev/kfd").exists()


def _cupy_here() -> Any:
    import cupy  # where ROCm itself is missing, this raises an ImportError

    if not cupy.cuda.runtime.is_hip:
        raise ImportError("the CuPy that is installed is the build for CUDA")
    return cupy


def _find() -> Sequence[Found]:
    from windtunnel.backends.cuda.devices import found

    return found(_cupy_here(), "hip")


def _context(index: int) -> CupyContext:
    from windtunnel.backends.cuda.driver import context

    return context(_cupy_here(), "hip", index)


def _operations(index: int) -> Operations:
    from windtunnel.backends.cuda.trials import CupyOperations

    context = _context(index)
    return CupyOperations(context, {"driver": context.info.driver, "cupy": _cupy_here().__version__})


BACKEND = RealBackend(
    name="hip",
    reaches="AMD GPUs",
    install='pip install "windtunnel[hip]" and ROCm 7',
    find=_find,
    packages=("cupy",),
    operations=_operations,
    context=_context,
    present=_present,
    timeout_s=30.0,
)
