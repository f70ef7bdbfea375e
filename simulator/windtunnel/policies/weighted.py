"""Routes that are weighted sums of what a route sees of a device with continuous batching."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.core.errors import InputError, list_choices, nearest
from windtunnel.core.policy import Candidate, Route

FIELDS = (
    "jobs",
    "backlog_s",
    "estimate_s",
    "cost_usd",
    "energy_j",
    "hit_tokens",
    "kv_tokens",
    "running",
    "turns_from_home",
    "has_adapter",
)
"""The fields of ``Candidate`` that a sum may have. All are finite."""


def weighted_route(weights: Mapping[str, float]) -> Route:
    """Return the route to the device with the smallest sum of its fields times ``weights``; ties go to fewest jobs.

    A field without a weight does not count.

    Raises:
        InputError: for a name that ``FIELDS`` does not have.
    """
    for name in weights:
        if name not in FIELDS:
            raise InputError(
                f"a route cannot weigh '{name}'", expected=list_choices(FIELDS, 10), nearest=nearest(name, FIELDS)
            )
    numbers = [float(weights.get(name, 0.0)) for name in FIELDS]
    jobs, backlog, estimate, cost, energy, hit, kv, running, turns, adapter = numbers

    def score(device: Candidate) -> tuple[float, float]:
        total = jobs * device.jobs + backlog * device.backlog_s + estimate * device.estimate_s
        total += cost * device.cost_usd + energy * device.energy_j
        total += hit * device.hit_tokens + kv * device.kv_tokens
        total += running * device.running + turns * device.turns_from_home
        total += adapter * device.has_adapter
        return total, float(device.jobs)

    return Route("weighted", "The device with the smallest weighted sum.", score, "each")
