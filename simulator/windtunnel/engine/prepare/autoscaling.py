"""The autoscaling rules of fleet entries, and the states of a scaled device.

A device of a scaled entry passes through the states off, provisioning, on and draining, and then is off again. It is
rented in all states but off.
"""

from __future__ import annotations

from windtunnel.scenario.autoscale import Autoscale
from windtunnel.scenario.scenario import Scenario

OFF, PROVISIONING, ON, DRAINING = range(4)


def rules_by_entry(scenario: Scenario) -> dict[int, Autoscale]:
    """Return the rule of each scaled fleet entry, by the entry's number."""
    return {number: rule for rule in scenario.autoscale for number in scenario.entries_named(rule.entry)}
