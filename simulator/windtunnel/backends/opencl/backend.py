"""OpenCL devices through pyopencl: GPUs and accelerators behind their vendors' drivers, processors behind PoCL.

Here is what finds them; `_opencl_driver` opens one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context
    from windtunnel.runtime.trial import Operations


def _devices() -> list[Any]:
    """All devices of all platforms, software last. Two installations of PoCL are two platforms of one name."""
    import pyopencl

    try:
        platforms = pyopencl.get_platforms()
    except pyopencl.Error as error:  # the loader raises where no driver is installed
        if "PLATFORM_NOT_FOUND" in str(error):
            return []
        raise
    found = []
    for platform in platforms:
        try:
            found += [(platform, device) for device in platform.get_devices()]
        except pyopencl.Error as error:
            if "DEVICE_NOT_FOUND" not in str(error):
                raise
    return sorted(found, key=lambda one: _kind(one[1]) == "cpu")


def _kind(device: Any) -> str:
    import pyopencl

    kinds = pyopencl.device_type
    if device.type & kinds.CPU:
        return "cpu"
    return "gpu" if device.type & kinds.GPU else "fpga" if device.type & kinds.ACCELERATOR else "custom"


def _find() -> Sequence[Found]:
    return [
        Found(
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
        for index, (platform, device) in enumerate(_devices())
    ]


def _open(index: int) -> tuple[Found, Any]:
    found, devices = _find(), _devices()
    if not 0 <= index < len(found):
        raise DeviceNotPresentError(f"OpenCL has no device {index} here; it has {len(found)}")
    return found[index], devices[index][1]


def _context(index: int) -> Context:
    from windtunnel.backends.opencl.driver import context

    return context(*_open(index))


def _operations(index: int) -> Operations:
    from windtunnel.backends.opencl.driver import operations

    return operations(*_open(index))


BACKEND = RealBackend(
    name="opencl",
    reaches="GPUs, FPGAs and processors with an OpenCL driver",
    install='pip install "windtunnel[opencl]" (with PoCL, for processors); a GPU needs its vendor\'s driver too',
    find=_find,
    packages=("pyopencl",),
    operations=_operations,
    context=_context,
)
