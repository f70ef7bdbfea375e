"""`windtunnel trace`: a trace of arrivals written as plain CSV."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from windtunnel.core.errors import InputError, Location
from windtunnel.core.results.catalogue import TraceSummary
from windtunnel.core.ticks import TICKS_PER_SECOND


def import_trace(source: Path, form: str, time: str | None, columns: Mapping[str, str], out: Path) -> TraceSummary:
    """Convert the trace ``source`` of format ``form`` to CSV, with arrival times in seconds.

    Raises InputError for a trace that cannot be read.
    """
    from windtunnel.engine.arrivals import export_trace, read_trace

    if out.exists() and source.exists() and out.samefile(source):
        raise InputError(
            "the output is the input trace itself", where=Location(str(out), field="--out"), expected="another file"
        )
    options = {"format": "--format", "time": "--time", "columns": "--column"}
    rows = read_trace(source, form, time, columns, lambda key, *_: Location(str(source), field=options.get(key)))
    export_trace(rows, out)
    span_s = rows.ticks[-1] / TICKS_PER_SECOND
    return TraceSummary(len(rows.ticks), span_s, rows.mean_rate_per_s)
