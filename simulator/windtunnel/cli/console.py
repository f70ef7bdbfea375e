"""Shared by the commands: options, progress on standard error, and printed tables and JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The output format.",
)
CATALOG = click.option(
    "--catalog", "catalogs", multiple=True, metavar="DIR", help="A folder with your own SKU files. Repeatable."
)
ENGINE = click.option("--engine", default="auto", show_default=True, help="auto, process or compiled.")
OUTSIDE_CODE = click.option(
    "--allow-outside-code", is_flag=True, help="Let a custom policy be in a file outside of the scenario's folder."
)
WITH = click.option(
    "--with",
    "hypothetical",
    multiple=True,
    metavar="SKU.FIELD=VALUE",
    help="Hardware that is not for sale: h200-sxm-141gb.memory_bandwidth=1.5x, or a quantity. Repeatable.",
)
PARQUET = click.option("--parquet", is_flag=True, help="Also write the table as Parquet (needs pyarrow).")
SEED = click.option("--seed", type=click.IntRange(0), help="Replace the seed of the scenario.")


LINE_EVERY_S = 30.0
"""The time between two lines of progress where standard error is no terminal."""


class Progress:
    """Progress on standard error: a bar on a terminal once the work has taken a second, else a line now and then."""

    def __init__(self, unit: str) -> None:
        self._unit = f" {unit}"
        self._began = self._told = time.monotonic()
        self._bar: Any = None
        self.first: int | None = None
        """The count at the first call: what was done before this run."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """Show that ``done`` units are finished, of ``total`` if the total is known."""
        self.first = done if self.first is None else self.first
        if self._bar is None:
            now, finished = time.monotonic(), total is not None and done >= total
            if not sys.stderr.isatty():
                if now - self._told >= LINE_EVERY_S and not finished:
                    self._told = now
                    of = "" if total is None else f" of {total:,}"
                    click.echo(f"{done:,}{of}{self._unit} finished after {now - self._began:.0f} s", err=True)
                return
            if now - self._began < 1 or finished:
                return
            from tqdm import tqdm

            tqdm.monitor_interval = 0  # a process with another thread must not be forked (core/forks.py)
            scaled = total is not None
            self._bar = tqdm(total=total, unit=self._unit, unit_scale=scaled, leave=False, file=sys.stderr)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


class StatusLine:
    """One line of standard error that names the current step, overwritten by the next; only on a terminal."""

    def __call__(self, text: str) -> None:
        """Show ``text``."""
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text[:100]}", err=True, nl=False)

    def close(self) -> None:
        """Remove the line."""
        self("")


class Failure(NamedTuple):
    """What the command line says of an exception: the exit code, and a message without the name of the program."""

    exit_code: int
    message: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Return what is said of an exception. What is no error of the input is a bug (70)."""
        from windtunnel.core.errors import WindtunnelError

        if isinstance(error, WindtunnelError):
            return cls(error.exit_code, str(error))
        if isinstance(error, OSError):
            return cls(2, f"{error.filename or 'the output'}: {error.strerror}")
        return cls(70, f"this is a bug in Windtunnel: {type(error).__name__}: {error}")


def pairs(values: Sequence[str], form: str = "KEY=VALUE", expected: str = "such as m=4096") -> dict[str, object]:
    """Parse words of a form such as ``KEY=VALUE``. Raises InputError for another form and for a repeated key."""
    from windtunnel.core.errors import InputError, Location

    parsed: dict[str, object] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"'{text}' is not {form}", where=Location(field=text), expected=expected)
        if key in parsed:
            raise InputError(f"'{key}' is given twice", where=Location(field=key), expected="each name once")
        parsed[key] = value
    return parsed


def with_changes(texts: Sequence[str]) -> list[str]:
    """Return values of ``--with`` as changes to a scenario; raises InputError for another form."""
    from windtunnel.core.errors import InputError, Location

    for text in texts:
        path, equals, value = text.partition("=")
        sku, dot, name = path.partition(".")
        if not (equals and dot and sku.strip() and name.strip() and value.strip()):
            raise InputError(
                f"'{text}' is not SKU.FIELD=VALUE",
                where=Location(field="--with"),
                expected="such as h200-sxm-141gb.memory_bandwidth=1.5x",
            )
    return [f"with.{text}" for text in texts]


def print_json(data: object) -> None:
    """Print one JSON document, of a result or of plain data, on standard output."""
    from windtunnel.core.results.data import result_json

    click.echo(result_json(data), nl=False)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on a result on standard error."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def print_written(paths: Iterable[Path]) -> None:
    """Print the path of each file that was written."""
    for path in paths:
        click.echo(f"wrote {path}")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a header and rows on standard output, in aligned columns."""
    from windtunnel.report.text import table_lines

    head, *lines = table_lines([header, *rows], "<")
    click.secho(head, bold=True)
    for line in lines:
        click.echo(line)
