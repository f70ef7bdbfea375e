"""When jobs arrive, in ticks, and what a trace says of each.

`processes` draws the times of every process that never ends, `traces` reads and reshapes traces, `streams` stops and
merges both.
"""

from windtunnel.engine.arrivals.streams import Stream, arrival_blocks, arrivals, merged, merged_blocks
from windtunnel.engine.arrivals.traces import TraceFile, TraceRows, export_trace, read_trace, trace_jobs

__all__ = [
    "Stream",
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
