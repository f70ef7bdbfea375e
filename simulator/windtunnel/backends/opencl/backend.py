"""OpenCL devices through pyopencl: accelerators behind their vendors' drivers, processors behind PoCL.

This module finds the devices; `opencl.driver` opens one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import DetectedDevice, RealBackend, device_at

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context
    from windtunnel.runtime.trial import Operations


def _devices() -> list[tuple[Any, Any]]:
    """Return (platform, device) of all devices, software last. Two installations of PoCL are two platforms."""
    import pyopencl

    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as error:  # the loader raises if no driver is installed
        if "PLATFORM_NOT_FOUND" in str(error):
            return []
        raise
    devices = []
    for platform in platforms:
        try:
            devices += [(platform, device) for device in platform.get_devices()]
        except pyopencl.Error as error:
            if "DEVICE_NOT_FOUND" not in str(error):
                raise
    return sorted(devices, key=lambda pair: _kind(pair[1]) == "cpu")


def _kind(device: Any) -> str:
    import pyopencl

    kinds = pyopencl.device_type
    if device.type & kinds.CPU:
        return "cpu"
    return "gpu" if device.type & kinds.GPU else "fpga" if device.type & kinds.ACCELERATOR else "custom"


def _detected(index: int, platform: Any, device: Any) -> DetectedDevice:
    return DetectedDevice(
        backend="opencl",
        index=index,
        label=device.name.strip(),
        kind=_kind(device),
        software=_kind(device) == "cpu",
        driver=f"{platform.name.strip()} {device.driver_version.strip()}",
        api="opencl",
        vendor=device.vendor.strip(),
        memory_bytes=float(device.global_mem_size),
    )


def _find() -> Sequence[DetectedDevice]:
    return [_detected(index, platform, device) for index, (platform, device) in enumerate(_devices())]


def _device(index: int) -> tuple[DetectedDevice, Any]:
    platform, device = device_at(index, _devices(), "opencl")
    return _detected(index, platform, device), device


def _context(index: int) -> Context:
    from windtunnel.backends.opencl.driver import open_context

    return open_context(*_device(index))


def _operations(index: int) -> Operations:
    from windtunnel.backends.opencl.driver import operations

    return operations(*_device(index))


BACKEND = RealBackend(
    name="opencl",
    description="GPUs, FPGAs and processors with an OpenCL driver",
    install='pip install "windtunnel[opencl]" (with PoCL, for processors); a GPU needs its vendor\'s driver too',
    find=_find,
    packages=("pyopencl",),
    operations=_operations,
    context=_context,
)
