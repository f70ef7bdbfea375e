"""Devices of this host in fleets: operations are executed in the back end's own process, timed, and their numbers
checked; what hangs or dies is told as a failure of the device.
"""

from __future__ import annotations

import atexit
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from windtunnel.backends.discovery import real_devices as probing
from windtunnel.core.errors import (
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    UnsupportedOperationError,
)
from windtunnel.core.executor import MOST_REAL_S, Columns, Executed
from windtunnel.runtime.trial import Operations, Trial

LIMIT_S = 60.0
"""For one operation: one that takes longer is taken to hang."""
_KEPT = 8
"""Operations that stay ready: each holds operands beyond the caches."""


class RealExecutor:
    """A device of this host: see ``core.executor.Executor``.

    ``open`` gives its operations, anew where it was lost. An operation that is met for the first time is made ready,
    run once and its numbers checked, for no simulated time; what is charged is a run of its own for each job.
    """

    def __init__(self, name: str, open: Callable[[], Operations]) -> None:  # noqa: A002
        self.name, self._open = name, open
        self._device: Operations | None = open()
        self.info, self.versions = self._device.info, dict(self._device.versions)
        self._ready: OrderedDict[tuple[object, ...], Trial] = OrderedDict()
        self._checked: dict[tuple[object, ...], float] = {}
        self._refused: dict[tuple[object, ...], str | None] = {}
        self._executed: Counter[tuple[str, tuple[tuple[str, Any], ...]]] = Counter()
        self._spent_s = 0.0
        self._taken_s = 0.0
        self._timers: set[str] = set()
        self._failures: list[str] = []

    def refusal(self, op: str, columns: Columns) -> str | None:
        """See ``Executor``."""
        key = (op, *columns.values())
        if key not in self._refused:
            self._refused[key] = "it is gone" if self._device is None else self._device.refusal(op, columns)
        return self._refused[key]

    def execute(self, op: str, columns: Columns) -> Executed:
        """See ``Executor``."""
        if self._device is None:
            return Executed(0.0, "the device is gone", gone=True)
        if self._taken_s > MOST_REAL_S:
            raise InputError(
                f"this run has taken {self._taken_s:,.0f} s of real time on {self.name}",
                expected=f"work for at most {MOST_REAL_S:g} s on real devices: fewer jobs, or smaller ones",
            )
        began = time.perf_counter()
        try:
            return self._executed_or_failed(op, columns, began)
        finally:
            self._taken_s += time.perf_counter() - began

    def _executed_or_failed(self, op: str, columns: Columns, began: float) -> Executed:
        try:
            trial = self._trial(op, columns)
            seconds = trial.run(1)
        except (DeviceHang, DeviceLost) as error:
            return self._lost(error, time.perf_counter() - began)
        except (DeviceError, UnsupportedOperationError) as error:
            self._failures.append(str(error))
            return Executed(time.perf_counter() - began, str(error))
        self._executed[op, tuple(columns.items())] += 1
        self._spent_s += seconds
        return Executed(seconds)

    def executed(self) -> Mapping[tuple[str, tuple[tuple[str, Any], ...]], int]:
        """See ``Executor``."""
        return self._executed

    def report(self) -> Mapping[str, Any]:
        """See ``Executor``."""
        return {
            "real": self.name,
            "label": self.info.name,
            "api": self.info.api,
            "software": self.info.software,
            "driver": self.info.driver,
            "versions": self.versions,
            "operations": self._executed.total(),
            "measured_s": self._spent_s,
            "timer": sorted(self._timers),
            "checked": len(self._checked),
            "worst_error_share": max((one for one in self._checked.values() if math.isfinite(one)), default=None),
            "failures": list(self._failures),
        }

    def begin(self) -> None:
        """Forget what was counted, for a run of its own."""
        self._executed, self._spent_s, self._failures = Counter(), 0.0, []
        self._taken_s = 0.0
        self._checked, self._refused, self._timers = {}, {}, set()
        for trial in self._ready.values():
            self._timers.add(trial.timer)
        if self._device is None:
            self._device = self._open()

    def close(self) -> None:
        """Give the device back."""
        self._ready.clear()
        if self._device is not None:
            self._device.close()
            self._device = None

    def _drop_ready(self) -> None:
        while self._ready:
            self._ready.popitem()[1].close()

    def _trial(self, op: str, columns: Columns) -> Trial:
        """The operation, ready."""
        key = (op, *columns.values())
        found = self._ready.get(key)
        if found is None:
            assert self._device is not None  # noqa: S101  who asks has seen
            while len(self._ready) >= _KEPT:
                self._ready.popitem(last=False)[1].close()
            try:
                found = self._device.trial(op, columns)
            except DeviceOutOfMemory:
                if not self._ready:
                    raise
                # What is kept ready for later leaves room for what is to be done.
                self._drop_ready()
                found = self._device.trial(op, columns)
            self._ready[key] = found
            found.run(1)
            self._timers.add(found.timer)
        self._ready.move_to_end(key)
        if key not in self._checked:
            self._checked[key] = found.check()
        share = self._checked[key]
        if not share <= 1.0:
            raise UnsupportedOperationError(
                f"{self.name} computed '{op}' wrongly: off by {share:.3g} times what is allowed"
            )
        return found

    def _lost(self, error: DeviceError, spent_s: float) -> Executed:
        """The device is gone: it is opened once more, and may be back."""
        self._failures.append(str(error))
        self._ready.clear()
        assert self._device is not None  # noqa: S101  it was there a moment ago
        self._device.close()
        began = time.perf_counter()
        try:
            self._device = self._open()
        except (DeviceError, DeviceNotPresentError) as again:
            self._device = None
            self._failures.append(f"it was not there again: {again}")
            return Executed(spent_s, str(error), gone=True)
        return Executed(spent_s, str(error), gone=True, back_s=time.perf_counter() - began)


_opened: dict[str, RealExecutor] = {}
_patience_s: ContextVar[float] = ContextVar("patience_s", default=math.inf)


@contextmanager
def waiting_at_most(seconds: float) -> Iterator[None]:
    """Devices that are opened within are not waited for longer than this at a call: one that takes longer hangs."""
    before = _patience_s.set(seconds)
    try:
        yield
    finally:
        _patience_s.reset(before)


def executor(name: str) -> RealExecutor:
    """The device that `windtunnel devices --real` calls ``name``; it stays open until the program ends.

    InputError for a name that is none; DeviceNotPresentError where it is not here.
    """
    found = _opened.get(name)
    if found is None:
        from windtunnel.backends.discovery.registry import backend

        way, _, number = name.partition(":")
        if not number.isdecimal():
            raise InputError(f"'{name}' names no device of this host", expected="a back end and a number: opencl:0")
        backend(way)
        patience_s = _patience_s.get()
        try:
            found = _opened[name] = RealExecutor(name, lambda: _remote(way, int(number), patience_s))
        except (RuntimeError, DeviceNotPresentError):
            # Whatever a driver says where there is none: what finds devices knows the words for it.
            probing.require(name)
            raise
        except DeviceError as error:
            raise DeviceNotPresentError(f"'{name}' is found and does not open: {error}") from None
    found.begin()
    return found


def _remote(way: str, number: int, patience_s: float) -> Operations:
    from windtunnel.backends.discovery.remote import RemoteOperations

    found = RemoteOperations(way, number, LIMIT_S)
    found.patience_s = patience_s
    return found


def close_all() -> None:
    """Give back every device that was opened."""
    while _opened:
        _opened.popitem()[1].close()


atexit.register(close_all)
