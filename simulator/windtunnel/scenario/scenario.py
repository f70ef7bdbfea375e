"""A scenario: a fleet, a workload, a policy, when to stop and what to reach - read, checked and located.

The models below are the schema (`windtunnel schema` prints it). Quantities are text with units in files and
SI floats here. Every error names the file, line, column and field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.renamed import RENAMED
from windtunnel.core.ticks import MAX_SECONDS
from windtunnel.core.yamlfile import Document, parse, read_text, spell
from windtunnel.scenario.arrivals import Arrivals, shared_clocks
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.decoder import Decoder
from windtunnel.scenario.faults import COPIES, Fault, OperationFault
from windtunnel.scenario.fields import (
    Bytes,
    Count,
    Natural,
    PositiveSeconds,
    PricePerHour,
    Quantity,
    Seconds,
    Text,
    Watts,
    as_custom,
    whole,
)
from windtunnel.scenario.fields import Model as _Model
from windtunnel.scenario.located import located
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.program import Stage, operations_of, parse_program
from windtunnel.scenario.site import Site
from windtunnel.scenario.target import METRICS, Target, parse_figure, parse_target

NodePath = tuple[str | int, ...]
_MAX_SEED = 2**63 - 1


class PowerLimits(_Model):
    """What a device draws: idle, and at most (for `server`, whenever it is busy)."""

    idle: Watts | None = None
    max: Watts | None = None

    @model_validator(mode="after")
    def _ordered(self) -> PowerLimits:
        if self.idle is not None and self.max is not None and self.idle > self.max:
            raise as_custom(InputError("idle power is above max", expected="idle <= max"))
        return self


HOSTED = {
    "cpu": "host@native", "offload": "host@native", "packets": "host@native", "opencl": "host@opencl",
    "wgpu": "host@wgpu", "vulkan": "host@vulkan",
}  # fmt: skip
"""The model of what a back end reaches on a host without an accelerator: its own processor."""


class FleetEntry(_Model):
    """``count`` devices of one SKU, reached through one API (``SKU`` or ``SKU@API``).

    With ``real`` it is one device of this host, which executes what it is given; ``device`` is then its model, by
    which it is chosen.
    """

    real: Text | None = Field(
        None, description="a device of this host, as `windtunnel devices --real` names it: opencl:0"
    )
    device: Text = Field("", description="SKU or SKU@API; of a real device its model, the host's own unless given")
    count: Count = 1
    name: Text | None = Field(None, description="what to call these devices; the SKU unless given")
    speed: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    price: PricePerHour | None = None
    power: PowerLimits = PowerLimits()
    memory: Bytes | None = Field(None, description="memory to use instead of the SKU's own")
    calibration: Text | None = Field(
        None, description="an overlay that `windtunnel calibrate` wrote, in place of the shipped one; or none"
    )
    streams: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1024)] = Field(
        1, description="jobs a device works on at the same time, as far as its engines allow"
    )

    @model_validator(mode="after")
    def _one_real_device(self) -> FleetEntry:
        if self.real is None:
            if not self.device:
                raise as_custom(InputError("a fleet entry without a device", expected="device: SKU, or real: opencl:0"))
            return self
        for what, stated in (("count", self.count != 1), ("speed", self.speed != 1.0), ("streams", self.streams != 1)):
            if stated:
                raise as_custom(
                    InputError(
                        f"a real device with {what} {getattr(self, what):g}", expected="one entry for each, as it is"
                    )
                )
        way, colon, number = self.real.partition(":")
        if not way or not colon or not number.isdecimal() or number != str(int(number)):
            raise as_custom(InputError(f"'{self.real}' names no device", expected="a back end and a number: opencl:0"))
        if not self.device:
            if way not in HOSTED:
                raise as_custom(
                    InputError(
                        f"nothing says which model stands for {self.real}",
                        expected="device: the SKU behind that API",
                        nearest=nearest(way, HOSTED),
                    )
                )
            object.__setattr__(self, "device", HOSTED[way])
        return self


class DecoderModel(_Model):
    """A decoder-only transformer, by its architecture."""

    layers: Natural
    width: Natural
    heads: Natural
    feed_forward: Natural
    vocabulary: Natural = 32_000
    kv_heads: Natural | None = None
    head_dim: Natural | None = None
    dtype: Literal["float32", "float16", "bfloat16", "fp8", "int8"] = "bfloat16"
    kv_dtype: Literal["float32", "float16", "bfloat16", "fp8", "int8"] | None = None
    gated: bool = True
    dispatch: Literal["device", "graph", "eager"] = "graph"

    @model_validator(mode="after")
    def _whole_heads(self) -> DecoderModel:
        if self.head_dim is None and self.width % self.heads:
            raise as_custom(InputError(f"width {self.width} is not a multiple of heads {self.heads}"))
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise as_custom(InputError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}"))
        return self

    def decoder(self) -> Decoder:
        """The architecture with what was left out filled in."""
        return Decoder(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            feed_forward=self.feed_forward,
            vocabulary=self.vocabulary,
            kv_heads=self.kv_heads or self.heads,
            head_dim=self.head_dim or self.width // self.heads,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype or self.dtype,
            gated=self.gated,
            dispatch=self.dispatch,
        )


class Workload(_Model):
    """A stream of jobs that run the same program."""

    name: Text
    use_case: Text | None = Field(None, description="use case, for the recommendation matrix")
    devices: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None, description="fleet entries (by name, or by SKU) that may serve these jobs; all that can unless given"
    )
    arrivals: Arrivals
    ops: list[Any] = Field(min_length=1, description="the job's program; `windtunnel ops` lists the operations")
    priority: Annotated[int, BeforeValidator(whole), Field(ge=-(10**6), le=10**6)] = 0
    deadline: PositiveSeconds | None = Field(
        None, description="time from arrival within which a job is due; a generating job's first token"
    )


class RequestBatch(_Model):
    """Up to ``size`` jobs of one workload run as one, after waiting at most ``wait`` for them."""

    kind: Literal["request"]
    size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100_000)]
    wait: Seconds = 0.0


class ContinuousBatch(_Model):
    """Generating jobs join and leave a device's batch at every step, as memory for their keys and values allows."""

    kind: Literal["continuous"]
    size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=4096)] = 256
    tokens: Annotated[int, BeforeValidator(whole), Field(ge=16, le=131_072)] = Field(
        2048, description="tokens of one step, prompts' chunks included"
    )
    memory: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        0.9, description="share of a device's memory for weights and cache"
    )


class PolicyParts(_Model):
    """A named policy or a route and an order, and how jobs are batched."""

    name: Text | None = None
    route: Text | None = None
    order: Text | None = None
    batch: Annotated[RequestBatch | ContinuousBatch, Field(discriminator="kind")] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> PolicyParts:
        if (self.name is None) == (self.route is None and self.order is None):
            raise as_custom(
                InputError("a policy is a name, or a route and an order", expected="name, or route and order")
            )
        return self


class Stop(_Model):
    """When a run ends: arrivals end after ``jobs`` and the system drains, everything stops at ``time``, or so many jobs
    arrive that the 95% interval of a figure is no wider than ``relative_error`` of it to either side.
    """

    jobs: Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**9)] | None = None
    time: Annotated[float, Quantity("s", positive=True, most=MAX_SECONDS)] | None = None
    relative_error: Annotated[float, Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="such as 2%"
    )
    metric: Text | None = Field(None, description="the figure that is to be precise; latency mean unless given")
    max: Annotated[int, BeforeValidator(whole), Field(ge=1_000, le=10**9)] | None = Field(
        None, description="jobs after which precision is given up; 50,000,000 unless given"
    )

    @model_validator(mode="after")
    def _one(self) -> Stop:
        if sum(part is not None for part in (self.jobs, self.time, self.relative_error)) != 1:
            raise as_custom(
                InputError("a stop is a number of jobs, a time or a precision", expected="jobs, time or relative_error")
            )
        if self.relative_error is None and (self.metric is not None or self.max is not None):
            raise as_custom(InputError("metric and max go with a precision", expected="relative_error: 2%"))
        metric = METRICS.get(self.figure.split()[0])
        if metric is not None and not metric.per_workload:
            raise as_custom(InputError(f"'{self.metric}' has no interval", expected="such as 'latency p99'"))
        try:
            parse_figure(self.figure)
        except InputError as error:
            raise as_custom(error) from None
        return self

    @property
    def figure(self) -> str:
        """The figure that is to be precise."""
        return self.metric or "latency mean"


def _target(value: Any) -> Any:
    try:
        if not isinstance(value, str):
            raise InputError(f"{value!r} is not a target", expected="text such as 'latency p99 <= 20 ms'")
        parse_target(value)
    except InputError as error:
        raise as_custom(error) from None
    return value


TargetText = Annotated[str, BeforeValidator(_target)]


class Scenario(_Model):
    """A fleet, a workload, a policy, when to stop, and what to reach."""

    schema_: Literal[1] = Field(alias="schema")
    name: Text
    description: str | None = None
    seed: Annotated[int, BeforeValidator(whole), Field(ge=0, le=_MAX_SEED)] = 1
    fleet: Annotated[list[FleetEntry], Field(min_length=1, max_length=10_000)]
    models: dict[str, DecoderModel] = Field(default_factory=dict)
    workload: Annotated[list[Workload], Field(min_length=1, max_length=10_000)]
    policy: Text | PolicyParts = "fifo"
    faults: Annotated[list[Fault], Field(max_length=60)] = Field(default_factory=list)
    power_budget: Annotated[float, Quantity("W", positive=True, most=1e12)] | None = Field(
        None, description="what the whole fleet may draw at any instant; a job that would exceed it waits"
    )
    autoscale: Annotated[list[Autoscale], Field(max_length=10_000)] = Field(
        default_factory=list, description="fleet entries of which more or fewer devices are in service as load changes"
    )
    stop: Stop | None = None
    records: Literal["all", "sample", "none"] | None = Field(
        None,
        description="whether every job's times are kept, those of 200,000, or none; unless given, every "
        "job's up to 1,000,000 jobs and a sample above",
    )
    warm_up: Literal["auto", "none"] = Field(
        "auto", description="whether times leave out the jobs that still show that the run began empty; none: all count"
    )
    targets: list[TargetText] = Field(default_factory=list)
    site: Site | None = Field(None, description="what power costs and emits where the fleet stands")
    plan: Plan | None = Field(None, description="how `windtunnel plan` searches; `run` does not read it")

    _document: Document = PrivateAttr()
    _programs: list[tuple[Stage, ...]] = PrivateAttr(default_factory=list)

    def where(self, *path: str | int) -> Where:
        """The place of the value at ``path`` in the file it was read from."""
        return self._document.where(path)

    @property
    def folder(self) -> Path:
        """The folder that files named in the scenario are relative to."""
        return Path(self._document.file).parent

    @property
    def real_devices(self) -> list[str]:
        """The devices of this host in the fleet, whose times are measured and not modelled."""
        return [entry.real for entry in self.fleet if entry.real is not None]

    @property
    def programs(self) -> Sequence[tuple[Stage, ...]]:
        """Each workload's parsed program, in the order of ``workload``."""
        return self._programs

    def reseeded(self, seed: int) -> Scenario:
        """The same scenario with another seed."""
        return self.changed(seed=seed)

    def changed(self, **values: Any) -> Scenario:
        """The same scenario with other values of some keys, which must be right: they are not checked again."""
        other = self.model_copy(update=values)
        other._document, other._programs = self._document, self._programs
        return other

    def entries_named(self, name: str) -> list[int]:
        """The fleet entries called ``name``: those whose own name it is, else those of that SKU."""
        own = [i for i, entry in enumerate(self.fleet) if entry.name == name]
        return own or [i for i, entry in enumerate(self.fleet) if entry.device == name]

    def parsed_targets(self) -> list[Target]:
        """The targets, parsed."""
        return [parse_target(text) for text in self.targets]

    def resolved(self) -> dict[str, Any]:
        """Everything with its defaults, as it would be written in a file."""
        return self.model_dump(mode="json", by_alias=True)


def read_scenario(path: Path, changes: Sequence[str] = (), *, seed: int | None = None) -> Scenario:
    """The scenario in the file ``path`` with ``changes`` ("fleet[0].count=3") made to it.

    Raises InputError with file, line, column, field, what was expected and the nearest right name.
    """
    return check_scenario(read_document(path, changes, seed=seed))


def read_document(path: Path, changes: Sequence[str] = (), *, seed: int | None = None) -> Document:
    """The scenario file ``path`` as data, with ``changes`` made to it and not yet checked."""
    document = parse(read_text(path, "scenario"), str(path))
    for change in changes:
        apply_change(document, change)
    if seed is not None and isinstance(document.data, dict):
        document.data["seed"] = seed
        document.changes["seed",] = "--seed"
    return document


def scenario_from_data(data: Mapping[str, Any], file: str = "scenario") -> Scenario:
    """A scenario from plain data, as a file would hold it; files it names are relative to ``file``'s folder."""
    return check_scenario(Document(dict(data), file))


def check_scenario(document: Document) -> Scenario:
    """The scenario a document holds; InputError for the first thing wrong with it."""
    if not isinstance(document.data, dict):
        raise InputError(
            "a scenario is a mapping" if document.data is not None else "this scenario is empty",
            where=document.where(()),
            expected="keys such as schema, name, fleet, workload",
        )
    if "cluster" in document.data and "fleet" not in document.data:
        # `run` reads such a file as what it is (core.cluster); whatever else asks for a scenario cannot do with it.
        raise InputError(
            "this is a placement scenario, which states a cluster to place tasks on and no fleet: it can be run, but "
            "not planned, swept or compared",
            where=document.where(("cluster",), key=True),
            expected="a scenario with a fleet and a workload; `windtunnel run` takes this one",
        )
    try:
        scenario = Scenario.model_validate(document.data)
    except ValidationError as error:
        raise located(error, document, Scenario.model_json_schema(by_alias=True)) from None
    scenario._document = document
    _check_names(scenario, document)
    scenario._programs = [
        parse_program(workload.ops, ("workload", i, "ops"), document.where, list(scenario.models))
        for i, workload in enumerate(scenario.workload)
    ]
    _check_operation_faults(scenario, document)
    return scenario


def _check_names(scenario: Scenario, document: Document) -> None:
    seen: set[str] = set()
    for i, workload in enumerate(scenario.workload):
        if workload.name in seen:
            raise InputError(
                f"the workload '{workload.name}' is given twice",
                where=document.where(("workload", i, "name")),
                expected="each name once",
            )
        seen.add(workload.name)
    _check_clocks(scenario, document)
    entries = {name for entry in scenario.fleet for name in (entry.name, entry.device) if name is not None}
    for i, workload in enumerate(scenario.workload):
        for j, name in enumerate(workload.devices or ()):
            if name not in entries:
                raise InputError(
                    f"the fleet has no '{name}'",
                    where=document.where(("workload", i, "devices", j)),
                    expected=one_of(sorted(entries)),
                    nearest=nearest(name, entries),
                )
    for i, fault in enumerate(scenario.faults):
        for j, name in enumerate(getattr(fault, "devices", None) or ()):
            if name not in entries:
                raise InputError(
                    f"the fleet has no '{name}'",
                    where=document.where(("faults", i, "devices", j)),
                    expected=one_of(sorted(entries)),
                    nearest=nearest(name, entries),
                )
        for j, name in enumerate(getattr(fault, "workloads", None) or ()):
            if name not in seen:
                raise InputError(
                    f"unknown workload '{name}'",
                    where=document.where(("faults", i, "workloads", j)),
                    expected=one_of(sorted(seen)),
                    nearest=nearest(name, seen),
                )
    _check_autoscale(scenario, document)
    for i, target in enumerate(scenario.parsed_targets()):
        if target.workload is not None and target.workload not in seen:
            raise InputError(
                f"unknown workload '{target.workload}'",
                where=document.where(("targets", i)),
                expected=one_of(sorted(seen)),
                nearest=nearest(target.workload, seen),
            )


def _check_operation_faults(scenario: Scenario, document: Document) -> None:
    """Each fault of operations has some that it can strike."""
    for i, fault in enumerate(scenario.faults):
        if not isinstance(fault, OperationFault):
            continue
        there = {
            name
            for workload, program in zip(scenario.workload, scenario.programs, strict=True)
            if fault.workloads is None or workload.name in fault.workloads
            for name in operations_of(program)
        }
        for j, name in enumerate(fault.ops or ()):
            where = document.where(("faults", i, "ops", j))
            if name not in OPERATIONS:
                raise InputError(
                    f"unknown operation '{name}'",
                    where=where,
                    expected=one_of(sorted(there)),
                    nearest=nearest(name, OPERATIONS),
                )
            if not fault.strikes(name):
                raise InputError(
                    f"{fault.kind} strikes {'copies' if fault.copies else 'no copies'}, and '{name}' is "
                    f"{'none' if fault.copies else 'one'}",
                    where=where,
                    expected=" or ".join(COPIES) if fault.copies else "another operation",
                )
            if name not in there:
                raise InputError(
                    f"no job that this fault concerns does '{name}'", where=where, expected=one_of(sorted(there))
                )
        if not any(fault.strikes(name) for name in there):
            raise InputError(
                f"{fault.kind} strikes {'copies' if fault.copies else 'what is no copy'}, and no job that this fault "
                "concerns does any",
                where=document.where(("faults", i, "kind")),
                expected=f"another kind, or a workload with {'a copy' if fault.copies else 'another operation'}",
            )


def _check_autoscale(scenario: Scenario, document: Document) -> None:
    """Each rule is about one fleet entry, which begins within its bounds, and no entry has two."""
    ruled: dict[int, int] = {}
    for i, rule in enumerate(scenario.autoscale):
        named = scenario.entries_named(rule.entry)
        where = document.where(("autoscale", i, "entry"))
        if not named:
            entries = {name for entry in scenario.fleet for name in (entry.name, entry.device) if name is not None}
            raise InputError(
                f"the fleet has no '{rule.entry}'",
                where=where,
                expected=one_of(sorted(entries)),
                nearest=nearest(rule.entry, entries),
            )
        if len(named) > 1:
            raise InputError(
                f"{len(named)} fleet entries are called '{rule.entry}'", where=where, expected="a name of one entry"
            )
        if named[0] in ruled:
            raise InputError(
                f"autoscale[{ruled[named[0]]}] is about '{rule.entry}' too", where=where, expected="one for an entry"
            )
        ruled[named[0]] = i
        count = scenario.fleet[named[0]].count
        if not rule.min <= count <= rule.max:
            raise InputError(
                f"the entry '{rule.entry}' begins with {count}, which is not from {rule.min} to {rule.max}",
                where=document.where(("fleet", named[0], "count")),
                expected="a count between autoscale's min and max",
            )


def _check_clocks(scenario: Scenario, document: Document) -> None:
    """Whoever names a shared clock says the same of how often it strikes."""
    known: dict[str, tuple[float, str]] = {}
    for i, workload in enumerate(scenario.workload):
        for path, clock, every_s in shared_clocks(workload.arrivals):
            first, owner = known.setdefault(clock, (every_s, workload.name))
            if every_s != first:
                raise InputError(
                    f"the shared clock '{clock}' strikes every {every_s:g} s here",
                    where=document.where(("workload", i, "arrivals", *path)),
                    expected=f"every {first:g} s, as in '{owner}'",
                )


def apply_change(document: Document, change: str, option: str = "--set") -> None:
    """Make one ``PATH=VALUE`` change to the raw data; the value is read as YAML. ``option`` is what errors name."""
    text, equals, raw = change.partition("=")
    path = parse_path(text.strip())
    where = Where(f"{option} {change}", field=spell(path) or None)
    if not equals or not path:
        raise InputError("this is not a change", where=where, expected="PATH=VALUE, such as fleet[0].count=3")
    value = parse(raw, f"{option} {change}").data
    data: Any = document.data
    for i, part in enumerate(path[:-1]):
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            keys = list(data) if isinstance(data, dict) else []
            if isinstance(data, str):
                raise InputError(
                    f"'{spell(path[:i])}' is '{data}' in the scenario and has no parts",
                    where=where,
                    expected=f"{spell(path[:i])}=VALUE",
                ) from None
            for words in RENAMED.values():
                if words.get(str(part)) in keys:
                    raise InputError(
                        f"'{part}' was renamed to '{words[str(part)]}'", where=where, expected=f"'{words[str(part)]}'"
                    ) from None
            raise InputError(
                f"there is no '{spell(path[: i + 1])}' in the scenario",
                where=where,
                expected=one_of(keys) if keys else None,
                nearest=nearest(str(part), keys),
            ) from None
        if data is None:
            raise InputError(f"'{spell(path[: i + 1])}' is empty", where=where)
    last = path[-1]
    inside = isinstance(data, list) and isinstance(last, int) and last < len(data)
    if isinstance(data, str):
        raise InputError(
            f"'{spell(path[:-1])}' is '{data}' in the scenario and has no parts",
            where=where,
            expected=f"{spell(path[:-1])}=VALUE",
        )
    if not inside and not (isinstance(data, dict) and isinstance(last, str)):
        raise InputError(f"there is no '{spell(path)}' in the scenario", where=where)
    data[last] = value
    # The value's own place is the command line now, and so is that of all it holds.
    for places in (document.marks, document.key_marks, document.changes):
        for known in [known for known in places if known[: len(path)] == path]:
            del places[known]
    document.changes[path] = f"{option} {change}"


def parse_path(text: str) -> NodePath:
    """``fleet[0].count`` as the keys and places that lead there."""
    pieces = text.replace("[", ".").replace("]", "").split(".")
    return tuple(int(piece) if re.fullmatch("[0-9]{1,9}", piece) else piece for piece in pieces if piece)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Scenario.model_json_schema(by_alias=True),
        "title": "Windtunnel scenario",
    }


__all__ = [
    "ContinuousBatch",
    "FleetEntry",
    "PolicyParts",
    "RequestBatch",
    "Scenario",
    "Stop",
    "Workload",
    "apply_change",
    "check_scenario",
    "json_schema",
    "parse_path",
    "read_document",
    "read_scenario",
    "scenario_from_data",
]
