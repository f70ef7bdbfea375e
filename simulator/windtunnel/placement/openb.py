"""Reads and writes the two files of the openb trace: nodes and tasks.

The trace is of Alibaba's openb cluster. It is published through hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0)
with Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). Times are whole seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.errors import InputError, Location, nearest


@dataclass(frozen=True)
class OpenbNode:
    """A node. ``gpu`` is its number of GPUs; the CPU is in thousandths of a core."""

    sn: str
    cpu_milli: int
    memory_mib: int
    gpu: int
    model: str


@dataclass(frozen=True)
class OpenbPod:
    """A task. ``gpu_milli`` is of each of its ``num_gpu`` GPUs; ``scheduled_time`` is None if it never started."""

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    gpu_spec: tuple[str, ...]
    qos: str
    pod_phase: str
    creation_time: int
    deletion_time: int
    scheduled_time: int | None


def read_openb_nodes(path: Path, where: Location | None = None) -> tuple[list[OpenbNode], Table]:
    """Return every row of a nodes file, in order, and the table with the line numbers.

    ``where`` is the place in the scenario that names the file. Raises InputError with file, line and column if a row is
    not valid.
    """
    table = _read(path, OpenbNode, "list of nodes", where)
    nodes = []
    for i, row in enumerate(table.rows):
        cell = dict(zip(table.header, row, strict=True))
        numbers = {name: _whole(cell[name], table, i, name) for name in ("cpu_milli", "memory_mib", "gpu")}
        nodes.append(OpenbNode(sn=cell["sn"], model=cell["model"], **numbers))
    return nodes, table


def read_openb_pods(path: Path, where: Location | None = None) -> tuple[list[OpenbPod], Table]:
    """Return every row of a tasks file, in order, and its table. Raises as ``read_openb_nodes`` does."""
    table = _read(path, OpenbPod, "list of tasks", where)
    whole = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
    pods = []
    for i, row in enumerate(table.rows):
        cell = dict(zip(table.header, row, strict=True))
        scheduled = cell["scheduled_time"]
        number = {name: _whole(cell[name], table, i, name) for name in whole}
        pods.append(
            OpenbPod(
                name=cell["name"],
                qos=cell["qos"],
                pod_phase=cell["pod_phase"],
                cpu_milli=number["cpu_milli"],
                memory_mib=number["memory_mib"],
                num_gpu=number["num_gpu"],
                gpu_milli=number["gpu_milli"],
                creation_time=number["creation_time"],
                deletion_time=number["deletion_time"],
                gpu_spec=tuple(cell["gpu_spec"].split("|")) if cell["gpu_spec"] else (),
                scheduled_time=_whole(scheduled, table, i, "scheduled_time") if scheduled else None,
            )
        )
    return pods, table


def nodes_csv(nodes: list[OpenbNode]) -> str:
    """Return ``nodes`` as the text of a nodes file."""
    return _lines(OpenbNode, ([n.sn, str(n.cpu_milli), str(n.memory_mib), str(n.gpu), n.model] for n in nodes))


def pods_csv(pods: list[OpenbPod]) -> str:
    """Return ``pods`` as the text of a tasks file."""

    def cells(pod: OpenbPod) -> list[str]:
        values = [getattr(pod, field.name) for field in fields(OpenbPod)]
        return ["|".join(v) if isinstance(v, tuple) else "" if v is None else str(v) for v in values]

    return _lines(OpenbPod, map(cells, pods))


def _lines(kind: type, rows: object) -> str:
    header = ",".join(field.name for field in fields(kind))
    return "\n".join([header, *(",".join(row) for row in rows)]) + "\n"  # type: ignore[attr-defined]


def _read(path: Path, kind: type, what: str, where: Location | None) -> Table:
    table = read_table(path, what, where)
    wanted = tuple(field.name for field in fields(kind))
    for name in wanted:
        if name not in table.header:
            raise InputError(
                f"the {what} has no column '{name}'",
                where=Location(str(path), 1, field=name),
                expected=f"the columns {', '.join(wanted)}",
                nearest=nearest(name, table.header),
            )
    if not table.rows:
        raise InputError(f"the {what} has no rows", where=where or Location(str(path)), expected="at least one row")
    return table


def _whole(text: str, table: Table, row: int, column: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise InputError(
            f"'{text[:40]}' is not a whole number",
            where=Location(table.file, table.lines[row], field=column),
            expected="a whole number of at least 0",
        )
    return int(text)
