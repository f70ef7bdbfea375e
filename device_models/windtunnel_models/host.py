"""The SKU ``host``: this machine's processor, probed on first use within milliseconds and without another process.

Reads the data of Linux (/proc, /sys) or macOS (sysctl, through its C library). Values that neither provides are assumed
with a range. It never fails: an unknown machine is modelled as a small one with wide ranges.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.spec import DeviceSpec
from windtunnel_models.labels import HOST_APIS

_PROBED = "probed on this host"


@dataclass
class _Facts:
    """What the operating system reports; None (or empty) if it does not report it."""

    name: str = ""
    vendor: str = ""
    cores: int | None = None
    clock_hz: float | None = None
    max_clock_hz: float | None = None
    memory_bytes: float | None = None
    llc_bytes: float | None = None
    flags: frozenset[str] = field(default_factory=frozenset)


def _read(path: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path(path).read_text(encoding="utf-8")
    return ""


def _positive(text: str) -> float | None:
    with suppress(ValueError):
        value = float(text)
        return value if value > 0 else None
    return None


def _linux(facts: _Facts) -> None:
    physical: set[tuple[str, str]] = set()
    package = ""
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        key, value = key.strip().lower(), value.strip()
        if key == "physical id":
            package = value
        elif key == "core id":
            physical.add((package, value))
        elif key == "cpu mhz" and facts.clock_hz is None:
            megahertz = _positive(value)
            facts.clock_hz = None if megahertz is None else megahertz * 1e6
        elif key in ("model name", "cpu model") and not facts.name:
            facts.name = value
        elif key == "vendor_id" and not facts.vendor:
            facts.vendor = value
        elif key in ("flags", "features") and not facts.flags:
            facts.flags = frozenset(value.lower().split())
    facts.cores = len(physical) or None
    kilohertz = _positive(_read("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))
    facts.max_clock_hz = None if kilohertz is None else kilohertz * 1e3
    sizes = []
    for index in range(5):
        text = _read(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").strip()
        scale = {"K": 2.0**10, "M": 2.0**20}.get(text[-1:], 1.0)
        size = _positive(text.rstrip("KM"))
        if size is not None:
            sizes.append(size * scale)
    facts.llc_bytes = max(sizes, default=None)


def _sysctl(library: ctypes.CDLL, name: str) -> bytes:
    size = ctypes.c_size_t(0)
    key = name.encode()
    if library.sysctlbyname(key, None, ctypes.byref(size), None, 0) != 0 or size.value == 0:
        return b""
    buffer = ctypes.create_string_buffer(size.value)
    if library.sysctlbyname(key, buffer, ctypes.byref(size), None, 0) != 0:
        return b""
    return buffer.raw[: size.value]


def _darwin(facts: _Facts) -> None:
    library = ctypes.CDLL(ctypes.util.find_library("c") or "libc.dylib")

    def number(name: str) -> float | None:
        value = int.from_bytes(_sysctl(library, name), "little")
        return float(value) if value > 0 else None

    facts.name = _sysctl(library, "machdep.cpu.brand_string").rstrip(b"\0").decode("utf-8", "replace")
    facts.vendor = "Apple" if platform.machine() == "arm64" else "Intel"
    cores = number("hw.physicalcpu")
    facts.cores = None if cores is None else int(cores)
    facts.clock_hz = number("hw.cpufrequency")
    facts.memory_bytes = number("hw.memsize")
    facts.llc_bytes = number("hw.l3cachesize") or number("hw.l2cachesize")
    words = _sysctl(library, "machdep.cpu.features") + b" " + _sysctl(library, "machdep.cpu.leaf7_features")
    facts.flags = frozenset(words.replace(b"\0", b" ").decode("ascii", "replace").lower().split())


def _allowed() -> int | None:
    """Return the number of processors that this process may use, which a container may limit."""
    if sys.platform == "linux":
        with suppress(OSError):
            return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _installed() -> float | None:
    with suppress(ValueError, OSError, AttributeError):
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return float(pages) * float(size) if pages > 0 and size > 0 else None
    return None


def _facts() -> _Facts:
    facts = _Facts()
    with suppress(Exception):  # an unreadable machine is described by assumptions
        if sys.platform == "linux":
            _linux(facts)
        elif sys.platform == "darwin":
            _darwin(facts)
    allowed = _allowed()
    if allowed is not None:
        facts.cores = min(facts.cores or allowed, allowed)
    facts.memory_bytes = facts.memory_bytes or _installed()
    facts.name = facts.name or platform.processor() or platform.machine() or "unknown processor"
    return facts


def _measured(value: float) -> SourcedValue:
    return SourcedValue(value, Provenance.MEASURED, _PROBED)


def _given(value: float | None, otherwise: SourcedValue) -> SourcedValue:
    return otherwise if value is None else _measured(value)


def _vector_units(flags: frozenset[str]) -> dict[str, SourcedValue]:
    """Return SIMD width and multiply-adds per cycle, from the instruction sets of the processor."""
    machine = platform.machine().lower()
    if "avx512f" in flags:
        width, units = 512.0, assumed(1, 1, 2, "one 512-bit multiply-add a cycle on Zen 4 and small Xeons, else two")
    elif "avx2" in flags or "avx2.0" in flags:
        width, units = 256.0, assumed(2, 1, 2, "two 256-bit multiply-adds a cycle since Haswell and Zen 2")
    elif machine in ("arm64", "aarch64"):
        width, units = 128.0, assumed(4, 2, 4, "NEON: two to four 128-bit multiply-adds a cycle")
    elif flags:
        width, units = 128.0, assumed(1, 0.5, 2, "SSE without fused multiply-add")
    else:
        return {
            "simd_bits": assumed(128, 128, 256, "instruction sets unknown"),
            "fma_units": assumed(1, 0.5, 2, "instruction sets unknown"),
        }
    return {"simd_bits": _measured(width), "fma_units": units}


def _crypto(flags: frozenset[str]) -> SourcedValue:
    if "aes" not in flags and platform.machine().lower() not in ("arm64", "aarch64"):
        if flags:
            return _measured(0.0)
        return assumed(0, 0, 1, "instruction sets unknown")
    if "vaes" in flags and "avx512f" in flags:
        return assumed(4, 2, 8, "VAES on 512-bit registers; one to two units")
    if "vaes" in flags:
        return assumed(4, 2, 4, "VAES on 256-bit registers, two units")
    return assumed(1, 1, 2, "AES instructions, one to two units")


@cache
def host_spec() -> DeviceSpec:
    """Return this machine's processor as a SKU. Probed values are ``measured``; the others are assumed with a range."""
    facts = _facts()
    cores = float(facts.cores or 2)
    clock = facts.clock_hz or facts.max_clock_hz
    usual = clock or 2.8e9
    boost = max(facts.max_clock_hz or 0.0, usual)
    unsure = "the clock the machine states now; what it holds under load is not asked of it"
    values = {
        "cores": _given(facts.cores, assumed(2, 1, 8, "the machine does not say")),
        "clock_hz.base": assumed(0.9 * usual, 0.6 * usual, usual, unsure),
        "clock_hz.boost": assumed(boost, usual * 0.9, max(boost, usual * 1.45), unsure),
        "clock_hz.all_core": assumed(usual, 0.7 * usual, max(boost, usual * 1.3), unsure),
        "memory_bytes": _given(facts.memory_bytes, assumed(4e9, 1e9, 64e9, "the machine does not say")),
        "memory_bytes_s": assumed(
            max(50e9, min(460e9, 12e9 * cores)),
            max(20e9, min(100e9, 5e9 * cores)),
            max(200e9, min(900e9, 40e9 * cores)),
            "no operating system says it without privileges; two channels at least, about 12 GB/s a core on servers",
        ),
        "llc_bytes": _given(facts.llc_bytes, assumed(8e6, 2e6, 64e6, "the machine does not say")),
        "aes_blocks_per_cycle": _crypto(facts.flags),
        "idle_power_w": assumed(
            5 + 1.0 * cores, 1 + 0.3 * cores, 20 + 3.0 * cores, "no energy counter is read; about a watt a core"
        ),
        "max_power_w": assumed(
            15 + 5.0 * cores, 6 + 1.5 * cores, 45 + 12.0 * cores, "no energy counter is read; some five watts a core"
        ),
        **_vector_units(facts.flags),
    }
    if "avx512_bf16" in facts.flags or "amx_bf16" in facts.flags:
        values["dtype_rate.bfloat16"] = assumed(2, 1, 2, "native bfloat16 products, if the library uses them")
    if "avx512_vnni" in facts.flags or "avx_vnni" in facts.flags:
        values["dtype_rate.int8"] = assumed(4, 1, 4, "native 8-bit products, if the library uses them")
    return DeviceSpec(
        sku="host",
        kind="cpu",
        vendor=facts.vendor or platform.system() or "unknown",
        name=facts.name,
        apis=HOST_APIS,
        values=values,
        notes=("clocks, memory rate and power are not measured until `windtunnel validate` runs here",),
    )
