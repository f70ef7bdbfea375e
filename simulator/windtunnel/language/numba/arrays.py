"""Arrays, slices and records of a Numba kernel: parts of them, elements, assignments and attributes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import rules
from windtunnel.language.numba.arithmetic import converted, number
from windtunnel.language.numba.declarations import SIZE, DeclarationReader, dtype_of
from windtunnel.language.numba.values import (
    Const,
    Cplx,
    Dim,
    Generated,
    Method,
    Num,
    Records,
    Tup,
    Value,
    View,
    literal,
)
from windtunnel.language.types import BOOL, I64, Scalar
from windtunnel.language.words import many

_METHODS = (
    "copy", "reshape", "ravel", "flatten", "fill", "sum", "prod", "mean", "var", "std", "any", "all", "min", "max",
    "transpose", "view", "item", "argmax", "argmin",
)  # fmt: skip
"""The methods of arrays that kernels may call."""


class ArrayReader(DeclarationReader):
    """Reads accesses to arrays."""

    def expression(self, node: ast.expr) -> Value:
        """Read an expression."""
        raise NotImplementedError

    # Elements and slices.

    def element(self, node: ast.AST, owner: Value, index: ast.expr) -> Value:
        """Return ``owner[index]``: an item, an element or a slice."""
        match owner:
            case View(dims=()):
                if any(one is not None for one in self.indices(index)):
                    self.refuse(node, "an index of an array without dimensions", "a[()]")
                return owner
            case View() | Records():
                return self.part(node, owner, self.indices(index))
            case Generated(kind="flat"):
                return self.item_at(node, owner, self.expression(index))
            case Tup():
                return self._tuple_part(node, owner, index)
            case Const(value=tuple() | list() | str() | dict() as known):
                place = self.expression(index)
                if isinstance(place, Const):
                    try:
                        return self.known_object(node, known[place.value])
                    except (LookupError, TypeError) as error:
                        self.refuse(node, f"the item {place.value!r}: {error}")
                if isinstance(known, (tuple, list)):
                    return self.tuple_item(node, Tup(tuple(self.known_object(node, item) for item in known)), place)
                self.refuse(node, "an item that is known only while the kernel runs", "a constant")
            case Const(value=known):
                return self.subscripted(node, known, index)
            case _:
                self.refuse(node, f"an element of {owner.description}, which is not an array", "an array or a tuple")

    def item_at(self, node: ast.AST, value: Value, at: int | Value) -> Value:
        """Return an item of an iteration."""
        raise NotImplementedError

    def subscripted(self, node: ast.AST, known: Any, index: ast.expr) -> Value:
        """Return ``known[index]`` of an object, such as a type: ``float32[:]``."""
        raise NotImplementedError

    def known_object(self, node: ast.AST, value: Any) -> Value:
        """Return an object from outside the kernel."""
        raise NotImplementedError

    def _tuple_part(self, node: ast.AST, owner: Tup, index: ast.expr) -> Value:
        if isinstance(index, ast.Slice):
            bounds = [
                None if bound is None else self.expression(bound) for bound in (index.lower, index.upper, index.step)
            ]
            if not all(bound is None or isinstance(bound, Const) for bound in bounds):
                self.refuse(node, "a slice of a tuple that is known only while the kernel runs", "constants")
            return Tup(owner.items[slice(*(None if b is None else b.value for b in bounds))])  # type: ignore[attr-defined]
        return self.tuple_item(node, owner, self.expression(index))

    def tuple_item(self, node: ast.AST, owner: Tup, place: Value) -> Value:
        """Return an item of a tuple. An index that is not known now selects among items of one type."""
        if isinstance(place, Const) and isinstance(place.value, (int, np.integer)):
            at = int(place.value)
            if not -len(owner.items) <= at < len(owner.items):
                self.refuse(node, f"item {at} of {owner.description}", f"0 to {len(owner.items) - 1}")
            return owner.items[at]
        index = self.hold(converted(self.integer(node, place), I64))
        line: int = node.lineno  # type: ignore[attr-defined]
        if self.debug:
            low = ir.Binary(line, "<", copy(index), literal(line, -len(owner.items)), type=BOOL)
            high = ir.Binary(line, ">=", copy(index), literal(line, len(owner.items)), type=BOOL)
            self.blocks.append([])
            self.record_error(node, IndexError, ("tuple index out of range",))
            self.emit_if(line, ir.Logic(line, "or", low, high, type=BOOL), self.blocks.pop())
        if not owner.items:
            self.refuse(node, "an item of an empty tuple")
        like = owner.items[0]
        for item in owner.items[1:]:
            like = self.unify(like, item)
        if self.slot_type(like) is None:
            self.refuse(
                node, "an item of a tuple of several types, by an index that is no constant", "a constant index"
            )
        slot = self.slot("item", like)
        self.assign_slot(line, slot, owner.items[-1])
        for at, item in enumerate(owner.items[:-1]):
            chosen = ir.Binary(line, "==", copy(index), literal(line, at), type=BOOL)
            behind = ir.Binary(line, "==", copy(index), literal(line, at - len(owner.items)), type=BOOL)
            self.blocks.append([])
            self.assign_slot(line, slot, item)
            self.emit_if(line, ir.Logic(line, "or", chosen, behind, type=BOOL), self.blocks.pop())
        return self.at(line, slot)

    def record_error(self, node: ast.AST, kind: type[BaseException], arguments: tuple[object, ...]) -> None:
        """Emit the record of an error that the kernel raises."""
        raise NotImplementedError

    def emit_if(self, line: int, condition: ir.Expr, body: list[ir.Stmt]) -> None:
        """Emit statements under a condition."""
        self.emit(ir.If(line, condition, body, []))

    def indices(self, index: ast.expr) -> list[Value | slice | None]:
        """Return what stands between the brackets: numbers, slices, and None for ``...``."""
        given = index.elts if isinstance(index, ast.Tuple) else [index]
        found: list[Value | slice | None] = []
        for one in given:
            if isinstance(one, ast.Slice):
                found.append(
                    slice(*(None if b is None else self.expression(b) for b in (one.lower, one.upper, one.step)))
                )
                continue
            value = self.expression(one)
            if isinstance(value, Const) and value.value is Ellipsis:
                found.append(None)
            elif isinstance(value, Const) and isinstance(value.value, slice):
                found.append(slice(*(None if b is None else Const(b) for b in
                                     (value.value.start, value.value.stop, value.value.step))))  # fmt: skip
            elif isinstance(value, Tup) and not isinstance(index, ast.Tuple):
                found += value.items
            else:
                found.append(value)
        return found

    def part(self, node: ast.AST, owner: View | Records, given: Sequence[Value | slice | None]) -> Value:
        """Return a part of an array."""
        if isinstance(owner, Records):
            if len(given) == 1 and isinstance(given[0], Const) and isinstance(given[0].value, (str, np.str_)):
                return self.field(node, owner, str(given[0].value))
            if not owner.dims and len(given) == 1 and isinstance(given[0], Const) and isinstance(given[0].value, int):
                return self.field(node, owner, list(owner.fields)[given[0].value])
            return self._records_part(node, owner, given)
        origin, kept = list(owner.origin), []
        left = iter(owner.dims)
        for index in self._index_of_each(node, len(owner.dims), given):
            if isinstance(index, Const) and index.value is None:
                one = literal(node.lineno, 1)  # type: ignore[attr-defined]
                kept.append(Dim(0, one, literal(one.line, 0)))  # np.newaxis: every index along it is the same
                continue
            dim = next(left)
            if isinstance(index, slice):
                kept.append(self._sliced(node, dim, index, origin))
                continue
            place = self.wrapped(node, self._index_of(node, index), dim.size)
            if self.strict and not (owner.whole and self._is_side(owner, dim)):
                place = self._within(node, owner, dim, place)
            self._shift(origin, dim, place)
        if kept:
            # The parts of a slice are evaluated now, because it may be used later.
            origin = [None if start is None else self.hold(start, "start") for start in origin]
        return owner.with_dims(tuple(kept), tuple(origin))

    def _is_side(self, owner: View, dim: Dim) -> bool:
        """Return whether a dimension is known to be one of the array itself, which an access checks."""
        if isinstance(dim.size, ir.Literal):
            declared = self.declared.get(owner.base)
            return declared is not None and declared.shape[dim.axis] == dim.size.value
        return isinstance(dim.size, ir.Size)

    def _within(self, node: ast.AST, owner: View, dim: Dim, place: ir.Expr) -> ir.Expr:
        """Return an index along a dimension of a slice or a view, after a check that it is within that dimension."""
        line: int = node.lineno  # type: ignore[attr-defined]
        at, size = self.hold(converted(place, I64), "index"), converted(copy(dim.size), I64)
        low = ir.Binary(line, ">=", copy(at), literal(line, 0), type=BOOL)
        high = ir.Binary(line, "<", copy(at), size, type=BOOL)
        name = self.spellings.get(owner.base, owner.base)
        message = f"an index of {ast.unparse(node)} is out of bounds for this slice or view of '{name}'"
        self.emit(ir.Require(line, ir.Logic(line, "and", low, high, type=BOOL), "OutOfBounds", message))
        return copy(at)

    def _index_of_each(self, node: ast.AST, count: int, given: Sequence[Value | slice | None]) -> list[Value | slice]:
        """Return an index for each dimension, and None of Python for each new one, in the place of ``...``."""
        new = sum(isinstance(one, Const) and one.value is None for one in given)
        stated = sum(one is not None for one in given) - new
        if stated > count:
            self.refuse(node, f"{many(stated, 'index')} for an array of {many(count, 'dimension')}", f"at most {count}")
        wanted: list[Value | slice] = []
        for one in given:
            wanted += [slice(None)] * (count - stated) if one is None else [one]
        return wanted + [slice(None)] * (count + new - len(wanted))

    def _index_of(self, node: ast.AST, index: Value) -> ir.Expr:
        if isinstance(index, View) and not index.dims:
            index = self.load(node, index)
        if isinstance(index, (View, Records, Tup)):
            self.refuse(node, f"{index.description} as an index", "integers and slices")
        made = self.num(node, index)
        if made.type.kind == "float":
            self.refuse(node, f"an index of type {rules.name_of(made.type)}", "an integer: int(x)")
        return converted(made.expr, I64) if made.type == BOOL else made.expr

    def _records_part(self, node: ast.AST, owner: Records, given: Sequence[Value | slice | None]) -> Value:
        held: list[Value | slice | None] = [self.stored(one, "index") if isinstance(one, Num) else one for one in given]
        fields: dict[str, Value] = {}
        for name, inner in owner.fields.items():
            assert isinstance(inner, (View, Records))  # noqa: S101  fields are arrays
            again = [self.at(node.lineno, one) if isinstance(one, Value) else one for one in held]  # type: ignore[attr-defined]
            lead = len(owner.dims)
            extra = len(inner.dims) - lead
            fields[name] = self.part(node, inner, [*again, *([None] if extra and None not in again else [])])
        first = owner.dims
        probe = [one for one in given if isinstance(one, slice)]
        left = len(first) - sum(1 for one in given if one is not None and not isinstance(one, slice))
        del probe
        some = next(iter(fields.values()))
        dims = getattr(some, "dims", ())[:left]
        return Records(fields, tuple(dims), owner.misaligned)

    def field(self, node: ast.AST, owner: Records, name: str) -> Value:
        """Return a field of a record or of an array of records."""
        if name not in owner.fields:
            self.refuse(node, f"the field '{name}' of a record", ", ".join(owner.fields))
        if name in owner.misaligned:
            self.refuse(
                node,
                f"record.{name} of type {owner.misaligned[name]} is not aligned",
                "np.dtype(..., align=True)",
            )
        return owner.fields[name]

    def _shift(self, origin: list[ir.Expr | None], dim: Dim, by: ir.Expr) -> None:
        moved = by
        if dim.step is not None:
            moved = ir.Binary(by.line, "*", converted(by, I64), converted(copy(dim.step), I64), type=I64)
        start = origin[dim.axis]
        if start is not None:
            moved = ir.Binary(by.line, "+", converted(copy(start), I64), converted(moved, I64), type=I64)
        origin[dim.axis] = moved

    def wrapped(self, node: ast.AST, index: ir.Expr, size: ir.Expr) -> ir.Expr:
        """Return an index from the start. As in Numba, a negative signed one counts from the end."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if isinstance(index, ir.Literal) and index.value < 0:
            if isinstance(size, ir.Literal):
                return literal(line, int(size.value) + int(index.value))
            return ir.Binary(line, "+", converted(copy(size), I64), converted(index, I64), type=I64)
        if self.is_nonnegative(index):
            return index
        held = self.hold(converted(index, I64), "index")
        from_end = ir.Binary(line, "+", copy(held), converted(copy(size), I64), type=I64)
        below = ir.Binary(line, "<", copy(held), literal(line, 0), type=BOOL)
        return self.hold(ir.Select(line, below, from_end, held, type=I64), "index")

    def _sliced(self, node: ast.AST, dim: Dim, given: slice, origin: list[ir.Expr | None]) -> Dim:
        """Return the dimension that a slice leaves, and move the origin to its start."""
        line: int = node.lineno  # type: ignore[attr-defined]
        bounds = (given.start, given.stop, given.step)
        start, stop, step = (None if isinstance(b, Const) and b.value is None else b for b in bounds)
        if start is None and stop is None and step is None:
            return dim
        stride = 1 if step is None else step.value if isinstance(step, Const) else None
        size = converted(copy(dim.size), I64)
        if stride is None or stride == 0:
            return self._strided(node, dim, start, stop, step, origin)
        down = stride < 0
        first = self._bound(node, start, size, down, at_start=True)
        last = self._bound(node, stop, size, down, at_start=False)
        far, near = (first, last) if down else (last, first)
        span = ir.Binary(line, "-", copy(far), copy(near), type=I64)
        length: ir.Expr = ir.Binary(line, "max", span, literal(line, 0), type=I64)
        if abs(stride) != 1:
            rounded = ir.Binary(line, "+", length, literal(line, abs(stride) - 1), type=I64)
            length = ir.Binary(line, "//", rounded, literal(line, abs(stride)), type=I64)
        length = self.hold(length, "length")
        if isinstance(length, ir.Variable):
            self.nonnegative.add(length.name)
        if not (isinstance(first, ir.Literal) and first.value == 0):
            self._shift(origin, dim, copy(first))
        return self._stepped(line, dim, length, literal(line, stride))

    def _stepped(self, line: int, dim: Dim, length: ir.Expr, stride: ir.Expr) -> Dim:
        if isinstance(stride, ir.Literal) and stride.value == 1:
            return Dim(dim.axis, length, dim.step)
        if dim.step is None:
            return Dim(dim.axis, length, stride)
        product = ir.Binary(line, "*", converted(copy(dim.step), I64), converted(stride, I64), type=I64)
        return Dim(dim.axis, length, self.hold(product, "step"))

    def _strided(
        self, node: ast.AST, dim: Dim, start: Value | None, stop: Value | None, step: Any, origin: list[ir.Expr | None]
    ) -> Dim:
        """Return the dimension of a slice whose step is known only while the kernel runs."""
        line: int = node.lineno  # type: ignore[attr-defined]
        stride = self.hold(converted(self.integer(node, step), I64), "step")
        size = converted(copy(dim.size), I64)
        ends = ((start, True), (stop, False))
        up = [self._bound(node, bound, size, False, at_start=at_start) for bound, at_start in ends]
        first, pace = up[0], copy(stride)
        span: ir.Expr = ir.Binary(line, "-", copy(up[1]), copy(up[0]), type=I64)
        if not self.is_nonnegative(stride):
            falls = self.hold(ir.Binary(line, "<", copy(stride), literal(line, 0), type=BOOL), "falls")
            down = [self._bound(node, bound, size, True, at_start=at_start) for bound, at_start in ends]
            first = self.hold(ir.Select(line, copy(falls), down[0], first, type=I64), "first")
            falling = ir.Binary(line, "-", copy(down[0]), copy(down[1]), type=I64)
            span = ir.Select(line, copy(falls), falling, span, type=I64)
            pace = ir.Unary(line, "abs", copy(stride), type=I64)
        length: ir.Expr = ir.Binary(line, "max", span, literal(line, 0), type=I64)
        less = ir.Binary(line, "-", pace, literal(line, 1), type=I64)
        length = ir.Binary(line, "//", ir.Binary(line, "+", length, less, type=I64), copy(pace), type=I64)
        length = self.hold(length, "length")
        if isinstance(length, ir.Variable):
            self.nonnegative.add(length.name)
        self._shift(origin, dim, copy(first))
        return self._stepped(line, dim, length, stride)

    def _bound(self, node: ast.AST, given: Value | None, size: ir.Expr, down: bool, *, at_start: bool) -> ir.Expr:
        """Return a bound of a slice within the dimension, as ``slice.indices`` does."""
        line: int = node.lineno  # type: ignore[attr-defined]
        low: ir.Expr = literal(line, -1 if down else 0)
        high: ir.Expr = ir.Binary(line, "-", copy(size), literal(line, 1), type=I64) if down else copy(size)
        if isinstance(size, ir.Literal) and down:
            high = literal(line, int(size.value) - 1)
        if given is None:
            return (high if down else low) if at_start else (low if down else high)
        e = converted(self.integer(node, given), I64)
        if isinstance(e, ir.Literal) and isinstance(size, ir.Literal):
            at = int(e.value) + (int(size.value) if e.value < 0 else 0)
            assert isinstance(low, ir.Literal) and isinstance(high, ir.Literal)  # noqa: S101  the size is a literal
            return literal(line, min(max(at, int(low.value)), int(high.value)))
        if not self.is_nonnegative(e):
            held = self.hold(e, "bound")
            from_end = ir.Binary(line, "+", copy(held), copy(size), type=I64)
            e = ir.Select(line, ir.Binary(line, "<", copy(held), literal(line, 0), type=BOOL), from_end, held, type=I64)
            e = ir.Binary(line, "max", e, low, type=I64)
        result = self.hold(ir.Binary(line, "min", e, high, type=I64), "bound")
        if not down and isinstance(result, ir.Variable):
            self.nonnegative.add(result.name)
        return result

    def held_index(self, where: Value) -> Value:
        """Return an element whose indices may be used twice."""
        if not isinstance(where, View):
            return where
        return where.with_dims(where.dims, tuple(None if s is None else self.hold(s, "index") for s in where.origin))

    def require_one_array(self, node: ast.AST, owner: View, what: str) -> None:
        """Refuse what needs to know the array, for a view of one of several."""
        if owner.others:
            self.refuse(node, f"{what} of a variable that is one of several arrays", "one array on every path")

    # Assignments to elements.

    def store_item(self, node: ast.AST, owner: Value, index: ast.expr, value: Value) -> None:
        """Assign to ``owner[index]``."""
        if not isinstance(owner, (View, Records)):
            self.refuse(node, f"an assignment to an element of {owner.description}", "an array")
        if isinstance(value, View) and not value.dims:
            value = self.load(node, value)
        if isinstance(value, (Num, Cplx)) and not isinstance(index, (ast.Constant, ast.Name)):
            # The value is evaluated before the index.
            value = self.stored(value, "held") if _has_effect(value) else value
        if isinstance(owner, View) and not owner.dims:
            self.store_value(node, self.element(node, owner, index), value)
            return
        mark = len(self.blocks[-1])
        where = self.part(node, owner, self.indices(index))
        self.store_value(node, where, self.before_effects(node, value, mark))

    def before_effects(self, node: ast.AST, value: Value, mark: int) -> Value:
        """Return a value that was read when the block had ``mark`` statements, as it was then."""
        raise NotImplementedError

    def store_attribute(self, node: ast.AST, owner: Value, name: str, value: Value) -> None:
        """Assign to ``owner.name``."""
        if isinstance(owner, Records) and name in owner.fields:
            self.store_value(node, self.field(node, owner, name), value)
            return
        self.refuse(node, f"an assignment to the attribute '{name}' of {owner.description}", "a field of a record")

    def store_value(self, node: ast.AST, where: Value, value: Value) -> None:
        """Assign to an element, a slice or a record."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if isinstance(where, Records):
            self._store_record(node, where, value)
            return
        if not isinstance(where, View):
            self.refuse(node, f"an assignment to {where.description}", "an element of an array")
        if not where.writable:
            self.refuse(node, "an assignment to a constant array", "another array")
        if where.dims:
            self._fill(node, where, value)
            return
        if where.text:
            self._store_text(node, where, value)
            return
        if isinstance(value, View) and not value.dims:
            value = self.load(node, value)
        made = self.numeric(node, value)
        if where.others:
            held = self.stored(made, "held")
            self.of_each(node, where, lambda one: self.store_value(node, one, held))
            return
        if isinstance(made, Cplx) and not isinstance(where.element, rules.Complex):
            self.refuse(node, "a complex number stored into an array of real ones", "z.real, z.imag or abs(z)")
        indices = [literal(line, 0) if start is None else start for start in where.origin]
        stored = number(made, where.element)
        if isinstance(stored, Cplx):
            parts = [self.hold(stored.re), self.hold(stored.im)]
            held = self.held_index(where)
            assert isinstance(held, View)  # noqa: S101  it was one before
            for at, part in enumerate(parts):
                self.store_value(node, self.part_of(line, held, at), Num(part))
            return
        storage = self.arrays[where.base].element
        if isinstance(where.element, Scalar) and storage != where.element:
            self.split(line, where.base, indices, stored.expr, where.element)
            return
        self.emit(ir.Store(line, where.base, indices, converted(stored.expr, storage)))

    def _store_text(self, node: ast.AST, where: View, value: Value) -> None:
        """Assign a constant text to an element, with zeros after it."""
        line: int = node.lineno  # type: ignore[attr-defined]
        kind = self.arrays[where.base].element
        known = value.value if isinstance(value, Const) else None
        if not isinstance(known, (str, bytes)) or len(known) > where.text:
            self.refuse(node, f"{value.description} assigned to text", f"a constant of at most {where.text} characters")
        codes = known if isinstance(known, bytes) else [ord(character) for character in known]
        held = [literal(line, 0) if start is None else self.hold(start, "index") for start in where.origin]
        for at in range(where.text):
            code = codes[at] if at < len(codes) else 0
            self.emit(ir.Store(line, where.base, [*map(copy, held), literal(line, at)], literal(line, code, kind)))

    def _store_record(self, node: ast.AST, where: Records, value: Value) -> None:
        if isinstance(value, Records) and set(value.fields) == set(where.fields):
            for name, inner in where.fields.items():
                self.store_value(node, self.held_index(inner), value.fields[name])
            return
        if isinstance(value, Tup) and len(value.items) == len(where.fields):
            for inner, item in zip(where.fields.values(), value.items, strict=True):
                self.store_value(node, inner, item)
            return
        self.refuse(node, f"{value.description} assigned to a record", "a record of the same type")

    def _fill(self, node: ast.AST, where: View, value: Value) -> None:
        """Emit the loops of ``a[1:3] = x``, where x is a number or an array of the same dimensions."""
        line: int = node.lineno  # type: ignore[attr-defined]
        source: View | None = None
        if isinstance(value, View) and value.dims:
            if len(value.dims) > len(where.dims):
                self.refuse(node, "an array of more dimensions assigned to a slice", many(len(where.dims), "dimension"))
            source = value
        elif isinstance(value, Tup):
            for at, item in enumerate(value.items):
                self.store_value(node, self.part(node, where, [Num(literal(line, at))]), item)
            return
        else:
            made = self.numeric(node, value)
            value = self.stored(number(made, where.element), "held")

        def element(at: list[Num]) -> Value:
            if source is not None:
                return self.part(node, source, at[len(where.dims) - len(source.dims) :])
            return self.at(line, value)

        self.filled(node, where, element)

    def filled(self, node: ast.AST, where: View, element: Callable[[list[Num]], Value]) -> None:
        """Emit loops that store a value into every element of an array; ``element`` returns it for an index."""
        line: int = node.lineno  # type: ignore[attr-defined]
        held = self.held_index(where)
        assert isinstance(held, View)  # noqa: S101  it was one before
        counters: list[str] = []
        for _ in held.dims:
            counter = self.variable("element", I64)
            self.nonnegative.add(counter)
            counters.append(counter)
        block: list[ir.Stmt] = []
        self.blocks.append(block)
        at = [Num(self.read(line, counter)) for counter in counters]
        value = element(at)
        self.store_value(node, self.part(node, held, [Num(self.read(line, counter)) for counter in counters]), value)
        self.blocks.pop()
        for counter, dim in reversed(list(zip(counters, held.dims, strict=True))):
            stop = converted(copy(dim.size), I64)
            block = [ir.For(line, counter, literal(line, 0), stop, literal(line, 1), block)]
        for statement in block:
            self.emit(statement)

    # Attributes.

    def overloaded_attribute(self, node: ast.AST, owner: Value, name: str) -> Value | None:
        """Return an attribute or a method that the program has added to a type; None if there is none."""
        raise NotImplementedError

    def added_attribute(self, node: ast.AST, owner: Value, name: str, expected: str | None) -> Value:
        """Return an attribute that the program has added to a type. Raises KernelError if there is none."""
        found = self.overloaded_attribute(node, owner, name)
        if found is None:
            self.refuse(node, f"the attribute '{name}' of {owner.description}", expected)
        return found

    def array_attribute(self, node: ast.AST, owner: View | Records, name: str) -> Value:
        """Return an attribute of an array or a record."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if isinstance(owner, Records) and name in owner.fields:
            return self.field(node, owner, name)
        dims = owner.dims
        if name == "shape":
            return Tup(tuple(Num(converted(copy(dim.size), I64)) for dim in dims))
        if name == "ndim":
            return Const(len(dims))
        if name == "size":
            product: ir.Expr = literal(line, 1) if not dims else converted(copy(dims[0].size), I64)
            for dim in dims[1:]:
                product = ir.Binary(line, "*", product, converted(copy(dim.size), I64), type=I64)
            return Num(product)
        found = self._view_attribute(node, owner, name) if isinstance(owner, View) else None
        if found is not None:
            return found
        if name in _METHODS:
            return Method(owner, name)
        known = list(owner.fields) if isinstance(owner, Records) else []
        known += ["shape", "size", "ndim", "dtype", "T", "strides"] if dims else []
        return self.added_attribute(node, owner, name, ", ".join(known))

    def _view_attribute(self, node: ast.AST, owner: View, name: str) -> Value | None:
        """Return an attribute of an array of numbers; None if it has none of this name."""
        line: int = node.lineno  # type: ignore[attr-defined]
        dims = owner.dims
        if name == "T":
            return owner.with_dims(tuple(reversed(dims)), owner.origin)
        if name == "dtype":
            return Const(dtype_of(owner))
        if name == "itemsize":
            return Const(dtype_of(owner).itemsize)
        if name in ("real", "imag") and isinstance(owner.element, rules.Complex):
            self.require_one_array(node, owner, "a part")
            return self.part_of(line, owner, 0 if name == "real" else 1)
        if name == "nbytes":
            size = self.array_attribute(node, owner, "size")
            assert isinstance(size, Num)  # noqa: S101  it is a product of sizes
            return Num(ir.Binary(line, "*", size.expr, literal(line, dtype_of(owner).itemsize), type=I64))
        if name == "strides":
            return self._strides(node, owner)
        if name == "flat":
            return Generated("flat", (owner,))
        return None

    def _strides(self, node: ast.AST, owner: View) -> Value:
        line: int = node.lineno  # type: ignore[attr-defined]
        self.require_one_array(node, owner, "strides")
        base = self.arrays[owner.base]
        found: list[Value] = []
        for dim in owner.dims:
            of_numbers = isinstance(owner.element, Scalar) or self.holds_parts(owner)
            unit = base.element.bits // 8 if of_numbers else dtype_of(owner).itemsize
            stride: ir.Expr = literal(line, unit)
            for axis in range(dim.axis + 1, len(owner.origin)):
                side = ir.Size(line, owner.base, axis, type=SIZE)
                stride = ir.Binary(line, "*", stride, converted(side, I64), type=I64)
            if dim.step is not None:
                stride = ir.Binary(line, "*", stride, converted(copy(dim.step), I64), type=I64)
            found.append(Num(stride))
        return Tup(tuple(found))


def _has_effect(value: Num | Cplx) -> bool:
    parts = (value.expr,) if isinstance(value, Num) else (value.re, value.im)
    return any(isinstance(inner, (ir.Atomic, ir.Warp)) for part in parts for inner in ir.inside(part))
