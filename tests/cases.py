"""One test over many cases: all cases run, and the test names each case that fails, with its error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def check_all(cases: Iterable[T], check: Callable[[T], object], name: Callable[[T], object] = str) -> None:
    """Call ``check`` with each case; fail if there is no case, or with the names of all cases that fail."""
    count, failed = 0, []
    for case in cases:
        count += 1
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name(case)}: {type(error).__name__}: {error}")
    assert count, "there are no cases"
    assert not failed, f"{len(failed)} of {count} cases fail:\n\n" + "\n\n".join(failed)
