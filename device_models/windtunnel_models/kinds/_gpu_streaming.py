"""Kernels that pass over arrays on a GPU: element by element, sums of neighbours, transforms."""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters, Raw
from windtunnel.core.ops import BYTES_PER_ELEMENT, Elementwise, Fft, FloatArray, Rows, Stencil, VectorAdd
from windtunnel_models.kinds._gpu_kernel import Work, kernel, need_type, traffic_s, vector_rate

_BLOCK_ELEMENTS = 4096
"""Elements one block of a streaming kernel handles: 256 threads with four 4-element loads each."""

_FFT_POINTS_ON_CHIP = 4096
"""Points of one complex float32 pass that fit in a unit's shared memory (32 KiB)."""

_ARITHMETIC = {
    "add": (1.0, 0.0),
    "mul": (1.0, 0.0),
    "relu": (1.0, 0.0),
    "div": (8.0, 1.0),
    "pow": (24.0, 2.0),
    "tanh": (10.0, 2.0),
    "gelu": (16.0, 1.0),
    "softmax": (6.0, 1.0),
    "ln": (8.0, 0.0),
}
"""Vector and special-function instructions an element, counted from the usual polynomial forms."""


def streaming(p: Parameters, rows: Rows, elements: FloatArray, traffic: FloatArray, arithmetic_s: FloatArray) -> Raw:
    """A kernel that passes over arrays: arithmetic beside traffic, in blocks of 4,096 elements."""
    blocks = np.ceil(elements / _BLOCK_ELEMENTS)
    return kernel(p, rows, Work(arithmetic_s, traffic_s(p, rows, traffic, rows.footprint_bytes(), blocks)))


def elementwise(p: Parameters, rows: Rows) -> Raw:
    """One pass over the operands; softmax and layer norm read their rows ``row_reads`` times."""
    n, op = rows.numbers, rows.choices["op"]
    need_type(p, rows.choices["dtype"])
    elements = n["rows"] * n["width"]
    traffic = Elementwise.operand_bytes(rows.choices, n)
    if op in ("softmax", "ln"):
        traffic = traffic * (p("row_reads") + 1.0) / 2.0
    plain, special = _ARITHMETIC[op if op in _ARITHMETIC else op.removesuffix("u")]
    arithmetic = elements * 2.0 * plain / vector_rate(p, "float32")
    if special:
        arithmetic = arithmetic + elements * special / (
            p("special_ops_per_clock") * p("boost_clock_hz") * p("compute_units")
        )
    return streaming(p, rows, elements, traffic, arithmetic)


def vector_add(p: Parameters, rows: Rows) -> Raw:
    """Two reads and a write an element; one addition."""
    need_type(p, rows.choices["dtype"])
    elements = rows.numbers["n"]
    traffic = VectorAdd.operand_bytes(rows.choices, rows.numbers)
    return streaming(p, rows, elements, traffic, 2.0 * elements / vector_rate(p, "float32"))


def stencil(p: Parameters, rows: Rows) -> Raw:
    """One sweep: a read and a write a cell while three planes fit in the cache, two reads more where they do not."""
    n = rows.numbers
    need_type(p, rows.choices["dtype"])
    cells = Stencil.cells(n)
    size = BYTES_PER_ELEMENT[rows.choices["dtype"]]
    layers = np.where(n["nz"] > 1, 3.0 * n["nx"] * n["ny"], 3.0 * n["nx"]) * size
    traffic = Stencil.operand_bytes(rows.choices, n) * np.where(layers > p("l2_bytes"), 2.0, 1.0)
    return streaming(p, rows, cells, traffic, 8.0 * cells / vector_rate(p, "float32"))


def fft(p: Parameters, rows: Rows) -> Raw:
    """As many passes over memory as it takes with 4,096 points of a transform on chip at a time (four-step method)."""
    n = rows.numbers
    need_type(p, rows.choices["dtype"])
    passes = np.ceil(np.log2(np.maximum(n["n"], 2.0)) / np.log2(_FFT_POINTS_ON_CHIP))
    traffic = Fft.operand_bytes(rows.choices, n) * passes
    # Butterflies use additions and multiplications apart, so half of the fused peak is what they can reach.
    arithmetic = Fft.flops(n) / (0.5 * vector_rate(p, "float32"))
    return streaming(p, rows, n["n"] * n["batch"], traffic, arithmetic)
