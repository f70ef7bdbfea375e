"""Budgets of virtual time, energy and calls: what a program must not exceed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from windtunnel.core.errors import WindtunnelError

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator


class BudgetExceeded(WindtunnelError, AssertionError):
    """A program took more than it was expected to. An AssertionError, so that a test fails by it."""


class Budget:
    """Between its beginning and its end no more than the limits is spent."""

    def __init__(self, accelerator: Accelerator, limits: Mapping[str, float]) -> None:
        self.accelerator, self.limits = accelerator, limits

    def __enter__(self) -> None:
        # Work that is under way already is no part of it, the time until it has ended is.
        self.before = {**self.accelerator.usage(), "time_s": self.accelerator.clock_s}

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if kind is not None:
            return
        spent = {name: value - self.before[name] for name, value in self.accelerator.usage().items()}
        over = [
            f"{name} {spent[name]:.6g}, of at most {limit:.6g}"
            for name, limit in self.limits.items()
            if spent[name] > limit * (1 + 1e-12)
        ]
        if over:
            raise BudgetExceeded(f"{self.accelerator.name} took more than was expected: {'; '.join(over)}")
