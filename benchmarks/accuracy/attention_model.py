"""The shipped attention model in the form that the fits use: tables of mixed phases and types, parameters as a vector.

The formula, the residual and their sources are in the package (``windtunnel_models.kinds.gpu.attention_formula`` and
``kinds.gpu.attention``). This module computes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import numpy as np

from windtunnel.core.ops import OPERATIONS
from windtunnel.core.ops import Rows as OpRows
from windtunnel_models.kinds.gpu.attention import LearnedAttention, frozen
from windtunnel_models.kinds.gpu.attention_formula import (
    NUMBERS,
    REGIMES,
    Datasheet,
    Geometry,
    TimeComponents,
    formula,
    regime,
)
from windtunnel_models.kinds.gpu.attention_formula import features as package_features
from windtunnel_models.kinds.gpu.attention_formula import geometry as package_geometry
from windtunnel_models.kinds.gpu.attention_formula import parts as package_parts
from windtunnel_models.kinds.gpu.local_residual import similarity

__all__ = [
    "NAMES",
    "PRIOR",
    "REGIMES",
    "SHEETS",
    "Datasheet",
    "Geometry",
    "features",
    "formula_times",
    "geometry",
    "regime",
]

Rows: TypeAlias = Mapping[str, np.ndarray]
"""Equal-length arrays: batch, heads, kv_heads, head_dim, kv_tokens, decode (bool), dtype_bytes, kv_bytes."""

Arrays: TypeAlias = dict[str, np.ndarray]
Found = TypeVar("Found")

PRIOR = {name: (value, deviation) for name, (value, deviation, _, _) in NUMBERS.items()}
NAMES = tuple(PRIOR)

SHEETS = {
    "a100-sxm-80gb": Datasheet(108, 1.41e9, 2.039e12, 40e6, 312e12, 164 * 1024, False),
    "h100-sxm-80gb": Datasheet(132, 1.98e9, 3.35e12, 50e6, 989e12, 228 * 1024, True),
}

HOPPER_TAIL = 0.15
"""Start value of ``tail`` for FlashAttention-3. It starts long blocks first, so that few units are idle at the end."""

AMPLITUDE = 0.01
"""Prior variance of the log residual: a standard deviation of 10% of the formula's time."""

similar = similarity


def prior(sheet: Datasheet) -> np.ndarray:
    """Logarithms of the parameters' prior values, [parameters]."""
    out = np.log([value for value, _ in PRIOR.values()])
    if sheet.hopper:
        out[NAMES.index("tail")] = np.log(HOPPER_TAIL)
    return out


def _groups(rows: Rows) -> list[tuple[np.ndarray, OpRows]]:
    """Indices and rows of each phase and data type of the keys and values."""
    groups = []
    for decode in (False, True):
        for fp8 in (False, True):
            index = np.flatnonzero((rows["decode"] == decode) & ((rows["kv_bytes"] < 2.0) == fp8))
            if len(index):
                choices = {
                    "phase": "decode" if decode else "prefill",
                    "dtype": "bfloat16",
                    "kv_dtype": "fp8" if fp8 else "bfloat16",
                    "dispatch": "device",
                    "clock": "burst",
                    "cache": "cold",
                }
                names = ("batch", "heads", "kv_heads", "head_dim", "kv_tokens")
                groups.append((index, OpRows(OPERATIONS["attention"], choices, {n: rows[n][index] for n in names})))
    return groups


def _joined(rows: Rows, compute: Callable[[OpRows], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    out: dict[str, np.ndarray] = {}
    for index, part in _groups(rows):
        for name, value in compute(part).items():
            out.setdefault(name, np.empty(len(rows["decode"]), dtype=value.dtype))[index] = value
    return out


def geometry(rows: Rows, sheet: Datasheet) -> Geometry:
    """The blocks, steps and bytes of each row."""
    return Geometry(**_joined(rows, lambda part: vars(package_geometry(part, sheet))))


def parts(g: Geometry, sheet: Datasheet, parameters: np.ndarray) -> TimeComponents:
    """The formula's times with one parameter vector for all rows (logarithms, in the order of NAMES)."""
    return package_parts(g, sheet, dict(zip(NAMES, np.exp(parameters).tolist(), strict=True)))


def formula_times(g: Geometry, sheet: Datasheet, parameters: np.ndarray) -> TimeComponents:
    """The formula's times with the parameter vector of each row's regime; ``parameters`` [regimes, parameters]."""
    regimes = [dict(zip(NAMES, np.exp(row).tolist(), strict=True)) for row in parameters]
    return formula(g, sheet, regimes.__getitem__)


def features(rows: Rows, g: Geometry, p: TimeComponents, sheet: Datasheet) -> np.ndarray:
    """[rows, features], each divided by its length scale."""
    del rows
    return package_features(g, p, sheet)


def log_factor(arrays: Arrays, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Estimated ln(measured / formula) and the half-width of its 90% interval, [rows] each."""

    learned = LearnedAttention(arrays)

    def compute(part: OpRows) -> dict[str, np.ndarray]:
        factor, width, _ = learned.log_factor(part)
        return {"factor": factor, "width": width}

    joined = _joined(rows, compute)
    return joined["factor"], joined["width"]


def seconds(arrays: Arrays, rows: Rows, sheet: Datasheet | None = None, residual: bool = True) -> np.ndarray:
    """Estimated seconds on ``sheet`` (the fitted device's if None), with or without the learned residual."""
    own, regimes = frozen(arrays)
    sheet = sheet or own
    total = formula(geometry(rows, sheet), sheet, regimes.__getitem__).total
    return np.asarray(total * np.exp(log_factor(arrays, rows)[0])) if residual else total
