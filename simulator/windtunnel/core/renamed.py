"""Renamed keys and values of scenarios. An old name is an error that states the new one."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.core.errors import InputError, Location

_TIMES = {"every": "mean_interval", "lasts": "duration"}
_ENDINGS = {"jobs": "on_failure", "attempts": "max_attempts"}
_RESET = {"reset": "reset_time"}

RENAMED: Mapping[str, Mapping[str, str]] = {
    "target": {"first_token": "ttft", "next_token": "itl"},
    "Workload": {"use": "use_case"},
    "Autoscale": {"least": "min", "most": "max"},
    "Plan": {"most": "max", "kinds": "max_entries"},
    "Stop": {"most": "max", "of": "metric"},
    "Site": {"starts": "start_time"},
    "records": {"keep": "all", "drop": "none"},
    # Arrivals.
    "Burst": {"length": "duration"},
    "Diurnal": {"starts": "start_time"},
    "Spikes": {"every": "mean_interval", "length": "duration", "shared": "clock"},
    "Batches": {"every": "mean_interval", "shared": "clock"},
    "Mix": {"of": "processes"},
    "Trace": {"warp": "time_map"},
    "Knot": {"at": "from", "becomes": "to"},
    # Faults.
    "Failure": {"lasts": "duration", **_ENDINGS},
    "Throttle": _TIMES,
    "LinkLoss": _TIMES,
    "BrownOut": _TIMES,
    "Refusal": _ENDINGS,
    "LaunchFailure": _ENDINGS | _RESET,
    "EccError": _ENDINGS | _RESET,
    "CopyFailure": _ENDINGS | _RESET,
    "Hang": _ENDINGS | _RESET | {"hang": "watchdog_timeout"},
    "DeviceLost": _ENDINGS | _RESET,
    "on_failure": {"lose": "fail"},
    # Placement scenarios.
    "NodeFile": {"every": "stride"},
    "Tasks": {"needs": "resources", "lasts": "duration"},
    # Custom policies.
    "policy function": {"by": "rank_by", "needs": "requires"},
    "rank_by": {"present": "jobs", "turn": "last_chosen"},
    "requires": {"use": "use_case"},
    "Candidate": {"present": "jobs", "turn": "last_chosen"},
}
"""The new name of each old name, by place. A place is ``target`` (the metrics of targets), a class of the scenario's
schema (its keys), a key (its values), or a part of a policy file."""


def renamed_error(place: str, old: str, where: Location | None = None) -> InputError | None:
    """Return the error for an old name in a place; None if the name is not in the table."""
    new = RENAMED.get(place, {}).get(old)
    return None if new is None else InputError(f"'{old}' was renamed to '{new}'", where=where, expected=f"'{new}'")
