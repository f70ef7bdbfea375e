"""What a file is that is no source, or lacks: binary files, and headers that are not found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel import csource
from windtunnel.core.errors import InputError
from windtunnel.csource.includes import INCLUDE, NAMED, without_comments

_FIRST_BYTES = 1 << 16
_OWN = Path(csource.__file__).parent / "prelude"


def missing_headers(file: Path, folders: Sequence[str]) -> list[str]:
    """Return the headers that a file includes and that are nowhere, such as ``<cub/cub.cuh> (line 3)``."""
    try:
        text = without_comments(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return []
    places = [file.parent, *map(Path, folders), _OWN]
    missing = []
    for found in INCLUDE.finditer(text):
        named = NAMED.match(found[2])
        name = named and (named[1] or named[2])
        if named and name and not any((place / name).is_file() for place in places):
            missing.append(f"{named[0]} (line {text.count(chr(10), 0, found.start()) + 1})")
    return missing


def naming_headers(error: InputError, file: Path, folders: Sequence[str]) -> InputError:
    """Return an error of a source, with the headers that are not found, which may be its cause."""
    missing = [] if error.expected or error.where.file != str(file) else missing_headers(file, folders)
    if not missing or "file not found" in error.problem:
        return error
    expected = f"the header {', '.join(missing)}, which is not found and is taken as empty; -I DIR names its folder"
    return InputError(error.problem, where=error.where, expected=expected, nearest=error.nearest)


def is_binary(file: Path) -> bool:
    """Return whether a file is no text: it has a byte of 0 among its first ones. False for one that cannot be read."""
    try:
        with file.open("rb") as opened:
            return b"\0" in opened.read(_FIRST_BYTES)
    except OSError:
        return False  # whoever reads it says so
