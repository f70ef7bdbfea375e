"""Types of the kernel language: numbers of fixed width, and arrays of them.

``a: f32[:]`` annotates an array of one dimension, ``n: i32`` a scalar. Integers wrap. As in NumPy 2, a literal takes
the type of the other operand. Alone, an integer is ``i32`` and a float ``f32``: WGSL and Metal have no wider float.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InputError, list_choices, nearest

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True)
class Scalar:
    """A type of numbers of ``bits`` bits. In a kernel ``f32(x)`` converts, and ``f32[:, :]`` is a type of arrays."""

    name: str
    kind: Kind
    bits: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the same numbers."""
        return _DTYPES[self.name]

    def __getitem__(self, sides: Any) -> Array:
        given = sides if isinstance(sides, tuple) else (sides,)
        if not all(isinstance(side, slice) and side == slice(None) for side in given) or len(given) > 4:
            raise InputError(
                f"{self.name}[{sides!r}] is not an array type", expected=f"{self.name}[:], {self.name}[:, :] ..."
            )
        return Array(self, len(given))

    def __call__(self, value: Any) -> Any:
        """Convert a number as NumPy does; this is the conversion outside of kernels."""
        return self.dtype.type(value)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Array:
    """The type of an array of numbers in the device's memory."""

    element: Scalar
    dimensions: int

    def __str__(self) -> str:
        return f"{self.element}[{', '.join(':' * self.dimensions)}]"


Type = Scalar | Array

BOOL = Scalar("bool", "bool", 8)
I8, I16, I32, I64 = (Scalar(f"i{bits}", "int", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (Scalar(f"u{bits}", "uint", bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = (Scalar(f"f{bits}", "float", bits) for bits in (16, 32, 64))
BF16 = Scalar("bf16", "float", 16)
SCALARS: Mapping[str, Scalar] = {t.name: t for t in (BOOL, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64)}
_DTYPES: Mapping[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    **{f"i{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (16, 32, 64)},
}
_BY_DTYPE = {dtype: SCALARS[name] for name, dtype in _DTYPES.items()}
ALIASES: Mapping[str, Scalar] = {
    "float16": F16, "float32": F32, "float64": F64, "bfloat16": BF16, "boolean": BOOL,
    "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64,
}  # fmt: skip
"""Numba's names of the types."""


def scalar_of(given: npt.DTypeLike | Scalar) -> Scalar:
    """Return the type of a NumPy dtype or of a name; InputError if kernels have no such type."""
    if isinstance(given, Scalar):
        return given
    if isinstance(given, str) and (given in SCALARS or given in ALIASES):
        return SCALARS.get(given) or ALIASES[given]
    try:
        scalar = _BY_DTYPE.get(np.dtype(given))
    except TypeError:
        scalar = None
    if scalar is None:
        names = list(SCALARS)
        raise InputError(
            f"{given!r} is not a type of the kernel language",
            expected=list_choices(names),
            nearest=nearest(str(given), names),
        )
    return scalar


def unify(a: Scalar, b: Scalar) -> Scalar | None:
    """Return the type of an operation on two types, by C's usual conversions; None if there is none.

    It is the wider of two floats, the float of an integer and a float, the wider of two integers, and the unsigned one
    of two integers of equal width. ``f16`` and ``bf16`` have none, because neither contains the other's numbers.
    """
    if a == b:
        return a
    if {a.name, b.name} == {"f16", "bf16"}:
        return None
    if "float" in (a.kind, b.kind):
        floats = [t for t in (a, b) if t.kind == "float"]
        return max(floats, key=lambda t: t.bits)
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.bits != b.bits:
        return max(a, b, key=lambda t: t.bits)
    return a if a.kind == "uint" else b


def __getattr__(name: str) -> Scalar:
    scalar = SCALARS.get(name) or ALIASES.get(name)
    if scalar is None:
        raise AttributeError(f"the kernel language has no type {name!r}")
    return scalar
