"""The autoscaling rules of fleet entries, and the states of a scaled device.

A device of a scaled entry passes through the states off, provisioning, on and draining, and then is off again. It is
rented in all states but off.
"""

from __future__ import annotations

from windtunnel.core.errors import InputError, Location
from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.scenario import Scenario

OFF, PROVISIONING, ON, DRAINING = range(4)


def rules_by_entry(scenario: Scenario) -> dict[int, Autoscale]:
    """Return the rule of each scaled fleet entry, by the entry's number; of an entry in groups it counts groups.

    Raises:
        InputError: if a number of devices is not a whole number of groups.
    """
    return {
        number: _in_groups(rule, scenario.fleet[number].group_size, scenario.where("autoscale", i))
        for i, (number, rule) in enumerate(stated_rules(scenario).items())
    }


def stated_rules(scenario: Scenario) -> dict[int, Autoscale]:
    """Return the rule of each scaled fleet entry as the scenario states it, by the entry's number."""
    return {number: rule for rule in scenario.autoscale for number in scenario.entries_named(rule.entry)}


def _in_groups(rule: Autoscale, size: int, where: Location) -> Autoscale:
    if size == 1:
        return rule
    if rule.min == 1:
        # The default: the least that can be in service.
        rule = rule.model_copy(update={"min": size})
    numbers = {"min": rule.min, "max": rule.max, "up.step": rule.up.step}
    numbers["down.step"] = None if rule.down is None else rule.down.step
    for key, number in numbers.items():
        if number is not None and number % size:
            problem = f"{key} of {number} devices, and '{rule.entry}' is in groups of {size}"
            raise InputError(problem, where=where, expected=f"a multiple of {size}")
    up, down = (None if part is None else part.of_groups(size) for part in (rule.up, rule.down))
    return rule.model_copy(update={"min": rule.min // size, "max": rule.max // size, "up": up, "down": down})
