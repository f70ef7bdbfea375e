"""When jobs arrive, in ticks, and what a trace says of each.

`processes` draws the times of every process that never ends, `closed` how long users think, `traces` reads and reshapes
traces, `streams` stops and merges both.
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
