"""What back ends share that do an accelerator's operations on the host's processor: limits, caches, opening, closing.

Such a device is made of jobs, one an operation. A job says what it refuses and makes a trial; columns are completed
and checked against the registry first, so that a wrong codec or a missing size is the registry's error.
"""

from __future__ import annotations

import math
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from windtunnel.backends._known import Found
from windtunnel.core.errors import (
    DeviceError,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    InvalidArgument,
    UnsupportedOperationError,
    one_of,
)
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.runtime.limits import limits_of
from windtunnel.runtime.trial import Timer, Trial

API = "native"
MEMORY_LIMIT_BYTES = 2 * 2**30
"""What one trial may allocate. The host has more, but other work has a claim to it."""
ASSUMED_CACHE_BYTES = 64 * 2**20
COLD_FACTOR = 2
"""Cold operands take so many times the last-level cache: with once, a random or hashed replacement still hits."""

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


def processors() -> int:
    """How many of the host's processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def host_found(backend: str, label: str, driver: str) -> Found:
    """The host's processor, as a back end that works on it tells it."""
    return Found(
        backend=backend,
        index=0,
        label=label,
        kind="cpu",
        software=True,
        driver=driver,
        api=API,
        memory_bytes=memory_bytes(),
    )


def only_one(backend: str, index: int) -> None:
    """DeviceNotPresentError for any device but the first: a host is one."""
    if index != 0:
        raise DeviceNotPresentError(f"{backend}:{index} is not here; the host is one device, {backend}:0")


def device_error(kind: type[DeviceError], problem: str, *, operation: str, device: str) -> DeviceError:
    """An error of the device, with the operating system's number for it."""
    return kind(problem, operation=operation, device=device, code=code_of(API, kind))


def cold_operands(bytes_each: float, at_least: int, cache: str) -> int:
    """How many operands of ``bytes_each`` are rotated: enough to outgrow the cache if ``cold``, else ``at_least``."""
    if cache != "cold":
        return at_least
    return max(at_least, math.ceil(COLD_FACTOR * llc_bytes().bytes / bytes_each))


def require_memory(needed_bytes: float, what: str, device: str) -> None:
    """DeviceOutOfMemory where a trial would allocate more than `MEMORY_LIMIT_BYTES`."""
    if needed_bytes > MEMORY_LIMIT_BYTES:
        raise device_error(
            DeviceOutOfMemory,
            f"needs {needed_bytes / 2**30:.1f} GiB for {what}, of at most {MEMORY_LIMIT_BYTES / 2**30:g} GiB a trial",
            operation="allocate",
            device=device,
        )


class HostTrial(ABC):
    """A trial on the host's processor: refuses to run when closed, and to be checked before it has run."""

    timer: Timer = "host"

    def __init__(self, device: str, note: str) -> None:
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
            raise device_error(InvalidArgument, "nothing has run yet", operation="check", device=self.device)
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
            raise device_error(InvalidArgument, "the trial is closed", operation=operation, device=self.device)

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


class Job(ABC):
    """One operation of a device."""

    op: ClassVar[str]

    def refused(self, columns: Columns) -> UnsupportedOperationError | None:
        """Why these columns are not done; None where they are."""
        if columns["dispatch"] == "graph":
            return UnsupportedOperationError(
                "records no lists of commands: a call is all there is", expected="dispatch=device or dispatch=eager"
            )
        return None

    @abstractmethod
    def trial(self, device: str, columns: Columns) -> HostTrial:
        """Make it ready."""


class HostDevice:
    """The host's processor, as a device that does ``jobs``."""

    def __init__(self, found: Found, versions: Mapping[str, str], jobs: Mapping[str, Job]) -> None:
        self.info = DeviceInfo(
            name=found.label,
            kind=found.kind,
            api=found.api,
            memory_bytes=found.memory_bytes,
            limits=limits_of(found.api),
            features=frozenset(),
            virtual=False,
            software=found.software,
            compute_units=processors(),
            driver=found.driver,
        )
        self.versions = dict(versions)
        self._jobs = jobs
        self._trials: list[HostTrial] = []
        self._closed = False

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """Why ``op`` is not done with these columns; InputError for an operation or a value that nobody knows."""
        refused = self._refused(op, OPERATIONS.find(op).complete(columns))
        return None if refused is None else str(refused)

    def _refused(self, op: str, columns: Columns) -> UnsupportedOperationError | None:
        if op not in self._jobs:
            return UnsupportedOperationError(f"{self.info.name} does not run {op} here", expected=one_of(self._jobs))
        return self._jobs[op].refused(columns)

    def trial(self, op: str, columns: Mapping[str, Any]) -> Trial:
        """Make ``op`` ready."""
        if self._closed:
            raise device_error(InvalidArgument, "the device is closed", operation=op, device=self.info.name)
        complete = OPERATIONS.find(op).complete(columns)
        refused = self._refused(op, complete)
        if refused is not None:
            raise refused
        trial = self._jobs[op].trial(self.info.name, complete)
        self._trials = [held for held in self._trials if not held.closed]
        self._trials.append(trial)
        return trial

    def energy_j(self) -> float | None:
        """See ``Operations``: no counter of a processor's is readable without privileges."""
        return None

    def close(self) -> None:
        """Close every trial that is open."""
        self._closed = True
        for trial in self._trials:
            trial.close()
        self._trials.clear()
