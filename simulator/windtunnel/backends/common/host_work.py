"""Operations on the host's processor, whoever's they are: limits, caches, memory, contexts, opening and closing.

Such a device is made of jobs, one an operation. A job says what it refuses and makes a trial; columns are completed
and checked against the registry first, so that a wrong codec or a missing size is the registry's error. A dispatch or
a clock that would change nothing is refused. Back ends import this to find devices: it imports neither NumPy nor a
driver.
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

from windtunnel.backends.common.backend import Found
from windtunnel.core.errors import (
    DeviceError,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    UnsupportedOperationError,
    one_of,
)
from windtunnel.runtime.codes import code_of

if TYPE_CHECKING:
    from windtunnel.runtime.interface import DeviceInfo
    from windtunnel.runtime.trial import Timer, Trial

API = "native"
SHARE = 0.4
"""Of the host's memory that is free, or of a device's, that a trial takes at most: other work has a claim to it."""
ASSUMED_CACHE_BYTES = 64 * 2**20
COLD_FACTOR = 2
"""Cold operands take so many times the last-level cache: with once, a random or hashed replacement still hits."""

NO_SUSTAINED = "a sustained clock is what a long run shows at a power cap: it is not asked for a run at a time"

Columns = Mapping[str, float | str]


@dataclass(frozen=True)
class LastLevelCache:
    """Its size, and where that was read."""

    bytes: int
    source: str


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def llc_bytes(caches: Path = _CACHES, *, sysconf: Callable[[str], int] | None = None) -> LastLevelCache:
    """The last-level cache that a processor of this host sees (bytes), or an assumption that says it is one.

    The kernel's own account comes first: on virtual hosts sysconf was seen to give the whole socket's (320 MiB) where
    the core reaches 32 MiB of it.
    """
    found: dict[int, int] = {}
    for index in sorted(caches.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            found[int((index / "level").read_text())] = _size_bytes((index / "size").read_text())
        except (OSError, ValueError):
            continue
    if found and found[max(found)] > 0:
        return LastLevelCache(found[max(found)], f"level {max(found)} of {caches}")
    for level in (4, 3, 2):
        try:
            size = (sysconf or os.sysconf)(f"SC_LEVEL{level}_CACHE_SIZE")
        except (AttributeError, ValueError, OSError):
            continue
        if size > 0:
            return LastLevelCache(size, f"level {level} of sysconf")
    return LastLevelCache(ASSUMED_CACHE_BYTES, "assumed: the system does not say")


def _size_bytes(text: str) -> int:
    """``32768K`` in bytes."""
    text = text.strip()
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """What the processor calls itself; its architecture where it does not say."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "processor"


def memory_bytes() -> float:
    """The host's memory (bytes); 0 where it is not told."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 0.0


def available_bytes() -> float:
    """Memory that programs may still have, as Linux says; else half of what is installed."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    except OSError:
        pass
    return 0.5 * memory_bytes()


def processors() -> int:
    """How many of the host's processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def host_found(backend: str, label: str, driver: str) -> Found:
    """The host's processor, as a back end that works on it tells it."""
    name = processor_name().lower()
    vendors = (one for one in ("AMD", "Intel", "Apple", "Ampere") if one.lower() in name)
    vendor = next(vendors, platform.machine())
    return Found(backend, 0, label, "cpu", True, driver, API, vendor, memory_bytes())


def only_one(backend: str, index: int) -> None:
    """DeviceNotPresentError for any device but the first: a host is one."""
    if index != 0:
        raise DeviceNotPresentError(f"{backend}:{index} is not here; the host is one device, {backend}:0")


def device_error(kind: type[DeviceError], problem: str, *, operation: str, device: str, api: str = API) -> DeviceError:
    """An error of the device, with the API's number for it: of ``native``, the operating system's."""
    return kind(problem, operation=operation, device=device, code=code_of(api, kind))


def cold_operands(
    bytes_each: float, at_least: int, cache: str, *, most: float = math.inf, beyond_bytes: float | None = None
) -> int:
    """How many operands of ``bytes_each`` are rotated: ``at_least``, and for ``cold`` enough to outgrow the caches.

    ``most``: of tiny ones, which fit into caches whatever is done. ``beyond_bytes``: all together, where it is not the
    processor's caches that are to be outgrown.
    """
    if cache != "cold":
        return at_least
    beyond = COLD_FACTOR * llc_bytes().bytes if beyond_bytes is None else beyond_bytes
    return int(max(at_least, min(math.ceil(beyond / bytes_each), most)))


def host_info(found: Found, features: frozenset[str] = frozenset()) -> DeviceInfo:
    """What is said of the host's processor once it is opened."""
    from windtunnel.runtime.interface import DeviceInfo
    from windtunnel.runtime.limits import limits_of

    return DeviceInfo(
        name=found.label,
        kind=found.kind,
        api=found.api,
        memory_bytes=found.memory_bytes,
        limits=limits_of(found.api),
        features=features,
        virtual=False,
        software=found.software,
        compute_units=processors(),
        driver=found.driver,
    )


class HostTrial(ABC):
    """A trial on the host's processor: refuses to run when closed, and to be checked before it has run."""

    timer: Timer = "host"

    def __init__(self, device: HostDevice, note: str) -> None:
        self.device, self.note = device, note
        self.closed = False
        self._ran = False
        self._off: float | None = None

    def run(self, count: int = 1) -> float:
        """Do it ``count`` times; seconds of one, in the mean."""
        self._require_open("run")
        if count < 1:
            raise InputError(f"a trial is run {count} times", expected="at least 1")
        self._off = None
        seconds = self._run(count)
        self._ran = True
        return seconds

    def check(self) -> float:
        """How far the last run's numbers are off, as a share of what is allowed."""
        self._require_open("check")
        if not self._ran:
            raise self.device.error(InvalidArgument, "nothing has run yet", "check")
        if self._off is None:
            self._off = self._check()
        return self._off

    def close(self) -> None:
        """Give back what it holds."""
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
        """Called once a run: results may be wiped by it."""

    @abstractmethod
    def _close(self) -> None: ...


def wrong(requests: int) -> float:
    """`Trial.check` of what has to be exact: none may be wrong, so one alone is twice what is allowed."""
    return 2.0 * requests


Refused = UnsupportedOperationError | None


@dataclass(frozen=True)
class Job:
    """One operation of a device: ``make`` it ready (device, complete columns); ``refused``: why not, by its columns."""

    make: Callable[[Any, Columns], HostTrial]
    refused: Callable[[Columns], Refused] = lambda _: None


class HostDevice:
    """The host's processor, as a device that does ``jobs``."""

    def __init__(self, info: DeviceInfo, versions: Mapping[str, str], jobs: Mapping[str, Job]) -> None:
        self.info, self.versions = info, dict(versions)
        self._jobs = jobs
        self._trials: list[HostTrial] = []
        self._closed = False

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """Why ``op`` is not done with these columns; InputError for an operation or a value that nobody knows."""
        refused = self._refused(op, _complete(op, columns))
        return None if refused is None else str(refused)

    def _refused(self, op: str, columns: Columns) -> Refused:
        if op not in self._jobs:
            return UnsupportedOperationError(f"{self.info.name} does not run {op} here", expected=one_of(self._jobs))
        return self._jobs[op].refused(columns) or self._context_refused(op, columns)

    def _context_refused(self, op: str, columns: Columns) -> Refused:
        """What of the context would be the same whatever was asked: it is not taken for measured."""
        if columns["clock"] != "burst":
            return UnsupportedOperationError(NO_SUSTAINED, expected="clock=burst")
        if columns["dispatch"] != "device":
            return UnsupportedOperationError(
                "a call on a processor has no dispatch beside itself, and no list to be replayed from",
                expected="dispatch=device",
            )
        return None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """Make ``op`` ready."""
        if self._closed:
            raise self.error(InvalidArgument, "the device is closed", op)
        complete = _complete(op, columns)
        refused = self._refused(op, complete)
        if refused is not None:
            raise refused
        trial = self._jobs[op].make(self, complete)
        self._trials = [held for held in self._trials if not held.closed]
        self._trials.append(trial)
        return trial

    def error(self, kind: type[DeviceError], problem: str, operation: str) -> DeviceError:
        """An error of this device."""
        return device_error(kind, problem, operation=operation, device=self.info.name, api=self.info.api)

    @property
    def room_bytes(self) -> float:
        """What a trial may allocate."""
        return SHARE * available_bytes()

    def require_memory(self, needed_bytes: float, what: str) -> None:
        """DeviceOutOfMemory where a trial would allocate more than it may."""
        most = self.room_bytes
        if needed_bytes > most:
            needed, limit = (f"{size / 2**30:.3g} GiB" for size in (needed_bytes, most))
            raise self.error(DeviceOutOfMemory, f"needs {needed} for {what}, of at most {limit} a trial", "allocate")

    def energy_j(self) -> float | None:
        """See ``Operations``: no counter of a processor's is readable without privileges."""
        return None

    def close(self) -> None:
        """Close every trial that is open."""
        self._closed = True
        for trial in self._trials:
            trial.close()
        self._trials.clear()


def _complete(op: str, columns: Mapping[str, Any]) -> Columns:
    from windtunnel.core.ops import OPERATIONS  # imports NumPy, which finding a device does not wait for

    return OPERATIONS.find(op).complete(columns)
