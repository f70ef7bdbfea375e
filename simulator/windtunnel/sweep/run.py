"""Runs a sweep: everything checked, what is kept left alone, the rest given to workers, each outcome recorded."""

from __future__ import annotations

import json
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Where, WindtunnelError
from windtunnel.sweep.grid import Grid, canonical, manifest
from windtunnel.sweep.records import Records, records
from windtunnel.sweep.table import document, row, write_tables
from windtunnel.sweep.workers import DaskCluster, Executor, Facts, LocalPool, Task, Work, processors


@dataclass(frozen=True)
class Places:
    """Where a sweep runs (``workers`` processes here that import ``preload``, or a cluster) and is kept (or not)."""

    out: Path | None
    fresh: bool
    workers: int | None
    cluster: str | None
    preload: tuple[str, ...] = ()


def conduct(
    grid: Grid,
    common: Mapping[str, Any],
    work: Work,
    facts: Facts,
    places: Places,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """Run what is not yet run of a grid, and return what sweep.json holds.

    ``common`` is what decides the results beside each point's scenario; ``work`` checks or runs a point; ``facts`` says
    what a machine's results are made with.
    """
    if places.cluster is not None and places.workers is not None:
        raise InputError("a cluster has its own workers", where=Where(field="--workers"), expected="--cluster alone")
    resolved = [scenario.resolved() for scenario in grid.scenarios]
    stated = manifest(grid, resolved, common)
    total = len(grid.points)
    with ExitStack() as stack:
        stack.enter_context(_broken_pipes_are_errors())
        kept, resumed = None, False
        if places.out is not None:
            kept, resumed = stack.enter_context(records(places.out, stated, fresh=places.fresh))
        rows: list[dict[str, Any]] = [{}] * total
        left = []
        for i in range(total):
            text = kept.result(i) if kept is not None and resumed else None
            if text is None:
                left.append(i)
            else:
                rows[i] = _done(text)
        code = 0
        if left:
            executor = _executor(stack, grid, work, facts, places, kept)
            stack.enter_context(executor)
            if not resumed:
                _check(executor, grid, resolved)
                if kept is not None:
                    kept.begin(stated)
            progress(total - len(left), total)
            tasks = [Task("run", grid.points[i].changes) for i in left]
            for done, (place, outcome) in enumerate(executor.map(tasks), total - len(left) + 1):
                if kept is not None:
                    kept.write(left[place], outcome)
                if outcome.result is None:
                    rows[left[place]] = {"status": "failed", "error": outcome.error}
                    code = max(code, outcome.code)
                else:
                    rows[left[place]] = _done(outcome.result)
                progress(done, total)
        found = document(grid, stated, rows, code)
        if kept is not None:
            write_tables(kept.folder, found)
    return found


@contextmanager
def _broken_pipes_are_errors() -> Iterator[None]:
    """The command line lets a reader of its output that has gone end it; a worker that has gone must not."""
    if not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)


def _done(result: str) -> dict[str, Any]:
    return {"status": "done", **row(json.loads(result))}


def _executor(
    stack: ExitStack, grid: Grid, work: Work, facts: Facts, places: Places, kept: Records | None
) -> LocalPool | DaskCluster:
    if places.cluster is not None:
        return DaskCluster(places.cluster, work, grid.inputs, facts)
    # Where results are kept, so are the inputs' copies meanwhile: the next start clears what a killed sweep left.
    scratch = tempfile.TemporaryDirectory(prefix="windtunnel-", dir=None if kept is None else kept.scratch)
    tree = Path(stack.enter_context(scratch)).absolute()
    grid.inputs.write(tree)
    return LocalPool(work, tree, places.workers or processors(), places.preload)


def _check(executor: Executor, grid: Grid, resolved: list[dict[str, Any]]) -> None:
    """Prepare every point as running it would, side by side; points that differ in their seed alone count as one."""
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
