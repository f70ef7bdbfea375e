"""Errors of CUDA's runtime and driver, as CuPy raises them."""

from __future__ import annotations

from windtunnel.core.errors import ApiCode
from windtunnel.emulate.common import api_errors

_RUNTIME = {
    1: ("cudaErrorInvalidValue", "invalid argument"),
    2: ("cudaErrorMemoryAllocation", "out of memory"),
    3: ("cudaErrorInitializationError", "initialization error"),
    9: ("cudaErrorInvalidConfiguration", "invalid configuration argument"),
    17: ("cudaErrorInvalidDevicePointer", "invalid device pointer"),
    46: ("cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"),
    101: ("cudaErrorInvalidDevice", "invalid device ordinal"),
    214: ("cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"),
    400: ("cudaErrorInvalidResourceHandle", "invalid resource handle"),
    600: ("cudaErrorNotReady", "device not ready"),
    701: ("cudaErrorLaunchOutOfResources", "too many resources requested for launch"),
    702: ("cudaErrorLaunchTimeout", "the launch timed out and was terminated"),
    719: ("cudaErrorLaunchFailure", "unspecified launch failure"),
    801: ("cudaErrorNotSupported", "operation not supported"),
    401: ("cudaErrorIllegalState", "the operation cannot be performed in the present state"),
    901: ("cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
    900: ("cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
    999: ("cudaErrorUnknown", "unknown error"),
}
_DRIVER = {
    1: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"),
    301: ("CUDA_ERROR_FILE_NOT_FOUND", "file not found"),
    500: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"),
    702: ("CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    720: ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"),
    999: ("CUDA_ERROR_UNKNOWN", "unknown error"),
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


def _presented(operation: str, runtime: ApiCode, driver: ApiCode) -> api_errors.Presented:
    """Present an error as CuPy does, which launches kernels by the driver and does all else by the runtime."""
    code = driver if operation == "launch" else runtime
    error = (CUDADriverError if operation == "launch" else CUDARuntimeError)(api_errors.Number(code))
    return api_errors.Presented(type(error), str(error), {"status": error.status})


api_errors.presenters["cupy"] = _presented
