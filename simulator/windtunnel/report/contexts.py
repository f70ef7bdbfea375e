"""The table of a report on the context of operations: how each is launched, at which clock, from which cache."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from windtunnel.core.results.run import OperationContext
from windtunnel.report import page

_MOST_ROWS = 2_000
_MOST_NAMES = 3


def contexts_table(contexts: Sequence[OperationContext]) -> Markup | None:
    """Return the context of each launched operation, with the reason of its dispatch; None if there is none."""
    rows = [
        [row.operation, row.dispatch, row.clock, row.cache, _named(row.workloads), _named(row.devices), row.reason]
        for row in contexts[:_MOST_ROWS]
    ]
    header = ["Operation", "Dispatch", "Clock", "Cache", "Workloads", "Fleet entries", "Reason for the dispatch"]
    return page.table("Context of the operations", header, rows, words=range(7), name="contexts") if rows else None


def _named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more:,} more" if more > 0 else "")
