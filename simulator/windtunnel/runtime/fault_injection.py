"""Fault injection into the calls of one accelerator: which call fails or slows, and what a failed device refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator, contextmanager
from functools import wraps
from inspect import isasyncgenfunction, isclass, iscoroutinefunction, isgeneratorfunction
from typing import Any

import numpy as np

from windtunnel.core.errors import DeviceError, InputError
from windtunnel.runtime.faults import KINDS, Fault, FaultPlan
from windtunnel.runtime.interface import Context

Effects = Sequence[tuple[Fault, int]]
"""Faults that affect a call without ending it, each with its position in the plan's log."""


class FaultInjector:
    """Applies armed faults to calls, and repeats the failure that ended the device.

    Args:
        context: The opened device.
        make_error: Creates an error of the device from its class, the operation and the problem.
    """

    def __init__(self, context: Context, make_error: Callable[[type[DeviceError], str, str], DeviceError]) -> None:
        self.context, self._make_error = context, make_error
        self.plan: FaultPlan | None = None
        self.finished_log: list[str] = []
        """The log lines of the plans that have ended."""
        self.failure: DeviceError | None = None
        """The sticky error that every later call repeats; None while the device works."""
        self._refused: Callable[[], Exception] | None = None
        self._hang: tuple[float, DeviceError] | None = None
        """The time (s) at which the watchdog ends a hanging kernel, and the error that is raised then."""

    @property
    def log(self) -> list[str]:
        """All injected faults of all plans, in order."""
        return [*self.finished_log, *(self.plan.log if self.plan is not None else ())]

    @property
    def needs_reset(self) -> bool:
        """Whether the device failed permanently or a kernel hangs."""
        return self.failure is not None or self._hang is not None

    def clear(self) -> None:
        """Forget the permanent failure and the hanging kernel: the device was reset."""
        self.failure = self._hang = None

    def disarm(self) -> FaultPlan | None:
        """End the armed plan and return it; None if no faults are armed."""
        plan, self.plan = self.plan, None
        if plan is not None:
            self.finished_log.extend(plan.log)
        return plan

    def close(self, error: DeviceError) -> None:
        """Refuse all later calls with ``error``: the accelerator was closed."""
        self.failure, self._hang = error, None

    def refuse(self, make_error: Callable[[], Exception]) -> None:
        """Refuse all later calls with an error of the program's interface: the device is that of another process."""
        self._refused = make_error

    def before_call(self, operation: str, kernel: str | None = None) -> Effects:
        """Check that the device works, and inject the faults that are due.

        Returns:
            The faults that slow the call or corrupt its data.

        Raises:
            DeviceError: If a fault ends the call, or if the device failed earlier.
        """
        description = operation.replace("_", " ") + (f" {kernel}" if kernel else "")
        self.check_working(description)
        if self.plan is None:
            return ()
        effects = []
        for fault, position in self.plan.next_effects(operation, kernel, self.context.clock_s):
            kind = KINDS[fault.kind]
            if kind.error is None:
                effects.append((fault, position))
                continue
            error = self._make_error(kind.error, description, f"{kind.text} (fault '{fault}', seed {self.plan.seed})")
            if not kind.ends:
                # The first of several hanging kernels decides when the watchdog acts.
                self._hang = self._hang or (self.context.clock_s + fault.watchdog_timeout_s, error)
                continue
            if kind.error.sticky:
                self.failure = error
            raise error
        return effects

    def check_working(self, operation: str) -> None:
        """Raise the error that ended the device, worded for this operation."""
        if self._refused is not None:
            raise self._refused()
        if self.failure is not None:
            since = f", since {self.failure.operation}" if self.failure.sticky else ""
            raise self._make_error(type(self.failure), operation, self.failure.problem + since)

    def finish_wait(self) -> None:
        """End a wait: if a kernel hangs, advance the clock to the watchdog's timeout and raise its error."""
        if self._hang is None:
            return
        until_s, error = self._hang
        self._hang, self.failure = None, error
        self.context.pass_time(max(until_s - self.context.clock_s, 0.0))
        raise error

    @contextmanager
    def copying(self, operation: str) -> Iterator[list[int]]:
        """Inject faults into a copy; yields the log positions of the faults that corrupt its data."""
        effects = self.before_call(operation)
        with self.slowed(effects):
            yield [position for fault, position in effects if fault.kind == "corrupt_copy"]

    @contextmanager
    def slowed(self, effects: Effects) -> Iterator[None]:
        """Multiply the durations of the work that is enqueued inside by the factors of ``effects``."""
        factor = math.prod(fault.factor for fault, _ in effects if "factor" in KINDS[fault.kind].takes)
        if factor == 1.0:
            yield
            return
        self.context.scale_durations(factor)
        try:
            yield
        finally:
            self.context.scale_durations(1.0)

    def corrupt(self, positions: Sequence[int], data: Callable[[], np.ndarray]) -> None:
        """Flip one bit of ``data()``, an array of bytes, for each fault, given by its position in the log."""
        for position in positions:
            assert self.plan is not None  # noqa: S101  a fault was injected
            self.plan.corrupt(data(), position)


class ArmedFaults(ContextDecorator):
    """Faults that are armed while the context manager, or the decorated function, runs: see `Accelerator.faults`."""

    def __init__(self, injector: FaultInjector, faults: Sequence[Fault], seed: int) -> None:
        self.injector, self.faults, self.seed = injector, faults, seed

    def __enter__(self) -> FaultPlan:
        if self.injector.plan is not None:
            raise InputError(
                "faults are armed already, by the marker, a fixture or an outer `faults(...)`",
                expected="one plan with all of them",
            )
        self.injector.plan = self.plan = FaultPlan(self.faults, self.seed)
        return self.plan

    def __call__(self, function: Any) -> Any:
        """Decorate a function; a coroutine function is armed while its coroutine runs."""
        if isclass(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", repr(function))
            raise InputError(
                f"faults on '{name}' would be armed while it is created, not while it runs",
                expected="a function or a coroutine, or `with accelerator.faults(...)` inside",
            )
        if not iscoroutinefunction(function):
            return super().__call__(function)

        @wraps(function)
        async def armed(*arguments: Any, **named: Any) -> Any:
            with self:
                return await function(*arguments, **named)

        return armed

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.injector.plan is not self.plan:
            return  # it was disarmed before
        self.injector.disarm()
        # The program's own error is the primary one: a fault may not have occurred because of it.
        if kind is None:
            self.plan.finish()
