"""Lays out text for a terminal: tables in aligned columns, and rows with a label and wrapped text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap

from windtunnel.report.numbers import printable

WIDTH = 110
"""Characters in a line of text."""
MARGIN = 15
"""Characters before the text of a labelled row."""


def table_lines(rows: Sequence[Sequence[str]], align: str = "<", separator: str = "  ") -> list[str]:
    """Return ``rows`` as lines with aligned columns and without control characters.

    Args:
        rows: The cells; the first row is usually the header. All rows have the same length.
        align: ``<`` or ``>`` for each column; the last character holds for all further columns.
        separator: The text between two columns.
    """
    if not rows:
        return []
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = align.ljust(len(widths), align[-1])
    return [
        separator.join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in cells
    ]


def labelled(label: str, texts: str | Iterable[str]) -> list[str]:
    """Return one row with ``label`` for each text that follows from the first, wrapped to the width of a terminal."""
    texts = [texts] if isinstance(texts, str) else texts
    lines = [line for text in texts for line in wrap(printable(text), width=WIDTH - MARGIN)]
    return [f"{label if i == 0 else '':<{MARGIN}}{line}" for i, line in enumerate(lines)]


def labelled_table(label: str, rows: Sequence[Sequence[str]], align: str = ">", separator: str = "  ") -> list[str]:
    """Return a table whose first line has ``label`` before it."""
    lines = table_lines(rows, align, separator)
    return [f"{label if i == 0 else '':<{MARGIN}}{line}".rstrip() for i, line in enumerate(lines)]


def labelled_rows(rows: Sequence[Sequence[str]], align: str = ">", separator: str = "   ") -> list[str]:
    """Return a table whose first column holds the labels."""
    lines = table_lines([row[1:] for row in rows], align, separator)
    return [f"{row[0]:<{MARGIN}}{line}".rstrip() for row, line in zip(rows, lines, strict=True)]


def document(lines: Iterable[str]) -> str:
    """Return ``lines`` as text without trailing blanks."""
    return "\n".join(line.rstrip() for line in lines) + "\n"


def line_ranges(lines: Sequence[int]) -> str:
    """Return line numbers as text, with ranges: ``lines 2-5, 9``."""
    ranges: list[tuple[int, int]] = []
    for line in lines:
        if ranges and line == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    return f"line {text}" if len(lines) == 1 else f"lines {text}"
