"""Errors of CUDA's runtime and driver, as CuPy raises them."""

from __future__ import annotations

_RUNTIME = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    17: ("cudaErrorInvalidDevicePointer", "invalid device pointer"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
}
_DRIVER = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    301: ("CUDA_ERROR_FILE_NOT_FOUND", "file not found"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    720: ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"),
}


class CUDARuntimeError(RuntimeError):
    """A call of the runtime failed with ``status``."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(": ".join(_RUNTIME.get(status, (f"cudaError {status}", "unknown error"))))


class CUDADriverError(RuntimeError):
    """A call of the driver failed with ``status``."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(": ".join(_DRIVER.get(status, (f"CUDA_ERROR {status}", "unknown error"))))
