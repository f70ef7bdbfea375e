"""A data processing unit: a network port at line rate, a packet pipeline, offload engines, and Arm cores.

The pipeline's packets per second limit forwarding, or the wire, on which every Ethernet frame has 20 additional bytes
(8 of preamble, 12 of gap). Engines serve crypto and compression with several requests in flight, as on a QAT device.
Operations without an engine run on the Arm cores, which are slower (bound ``arm``).
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, RawCost, StrArray
from windtunnel.core.ops import FloatArray, Rows
from windtunnel_models.kinds._shared import (
    active_power_w,
    api_time_s,
    engines_by_op,
    launched_s,
    limit,
    linked_s,
    per_request_s,
    service,
)
from windtunnel_models.kinds._tables import read_kind

FRAMING_BYTES = 20.0
"""Preamble and start (8 bytes) and the minimum gap (12) around each Ethernet frame: IEEE 802.3."""


def _packets(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    wire_s = n["count"] * (n["bytes"] + FRAMING_BYTES) / p("line_rate_bytes_s")
    pipeline_s = n["count"] / p("packet_rate")
    busy, bound = limit(packets=pipeline_s, link=wire_s)
    extra_s = api_time_s(p, rows)
    duration = busy + p("packet_latency_s") + extra_s
    bound = np.where(busy < p("packet_latency_s") + extra_s, "latency", bound)
    return RawCost(duration, active_power_w(p, {"network": busy / duration}), bound)


def _rdma(p: Parameters, rows: Rows) -> RawCost:
    n = rows.numbers
    wire_s = n["count"] * n["bytes"] / (p("line_rate_bytes_s") * p("transport_efficiency"))
    bus_s = n["count"] * n["bytes"] / p("host_link_bytes_s")
    busy, bound = limit(messages=n["count"] / p("message_rate"), link=wire_s, host_link=bus_s)
    extra_s = api_time_s(p, rows)
    latency = p("rdma_latency_s")
    duration = latency + busy + extra_s
    return RawCost(
        duration, active_power_w(p, {"network": busy / duration}), np.where(busy < latency + extra_s, "latency", bound)
    )


def _storage(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of requests to the emulated NVMe controller, which the card serves from a remote volume.

    A request is fetched and completed over the host's bus, and carried as RDMA over the network. Reads and writes have
    the same cost: their data cross the same links in opposite directions.
    """
    n = rows.numbers
    wire_s = n["bytes"] / (p("line_rate_bytes_s") * p("transport_efficiency"))
    bus_s = n["bytes"] / p("host_link_bytes_s")
    each_s, unit = limit(requests=1.0 / p("storage_request_rate"), link=wire_s, host_link=bus_s)
    alone_s = p("storage_latency_s") + p("rdma_latency_s") + wire_s + bus_s
    request_s, bound = per_request_s(alone_s, n["in_flight"], each_s)
    extra_s = api_time_s(p, rows)
    # Fewer requests than may be outstanding take at least the time of one.
    duration = np.maximum(n["count"] * request_s, alone_s) + extra_s
    bound = np.where((bound == "latency") | (n["count"] * request_s < alone_s), "latency", unit)
    busy = {"network": n["count"] * wire_s / duration, "arm": n["count"] * each_s / duration}
    return RawCost(duration, active_power_w(p, busy), bound)


def _bulk(p: Parameters, rows: Rows, kind: str) -> RawCost:
    """Return the cost on an engine if there is one, else on the Arm cores, with one core per request in flight."""
    n = rows.numbers
    rate = p.get("engine_bytes_s", kind)
    if rate is None:
        cores = np.minimum(n["in_flight"], p("arm_cores"))
        request_s = n["bytes"] / (p("arm_bytes_s", kind) * cores)
        memory_s = 2.0 * n["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
        request_s, bound = limit(arm=request_s, memory=memory_s)
        return _served(p, rows, request_s, bound, {"arm": cores / p("arm_cores"), "memory": memory_s / request_s})
    engine_s = n["bytes"] / rate
    request_s, bound = per_request_s(
        p("engine_latency_s") + engine_s, np.minimum(n["in_flight"], p("engine_requests")), engine_s
    )
    return _served(p, rows, request_s, bound, {"engines": engine_s / request_s})


def _served(p: Parameters, rows: Rows, alone_s: FloatArray, bound: StrArray, use: dict[str, FloatArray]) -> RawCost:
    extra = api_time_s(p, rows) / rows.numbers["in_flight"]
    duration = alone_s + extra
    scaled = {unit: share * alone_s / duration for unit, share in use.items()}
    return RawCost(duration, active_power_w(p, scaled), np.where(extra > alone_s, "launch", bound))


def _aes(p: Parameters, rows: Rows) -> RawCost:
    return _bulk(p, rows, f"aes_{rows.choices['mode']}")


def _codec(p: Parameters, rows: Rows) -> RawCost:
    codec = rows.choices["codec"]
    if codec == "zstd":
        raise p.unsupported(
            f"does not {rows.op.name} zstd: no engine and no library on the card", expected="deflate or lz4"
        )
    return _bulk(p, rows, f"{rows.op.name}_{codec}")


def _sign(p: Parameters, rows: Rows) -> RawCost:
    scheme, n = rows.choices["scheme"], rows.numbers
    rate = p.get("engine_sign_rate", scheme)
    if rate is None:
        cores = np.minimum(n["in_flight"], p("arm_cores"))
        request_s = n["count"] / (p("arm_sign_rate", scheme) * cores)
        return _served(p, rows, request_s, np.asarray("arm"), {"arm": cores / p("arm_cores")})
    engine_s = 1.0 / rate
    in_flight = np.minimum(n["in_flight"], p("engine_requests"))
    # The engine holds several signatures at once, so each takes that many times its reciprocal rate.
    latency = p("engine_latency_s") + p("engine_requests") * engine_s
    request_s, bound = per_request_s(latency, in_flight, engine_s)
    return _served(p, rows, n["count"] * request_s, bound, {"engines": engine_s / request_s})


def _copy(p: Parameters, rows: Rows) -> RawCost:
    if rows.choices["direction"] == "d2d":
        memory_s = 2.0 * rows.numbers["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
        return RawCost(p.api_cost("copy_setup_s") + memory_s, active_power_w(p, {"memory": 1.0}), np.asarray("memory"))
    if rows.choices["memory"] == "unified":
        raise p.unsupported("shares no memory with its host", expected="memory=pinned or memory=pageable")
    return RawCost(linked_s(p, rows, p("host_link_bytes_s")), active_power_w(p, {"memory": 0.3}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of an empty task in the Arm cores' work queue."""
    return RawCost(launched_s(p, rows), active_power_w(p, {"arm": 1.0 / p("arm_cores")}), np.asarray("launch"))


KIND = read_kind(
    "dpu",
    costs={
        "packets": _packets,
        "rdma": _rdma,
        "storage": _storage,
        "aes": _aes,
        "compress": _codec,
        "decompress": _codec,
        "sign": _sign,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    engine=engines_by_op(
        network=("packets", "rdma", "storage"),
        crypto=("aes", "sign"),
        compression=("compress", "decompress"),
        dma=("copy",),
    ),
)
