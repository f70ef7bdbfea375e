"""Fused attention on a GPU: the kernels' block structure, a device's numbers, and the residual of its calibration.

``attention_formula`` has the two kernel families and their times. This module applies them to a device: its datasheet,
its numbers (a set for each family and regime, so that only relatives with the same kernels are used), and the residual
of a calibrated device, a Gaussian process that is evaluated from a compact array file.
"""

from __future__ import annotations

import numpy as np

from windtunnel.core.device import Arrays, Correction, Parameters, RawCost
from windtunnel.core.ops import Attention, FloatArray, Rows
from windtunnel.core.provenance import SourcedValue
from windtunnel_models.kinds.gpu.attention_formula import (
    NUMBERS,
    REGIMES,
    Datasheet,
    Geometry,
    features,
    formula,
    geometry,
    regime,
)
from windtunnel_models.kinds.gpu.fused import ANY, Numbers, bound_of, parameters
from windtunnel_models.kinds.gpu.kernel import in_context, need_product_type, vector_rate
from windtunnel_models.kinds.gpu.local_residual import Points, flat
from windtunnel_models.kinds.gpu.power import activity_of

_FAMILIES = ("fa2", "fa3")
_FORMATS = next(column.choices for column in Attention.columns if column.name == "dtype")
PARAMETERS = parameters(
    "attention",
    tuple(f"{family}_{name}" for family in _FAMILIES for name in REGIMES),
    NUMBERS,
    "before any measurement: what the kernels' source and the fits of two devices suggest",
)

FITS = {
    f"attention_{name}": NUMBERS[name][1]
    for name in (
        "floor_s",
        "prompt_s",
        "efficiency",
        "exponentials",
        "block_s",
        "stream_bytes",
        "bandwidth",
        "token_s",
        "split_s",
        "sequence_s",
    )
}
"""The numbers that a calibration may move, with the deviations of ``NUMBERS``; few rows do not determine the others."""


def family(p: Parameters) -> str:
    """Return the kernels that a framework uses: FlashAttention-3 on Hopper and later server GPUs of NVIDIA, else 2."""
    lineage = p.lineage
    later = lineage.stacked_memory and (lineage.since or 0) >= 2022
    return "fa3" if p.vendor == "NVIDIA" and (lineage.architecture == "Hopper" or later) else "fa2"


def _numbers(p: Parameters, place: int) -> Numbers:
    """Return the numbers of a regime: of the device's family of kernels, else of the other one, else the default.

    With numbers of the other family the cross-validation error of a device is 13 to 22%, with the defaults 12 to 34%.
    For 8-bit keys, numbers that were measured only with 16-bit keys are the best ones, and likewise for wide heads.
    """
    own = family(p)
    other = next(name for name in _FAMILIES if name != own)
    keys = [f"{kernels}_{REGIMES[where]}" for where in dict.fromkeys((place, place % 2)) for kernels in (own, other)]

    def number(name: str) -> float:
        for key in keys:
            value = p.get(f"attention_{name}", key)
            if value is not None:
                return value
        return p(f"attention_{name}", ANY)

    return {name: number(name) for name in NUMBERS}


def own_numbers(p: Parameters, rows: Rows) -> dict[str, SourcedValue]:
    """Return the numbers that rows like these read, under the key of the device's family, for a calibration."""
    sheet, numbers = _sheet(p, rows.choices["dtype"]), {}
    for place in np.unique(regime(geometry(flat(rows), sheet))).tolist():
        p.used.clear()
        _numbers(p, place)
        for path, value in p.used.items():
            if path.startswith("attention_"):
                numbers[f"{path.partition('.')[0]}.{family(p)}_{REGIMES[place]}"] = value
    return numbers


def _sheet(p: Parameters, dtype: str) -> Datasheet:
    """Return the datasheet for ``dtype``; raises UnsupportedOperationError if no unit of the API has a rate in it."""
    need_product_type(p, dtype, _FORMATS)
    peak = p.get("matrix_flops_per_s", dtype) if p.feature("matrix") else None
    if peak is None:
        # The attained rate of the vector units is known, so the step's efficiency is divided out again.
        peak = vector_rate(p, dtype) / NUMBERS["efficiency"][0]
    return Datasheet(
        units=p("compute_units"),
        clock=p("boost_clock_hz"),
        bandwidth=p("memory_bandwidth_bytes_per_s"),
        l2=p("l2_bytes"),
        peak=peak,
        shared=p("shared_memory_bytes"),
        hopper=family(p) == "fa3",
    )


def attention(p: Parameters, rows: Rows) -> RawCost:
    """Return the cost of attention: the formula, the residual, and the context.

    ``cache`` has no effect: in the measurements and in use a step finds the data of the previous step in the cache.
    """
    sheet = _sheet(p, rows.choices["dtype"])
    g = geometry(flat(rows), sheet)
    times = formula(g, sheet, lambda place: _numbers(p, place))
    shape = rows.shape
    total, steps, memory = (part.reshape(shape) for part in (times.total, times.steps, times.memory))
    bound = bound_of(total, memory, steps)
    learned = p.correction(rows)
    if learned is not None:
        total = total * np.exp(learned.log_factor)
    spread = None if learned is None else learned.spread
    activity = activity_of(p, rows, (g.blocks / sheet.units).reshape(shape))
    return in_context(p, rows, total, activity, bound, spread=spread)


def coordinates(p: Parameters, rows: Rows) -> FloatArray:
    """Return the coordinates of rows for a residual: the features of the formula, [rows, features]."""
    sheet = _sheet(p, rows.choices["dtype"])
    g = geometry(flat(rows), sheet)
    return features(g, formula(g, sheet, lambda place: _numbers(p, place)), sheet)


def frozen(arrays: Arrays) -> tuple[Datasheet, list[Numbers]]:
    """Return the datasheet and the numbers of every regime as they were at the fit."""
    units, clock, bandwidth, l2, peak, shared, hopper = (float(value) for value in arrays["sheet"])
    names = [str(name) for name in arrays["names"]]
    numbers: list[Numbers] = [dict(zip(names, np.exp(row).tolist(), strict=True)) for row in arrays["numbers"]]
    return Datasheet(units, clock, bandwidth, l2, peak, shared, bool(hopper)), numbers


class LearnedAttention:
    """The correction of attention, which depends on the rows alone. Everything is in float64, as in ``LearnedGemm``."""

    def __init__(self, arrays: Arrays) -> None:
        self._sheet, self._numbers = frozen(arrays)
        self._half_width = np.asarray(arrays["halfwidth"], dtype=np.float64)
        self._points = {k: Points.of(arrays, k) for k in range(len(REGIMES)) if f"centres_{k}" in arrays}

    def log_factor(self, rows: Rows) -> tuple[FloatArray, FloatArray, Geometry]:
        """Return log(measured / formula) of flat rows, its 90% half-width, and their geometry at the fit."""
        g = geometry(rows, self._sheet)
        x, kind = features(g, formula(g, self._sheet, self._numbers.__getitem__), self._sheet), regime(g)
        factor = np.zeros(len(x))
        width = self._half_width[kind, (g.group == 1.0).astype(int)]
        for k in np.unique(kind).tolist():
            if k not in self._points:
                continue
            index = np.flatnonzero(kind == k)
            factor[index], away = self._points[k].at(x[index])
            width[index] *= away
        return factor, width, g

    def __call__(self, _p: Parameters, rows: Rows) -> Correction:
        """Return the correction of ``rows``."""
        factor, width, _ = self.log_factor(flat(rows))
        return Correction(factor.reshape(rows.shape), width.reshape(rows.shape))
