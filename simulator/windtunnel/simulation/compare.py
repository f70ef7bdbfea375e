"""Two scenarios side by side, on the same random numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import InputError, Where
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
    "energy_j",
    "cost_usd_per_h",
    "total_cost_usd",
    "availability",
)


def compare(
    one: Scenario,
    other: Scenario,
    replications: int,
    engine: str,
    catalogue: Catalogue,
    progress: Callable[[int, int], None] | None = None,
    *,
    names: tuple[str, str],
) -> dict[str, Any]:
    """``other`` minus ``one``, figure by figure, over ``replications`` pairs of runs with the same seeds.

    Draws are keyed by seed, workload and purpose, so a pair sees the same arrivals and the same work where the two
    scenarios' workloads are called alike: what a seed does to both cancels (common random numbers), and a difference is
    known better than either figure. Where nothing is drawn one pair says all. ``names``: what each is called.

    Raises InputError for fewer than two replications, or other seeds.
    """
    from windtunnel.engine.results.statistics import over_replications, paired

    if replications < 2:
        raise InputError("one pair has no interval", where=Where(field="--replications"), expected="at least 2")
    if one.seed != other.seed:
        raise InputError(
            f"the seeds are {one.seed} and {other.seed}",
            where=other.where("seed"),
            expected="the same seed in both, or --seed",
        )
    sides: list[list[dict[str, float | None]]] = [[], []]
    unstable = [0, 0]
    executed: dict[tuple[str, str], int] = {}
    drawn = opened()
    for replication in range(replications):
        seed = replication_seed(one.seed, replication) if replication else one.seed
        for i, scenario in enumerate((one, other)):
            result, _ = simulate(scenario.reseeded(seed), 1, engine, catalogue)
            sides[i].append(_figures(result))
            for told in result.get("real") or ():
                key = ("baseline", "candidate")[i], f"'{told['name']}' ({told['real']})"
                executed[key] = executed.get(key, 0) + told["operations"]
            unstable[i] += result["statistics"]["steady_state"] == "unstable"
        if progress is not None:
            progress(replication + 1, replications)
        if opened() == drawn and not (one.real_devices or other.real_devices):
            break
    pairs = len(sides[0])
    rows = []
    for name in sides[0][0]:
        values = [[run.get(name) for run in side] for side in sides]
        if any(value is None for side in values for value in side):
            continue
        numbers = [[value for value in side if value is not None] for side in values]
        difference = _possible(paired(numbers[1], numbers[0]), numbers)
        low, high = difference.low, difference.high
        told = low is not None and high is not None and (low > 0 or high < 0)
        rows.append(
            {
                "metric": name,
                "baseline": over_replications(numbers[0]).as_dict(),
                "candidate": over_replications(numbers[1]).as_dict(),
                "difference": difference.as_dict(),
                "significant": told,
            }
        )
    notes = []
    if pairs < replications:
        notes.append(
            "nothing in these scenarios is drawn: every pair would be this one, and no difference has an interval"
        )
    for (side, device), operations in executed.items():
        notes.append(f"{side}: the times of {operations:,} operations on {device} were measured, so they differ anyway")
    grow = [
        f"{n:,} of {pairs:,} runs of {side}" for n, side in zip(unstable, ("baseline", "candidate"), strict=True) if n
    ]
    if grow:
        notes.append(f"times are not compared: {' and '.join(grow)} are unstable, so that they have no average")
    return {
        "baseline": names[0],
        "candidate": names[1],
        "replications": pairs,
        "seed": one.seed,
        "unstable": {"baseline": unstable[0], "candidate": unstable[1]},
        "metrics": rows,
        "notes": notes,
    }


def _possible(difference: Estimate, numbers: Sequence[Sequence[float]]) -> Estimate:
    """``difference`` without what cannot be: of figures that are never negative, less than all of the first."""
    if difference.low is None or min(map(min, numbers)) < 0.0:
        return difference
    return replace(difference, low=max(difference.low, -float(np.mean(numbers[0]))))


def _figures(result: Mapping[str, Any]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for metric in _TIMES:
        times = distribution(result, metric)
        for statistic in _STATISTICS:
            found[f"{metric}_s.{statistic}"] = None if times is None else times[statistic]["value"]
    for name in _NUMBERS:
        found[name] = result[name]
    found["completed"] = float(result["jobs"]["completed"])
    return found
