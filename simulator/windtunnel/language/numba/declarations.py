"""Arrays that a Numba kernel declares, captures or takes as parameters, and the types that objects stand for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import rules
from windtunnel.language.numba.reader import Reader
from windtunnel.language.numba.values import Dim, Records, Value, View, literal
from windtunnel.language.types import BOOL, I64, Array, Scalar, scalar_of

SIZE: Final = scalar_of("i32")
"""The type of a size in the tree."""
_PYTHON_TYPES: Mapping[Any, rules.Number] = {int: I64, float: scalar_of("f64"), bool: BOOL, complex: rules.C128}
_MAX_CAPTURED = 1 << 24
"""The largest captured array (bytes)."""


class DeclarationReader(Reader):
    """Declares, captures and receives arrays."""

    def declare(self, node: ast.AST, space: str, shape: tuple[int, ...], dtype: Any) -> Value:
        """Declare a shared or local array of numbers or records."""
        if isinstance(dtype, np.dtype) and dtype.names:
            fields: dict[str, Value] = {}
            for name in dtype.names:
                inner = dtype.fields[name][0]  # type: ignore[index]
                fields[name] = self.declare(node, space, (*shape, *inner.shape), inner.base)
            some = next(iter(fields.values()))
            dims = getattr(some, "dims", ())[: len(shape)]
            return Records(fields, tuple(dims))
        line: int = node.lineno  # type: ignore[attr-defined]
        unit = str(dtype) if isinstance(dtype, np.dtype) and dtype.kind in "mM" else ""
        element: rules.Number = I64 if unit else self.element_type(node, dtype)
        is_complex = isinstance(element, rules.Complex)
        scalar = element.part if isinstance(element, rules.Complex) else element
        name = self.fresh(self.array_name())
        whole = (*shape, 2) if is_complex else shape
        declared = ir.Declare(line, name, space, whole, scalar)
        self.declared[name] = declared
        self.arrays[name] = Array(scalar, len(whole))
        dims = tuple(
            Dim(axis, ir.Size(line, name, axis, type=SIZE) if side == 0 else literal(line, side))
            for axis, side in enumerate(shape)
        )
        return View(name, element, dims, (None,) * len(shape), space=space, unit=unit)

    def array_name(self) -> str:
        """Return the stem of the name of an array that is declared now."""
        return getattr(self, "naming", "array")

    def element_type(self, node: ast.AST, dtype: Any) -> rules.Number:
        """Return the type of numbers that an object stands for."""
        found = number_type(dtype)
        if found is None:
            self.refuse(node, f"{dtype!r}, which is not a type of numbers", "a type: float32, np.int64 ...")
        return found

    def capture(self, node: ast.AST, value: Any) -> Value:
        """Return an array from outside the kernel, which is constant."""
        if not isinstance(value, np.ndarray):
            value = value.copy_to_host() if hasattr(value, "copy_to_host") else np.asarray(value)
        if value.nbytes > _MAX_CAPTURED:
            self.refuse(node, f"a captured array of {value.nbytes:,} bytes", f"at most {_MAX_CAPTURED:,}")
        known = next((name for name, array in self.captured.items() if array is value), None)
        if known is None:
            known = self.fresh("constant")
            self.captured[known] = value
        return self.parameter(known, value.dtype, value.ndim, "C", writable=False, fixed=value.shape)

    def parameter(
        self, name: str, dtype: np.dtype[Any], ndim: int, layout: str, *, writable: bool = True,
        fixed: tuple[int, ...] | None = None,
    ) -> Value:  # fmt: skip
        """Return an array parameter. Records become an array for each field.

        ``layout``: C, F, or A for an array with an offset and strides of its own, which further parameters give.
        """
        if dtype.names:
            fields: dict[str, Value] = {}
            for field in dtype.names:
                inner = dtype.fields[field][0]  # type: ignore[index]
                inside = ndim + len(inner.shape)
                shape = None if fixed is None else (*fixed, *inner.shape)
                fields[field] = self.parameter(
                    f"{name}__{field}", inner.base, inside, "C", writable=writable, fixed=shape
                )
            some = next(iter(fields.values()))
            return Records(fields, tuple(getattr(some, "dims", ())[:ndim]))
        unit = str(dtype) if dtype.kind in "mM" else ""
        found = I64 if unit else number_type(dtype)
        if found is None:
            self.refuse(self.source.tree, f"'{name}', an array of {dtype}", "numbers, or records of numbers")
        element: rules.Number = found
        is_complex = isinstance(element, rules.Complex)
        scalar = element.part if isinstance(element, rules.Complex) else element
        line = self.source.tree.lineno

        def size(axis: int) -> ir.Expr:
            if fixed is not None:
                return literal(line, fixed[axis])
            return ir.Size(line, name, axis, type=SIZE)

        dims: tuple[Dim, ...]
        if layout == "A":
            self.arrays[name] = Array(scalar, 1 + is_complex)
            given = {stem: self.scalar(f"{name}__{stem}", I64) for stem in strided_names(ndim)}
            for axis in range(ndim):
                self.nonnegative.add(f"{name}__size{axis}")
            dims = tuple(Dim(0, given[f"size{axis}"], given[f"step{axis}"]) for axis in range(ndim))
            return View(name, element, dims, (given["offset"],), unit=unit, writable=writable)
        self.arrays[name] = Array(scalar, max(ndim, 1) + is_complex)
        order = range(ndim) if layout == "C" else reversed(range(ndim))
        dims = tuple(Dim(axis, size(axis)) for axis in order)
        return View(name, element, dims, (None,) * max(ndim, 1), unit=unit, writable=writable)

    def scalar(self, name: str, kind: Scalar) -> ir.Expr:
        """Return a scalar parameter."""
        self.variables[name] = kind
        return ir.Variable(self.source.tree.lineno, name, type=kind)


def strided_names(ndim: int) -> list[str]:
    """Return the names of the numbers that describe an array with strides of its own: its offset, sizes and steps."""
    return ["offset", *(f"size{axis}" for axis in range(ndim)), *(f"step{axis}" for axis in range(ndim))]


def number_type(given: Any) -> rules.Number | None:
    """Return the type of numbers that an object stands for: a NumPy or Numba type, or Python's; None for another."""
    if isinstance(given, Scalar):
        return given
    if isinstance(given, type) and given in _PYTHON_TYPES:
        return _PYTHON_TYPES[given]
    module = type(given).__module__
    if module.startswith("numba."):
        return rules.NUMBA_NAMES.get(str(given))
    if (
        isinstance(given, np.dtype)
        or (isinstance(given, type) and issubclass(given, np.generic))
        or isinstance(given, str)
    ):
        try:
            return rules.NUMBA_NAMES.get(np.dtype(given).name)
        except TypeError:
            return rules.NUMBA_NAMES.get(str(given))
    return None


def dtype_of(view: View) -> np.dtype[Any]:
    """Return the NumPy type of an array's elements."""
    if view.unit:
        return np.dtype(view.unit)
    if isinstance(view.element, rules.Complex):
        return np.dtype(view.element.name)
    return view.element.dtype
