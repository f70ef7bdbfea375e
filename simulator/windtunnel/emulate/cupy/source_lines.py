"""Where kernels in C stand in a program: most are texts in its Python files, and findings name the lines there."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from pathlib import Path

from windtunnel.core.errors import caller

Origins = Sequence[tuple[str, int]]
"""For each line of a text, the file and line that it comes from."""
_LIKENESS = 0.5
"""The share of the lines of a text that must stand in a file, one after another, for it to be that text's place."""
_SUFFIXES = (".cu", ".cuh", ".cpp", ".c", ".h", ".txt")


def origins_of(code: str, name: str, *, at: tuple[str, int] | None = None) -> Origins:
    """Return the place of each line of a text, which is in the file of the caller or in a C file beside it.

    ``at`` is the file and line of the caller. Lines of a text that is in no file have the place ``<name>``.
    """
    file, line = caller() if at is None else at
    lines = code.splitlines() or [""]
    beside = Path(file).parent
    files = [file]
    if beside.is_dir() and not file.startswith("<"):
        files += (
            [str(one) for one in sorted(beside.rglob("*")) if one.suffix in _SUFFIXES][:100] if len(lines) > 1 else []
        )
    for one in files:
        start = _start_in([text.rstrip("\n") for text in linecache.getlines(one)], lines, line if one == file else 1)
        if start is not None:
            return [(one, start + number) for number in range(len(lines))]
    return [(f"<{name}>", number) for number in range(1, len(lines) + 1)]


def _start_in(text: Sequence[str], lines: Sequence[str], near: int) -> int | None:
    """Return the number of the line of a file at which some lines begin; the nearest place if there are several."""
    shown = [(number, one.strip()) for number, one in enumerate(lines) if one.strip()]
    if not shown:
        return None
    if len(shown) == 1:
        number, only = shown[0]
        found = [at - number for at, one in enumerate(text, 1) if only in one]
        return min(found, key=lambda start: abs(start - near), default=None)
    stripped = [one.strip() for one in text]
    number, longest = max(shown, key=lambda pair: len(pair[1]))
    best: tuple[float, int, int] | None = None
    for at, one in enumerate(stripped):
        if longest in one:
            start = at - number
            same = sum(
                0 <= start + k < len(stripped) and (stripped[start + k] == want or want in stripped[start + k])
                for k, want in shown
            )
            rank = (same / len(shown), -abs(start + 1 - near), start + 1)
            best = rank if best is None else max(best, rank)
    return best[2] if best is not None and best[0] >= _LIKENESS else None


class SourceText:
    """A text for the compiler whose lines come from several places."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._origins: list[tuple[str, int]] = []

    def add(self, text: str, origins: Origins | None = None, *, indent: str = "") -> None:
        """Add lines; without origins they are generated ones, near what was added before."""
        lines = text.splitlines()
        near = self._origins[-1] if self._origins else (f"<{self.name}>", 1)
        for number, line in enumerate(lines):
            self._lines.append(indent + line)
            self._origins.append(origins[number] if origins is not None and number < len(origins) else near)

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join((*self._lines, ""))

    @property
    def origins(self) -> Origins:
        """The place of each line."""
        return self._origins
