"""``numba.cuda.testing``: what the tests of Numba CUDA programs use."""

from __future__ import annotations

import io
import os
import platform
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba.core import config
from numba.tests.support import SerialMixin, TestCase, captured_stdout, override_config  # noqa: F401

from windtunnel.emulate.numba_cuda.cudadrv import devices

numba_cuda_dir = Path(__file__).parent
test_data_dir = numba_cuda_dir / "tests" / "data"
_ABSENT = "needs what an emulated device does not have: "


class CUDATestCase(SerialMixin, TestCase):  # type: ignore[misc]
    """A test that uses a device."""

    FLOAT16_RTOL = 1e-3

    def setUp(self) -> None:
        """Disable warnings about the occupancy and about copies of host arrays."""
        self._low_occupancy_warnings = config.CUDA_LOW_OCCUPANCY_WARNINGS
        self._warn_on_implicit_copy = config.CUDA_WARN_ON_IMPLICIT_COPY
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
        config.CUDA_WARN_ON_IMPLICIT_COPY = 0

    def tearDown(self) -> None:
        """Restore the warnings."""
        config.CUDA_LOW_OCCUPANCY_WARNINGS = self._low_occupancy_warnings
        config.CUDA_WARN_ON_IMPLICIT_COPY = self._warn_on_implicit_copy

    def assertFileCheckAsm(self, ir_producer: Any, *_: Any, **__: Any) -> None:  # noqa: N802  Numba's name
        """Raise UnsupportedOperationError: there is no PTX."""
        ir_producer.inspect_asm()

    def assertFileCheckLLVM(self, ir_producer: Any, *_: Any, **__: Any) -> None:  # noqa: N802  Numba's name
        """Raise UnsupportedOperationError: there is no LLVM IR."""
        ir_producer.inspect_llvm()

    def skip_if_lto(self, reason: str) -> None:
        """Do nothing: there is no linker."""

    def skip_if_cudadevrt_missing(self) -> None:
        """Do nothing: grid barriers need no library."""


class ContextResettingTestCase(CUDATestCase):
    """A test after which the device is reset."""

    def tearDown(self) -> None:
        """Reset the devices."""
        super().tearDown()
        devices.reset()


def _always(skip: bool, reason: str) -> Any:
    return unittest.skipIf(skip, reason)


def skip_on_cudasim(reason: str) -> Any:
    """Skip a test on Numba's own simulator, which this is not."""
    return _always(bool(config.ENABLE_CUDASIM), reason)


def skip_unless_cudasim(reason: str) -> Any:
    """Skip a test unless it runs on Numba's own simulator."""
    return _always(not config.ENABLE_CUDASIM, reason)


def skip_unless_conda_cudatoolkit(reason: str) -> Any:
    """Skip a test that needs the CUDA toolkit."""
    return _always(True, reason)


def skip_if_external_memmgr(reason: str) -> Any:
    """Skip a test if another memory manager is used, which is not possible."""
    return _always(False, reason)


def skip_under_cuda_memcheck(reason: str) -> Any:
    """Skip a test under NVIDIA's checker."""
    return _always(os.environ.get("CUDA_MEMCHECK") is not None, reason)


def skip_without_nvdisasm(reason: str) -> Any:
    """Skip a test that needs NVIDIA's disassembler."""
    return _always(True, reason)


def skip_with_nvdisasm(reason: str) -> Any:
    """Skip a test that needs its absence."""
    return _always(False, reason)


def skip_on_arm(reason: str) -> Any:
    """Skip a test on ARM processors."""
    cpu = platform.processor()
    return _always(cpu.startswith(("arm", "aarch")), reason)


def skip_on_wsl2(reason: str) -> Any:
    """Skip a test on Windows' Linux."""
    return _always(False, reason)


def skip_if_cuda_includes_missing(fn: Callable[..., Any]) -> Any:
    """Skip a test that needs the header files of CUDA."""
    return _always(True, _ABSENT + "CUDA's header files")(fn)


def skip_if_curand_kernel_missing(fn: Callable[..., Any]) -> Any:
    """Skip a test that needs cuRAND."""
    return _always(True, _ABSENT + "cuRAND")(fn)


def skip_if_mvc_enabled(reason: str) -> Any:
    """Skip a test that needs the driver's versions."""
    return _always(False, reason)


def skip_if_mvc_libraries_unavailable(fn: Callable[..., Any]) -> Any:
    """Skip a test that needs the driver's versions."""
    return _always(True, _ABSENT + "cubinlinker and ptxcompiler")(fn)


def skip_if_nvjitlink_missing(reason: str) -> Any:
    """Skip a test that needs NVIDIA's linker."""
    return _always(True, reason)


def skip_on_nvjitlink_13_1_sm_120(reason: str) -> Any:
    """Skip a test with a version of NVIDIA's linker, which is not used."""
    return _always(False, reason)


def skip_unless_nvjitlink(reason: str) -> Any:
    """Skip a test that needs NVIDIA's linker."""
    return _always(True, reason)


def skip_on_standalone_numba_cuda(reason: str) -> Any:
    """Skip a test that is of Numba alone."""
    return _always(False, reason)


def skip_if_nvfatbin_not_available(reason: str) -> Any:
    """Skip a test that needs NVIDIA's tool for binaries."""
    return _always(True, reason)


def cc_X_or_above(major: int, minor: int) -> bool:  # noqa: N802  Numba's name
    """Return whether the device has at least a compute capability."""
    return devices.gpus.current.compute_capability >= (major, minor)


def skip_unless_cc_32(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(3, 2), "requires cc >= 3.2")(fn)


def skip_unless_cc_50(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(5, 0), "requires cc >= 5.0")(fn)


def skip_unless_cc_53(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(5, 3), "requires cc >= 5.3")(fn)


def skip_unless_cc_60(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(6, 0), "requires cc >= 6.0")(fn)


def skip_unless_cc_75(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(7, 5), "requires cc >= 7.5")(fn)


def skip_unless_cc_90(fn: Callable[..., Any]) -> Any:
    """Skip a test unless the device has a compute capability."""
    return _always(not cc_X_or_above(9, 0), "requires cc >= 9.0")(fn)


def ensure_supported_ccs_initialized() -> None:
    """Do nothing."""


def xfail_unless_cudasim(fn: Callable[..., Any]) -> Any:
    """Expect a test to fail unless it runs on Numba's own simulator."""
    return fn if config.ENABLE_CUDASIM else unittest.expectedFailure(fn)


def skip_with_cuda_python(reason: str) -> Any:
    """Skip a test with NVIDIA's bindings, which are not used."""
    return _always(False, reason)


def cudadevrt_missing() -> bool:
    """Return False: grid barriers need no library."""
    return False


def skip_if_cudadevrt_missing(fn: Callable[..., Any]) -> Any:
    """Return the test: grid barriers need no library."""
    return fn


class ForeignArray:
    """An array of another library: only its CUDA array interface is visible."""

    def __init__(self, arr: Any) -> None:
        self._arr = arr
        self.__cuda_array_interface__ = arr.__cuda_array_interface__


@contextmanager
def captured_cuda_stdout() -> Iterator[Any]:
    """Return the lines that kernels print."""
    devices.current_accelerator().synchronize()
    before, sys.stdout = sys.stdout, io.StringIO()
    try:
        yield sys.stdout
        devices.current_accelerator().synchronize()
    finally:
        sys.stdout = before
