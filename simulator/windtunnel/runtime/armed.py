"""Faults while they are armed: a context manager, and a decorator."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from functools import wraps
from inspect import isasyncgenfunction, isclass, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError
from windtunnel.runtime.faults import Fault, FaultPlan

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator


class Armed(ContextDecorator):
    """What strikes an accelerator's calls within; see ``Accelerator.faults``."""

    def __init__(self, accelerator: Accelerator, stated: Sequence[Fault], seed: int) -> None:
        self.accelerator, self.stated, self.seed = accelerator, stated, seed

    def __enter__(self) -> FaultPlan:
        if self.accelerator.plan is not None:
            raise InputError(
                "faults are armed already, by the marker, a fixture or an outer `faults(...)`",
                expected="one plan with all of them",
            )
        self.accelerator.plan = self.plan = FaultPlan(self.stated, self.seed)
        return self.plan

    def __call__(self, function: Any) -> Any:
        """A coroutine is armed while it runs, not while it is made."""
        if isclass(function) or isgeneratorfunction(function) or isasyncgenfunction(function):
            name = getattr(function, "__name__", repr(function))
            raise InputError(
                f"faults on '{name}' would be armed while it is made, and not while it runs",
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
        self.accelerator.plan = None
        self.accelerator.ended.extend(self.plan.log)
        # What went wrong is said first; a fault that stayed away because of it is not the news.
        if kind is None:
            self.plan.finish()
