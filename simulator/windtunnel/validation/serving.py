"""Measured serving: reads tables of closed and open loops and request logs, and simulates each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from windtunnel.core.csvfile import Table, read_table
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.recording import Jobs
from windtunnel.core.results.measured_serving import TIMES, ReplayResult, ServingRow, Statistics
from windtunnel.core.serving_engine import ENGINE_NAMES, Bounds, ServingEngine
from windtunnel.core.ticks import FloatArray, to_second_array
from windtunnel.scenario.read import scenario_from_data
from windtunnel.simulation.run import record
from windtunnel.validation.serving_files import SUFFIXES, read_results
from windtunnel_models.campaigns import lengths_differ, polling_steps, published_cache, published_formats
from windtunnel_models.catalogue import Catalogue, device_model
from windtunnel_models.engines import is_engine_overlay, read_engine_overlay, serving_engine
from windtunnel_models.models import find_architecture

GROUP = ("tensor", "pipeline", "attention_data", "expert", "expert_tensor")
TEXTS = ("engine", "model", "sku", "weights", "kv_dtype")
LOG = ("arrival_s", "prompt_tokens", "output_tokens", "first_token_s", "last_token_s")
"""The columns of a request log."""
BATCH = ("batch.size", "batch.tokens", "batch.memory")
ROLES = ("prefill", "decode")
BY_ROLE = tuple(f"{role}_{key}" for role in ROLES for key in ("workers", *GROUP))
"""The columns of disaggregated serving: how many groups have a role, and the keys of such a group."""
SETTABLE = (*TEXTS, *GROUP, *BY_ROLE, "users", "rate_per_s", "prompt_tokens", "output_tokens", *BATCH)
"""What `--set` may state."""

TURNS, LEFT_OUT = 5, 2
"""The turns of every user of a closed loop, and those at the beginning that are left out. The last turn is left out
too, because the loop empties in it."""
OPEN_REQUESTS, OPEN_LEFT_OUT = 1000, 200
"""The requests of an open loop, and those at the beginning that are left out."""


@dataclass(frozen=True)
class Pool:
    """The groups of disaggregated serving that have one role."""

    workers: int
    group: Mapping[str, int]

    @property
    def devices(self) -> int:
        """The devices of all groups."""
        shared = self.group["tensor"] * self.group.get("pipeline", 1) * self.group.get("attention_data", 1)
        return self.workers * shared


@dataclass(frozen=True)
class Deployment:
    """An engine with a model on one group of devices, or on ``prefill`` and ``decode`` groups of disaggregated serving.

    ``weights`` and ``kv_dtype`` are empty for the model's own. ``batch`` has the keys of a scenario's batch that are
    stated. ``calibration`` is the path of an overlay.
    """

    engine: str
    model: str
    sku: str
    group: Mapping[str, int]
    weights: str
    kv_dtype: str
    batch: Mapping[str, float]
    calibration: Path | None = None
    pools: Mapping[str, Pool] = field(default_factory=dict)

    def profile(self) -> ServingEngine:
        """Return the profile of the engine, with the calibration if that is one of engines."""
        path = self.calibration
        return serving_engine(self.engine) if path is None or not is_engine_overlay(path) else read_engine_overlay(path)

    def scenario(self, arrivals: Mapping[str, object], prompt: object, output: object) -> dict[str, object]:
        """Return a scenario of one group without its stop."""
        served: dict[str, object] = {"config" if self.model.endswith(".json") else "catalogue": self.model}
        weights = published_formats(self.model, self.weights)
        if weights:
            linear, _, experts = weights.partition("/")
            served["weights"] = {"linear": linear, "experts": experts or linear}
        kv_dtype = published_cache(weights, self.kv_dtype)
        if kv_dtype:
            served["kv_dtype"] = kv_dtype
        entry: dict[str, object] = {"device": self.sku, "engine": self.engine}
        if self.calibration is not None:
            entry["calibration"] = str(self.calibration.resolve())
        fleet = [{**entry, "group": dict(self.group)}]
        if self.pools:
            fleet = [
                {**entry, "name": role, "role": role, "group": dict(pool.group), "count": pool.devices}
                for role, pool in self.pools.items()
            ]
        return {
            "schema": 1,
            "name": "measured serving",
            "models": {"served": served},
            "fleet": fleet,
            "workload": [
                {
                    "name": "requests",
                    "arrivals": dict(arrivals),
                    "ops": [{"generate": {"model": "served", "prompt": prompt, "output": output}}],
                }
            ],
            "policy": {"name": "fifo", "batch": {"kind": "continuous", **self.batch}},
        }


@dataclass(frozen=True)
class MeasuredLoop:
    """A row of a table: a closed loop of ``users``, or an open one at ``rate_per_s``; and its measured mean times."""

    row: int
    where: Location
    deployment: Deployment
    users: int | None
    rate_per_s: float | None
    prompt: int
    output: int
    measured: Mapping[str, float | None]


def is_log(table: Table) -> bool:
    """Return whether a table is a request log."""
    return set(LOG) <= set(table.header)


def read_loops(table: Table, stated: Mapping[str, object], calibration: Path | None = None) -> list[MeasuredLoop]:
    """Return the rows of a table of measured serving.

    Args:
        table: Columns ``engine``, ``model``, ``sku``, those of the group, ``weights``, ``kv_dtype``, ``users`` or
            ``rate_per_s``, ``prompt_tokens``, ``output_tokens``, and any of ``TIMES``. Others are ignored.
        stated: What the table does not have.
        calibration: An overlay.

    Raises:
        InputError: with file, line and column, for a missing column or a value that is not valid.
    """
    _check_stated(stated, table)
    return [_Cells(table, number, stated).loop(calibration) for number in range(len(table.rows))]


def _check_stated(stated: Mapping[str, object], table: Table) -> None:
    for name in stated:
        if name not in SETTABLE:
            raise InputError(
                f"'{name}' cannot be set",
                where=Location(field="--set"),
                expected=list_choices(SETTABLE, 40),
                nearest=nearest(name, SETTABLE),
            )
        if name in table.header and any(table.column(name)):
            raise InputError(
                f"the table has a column '{name}'", where=Location(field="--set"), expected="columns that it lacks"
            )


@dataclass(frozen=True)
class _Cells:
    """The cells of one row, and what was stated for all rows."""

    table: Table
    number: int
    stated: Mapping[str, object]

    def where(self, name: str) -> Location:
        if name in self.stated:
            return Location(field=f"--set {name}")
        return Location(self.table.file, self.table.lines[self.number], field=name)

    def text(self, name: str, default: str | None = None) -> str:
        cell = str(self.stated.get(name, ""))
        if not cell and name in self.table.header:
            cell = self.table.rows[self.number][self.table.header.index(name)].strip()
        if cell:
            return cell
        if default is not None:
            return default
        raise InputError(f"'{name}' is missing", where=self.where(name), expected=f"a column, or --set {name}=...")

    def quantity(self, name: str, default: float | None = None) -> float | None:
        """Return a number above zero; ``default`` where the cell is empty, NaN or 0, which mean unknown."""
        cell = self.text(name, "")
        try:
            value = float(cell) if cell else 0.0
        except ValueError:
            raise InputError(f"'{cell}' is not a number", where=self.where(name), expected="a number") from None
        if math.isnan(value) or value == 0.0:
            return default
        if not 0.0 < value < 1e12:
            raise InputError(f"this is {cell}", where=self.where(name), expected="a number above zero")
        return value

    def count(self, name: str, default: int | None = None) -> int:
        value = self.quantity(name, default)
        if value is None:
            raise InputError(f"'{name}' is missing", where=self.where(name), expected=f"a column, or --set {name}=...")
        if name in (*GROUP, *BY_ROLE, "batch.size", "batch.tokens") and value != int(value):
            raise InputError(f"this is {value:g}", where=self.where(name), expected="a whole number")
        return max(round(value), 1)

    def deployment(self, calibration: Path | None) -> Deployment:
        engine = self.text("engine", "generic" if "engine" not in self.table.header else None)
        if engine not in ENGINE_NAMES:
            raise InputError(
                f"no serving engine is known as '{engine}'",
                where=self.where("engine"),
                expected=list_choices(ENGINE_NAMES),
                nearest=nearest(engine, ENGINE_NAMES),
            )
        model = self.text("model")
        try:
            dense = all(layers.experts is None for layers in find_architecture(model).layers)
        except InputError as error:
            raise error.at(self.where("model")) from None
        group = self.group(dense)
        batch: dict[str, float] = {}
        for name in BATCH:
            if name in self.stated:
                share = self.quantity(name)
                batch[name.partition(".")[2]] = share if name == "batch.memory" and share else self.count(name)
        if calibration is not None and is_engine_overlay(calibration):
            fitted = read_engine_overlay(calibration).name
            if fitted != engine:
                raise InputError(
                    f"{calibration.name} is a calibration of {fitted}",
                    where=self.where("engine"),
                    expected=f"rows of {fitted} alone, or no --calibration",
                )
        return Deployment(
            engine,
            model,
            self.text("sku"),
            group,
            self.text("weights", ""),
            self.text("kv_dtype", ""),
            batch,
            calibration,
            self.pools(dense),
        )

    def group(self, dense: bool, role: str = "") -> dict[str, int]:
        """Return the group of a role, or the only one."""
        of = f"{role}_" if role else ""
        group = {name: self.count(of + name, 1) for name in GROUP[:3]}
        if not dense:
            group["expert"] = self.count(of + "expert", 1)
            if self.quantity(of + "expert_tensor") is not None:
                group["expert_tensor"] = self.count(of + "expert_tensor")
        return group

    def pools(self, dense: bool) -> dict[str, Pool]:
        """Return the groups of each role; none where one group does everything."""
        stated = [name for name in BY_ROLE if self.quantity(name) is not None]
        if not stated and self.text("mode", "") != "disagg":
            return {}
        for role in ROLES:
            if not any(name.startswith(role) for name in stated):
                raise InputError(
                    f"disaggregated serving needs groups that {role}",
                    where=self.where(f"{role}_tensor"),
                    expected=f"columns such as {role}_workers and {role}_tensor",
                )
        if any(self.quantity(name) is not None for name in GROUP):
            raise InputError(
                "this row has one group, and groups for prefill and decode",
                where=self.where("tensor"),
                expected="either of them",
            )
        return {role: Pool(self.count(f"{role}_workers", 1), self.group(dense, role)) for role in ROLES}

    def loop(self, calibration: Path | None) -> MeasuredLoop:
        users, rate = self.quantity("users"), self.quantity("rate_per_s")
        if (users is None) == (rate is None):
            raise InputError(
                "a row states one of users and rate_per_s" if users is None else "both users and rate_per_s are given",
                where=self.where("users"),
                expected="users of a closed loop, or the rate of an open one",
            )
        output = self.count("output_tokens")
        measured = {name: self.quantity(name) for name in TIMES}
        ttft_s, tpot_s = measured["ttft_s"], measured["tpot_s"]
        if measured["e2e_s"] is None and ttft_s is not None and tpot_s is not None:
            measured["e2e_s"] = ttft_s + tpot_s * (output - 1)
        return MeasuredLoop(
            self.number + 1,
            Location(self.table.file, self.table.lines[self.number]),
            self.deployment(calibration),
            None if users is None else max(round(users), 1),
            rate,
            self.count("prompt_tokens"),
            output,
            measured,
        )


def simulated(loop: MeasuredLoop, catalogue: Catalogue) -> ServingRow:
    """Return a row with the times of its simulation.

    A configuration that the models refuse, because the group does not divide or hold the model for instance, has no
    times and says why.
    """
    deployment = loop.deployment
    row = ServingRow(
        loop.row, deployment.engine, deployment.model, deployment.sku, None, None, None, loop.measured, _nothing(),
        _nothing(), _nothing(),
    )  # fmt: skip
    try:
        device = _device(deployment, catalogue)
    except InputError as error:
        raise error.at(replace(loop.where, field="sku")) from None
    profile = deployment.profile()
    try:
        times = _means(loop, profile, catalogue)
        low, high = _interval(times, deployment, profile, device)
    except InputError as error:
        return replace(row, problem=error.problem)
    return replace(
        row,
        ttft_s=times["ttft_s"],
        tpot_s=times["tpot_s"],
        e2e_s=times["e2e_s"],
        error={name: _error(times[name], loop.measured[name]) for name in TIMES},
        model_low=low,
        model_high=high,
    )


def _nothing() -> dict[str, float | None]:
    return dict.fromkeys(TIMES)


def _error(modelled: float | None, measured: float | None) -> float | None:
    return None if modelled is None or measured is None else modelled / measured - 1.0


def _device(deployment: Deployment, catalogue: Catalogue) -> Device:
    path = deployment.calibration
    own = None if path is None or is_engine_overlay(path) else str(path)
    return device_model(deployment.sku, catalogue, own)


def _means(loop: MeasuredLoop, profile: ServingEngine, catalogue: Catalogue) -> dict[str, float | None]:
    """Return the simulated mean times of the requests between the beginning and the end of a loop.

    Requests of real loads differ a little in their lengths and delays, which spreads them over the time within some
    turns. Equal requests would stay in the groups in which they began, so the users begin one after the other within
    the time of a request. If prompts are read in steps of their own, requests of one length wait for each other's
    prompts and stay together; then all users begin at once, unless lengths differ in the measurements.
    """
    polled_s = 0.0
    if loop.users is None:
        arrivals: dict[str, object] = {"process": "poisson", "rate": f"{loop.rate_per_s!r} /s"}
        ttft_s, tpot_s, e2e_s = _times(_run(loop, profile, catalogue, arrivals, OPEN_REQUESTS))
        kept = slice(OPEN_LEFT_OUT, OPEN_REQUESTS)
    else:
        arrivals = {"process": "closed", "users": loop.users, "think": {"distribution": "deterministic", "mean": "0 s"}}
        if not profile.prefill_first or lengths_differ(loop.prompt, loop.output):
            _, token_s, together = _times(_run(loop, profile, catalogue, arrivals, loop.users))
            arrivals["ramp"] = f"{float(together.mean())!r} s"
            polls = polling_steps(loop.deployment.engine, loop.prompt, loop.output, loop.users)
            # A request waits for half of the steps between two looks for requests, on average, and so does its user.
            polled_s = 0.5 * (polls - 1) * float(np.nanmean(token_s)) if loop.output > 1 else 0.0
            arrivals["think"] = {"distribution": "deterministic", "mean": f"{polled_s!r} s"}
        ttft_s, tpot_s, e2e_s = _times(_run(loop, profile, catalogue, arrivals, TURNS * loop.users))
        kept = slice(LEFT_OUT * loop.users, (TURNS - 1) * loop.users)
    return {
        "ttft_s": polled_s + float(ttft_s[kept].mean()),
        "tpot_s": float(np.nanmean(tpot_s[kept])) if loop.output > 1 else None,
        "e2e_s": polled_s + float(e2e_s[kept].mean()),
    }


def _run(
    loop: MeasuredLoop, profile: ServingEngine, catalogue: Catalogue, arrivals: Mapping[str, object], count: int
) -> Jobs:
    """Return ``count`` simulated requests of a loop, in order of arrival."""
    deployment = loop.deployment
    if loop.users is not None and "size" not in deployment.batch:
        # No step has more sequences than there are users; smaller tables take less time.
        limit = int(profile.limits_on(_device(deployment, catalogue)).sequences.value)
        deployment = replace(deployment, batch={**deployment.batch, "size": min(loop.users, limit)})
    data = {**deployment.scenario(arrivals, loop.prompt, loop.output), "stop": {"jobs": count}}
    return record(scenario_from_data(data, "measured serving"), catalogue).jobs


def _times(jobs: Jobs) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the times of all requests in order of arrival (s); TPOT is NaN where an output has one token."""
    every = slice(None)
    first_s, whole_s = to_second_array(jobs.until_first(every)), to_second_array(jobs.until_finish(every))
    return first_s, _per_token(whole_s - first_s, jobs.tokens.astype(np.float64)), whole_s


def _per_token(seconds: FloatArray, tokens: FloatArray) -> FloatArray:
    return np.where(tokens > 1, seconds / np.maximum(tokens - 1.0, 1.0), np.nan)


def _interval(
    times: Mapping[str, float | None], deployment: Deployment, profile: ServingEngine, device: Device
) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Return the 90% interval for the error of the models: the engine's factors of a step and of the first token."""
    model = find_architecture(deployment.model)
    factor = profile.times(model, device).error_factor
    first, token, whole = (
        None if value is None else Bounds(value, value / factor, value * factor) for value in map(times.get, TIMES)
    )
    if first is not None and whole is not None:
        first, whole = profile.with_first_token(model, first, whole)
    bounds = dict(zip(TIMES, (first, token, whole), strict=True))
    low = {name: None if bound is None else bound.low for name, bound in bounds.items()}
    return low, {name: None if bound is None else bound.high for name, bound in bounds.items()}


# Request logs.


def replayed(
    table: Table, stated: Mapping[str, object], calibration: Path | None, catalogue: Catalogue
) -> ReplayResult:
    """Return the replay of a request log: all of its requests, at their times, on one group.

    Raises:
        InputError: with the place, for a missing value, a time that is not valid, or a configuration that the models
            refuse.
    """
    _check_stated(stated, table)
    if not table.rows:
        raise InputError("this log has no requests", where=Location(table.file), expected="a row for each request")
    deployment = _Cells(table, 0, stated).deployment(calibration)
    log = {name: _column(table, name) for name in LOG}
    for later, earlier in (("first_token_s", "arrival_s"), ("last_token_s", "first_token_s")):
        wrong = np.flatnonzero(log[later] < log[earlier])
        if len(wrong):
            raise InputError(
                f"{later} is before {earlier}",
                where=Location(table.file, table.lines[int(wrong[0])], field=later),
                expected=f"{later} >= {earlier}",
            )
    order = np.argsort(log["arrival_s"], kind="stable")
    log = {name: values[order] for name, values in log.items()}
    ttft_s, e2e_s = log["first_token_s"] - log["arrival_s"], log["last_token_s"] - log["arrival_s"]
    measured = (ttft_s, _per_token(e2e_s - ttft_s, log["output_tokens"]), e2e_s)
    trace = {"process": "trace", "file": str(Path(table.file).resolve()), "time": "arrival_s"}
    data = deployment.scenario(trace, "$prompt_tokens", "$output_tokens")
    _device(deployment, catalogue)
    jobs = record(scenario_from_data({**data, "stop": {"jobs": len(order)}}, "measured serving"), catalogue).jobs
    modelled = _times(jobs)
    both = [
        {name: _statistics(values) for name, values in zip(TIMES, times, strict=True)} for times in (measured, modelled)
    ]
    error = {
        name: Statistics(*(getattr(both[1][name], f) / getattr(both[0][name], f) - 1.0 for f in _FIGURES))
        for name in TIMES
    }
    return ReplayResult(len(order), both[0], both[1], error)


_FIGURES = ("mean", "p50", "p95", "p99")


def _statistics(values: FloatArray) -> Statistics:
    kept = values[~np.isnan(values)]
    return Statistics(float(kept.mean()), *(float(np.quantile(kept, q)) for q in (0.5, 0.95, 0.99)))


def _column(table: Table, name: str) -> FloatArray:
    out = np.empty(len(table.rows))
    least = 1.0 if name.endswith("tokens") else 0.0
    for place, cell in enumerate(table.column(name)):
        try:
            out[place] = float(cell)
        except ValueError:
            out[place] = np.nan
        if not least <= out[place] < 1e12:
            raise InputError(
                f"this is '{cell}'",
                where=Location(table.file, table.lines[place], field=name),
                expected=f"a number of at least {least:g}",
            )
    return out


def read_measurements(path: Path) -> Table:
    """Return the table of measurements or the log at ``path``, or the result of a load generator as such a table.

    Raises InputError if it is neither.
    """
    if path.suffix in SUFFIXES:
        return read_results(path)
    return read_table(path, "table of measured serving")


def means(rows: Sequence[ServingRow]) -> list[tuple[str, str, int, dict[str, tuple[float, float] | None]]]:
    """Return by engine and SKU, and for all: the number of rows, and for each time the MAPE and the bias."""
    kinds = sorted({(row.engine, row.sku) for row in rows})
    groups = [(*kind, [row for row in rows if (row.engine, row.sku) == kind]) for kind in kinds]
    if len(kinds) > 1:
        groups.append(("all", "", list(rows)))
    out = []
    for engine, sku, members in groups:
        figures: dict[str, tuple[float, float] | None] = {}
        for name in TIMES:
            found = [e for row in members if (e := row.error[name]) is not None]
            figures[name] = (float(np.mean(np.abs(found))), float(np.mean(found))) if found else None
        out.append((engine, sku, len(members), figures))
    return out
