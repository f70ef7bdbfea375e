"""A placement scenario: a cluster of nodes, tasks that need several resources at once, and a placement policy.

Such a scenario has the key ``cluster`` instead of ``fleet``. Tasks are not programs: a task holds GPUs or a fraction of
one GPU, CPU and memory of one node for its duration. docs/placement.md explains the keys.
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
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from windtunnel.core.errors import InputError, Location
from windtunnel.core.units import parse_quantity, parse_unit
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.fields import Bytes, PricePerHour, Text
from windtunnel.scenario.located import located
from windtunnel.scenario.scenario import Stop
from windtunnel.scenario.target import METRICS, Metric, Target, parse_target

MAX_GPUS = 32
"""The largest number of GPUs of one node."""

PLACEMENT_METRICS: Mapping[str, Metric] = {
    **{
        name: Metric(METRICS[name].unit, METRICS[name].statistics, METRICS[name].doc)
        for name in ("latency", "waiting", "throughput", "power", "energy", "cost", "utilisation", "completed")
    },
    "allocation": Metric(
        "1", (), "allocated GPUs over GPU capacity: at the end of an inflation, or the mean over a replay"
    ),
    "fragmentation": Metric(
        "1", (), "fragmented GPUs over GPU capacity: at the end of an inflation, or the mean over a replay"
    ),
}
"""The metrics that a target of a placement scenario may use."""

OPENB_SKUS: Mapping[str, str] = {
    "P100": "p100-pcie-16gb",
    "T4": "t4",
    "V100M16": "v100-sxm-16gb",
    "V100M32": "v100-sxm-32gb",
    "A10": "a10",
}
"""The catalogue's SKU of each GPU model of the openb trace. The trace does not disclose G2 and G3."""


def _custom(error: InputError) -> PydanticCustomError:
    return PydanticCustomError(
        "windtunnel", "{problem}", {"problem": error.problem, "expected": error.expected, "nearest": error.nearest}
    )


def _count(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _custom(InputError(f"{value!r} is not a whole number", expected="a whole number"))
    return value


_COLUMN = re.compile(r"\$(?P<column>\S+)(?:\s+(?P<unit>\S+))?")


def column_of(value: int | str) -> str | None:
    """Return the column that ``$Column`` or ``$Column UNIT`` names; None for a plain value."""
    match = _COLUMN.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else match["column"]


def factor_of(value: str, default: str) -> float:
    """Return the SI factor of the unit in ``$Column UNIT``; of ``default`` if there is no unit."""
    match = _COLUMN.fullmatch(value)
    return parse_unit((match["unit"] if match else None) or default).factor


def _whole_or_column(value: Any) -> Any:
    if isinstance(value, str) and _COLUMN.fullmatch(value) and " " not in value:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**12:
        raise _custom(InputError(f"{value!r} is not valid", expected="a whole number from 0, or $Column"))
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
                raise InputError(f"{value!r} is not a quantity", expected=example)
            elif parse_quantity(value, unit) < 0:
                raise InputError(f"'{value}' is negative", expected="zero or more")
        except InputError as error:
            raise _custom(error) from None
        return value

    return BeforeValidator(read)


def _a_column(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith("$") and len(value) > 1 and " " not in value):
        raise _custom(InputError(f"{value!r} is not a column", expected="$Column"))
    return value


Whole = Annotated[int | str, BeforeValidator(_whole_or_column)]
MemoryAmount = Annotated[str, _quantity_or_column("B")]
Duration = Annotated[str, _quantity_or_column("s")]
Column = Annotated[str, BeforeValidator(_a_column)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeFile(_Model):
    """Nodes from a CSV file in the openb trace's columns (``sn,cpu_milli,memory_mib,gpu,model``), one row per node."""

    file: Text
    format: Literal["openb-nodes"] = "openb-nodes"
    stride: Annotated[int, BeforeValidator(_count), Field(ge=1, le=10**6)] = Field(
        1, description="use every n-th row, from the first row: a smaller cluster of the same mix"
    )


class NodeGroup(_Model):
    """A group of ``count`` identical nodes."""

    count: Annotated[int, BeforeValidator(_count), Field(ge=1, le=100_000)] = 1
    name: Text = Field("node", description="the name of these nodes, to which a number is appended")
    gpus: Annotated[int, BeforeValidator(_count), Field(ge=0, le=MAX_GPUS)]
    model: Text | None = Field(None, description="the GPU model: a SKU of the catalogue, or a name under `gpus`")
    cpu_milli: Annotated[int, BeforeValidator(_count), Field(ge=0, le=10**8)] = Field(
        description="thousandths of a processor core"
    )
    memory: Bytes

    @model_validator(mode="after")
    def _modelled(self) -> NodeGroup:
        if self.gpus and self.model is None:
            raise _custom(InputError("the GPUs have no model", expected="model: a SKU such as a100-sxm-80gb"))
        return self


class GpuModel(_Model):
    """A GPU model: its SKU in the catalogue (for power), and the rent of one GPU."""

    sku: Text | None = None
    price: PricePerHour | None = None


def _nodes_tag(value: Any) -> str:
    return "node-list" if isinstance(value, list) else "node-file"


class Cluster(_Model):
    """The nodes, from a file or a list, and their GPU models."""

    nodes: Annotated[
        Annotated[NodeFile, Tag("node-file")]
        | Annotated[list[NodeGroup], Field(min_length=1, max_length=10_000), Tag("node-list")],
        Discriminator(_nodes_tag),
    ]
    gpus: dict[str, GpuModel] = Field(
        default_factory=dict, description="by model name; the models of the openb trace have defaults"
    )


class Rows(_Model):
    """The rows of a CSV file (plain or gzip), one row per task.

    ``openb-pods`` has defaults for that trace's columns. ``csv`` requires ``time``, ``resources`` and, for a replay,
    ``duration``.
    """

    process: Literal["trace"]
    file: Text
    format: Literal["openb-pods", "csv"] = "csv"
    time: Text | None = Field(None, description="the column of arrival times, in seconds")
    name: Text | None = Field(None, description="the column of the tasks' names")
    speed: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] = Field(
        1.0, description="arrival times are divided by this factor; durations do not change"
    )


class ResourceRequest(_Model):
    """The resources of one node that a task holds: numbers, or columns of the trace."""

    gpus: Whole = 0
    gpu_milli: Whole = Field(1000, description="thousandths of each GPU; below 1000 only for a single GPU")
    cpu_milli: Whole = 0
    memory: MemoryAmount = "0 B"
    models: Column | list[Text] | None = Field(
        None, description="accepted GPU models: a list, or a column with names separated by |; default: all"
    )


class Span(_Model):
    """A duration from one time column to another (seconds); of several ``from``, the first that is not empty."""

    from_: Annotated[list[Column], Field(min_length=1)] = Field(alias="from")
    to: Column

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


_OPENB: Mapping[str, object] = {
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
    def _with_format_columns(cls, data: Any) -> Any:
        """Add the defaults of the openb format, so that the resolved scenario contains them."""
        arrivals = data.get("arrivals") if isinstance(data, dict) else None
        if not isinstance(arrivals, dict) or arrivals.get("format") != "openb-pods":
            return data
        columns = {key: _OPENB[key] for key in ("time", "name")}
        return {
            "resources": _OPENB["resources"],
            "duration": _OPENB["duration"],
            **data,
            "arrivals": {**columns, **arrivals},
        }


class Replay(_Model):
    """Tasks arrive and leave at the times of the trace. They wait in order of arrival while they do not fit."""

    kind: Literal["replay"] = "replay"
    backfill: bool = Field(
        False, description="whether a task that fits may start before an earlier task that does not fit"
    )


class Inflate(_Model):
    """The paper's experiment: tasks drawn from the trace with replacement arrive and never leave."""

    kind: Literal["inflate"] = "inflate"
    demand: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = Field(
        1.3, description="arrived GPU demand at which the run ends, over the cluster's GPU capacity"
    )
    runs: Annotated[int, BeforeValidator(_count), Field(ge=1, le=10_000)] = Field(
        5, description="independent runs; values are means over them, with 95% intervals"
    )


def _mode(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class Fragmentation(_Model):
    """The workload for which fragmentation is measured."""

    popularity: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.95, description="the share of all tasks that the most frequent classes make up; 1 for every class"
    )


class PlacementScenario(_Model):
    """A cluster, tasks, a placement policy, and targets."""

    schema_: Literal[1] = Field(alias="schema")
    name: Text
    description: str | None = None
    seed: Annotated[int, BeforeValidator(_count), Field(ge=0, le=2**63 - 1)] = 1
    cluster: Cluster
    workload: Annotated[list[Tasks], Field(min_length=1, max_length=1_000)]
    policy: Text = "fragmentation-gradient-descent"
    ties: Literal["first", "shuffled", "random"] = Field(
        "first",
        description="which of equally good nodes: the first; the first in an order drawn once per run (the paper's "
        "experiments); or a random one each time (Kubernetes)",
    )
    mode: Annotated[Replay | Inflate, Field(discriminator="kind"), BeforeValidator(_mode)] = Replay()
    fragmentation: Fragmentation = Fragmentation()
    stop: Stop | None = None
    targets: list[str] = Field(default_factory=list)

    _document: Document = PrivateAttr()
    _targets: list[Target] = PrivateAttr(default_factory=list)

    def where(self, *path: str | int) -> Location:
        """Return the source location of the value at ``path``."""
        return self._document.where(path)

    @property
    def folder(self) -> Path:
        """Return the folder to which files named in the scenario are relative."""
        return Path(self._document.file).parent

    @property
    def parsed_targets(self) -> Sequence[Target]:
        """Return the parsed targets."""
        return self._targets

    def reseeded(self, seed: int) -> PlacementScenario:
        """Return the same scenario with another seed."""
        return self.model_copy(update={"seed": seed})

    def resolved(self) -> dict[str, object]:
        """Return the complete scenario with all defaults, as in a file."""
        return self.model_dump(mode="json", by_alias=True)


def check_placement(document: Document) -> PlacementScenario:
    """Return the placement scenario in a document. Raises InputError for the first error in it."""
    if "fleet" in document.data:
        raise InputError(
            "a scenario cannot have both a fleet and a cluster",
            where=document.where(("fleet",), key=True),
            expected="fleet for jobs that devices run, or cluster for tasks that hold GPUs",
        )
    try:
        scenario = PlacementScenario.model_validate(document.data)
    except ValidationError as error:
        raise located(error, document, PlacementScenario) from None
    scenario._document = document
    seen: set[str] = set()
    for i, tasks in enumerate(scenario.workload):
        if tasks.name in seen:
            raise InputError(
                f"two workloads have the name '{tasks.name}'",
                where=document.where(("workload", i, "name")),
                expected="unique names",
            )
        seen.add(tasks.name)
        _check_times(scenario, i, tasks, document)
    if isinstance(scenario.mode, Inflate) and scenario.stop is not None:
        raise InputError(
            "an inflation ends at a demand and takes no stop condition",
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
            raise InputError(
                f"'{key}' is missing", where=document.where(path), expected=f"the key '{key}', which a replay requires"
            )


def placement_from_data(data: Mapping[str, object], file: str = "scenario") -> PlacementScenario:
    """Return a placement scenario from plain data, as in a file."""
    return check_placement(Document(dict(data), file))


def json_schema() -> JsonSchemaValue:
    """Return the JSON Schema of a placement scenario."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlacementScenario.model_json_schema(by_alias=True),
        "title": "Windtunnel placement scenario",
    }
