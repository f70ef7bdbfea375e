"""The limits on the number of jobs of a run, which are checked before arrival times are drawn and memory is taken."""

from __future__ import annotations

from windtunnel.core.errors import InputError, Location
from windtunnel.core.memory import require_memory

MAX_JOBS = 200_000_000
"""The largest number of jobs of a run that keeps every job."""
MAX_STREAMED_JOBS = 1_000_000_000
"""The largest number of jobs of a run that keeps sums and a sample of its jobs; also that of `stop: {jobs: N}`."""

_DRAWN_BYTES = 64.0
"""Memory of one arrival while the arrivals of a workload are drawn, repeated, scaled and sorted: eight numbers."""
_LESS = "a lower rate, an earlier stop or fewer copies of a trace"


class JobLimit:
    """Counts the jobs of a run over all its workloads, and refuses more than a limit or than memory holds.

    Args:
        most: The largest number of jobs of the run.
        job_bytes: The memory that a run takes for each job that it keeps (bytes); 0 if it keeps none.
        stop_jobs: The number of jobs after which no more arrive in any workload, if the run has one.
    """

    def __init__(self, most: int = MAX_JOBS, job_bytes: float = 0.0, stop_jobs: int | None = None) -> None:
        self._most, self._job_bytes, self._stop_jobs = most, job_bytes, stop_jobs
        self._drawn = self._kept = 0.0

    def draw(self, jobs: float, workload: str, where: Location) -> None:
        """Count ``jobs`` of ``workload`` whose arrival times are about to be drawn.

        Raises:
            InputError: at ``where``; they are too many, or would not fit into memory.
        """
        if jobs > self._most:
            raise self._too_many(jobs, f"'{workload}' has", where)
        self._drawn += jobs
        self._check_memory(where)

    def keep(self, jobs: float, workload: str, where: Location) -> None:
        """Count ``jobs`` of ``workload`` that arrive in the run.

        Raises:
            InputError: at ``where``; they are too many together with those of earlier workloads, or would not fit into
                memory.
        """
        total = self._kept + jobs
        self._kept = total if self._stop_jobs is None else min(total, float(self._stop_jobs))
        if self._kept > self._most:
            raise self._too_many(self._kept, f"the workloads up to '{workload}' have", where)
        self._check_memory(where)

    def _check_memory(self, where: Location) -> None:
        needed = (_DRAWN_BYTES * self._drawn if self._job_bytes else 0.0) + self._job_bytes * self._kept
        jobs = max(self._drawn, self._kept)
        require_memory(needed, f"a run of about {jobs:,.0f} jobs", where, f"fewer jobs: {_LESS}")

    def _too_many(self, jobs: float, subject: str, where: Location) -> InputError:
        return InputError(
            f"{subject} about {jobs:,.0f} jobs", where=where, expected=f"at most {self._most:,} jobs in a run: {_LESS}"
        )
