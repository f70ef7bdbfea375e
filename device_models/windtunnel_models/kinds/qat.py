"""An Intel QuickAssist device: engines behind queue pairs, whose rate depends on the requests in flight.

A single request takes its whole latency; many requests keep the engines busy. By Little's law the rate is
``min(in_flight / latency, engines' rate)``, also limited by the queue pairs in use: one process uses one pair, and
needs another for more than one pair can carry. A duration is the reciprocal of that rate: the device time of one
request while ``in_flight`` requests are outstanding.
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


def _bulk(p: Parameters, rows: Rows, kind: str, size: FloatArray, slower: FloatArray) -> RawCost:
    """Return the cost of one request of ``size`` bytes while ``in_flight`` of them are outstanding."""
    rate = p.get("bulk_bytes_s", kind)
    if rate is None:
        raise p.unsupported(f"does not run {kind.replace('_', ' ')}: its generation has no engine for it")
    rate_of_size = rate / slower
    in_flight = rows.numbers["in_flight"]
    segment = np.minimum(size, p("segment_bytes"))
    segments = np.ceil(size / p("segment_bytes"))
    depth = p("queue_pair_depth")
    # A long request fills a queue pair with its own segments. The queue pairs limit the segments of all requests.
    outstanding = np.minimum(in_flight * np.minimum(segments, depth), p("queue_pairs") * depth)
    latency = p("request_latency_s", "bulk") + segment * p("engines") / rate_of_size
    request_s, bound = per_request_s(segments * latency, outstanding, size / rate_of_size)
    link_s = size / p("host_link_bytes_s")
    return _answer(p, rows, request_s, bound, link_s=link_s, engine_s=size / rate_of_size)


def _answer(
    p: Parameters, rows: Rows, request_s: FloatArray, bound: StrArray, *, link_s: FloatArray, engine_s: FloatArray
) -> RawCost:
    # The calls of requests in flight overlap, as the engines' latencies do.
    extra = api_time_s(p, rows) / rows.numbers["in_flight"]
    duration = np.maximum(request_s, link_s) + extra
    named = np.where(link_s > request_s, "link", bound)
    power = active_power_w(p, {"engines": engine_s / duration, "link": link_s / duration})
    return RawCost(duration, power, np.where(extra > np.maximum(request_s, link_s), "launch", named))


def _aes(p: Parameters, rows: Rows) -> RawCost:
    # Rated speeds are given without a key length, because the engines' pipelines hide the rounds.
    return _bulk(p, rows, f"aes_{rows.choices['mode']}", rows.numbers["bytes"], np.ones(()))


def _codec(p: Parameters, rows: Rows) -> RawCost:
    levels = (rows.numbers["level"] - 1.0) if rows.op.name == "compress" else np.zeros(())
    slower = 1.0 + p("level_slowdown") * levels
    return _bulk(p, rows, f"{rows.op.name}_{rows.choices['codec']}", rows.numbers["bytes"], slower)


def _sign(p: Parameters, rows: Rows) -> RawCost:
    scheme, n = rows.choices["scheme"], rows.numbers
    depth = p("queue_pair_depth")
    in_flight = np.minimum(n["in_flight"], p("queue_pairs") * depth)
    pair_rate = p.get("queue_pair_sign_rate", scheme)
    engine_s = 1.0 / p("sign_rate", scheme)
    request_s, bound = per_request_s(p("request_latency_s", scheme), in_flight, engine_s)
    if pair_rate is not None:
        pairs = np.ceil(in_flight / depth)
        request_s, index = limit(same=request_s, queue_pair=1.0 / (pairs * pair_rate))
        bound = np.where(index == "same", bound, index)
    total = n["count"] * request_s
    return _answer(p, rows, total, bound, link_s=np.zeros(()), engine_s=n["count"] * engine_s)


def _copy(p: Parameters, rows: Rows) -> RawCost:
    if rows.choices["direction"] == "d2d" or rows.choices["memory"] == "unified":
        raise p.unsupported("has no memory of its own: it works on the host's", expected="direction=h2d or d2h, pinned")
    return RawCost(linked_s(p, rows, p("host_link_bytes_s")), active_power_w(p, {"link": 1.0}), np.asarray("link"))


def _launch(p: Parameters, rows: Rows) -> RawCost:
    return RawCost(launched_s(p, rows), active_power_w(p, {}), np.asarray("launch"))


KIND = read_kind(
    "qat",
    costs={
        "aes": _aes,
        "compress": _codec,
        "decompress": _codec,
        "sign": _sign,
        "copy": _copy,
        "launch": _launch,
        "service": service,
    },
    engine=engines_by_op(cipher=("aes",), compression=("compress", "decompress"), public_key=("sign",), dma=("copy",)),
)
