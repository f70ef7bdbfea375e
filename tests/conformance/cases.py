"""Runs one law over many cases in one test: every case is tried, and the failing ones are named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(cases: Iterable[Any], check: Callable[[Any], None]) -> None:
    """Call ``check`` with every case. Fails at the end with the name and the error of each case that failed."""
    failures, count = [], 0
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{case!r}: {type(error).__name__}: {error}")
    assert count, "there are no cases"
    if failures:
        pytest.fail(f"{len(failures)} of {count} cases failed:\n" + "\n".join(failures), pytrace=False)
