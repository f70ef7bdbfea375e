"""What every GPU kernel shares: attained rates, traffic, and a kernel in its context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.core.device import Parameters, Raw
from windtunnel.core.ops import FloatArray, Rows
from windtunnel_models.kinds._shared import active_power_w, limit

_TYPE_FEATURES = {
    "tf32": "matrix",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "fp4",
    "int8": "int8",
}


def need_type(p: Parameters, dtype: str) -> None:
    """Refuses a number format that the API cannot express."""
    feature = _TYPE_FEATURES.get(dtype)
    if feature is not None and not p.feature(feature):
        raise p.refuse(f"does not run {dtype}: the API '{p.api}' has no '{feature}'")


def vector_rate(p: Parameters, dtype: str) -> float:
    """Attained vector FLOP/s in a type; 16-bit floats are at least as fast as float32 (converted on load)."""
    base = p("vector_flops_per_s", "float32")
    own = p.maybe("vector_flops_per_s", dtype) if dtype != "float32" else base
    return max(base, own or 0.0) * p("vector_efficiency") * p.api_cost("compute_efficiency")


def product_rate(p: Parameters, dtype: str, efficiency: str) -> float:
    """Attained FLOP/s of matrix products in a type: the matrix units where the API reaches them, else the vector units.

    Refuses a type for which the silicon has neither (its file gives no rate), naming it.
    """
    need_type(p, dtype)
    key = "fp8" if dtype == "fp8_block" else dtype
    if p.feature("matrix"):
        rate = p.maybe("matrix_flops_per_s", key)
        if rate is not None:
            blocks = p("block_scale_efficiency") if dtype in ("fp8_block", "nvfp4") else 1.0
            return rate * p(efficiency) * blocks
    if p.maybe("vector_flops_per_s", key) is None:
        raise p.refuse(
            f"does not run products in {dtype} through {p.api}: neither matrix nor vector units that the API reaches "
            "have a stated rate in it"
        )
    return vector_rate(p, key)


def memory_rate(p: Parameters) -> float:
    """Attained memory bandwidth (B/s)."""
    return p("memory_bandwidth_bytes_per_s") * p("memory_efficiency")


def unit_l2_rate_of(p: Parameters) -> float:
    """What one compute unit draws from the last-level cache (B/s)."""
    return p("l2_bytes_per_clock") * p("boost_clock_hz")


def traffic_s(p: Parameters, rows: Rows, traffic: FloatArray, footprint: FloatArray, blocks: FloatArray) -> FloatArray:
    """Time of ``traffic`` (bytes): from the cache where the context is warm and ``footprint`` fits, else from memory.

    Few ``blocks`` leave units idle, and each unit draws no more than its path to the cache carries.
    """
    units = p("compute_units")
    supply = np.minimum(blocks, units) * unit_l2_rate_of(p)
    limit_per_s: FloatArray | float = memory_rate(p)
    if rows.choices["cache"] == "warm":
        limit_per_s = np.where(footprint <= p("l2_bytes"), np.inf, limit_per_s)
    return traffic / np.minimum(supply, limit_per_s)


@dataclass(frozen=True)
class Work:
    """What a kernel does side by side (seconds at full clock), and after it (``tail_s``, serial).

    ``useful_s``: what the arithmetic alone would take on all units; less than ``compute_s`` where units wait for a last
    wave, for operands or have no tile at all, and draw accordingly less. ``compute_s`` unless given.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    tail_s: FloatArray | float = 0.0
    useful_s: FloatArray | None = None


def kernel(p: Parameters, rows: Rows, work: Work) -> Raw:
    """One kernel in its context: floor, then the longest of arithmetic and traffic, then the tail.

    ``dispatch``: ``device`` is the kernel alone; ``graph`` adds the gap to the next node of a replayed graph; in
    ``eager`` the host issues one operation after another, so an operation takes the longer of its kernel and of the
    host's part (the API's dispatch and the framework around it).

    ``clock``: in a ``sustained`` loop whose demand exceeds the board's limit the clock of the compute units falls
    until the demand meets it, with their dynamic power going as clock to ``power_clock_exponent``; traffic keeps
    its rate. A burst is over before the board reacts.
    """
    floor = p("kernel_floor_s")
    compute = np.asarray(work.compute_s, dtype=np.float64)
    memory = np.asarray(work.memory_s, dtype=np.float64)
    busy = compute if work.useful_s is None else np.minimum(work.useful_s, compute)
    activity = np.ones(())
    if rows.choices["clock"] == "sustained":
        whole = floor + np.maximum(compute, memory) + work.tail_s
        calm = p("power_share", "base") + p("power_share", "memory") * memory / whole
        hot = p("power_share", "compute") * busy / whole
        room = np.maximum(1.0 - calm, 0.1)
        clock = np.where(hot > room, room / np.maximum(hot, 1e-300), 1.0) ** (1.0 / p("power_clock_exponent"))
        compute, busy = compute / clock, busy / clock
        activity = clock ** p("power_clock_exponent")
    body, bound = limit(compute=compute, memory=memory)
    kernel = floor + body + work.tail_s
    duration = kernel
    dispatch = rows.choices["dispatch"]
    if dispatch == "graph":
        if not p.feature("graphs"):
            raise p.refuse(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = kernel + p.api_cost("graph_node_s")
    elif dispatch == "eager":
        duration = np.maximum(kernel, p.api_cost("dispatch_s") + p("framework_dispatch_s"))
    power = active_power_w(p, {"compute": busy / duration * activity, "memory": memory / duration})
    return Raw(duration, power, np.where(body < 0.5 * duration, "launch", bound))
