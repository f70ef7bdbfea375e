"""`windtunnel run`: the files that a run writes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from windtunnel.core.errors import InputError, Location
from windtunnel.core.parquet import require_pyarrow
from windtunnel.core.policy import POLICIES
from windtunnel.core.results.data import result_json
from windtunnel.simulation.run import PlacementRun, Run


def save(finished: Run | PlacementRun, folder: Path, *, parquet: bool = False) -> list[Path]:
    """Write result.json, jobs.csv, report.html and trace.json.gz to ``folder``, and return their paths.

    With ``parquet`` the table of jobs is also written as jobs.parquet.
    The files appear only when all of them are complete. Raises InputError if ``folder`` cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as scratch:
            made = Path(scratch)
            (made / "result.json").write_text(result_json(finished.result), encoding="utf-8")
            if isinstance(finished, PlacementRun):
                _write_placement(finished, made, parquet)
            else:
                _write_run(finished, made, parquet)
            names = sorted(path.name for path in made.iterdir())
            not_files = [name for name in names if (folder / name).exists() and not (folder / name).is_file()]
            if not_files:
                raise InputError(
                    f"'{not_files[0]}' exists and is not a file",
                    where=Location(str(folder), field="--out"),
                    expected="another folder",
                )
            for name in names:
                (made / name).replace(folder / name)
    except OSError as error:
        raise InputError(
            f"the output cannot be written: {error.strerror or error}",
            where=Location(str(folder), field="--out"),
            expected="a folder that can be written to",
        ) from None
    return [folder / name for name in names]


def _write_run(finished: Run, folder: Path, parquet: bool) -> None:
    """Write jobs.csv, jobs.parquet if asked, report.html and trace.json.gz of a fleet's run to ``folder``."""
    from windtunnel.report import perfetto, run_page, tables

    tables.write_jobs_csv(folder / "jobs.csv", finished.recording, rows=finished.sample)
    if parquet:
        tables.write_jobs_parquet(folder / "jobs.parquet", finished.recording, rows=finished.sample)
    (folder / "report.html").write_text(run_page.render(finished.result, finished.recording), encoding="utf-8")
    perfetto.write_trace(folder / "trace.json.gz", finished.recording, name=finished.result.name)


def _write_placement(finished: PlacementRun, folder: Path, parquet: bool) -> None:
    """Write jobs.csv, jobs.parquet if asked, report.html and trace.json.gz of a placement to ``folder``."""
    from windtunnel.report import placement, placement_page

    placement.write_tasks(folder / "jobs.csv", finished.recording, finished.sample)
    if parquet:
        placement.write_tasks(folder / "jobs.parquet", finished.recording, finished.sample)
    placement.write_trace(folder / "trace.json.gz", finished.recording, name=finished.result.name)
    (folder / "report.html").write_text(placement_page.render(finished.result, finished.recording), encoding="utf-8")


def check_parquet(out: Path | None, parquet: bool) -> None:
    """Raise InputError if a table is to be written as Parquet without a folder, or without pyarrow."""
    if not parquet:
        return
    where = Location(field="--parquet")
    if out is None:
        raise InputError("there is no folder for the table", where=where, expected="--out DIR --parquet")
    require_pyarrow(where)


def check_writable(folder: Path) -> None:
    """Raise InputError if ``folder`` cannot be written to, before anything runs."""
    parent = folder
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    where = Location(str(folder), field="--out")
    if not parent.is_dir():
        raise InputError(f"'{parent}' is not a folder", where=where, expected="a folder that can be written to")
    try:
        tempfile.TemporaryDirectory(dir=parent, prefix=".writable-").cleanup()
    except OSError as error:
        raise InputError(
            f"the output folder cannot be written to: {error.strerror}",
            where=where,
            expected="a folder that can be written to",
        ) from None


def list_policies() -> list[str]:
    """List the names of all policies."""
    return list(POLICIES)
