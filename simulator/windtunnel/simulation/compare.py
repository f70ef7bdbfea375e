"""Compares two scenarios on common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.result import distribution
from windtunnel.core.rng import opened
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.run import replication_seed, simulate
from windtunnel_models.catalogue import Catalogue

if TYPE_CHECKING:
    from windtunnel.engine.results.statistics import Estimate

_TIMES = ("latency", "waiting", "ttft", "itl")
_STATISTICS = ("mean", "p50", "p95", "p99")
_NUMBERS = (
    "throughput_per_s",
    "utilisation",
    "average_power_w",
    "peak_power_w",
    "cost_usd_per_h",
    "availability",
)


_PER_JOB = {"energy_per_job_j": ("energy_j", 1.0), "total_cost_per_million_jobs_usd": ("total_cost_usd", 1e6)}
"""Totals of a run, divided by the completed jobs because the two runs need not be of the same length."""

SIDES = ("baseline", "candidate")


@dataclass
class _Side:
    """The runs of one of the two scenarios."""

    metrics: list[dict[str, float | None]] = field(default_factory=list)
    unstable: int = 0
    executed: dict[str, int] = field(default_factory=dict)
    """Operations that real devices executed, by device."""

    def add(self, result: Mapping[str, Any]) -> None:
        """Count one more run."""
        self.metrics.append(_metrics(result))
        self.unstable += result["statistics"]["steady_state"] == "unstable"
        for device in result.get("real") or ():
            name = f"'{device['name']}' ({device['real']})"
            self.executed[name] = self.executed.get(name, 0) + device["operations"]


def compare(
    baseline: Scenario,
    candidate: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
    *,
    names: tuple[str, str],
) -> dict[str, Any]:
    """Return the differences of ``candidate`` from ``baseline``, by metric, over pairs of runs with common seeds.

    Random numbers are keyed by seed, workload and purpose. Both runs of a pair have the same arrivals and the same work
    where the two scenarios' workloads have the same names, so the effect of the seed cancels (common random numbers),
    and a difference is known more precisely than either metric. If nothing is random, one pair is run. ``names`` are
    the names of the two scenarios.

    Raises:
        InputError: There are fewer than two replications, or the seeds differ.
    """
    if replications < 2:
        raise InputError("one pair has no interval", where=Location(field="--replications"), expected="at least 2")
    if baseline.seed != candidate.seed:
        raise InputError(
            f"the seeds are {baseline.seed} and {candidate.seed}",
            where=candidate.where("seed"),
            expected="the same seed in both, or --seed",
        )
    sides = (_Side(), _Side())
    drawn = opened()
    for replication in range(replications):
        seed = replication_seed(baseline.seed, replication) if replication else baseline.seed
        for side, scenario in zip(sides, (baseline, candidate), strict=True):
            side.add(simulate(scenario.reseeded(seed), 1, engine, catalogue)[0])
        if progress is not None:
            progress(replication + 1, replications)
        if opened() == drawn and not (baseline.real_devices or candidate.real_devices):
            break
    return {
        "baseline": names[0],
        "candidate": names[1],
        "fleets": {name: _fleet(side) for name, side in zip(SIDES, (baseline, candidate), strict=True)},
        "replications": len(sides[0].metrics),
        "seed": baseline.seed,
        "unstable": {name: side.unstable for name, side in zip(SIDES, sides, strict=True)},
        "metrics": _rows(*sides),
        "notes": _notes(sides, replications),
    }


def _fleet(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the entries of a fleet: the name of the device (SKU, with its API) and the number of them."""
    return [{"device": entry.device, "count": entry.count} for entry in scenario.fleet]


def _rows(baseline: _Side, candidate: _Side) -> list[dict[str, Any]]:
    """Return a row for each metric that every run of both sides has."""
    from windtunnel.engine.results.statistics import over_replications, paired

    rows = []
    for name in baseline.metrics[0]:
        first = [value for run in baseline.metrics if (value := run.get(name)) is not None]
        second = [value for run in candidate.metrics if (value := run.get(name)) is not None]
        if not len(first) == len(second) == len(baseline.metrics):
            continue
        difference = _possible(paired(second, first), (first, second))
        low, high = difference.low, difference.high
        rows.append(
            {
                "metric": name,
                "baseline": over_replications(first).as_dict(),
                "candidate": over_replications(second).as_dict(),
                "difference": difference.as_dict(),
                "significant": low is not None and high is not None and (low > 0 or high < 0),
            }
        )
    return rows


def _notes(sides: Sequence[_Side], replications: int) -> list[str]:
    notes, pairs = [], len(sides[0].metrics)
    if pairs < replications:
        notes.append(
            "nothing in these scenarios is random: every pair would be this one, and no difference has an interval"
        )
    for name, side in zip(SIDES, sides, strict=True):
        for device, operations in side.executed.items():
            notes.append(
                f"{name}: the times of {operations:,} operations on {device} were measured, so they differ between runs"
            )
    unstable = [
        f"{side.unstable:,} of {pairs:,} runs of {name}"
        for name, side in zip(SIDES, sides, strict=True)
        if side.unstable
    ]
    if unstable:
        notes.append(f"times are not compared: {' and '.join(unstable)} are unstable, so they have no average")
    return notes


def _possible(difference: Estimate, numbers: Sequence[Sequence[float]]) -> Estimate:
    """Return ``difference`` with a possible lower bound: a metric that is never negative falls by at most its value."""
    if difference.low is None or min(map(min, numbers)) < 0.0:
        return difference
    return replace(difference, low=max(difference.low, -float(np.mean(numbers[0]))))


def _metrics(result: Mapping[str, Any]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for metric in _TIMES:
        times = distribution(result, metric)
        for statistic in _STATISTICS:
            values[f"{metric}_s.{statistic}"] = None if times is None else times[statistic]["value"]
    for name in _NUMBERS:
        values[name] = result[name]
    completed = values["completed"] = float(result["jobs"]["completed"])
    for name, (total, scale) in _PER_JOB.items():
        values[name] = result[total] / completed * scale if completed and result[total] is not None else None
    return values
