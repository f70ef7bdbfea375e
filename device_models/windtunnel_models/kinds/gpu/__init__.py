"""Graphics processors: compute units behind caches, copy engines beside them, and an API in front.

A kernel takes a floor (its launch and drain on the device) and then the longer of two overlapping parts: arithmetic,
quantised in tiles and waves over the compute units, and traffic to memory or to the last-level cache. The context
adds the host's part: nothing, a graph node, or an eager launch. Waves distinguish a GPU from a roofline: one tile more
than the units can hold costs up to a whole further wave. GEMM, attention, experts and latent attention, memory-bound
kernels, links and power have modules of their own here.

Sources of the forms: tile and wave quantisation, NVIDIA, "Matrix Multiplication Background User's Guide"; roofline,
Williams et al., CACM 52(4), 2009; split key-value decoding, Dao et al., "Flash-Decoding", 2023; ring collectives,
Patarasu and Yuan, JPDC 69(2), 2009. benchmarks/accuracy documents the fits and their cross-validation errors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from windtunnel.core.device import Parameters, RawCost
from windtunnel.core.ops import Rows
from windtunnel.core.serving_ops import COLLECTIVES
from windtunnel_models.kinds._shared import limit, service
from windtunnel_models.kinds._tables import read_kind
from windtunnel_models.kinds.gpu import attention, collective_curves, collectives, gemm, gemm_learned, serving
from windtunnel_models.kinds.gpu.kernel import in_context, memory_rate, traffic_s
from windtunnel_models.kinds.gpu.power import Activity
from windtunnel_models.kinds.gpu.streaming import elementwise, fft, kernel, stencil, vector_add
from windtunnel_models.kinds.gpu.transfers import copy, engine, launch


def aes(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of AES by table look-up in device memory, for one of the ``in_flight`` requests of a kernel.

    Counter modes distribute their blocks over the chip. In CBC the blocks of a request are a chain, so it occupies one
    lane, and only requests in flight run in parallel. There are 10, 12 or 14 rounds, depending on the key.
    """
    n, choices = rows.numbers, rows.choices
    size, flying = n["bytes"], n["in_flight"]
    rounds = {"128": 10.0, "192": 12.0, "256": 14.0}[choices["key_bits"]]
    units, clock = p("compute_units"), p("boost_clock_hz")
    unit_rate = p("aes_bytes_per_clock") * clock * 10.0 / rounds * p.api_cost("compute_efficiency")
    if choices["mode"] == "gcm":
        unit_rate /= p("ghash_factor")
    lanes = flying if choices["mode"] == "cbc" else np.ceil(flying * size / 16.0)
    # A unit hides the latency of look-ups only if its lanes are full: 256 blocks of 16 bytes.
    active = np.minimum(units, np.ceil(lanes / 256.0))
    compute = flying * size / (active * unit_rate)
    if choices["mode"] == "cbc":
        compute = np.maximum(compute, np.ceil(size / 16.0) * rounds * p("aes_round_clocks") / clock)
    traffic = 2.0 * flying * size
    memory = traffic_s(p, rows, traffic, traffic, np.asarray(units))
    body, bound = limit(compute=compute, memory=memory)
    seconds = p("kernel_floor_s") + body
    peak_s = compute * p("vector_efficiency") * p.api_cost("compute_efficiency")
    activity = Activity(peak_s=peak_s, moved_bytes=memory * memory_rate(p), filled=active / units)
    raw = in_context(p, rows, seconds, activity, np.where(body < 0.5 * seconds, "launch", bound))
    return RawCost(raw.duration_s / flying, raw.power_w, raw.bound)


KIND = replace(
    read_kind(
        "gpu",
        costs={
            "gemm": gemm.gemm,
            "attention": attention.attention,
            "moe": serving.moe,
            "latent_attention": serving.latent_attention,
            "elementwise": elementwise,
            "vector_add": vector_add,
            "kernel": kernel,
            "stencil": stencil,
            "fft": fft,
            "copy": copy,
            "launch": launch,
            **dict.fromkeys(COLLECTIVES, collectives.collective),
            "aes": aes,
            "service": service,
        },
        engine=engine,
        parameters=(*gemm.PARAMETERS, *attention.PARAMETERS, *serving.PARAMETERS),
        fits={"gemm": gemm.FITS, "attention": attention.FITS},
    ),
    own_numbers={"gemm": gemm.own_numbers, "attention": attention.own_numbers},
    coordinates={
        "gemm": gemm.coordinates,
        "attention": attention.coordinates,
        **dict.fromkeys(COLLECTIVES, collectives.coordinates),
    },
    learned={
        "gemm": gemm_learned.LearnedGemm,
        "attention": attention.LearnedAttention,
        "moe": serving.LearnedExperts,
        "latent_attention": serving.LearnedLatent,
        **dict.fromkeys(collective_curves.MEASURED, collective_curves.LearnedCollective),
    },
    applies=dict.fromkeys(collective_curves.MEASURED, collective_curves.same_sort_of_link),
    carried=gemm.carried,
)
