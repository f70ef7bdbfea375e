"""Tables of one operation: the rows of a CSV file as input of cost functions, grouped by their choices."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import overload

import numpy as np

from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.ops import Column, Operation, Rows
from windtunnel.core.ticks import FloatArray

_MIN_MEASURED, _MAX_MEASURED = 1e-12, 1e9
"""Range of valid measurements (s, W). The lower end is the tick of the simulation engines."""


class OpTable:
    """The rows of a table of one operation, with every cell checked.

    Columns that the operation does not have are kept in ``table`` and otherwise ignored. An empty cell means the
    default of its column.
    """

    def __init__(self, op: type[Operation], table: Table) -> None:
        self.op = op
        self.table = table
        self._numbers: dict[str, FloatArray] = {}
        self._words: dict[str, list[str]] = {}
        count = len(table.rows)
        for column in op.all_columns():
            if column.name in table.header:
                self._read(column)
            elif column.default is None:
                raise self._missing(column)
            elif not column.is_number:
                self._words[column.name] = self._defaults(column, count)
            else:
                self._numbers[column.name] = np.full(count, float(column.default))

    def _defaults(self, column: Column, count: int) -> list[str]:
        """Return the default of a choice for every row."""
        other, _ = self.op.follows.get(column.name, (None, {}))
        if other is None:
            return [str(column.default)] * count
        stated = self._words[other]
        words = {word: str(self.op.default_of(column, {other: word})) for word in set(stated)}
        return [words[word] for word in stated]

    def groups(self) -> Iterator[tuple[np.ndarray, Rows]]:
        """Yield groups of rows with the same choices: their indices in the table, and the rows."""
        members: dict[tuple[str, ...], list[int]] = {}
        if self._words:
            for place, words in enumerate(zip(*self._words.values(), strict=True)):
                members.setdefault(words, []).append(place)
        elif self.table.rows:
            members[()] = list(range(len(self.table.rows)))
        for words, places in members.items():
            index = np.array(places)
            choices = dict(zip(self._words, words, strict=True))
            yield index, Rows(self.op, choices, {name: values[index] for name, values in self._numbers.items()})

    @overload
    def measured(self, name: str) -> FloatArray: ...
    @overload
    def measured(self, name: str, *, optional: bool) -> FloatArray | None: ...
    def measured(self, name: str, *, optional: bool = False) -> FloatArray | None:
        """Return a column of measurements in SI units, one for each row.

        An ``optional`` column may be missing (None), or empty in some rows (NaN) or in all (None).

        Raises:
            InputError: The column is missing, or a cell is not a finite number above zero.
        """
        if name not in self.table.header:
            if optional:
                return None
            close = nearest(name, self.table.header)
            raise InputError(
                f"the table has no column '{name}'" + (f" (it has a column '{close}')" if close else ""),
                where=Location(self.table.file, 1),
                expected=f"'{name}' beside the columns of {self.op.name}",
                nearest=name if close else None,
            )
        values = np.empty(len(self.table.rows))
        for place, text in enumerate(self.table.column(name)):
            if optional and not text:
                values[place] = np.nan
                continue
            try:
                values[place] = float(text)
            except ValueError:
                values[place] = np.nan
            if not _MIN_MEASURED <= values[place] <= _MAX_MEASURED:
                raise InputError(
                    f"this is '{text}'",
                    where=self.where(place, name),
                    expected=f"a plain number in SI, from {_MIN_MEASURED:g} to {_MAX_MEASURED:g}",
                )
        return None if optional and np.isnan(values).all() else values

    def without(self, lines: Collection[int]) -> OpTable:
        """Return the same table without the rows at ``lines``."""
        kept = [place for place, line in enumerate(self.table.lines) if line not in lines]
        rows, left = [self.table.rows[place] for place in kept], [self.table.lines[place] for place in kept]
        return OpTable(self.op, replace(self.table, rows=rows, lines=left))

    @classmethod
    def refused_rows(cls, op: type[Operation], table: Table) -> dict[int, InputError]:
        """Return the first error of each row that has a cell which is not valid, by the row's index in the table."""
        refused: dict[int, InputError] = {}
        for column in op.all_columns():
            if column.name not in table.header:
                continue
            wrong: dict[str, InputError | None] = {}
            for place, text in enumerate(table.column(column.name)):
                if text not in wrong:
                    wrong[text] = _error_of(column, text)
                error = wrong[text]
                if error is not None:
                    refused.setdefault(place, error.at(Location(field=column.name)))
        return refused

    def where(self, place: int, column: str | None = None) -> Location:
        """Return the place of a row, for an error."""
        return Location(self.table.file, self.table.lines[place], field=column)

    def _read(self, column: Column) -> None:
        texts = self.table.column(column.name)
        parsed: dict[str, float | str] = {}
        for place, text in enumerate(texts):
            if text in parsed:
                continue
            try:
                parsed[text] = column.default if not text and column.default is not None else column.parse(text)
            except InputError as error:
                raise error.at(self.where(place, column.name)) from None
        if not column.is_number:
            defaults = self._defaults(column, len(texts)) if "" in parsed and column.name in self.op.follows else None
            self._words[column.name] = [
                defaults[place] if defaults is not None and not text else str(parsed[text])
                for place, text in enumerate(texts)
            ]
        else:
            self._numbers[column.name] = np.array([float(parsed[text]) for text in texts])

    def _missing(self, column: Column) -> InputError:
        names = {known_column.name for known_column in self.op.all_columns()}
        unknown = [name for name in self.table.header if name not in names]
        close = nearest(column.name, unknown)
        return InputError(
            f"the table has no column '{column.name}', which {self.op.name} needs"
            + (f" (it has a column '{close}')" if close else ""),
            where=Location(self.table.file, 1),
            expected=list_choices([known_column.name for known_column in self.op.columns]),
            nearest=column.name if close else None,
        )


def _error_of(column: Column, text: str) -> InputError | None:
    if not text and column.default is not None:
        return None
    try:
        column.parse(text)
    except InputError as error:
        return error
    return None


def read_op_table(op: type[Operation], path: Path) -> OpTable:
    """Return the table at ``path`` (``.csv`` or ``.csv.gz``), with a row for each instance of ``op``."""
    return OpTable(op, read_table(path, "table"))
