"""The buffers that `windtunnel check` makes up with rising numbers: where the rows of a sparse matrix begin."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from windtunnel.app.check_polynomials import ORDERED, Polynomial, Reading, combined
from windtunnel.language import ir

_MAX_DEPTH = 40


class _Element(NamedTuple):
    """An element that is read: its array, and its index there."""

    array: str
    place: Polynomial


def row_starts(program: ir.Program, block: Sequence[int], integers: Collection[str]) -> frozenset[str]:
    """Return the buffers of ``integers`` of which an element and the next one bound a row.

    They do if they bound a loop, if the first is subtracted from the second, or if both are indices of other memory;
    also where they have been copied to memory of a block or a thread.
    """
    return frozenset(_Rows(program, block, integers).found())


class _Rows:
    def __init__(self, program: ir.Program, block: Sequence[int], integers: Collection[str]) -> None:
        self.program, self.reading, self.integers = program, Reading(program, (), block), integers
        self.assigned: dict[str, list[ir.Expr]] = {}
        self.copied: dict[str, list[ir.Expr]] = {}
        """What is stored in arrays of a block or a thread."""
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Assign):
                self.assigned.setdefault(statement.name, []).append(statement.value)
            elif isinstance(statement, ir.Store) and statement.array in program.declared:
                self.copied.setdefault(statement.array, []).append(statement.value)

    def found(self) -> set[str]:
        pairs = [pair for statement in ir.walk(self.program.body) for pair in self._bounds(statement)]
        expressions = [e for s in ir.walk(self.program.body) for e in ir.expressions(s)]
        pairs += [
            ([one], [other])
            for e in expressions
            if isinstance(e, ir.Binary) and e.op == "-"
            and (one := self._element(e.right)) is not None and (other := self._element(e.left)) is not None
        ]  # fmt: skip
        buffers: set[str] = set()
        for starts, stops in pairs:
            for one in starts:
                buffers |= {self._origin(one.array) for other in stops if self._is_next(one, other)}
        return (buffers | self._indices()) & set(self.integers)

    def _is_next(self, one: _Element, other: _Element) -> bool:
        return one.array == other.array and combined("-", other.place, one.place) == {(): 1}

    def _origin(self, array: str) -> str:
        """Return the buffer of which an array of a block or a thread has elements."""
        origins = {one.array for value in self.copied.get(array, ()) if (one := self._element(value)) is not None}
        return origins.pop() if len(origins) == 1 else array

    # The bounds of loops.

    def _bounds(self, statement: ir.Stmt) -> Iterator[tuple[list[_Element], list[_Element]]]:
        """Yield what the counter of a loop begins with, and what it is compared with."""
        if isinstance(statement, ir.For):
            yield self._terms(statement.start), self._terms(statement.stop)
        if not isinstance(statement, ir.While):
            return
        leaving = [s.condition for s in statement.body if isinstance(s, ir.If) and _breaks(s)]
        for condition in (statement.condition, *leaving):
            for e in ir.inside(condition):
                if isinstance(e, ir.Binary) and e.op in ORDERED:
                    for counter, bound in ((e.left, e.right), (e.right, e.left)):
                        variable = _without_conversion(counter)
                        if isinstance(variable, ir.Variable) and variable.name in self.reading.starts:
                            yield self._terms(counter), self._terms(bound)

    def _terms(self, e: ir.Expr, depth: int = 0) -> list[_Element]:
        """Return the elements that are terms of a sum."""
        if depth > _MAX_DEPTH:
            return []
        if isinstance(e, ir.Convert):
            return self._terms(e.operand, depth + 1)
        if isinstance(e, ir.Variable) and (e.name in self.reading.values or e.name in self.reading.starts):
            value = self.reading.values.get(e.name) or self.reading.starts[e.name]
            return self._terms(value, depth + 1)
        if isinstance(e, ir.Binary) and e.op in ("+", "-", "min", "max"):
            return [*self._terms(e.left, depth + 1), *self._terms(e.right, depth + 1)]
        return self._read(e)

    def _element(self, e: ir.Expr) -> _Element | None:
        """Return the element that an expression is; None for another one."""
        for _ in range(_MAX_DEPTH):
            if isinstance(e, ir.Convert):
                e = e.operand
            elif isinstance(e, ir.Variable) and e.name in self.reading.values:
                e = self.reading.values[e.name]
        return next(iter(self._read(e)), None)

    def _read(self, e: ir.Expr) -> list[_Element]:
        if not isinstance(e, ir.Load) or len(e.indices) != 1:
            return []
        return [_Element(e.array, self.reading.polynomial(e.indices[0]))]

    # Indices of other memory.

    def _indices(self) -> set[str]:
        """Return the buffers of which an element and the next one are indices, of rows that follow each other."""
        waiting: list[ir.Expr] = []
        for statement in ir.walk(self.program.body):
            if isinstance(statement, ir.Store):
                waiting += statement.indices
            for e in ir.expressions(statement):
                waiting += e.indices if isinstance(e, (ir.Load, ir.Atomic)) else ()
        read: dict[str, list[_Element]] = {}
        seen: set[str] = set()
        while waiting:
            e = waiting.pop()
            if isinstance(e, ir.Variable):
                if e.name not in seen:
                    seen.add(e.name)
                    waiting += self.assigned.get(e.name, ())
            elif isinstance(e, ir.Load):
                for one in self._read(e):
                    read.setdefault(one.array, []).append(one)
            elif not isinstance(e, ir.Atomic):
                waiting += ir.direct(e)
        return {
            self._origin(array)
            for array, elements in read.items()
            if any(_is_of_rows(one.place) and self._is_next(one, other) for one in elements for other in elements)
        }


def _is_of_rows(index: Polynomial) -> bool:
    """Return whether the elements of an index follow each other: ``r``, but not ``2 * i``, of pairs."""
    return any(monomial and factor == 1 for monomial, factor in index.items())


def _without_conversion(e: ir.Expr) -> ir.Expr:
    return _without_conversion(e.operand) if isinstance(e, ir.Convert) else e


def _breaks(statement: ir.If) -> bool:
    return any(isinstance(s, ir.Break) for s in (*statement.body, *statement.orelse))
