"""The table of a sweep: a row for each point with the numbers of its result, as sweep.json and sweep.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from windtunnel.core.csvfile import write_whole
from windtunnel.sweep.grid import FORMAT, Grid, canonical

# Keys that are not numbers of the run, or are elsewhere in the row.
_LEFT_OUT = (
    "name", "description", "policy", "devices", "provenance", "model_accuracy", "notes", "scenario", "versions",
    "targets", "workloads",
)  # fmt: skip


_STATES = ("point", "key", "status", "error", "met", "missed", "inconclusive")


def row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a result by their path in result.json (``latency_s.p99``), with ``.low`` and ``.high``.

    With several workloads, each has columns of its own: ``workloads.NAME.latency_s.p99``. ``met`` states whether all
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


def document(grid: Grid, stated: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], code: int) -> dict[str, Any]:
    """Return what sweep.json holds: the axes, and a row for each point in the order of the grid."""
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
    """Return the table as CSV: an empty cell for no value, ``true`` and ``false``, numbers that read back exactly."""
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
    """Write sweep.csv and sweep.json of a finished sweep, each completely or not at all."""
    texts = {
        "sweep.csv": csv_text(document["columns"], document["rows"]),
        "sweep.json": json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for name, text in texts.items():

        def write(stream: TextIO, text: str = text) -> None:
            stream.write(text)

        write_whole(folder / name, write)
    return [folder / name for name in texts]
