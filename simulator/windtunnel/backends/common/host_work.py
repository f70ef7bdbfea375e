"""What back ends on the host's processor share: limits, caches, memory, the context of a measurement, open and close.

Such a device has one `TrialFactory` per operation, which says which columns it refuses and makes trials. Columns are
completed and checked against the registry first, so that a wrong codec or a missing size is reported by the registry.
A dispatch or a clock that would not change the measurement is refused. This module is imported to find devices, so it
imports neither NumPy nor a driver.
"""

from __future__ import annotations

import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common import system
from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.core.columns import Columns
from windtunnel.core.errors import (
    DeviceError,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    UnsupportedOperationError,
    list_choices,
)
from windtunnel.core.memory import available_bytes
from windtunnel.core.processors import processors
from windtunnel.runtime.codes import code_of

if TYPE_CHECKING:
    from windtunnel.runtime.interface import DeviceInfo
    from windtunnel.runtime.trial import Timer, Trial

API = "native"
SHARE = 0.4
"""Share of the host's free memory, or of a device's memory, that a trial takes at most."""
ASSUMED_CACHE_BYTES = 64 * 2**20
COLD_FACTOR = 2
"""Cold operands are this many times the last-level cache: with 1, a random or hashed replacement still hits."""

NO_SUSTAINED = "clock=sustained describes a long run at a power cap and is not measured for single operations"


@dataclass(frozen=True)
class LastLevelCache:
    """Size of the last-level cache (bytes), and where it was read."""

    bytes: int
    source: str


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def llc_bytes(caches: Path = _CACHES, *, sysconf: Callable[[str], int] | None = None) -> LastLevelCache:
    """Return the last-level cache (bytes) that a processor of this host sees, or an assumption marked as one.

    The kernel's report is used first: on virtual hosts, sysconf was seen to report the whole socket's cache (320 MiB)
    where the core reaches 32 MiB of it.
    """
    sizes: dict[int, int] = {}
    for index in sorted(caches.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            sizes[int((index / "level").read_text())] = _size_bytes((index / "size").read_text())
        except (OSError, ValueError):
            continue
    if sizes and sizes[max(sizes)] > 0:
        return LastLevelCache(sizes[max(sizes)], f"level {max(sizes)} of {caches}")
    for level in (4, 3, 2):
        try:
            size = (sysconf or os.sysconf)(f"SC_LEVEL{level}_CACHE_SIZE")
        except (AttributeError, ValueError, OSError):
            continue
        if size > 0:
            return LastLevelCache(size, f"level {level} of sysconf")
    return LastLevelCache(ASSUMED_CACHE_BYTES, "assumed: the system does not report it")


def _size_bytes(text: str) -> int:
    """Return the size in bytes of a text such as ``32768K``."""
    text = text.strip()
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's model name; its architecture if the system reports no name."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "processor"


def detected_host(backend: str, label: str, driver: str) -> DetectedDevice:
    """Return the host's processor as device 0 of a back end."""
    name = processor_name().lower()
    vendor = next((v for v in ("AMD", "Intel", "Apple", "Ampere") if v.lower() in name), platform.machine())
    return DetectedDevice(backend, 0, label, "cpu", True, driver, API, vendor, system.memory_bytes())


def require_first(backend: str, index: int) -> None:
    """Raise DeviceNotPresentError for any index but 0: the host is one device."""
    if index != 0:
        raise DeviceNotPresentError(f"{backend}:{index} not found: the host is one device, {backend}:0")


def device_error(kind: type[DeviceError], problem: str, *, operation: str, device: str, api: str = API) -> DeviceError:
    """Return an error of the device with the API's number for it; for ``native``, the operating system's."""
    return kind(problem, operation=operation, device=device, code=code_of(api, kind))


def cold_operands(
    bytes_each: float, at_least: int, cache: str, *, limit: float = math.inf, beyond_bytes: float | None = None
) -> int:
    """Return how many operands of ``bytes_each`` bytes a trial rotates: ``at_least``, and more for ``cache=cold``.

    Cold operands together exceed twice the last-level cache, or ``beyond_bytes`` if that is given. ``limit`` bounds
    the number of tiny operands, which fit into caches in any case.
    """
    if cache != "cold":
        return at_least
    beyond = COLD_FACTOR * llc_bytes().bytes if beyond_bytes is None else beyond_bytes
    return int(max(at_least, min(math.ceil(beyond / bytes_each), limit)))


def host_info(detected: DetectedDevice, features: frozenset[str] = frozenset()) -> DeviceInfo:
    """Return the description of the host's processor once it is open."""
    from windtunnel.runtime.limits import limits_of

    return detected.opened(limits_of(detected.api), features, processors())


class HostTrial(ABC):
    """A trial on the host's processor. It cannot run after it was closed, nor be checked before it has run."""

    timer: Timer = "host"

    def __init__(self, device: HostDevice, note: str) -> None:
        self.device, self.note = device, note
        self.closed = False
        self._ran = False
        self._off: float | None = None

    def run(self, count: int = 1) -> float:
        """Run the operation ``count`` times and return the mean seconds of one. Raises InputError if count < 1."""
        self._require_open("run")
        if count < 1:
            raise InputError(f"count must be at least 1, got {count}")
        self._off = None
        seconds = self._run(count)
        self._ran = True
        return seconds

    def check(self) -> float:
        """Return the error of the last run's result as a share of the tolerance."""
        self._require_open("check")
        if not self._ran:
            raise self.device.error(InvalidArgument, "nothing has run yet", "check")
        if self._off is None:
            self._off = self._check()
        return self._off

    def close(self) -> None:
        """Release the operands. Closing again does nothing."""
        if not self.closed:
            self.closed = True
            self._close()

    def _require_open(self, operation: str) -> None:
        if self.closed:
            raise self.device.error(InvalidArgument, "the trial is closed", operation)

    @abstractmethod
    def _run(self, count: int) -> float: ...

    @abstractmethod
    def _check(self) -> float:
        """Return the error as a share of the tolerance. It is called once for each run, and may erase the result."""

    @abstractmethod
    def _close(self) -> None: ...


def exact_error(wrong_requests: int) -> float:
    """Return `Trial.check` of results that must be exact: one wrong request gives 2, twice the tolerance."""
    return 2.0 * wrong_requests


Refusal = UnsupportedOperationError | None


@dataclass(frozen=True)
class TrialFactory:
    """Makes trials of one operation of a device: ``make(device, columns)`` with complete columns.

    ``refusal`` returns the reason why columns are not supported, or None.
    """

    make: Callable[[Any, Columns], HostTrial]
    refusal: Callable[[Columns], Refusal] = lambda _: None


class HostDevice:
    """The host's processor as a device with these ``trials``, by operation."""

    def __init__(self, info: DeviceInfo, versions: Mapping[str, str], trials: Mapping[str, TrialFactory]) -> None:
        self.info, self.versions = info, dict(versions)
        self._factories = trials
        self._trials: list[HostTrial] = []
        self._closed = False

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why ``op`` is not supported with these columns, or None. Raises InputError for invalid columns."""
        refusal = self._refusal(op, _complete(op, columns))
        return None if refusal is None else str(refusal)

    def _refusal(self, op: str, columns: Columns) -> Refusal:
        if op not in self._factories:
            problem = f"{self.info.name} does not support '{op}'"
            return UnsupportedOperationError(problem, expected=list_choices(self._factories))
        return self._factories[op].refusal(columns) or self._context_refusal(op, columns)

    def _context_refusal(self, op: str, columns: Columns) -> Refusal:
        """Refuse a clock or a dispatch that would not change the measurement."""
        if columns["clock"] != "burst":
            return UnsupportedOperationError(NO_SUSTAINED, expected="clock=burst")
        if columns["dispatch"] != "device":
            return UnsupportedOperationError(
                "a call on a processor has no separate dispatch, and no graph to replay", expected="dispatch=device"
            )
        return None

    def trial(self, op: str, columns: Columns) -> Trial:
        """Prepare ``op``. Raises UnsupportedOperationError where `refusal` gives a reason."""
        if self._closed:
            raise self.error(InvalidArgument, "the device is closed", op)
        complete = _complete(op, columns)
        refusal = self._refusal(op, complete)
        if refusal is not None:
            raise refusal
        trial = self._factories[op].make(self, complete)
        self._trials = [held for held in self._trials if not held.closed]
        self._trials.append(trial)
        return trial

    def error(self, kind: type[DeviceError], problem: str, operation: str) -> DeviceError:
        """Return an error of this device, to be raised."""
        return device_error(kind, problem, operation=operation, device=self.info.name, api=self.info.api)

    @property
    def available_bytes(self) -> float:
        """Memory (bytes) that a trial may allocate."""
        return SHARE * available_bytes()

    def require_memory(self, needed_bytes: float, what: str) -> None:
        """Raise DeviceOutOfMemory if a trial would allocate more than it may."""
        limit_bytes = self.available_bytes
        if needed_bytes > limit_bytes:
            needed, limit = (f"{size / 2**30:.3g} GiB" for size in (needed_bytes, limit_bytes))
            problem = f"{what} need {needed}; a trial may allocate {limit}"
            raise self.error(DeviceOutOfMemory, problem, "allocate")

    def energy_j(self) -> float | None:
        """Return None: no energy counter of a processor is readable without privileges."""
        return None

    def close(self) -> None:
        """Close every open trial."""
        self._closed = True
        for trial in self._trials:
            trial.close()
        self._trials.clear()


def _complete(op: str, columns: Columns) -> Columns:
    from windtunnel.core.ops import OPERATIONS  # imports NumPy, which finding devices must not

    return OPERATIONS.find(op).complete(columns)
