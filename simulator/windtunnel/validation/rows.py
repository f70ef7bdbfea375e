"""Measurements of operations on devices, read from files and written to files.

A CSV file of one operation has the operation's columns (with the context), ``latency_s`` and optionally the columns of
``EXTRA``. `windtunnel calibrate` reads the same format. A JSON document has rows of any operations and the environment
of the measurements.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.core.columns import Columns
from windtunnel.core.csvfile import Table, read_table, write_table
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.files import TEXT_BYTES, read_bytes
from windtunnel.core.ops import CONTEXT, Operation
from windtunnel.core.optable import OpTable
from windtunnel.core.results.data import Result
from windtunnel.core.results.validation import Environment
from windtunnel.core.step_op import PREDICTED

EXTRA = ("power_w", "low_s", "high_s", "samples", "repeats", "timer", "note", "suspect", "error_over_tolerance")
"""Optional columns in addition to the operation's own and ``latency_s``. ``repeats`` has times with semicolons."""

_OLD_NAMES = {"error_share": "error_over_tolerance"}
"""Columns under their former names, which are still read."""

_DEVICE_COLUMNS = ("sku", "device")
"""Columns that name the device of a row; the first that a table has is used."""

SCHEMA = 1

_MUCH_ALIKE = 0.75
"""The similarity by difflib from which a header is a misspelt context: 'dispach' has 0.93, 'cahce' 0.8."""


@dataclass(frozen=True)
class Measurement:
    """One measured operation. Times are in seconds, of one operation.

    Attributes:
        device: The model that it is compared with: ``h100-sxm-80gb``, ``host@opencl``.
        source: The measured device, ``opencl:0``, or the file and the name in it.
        op: The operation.
        columns: All columns of the operation, parsed, with its context (dispatch, clock, cache).
        latency_s: The median of the samples.
        low_s: The lower end of the 95% interval of that median.
        high_s: The upper end.
        samples: The number of samples.
        repeats: The medians of independent repetitions, which show the error of one measurement.
        power_w: The average power during the operation (W).
        timer: ``device`` or ``host``.
        note: A remark.
        suspect: The reason not to use the measurement, or an empty string.
        error_over_tolerance: The error of the operation's results relative to its tolerance; above 1 they are wrong.
        line: The line of the file from which it was read.
        file: The name of that file.
    """

    device: str
    source: str
    op: str
    columns: Columns
    latency_s: float
    low_s: float | None = None
    high_s: float | None = None
    samples: int = 1
    repeats: tuple[float, ...] = ()
    power_w: float | None = None
    timer: str = ""
    note: str = ""
    suspect: str = ""
    error_over_tolerance: float | None = None
    line: int | None = None
    file: str = field(default="", compare=False)

    @property
    def where(self) -> Location:
        """The position of the row, for errors."""
        return Location(self.file or self.source, self.line)


@dataclass(frozen=True, kw_only=True)
class MeasurementDocument(Result):
    """A JSON document of measurements, which ``read_document`` reads."""

    schema: int = SCHEMA
    environment: Environment
    measurements: Sequence[Measurement]


def read_file(
    path: Path, *, op: str | None = None, device: str | None = None, context: Mapping[str, object] | None = None
) -> list[Measurement]:
    """Return the measurements of a file: CSV (plain or .gz), or a JSON ``MeasurementDocument``.

    Args:
        path: The file.
        op: The operation, if a CSV file has no column ``op`` of operations.
        device: The device, if the file does not name it.
        context: Values of dispatch, clock and cache, if the file has no such column.

    Raises:
        InputError: with file, line and field, if the file is not valid.
    """
    if path.suffix == ".json":
        if op is not None or context:
            raise InputError(
                "a JSON document states the operation and the context of its measurements",
                where=Location(str(path), field="--op" if op is not None else "--context"),
                expected="no such option",
            )
        measurements = read_document(path)
    else:
        table = read_table(path, "file of measurements")
        measurements = [
            row
            for found_op, part in _by_operation(table, op)
            for row in _rows_of(found_op, part, device, context or {})
        ]
    if not measurements:
        raise InputError("there is no measurement", where=Location(str(path)), expected="a header and rows")
    return measurements


def _by_operation(table: Table, name: str | None) -> Iterator[tuple[type[Operation], Table]]:
    """Yield each operation of a table with its rows. The own column ``op`` of elementwise does not name operations."""
    if name is not None:
        op = PREDICTED.find(name)
        if "op" not in table.header or _has_own(op):
            yield op, table
            return
        part = _part(table, [place for place, word in enumerate(table.column("op")) if word == name])
        if not part.rows:
            present = sorted(set(table.column("op")))
            raise InputError(
                f"no row is of {name}",
                where=Location(table.file, field="op"),
                expected=list_choices(present) if present else None,
                nearest=nearest(name, present),
            )
        yield op, part
        return
    if "op" not in table.header:
        raise InputError(
            "the operation is not stated", where=Location(table.file, 1), expected="--op OPERATION, or a column 'op'"
        )
    words = table.column("op")
    for op in (PREDICTED.find(operation) for operation in PREDICTED):
        if words and _has_own(op) and set(words) <= {*op.column("op").choices}:
            raise InputError(
                f"the column 'op' is that of {op.name} itself ({', '.join(sorted(set(words))[:3])})",
                where=Location(table.file, 1, field="op"),
                expected=f"--op {op.name}",
                nearest=f"--op {op.name}",
            )
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    for word, of in places.items():
        try:
            op = PREDICTED.find(word)
        except InputError as error:
            raise error.at(Location(table.file, table.lines[of[0]], field="op")) from None
        if _has_own(op):
            raise InputError(
                f"{word} has its own column 'op', so it cannot be in a table of several operations",
                where=Location(table.file, table.lines[of[0]], field="op"),
                expected=f"its rows in a separate file, with --op {word}",
            )
        yield op, _part(table, of)


def _has_own(op: type[Operation]) -> bool:
    return any(column.name == "op" for column in op.columns)


def _part(table: Table, places: Sequence[int]) -> Table:
    return Table(table.file, table.header, [table.rows[p] for p in places], [table.lines[p] for p in places])


def _rows_of(
    op: type[Operation], table: Table, device: str | None, context: Mapping[str, object]
) -> Iterator[Measurement]:
    table = _with_context(op, table, context)
    _check_header(op, table)
    rows = OpTable(op, table)
    seconds = rows.measured("latency_s").tolist()
    optional = {name: rows.measured(name, optional=True) for name in ("power_w", "low_s", "high_s")}
    numbers = {
        name: [None] * len(seconds) if values is None else [None if math.isnan(v) else v for v in values.tolist()]
        for name, values in optional.items()
    }
    own = {column.name for column in op.all_columns()}
    words = {name: table.column(name) for name in ("timer", "note", "suspect") if name in {*table.header} - own}
    names = _device_names(table, device)
    sources = table.column("source") if "source" in {*table.header} - own else None
    columns: list[dict[str, float | str]] = [{}] * len(seconds)
    for places, group in rows.groups():
        lists = {name: values.tolist() for name, values in group.numbers.items()}
        for i, place in enumerate(places.tolist()):
            columns[place] = {
                column.name: lists[column.name][i] if column.is_number else group.choices[column.name]
                for column in op.all_columns()
            }
    counts, repeats = _counts(rows, table), _repeats(rows, table)
    errors = _errors(rows, table)
    file = Path(table.file).name
    for place, latency_s in enumerate(seconds):
        low_s, high_s = numbers["low_s"][place], numbers["high_s"][place]
        _check_interval(low_s, latency_s, high_s, partial(rows.where, place))
        yield Measurement(
            device=names[place],
            source=(sources[place] if sources is not None else "") or file,
            op=op.name,
            columns=columns[place],
            latency_s=latency_s,
            low_s=low_s,
            high_s=high_s,
            samples=counts[place],
            repeats=repeats[place],
            power_w=numbers["power_w"][place],
            error_over_tolerance=errors[place],
            line=table.lines[place],
            file=file,
            **{name: values[place] for name, values in words.items()},
        )


def _check_interval(
    low_s: float | None, latency_s: float, high_s: float | None, where: Callable[[str], Location]
) -> None:
    if (low_s is not None and low_s > latency_s) or (high_s is not None and high_s < latency_s):
        raise InputError(
            f"the interval is {low_s} to {high_s} and the median {latency_s}",
            where=where("low_s" if low_s is not None and low_s > latency_s else "high_s"),
            expected="low_s <= latency_s <= high_s",
        )


def _check_header(op: type[Operation], table: Table) -> None:
    """Raise InputError for a misspelt column of the context, because every figure would be of another context."""
    if not op.hardware:
        return
    for column in CONTEXT:
        if column.name in table.header:
            continue
        for name in table.header:
            if difflib.SequenceMatcher(None, name.casefold(), column.name).ratio() >= _MUCH_ALIKE:
                raise InputError(
                    f"'{name}' is not a column of {op.name}",
                    where=Location(table.file, 1, field=name),
                    expected=f"a name less similar to '{column.name}', if it means something else",
                    nearest=column.name,
                )


def _with_context(op: type[Operation], table: Table, context: Mapping[str, object]) -> Table:
    """Return the table with a column for each given part of the context."""
    known = [column.name for column in CONTEXT] if op.hardware else []
    for name in context:
        where = Location(field=f"--context {name}")
        if name not in known:
            raise InputError(
                f"'{name}' is not a part of the context of {op.name}",
                where=where,
                expected=list_choices(known) if known else "no context: its time is stated",
                nearest=nearest(name, known),
            )
        if name in table.header:
            raise InputError(
                f"'{table.file}' has a column '{name}'",
                where=where,
                expected="only columns that the file does not have",
            )
    if not context:
        return table
    try:
        cells = [str(op.column(name).parse(value)) for name, value in context.items()]
    except InputError as error:
        raise error.at(Location(field="--context")) from None
    return Table(table.file, (*table.header, *context), [[*row, *cells] for row in table.rows], table.lines)


def _device_names(table: Table, device: str | None) -> list[str]:
    present = [name for name in _DEVICE_COLUMNS if name in table.header]
    if len(present) == 2:
        for line, first, second in zip(table.lines, *map(table.column, present), strict=True):
            if first != second:
                raise InputError(
                    f"the row is of '{first}' by its {present[0]} and of '{second}' by its {present[1]}",
                    where=Location(table.file, line, field=present[1]),
                    expected="one device",
                )
    for name in _DEVICE_COLUMNS:
        if name in table.header:
            cells = table.column(name)
            for place, cell in enumerate(cells):
                if not cell:
                    raise InputError(
                        "this row does not name its device",
                        where=Location(table.file, table.lines[place], field=name),
                        expected="a SKU, or SKU@API",
                    )
            return cells
    if device is None:
        raise InputError(
            "the device is not stated",
            where=Location(table.file, 1),
            expected="--device SKU, or a column 'sku' or 'device'",
        )
    return [device] * len(table.rows)


def _counts(rows: OpTable, table: Table) -> list[int]:
    if "samples" not in table.header:
        return [1] * len(table.rows)
    counts = []
    for place, text in enumerate(table.column("samples")):
        if text and not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"this is '{text}'", where=rows.where(place, "samples"), expected="a whole number from 1")
        counts.append(int(text) if text else 1)
    return counts


def _repeats(rows: OpTable, table: Table) -> list[tuple[float, ...]]:
    if "repeats" not in table.header:
        return [()] * len(table.rows)
    repeats = []
    for place, text in enumerate(table.column("repeats")):
        try:
            times = tuple(float(part) for part in text.split(";")) if text else ()
        except ValueError:
            times = (math.nan,)
        if not all(1e-12 <= time <= 1e9 for time in times):
            raise InputError(
                f"this is '{text}'",
                where=rows.where(place, "repeats"),
                expected="seconds separated by semicolons: 1.2e-5;1.3e-5",
            )
        repeats.append(times)
    return repeats


def _errors(rows: OpTable, table: Table) -> list[float | None]:
    name = next((name for name in ("error_over_tolerance", *_OLD_NAMES) if name in table.header), None)
    if name is None:
        return [None] * len(table.rows)
    errors: list[float | None] = []
    for place, text in enumerate(table.column(name)):
        try:
            error = float(text) if text else None
        except ValueError:
            error = math.nan
        if error is not None and not 0.0 <= error < math.inf:
            raise InputError(f"this is '{text}'", where=rows.where(place, name), expected="0 or more")
        errors.append(error)
    return errors


def write_rows(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write measurements of one operation and device as a CSV file (gzip by its name), completely or not at all."""
    op = PREDICTED.find(measurements[0].op)
    if any(row.op != op.name for row in measurements):
        raise ValueError("a file contains the rows of one operation")
    kept = [name for name in EXTRA if any(_cell(name, row) for row in measurements)]
    own = op.all_columns()
    lead = ["device", "source"] if _has_own(op) else ["device", "source", "op"]

    rows = (
        [
            *(str(getattr(row, name)) for name in lead),
            *(_plain(row.columns[column.name]) for column in own),
            repr(row.latency_s),
            *(_cell(name, row) for name in kept),
        ]
        for row in measurements
    )
    write_table(path, [*lead, *(column.name for column in own), "latency_s", *kept], rows)


def _cell(name: str, row: Measurement) -> str:
    value = getattr(row, name)
    if name == "repeats":
        return ";".join(map(repr, value))
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.0f}" if float(value).is_integer() else repr(value)


def read_document(path: Path) -> list[Measurement]:
    """Return the measurements of a JSON document.

    Raises:
        InputError: with the row and the field, if the document is not valid.
    """
    try:
        data = json.loads(read_bytes(path, "file of measurements", TEXT_BYTES).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"this cannot be read as JSON: {error}", where=Location(str(path))) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("measurements"), list):
        raise InputError(
            "this is not a document of measurements",
            where=Location(str(path)),
            expected=f'{{"schema": {SCHEMA}, "measurements": [...]}}, as `windtunnel validate --out` writes it',
        )
    return [_from_json(entry, str(path), f"measurements[{i}]") for i, entry in enumerate(data["measurements"])]


_TEXTS = ("device", "source", "op")
_OPTIONAL_TEXTS = ("timer", "note", "suspect", "file")


def _from_json(entry: Any, file: str, at: str) -> Measurement:
    names = [attribute.name for attribute in fields(Measurement)]
    if not isinstance(entry, dict):
        raise InputError("this is not a measurement", where=Location(file, field=at), expected="an object")
    entry = {_OLD_NAMES.get(name, name): value for name, value in entry.items()}
    for name in entry:
        if name not in names:
            raise InputError(
                f"a measurement has no '{name}'",
                where=Location(file, field=f"{at}.{name}"),
                expected=list_choices(names, 20),
                nearest=nearest(name, names),
            )
    _check_types(entry, file, at)
    try:
        columns = PREDICTED.find(entry["op"]).complete(entry["columns"])
    except InputError as error:
        raise error.at(Location(file, field=f"{at}.columns")) from None
    _check_numbers(entry, file, at)
    row = Measurement(**{**entry, "columns": columns, "repeats": tuple(map(float, entry.get("repeats", [])))})
    _check_interval(row.low_s, row.latency_s, row.high_s, lambda name: Location(file, field=f"{at}.{name}"))
    return row


def _check_types(entry: Mapping[str, object], file: str, at: str) -> None:
    """Raise InputError unless texts, columns and the line of a measurement have the right type."""
    for name in (*_TEXTS, "columns", "latency_s"):
        expected_type = str if name in _TEXTS else dict if name == "columns" else (int, float)
        if not isinstance(entry.get(name), expected_type) or isinstance(entry.get(name), bool):
            expected = {"columns": "an object", "latency_s": "seconds"}.get(name, "text")
            where = Location(file, field=f"{at}.{name}")
            raise InputError(f"'{name}' is missing or has a wrong type", where=where, expected=expected)
    for name in _OPTIONAL_TEXTS:
        if not isinstance(entry.get(name, ""), str):
            raise InputError(f"this is {entry[name]!r}", where=Location(file, field=f"{at}.{name}"), expected="text")
    line = entry.get("line")
    if line is not None and (isinstance(line, bool) or not isinstance(line, int)):
        raise InputError(f"this is {line!r}", where=Location(file, field=f"{at}.line"), expected="a line, or null")


def _check_numbers(entry: Mapping[str, object], file: str, at: str) -> None:
    """Raise InputError unless the numbers of a measurement are in range."""
    for name in ("latency_s", "low_s", "high_s", "power_w", "error_over_tolerance", "samples"):
        value = entry.get(name)
        least = 0.0 if name == "error_over_tolerance" else 1 if name == "samples" else 1e-12
        wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e9
        if value is not None and wrong:
            raise InputError(
                f"this is {value!r}", where=Location(file, field=f"{at}.{name}"), expected="a number in SI"
            )
    repeats = entry.get("repeats", [])
    if not isinstance(repeats, list) or not all(
        isinstance(time, (int, float)) and not isinstance(time, bool) and 1e-12 <= time <= 1e9 for time in repeats
    ):
        raise InputError(
            f"this is {repeats!r}", where=Location(file, field=f"{at}.repeats"), expected="a list of seconds"
        )
