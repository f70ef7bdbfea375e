"""Processors behind drivers for GPUs (PoCL, Mesa's lavapipe): what plain kernels cost in cycles there, and a launch.

Such a driver runs a kernel's threads as loops over vectors, which it does well or badly by what is in them; nothing
of a library is in it, and no wide product of 8-bit numbers. So times are cycles for each unit of work, divided among
the cores, beside the same memory as ever. Kernels are those that `windtunnel validate` measures with.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windtunnel.core.device import Parameter, Parameters
from windtunnel.core.ops import FloatArray, Rows, Stencil
from windtunnel.core.provenance import Provenance, Sourced

DRIVERS = ("opencl", "vulkan", "wgpu")
"""APIs that reach a processor through a software driver."""
TILE = 64
"""Side of a product's tile: what is beyond the matrix is worked out all the same."""
_SOURCE = (
    "measured on the project's host (two virtual Zen cores at 2.6 GHz; PoCL 3.0, Mesa 22.3.6), "
    "reports/validation/host; the range is that of the sizes"
)

_CALL = (
    "measured on the project's host: a call of NumPy's, or of an empty compiled function, from Python; from C far less"
)


def _measured(value: float, low: float, high: float) -> Sourced:
    return Sourced(value, Provenance.PUBLISHED, _SOURCE, low, high)


_CYCLES: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "arithmetic": {"opencl": (4.2, 3.3, 7.0), "vulkan": (18.0, 12.5, 24.0), "wgpu": (21.0, 16.0, 30.0)},
    "half": {"opencl": (50.0, 40.0, 63.0), "vulkan": (26.0, 22.0, 35.0), "wgpu": (25.0, 22.0, 35.0)},
    "brain": {"opencl": (9.5, 7.0, 13.0), "vulkan": (21.0, 18.0, 27.0), "wgpu": (21.0, 16.0, 30.0)},
    "byte": {"opencl": (2.0, 1.2, 4.0), "vulkan": (20.0, 17.0, 25.0), "wgpu": (21.0, 16.0, 30.0)},
    "function": {"opencl": (37.0, 33.0, 41.0), "vulkan": (22.0, 19.0, 25.0), "wgpu": (24.0, 22.0, 30.0)},
    "power": {"opencl": (360.0, 320.0, 390.0), "vulkan": (23.0, 20.0, 26.0), "wgpu": (28.0, 22.0, 35.0)},
    "exponential": {"opencl": (46.0, 40.0, 52.0), "vulkan": (47.0, 35.0, 60.0), "wgpu": (45.0, 30.0, 70.0)},
    "norm": {"opencl": (4.0, 3.0, 6.0), "vulkan": (25.0, 10.0, 40.0), "wgpu": (45.0, 15.0, 70.0)},
    "row": {"opencl": (9.5e3, 7.5e3, 11e3), "vulkan": (99e3, 90e3, 115e3), "wgpu": (119e3, 100e3, 140e3)},
    "product": {"opencl": (1.0, 0.8, 1.8), "vulkan": (5.8, 5.0, 12.0), "wgpu": (14.5, 12.0, 25.0)},
    "plane_cell": {"opencl": (18.0, 16.0, 25.0), "vulkan": (45.0, 38.0, 58.0), "wgpu": (49.0, 43.0, 60.0)},
    "space_cell": {"opencl": (25.0, 22.0, 29.0), "vulkan": (54.0, 45.0, 62.0), "wgpu": (57.0, 48.0, 75.0)},
    "butterfly": {"opencl": (25.0, 18.0, 33.0), "vulkan": (75.0, 68.0, 90.0), "wgpu": (92.0, 80.0, 110.0)},
}
"""Cycles of one core: for an element of sums, of sums of 16-bit floats of either kind and of bytes, of functions, of
powers; of softmax and of a norm, and for a row of either, which is a block with barriers; for a multiply-add of a
product's tile, a cell in two or three dimensions, a butterfly."""

PARAMETERS = (
    Parameter(
        "driver_cycles",
        "1",
        "cycles of one core for a unit of a plain kernel's work behind a software driver, by API and work",
        keys=tuple(f"{api}_{work}" for work in _CYCLES for api in DRIVERS),
        defaults={f"{api}_{work}": _measured(*values[api]) for work, values in _CYCLES.items() for api in DRIVERS},
    ),
    Parameter(
        "driver_launch_s",
        "s",
        "what a launch takes of a software driver's device time, however small, by API",
        keys=DRIVERS,
        defaults={
            "opencl": _measured(1.3e-6, 0.8e-6, 2.5e-6),
            "vulkan": _measured(45e-6, 30e-6, 60e-6),
            "wgpu": _measured(50e-6, 30e-6, 65e-6),
        },
    ),
    Parameter(
        "driver_copy_s",
        "s",
        "what a copy within a software driver's memory takes beside its bytes, by API",
        keys=("native", *DRIVERS),
        defaults={
            "native": Sourced(0.45e-6, Provenance.PUBLISHED, _CALL, 0.05e-6, 1e-6),
            "opencl": _measured(0.3e-6, 0.2e-6, 1e-6),
            "vulkan": _measured(26e-6, 20e-6, 35e-6),
            "wgpu": _measured(190e-6, 90e-6, 260e-6),
        },
    ),
    Parameter(
        "copy_setup_s",
        "s",
        "a copy between the host's arrays and a software driver's memory, beside its bytes, by API",
        keys=("native", *DRIVERS),
        defaults={
            "native": Sourced(0.45e-6, Provenance.PUBLISHED, _CALL, 0.05e-6, 1e-6),
            "opencl": _measured(78e-6, 30e-6, 110e-6),
            "vulkan": _measured(11e-6, 8e-6, 16e-6),
            "wgpu": _measured(125e-6, 40e-6, 290e-6),
        },
    ),
    Parameter(
        "dispatch_s",
        "s",
        "a launch given to a software driver, one of many, by API",
        keys=("native", *DRIVERS),
        defaults={
            "native": Sourced(0.4e-6, Provenance.PUBLISHED, _CALL, 0.05e-6, 1e-6),
            "opencl": _measured(19e-6, 12e-6, 27e-6),
            "vulkan": _measured(85e-6, 60e-6, 115e-6),
            "wgpu": _measured(175e-6, 110e-6, 220e-6),
        },
    ),
)
_OF_DTYPE = {"float16": "half", "bfloat16": "brain", "int8": "byte"}
_FUNCTIONS = {"gelu": "function", "tanh": "function", "pow": "power", "powu": "power"}


def driven_s(p: Parameters, rows: Rows, cores: float, clock_hz: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """(arithmetic (s), launches (s)) of an operation by plain kernels; None for what was not measured so."""

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
            each = cycles("exponential" if op == "softmax" else "norm")
            spent = each * elements + cycles("row") * n["rows"]
        else:
            spent = cycles(_FUNCTIONS.get(op, plain)) * elements
    else:
        return None
    return spent / (cores * clock_hz), launches * p("driver_launch_s", p.api)
