"""The autoscaling rules of fleet entries, and what they cannot be combined with.

A device of a scaled entry is off, being provisioned, on, or draining, in this circle; it is rented in all but the
first.
"""

from __future__ import annotations

from windtunnel.core.errors import InputError
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.faults import BrownOut, Straggler
from windtunnel.scenario.scenario import Scenario

OFF, PROVISIONING, ON, DRAINING = range(4)


def rules_by_entry(scenario: Scenario) -> dict[int, Autoscale]:
    """The rule of each fleet entry that has one.

    Raises InputError where a fault or a budget meets what is scaled: what it should do there is not defined.
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
                    f"faults[{j}] ({fault.kind}) strikes '{rule.entry}', which autoscale[{i}] scales, and what a "
                    "controller knows of devices that have failed is not modelled",
                    where=scenario.where("faults", j),
                    expected="devices: [...] that are not scaled",
                )
    if rules and scenario.power_budget is not None:
        raise InputError(
            "a power budget counts every device's idle power, and those of a scaled entry come and go",
            where=scenario.where("power_budget"),
            expected="autoscale or power_budget",
        )
    for j, fault in enumerate(scenario.faults):
        if rules and isinstance(fault, BrownOut):
            raise InputError(
                "a brown-out counts every device's idle power, and those of a scaled entry come and go",
                where=scenario.where("faults", j),
                expected="autoscale or brown-outs",
            )
    return rules
