"""What the commands on single operations and on the catalogue report: `predict`, `devices`, `ops` and `trace`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class Prediction(Result):
    """The cost of an operation (SI) with a 90% interval for its duration, what limits it, and its least certain input.

    The fields are ``core.device.Cost.COLUMNS``.
    """

    duration_s: float
    duration_low_s: float
    duration_high_s: float
    power_w: float
    energy_j: float
    bound: str
    provenance: str


@dataclass(frozen=True)
class StepPart(Result):
    """A part of a step over all layers: time (s), and bytes of operands and FLOPs of one device.

    With pipeline stages the bytes and FLOPs are the mean over the stages.

    ``op`` is the operation that prices it; parts that exchange data between devices are collectives. The times of all
    parts add up to the duration of the step.
    """

    part: str
    op: str
    duration_s: float
    bytes: float
    flops: float
    bound: str


@dataclass(frozen=True)
class StepPrediction(Prediction):
    """The cost of a step of a group: its duration, the power and energy of all devices together, and its parts.

    ``devices`` counts those of the group.
    """

    devices: int
    parts: Sequence[StepPart]


@dataclass(frozen=True)
class CatalogueDevice(Result):
    """A SKU of the catalogue. ``api`` is the default API; ``assumed`` of its ``numbers`` are assumed."""

    sku: str
    kind: str
    api: str
    apis: Sequence[str]
    vendor: str
    name: str
    provenance: str
    """The least certain provenance of the numbers."""
    numbers: int
    assumed: int


@dataclass(frozen=True)
class KnownModel(Result):
    """A decoder that is known by name: parameters counted from its tensors, and bytes in its own number formats.

    ``kv_bytes_per_token`` is what one token adds to the KV caches of all layers, while it lies in every window;
    ``state_bytes`` is the memory of one sequence for linear attention, whatever its length.
    """

    model: str
    parameters: int
    active_parameters: int
    weight_bytes: float
    kv_bytes_per_token: float
    source: str
    layers: int
    weights: str
    experts: str | None
    kv_dtype: str
    state_bytes: float
    max_context: int | None


@dataclass(frozen=True)
class ColumnDescription(Result):
    """A column of an operation; ``unit`` and ``minimum`` are None for choices, ``choices`` for numbers."""

    name: str
    kind: str
    unit: str | None
    default: float | str | None
    required: bool
    choices: Sequence[str] | None
    minimum: float | None
    doc: str


@dataclass(frozen=True)
class OperationDescription(Result):
    """An operation: its columns, and the kinds of devices that run it."""

    op: str
    doc: str
    columns: Sequence[ColumnDescription]
    kinds: Sequence[str]


@dataclass(frozen=True)
class TraceSummary(Result):
    """The rows of a trace, the time from the first to the last arrival, and the mean rate of arrivals."""

    rows: int
    span_s: float
    mean_rate_per_s: float
