"""Operations of a GPU other than kernels: copies and launches."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import Copy, Rows
from windtunnel_models.kinds.gpu.kernel import memory_rate
from windtunnel_models.kinds.gpu.power import Activity, power_w
from windtunnel_models.kinds.gpu.streaming import streaming


def is_unified(p: Parameters) -> bool:
    """Return whether host and device share one physical memory."""
    return p("unified_memory") >= 0.5


_STAGES = 4.0
"""Exponent for two overlapping stages: equal stages take 1.2 times the time of one of them."""


def copy(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of a copy: over the link, within device memory, or by mapping if memory is shared.

    On a unified-memory device ``pinned`` and ``unified`` cost the API's mapping and move no data; ``pageable`` is a
    copy within the memory. On other devices ``pinned`` has the link's attained rate, and ``unified`` migrates at a
    fraction of it. ``pageable`` passes through the driver's own pinned buffer, which the host fills, so the slower of
    the link and of the host's copy determines the rate.
    """
    size, choices = rows.numbers["bytes"], rows.choices
    if choices["direction"] == "d2d":
        return streaming(p, rows, size / 4.0, 2.0 * size, np.zeros_like(size))
    memory = choices["memory"]
    if memory != "pageable" and not p.feature(memory):
        raise p.unsupported(f"has no {memory} memory: the API '{p.api}' does not offer it")
    setup = p.api_cost("copy_setup_s")
    if is_unified(p):
        if memory != "pageable":
            mapped = setup + 0.0 * size
            return RawCost(mapped, power_w(p, mapped, Activity()), np.full(size.shape, "launch"))
        moving, share = 2.0 * size / memory_rate(p), "memory"
        activity = Activity(moved_bytes=2.0 * size)
    else:
        rate = p("host_link_bytes_per_s") * p("host_link_efficiency")
        own = p.get("pageable_fraction", p.api) if memory == "pageable" else None
        if own is not None:
            rate *= own
        elif memory == "pageable":
            rate = float((rate**-_STAGES + p("host_copy_bytes_per_s") ** -_STAGES) ** (-1.0 / _STAGES))
        elif memory == "unified":
            rate *= p.api_cost("unified_fraction")
        moving, share = size / rate, "link"
        activity = Activity(link_s=moving)
    duration = setup + moving
    return RawCost(duration, power_w(p, duration, activity), np.where(moving < setup, "launch", share))


def _by_vendor(p: Parameters, name: str) -> float:
    """Return an overhead of the API (s): the SKU's own, or else that of its vendor's driver, or else the profile's."""
    vendor = f"{p.api}_{p.vendor.lower()}"
    if p.get(name, p.api) is None:
        overhead = p.get(f"vendor_{name}", vendor)
        if overhead is not None:
            return overhead
    return p.api_cost(name)


def launch(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of ``count`` empty kernels and one wait for the last.

    ``stream``: the host enqueues each, and the first costs the whole round trip. ``graph``: one launch of a recorded
    graph of ``count`` nodes. ``persistent``: commands are written to memory that a running kernel polls, with a wait
    for the last reply, at the power of a kernel that polls on every unit; an API without such memory does not support
    it. The operation is the API's own cost, so the dispatch context does not change it.
    """
    count, mode = rows.numbers["count"], rows.choices["mode"]
    if mode == "persistent":
        if not p.feature("persistent"):
            raise p.unsupported(f"runs no persistent kernel: the API '{p.api}' has no 'persistent'")
        duration = count * p.api_cost("persistent_write_s") + p.api_cost("persistent_poll_s")
        return RawCost(duration, np.asarray(p.spinning_w(1.0)), np.asarray("launch"))
    if mode == "graph":
        if not p.feature("graphs"):
            raise p.unsupported(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = _by_vendor(p, "round_trip_s") + (count - 1.0) * p.api_cost("graph_node_s")
    else:
        # Enqueuing is a part of a round trip, even if two measurement campaigns differ.
        once = _by_vendor(p, "round_trip_s")
        interval_s = max(min(_by_vendor(p, "dispatch_s"), once), p("kernel_floor_s"))
        duration = once + (count - 1.0) * interval_s
    return RawCost(duration, power_w(p, duration, Activity()), np.asarray("launch"))


def engine(p: Parameters, rows: Rows) -> str:
    """Return the hardware engine: copies use copy engines beside kernels; a single one serves both directions."""
    direction = rows.choices.get("direction")
    engines = p("copy_engines")
    if rows.op is not Copy or direction == "d2d" or direction is None or engines < 1 or is_unified(p):
        return "compute"
    return "copy_h2d" if direction == "h2d" or engines < 2 else "copy_d2h"
