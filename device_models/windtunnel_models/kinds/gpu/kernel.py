"""Common parts of all GPU kernels: attained rates, traffic, and the context of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windtunnel.core.device import Parameters, RawCost, StrArray
from windtunnel.core.errors import list_choices
from windtunnel.core.ops import BYTES_PER_ELEMENT, FloatArray, Rows
from windtunnel_models.kinds.gpu.power import Activity, power_w, sustained_s

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
    """Raise UnsupportedOperationError for a number format that the API does not support."""
    feature = _TYPE_FEATURES.get(dtype)
    if feature is not None and not p.feature(feature):
        raise p.unsupported(f"does not run {dtype}: the API '{p.api}' has no '{feature}'")


def datasheet_format(dtype: str) -> str:
    """Return the format under which datasheets state the rate of ``dtype``; scales of blocks do not change it."""
    return "fp8" if dtype == "fp8_block" else dtype


def need_product_type(p: Parameters, dtype: str, formats: Sequence[str]) -> None:
    """Raise UnsupportedOperationError for a format in which matrix multiplications have no known rate.

    The error names those of ``formats`` that have one. The nearest of them is of the same kind, floating-point or
    integer, where there is one, and the narrowest at least as wide.
    """

    def runs(other: str) -> bool:
        feature, sheet = _TYPE_FEATURES.get(other), datasheet_format(other)
        matrix = p.feature("matrix") and p.get("matrix_flops_per_s", sheet) is not None
        known = matrix or p.get("vector_flops_per_s", sheet) is not None
        return known and (feature is None or p.feature(feature))

    def distance(other: str) -> tuple[bool, bool, float]:
        size, own = BYTES_PER_ELEMENT[other], BYTES_PER_ELEMENT[dtype]
        return other.startswith("int") != dtype.startswith("int"), size < own, abs(size - own)

    if runs(dtype):
        return
    known = [other for other in formats if runs(other)]
    raise p.unsupported(
        f"does not run matrix multiplications in {dtype} through {p.api}, in which no unit has a known rate",
        expected=list_choices(known) if known else None,
        nearest=min(known, key=distance) if known else None,
    )


def vector_rate(p: Parameters, dtype: str) -> float:
    """Return the attained vector FLOP/s in a format; 16-bit floats are at least as fast as float32."""
    base = p("vector_flops_per_s", "float32")
    own = p.get("vector_flops_per_s", dtype) if dtype != "float32" else base
    return max(base, own or 0.0) * p("vector_efficiency") * p.api_cost("compute_efficiency")


def memory_rate(p: Parameters) -> float:
    """Return the attained memory bandwidth (B/s)."""
    return p("memory_bandwidth_bytes_per_s") * p("memory_efficiency")


def unit_l2_rate_of(p: Parameters) -> float:
    """Return the rate of one compute unit from the last-level cache (B/s)."""
    return p("l2_bytes_per_clock") * p("boost_clock_hz")


CACHE_KEEPS = (0.6, 0.95)
"""Operands below the first share of the last-level cache stay in it between runs; above the second share none do.

From element-wise rows of A100 (sitar-lab/NeuSight@6945927), which repeat on the same arrays: at 0.75 of the cache the
time without the launch is 0.64 of that from memory, at 0.83 it is 0.85, and from 0.93 on it is that from memory.
"""

FRAMEWORK_APIS = ("cuda", "hip")
"""APIs through which the host time of an eager framework was measured."""


def missing_share(p: Parameters, footprint: FloatArray) -> FloatArray:
    """Return the share of ``footprint`` (bytes) that is evicted from the last-level cache between runs, 0 to 1."""
    low, high = CACHE_KEEPS
    return np.clip((footprint / p("l2_bytes") - low) / (high - low), 0.0, 1.0)


def traffic_s(
    p: Parameters,
    rows: Rows,
    traffic: FloatArray,
    footprint: FloatArray,
    blocks: FloatArray,
    *,
    rate: float | None = None,
    warm: bool | None = None,
) -> FloatArray:
    """Return the time (s) of ``traffic`` (bytes): from the cache if warm and ``footprint`` fits, else from memory.

    With few ``blocks`` units are idle, and the path of each unit to the cache limits its rate. ``rate``: attained
    memory bandwidth (B/s) if it is not that of GEMM; ``warm``: replaces the context's ``cache``.
    """
    units = p("compute_units")
    supply = np.minimum(blocks, units) * unit_l2_rate_of(p)
    limit_per_s: FloatArray | float = memory_rate(p) if rate is None else rate
    if rows.choices["cache"] == "warm" if warm is None else warm:
        missing = missing_share(p, footprint)
        limit_per_s = np.where(missing > 0.0, limit_per_s / np.maximum(missing, 1e-12), np.inf)
    return traffic / np.minimum(supply, limit_per_s)


def eager_s(p: Parameters, busy_s: FloatArray, framework_factor: float = 1.0) -> FloatArray:
    """Return the time (s) of a kernel of ``busy_s`` (s) between events that an eager framework records around it.

    The host needs a time for each operation: the API's dispatch, and the framework's own part, which depends on the
    operation (``framework_factor``: relative to an operation on two tensors). The kernel starts after a share of this
    time (``eager_share``), because the event before it is recorded first. So a short kernel takes the host's time, and
    a long one that share more than on the device. Both belong to the host and the framework, not to the device.
    """
    api = p.api if p.api in FRAMEWORK_APIS else "other"
    host = p.api_cost("dispatch_s") + p("framework_dispatch_s", api) * framework_factor
    return np.maximum(busy_s + p("eager_share") * host, host)


def in_context(
    p: Parameters,
    rows: Rows,
    device_s: FloatArray,
    activity: Activity,
    bound: StrArray | str,
    *,
    settled: bool = False,
    spread: FloatArray | None = None,
    framework_factor: float = 1.0,
) -> RawCost:
    """Return the cost of a kernel of ``device_s`` (s, at boost) in the context of its rows.

    ``clock``: ``sustained`` loops slow down at the power cap (see ``sustained_s``); a burst ends before the board
    reacts. ``dispatch``: ``device`` is the kernel alone; ``graph`` adds the gap to the next node of a replayed graph;
    ``eager`` adds the host time of a framework that issues and times one operation after another (``eager_s``, for
    which ``framework_factor`` is the factor of the operation). ``settled``: ``device_s`` is already that of a sustained
    loop. ``spread``: see ``RawCost``.
    """
    busy = np.asarray(device_s, dtype=np.float64)
    named = np.asarray(bound)
    if rows.choices["clock"] == "sustained" and not settled:
        slowed = sustained_s(p, busy, activity)
        named = np.where(slowed > 1.02 * busy, "power", named)
        busy = slowed
    duration = busy
    dispatch = rows.choices["dispatch"]
    if dispatch == "graph":
        if not p.feature("graphs"):
            raise p.unsupported(f"does not replay graphs: the API '{p.api}' has no 'graphs'")
        duration = busy + p.api_cost("graph_node_s")
    elif dispatch == "eager":
        duration = eager_s(p, busy, framework_factor)
    named = np.where(busy < 0.5 * duration, "launch", named)
    return RawCost(duration, power_w(p, duration, activity, busy / duration), named, spread)
