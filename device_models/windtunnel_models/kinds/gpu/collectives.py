"""Operations between GPUs: the formula of their time inside a node and of what crosses between nodes.

Inside a node, measurements replace the formula where there are some (``collective_curves``). Between nodes the formula
is all there is. Both parts are added: the network moves far fewer bytes a second than the links of a node, so a
pipeline of both saves little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import FloatArray, Rows
from windtunnel_models.kinds.gpu.kernel import in_context
from windtunnel_models.kinds.gpu.power import Activity
from windtunnel_models.kinds.gpu.transfers import is_unified

_PROTOCOLS = ("ll", "ll128", "simple")
"""The protocols of NCCL and RCCL: words of 8 bytes with a flag, lines of 128 bytes with a flag, or whole chunks."""

_AS_TREE = ("all_reduce", "all_gather", "reduce_scatter")
"""The operations that a tree can do."""

_WIDE_NODE = 4.0
"""The number of workers of a node from which their rings use more than one port."""


def volume(op: str, workers: FloatArray) -> FloatArray:
    """Return the bytes that each worker sends over its link, for each byte of its largest buffer.

    A ring of w workers moves (w-1)/w of the buffer, and an all-reduce does so twice (Patarasu and Yuan, 2009). In an
    all-to-all, 1/w of the buffer stays.
    """
    share = (workers - 1.0) / workers
    if op == "send_recv":
        return np.where(workers > 1.0, 1.0, 0.0)
    return 2.0 * share if op == "all_reduce" else share


def _ring_steps(op: str, workers: FloatArray) -> FloatArray:
    """Return the steps of a ring, or the one step of messages to all others at once."""
    if op in ("all_to_all", "send_recv"):
        return np.ones_like(workers)
    return (2.0 if op == "all_reduce" else 1.0) * (workers - 1.0)


def link_rate(p: Parameters) -> float | None:
    """Return the nominal rate (B/s) between the workers of a node: the link between devices, or else the host's bus.

    A device that shares its memory with the host has no neighbour.
    """
    nominal = p.get("scale_up_bytes_per_s")
    if nominal is not None:
        return nominal
    return None if is_unified(p) else p("host_link_bytes_per_s")


def _inside_rate(p: Parameters, op: str, workers: FloatArray) -> FloatArray:
    """Return the attained rate (B/s) between the workers of a node.

    More than two that share the host's bus attain what its bridges and sockets leave to a ring.
    """
    rate = link_rate(p)
    if rate is None:
        return np.full_like(workers, np.inf)
    if p.get("scale_up_bytes_per_s") is not None:
        return np.full_like(workers, rate * p("scale_up_efficiency", op))
    rate *= p("host_link_efficiency")
    return np.where(workers > 2.0, rate * p("host_ring_share"), rate) if np.any(workers > 2.0) else rate + 0.0 * workers


def group_of(p: Parameters, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """Return the workers in each node, and the number of nodes."""
    n = rows.numbers
    local = np.minimum(n["workers"], 1.0 if link_rate(p) is None else n["devices_per_node"])
    return local, np.ceil(n["workers"] / local)


def _protocols(p: Parameters, steps: FloatArray, moving_s: FloatArray, suffix: str = "") -> FloatArray:
    """Return the best protocol's time (s) for ``steps`` and ``moving_s`` at the link's rate.

    Flags cost a share of the rate and save synchronisation. ``simple`` moves chunks from step to step: with the best
    chunk size, filling the pipeline and dividing the data cost ``(sqrt(latency) + sqrt(moving))^2`` together.
    """
    best = np.full(np.broadcast_shapes(steps.shape, moving_s.shape), np.inf)
    for protocol in _PROTOCOLS:
        latency = steps * p("collective_step_s", protocol + suffix)
        if protocol == "simple":
            took = (np.sqrt(latency) + np.sqrt(moving_s)) ** 2
        else:
            took = latency + moving_s / p("protocol_share", protocol)
        best = np.minimum(best, took)
    return best


def inside_s(p: Parameters, op: str, implementation: str, workers: FloatArray, size: FloatArray) -> FloatArray:
    """Return the time (s) between ``workers`` of one node with ``size`` bytes, by the formula.

    All-reduce is the faster of a ring with 2 (w-1) steps and a tree with 2 log2 w steps and twice the bytes. Gather and
    scatter are rings of w-1 steps or an all-reduce of a buffer with zeros; the others are one step. An engine's own
    kernels either read the buffers of all others at once, or a share of them in each of two steps; above the size at
    which the vendor's library is faster they leave it to that, and always for more than two workers without a link
    between devices, as vLLM does.
    """
    moving = size / _inside_rate(p, op, workers)
    through = moving * volume(op, workers)
    launch = p("collective_launch_s", op)
    took = _protocols(p, _ring_steps(op, workers), through)
    if op in _AS_TREE:
        took = np.minimum(took, _protocols(p, 2.0 * np.ceil(np.log2(workers)), 2.0 * moving))
    seconds = launch + took
    if implementation != "nccl":
        in_two_steps = p("collective_step_s", "ll") + through
        took = p("collective_launch_s", "engine") + np.minimum(moving * (workers - 1.0), in_two_steps)
        linked = p.get("scale_up_bytes_per_s") is not None
        seconds = np.where(linked | (workers <= 2.0), np.minimum(seconds, took), seconds)
    return p("kernel_floor_s") + np.where(workers > 1.0, seconds, 0.0)


def _network_s(p: Parameters, op: str, local: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
    """Return the time (s) that crossing between nodes adds; 0 on one node.

    Rings leave a node by several ports if it has enough workers. In an all-to-all, all workers of a node send what is
    meant for other nodes through its ports.
    """
    if np.all(nodes <= 1.0):
        return np.zeros(np.broadcast_shapes(nodes.shape, size.shape))
    wide = (local >= _WIDE_NODE) & (op != "send_recv")
    port = p("scale_out_bytes_per_s") * p("scale_out_efficiency", op)
    rate = port * np.where(wide, p("scale_out_ports"), 1.0)
    workers = local * nodes
    if op == "all_to_all":
        moving = size * local * (workers - local) / workers / rate
    else:
        moving = volume(op, workers) * size / rate
    # A ring of n nodes crosses n times, not n-1.
    took = _protocols(p, _ring_steps(op, nodes + 1.0), moving, "_out")
    if op in _AS_TREE:
        took = np.minimum(took, _protocols(p, 2.0 * np.ceil(np.log2(nodes)), 2.0 * size / rate, "_out"))
    return np.where(nodes > 1.0, took, 0.0)


@dataclass(frozen=True)
class Split:
    """The formula's time (s) of collectives: inside a node of ``local`` workers, and between nodes."""

    local: FloatArray
    inside: FloatArray
    network: FloatArray


def formula(p: Parameters, rows: Rows) -> Split:
    """Return the time of every row by the formula."""
    op, size = rows.op.name, rows.numbers["bytes"]
    local, nodes = group_of(p, rows)
    # A message between two nodes has no part inside one, except its launch.
    within = np.where(nodes > 1.0, 1.0, local) if op == "send_recv" else local
    inside = inside_s(p, op, rows.choices["implementation"], within, size)
    alone = (within <= 1.0) & (nodes > 1.0)
    if np.any(alone):
        inside = inside + np.where(alone, p("collective_launch_s", op), 0.0)
    return Split(within, inside, _network_s(p, op, local, nodes, size))


def collective(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of an operation between workers; one worker needs neither launch nor data."""
    split = formula(p, rows)
    seconds = split.inside + split.network
    size, op = rows.numbers["bytes"], rows.op.name
    moving = volume(op, split.local) * size / _inside_rate(p, op, split.local)
    moving = np.where(split.network > 0.0, split.network, moving)
    bound = np.where(moving > 0.5 * seconds, "link", "launch")
    return in_context(p, rows, seconds, Activity(link_s=np.minimum(moving, seconds)), bound)


def coordinates(p: Parameters, rows: Rows) -> FloatArray:
    """Return the position of rows for a residual (n x 4): share of data in the time, bytes, workers, workers of a node.

    A device differs from its relatives by one factor on latency and another one on data, and both change with the
    number of workers. So the share of data by the formula is the first coordinate.
    """
    whole = formula(p, rows)
    least = formula(p, replace(rows, numbers={**rows.numbers, "bytes": np.ones_like(rows.numbers["bytes"])}))
    data = 1.0 - (least.inside + least.network) / (whole.inside + whole.network)
    n = rows.numbers
    parts = [
        2.0 * data,
        np.log2(n["bytes"]) / 9.0,
        2.0 * np.log2(n["workers"]),
        np.log2(n["devices_per_node"]) / 3.0,
    ]
    return np.stack([np.broadcast_to(part, rows.shape) for part in parts], 1)
