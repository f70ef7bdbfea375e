"""The table of a sweep: a row for each point with the numbers of its result, as sweep.json and sweep.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.csvfile import Cell, write_table, write_texts
from windtunnel.core.results.data import result_json
from windtunnel.core.results.sweep import PointOutcome, SweepResult, SweepRow
from windtunnel.sweep.grid import FORMAT, Grid, Manifest, canonical

# Keys that are not numbers of the run, or are elsewhere in the row.
_LEFT_OUT = (
    "name", "description", "policy", "devices", "provenance", "model_accuracy", "notes", "scenario", "versions",
    "targets", "workloads",
)  # fmt: skip


_STATES = ("point", "key", "status", "error", "met", "missed", "inconclusive")


def outcome_of(result: Mapping[str, Any]) -> PointOutcome:
    """Return the outcome of a point from its stored result.json.

    Numbers are found by their path (``latency_s.p99``), with ``.low`` and ``.high``. With several workloads, each has
    columns of its own: ``workloads.NAME.latency_s.p99``. Inconclusive targets are those whose 95% interval contains the
    limit.
    """
    targets = result.get("targets") or []
    numbers: dict[str, bool | float | str | None] = {}
    for key, value in result.items():
        if key not in _LEFT_OUT:
            numbers.update(_flat(key, value))
    workloads = result.get("workloads") or []
    for workload in workloads if len(workloads) > 1 else []:
        for key, value in workload.items():
            if key not in ("name", "use_case"):
                numbers.update(_flat(f"workloads.{workload['name']}.{key}", value))
    return PointOutcome(
        status="done",
        met=all(target["met"] for target in targets) if targets else None,
        missed="; ".join(target["text"] for target in targets if not target["met"]) or None,
        inconclusive="; ".join(t["text"] for t in targets if t.get("confidence") == "inconclusive") or None,
        numbers=numbers,
    )


def _flat(path: str, value: object) -> Iterator[tuple[str, bool | float | str | None]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(path if key == "value" else f"{path}.{key}", inner)
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield path, value


def table(paths: Sequence[str], rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the columns of ``rows``, each once, in a common order: states, swept paths, numbers.

    A column without a value in any row is omitted if other columns have its values (a time with and without tokens).
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


def sweep_result(grid: Grid, stated: Manifest, outcomes: Sequence[PointOutcome], code: int) -> SweepResult:
    """Return the result of a sweep; ``code`` is the exit code of the worst point."""
    paths = [axis.path for axis in grid.axes]
    rows = [
        SweepRow(point=point.number, key=key, swept=dict(zip(paths, point.values, strict=True)), **vars(outcome))
        for point, key, outcome in zip(grid.points, stated.points, outcomes, strict=True)
    ]
    return SweepResult(
        windtunnel_sweep=FORMAT,
        scenario=grid.file,
        axes=stated.axes,
        replications=stated.common.replications,
        engine=stated.common.engine,
        versions=stated.common.versions,
        points=len(rows),
        failed=sum(row.status == "failed" for row in rows),
        missed=sum(row.met is False for row in rows),
        exit_code=code,
        columns=table(paths, [row.cells() for row in rows]),
        rows=rows,
    )


def csv_text(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    """Return the table as CSV: an empty cell for no value, ``true`` and ``false``, numbers that read back exactly."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(cells.get(column)) for column in columns] for cells in rows)
    return stream.getvalue()


def _typed(value: object) -> Cell:
    """Return a value as a cell of a typed table: texts, numbers and truth values as they are, others as JSON."""
    return value if value is None or isinstance(value, str | int | float) else canonical(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, float) else canonical(value)


def write_tables(folder: Path, result: SweepResult, parquet: bool = False) -> list[Path]:
    """Write sweep.csv and sweep.json of a finished sweep, each completely or not at all, and sweep.parquet if asked."""
    if parquet:
        rows = ([_typed(row.cells().get(column)) for column in result.columns] for row in result.rows)
        write_table(folder / "sweep.parquet", result.columns, rows)
    cells = csv_text(result.columns, [row.cells() for row in result.rows])
    return write_texts(folder, {"sweep.csv": cells, "sweep.json": result_json(result)})
