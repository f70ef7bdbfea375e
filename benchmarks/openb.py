"""Six placement policies on the openb cluster: GPU allocation and fragmentation as functions of the arrived demand.

    python benchmarks/openb.py [--runs 10] [--out DIR]

The experiment is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023). Tasks are sampled from the trace
with replacement. They arrive and never leave, until their demand is 130% of the GPUs. All policies get the same tasks.
Two more rows show the effect of ties: gradient descent with a random order of ties for each task, as in Kubernetes, and
gradient descent with scores rounded down to integers from 0 to 100, as in the simulator of the paper.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from windtunnel.placement import engine as placement
from windtunnel.placement import invariants as placement_invariants
from windtunnel.placement import run as placement_run
from windtunnel.placement.nodes import PLACEMENTS, PlacementPolicy
from windtunnel.placement.scenario import check_placement
from windtunnel.placement.tasks import prepare_placement
from windtunnel.scenario.changes import read_document

ROOT = Path(__file__).resolve().parents[1]
MARKS = (0.9, 1.0, 1.3)
DESCENT = "fragmentation-gradient-descent"


def integer_scores(policy: PlacementPolicy) -> PlacementPolicy:
    """The policy with the scores floor(100 / (1 + exp(-decrease in GPUs)))."""

    def score(nodes: Any, classes: Any, c: int, target: Any, largest: Any, which: Any, out: Any) -> None:
        policy.score(nodes, classes, c, target, largest, which, out)
        out[which] = np.floor(100 / (1 + np.exp(-out[which] / target.weight.sum() / 1000)))

    return dataclasses.replace(policy, score=score)


def states(policy: PlacementPolicy, ties: str, runs: int) -> tuple[np.ndarray, float]:
    """(allocated and fragmented shares, shape (runs, marks, 2); CPU seconds per run)."""
    document = read_document(ROOT / "scenarios" / "openb-inflate.yaml", [f"ties={ties}"])
    scenario = check_placement(document)
    prepared = prepare_placement(scenario)
    shares = np.empty((runs, len(MARKS), 2))
    began = time.process_time()
    for seed in range(runs):
        run = placement.run(scenario, prepared, policy, seed + 1)
        placement_invariants.check(run, prepared)
        timeline = run.timeline
        for k, mark in enumerate(MARKS):
            at = int(np.searchsorted(timeline.demand, round(mark * run.capacity), side="right")) - 1
            shares[seed, k] = timeline.allocated[at], timeline.fragmented[at] / timeline.weight
        shares[seed] /= run.capacity
    return shares, (time.process_time() - began) / runs


def shown(values: np.ndarray) -> str:
    """The mean and the half-width of its 95% confidence interval (Student's t)."""
    half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / math.sqrt(len(values))
    return f"{values.mean():.1%} ± {half * 100:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "benchmarks")
    asked = parser.parse_args(arguments)
    names = placement_run.policies()
    rows = [(name, PLACEMENTS[name], "shuffled") for name in names]
    rows += [
        (f"{DESCENT}, random ties", PLACEMENTS[DESCENT], "random"),
        (f"{DESCENT}, integer scores", integer_scores(PLACEMENTS[DESCENT]), "shuffled"),
    ]
    lines = [
        "# Placement on the openb cluster",
        "",
        "Written by `python benchmarks/openb.py`.",
        "",
        "| policy | allocated at 90% | at 100% | at 130% | fragmented at 90% | at 100% | at 130% "
        "| idle GPUs at 130% | CPU time per run (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for label, policy, ties in rows:
        values, seconds = states(policy, ties, asked.runs)
        cells = [shown(values[:, k, part]) for part in (0, 1) for k in range(len(MARKS))]
        idle = (1 - values[:, -1, 0].mean()) * 6_212
        lines.append(f"| {label} | {' | '.join(cells)} | {idle:.0f} | {seconds:.2f} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "The percentages are shares of the 6,212 GPUs of the cluster, at an arrived demand of 90%, 100% and",
        f"130% of its capacity. Each value is the mean of {asked.runs} runs, with the half-width of its 95% confidence",
        "interval. The tasks are sampled with replacement from the 8,152 tasks of the trace and never",
        "leave; all policies get the same tasks. `fragmented` is the expected share that a task of the",
        "target mix (the classes that make up 95% of the trace) could not use. Ties go to the first node in",
        "an order that is random but fixed for a run; with `random ties`, the order is random for each",
        "task. With `integer scores`, scores are rounded down to integers from 0 to 100, as in the",
        "simulator of the paper. The CPU time includes the check of the invariants.",
    ]
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "openb.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
