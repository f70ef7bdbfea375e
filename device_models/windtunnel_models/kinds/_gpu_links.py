"""What a GPU does beside kernels: copies, launches and collectives."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, Raw
from windtunnel.core.ops import Copy, FloatArray, Rows
from windtunnel_models.kinds._gpu_kernel import in_context, memory_rate
from windtunnel_models.kinds._gpu_power import Activity, power_w
from windtunnel_models.kinds._gpu_streaming import streaming


def is_unified(p: Parameters) -> bool:
    return p("unified_memory") >= 0.5


def copy(p: Parameters, rows: Rows) -> Raw:
    """Between host and device over the link, within the device through memory, or by mapping where memory is shared.

    On a unified-memory device ``pinned`` and ``unified`` cost what the API charges for a mapping and move nothing;
    ``pageable`` is a copy within the one memory. Elsewhere the link's attained rate carries ``pinned``, and
    ``pageable`` and ``unified`` run at the API's fraction of it.
    """
    size, choices = rows.numbers["bytes"], rows.choices
    if choices["direction"] == "d2d":
        return streaming(p, rows, size / 4.0, 2.0 * size, np.zeros_like(size))
    memory = choices["memory"]
    if memory != "pageable" and not p.feature(memory):
        raise p.refuse(f"has no {memory} memory: the API '{p.api}' does not offer it")
    setup = p.api_cost("copy_setup_s")
    if is_unified(p):
        if memory != "pageable":
            mapped = setup + 0.0 * size
            return Raw(mapped, power_w(p, mapped, Activity()), np.full(size.shape, "launch"))
        moving, share = 2.0 * size / memory_rate(p), "memory"
        activity = Activity(moved_bytes=2.0 * size)
    else:
        rate = p("host_link_bytes_per_s") * p("host_link_efficiency")
        if memory != "pinned":
            rate *= p.api_cost(f"{memory}_fraction")
        moving, share = size / rate, "link"
        activity = Activity(link_s=moving)
    duration = setup + moving
    return Raw(duration, power_w(p, duration, activity), np.where(moving < setup, "launch", share))


def launch(p: Parameters, rows: Rows) -> Raw:
    """``count`` empty kernels and one wait for the last.

    ``stream``: each is enqueued by the host, the first costs the whole round trip. ``graph``: one launch of a recorded
    graph of ``count`` nodes. ``persistent``: commands written to memory that a running kernel polls, one answer
    awaited; refused by an API that cannot share such memory with a running kernel. The operation is the API's own
    cost, so the dispatch context does not change it.
    """
    count, mode = rows.numbers["count"], rows.choices["mode"]
    if mode == "persistent":
        if not p.feature("persistent"):
            raise p.refuse(f"runs no persistent kernel: the API '{p.api}' has no 'persistent'")
        duration = count * p.api_cost("persistent_write_s") + p.api_cost("persistent_poll_s")
    elif mode == "graph":
        if not p.feature("graphs"):
            raise p.refuse(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = p.api_cost("round_trip_s") + (count - 1.0) * p.api_cost("graph_node_s")
    else:
        each = max(p.api_cost("dispatch_s"), p("kernel_floor_s"))
        duration = p.api_cost("round_trip_s") + (count - 1.0) * each
    return Raw(duration, power_w(p, duration, Activity()), np.asarray("launch"))


def _links(p: Parameters, rows: Rows) -> FloatArray:
    """Attained rate (B/s) of the slowest link between the workers.

    Inside a node: the link between devices, or the host's bus where there is none. The network once workers span
    nodes; a device that shares its memory with the host is a node of its own.
    """
    n = rows.numbers
    nominal = p.maybe("scale_up_bytes_per_s")
    alone = nominal is None and is_unified(p)
    outside = n["workers"] > (1.0 if alone else n["devices_per_node"])
    if np.all(outside):
        return np.asarray(p("scale_out_bytes_per_s"))
    if nominal is not None:
        inside = nominal * p("scale_up_efficiency", rows.op.name)
    elif alone:
        inside = memory_rate(p)
    else:
        inside = p("host_link_bytes_per_s") * p("host_link_efficiency")
    return np.where(outside, p("scale_out_bytes_per_s"), inside) if np.any(outside) else np.asarray(inside)


def all_reduce(p: Parameters, rows: Rows) -> Raw:
    """The better of a ring (2 (w-1) steps, 2 (w-1)/w of the bytes) and a tree (2 log2 w steps, twice the bytes)."""
    n = rows.numbers
    workers, size, rate, step = n["workers"], n["bytes"], _links(p, rows), p("collective_step_s", rows.op.name)
    ring_s, tree_s = 2.0 * (workers - 1.0) * step, 2.0 * np.ceil(np.log2(workers)) * step
    ring, tree = 2.0 * (workers - 1.0) / workers * size / rate, 2.0 * size / rate
    shorter = ring_s + ring <= tree_s + tree
    return _collective(
        p, rows, np.where(shorter, ring_s, tree_s), np.where(workers > 1, np.where(shorter, ring, tree), 0.0)
    )


def send_recv(p: Parameters, rows: Rows) -> Raw:
    """One step over the link."""
    return _collective(
        p, rows, np.asarray(p("collective_step_s", rows.op.name)), rows.numbers["bytes"] / _links(p, rows)
    )


def _collective(p: Parameters, rows: Rows, steps_s: FloatArray, moving_s: FloatArray) -> Raw:
    seconds = p("kernel_floor_s") + steps_s + moving_s
    bound = np.where(moving_s > 0.5 * seconds, "link", "launch")
    return in_context(p, rows, seconds, Activity(link_s=moving_s), bound)


def engine(p: Parameters, rows: Rows) -> str:
    """Copies between host and device run on copy engines, beside kernels; one engine serves both directions."""
    direction = rows.choices.get("direction")
    engines = p("copy_engines")
    if rows.op is not Copy or direction == "d2d" or direction is None or engines < 1 or is_unified(p):
        return "compute"
    return "copy_h2d" if direction == "h2d" or engines < 2 else "copy_d2h"
