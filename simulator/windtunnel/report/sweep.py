"""A sweep as the terminal shows it: one line a point, with the swept values and the figures most asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.report.words import NOTHING, plural, quantity, rate, share, spread, usd

_FIGURES: Sequence[tuple[str, str, Callable[[Any], str]]] = (
    ("latency_s.p99", "latency p99", lambda value: quantity(value, "s")),
    ("waiting_s.mean", "waiting mean", lambda value: quantity(value, "s")),
    ("serving.ttft_s.p99", "TTFT p99", lambda value: quantity(value, "s")),
    ("serving.itl_s.p99", "ITL p99", lambda value: quantity(value, "s")),
    ("throughput_per_s", "throughput", lambda value: rate(value, "jobs")),
    ("utilisation", "busy", share),
    ("average_power_w", "power", lambda value: quantity(value, "W")),
    ("cost_usd_per_h", "cost an hour", usd),
)

_STATES = {"not shown": "not shown", "unstable": "UNSTABLE"}
"""What is said of a point that did not settle; a source that is not stationary has nothing to settle to."""


def headline(sweep: Mapping[str, Any]) -> str:
    """How many points there were, over what, and what came of them."""
    counts = " × ".join(f"{len(axis['values'])} of {axis['path']}" for axis in sweep["axes"])
    missed, failed = sweep["missed"], sweep["failed"]
    judged = any(row.get("met") is not None for row in sweep["rows"])
    told = [f"{missed} missed a target" if missed else "all targets met"] if judged else []
    unsure = sum(_unsure(row) for row in sweep["rows"])
    told += [f"{unsure} not surely, as an interval reaches past its limit"] if unsure else []
    told += [f"{failed} failed"] if failed else []
    return f"{plural(sweep['points'], 'point')}: {counts}" + (f"; {', '.join(told)}" if told else "")


def _unsure(row: Mapping[str, Any]) -> bool:
    """Whether another run may say the opposite of ``met``: one target that is surely missed settles it."""
    unsure, missed = (set(filter(None, (row.get(key) or "").split("; "))) for key in ("inconclusive", "missed"))
    return bool(unsure) and missed <= unsure


def points_table(sweep: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the swept values, the main figures that any point has, and whether its targets are met."""
    rows = sweep["rows"]
    figures = [figure for figure in _FIGURES if any(row.get(figure[0]) is not None for row in rows)]
    judged = any(row.get("met") is not None for row in rows)
    paths = [axis["path"] for axis in sweep["axes"]]
    tails = [column for column, _, _ in figures if column.endswith("p99")]
    sure = {column for column in tails if any(row.get(f"{column}.low") is not None for row in rows)}
    # A column that says the same in every row, that all is well, says nothing.
    states = any(row.get("statistics.steady_state") in _STATES for row in rows)
    header = list(paths)
    for column, name, _ in figures:
        header += [name, "95% interval"] if column in sure else [name]
    header += [*(["steady state"] if states else []), *(["targets"] if judged else [])]
    cells = []
    for row in rows:
        line = [_value(row[path]) for path in paths]
        for column, _, show in figures:
            line.append(show(row.get(column)))
            if column in sure:
                line.append(spread(row.get(f"{column}.low"), row.get(f"{column}.high"), "s") or NOTHING)
        if states:
            line.append(
                _STATES.get(
                    row.get("statistics.steady_state"), "yes" if row.get("statistics.steady_state") else NOTHING
                )
            )
        if judged:
            line.append({True: "met", False: "MISSED", None: NOTHING}[row.get("met")] + ("?" if _unsure(row) else ""))
        if row["status"] == "failed":
            line[-1] = "FAILED"
        cells.append(line)
    return header, cells


def problems(sweep: Mapping[str, Any]) -> list[str]:
    """Each point that failed, and why."""
    return [f"point {row['point']} failed: {row['error']}" for row in sweep["rows"] if row["status"] == "failed"]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {_value(inner)}" for key, inner in value.items()) + "}"
    elif isinstance(value, list):
        text = f"[{', '.join(_value(inner) for inner in value)}]"
    elif value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= 48 else f"{text[:45]}..."
