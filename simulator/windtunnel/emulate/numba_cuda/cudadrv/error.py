"""``numba.cuda.cudadrv.error``."""

from __future__ import annotations

import sys

from windtunnel.core.errors import ApiCode
from windtunnel.emulate.common import api_errors


class CudaDriverError(Exception):
    """The driver reports an error."""


class CudaRuntimeError(Exception):
    """The runtime reports an error."""


class CudaSupportError(ImportError):
    """There is no driver."""


class NvvmError(Exception):
    """NVVM reports an error; Windtunnel has no NVVM."""


class NvvmSupportError(ImportError):
    """There is no NVVM."""


class NvvmWarning(Warning):
    """A warning of NVVM."""


class NvrtcError(Exception):
    """NVRTC reports an error; Windtunnel has no NVRTC."""


class NvrtcCompilationError(NvrtcError):
    """NVRTC cannot compile a source."""


class NvrtcSupportError(ImportError):
    """There is no NVRTC."""


class CudaAPIError(CudaDriverError):
    """A call of the driver failed."""

    def __init__(self, code: int, msg: str) -> None:
        self.code, self.msg = code, msg
        super().__init__(code, msg)

    def __str__(self) -> str:
        return f"[{self.code}] {self.msg}"


class CUDAError(CudaAPIError):
    """A launch failed. numba-cuda launches by ``cuda.core``, whose class it is there, with a message of its own."""

    def __str__(self) -> str:
        return self.msg


_INVALID = (
    "CUDA_ERROR_INVALID_VALUE: This indicates that one or more of the parameters passed to the API call is not within"
    " an acceptable range of values."
)
_FUNCTIONS = {
    "allocate": "cuMemAlloc", "copy in": "cuMemcpyHtoD", "copy out": "cuMemcpyDtoH", "copy within": "cuMemcpyDtoD",
    "launch": "cuLaunchKernel", "synchronize": "cuCtxSynchronize",
}  # fmt: skip
"""The functions of the driver by the operations of a device."""


def _launch_error() -> type[Exception]:
    """Return the class of a launch's error: that of ``cuda.core`` too, if the program has imported it."""
    theirs = getattr(sys.modules.get("cuda.core._utils.cuda_utils"), "CUDAError", None)
    return CUDAError if theirs is None else type("CUDAError", (CUDAError, theirs), {"__module__": CUDAError.__module__})


def _presented(operation: str, runtime: ApiCode, driver: ApiCode) -> api_errors.Presented:
    del runtime
    number = api_errors.Number(driver)
    if operation == "launch" and driver.name == "CUDA_ERROR_INVALID_VALUE":
        return api_errors.Presented(_launch_error(), _INVALID, {"code": number, "msg": _INVALID})
    message = f"Call to {_FUNCTIONS.get(operation, operation)} results in {driver.name}"
    return api_errors.Presented(CudaAPIError, f"[{number}] {message}", {"code": number, "msg": message})


api_errors.presenters["numba"] = _presented
