"""Executes operations of a simulated fleet on devices of this host.

The operations run in the back end's own process, are timed, and have their results checked. An operation that hangs or
ends its process is reported as a failure of the device.
"""

from __future__ import annotations

import atexit
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from windtunnel.backends.discovery import real_devices, registry
from windtunnel.backends.discovery.remote import RemoteOperations
from windtunnel.core.columns import Columns
from windtunnel.core.errors import (
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    UnsupportedOperationError,
)
from windtunnel.core.executor import MOST_REAL_S, Executed
from windtunnel.core.results.run import RealWork
from windtunnel.runtime.trial import Operations, Trial

LIMIT_S = 60.0
"""Time limit of one operation. One that takes longer is reported as hung."""
_KEPT = 8
"""Number of operations that stay prepared. Each holds operands that exceed the caches."""


class RealExecutor:
    """Executes operations on a device of this host. Implements `core.executor.Executor`.

    ``open`` opens the device; it is called again after the device was lost. An operation that occurs for the first time
    is prepared, executed once and checked, which takes no simulated time. Every job is charged the time of its own run.
    """

    def __init__(self, name: str, open: Callable[[], Operations]) -> None:  # noqa: A002
        self.name, self._open = name, open
        self._device: Operations | None = open()
        self.info, self.versions = self._device.info, dict(self._device.versions)
        self._ready: OrderedDict[tuple[object, ...], Trial] = OrderedDict()
        self._checked: dict[tuple[object, ...], float] = {}
        self._refused: dict[tuple[object, ...], str | None] = {}
        self._executed: Counter[tuple[str, tuple[tuple[str, float | str], ...]]] = Counter()
        self._measured_s = 0.0
        self._real_s = 0.0
        self._timers: set[str] = set()
        self._failures: list[str] = []

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why the device does not support an operation; None if it does."""
        key = (op, *columns.values())
        if key not in self._refused:
            self._refused[key] = "the device is lost" if self._device is None else self._device.refusal(op, columns)
        return self._refused[key]

    def execute(self, op: str, columns: Columns) -> Executed:
        """Execute an operation and wait for it. A failure is part of the answer and raises nothing.

        Raises InputError once the run has taken more real time on the device than a run may.
        """
        if self._device is None:
            return Executed(0.0, "the device is lost", gone=True)
        if self._real_s > MOST_REAL_S:
            raise InputError(
                f"this run has taken {self._real_s:,.0f} s of real time on {self.name}",
                expected=f"work for at most {MOST_REAL_S:g} s on real devices: fewer or smaller jobs",
            )
        began = time.perf_counter()
        try:
            return self._execute(op, columns, began)
        finally:
            self._real_s += time.perf_counter() - began

    def _execute(self, op: str, columns: Columns, began: float) -> Executed:
        try:
            trial = self._trial(op, columns)
            seconds = trial.run(1)
        except (DeviceHang, DeviceLost) as error:
            return self._device_lost(error, time.perf_counter() - began)
        except (DeviceError, UnsupportedOperationError) as error:
            self._failures.append(str(error))
            return Executed(time.perf_counter() - began, str(error))
        self._executed[op, tuple(columns.items())] += 1
        self._measured_s += seconds
        return Executed(seconds)

    def executed(self) -> Mapping[tuple[str, tuple[tuple[str, float | str], ...]], int]:
        """Return how often each operation was executed, by its name and columns, without failures."""
        return self._executed

    def report(self) -> RealWork:
        """Return what was executed: driver, operations, times, and failures."""
        return RealWork(
            real=self.name,
            label=self.info.name,
            api=self.info.api,
            software=self.info.software,
            driver=self.info.driver,
            versions=self.versions,
            operations=self._executed.total(),
            measured_s=self._measured_s,
            timer=sorted(self._timers),
            checked=len(self._checked),
            worst_error_share=max((share for share in self._checked.values() if math.isfinite(share)), default=None),
            failures=tuple(self._failures),
        )

    def reset(self) -> None:
        """Reset all counters for a new run, and open the device again if it was lost."""
        self._executed, self._measured_s, self._failures = Counter(), 0.0, []
        self._real_s = 0.0
        self._checked, self._refused = {}, {}
        self._timers = {trial.timer for trial in self._ready.values()}
        if self._device is None:
            self._device = self._open()

    def close(self) -> None:
        """Close the device."""
        self._ready.clear()
        if self._device is not None:
            self._device.close()
            self._device = None

    def _trial(self, op: str, columns: Columns) -> Trial:
        """Return the prepared operation. Raises UnsupportedOperationError if its results are wrong."""
        key = (op, *columns.values())
        trial = self._ready.get(key)
        if trial is None:
            trial = self._ready[key] = self._prepare(op, columns)
            trial.run(1)
            self._timers.add(trial.timer)
        self._ready.move_to_end(key)
        if key not in self._checked:
            self._checked[key] = trial.check()
        share = self._checked[key]
        if not share <= 1.0:
            raise UnsupportedOperationError(
                f"{self.name} computed '{op}' wrongly: the error is {share:.3g} times the tolerance"
            )
        return trial

    def _prepare(self, op: str, columns: Columns) -> Trial:
        assert self._device is not None  # noqa: S101  `execute` has checked it
        while len(self._ready) >= _KEPT:
            self._ready.popitem(last=False)[1].close()
        try:
            return self._device.trial(op, columns)
        except DeviceOutOfMemory:
            if not self._ready:
                raise
            # Release the operands of all other operations, and try again.
            while self._ready:
                self._ready.popitem()[1].close()
            return self._device.trial(op, columns)

    def _device_lost(self, error: DeviceError, duration_s: float) -> Executed:
        """Try once to open the lost device again."""
        self._failures.append(str(error))
        self._ready.clear()
        assert self._device is not None  # noqa: S101  `execute` has checked it
        self._device.close()
        began = time.perf_counter()
        try:
            self._device = self._open()
        except (DeviceError, DeviceNotPresentError) as reason:
            self._device = None
            self._failures.append(f"it could not be opened again: {reason}")
            return Executed(duration_s, str(error), gone=True)
        return Executed(duration_s, str(error), gone=True, back_s=time.perf_counter() - began)


_opened: dict[str, RealExecutor] = {}
_max_wait_s: ContextVar[float] = ContextVar("max_wait_s", default=math.inf)


@contextmanager
def max_wait(seconds: float) -> Iterator[None]:
    """Limit each call of devices that are opened within to ``seconds``. One that takes longer is reported as hung."""
    token = _max_wait_s.set(seconds)
    try:
        yield
    finally:
        _max_wait_s.reset(token)


def open_executor(name: str) -> RealExecutor:
    """Return the executor of the device that `windtunnel devices --real` lists as ``name``, with its counters reset.

    The device stays open until the program ends.

    Raises:
        InputError: if the name is not a back end and a number.
        DeviceNotPresentError: if the device is not on this host, or does not open.

    """
    executor = _opened.get(name)
    if executor is None:
        backend, _, number = name.partition(":")
        if not number.isdecimal():
            raise InputError(f"'{name}' is not a device of this host", expected="a back end and a number: opencl:0")
        registry.backend(backend)
        max_wait_s = _max_wait_s.get()

        def open_device() -> Operations:
            device = RemoteOperations(backend, int(number), LIMIT_S)
            device.max_wait_s = max_wait_s
            return device

        try:
            executor = _opened[name] = RealExecutor(name, open_device)
        except (RuntimeError, DeviceNotPresentError):
            # Drivers raise all kinds of errors for a missing device. Discovery has the reason in words.
            real_devices.require(name)
            raise
        except DeviceError as error:
            raise DeviceNotPresentError(f"'{name}' was detected but does not open: {error}") from None
    executor.reset()
    return executor


def close_all() -> None:
    """Close every device that was opened."""
    while _opened:
        _opened.popitem()[1].close()


atexit.register(close_all)
