"""Which findings a test expects and hides, and its marker's budgets: for the pytest plugin. See docs/testing.md."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Mapping, Sequence
from functools import wraps
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from windtunnel.core.errors import Finding, Location


class MarkerBudget:
    """A context manager that raises BudgetExceeded, with the marker's line, if a test exceeds the marker's limits."""

    def __init__(self, item: pytest.Item, accelerator: Any, limits: Mapping[str, Any]) -> None:
        self.item, self.budget = item, None
        from windtunnel.core.errors import InputError

        try:
            self.budget = accelerator.expect(**limits) if limits else None
        except InputError as error:
            raise error.at(_place_of_marker(item)) from None

    def __enter__(self) -> None:
        if self.budget is not None:
            self.budget.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.budget is None or kind is not None:
            return
        from windtunnel.core.errors import WindtunnelError

        try:
            self.budget.__exit__(None, None, None)
        except WindtunnelError as error:  # BudgetExceeded
            raise type(error)(f"{_place_of_marker(self.item)}: {error}") from None


def _place_of_marker(item: pytest.Item) -> Location:
    """Return the line of a test's own marker; that of the test if a class or a module has the marker."""
    from windtunnel.core.errors import Location

    file, first, _ = item.location
    code = getattr(getattr(item, "function", None), "__code__", None)
    if code is None:
        return Location(file=file, line=(first or 0) + 1)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    above = list(takewhile(lambda line: not line.lstrip().startswith(("def ", "async def ")), lines))
    offset = next((at for at, line in enumerate(above) if line.lstrip().startswith("@") and ".accelerator(" in line), 0)
    return Location(file=code.co_filename, line=code.co_firstlineno + offset)


def hidden_findings(findings: Sequence[Finding], options: Mapping[str, Any], others: Sequence[str] = ()) -> str:
    """Return what is wrong with a test that catches findings; empty if nothing is. Each finding counts once.

    A device that several tests share may have findings of code that ran before the test, such as a fixture of a module.
    ``others``: findings of child processes.
    """
    hidden = list(others)
    for one in findings:
        if not one.expected:
            hidden.append(f"{type(one).__name__}: {one}")
            one.expected = True
    if not hidden or options.get("findings") == "ignore":
        return ""
    return "\n".join([
        "the test catches a finding, or a fixture, a thread or code before the test does; one that is expected belongs "
        "in pytest.raises(...), and @pytest.mark.accelerator(findings='ignore') accepts all:",
        *hidden,
    ])  # fmt: skip


def note_expected_findings() -> None:
    """Let ``pytest.raises`` and ``TestCase.assertRaises`` mark the findings that end in them as expected.

    pytest has no hook for it, so their method ``__exit__`` is wrapped, once in a process.
    """
    from unittest import TestCase

    groups = [pytest.RaisesGroup(Exception)] if hasattr(pytest, "RaisesGroup") else []  # pytest 8.4
    for context in (pytest.raises(Exception), TestCase().assertRaises(Exception), *groups):
        kind: Any = type(context)
        if not hasattr(kind.__exit__, "notes_findings"):
            kind.__exit__ = _noting(kind.__exit__)


def _noting(leave: Any) -> Any:
    @wraps(leave)
    def leave_and_note(context: Any, kind: Any, value: Any, traceback: Any) -> Any:
        is_expected = leave(context, kind, value, traceback)
        if is_expected:
            mark_expected(value)
        return is_expected

    leave_and_note.notes_findings = True  # type: ignore[attr-defined]
    return leave_and_note


def mark_expected(error: BaseException | None) -> None:
    """Mark a finding, also in a group, or as the cause of another exception."""
    if "windtunnel.core.errors" not in sys.modules:
        return
    from windtunnel.core.errors import Finding

    children: Any = sys.modules.get("windtunnel.emulate.child_findings")
    while error is not None:
        if isinstance(error, Finding):
            error.expected = True
            if children is not None:
                children.expect(error)
        for one in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            mark_expected(one)
        error = error.__cause__
