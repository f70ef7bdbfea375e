"""Arrivals of jobs, in ticks, and the columns of traces.

``processes`` draws arrival times of random processes, ``closed`` draws think times of users, ``traces`` reads and
transforms traces, and ``streams`` applies stop conditions and merges workloads.
"""

from windtunnel.engine.arrivals.closed import ThinkTimes
from windtunnel.engine.arrivals.streams import Stream, arrival_blocks, arrivals, merged, merged_blocks
from windtunnel.engine.arrivals.traces import MAX_JOBS, TraceFile, TraceRows, export_trace, read_trace, trace_jobs

__all__ = [
    "MAX_JOBS",
    "Stream",
    "ThinkTimes",
    "TraceFile",
    "TraceRows",
    "arrival_blocks",
    "arrivals",
    "export_trace",
    "merged",
    "merged_blocks",
    "read_trace",
    "trace_jobs",
]
