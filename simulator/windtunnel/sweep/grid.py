"""A sweep: the grid of scenarios that `windtunnel sweep` runs, its input files, its records on disk and its table.

Nothing here runs a point; ``planning.executors`` hands points to processes, and ``app`` says what running one is.
Defined for people in docs/sweep.md.
"""

from __future__ import annotations

import copy
import csv
import fcntl
import hashlib
import io
import itertools
import json
import math
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml

from windtunnel.core.csvfile import write_whole
from windtunnel.core.errors import InputError, Where
from windtunnel.core.yamlfile import Document, parse, read_text, spell
from windtunnel.scenario.scenario import Scenario, apply_change, check_scenario, parse_path

FORMAT = 1
"""Of manifest.json and sweep.json."""
MAX_POINTS = 1_000_000

_RANGE = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})(?:\.\.(-?[0-9]{1,15}))?")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# The grid.


@dataclass(frozen=True)
class Axis:
    """One swept path: its values as text to put after ``PATH=``, and what those read as."""

    path: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]


def parse_axis(text: str) -> Axis:
    """``PATH=A,B,C`` as an axis: values as in a YAML list, and ``1..8`` or ``0..100..10`` for whole numbers.

    Raises InputError for what is no list of values, a value given twice, and a path that is empty.
    """
    name, equals, raw = text.partition("=")
    path = spell(parse_path(name.strip()))
    where = Where(f"--over {text}", field=path or None)
    example = "PATH=A,B,C, such as fleet[0].count=1,2,4 or seed=1..8"
    if not equals or not path:
        raise InputError("this is not a path and its values", where=where, expected=example)
    texts: list[str] = []
    values: list[Any] = []
    for piece in _pieces(raw, where, example):
        steps = _RANGE.fullmatch(piece)
        for one in _range(steps, where) if steps else [piece]:
            texts.append(one)
            values.append(parse(one, f"--over {text}").data)
    seen: set[str] = set()
    for one, value in zip(texts, values, strict=True):
        if (spelled := canonical(value)) in seen:
            raise InputError(f"the value '{one}' is given twice", where=where, expected="each value once")
        seen.add(spelled)
    return Axis(path, tuple(texts), tuple(values))


def _pieces(raw: str, where: Where, example: str) -> list[str]:
    """The values of ``raw`` as text: it is what stands between the brackets of a YAML list."""
    listed = f"[{raw}]"
    try:
        node = yaml.compose(listed, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        node = None
    if not isinstance(node, yaml.SequenceNode) or node.end_mark.index != len(listed) or raw.rstrip().endswith(","):
        raise InputError("this is not a list of values", where=where, expected=example)
    if not node.value:
        raise InputError("there are no values", where=where, expected=example)
    return [listed[child.start_mark.index : child.end_mark.index].strip() for child in node.value]


def _range(match: re.Match[str], where: Where) -> list[str]:
    first, last = int(match[1]), int(match[2])
    step = int(match[3]) if match[3] else 1
    if step <= 0 or last < first:
        raise InputError(
            f"the range '{match[0]}' is empty", where=where, expected="FIRST..LAST or FIRST..LAST..STEP, rising"
        )
    if (last - first) // step >= MAX_POINTS:
        raise InputError(f"the range '{match[0]}' holds more than {MAX_POINTS:,} values", where=where)
    return [str(value) for value in range(first, last + 1, step)]


@dataclass(frozen=True)
class Point:
    """One place of the grid: its number from 1, and its value (as text) on each axis, as ``PATH=VALUE`` changes."""

    number: int
    changes: tuple[str, ...]
    values: tuple[Any, ...]

    def label(self, total: int) -> str:
        """What errors call it."""
        text = ", ".join(self.changes)
        return f"point {self.number} of {total} ({text if len(text) <= 160 else text[:157] + '...'})"


def grid(axes: Sequence[Axis], sets: Sequence[str] = ()) -> list[Point]:
    """Every combination of the axes' values; the last axis changes fastest.

    Changes are made in the order of the axes, after ``sets`` (those of ``--set``). Raises InputError for an axis that
    would overwrite an earlier change, and for too large a grid.
    """
    if not axes:
        raise InputError(
            "nothing is swept", where=Where(field="--over"), expected="--over PATH=A,B,C, such as fleet[0].count=1,2,4"
        )
    earlier = [("--set", parse_path(change.partition("=")[0].strip())) for change in sets]
    for axis in axes:
        mine = parse_path(axis.path)
        for option, theirs in earlier:
            if theirs[: len(mine)] == mine:
                raise InputError(
                    f"this overwrites the {option} of '{spell(theirs)}'",
                    where=Where(f"--over {axis.path}"),
                    expected="each place changed once, and the whole before its parts",
                )
        earlier.append(("--over", mine))
    count = math.prod(len(axis.texts) for axis in axes)
    if count > MAX_POINTS:
        raise InputError(
            f"the grid has {count:,} points", where=Where(field="--over"), expected=f"at most {MAX_POINTS:,}"
        )
    texts = itertools.product(*([f"{axis.path}={text}" for text in axis.texts] for axis in axes))
    values = itertools.product(*(axis.values for axis in axes))
    return [Point(i, *both) for i, both in enumerate(zip(texts, values, strict=True), 1)]


# What a point reads.


@dataclass(frozen=True)
class Inputs:
    """Everything that the points of a sweep read, as it was when the sweep began.

    ``files`` maps absolute names to contents. Written out under a folder (``write``), each file lies at its own name
    below it, so that names relative to the scenario lead to the copies.
    """

    scenario: str
    sets: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    def contents(self) -> dict[str, str]:
        """A digest of each file but the scenario, by its name as seen from the scenario."""
        mine = _absolute(self.scenario)
        folder = os.path.dirname(mine)  # noqa: PTH120
        return {
            os.path.relpath(name, folder): hashlib.sha256(content).hexdigest()
            for name, content in sorted(self.files.items())
            if name != mine
        }

    def write(self, tree: Path) -> None:
        """Put a copy of every file under ``tree``."""
        for name, content in self.files.items():
            copy_of = Path(f"{tree}{name}")
            copy_of.parent.mkdir(parents=True, exist_ok=True)
            copy_of.write_bytes(content)
        for folder in self.catalogs:
            Path(f"{tree}{_absolute(folder)}").mkdir(parents=True, exist_ok=True)

    def catalog_folders(self, tree: Path) -> list[Path]:
        """The copies of the catalogue folders under ``tree``."""
        return [Path(f"{tree}{_absolute(folder)}") for folder in self.catalogs]

    def restore(self, text: str, tree: Path) -> str:
        """``text`` with the names of copies under ``tree`` put back to those of the files they are copies of."""
        given, whole = str(Path(self.scenario).parent), os.path.dirname(_absolute(self.scenario))  # noqa: PTH120
        if given != whole:
            text = text.replace(f"{tree}{whole}/", "" if given == "." else f"{given}/")
        return text.replace(str(tree), "")


def _absolute(name: str) -> str:
    """An absolute name without ``..``, worked out on the text alone: the copies have no symbolic links."""
    return os.path.abspath(name)  # noqa: PTH100


class Reader:
    """Reads a sweep's scenario at its points, and gathers what they name."""

    def __init__(self, file: str, text: str, sets: Sequence[str]) -> None:
        self.text = text
        self._base = parse(text, file)
        for change in sets:
            apply_change(self._base, change)

    def document(self, changes: Sequence[str]) -> Document:
        """The scenario with a point's changes made to it, before it is checked."""
        base = self._base
        found = Document(
            copy.deepcopy(base.data), base.file, dict(base.marks), dict(base.key_marks), dict(base.changes)
        )
        for change in changes:
            apply_change(found, change, "--over")
        return found

    def scenario(self, changes: Sequence[str]) -> Scenario:
        """The scenario at a point; InputError for the first thing wrong with it."""
        return check_scenario(self.document(changes))


def read_copy(inputs: Inputs, tree: Path, changes: Sequence[str]) -> Scenario:
    """The scenario at a point from the copies under ``tree``."""
    name = _absolute(inputs.scenario)
    found = Reader(f"{tree}{name}", inputs.files[name].decode("utf-8"), inputs.sets).document(changes)
    found.data = _redirected(found.data, tree)
    return check_scenario(found)


def _redirected(data: Any, tree: Path) -> Any:
    """``data`` with absolute names of files that have a copy changed to the copies' names."""
    if isinstance(data, dict):
        return {key: _redirected(value, tree) for key, value in data.items()}
    if isinstance(data, list):
        return [_redirected(value, tree) for value in data]
    if isinstance(data, str) and data.startswith("/") and any(_is_file(f"{tree}{n}") for n in _names_in(data)):
        return f"{tree}{data}"
    return data


def _names_in(text: str) -> Iterator[str]:
    """What ``text`` may name a file by: all of it, or what stands before its last colon (``./mine.py:choose``)."""
    if text and len(text) <= 1000 and "\n" not in text:
        yield text
        before = text.rpartition(":")[0]
        if before:
            yield before


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def gather(file: str, text: str, sets: Sequence[str], catalogs: Sequence[str], data: Iterable[Any]) -> Inputs:
    """Read what the scenarios ``data`` (plain, one a point) name.

    Any text in a scenario that is the name of a file, seen from the scenario's folder, is taken to name it; so is any
    in a YAML file that was named (an overlay and its arrays). Of a catalogue folder every ``.yaml`` file is read.
    Raises InputError for a file that cannot be read.
    """
    files = {_absolute(file): text.encode("utf-8")}
    seen: set[tuple[str, str]] = set()

    def walk(value: Any, folder: Path) -> None:
        if isinstance(value, (dict, list)):
            for child in value.values() if isinstance(value, dict) else value:
                walk(child, folder)
        elif isinstance(value, str) and (str(folder), value) not in seen:
            seen.add((str(folder), value))
            for name in _names_in(value):
                if _is_file(str(folder / name)):
                    take(folder / name)

    def take(path: Path) -> None:
        if _absolute(str(path)) in files:
            return
        try:
            content = files[_absolute(str(path))] = path.read_bytes()
        except OSError as error:
            raise InputError(f"this cannot be read: {error.strerror}", where=Where(str(path))) from None
        if path.suffix in (".yaml", ".yml"):
            with suppress(InputError, UnicodeDecodeError):  # whoever reads it says what is wrong with it
                walk(parse(content.decode("utf-8"), str(path)).data, path.parent)

    for scenario in data:
        walk(scenario, Path(file).parent)
    for catalog in catalogs:
        for path in sorted(Path(catalog).rglob("*.yaml")):
            take(path)
    return Inputs(file, tuple(sets), tuple(catalogs), files)


@dataclass(frozen=True)
class Grid:
    """A sweep that has been read: its points, the scenario at each, and all that they read."""

    file: str
    axes: Sequence[Axis]
    points: Sequence[Point]
    scenarios: Sequence[Scenario]
    inputs: Inputs


def read_grid(
    file: str,
    over: Sequence[str],
    sets: Sequence[str],
    catalogs: Sequence[str],
    check: Callable[[Scenario], object],
) -> Grid:
    """Read a sweep and check every point; InputError names the first that is wrong.

    ``check`` raises InputError for what the schema does not know.
    """
    axes = [parse_axis(text) for text in over]
    points = grid(axes, sets)
    reader = Reader(file, read_text(Path(file), "scenario"), sets)
    scenarios = []
    for point in points:
        try:
            scenario = reader.scenario(point.changes)
            check(scenario)
        except InputError as error:
            raise InputError(f"{point.label(len(points))}: {error}") from None
        scenarios.append(scenario)
    data = (reader.document(point.changes).data for point in points)
    return Grid(file, axes, points, scenarios, gather(file, reader.text, sets, catalogs, data))


# Identity: what makes a finished point the answer to this sweep's question and no other's.


def canonical(data: Any) -> str:
    """Plain data as JSON with one spelling."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(data: Any) -> str:
    """A name for plain data, by its content."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


def manifest(grid: Grid, resolved: Sequence[Mapping[str, Any]], common: Mapping[str, Any]) -> dict[str, Any]:
    """What a sweep's folder says it holds.

    ``resolved`` are the points' resolved scenarios; ``common`` is what else decides the results and is the same for
    every point (inputs' digests, versions, engine, replications), by names that people know.
    """
    width = len(str(len(grid.points)))
    shared = digest(common)
    names = [
        f"{point.number:0{width}d}-{digest([scenario, shared])[:12]}"
        for point, scenario in zip(grid.points, resolved, strict=True)
    ]
    return {
        "windtunnel_sweep": FORMAT,
        **common,
        "axes": [{"path": axis.path, "values": list(axis.values)} for axis in grid.axes],
        "points": names,
    }


# Records.


@dataclass(frozen=True)
class Outcome:
    """What came of a point: its result as result.json holds it, or what went wrong with the exit code that says how."""

    result: str | None = None
    error: str | None = None
    code: int = 0
    traceback: str | None = None


class Records:
    """A sweep's folder: manifest.json, and runs/KEY/ with result.json (or error.json) for each finished point.

    One sweep at a time holds it, by a lock that ends with its process however that ends. Every file appears whole or
    not at all: it is written aside, flushed to disk and renamed.
    """

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        self.folder = folder
        self._keys = keys
        self.scratch = folder / ".scratch"

    def run_folder(self, index: int) -> Path:
        """Where a point's record lies."""
        return self.folder / "runs" / self._keys[index]

    def result(self, index: int) -> str | None:
        """A finished point's result; None for a point that is not finished, and for a record that was damaged."""
        try:
            text = (self.run_folder(index) / "result.json").read_text(encoding="utf-8")
            found = json.loads(text)
            return text if isinstance(found, dict) and "targets" in found else None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def write(self, index: int, outcome: Outcome) -> None:
        """Record a point's outcome, in place of an earlier error."""
        folder = self.run_folder(index)
        with _writing(self.folder):
            folder.mkdir(parents=True, exist_ok=True)
            if outcome.result is not None:
                self._write(folder / "result.json", outcome.result)
                (folder / "error.json").unlink(missing_ok=True)
                return
            told = {"error": outcome.error, "exit_code": outcome.code, "traceback": outcome.traceback}
            self._write(folder / "error.json", json.dumps(told, indent=2, ensure_ascii=False) + "\n")

    def begin(self, stated: Mapping[str, Any]) -> None:
        """Say what the folder will hold, once the sweep is known to be runnable; what it held before goes."""
        with _writing(self.folder):
            held = _manifest(self.folder) or {}
            for name in ("manifest.json", "sweep.csv", "sweep.json"):
                (self.folder / name).unlink(missing_ok=True)
            for key in held.get("points", ()):
                if isinstance(key, str) and re.fullmatch(r"[0-9]+-[0-9a-f]{12}", key):
                    shutil.rmtree(self.folder / "runs" / key, ignore_errors=True)
            with suppress(OSError):  # what is not ours stays
                (self.folder / "runs").rmdir()
            self._write(self.folder / "manifest.json", json.dumps(stated, indent=2, ensure_ascii=False) + "\n")

    def _write(self, path: Path, text: str) -> None:
        aside = self.scratch / f"record-{os.getpid()}"
        with aside.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """A failure to write there is the input's: the folder that was named."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the output cannot be written: {error.strerror or error}",
            where=Where(str(folder), field="--out"),
            expected="a folder that can be written to",
        ) from None


@contextmanager
def records(folder: Path, stated: Mapping[str, Any], *, fresh: bool = False) -> Iterator[tuple[Records, bool]]:
    """A sweep's folder, locked; and whether it holds this very sweep already.

    Raises InputError where another sweep is running in it, and where it holds another sweep, unless it is to be thrown
    away (``fresh``) when this one begins.
    """
    where = Where(str(folder), field="--out")
    held = Records(folder, stated["points"])
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+", encoding="utf-8")
    with lock:
        _lock(lock, where)
        with _writing(folder):
            resumed = _known(folder, json.loads(canonical(stated)), where, fresh)
            # Only a sweep that was killed leaves these behind.
            shutil.rmtree(held.scratch, ignore_errors=True)
            held.scratch.mkdir()
        try:
            yield held, resumed
        finally:
            shutil.rmtree(held.scratch, ignore_errors=True)


def _lock(lock: TextIO, where: Where) -> None:
    """Hold the lock, which the system takes back when this process ends, however it ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        raise InputError(
            f"another sweep ({lock.read(200).strip() or 'starting'}) is running in this folder",
            where=where,
            expected="that it ends first, or another folder",
        ) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} on {socket.gethostname()}")
    lock.flush()


def _manifest(folder: Path) -> dict[str, Any] | None:
    """What the folder says it holds; None if it says nothing. InputError for a file of that name that is no sweep's."""
    try:
        held = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        held = None
    if isinstance(held, dict) and "windtunnel_sweep" in held:
        return held
    raise InputError(
        "the manifest.json there is no sweep's", where=Where(str(folder), field="--out"), expected="another folder"
    )


def _known(folder: Path, stated: Mapping[str, Any], where: Where, fresh: bool) -> bool:
    """Whether the folder holds the sweep ``stated`` and it is to go on."""
    held = _manifest(folder)
    if held is None:
        for name in ("runs", "sweep.csv", "sweep.json"):
            if (folder / name).exists():
                raise InputError(f"'{name}' is there already, of no sweep", where=where, expected="another folder")
        return False
    if not fresh and held != stated:
        apart = [name for name in stated if name != "points" and held.get(name) != stated[name]]
        raise InputError(
            f"this folder holds another sweep; what differs: {', '.join(apart or ['the scenario'])}",
            where=where,
            expected="another folder, or --fresh to throw that sweep's runs away",
        )
    return not fresh


# The table.

# What is no number of the run, or shows elsewhere in the row.
_LEFT_OUT = {
    "name",
    "description",
    "policy",
    "devices",
    "provenance",
    "model_accuracy",
    "notes",
    "scenario",
    "versions",
}
_LEFT_OUT |= {"targets", "workloads"}
_STATES = ("point", "key", "status", "error", "met", "missed", "inconclusive")


def row(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result's numbers by their path in result.json: ``latency_s.p99`` with ``.low`` and ``.high`` beside it.

    Each workload's own follow where there are several: ``workloads.NAME.latency_s.p99``. ``met`` says whether all
    targets are met (None without targets). ``missed`` lists those that are not, and ``inconclusive`` those whose 95%
    interval contains the limit.
    """
    targets = result.get("targets") or []
    cells: dict[str, Any] = {
        "met": all(target["met"] for target in targets) if targets else None,
        "missed": "; ".join(target["text"] for target in targets if not target["met"]) or None,
        "inconclusive": "; ".join(t["text"] for t in targets if t.get("confidence") == "inconclusive") or None,
    }
    for key, value in result.items():
        if key not in _LEFT_OUT:
            cells.update(_flat(key, value))
    workloads = result.get("workloads") or []
    for workload in workloads if len(workloads) > 1 else []:
        for key, value in workload.items():
            if key not in ("name", "use_case"):
                cells.update(_flat(f"workloads.{workload['name']}.{key}", value))
    return cells


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(path if key == "value" else f"{path}.{key}", inner)
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield path, value


def table(paths: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of ``rows``, each once, in an order that every row agrees with: states, swept paths, numbers.

    What is nothing in every row, because other rows hold something in its place (a time with and without tokens), is
    left out.
    """
    fixed = [*_STATES[:2], *paths, *_STATES[2:]]
    order = list(dict.fromkeys(fixed))
    start = len(order)
    for shape in dict.fromkeys(tuple(cells) for cells in rows):
        place = start
        for column in shape:
            if column in order:
                place = max(place, order.index(column) + 1)
            else:
                order.insert(place, column)
                place += 1
    filled = {column for cells in rows for column, value in cells.items() if value is not None}
    parents = set()
    for column in order[start:]:
        whole = column.removesuffix(".low").removesuffix(".high")
        parents.add(whole.rpartition(".")[0])
    return [column for column in order if column in fixed or column in filled or column not in parents]


def document(grid: Grid, stated: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], code: int) -> dict[str, Any]:
    """What sweep.json holds: the axes, and a row for each point in the order of the grid."""
    paths = [axis.path for axis in grid.axes]
    whole = [
        {"point": point.number, "key": key, "error": None, **cells, **dict(zip(paths, point.values, strict=True))}
        for point, key, cells in zip(grid.points, stated["points"], rows, strict=True)
    ]
    columns = table(paths, whole)
    return {
        "windtunnel_sweep": FORMAT,
        "scenario": grid.file,
        "axes": stated["axes"],
        "replications": stated["replications"],
        "engine": stated["engine"],
        "versions": stated["versions"],
        "points": len(rows),
        "failed": sum(cells["status"] == "failed" for cells in rows),
        "missed": sum(cells.get("met") is False for cells in rows),
        "exit_code": code,
        "columns": columns,
        "rows": [{column: cells.get(column) for column in columns} for cells in whole],
    }


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV: empty for nothing, ``true`` and ``false``, numbers that read back as the same numbers."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(cells.get(column)) for column in columns] for cells in rows)
    return stream.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else canonical(value)


def write_tables(folder: Path, document: Mapping[str, Any]) -> list[Path]:
    """sweep.csv and sweep.json of a finished sweep, each whole or not at all."""
    texts = {
        "sweep.csv": csv_text(document["columns"], document["rows"]),
        "sweep.json": json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for name, text in texts.items():

        def write(stream: TextIO, text: str = text) -> None:
            stream.write(text)

        write_whole(folder / name, write)
    return [folder / name for name in texts]
