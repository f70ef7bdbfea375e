"""The engine compared with closed forms of queueing theory, over many seeds: the checks of tests/theory as a table.

    python benchmarks/theory.py [--seeds 30] [--out DIR]

Each system is simulated with several seeds, and the first tenth of each run is excluded. Means are compared by a t-test
of the means of the runs. Percentiles are compared by the share of jobs above the theoretical percentile, which is
unbiased even if jobs are correlated.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import stdtr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.theory import test_queueing as theory  # noqa: E402

import windtunnel  # noqa: E402
from windtunnel.scenario.read import scenario_from_data  # noqa: E402

_RARE_S = 1e-10
"""A mean queueing delay so short that no job of these runs is expected to wait."""
LOADS = (0.3, 0.5, 0.8, 0.9, 0.95)


def systems() -> Iterator[tuple[str, theory.System]]:
    """All families at loads 0.3 to 0.95, with longer runs at high load, where correlations last longer."""
    for load in LOADS:
        jobs = {0.9: 100_000, 0.95: 200_000}.get(load, 30_000)
        for servers in (1, 4, 64):
            yield f"M/M/{servers}", theory.mmc(servers, load, jobs=jobs)
        yield "M/D/1", theory.md1(load, jobs=jobs)
    general = ((0.3, "weibull", 2.0), (0.5, "lognormal", 1.5), (0.7, "gamma", 0.5), (0.9, "gamma", 1.5))
    for load, distribution, cv in general:
        yield f"M/G/1, {distribution}, cv {cv:g}", theory.mg1(load, distribution, cv)


def compared(values: Sequence[float], truth: float) -> tuple[str, float]:
    """(mean, half-width of its 95% confidence interval and theoretical value; two-sided p-value of Student's t)."""
    means = np.array(values)
    error = float(means.std(ddof=1)) / math.sqrt(len(means))
    if not error:
        return f"{means.mean():.4g} (theory {truth:.4g})", 1.0 if means.mean() == truth else 0.0
    t = (float(means.mean()) - truth) / error
    return f"{means.mean():.4g} ± {2.05 * error:.2g} ({truth:.4g})", float(2 * stdtr(len(means) - 1, -abs(t)))


def rows(seeds: int) -> Iterator[tuple[list[str], list[float]]]:
    """The cells of each row, and its p-values."""
    for number, (name, system) in enumerate(systems()):
        waits, sojourns = [], []
        for seed in range(seeds):
            jobs = windtunnel.run(scenario_from_data(system.scenario(1000 * number + seed))).recording.jobs
            kept = slice(len(jobs) // 10, None)
            waits.append((jobs.start[kept] - jobs.arrival[kept]) / 1e12)
            sojourns.append((jobs.finish[kept] - jobs.arrival[kept]) / 1e12)
        cells, chances = [name, f"{system.load:g}"], []
        if system.mean_wait_s < _RARE_S:
            cells.append(f"{max(float(w.max()) for w in waits):g} at most ({system.mean_wait_s:.2g})")
        else:
            cell, p = compared([float(w.mean()) for w in waits], system.mean_wait_s)
            cells.append(cell)
            chances.append(p)
        for quantile, runs in ((system.wait_s, waits), (system.sojourn_s, sojourns)):
            for q in (0.95, 0.99):
                if quantile is None or quantile(q) <= 0:
                    cells.append("–")
                    continue
                beyond = quantile(q)
                cell, p = compared([float((r > beyond).mean()) * 100 for r in runs], 100 * (1 - q))
                cells.append(cell)
                chances.append(p)
        yield [*cells, f"{min(chances):.2g}"], chances
    exponential = {"distribution": "exponential", "mean": "1 s"}
    rates = [0.5, 0.6, 0.5]
    delays = theory.by_class(2, rates, [exponential] * 3, [3, 2, 1])
    for i, wait in enumerate(theory.mmc_priority_mean_waits_s(rates, 1.0, 2)):
        cell, p = compared(delays[:, i].tolist(), wait)
        yield [f"M/M/2, priority {3 - i} of 3", "0.8", cell, "–", "–", "–", "–", f"{p:.2g}"], [p]
    shared, alone = theory.sharing(0.7, (1, 4), 2_500, 16)
    mean_s = float(np.mean(alone))
    for i, alone_s in enumerate(alone):
        truth = theory.mg1_ps_mean_sojourn_s(0.7 / mean_s, mean_s, alone_s)
        cell, p = compared((shared[:, i] / alone_s).tolist(), truth / alone_s)
        name = f"processor sharing, size {(1, 4)[i]}: latency over service time"
        yield [name, "0.7", cell, "–", "–", "–", "–", f"{p:.2g}"], [p]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    comparisons = list(rows(options.seeds))
    chances = [p for _, p_values in comparisons for p in p_values]
    low = sum(p < 0.05 for p in chances)
    lines = [
        "# The engine compared with queueing theory",
        "",
        f"Written by `python benchmarks/theory.py`: {options.seeds} seeds for each system (16 for the last five "
        "rows), mean service time 1 s. Each cell has the mean over seeds ± the half-width of its 95% confidence "
        "interval, and the theoretical value in parentheses. The percentile columns have the share (%) of jobs "
        "above the theoretical percentile.",
        "",
        "| system | load | mean queueing delay (s) | delays above p95 (%) | above p99 (%) | latencies above p95 (%) "
        "| above p99 (%) | smallest p-value |",
        "|---|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(cells)} |" for cells, _ in comparisons),
        "",
        f"{low} of {len(chances)} comparisons have a p-value below 0.05; the smallest is {min(chances):.2g}. For a "
        f"correct engine and independent comparisons, {0.05 * len(chances):.0f} are expected. The values of a row "
        "come from the same runs and are correlated; different rows are independent.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "theory.md").write_text(text)


if __name__ == "__main__":
    main()
