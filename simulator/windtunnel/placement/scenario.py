"""A placement scenario: a cluster of nodes, tasks that need several resources at once, and a placement policy.

A scenario with the key ``cluster`` in place of ``fleet`` is one of these. Tasks are not programs: they hold GPUs,
parts of one GPU, CPU and memory of one node for as long as they last. docs/placement.md explains the keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from windtunnel.core.errors import InputError, Where
from windtunnel.core.units import parse_quantity, parse_unit
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.fields import Bytes, PricePerHour, Text
from windtunnel.scenario.located import located
from windtunnel.scenario.scenario import Stop
from windtunnel.scenario.target import METRICS, Metric, Target, parse_target

MAX_GPUS = 32
"""GPUs of one node at most."""

PLACEMENT_METRICS: Mapping[str, Metric] = {
    **{
        name: Metric(METRICS[name].unit, METRICS[name].statistics, METRICS[name].doc)
        for name in ("latency", "waiting", "throughput", "power", "energy", "cost", "utilisation", "completed")
    },
    "allocation": Metric("1", (), "GPU allocated over GPU capacity: at the end when inflating, else over the time"),
    "fragmentation": Metric("1", (), "GPU fragmented over GPU capacity, likewise"),
}
"""What a target of a placement scenario may speak of."""

OPENB_SKUS: Mapping[str, str] = {
    "P100": "p100-pcie-16gb",
    "T4": "t4",
    "V100M16": "v100-sxm-16gb",
    "V100M32": "v100-sxm-32gb",
    "A10": "a10",
}
"""The catalogue's SKU of each GPU model of the openb trace; G2 and G3 are undisclosed there."""


def _custom(error: InputError) -> PydanticCustomError:
    return PydanticCustomError(
        "windtunnel",
        "{problem}",
        {"problem": error.problem, "expected": error.expected, "nearest": error.nearest},
    )


def _count(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _custom(InputError(f"this is {value!r}", expected="a whole number"))
    return value


_COLUMN = re.compile(r"\$(?P<column>\S+)(?:\s+(?P<unit>\S+))?")


def column_of(value: int | str) -> str | None:
    """The column that ``$Column`` or ``$Column UNIT`` names; None for a plain value."""
    match = _COLUMN.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else match["column"]


def factor_of(value: str, default: str) -> float:
    """The SI factor of ``$Column UNIT``, in which the column is written; ``default`` where no unit stands."""
    match = _COLUMN.fullmatch(value)
    return parse_unit((match["unit"] if match else None) or default).factor


def _whole_or_column(value: Any) -> Any:
    if isinstance(value, str) and _COLUMN.fullmatch(value) and " " not in value:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**12:
        raise _custom(InputError(f"this is {value!r}", expected="a whole number from 0, or $Column"))
    return value


def _quantity_or_column(unit: str) -> BeforeValidator:
    example = f"a quantity such as '10 {unit}', or '$Column {unit}'"

    def read(value: Any) -> Any:
        try:
            match = _COLUMN.fullmatch(value) if isinstance(value, str) else None
            if match is not None:
                if match["unit"] is None:
                    raise InputError(f"'{value}' has no unit", expected=example)
                parse_quantity(f"1 {match['unit']}", unit)
            elif not isinstance(value, str):
                raise InputError(f"this is {value!r}", expected=example)
            elif parse_quantity(value, unit) < 0:
                raise InputError(f"'{value}' is negative", expected="zero or more")
        except InputError as error:
            raise _custom(error) from None
        return value

    return BeforeValidator(read)


def _a_column(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("$") and len(value) > 1 and " " not in value):
        raise _custom(InputError(f"this is {value!r}", expected="$Column"))
    return value


Whole = Annotated[int | str, BeforeValidator(_whole_or_column)]
MemoryAmount = Annotated[str, _quantity_or_column("B")]
Duration = Annotated[str, _quantity_or_column("s")]
Column = Annotated[str, BeforeValidator(_a_column)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeFile(_Model):
    """Nodes from a CSV file in the openb trace's columns (``sn,cpu_milli,memory_mib,gpu,model``), one row each."""

    file: Text
    format: Literal["openb-nodes"] = "openb-nodes"
    stride: Annotated[int, BeforeValidator(_count), Field(ge=1, le=10**6)] = Field(
        1, description="use every n-th row, from the first on: a smaller cluster of the same mix"
    )


class NodeGroup(_Model):
    """``count`` nodes that are alike."""

    count: Annotated[int, BeforeValidator(_count), Field(ge=1, le=100_000)] = 1
    name: Text = Field("node", description="what to call these nodes; each gets a number behind it")
    gpus: Annotated[int, BeforeValidator(_count), Field(ge=0, le=MAX_GPUS)]
    model: Text | None = Field(None, description="the GPUs' model: a SKU of the catalogue, or a name under `gpus`")
    cpu_milli: Annotated[int, BeforeValidator(_count), Field(ge=0, le=10**8)] = Field(
        description="thousandths of a processor core"
    )
    memory: Bytes

    @model_validator(mode="after")
    def _modelled(self) -> NodeGroup:
        if self.gpus and self.model is None:
            raise _custom(InputError("these GPUs have no model", expected="model: a SKU such as a100-sxm-80gb"))
        return self


class GpuModel(_Model):
    """What a GPU model is: a SKU of the catalogue (for power), and the rent of one GPU."""

    sku: Text | None = None
    price: PricePerHour | None = None


def _nodes_tag(value: Any) -> str:
    return "node-list" if isinstance(value, list) else "node-file"


class Cluster(_Model):
    """Nodes, from a file or stated here, and what their GPU models are."""

    nodes: Annotated[
        Annotated[NodeFile, Tag("node-file")]
        | Annotated[list[NodeGroup], Field(min_length=1, max_length=10_000), Tag("node-list")],
        Discriminator(_nodes_tag),
    ]
    gpus: dict[str, GpuModel] = Field(
        default_factory=dict, description="by model name; those of the openb trace are known by themselves"
    )


class Rows(_Model):
    """The rows of a CSV file (plain or gzip), one task each.

    ``openb-pods`` knows that trace's columns; ``csv`` needs ``time``, ``resources`` and, to replay, ``duration``.
    """

    process: Literal["trace"]
    file: Text
    format: Literal["openb-pods", "csv"] = "csv"
    time: Text | None = Field(None, description="the column of arrival times, in seconds")
    name: Text | None = Field(None, description="the column of the tasks' names")
    speed: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = Field(
        1.0, description="arrival times are divided by this; how long tasks last stays"
    )


class ResourceRequest(_Model):
    """What one task takes of one node: numbers, or columns of the trace."""

    gpus: Whole = 0
    gpu_milli: Whole = Field(1000, description="of each GPU; below 1000 only for a single GPU")
    cpu_milli: Whole = 0
    memory: MemoryAmount = "0 B"
    models: Column | list[Text] | None = Field(
        None, description="GPU models it accepts: a list, or a column with them separated by |; all unless given"
    )


class Span(_Model):
    """A task lasts from one time column to another (seconds); of several ``from``, the first that is not empty."""

    from_: Annotated[list[Column], Field(min_length=1)] = Field(alias="from")
    to: Column

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


_OPENB: Mapping[str, Any] = {
    "time": "creation_time",
    "name": "name",
    "resources": {
        "gpus": "$num_gpu",
        "gpu_milli": "$gpu_milli",
        "cpu_milli": "$cpu_milli",
        "memory": "$memory_mib MiB",
        "models": "$gpu_spec",
    },
    "duration": {"from": ["$scheduled_time", "$creation_time"], "to": "$deletion_time"},
}


TaskDuration = Annotated[
    Annotated[Span, Tag("duration-span")] | Annotated[Duration, Tag("duration-text")],
    Discriminator(lambda value: "duration-span" if isinstance(value, (dict, Span)) else "duration-text"),
]


class Tasks(_Model):
    """A stream of tasks."""

    name: Text
    arrivals: Rows
    resources: ResourceRequest
    duration: TaskDuration | None = None

    @model_validator(mode="before")
    @classmethod
    def _known_columns(cls, data: Any) -> Any:
        """Fills in what the openb format knows of itself, so that the resolved scenario says it."""
        arrivals = data.get("arrivals") if isinstance(data, dict) else None
        if not isinstance(arrivals, dict) or arrivals.get("format") != "openb-pods":
            return data
        known = {key: _OPENB[key] for key in ("time", "name")}
        return {
            "resources": _OPENB["resources"],
            "duration": _OPENB["duration"],
            **data,
            "arrivals": {**known, **arrivals},
        }


class Replay(_Model):
    """Tasks come and go at their own times and wait in order of arrival while they do not fit."""

    kind: Literal["replay"] = "replay"
    backfill: bool = Field(False, description="whether a task that fits may overtake one that does not")


class Inflate(_Model):
    """The paper's experiment: tasks drawn from the trace with replacement arrive and never leave."""

    kind: Literal["inflate"] = "inflate"
    demand: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = Field(
        1.3, description="arrived GPU demand at which to stop, over the cluster's GPU capacity"
    )
    runs: Annotated[int, BeforeValidator(_count), Field(ge=1, le=10_000)] = Field(
        5, description="independent runs; values are means over them, with 95% intervals"
    )


def _mode(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class Fragmentation(_Model):
    """The workload that fragmentation is measured against."""

    popularity: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.95, description="the most frequent classes of tasks that make up this share of all; 1 for every class"
    )


class PlacementScenario(_Model):
    """A cluster, tasks, a placement policy, and what to reach."""

    schema_: Literal[1] = Field(alias="schema")
    name: Text
    description: str | None = None
    seed: Annotated[int, BeforeValidator(_count), Field(ge=0, le=2**63 - 1)] = 1
    cluster: Cluster
    workload: Annotated[list[Tasks], Field(min_length=1, max_length=1_000)]
    policy: Text = "fragmentation-gradient-descent"
    ties: Literal["first", "shuffled", "random"] = Field(
        "first",
        description="among equally good nodes: the first; the first in an order drawn once a run (the paper's "
        "experiments); or one drawn each time (Kubernetes)",
    )
    mode: Annotated[Replay | Inflate, Field(discriminator="kind"), BeforeValidator(_mode)] = Replay()
    fragmentation: Fragmentation = Fragmentation()
    stop: Stop | None = None
    targets: list[str] = Field(default_factory=list)

    _document: Document = PrivateAttr()
    _targets: list[Target] = PrivateAttr(default_factory=list)

    def where(self, *path: str | int) -> Where:
        """The place of the value at ``path`` in the file it was read from."""
        return self._document.where(path)

    @property
    def folder(self) -> Path:
        """The folder that files named in the scenario are relative to."""
        return Path(self._document.file).parent

    @property
    def parsed_targets(self) -> Sequence[Target]:
        """The targets, parsed."""
        return self._targets

    def resolved(self) -> dict[str, Any]:
        """Everything with its defaults, as it would be written in a file."""
        return self.model_dump(mode="json", by_alias=True)


def is_placement(document: Document) -> bool:
    """Whether a document states a cluster to place tasks on rather than a fleet."""
    return isinstance(document.data, dict) and "cluster" in document.data


def check_placement(document: Document) -> PlacementScenario:
    """The placement scenario a document holds; InputError for the first thing wrong with it."""
    if "fleet" in document.data:
        raise InputError(
            "a fleet and a cluster are both stated",
            where=document.where(("fleet",), key=True),
            expected="fleet for jobs that devices run, or cluster for tasks that hold GPUs",
        )
    try:
        scenario = PlacementScenario.model_validate(document.data)
    except ValidationError as error:
        raise located(error, document, PlacementScenario.model_json_schema(by_alias=True)) from None
    scenario._document = document
    seen: set[str] = set()
    for i, tasks in enumerate(scenario.workload):
        if tasks.name in seen:
            raise InputError(
                f"the workload '{tasks.name}' is given twice",
                where=document.where(("workload", i, "name")),
                expected="each name once",
            )
        seen.add(tasks.name)
        _check_times(scenario, i, tasks, document)
    if isinstance(scenario.mode, Inflate) and scenario.stop is not None:
        raise InputError(
            "inflating stops at a demand",
            where=document.where(("stop",), key=True),
            expected="mode: {kind: inflate, demand: 1.3} without a stop",
        )
    for i, text in enumerate(scenario.targets):
        try:
            target = parse_target(text, PLACEMENT_METRICS)
        except InputError as error:
            raise error.at(document.where(("targets", i))) from None
        scenario._targets.append(target)
    return scenario


def _check_times(scenario: PlacementScenario, i: int, tasks: Tasks, document: Document) -> None:
    if isinstance(scenario.mode, Inflate):
        return
    for key, value, path in (
        ("duration", tasks.duration, ("workload", i)),
        ("time", tasks.arrivals.time, ("workload", i, "arrivals")),
    ):
        if value is None:
            raise InputError(f"'{key}' is missing", where=document.where(path), expected=f"the key '{key}', to replay")


def placement_from_data(data: Mapping[str, Any], file: str = "scenario") -> PlacementScenario:
    """A placement scenario from plain data, as a file would hold it."""
    return check_placement(Document(dict(data), file))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a placement scenario."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlacementScenario.model_json_schema(by_alias=True),
        "title": "Windtunnel placement scenario",
    }
