"""Checks before the run: combinations of policies, targets, batches, faults and budgets that are not supported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, Location
from windtunnel.core.policy import Policy
from windtunnel.core.spec import NOT_FOR_SALE
from windtunnel.core.ticks import LONGEST, MAX_SECONDS, to_seconds
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.fault_schedule import MAX_INTERVALS, expected_count
from windtunnel.engine.prepare.prefixes import what_prompts_share
from windtunnel.engine.prepare.prepared import FleetClass, JobClass, PreparedRun, kind_of_station
from windtunnel.engine.prepare.programs import Compiled, Segment
from windtunnel.scenario.autoscale import SERVING_METRICS
from windtunnel.scenario.faults import takes_device_down
from windtunnel.scenario.program import Branch, Generate, OpStage, flattened
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import Target


def check_needs(scenario: Scenario, policy: Policy, classes: Sequence[FleetClass]) -> None:
    """Check that the scenario has every price, deadline and use case that the policy and the targets require.

    Raises:
        InputError: if one is missing.
    """
    for number, entry in enumerate(scenario.fleet):
        if entry.batch is not None and policy.batch.kind != "continuous":
            raise InputError(
                "limits of steps require continuous batching",
                where=scenario.where("fleet", number, "batch"),
                expected="policy: {batch: {kind: continuous}}, or no batch of the entry",
            )
    if policy.route.rank_by == "each" and policy.batch.kind != "continuous":
        raise InputError(
            f"the route '{policy.route.name}' requires devices with continuous batching",
            where=scenario.where("policy"),
            expected="batch: {kind: continuous}, or another policy",
        )
    if "price" in policy.requires:
        for fleet_class in classes:
            if fleet_class.price_usd_per_s is None:
                raise InputError(
                    f"policy '{policy.name}' requires `price` in every fleet entry; {fleet_class.name} has none",
                    where=scenario.where("fleet", fleet_class.number),
                    expected="price: 2.5 USD/h",
                )
    for number, workload in enumerate(scenario.workload):
        if "deadline" in policy.requires and workload.deadline is None:
            raise InputError(
                f"policy '{policy.name}' requires `deadline` in every workload; '{workload.name}' has none",
                where=scenario.where("workload", number),
                expected="deadline: 100 ms",
            )
        if "use_case" in policy.requires and workload.use_case is None and workload.devices is None:
            raise InputError(
                f"policy '{policy.name}' requires `use_case` in every workload; '{workload.name}' has none",
                where=scenario.where("workload", number),
                expected="use_case: ml inference, or devices: [...]",
            )
    for i, target in enumerate(scenario.parsed_targets()):
        _check_site(scenario, target, scenario.where("targets", i))
        if target.metric in ("cost", "total_cost", "cost_per_million_output_tokens"):
            for fleet_class in classes:
                if fleet_class.price_usd_per_s is None:
                    raise InputError(
                        f"this target requires `price` in every fleet entry; {fleet_class.name} has none",
                        where=scenario.where("targets", i),
                        expected="a price in its fleet entry, such as price: 2.5 USD/h",
                    )


def _check_site(scenario: Scenario, target: Target, where: Location) -> None:
    """Check that the scenario has what is needed to measure a target."""
    site = scenario.site
    if target.metric in ("energy_cost", "total_cost") and (site is None or site.energy_price is None):
        raise InputError(
            "this target requires the price of energy", where=where, expected="site: {energy_price: 0.12 USD/kWh}"
        )
    if target.metric == "carbon" and (site is None or site.carbon is None):
        raise InputError("this target requires the carbon intensity", where=where, expected="site: {carbon: 350 g/kWh}")
    if target.metric == "availability" and not any(takes_device_down(fault) for fault in scenario.faults):
        raise InputError(
            "availability requires a fault that takes devices down",
            where=where,
            expected="a fault such as {kind: failure, mtbf: ..., mttr: ...}, or no such target",
        )


def check_batches(
    scenario: Scenario, policy: Policy, workloads: Sequence[JobClass], compiled: Mapping[tuple[int, int], Compiled]
) -> None:
    """Check that the policy's kind of batches supports all jobs.

    Raises:
        InputError: if it does not.
    """
    check_decoders(scenario, policy, workloads, compiled)
    if policy.batch.kind == "none":
        return
    for number, entry in enumerate(scenario.fleet):
        served = [workloads[work].program for cls, work in compiled if cls == number]
        models = {stage.model for program in served for stage in program if isinstance(stage, Generate)}
        if policy.batch.kind == "continuous" and len(models) > 1:
            raise InputError(
                f"with continuous batching a device serves one model, but {entry.name or entry.device} would serve "
                f"{', '.join(sorted(models))}",
                where=scenario.where("fleet", number),
                expected="a fleet entry for each model, and `devices` in the workloads",
            )
    for (class_number, job_number), program in compiled.items():
        plain = all(isinstance(stage, OpStage) for stage in workloads[job_number].program)
        if policy.batch.kind == "request" and program.decoder is None and not plain:
            raise InputError(
                f"request-level batching does not support the program of '{workloads[job_number].workload.name}'",
                where=scenario.where("workload", job_number, "ops"),
                expected="operations and repeats only, or a single generate",
            )
        if policy.batch.kind == "continuous" and program.decoder is None:
            raise InputError(
                f"continuous batching requires one `generate`, unlike '{workloads[job_number].workload.name}'",
                where=scenario.where("workload", job_number, "ops"),
                expected="a single generate, or another batch",
            )
        if scenario.fleet[class_number].streams > 1:
            raise InputError(
                "a device with batches executes one batch at a time",
                where=scenario.where("fleet", class_number, "streams"),
                expected="streams: 1",
            )


def check_decoders(
    scenario: Scenario, policy: Policy, workloads: Sequence[JobClass], compiled: Mapping[tuple[int, int], Compiled]
) -> None:
    """Check that steps have room for drafted tokens.

    Raises:
        InputError: if not, and for drafts and adapters without continuous batching.
    """
    for class_number, job_number in compiled:
        for stage in flattened(workloads[job_number].program):
            if not isinstance(stage, Generate):
                continue
            served = scenario.served_models[stage.model]
            if served.adapters is not None and policy.batch.kind != "continuous":
                raise InputError(
                    f"the adapters of '{stage.model}' require continuous batching",
                    where=scenario.where("models", stage.model, "adapters"),
                    expected="policy: {name: ..., batch: {kind: continuous}}",
                )
            speculation = served.speculation
            if speculation is None:
                continue
            place = scenario.where("models", stage.model, "speculation")
            if policy.batch.kind != "continuous":
                raise InputError(
                    f"the speculative decoding of '{stage.model}' requires continuous batching",
                    where=place,
                    expected="policy: {name: ..., batch: {kind: continuous}}",
                )
            decoder, queries = compiled[class_number, job_number].decoder, speculation.query_tokens
            if decoder is not None and policy.batch.size > decoder.largest.sequences:
                raise InputError(
                    f"a step of {decoder.largest.tokens:,} tokens has no room for {policy.batch.size:,} sequences of "
                    f"{queries} tokens each",
                    where=scenario.where("policy", "batch", "size"),
                    expected=f"at most {decoder.largest.tokens // queries:,}, or more tokens",
                )


def check_gangs(
    scenario: Scenario,
    policy: Policy,
    classes: Sequence[FleetClass],
    workloads: Sequence[JobClass],
    compiled: Mapping[tuple[int, int], Compiled],
) -> None:
    """Check that jobs of several devices are supported with the rest of the scenario.

    Raises:
        InputError: if they are not.
    """
    for job_class in workloads:
        _check_size(scenario, job_class, classes)
    scaled = {entry: i for i, rule in enumerate(scenario.autoscale) for entry in scenario.entries_named(rule.entry)}
    for cls, work in compiled:
        job_class = workloads[work]
        if job_class.gang == 1:
            continue
        where = scenario.where("workload", work, "gang")
        name = job_class.workload.name
        if policy.route.score is not None:
            raise InputError(
                f"the route '{policy.route.name}' does not support gangs: a job of several devices, as of '{name}', "
                "waits in no single device's queue",
                where=where,
                expected="a policy with a central queue, such as fifo or {order: priority}",
            )
        if policy.batch.kind != "none":
            raise InputError(
                f"batches do not support gangs: '{name}' occupies several devices",
                where=where,
                expected="no gang, or no batch in the policy",
            )
        if any(not isinstance(stage, OpStage | Branch) for stage in flattened(job_class.program)):
            raise InputError(
                f"a gang does not support 'generate' and streams: '{name}'",
                where=scenario.where("workload", work, "ops"),
                expected="operations, repeats and branches",
            )
        phases = (phase for (c, _), p in compiled.items() if c == cls for variant in p.variants for phase in variant)
        if classes[cls].streams > 1 or any(len(phase) > 1 for phase in phases):
            raise InputError(
                f"a gang requires devices that execute one job at a time, and {classes[cls].name} has streams",
                where=where,
                expected="`devices` in the workload, with entries without streams",
            )
        if cls in scaled:
            raise InputError(
                f"autoscale does not support gangs: '{name}' can run on {classes[cls].name}",
                where=scenario.where("autoscale", scaled[cls], "entry"),
                expected="`devices` in the workload, with entries that are not scaled",
            )


def _check_size(scenario: Scenario, job_class: JobClass, classes: Sequence[FleetClass]) -> None:
    """Check that an entry that may serve the workload has as many devices as a job of it occupies."""
    named = job_class.workload.devices
    entries = [(c.count, scenario.fleet[c.number]) for c in classes]
    most = max((n for n, e in entries if named is None or e.device in named or e.name in named), default=0)
    if job_class.gang > max(most, 1):
        name = job_class.workload.name
        raise InputError(
            f"'{name}' needs {job_class.gang:,} devices of one fleet entry, and no entry has so many",
            where=scenario.where("workload", job_class.number, "gang"),
            expected=f"at most {most:,}",
        )


def check_progress(prepared: PreparedRun) -> None:
    """Check that checkpoints and preemption are supported with the rest of the scenario.

    Raises:
        InputError: if they are not.
    """
    scenario, policy = prepared.scenario, prepared.policy
    kinds = {c.number: kind_of_station(prepared, c) for c in prepared.classes}
    if policy.preemption != "none":
        where = scenario.where("policy", "preemption")
        if policy.order.key is None:
            raise InputError(
                "preemption requires an order in which a later job can precede an earlier one",
                where=where,
                expected="order: priority, or another order than arrival",
            )
        if policy.batch.kind == "request":
            raise InputError(
                "preemption interrupts single jobs and does not support batches",
                where=where,
                expected="a policy without batch, or without preemption",
            )
        if prepared.outranks and policy.preemption == "restart":
            raise InputError(
                "a request of a continuous batch keeps the tokens that it has delivered when it is preempted",
                where=where,
                expected="preemption: resume",
            )
        for number, kind in kinds.items():
            _check_single(kind, "preemption", where, prepared.classes[number].name)
    for number, workload in enumerate(scenario.workload):
        if workload.checkpoint is None:
            continue
        where = scenario.where("workload", number, "checkpoint")
        if policy.batch.kind != "none":
            raise InputError(
                "checkpoints belong to single jobs, and batches do not support them",
                where=where,
                expected="a policy without batch, or a workload without checkpoint",
            )
        if any(isinstance(stage, Generate) for stage in scenario.programs[number]):
            raise InputError(
                "a job that generates tokens has no checkpoints",
                where=where,
                expected="a program of operations, or a workload without checkpoint",
            )
        for cls, work in prepared.compiled:
            if work == number:
                _check_single(kinds[cls], "checkpoints", where, prepared.classes[cls].name)


def _check_single(kind: str, what: str, where: Location, name: str) -> None:
    """Check that a kind of device executes one job at a time, in simulated time.

    Raises:
        InputError: if it does not.
    """
    if kind == "real":
        raise InputError(
            f"a real device does not support {what}", where=where, expected=f"only modelled devices, or no {what}"
        )
    if kind == "stream":
        raise InputError(
            f"on '{name}', {what} would require one job at a time, whose operations run one after another",
            where=where,
            expected=f"streams: 1 and programs without streams, or no {what}",
        )


def doubtful_settings(prepared: PreparedRun) -> list[str]:
    """Return a note for each setting that is valid and rarely meant, and for each device that is not for sale."""
    devices = {c.device.label: c.device for c in prepared.classes if c.device.spec.base is not None}
    turned = [_turned(target) for target in prepared.scenario.parsed_targets() if target.is_rarely_meant]
    return [*(_not_for_sale(device) for device in devices.values()), *turned, *_of_serving(prepared)]


def _turned(target: Target) -> str:
    """Return that a target limits its metric from the other side than is usual."""
    words, other = ("at least", "<=") if target.comparison == ">=" else ("at most", ">=")
    metric = target.metric.replace("_", " ")
    return f"the target '{target.text}' asks for {words} its limit; of {metric}, {other} is usual"


def _not_for_sale(device: Device) -> str:
    """Return what is assumed of a device with other values than its SKU, and what its times rest on."""
    base = device.spec.base or ""
    texts = [
        f"{path} is {format_quantity(sourced.value, device.kind.parameter(path.partition('.')[0]).unit)}"
        for path, sourced in device.spec.values.items()
        if (sourced.reason or "").startswith(NOT_FOR_SALE)
    ]
    return (
        f"{device.label} is not for sale: {', '.join(texts)}, as assumed. Nothing was measured on it; what was fitted "
        f"to {base} or its relatives is carried over, and the intervals are those of a transfer"
    )


def _of_serving(prepared: PreparedRun) -> list[str]:
    if all(c.decoder is None for c in prepared.compiled.values()):
        return []
    if prepared.policy.batch.kind == "none":
        return [
            "without `batch` in the policy, each device generates the tokens of one request at a time; serving engines "
            "batch continuously (`policy: {batch: {kind: continuous}}`)"
        ]
    return [*_without_prefix_cache(prepared), *_assumed_network(prepared)]


def _without_prefix_cache(prepared: PreparedRun) -> list[str]:
    """Return a note if prompts share beginnings which an engine would keep by default, and no cache is stated."""
    batch = prepared.policy.batch
    if batch.kind != "continuous" or batch.prefix_cache is not None:
        return []
    for (cls, work), program in prepared.compiled.items():
        engine = prepared.classes[cls].replica.engine
        shared = what_prompts_share(prepared.workloads[work].workload, prepared.workloads[work].program)
        if program.decoder is None or engine is None or not engine.prefix_cache_unless or not shared:
            continue
        return [
            f"the prompts of '{prepared.workloads[work].workload.name}' have {shared}, and every prompt is read as a "
            f"whole, because no prefix cache is stated; {engine.name} has one unless `{engine.prefix_cache_unless}` "
            "(`policy: {batch: {prefix_cache: {}}}`)"
        ]
    return []


def _assumed_network(prepared: PreparedRun) -> list[str]:
    """Return a note if KV caches cross a network whose rate is assumed."""
    network = prepared.scenario.network
    if not prepared.links or network.bandwidth is not None:
        return []
    nodes = {
        does: np.concatenate([prepared.nodes[c.first : c.first + c.count] for c in prepared.classes if c.role in roles])
        for does, roles in (("send", ("prefill",)), ("receive", ("decode", "both")))
    }
    every = np.concatenate(list(nodes.values()))
    if every.min() >= 0 and every.min() == every.max():
        return []
    slowest = min(link.network.bytes_per_s for link in prepared.links.values())
    return [
        "KV caches are sent between nodes over a network that is not stated; its rate is assumed, "
        f"{format_quantity(slowest, 'B/s')} of a replica (`network: {{bandwidth: 50 GB/s}}`, of each device)"
    ]


def check_faults(prepared: PreparedRun) -> None:
    """Check that faults and power budgets are supported with the rest of the scenario, and that all jobs can start.

    Raises:
        InputError: if they are not, or a job exceeds the budget.
    """
    scenario = prepared.scenario
    _check_fault_count(prepared)
    if prepared.budget_w is None or math.isinf(prepared.budget_w):
        return
    idle_w = prepared.max_idle_w
    for cls, work in prepared.compiled:
        peak_w = max_power(prepared, cls, work) * prepared.workloads[work].gang
        if idle_w + peak_w > prepared.budget_w:
            name = prepared.workloads[work].workload.name
            raise InputError(
                f"'{name}' on {prepared.classes[cls].name} could never start: it draws "
                f"{format_quantity(peak_w, 'W')} above the idle {format_quantity(idle_w, 'W')} of the fleet",
                where=scenario.where("power_budget"),
                expected=f"at least {format_quantity(idle_w + peak_w, 'W')}",
            )


def _check_fault_count(prepared: PreparedRun) -> None:
    """Check that no fault occurs so often that its schedule would exceed the memory."""
    scenario, schedule = prepared.scenario, prepared.faults
    if schedule is None:
        return
    end = prepared.end
    if end is None:
        end = max(int(prepared.arrival.max(initial=0)), prepared.expected_ticks)
    for number, (fault, affected) in enumerate(zip(schedule.faults, schedule.affected, strict=True)):
        expected = expected_count(fault, sum(part.devices for part in affected), to_seconds(end))
        if expected > MAX_INTERVALS:
            raise InputError(
                f"this fault would occur {expected:,.0f} times",
                where=scenario.where("faults", number),
                expected=f"at most {MAX_INTERVALS:,} times in a run: rarer faults, fewer devices or an earlier stop",
            )


def load_power(prepared: PreparedRun, cls: int, segment: Segment) -> float:
    """Return the power above idle of loading the design of a segment (W); 0 if the device never loads any."""
    designs = prepared.designs.get(cls)
    needs = not isinstance(segment.design, str) or segment.design != ""
    return designs.load_w if designs is not None and designs.changes and needs else 0.0


def max_power(prepared: PreparedRun, cls: int, work: int) -> float:
    """Return an upper bound of the power above idle of the workload's jobs on a device of the class (W)."""
    fleet_class, compiled = prepared.classes[cls], prepared.compiled[cls, work]
    above_idle_w = max(0.0, fleet_class.limit_w - fleet_class.idle_w)
    if prepared.policy.batch.kind == "continuous":
        return above_idle_w
    if prepared.policy.batch.kind == "request":
        table = prepared.batches(cls, work)
        # The power of a batch whose jobs differ is known only during the run.
        load_w = max(load_power(prepared, cls, segment) for segment in compiled.segments())
        return above_idle_w if table is None else max(float(table.watts.max()), load_w)
    peak_w = max(
        sum(
            max(max(float(np.max(segment.watts)), load_power(prepared, cls, segment)) for segment in body)
            for body in phase
        )
        for variant in compiled.variants
        for phase in variant
    )
    return peak_w if kind_of_station(prepared, fleet_class) == "single" else min(peak_w, above_idle_w)


MAX_DECISIONS = 5_000_000
"""The largest number of decisions of one autoscaling rule in a run."""


def check_decisions(prepared: PreparedRun) -> None:
    """Check that autoscaling has the metrics that its rules state, and does not decide so often that a run never ends.

    Raises:
        InputError: if a rule has more than ``MAX_DECISIONS`` decisions, a metric that its devices do not have, or an
            interval in which its devices may work for longer than the longest time.
    """
    end = prepared.end
    span = max(int(prepared.arrival.max(initial=0)), prepared.expected_ticks) if end is None else end
    numbers = {fleet_class.name: i for i, (fleet_class, _) in enumerate(prepared.scaled)}
    for fleet_class, rule in prepared.scaled:
        number = numbers[fleet_class.name]
        if prepared.policy.batch.kind != "continuous":
            for part, thresholds in (("up", rule.up), ("down", rule.down)):
                for name in SERVING_METRICS:
                    if getattr(thresholds, name, None) is not None:
                        raise InputError(
                            f"{name} needs devices that batch continuously",
                            where=prepared.scenario.where("autoscale", number, part, name),
                            expected="batch: {kind: continuous} in the policy, or queue_per_device or utilisation",
                        )
        decisions = to_seconds(span) / rule.every
        min_interval = format_quantity(to_seconds(span) / MAX_DECISIONS, "s")
        if decisions > MAX_DECISIONS:
            raise InputError(
                f"the autoscaling interval of {fleet_class.name} is too short: {decisions:,.0f} decisions",
                where=prepared.scenario.where("autoscale", number, "every"),
                expected=f"at most {MAX_DECISIONS:,} decisions in a run (every: {min_interval})",
            )
        if rule.max * rule.every >= MAX_SECONDS:  # the time in which its devices have a job is added up in ticks
            raise InputError(
                f"the autoscaling interval of {fleet_class.name} is too long: {rule.max:,} devices together work for "
                f"more than {LONGEST} in it",
                where=prepared.scenario.where("autoscale", number, "every"),
                expected=f"at most {format_quantity(MAX_SECONDS / rule.max, 's')}",
            )
