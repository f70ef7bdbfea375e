"""The autoscaling rules of fleet entries, and the checks of what they cannot be combined with.

A device of a scaled entry passes through the states off, provisioning, on and draining, and then is off again. It is
rented in all states but off.
"""

from __future__ import annotations

from windtunnel.core.errors import InputError
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.faults import BrownOut, Straggler
from windtunnel.scenario.scenario import Scenario

OFF, PROVISIONING, ON, DRAINING = range(4)


def rules_by_entry(scenario: Scenario) -> dict[int, Autoscale]:
    """Return the rule of each scaled fleet entry, by the entry's number.

    Raises:
        InputError: if a fault or a power budget applies to a scaled entry, because that is not modelled.
    """
    rules: dict[int, Autoscale] = {}
    for i, rule in enumerate(scenario.autoscale):
        (number,) = scenario.entries_named(rule.entry)
        rules[number] = rule
        entry = scenario.fleet[number]
        for j, fault in enumerate(scenario.faults):
            if isinstance(fault, Straggler | BrownOut):
                continue
            named = fault.devices
            if named is None or entry.device in named or entry.name in named:
                raise InputError(
                    f"faults[{j}] ({fault.kind}) applies to '{rule.entry}', which autoscale[{i}] scales; faults of "
                    "scaled entries are not modelled",
                    where=scenario.where("faults", j),
                    expected="devices: [...] that are not scaled",
                )
    if rules and scenario.power_budget is not None:
        raise InputError(
            "power_budget and autoscale cannot be combined, because the idle power of a scaled entry varies",
            where=scenario.where("power_budget"),
            expected="either autoscale or power_budget",
        )
    for j, fault in enumerate(scenario.faults):
        if rules and isinstance(fault, BrownOut):
            raise InputError(
                "a brown-out and autoscale cannot be combined, because the idle power of a scaled entry varies",
                where=scenario.where("faults", j),
                expected="either autoscale or brown-outs",
            )
    return rules
