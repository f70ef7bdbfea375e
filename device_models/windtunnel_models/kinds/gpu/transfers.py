"""Operations of a GPU other than kernels: copies, launches and collectives."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import Copy, FloatArray, Rows
from windtunnel_models.kinds.gpu.kernel import in_context, memory_rate
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


_PROTOCOLS = ("ll", "ll128", "simple")
"""The protocols of NCCL and RCCL: words of 8 bytes with a flag, lines of 128 bytes with a flag, or whole chunks."""

_WIDE_NODE = 4.0
"""The number of workers of a node from which their rings use more than one port."""


def _inside_rate(p: Parameters, op: str) -> tuple[float | None, bool]:
    """Return the attained rate (B/s) between the workers of a node, and whether each device is a separate node.

    It is that of the link between devices, or of the host's bus if there is none. A device that shares its memory with
    the host has no neighbour.
    """
    nominal = p.get("scale_up_bytes_per_s")
    if nominal is not None:
        return nominal * p("scale_up_efficiency", op), False
    if is_unified(p):
        return None, True
    return p("host_link_bytes_per_s") * p("host_link_efficiency"), False


def _group(p: Parameters, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Return the workers per node, and the number of nodes."""
    n = rows.numbers
    alone = _inside_rate(p, rows.op.name)[1]
    local = np.minimum(n["workers"], 1.0 if alone else n["devices_per_node"])
    return local, np.ceil(n["workers"] / local)


def _rate(p: Parameters, rows: Rows, local: FloatArray, nodes: FloatArray) -> FloatArray:
    """Return the attained rate (B/s) of the slowest link between the workers: the network if they span nodes."""
    inside = _inside_rate(p, rows.op.name)[0]
    if inside is not None and np.all(nodes <= 1.0):
        return np.asarray(inside)
    port = p("scale_out_bytes_per_s") * p("scale_out_efficiency", rows.op.name)
    outside = port * np.where(local >= _WIDE_NODE, p("scale_out_ports"), 1.0)
    if inside is None:
        return np.asarray(outside)
    return np.where(nodes > 1.0, np.minimum(outside, inside), inside)


def _protocols(p: Parameters, inside: FloatArray, outside: FloatArray, moving_s: FloatArray) -> FloatArray:
    """Return the best protocol's time (s) for ``inside`` and ``outside`` steps and ``moving_s`` at the link's rate.

    Flags cost a share of the rate and save synchronisation. ``simple`` moves chunks from step to step: with the best
    chunk size, filling the pipeline and dividing the data cost ``(sqrt(latency) + sqrt(moving))^2`` together.
    """
    best = np.full(np.broadcast_shapes(inside.shape, outside.shape, moving_s.shape), np.inf)
    for protocol in _PROTOCOLS:
        steps = inside * p("collective_step_s", protocol)
        if np.any(outside > 0.0):
            steps = steps + outside * p("collective_step_s", f"{protocol}_out")
        if protocol == "simple":
            took = (np.sqrt(steps) + np.sqrt(moving_s)) ** 2
        else:
            took = steps + moving_s / p("protocol_share", protocol)
        best = np.minimum(best, took)
    return best


def all_reduce(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of the faster of a ring and a tree, each in its best protocol.

    Ring: 2 (w-1) steps and 2 (w-1)/w of the bytes; tree: 2 log2 w steps and twice the bytes. Steps between nodes cost
    the network's latency.
    """
    workers, size = rows.numbers["workers"], rows.numbers["bytes"]
    local, nodes = _group(p, rows)
    rate = _rate(p, rows, local, nodes)
    crossing = np.where(nodes > 1.0, nodes, 0.0)
    ring = _protocols(p, 2.0 * (workers - nodes), 2.0 * crossing, 2.0 * (workers - 1.0) / workers * size / rate)
    hops = np.ceil(np.log2(local))
    tree = _protocols(p, 2.0 * hops, 2.0 * np.ceil(np.log2(nodes)), 2.0 * size / rate)
    return _collective(p, rows, np.where(workers > 1.0, np.minimum(ring, tree), 0.0), size / rate)


def send_recv(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of one step over the link, in its best protocol."""
    size = rows.numbers["bytes"]
    local, nodes = _group(p, rows)
    rate = _rate(p, rows, local, nodes)
    away = np.where(nodes > 1.0, 1.0, 0.0)
    return _collective(p, rows, _protocols(p, 1.0 - away, away, size / rate), size / rate)


def _collective(p: Parameters, rows: Rows, took_s: FloatArray, moving_s: FloatArray) -> RawCost:
    """Return the cost of ``took_s`` for steps and data after the launch on all workers; one worker needs neither."""
    meeting = np.where(rows.numbers["workers"] > 1.0, p("collective_launch_s", rows.op.name), 0.0)
    seconds = p("kernel_floor_s") + meeting + took_s
    bound = np.where(moving_s > 0.5 * seconds, "link", "launch")
    return in_context(p, rows, seconds, Activity(link_s=np.minimum(moving_s, took_s)), bound)


def engine(p: Parameters, rows: Rows) -> str:
    """Return the hardware engine: copies use copy engines beside kernels; a single one serves both directions."""
    direction = rows.choices.get("direction")
    engines = p("copy_engines")
    if rows.op is not Copy or direction == "d2d" or direction is None or engines < 1 or is_unified(p):
        return "compute"
    return "copy_h2d" if direction == "h2d" or engines < 2 else "copy_d2h"
