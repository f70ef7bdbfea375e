"""``numba.cuda.vector_types``: the vector types by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba.core import types

from windtunnel.language.numba.names import VECTORS, VectorType


@dataclass(frozen=True)
class VectorTypeInfo:
    """A vector type, as Numba describes it."""

    name: str
    base_type: Any
    num_elements: int
    attr_names: tuple[str, ...]
    user_facing_object: VectorType


vector_types = {
    name: VectorTypeInfo(name, getattr(types, vector.element), vector.size, vector.names, vector)
    for name, vector in VECTORS.items()
}
