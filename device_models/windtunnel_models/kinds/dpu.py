"""A data processing unit: a network port at line rate, a packet pipeline, offload engines, and Arm cores.

Forwarding is bound by whichever comes first: the pipeline's packets a second, or the wire, on which every
Ethernet frame carries 20 bytes more (8 of preamble, 12 of gap). Engines serve crypto and compression with
requests in flight, as on a QAT device; what has no engine runs on the Arm cores, slowly, and says so (``arm``).
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Kind, Parameter, Parameters, Raw, StrArray
from windtunnel.core.ops import FloatArray, Rows
from windtunnel.core.provenance import Provenance, Sourced, assumed
from windtunnel_models.kinds._shared import (
    COMMON,
    EXACT,
    active_power_w,
    api_time_s,
    engines_by_op,
    launched_s,
    limit,
    linked_s,
    per_request_s,
    power_shares,
    service,
)

FRAMING_BYTES = 20.0
"""Preamble and start (8 bytes) and the least gap (12) that Ethernet puts around each frame: IEEE 802.3."""

_CODECS = tuple(f"{way}_{codec}" for way in ("compress", "decompress") for codec in ("deflate", "lz4"))
BULK = ("aes_gcm", "aes_ctr", "aes_cbc", *_CODECS)
SCHEMES = ("rsa2048", "ecdsa_p256")
_ARM = "one Arm Cortex-A72/A78 core in software; not published for these cards"
_C_ENGINE = (
    "Li et al., IEEE Micro 44(2) 2024: BlueField's engine is up to 26.8 times a core's speed; the engine's 5.5 Gbit/s "
    "is takashimakazuki/dpdk_compression's"
)

_PARAMETERS = (
    *COMMON,
    Parameter("line_rate_bytes_s", "B/s", "network port, each way", required=True),
    Parameter("packet_rate", "/s", "packets a second that the pipeline forwards at most", required=True),
    Parameter(
        "packet_latency_s",
        "s",
        "a packet from one port to the other through the pipeline",
        default=assumed(1e-6, 0.5e-6, 5e-6, "cut-through adapters take about a microsecond; not published"),
    ),
    Parameter("memory_bytes", "B", "memory of the Arm complex", required=True),
    Parameter("memory_bytes_s", "B/s", "peak rate of that memory", required=True),
    Parameter(
        "memory_efficiency", "1", "attained fraction of it", default=assumed(0.75, 0.5, 0.9, "as DDR systems attain")
    ),
    Parameter("arm_cores", "1", "Arm cores, which set up and control what the engines do", required=True),
    Parameter(
        "arm_bytes_s",
        "B/s",
        "one Arm core doing an engine's work",
        keys=BULK,
        defaults={
            **{f"aes_{mode}": assumed(1.5e9, 0.8e9, 3e9, f"{_ARM}; with AES instructions") for mode in ("gcm", "ctr")},
            "aes_cbc": assumed(0.8e9, 0.4e9, 1.2e9, f"{_ARM}; with AES instructions, one block after another"),
            "compress_deflate": Sourced(5.5e9 / 8 / 26.8, Provenance.PUBLISHED, _C_ENGINE, 15e6, 80e6),
            "compress_lz4": assumed(0.3e9, 0.15e9, 0.5e9, _ARM),
            "decompress_deflate": assumed(0.2e9, 0.1e9, 0.35e9, _ARM),
            "decompress_lz4": assumed(1.2e9, 0.6e9, 2.5e9, _ARM),
        },
    ),
    Parameter(
        "arm_sign_rate",
        "/s",
        "signatures a second of one Arm core",
        keys=SCHEMES,
        defaults={
            "rsa2048": assumed(300, 150, 700, _ARM),
            "ecdsa_p256": assumed(12000, 5000, 25000, _ARM),
        },
    ),
    Parameter("engine_bytes_s", "B/s", "an offload engine, large requests", keys=BULK),
    Parameter("engine_sign_rate", "/s", "signatures a second of the public-key engine", keys=SCHEMES),
    Parameter(
        "engine_latency_s",
        "s",
        "a small request to an engine, submitted and noticed",
        default=assumed(15e-6, 5e-6, 60e-6, "work queue, engine and completion over the on-chip bus; not published"),
    ),
    Parameter(
        "engine_requests",
        "1",
        "requests that an engine works on at once",
        default=assumed(8, 2, 32, "not published; several contexts hide each other's memory accesses"),
    ),
    Parameter(
        "rdma_latency_s",
        "s",
        "a small RDMA write, posted to completed, through one switch",
        default=assumed(
            2e-6, 1.2e-6, 5e-6, "what adapters of this generation are known for; not read in a source here"
        ),
    ),
    Parameter(
        "message_rate",
        "/s",
        "RDMA messages a second at most",
        default=assumed(
            100e6, 30e6, 215e6, "vendors claim 200 M/s over many queue pairs; one application drives fewer"
        ),
    ),
    Parameter(
        "transport_efficiency",
        "1",
        "payload over wire bytes of RDMA in 4 KiB packets",
        default=Sourced(
            4096.0 / (4096.0 + 78.0),
            Provenance.DATASHEET,
            "RoCEv2: Ethernet 18 with its check, preamble and gap 20, IPv4 20, UDP 8, BTH 12 bytes a packet",
        ),
    ),
    Parameter("host_link_bytes_s", "B/s", "PCIe to the host, each way", required=True),
    power_shares(base=0.3, network=0.3, engines=0.2, arm=0.3, memory=0.1),
)


def _packets(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    wire_s = n["count"] * (n["bytes"] + FRAMING_BYTES) / p("line_rate_bytes_s")
    pipeline_s = n["count"] / p("packet_rate")
    busy, bound = limit(packets=pipeline_s, link=wire_s)
    extra_s = api_time_s(p, rows)
    duration = busy + p("packet_latency_s") + extra_s
    bound = np.where(busy < p("packet_latency_s") + extra_s, "latency", bound)
    return Raw(duration, active_power_w(p, {"network": busy / duration}), bound)


def _rdma(p: Parameters, rows: Rows) -> Raw:
    n = rows.numbers
    wire_s = n["count"] * n["bytes"] / (p("line_rate_bytes_s") * p("transport_efficiency"))
    bus_s = n["count"] * n["bytes"] / p("host_link_bytes_s")
    busy, bound = limit(messages=n["count"] / p("message_rate"), link=wire_s, host_link=bus_s)
    extra_s = api_time_s(p, rows)
    latency = p("rdma_latency_s")
    duration = latency + busy + extra_s
    return Raw(
        duration,
        active_power_w(p, {"network": busy / duration}),
        np.where(busy < latency + extra_s, "latency", bound),
    )


def _bulk(p: Parameters, rows: Rows, kind: str) -> Raw:
    """An engine where there is one, else the Arm cores: one core a request in flight."""
    n = rows.numbers
    rate = p.maybe("engine_bytes_s", kind)
    if rate is None:
        cores = np.minimum(n["in_flight"], p("arm_cores"))
        each = n["bytes"] / (p("arm_bytes_s", kind) * cores)
        memory_s = 2.0 * n["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
        each, bound = limit(arm=each, memory=memory_s)
        return _served(p, rows, each, bound, {"arm": cores / p("arm_cores"), "memory": memory_s / each})
    engine_s = n["bytes"] / rate
    each, bound = per_request_s(
        p("engine_latency_s") + engine_s, np.minimum(n["in_flight"], p("engine_requests")), engine_s
    )
    return _served(p, rows, each, bound, {"engines": engine_s / each})


def _served(p: Parameters, rows: Rows, each: FloatArray, bound: StrArray, shares: dict[str, FloatArray]) -> Raw:
    extra = api_time_s(p, rows) / rows.numbers["in_flight"]
    duration = each + extra
    scaled = {unit: share * each / duration for unit, share in shares.items()}
    return Raw(duration, active_power_w(p, scaled), np.where(extra > each, "launch", bound))


def _aes(p: Parameters, rows: Rows) -> Raw:
    return _bulk(p, rows, f"aes_{rows.choices['mode']}")


def _codec(p: Parameters, rows: Rows) -> Raw:
    codec = rows.choices["codec"]
    if codec == "zstd":
        raise p.refuse(f"does not {rows.op.name} zstd: no engine and no library on the card", expected="deflate or lz4")
    return _bulk(p, rows, f"{rows.op.name}_{codec}")


def _sign(p: Parameters, rows: Rows) -> Raw:
    scheme, n = rows.choices["scheme"], rows.numbers
    rate = p.maybe("engine_sign_rate", scheme)
    if rate is None:
        cores = np.minimum(n["in_flight"], p("arm_cores"))
        each = n["count"] / (p("arm_sign_rate", scheme) * cores)
        return _served(p, rows, each, np.asarray("arm"), {"arm": cores / p("arm_cores")})
    engine_s = 1.0 / rate
    in_flight = np.minimum(n["in_flight"], p("engine_requests"))
    # The engine holds several signatures at once, each of which takes that many times its reciprocal rate.
    latency = p("engine_latency_s") + p("engine_requests") * engine_s
    each, bound = per_request_s(latency, in_flight, engine_s)
    return _served(p, rows, n["count"] * each, bound, {"engines": engine_s / each})


def _copy(p: Parameters, rows: Rows) -> Raw:
    if rows.choices["direction"] == "d2d":
        memory_s = 2.0 * rows.numbers["bytes"] / (p("memory_bytes_s") * p("memory_efficiency"))
        return Raw(p.api_cost("copy_setup_s") + memory_s, active_power_w(p, {"memory": 1.0}), np.asarray("memory"))
    if rows.choices["memory"] == "unified":
        raise p.refuse("shares no memory with its host", expected="memory=pinned or memory=pageable")
    return Raw(linked_s(p, rows, p("host_link_bytes_s")), active_power_w(p, {"memory": 0.3}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> Raw:
    """An empty task given to the Arm cores' work queue."""
    return Raw(launched_s(p, rows), active_power_w(p, {"arm": 1.0 / p("arm_cores")}), np.asarray("launch"))


_UNMEASURED = "no measurement of these cards here; published ones of one generation differ by this"

KIND = Kind(
    name="dpu",
    doc="a network port, a packet pipeline, offload engines, Arm cores",
    parameters=_PARAMETERS,
    costs={
        "packets": _packets,
        "rdma": _rdma,
        "aes": _aes,
        "compress": _codec,
        "decompress": _codec,
        "sign": _sign,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    errors={
        "packets": assumed(1.3, 1.1, 2.0, _UNMEASURED),
        "rdma": assumed(1.5, 1.2, 3.0, _UNMEASURED),
        "aes": assumed(1.8, 1.3, 3.0, _UNMEASURED),
        "compress": assumed(2.0, 1.4, 3.5, f"{_UNMEASURED}; and the data compressed matters"),
        "decompress": assumed(2.0, 1.4, 3.5, f"{_UNMEASURED}; and the data compressed matters"),
        "sign": assumed(1.8, 1.3, 3.0, _UNMEASURED),
        "copy": assumed(1.4, 1.1, 2.0, "the bus of another host"),
        "launch": assumed(2.0, 1.4, 4.0, _UNMEASURED),
        "service": EXACT,
    },
    fits={
        "packets": {"packet_rate": 0.3, "packet_latency_s": 0.6},
        "rdma": {"rdma_latency_s": 0.4, "message_rate": 0.5},
        "aes": {"engine_bytes_s": 0.5, "engine_latency_s": 0.6, "arm_bytes_s": 0.4},
        "compress": {"engine_bytes_s": 0.5, "engine_latency_s": 0.6, "arm_bytes_s": 0.4},
        "decompress": {"engine_bytes_s": 0.5, "engine_latency_s": 0.6, "arm_bytes_s": 0.4},
        "sign": {"engine_sign_rate": 0.6, "engine_latency_s": 0.6, "arm_sign_rate": 0.4},
    },
    engine=engines_by_op(
        network=("packets", "rdma"), crypto=("aes", "sign"), compression=("compress", "decompress"), dma=("copy",)
    ),
)
