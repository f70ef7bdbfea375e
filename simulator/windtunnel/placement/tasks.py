"""Reads the input of a placement run into arrays: the nodes, the tasks in order of arrival, and their classes.

Times are whole nanoseconds. The openb trace lasts 149 days, and the picoseconds of the other engines overflow after 106
days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TypeVar

import numpy as np

from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.units import parse_quantity
from windtunnel.placement.nodes import ANY_MODEL, MILLI, Classes, IntArray, Largest, Nodes, Target, fits_somewhere
from windtunnel.placement.openb import read_openb_nodes
from windtunnel.placement.recording import NANO
from windtunnel.placement.scenario import (
    MAX_GPUS,
    NodeFile,
    PlacementScenario,
    Replay,
    ResourceRequest,
    Span,
    Tasks,
    column_of,
    factor_of,
)

_MAX_NANO = 2**62
_MAX_MODELS = 62
_MIB = 2**20
_T = TypeVar("_T")


@dataclass(frozen=True)
class ClusterNodes:
    """The capacity of the nodes, one element for each node."""

    names: Sequence[str]
    models: Sequence[str]
    """The distinct GPU models; ``model`` holds indices into it."""
    cpu: IntArray
    memory: IntArray
    gpus: IntArray
    model: IntArray

    def empty(self, tags: int) -> Nodes:
        """Return the state of the empty nodes, for tasks with ``tags`` different tags."""
        most = max(int(self.gpus.max(initial=0)), 1)
        gpu_left = np.where(np.arange(most) < self.gpus[:, None], MILLI, 0).astype(np.int64)
        counts = np.zeros((len(self.cpu), tags), dtype=np.int64)
        return Nodes(self.cpu.copy(), self.memory.copy(), gpu_left, self.gpus, self.model, counts)

    @property
    def capacity(self) -> int:
        """Return the GPU thousandths of the whole cluster."""
        return int(self.gpus.sum()) * MILLI


@dataclass(frozen=True)
class TaskTable:
    """All tasks in order of arrival, one element for each. ``arrival`` and ``duration`` are in nanoseconds."""

    names: Sequence[str]
    workload: IntArray
    kind: IntArray
    """The class of each task."""
    arrival: IntArray
    duration: IntArray
    never_started: int
    """The number of tasks whose first ``from`` column is empty, so that a later column is used."""

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class PlacementProblem:
    """The complete input of a run."""

    nodes: ClusterNodes
    tasks: TaskTable
    classes: Classes
    gpu_milli: IntArray
    """The GPU thousandths of each class in total."""
    tags: int
    target: Target
    covered: float
    """The share of the tasks that belongs to the target's classes."""
    largest: Largest
    workloads: Sequence[str]


def prepare_placement(scenario: PlacementScenario) -> PlacementProblem:
    """Read the scenario's nodes and tasks.

    Raises:
        InputError: if a file is missing or not valid, or a task fits on no node even if it is empty.
    """
    nodes = _nodes(scenario)
    rows, tables = [], []
    for number, stated in enumerate(scenario.workload):
        read, table = _read_tasks(scenario, number, stated, nodes.models)
        rows += read
        tables.append(table)
    # The sort is stable: equal arrival times keep the order of the workloads and of their rows.
    rows.sort(key=lambda row: row.arrival)
    if scenario.stop is not None and scenario.stop.jobs is not None:
        rows = rows[: scenario.stop.jobs]
    kinds: dict[tuple[int, int, int, int, int], int] = {}
    kind = [kinds.setdefault(row.demand, len(kinds)) for row in rows]
    cpu, memory, gpus, milli, models = (np.array(column, dtype=np.int64) for column in zip(*kinds, strict=True))
    tag_of: dict[int, int] = {}
    tag = [0 if g == 0 else 1 if m < MILLI else 2 + tag_of.setdefault(g, len(tag_of)) for _, _, g, m, _ in kinds]
    classes = Classes(cpu, memory, gpus, milli, models, np.array(tag, dtype=np.int64))
    tasks = TaskTable(
        [row.name for row in rows],
        np.array([row.workload for row in rows], dtype=np.int64),
        np.array(kind, dtype=np.int64),
        np.array([row.arrival - rows[0].arrival for row in rows], dtype=np.int64),
        np.array([row.duration for row in rows], dtype=np.int64),
        sum(row.uses_later_column for row in rows),
    )
    tags = 2 + len(tag_of)
    _check_that_all_fit(nodes, tags, classes, rows, tasks, tables)
    target, covered = _target(tasks, classes, scenario.fragmentation.popularity)
    largest = Largest(max(int(nodes.cpu.max()), 1), max(int(nodes.gpus.max()) * MILLI, 1))
    return PlacementProblem(
        nodes, tasks, classes, gpus * milli, tags, target, covered, largest, [w.name for w in scenario.workload]
    )


def _nodes(scenario: PlacementScenario) -> ClusterNodes:
    stated = scenario.cluster.nodes
    rows: list[tuple[str, int, int, int, str]] = []
    if isinstance(stated, NodeFile):
        where = scenario.where("cluster", "nodes", "file")
        listed, table = read_openb_nodes(scenario.folder / stated.file, where)
        for node, line in list(zip(listed, table.lines, strict=True))[:: stated.stride]:
            if node.gpu > MAX_GPUS:
                raise InputError(
                    f"the node has {node.gpu} GPUs",
                    where=Location(table.file, line, field="gpu"),
                    expected=f"at most {MAX_GPUS}",
                )
            rows.append((node.sn, node.cpu_milli, node.memory_mib * _MIB, node.gpu, node.model))
    else:
        for group in stated:
            for _ in range(group.count):
                name = f"{group.name}-{len(rows)}"
                rows.append((name, group.cpu_milli, int(group.memory), group.gpus, group.model or ""))
    models = list(dict.fromkeys(row[4] for row in rows if row[3]))
    if len(models) > _MAX_MODELS:
        raise InputError(
            f"the cluster has {len(models)} GPU models",
            where=scenario.where("cluster", "nodes"),
            expected=f"at most {_MAX_MODELS}",
        )
    place = {model: i for i, model in enumerate(models)}
    names, cpu, memory, gpus, model = zip(*rows, strict=True)
    return ClusterNodes(
        names,
        models,
        np.array(cpu, dtype=np.int64),
        np.array(memory, dtype=np.int64),
        np.array(gpus, dtype=np.int64),
        np.array([place[m] if g else -1 for m, g in zip(model, gpus, strict=True)], dtype=np.int64),
    )


@dataclass(frozen=True)
class _Row:
    name: str
    workload: int
    row: int
    demand: tuple[int, int, int, int, int]
    """CPU, memory, GPUs, thousandths of each GPU, mask of accepted models."""
    arrival: int
    duration: int
    uses_later_column: bool


def _read_tasks(
    scenario: PlacementScenario, number: int, stated: Tasks, models: Sequence[str]
) -> tuple[list[_Row], Table]:
    where = _Places(scenario, number)
    table = read_table(scenario.folder / stated.arrivals.file, "trace", where("arrivals", "file"))
    if not table.rows:
        raise InputError(
            f"the trace '{table.file}' has no rows",
            where=where("arrivals", "file"),
            expected="a header and at least one row",
        )
    column = _Columns(table, where)
    demands = _demands(stated.resources, column, models)
    replay = isinstance(scenario.mode, Replay)
    time = stated.arrivals.time
    none: list[int | None] = [0] * len(table.rows)
    arrival = column.times(f"${time}", "arrivals", "time") if replay and time else none
    if stated.arrivals.speed != 1.0:
        begin = min(tick for tick in arrival if tick is not None)
        arrival = [None if tick is None else round((tick - begin) / stated.arrivals.speed) for tick in arrival]
    durations, uses_later_column = (
        _durations(stated, column) if replay else ([0] * len(table.rows), [False] * len(table.rows))
    )
    name = stated.arrivals.name
    names = column.texts(f"${name}", "arrivals", "name") if name else [str(i) for i in range(len(table.rows))]
    rows = [
        _Row(names[i], number, i, demands[i], arrival[i] or 0, durations[i], uses_later_column[i])
        for i in range(len(table.rows))
    ]
    return rows, table


def _demands(needs: ResourceRequest, column: _Columns, models: Sequence[str]) -> list[tuple[int, int, int, int, int]]:
    gpus = column.wholes(needs.gpus, "resources", "gpus", upper=MAX_GPUS)
    milli = column.wholes(needs.gpu_milli, "resources", "gpu_milli", upper=MILLI)
    cpu = column.wholes(needs.cpu_milli, "resources", "cpu_milli", upper=10**8)
    memory = column.amounts(needs.memory, "B", "resources", "memory")
    accepted = column.masks(needs.models, models)
    demands = []
    for i, (g, m) in enumerate(zip(gpus, milli, strict=True)):
        if g == 0:  # without a GPU the thousandths and the models have no meaning
            demands.append((cpu[i], memory[i], 0, MILLI, ANY_MODEL))
            continue
        if m == 0 or (g > 1 and m != MILLI):
            raise InputError(
                f"{g} GPU{'s' if g > 1 else ''} of {m} thousandths each",
                where=column.place(i, needs.gpu_milli, "resources", "gpu_milli"),
                expected="1 to 1000 thousandths of one GPU, or several whole GPUs (1000)",
            )
        demands.append((cpu[i], memory[i], g, m, accepted[i]))
    return demands


def _durations(stated: Tasks, column: _Columns) -> tuple[list[int], list[bool]]:
    if not isinstance(stated.duration, Span):
        spans = column.amounts(stated.duration or "0 s", "s", "duration", scale=NANO)
        return spans, [False] * len(spans)
    begins = [column.times(name, "duration", "from", empty=True) for name in stated.duration.from_]
    ends = column.times(stated.duration.to, "duration", "to")
    durations, uses_later_column = [], []
    for i, end in enumerate(ends):
        order = [k for k, times in enumerate(begins) if times[i] is not None]
        begin = begins[order[0]][i] if order else None
        if begin is None or end is None or end < begin:
            problem = "the task has no start time" if begin is None else "the task ends before it starts"
            raise InputError(
                problem, where=column.place(i, stated.duration.to, "duration", "to"), expected="a later time"
            )
        durations.append(end - begin)
        uses_later_column.append(order[0] > 0)
    return durations, uses_later_column


class _Places:
    """The source locations within one workload of the scenario."""

    def __init__(self, scenario: PlacementScenario, number: int) -> None:
        self._scenario, self._number = scenario, number

    def __call__(self, *path: str | int) -> Location:
        return self._scenario.where("workload", self._number, *path)


class _Columns:
    """The cells of a trace. An error names the line of the trace, or of the scenario if a column is missing."""

    def __init__(self, table: Table, where: _Places) -> None:
        self.table, self.where = table, where

    def place(self, row: int, value: int | str, *path: str) -> Location:
        """Return the line of the trace if ``value`` names a column, or else the line of the scenario."""
        name = column_of(value)
        return self.where(*path) if name is None else Location(self.table.file, self.table.lines[row], field=name)

    def texts(self, value: str, *path: str) -> list[str]:
        """Return the cells of the column that ``value`` names."""
        name = column_of(value)
        if name not in self.table.header:
            raise InputError(
                f"the trace {self.table.file} has no column '{name}'",
                where=self.where(*path),
                expected=list_choices(self.table.header),
                nearest=nearest(name or "", self.table.header),
            )
        return self.table.column(name)

    def wholes(self, value: int | str, *path: str, upper: int) -> list[int]:
        """Return a whole number, or a column of them, from 0 to ``upper``."""
        if isinstance(value, int):
            if value > upper:
                raise InputError(f"{value} is too large", where=self.where(*path), expected=f"at most {upper}")
            return [value] * len(self.table.rows)

        def read(text: str) -> int:
            if not (text.isascii() and text.isdigit()) or int(text) > upper:
                raise ValueError(text)
            return int(text)

        return self._parsed(value, read, f"a whole number from 0 to {upper}", *path)

    def amounts(self, value: str, unit: str, *path: str, scale: int = 1) -> list[int]:
        """Return a quantity, or a column with a unit, in whole ``1/scale`` of the SI unit, rounded up."""
        if column_of(value) is None:
            return [_ceil(Decimal(parse_quantity(value, unit)) * scale)] * len(self.table.rows)
        factor = Decimal(factor_of(value, unit)) * scale

        def read(text: str) -> int:
            number = _decimal(text) * factor
            if not 0 <= number < _MAX_NANO:
                raise ValueError(text)
            return _ceil(number)

        return self._parsed(value, read, "a number of at least 0", *path)

    def times(self, value: str, *path: str, empty: bool = False) -> list[int | None]:
        """Return a column of seconds in nanoseconds; None for an empty cell if ``empty`` allows it."""

        def read(text: str) -> int | None:
            if empty and not text:
                return None
            number = (_decimal(text) * NANO).to_integral_value()
            if abs(number) >= _MAX_NANO:
                raise ValueError(text)
            return int(number)

        return self._parsed(value, read, "a time in seconds", *path)

    def masks(self, value: str | list[str] | None, models: Sequence[str]) -> list[int]:
        """Return the models that each task accepts, as bits. A model that the cluster does not have gets no bit."""
        place = {model: 1 << i for i, model in enumerate(models)}

        def mask(names: Sequence[str]) -> int:
            return sum(place.get(name, 0) for name in set(names)) if names else ANY_MODEL

        if value is None:
            return [ANY_MODEL] * len(self.table.rows)
        if isinstance(value, list):
            return [mask(value)] * len(self.table.rows)
        return [mask([n for n in text.split("|") if n]) for text in self.texts(value, "resources", "models")]

    def _parsed(self, value: str, read: Callable[[str], _T], expected: str, *path: str) -> list[_T]:
        values = []
        for i, text in enumerate(self.texts(value, *path)):
            try:
                values.append(read(text))
            except (ValueError, InvalidOperation):
                where = self.place(i, value, *path)
                raise InputError(f"'{text[:40]}' is not valid", where=where, expected=expected) from None
        return values


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite() or number.adjusted() > 18:
        raise ValueError(text)
    return number


def _ceil(number: Decimal) -> int:
    return int(number.to_integral_value(rounding="ROUND_CEILING"))


def _check_that_all_fit(
    nodes: ClusterNodes, tags: int, classes: Classes, rows: Sequence[_Row], tasks: TaskTable, tables: Sequence[Table]
) -> None:
    empty = nodes.empty(tags)
    for c in range(len(classes.cpu)):
        if not fits_somewhere(empty, classes, c):
            row = rows[int(np.argmax(tasks.kind == c))]
            table = tables[row.workload]
            gpus = f"{classes.gpus[c]} GPU of {classes.milli[c]} thousandths, " if classes.gpus[c] else ""
            raise InputError(
                f"the task '{row.name}' fits on no node, even if it is empty: it requests {gpus}"
                f"{classes.cpu[c] / MILLI:g} cores and {classes.memory[c] / 2**30:.4g} GiB",
                where=Location(table.file, table.lines[row.row]),
                expected="a smaller request, GPU models that the cluster has, or a larger node",
            )


def _target(tasks: TaskTable, classes: Classes, popularity: float) -> tuple[Target, float]:
    """Return the most frequent classes that make up ``popularity`` of the tasks, and their share of the tasks.

    Memory is not part of a target class (see ``node_fragmentation``). Equally frequent classes are in order of their
    requests.
    """
    counts: dict[tuple[int, int, int, int], int] = {}
    kinds = np.bincount(tasks.kind, minlength=len(classes.cpu)).tolist()
    for c, count in enumerate(kinds):
        key = (int(classes.cpu[c]), int(classes.gpus[c]), int(classes.milli[c]), int(classes.models[c]))
        counts[key] = counts.get(key, 0) + count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    total, reached, kept = len(tasks), 0, []
    for key, count in ordered:
        kept.append((*key, count))
        reached += count
        if reached >= popularity * total:
            break
    cpu, gpus, milli, models, weight = (np.array(column, dtype=np.int64) for column in zip(*kept, strict=True))
    return Target(cpu, gpus, milli, models, weight), reached / total
