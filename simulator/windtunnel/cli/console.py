"""Shared by the commands: options, progress on standard error, and printed tables and JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

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


class Progress:
    """A progress bar on standard error once a run has taken a second, where standard error is a terminal."""

    def __init__(self, unit: str = " jobs") -> None:
        self._unit = unit
        self._began = time.monotonic()
        self._bar: Any = None
        self.first: int | None = None
        """What was done when it was first told of anything."""

    def __call__(self, done: int, total: int) -> None:
        self.first = done if self.first is None else self.first
        if self._bar is None:
            if time.monotonic() - self._began < 1 or done >= total or not sys.stderr.isatty():
                return
            from tqdm import tqdm

            self._bar = tqdm(total=total, unit=self._unit, unit_scale=True, leave=False, file=sys.stderr)
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()


class Counter:
    """A running count on standard error once the work has taken a second, where standard error is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._began < 1 or not sys.stderr.isatty():
                return
            from tqdm import tqdm

            self._bar = tqdm(unit=f" {self._what}", leave=False, file=sys.stderr)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        """Take the count away."""
        if self._bar is not None:
            self._bar.close()


class Told:
    """What is being done now, on a line of standard error that is written over; nothing where that is no terminal."""

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text[:100]}", err=True, nl=False)

    def close(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)


def pairs(values: Sequence[str]) -> dict[str, object]:
    """Parse ``KEY=VALUE`` words. Raises InputError for another form and for a repeated key."""
    from windtunnel.core.errors import InputError, Where

    found: dict[str, object] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"'{text}' is not KEY=VALUE", where=Where(field=text), expected="such as m=4096")
        if key in found:
            raise InputError(f"'{key}' is given twice", where=Where(field=key), expected="each column once")
        found[key] = value
    return found


def print_json(data: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a header and rows on standard output, in aligned columns."""
    from windtunnel.report.text import table_lines

    head, *lines = table_lines([header, *rows], "<")
    click.secho(head, bold=True)
    for line in lines:
        click.echo(line)
