"""Measurements: what was measured of one operation on one device, read from files and written to them.

A CSV file of one operation has the operation's columns (context included), ``latency_s`` and, where there is more to
say, the columns of ``EXTRA``. It is what `windtunnel calibrate` reads as well. A JSON document has the same rows of any
operations, with the circumstances they were measured under.
"""

from __future__ import annotations

import csv
import difflib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from windtunnel.core.csvfile import Table, read_csv, write_whole
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.ops import CONTEXT, OPERATIONS, Operation
from windtunnel.core.optable import OpTable
from windtunnel.runtime.trial import Conditions

EXTRA = ("power_w", "low_s", "high_s", "samples", "repeats", "timer", "note", "suspect", "error_share")
"""Columns beside the operation's own and ``latency_s``, all optional. ``repeats`` has semicolons between its times."""

_DEVICE_COLUMNS = ("sku", "device")
"""Columns that say which device a row is of; the first that a table has counts."""

SCHEMA = 1

_MUCH_ALIKE = 0.75
"""Of letters, as difflib counts them: 'dispach' is 0.93 like 'dispatch', 'cahce' 0.8 like 'cache'."""


@dataclass(frozen=True)
class Measurement:
    """One operation, measured. Times are in seconds, of one operation.

    ``latency_s`` is the median of ``samples`` samples and ``low_s`` to ``high_s`` the 95% interval of that median;
    ``repeats`` are the medians of independent repetitions, which tell how far one measurement may be off.
    """

    device: str
    """The model it is compared with: ``h100-sxm-80gb``, ``host@opencl``."""
    source: str
    """What was measured: ``opencl:0``, or the file and the name in it."""
    op: str
    columns: Mapping[str, float | str]
    """All columns of the operation, parsed, its context (dispatch, clock, cache) with them."""
    latency_s: float
    low_s: float | None = None
    high_s: float | None = None
    samples: int = 1
    repeats: tuple[float, ...] = ()
    power_w: float | None = None
    """Average power while it ran (W)."""
    timer: str = ""
    """Whose clock: ``device`` or ``host``."""
    note: str = ""
    suspect: str = ""
    """Why it is not to be trusted; empty where nothing speaks against it."""
    error_share: float | None = None
    """How far the numbers that came out were off, as a share of what is allowed; above 1 they were wrong."""
    line: int | None = None
    """The line of the file it was read from."""

    @property
    def where(self) -> Where:
        """Its place, for an error."""
        return Where(self.source, self.line)


@dataclass(frozen=True)
class Circumstances:
    """What a committed measurement has beside it. What nobody knows is left empty, never guessed."""

    host: str = ""
    """The machine: processor and operating system."""
    driver: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Libraries and their versions."""
    clocks: Mapping[str, float] = field(default_factory=dict)
    """Clocks as the driver states them (Hz), by name, and when: at the begin, at the end, lowest, highest."""
    date: str = ""
    """ISO 8601, UTC."""
    command: str = ""
    conditions: Mapping[str, Mapping[str, Conditions]] = field(default_factory=dict)
    """By device, clocks, power, heat and what held clocks back: see ``measure.Measured.conditions``."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        told = {device: {when: dict(each) for when, each in of.items()} for device, of in self.conditions.items()}
        return {**self.__dict__, "versions": dict(self.versions), "clocks": dict(self.clocks), "conditions": told}


def read_file(
    path: Path, *, op: str | None = None, device: str | None = None, context: Mapping[str, object] | None = None
) -> list[Measurement]:
    """The measurements of a file: CSV (plain or .gz), or JSON as ``document`` makes it.

    ``op``: what the rows are of, where a CSV file has no column ``op`` of operations. ``device``: whose
    they are where the file does not say. ``context``: dispatch, clock, cache, where the file has no such column.
    Raises InputError with file, line and field for anything else.
    """
    if path.suffix == ".json":
        if op is not None or context:
            raise InputError(
                "a JSON document of measurements says of what and in which context they are",
                where=Where(str(path), field="--op" if op is not None else "--context"),
                expected="neither with it",
            )
        found = read_document(path)
    else:
        table = read_csv(path, "file of measurements")
        found = [row for one, part in _by_operation(table, op) for row in _rows_of(one, part, device, context or {})]
    if not found:
        raise InputError("there is no measurement", where=Where(str(path)), expected="a header and rows")
    return found


def _by_operation(table: Table, name: str | None) -> Iterator[tuple[type[Operation], Table]]:
    """Each operation of a table with its rows; the operation's own column ``op`` (elementwise) is none of these."""
    if name is not None:
        op = OPERATIONS.find(name)
        if "op" not in table.header or _has_own(op):
            yield op, table
            return
        part = _part(table, [place for place, word in enumerate(table.column("op")) if word == name])
        if not part.rows:
            said = sorted(set(table.column("op")))
            raise InputError(
                f"no row is of {name}",
                where=Where(table.file, field="op"),
                expected=one_of(said) if said else None,
                nearest=nearest(name, said),
            )
        yield op, part
        return
    if "op" not in table.header:
        raise InputError(
            "nothing says which operation was measured",
            where=Where(table.file, 1),
            expected="--op OPERATION, or a column 'op'",
        )
    words = table.column("op")
    for op in (OPERATIONS.find(known) for known in OPERATIONS):
        if words and _has_own(op) and set(words) <= {*op.column("op").choices}:
            raise InputError(
                f"the column 'op' is that of {op.name} itself ({', '.join(sorted(set(words))[:3])})",
                where=Where(table.file, 1, field="op"),
                expected=f"--op {op.name}",
                nearest=f"--op {op.name}",
            )
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    for word, of in places.items():
        try:
            op = OPERATIONS.find(word)
        except InputError as error:
            raise error.at(Where(table.file, table.lines[of[0]], field="op")) from None
        if _has_own(op):
            raise InputError(
                f"{word} has a column 'op' of its own, which this table cannot say as well",
                where=Where(table.file, table.lines[of[0]], field="op"),
                expected=f"its rows in a file of their own, and --op {word}",
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
    said = table.column("source") if "source" in {*table.header} - own else None
    columns: list[dict[str, float | str]] = [{}] * len(seconds)
    for places, group in rows.groups():
        lists = {name: values.tolist() for name, values in group.numbers.items()}
        for i, place in enumerate(places.tolist()):
            columns[place] = {
                column.name: group.choices[column.name] if column.kind == "choice" else lists[column.name][i]
                for column in op.all_columns()
            }
    counts, repeats = _counts(rows, table), _repeats(rows, table)
    shares = _shares(rows, table)
    file = Path(table.file).name
    for place, latency_s in enumerate(seconds):
        low_s, high_s = numbers["low_s"][place], numbers["high_s"][place]
        _check_interval(low_s, latency_s, high_s, partial(rows.where, place))
        yield Measurement(
            device=names[place],
            source=(said[place] if said is not None else "") or file,
            op=op.name,
            columns=columns[place],
            latency_s=latency_s,
            low_s=low_s,
            high_s=high_s,
            samples=counts[place],
            repeats=repeats[place],
            power_w=numbers["power_w"][place],
            error_share=shares[place],
            line=table.lines[place],
            **{name: values[place] for name, values in words.items()},
        )


def _check_interval(low_s: float | None, latency_s: float, high_s: float | None, where: Callable[[str], Where]) -> None:
    if (low_s is not None and low_s > latency_s) or (high_s is not None and high_s < latency_s):
        raise InputError(
            f"the interval is {low_s} to {high_s} and the median {latency_s}",
            where=where("low_s" if low_s is not None and low_s > latency_s else "high_s"),
            expected="low_s <= latency_s <= high_s",
        )


def _check_header(op: type[Operation], table: Table) -> None:
    """Refuse what looks like a part of the context, misspelt: every figure would be of another context."""
    if not op.hardware:
        return
    for column in CONTEXT:
        if column.name in table.header:
            continue
        for name in table.header:
            if difflib.SequenceMatcher(None, name.casefold(), column.name).ratio() >= _MUCH_ALIKE:
                raise InputError(
                    f"'{name}' is no column of {op.name}",
                    where=Where(table.file, 1, field=name),
                    expected=f"a name less like '{column.name}', if it is another thing",
                    nearest=column.name,
                )


def _with_context(op: type[Operation], table: Table, context: Mapping[str, object]) -> Table:
    """The table with a column for each part of the context that was given beside it."""
    known = [column.name for column in CONTEXT] if op.hardware else []
    for name in context:
        where = Where(field=f"--context {name}")
        if name not in known:
            raise InputError(
                f"'{name}' is no part of the context of {op.name}",
                where=where,
                expected=one_of(known) if known else "no context: its time is stated",
                nearest=nearest(name, known),
            )
        if name in table.header:
            raise InputError(
                f"'{table.file}' has a column '{name}'", where=where, expected="only what the file does not say"
            )
    if not context:
        return table
    try:
        cells = [str(op.column(name).parse(value)) for name, value in context.items()]
    except InputError as error:
        raise error.at(Where(field="--context")) from None
    return Table(table.file, (*table.header, *context), [[*row, *cells] for row in table.rows], table.lines)


def _device_names(table: Table, device: str | None) -> list[str]:
    present = [name for name in _DEVICE_COLUMNS if name in table.header]
    if len(present) == 2:
        for line, one, other in zip(table.lines, *map(table.column, present), strict=True):
            if one != other:
                raise InputError(
                    f"the row is of '{one}' by its {present[0]} and of '{other}' by its {present[1]}",
                    where=Where(table.file, line, field=present[1]),
                    expected="one device",
                )
    for name in _DEVICE_COLUMNS:
        if name in table.header:
            cells = table.column(name)
            for place, cell in enumerate(cells):
                if not cell:
                    raise InputError(
                        "this row does not say which device it is of",
                        where=Where(table.file, table.lines[place], field=name),
                        expected="a SKU, or SKU@API",
                    )
            return cells
    if device is None:
        raise InputError(
            "nothing says which device was measured",
            where=Where(table.file, 1),
            expected="--device SKU, or a column 'sku' or 'device'",
        )
    return [device] * len(table.rows)


def _counts(rows: OpTable, table: Table) -> list[int]:
    if "samples" not in table.header:
        return [1] * len(table.rows)
    found = []
    for place, text in enumerate(table.column("samples")):
        if text and not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"this is '{text}'", where=rows.where(place, "samples"), expected="a whole number from 1")
        found.append(int(text) if text else 1)
    return found


def _repeats(rows: OpTable, table: Table) -> list[tuple[float, ...]]:
    if "repeats" not in table.header:
        return [()] * len(table.rows)
    found = []
    for place, text in enumerate(table.column("repeats")):
        try:
            times = tuple(float(part) for part in text.split(";")) if text else ()
        except ValueError:
            times = (math.nan,)
        if not all(1e-12 <= time <= 1e9 for time in times):
            raise InputError(
                f"this is '{text}'",
                where=rows.where(place, "repeats"),
                expected="seconds with semicolons between them: 1.2e-5;1.3e-5",
            )
        found.append(times)
    return found


def _shares(rows: OpTable, table: Table) -> list[float | None]:
    if "error_share" not in table.header:
        return [None] * len(table.rows)
    found: list[float | None] = []
    for place, text in enumerate(table.column("error_share")):
        try:
            share = float(text) if text else None
        except ValueError:
            share = math.nan
        if share is not None and not 0.0 <= share < math.inf:
            raise InputError(f"this is '{text}'", where=rows.where(place, "error_share"), expected="0 or more")
        found.append(share)
    return found


def write_rows(path: Path, measurements: Sequence[Measurement]) -> None:
    """Write measurements of one operation as a CSV file (gzip by its name), whole or not at all.

    All of one device: `windtunnel calibrate` takes a file's rows as measurements of the device it is told.
    """
    op = OPERATIONS.find(measurements[0].op)
    if any(row.op != op.name for row in measurements):
        raise ValueError("a file has the rows of one operation")
    kept = [name for name in EXTRA if any(_cell(name, row) for row in measurements)]
    own = op.all_columns()
    lead = ["device", "source"] if _has_own(op) else ["device", "source", "op"]

    def write(stream: TextIO) -> None:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*lead, *(column.name for column in own), "latency_s", *kept])
        for row in measurements:
            cells = [_plain(row.columns[column.name]) for column in own]
            named = [str(getattr(row, name)) for name in lead]
            writer.writerow([*named, *cells, repr(row.latency_s), *(_cell(name, row) for name in kept)])

    write_whole(path, write)


def _cell(name: str, row: Measurement) -> str:
    value = getattr(row, name)
    if name == "repeats":
        return ";".join(map(repr, value))
    return "" if value is None else value if isinstance(value, str) else repr(value)


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.0f}" if float(value).is_integer() else repr(value)


def document(measurements: Iterable[Measurement], circumstances: Circumstances) -> dict[str, Any]:
    """The rows and the circumstances as JSON holds them."""
    return {
        "schema": SCHEMA,
        "circumstances": circumstances.as_dict(),
        "measurements": [
            {**row.__dict__, "columns": dict(row.columns), "repeats": list(row.repeats)} for row in measurements
        ],
    }


def read_document(path: Path) -> list[Measurement]:
    """The measurements of a JSON document; InputError with the row and the field for one that is wrong."""
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError("there is no such file of measurements", where=Where(str(path))) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"this cannot be read as JSON: {error}", where=Where(str(path))) from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("measurements"), list):
        raise InputError(
            "this is no document of measurements",
            where=Where(str(path)),
            expected=f'{{"schema": {SCHEMA}, "measurements": [...]}}, as `windtunnel validate --out` writes it',
        )
    return [_from_json(entry, str(path), f"measurements[{i}]") for i, entry in enumerate(data["measurements"])]


_TEXTS = ("device", "source", "op")


def _from_json(entry: Any, file: str, at: str) -> Measurement:
    known = [one.name for one in fields(Measurement)]
    if not isinstance(entry, dict):
        raise InputError("this is no measurement", where=Where(file, field=at), expected="an object")
    for name in entry:
        if name not in known:
            raise InputError(
                f"a measurement has no '{name}'",
                where=Where(file, field=f"{at}.{name}"),
                expected=one_of(known, 20),
                nearest=nearest(name, known),
            )
    for name in (*_TEXTS, "columns", "latency_s"):
        wanted = str if name in _TEXTS else dict if name == "columns" else (int, float)
        if not isinstance(entry.get(name), wanted) or isinstance(entry.get(name), bool):
            said = {"columns": "an object", "latency_s": "seconds"}.get(name, "text")
            raise InputError(f"'{name}' is missing or wrong", where=Where(file, field=f"{at}.{name}"), expected=said)
    for name in ("timer", "note", "suspect"):
        if not isinstance(entry.get(name, ""), str):
            raise InputError(f"this is {entry[name]!r}", where=Where(file, field=f"{at}.{name}"), expected="text")
    line = entry.get("line")
    if line is not None and (isinstance(line, bool) or not isinstance(line, int)):
        raise InputError(f"this is {line!r}", where=Where(file, field=f"{at}.line"), expected="a line, or null")
    try:
        columns = OPERATIONS.find(entry["op"]).complete(entry["columns"])
    except InputError as error:
        raise error.at(Where(file, field=f"{at}.columns")) from None
    for name in ("latency_s", "low_s", "high_s", "power_w", "error_share", "samples"):
        value = entry.get(name)
        least = 0.0 if name == "error_share" else 1 if name == "samples" else 1e-12
        wrong = isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 1e9
        if value is not None and wrong:
            raise InputError(f"this is {value!r}", where=Where(file, field=f"{at}.{name}"), expected="a number in SI")
    low_s, high_s = entry.get("low_s"), entry.get("high_s")
    _check_interval(low_s, entry["latency_s"], high_s, lambda name: Where(file, field=f"{at}.{name}"))
    repeats = entry.get("repeats", [])
    if not isinstance(repeats, list) or not all(
        isinstance(time, (int, float)) and not isinstance(time, bool) and 1e-12 <= time <= 1e9 for time in repeats
    ):
        raise InputError(f"this is {repeats!r}", where=Where(file, field=f"{at}.repeats"), expected="a list of seconds")
    return Measurement(**{**entry, "columns": columns, "repeats": tuple(map(float, repeats))})
