"""`windtunnel sweep`: a scenario over a grid of values."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.core.errors import InputError, Location, WindtunnelError
from windtunnel.core.worker_processes import start_fork_server

if TYPE_CHECKING:
    from windtunnel.core.results.sweep import SweepResult
    from windtunnel.core.spec import DeviceSpec
    from windtunnel.sweep.grid import Inputs
    from windtunnel.sweep.records import Outcome
    from windtunnel.sweep.workers import Task


@dataclass(frozen=True)
class _Point:
    """The data that a worker needs to run a point, beside the point's changes and the copies of the input files."""

    inputs: Inputs
    replications: int
    engine: str
    host: DeviceSpec | None
    """The processor on which the sweep was started, if a fleet names ``host``: the same for every worker."""


def begin_imports(cluster: str | None) -> None:
    """Let the process from which workers are forked import their modules, unless a cluster has the workers.

    It does so while this process imports modules and reads the points, so call it before either.
    """
    if cluster is None:
        start_fork_server(_PRELOAD)


def sweep(
    scenario: str | Path,
    over: Sequence[str],
    *,
    changes: Sequence[str] = (),
    replications: int = 1,
    engine: str = "auto",
    catalogs: Sequence[str | Path] = (),
    out: Path | None = None,
    fresh: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    outside_code: bool = False,
    parquet: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Run a scenario at every point of a grid.

    ``over`` are axes, "fleet[0].count=1,2,4"; ``changes`` are made at every point. Points run on ``workers`` processes
    (default: one for each processor) or on the Dask cluster with the scheduler ``cluster``. ``out`` keeps every
    finished point, and an interrupted sweep continues from it; ``fresh`` deletes it. ``outside_code`` lets a policy be
    code in a file outside of the scenario's folder. ``parquet`` also writes the table as Parquet. ``progress`` is
    called with (points done, points in all). Raises InputError for an invalid point before any point runs. A point that
    fails while it runs has its error in its row, and the other points continue.
    """
    begin_imports(cluster)
    from windtunnel.simulation.fleet import policy_of
    from windtunnel.simulation.versions import made_with
    from windtunnel.sweep.grid import Common, read_grid
    from windtunnel.sweep.run import SweepOptions, run_sweep
    from windtunnel_models.catalogue import HOST, Catalogue
    from windtunnel_models.host import host_spec

    Catalogue([Path(folder) for folder in catalogs])
    whole = read_grid(str(scenario), over, changes, [str(folder) for folder in catalogs], policy_of, outside_code)
    named = {entry.device.partition("@")[0] for point in whole.scenarios for entry in point.fleet}
    host = host_spec() if HOST in named else None
    real = sorted({name for point in whole.scenarios for name in point.real_devices})
    common = Common(
        replications=replications,
        engine=engine,
        versions=made_with(),
        inputs=whole.inputs.contents(),
        host=None if host is None else hashlib.sha256(repr(host).encode()).hexdigest(),
        real_devices=_drivers(real) if real else None,
    )
    work = partial(sweep_work, _Point(whole.inputs, replications, engine, host))
    options = SweepOptions(
        out, fresh, _one_at_a_time(real, workers, cluster) if real else workers, cluster, _PRELOAD, parquet
    )
    return run_sweep(whole, common, work, made_with, options, progress or (lambda _done, _total: None))


def _one_at_a_time(real: Sequence[str], workers: int | None, cluster: str | None) -> int:
    """Return the number of worker processes for points that measure real devices: always one."""
    if cluster is not None:
        raise InputError(
            f"{real[0]} is a device of this host", where=Location(field="--cluster"), expected="no --cluster"
        )
    if workers not in (None, 1):
        problem = f"every point measures {real[0]}, and {workers} workers would disturb each other's measurements"
        raise InputError(problem, where=Location(field="--workers"), expected="1, or no --workers")
    return 1


def _drivers(real: Sequence[str]) -> dict[str, str | None]:
    """Return the driver of each real device, so that a stored point of another driver is not reused."""
    from windtunnel.backends.discovery import real_devices

    here = {row.name: f"{row.label}, {row.driver}" for row in real_devices.real_devices()}
    return {name: here.get(name) for name in real}


_PRELOAD = (
    "windtunnel.app.sweep",
    "windtunnel.simulation.run",
    "windtunnel.sweep.workers",
    "windtunnel.engine.choice",
    "windtunnel.engine.compiled.run",
    "windtunnel.engine.results.metrics",
)
"""Modules that every point needs; the local workers import them once."""


def sweep_work(setup: _Point, tree: Path, task: Task) -> Outcome:
    """Check or run one point of a sweep, from the copies of its input files under ``tree``. Never raises."""
    from windtunnel.core.results.data import result_json
    from windtunnel.simulation import run as simulation
    from windtunnel.sweep.grid import read_copy
    from windtunnel.sweep.records import Outcome
    from windtunnel_models.catalogue import Catalogue

    inputs = setup.inputs
    try:
        scenario = read_copy(inputs, tree, task.changes)
        catalogue = Catalogue(inputs.catalog_folders(tree), setup.host)
        if task.what == "check":
            simulation.check(scenario, setup.engine, catalogue)
            return Outcome()
        finished = simulation.run(scenario, replications=setup.replications, engine=setup.engine, catalogue=catalogue)
        return Outcome(inputs.restore(result_json(finished.result), tree))
    except WindtunnelError as error:
        return Outcome(error=inputs.restore(str(error), tree), code=error.exit_code)
    except Exception as error:
        lines = "".join(traceback.format_exception(error))
        message = inputs.restore(f"{type(error).__name__}: {error}".rstrip(": "), tree)
        return Outcome(error=f"a bug in Windtunnel: {message}", code=70, traceback=inputs.restore(lines, tree))
