"""Reads files whole. What is not a regular file, or exceeds a stated limit, is refused before it is read.

What cannot be written is an error of the folder that the user named.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from windtunnel.core.errors import InputError, Location, list_choices, nearest_file

_MIB = 2**20
TEXT_BYTES = 64 * _MIB
"""The largest text in YAML or JSON: a scenario, a SKU file, an overlay, a document of measurements."""
CODE_BYTES = 4 * _MIB
"""The largest file of source code."""
ARRAY_BYTES = 256 * _MIB
"""The largest file of arrays beside an overlay."""
TABLE_BYTES = 1024 * _MIB
"""The largest table, as the file is and after it is decompressed."""


def check_file(path: Path, what: str, limit_bytes: int, where: Location | None = None) -> None:
    """Check that ``path`` is a regular file of at most ``limit_bytes``, without opening it.

    Args:
        path: The file.
        what: What error messages call the file.
        limit_bytes: The size of the largest file that is accepted.
        where: The place that names the file, if there is one.

    Raises:
        InputError: There is no such file (with the most similar name), or it is a folder, a device, a pipe or a
            socket, or it is larger.
    """
    named, shown = _names(path, what, where)
    try:
        state = path.stat()
    except FileNotFoundError:
        siblings = sorted(p.name for p in path.parent.glob("*")) if path.parent.is_dir() else []
        alike = [name for name in siblings if not path.suffix or path.suffixes[0] in name]
        problem = f"there is no {what} '{path}'" if where is not None else f"there is no such {what}"
        if not path.parent.is_dir():
            problem += f", and no folder '{path.parent}'"
        close = nearest_file(path.name, alike or siblings)
        expected = list_choices(alike, limit=6) if close is None and path.suffix and alike else None
        raise InputError(problem, where=named, expected=expected, nearest=close) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{shown} cannot be read: {_reason(error)}", where=named) from None
    if not stat.S_ISREG(state.st_mode):
        raise InputError(
            f"{shown} is {_type(state.st_mode)}, not a regular file", where=named, expected="the name of a file"
        )
    if state.st_size > limit_bytes:
        raise InputError(f"{shown} has {_size(state.st_size)}", where=named, expected=f"at most {_size(limit_bytes)}")


def read_bytes(path: Path, what: str, limit_bytes: int, where: Location | None = None) -> bytes:
    """Return the content of a regular file of at most ``limit_bytes``; see ``check_file``.

    Raises:
        InputError: as ``check_file`` does, or the file cannot be read.
    """
    check_file(path, what, limit_bytes, where)
    named, shown = _names(path, what, where)
    try:
        with path.open("rb") as stream:
            return _limited(stream, shown, limit_bytes, named)
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {_reason(error)}", where=named) from None


def decompressed(content: bytes, path: Path, what: str, limit_bytes: int, where: Location | None = None) -> bytes:
    """Return the content of a gzip file, of at most ``limit_bytes`` after decompression.

    Raises:
        InputError: The content is not gzip, is incomplete, or is larger.
    """
    import io

    named, shown = _names(path, what, where)
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            return _limited(stream, f"{shown}, decompressed,", limit_bytes, named)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise InputError(f"{shown} cannot be read: {_reason(error)}", where=named) from None


def _limited(stream: IO[bytes] | gzip.GzipFile, shown: str, limit_bytes: int, named: Location) -> bytes:
    content: bytes = stream.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise InputError(f"{shown} has more than {_size(limit_bytes)}", where=named, expected="a smaller file")
    return content


def _names(path: Path, what: str, where: Location | None) -> tuple[Location, str]:
    """Return the place that an error names, and the words for the file."""
    return where or Location(str(path)), f"the {what} '{path}'" if where is not None else f"this {what}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _type(mode: int) -> str:
    for is_type, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_type(mode):
            return name
    return "a device"


def _size(size: Any) -> str:
    """Return a size as text, in whole MiB where it is at least that."""
    return f"{size / _MIB:,.0f} MiB" if size >= _MIB else f"{size:,} bytes"


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Let this command alone put the files of its result into ``folder``, so that all of them are of one result.

    Another command that ends at the same time waits, and its files then replace these. A file system without locks has
    none; each file is still whole.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # which ends the lock


@contextmanager
def writing_output(folder: Path) -> Iterator[None]:
    """Raise an error of the operating system as one of the option ``--out``, which named the folder."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the output cannot be written: {error.strerror or error}",
            where=Location(str(folder), field="--out"),
            expected="a folder that can be written to",
        ) from None
