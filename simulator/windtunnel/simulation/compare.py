"""Compares two scenarios on common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.results.comparison import BothSides, ComparedMetric, Comparison, FleetEntry
from windtunnel.core.results.run import Estimate, RunResult, distribution
from windtunnel.core.rng import opened
from windtunnel.scenario.scenario import Scenario
from windtunnel.simulation.redrawn import replication_seed
from windtunnel.simulation.run import simulate
from windtunnel_models.catalogue import Catalogue

_TIMES = ("latency", "waiting", "ttft", "itl", "tpot", "e2e")

SIDES = ("baseline", "candidate")


@dataclass
class _Side:
    """The runs of one of the two scenarios."""

    metrics: list[dict[str, float | None]] = field(default_factory=list)
    unstable: int = 0
    executed: dict[str, int] = field(default_factory=dict)
    """Operations that real devices executed, by device."""

    def add(self, result: RunResult) -> None:
        """Count one more run."""
        self.metrics.append(_metrics(result))
        self.unstable += result.statistics.steady_state == "unstable"
        for device in result.real or ():
            name = f"'{device.name}' ({device.real})"
            self.executed[name] = self.executed.get(name, 0) + device.operations


def compare(
    baseline: Scenario,
    candidate: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
    *,
    names: tuple[str, str],
) -> Comparison:
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
            side.add(simulate(scenario.reseeded(seed), 1, engine, catalogue, redrawn="never")[0])
        if progress is not None:
            progress(replication + 1, replications)
        if opened() == drawn and not (baseline.real_devices or candidate.real_devices):
            break
    first, second = sides
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        fleets=BothSides(_fleet(baseline), _fleet(candidate)),
        replications=len(first.metrics),
        seed=baseline.seed,
        unstable=BothSides(first.unstable, second.unstable),
        metrics=_compared(first, second),
        notes=_notes(sides, replications),
    )


def _fleet(scenario: Scenario) -> list[FleetEntry]:
    return [FleetEntry(entry.device, entry.count) for entry in scenario.fleet]


def _compared(baseline: _Side, candidate: _Side) -> list[ComparedMetric]:
    """Return each metric that every run of both sides has."""
    from windtunnel.engine.results.statistics import over_replications, paired

    compared = []
    for name in baseline.metrics[0]:
        first = [value for run in baseline.metrics if (value := run.get(name)) is not None]
        second = [value for run in candidate.metrics if (value := run.get(name)) is not None]
        if not len(first) == len(second) == len(baseline.metrics):
            continue
        difference = _possible(paired(second, first), (first, second))
        low, high = difference.low, difference.high
        significant = low is not None and high is not None and (low > 0 or high < 0)
        compared.append(
            ComparedMetric(name, over_replications(first), over_replications(second), difference, significant)
        )
    return compared


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


def _metrics(result: RunResult) -> dict[str, float | None]:
    """Return the compared metrics by name. Totals are divided by the completed jobs, because runs differ in length."""
    values: dict[str, float | None] = {}
    for metric in _TIMES:
        times = distribution(result, metric)
        if times is not None:
            values |= {f"{metric}_s.{statistic}": estimate.value for statistic, estimate in times.by_name().items()}
    values |= {
        "throughput_per_s": result.throughput_per_s,
        "utilisation": result.utilisation,
        "average_power_w": result.average_power_w,
        "peak_power_w": result.peak_power_w,
        "cost_usd_per_h": result.cost_usd_per_h,
        "availability": result.availability,
        "completed": float(result.jobs.completed),
    }
    if result.serving is not None:
        values |= {
            "slo_attainment": result.serving.slo_attainment,
            "goodput_per_s": result.serving.goodput_per_s,
            "output_tokens_per_s": result.serving.output_tokens_per_s,
            "energy_per_output_token_j": result.serving.energy_per_output_token_j,
            "cost_per_million_output_tokens_usd": result.serving.cost_per_million_usd.output,
        }
    if result.jobs.completed:
        values["energy_per_job_j"] = result.energy_j / result.jobs.completed
        if result.total_cost_usd is not None:
            values["total_cost_per_million_jobs_usd"] = result.total_cost_usd / result.jobs.completed * 1e6
    return values
