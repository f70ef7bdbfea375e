"""What a Numba kernel iterates over: tuples, arrays, ``range``, ``enumerate``, ``zip``, ``np.ndindex``, ``a.flat``."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from windtunnel.language import ir
from windtunnel.language.numba.arithmetic import converted
from windtunnel.language.numba.arrays import ArrayReader
from windtunnel.language.numba.values import Const, Generated, Num, Records, Tup, Value, View, literal
from windtunnel.language.types import I64


class IterationReader(ArrayReader):
    """Reads the items of what is iterated over or unpacked."""

    def binary(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        """Return the result of an operator."""
        raise NotImplementedError

    def refuse_arrays(self, node: ast.AST, what: str, values: Iterable[Value], expected: str) -> None:
        """Refuse an operation on numbers if one of the values is an array."""
        for value in values:
            if isinstance(value, View) and value.dims:
                self.refuse(node, f"{what} of {value.description}", expected)

    def items(self, node: ast.AST, value: Value, wanted: int | None = None) -> list[Value]:
        """Return the items of a tuple, or of what has a length that is known now; ``wanted`` of an array."""
        if isinstance(value, Tup):
            return list(value.items)
        if isinstance(value, Const) and isinstance(value.value, (tuple, list, range, str)):
            return [self.known_object(node, item) for item in value.value]
        if isinstance(value, Generated):
            length = self.length(node, value)
            if isinstance(length, int):
                return [self.item_at(node, value, at) for at in range(length)]
        if isinstance(value, (View, Records)) and value.dims:
            size = value.dims[0].size
            count = int(size.value) if isinstance(size, ir.Literal) else wanted
            if count is not None:
                return [self.item_at(node, value, at) for at in range(count)]
        self.refuse(node, f"{value.description}, which cannot be unpacked", "a tuple")

    def length(
        self, node: ast.AST, value: Value, use: str = "a loop over",
        expected: str = "range, a tuple, an array, enumerate or zip",
    ) -> int | ir.Expr:  # fmt: skip
        """Return how many items an iteration has: a number if it is known now and the items may differ in type.

        ``use`` and ``expected`` are for the message about a value without items.
        """
        match value:
            case Tup(items=items):
                return len(items)
            case Const(value=tuple() | list() | range() | str() as known):
                return len(known)
            case View(dims=dims) | Records(dims=dims) if dims:
                return copy(dims[0].size)
            case Generated():
                return self._generated_length(node, value)
            case View(text=text) if text:
                self.refuse(node, "the length of a text, or a loop over it", "an array of its characters' codes")
            case _:
                self.refuse(node, f"{use} {value.description}", expected)

    def subscripted(self, node: ast.AST, known: Any, index: ast.expr) -> Value:
        """Return ``known[index]`` of an object, such as a type: ``float32[:]``."""
        if hasattr(known, "py_func"):
            problem = f"a launch of '{known.py_func.__name__}' in a kernel: kernels cannot launch kernels"
            self.refuse(node, problem, "a call of a function that has @cuda.jit(device=True)")
        place = self.expression(index)
        if isinstance(known, type) and type(known).__name__ in ("EnumMeta", "EnumType") and isinstance(place, Const):
            members: Any = known
            try:
                return Const(members[place.value])
            except KeyError:
                self.refuse(node, f"the member {place.value!r} of {known!r}", ", ".join(members.__members__))
        self.refuse(node, f"an element of {known!r}", "an array or a tuple")

    # Long: one case for each kind of iteration.
    def _generated_length(self, node: ast.AST, value: Generated) -> int | ir.Expr:
        match value:
            case Generated(kind="enumerate", items=(inner, *_)):
                return self.length(node, inner)
            case Generated(kind="ndindex", items=sizes):
                whole: ir.Expr = literal(node.lineno, 1)  # type: ignore[attr-defined]
                for size in sizes:
                    whole = ir.Binary(whole.line, "*", whole, converted(self.integer(node, size), I64), type=I64)
                return whole
            case Generated(kind="flat" | "ndenumerate", items=(View() as array,)):
                return self.length(node, Generated("ndindex", self._sides(array)))
            case Generated(kind="zip", items=items):
                lengths = [self.length(node, item) for item in items]
                known_lengths = [length for length in lengths if isinstance(length, int)]
                if len(known_lengths) == len(lengths):
                    return min(known_lengths)
                shortest: ir.Expr | None = None
                for length in lengths:
                    e = literal(node.lineno, length) if isinstance(length, int) else converted(length, I64)  # type: ignore[attr-defined]
                    shortest = e if shortest is None else ir.Binary(e.line, "min", shortest, e, type=I64)
                assert shortest is not None  # noqa: S101  there is an iterable of unknown length
                return shortest
            case Generated(kind="range", items=(start, stop, step)):
                known = [item.value for item in (start, stop, step) if isinstance(item, Const)]
                if len(known) == 3 and all(isinstance(number, int) for number in known):
                    return len(range(*known))
                a, b = self.integer(node, start), self.integer(node, stop)
                count: ir.Expr
                if step == Const(1):
                    count = ir.Binary(a.line, "-", converted(b, I64), converted(a, I64), type=I64)
                else:
                    rest = ir.Binary(a.line, "-", converted(a, I64), converted(b, I64), type=I64)
                    whole = ir.Binary(a.line, "//", rest, converted(self.integer(node, step), I64), type=I64)
                    count = ir.Unary(a.line, "-", whole, type=I64)  # rounded up
                return ir.Binary(a.line, "max", count, literal(a.line, 0), type=I64)
            case Generated(kind="reversed", items=(inner,)):
                return self.length(node, inner)
            case _:
                raise AssertionError(f"an iteration of kind {value.kind}")

    def item_at(self, node: ast.AST, value: Value, at: int | Value) -> Value:
        """Return an item of an iteration."""
        line: int = node.lineno  # type: ignore[attr-defined]
        match value:
            case Tup(items=items) if isinstance(at, int):
                return items[at]
            case Const(value=tuple() | list() | range() | str() as known) if isinstance(at, int):
                return self.known_object(node, known[at])
            case Generated(kind="enumerate", items=(inner, start)):
                number: Value = Const(at) if isinstance(at, int) else at
                return Tup((self.binary(node, "+", number, start), self.item_at(node, inner, at)))
            case Generated(kind="zip", items=items):
                return Tup(tuple(self.item_at(node, item, at) for item in items))
            case Generated(kind="range", items=(start, _, step)):
                number = Const(at) if isinstance(at, int) else at
                return self.binary(node, "+", start, self.binary(node, "*", number, step))
            case Generated(kind="ndindex", items=sizes):
                return self._place(node, sizes, at)
            case Generated(kind="flat" | "ndenumerate" as kind, items=(View() as array,)):
                place = self._place(node, self._sides(array), at)
                element = self.part(node, array, list(place.items))
                return element if kind == "flat" else Tup((place, element))
            case View() | Records():
                index = literal(line, at) if isinstance(at, int) else self.integer(node, at)
                return self.part(node, value, [Num(index)])
            case Tup():
                return self.tuple_item(node, value, Const(at) if isinstance(at, int) else at)
            case _:
                self.refuse(node, f"an item of {value.description}", None)

    def _sides(self, array: View) -> tuple[Value, ...]:
        return tuple(Num(converted(copy(dim.size), I64)) for dim in array.dims)

    def _place(self, node: ast.AST, sizes: Sequence[Value], at: int | Value) -> Tup:
        """Return the indices of an element, given its number in the order of rows."""
        line: int = node.lineno  # type: ignore[attr-defined]
        rest = literal(line, at) if isinstance(at, int) else converted(self.integer(node, at), I64)
        found: list[Value] = []
        for size in reversed(sizes[1:]):
            side = self.hold(converted(self.integer(node, size), I64), "side")
            rest = self.hold(rest, "rest")
            index = self.hold_always(ir.Binary(line, "%", copy(rest), copy(side), type=I64), "index")
            assert isinstance(index, ir.Variable)  # noqa: S101  it is a new variable
            self.nonnegative.add(index.name)  # no loop has a negative size
            found.insert(0, Num(index))
            rest = ir.Binary(line, "//", copy(rest), side, type=I64)
        first = self.hold_always(rest, "index")
        assert isinstance(first, ir.Variable)  # noqa: S101  it is a new variable
        self.nonnegative.add(first.name)
        return Tup((Num(first), *found))
