"""The recommendation matrix of the founding documents: use case to primary, alternative and fallback.

A choice is an API (``cuda``, ``wgpu`` ...) or a kind (``tpu``, ``fpga``, ``qat``, ``dpu``, ``gpu``, ``cpu``). Two
in one place are equals, as in "CUDA/TPU".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.core.errors import InputError, nearest, one_of


@dataclass(frozen=True)
class Recommendation:
    """What is recommended for one use: places in order of preference, equals together."""

    primary: tuple[str, ...]
    alternative: tuple[str, ...]
    fallback: tuple[str, ...] = ()

    def preference(self, *, api: str, kind: str) -> float:
        """0 for the primary, 1 the alternative, 2 the fallback, infinity for what is not recommended."""
        for place, names in enumerate((self.primary, self.alternative, self.fallback)):
            if api in names or kind in names:
                return float(place)
        return math.inf


MATRIX: Mapping[str, Recommendation] = {
    "ml training": Recommendation(("cuda",), ("tpu",), ("vulkan",)),
    "ml inference": Recommendation(("cuda", "tpu"), ("metal",), ("wgpu",)),
    "general compute": Recommendation(("wgpu",), ("vulkan",), ("opencl",)),
    "cross-platform": Recommendation(("wgpu",), ("vulkan",), ("opencl",)),
    "apple devices": Recommendation(("metal",), ("wgpu",)),
    "ultra-low latency": Recommendation(("fpga",), ("qat",)),
    "network offload": Recommendation(("dpu",), ("qat",)),
    "crypto/compression": Recommendation(("qat",), ("gpu",), ("cpu",)),
}


def recommendation(use: str) -> Recommendation:
    """The row of the matrix for ``use``; InputError with the nearest right name otherwise."""
    try:
        return MATRIX[use]
    except KeyError:
        raise InputError(f"unknown use '{use}'", expected=one_of(MATRIX), nearest=nearest(use, MATRIX)) from None
