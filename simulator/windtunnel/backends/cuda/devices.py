"""The devices that CuPy sees: what is asked of it before one is opened, for `cuda` and `hip`."""

from __future__ import annotations

from typing import Any

from windtunnel.backends.common.backend import Found
from windtunnel.backends.cuda.nvml import Nvml, nvml_of

NO_DEVICE, OLD_DRIVER = 100, 35


def found(cupy: Any, backend: str) -> list[Found]:
    """All devices that CuPy sees; none where it sees none, and an error where the driver is too old for it."""
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if error.status == NO_DEVICE or (error.status == OLD_DRIVER and not runtime.driverGetVersion()):
            return []
        raise
    return [_device(cupy, backend, index) for index in range(count)]


def _device(cupy: Any, backend: str, index: int) -> Found:
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(index)
    managed = nvml(cupy, index)
    version = runtime.driverGetVersion()
    api = f"CUDA {version // 1000}.{version % 1000 // 10}" if backend == "cuda" else f"HIP {version}"
    return Found(
        backend=backend,
        index=index,
        label=_text(properties["name"]),
        kind="gpu",
        software=False,
        driver=api if managed is None else f"{api}, driver {managed.driver}",
        api=backend,
        vendor="NVIDIA" if backend == "cuda" else "AMD",
        memory_bytes=float(properties["totalGlobalMem"]),
    )


def nvml(cupy: Any, index: int) -> Nvml | None:
    """What NVML says of it; None where it says nothing."""
    return None if cupy.cuda.runtime.is_hip else nvml_of(cupy.cuda.runtime.deviceGetPCIBusId(index))


def _text(name: bytes | str) -> str:
    return (name.decode() if isinstance(name, bytes) else name).strip()
