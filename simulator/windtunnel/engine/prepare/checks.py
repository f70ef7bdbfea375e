"""What is refused before anything runs: policies, targets, batches, faults and budgets that a scenario cannot have."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from windtunnel.core.errors import InputError, Where
from windtunnel.core.policy import Policy
from windtunnel.core.ticks import to_seconds
from windtunnel.core.units import format_quantity
from windtunnel.engine.prepare.fault_schedule import MAX_INTERVALS, expected_count
from windtunnel.engine.prepare.prepared import FleetClass, JobClass, PreparedRun
from windtunnel.engine.prepare.programs import (
    Compiled,
)
from windtunnel.scenario.faults import OperationFault, takes_device_down
from windtunnel.scenario.program import Generate, OpStage
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import Target


def check_needs(scenario: Scenario, policy: Policy, classes: Sequence[FleetClass]) -> None:
    """Refuse a policy or a target that needs what the scenario does not say: a price, a deadline, a use."""
    if "price" in policy.requires:
        for fleet_class in classes:
            if fleet_class.price_usd_per_s is None:
                raise InputError(
                    f"the policy '{policy.name}' needs a price, and none is known for {fleet_class.name}",
                    where=scenario.where("fleet", fleet_class.number),
                    expected="price: 2.5 USD/h",
                )
    for number, workload in enumerate(scenario.workload):
        if "deadline" in policy.requires and workload.deadline is None:
            raise InputError(
                f"the policy '{policy.name}' needs a deadline, and '{workload.name}' has none",
                where=scenario.where("workload", number),
                expected="deadline: 100 ms",
            )
        if "use_case" in policy.requires and workload.use_case is None and workload.devices is None:
            raise InputError(
                f"the policy '{policy.name}' needs a use, and '{workload.name}' has none",
                where=scenario.where("workload", number),
                expected="use_case: ml inference, or devices: [...]",
            )
    for i, target in enumerate(scenario.parsed_targets()):
        _check_site(scenario, target, scenario.where("targets", i))
        if target.metric in ("cost", "total_cost"):
            for fleet_class in classes:
                if fleet_class.price_usd_per_s is None:
                    raise InputError(
                        f"this target needs a price, and none is known for {fleet_class.name}",
                        where=scenario.where("targets", i),
                        expected="a price in its fleet entry, such as price: 2.5 USD/h",
                    )


def _check_site(scenario: Scenario, target: Target, where: Where) -> None:
    """Refuse a target on what the scenario gives no way to measure."""
    site = scenario.site
    if target.metric in ("energy_cost", "total_cost") and (site is None or site.energy_price is None):
        raise InputError(
            "this target needs a price of energy", where=where, expected="site: {energy_price: 0.12 USD/kWh}"
        )
    if target.metric == "carbon" and (site is None or site.carbon is None):
        raise InputError("this target needs a carbon intensity", where=where, expected="site: {carbon: 350 g/kWh}")
    if target.metric == "availability" and not any(takes_device_down(fault) for fault in scenario.faults):
        raise InputError(
            "nothing fails in this scenario, so its availability is not measured",
            where=where,
            expected="devices that fail and are repaired, or no such target",
        )


def check_batches(
    scenario: Scenario,
    policy: Policy,
    workloads: Sequence[JobClass],
    compiled: Mapping[tuple[int, int], Compiled],
) -> None:
    """Refuse jobs that cannot be served in the policy's batches."""
    if policy.batch.kind == "none":
        return
    models = {stage.model for w in workloads for stage in w.program if isinstance(stage, Generate)}
    if policy.batch.kind == "continuous" and len(models) > 1:
        raise InputError(
            f"continuous batching holds one model on every device, and the workloads use {', '.join(sorted(models))}",
            where=scenario.where("models"),
            expected="one model",
        )
    for (class_number, job_number), program in compiled.items():
        plain = all(isinstance(stage, OpStage) for stage in workloads[job_number].program)
        if policy.batch.kind == "request" and program.decoder is None and not plain:
            raise InputError(
                f"request-level batching cannot take the program of '{workloads[job_number].workload.name}'",
                where=scenario.where("workload", job_number, "ops"),
                expected="operations and repeats only, or a single generate",
            )
        if policy.batch.kind == "continuous" and program.decoder is None:
            raise InputError(
                f"continuous batching takes generating jobs, and '{workloads[job_number].workload.name}' is not one",
                where=scenario.where("workload", job_number, "ops"),
                expected="a single generate, or another batch",
            )
        if scenario.fleet[class_number].streams > 1:
            raise InputError(
                "a device that batches works on one batch at a time",
                where=scenario.where("fleet", class_number, "streams"),
                expected="streams: 1",
            )


def check_faults(prepared: PreparedRun) -> None:
    """Refuse faults and budgets where the engine does not know what they would do, or nothing could ever start."""
    scenario = prepared.scenario
    stated = [key for key, here in (("faults", scenario.faults), ("power_budget", scenario.power_budget)) if here]
    if not stated:
        return
    for problem, path, expected in _unmodelled(prepared):
        raise InputError(
            f"{' and '.join(stated)} {'is' if stated == ['power_budget'] else 'are'} not modelled {problem}",
            where=scenario.where(*path),
            expected=f"{expected}, or no {' and no '.join(stated)}",
        )
    for number, fault in enumerate(scenario.faults):
        if isinstance(fault, OperationFault) and prepared.policy.batch.kind == "request":
            raise InputError(
                "faults of single operations are not modelled where jobs are batched",
                where=scenario.where("faults", number),
                expected="no batch in the policy, or a failure of the device",
            )
    _check_fault_count(prepared)
    if prepared.budget_w is None or math.isinf(prepared.budget_w):
        return
    for cls, work in prepared.compiled:
        most = max_power(prepared, cls, work)
        if prepared.idle_w + most > prepared.budget_w:
            name = prepared.workloads[work].workload.name
            raise InputError(
                f"'{name}' on {prepared.classes[cls].name} would never be started: it draws "
                f"{format_quantity(most, 'W')} beside the idle fleet's {format_quantity(prepared.idle_w, 'W')}",
                where=scenario.where("power_budget"),
                expected=f"at least {format_quantity(prepared.idle_w + most, 'W')}",
            )


def _unmodelled(prepared: PreparedRun) -> Iterator[tuple[str, tuple[str | int, ...], str]]:
    """(what, where, what is modelled instead) of all that faults and budgets are not modelled with."""
    for fleet_class in prepared.classes:
        if fleet_class.streams > 1:
            what = f"where {fleet_class.name} works on {fleet_class.streams} jobs at a time"
            yield what, ("fleet", fleet_class.number, "streams"), "streams: 1"
    if prepared.policy.batch.kind == "continuous":
        yield "with continuous batching", ("policy", "batch"), "request-level batches or none"
    for (_, work), compiled in prepared.compiled.items():
        job_class = prepared.workloads[work]
        path = ("workload", work, "ops")
        if any(len(phase) > 1 for variant in compiled.variants for phase in variant):
            yield f"for the streams of '{job_class.workload.name}'", path, "operations one after another"
        if any(isinstance(stage, Generate) for stage in job_class.program):
            yield f"where jobs generate, as those of '{job_class.workload.name}' do", path, "operations"


def _check_fault_count(prepared: PreparedRun) -> None:
    """Refuse faults that strike so often that their schedule alone would fill the memory."""
    scenario, schedule = prepared.scenario, prepared.faults
    if schedule is None:
        return
    end = prepared.end
    if end is None:
        end = max(int(prepared.arrival.max(initial=0)), prepared.expected_ticks)
    for number, (fault, struck) in enumerate(zip(schedule.stated, schedule.struck, strict=True)):
        expected = expected_count(fault, sum(part.count for part in struck), to_seconds(end))
        if expected > MAX_INTERVALS:
            raise InputError(
                f"this fault would strike {expected:,.0f} times",
                where=scenario.where("faults", number),
                expected=f"at most {MAX_INTERVALS:,} times in a run: rarer faults, fewer devices or an earlier stop",
            )


def max_power(prepared: PreparedRun, cls: int, work: int) -> float:
    """The most that jobs of the workload ever draw on a device of the class, above idle (W)."""
    if prepared.policy.batch.kind == "request":
        table = prepared.batches(cls, work)
        fleet_class = prepared.classes[cls]
        # What a batch of jobs that differ draws is known when there is one.
        return max(0.0, fleet_class.limit_w - fleet_class.idle_w) if table is None else float(table.watts.max())
    return max(float(np.max(segment.watts)) for segment in prepared.compiled[cls, work].segments())


MOST_DECISIONS = 5_000_000
"""Decisions of one autoscaling rule above which a run is refused: it would do little else."""


def check_decisions(prepared: PreparedRun) -> None:
    """Refuse autoscaling that decides more often than a run could be waited for."""
    end = prepared.end
    span = max(int(prepared.arrival.max(initial=0)), prepared.expected_ticks) if end is None else end
    numbers = {fleet_class.name: i for i, (fleet_class, _) in enumerate(prepared.scaled)}
    for fleet_class, rule in prepared.scaled:
        decisions = to_seconds(span) / rule.every
        seldom = format_quantity(to_seconds(span) / MOST_DECISIONS, "s")
        if decisions > MOST_DECISIONS:
            raise InputError(
                f"{fleet_class.name} would be decided on {decisions:,.0f} times",
                where=prepared.scenario.where("autoscale", numbers[fleet_class.name], "every"),
                expected=f"at most {MOST_DECISIONS:,} times in a run: every {seldom}",
            )
