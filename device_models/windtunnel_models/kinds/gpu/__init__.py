"""Graphics processors: compute units behind caches, copy engines beside them, and an API in front.

A kernel takes a floor (its own launch and drain on the device), then what it does at the same time: arithmetic,
quantised in tiles and waves over the compute units, and traffic to memory or to the last-level cache. The context
adds what the host puts in front: nothing, a node of a replayed graph, or an eager launch. Waves are what makes a GPU
unlike a roofline: one tile more than the units can hold costs up to a whole further wave. Products, attention, streams,
links and power are modules of their own beside this one.

Sources of the forms: tile and wave quantisation, NVIDIA, "Matrix Multiplication Background User's Guide"; roofline,
Williams et al., CACM 52(4), 2009; split key-value decoding, Dao et al., "Flash-Decoding", 2023; ring collectives,
Patarasu and Yuan, JPDC 69(2), 2009. What was fitted, and how it does on what was left out: benchmarks/accuracy.
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Kind, Parameters, Raw
from windtunnel.core.ops import Rows
from windtunnel.core.provenance import Provenance, Sourced, assumed
from windtunnel_models.kinds._shared import EXACT, limit, service
from windtunnel_models.kinds.gpu import attention, gemm, gemm_learned
from windtunnel_models.kinds.gpu.kernel import in_context, memory_rate, traffic_s
from windtunnel_models.kinds.gpu.parameters import (
    ATTENTION_DATA,
    COLLECTIVE_DATA,
    COLLECTIVE_FITS,
    COPY_FITS,
    EAGER_DATA,
    GEMM_DATA,
    MEMBOUND_DATA,
    PARAMETERS,
    STENCIL_FITS,
    STREAM_FITS,
    fitted,
)
from windtunnel_models.kinds.gpu.power import Activity
from windtunnel_models.kinds.gpu.streaming import elementwise, fft, kernel, stencil, vector_add
from windtunnel_models.kinds.gpu.transfers import all_reduce, copy, engine, launch, send_recv


def aes(p: Parameters, rows: Rows) -> Raw:
    """AES by table look-up on data in device memory; the time of one request when ``in_flight`` share a kernel.

    Counter modes spread their blocks over the chip. CBC chains them: a request is one lane, and only requests in
    flight run side by side. Rounds: 10, 12 or 14 by key.
    """
    n, choices = rows.numbers, rows.choices
    size, flying = n["bytes"], n["in_flight"]
    rounds = {"128": 10.0, "192": 12.0, "256": 14.0}[choices["key_bits"]]
    units, clock = p("compute_units"), p("boost_clock_hz")
    unit_rate = p("aes_bytes_per_clock") * clock * 10.0 / rounds * p.api_cost("compute_efficiency")
    if choices["mode"] == "gcm":
        unit_rate /= p("ghash_factor")
    lanes = flying if choices["mode"] == "cbc" else np.ceil(flying * size / 16.0)
    # A unit hides the latency of look-ups only with its lanes full: 256 blocks of 16 bytes.
    active = np.minimum(units, np.ceil(lanes / 256.0))
    compute = flying * size / (active * unit_rate)
    if choices["mode"] == "cbc":
        compute = np.maximum(compute, np.ceil(size / 16.0) * rounds * p("aes_round_clocks") / clock)
    traffic = 2.0 * flying * size
    memory = traffic_s(p, rows, traffic, traffic, np.asarray(units))
    body, bound = limit(compute=compute, memory=memory)
    seconds = p("kernel_floor_s") + body
    peak_s = compute * p("vector_efficiency") * p.api_cost("compute_efficiency")
    activity = Activity(peak_s=peak_s, moved_bytes=memory * memory_rate(p))
    raw = in_context(p, rows, seconds, activity, np.where(body < 0.5 * seconds, "launch", bound))
    return Raw(raw.duration_s / flying, raw.power_w, raw.bound)


POWER_FITS = {"power_share": 0.3, "type_power": 0.3, "throttle_exponent": 0.3, "power_cap_share": 0.05}
"""How far (log, one standard deviation) a board's shares of power may lie from those of the one that was measured."""

_LEFT_OUT = "whole devices left out (reports/validation/published)"


def _spread(value: float, source: str) -> Sourced:
    return Sourced(value, Provenance.PUBLISHED, source)


_SAME_DIE = "no two measured devices share a die: campaigns of one device differ by up to 12%, and memory by more"

TRANSFER_ERRORS = {
    "gemm": {
        "die": assumed(1.25, 1.1, 1.5, _SAME_DIE),
        "generation": _spread(1.45, _LEFT_OUT),
        "class": _spread(1.5, _LEFT_OUT),
        "maker": assumed(
            1.75, 1.5, 2.5, "one device of another maker left out: its p90 error is 80%, a host floor included"
        ),
    },
    "attention": {
        "die": assumed(1.25, 1.1, 1.5, _SAME_DIE),
        "generation": _spread(1.5, _LEFT_OUT + ", 16-bit keys"),
        "class": assumed(1.6, 1.3, 2.0, "one step further than the generation that was left out"),
        "maker": assumed(1.8, 1.4, 2.5, "two steps further than the generation that was left out"),
    },
}
"""Factor that holds 90% of a device's measurements about what its relatives say of it."""

KIND = Kind(
    name="gpu",
    doc="compute units behind caches, copy engines beside them, an API in front",
    parameters=(*PARAMETERS, *gemm.PARAMETERS, *attention.PARAMETERS),
    costs={
        "gemm": gemm.gemm,
        "attention": attention.attention,
        "elementwise": elementwise,
        "vector_add": vector_add,
        "kernel": kernel,
        "stencil": stencil,
        "fft": fft,
        "copy": copy,
        "launch": launch,
        "all_reduce": all_reduce,
        "send_recv": send_recv,
        "aes": aes,
        "service": service,
    },
    errors={
        # Of formats that were measured on no device; the rest have a spread of their own.
        "gemm": fitted(1.6, 1.3, 2.5, GEMM_DATA + "; one set of numbers for all devices, shapes held back"),
        "attention": fitted(1.5, 1.2, 1.7, ATTENTION_DATA + "; one set of numbers for all devices, shapes held back"),
        "elementwise": fitted(1.28, 1.09, 1.51, EAGER_DATA + "; residuals of devices left out whole"),
        "stencil": fitted(1.4, 1.1, 2.0, MEMBOUND_DATA + "; spread between devices"),
        "all_reduce": fitted(1.25, 1.19, 2.0, COLLECTIVE_DATA + "; residuals of sizes left out, inside a node"),
        "send_recv": fitted(1.19, 1.04, 1.6, COLLECTIVE_DATA + "; residuals of sizes left out"),
        "vector_add": assumed(1.3, 1.1, 1.6, "a plain stream varies less than the stencils measured on many devices"),
        "kernel": assumed(1.6, 1.2, 2.5, "what a kernel's stated work leaves out: divergence, banks, occupancy"),
        "fft": assumed(1.6, 1.2, 2.5, "libraries differ in radix and passes; no measurement at hand"),
        "copy": assumed(1.25, 1.1, 1.6, "links attain 0.65 to 0.92 of their rate, by host and driver"),
        "launch": assumed(1.5, 1.2, 3.0, "launch times differ between hosts and driver versions by half"),
        "aes": assumed(2.0, 1.3, 4.0, "carried over from one published implementation on one design"),
        "service": EXACT,
    },
    engine=engine,
    fits={
        "gemm": gemm.FITS,
        "attention": attention.FITS,
        "elementwise": STREAM_FITS,
        "vector_add": STREAM_FITS,
        "fft": STREAM_FITS,
        "stencil": STENCIL_FITS,
        "copy": COPY_FITS,
        "all_reduce": COLLECTIVE_FITS,
        "send_recv": COLLECTIVE_FITS,
        "power": POWER_FITS,
    },
    own_numbers={"gemm": gemm.own_numbers, "attention": attention.own_numbers},
    coordinates={"gemm": gemm.coordinates, "attention": attention.coordinates},
    transfer_errors=TRANSFER_ERRORS,
    # Of other dies the numbers are taken and not the residual: it gained under a point where it gained at all, and
    # its dips lie where the other device's waves end.
    transfer_shares={"gemm": {"die": 1.0}, "attention": {"die": 1.0}},
    learned={"gemm": gemm_learned.learned, "attention": attention.learned},
)
