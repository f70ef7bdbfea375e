"""The sources of the numbers of a run, and the accuracy of the model of each operation on each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from windtunnel.core.device import Device
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.results.run import DeviceAccuracy, ModelInput, OperationContext, PowerError
from windtunnel.core.units import to_unit

if TYPE_CHECKING:
    from windtunnel.core.results.candidates import TimeError
    from windtunnel.engine.prepare.prepared import PreparedRun
    from windtunnel.engine.prepare.programs import Context


def provenance(
    compiled: Mapping[tuple[int, int], Any],
    classes: Sequence[Any],
    designs: Mapping[int, Any],
    links: Mapping[int, Any],
) -> list[ModelInput]:
    """Return every number that a run depends on: device, parameter, value in its unit, source and range.

    The time and the power of a load are among them where ``designs`` says that a class may have to load any.
    """
    sources: dict[tuple[str, str], ModelInput] = {}
    for (number, _), program in compiled.items():
        target: Device = classes[number].device
        for path, sourced in program.sources.items():
            sources.setdefault((target.label, path), _source_row(target, path, sourced))
        for path, sourced in () if program.decoder is None else program.decoder.engine_sources.items():
            unit = "s" if path.endswith("_s") else "1"
            sources.setdefault((target.label, path), _model_input(target, path, sourced, unit))
    for fleet_class in classes:
        target = fleet_class.device
        for path in ("idle_power_w", "max_power_w"):
            sources.setdefault((target.label, path), _source_row(target, path, target.values[path]))
        load = target.design_load() if fleet_class.number in designs and designs[fleet_class.number].changes else None
        for path, sourced in () if load is None else load.sources.items():
            sources.setdefault((target.label, path), _source_row(target, path, sourced))
    for number, link in links.items():
        target = classes[number].device
        for path, sourced in link.sources.items():
            sources.setdefault((target.label, path), _source_row(target, path, sourced))
    return [sources[key] for key in sorted(sources)]


def operation_contexts(prepared: PreparedRun) -> list[OperationContext]:
    """Return the context of each launched operation, with the workloads and the fleet entries that have it."""
    used: dict[Context, tuple[set[int], set[int]]] = {}
    for (number, work), program in prepared.compiled.items():
        for context in program.contexts:
            classes, workloads = used.setdefault(context, (set(), set()))
            classes.add(number)
            workloads.add(work)
    return [
        OperationContext(
            operation=context.operation,
            dispatch=context.dispatch,
            clock=context.clock,
            cache=context.cache,
            workloads=[prepared.workloads[work].workload.name for work in sorted(workloads)],
            devices=[prepared.classes[number].name for number in sorted(classes)],
            reason=context.reason,
        )
        for context, (classes, workloads) in sorted(used.items())
    ]


def model_accuracy(compiled: Mapping[tuple[int, int], Any], classes: Sequence[Any]) -> list[DeviceAccuracy]:
    """Return the accuracy of the model of each operation of a run on each of its devices."""
    loose: dict[tuple[str, str], DeviceAccuracy] = {}
    within: dict[tuple[str, str], DeviceAccuracy] = {}
    for (number, _), program in sorted(compiled.items()):
        target: Device = classes[number].device
        decoder = program.decoder
        for op in program.operations - {"service"}:  # a stated time has no model
            rows = loose if decoder is None else within
            rows[target.label, op] = DeviceAccuracy(
                target.label, target.accuracy_of(op), part_of=None if decoder is None else "step"
            )
        if decoder is not None:
            known = loose.get((target.label, "step"))
            if known is None or (known.accuracy.error_factor or 1.0) < decoder.accuracy.error_factor:
                loose[target.label, "step"] = DeviceAccuracy(target.label, decoder.accuracy)
    accuracies = within | loose
    return [accuracies[key] for key in sorted(accuracies)]


def power_errors(classes: Sequence[Any]) -> list[PowerError]:
    """Return how far the power of each modelled device of a fleet may be from its model, by the name of the device."""
    devices: dict[str, Device] = {of.device.label: of.device for of in classes if not of.device.kind.stated_power}
    return [
        PowerError(label, devices[label].power_error.value, devices[label].power_error.provenance.label)
        for label in sorted(devices)
    ]


def widest_error(accuracies: Sequence[DeviceAccuracy], device: str) -> TimeError | None:
    """Return the largest error among the operations of ``device``; None if none is known.

    The parts of a step are not operations of their own here, because their errors are not all at their ends at once.
    """
    from windtunnel.core.results.candidates import PARTLY, TimeError

    errors = []
    parts = {row.accuracy.basis for row in accuracies if row.device == device and row.part_of == "step"}
    for accuracy in (row.accuracy for row in accuracies if row.device == device and row.part_of is None):
        half = accuracy.interval_half_width
        factor = accuracy.error_factor if half is None else 1 + half
        if factor is not None:
            partly = accuracy.op == "step" and accuracy.basis != "measured" and "measured" in parts
            errors.append(TimeError(factor, accuracy.op, PARTLY if partly else accuracy.basis))
    return max(errors, key=lambda error: (error.factor, error.op), default=None)


def _source_row(target: Device, path: str, sourced: SourcedValue) -> ModelInput:
    name, _, rest = path.partition(".")
    unit = "1" if name == "learned" else _api_unit(rest) if name == "api" else target.kind.parameter(name).unit
    return _model_input(target, path, sourced, unit)


def _model_input(target: Device, path: str, sourced: SourcedValue, unit: str) -> ModelInput:
    scale = partial(to_unit, unit=unit)
    return ModelInput(
        device=target.label,
        parameter=path,
        value=scale(sourced.value),
        unit=unit,
        provenance=sourced.provenance.label,
        source=sourced.source,
        low=None if sourced.low is None else scale(sourced.low),
        high=None if sourced.high is None else scale(sourced.high),
        reason=sourced.reason,
    )


def _api_unit(name: str) -> str:
    from windtunnel_models.specs import API_PARAMETERS

    return next(parameter.unit for parameter in API_PARAMETERS if parameter.name == name)
