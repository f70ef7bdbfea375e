"""Prepares a scenario for an engine, and reports every error of the scenario before the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from windtunnel.core.device import Device
from windtunnel.core.errors import InputError, UnsupportedOperationError
from windtunnel.core.executor import Executor
from windtunnel.core.group import Group
from windtunnel.core.memory import require_memory
from windtunnel.core.policy import Batch, Policy
from windtunnel.core.ticks import LONGEST, MAX_SECONDS, to_ticks
from windtunnel.core.units import format_quantity
from windtunnel.engine.arrivals import MAX_JOBS, MAX_STREAMED_JOBS, JobLimit, count_expected, merged
from windtunnel.engine.prepare.adapters import adapters_of, apart
from windtunnel.engine.prepare.autoscaling import rules_by_entry
from windtunnel.engine.prepare.checks import (
    check_batches,
    check_decisions,
    check_faults,
    check_gangs,
    check_needs,
    check_progress,
)
from windtunnel.engine.prepare.chips import shared_chips
from windtunnel.engine.prepare.decoder_cache import DecoderCostCache, price_together
from windtunnel.engine.prepare.designs import check_designs, class_designs
from windtunnel.engine.prepare.eligibility import Excluded, eligibility
from windtunnel.engine.prepare.fault_schedule import AffectedDevices, FaultSchedule, straggler_slowdowns
from windtunnel.engine.prepare.handover import check_roles, kv_links, nodes_of
from windtunnel.engine.prepare.offered_load import least_queue, offered_load
from windtunnel.engine.prepare.prefixes import PromptChains, block_tokens, prompt_chains
from windtunnel.engine.prepare.prepared import FAR, FleetClass, JobClass, PreparedRun, fleet_idle_w
from windtunnel.engine.prepare.programs import Compiled, compile_program, longest_contexts, round_power
from windtunnel.engine.prepare.real_devices import check_executable, check_real
from windtunnel.engine.prepare.replica import Replica
from windtunnel.engine.prepare.source import Source
from windtunnel.engine.prepare.tenants import check_rate_limits, job_flows
from windtunnel.engine.prepare.tiers import replica_tiers
from windtunnel.engine.prepare.users import user_class
from windtunnel.engine.prepare.waits import patience_draws
from windtunnel.engine.prepare.workloads import drawn_workloads, has_users, place_of
from windtunnel.scenario.arrivals import Closed, Trace
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.faults import BrownOut, OperationFault, Straggler
from windtunnel.scenario.program import Generate, OpStage, flattened
from windtunnel.scenario.scenario import Scenario

Preference = Callable[[str, str, str], float]
"""Returns the rank of (use case, API, kind) in the recommendation matrix; infinity if it is not recommended."""


# Long: a third of it is the signature and its description, another third the fields of the result.
def prepare(
    scenario: Scenario,
    devices: Sequence[Device],
    policy: Policy,
    preference: Preference | None = None,
    *,
    streamed: bool = False,
    capacity: int | None = None,
    executors: Mapping[int, Executor] | None = None,
    original: PreparedRun | None = None,
    processes: int = 1,
    accuracies: bool = True,
    candidates: bool = False,
) -> PreparedRun:
    """Return ``scenario`` on ``devices`` under ``policy`` in the form that the engines use.

    Args:
        scenario: The scenario.
        devices: One configured device model for each fleet entry.
        policy: The scheduling policy.
        preference: The recommendation matrix, for policies that use it.
        streamed: Whether jobs are drawn while the run goes on (see ``can_be_streamed``).
        capacity: For how many jobs of each closed workload to draw random numbers; an estimate by default.
        executors: The executors of fleet entries that are real devices, by the number of the entry.
        original: A run of the same scenario with another seed, from whose traces the arrivals are redrawn.
        processes: The number of processes that share the pricing of decoders.
        candidates: Whether the fleet has the entries that a plan may use, and not all of them together.
        accuracies: Whether they also compute the accuracies of the decoders' steps, because these will be asked for.

    Raises:
        InputError: for every error that can be found before the run, such as a job that no device can execute or has
            memory for, a missing price or deadline that the policy requires, or arrivals without end.
    """
    rules = rules_by_entry(scenario)
    classes = _classes(scenario, devices, rules, executors or {})
    workloads = _representatives(scenario) if streamed else drawn_workloads(scenario, capacity, original)
    check_needs(scenario, policy, classes)
    of_contexts = workloads if original is None else original.workloads
    compiled, preferences, excluded = _compiled(
        scenario, policy, classes, workloads, preference, of_contexts, processes, accuracies
    )
    check_batches(scenario, policy, workloads, compiled)
    check_gangs(scenario, policy, classes, workloads, compiled)
    budget_w = _budget(scenario, classes)
    schedule = _schedule(scenario, classes, budget_w)
    limit = scenario.stop.jobs if scenario.stop is not None and not streamed else None
    expected_jobs, expected_s = _expected(scenario) if streamed else (0, 0.0)
    of_users = [w for w in workloads if has_users(w.workload) and not streamed]
    known = {w.number: w.source.ticks for w in workloads if w.source.count and w not in of_users}
    arrival, workload_of, rank = merged(known, limit)
    check_roles(scenario, policy, classes, workloads, compiled, candidates)
    signatures, eligible = eligibility(
        scenario,
        policy,
        classes,
        workloads,
        compiled,
        excluded,
        np.concatenate([workload_of, *(np.full(w.source.count, w.number, dtype=np.int64) for w in of_users)]),
        np.concatenate([rank, *(np.arange(w.source.count, dtype=np.int64) for w in of_users)]),
    )
    at = np.cumsum([len(arrival), *(w.source.count for w in of_users)])
    eligible, *mine = np.split(eligible, at[:-1]) if of_users else [eligible]
    names = [w.name for w in scenario.workload]
    block = block_tokens(scenario) if policy.batch.prefix_cache is not None else 0
    prepared = PreparedRun(
        scenario=scenario,
        policy=policy,
        classes=classes,
        workloads=workloads,
        compiled=compiled,
        excluded={pair: str(why) for pair, why in excluded.items()},
        preference=preferences,
        arrival=arrival,
        workload_of=workload_of,
        rank=rank,
        eligible=eligible,
        signatures=[signature.readers for signature in signatures],
        decode_signatures=[signature.decoders for signature in signatures],
        links=kv_links(classes, compiled),
        nodes=nodes_of(scenario, classes),
        end=to_ticks(scenario.stop.time) if scenario.stop is not None and scenario.stop.time is not None else None,
        faults=schedule,
        budget_w=budget_w,
        streamed=streamed,
        expected_jobs=expected_jobs,
        expected_ticks=to_ticks(expected_s),
        chains=[_chains(w, block, compiled) for w in workloads] if block else [],
        block_tokens=block,
        tiers=replica_tiers(scenario, policy, compiled, block) if block else {},
        flows=job_flows(scenario, policy, workloads),
        sampled=scenario.records != "none",
        slowdown=None if streamed else straggler_slowdowns(scenario.faults, scenario.seed, names, workload_of, rank),
        users=[user_class(scenario, w.number, w.source, s, capacity) for w, s in zip(of_users, mine, strict=True)],
        limit=limit,
        scaled=[(classes[number], rule) for number, rule in sorted(rules.items())],
        designs=class_designs(scenario, classes, workloads, compiled),
        with_capacity=partial(_with_capacity, scenario, devices, policy, preference, executors, original),
        prepare_redrawn=partial(_redrawn, devices, policy, preference),
    )
    check_faults(prepared)
    check_real(prepared)
    check_decisions(prepared)
    check_progress(prepared)
    check_rate_limits(prepared)
    check_designs(prepared)
    if streamed:
        _check_queue(prepared)
    return prepared


def _chains(job_class: JobClass, block: int, compiled: Mapping[tuple[int, int], Compiled]) -> PromptChains:
    """Return the blocks of the prompts of a workload; those for different adapters are different blocks."""
    found = [program.adapters for (_, work), program in compiled.items() if work == job_class.number]
    return apart(prompt_chains(job_class.program, job_class.source, block), found[0] if found else None)


_Pairs = dict[tuple[int, int], Compiled]


# Long: it tries every pair of class and workload, and keeps the reasons why a pair is excluded.
def _compiled(
    scenario: Scenario,
    policy: Policy,
    classes: Sequence[FleetClass],
    workloads: Sequence[JobClass],
    preference: Preference | None,
    of_contexts: Sequence[JobClass],
    processes: int,
    accuracies: bool,
) -> tuple[_Pairs, dict[tuple[int, int], float], Excluded]:
    """Return programs and preferences by (class, workload), and the reasons why a class does not run a workload.

    The tables of decoders are as long as the longest contexts of ``of_contexts`` need.
    """
    batch = policy.batch
    longest: dict[str, int] = {}
    # Lengths that are drawn may be longer in a redrawn run.
    for job_class in (*of_contexts, *workloads):
        if job_class.source.count:
            for model, context in longest_contexts(job_class.program, job_class.source):
                longest[model] = max(longest.get(model, 0), context)
    shelves = [DecoderCostCache(c.replica, scenario.served_models, longest, batch) for c in classes]
    if processes > 1:
        wanted = [shelf.wanted(model) for model in longest for shelf in shelves]
        price_together(wanted, processes, accuracies=accuracies)
    compiled: _Pairs = {}
    preferences: dict[tuple[int, int], float] = {}
    excluded: Excluded = {}
    for job_class in workloads:
        if job_class.source.count == 0:
            continue
        allowed = job_class.workload.devices
        for fleet_class in classes:
            entry, pair = scenario.fleet[fleet_class.number], (fleet_class.number, job_class.number)
            if allowed is not None and entry.device not in allowed and entry.name not in allowed:
                excluded[pair] = "the workload names other devices"
                continue
            if fleet_class.count < job_class.gang:
                excluded[pair] = f"a job occupies {job_class.gang:,} devices of one entry"
                continue
            place = 0.0
            use = job_class.workload.use_case
            if preference is not None and "use_case" in policy.requires and use is not None:
                try:
                    place = preference(use, fleet_class.device.api.name, fleet_class.device.kind.name)
                except InputError as error:
                    raise error.at(scenario.where("workload", job_class.number, "use_case")) from None
                if math.isinf(place):
                    excluded[pair] = f"it is not recommended for the use case '{use}'"
                    continue
            preferences[pair] = place
            _check_division(scenario, fleet_class, job_class)
            try:
                program = compile_program(
                    job_class.program,
                    fleet_class.device,
                    job_class.source,
                    shelves[fleet_class.number],
                    fleet_class.executor,
                )
                only = job_class.program[0]
                if len(job_class.program) == 1 and isinstance(only, Generate):
                    stated = scenario.served_models[only.model].adapters
                    program = replace(program, adapters=adapters_of(only, job_class.source, stated))
                if fleet_class.executor is not None:
                    check_executable(program, fleet_class.executor, job_class.source.count)
                compiled[pair] = program
            except UnsupportedOperationError as error:
                excluded[pair] = error
            except InputError as error:
                raise error.at(scenario.where("workload", job_class.number, "ops")) from None
    return compiled, preferences, excluded


def _check_division(scenario: Scenario, fleet_class: FleetClass, job_class: JobClass) -> None:
    """Check that the group of a class divides the decoders of a workload."""
    for stage in flattened(job_class.program):
        if isinstance(stage, Generate):
            served = scenario.served_models[stage.model]
            try:
                fleet_class.replica.group.check(served.architecture)
                if served.speculation is not None:
                    served.speculation.group_of(fleet_class.replica.group)
            except InputError as error:
                key = (error.where.field,) if error.where.field is not None else ()
                where = scenario.where("fleet", fleet_class.number, "group", *key)
                if key == ("draft_tensor",):
                    where = scenario.where("models", stage.model, "speculation", *key)
                raise InputError(error.problem, where=where, expected=error.expected, nearest=error.nearest) from None


def _classes(
    scenario: Scenario, devices: Sequence[Device], rules: Mapping[int, Autoscale], executors: Mapping[int, Executor]
) -> list[FleetClass]:
    classes: list[FleetClass] = []
    names: dict[str, int] = {}
    first = 0
    for number, (entry, device) in enumerate(zip(scenario.fleet, devices, strict=True)):
        name = entry.name or entry.real or entry.device
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            if entry.name is not None:
                raise InputError(
                    f"the name '{name}' is used by two fleet entries",
                    where=scenario.where("fleet", number, "name"),
                    expected="each name once",
                )
            name = f"{name}.{names[name]}"
        replica = _replica(scenario, number, device)
        count = rules[number].max if number in rules else entry.replicas
        price = entry.price if entry.price is not None else device.number("price_usd_per_h")
        size = entry.group_size
        classes.append(
            FleetClass(
                number=number,
                name=name,
                device=device,
                replica=replica,
                role=entry.role,
                first=first,
                count=count,
                begin=entry.replicas,
                streams=entry.streams,
                price_usd_per_s=None if price is None else size * price,
                idle_w=round_power(size * device.idle_power_w),
                active_w=round_power(size * device.active_power_w),
                limit_w=size * device.power_limit_w,
                executor=executors.get(number),
                # A real device whose model is a processor is this host's.
                chip=entry.chip_name or ("host" if number in executors and device.kind.name == "cpu" else None),
            )
        )
        first += count
    _check_chips(scenario, classes, rules)
    return classes


def _replica(scenario: Scenario, number: int, device: Device) -> Replica:
    """Return the devices of an entry that serve a decoder together."""
    entry = scenario.fleet[number]
    group = Group() if entry.group is None else entry.group.group()
    stated = entry.batch
    size, tokens, memory = (0, 0, 0.0) if stated is None else (stated.size, stated.tokens, stated.memory)
    limits = Batch("continuous", size or 0, tokens=tokens or 0, memory=memory or 0.0)
    engine = scenario.engine_of(number)
    if engine.makers and device.spec.vendor not in engine.makers:
        makers = " and ".join(engine.makers)
        raise InputError(
            f"{engine.doc.split(' with ')[0]} runs on devices of {makers} only, and {device.label} is one of "
            f"{device.spec.vendor}",
            where=scenario.where("fleet", number, "engine"),
            expected="one of vllm, sglang, generic",
        )
    return Replica(device, group, engine, entry.node.devices, limits)


def _check_chips(scenario: Scenario, classes: Sequence[FleetClass], rules: Mapping[int, Autoscale]) -> None:
    """Check that entries with the same stated chip have one SKU, and that no shared chip is scaled."""
    skus: dict[str, FleetClass] = {}
    shared = {device for chip in shared_chips(classes) for device in chip.devices}
    for c in classes:
        stated = scenario.fleet[c.number].chip
        if stated is not None:
            other = skus.setdefault(stated, c)
            if other.device.spec.sku != c.device.spec.sku:
                raise InputError(
                    f"the chip '{stated}' of {c.name} is a {c.device.spec.sku}, and of {other.name} a "
                    f"{other.device.spec.sku}",
                    where=scenario.where("fleet", c.number, "chip"),
                    expected="one SKU for each chip",
                )
        if c.number in rules and shared & set(range(c.first, c.first + c.count)):
            raise InputError(
                f"{c.name} is scaled, and other entries reach its chip '{c.chip}'",
                where=scenario.where("fleet", c.number),
                expected="no autoscale for this entry, or a chip of its own (chip: another name)",
            )


def _with_capacity(
    scenario: Scenario,
    devices: Sequence[Device],
    policy: Policy,
    preference: Preference | None,
    executors: Mapping[int, Executor] | None,
    original: PreparedRun | None,
    capacity: int,
) -> PreparedRun:
    if capacity > MAX_JOBS:
        raise InputError(
            f"the users would submit more than {MAX_JOBS:,} jobs",
            where=scenario.where("stop"),
            expected="fewer users, longer think times or an earlier stop",
        )
    return prepare(scenario, devices, policy, preference, capacity=capacity, executors=executors, original=original)


def _redrawn(
    devices: Sequence[Device], policy: Policy, preference: Preference | None, original: PreparedRun, seed: int
) -> PreparedRun:
    """Return the run of ``original`` with another seed, with redrawn traces. No device of it may be real."""
    scenario = original.scenario.reseeded(seed)
    again = prepare(scenario, devices, policy, preference, streamed=original.streamed, original=original)
    return again.with_step_times(original.step_factors) if original.step_factors else again


def _budget(scenario: Scenario, classes: Sequence[FleetClass]) -> float | None:
    """Return the power budget of the fleet (W): infinite if only brown-outs limit power, None if nothing does."""
    limits = [
        (fault.budget, scenario.where("faults", i, "budget"))
        for i, fault in enumerate(scenario.faults)
        if isinstance(fault, BrownOut)
    ]
    if scenario.power_budget is not None:
        limits.append((scenario.power_budget, scenario.where("power_budget")))
    idle_w = fleet_idle_w(classes, [c.count for c in classes])
    for budget, where in limits:
        if budget < idle_w:
            raise InputError(
                f"the idle power of the fleet, {format_quantity(idle_w, 'W')}, exceeds this budget",
                where=where,
                expected=f"more than {format_quantity(idle_w, 'W')}, or fewer devices",
            )
    if scenario.power_budget is not None:
        return scenario.power_budget
    return math.inf if limits else None


def _schedule(scenario: Scenario, classes: Sequence[FleetClass], budget_w: float | None) -> FaultSchedule | None:
    """Return the schedule of faults; None if no fault affects devices or power."""
    if all(isinstance(fault, Straggler) for fault in scenario.faults):
        return None
    affected: list[list[AffectedDevices]] = []
    for fault in scenario.faults:
        named = getattr(fault, "devices", None)
        # A brown-out affects the power of the whole fleet and no single device.
        affected.append(
            [AffectedDevices("", -1, 1)]
            if isinstance(fault, BrownOut)
            else [
                AffectedDevices(c.name, c.first, c.count, c.members)
                for c in classes
                if named is None or scenario.fleet[c.number].device in named or scenario.fleet[c.number].name in named
            ]
        )
    return FaultSchedule(scenario.faults, affected, math.inf if budget_w is None else budget_w, scenario.seed)


def can_be_streamed(scenario: Scenario) -> bool:
    """Return whether jobs can be drawn while a run goes on, and only sums and a sample of them kept.

    The sums do not have what traces, users, `generate`, streams, autoscaling, faults of operations, gangs and shared
    chips need.
    """
    stopped = scenario.stop is not None and (scenario.stop.jobs is not None or scenario.stop.time is not None)
    drawn = all(not isinstance(w.arrivals, Trace | Closed) for w in scenario.workload)
    plain = all(isinstance(stage, OpStage) for program in scenario.programs for stage in program)
    one_at_a_time = all(entry.streams == 1 for entry in scenario.fleet)
    fixed = not scenario.autoscale and not any(isinstance(fault, OperationFault) for fault in scenario.faults)
    alone = all(w.gang in (None, 1) for w in scenario.workload)
    chips = [entry.chip_name for entry in scenario.fleet if entry.chip_name is not None]
    own_chips = len(chips) == len(set(chips))
    return stopped and drawn and plain and one_at_a_time and fixed and alone and own_chips


def expected_jobs(scenario: Scenario) -> int:
    """Return the expected number of jobs; 0 for traces, closed loops and runs without a stop condition."""
    if any(isinstance(w.arrivals, Trace | Closed) for w in scenario.workload) or scenario.stop is None:
        return 0
    return _expected(scenario)[0]


def _expected(scenario: Scenario) -> tuple[int, float]:
    """Return the expected number of jobs, and the expected time until the last arrival (s).

    Raises:
        InputError: if that time is longer than a run may last.
    """
    drawn = [w.arrivals for w in scenario.workload if not isinstance(w.arrivals, Trace | Closed)]
    stop = scenario.stop
    assert stop is not None  # noqa: S101  arrivals without end are an error
    if stop.jobs is not None:
        last_s = stop.jobs / sum(process.mean_rate_per_s() for process in drawn)
        if last_s >= MAX_SECONDS:
            raise InputError(
                f"{stop.jobs:,} jobs take longer than the {LONGEST} a run may last",
                where=scenario.where("stop", "jobs"),
                expected="a higher rate or fewer jobs",
            )
        return stop.jobs, last_s
    assert stop.time is not None  # noqa: S101  a stop condition has one of the two
    return max(1, math.ceil(sum(process.expected_jobs(stop.time) for process in drawn))), stop.time


def _representatives(scenario: Scenario) -> list[JobClass]:
    """Return workloads of one job each, which represents all jobs of the workload.

    Raises:
        InputError: if more than a thousand million jobs are expected.
    """
    limit = JobLimit(MAX_STREAMED_JOBS, stop_jobs=scenario.stop.jobs if scenario.stop is not None else None)
    count_expected(scenario.workload, scenario.stop, limit, scenario.where)
    workloads: list[JobClass] = []
    for number, (workload, program) in enumerate(zip(scenario.workload, scenario.programs, strict=True)):
        source = Source(workload.name, scenario.seed, np.zeros(1, dtype=np.int64), None, place_of(scenario))
        deadline = FAR if workload.deadline is None else to_ticks(workload.deadline)
        patience = patience_draws(workload, scenario.seed, 1)
        workloads.append(JobClass(number, workload, program, source, deadline, patience))
    return workloads


_QUEUED_BYTES = 180.0
"""Memory of a job that waits in a run that keeps no jobs (bytes). Measured on the compiled engine with 5 and 20 million
jobs in the queue."""


def _check_queue(prepared: PreparedRun) -> None:
    """Refuse a run that keeps no jobs if those that the fleet cannot complete would not fit into memory as a queue."""
    load = offered_load(prepared)
    if load is None or load.offered <= 1.0:
        return
    queued = least_queue(prepared)
    require_memory(
        _QUEUED_BYTES * queued,
        f"the queue of about {queued:,.0f} jobs that the fleet cannot complete (offered load {load.offered:.3g})",
        prepared.scenario.where(*(("workload", 0, "arrivals") if len(prepared.workloads) == 1 else ("workload",))),
        "a lower rate, an earlier stop or more devices",
    )
