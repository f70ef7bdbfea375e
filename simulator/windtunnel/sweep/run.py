"""Runs a sweep: checks every point, reuses finished points, gives the others to workers and records each outcome."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from windtunnel.core.errors import InputError, Location, WindtunnelError
from windtunnel.core.processors import processors
from windtunnel.core.results.sweep import PointOutcome, SweepResult
from windtunnel.core.worker_processes import broken_pipes_are_errors
from windtunnel.sweep.grid import Common, Grid, canonical, manifest
from windtunnel.sweep.records import Records, records
from windtunnel.sweep.table import outcome_of, sweep_result, write_tables
from windtunnel.sweep.workers import DaskCluster, Executor, Facts, LocalPool, Task, Work


@dataclass(frozen=True)
class SweepOptions:
    """Where a sweep runs and where it is stored.

    It runs on ``workers`` processes of this machine, which import the modules ``preload``, or on a cluster. ``out`` is
    the folder of its records, or None; ``fresh`` deletes the records of another sweep in it. ``parquet``: the
    table is also written as Parquet.
    """

    out: Path | None
    fresh: bool
    workers: int | None
    cluster: str | None
    preload: tuple[str, ...] = ()
    parquet: bool = False


def run_sweep(
    grid: Grid,
    common: Common,
    work: Work,
    facts: Facts,
    options: SweepOptions,
    progress: Callable[[int, int], None],
) -> SweepResult:
    """Run the unfinished points of a grid.

    ``common`` is what determines the results besides each point's scenario. ``work`` checks or runs a point. ``facts``
    returns the versions that the results of a machine depend on.

    Raises:
        InputError: A point is wrong, or both workers and a cluster are given.
    """
    if options.cluster is not None and options.workers is not None:
        raise InputError("a cluster has its own workers", where=Location(field="--workers"), expected="--cluster alone")
    resolved = [scenario.resolved() for scenario in grid.scenarios]
    stated = manifest(grid, resolved, common)
    total = len(grid.points)
    with ExitStack() as stack:
        stack.enter_context(broken_pipes_are_errors())
        kept, resumed = None, False
        if options.out is not None:
            kept, resumed = stack.enter_context(records(options.out, stated, fresh=options.fresh))
        outcomes: dict[int, PointOutcome] = {}
        left = []
        for i in range(total):
            text = kept.result(i) if kept is not None and resumed else None
            if text is None:
                left.append(i)
            else:
                outcomes[i] = outcome_of(json.loads(text))
        code = 0
        if left:
            executor = _executor(stack, grid, work, facts, options, kept, len(left))
            stack.enter_context(executor)
            if not resumed:
                _check(executor, grid, resolved)
                if kept is not None:
                    kept.write_manifest(stated)
            progress(total - len(left), total)
            tasks = [Task("run", grid.points[i].changes) for i in left]
            for done, (place, outcome) in enumerate(executor.map(tasks), total - len(left) + 1):
                if kept is not None:
                    kept.write(left[place], outcome)
                if outcome.result is None:
                    outcomes[left[place]] = PointOutcome(status="failed", error=outcome.error)
                    code = max(code, outcome.code)
                else:
                    outcomes[left[place]] = outcome_of(json.loads(outcome.result))
                progress(done, total)
        result = sweep_result(grid, stated, [outcomes[i] for i in range(total)], code)
        if kept is not None:
            write_tables(kept.folder, result, options.parquet)
    return result


def _executor(
    stack: ExitStack, grid: Grid, work: Work, facts: Facts, options: SweepOptions, kept: Records | None, points: int
) -> LocalPool | DaskCluster:
    if options.cluster is not None:
        return DaskCluster(options.cluster, work, grid.inputs, facts)
    # Copies of the inputs are beside the records, so that the next start removes what a killed sweep left.
    scratch = tempfile.TemporaryDirectory(prefix="windtunnel-", dir=None if kept is None else kept.scratch)
    tree = Path(stack.enter_context(scratch)).absolute()
    grid.inputs.write(tree)
    return LocalPool(work, tree, min(options.workers or processors(), points), options.preload)


def _check(executor: Executor, grid: Grid, resolved: Sequence[Mapping[str, object]]) -> None:
    """Prepare every point as a run does, in parallel; of points that differ only in their seed, one is prepared."""
    alike: dict[str, int] = {}
    for i, scenario in enumerate(resolved):
        alike.setdefault(canonical({**scenario, "seed": None}), i)
    first = list(alike.values())
    tasks = [Task("check", grid.points[i].changes) for i in first]
    wrong = {first[place]: outcome for place, outcome in executor.map(tasks) if outcome.error is not None}
    if wrong:
        i = min(wrong)
        text = f"{grid.points[i].label(len(grid.points))}: {wrong[i].error}"
        if wrong[i].code == InputError.exit_code:
            raise InputError(text)
        raise WindtunnelError(f"{text}\n{wrong[i].traceback or ''}".rstrip())
