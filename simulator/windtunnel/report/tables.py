"""Writes the jobs of a run, one row for each job: as CSV with times exact to the picosecond, or as Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.core.parquet import Kind, write_blocks
from windtunnel.core.recording import COMPLETED, STATUS, IntArray, Recording
from windtunnel.core.ticks import TickArray
from windtunnel.report.byte_columns import BLANK, Column, cells, decimals, floats, integers, joined, words

COLUMNS: dict[str, Kind] = {
    "job": "integer",
    "workload": "text",
    "device": "text",
    "status": "text",
    "arrival_s": "number",
    "start_s": "number",
    "finish_s": "number",
    "waiting_s": "number",
    "latency_s": "number",
    "ttft_s": "number",
    "tpot_s": "number",
    "prompt_tokens": "integer",
    "output_tokens": "integer",
    "hit_tokens": "integer",
    "energy_j": "number",
    "attempts": "integer",
}

_ROWS = 1 << 12
"""Rows that are converted to text at once: so few that they stay in the processor's cache."""


def write_jobs_csv(path: Path | str, recording: Recording, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Write every job (or those whose indices are in ``rows``, a sample) to ``path``.

    Times are decimal seconds, converted exactly from integer picoseconds. ``ttft_s`` is the time from the arrival to
    the first token, and ``tpot_s`` the mean time between a completed job's tokens, rounded down to a picosecond.
    ``hit_tokens`` are the prompt tokens that the prefix cache had. A cell
    is empty if the job has no such time: no start, no finish, no token. Only completed jobs have a latency. An
    interrupted job has the start and the device of its last attempt, and none while it waits for the next attempt.
    """
    with Path(path).open("wb") as file:
        file.write(",".join(COLUMNS).encode() + b"\n")
        for columns in _blocks(recording, rows, _cell):
            *separated, _ = (part for column in columns for part in (column, ","))
            file.write(joined([*separated, "\n"]))


def write_jobs_parquet(path: Path, recording: Recording, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Write the table of ``write_jobs_csv`` as Parquet, with times as 64-bit floating-point numbers (s).

    These numbers round times above 9,000 s to more than a picosecond.

    Raises:
        InputError: pyarrow is not installed.
    """
    write_blocks(path, COLUMNS, (list(map(cells, columns)) for columns in _blocks(recording, rows, str)))


def _blocks(
    recording: Recording, rows: npt.NDArray[np.int64] | None, cell: Callable[[str], str]
) -> Iterator[Sequence[Column]]:
    """Yield blocks of jobs as columns of text, with names as ``cell`` writes them."""
    jobs = recording.jobs
    workloads = [cell(name) for name in recording.workloads]
    devices = [cell(name) for name in recording.devices.names()]
    chosen = np.arange(len(jobs)) if rows is None else np.asarray(rows, dtype=np.int64)
    for begin in range(0, len(chosen), _ROWS):
        index = chosen[begin : begin + _ROWS]
        arrival, start, finish = jobs.arrival[index], jobs.start[index], jobs.finish[index]
        first, status = jobs.first[index], jobs.status[index]
        energy = floats(jobs.energy_j[index])
        energy[jobs.starts[index] == 0] = BLANK
        yield [
            integers(index),
            words(workloads, jobs.workload[index]),
            words(devices, jobs.device[index]),
            words(STATUS, status),
            _seconds(arrival),
            _seconds(start),
            _seconds(finish),
            _seconds(np.where(start >= 0, start - arrival, -1)),
            _seconds(np.where((status == COMPLETED) & (finish >= 0), jobs.until_finish(index), -1)),
            _seconds(np.where(first >= 0, jobs.until_first(index), -1)),
            _seconds(_tpot(first, finish, jobs.tokens[index], status)),
            *(_numbers(of_jobs, index) for of_jobs in (jobs.prompts, jobs.tokens, jobs.hits)),
            energy,
            integers(jobs.starts[index]),
        ]


def _numbers(of_jobs: IntArray | None, index: npt.NDArray[np.int64]) -> Column:
    """Return numbers of jobs as text; 0 for all where they are not kept, because no job has any."""
    return integers(np.zeros_like(index) if of_jobs is None else of_jobs[index])


def _tpot(first: TickArray, finish: TickArray, tokens: IntArray, status: npt.NDArray[np.integer[Any]]) -> TickArray:
    """Return each completed job's mean time between two tokens, in ticks; -1 for other jobs and for a single token."""
    measured = (status == COMPLETED) & (first >= 0) & (tokens > 1)
    return np.where(measured, (finish - first) // np.maximum(tokens - 1, 1), -1)


def _seconds(ticks: TickArray) -> Column:
    """Return picoseconds as exact decimal seconds without trailing zeros; blank for a negative time (not reached)."""
    return decimals(ticks, 12, trimmed=True)


def _cell(text: str) -> str:
    """Return ``text`` quoted for CSV; a name may hold commas, quotes and line breaks."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()
