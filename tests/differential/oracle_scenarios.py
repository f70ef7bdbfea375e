"""The part of a random scenario that the independent simulation (`oracle.py`) knows."""

from __future__ import annotations

import copy
from typing import Any

KNOWN = ("failure", "throttle", "straggler")
"""The faults that the oracle knows."""


def known_part(data: dict[str, Any]) -> dict[str, Any]:
    """Return a scenario without the features that the oracle does not know."""
    part = copy.deepcopy(data)
    part["policy"].pop("batch", None)
    for model in part.get("models", {}).values():
        model.pop("speculation", None)
        model.pop("adapters", None)
    for one in part["workload"]:
        for op in one["ops"]:
            if "generate" in op:
                op["generate"].pop("adapter", None)
    if part["policy"].get("route") in (
        "kv-aware",
        "prefix-aware",
        "prefix-and-load",
        "session-affinity",
        "adapter-affinity",
    ):
        part["policy"]["route"] = "least-loaded"
    for key in ("power_budget", "autoscale"):
        part.pop(key, None)
    for entry in part["fleet"]:
        entry.pop("streams", None)
        entry.pop("memory", None)  # it is as small as a batch allows
    for one in part["workload"]:
        one.pop("session", None)
        # The bodies of streams run one after another instead.
        one["ops"] = [
            op for stage in one["ops"] for op in (sum(stage["streams"], []) if "streams" in stage else [stage])
        ]
    part["faults"] = [fault for fault in part["faults"] if fault["kind"] in KNOWN]
    return part
