"""What the formulas of fused kernels share: attention, latent attention and experts.

Each has numbers of its own (``NUMBERS``) for every family of kernels. They are parameters of the device, fitted where
the device was measured. The times of reading, of multiplying and of the rest are combined to one time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from windtunnel.core.device import StrArray
from windtunnel.core.ops import WEIGHT_ONLY, FloatArray
from windtunnel.core.provenance import assumed
from windtunnel.core.spec import Parameter

IntArray = npt.NDArray[np.int64]

NumberTable = Mapping[str, tuple[float, float, str, str]]
"""By name: the value before any measurement, the deviation of its logarithm, unit, meaning."""

Numbers = Mapping[str, float]

ANY = "any"
"""The key of the numbers of a family that neither the device nor a relative ran."""

_Z90 = 1.6449

Rowwise = TypeVar("Rowwise", bound=Any)


@dataclass(frozen=True)
class Sheet:
    """Datasheet values: units, memory bandwidth (B/s), peak of the products (FLOP/s)."""

    units: float
    bandwidth: float
    peak: float


def weight_only(name: str, doc: str) -> Parameter:
    """Return the parameter that compares narrow weights with 16-bit ones, format by format."""
    value = assumed(1.0, 0.8, 1.4, "no measurement of the format; unpacking may be slower than reading")
    return Parameter(name, "1", doc, keys=WEIGHT_ONLY, defaults=dict.fromkeys(WEIGHT_ONLY, value))


def parameters(prefix: str, families: Sequence[str], numbers: NumberTable, reason: str) -> tuple[Parameter, ...]:
    """Return a parameter for each number, with a value of each family, and an assumed one with a 90% range for ANY."""

    def parameter(name: str, value: float, deviation: float, unit: str, doc: str) -> Parameter:
        factor = math.exp(_Z90 * deviation)
        defaults = {ANY: assumed(value, value / factor, value * factor, reason)}
        return Parameter(f"{prefix}_{name}", unit, doc, keys=(*families, ANY), defaults=defaults, fitted=True)

    return tuple(parameter(name, *stated) for name, stated in numbers.items())


def take(geometry: Rowwise, index: IntArray) -> Rowwise:
    """Return a dataclass with the rows at ``index`` of its arrays."""
    arrays = {name: value[index] for name, value in vars(geometry).items() if isinstance(value, np.ndarray)}
    return replace(geometry, **arrays)


def summed(a: FloatArray, b: FloatArray, power: float) -> FloatArray:
    """Return (a^power + b^power)^(1/power), without overflow: the sum for 1, the larger for large powers."""
    return np.asarray(np.exp(np.logaddexp(power * np.log(a), power * np.log(b)) / power))


def whole_s(reading: FloatArray, multiplying: FloatArray, rest: FloatArray, x: Numbers) -> FloatArray:
    """Return the time (s) of kernels that read and multiply at once, beside the rest, after a floor."""
    return summed(np.asarray(x["floor_s"]), rest + summed(reading, multiplying, x["overlap"]), x["start"])


def bound_of(total: FloatArray, memory: FloatArray, compute: FloatArray) -> StrArray:
    """Return what bounds each time: memory, compute, or the launch where both are below half of the total."""
    bound = np.where(compute >= memory, "compute", "memory")
    return np.where(np.maximum(compute, memory) < 0.5 * total, "launch", bound)
