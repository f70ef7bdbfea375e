"""The measuring half of `windtunnel validate`: which devices of this host, what of them, and for how long.

Every device is driven in a process of its own, so that a driver that hangs costs a point and not the measurement.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
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
from windtunnel.core.errors import DeviceError, DeviceNotPresentError, InputError, Where, WindtunnelError, nearest
from windtunnel.core.ops import OPERATIONS, one_row
from windtunnel.core.result import COMPLETED
from windtunnel.scenario.scenario import scenario_from_data
from windtunnel.simulation.fleet import device_model
from windtunnel.simulation.run import simulate
from windtunnel.simulation.versions import made_with
from windtunnel.validation import suite
from windtunnel.validation.budget import Budget
from windtunnel.validation.measure import Measured, Point, Session
from windtunnel.validation.rows import Circumstances, Measurement
from windtunnel_models.catalogue import Catalogue

_SHARES: Mapping[str, float] = {"packets": 0.2, "offload": 0.6}
"""Of the budget, beside a device with every kind of operation."""
_MAKESPAN_SHARE = 0.15
"""Of a device's budget, that is kept for its part of the makespan."""


@dataclass
class Taken:
    """What was measured of one device. ``model``: what it is compared with."""

    name: str
    model: str
    measured: Measured
    info: Any
    versions: Mapping[str, str]
    makespan: Mapping[str, Any] | None = None
    unspanned: str = ""
    """Why there is no makespan, where there is none."""


@dataclass
class Findings:
    """What was measured of all."""

    taken: list[Taken] = field(default_factory=list)
    command: str = ""
    unopened: dict[str, str] = field(default_factory=dict)
    """Devices that did not open, and why: the others are measured all the same."""

    @property
    def rows(self) -> list[Measurement]:
        """All measurements."""
        return [row for one in self.taken for row in one.measured.rows]

    def circumstances(self) -> Circumstances:
        """Driver, versions and clocks of each device, the host and the date."""
        versions = {f"{one.name} {key}": value for one in self.taken for key, value in one.versions.items()}
        return Circumstances(
            host=f"{_processor()}, {platform.system()} {platform.release()} {platform.machine()}",
            driver="; ".join(f"{one.name}: {one.info.name}, {one.info.driver}" for one in self.taken),
            versions={**made_with(), **versions},
            clocks={
                f"{one.name} {clock} ({when})": float(told[f"{key}_clock_hz"])  # type: ignore[arg-type]
                for one in self.taken
                for when, told in one.measured.conditions.items()
                for clock, key in (("SM", "sm"), ("memory", "memory"))
                if f"{key}_clock_hz" in told
            },
            date=datetime.now(UTC).replace(microsecond=0).isoformat(),
            command=self.command,
            conditions={one.name: one.measured.conditions for one in self.taken if one.measured.conditions},
        )

    def omitted(self) -> list[dict[str, Any]]:
        """By device, operation and reason, how many points were not measured; and whether that is what hung."""
        counts: dict[tuple[str, str, str], int] = {}
        hung = {(one.name, why) for one in self.taken for why in one.measured.hung}
        for one in self.taken:
            reasons = [(point, why) for point, why in one.measured.refused]
            reasons += [(point, "the budget was too small for it") for point in one.measured.left]
            for point, why in reasons:
                key = one.name, point.op, why
                counts[key] = counts.get(key, 0) + 1
            if one.unspanned:
                counts[one.name, "makespan", one.unspanned] = 1
        counts |= {(name, "all", why): len(list(suite.points())) for name, why in self.unopened.items()}
        return [
            {"source": source, "op": op, "why": why, "points": n, "hung": (source, why) in hung}
            for (source, op, why), n in sorted(counts.items())
        ]


def measured(
    device: str | None = None,
    *,
    model: str | None = None,
    budget: Budget | None = None,
    seed: int = 0,
    catalogue: Catalogue | None = None,
    calibration: str | None = None,
    progress: Callable[[str], None] | None = None,
    command: str = "",
) -> Findings:
    """Measure the devices of this host, or the one called ``device`` (``opencl:0``, ``SKU``, ``SKU@API``).

    ``model``: compare it with this instead of its own. ``budget``: for all of them together.
    DeviceNotPresentError where it is not here; InputError where nothing says which model stands for it, and for a
    budget that is none.
    """
    budget = budget or Budget()
    budget.check()
    catalogue = catalogue or Catalogue()
    chosen = choose(device, model, catalogue)
    shares = [_SHARES.get(name.partition(":")[0], 1.0) for name, _ in chosen]
    found = Findings(command=command)
    theirs: dict[str, dict[str, str]] = {}
    for (name, sku), share in zip(chosen, shares, strict=True):
        told = partial(_prefixed, progress, name) if progress is not None else None
        each = budget.part(share / sum(shares))
        done = theirs.setdefault(sku, {}) if model is None else {}
        as_model = device_model(sku, catalogue, calibration)
        try:
            taken = _measure(name, sku, each, seed, as_model, told, catalogue, done, calibration)
        except (DeviceError, DeviceNotPresentError) as error:
            if len(chosen) == 1:
                raise DeviceNotPresentError(f"'{name}' is found and does not open: {error}") from None
            found.unopened[name] = str(error)
            continue
        done |= {row.op: name for row in taken.measured.rows}
        found.taken.append(taken)
    return found


def choose(device: str | None, model: str | None, catalogue: Catalogue) -> list[tuple[str, str]]:
    """(device of this host, what it is compared with): all that have a model, or the one that is asked for."""
    if device is not None and ":" in device:
        backend(device.partition(":")[0])  # a slip in a name is not an absent device
    elif device is not None and model is None:
        device_model(device, catalogue)
    found = identify(probe())
    if device is None:
        if model is not None:
            raise InputError(
                "nothing says which device is compared with it",
                where=Where(field="--as"),
                expected="--device NAME --as SKU",
            )
        named = [(one.detected.name, one.model) for one in found]
        chosen = [(name, sku) for name, sku in named if sku is not None]
        if not chosen:
            raise DeviceNotPresentError("no back end reaches a device with a model here; windtunnel doctor says why")
        return chosen
    if model is not None:
        device_model(model, catalogue)
    full = _full(device, catalogue)
    wanted = [one for one in found if one.is_called(device) or (full is not None and one.model == full)]
    if not wanted:
        here = [one.detected.name for one in found]
        # Of `cuda:0` the processor is no slip of the pen.
        near = nearest(device, [one for one in here if one.split(":")[0] == device.split(":")[0] or ":" not in device])
        raise DeviceNotPresentError(
            f"'{device}' is not here; here are {', '.join(here) or 'none'}"
            + (f" (did you mean {near}?)" if near else "")
            + "; windtunnel doctor says what is missing"
        )
    return [(one.detected.name, model or _model_of(one)) for one in wanted]


def _full(device: str, catalogue: Catalogue) -> str | None:
    """``SKU@API`` of a catalogue's name, its usual API where it says none."""
    try:
        return f"{device.partition('@')[0]}@{device_model(device, catalogue).api.name}"
    except InputError:
        return None


def _model_of(one: RealDevice) -> str:
    if one.model is None:
        raise InputError(
            f"nothing says which model stands for {one.detected.name} ({one.detected.label})",
            where=Where(field="--as"),
            expected="--as SKU, or SKU@API",
        )
    return one.model


def _prefixed(progress: Callable[[str], None], name: str, text: str) -> None:
    progress(f"{name}, {text}")


def _measure(
    name: str,
    sku: str,
    budget: Budget,
    seed: int,
    model: Device,
    progress: Callable[[str], None] | None,
    catalogue: Catalogue,
    done: Mapping[str, str],
    calibration: str | None,
) -> Taken:
    """``done``: operations that another device of this model was measured with, and which; one stands for both."""
    way, _, number = name.partition(":")
    cost_s = partial(_cost_s, model)
    every = list(suite.points())
    # A driver that answered a probe in time opens a device in that time, or in what the budget has for it.
    open_s = min(OPEN_S, max(backend(way).timeout_s, budget.patience_s(math.inf, budget.seconds)))
    opened = partial(RemoteOperations, way, int(number), open_s=open_s)
    session = Session(opened, budget=budget.part(1 - _MAKESPAN_SHARE), seed=seed, progress=progress, wait=_wait)
    refused = [(one, f"{sku} is measured with {done[one.op]} there") for one in every if one.op in done]
    try:
        info, versions = session.operations.info, session.operations.versions
        able = session.able([one for one in every if one.op not in done])
        costs = {id(one): cost_s(one) for one in able}
        refused += [(one, f"the model {sku} does not know it") for one in able if costs[id(one)] is None]
        fits, beyond = suite.within([one for one in able if costs[id(one)] is not None], cost_s, budget.seconds)
        found = session.run(fits, [costs[id(one)] or 0.0 for one in fits], device=sku, source=name)
    finally:
        session.close()
    refused += found.refused
    left = [*found.left, *beyond]
    taken = Taken(name, sku, replace(found, refused=refused, left=left), info, versions)
    spanned = _makespan(taken, budget.part(_MAKESPAN_SHARE), seed, calibration, catalogue)
    if isinstance(spanned, str):
        taken.unspanned = spanned
    else:
        taken.makespan = spanned
    return taken


def _wait(operations: Any, most_s: float) -> None:
    """See ``Session``."""
    operations.max_wait_s = most_s


def _cost_s(model: Device, one: Point) -> float | None:
    """What the model says; None for what it does not know."""
    try:
        rows = one_row(OPERATIONS.find(one.op), one.columns)
        return float(model.cost(rows, intervals=False).duration_s[0])
    except InputError:
        return None


def _processor() -> str:
    from windtunnel.backends.common.host_work import processor_name

    return processor_name()


# The makespan of a scenario, run on the device and on its model.

_JOBS = 40
_LEAST = 3
"""Operations that a scenario is made of, where there are so many."""


def _makespan(
    taken: Taken, budget: Budget, seed: int, calibration: str | None, catalogue: Catalogue
) -> Mapping[str, Any] | str:
    """One scenario of what was measured, run on the real device and on its model: how long each says it takes.

    ``_JOBS`` jobs that arrive at once, each of one operation, by turns; of those that fit into the budget those are
    taken that are spread over what was measured. In words, why there is none, where there is none.
    """
    trusted = [row for row in taken.measured.rows if not row.suspect and row.columns.get("dispatch") == "device"]
    each = [row for row in trusted if row.latency_s * (_JOBS / _LEAST) < budget.seconds / 8]
    points = suite.spread([Point(row.op, row.columns) for row in each], 8)
    if len(points) < _LEAST:
        return f"{len(points)} of what was measured may be repeated within the budget, of at least {_LEAST}"
    data: dict[str, Any] = {
        "schema": 1,
        "name": "makespan",
        "seed": seed,
        "workload": [
            {
                "name": f"{one.op}-{number}",
                "arrivals": {"process": "deterministic", "rate": "1e9 /s"},
                "ops": [{one.op: dict(one.columns)}],
            }
            for number, one in enumerate(points)
        ],
        "policy": "fifo",
        "stop": {"jobs": _JOBS},
    }
    ways = {"predicted": {"device": taken.model}, "measured": {"real": taken.name, "device": taken.model}}
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
                return f"{unfinished} of {_JOBS} jobs were not completed on {taken.name}"
            ends[way] = float(jobs.finish.max() - jobs.arrival.min()) / 1e12
    except (WindtunnelError, RuntimeError) as error:  # what was measured is not lost for it
        return str(error)
    finally:
        executor.close_all()
    return {"jobs": _JOBS, "operations": len(points), "predicted_s": ends["predicted"], "measured_s": ends["measured"]}
