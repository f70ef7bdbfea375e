"""Parts that the cost functions of several kinds share: stated times, power from activity, the limiting term."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import Parameters, RawCost, StrArray
from windtunnel.core.ops import DTYPES, FloatArray, Rows
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.spec import Parameter

COMMON = (
    Parameter("idle_power_w", "W", "power with nothing running", required=True),
    Parameter("max_power_w", "W", "the most the device draws: board power, package power", required=True),
    Parameter(
        "power_error_factor",
        "1",
        "factor within which nine tenths of the measured powers of operations are of the model's",
        default=assumed(
            1.5,
            1.2,
            2.0,
            "power was measured on one device alone, whose shares of the power limit others take; the factor of 1.31 "
            "of that device, and 1.26 to 1.35 from ranges of idle power and of shares, together give 1.43 to 1.5",
        ),
    ),
    Parameter("price_usd_per_h", "USD/h", "rent of one device; SI value in dollars per second"),
)
"""Parameters of every kind. Power is required: if it was not published, it is assumed with a range."""

DTYPE_KEYS = ("float64", *DTYPES)

API_KEYS = tuple(sorted(path.stem for path in (Path(__file__).parents[1] / "apis").glob("*.yaml")))
"""Every API with a profile. They are the keys of a SKU's own overheads, so a new API is one file."""

EXACT = SourcedValue(1.0, Provenance.DATASHEET, "by definition")
"""The error factor of a cost that is exact by definition (a stated time)."""


def service(p: Parameters, rows: Rows) -> RawCost:
    """Return the mean of a stated time over the device's speed, at full power. The simulation engines draw from it."""
    duration = rows.numbers["mean"] / p.speed
    return RawCost(duration, np.asarray(p("max_power_w")), np.asarray("stated"))


def need_library(p: Parameters, rows: Rows) -> None:
    """Raise UnsupportedOperationError for an engine's own kernels, which are written for GPUs."""
    implementation = rows.choices.get("implementation", "nccl")
    if implementation != "nccl":
        raise p.unsupported(
            f"has no {rows.op.name} of {implementation}: the kernels of serving engines are written for GPUs",
            expected="implementation=nccl or engine: generic, which stand for the vendor's library",
        )


def limit(**terms: npt.ArrayLike) -> tuple[FloatArray, StrArray]:
    """Return the largest of several times (s) and the name of that term, element by element."""
    names = np.array(list(terms))
    stacked = np.stack(np.broadcast_arrays(*(np.asarray(t, dtype=np.float64) for t in terms.values())))
    return stacked.max(axis=0), names[stacked.argmax(axis=0)]


def active_power_w(p: Parameters, shares: Mapping[str, npt.ArrayLike]) -> FloatArray:
    """Return the average power (W): idle power, plus each unit's share of the dynamic range times its activity.

    ``shares`` maps a unit to the fraction of the operation's time it is busy, 0 to 1; the weight of the unit is
    the parameter ``power_share.<unit>`` (the fraction of max - idle that it draws when busy all the time).
    The ``base`` share is drawn whenever anything runs. The sum is held at the device's limit.
    """
    idle, top = p("idle_power_w"), p("max_power_w")
    activity = np.asarray(p("power_share", "base"), dtype=np.float64)
    for unit, busy in shares.items():
        activity = activity + p("power_share", unit) * np.clip(np.asarray(busy, dtype=np.float64), 0.0, 1.0)
    return idle + (top - idle) * np.minimum(activity, 1.0)


def power_shares(**shares: float) -> Parameter:
    """Return the ``power_share`` table of a kind: assumed weights, each with a range of 0.5 to 1.5 times the value."""
    return Parameter(
        "power_share",
        "1",
        "fraction of (max - idle) power that a unit draws when busy all the time",
        keys=tuple(shares),
        defaults={
            unit: assumed(
                share,
                share * 0.5,
                min(1.0, share * 1.5),
                "no vendor publishes the split of power between units; chosen so that a kernel busy in compute "
                "and memory together reaches the device's limit",
            )
            for unit, share in shares.items()
        },
    )


def api_time_s(p: Parameters, rows: Rows) -> float:
    """Return the time (s) that the API adds to the device time, by the context's ``dispatch``.

    ``device``: nothing, the clock is the device's. ``graph``: the gap between two nodes of a replayed graph.
    ``eager``: a call and a wait for it, which is a whole round trip.
    """
    dispatch = rows.choices["dispatch"]
    if dispatch == "graph":
        return p.api_cost("graph_node_s")
    return p.api_cost("round_trip_s") if dispatch == "eager" else 0.0


def launched_s(p: Parameters, rows: Rows) -> FloatArray:
    """Return the time (s) of ``count`` empty commands in sequence, until the last is complete."""
    n, mode = rows.numbers["count"], rows.choices["mode"]
    if mode == "persistent":
        return n * p.api_cost("persistent_write_s") + p.api_cost("persistent_poll_s")
    return p.api_cost("round_trip_s") + (n - 1.0) * p.api_cost("dispatch_s" if mode == "stream" else "graph_node_s")


def linked_s(p: Parameters, rows: Rows, link_bytes_s: float) -> FloatArray:
    """Return the time (s) of ``bytes`` over the host's link: the API's fixed cost, then the rate of the memory."""
    memory = rows.choices["memory"]
    share = 1.0 if memory == "pinned" else p.api_cost(f"{memory}_fraction")
    return p.api_cost("copy_setup_s") + rows.numbers["bytes"] / (link_bytes_s * share)


def per_request_s(
    latency_s: npt.ArrayLike, in_flight: npt.ArrayLike, engine_s: npt.ArrayLike
) -> tuple[FloatArray, StrArray]:
    """Return the time (s) of each request while ``in_flight`` are outstanding, and its bound.

    By Little's law the rate of completions is in_flight / latency, until the engines, which together need
    ``engine_s`` per request, are always busy.
    """
    waited = np.asarray(latency_s, dtype=np.float64) / np.asarray(in_flight, dtype=np.float64)
    return limit(latency=waited, engine=engine_s)


def copy_engine(_p: Parameters, rows: Rows) -> str:
    """Return an operation's hardware engine: one for each direction of copies between host and device, ``compute``."""
    if rows.op.name == "copy" and rows.choices["direction"] != "d2d":
        return f"copy_{rows.choices['direction']}"
    return "compute"


def engines_by_op(**engines: tuple[str, ...]) -> Callable[[Parameters, Rows], str]:
    """Return a function that names an operation's hardware engine: by ``engines``, else ``compute``."""
    of = {op: name.replace("_", " ") for name, served in engines.items() for op in served}

    def engine(_p: Parameters, rows: Rows) -> str:
        return of.get(rows.op.name, "compute")

    return engine
