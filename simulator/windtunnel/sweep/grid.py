"""The grid of scenarios that `windtunnel sweep` runs, and the input files that they read.

Nothing here runs a point: ``sweep.workers`` hands points to processes. docs/sweep.md defines a sweep.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import TABLE_BYTES, read_bytes
from windtunnel.core.results.data import to_data
from windtunnel.core.results.sweep import SweepAxis
from windtunnel.core.yamlfile import Document, format_path, parse, read_text
from windtunnel.scenario.changes import apply_change, parse_path
from windtunnel.scenario.read import check_scenario
from windtunnel.scenario.scenario import Scenario

FORMAT = 1
"""The version of manifest.json and sweep.json."""
MAX_POINTS = 1_000_000

_RANGE = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})(?:\.\.(-?[0-9]{1,15}))?")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# The grid.


@dataclass(frozen=True)
class Axis:
    """One swept path: its values as text after ``PATH=``, and as data."""

    path: str
    texts: tuple[str, ...]
    values: tuple[Any, ...]


def parse_axis(text: str) -> Axis:
    """Return ``PATH=A,B,C`` as an axis: values as in a YAML list, and ``1..8`` or ``0..100..10`` for whole numbers.

    Raises:
        InputError: The text is not a list of values, a value is given twice, or the path is empty.
    """
    name, equals, raw = text.partition("=")
    path = format_path(parse_path(name.strip()))
    where = Location(f"--over {text}", field=path or None)
    example = "PATH=A,B,C, such as fleet[0].count=1,2,4 or seed=1..8"
    if not equals or not path:
        raise InputError("this is not a path and its values", where=where, expected=example)
    texts: list[str] = []
    values: list[Any] = []
    for piece in _pieces(raw, where, example):
        steps = _RANGE.fullmatch(piece)
        for value_text in _range(steps, where) if steps else [piece]:
            texts.append(value_text)
            values.append(parse(value_text, f"--over {text}").data)
    seen: set[str] = set()
    for value_text, value in zip(texts, values, strict=True):
        if (key := canonical(value)) in seen:
            raise InputError(f"the value '{value_text}' is given twice", where=where, expected="each value once")
        seen.add(key)
    return Axis(path, tuple(texts), tuple(values))


def _pieces(raw: str, where: Location, example: str) -> list[str]:
    """Return the values of ``raw`` as text; ``raw`` is the content of a YAML list."""
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


def _range(match: re.Match[str], where: Location) -> list[str]:
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
    """One point of the grid: its number from 1, and its value (as text) on each axis, as ``PATH=VALUE`` changes."""

    number: int
    changes: tuple[str, ...]
    values: tuple[Any, ...]

    def label(self, total: int) -> str:
        """Return the name of the point in errors."""
        text = ", ".join(self.changes)
        return f"point {self.number} of {total} ({text if len(text) <= 160 else text[:157] + '...'})"


def grid(axes: Sequence[Axis], sets: Sequence[str] = ()) -> list[Point]:
    """Return every combination of the axes' values; the last axis changes fastest.

    Changes are made in the order of the axes, after ``sets`` (those of ``--set``). Raises InputError for an axis that
    would overwrite an earlier change, and for too large a grid.
    """
    if not axes:
        raise InputError(
            "nothing is swept",
            where=Location(field="--over"),
            expected="--over PATH=A,B,C, such as fleet[0].count=1,2,4",
        )
    earlier = [("--set", parse_path(change.partition("=")[0].strip())) for change in sets]
    for axis in axes:
        path = parse_path(axis.path)
        for option, earlier_path in earlier:
            if earlier_path[: len(path)] == path:
                raise InputError(
                    f"this overwrites the {option} of '{format_path(earlier_path)}'",
                    where=Location(f"--over {axis.path}"),
                    expected="each place changed once, and the whole before its parts",
                )
        earlier.append(("--over", path))
    count = math.prod(len(axis.texts) for axis in axes)
    if count > MAX_POINTS:
        raise InputError(
            f"the grid has {count:,} points", where=Location(field="--over"), expected=f"at most {MAX_POINTS:,}"
        )
    texts = itertools.product(*([f"{axis.path}={text}" for text in axis.texts] for axis in axes))
    values = itertools.product(*(axis.values for axis in axes))
    return [Point(i, *both) for i, both in enumerate(zip(texts, values, strict=True), 1)]


# The input files of a point.


@dataclass(frozen=True)
class Inputs:
    """All files that the points of a sweep read, with their contents at the start of the sweep.

    ``files`` maps absolute names to contents. ``write`` stores each file under a folder at its own path, so that names
    relative to the scenario lead to the copies.
    """

    scenario: str
    sets: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)

    def contents(self) -> dict[str, str]:
        """Return a digest of each file but the scenario, by its name relative to the scenario."""
        mine = _absolute(self.scenario)
        folder = os.path.dirname(mine)  # noqa: PTH120
        return {
            os.path.relpath(name, folder): hashlib.sha256(content).hexdigest()
            for name, content in sorted(self.files.items())
            if name != mine
        }

    def write(self, tree: Path) -> None:
        """Write a copy of every file under ``tree``."""
        for name, content in self.files.items():
            copy_of = Path(f"{tree}{name}")
            copy_of.parent.mkdir(parents=True, exist_ok=True)
            copy_of.write_bytes(content)
        for folder in self.catalogs:
            Path(f"{tree}{_absolute(folder)}").mkdir(parents=True, exist_ok=True)

    def catalog_folders(self, tree: Path) -> list[Path]:
        """Return the copies of the catalogue folders under ``tree``."""
        return [Path(f"{tree}{_absolute(folder)}") for folder in self.catalogs]

    def restore(self, text: str, tree: Path) -> str:
        """Return ``text`` with the names of copies under ``tree`` replaced by those of the original files."""
        given, whole = str(Path(self.scenario).parent), os.path.dirname(_absolute(self.scenario))  # noqa: PTH120
        if given != whole:
            text = text.replace(f"{tree}{whole}/", "" if given == "." else f"{given}/")
        return text.replace(str(tree), "")


def _absolute(name: str) -> str:
    """Return an absolute name without ``..``, computed from the text alone, because copies have no symbolic links."""
    return os.path.abspath(name)  # noqa: PTH100


class Reader:
    """Reads the scenario of a sweep at its points."""

    def __init__(self, file: str, text: str, sets: Sequence[str], outside_code: bool) -> None:
        self.text = text
        self._base = parse(text, file)
        self._base.outside_code = outside_code
        for change in sets:
            apply_change(self._base, change)

    def document(self, changes: Sequence[str]) -> Document:
        """Return the scenario with the changes of a point, before it is checked."""
        base = self._base
        document = Document(
            copy.deepcopy(base.data),
            base.file,
            dict(base.marks),
            dict(base.key_marks),
            dict(base.changes),
            base.outside_code,
        )
        for change in changes:
            apply_change(document, change, "--over")
        return document

    def scenario(self, changes: Sequence[str]) -> Scenario:
        """Return the scenario at a point; raises InputError for the first thing that is wrong."""
        return check_scenario(self.document(changes))


def read_copy(inputs: Inputs, tree: Path, changes: Sequence[str]) -> Scenario:
    """Return the scenario at a point, read from the copies under ``tree``."""
    name = _absolute(inputs.scenario)
    # The sweep has checked where the code is; its copies are wherever the originals are, under another root.
    reader = Reader(f"{tree}{name}", inputs.files[name].decode("utf-8"), inputs.sets, outside_code=True)
    document = reader.document(changes)
    document.data = _redirected(document.data, tree)
    return check_scenario(document)


def _redirected(data: Any, tree: Path) -> Any:
    """Return ``data`` with the absolute names of files that have a copy replaced by the copies' names."""
    if isinstance(data, dict):
        return {key: _redirected(value, tree) for key, value in data.items()}
    if isinstance(data, list):
        return [_redirected(value, tree) for value in data]
    if isinstance(data, str) and data.startswith("/") and any(_is_file(f"{tree}{n}") for n in _names_in(data)):
        return f"{tree}{data}"
    return data


def _names_in(text: str) -> Iterator[str]:
    """Yield the parts of ``text`` that may name a file: all of it, and the part before its last colon."""
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
    """Read the files that the scenarios ``data`` (plain, one for each point) name.

    Any text in a scenario that is the name of an existing file, relative to the scenario's folder, is treated as a file
    name. The same holds for text in a named YAML file (an overlay and its arrays). Every ``.yaml`` file of a catalogue
    folder is read. Raises InputError for a file that cannot be read.
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
        content = files[_absolute(str(path))] = read_bytes(path, "file", TABLE_BYTES)
        if path.suffix in (".yaml", ".yml"):
            with suppress(InputError, UnicodeDecodeError):  # its own reader reports the error
                walk(parse(content.decode("utf-8"), str(path)).data, path.parent)

    for scenario in data:
        walk(scenario, Path(file).parent)
    for catalog in catalogs:
        for path in sorted(Path(catalog).rglob("*.yaml")):
            take(path)
    return Inputs(file, tuple(sets), tuple(catalogs), files)


@dataclass(frozen=True)
class Grid:
    """A sweep: its points, the scenario at each point, and the files that they read."""

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
    outside_code: bool = False,
) -> Grid:
    """Read a sweep and check every point. Raises InputError for the first invalid one.

    ``outside_code``: the policy may be code in a file outside of the scenario's folder. ``check`` raises InputError for
    errors that the schema does not find.
    """
    axes = [parse_axis(text) for text in over]
    points = grid(axes, sets)
    reader = Reader(file, read_text(Path(file), "scenario"), sets, outside_code)
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


# Identity: a finished point is reused only by the same sweep.


def canonical(data: Any) -> str:
    """Return plain data as JSON in a canonical form."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(data: Any) -> str:
    """Return a digest of plain data."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()


@dataclass(frozen=True)
class Common:
    """What determines the results of all points besides their scenarios: settings, versions and digests of inputs."""

    replications: int
    engine: str
    versions: Mapping[str, str]
    inputs: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    real_devices: Mapping[str, str | None] | None = None

    def to_dict(self) -> dict[str, object]:
        """Return it under the names that manifest.json and errors show."""
        real = {} if self.real_devices is None else {"real devices": self.real_devices}
        return {
            "inputs": self.inputs,
            "replications": self.replications,
            "engine": self.engine,
            "versions": self.versions,
            "host": self.host,
            **real,
        }


@dataclass(frozen=True)
class Manifest:
    """The identity of a sweep. ``points`` are the names of the points' records."""

    common: Common
    axes: Sequence[SweepAxis]
    points: Sequence[str]

    def to_dict(self) -> dict[str, object]:
        """Return the content of manifest.json."""
        own = {"axes": to_data(self.axes), "points": list(self.points)}
        return {"windtunnel_sweep": FORMAT, **self.common.to_dict(), **own}


def manifest(grid: Grid, resolved: Sequence[Mapping[str, object]], common: Common) -> Manifest:
    """Return the manifest of a sweep, whose points have the scenarios ``resolved``."""
    width = len(str(len(grid.points)))
    shared = digest(common.to_dict())
    names = [
        f"{point.number:0{width}d}-{digest([scenario, shared])[:12]}"
        for point, scenario in zip(grid.points, resolved, strict=True)
    ]
    return Manifest(common, [SweepAxis(axis.path, list(axis.values)) for axis in grid.axes], names)
