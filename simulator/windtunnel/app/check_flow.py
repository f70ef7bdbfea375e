"""Which numbers of a kernel depend on the contents of its buffers, on atomic operations, and on its integers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from windtunnel.language import ir


class Source(NamedTuple):
    """Where a number comes from.

    ``kind``: ``load`` (an element of a buffer), ``atomic`` (what an atomic operation returns) or ``number`` (a
    parameter).
    """

    kind: str
    name: str


Sources = frozenset[Source]
_NONE: Sources = frozenset()


class Flow:
    """The sources of a kernel's numbers, through variables and arrays of a block or a thread.

    Where a number comes from is followed through assignments, not through the conditions under which they are made.
    """

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._held: dict[str, Sources] = {name: frozenset({Source("number", name)}) for name in program.scalars}
        moves = list(self._moves())
        changed = True
        while changed:
            changed = False
            for name, value in moves:
                more = self.of(value) - self._held.get(name, _NONE)
                if more:
                    self._held[name] = self._held.get(name, _NONE) | more
                    changed = True

    def _moves(self) -> Iterator[tuple[str, ir.Expr]]:
        """Yield what is assigned to variables, and stored in arrays of a block or a thread."""
        for statement in ir.walk(self._program.body):
            if isinstance(statement, ir.Assign):
                yield statement.name, statement.value
            elif isinstance(statement, ir.For):
                yield statement.name, statement.start
            elif isinstance(statement, ir.Store) and statement.array in self._program.declared:
                yield statement.array, statement.value
            for e in ir.expressions(statement):
                if isinstance(e, ir.Atomic) and e.array in self._program.declared:
                    for value in e.values:
                        yield e.array, value

    def of(self, e: ir.Expr) -> Sources:
        """Return the sources of a number; those of an element are its buffer, and not those of its index."""
        if isinstance(e, ir.Variable):
            return self._held.get(e.name, _NONE)
        if isinstance(e, (ir.Load, ir.Atomic)):
            if e.array in self._program.declared:
                return self._held.get(e.array, _NONE)
            is_read = isinstance(e, ir.Load) or e.op == "load" or adds_nothing(e)
            return frozenset({Source("load" if is_read else "atomic", e.array)})
        children = ir.direct(e)
        return _NONE.union(*map(self.of, children)) if children else _NONE

    def contents(self, e: ir.Expr) -> Collection[str]:
        """Return the buffers on whose contents a number depends."""
        return {source.name for source in self.of(e) if source.kind != "number"}


def deciding_numbers(program: ir.Program) -> frozenset[str]:
    """Return the parameters on which an index, a condition or the bound of a loop depends."""
    flow, deciding = Flow(program), list[ir.Expr]()
    for statement in ir.walk(program.body):
        if isinstance(statement, (ir.If, ir.While)):
            deciding.append(statement.condition)
        elif isinstance(statement, ir.For):
            deciding += [statement.start, statement.stop]
        elif isinstance(statement, ir.Store):
            deciding += statement.indices
        for e in ir.expressions(statement):
            if isinstance(e, (ir.Load, ir.Atomic)):
                deciding += e.indices
            elif isinstance(e, ir.Select):
                deciding.append(e.condition)
    return frozenset(source.name for e in deciding for source in flow.of(e) if source.kind == "number")


def adds_nothing(e: ir.Atomic) -> bool:
    """Return whether an atomic operation only reads: ``atomicAdd(p, 0)``."""
    return e.op in ("add", "sub", "or_", "xor") and literal(e.values[0]) == 0


def literal(e: ir.Expr) -> int | None:
    """Return the integer that an expression states; None for another one."""
    if isinstance(e, ir.Convert):
        return literal(e.operand)
    if isinstance(e, ir.Unary) and e.op == "-":
        inner = literal(e.operand)
        return None if inner is None else -inner
    return int(e.value) if isinstance(e, ir.Literal) and isinstance(e.value, int) else None
