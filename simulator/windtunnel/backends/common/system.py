"""What the operating system says without any driver: devices on the PCI bus, device files, cores, memory.

Reads files of /sys, /proc and /dev alone: a few milliseconds, and nothing that can hang in a driver. Where there are
none (not Linux) it finds nothing, which says nothing of what is there.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NVIDIA, AMD, INTEL, XILINX, ALTERA, BITTWARE, GOOGLE, MELLANOX, PENSANDO = (
    0x10DE, 0x1002, 0x8086, 0x10EE, 0x1172, 0x12BA, 0x1AE0, 0x15B3, 0x1DD8,
)  # fmt: skip
"""PCI vendors, as pci.ids has them."""

_DISPLAY, _ACCELERATOR = 0x03, 0x12
"""Base classes of PCI: display controllers, processing accelerators."""

_GPU_VENDORS: Mapping[int, str] = {NVIDIA: "NVIDIA", AMD: "AMD", INTEL: "Intel"}
_FPGA_VENDORS: Mapping[int, str] = {XILINX: "AMD Xilinx", ALTERA: "Intel (Altera)", BITTWARE: "BittWare"}

# Sources: QAT, the device tables of Linux's drivers/crypto/intel/qat (physical and virtual functions); TPU,
# jax/_src/hardware_utils.py; BlueField and Pensando, pci.ids; Alveo (management and user functions), pci.ids.
_KNOWN: Mapping[tuple[int, int], tuple[str, str]] = {
    (INTEL, 0x0435): ("qat", "Intel QuickAssist DH895xCC"),
    (INTEL, 0x0443): ("qat", "Intel QuickAssist DH895xCC, a virtual function"),
    (INTEL, 0x37C8): ("qat", "Intel QuickAssist C62x"),
    (INTEL, 0x37C9): ("qat", "Intel QuickAssist C62x, a virtual function"),
    (INTEL, 0x19E2): ("qat", "Intel QuickAssist C3xxx"),
    (INTEL, 0x19E3): ("qat", "Intel QuickAssist C3xxx, a virtual function"),
    (INTEL, 0x4940): ("qat", "Intel QuickAssist 4xxx"),
    (INTEL, 0x4941): ("qat", "Intel QuickAssist 4xxx, a virtual function"),
    (INTEL, 0x4942): ("qat", "Intel QuickAssist 401xx"),
    (INTEL, 0x4944): ("qat", "Intel QuickAssist 402xx"),
    (INTEL, 0x4946): ("qat", "Intel QuickAssist 420xx"),
    (GOOGLE, 0x0027): ("tpu", "Google TPU v2 or v3"),
    (GOOGLE, 0x005E): ("tpu", "Google TPU v4"),
    (GOOGLE, 0x0062): ("tpu", "Google TPU v5p"),
    (GOOGLE, 0x0063): ("tpu", "Google TPU v5e"),
    (GOOGLE, 0x006F): ("tpu", "Google TPU v6e"),
    (GOOGLE, 0x0076): ("tpu", "Google TPU7x"),
    (MELLANOX, 0xA2D2): ("dpu", "NVIDIA BlueField"),
    (MELLANOX, 0xA2D6): ("dpu", "NVIDIA BlueField-2"),
    (MELLANOX, 0xA2DC): ("dpu", "NVIDIA BlueField-3"),
    (PENSANDO, 0x1002): ("dpu", "AMD Pensando DSC"),
    (PENSANDO, 0x1003): ("dpu", "AMD Pensando DSC, a virtual function"),
    (XILINX, 0x5004): ("fpga", "Alveo U250"),
    (XILINX, 0x5005): ("fpga", "Alveo U250"),
    (XILINX, 0x500C): ("fpga", "Alveo U280"),
    (XILINX, 0x500D): ("fpga", "Alveo U280"),
    (XILINX, 0x5020): ("fpga", "Alveo U50"),
    (XILINX, 0x5021): ("fpga", "Alveo U50"),
}


@dataclass(frozen=True)
class PciDevice:
    """A function on the PCI bus."""

    address: str
    vendor: int
    device: int
    base_class: int

    @property
    def ids(self) -> str:
        """``10de:2335``."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def kind(self) -> str:
        """The kind of accelerator that it is; empty for what is none that is known here."""
        return self._told[0]

    @property
    def words(self) -> str:
        """Who made it and what it is, as far as its numbers say."""
        return self._told[1]

    @property
    def _told(self) -> tuple[str, str]:
        known = _KNOWN.get((self.vendor, self.device))
        if known is not None:
            return known
        if self.base_class in (_DISPLAY, _ACCELERATOR) and self.vendor in _GPU_VENDORS:
            return "gpu", f"{_GPU_VENDORS[self.vendor]} GPU"
        if self.vendor in _FPGA_VENDORS:
            return "fpga", f"{_FPGA_VENDORS[self.vendor]} FPGA"
        return "", ""


_MODALIAS = re.compile(r"pci:v0000([0-9A-F]{4})d0000([0-9A-F]{4})sv\w{8}sd\w{8}bc([0-9A-F]{2})")


def pci_devices(root: Path = Path("/sys/bus/pci/devices")) -> tuple[PciDevice, ...]:
    """Every function on the bus, by address: one small file of each is read."""
    found = []
    with suppress(OSError):
        for entry in sorted(root.iterdir()):
            with suppress(OSError):
                match = _MODALIAS.match((entry / "modalias").read_text())
                if match:
                    found.append(PciDevice(entry.name, *(int(number, 16) for number in match.groups())))
    return tuple(found)


@cache
def accelerators() -> tuple[PciDevice, ...]:
    """What is on this host's bus and is an accelerator, by its numbers. Looked at once."""
    return tuple(device for device in pci_devices() if device.kind)


@cache
def device_files() -> tuple[str, ...]:
    """Device files that drivers of accelerators have made on this host. Looked at once."""
    return tuple(
        sorted(str(path) for pattern in _DEVICE_FILES for path in Path("/dev").glob(pattern) if not path.is_dir())
    )


_DEVICE_FILES = (
    "kfd",
    "dxg",
    "nvidiactl",
    "nvidia[0-9]*",
    "dri/renderD*",
    "accel[0-9]*",
    "accel/accel*",
    "qat_adf_ctl",
)
"""AMD's compute driver, WSL's, NVIDIA's, the GPU drivers of Linux, TPUs and other accelerators, QAT's."""


def may_have(vendor: int, *files: str) -> bool:
    """Whether a device of this vendor is on the bus, or one of these device files (``/dev/kfd``) is here.

    In a container the bus may be hidden and the files there, or the other way round.
    """
    return any(device.vendor == vendor for device in accelerators()) or any(name in device_files() for name in files)


def nvidia() -> bool:
    """Whether an NVIDIA GPU may be here."""
    return may_have(NVIDIA, "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


def amd() -> bool:
    """Whether an AMD GPU with its compute driver may be here."""
    return "/dev/kfd" in device_files()


@dataclass(frozen=True)
class Limits:
    """What this process may use of the host."""

    cores: float
    """Processors, or the share of their time that a container is given where that is less."""
    memory_bytes: float
    """Of the host, or of the container where that is less; 0 where neither says."""
    address_space_bytes: float | None
    """RLIMIT_AS; None where it is not limited."""


def limits(cgroup: Path = Path("/sys/fs/cgroup")) -> Limits:
    """Read it from the scheduler's mask, the container's limits (version 2 of them, or 1) and the host's memory."""
    cores = float(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
    quota = _read(cgroup / "cpu.max").split() or [
        _read(cgroup / "cpu/cpu.cfs_quota_us").strip(),
        _read(cgroup / "cpu/cpu.cfs_period_us").strip(),
    ]
    with suppress(ValueError, ZeroDivisionError):
        share = float(quota[0]) / float(quota[1])
        cores = min(cores, share) if share > 0 else cores
    memory = 0.0
    with suppress(ValueError, OSError, AttributeError):
        memory = float(os.sysconf("SC_PHYS_PAGES")) * float(os.sysconf("SC_PAGE_SIZE"))
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
