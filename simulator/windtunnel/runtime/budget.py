"""Budgets of virtual time, energy and calls: limits that a program must not exceed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real

from windtunnel.core.errors import InputError, WindtunnelError, list_choices, nearest
from windtunnel.core.units import format_quantity

Usage = Mapping[str, float]
"""Amounts by name: ``time_s``, ``energy_j``, ``launches``, ``copied_bytes``."""


class BudgetExceeded(WindtunnelError, AssertionError):
    """A program exceeded its budget. It is an AssertionError, so that a test fails by it."""


_UNITS = {"time_s": "s", "energy_j": "J"}


def _shown(name: str, amount: float) -> str:
    return format_quantity(amount, _UNITS[name], 4) if name in _UNITS else f"{amount:,.0f}"


def checked_limits(given: Mapping[str, float | None], unknown: Mapping[str, object]) -> Usage:
    """Return the limits that are stated. Raises InputError if there is none, or one is unknown or invalid."""
    for name in unknown:
        raise InputError(f"expect() has no limit '{name}'", expected=list_choices(given), nearest=nearest(name, given))
    limits = {name: limit for name, limit in given.items() if limit is not None}
    for name, limit in limits.items():
        if not isinstance(limit, Real) or not 0 <= limit < math.inf:
            raise InputError(f"a budget of {name} {limit!r}", expected="a number from 0")
    if not limits:
        raise InputError("expect() has no limit", expected=list_choices(given))
    return limits


class Budget:
    """A context manager that checks the usage of the work inside against limits.

    Args:
        device: The device's label, for the message.
        limits: The largest usage allowed, by name.
        usage: Returns the usage since the device was opened, including the work that is still under way.
        clock_s: Returns the host's clock (s).
    """

    def __init__(self, device: str, limits: Usage, usage: Callable[[], Usage], clock_s: Callable[[], float]) -> None:
        self.device, self.limits, self._usage, self._clock_s = device, limits, usage, clock_s

    def __enter__(self) -> None:
        # Energy and calls of work already under way do not count. The time until that work ends does.
        self.before = {**self._usage(), "time_s": self._clock_s()}

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        if kind is not None:
            return
        used = {name: value - self.before[name] for name, value in self._usage().items()}
        exceeded = [
            f"{name} {_shown(name, used[name])} (limit {_shown(name, limit)})"
            for name, limit in self.limits.items()
            if used[name] > limit * (1 + 1e-12)
        ]
        if exceeded:
            raise BudgetExceeded(f"{self.device} exceeded its budget: {'; '.join(exceeded)}")
