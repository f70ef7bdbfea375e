"""The report of `windtunnel claims` as text: verdict, figures and reason of each claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from windtunnel.core.results.claims import ClaimVerdict

_WIDTH = 120
_INDENT = " " * 12


def claims_text(rows: Sequence[ClaimVerdict], verdicts: Sequence[str]) -> str:
    """Return the rows of `windtunnel claims` as text, by group, and the number of each of ``verdicts`` at the end.

    A verdict is independent if its model takes no number from the same documents and is no entry of the catalogue.
    """
    lines: list[str] = []
    for group, members in groupby(rows, key=lambda row: row.group):
        lines += [group]
        for row in members:
            lines.append(f"{row.verdict:<12}{row.claim}")
            lines.append(f"{_INDENT}{_figures(row)}")
            lines += wrap(row.why, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
        lines.append("")
    counts = Counter(row.verdict for row in rows)
    independent = Counter(row.verdict for row in rows if row.independent)
    shown = [
        f"{counts[verdict]} {verdict}" + (f" ({independent[verdict]} independent)" if verdict != "untested" else "")
        for verdict in verdicts
        if counts[verdict]
    ]
    return "\n".join([*lines, f"{len(rows)} claims: {', '.join(shown)}"])


def _figures(row: ClaimVerdict) -> str:
    unit = "" if row.unit == "x" else f" {row.unit}"
    parts = [f"stated {_stated(row)}{unit}"]
    for name, value in (("model", row.modelled), ("bound", row.bound)):
        if value is not None:
            parts.append(f"{name} {value:,.0f}{unit}" if value >= 1000 else f"{name} {value:.4g}{unit}")
    return ", ".join(parts) + (f" ({row.device})" if row.device else "")


def _stated(row: ClaimVerdict) -> str:
    low, high = row.stated_low, row.stated_high
    if high is None:
        return f"{low:g} and more"
    if low == high:
        return f"{high:,g}"
    return f"{low:g} to {high:g}" if low else f"below {high:g}"
