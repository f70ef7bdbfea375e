"""What the operating system reports without a driver: devices on the PCI bus, cores, memory.

Only files of /sys and /proc are read. That takes a few milliseconds and cannot hang in a driver. On systems other than
Linux nothing is found, whether or not there are devices.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from windtunnel.core.processors import processors

_DISPLAY, _ACCELERATOR = 0x03, 0x12
"""PCI base classes: display controllers, processing accelerators."""
_GPU_VENDORS: Mapping[int, str] = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
_FPGA_VENDORS: Mapping[int, str] = {0x10EE: "AMD Xilinx", 0x1172: "Intel (Altera)", 0x12BA: "BittWare"}
"""PCI vendors by number (pci.ids)."""


@cache
def _known_devices() -> Mapping[tuple[int, int], tuple[str, str]]:
    """Return (kind, name) by PCI vendor and device number.

    Source: for QAT the device tables in Linux's drivers/crypto/intel/qat (physical and virtual functions), for TPUs
    jax/_src/hardware_utils.py, for BlueField, Pensando and Alveo (management and user functions) pci.ids.
    """
    with Path(__file__).with_name("pci_ids.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(int(row["vendor"], 16), int(row["device"], 16)): (row["kind"], row["name"]) for row in rows}


@dataclass(frozen=True)
class PciDevice:
    """A function on the PCI bus."""

    address: str
    vendor: int
    device: int
    base_class: int

    @property
    def ids(self) -> str:
        """Vendor and device number in hexadecimal: ``10de:2335``."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def kind(self) -> str:
        """The kind of accelerator; empty for a device that is not known to be one."""
        return self._identity[0]

    @property
    def label(self) -> str:
        """Vendor and product, as far as the numbers tell; empty for a device that is not known."""
        return self._identity[1]

    @property
    def _identity(self) -> tuple[str, str]:
        known = _known_devices().get((self.vendor, self.device))
        if known is not None:
            return known
        if self.base_class in (_DISPLAY, _ACCELERATOR) and self.vendor in _GPU_VENDORS:
            return "gpu", f"{_GPU_VENDORS[self.vendor]} GPU"
        if self.vendor in _FPGA_VENDORS:
            return "fpga", f"{_FPGA_VENDORS[self.vendor]} FPGA"
        return "", ""


_MODALIAS = re.compile(r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv\w{8}sd\w{8}bc([0-9A-F]{2})")


def pci_devices(root: Path = Path("/sys/bus/pci/devices")) -> tuple[PciDevice, ...]:
    """Return every function on the bus, sorted by address. One small file is read for each."""
    devices = []
    with suppress(OSError):
        for entry in sorted(root.iterdir()):
            with suppress(OSError):
                match = _MODALIAS.match((entry / "modalias").read_text())
                if match:
                    devices.append(PciDevice(entry.name, *(int(number, 16) for number in match.groups())))
    return tuple(devices)


@cache
def accelerators() -> tuple[PciDevice, ...]:
    """Return the known accelerators on this host's bus. The bus is read once."""
    return tuple(device for device in pci_devices() if device.kind)


def memory_bytes() -> float:
    """Return the host's memory (bytes); 0 if the system does not report it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 0.0


@dataclass(frozen=True)
class Limits:
    """The share of the host that this process may use."""

    cores: float
    """Processors, or the container's share of processor time if that is less."""
    memory_bytes: float
    """Memory of the host, or of the container if that is less; 0 if neither is reported."""
    address_space_bytes: float | None
    """RLIMIT_AS; None if it is unlimited."""


def limits(cgroup: Path = Path("/sys/fs/cgroup")) -> Limits:
    """Return the limits from the scheduler's mask, the container (cgroup version 2 or 1) and the host's memory."""
    cores = float(processors())
    quota = _read(cgroup / "cpu.max").split() or [
        _read(cgroup / "cpu/cpu.cfs_quota_us").strip(),
        _read(cgroup / "cpu/cpu.cfs_period_us").strip(),
    ]
    with suppress(ValueError, ZeroDivisionError):
        share = float(quota[0]) / float(quota[1])
        cores = min(cores, share) if share > 0 else cores
    memory = memory_bytes()
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(ValueError):
            allowed = float(_read(cgroup / name))
            memory = min(memory, allowed) if memory else allowed
    return Limits(cores, memory, _address_space())


def _address_space() -> float | None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft = resource.getrlimit(resource.RLIMIT_AS)[0]
        return None if soft == resource.RLIM_INFINITY else float(soft)
    return None


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8")
    return ""
