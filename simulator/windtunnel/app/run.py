"""`windtunnel run`: the files that a run writes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Self

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.core.files import only_writer, writing_output
from windtunnel.core.forks import Copy
from windtunnel.core.parquet import require_pyarrow
from windtunnel.core.policy import POLICIES
from windtunnel.core.recording import Recording
from windtunnel.core.results.data import result_json
from windtunnel.simulation.run import PlacementRun, Run


class Output:
    """The files of a run in ``folder``: result.json, jobs.csv, report.html and trace.json.gz.

    They appear only when all of them are complete. With ``parquet`` the table of jobs is also written as jobs.parquet.
    What does not depend on the statistics is written by copies of this process while they are computed, if ``begin`` is
    called. Leaving the context ends these copies and deletes what they have written.
    """

    def __init__(self, folder: Path, *, parquet: bool = False) -> None:
        self._folder, self._parquet = folder, parquet
        self._open = ExitStack()
        self._scratch: Path | None = None
        self._copies: list[Copy[bool]] = []
        self._unused = False
        """Whether the folder was made for a run that has no result yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()
        if self._unused:
            with suppress(OSError):
                self._folder.rmdir()

    def begin(self, name: str, recording: Recording, sample: np.ndarray | None) -> None:
        """Begin to write the jobs and the timeline of a run.

        Raises:
            InputError: The folder cannot be written to.
        """
        made = self._made()
        self._copies = [self._open.enter_context(Copy(part)) for part in self._parts(name, recording, sample, made)]

    def save(self, finished: Run | PlacementRun) -> list[Path]:
        """Write all files, and return their paths.

        Raises:
            InputError: The folder cannot be written to.
        """
        made, folder = self._made(), self._folder
        self._unused = False
        with writing_output(folder):
            (made / "result.json").write_text(result_json(finished.result), encoding="utf-8")
            if isinstance(finished, PlacementRun):
                _write_placement(finished, made, self._parquet)
            else:
                self._write_run(finished, made)
            names = sorted(path.name for path in made.iterdir())
            not_files = [name for name in names if (folder / name).exists() and not (folder / name).is_file()]
            if not_files:
                raise InputError(
                    f"'{not_files[0]}' exists and is not a file",
                    where=Location(str(folder), field="--out"),
                    expected="another folder",
                )
            with only_writer(folder):
                for name in names:
                    (made / name).replace(folder / name)
        return [folder / name for name in names]

    def _write_run(self, finished: Run, made: Path) -> None:
        from windtunnel.report import run_page

        report = run_page.render(finished.result, finished.recording)
        (made / "report.html").write_text(report, encoding="utf-8")
        parts = self._parts(finished.result.name, finished.recording, finished.sample, made)
        for part, copy in zip_longest(parts, self._copies):
            if copy is None or not copy.result():
                part()

    def _parts(
        self, name: str, recording: Recording, sample: np.ndarray | None, made: Path
    ) -> Sequence[Callable[[], bool]]:
        """Return functions that write what does not depend on the statistics, which can run side by side."""
        return [
            partial(_write_jobs, recording, sample, made, self._parquet),
            partial(_write_timeline, name, recording, made),
        ]

    def _made(self) -> Path:
        """Return the folder in which files are until all of them are complete."""
        if self._scratch is None:
            with writing_output(self._folder):
                self._unused = not self._folder.exists()
                self._folder.mkdir(parents=True, exist_ok=True)
                scratch = tempfile.TemporaryDirectory(dir=self._folder, prefix=".writing-")
                self._scratch = Path(self._open.enter_context(scratch))
        return self._scratch


def save(finished: Run | PlacementRun, folder: Path, *, parquet: bool = False) -> list[Path]:
    """Write the files of ``Output`` to ``folder``, and return their paths.

    Raises InputError if ``folder`` cannot be written to.
    """
    with Output(folder, parquet=parquet) as output:
        return output.save(finished)


def _write_jobs(recording: Recording, sample: np.ndarray | None, folder: Path, parquet: bool) -> bool:
    """Write jobs.csv, and jobs.parquet if asked, of a fleet's run to ``folder``; return True."""
    from windtunnel.report import tables

    tables.write_jobs_csv(folder / "jobs.csv", recording, rows=sample)
    if parquet:
        tables.write_jobs_parquet(folder / "jobs.parquet", recording, rows=sample)
    return True


def _write_timeline(name: str, recording: Recording, folder: Path) -> bool:
    """Write trace.json.gz of a fleet's run to ``folder``; return True."""
    from windtunnel.report import perfetto

    perfetto.write_trace(folder / "trace.json.gz", recording, name=name)
    return True


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
