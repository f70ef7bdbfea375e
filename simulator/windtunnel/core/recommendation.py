"""The recommendation matrix of the founding documents: use case to primary, alternative and fallback.

A choice is an API (``cuda``, ``wgpu`` ...) or a kind (``tpu``, ``fpga``, ``qat``, ``dpu``, ``gpu``, ``cpu``). Choices
with the same rank are equal, as in "CUDA/TPU".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from windtunnel.core.errors import InputError, list_choices, nearest


@dataclass(frozen=True)
class Recommendation:
    """The recommendation for one use case, in order of preference; each rank may have several equal choices."""

    primary: tuple[str, ...]
    alternative: tuple[str, ...]
    fallback: tuple[str, ...] = ()

    def preference(self, *, api: str, kind: str) -> float:
        """Return 0 for primary, 1 for alternative, 2 for fallback, and infinity if not recommended."""
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
    """Return the row of the matrix for the use case; raises InputError with the nearest right name."""
    try:
        return MATRIX[use]
    except KeyError:
        raise InputError(
            f"unknown use case '{use}'", expected=list_choices(MATRIX), nearest=nearest(use, MATRIX)
        ) from None
