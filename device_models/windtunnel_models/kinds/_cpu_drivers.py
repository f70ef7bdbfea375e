"""Processors behind software drivers of GPU APIs (PoCL, Mesa's lavapipe): the cycles of plain kernels and of a launch.

Such a driver executes a kernel's threads as loops over vectors. It uses no library, and no wide product of 8-bit
numbers, and its efficiency depends on the instructions of the kernel. So times are cycles for each unit of work,
divided among the cores; memory is the same as without a driver. The kernels are those that `windtunnel validate`
measures.
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Parameters
from windtunnel.core.ops import FloatArray, Rows, Stencil

DRIVERS = ("opencl", "vulkan", "wgpu")
"""APIs that reach a processor through a software driver."""
TILE = 64
"""Side of a GEMM tile. Elements beyond the matrix are computed too."""
_OF_DTYPE = {"float16": "half", "bfloat16": "brain", "int8": "byte"}
_FUNCTIONS = {"gelu": "function", "tanh": "function", "pow": "power", "powu": "power"}


def driven_s(p: Parameters, rows: Rows, cores: float, clock_hz: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the seconds of arithmetic and of launches of an operation by plain kernels; None if not measured."""

    def cycles(work: str) -> float:
        return p("driver_cycles", f"{p.api}_{work}")

    n, name = rows.numbers, rows.op.name
    plain = _OF_DTYPE.get(rows.choices.get("dtype", ""), "arithmetic")
    launches: FloatArray = np.ones(())
    if name == "vector_add":
        spent = cycles(plain) * n["n"]
    elif name == "gemm":
        tiles = np.ceil(n["m"] / TILE) * np.ceil(n["n"] / TILE) * TILE**2
        spent = cycles("product") * tiles * n["k"] * n["batch"]
    elif name == "stencil":
        cell = np.where(n["nz"] > 1, cycles("space_cell"), cycles("plane_cell"))
        spent = cell * Stencil.cells(n)
    elif name == "fft":
        launches = np.ceil(np.log2(np.maximum(n["n"], 2.0)))
        spent = cycles("butterfly") * 0.5 * n["n"] * n["batch"] * launches
    elif name == "elementwise":
        elements, op = n["rows"] * n["width"], rows.choices["op"]
        if op in ("softmax", "ln"):
            element_cycles = cycles("exponential" if op == "softmax" else "norm")
            spent = element_cycles * elements + cycles("row") * n["rows"]
        else:
            spent = cycles(_FUNCTIONS.get(op, plain)) * elements
    else:
        return None
    return spent / (cores * clock_hz), launches * p("driver_launch_s", p.api)
