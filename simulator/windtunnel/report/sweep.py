"""The result of a sweep for a terminal: one line for each point, with the swept values and the main metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windtunnel.core.results.sweep import SweepResult, SweepRow
from windtunnel.report.numbers import NOTHING, plural, printable, quantity, rate, share, usd, value_range


def _seconds(value: float | None) -> str:
    return quantity(value, "s")


_METRICS: Sequence[tuple[str, str, Callable[[float | None], str]]] = (
    ("latency_s.p99", "latency p99", _seconds),
    ("waiting_s.mean", "waiting mean", _seconds),
    ("serving.ttft_s.p99", "TTFT p99", _seconds),
    ("serving.itl_s.p99", "ITL p99", _seconds),
    ("serving.tpot_s.p99", "TPOT p99", _seconds),
    ("serving.slo_attainment", "attainment", share),
    ("serving.cost_per_million_usd.output", "USD per million output tokens", usd),
    ("throughput_per_s", "throughput", lambda value: rate(value, "jobs")),
    ("utilisation", "utilisation", share),
    ("average_power_w", "power", lambda value: quantity(value, "W")),
    ("cost_usd_per_h", "cost per hour", usd),
)
_STATES = {"not shown": "not shown", "unstable": "UNSTABLE"}
_OUTCOMES = {True: "met", False: "MISSED", None: NOTHING}


def headline(sweep: SweepResult) -> str:
    """Return the number of points, the swept values, and the outcome."""
    axes = " × ".join(f"{len(axis.values)} of {axis.path}" for axis in sweep.axes)
    outcomes = []
    if any(row.met is not None for row in sweep.rows):
        outcomes.append(f"{sweep.missed} missed a target" if sweep.missed else "all targets met")
    inconclusive = sum(_inconclusive(row) for row in sweep.rows)
    outcomes += [f"{inconclusive} inconclusive at 95%"] if inconclusive else []
    outcomes += [f"{sweep.failed} failed"] if sweep.failed else []
    return "; ".join([f"{plural(sweep.points, 'point')}: {axes}", *outcomes])


def _inconclusive(row: SweepRow) -> bool:
    """Return whether another run of the point could give another outcome.

    It could not if one target is conclusively missed.
    """
    inconclusive, missed = (set(filter(None, (names or "").split("; "))) for names in (row.inconclusive, row.missed))
    return bool(inconclusive) and missed <= inconclusive


def points_table(sweep: SweepResult) -> tuple[list[str], list[list[str]]]:
    """Return a header and a row for each point: the swept values, the metrics that any point has, and the outcome."""
    rows = sweep.rows
    columns: list[tuple[str, Callable[[SweepRow], str]]] = [
        (axis.path, lambda row, path=axis.path: _value(row.swept[path]))  # type: ignore[misc]
        for axis in sweep.axes
    ]
    for key, name, show in _METRICS:
        if any(row.number(key) is not None for row in rows):
            columns.append((name, lambda row, key=key, show=show: show(row.number(key))))  # type: ignore[misc]
        if key.endswith("p99") and any(row.number(f"{key}.low") is not None for row in rows):
            columns.append(("95% CI", lambda row, key=key: _interval(row, key)))  # type: ignore[misc]
    # A column that has the same reassuring value in every row is omitted.
    if any(row.numbers.get("statistics.steady_state") in _STATES for row in rows):
        columns.append(("steady state", _steady_state))
    if any(row.met is not None for row in rows):
        columns.append(("targets", _outcome))
    cells = [[show(row) for _, show in columns] for row in rows]
    for row, line in zip(rows, cells, strict=True):
        if row.status == "failed":
            line[-1] = "FAILED"
    return [name for name, _ in columns], cells


def _interval(row: SweepRow, key: str) -> str:
    return value_range(row.number(f"{key}.low"), row.number(f"{key}.high"), "s") or NOTHING


def _steady_state(row: SweepRow) -> str:
    state = row.numbers.get("statistics.steady_state")
    return _STATES.get(str(state), "reached" if state else NOTHING)


def _outcome(row: SweepRow) -> str:
    return _OUTCOMES[row.met] + (" (inconclusive)" if _inconclusive(row) else "")


def problems(sweep: SweepResult) -> list[str]:
    """Return a line for each point that failed, with the error."""
    return [f"point {row.point} failed: {row.error}" for row in sweep.rows if row.status == "failed"]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items()) + "}"
    elif isinstance(value, list):
        text = f"[{', '.join(_value(inner) for inner in value)}]"
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = printable(str(value))
    return text if len(text) <= 48 else f"{text[:45]}..."
