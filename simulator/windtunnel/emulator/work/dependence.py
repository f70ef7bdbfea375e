"""What the counted work of a launch depends on: numbers of the launch alone, or the contents of arrays too."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.language import ir

DATA = "*"
"""The name of what arrays contain. No parameter can have it."""
_ACCESSES = (ir.Load, ir.Atomic)


class _Sources:
    """The parameters, and the data, on which variables, branches, loops and the positions of accesses depend."""

    def __init__(self, program: ir.Program) -> None:
        self._scalars = frozenset(program.scalars)
        self._variables: dict[str, frozenset[str]] = {}
        self.deciding: frozenset[str] = frozenset()

    def of(self, e: ir.Expr) -> frozenset[str]:
        """Return what an expression depends on."""
        if isinstance(e, _ACCESSES):
            return frozenset((DATA,))
        found = self._variables.get(e.name, frozenset()) if isinstance(e, ir.Variable) else frozenset()
        if isinstance(e, ir.Variable) and e.name in self._scalars:
            found |= {e.name}
        return found.union(*map(self.of, e.children()))

    def walk(self, body: Sequence[ir.Stmt], control: frozenset[str]) -> None:
        """Follow statements that are executed where ``control`` decides."""
        for statement in body:
            for e in ir.expressions(statement):
                self._note(e)
            if isinstance(statement, ir.Assign):
                known = self._variables.get(statement.name, frozenset())
                self._variables[statement.name] = known | self.of(statement.value) | control
            elif isinstance(statement, (ir.Store, ir.Flight)):
                self.deciding = self.deciding.union(*map(self.of, statement.indices))
            elif isinstance(statement, (ir.If, ir.While)):
                inner = control | self.of(statement.condition)
                self.deciding |= inner
                self.walk(statement.body, inner)
                if isinstance(statement, ir.If):
                    self.walk(statement.orelse, inner)

    def _note(self, e: ir.Expr) -> None:
        if isinstance(e, _ACCESSES):
            self.deciding = self.deciding.union(*map(self.of, e.indices))
        elif isinstance(e, (ir.Select, ir.Logic)):
            condition = e.condition if isinstance(e, ir.Select) else e.left
            if any(isinstance(inner, _ACCESSES) for inner in ir.inside(e)):
                self.deciding |= self.of(condition)

    def state(self) -> tuple[object, ...]:
        """Return what following the statements again may change."""
        return dict(self._variables), self.deciding


def deciding(program: ir.Program, body: Sequence[ir.Stmt]) -> frozenset[str]:
    """Return the scalar parameters on which a kernel's work depends, and `DATA` if what its arrays contain matters.

    The work depends on them if they reach the condition of a branch or a loop, or the index of an access.
    """
    sources, before = _Sources(program), None
    while before != sources.state():
        before = sources.state()
        sources.walk(body, frozenset())
    return sources.deciding
