"""Reads and writes tables: CSV (plain, or gzip by its name) and Parquet. Writes files atomically."""

from __future__ import annotations

import csv
import gzip
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TextIO

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import TABLE_BYTES, decompressed, read_bytes
from windtunnel.core.memory import require_memory

_BYTES_PER_CELL, _BYTES_PER_ROW = 64.0, 128.0
"""Memory of a table as text: a short text is 50 to 60 bytes and its place in a list 8; a list is 56 bytes or more."""
_NAMED = 10
"""The most further lines with a wrong number of cells that a message names."""


@dataclass(frozen=True)
class Table:
    """A table: its header, its rows as text, and the last line of each row (from 1).

    The rows of a Parquet file have no lines: there ``lines`` are the numbers of the rows, from 1, and ``types`` the
    Arrow types of its columns by name.
    """

    file: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]
    types: Mapping[str, object] = field(default_factory=dict)

    def column(self, name: str) -> list[str]:
        """Return the cells of a column without surrounding white space; raises ValueError if it does not exist."""
        at = self.header.index(name)
        return [row[at].strip() for row in self.rows]


def read_table(path: Path, what: str, where: Location | None = None) -> Table:
    """Return the table at ``path``, which error messages call ``what``: Parquet if its name ends so, else CSV.

    ``where`` is the place that names the file, if there is one.

    Raises:
        InputError: The file does not exist, is not a regular file, is larger than 1 GiB (also after decompression), is
            not readable, is not a table, is empty, or has a row whose width differs from that of its header; or
            pyarrow, which reads Parquet, is not installed.
    """
    content = read_bytes(path, what, TABLE_BYTES, where)
    if path.suffix == ".parquet":
        from windtunnel.core.parquet import rows_of

        header, rows, types = rows_of(content, path, what, where)
        table = Table(str(path), header, rows, range(1, len(rows) + 1), types)
    else:
        table = _from_csv(content, path, what, where)
    if not table.header:
        shown = f"the {what} '{path}'" if where is not None else f"this {what}"
        raise InputError(f"{shown} is empty", where=where or Location(str(path)), expected="a header and rows")
    repeated = [name for i, name in enumerate(table.header) if name in table.header[:i]]
    if repeated:
        raise InputError(f"the column '{repeated[0]}' is given twice", where=Location(str(path), 1, field=repeated[0]))
    return table


def _from_csv(content: bytes, path: Path, what: str, where: Location | None) -> Table:
    named = where or Location(str(path))
    shown = f"the {what} '{path}'" if where is not None else f"this {what}"
    if path.suffix == ".gz":
        content = decompressed(content, path, what, TABLE_BYTES, where)
    count = content.count(b"\n")
    cells = content.count(b",") + count
    needed = 2.0 * len(content) + _BYTES_PER_CELL * cells + _BYTES_PER_ROW * count
    require_memory(needed, f"{shown}, with {count:,} lines,", named, "a table with fewer rows or columns")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} cannot be read: {error}", where=named) from None
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    uneven: list[tuple[int, int]] = []
    try:
        header = tuple(cell.strip() for cell in next(reader, []))
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                uneven.append((reader.line_num, len(row)))
                continue
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"this is not CSV: {error}", where=Location(str(path), reader.line_num)) from None
    if uneven:
        (line, cells), *others = uneven
        more = ", ".join(str(number) for number, _ in others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
        further = f"line {more} has" if len(others) == 1 else f"lines {more} have"
        raise InputError(
            f"this row has {cells} cells{f'; {further} a wrong number too' if others else ''}",
            where=Location(str(path), line),
            expected=f"{len(header)}, as the header has",
        )
    return Table(str(path), header, rows, lines)


Cell = str | float | int | None


def write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Cell]], types: Mapping[str, object] | None = None
) -> None:
    """Write a table atomically: Parquet or gzip by its name, else plain CSV.

    Args:
        path: The file.
        header: The names of the columns.
        rows: The cells of each row. Empty cells are empty text or None.
        types: The Arrow types of columns whose cells are text, for Parquet. Default: whole numbers, numbers or text,
            whatever holds all cells of the column.

    Raises:
        InputError: The file cannot be written, or pyarrow, which writes Parquet, is not installed.
    """
    if path.suffix == ".parquet":
        from windtunnel.core.parquet import write_rows

        replace_whole(path, partial(write_rows, header=header, rows=rows, types=types or {}))
        return

    def write(stream: TextIO) -> None:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)

    write_whole(path, write)


def write_texts(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts to files of ``folder`` by their names, each atomically; return their paths.

    Raises InputError if a file cannot be written.
    """
    for name, text in texts.items():
        write_whole(folder / name, partial(_write_text, text))
    return [folder / name for name in texts]


def _write_text(text: str, stream: TextIO) -> None:
    stream.write(text)


def write_whole(path: Path, write: Callable[[TextIO], None]) -> None:
    """Write a text file (gzip by its name) atomically; raises InputError if it cannot be written."""

    def written(scratch: Path) -> None:
        if path.suffix == ".gz":
            with gzip.open(scratch, "wt", encoding="utf-8", newline="") as stream:
                write(stream)
        else:
            with scratch.open("w", encoding="utf-8", newline="") as stream:
                write(stream)

    replace_whole(path, written)


def replace_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` write a file beside ``path``, and replace ``path`` by it; raises InputError if that fails."""
    if path.exists() and not path.is_file():
        raise InputError(
            "this is not a regular file", where=Location(str(path)), expected="the name of a file to write"
        )
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        scratch = Path(name)
        try:
            write(scratch)
            scratch.chmod(0o644)
            scratch.replace(path)
        except BaseException:
            with suppress(OSError):
                scratch.unlink()
            raise
    except OSError as error:
        raise InputError(
            f"this cannot be written: {error.strerror or error}", where=Location(str(path)), expected="a writable place"
        ) from None
