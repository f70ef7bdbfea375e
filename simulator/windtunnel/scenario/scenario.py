"""A scenario: a fleet, a workload, a policy, a stop condition and targets.

The models below define the schema that `windtunnel schema` prints. Quantities are text with units in files and SI
floats here. Every error names the file, line, column and field.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from windtunnel.core.errors import InputError, Location
from windtunnel.core.serving_engine import ServingEngine
from windtunnel.core.ticks import MAX_SECONDS
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.arrivals import Arrivals, Closed, Think, Trace
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.decoder import DecoderModel, ServedModel
from windtunnel.scenario.faults import Fault
from windtunnel.scenario.fields import Model as _Model
from windtunnel.scenario.fields import (
    PositiveSeconds,
    Quantity,
    Seconds,
    Stated,
    Text,
    as_custom,
    whole,
)
from windtunnel.scenario.fleet import FleetEntry, Network
from windtunnel.scenario.lengths import Rows, Session
from windtunnel.scenario.plan import Plan
from windtunnel.scenario.policy import PolicyParts
from windtunnel.scenario.program import Stage, with_lengths
from windtunnel.scenario.site import Site
from windtunnel.scenario.target import METRICS, SPREAD, Target, TargetText, parse_figure, parse_target
from windtunnel_models.engines import is_engine_overlay, read_engine_overlay, serving_engine

_MAX_SEED = 2**63 - 1


class Checkpoint(_Model):
    """A job writes a checkpoint after every ``every`` of work, and an interrupted job continues from its last one."""

    every: PositiveSeconds = Field(description="work between checkpoints, at the full speed of the device")
    cost: Seconds = Field(description="time to write a checkpoint, during which the device draws the operation's power")
    restore: Seconds = Field(0.0, description="time that an interrupted job takes to load its last checkpoint")


class RateLimit(_Model):
    """The tokens, of prompts and outputs, that requests of each tenant of a workload may have in a time."""

    tokens: Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**12)]
    per: PositiveSeconds = Field(60.0, description="the time; tokens that were not used are kept up to `tokens`")
    over: Literal["reject", "wait"] = Field("reject", description="what happens to a request that exceeds the limit")


class Workload(_Model):
    """A stream of jobs that run the same program."""

    name: Text
    use_case: Text | None = Field(None, description="a use case of the recommendation matrix")
    devices: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None, description="fleet entries, by name or SKU, that may serve these jobs; default: all that can"
    )
    arrivals: Arrivals
    ops: list[Any] = Field(min_length=1, description="the job's program; `windtunnel ops` lists the operations")
    gang: Annotated[int, BeforeValidator(whole), Field(ge=1, le=100_000)] | None = Field(
        None,
        description="number of devices of one fleet entry that each job occupies at once, from its start to its end; "
        "default: 1",
    )
    priority: Annotated[int, BeforeValidator(whole), Field(ge=-(10**6), le=10**6)] = 0
    deadline: PositiveSeconds | None = Field(
        None, description="time after arrival by which a job is due; for a request, by which its first token is due"
    )
    patience: Seconds | Think | None = Field(
        None,
        description="time after arrival at which a job that has not started leaves: a time, or its distribution and "
        "mean; default: it waits for ever",
    )
    max_waiting: Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**9)] | None = Field(
        None,
        description="admission limit: a job that arrives when so many jobs, of all workloads, wait for a device is "
        "rejected; default: every job is admitted",
    )
    session: Session | None = Field(
        None, description="each arrival is a session of several requests; default: it is one request"
    )
    rows: Rows | None = Field(
        None, description="a table of whose rows each job takes one at random, for `$Column` without a trace"
    )
    tenant: Text | None = Field(
        None,
        description="whose jobs these are, for `fair` in the policy: a name, or the column of the trace that has it "
        "($column); default: the workload's name",
    )
    rate_limit: RateLimit | None = Field(
        None, description="admission limit: tokens per time of each tenant; default: every request is admitted"
    )
    checkpoint: Checkpoint | None = Field(
        None, description="checkpoints from which an interrupted job continues; default: it starts from the beginning"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if isinstance(self.arrivals, Trace):
            for key in ("session", "rows"):
                if getattr(self, key) is not None:
                    problem = f"'{self.name}' has a trace and {key}; the rows of the trace are its requests"
                    raise as_custom(InputError(problem, expected=f"no {key}, or another process"))
        return self

    @model_validator(mode="after")
    def _waits(self) -> Self:
        patience = self.patience.mean if isinstance(self.patience, Think) else self.patience
        if patience == 0 and isinstance(self.arrivals, Closed) and self.arrivals.think.mean == 0:
            problem = f"the users of '{self.name}' would submit jobs without end at one time: they do not wait or think"
            raise as_custom(InputError(problem, expected="a patience or a think time above 0"))
        rejects = self.rate_limit is not None and self.rate_limit.over == "reject"
        if (self.max_waiting is not None or rejects) and isinstance(self.arrivals, Closed):
            key = "rate_limit" if rejects else "max_waiting"
            problem = f"the users of '{self.name}' would submit jobs without end at one time when they are rejected"
            if self.arrivals.think.mean == 0:
                raise as_custom(InputError(problem, expected=f"a think time above 0, or no {key}"))
        return self


class Stop(_Model):
    """The stop condition. ``jobs``: arrivals end after so many jobs, and the system drains. ``time``: everything stops
    at that time. ``relative_error``: jobs arrive until the 95% interval of ``metric`` reaches that relative half-width.
    """

    jobs: Annotated[int, BeforeValidator(whole), Field(ge=1, le=10**9)] | None = None
    time: Annotated[float, Quantity("s", positive=True, most=MAX_SECONDS)] | None = None
    relative_error: Annotated[float, Quantity("1", positive=True, most=1.0)] | None = Field(
        None, description="such as 2%"
    )
    metric: Text | None = Field(None, description="metric whose interval decides; default: latency mean")
    max: Annotated[int, BeforeValidator(whole), Field(ge=1_000, le=10**9)] | None = Field(
        None, description="largest number of jobs; default: 50,000,000"
    )

    @model_validator(mode="after")
    def _check_one_condition(self) -> Self:
        if sum(part is not None for part in (self.jobs, self.time, self.relative_error)) != 1:
            raise as_custom(
                InputError("a stop is a number of jobs, a time or a precision", expected="jobs, time or relative_error")
            )
        if self.relative_error is None and (self.metric is not None or self.max is not None):
            raise as_custom(InputError("metric and max are for a precision", expected="relative_error: 2%"))
        metric = METRICS.get(self.figure.split()[0])
        if metric is not None and metric.statistics != SPREAD:
            raise as_custom(InputError(f"'{self.metric}' has no interval", expected="such as 'latency p99'"))
        try:
            parse_figure(self.figure)
        except InputError as error:
            raise as_custom(error) from None
        return self

    @property
    def figure(self) -> str:
        """The metric and statistic whose interval decides when the run stops."""
        return self.metric or "latency mean"


class Scenario(_Model):
    """A fleet, a workload, a policy, a stop condition and targets."""

    schema_: Literal[1] = Field(alias="schema")
    name: Text
    description: str | None = None
    seed: Annotated[int, BeforeValidator(whole), Field(ge=0, le=_MAX_SEED)] = 1
    fleet: Annotated[list[FleetEntry], Field(min_length=1, max_length=10_000)]
    network: Network = Field(Network(), description="the network between nodes; default: that of each SKU")
    models: dict[str, DecoderModel] = Field(default_factory=dict)
    workload: Annotated[list[Workload], Field(min_length=1, max_length=10_000)]
    policy: Text | PolicyParts = "fifo"
    faults: Annotated[list[Fault], Field(max_length=60)] = Field(default_factory=list)
    power_budget: Annotated[float, Quantity("W", positive=True, most=1e12)] | None = Field(
        None, description="power that the whole fleet must not exceed at any time; a job that would exceed it waits"
    )
    autoscale: Annotated[list[Autoscale], Field(max_length=10_000)] = Field(
        default_factory=list, description="fleet entries whose number of devices in service follows the load"
    )
    stop: Stop | None = None
    records: Literal["all", "sample", "none"] | None = Field(
        None,
        description="whether the times of all jobs, of a sample of 200,000, or of none are kept; default: all up to "
        "1,000,000 jobs, and a sample above",
    )
    warm_up: Literal["auto", "none"] = Field(
        "auto", description="auto: times exclude the first jobs, because the run starts empty; none: times include all"
    )
    targets: list[TargetText] = Field(default_factory=list)
    with_: dict[Text, dict[Text, Stated | dict[Text, Stated]]] = Field(
        default_factory=dict,
        alias="with",
        description="hardware that is not for sale: other values of parameters, by SKU of the fleet and name: a "
        "quantity, or a factor such as 1.5x on what the SKU has; for a table also by its keys",
    )
    site: Site | None = Field(None, description="price and carbon intensity of energy at the fleet's location")
    plan: Plan | None = Field(None, description="options of `windtunnel plan`; `run` does not read them")

    _document: Document = PrivateAttr()
    _programs: list[tuple[Stage, ...]] = PrivateAttr(default_factory=list)
    _served: Mapping[str, ServedModel] = PrivateAttr(default_factory=dict)

    def attach(
        self, document: Document, programs: Sequence[tuple[Stage, ...]], served: Mapping[str, ServedModel]
    ) -> None:
        """Keep the document that the scenario was read from, the programs of its workloads, and its decoders."""
        self._document, self._programs, self._served = document, list(programs), served

    @property
    def document(self) -> Document:
        """The document that the scenario was read from."""
        return self._document

    def where(self, *path: str | int) -> Location:
        """Return the location of the value at ``path`` in the scenario's file."""
        return self._document.where(path)

    @property
    def folder(self) -> Path:
        """The folder to which file names in the scenario are relative."""
        return Path(self._document.file).parent

    @property
    def outside_code(self) -> bool:
        """Whether a policy's file may be outside of ``folder``."""
        return self._document.outside_code

    @property
    def real_devices(self) -> list[str]:
        """The devices of this host in the fleet, whose times are measured instead of modelled."""
        return [entry.real for entry in self.fleet if entry.real is not None]

    @property
    def programs(self) -> Sequence[tuple[Stage, ...]]:
        """The parsed program of each workload, in the order of ``workload``."""
        return self._programs

    @property
    def served_models(self) -> Mapping[str, ServedModel]:
        """The decoders of ``models``, by name."""
        return self._served

    def engine_of(self, number: int) -> ServingEngine:
        """Return the profile of the serving engine of a fleet entry, with its calibration if that is one of engines.

        Raises:
            InputError: if the calibration is one of another engine; it names the place.
        """
        entry = self.fleet[number]
        overlay = self.engine_overlay(number)
        if overlay is None:
            return serving_engine(entry.engine)
        try:
            engine = read_engine_overlay(overlay)
            if engine.name != entry.engine:
                raise InputError(f"{overlay.name} is a calibration of {engine.name}", expected=f"engine: {engine.name}")
        except InputError as error:
            raise error.at(self.where("fleet", number, "calibration")) from None
        return engine

    def engine_overlay(self, number: int) -> Path | None:
        """Return the file of a fleet entry's calibration if it is one of a serving engine, and not of the device."""
        stated = self.fleet[number].calibration
        if stated is None or stated == "none" or not is_engine_overlay(self.folder / stated):
            return None
        return self.folder / stated

    def reseeded(self, seed: int) -> Self:
        """Return the same scenario with another seed."""
        return self.changed(seed=seed)

    def changed(self, **values: Any) -> Self:
        """Return the same scenario with other values of some keys, which are not checked again."""
        other = self.model_copy(update=values)
        other.attach(self._document, self._programs, self._served)
        return other

    def changes_of(self, number: int) -> Mapping[str, object]:
        """Return the values of ``with`` that apply to a fleet entry; empty for a product."""
        return self.with_.get(self.fleet[number].device.partition("@")[0], {})

    def with_lengths(self, prompt: float, output: float) -> Self:
        """Return the same scenario with prompts and outputs that are longer by factors."""
        other = self.model_copy()
        other.attach(self._document, [with_lengths(p, prompt, output) for p in self._programs], self._served)
        return other

    def entries_named(self, name: str) -> list[int]:
        """Return the fleet entries with this name, or else those with this SKU."""
        own = [i for i, entry in enumerate(self.fleet) if entry.name == name]
        return own or [i for i, entry in enumerate(self.fleet) if entry.device == name]

    def parsed_targets(self) -> list[Target]:
        """Return the parsed targets."""
        return [parse_target(text) for text in self.targets]

    def resolved(self) -> dict[str, object]:
        """Return the scenario with all defaults, as plain data in the format of a file."""
        return self.model_dump(mode="json", by_alias=True)
