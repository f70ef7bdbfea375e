"""``cupy.cuda.device``: the devices of the program."""

from __future__ import annotations

from typing import Any, Self

from windtunnel.emulate import session
from windtunnel.emulate.common import current
from windtunnel.emulate.common.memory import allocation_at
from windtunnel.emulate.cupy.cuda import graph, memory
from windtunnel.emulate.cupy.cuda.runtime_error import CUDARuntimeError
from windtunnel.emulate.cupy.refusals import missing, not_available


def get_device_id() -> int:
    """Return the number of the current device."""
    return current.current_index()


def get_compute_capability() -> str:
    """Return the compute capability of the current device, such as ``"90"``."""
    return "".join(map(str, current.compute_capability()))


def properties(device: int) -> dict[str, Any]:
    """Return the properties of a device that the emulator knows, under the names of CUDA."""
    info = session.current.accelerator(device).info
    limits, (major, minor) = info.limits, current.compute_capability()
    return {
        "name": str(info.name).encode(), "totalGlobalMem": int(info.memory_bytes), "sharedMemPerBlock": 49152,
        "sharedMemPerBlockOptin": current.largest_shared_bytes(), "warpSize": limits.warp,
        "maxThreadsPerBlock": limits.threads_per_block, "maxThreadsDim": tuple(limits.block),
        "maxGridSize": tuple(limits.grid), "multiProcessorCount": info.compute_units, "major": major, "minor": minor,
        "totalConstMem": 65536, "regsPerBlock": 65536, "maxThreadsPerMultiProcessor": 2048, "managedMemory": 1,
        "concurrentManagedAccess": 1, "canMapHostMemory": 1, "cooperativeLaunch": 1,
        "memoryPoolsSupported": 1, "unifiedAddressing": 1,
        "concurrentKernels": 1, "asyncEngineCount": 2, "integrated": 0, "ECCEnabled": 1, "pciBusID": device,
        "pciDeviceID": 0, "pciDomainID": 0, "computeMode": 0, "deviceOverlap": 1, "tccDriver": 0,
    }  # fmt: skip


class Device:
    """A device; without a number, the current one. ``with`` makes it the current one."""

    def __init__(self, device: Any = None) -> None:
        if device is None:
            self.id = current.current_index()
        else:
            self.id = device.id if isinstance(device, Device) else int(device)
        if not 0 <= self.id < session.current.count:
            raise CUDARuntimeError(101)

    def __int__(self) -> int:
        return self.id

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __lt__(self, other: Device) -> bool:
        return self.id < other.id

    def __le__(self, other: Device) -> bool:
        return self.id <= other.id

    def __gt__(self, other: Device) -> bool:
        return self.id > other.id

    def __ge__(self, other: Device) -> bool:
        return self.id >= other.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Self:
        current.push(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        current.pop()

    def use(self) -> Self:
        """Make it the current device."""
        current.select(self.id)
        return self

    @property
    def _accelerator(self) -> Any:
        return session.current.accelerator(self.id)

    def synchronize(self) -> None:
        """Wait for all its work."""
        graph.forbid()
        self._accelerator.synchronize()

    @property
    def compute_capability(self) -> str:
        """The compute capability, such as ``"90"``."""
        return get_compute_capability()

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total memory (bytes)."""
        total = int(self._accelerator.info.memory_bytes)
        return total - int(self._accelerator.allocated_bytes), total

    @property
    def pci_bus_id(self) -> str:
        """The address on the PCI bus."""
        return f"0000:{self.id:02X}:00.0"

    @property
    def attributes(self) -> dict[str, int]:
        """The attributes of the device, by their names."""
        given = properties(self.id)
        return {
            "MaxThreadsPerBlock": given["maxThreadsPerBlock"],
            **{f"MaxBlockDim{axis}": given["maxThreadsDim"][at] for at, axis in enumerate("XYZ")},
            **{f"MaxGridDim{axis}": given["maxGridSize"][at] for at, axis in enumerate("XYZ")},
            "MaxSharedMemoryPerBlock": given["sharedMemPerBlock"],
            "MaxSharedMemoryPerBlockOptin": given["sharedMemPerBlockOptin"],
            "WarpSize": given["warpSize"],
            "MultiProcessorCount": given["multiProcessorCount"],
            "ComputeCapabilityMajor": given["major"],
            "ComputeCapabilityMinor": given["minor"],
            "ManagedMemory": given["managedMemory"],
            "ConcurrentManagedAccess": given["concurrentManagedAccess"],
            "CooperativeLaunch": given["cooperativeLaunch"],
            "TotalConstantMemory": given["totalConstMem"],
        }

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_handle"):
            raise not_available(f"cupy.cuda.Device.{name}", "there are no NVIDIA libraries on it")
        raise AttributeError(f"cupy.cuda.Device.{name} is not part of Windtunnel's cupy")


def from_pointer(ptr: int) -> Device:
    """Return the device of an address."""
    found = allocation_at(ptr)
    if found is None:
        raise CUDARuntimeError(1)
    return Device(found.device)


memory.factories["device"] = Device


def __getattr__(name: str) -> Any:
    if name.endswith("_handle"):
        raise not_available(f"cupy.cuda.device.{name}", "there are no NVIDIA libraries on it")
    return missing("cupy.cuda.device", name)
