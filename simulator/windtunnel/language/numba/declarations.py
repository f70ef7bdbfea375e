"""Arrays that a Numba kernel declares, captures or takes as parameters, and the types that objects stand for."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import rules
from windtunnel.language.numba.arithmetic import UNSIGNED, converted
from windtunnel.language.numba.reader import Reader
from windtunnel.language.numba.values import Dim, Records, Value, View, literal
from windtunnel.language.types import BOOL, I64, Array, Scalar, scalar_of

SIZE: Final = scalar_of("i32")
"""The type of a size in the tree."""
_PYTHON_TYPES: Mapping[Any, rules.Number] = {int: I64, float: scalar_of("f64"), bool: BOOL, complex: rules.C128}
CHARACTERS: Final[Mapping[str, int]] = {"S": 1, "U": 4}
"""The bytes of a character, by the kind of text in NumPy."""
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
            return Records(fields, tuple(dims), misaligned(dtype))
        line: int = node.lineno  # type: ignore[attr-defined]
        unit = str(dtype) if isinstance(dtype, np.dtype) and dtype.kind in "mM" else ""
        element: rules.Number = I64 if unit else self.element_type(node, dtype)
        is_complex = isinstance(element, rules.Complex)
        scalar = element.part if isinstance(element, rules.Complex) else element
        name = self.fresh(self.array_name())
        if name in self.flattened and (len(shape) > 1 or self.flattened[name]):
            return self._declared_flat(node, name, space, shape, element)
        whole = (*shape, 2) if is_complex else shape
        declared = ir.Declare(line, name, space, whole, scalar)
        self.declared[name] = declared
        self.arrays[name] = Array(scalar, len(whole))
        dims = tuple(
            Dim(axis, ir.Size(line, name, axis, type=SIZE) if side == 0 else literal(line, side))
            for axis, side in enumerate(shape)
        )
        return View(name, element, dims, (None,) * len(shape), space=space, unit=unit, contiguous=True)

    def _declared_flat(
        self, node: ast.AST, name: str, space: str, shape: tuple[int, ...], element: rules.Number
    ) -> Value:
        """Declare an array of several dimensions as one of one dimension with strides."""
        line: int = node.lineno  # type: ignore[attr-defined]
        unit = self.flattened[name]
        scalar = element.part if isinstance(element, rules.Complex) else element
        storage = scalar_of(np.dtype(unit)) if unit else scalar
        pair = (2,) if isinstance(element, rules.Complex) and not unit else ()
        bits = scalar.bits * (2 if isinstance(element, rules.Complex) and unit else 1)
        ratio = bits // storage.bits
        self.declared[name] = ir.Declare(line, name, space, (math.prod(shape) * ratio, *pair), storage)
        self.arrays[name] = Array(storage, 1 + len(pair))
        if shape == (0,) and isinstance(element, Scalar):
            return View(name, element, (self.dynamic_dim(node, self.declared[name], element),), (None,), space=space)
        steps = [math.prod(shape[axis + 1 :]) * ratio for axis in range(len(shape))]
        dims = tuple(Dim(0, literal(line, side), literal(line, step)) for side, step in zip(shape, steps, strict=True))
        return View(name, element, dims, (None,), space=space, contiguous=True)

    def dynamic_dim(self, node: ast.AST, declared: ir.Declare, element: Scalar) -> Dim:
        """Return the dimension of a shared array whose size the launch sets, seen as elements of a type."""
        line: int = node.lineno  # type: ignore[attr-defined]
        size: ir.Expr = ir.Size(line, declared.name, 0, type=SIZE)
        ratio = element.bits // declared.element.bits
        if ratio == 1:
            return Dim(0, size)
        held = self.hold(ir.Binary(line, "//", converted(size, I64), literal(line, ratio), type=I64), "size")
        assert isinstance(held, ir.Variable)  # noqa: S101  it is no literal
        self.nonnegative.add(held.name)
        return Dim(0, held, literal(line, ratio))

    def array_name(self) -> str:
        """Return the stem of the name of an array that is declared now."""
        return getattr(self, "naming", "array")

    def element_type(self, node: ast.AST, dtype: Any) -> rules.Number:
        """Return the type of numbers that an object stands for."""
        found = number_type(dtype)
        if found is None:
            what = f"Cannot infer the type of variable '{self.array_name()}': {dtype!r}"
            if isinstance(dtype, str):
                what = f"Invalid NumPy dtype specified: {dtype!r}"
            self.refuse(node, f"{what}, which is not a type of numbers", "a type: float32, np.int64 ...")
        return found

    def capture(self, node: ast.AST, value: Any) -> Value:
        """Return an array from outside the kernel: one of the host is constant, one of the device is its memory."""
        if not isinstance(value, np.ndarray):
            return self._capture_device(node, value)
        if value.nbytes > _MAX_CAPTURED:
            self.refuse(node, f"a captured array of {value.nbytes:,} bytes", f"at most {_MAX_CAPTURED:,}")
        known = next((name for name, array in self.captured.items() if array is value), None)
        if known is None:
            known = self.fresh("constant")
            self.spellings[known] = ast.unparse(node) if isinstance(node, ast.expr) else known
            self.captured[known] = value
        return self.parameter(known, value.dtype, value.ndim, "C", writable=False, fixed=value.shape)

    def _capture_device(self, node: ast.AST, value: Any) -> Value:
        """Return an array of the device from outside the kernel."""
        known = next((name for name, array in self.captured.items() if array is value), None)
        if known is None:
            known = self.fresh("outside")
            self.spellings[known] = ast.unparse(node) if isinstance(node, ast.expr) else known
            self.captured[known] = value
        interface = value.__cuda_array_interface__
        dtype, shape = np.dtype(interface["typestr"]), interface["shape"]
        if interface.get("strides") is not None and np.empty(shape, dtype).strides != tuple(interface["strides"]):
            self.refuse(node, "a captured array of the device with strides of its own", "a contiguous one")
        return self.parameter(known, dtype, len(shape), "C", writable=not interface["data"][1])

    def parameter(
        self, name: str, dtype: np.dtype[Any], ndim: int, layout: str, *, writable: bool = True,
        fixed: tuple[int, ...] | None = None, storage: str = "",
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
                self.spellings[f"{name}__{field}"] = f"{self.spellings.get(name, name)}.{field}"
                fields[field] = self.parameter(
                    f"{name}__{field}", inner.base, inside, "C", writable=writable, fixed=shape
                )
            some = next(iter(fields.values()))
            return Records(fields, tuple(getattr(some, "dims", ())[:ndim]), misaligned(dtype))
        unit = str(dtype) if dtype.kind in "mM" else ""
        text = dtype.itemsize // CHARACTERS[dtype.kind] if dtype.kind in CHARACTERS else 0
        found = I64 if unit else UNSIGNED[8 * CHARACTERS[dtype.kind]] if text else number_type(dtype)
        if found is None:
            self.refuse(self.source.tree, f"'{name}', an array of {dtype}", "numbers, or records of numbers")
        element: rules.Number = found
        has_parts = isinstance(element, rules.Complex) or bool(text)
        scalar = element.part if isinstance(element, rules.Complex) else element
        line = self.source.tree.lineno

        def size(axis: int) -> ir.Expr:
            if fixed is not None:
                return literal(line, fixed[axis])
            return ir.Size(line, name, axis, type=SIZE)

        dims: tuple[Dim, ...]
        if layout == "A":
            memory = scalar_of(np.dtype(storage)) if storage else scalar
            self.arrays[name] = Array(memory, 1 if storage else 1 + has_parts)
            given = {stem: self.scalar(f"{name}__{stem}", I64) for stem in strided_names(ndim)}
            for axis in range(ndim):
                self.nonnegative.add(f"{name}__size{axis}")
            dims = tuple(Dim(0, given[f"size{axis}"], given[f"step{axis}"]) for axis in range(ndim))
            kept = name in self.flattened
            return View(
                name, element, dims, (given["offset"],), unit=unit, writable=writable, text=text, contiguous=kept
            )
        self.arrays[name] = Array(scalar, max(ndim, 1) + has_parts)
        order = range(ndim) if layout == "C" else reversed(range(ndim))
        dims = tuple(Dim(axis, size(axis)) for axis in order)
        whole = (None,) * max(ndim, 1)
        ordered = layout == "C" or ndim == 1
        return View(name, element, dims, whole, unit=unit, writable=writable, text=text, contiguous=ordered)

    def scalar(self, name: str, kind: Scalar) -> ir.Expr:
        """Return a scalar parameter."""
        self.variables[name] = kind
        return ir.Variable(self.source.tree.lineno, name, type=kind)


def misaligned(dtype: np.dtype[Any]) -> dict[str, str]:
    """Return the types of the fields of a record that do not lie at a multiple of their size."""
    found: dict[str, str] = {}
    for name in dtype.names or ():
        inner, offset = dtype.fields[name][:2]  # type: ignore[index]
        if not inner.base.names and inner.base.kind not in "SU" and offset % inner.base.alignment:
            found[name] = str(inner.base)
    return found


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
