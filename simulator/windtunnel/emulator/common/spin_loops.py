"""Spin loops: the variables and memory reads that decide whether a loop continues."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windtunnel.language import ir


def spin_state(loop: ir.While, stored: Collection[str]) -> frozenset[str] | None:
    """Return the variables that determine the next iteration of a spin loop; None if it is not a spin loop.

    A loop may spin if memory that threads change (``stored``) decides whether it continues. If neither these variables
    nor the polled elements change in an iteration, the next iteration is the same.
    """
    exit_condition = _ExitCondition(loop)
    if not exit_condition.polled_reads(stored):
        return None
    # Values that are stored, and indices that are accessed, belong to the iteration's effect too.
    names = set(exit_condition.names)
    for statement in ir.walk(loop.body):
        for e in ir.expressions(statement):
            if isinstance(e, (ir.Load, ir.Atomic, ir.Warp)):
                names |= _names(*e.children())
        if isinstance(statement, ir.Store):
            names |= _names(*statement.indices, statement.value)
        elif isinstance(statement, (ir.If, ir.While)):
            names |= _names(statement.condition)
    return frozenset(exit_condition.with_dependencies(names) & exit_condition.assigned.keys())


def exit_variables(loop: ir.While) -> frozenset[str]:
    """Return the variables assigned in a loop that decide whether it continues."""
    exit_condition = _ExitCondition(loop)
    return frozenset(exit_condition.names & exit_condition.assigned.keys())


def polled_reads(loop: ir.While, stored: Collection[str]) -> list[ir.Load | ir.Atomic]:
    """Return the reads of ``stored`` arrays, and the atomic operations, that decide whether a loop continues."""
    return _ExitCondition(loop).polled_reads(stored)


class _ExitCondition:
    """What decides whether a loop continues: conditions, and everything that these depend on."""

    def __init__(self, loop: ir.While) -> None:
        self.assigned: dict[str, list[ir.Expr]] = {}
        """For each variable, the values assigned to it in the loop and the conditions of these assignments."""
        self.expressions: list[ir.Expr] = [loop.condition]
        self._collect(loop.body, [], inner=False)
        self.names = self.with_dependencies(_names(*self.expressions))
        self.expressions += [e for name in self.names for e in self.assigned.get(name, ())]

    def polled_reads(self, stored: Collection[str]) -> list[ir.Load | ir.Atomic]:
        """Return the reads of ``stored`` arrays, and the atomic operations."""
        reads = [
            e for expression in self.expressions for e in ir.inside(expression) if isinstance(e, (ir.Load, ir.Atomic))
        ]
        return [e for e in reads if isinstance(e, ir.Atomic) or e.array in stored]

    def with_dependencies(self, names: set[str]) -> set[str]:
        """Return variables together with all those that their values depend on."""
        closure = set(names)
        before: set[str] = set()
        while before != closure:
            before = set(closure)
            for name in before & self.assigned.keys():
                closure |= _names(*self.assigned[name])
        return closure

    def _collect(self, body: Sequence[ir.Stmt], conditions: Sequence[ir.Expr], *, inner: bool) -> None:
        for statement in body:
            match statement:
                case ir.Assign():
                    self.assigned.setdefault(statement.name, []).extend([statement.value, *conditions])
                case ir.If():
                    self._collect(statement.body, [*conditions, statement.condition], inner=inner)
                    self._collect(statement.orelse, [*conditions, statement.condition], inner=inner)
                case ir.While():
                    self._collect(statement.body, [*conditions, statement.condition], inner=True)
                case ir.For():
                    bounds = [statement.start, statement.stop, statement.step]
                    self.assigned.setdefault(statement.name, []).extend([*bounds, *conditions])
                    self._collect(statement.body, [*conditions, *bounds], inner=True)
                case ir.Return():
                    self.expressions += conditions
                case ir.Break() if not inner:
                    self.expressions += conditions
                case _:
                    pass


def _names(*expressions: ir.Expr) -> set[str]:
    return {e.name for expression in expressions for e in ir.inside(expression) if isinstance(e, ir.Variable)}
