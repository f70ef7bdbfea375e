"""Devices: a SKU used through an API, and the computation of the duration, power and energy of operations.

A SKU file describes the hardware, an API profile the overheads and losses of an API, and a kind computes a cost from
both. Cost functions are pure functions of tables of operations, so `predict`, calibration and the simulation engines
share them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from windtunnel.core.corrections import correction_of
from windtunnel.core.errors import InputError, UnsupportedOperationError, list_choices, nearest
from windtunnel.core.ops import FloatArray, Operation, Rows
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.registry import Registry
from windtunnel.core.spec import ApiProfile, DeviceSpec, Lineage, Parameter

Arrays = Mapping[str, npt.NDArray[Any]]
"""The arrays of a file by name: numbers of any format, or words."""
StrArray = npt.NDArray[np.str_]


@dataclass(frozen=True)
class RawCost:
    """The result of a cost function for n rows; the arrays are broadcast against each other.

    ``power_w``: average power of the whole device. ``bound``: the limiting resource. ``spread``: 90% of measurements
    lie within exp(+-spread) of the duration; None if only the kind's error is known.
    """

    duration_s: FloatArray
    power_w: FloatArray
    bound: StrArray
    spread: FloatArray | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of n operations, one array element each. Low and high are a 90% interval for one measurement."""

    duration_s: FloatArray
    duration_low_s: FloatArray
    duration_high_s: FloatArray
    power_w: FloatArray
    energy_j: FloatArray
    bound: StrArray
    provenance: npt.NDArray[np.int8]

    COLUMNS = ("duration_s", "duration_low_s", "duration_high_s", "power_w", "energy_j", "bound", "provenance")

    def provenance_labels(self) -> list[str]:
        """Return the least certain provenance of each row's inputs, as text."""
        return [Provenance(code).label for code in self.provenance]


@dataclass(frozen=True)
class Correction:
    """A correction of a kind's formula that was learned from measurements, one element for each row.

    ``log_factor``: logarithm of the corrected time over the formula's time.
    ``spread``: 90% of single measurements lie within exp(+-spread) of the corrected time.
    ``launch_unknown``: whether measured device times may also contain a launch from the host.
    """

    log_factor: FloatArray
    spread: FloatArray
    launch_unknown: bool = False


@dataclass(frozen=True)
class ModelAccuracy:
    """How well the time of one operation is known on one device.

    ``basis`` is ``measured`` (fitted to measurements of this SKU), ``transfer`` (predicted from measurements of related
    SKUs) or ``formula`` (the kind's formula with published or assumed constants). ``fitted_rows`` counts the
    measurements of the fit. ``cross_validation_error``: mean absolute relative error on measurements left out by whole
    ``cross_validation_groups``. ``interval_coverage``, ``interval_half_width``: share of them in the 90% interval and
    its median half-width over the value; None if not measured. ``error_factor``: 90% are within it of the time.
    """

    op: str
    basis: str
    text: str
    fitted_rows: int = 0
    cross_validation_error: float | None = None
    interval_coverage: float | None = None
    interval_half_width: float | None = None
    cross_validation_groups: str = ""
    error_factor: float | None = None


class Residual(Protocol):
    """The learned residual of one operation of one device: a pure function of the rows.

    Other inputs (rates, clocks, cache sizes) are fixed at their values during the fit. So a changed parameter of the
    device changes only the formula, and the physical properties of the formula hold for the corrected time too.
    """

    @property
    def origin(self) -> SourcedValue:
        """Return the number of measurements it was fitted to, with their origin."""

    def __call__(self, rows: Rows) -> Correction | None:
        """Return the correction of every row; None for choices (a type, a phase) without measurements."""


Corrections = dict[int, tuple[Rows, Correction | None]]


class Parameters:
    """The parameters of one device with one API, as a cost function reads them.

    It records which are read, for the least certain provenance of a cost and the parameters of its interval.
    """

    def __init__(
        self, device: Device, moved: Mapping[str, float] | None = None, corrections: Corrections | None = None
    ) -> None:
        self._device = device
        self._moved = moved or {}
        self._corrections = {} if corrections is None else corrections
        self.used: dict[str, SourcedValue] = {}

    @property
    def api(self) -> str:
        """The name of the API."""
        return self._device.api.name

    @property
    def speed(self) -> float:
        """The fleet entry's factor on the device's rates (default: 1)."""
        return self._device.speed

    def __call__(self, name: str, key: str | None = None) -> float:
        """Return the value (SI) of a parameter; raises UnsupportedOperationError where the device has none."""
        value = self.get(name, key)
        if value is None:
            raise self._missing(name, key)
        return value

    def get(self, name: str, key: str | None = None) -> float | None:
        """Return the value (SI) of a parameter, or None where the device has none."""
        path = name if key is None else f"{name}.{key}"
        sourced = self._device.values.get(path)
        if sourced is None:
            return None
        self.used[path] = sourced
        value = self._moved.get(path, sourced.value)
        return value * self.speed if self._device.is_rate(name) else value

    def api_cost(self, name: str) -> float:
        """Return an overhead of the API (SI): ``name.<api>`` of the SKU if it has one, else that of the profile."""
        own = self.get(name, self.api)
        if own is not None:
            return own
        path = f"api.{name}"
        sourced = self._device.api.values.get(name)
        if sourced is None:
            raise UnsupportedOperationError(
                f"the API '{self.api}' has no '{name}', so this operation is not supported on {self._device.label}"
            )
        self.used[path] = sourced
        return self._moved.get(path, sourced.value)

    @property
    def lineage(self) -> Lineage:
        """The lineage of the SKU."""
        return self._device.spec.lineage

    @property
    def sku(self) -> str:
        """The name of the SKU."""
        return self._device.spec.sku

    @property
    def vendor(self) -> str:
        """The vendor of the SKU."""
        return self._device.spec.vendor

    def correction(self, rows: Rows) -> Correction | None:
        """Return the correction that measurements of this or related devices add to the formula; None without any."""
        residual = self._device.residuals.get(rows.op.name)
        if residual is None:
            return None
        # It depends on the rows alone and is expensive, so it is computed once, however often parameters are varied.
        if id(rows) not in self._corrections:  # the rows are kept, so that their id is not reused
            self._corrections[id(rows)] = rows, correction_of(residual, rows)
        correction = self._corrections[id(rows)][1]
        if correction is not None:
            self.used[f"learned.{rows.op.name}"] = residual.origin
        return correction

    def spinning_w(self, occupied: float) -> float:
        """Return the power (W) of the device while a persistent kernel on this share of its units waits for a command.

        It is idle power, and of the range to the limit the share of an active device (``power_share.base``) and, for
        the units that poll, ``spin_power_share``, which is assumed, and 0 for kinds that do not state it.
        """
        idle, limit = self("idle_power_w"), self("max_power_w")
        share = (self.get("power_share", "base") or 0.0) + (self.get("spin_power_share") or 0.0) * occupied
        # Shares of a board that is held far below its silicon's power refer to the latter.
        return min(idle + ((self.get("design_power_w") or limit) - idle) * share, limit)

    def feature(self, name: str) -> bool:
        """Return whether the API offers ``name`` (``matrix``, ``graphs``, ``persistent`` ...)."""
        return name in self._device.api.features

    def unsupported(
        self, problem: str, *, expected: str | None = None, nearest: str | None = None
    ) -> UnsupportedOperationError:
        """Return the error to raise where this device does not run an operation."""
        return UnsupportedOperationError(f"{self._device.label} {problem}", expected=expected, nearest=nearest)

    def _missing(self, name: str, key: str | None) -> UnsupportedOperationError:
        label = self._device.label
        if key is None:
            return UnsupportedOperationError(f"{label} has no '{name}' in its catalogue entry")
        keys = [path.split(".", 1)[1] for path in self._device.values if path.startswith(f"{name}.")]
        return UnsupportedOperationError(
            f"{label} does not run {key} ('{name}.{key}' is not in its catalogue entry)",
            expected=list_choices(keys) if keys else None,
            nearest=nearest(key, keys),
        )


CostFunction = Callable[[Parameters, Rows], RawCost]

Learned = Callable[[Parameters, Rows], Correction | None]
"""The correction of rows by a device's arrays; the parameters are those of the device that they are evaluated for."""


def compute_engine(_parameters: Parameters, _rows: Rows) -> str:
    """Return ``compute``: by default every operation runs on the device's compute engine."""
    return "compute"


def carried_unchanged(_of: Parameters, _to: Parameters, _path: str, value: float, _same_die: bool) -> float:
    """Return ``value``: by default a number fitted to one device holds for its relatives as it is."""
    return value


@dataclass(frozen=True)
class Designs:
    """How a reconfigurable kind of device holds designs: the bitstreams, each of which executes one sort of operation.

    ``names``: every design that an operation may need. ``of``: the design that each row needs, "" for none; shape (n,)
    or (1,). ``load``: how many designs the device holds at once, and the time (s) and the power of the whole device (W)
    of a load.
    """

    names: tuple[str, ...]
    of: Callable[[Parameters, Rows], StrArray]
    load: Callable[[Parameters], tuple[int, float, float]]


@dataclass(frozen=True)
class DesignLoad:
    """The designs that a device holds at once (``regions``), and the time (s) and power (W) to load one of them.

    ``duration_low_s``, ``duration_high_s``: the range that the ranges of its inputs give. ``sources``: the numbers on
    which these depend, by name.
    """

    regions: int
    duration_s: float
    power_w: float
    duration_low_s: float
    duration_high_s: float
    sources: Mapping[str, SourcedValue]


@dataclass(frozen=True)
class Kind:
    """A kind of device: its parameters, and the cost function of each operation.

    ``errors`` gives, for each operation, the factor f such that 90% of measurements are expected between
    duration/f and duration*f when every parameter is right; the ranges of assumed parameters widen it.
    ``engine`` names the hardware engine that an operation occupies (``compute``, ``copy_h2d``, ``copy_d2h``).
    ``stated_power``: a scenario's ``power.max`` is the power of a busy device, not a cap. ``designs``: what a
    reconfigurable kind loads before an operation; None for other kinds.

    For calibration, by operation: ``fits`` names the parameters that a fit may change, with the expected standard
    deviation (log) between devices. ``own_numbers`` gives the parameters that rows read under the key of a substitute
    format again under their own key. ``coordinates`` gives the position of rows for a residual (n x d, about 1 for a
    factor of 8 in size); the default is the logarithms of the columns. ``learned`` returns the function that evaluates
    a residual, given the arrays of a compact array file. ``applies`` names the operations whose arrays express
    themselves for other devices, and tells whether those of the second device are of use for the first.
    ``transfer_errors`` gives the error factor (90%) of a transfer from devices of each relation (``die``, ``board``,
    ``generation``, ``class``, ``maker``) to a device without measurements. ``transfer_shares`` gives the share of their
    residual that is used (0 for others). ``carried`` expresses a number that was fitted to one device for another one,
    from what both datasheets state: ``carried(of, to, path, value, same_die)``; by default it is the same number.
    """

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    costs: Mapping[str, CostFunction]
    errors: Mapping[str, SourcedValue]
    engine: Callable[[Parameters, Rows], str] = compute_engine
    stated_power: bool = False
    designs: Designs | None = None
    fits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    own_numbers: Mapping[str, Callable[[Parameters, Rows], Mapping[str, SourcedValue]]] = field(default_factory=dict)
    coordinates: Mapping[str, Callable[[Parameters, Rows], FloatArray]] = field(default_factory=dict)
    learned: Mapping[str, Callable[[Arrays], Learned]] = field(default_factory=dict)
    applies: Mapping[str, Callable[[DeviceSpec, DeviceSpec], bool]] = field(default_factory=dict)
    transfer_errors: Mapping[str, Mapping[str, SourcedValue]] = field(default_factory=dict)
    transfer_shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    carried: Callable[[Parameters, Parameters, str, float, bool], float] = carried_unchanged

    @cached_property
    def defaults(self) -> Mapping[str, SourcedValue]:
        """The values that a device of the kind has unless something else states them, by path."""
        values: dict[str, SourcedValue] = {}
        for parameter in self.parameters:
            if parameter.default is not None:
                values[parameter.name] = parameter.default
            values.update({f"{parameter.name}.{key}": value for key, value in parameter.defaults.items()})
        return values

    def parameter(self, name: str) -> Parameter:
        """Return the parameter ``name``; raises InputError with the nearest right name."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        names = [parameter.name for parameter in self.parameters]
        known, alike = list_choices(names, 40), nearest(name, names)
        raise InputError(f"a {self.name} has no '{name}'", expected=known, nearest=alike)


KINDS: Registry[Kind] = Registry("kind")


@dataclass(frozen=True)
class Device:
    """One SKU with one API, which computes costs.

    ``cap_w`` is a power cap of the whole device; an operation that would draw more is slowed so that it takes the same
    energy above idle (see ``Device.cost``). ``values`` are the SKU's values and the kind's defaults.
    """

    spec: DeviceSpec
    kind: Kind
    api: ApiProfile
    values: Mapping[str, SourcedValue]
    speed: float = 1.0
    cap_w: float | None = None
    residuals: Mapping[str, Residual] = field(default_factory=dict)
    accuracies: Mapping[str, ModelAccuracy] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the SKU, with ``@api`` if that is not its default API."""
        default = self.spec.apis[0]
        return self.spec.sku if self.api.name == default else f"{self.spec.sku}@{self.api.name}"

    @cached_property
    def inputs(self) -> tuple[object, ...]:
        """What its costs depend on, besides its kind and its residuals; hashable, and equal in every process."""
        values = ((name, sourced.value) for some in (self.values, self.api.values) for name, sourced in some.items())
        return self.spec.sku, self.spec.vendor, self.spec.lineage, self.api.name, self.speed, self.cap_w, *values

    def is_rate(self, name: str) -> bool:
        """Return whether ``speed`` scales the parameter."""
        return self.speed != 1.0 and self.kind.parameter(name).is_rate

    def number(self, name: str, key: str | None = None) -> float | None:
        """Return a parameter's value (SI), or None; for callers outside cost functions."""
        return Parameters(self).get(name, key)

    @property
    def idle_power_w(self) -> float:
        """The idle power (W)."""
        return Parameters(self)("idle_power_w")

    @property
    def active_power_w(self) -> float:
        """The power above idle that the device draws while any operation runs, independent of their number (W).

        It is a share of the range between idle power and power limit, so a cap lowers it too.
        """
        share = self.number("power_share", "base")
        return 0.0 if share is None else share * (self.power_limit_w - self.idle_power_w)

    @property
    def power_error(self) -> SourcedValue:
        """The factor within which nine tenths of measured powers are of the model's; 1 where the power is stated."""
        exact = SourcedValue(1.0, Provenance.DATASHEET, "by definition")
        return exact if self.kind.stated_power else self.values.get("power_error_factor", exact)

    def spin_power_w(self, occupied: float) -> float:
        """Return the power above idle (W) while a persistent kernel on this share of the units waits for a command."""
        return min(Parameters(self).spinning_w(occupied), self.power_limit_w) - self.idle_power_w

    @property
    def power_limit_w(self) -> float:
        """The power limit (W): the device's own, or the scenario's cap if that is lower."""
        own = Parameters(self)("max_power_w")
        return own if self.cap_w is None else min(own, self.cap_w)

    @property
    def memory_bytes(self) -> float:
        """The memory for operands (bytes); infinite for devices that only stream data."""
        return math.inf if (size_bytes := self.number("memory_bytes")) is None else size_bytes

    def exceeds_memory(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which rows have operands that exceed the memory of the device."""
        return np.broadcast_to(rows.footprint_bytes() > self.memory_bytes, rows.shape)

    def runs(self, op: str) -> bool:
        """Return whether the kind has a cost function for the operation."""
        return op in self.kind.costs

    def dispatch_in_job(self, op: type[Operation]) -> str:
        """Return the dispatch of an operation of a job that states none: what a program pays on this device.

        ``eager`` where the API launches operations one by one; ``device`` where an operation has no launch.
        """
        return "eager" if op.launched and self.api.no_launch is None else "device"

    def cost_function(self, op: str) -> CostFunction:
        """Return the kind's cost function of an operation; raises UnsupportedOperationError if there is none."""
        try:
            return self.kind.costs[op]
        except KeyError:
            raise UnsupportedOperationError(
                f"{self.label} is a {self.kind.name}, which does not run {op}",
                expected=list_choices(self.kind.costs, 20),
            ) from None

    def engine_of(self, rows: Rows) -> str:
        """Return the hardware engine that the operation occupies."""
        return self.kind.engine(Parameters(self), rows)

    def designs_of(self, rows: Rows) -> StrArray:
        """Return the design that each row needs ("" for none), or one for all rows; shape (n,) or (1,)."""
        if self.kind.designs is None:
            return np.array([""])
        return self.kind.designs.of(Parameters(self), rows)

    def design_load(self) -> DesignLoad | None:
        """Return what it takes to load a design; None for a device that is not reconfigured."""
        if self.kind.designs is None:
            return None
        parameters = Parameters(self)
        regions, duration_s, power_w = self.kind.designs.load(parameters)
        ends = [
            self.kind.designs.load(Parameters(self, {path: end}))[1]
            for path, sourced in parameters.used.items()
            for end in (sourced.low, sourced.high)
            if end is not None
        ]
        low_s, high_s = min([duration_s, *ends]), max([duration_s, *ends])
        return DesignLoad(regions, duration_s, min(power_w, self.power_limit_w), low_s, high_s, parameters.used)

    def accuracy_of(self, op: str) -> ModelAccuracy:
        """Return the accuracy of the model for ``op`` on this device."""
        if op in self.accuracies:
            return self.accuracies[op]
        if (error := self.kind.errors.get(op)) is None:
            return ModelAccuracy(op, "formula", "no measurement available")
        return ModelAccuracy(op, "formula", error.reason or error.source, error_factor=error.value)

    def cost(self, rows: Rows, *, intervals: bool = True) -> Cost:
        """Return the cost of every row.

        A power cap below the power of an operation slows it. All energy above idle is attributed to the operation, so
        its duration grows by (demand - idle) / (cap - idle), which ignores the better efficiency at lower clocks. If
        ``intervals`` is false, low and high equal the duration.

        Raises:
            UnsupportedOperationError: The device does not support the operation.
            InputError: The parameters give no finite duration, or the cap is not above idle power.
        """
        run = self.cost_function(rows.op.name)
        corrections: Corrections = {}
        parameters = Parameters(self, None, corrections)
        shape = rows.shape
        try:
            raw = self._corrected(run, parameters, rows)
            duration, power, bound = self._capped(raw, parameters, shape)
        except ZeroDivisionError:
            raise InputError(
                f"the cost of {rows.op.name} on {self.label} divides by a number that is zero",
                expected="a catalogue entry or overlay without zeros for amounts",
            ) from None
        if intervals:
            low, high = self._interval(run, rows, parameters, raw, duration, corrections)
        else:
            low = high = duration
        least_certain = max((s.provenance for s in parameters.used.values()), default=Provenance.DATASHEET)
        return Cost(
            duration_s=duration,
            duration_low_s=low,
            duration_high_s=high,
            power_w=power,
            energy_j=duration * power,
            bound=bound,
            provenance=np.full(shape, int(least_certain), dtype=np.int8),
        )

    def sources(self, rows: Rows) -> dict[str, SourcedValue]:
        """Return every number that the cost of ``rows`` depends on, by name, for provenance tables."""
        parameters = Parameters(self)
        self.cost_function(rows.op.name)(parameters, rows)
        return dict(parameters.used)

    @staticmethod
    def _corrected(run: CostFunction, parameters: Parameters, rows: Rows) -> RawCost:
        """Return the result of the cost function with the learned correction, unless the function applied it itself.

        The correction concerns device time only, so overheads of the context do not change.
        """
        raw = run(parameters, rows)
        if raw.spread is not None:
            return raw
        learned = parameters.correction(rows)
        if learned is None:
            return raw
        own = raw.duration_s
        if rows.choices.get("dispatch", "device") != "device":
            own = run(parameters, replace(rows, choices={**rows.choices, "dispatch": "device"})).duration_s
        duration = raw.duration_s + own * np.expm1(learned.log_factor)
        return replace(raw, duration_s=duration, spread=learned.spread)

    def _capped(
        self, raw: RawCost, parameters: Parameters, shape: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray, StrArray]:
        duration = np.broadcast_to(np.asarray(raw.duration_s, dtype=np.float64), shape)
        if not (np.isfinite(duration).all() and (duration > 0).all()):
            raise InputError(
                f"the cost on {self.label} is not a finite time",
                expected="amounts and a catalogue entry with a finite cost",
            )
        power = np.broadcast_to(np.asarray(raw.power_w, dtype=np.float64), shape)
        bound = np.broadcast_to(np.asarray(raw.bound), shape)
        if self.cap_w is None:
            return duration, power, bound
        idle = parameters("idle_power_w")
        if self.cap_w <= idle:
            raise InputError(
                f"{self.label} is capped at {self.cap_w:g} W, which it draws when idle",
                expected=f"a cap above {idle:g} W",
            )
        stretch = np.maximum(1.0, (power - idle) / (self.cap_w - idle))
        return (duration * stretch, np.minimum(power, self.cap_w), np.where(stretch > 1.0, "power", bound))

    def _interval(
        self,
        run: CostFunction,
        rows: Rows,
        parameters: Parameters,
        raw: RawCost,
        duration: FloatArray,
        corrections: Corrections,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the interval: the kind's error and the effects of uncertain parameters, added in quadrature (log).

        A measured spread includes the uncertainty of the device itself. The context (a host, another API) was not part
        of the measurements, so its uncertain parameters still widen the interval. Where device times may contain the
        host's launch, the upper end counts it as one more uncertain parameter, up to that of an eager framework.
        """
        error = self.kind.errors.get(rows.op.name)
        settled: Mapping[str, SourcedValue] = {}
        width: FloatArray | float = math.log(error.value) if error is not None else 0.0
        if raw.spread is not None:
            width = raw.spread
            if self.api.name == self.spec.apis[0]:
                bare = Parameters(self, None, corrections)
                run(bare, replace(rows, choices={**rows.choices, "dispatch": "device"}))
                settled = bare.used
        shape = rows.shape
        below = np.broadcast_to(np.square(width), shape)
        above = below
        for path, sourced in parameters.used.items():
            if path in settled or sourced.low is None or sourced.high is None or sourced.low == sourced.high:
                continue
            ends = []
            for end in (sourced.low, sourced.high):
                moved = Parameters(self, {path: end}, corrections)
                ends.append(self._capped(self._corrected(run, moved, rows), moved, shape)[0])
            shortest, longest = np.minimum(*ends), np.maximum(*ends)
            below = below + np.log(np.minimum(shortest / duration, 1.0)) ** 2
            above = above + np.log(np.maximum(longest / duration, 1.0)) ** 2
        unknown = any(found is not None and found.launch_unknown for _, found in corrections.values())
        if unknown and rows.choices.get("dispatch") == "device":
            launched = replace(rows, choices={**rows.choices, "dispatch": "eager"})
            bare = Parameters(self, None, corrections)
            longest = self._capped(self._corrected(run, bare, launched), bare, shape)[0]
            above = above + np.log(np.maximum(longest / duration, 1.0)) ** 2
        # The limit of exp(50) prevents an overflow.
        return duration * np.exp(-np.minimum(np.sqrt(below), 50.0)), duration * np.exp(np.minimum(np.sqrt(above), 50.0))
