"""Reads CSV files (plain, or gzip by their name) with the line of every row, and writes files atomically."""

from __future__ import annotations

import csv
import gzip
import io
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

from windtunnel.core.errors import InputError, Location, nearest


@dataclass(frozen=True)
class Table:
    """A CSV file: its header, its rows as text, and the last line of each row (from 1)."""

    file: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]

    def column(self, name: str) -> list[str]:
        """Return the cells of a column without surrounding white space; raises ValueError if it does not exist."""
        at = self.header.index(name)
        return [row[at].strip() for row in self.rows]


def read_csv(path: Path, what: str, where: Location | None = None) -> Table:
    """Return the CSV file at ``path``, which error messages call ``what``.

    ``where`` is the place that names the file, if there is one.

    Raises:
        InputError: The file does not exist, is not readable, is not CSV, is empty, or has a row whose width differs
            from that of its header.
    """
    named = where or Location(str(path))
    shown = f"the {what} '{path}'" if where is not None else f"this {what}"
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except FileNotFoundError:
        siblings = sorted(p.name for p in path.parent.glob("*.csv*")) if path.parent.is_dir() else []
        problem = f"there is no {what} '{path}'" if where is not None else f"there is no such {what}"
        raise InputError(problem, where=named, nearest=nearest(path.name, siblings)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{shown} cannot be read: {reason}", where=named) from None
    except (EOFError, UnicodeDecodeError, ValueError, zlib.error) as error:
        raise InputError(f"{shown} cannot be read: {error}", where=named) from None
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        header = tuple(cell.strip() for cell in next(reader, []))
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(
                    f"this row has {len(row)} cells",
                    where=Location(str(path), reader.line_num),
                    expected=f"{len(header)}, as the header has",
                )
            rows.append(row)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise InputError(f"this is not CSV: {error}", where=Location(str(path), reader.line_num)) from None
    if not header:
        raise InputError(f"{shown} is empty", where=named, expected="a header and rows")
    repeated = [name for i, name in enumerate(header) if name in header[:i]]
    if repeated:
        raise InputError(f"the column '{repeated[0]}' is given twice", where=Location(str(path), 1, field=repeated[0]))
    return Table(str(path), header, rows, lines)


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
    if path.exists() and not path.is_file():
        raise InputError(
            "this is not a regular file", where=Location(str(path)), expected="the name of a file to write"
        )
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            if path.suffix == ".gz":
                with gzip.open(scratch, "wt", encoding="utf-8", newline="") as stream:
                    write(stream)
            else:
                with Path(scratch).open("w", encoding="utf-8", newline="") as stream:
                    write(stream)
            Path(scratch).chmod(0o644)
            Path(scratch).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(scratch).unlink()
            raise
    except OSError as error:
        raise InputError(
            f"this cannot be written: {error.strerror or error}", where=Location(str(path)), expected="a writable place"
        ) from None
