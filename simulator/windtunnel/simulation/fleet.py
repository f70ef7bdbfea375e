"""The devices, real executors and policy of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from windtunnel import policies
from windtunnel.core.device import Device
from windtunnel.core.errors import InputError
from windtunnel.core.executor import Executor
from windtunnel.core.policy import ORDERS, ROUTES, Batch, CacheTier, FairShares, Policy, PrefixCache, Route
from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.policies.weighted import weighted_route
from windtunnel.scenario.policy import ContinuousBatch, RequestBatch, WeightedRoute
from windtunnel.scenario.prefix_cache import StatedPrefixCache
from windtunnel.scenario.scenario import Scenario
from windtunnel_models.catalogue import Catalogue, device_model

_Part = TypeVar("_Part")


def _prefix_cache(stated: StatedPrefixCache) -> PrefixCache:
    tiers: list[CacheTier] = []
    if stated.host is not None:
        tiers.append(CacheTier("host", stated.host.size, stated.host.bandwidth))
    if stated.disk is not None:
        tiers.append(CacheTier("disk", stated.disk.size, stated.disk.bandwidth))
    return PrefixCache(stated.blocks, tuple(tiers))


def policy_of(scenario: Scenario) -> Policy:
    """Return the scenario's policy with its batching; raises InputError with its place for an unknown name."""
    policy = _stated_policy(scenario)
    return replace(policy, decode_route=policy.decode_route or policies.route_named("least-loaded"))


def _stated_policy(scenario: Scenario) -> Policy:
    stated = scenario.policy
    if isinstance(stated, str):
        return _located(
            partial(policies.named, stated, folder=scenario.folder, outside=scenario.outside_code), scenario, "policy"
        )
    batch = Batch()
    if isinstance(stated.batch, RequestBatch):
        batch = Batch("request", stated.batch.size, stated.batch.wait)
    elif isinstance(stated.batch, ContinuousBatch):
        chosen = stated.batch
        batch = Batch(
            "continuous",
            chosen.size or 0,
            tokens=chosen.tokens or 0,
            memory=chosen.memory or 0.0,
            prefix_cache=_prefix_cache(chosen.prefix_cache) if chosen.prefix_cache else None,
        )
    preemption = stated.preemption or "none"
    decode_route = _route(scenario, stated.decode_route, "decode_route") if stated.decode_route is not None else None
    fair = None if stated.fair is None else FairShares(stated.fair.weights, stated.fair.prompt, stated.fair.output)
    if stated.name is not None:
        named = _located(
            partial(policies.named, stated.name, batch, scenario.folder, scenario.outside_code),
            scenario,
            "policy",
            "name",
        )
        return replace(named, preemption=preemption, backfill=stated.backfill, decode_route=decode_route, fair=fair)
    made_order = partial(policies.order_named, stated.order or "arrival", scenario.folder, scenario.outside_code)
    route = _route(scenario, stated.route or "central", "route")
    order = _located(made_order, scenario, "policy", "order")
    name = f"{route.name} / {order.name}"
    return Policy(name, route, order, batch, preemption, decode_route, stated.backfill, fair)


def _route(scenario: Scenario, stated: str | WeightedRoute, key: str) -> Route:
    """Return a route by its name, its weights or a user's file, as ``key`` of the policy states it."""
    make: Callable[[], Route]
    if isinstance(stated, WeightedRoute):
        make = partial(weighted_route, stated.weights)
    else:
        make = partial(policies.route_named, stated, scenario.folder, scenario.outside_code)
    return _located(make, scenario, "policy", key)


def _located(make: Callable[[], _Part], scenario: Scenario, *path: str) -> _Part:
    try:
        return make()
    except InputError as error:
        raise error.at(scenario.where(*path)) from None


def fleet_devices(scenario: Scenario, catalogue: Catalogue) -> list[Device]:
    """Return the device of each fleet entry, with the entry's settings.

    Raises:
        InputError: An entry is not valid.
        DeviceNotPresentError: A real device whose model is not stated is not on this host.
    """
    devices: list[Device] = []
    for i, entry in enumerate(scenario.fleet):
        if entry.real is not None and not entry.device:
            try:
                entry.modelled_as(_model_here(entry.real))
            except InputError as error:
                raise error.at(scenario.where("fleet", i, "real")) from None
        try:
            device = device_model(entry.device, catalogue)
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "device")) from None
        changes = scenario.changes_of(i)
        try:
            device = device_model(entry.device, catalogue, None, changes) if changes else device
        except InputError as error:
            path = ["with", entry.device.partition("@")[0], *([error.where.field] if error.where.field else [])]
            where = scenario.where(*path)
            raise InputError(error.problem, where=where, expected=error.expected, nearest=error.nearest) from None
        try:
            calibration = entry.calibration
            if calibration is not None and scenario.engine_overlay(i) is None:
                overlay = calibration if calibration == "none" else str(scenario.folder / calibration)
                device = device_model(entry.device, catalogue, overlay, changes)
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "calibration")) from None
        linked = entry.group_size > 1 or any(other.role != "both" for other in scenario.fleet)
        try:
            device = configure(
                device,
                speed=entry.speed,
                idle_w=entry.power.idle,
                max_w=entry.power.max,
                memory_bytes=entry.memory,
                link_bytes_per_s=entry.node.link,
                network_bytes_per_s=scenario.network.bandwidth if linked else None,
                network_latency_s=scenario.network.latency if linked else None,
            )
        except InputError as error:
            raise error.at(scenario.where("fleet", i, "device")) from None
        if device.power_limit_w < device.idle_power_w:
            raise InputError(
                f"{device.label} would draw {device.idle_power_w:g} W idle and {device.power_limit_w:g} W at most",
                where=scenario.where("fleet", i, "power", "idle" if entry.power.max is None else "max"),
                expected="power: {idle: ..., max: ...} with idle <= max",
            )
        devices.append(device)
    return devices


def _model_here(name: str) -> str:
    """Return the model of a device of this host, such as ``h100-sxm-80gb@cuda`` of ``cuda:0``."""
    from windtunnel.backends.discovery import real_devices

    real = real_devices.require(name)
    if real.model is None:
        raise InputError(
            f"no model is known for {name} ({real.detected.label})", expected="device: SKU, or SKU@API, of that device"
        )
    return real.model


def fleet_executors(scenario: Scenario, devices: Sequence[Device]) -> dict[int, Executor]:
    """Return the executors of the fleet entries that are devices of this host, by the entry's index.

    Raises DeviceNotPresentError if a device is not on this host, and InputError if its model is of another kind.
    """
    executors: dict[int, Executor] = {}
    for number, (entry, model) in enumerate(zip(scenario.fleet, devices, strict=True)):
        if entry.real is None:
            continue
        from windtunnel.backends.discovery import executor

        where = scenario.where("fleet", number, "real")
        if any(entry.real == other.real for other in scenario.fleet[:number]):
            raise InputError(f"{entry.real} is in the fleet twice", where=where, expected="each real device once")
        try:
            made = executor.open_executor(entry.real)
        except InputError as error:
            raise error.at(where) from None
        if made.info.kind != model.kind.name:
            # Otherwise routes would use the times of another kind of device.
            raise InputError(
                f"{entry.real} is {made.info.name}, a {made.info.kind}, and its model {model.label} is a "
                f"{model.kind.name}",
                where=where,
                expected=f"device: what it is, a {made.info.kind} behind the API by which it is reached",
            )
        if made.info.api != model.api.name and made.info.api in model.spec.apis:
            raise InputError(
                f"{entry.real} is reached through {made.info.api}, and its model is {model.label}",
                where=where,
                expected=f"device: {model.spec.sku}@{made.info.api}",
            )
        executors[number] = made
    return executors


def configure(
    device: Device,
    *,
    speed: float = 1.0,
    idle_w: float | None = None,
    max_w: float | None = None,
    memory_bytes: float | None = None,
    link_bytes_per_s: float | None = None,
    network_bytes_per_s: float | None = None,
    network_latency_s: float | None = None,
) -> Device:
    """Return ``device`` with what a fleet entry states: speed, idle power, power cap, memory, link and network.

    ``network_latency_s`` is the time of a step of the protocol with the least one; the others keep their difference.

    Raises:
        InputError: if the kind has no link or network between devices.
    """
    values = dict(device.values)
    stated = "the scenario's fleet entry"

    def put(name: str, value: float) -> None:
        values[name] = SourcedValue(value, Provenance.DATASHEET, stated)

    if idle_w is not None:
        put("idle_power_w", idle_w)
    if memory_bytes is not None:
        put("memory_bytes", memory_bytes)
    for name, rate in (("scale_up_bytes_per_s", link_bytes_per_s), ("scale_out_bytes_per_s", network_bytes_per_s)):
        if rate is not None:
            device.kind.parameter(name)
            put(name, rate)
    if network_latency_s is not None:
        device.kind.parameter("collective_step_s")
        steps = {path: own.value for path, own in values.items() if path.startswith("collective_step_s.")}
        crossing = {path: step_s for path, step_s in steps.items() if path.endswith("_out")}
        for path, step_s in crossing.items():
            put(path, step_s - min(crossing.values()) + network_latency_s)
    cap_w = device.cap_w
    if max_w is not None:
        if device.kind.stated_power:
            put("max_power_w", max_w)
        else:
            cap_w = max_w
    return replace(device, values=values, speed=speed, cap_w=cap_w)


def policy_functions() -> list[tuple[str, Callable[..., object]]]:
    """Return the functions of all policies of Windtunnel: a "score" of each route and a "key" of each order, if any."""
    functions = [("score", route.score) for route in ROUTES.values()] + [
        ("key", order.key) for order in ORDERS.values()
    ]
    return [(use, f) for use, f in functions if f is not None and f.__module__.startswith("windtunnel.")]
