"""``numba.cuda.cudadrv.error``."""

from __future__ import annotations


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
