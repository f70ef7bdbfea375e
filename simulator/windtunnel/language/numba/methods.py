"""Methods of arrays and numbers in a Numba kernel, and ``print``."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from numba.core.errors import NumbaWarning

from windtunnel.language import ir
from windtunnel.language.names import Group
from windtunnel.language.numba import rules
from windtunnel.language.numba.arithmetic import converted, number_of, truth
from windtunnel.language.numba.declarations import dtype_of
from windtunnel.language.numba.functions import FunctionReader
from windtunnel.language.numba.reader import NeedsFlat
from windtunnel.language.numba.values import Const, Cplx, Dim, Method, Num, Records, Tup, Value, View, literal
from windtunnel.language.types import BOOL, F32, F64, I32, I64, U64, Scalar

_MOST_PRINTED = 32
"""The most items of a line that CUDA prints; with more it prints the format."""


REDUCTIONS = ("sum", "prod", "min", "max", "mean", "var", "std", "any", "all")
"""The methods of arrays that return one number."""


class MethodReader(FunctionReader):
    """Reads calls of methods, and of ``print``."""

    # Print.

    def printed(self, node: ast.Call, given: list[Value]) -> None:
        """Read ``print``: the values with a space between two."""
        items: list[tuple[ir.Expr, str | None]] = []
        form = " ".join(self._printed(node, value, items) for value in given)
        if len(given) > _MOST_PRINTED:
            text = (
                f"CUDA print() cannot print more than {_MOST_PRINTED} items. The raw format string will be emitted by "
                "the kernel instead."
            )
            warnings.warn_explicit(text, NumbaWarning, self.source.file, node.lineno)
            form, items = form.replace("%", "%%"), []
        self.emit(ir.Print(node.lineno, form + "\n", [e for e, _ in items], [None] * len(items)))

    def _printed(self, node: ast.Call, value: Value, items: list[tuple[ir.Expr, str | None]]) -> str:
        """Return the format of a value, and append its numbers."""
        if isinstance(value, Const) and isinstance(value.value, Group):
            indices = {"threadIdx": "thread", "blockIdx": "block", "blockDim": "block_size", "gridDim": "grid_size"}
            if value.value.spelling in indices:
                what = indices[value.value.spelling]
                axes = [Num(ir.Index(node.lineno, what, axis, type=I32)) for axis in range(3)]
                return self._printed(node, Tup(tuple(axes)), items)
        if isinstance(value, Const) and number_of(node.lineno, value.value) is None:
            return str(value.value).replace("%", "%%")
        if isinstance(value, Tup):
            inner = [self._printed(node, item, items) for item in value.items]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        made = self.numeric(node, value)
        if isinstance(made, Cplx):
            self.refuse(node, "print of a complex number", "its parts: z.real, z.imag")
        if made.type == BOOL:
            items.append((self.hold(made.expr), None))
            return "%s"
        kind, form = (F64, "%f") if made.type.kind == "float" else (I64, "%lld")
        if made.type.kind == "uint":
            kind, form = U64, "%llu"
        items.append((self.hold(converted(made.expr, kind)), None))
        return form

    # Methods.

    def method(self, node: ast.Call, called: Method, given: list[Value]) -> Value:
        """Read a call of a method."""
        owner, name = called.owner, called.name
        if name == "conjugate":
            if isinstance(owner, Cplx):
                return Cplx(owner.re, ir.Unary(node.lineno, "-", owner.im, type=owner.type.part), owner.type)
            return owner
        if name == "bit_count":
            return self._bit_count(node, owner)
        if name == "item" and isinstance(owner, View) and owner.dims:
            return self.load(node, self.part(node, owner, [Const(0)] * len(owner.dims)))  # type: ignore[arg-type]
        if isinstance(owner, (View, Records)):
            return self._array_method(node, owner, name, given)
        return owner

    def _bit_count(self, node: ast.Call, owner: Value) -> Value:
        """Return the number of bits of an integer's absolute value, as Python does."""
        value = self.integer(node, owner)
        assert value.type is not None  # noqa: S101  it is an integer
        if value.type.kind == "int":
            value = ir.Unary(node.lineno, "abs", converted(value, I64), type=I64)
        return self._call_bits(node, "popc", [Num(value)])

    def _array_method(self, node: ast.Call, owner: View | Records, name: str, given: list[Value]) -> Value:
        if isinstance(owner, View) and name == "fill" and len(given) == 1:
            self.store_value(node, owner, given[0])
            return Const(None)
        if isinstance(owner, View) and name == "transpose" and not given:
            return owner.with_dims(tuple(reversed(owner.dims)), owner.origin)
        if isinstance(owner, View) and name == "view":
            return self._viewed(node, owner, given)
        if isinstance(owner, View) and name in ("copy", "flatten"):
            return self._copied(node, owner, flat=name == "flatten")
        if isinstance(owner, View) and name in REDUCTIONS:
            return self.reduced(node, name, owner, given)
        if isinstance(owner, View) and name in ("argmax", "argmin"):
            return self.place_of(node, name.removeprefix("arg"), owner, given)
        if isinstance(owner, View) and name in ("ravel", "reshape"):
            sizes = self._sizes(node, owner, given) if name == "reshape" else None
            return self.reshaped(node, owner, sizes)
        self.refuse(node, f"the method '{name}' of an array", "an attribute or an index")

    def _sizes(self, node: ast.Call, owner: View, given: list[Value]) -> list[ir.Expr]:
        """Return the sizes that ``reshape`` states; -1 stands for what is left."""
        stated = self.items(node, given[0]) if len(given) == 1 and isinstance(given[0], Tup) else given
        total = self.array_attribute(node, owner, "size")
        assert isinstance(total, Num)  # noqa: S101  it is a product of sizes
        line = node.lineno
        sizes = [self.hold(converted(self.integer(node, value), I64), "size") for value in stated]
        if all(self.is_nonnegative(size) for size in sizes):
            return sizes
        # The product of all sizes is minus that of the others, if one is -1.
        product: ir.Expr = literal(line, -1)
        for size in sizes:
            product = ir.Binary(line, "*", product, copy(size), type=I64)
        others = self.hold(product, "others")
        held: list[ir.Expr] = []
        for size in sizes:
            left = ir.Binary(line, "//", copy(total.expr), copy(others), type=I64)
            below = ir.Binary(line, "<", copy(size), literal(line, 0), type=BOOL)
            held.append(self.hold_always(ir.Select(line, below, left, copy(size), type=I64), "size"))
        self.nonnegative |= {size.name for size in held if isinstance(size, ir.Variable)}
        return held

    def _viewed(self, node: ast.Call, owner: View, given: list[Value]) -> Value:
        """Return an array with its memory seen as elements of another type."""
        if len(given) != 1 or not isinstance(given[0], Const) or not owner.dims:
            self.refuse(node, "view of something that is not a type", "array.view(np.int32)")
        kind = self.element_type(node, given[0].value)
        if owner.unit:
            self.refuse(node, "another view of dates", "numbers")
        self.require_one_array(node, owner, "another view")
        line, storage = node.lineno, self.arrays[owner.base].element
        part = kind.part if isinstance(kind, rules.Complex) else kind
        own = owner.element.part if isinstance(owner.element, rules.Complex) else owner.element
        if part.bits < storage.bits or (isinstance(owner.element, rules.Complex) and not self.holds_parts(owner)):
            raise NeedsFlat(owner.base, f"u{min(part.bits, own.bits) // 8}")
        wide_bits, narrow_bits = part.bits * (1 + (part is not kind)), own.bits * (1 + (own is not owner.element))
        if wide_bits == narrow_bits:
            return replace(owner, element=kind)
        last = owner.dims[-1]
        wide, narrow = (literal(line, bits // 8) for bits in (wide_bits, narrow_bits))
        total = ir.Binary(line, "*", converted(copy(last.size), I64), narrow, type=I64)
        size = self.hold(ir.Binary(line, "//", total, wide, type=I64), "size")
        if isinstance(size, ir.Variable):
            self.nonnegative.add(size.name)
        ratio = wide_bits // storage.bits
        step = None if ratio == 1 else literal(line, ratio)
        return replace(owner, element=kind, dims=(*owner.dims[:-1], Dim(last.axis, size, step)))

    def _copied(self, node: ast.Call, owner: View, *, flat: bool = False) -> Value:
        """Return a copy of an array whose size is known now, as a local array."""
        sides = [int(d.size.value) if isinstance(d.size, ir.Literal) else None for d in owner.dims]
        if None in sides or not sides or 0 in sides:
            self.refuse(node, "a copy of an array whose size is known only while the kernel runs", "a local array")
        made = self.declare(node, "local", tuple(side for side in sides if side is not None), dtype_of(owner))
        self.store_value(node, made, owner)
        assert isinstance(made, View)  # noqa: S101  it is an array of numbers
        return self.reshaped(node, made, None) if flat and len(sides) > 1 else made

    def reshaped(self, node: ast.AST, owner: View, sizes: list[ir.Expr] | None) -> Value:
        """Return an array in another shape; one dimension if ``sizes`` is None. Its elements must be contiguous."""
        line: int = node.lineno  # type: ignore[attr-defined]
        whole = self.array_attribute(node, owner, "size")
        assert isinstance(whole, Num)  # noqa: S101  it is a product of sizes
        dim = owner.dims[0] if len(owner.dims) == 1 else self.flat(node, owner)
        held = [self.hold(whole.expr, "size")] if sizes is None else sizes
        step = None if dim.step is None else converted(copy(dim.step), I64)
        dims: list[Dim] = []
        for at, size in enumerate(held):
            along: ir.Expr | None = step
            for other in held[at + 1 :]:
                factor = converted(copy(other), I64)
                along = factor if along is None else ir.Binary(line, "*", copy(along), factor, type=I64)
            along = None if along is None else self.hold(along, "step")
            dims.append(Dim(dim.axis, copy(size), along))
        return replace(owner, dims=tuple(dims))

    def flat(self, node: ast.AST, owner: View) -> Dim:
        """Return the dimension along which the elements of an array of several dimensions lie, one after another."""
        self.require_one_array(node, owner, "another shape")
        if not owner.contiguous:
            self.refuse(node, "another shape of an array that is not contiguous", "a whole array")
        if len(owner.origin) > 1:
            raise NeedsFlat(owner.base)
        last = owner.dims[-1]
        return Dim(last.axis, last.size, last.step)

    # Reductions.

    def reduced(self, node: ast.Call, name: str, owner: View, given: list[Value]) -> Value:
        """Return one number of an array: ``sum``, ``mean``, ``nanmax`` and their kin, in the order of the elements."""
        if given:
            self.refuse(node, f"{name} along an axis", "of the whole array")
        if isinstance(owner.element, rules.Complex) and name in ("sum", "prod", "mean"):
            return self._complex_total(node, name, owner, owner.element)
        if isinstance(owner.element, rules.Complex) or owner.unit:
            self.refuse(node, f"{name} of complex numbers or dates", "real numbers")
        line = node.lineno
        plain = name.removeprefix("nan")
        if plain in ("var", "std"):
            return self._spread(node, name, owner)
        if plain == "mean":
            total = self._folded_over(node, name.replace("mean", "sum"), owner, F64)
            count = self._counted_in(node, name, owner)
            return Num(ir.Binary(line, "/", total, converted(count, F64), type=F64))
        kind = owner.element
        if plain in ("sum", "prod") and kind.kind != "float":
            kind = U64 if kind.kind == "uint" else I64
        if plain in ("any", "all"):
            kind = BOOL
        if plain == "count_nonzero":
            kind = I64
        return Num(self._folded_over(node, name, owner, kind))

    def _complex_total(self, node: ast.Call, name: str, owner: View, kind: rules.Complex) -> Value:
        """Emit the loop of a sum, a product or a mean of complex numbers, and return its result."""
        line = node.lineno
        total = self.slot("total", Cplx(literal(line, 0.0, kind.part), literal(line, 0.0, kind.part), kind))
        self.assign_slot(line, total, Const(complex(name == "prod")))

        def fold(value: Num | Cplx) -> None:
            now = self.at(line, total)
            self.assign_slot(line, total, self.binary(node, "*" if name == "prod" else "+", now, value))

        self.each(node, owner, fold)
        now = self.at(line, total)
        if name != "mean":
            return now
        size = self.array_attribute(node, owner, "size")
        return self.binary(node, "/", now, Cplx(converted(self.num(node, size).expr, kind.part),
                                                literal(line, 0.0, kind.part), kind))  # fmt: skip

    def _counted_in(self, node: ast.Call, name: str, owner: View) -> ir.Expr:
        """Return how many elements an array has, without NaN for functions that leave it out."""
        if name.startswith("nan") and owner.element.kind == "float":  # type: ignore[union-attr]
            return self._folded_over(node, "nancount", owner, I64)
        size = self.array_attribute(node, owner, "size")
        assert isinstance(size, Num)  # noqa: S101  it is a product of sizes
        return size.expr

    def _spread(self, node: ast.Call, name: str, owner: View) -> Value:
        line = node.lineno
        kind = owner.element if owner.element in (F32, F64) else F64
        assert isinstance(kind, Scalar)  # noqa: S101  complex numbers were refused
        mean = self.reduced(node, name.replace("var", "mean").replace("std", "mean"), owner, [])
        held = self.hold(self.num(node, mean).expr, "mean")
        total = self._folded_over(node, name.replace("var", "square").replace("std", "square"), owner, F64, held)
        quotient = ir.Binary(line, "/", total, converted(self._counted_in(node, name, owner), F64), type=F64)
        if name.endswith("var"):
            return Num(quotient)
        return Num(ir.Call(line, "math.sqrt", [quotient], type=F64))

    def _folded_over(
        self, node: ast.Call, name: str, owner: View, kind: Scalar, mean: ir.Expr | None = None
    ) -> ir.Expr:
        """Emit the loops of a reduction, and return its result."""
        line = node.lineno
        plain = name.removeprefix("nan")
        skips = name.startswith("nan") and owner.element.kind == "float"  # type: ignore[union-attr]
        total = self.variable("total", kind)
        starts = {"prod": 1, "all": True, "any": False}
        first: ir.Expr = literal(line, starts.get(plain, 0), kind)
        if plain in ("min", "max"):
            zeros: list[Value | slice | None] = [Num(literal(line, 0)) for _ in owner.dims]
            part = self.part(node, owner, zeros)
            first = self.num(node, part).expr
        elif kind.kind == "float":
            first = literal(line, float(starts.get(plain, 0)), kind)
        self.emit(ir.Assign(line, total, first))

        def fold(value: Num) -> None:
            element = self.hold(value.expr)
            is_nan = ir.Binary(line, "!=", copy(element), copy(element), type=BOOL)
            now = self.read(line, total)
            result: ir.Expr
            if plain in ("sum", "prod"):
                result = ir.Binary(line, "+" if plain == "sum" else "*", now, converted(copy(element), kind), type=kind)
            elif plain in ("min", "max"):
                result = ir.Binary(line, plain, now, copy(element), type=kind)
                beyond = ir.Binary(
                    line, "<" if plain == "min" else ">", copy(element), self.read(line, total), type=BOOL
                )
                mine = ir.Binary(line, "!=", self.read(line, total), self.read(line, total), type=BOOL)
                # NaN wins, unless it is left out: then the first number replaces it.
                better = ir.Logic(line, "or", beyond, mine if skips else is_nan, type=BOOL)
                result = ir.Select(line, better, copy(element), now, type=kind)
            elif plain in ("any", "all"):
                result = ir.Logic(line, "or" if plain == "any" else "and", now, truth(Num(copy(element))), type=BOOL)
            elif plain in ("count_nonzero", "count"):
                counts = (
                    truth(Num(copy(element))) if plain == "count_nonzero" else ir.Unary(line, "not", is_nan, type=BOOL)
                )
                result = ir.Binary(line, "+", now, converted(counts, kind), type=kind)
            else:
                assert mean is not None  # noqa: S101  only squares of differences are left
                difference = self.hold(ir.Binary(line, "-", converted(copy(element), F64), copy(mean), type=F64))
                result = ir.Binary(
                    line, "+", now, ir.Binary(line, "*", difference, copy(difference), type=F64), type=F64
                )
            step: ir.Stmt = ir.Assign(line, total, result)
            if skips and plain in ("sum", "prod", "square"):
                self.emit(ir.If(line, ir.Unary(line, "not", is_nan, type=BOOL), [step], []))
                return
            self.emit(step)

        self.each(node, owner, fold)
        return self.read(line, total)

    def place_of(self, node: ast.Call, name: str, owner: View, given: list[Value]) -> Value:
        """Return the number of the first largest or smallest element, in the order of rows; NaN counts as either."""
        if given:
            self.refuse(node, f"arg{name} along an axis", "of the whole array")
        if isinstance(owner.element, rules.Complex) or owner.unit:
            self.refuse(node, f"arg{name} of complex numbers or dates", "real numbers")
        line = node.lineno
        best, found, number = (self.variable(stem, kind) for stem, kind in
                               (("best", owner.element), ("found", I64), ("number", I64)))  # fmt: skip
        first = self.part(node, owner, [Num(literal(line, 0)) for _ in owner.dims])
        self.emit(ir.Assign(line, best, self.num(node, first).expr))
        for counter in (found, number):
            self.emit(ir.Assign(line, counter, literal(line, 0)))

        def compare(value: Num) -> None:
            element = self.hold(value.expr)
            now = self.read(line, best)
            beyond: ir.Expr = ir.Binary(line, "<" if name == "min" else ">", copy(element), now, type=BOOL)
            if value.type.kind == "float":
                is_nan, had_nan = (ir.Binary(line, "!=", copy(e), copy(e), type=BOOL) for e in (element, now))
                no_more = ir.Unary(line, "not", had_nan, type=BOOL)
                beyond = ir.Logic(line, "or", beyond, ir.Logic(line, "and", is_nan, no_more, type=BOOL), type=BOOL)
            here = ir.Assign(line, found, self.read(line, number))
            self.emit(ir.If(line, beyond, [ir.Assign(line, best, copy(element)), here], []))
            step = ir.Binary(line, "+", self.read(line, number), literal(line, 1), type=I64)
            self.emit(ir.Assign(line, number, step))

        self.each(node, owner, compare)
        return Num(self.read(line, found))

    def each(self, node: ast.AST, owner: View, use: Callable[[Any], None]) -> None:
        """Emit loops over the elements of an array, in the order of memory."""
        line: int = node.lineno  # type: ignore[attr-defined]
        counters = [self.variable("element", I64) for _ in owner.dims]
        self.nonnegative |= set(counters)
        self.blocks.append([])
        at: list[Value | slice | None] = [Num(self.read(line, counter)) for counter in counters]
        part = self.part(node, owner, at)
        use(self.numeric(node, part))
        block = self.blocks.pop()
        for counter, dim in reversed(list(zip(counters, owner.dims, strict=True))):
            stop = converted(copy(dim.size), I64)
            block = [ir.For(line, counter, literal(line, 0), stop, literal(line, 1), block)]
        for statement in block:
            self.emit(statement)
