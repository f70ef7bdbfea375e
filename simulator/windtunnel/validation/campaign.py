"""The measurements of `windtunnel validate`: the choice of devices, their operations and the division of the budget.

Each device is driven by a separate process, so that a driver that hangs costs one point and not the campaign.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from windtunnel.backends.discovery import executor
from windtunnel.backends.discovery.probe import probe
from windtunnel.backends.discovery.real_devices import RealDevice, identify
from windtunnel.backends.discovery.registry import backend
from windtunnel.backends.discovery.remote import OPEN_S, RemoteOperations
from windtunnel.core.device import Device
from windtunnel.core.errors import DeviceError, DeviceNotPresentError, InputError, Location, WindtunnelError, nearest
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.recording import COMPLETED
from windtunnel.core.results.validation import Environment, Makespan, OmittedPoints
from windtunnel.runtime.interface import DeviceInfo
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import simulate
from windtunnel.simulation.versions import made_with
from windtunnel.validation import suite
from windtunnel.validation.budget import Budget
from windtunnel.validation.measure import Measured, Point, Session
from windtunnel.validation.rows import Measurement
from windtunnel_models.catalogue import Catalogue, device_model, shipped_catalogue

_SHARES: Mapping[str, float] = {"packets": 0.2, "offload": 0.6}
"""The weight of a back end with few operations when the budget is divided; the others have 1."""
_MAKESPAN_SHARE = 0.15
"""The share of a device's budget that is reserved for the makespan."""


@dataclass
class MeasuredDevice:
    """The measurements of one device, and the model that they are compared with."""

    name: str
    model: str
    measured: Measured
    info: DeviceInfo
    versions: Mapping[str, str]
    makespan: Makespan | None = None
    no_makespan: str = ""
    """The reason if there is no makespan."""


@dataclass
class MeasurementResults:
    """The measurements of all devices."""

    devices: list[MeasuredDevice] = field(default_factory=list)
    command: str = ""
    unopened: dict[str, str] = field(default_factory=dict)
    """The devices that did not open, with the reason. The others are measured."""

    @property
    def rows(self) -> list[Measurement]:
        """All measurements."""
        return [row for device in self.devices for row in device.measured.rows]

    def environment(self) -> Environment:
        """Return the driver, versions and clocks of each device, the host and the date."""
        versions = {f"{device.name} {key}": value for device in self.devices for key, value in device.versions.items()}
        return Environment(
            host=f"{_processor()}, {platform.system()} {platform.release()} {platform.machine()}",
            driver="; ".join(f"{device.name}: {device.info.name}, {device.info.driver}" for device in self.devices),
            versions={**made_with(), **versions},
            clocks={
                f"{device.name} {clock} ({when})": clock_hz
                for device in self.devices
                if device.measured.conditions is not None
                for when, state in device.measured.conditions.by_name().items()
                for clock, clock_hz in (("SM", state.sm_clock_hz), ("memory", state.memory_clock_hz))
                if clock_hz is not None
            },
            date=datetime.now(UTC).replace(microsecond=0).isoformat(),
            command=self.command,
            conditions={
                device.name: device.measured.conditions
                for device in self.devices
                if device.measured.conditions is not None
            },
        )

    def omitted(self) -> list[OmittedPoints]:
        """Return how many points were not measured, by device, operation and reason, and whether a call hung."""
        counts: dict[tuple[str, str, str], int] = {}
        hung = {(device.name, why) for device in self.devices for why in device.measured.hung}
        for device in self.devices:
            reasons = [(point, why) for point, why in device.measured.refused]
            reasons += [(point, _OVER_BUDGET) for point in device.measured.over_budget]
            for point, why in reasons:
                key = device.name, point.op, why
                counts[key] = counts.get(key, 0) + 1
            if device.no_makespan:
                counts[device.name, "makespan", device.no_makespan] = 1
        counts |= {(name, "all", why): len(list(suite.points())) for name, why in self.unopened.items()}
        return [
            OmittedPoints(source, op, why, points=n, hung=(source, why) in hung, over_budget=why == _OVER_BUDGET)
            for (source, op, why), n in sorted(counts.items())
        ]


def measured(
    device: str | None = None,
    *,
    model: str | None = None,
    op: str | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
    progress: Callable[[str], None] | None = None,
    command: str = "",
) -> MeasurementResults:
    """Measure the devices of this host.

    Args:
        device: The only device to measure: ``opencl:0``, ``SKU`` or ``SKU@API``.
        model: The model to compare with, instead of the device's own.
        op: The only operation to measure.
        budget: The budget for all devices together.
        seed: The seed of the order of points.
        catalogue: The catalogue of models.
        calibration: The calibration of the model, as in ``app.predict``.
        progress: Receives a line of text for each visit of a point.
        command: The command line, for the environment.

    Raises:
        DeviceNotPresentError: if the device is not on this host, or does not open.
        InputError: if the device has no model, there is no such operation, or the budget is not valid.
    """
    budget = budget or Budget()
    budget.check()
    if op is not None:
        OPERATIONS.find(op)
    catalogue = catalogue or shipped_catalogue()
    chosen = choose(device, model, catalogue)
    shares = [_SHARES.get(name.partition(":")[0], 1.0) for name, _ in chosen]
    results = MeasurementResults(command=command)
    measured_by_model: dict[str, dict[str, str]] = {}
    for (name, sku), share in zip(chosen, shares, strict=True):
        prefixed = partial(_prefixed, progress, name) if progress is not None else None
        device_budget = budget.part(share / sum(shares))
        done = measured_by_model.setdefault(sku, {}) if model is None else {}
        as_model = device_model(sku, catalogue, calibration)
        try:
            measured_device = _measure(
                name, sku, op, device_budget, seed, as_model, prefixed, catalogue, done, calibration
            )
        except (DeviceError, DeviceNotPresentError) as error:
            if len(chosen) == 1:
                raise DeviceNotPresentError(f"'{name}' was found but does not open: {error}") from None
            results.unopened[name] = str(error)
            continue
        done |= {row.op: name for row in measured_device.measured.rows}
        results.devices.append(measured_device)
    return results


def choose(device: str | None, model: str | None, catalogue: Catalogue) -> list[tuple[str, str]]:
    """Return (device of this host, its model) for all devices that have a model, or for the requested one."""
    if device is not None and ":" in device:
        backend(device.partition(":")[0])  # raises for an unknown back end
    elif device is not None and model is None:
        device_model(device, catalogue)
    devices = identify(probe())
    if device is None:
        return _all_with_a_model(devices, model)
    if model is not None:
        device_model(model, catalogue)
    full = _full(device, catalogue)
    wanted = [d for d in devices if d.is_called(device) or (full is not None and d.model == full)]
    if not wanted:
        here = [d.detected.name for d in devices]
        # A device of another back end is not a misspelling of this one.
        same_backend = [name for name in here if name.split(":")[0] == device.split(":")[0] or ":" not in device]
        near = nearest(device, same_backend)
        raise DeviceNotPresentError(
            f"device '{device}' not found on this host; available: {', '.join(here) or 'none'}"
            + (f" (did you mean {near}?)" if near else "")
            + ". Run `windtunnel doctor` for missing drivers"
        )
    return [(d.detected.name, model or _model_of(d)) for d in wanted]


def _all_with_a_model(devices: Sequence[RealDevice], model: str | None) -> list[tuple[str, str]]:
    """Return all devices that have a model; ``model`` must be None, because it needs one device."""
    if model is not None:
        raise InputError(
            "--as needs the device that is compared with the model",
            where=Location(field="--as"),
            expected="--device NAME --as SKU",
        )
    named = [(device.detected.name, device.model) for device in devices]
    chosen = [(name, sku) for name, sku in named if sku is not None]
    if not chosen:
        raise DeviceNotPresentError("no device with a model found on this host; `windtunnel doctor` shows the reasons")
    return chosen


def _full(device: str, catalogue: Catalogue) -> str | None:
    """Return ``SKU@API`` of a name of the catalogue, with its usual API if it has none."""
    try:
        return f"{device.partition('@')[0]}@{device_model(device, catalogue).api.name}"
    except InputError:
        return None


def _model_of(device: RealDevice) -> str:
    if device.model is None and device.sku is not None and not device.detected.software:
        raise InputError(
            f"no model of {device.sku} is reached through {device.detected.api}, which {device.detected.name} "
            f"({device.detected.label}) is",
            where=Location(field="--device"),
            expected="the device through another API, as `windtunnel devices --real` lists it (cuda:0), or "
            f"--as {device.sku}",
        )
    if device.model is None:
        raise InputError(
            f"no model is known for {device.detected.name} ({device.detected.label})",
            where=Location(field="--as"),
            expected="--as SKU, or SKU@API",
        )
    return device.model


def _prefixed(progress: Callable[[str], None], name: str, text: str) -> None:
    progress(f"{name}, {text}")


def _measure(
    name: str,
    sku: str,
    op: str | None,
    budget: Budget,
    seed: int,
    model: Device,
    progress: Callable[[str], None] | None,
    catalogue: Catalogue,
    done: Mapping[str, str],
    calibration: str | None,
) -> MeasuredDevice:
    """Measure one device.

    ``done``: the operations already measured with another device of the same model, and that device.
    """
    way, _, number = name.partition(":")
    cost_s = partial(_cost_s, model)
    points = [point for point in suite.points() if op in (None, point.op)]
    # A driver that answered a probe in time opens a device in that time, or within the patience of the budget.
    open_s = min(OPEN_S, max(backend(way).timeout_s, budget.patience_s(math.inf, budget.seconds)))
    opened = partial(RemoteOperations, way, int(number), open_s=open_s)
    session = Session(opened, budget=budget.part(1 - _MAKESPAN_SHARE), seed=seed, progress=progress, wait=_wait)
    refused = [(p, f"{sku} is measured with {done[p.op]} for this operation") for p in points if p.op in done]
    try:
        info, versions = session.operations.info, session.operations.versions
        supported = session.supported([point for point in points if point.op not in done])
        costs = {id(point): cost_s(point) for point in supported}
        refused += [(point, f"the model {sku} does not support it") for point in supported if costs[id(point)] is None]
        known = [point for point in supported if costs[id(point)] is not None]
        visit_s = suite.A_VISIT_S * (1.0 if info.software else suite.AT_WORK)
        fits, beyond = suite.within(known, cost_s, budget.seconds, visit_s)
        results = session.run(fits, [costs[id(point)] or 0.0 for point in fits], device=sku, source=name)
    finally:
        session.close()
    refused += results.refused
    over_budget = [*results.over_budget, *beyond]
    results = replace(results, refused=refused, over_budget=over_budget)
    device = MeasuredDevice(name, sku, results, info, versions)
    spanned = _makespan(device, budget.part(_MAKESPAN_SHARE), seed, calibration, catalogue)
    if isinstance(spanned, str):
        device.no_makespan = spanned
    else:
        device.makespan = spanned
    return device


def _wait(operations: Any, most_s: float) -> None:
    """See ``Session``."""
    operations.max_wait_s = most_s


def _cost_s(model: Device, point: Point) -> float | None:
    """Return the predicted duration in seconds, or None if the model does not support the point."""
    try:
        rows = one_row(OPERATIONS.find(point.op), point.columns)
        return float(model.cost(rows, intervals=False).duration_s[0])
    except InputError:
        return None


def _processor() -> str:
    from windtunnel.backends.common.host_work import processor_name

    return processor_name()


_OVER_BUDGET = "its share of the budget was too small; a larger --budget measures it"
_JOBS = 40
_MIN_OPERATIONS = 3
"""The least number of operations of the scenario."""


def _makespan(
    device: MeasuredDevice, budget: Budget, seed: int, calibration: str | None, catalogue: Catalogue
) -> Makespan | str:
    """Execute one scenario on the real device and on its model, and return both makespans.

    The scenario has ``_JOBS`` jobs that arrive at once. Each is one operation, in turn, of a selection that is spread
    over the measured points and fits into the budget. Returns the reason as text if there is no makespan.
    """
    trusted = [row for row in device.measured.rows if not row.suspect and row.columns.get("dispatch") == "device"]
    short = [row for row in trusted if row.latency_s * (_JOBS / _MIN_OPERATIONS) < budget.seconds / 8]
    points = suite.spread([Point(row.op, row.columns) for row in short], 8)
    if len(points) < _MIN_OPERATIONS:
        return f"only {len(points)} measured operations fit into the budget, at least {_MIN_OPERATIONS} are needed"
    data = {
        "schema": 1,
        "name": "makespan",
        "seed": seed,
        "workload": [
            {
                "name": f"{point.op}-{number}",
                "arrivals": {"process": "deterministic", "rate": "1e9 /s"},
                "ops": [{point.op: dict(point.columns)}],
            }
            for number, point in enumerate(points)
        ],
        "policy": "fifo",
        "stop": {"jobs": _JOBS},
    }
    ways = {"predicted": {"device": device.model}, "measured": {"real": device.name, "device": device.model}}
    if calibration is not None:
        fitted = calibration if calibration == "none" else str(Path(calibration).resolve())
        ways = {way: {**entry, "calibration": fitted} for way, entry in ways.items()}
    ends: dict[str, float] = {}
    patience_s = budget.patience_s(math.inf, budget.seconds)
    try:
        for way, entry in ways.items():
            made = scenario_from_data({**data, "fleet": [entry]})
            with executor.max_wait(patience_s):
                jobs = simulate(made, 1, "process", catalogue)[1].jobs
            unfinished = int((jobs.status != COMPLETED).sum())
            if unfinished:
                return f"{unfinished} of {_JOBS} jobs were not completed on {device.name}"
            ends[way] = float(jobs.finish.max() - jobs.arrival.min()) / 1e12
    except (WindtunnelError, RuntimeError) as error:  # the measurements are kept
        return str(error)
    finally:
        executor.close_all()
    return Makespan(_JOBS, len(points), ends["predicted"], ends["measured"])
