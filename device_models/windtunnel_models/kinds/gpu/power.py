"""Board power of a GPU from its activity, and the effect of the power cap on a long loop.

The demand is linear in an active board, in compute units that have work, FLOP/s over the peak of the units used, and
bytes/s over the specified memory and link bandwidth. Each has a share of the range from idle to the limit. Units with
work draw most of what a kernel draws, whatever they wait for: a product whose tiles fill the chip draws three quarters
of the limit at any duration and any bandwidth, and one of a single tile hardly more than a board without work. The
board keeps its average slightly below the limit, so the demand meets a soft cap. A loop with a demand above the cap
runs at a lower clock and voltage. Its time grows as a power of demand over cap, less than in proportion, because the
energy of an operation falls with the voltage. Between kernels the board draws what an active board draws without work.

The shares were fitted to board power of B200 GEMMs in sustained loops (benchmarks/accuracy/power.py, decision 0047).
They are transferred relative to the datasheet's limit. Their error on other devices is unknown, since one device was
measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Parameters
from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Gemm, Rows, arithmetic

_SHARPNESS = 12.0
"""Exponent of the soft cap: at a demand equal to the cap the power is 6% lower, at 0.8 of the cap 0.6%."""

POWER_TILE = 128.0
"""Rows and columns of the tiles of products whose number over that of the units says how much of a chip has work.

Products with a small ``n`` draw less than those with a large one of the same bytes and time, also where the library
divides their long reduction over all units.
"""

_LONG_K = 65536.0
"""Reduction length from which a meter shows less power for 16-bit GEMMs at one rate (see ``long_k_settle_s``)."""


@dataclass(frozen=True)
class Activity:
    """The activity of an operation, independent of its duration.

    ``peak_s``: useful FLOPs over the datasheet peak of the units used (s). ``moved_bytes``: to and from device memory.
    ``link_s``: time a link would be busy at its attained rate. ``units``: ``vector``, or the number format of a GEMM on
    matrix units. ``filled``: tiles or blocks over compute units; infinite if the whole chip has work for sure, 0 if no
    kernel runs. ``settle_s``: duration from which a meter shows all power of compute and memory; of a shorter kernel
    it shows a share that grows with the square root of the duration.
    """

    peak_s: FloatArray | float = 0.0
    moved_bytes: FloatArray | float = 0.0
    link_s: FloatArray | float = 0.0
    units: str = "vector"
    filled: FloatArray | float = 0.0
    settle_s: FloatArray | float = 0.0


def datasheet_peak(p: Parameters, dtype: str) -> tuple[float, str]:
    """Return the peak (FLOP/s) of the units that GEMM in ``dtype`` uses through this API, and their name."""
    key = "fp8" if dtype == "fp8_block" else dtype
    rate = p.get("matrix_flops_per_s", key) if p.feature("matrix") else None
    if rate is not None:
        return rate, dtype
    return max(p("vector_flops_per_s", "float32"), p.get("vector_flops_per_s", key) or 0.0), "vector"


def tiles_over_units(
    p: Parameters, rows: FloatArray, columns: FloatArray, batch: FloatArray | float = 1.0
) -> FloatArray:
    """Return tiles of products with ``rows`` x ``columns`` results over the compute units, parts of columns as such."""
    return np.asarray(batch * np.ceil(rows / POWER_TILE) * columns / POWER_TILE / p("compute_units"))


def activity_of(p: Parameters, rows: Rows, filled: FloatArray | float) -> Activity:
    """Return the activity of GEMM or attention: its useful FLOPs, and each operand moved once."""
    dtype = arithmetic(rows.choices["dtype"])
    peak, units = datasheet_peak(p, dtype)
    n = rows.numbers
    settle_s: FloatArray | float = 0.0
    if rows.op is Gemm and BYTES_PER_ELEMENT[dtype] == 2.0:
        settle_s = np.where(n["k"] >= _LONG_K, p("long_k_settle_s"), 0.0)
    flops, moved = rows.op.flops(rows.choices, n), rows.op.operand_bytes(rows.choices, n)
    return Activity(flops / peak, moved, units=units, filled=filled, settle_s=settle_s)


def demand_w(
    p: Parameters,
    duration_s: FloatArray,
    activity: Activity,
    *,
    working: FloatArray | float = 1.0,
    metered: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the power (W) that the board would draw without a cap.

    ``working``: the share of the duration in which the kernel runs. ``metered``: factor on compute and memory.
    """
    idle = p("idle_power_w")
    design = p.get("design_power_w") or p("max_power_w")
    memory = activity.moved_bytes / p("memory_bandwidth_bytes_per_s") / duration_s
    link = np.minimum(activity.link_s / duration_s, 1.0)
    filled = np.asarray(activity.filled, dtype=np.float64)
    occupied = np.where(filled > 0.0, 1.0 / (1.0 + p("power_half_filled") / np.maximum(filled, 1e-300)), 0.0)
    share = p("power_share", "base") + p("power_share", "busy") * occupied * working
    compute = p("power_share", "compute") * p("type_power", activity.units) * activity.peak_s / duration_s
    share = share + metered * (compute + p("power_share", "memory") * memory) + p("power_share", "link") * link
    return np.asarray(idle + (design - idle) * share)


def sustained_s(p: Parameters, burst_s: FloatArray, activity: Activity) -> FloatArray:
    """Return the time (s) of a kernel in a long loop, which exceeds ``burst_s`` if its demand exceeds the power cap.

    The time is a smooth form of ``burst_s * max(1, demand / cap) ** throttle_exponent``.
    """
    over = demand_w(p, burst_s, activity) / (p("power_cap_share") * p("max_power_w"))
    # A smooth form of max(1, over), which cannot overflow.
    high = np.maximum(over, 1.0)
    soft = high * (high**-_SHARPNESS + (over / high) ** _SHARPNESS) ** (1.0 / _SHARPNESS)
    return np.asarray(burst_s * soft ** p("throttle_exponent"))


def power_w(p: Parameters, duration_s: FloatArray, activity: Activity, working: FloatArray | float = 1.0) -> FloatArray:
    """Return the average board power (W) over ``duration_s``: demand under the soft cap, at least idle power.

    ``working`` is the share of the duration in which the kernel runs; in the rest the board draws the power of an
    active board without work, as it does between the kernels of a loop.
    """
    settled = duration_s / np.maximum(duration_s, activity.settle_s)
    demand = demand_w(p, duration_s, activity, working=working, metered=np.sqrt(settled))
    cap = p("power_cap_share") * p("max_power_w")
    drawn = cap * (1.0 + (cap / demand) ** _SHARPNESS) ** (-1.0 / _SHARPNESS)
    return np.asarray(np.maximum(drawn, p("idle_power_w")))
