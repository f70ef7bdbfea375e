"""The name and number of each error in each API.

Sources: driver_types.h (CUDA 12), hip_runtime_api.h (ROCm 6), CL/cl.h, vulkan_core.h, MTLCommandBuffer.h, the WebGPU
specification's GPUError and GPUDeviceLostInfo, and cpa.h (QAT API 2). ``xrt`` and ``native`` report the errno that the
operating system gives. DOCA's numbers differ between releases, so only its names are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from windtunnel.core.errors import (
    ApiCode,
    CopyError,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceOutOfMemory,
    EccError,
    InvalidArgument,
    LaunchError,
    LinkDown,
    QueueFull,
)

_Codes = Mapping[type[DeviceError], tuple[str, int | None]]

_CUDA: _Codes = {
    DeviceOutOfMemory: ("cudaErrorMemoryAllocation", 2),
    InvalidArgument: ("cudaErrorInvalidValue", 1),
    LaunchError: ("cudaErrorLaunchOutOfResources", 701),
    CopyError: ("cudaErrorUnknown", 999),
    EccError: ("cudaErrorECCUncorrectable", 214),
    DeviceHang: ("cudaErrorLaunchTimeout", 702),
    DeviceLost: ("cudaErrorDevicesUnavailable", 46),
    LinkDown: ("cudaErrorUnknown", 999),
    QueueFull: ("cudaErrorLaunchOutOfResources", 701),
}
_HIP: _Codes = {
    DeviceOutOfMemory: ("hipErrorOutOfMemory", 2),
    InvalidArgument: ("hipErrorInvalidValue", 1),
    LaunchError: ("hipErrorLaunchOutOfResources", 701),
    CopyError: ("hipErrorUnknown", 999),
    EccError: ("hipErrorECCNotCorrectable", 214),
    DeviceHang: ("hipErrorLaunchTimeOut", 702),
    DeviceLost: ("hipErrorUnknown", 999),
    LinkDown: ("hipErrorUnknown", 999),
    QueueFull: ("hipErrorLaunchOutOfResources", 701),
}
_OPENCL: _Codes = {
    DeviceOutOfMemory: ("CL_MEM_OBJECT_ALLOCATION_FAILURE", -4),
    InvalidArgument: ("CL_INVALID_VALUE", -30),
    LaunchError: ("CL_OUT_OF_RESOURCES", -5),
    CopyError: ("CL_OUT_OF_RESOURCES", -5),
    EccError: ("CL_OUT_OF_RESOURCES", -5),
    DeviceHang: ("CL_OUT_OF_RESOURCES", -5),
    DeviceLost: ("CL_DEVICE_NOT_AVAILABLE", -2),
    LinkDown: ("CL_OUT_OF_RESOURCES", -5),
    QueueFull: ("CL_OUT_OF_HOST_MEMORY", -6),
}
_VULKAN: _Codes = {
    DeviceOutOfMemory: ("VK_ERROR_OUT_OF_DEVICE_MEMORY", -2),
    InvalidArgument: ("VK_ERROR_VALIDATION_FAILED_EXT", -1000011001),
    LaunchError: ("VK_ERROR_OUT_OF_HOST_MEMORY", -1),
    CopyError: ("VK_ERROR_UNKNOWN", -13),
    EccError: ("VK_ERROR_DEVICE_LOST", -4),
    DeviceHang: ("VK_ERROR_DEVICE_LOST", -4),
    DeviceLost: ("VK_ERROR_DEVICE_LOST", -4),
    LinkDown: ("VK_ERROR_UNKNOWN", -13),
    QueueFull: ("VK_ERROR_OUT_OF_HOST_MEMORY", -1),
}
_METAL: _Codes = {
    DeviceOutOfMemory: ("MTLCommandBufferErrorOutOfMemory", 8),
    InvalidArgument: ("MTLCommandBufferErrorInvalidResource", 9),
    LaunchError: ("MTLCommandBufferErrorInternal", 1),
    CopyError: ("MTLCommandBufferErrorPageFault", 3),
    EccError: ("MTLCommandBufferErrorInternal", 1),
    DeviceHang: ("MTLCommandBufferErrorTimeout", 2),
    DeviceLost: ("MTLCommandBufferErrorDeviceRemoved", 11),
    LinkDown: ("MTLCommandBufferErrorInternal", 1),
    QueueFull: ("MTLCommandBufferErrorInternal", 1),
}
_WGPU: _Codes = {
    DeviceOutOfMemory: ("GPUOutOfMemoryError", None),
    InvalidArgument: ("GPUValidationError", None),
    LaunchError: ("GPUInternalError", None),
    CopyError: ("GPUInternalError", None),
    EccError: ("GPUDeviceLostInfo: unknown", None),
    DeviceHang: ("GPUDeviceLostInfo: unknown", None),
    DeviceLost: ("GPUDeviceLostInfo: unknown", None),
    LinkDown: ("GPUInternalError", None),
    QueueFull: ("GPUInternalError", None),
}
_QAT: _Codes = {
    DeviceOutOfMemory: ("CPA_STATUS_RESOURCE", -3),
    InvalidArgument: ("CPA_STATUS_INVALID_PARAM", -4),
    LaunchError: ("CPA_STATUS_FAIL", -1),
    CopyError: ("CPA_STATUS_FAIL", -1),
    EccError: ("CPA_STATUS_FATAL", -5),
    DeviceHang: ("CPA_STATUS_FATAL", -5),
    DeviceLost: ("CPA_STATUS_RESTARTING", -7),
    LinkDown: ("CPA_STATUS_RESTARTING", -7),
    QueueFull: ("CPA_STATUS_RETRY", -2),
}
_DOCA: _Codes = {
    DeviceOutOfMemory: ("DOCA_ERROR_NO_MEMORY", None),
    InvalidArgument: ("DOCA_ERROR_INVALID_VALUE", None),
    LaunchError: ("DOCA_ERROR_DRIVER", None),
    CopyError: ("DOCA_ERROR_IO_FAILED", None),
    EccError: ("DOCA_ERROR_DRIVER", None),
    DeviceHang: ("DOCA_ERROR_TIME_OUT", None),
    DeviceLost: ("DOCA_ERROR_DRIVER", None),
    LinkDown: ("DOCA_ERROR_NOT_CONNECTED", None),
    QueueFull: ("DOCA_ERROR_AGAIN", None),
}
_ERRNO: _Codes = {
    DeviceOutOfMemory: ("ENOMEM", 12),
    InvalidArgument: ("EINVAL", 22),
    LaunchError: ("EIO", 5),
    CopyError: ("EIO", 5),
    EccError: ("EIO", 5),
    DeviceHang: ("ETIME", 62),
    DeviceLost: ("ENODEV", 19),
    LinkDown: ("ENETDOWN", 100),
    QueueFull: ("EAGAIN", 11),
}
_TABLES: Mapping[str, _Codes] = {
    "cuda": _CUDA,
    "hip": _HIP,
    "opencl": _OPENCL,
    "vulkan": _VULKAN,
    "metal": _METAL,
    "wgpu": _WGPU,
    "qat": _QAT,
    "doca": _DOCA,
}


Reason = Literal["configuration", "cooperative", "kernel", "not ready", "handle", "capture", "source"]
"""Causes of errors for which some APIs have separate codes."""
_REASONS: Mapping[str, Mapping[Reason, tuple[str, int | None]]] = {
    "cuda": {
        "configuration": ("cudaErrorInvalidConfiguration", 9),
        "cooperative": ("cudaErrorCooperativeLaunchTooLarge", 720),
        "kernel": ("cudaErrorLaunchFailure", 719),
        "not ready": ("cudaErrorNotReady", 600),
        "handle": ("cudaErrorInvalidResourceHandle", 400),
        "capture": ("cudaErrorStreamCaptureUnsupported", 900),
    },
    "hip": {
        "configuration": ("hipErrorInvalidConfiguration", 9),
        "cooperative": ("hipErrorCooperativeLaunchTooLarge", 720),
        "kernel": ("hipErrorLaunchFailure", 719),
        "not ready": ("hipErrorNotReady", 600),
        "handle": ("hipErrorInvalidHandle", 400),
        "capture": ("hipErrorStreamCaptureUnsupported", 900),
    },
    "opencl": {
        "configuration": ("CL_INVALID_WORK_GROUP_SIZE", -54),
        "not ready": ("CL_PROFILING_INFO_NOT_AVAILABLE", -7),
        "handle": ("CL_INVALID_EVENT", -58),
    },
    "vulkan": {
        "configuration": ("VK_ERROR_VALIDATION_FAILED_EXT", -1000011001),
        "kernel": ("VK_ERROR_DEVICE_LOST", -4),
        "not ready": ("VK_NOT_READY", 1),
    },
    "metal": {
        "configuration": ("MTLCommandBufferErrorInvalidResource", 9),
        "source": ("MTLLibraryErrorCompileFailure", 3),
    },
    "wgpu": {"configuration": ("GPUValidationError", None), "source": ("GPUValidationError", None)},
}


def code_of(api: str, error: type[DeviceError], reason: Reason | None = None) -> ApiCode:
    """Return the code of ``api`` for an error class, or for its reason if the API has a code for it."""
    own = None if reason is None else _REASONS.get(api, {}).get(reason)
    table = _TABLES.get(api, _ERRNO)
    name, number = own or next(table[kind] for kind in error.__mro__ if kind in table)
    return ApiCode(api, name, number)
