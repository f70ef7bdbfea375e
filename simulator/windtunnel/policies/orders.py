"""Orders: each is a key of a waiting job. The job with the smallest key goes first, ties in order of arrival."""

from __future__ import annotations

from windtunnel.core.policy import ORDERS, JobKey, Order, order

ORDERS.add("arrival", Order("arrival", "First come, first served."))


@order("priority", policy="priority")
def highest_priority(job: JobKey) -> float:
    """The highest priority first."""
    return -float(job.priority)


@order("deadline", policy="earliest-deadline-first", requires=("deadline",))
def earliest_deadline(job: JobKey) -> float:
    """The earliest deadline first."""
    return float(job.deadline)


@order("shortest", policy="shortest-job-first")
def shortest_job(job: JobKey) -> float:
    """The shortest expected time first."""
    return job.size_s
