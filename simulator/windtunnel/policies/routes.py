"""Routes: each is a score of a device for an arriving job. The job goes to the device with the smallest score.

A score is a pair, compared in order. A candidate that would be late scores 1 first and its completion time second, so
that a job that no device can complete in time goes where it completes first. Times include the loads of designs.
"""

from __future__ import annotations

from windtunnel.core.policy import POLICIES, ROUTES, Candidate, Route, route

ROUTES.add("central", Route("central", "One central queue; a free device takes the first job it can run."))
POLICIES.add("fifo", ("central", "arrival"))


@route("round-robin", rank_by="last_chosen")
def round_robin(device: Candidate) -> tuple[float, float]:
    """Each device in turn, whatever its load."""
    return float(device.last_chosen), 0.0


@route("least-loaded")
def least_loaded(device: Candidate) -> tuple[float, float]:
    """The device with the fewest jobs present."""
    return float(device.jobs), 0.0


@route("shortest-expected-completion")
def shortest_expected_completion(device: Candidate) -> tuple[float, float]:
    """The device with the smallest (jobs present + 1) times the mean time of such a job on it, plus its loads."""
    return (device.jobs + 1) * device.mean_s + device.load_s, 0.0


@route("cheapest-that-meets-the-deadline", rank_by="backlog", requires=("price", "deadline"))
def cheapest_in_time(device: Candidate) -> tuple[float, float]:
    """The device with the lowest rent for this job among those that are expected to complete it in time."""
    finish_s = device.backlog_s + device.load_s + device.estimate_s
    return (0.0, device.cost_usd) if finish_s <= device.slack_s else (1.0, finish_s)


@route("least-energy-that-meets-the-deadline", rank_by="backlog", requires=("deadline",))
def least_energy_in_time(device: Candidate) -> tuple[float, float]:
    """The device with the lowest energy for this job among those that are expected to complete it in time."""
    finish_s = device.backlog_s + device.load_s + device.estimate_s
    return (0.0, device.energy_j) if finish_s <= device.slack_s else (1.0, finish_s)


@route("kv-aware", rank_by="each")
def kv_aware(device: Candidate) -> tuple[float, float]:
    """The device whose sequences hold the smallest share of its KV memory, and then that with the fewest jobs."""
    return float(device.kv_tokens) / float(max(device.kv_capacity_tokens, 1)), float(device.jobs)


@route("prefix-aware", rank_by="each")
def prefix_aware(device: Candidate) -> tuple[float, float]:
    """The device that has the most of the prompt in its prefix cache, at least half; then that with the fewest jobs."""
    # Prompts that begin with one short system prompt would otherwise all go to the first device that had it.
    worth = 2 * device.hit_tokens >= device.prompt_tokens
    return -float(device.hit_tokens) if worth else 0.0, float(device.jobs)


@route("prefix-and-load", rank_by="each")
def prefix_and_load(device: Candidate) -> tuple[float, float]:
    """The device with the smallest sum of the tokens that it would have to read and of those in its KV memory."""
    return float(device.prompt_tokens - device.hit_tokens + device.kv_tokens), float(device.jobs)


@route("session-affinity", rank_by="each")
def session_affinity(device: Candidate) -> tuple[float, float]:
    """The home of the request's conversation, which is the same for all its requests; or the next one available."""
    return float(device.turns_from_home), 0.0


@route("adapter-affinity", rank_by="each")
def adapter_affinity(device: Candidate) -> tuple[float, float]:
    """The device with the fewest jobs of those that have the request's adapter in a slot; if none has, of all."""
    return -float(device.has_adapter), float(device.jobs)


@route("recommendation-matrix", requires=("use_case",))
def recommended(device: Candidate) -> tuple[float, float]:
    """The first of primary, alternative and fallback that the fleet has; then the shortest expected completion."""
    return device.preference, (device.jobs + 1) * device.mean_s + device.load_s
