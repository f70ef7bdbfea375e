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


@route("recommendation-matrix", requires=("use_case",))
def recommended(device: Candidate) -> tuple[float, float]:
    """The first of primary, alternative and fallback that the fleet has; then the shortest expected completion."""
    return device.preference, (device.jobs + 1) * device.mean_s + device.load_s
