"""The devices that CuPy reports, for `cuda` and `hip`. No device is opened."""

from __future__ import annotations

from typing import Any

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.nvml import Nvml, nvml_of

NO_DEVICE, OLD_DRIVER = 100, 35
"""cudaErrorNoDevice and cudaErrorInsufficientDriver."""


def detected_devices(cupy: Any, backend: str) -> list[DetectedDevice]:
    """Return all devices that CuPy reports. Raises CUDARuntimeError if the driver is too old for CuPy."""
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if error.status == NO_DEVICE or (error.status == OLD_DRIVER and not runtime.driverGetVersion()):
            return []
        raise
    return [_device(cupy, backend, index) for index in range(count)]


def _device(cupy: Any, backend: str, index: int) -> DetectedDevice:
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(index)
    nvml = nvml_device(cupy, index)
    version = runtime.driverGetVersion()
    api = f"CUDA {version // 1000}.{version % 1000 // 10}" if backend == "cuda" else f"HIP {version}"
    return DetectedDevice(
        backend=backend,
        index=index,
        label=_text(properties["name"]),
        kind="gpu",
        software=False,
        driver=api if nvml is None else f"{api}, driver {nvml.driver}",
        api=backend,
        vendor="NVIDIA" if backend == "cuda" else "AMD",
        memory_bytes=float(properties["totalGlobalMem"]),
    )


def nvml_device(cupy: Any, index: int) -> Nvml | None:
    """Return the device in NVML; None on ROCm, and if NVML does not know the device."""
    return None if cupy.cuda.runtime.is_hip else nvml_of(cupy.cuda.runtime.deviceGetPCIBusId(index))


def _text(name: bytes | str) -> str:
    return (name.decode() if isinstance(name, bytes) else name).strip()
