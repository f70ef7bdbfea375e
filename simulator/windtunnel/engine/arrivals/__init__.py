"""Arrivals of jobs, in ticks, and the columns of traces.

``processes`` draws arrival times of random processes, ``closed`` draws think times of users, ``traces`` reads and
transforms traces, ``limits`` bounds the number of jobs, and ``streams`` applies stop conditions and merges workloads.
"""

from windtunnel.engine.arrivals.closed import ThinkTimes, think_ticks
from windtunnel.engine.arrivals.limits import MAX_JOBS, MAX_STREAMED_JOBS, JobLimit
from windtunnel.engine.arrivals.streams import (
    Stream,
    arrival_blocks,
    arrivals,
    count_expected,
    merged,
    merged_blocks,
)
from windtunnel.engine.arrivals.traces import (
    TraceFile,
    TraceRows,
    export_trace,
    read_trace,
    row_draws,
    trace_jobs,
)

__all__ = [
    "MAX_JOBS",
    "MAX_STREAMED_JOBS",
    "JobLimit",
    "Stream",
    "ThinkTimes",
    "TraceFile",
    "TraceRows",
    "arrival_blocks",
    "arrivals",
    "count_expected",
    "export_trace",
    "merged",
    "merged_blocks",
    "read_trace",
    "row_draws",
    "think_ticks",
    "trace_jobs",
]
