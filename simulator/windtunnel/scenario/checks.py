"""Checks of a scenario that concern several of its parts: names, shared clocks, autoscaling rules and faults."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.yamlfile import Document
from windtunnel.scenario.arrivals import shared_clocks
from windtunnel.scenario.changes import parse_path
from windtunnel.scenario.faults import COPIES, Fault, OperationFault
from windtunnel.scenario.program import Generate, operations_of
from windtunnel.scenario.scenario import Scenario
from windtunnel.scenario.target import OF_REQUESTS


def check_names(scenario: Scenario, document: Document) -> None:
    """Check that names are unique, and that every name that is referred to exists.

    Raises:
        InputError: The first name that is wrong, with its place and the nearest right name.
    """
    workloads = {workload.name for workload in scenario.workload}
    _check_once("workload", [workload.name for workload in scenario.workload], "each name once", document)
    _check_once(
        "fleet",
        [entry.name for entry in scenario.fleet],
        "each name once; entries without a name may have the same device",
        document,
    )
    _check_clocks(scenario, document)
    for i, workload in enumerate(scenario.workload):
        for j, name in enumerate(workload.devices or ()):
            _check_entry(scenario, name, document.where(("workload", i, "devices", j)))
    for i, fault in enumerate(scenario.faults):
        for j, name in enumerate(getattr(fault, "devices", None) or ()):
            _check_entry(scenario, name, document.where(("faults", i, "devices", j)))
        for j, name in enumerate(getattr(fault, "workloads", None) or ()):
            _check_workload(name, workloads, document.where(("faults", i, "workloads", j)))
    _check_autoscale(scenario, document)
    _check_changed_skus(scenario, document)
    for i, target in enumerate(scenario.parsed_targets()):
        if target.workload is not None:
            _check_workload(target.workload, workloads, document.where(("targets", i)))


def _check_once(key: str, names: Sequence[str | None], expected: str, document: Document) -> None:
    """Check that no name is given to two parts of a list; those without a name are left out."""
    seen: set[str] = set()
    for i, name in enumerate(names):
        if name in seen:
            what = "workloads" if key == "workload" else "entries of the fleet"
            raise InputError(
                f"the name '{name}' is given to two {what}",
                where=document.where((key, i, "name")),
                expected=expected,
            )
        seen |= {name} if name else set()


def _check_changed_skus(scenario: Scenario, document: Document) -> None:
    """Check that the fleet, or what a plan may choose for it, has each SKU of which values are changed."""
    search = {} if scenario.plan is None else scenario.plan.search
    searched = [v for path, values in search.items() if parse_path(path)[2:] == ("device",) for v in values]
    devices = [*(entry.device for entry in scenario.fleet), *(v for v in searched if isinstance(v, str))]
    skus = list(dict.fromkeys(device.partition("@")[0] for device in devices))
    for sku, changed in scenario.with_.items():
        if sku not in skus:
            raise InputError(
                f"the fleet has no '{sku}' to change",
                where=document.where(("with", sku, *list(changed)[:1])),
                expected=list_choices(skus),
                nearest=nearest(sku, skus),
            )


def check_serving_targets(scenario: Scenario, document: Document) -> None:
    """Check that jobs generate tokens where a target is about requests, and that an attainment has what to attain.

    Raises:
        InputError: A target is about requests that do not exist, or ``slo_attainment`` stands alone.
    """
    targets = scenario.parsed_targets()
    generating = {
        workload.name
        for workload, program in zip(scenario.workload, scenario.programs, strict=True)
        if any(isinstance(stage, Generate) for stage in program)
    }
    for i, target in enumerate(targets):
        if target.metric not in (*OF_REQUESTS, "slo_attainment", "cost_per_million_output_tokens"):
            continue
        where = document.where(("targets", i))
        if not generating or (target.workload is not None and target.workload not in generating):
            whose = "no workload generates" if target.workload is None else f"'{target.workload}' does not generate"
            raise InputError(
                f"{target.metric} is about requests, and {whose} tokens",
                where=where,
                expected="a workload with generate, or a target on latency",
            )
        if target.metric == "slo_attainment" and not any(
            other.is_of_requests and (None in (other.workload, target.workload) or other.workload == target.workload)
            for other in targets
        ):
            raise InputError(
                "slo_attainment needs a target that each request has to meet",
                where=where,
                expected="another target on ttft, tpot, itl or e2e, such as 'ttft p99 <= 1 s'",
            )


def _check_entry(scenario: Scenario, name: str, where: Location) -> None:
    entries = {text for entry in scenario.fleet for text in (entry.name, entry.device) if text}
    if name not in entries:
        raise InputError(
            f"the fleet has no '{name}'",
            where=where,
            expected=list_choices(sorted(entries)),
            nearest=nearest(name, entries),
        )


def _check_workload(name: str, workloads: Collection[str], where: Location) -> None:
    if name not in workloads:
        raise InputError(
            f"unknown workload '{name}'",
            where=where,
            expected=list_choices(sorted(workloads)),
            nearest=nearest(name, workloads),
        )


def _check_affected(fault: Fault, name: str, operations: set[str], where: Location) -> None:
    """Check that a fault of operations can affect the one of this name, of all ``operations`` of its workloads."""
    assert isinstance(fault, OperationFault)  # noqa: S101  the caller has checked it
    if name not in operations and name not in OPERATIONS:
        raise InputError(
            f"unknown operation '{name}'",
            where=where,
            expected=list_choices(sorted(operations)),
            nearest=nearest(name, OPERATIONS),
        )
    if not fault.affects(name):
        raise InputError(
            f"{fault.kind} affects {'only copies' if fault.copies else 'no copies'}; '{name}' is "
            f"{'not a copy' if fault.copies else 'a copy'}",
            where=where,
            expected=" or ".join(COPIES) if fault.copies else "another operation",
        )
    if name not in operations:
        raise InputError(
            f"no workload of this fault runs '{name}'", where=where, expected=list_choices(sorted(operations))
        )


def check_operation_faults(scenario: Scenario, document: Document) -> None:
    """Check that each fault of operations can affect an operation of some workload.

    Raises:
        InputError: A fault names an operation that is unknown, not of its kind, or not in the programs.
    """
    for i, fault in enumerate(scenario.faults):
        if not isinstance(fault, OperationFault):
            continue
        operations = {
            name
            for workload, program in zip(scenario.workload, scenario.programs, strict=True)
            if fault.workloads is None or workload.name in fault.workloads
            for name in operations_of(program)
        }
        for j, name in enumerate(fault.ops or ()):
            _check_affected(fault, name, operations, document.where(("faults", i, "ops", j)))
        if not any(fault.affects(name) for name in operations):
            raise InputError(
                f"{fault.kind} affects {'only copies' if fault.copies else 'no copies'}; no workload of this fault "
                f"runs {'a copy' if fault.copies else 'another operation'}",
                where=document.where(("faults", i, "kind")),
                expected=f"another kind, or a workload with {'a copy' if fault.copies else 'another operation'}",
            )


def _check_autoscale(scenario: Scenario, document: Document) -> None:
    """Check that each rule concerns one entry whose count is within its bounds, and that no entry has two rules."""
    rule_of: dict[int, int] = {}
    for i, rule in enumerate(scenario.autoscale):
        where = document.where(("autoscale", i, "entry"))
        _check_entry(scenario, rule.entry, where)
        entry, *others = scenario.entries_named(rule.entry)
        if others:
            raise InputError(
                f"the name '{rule.entry}' is used by {1 + len(others)} fleet entries",
                where=where,
                expected="a name of one entry",
            )
        if entry in rule_of:
            raise InputError(
                f"autoscale[{rule_of[entry]}] is about '{rule.entry}' too", where=where, expected="one rule an entry"
            )
        rule_of[entry] = i
        count = scenario.fleet[entry].count
        if not rule.min <= count <= rule.max:
            raise InputError(
                f"the entry '{rule.entry}' begins with {count}, which is not from {rule.min} to {rule.max}",
                where=document.where(("fleet", entry, "count")),
                expected="a count between autoscale's min and max",
            )


def _check_clocks(scenario: Scenario, document: Document) -> None:
    """Check that workloads that share a clock state the same mean interval."""
    intervals: dict[str, tuple[float, str]] = {}
    for i, workload in enumerate(scenario.workload):
        for path, clock, interval_s in shared_clocks(workload.arrivals):
            first_s, owner = intervals.setdefault(clock, (interval_s, workload.name))
            if interval_s != first_s:
                raise InputError(
                    f"the shared clock '{clock}' has a mean interval of {interval_s:g} s here",
                    where=document.where(("workload", i, "arrivals", *path)),
                    expected=f"{first_s:g} s, as in '{owner}'",
                )
