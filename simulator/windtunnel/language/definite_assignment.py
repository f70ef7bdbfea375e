"""Finds variables that a thread may read before it assigns them, and adds checks for the emulator.

A variable that only one branch assigns is correct if every thread that reads it took that branch. The source alone does
not tell, so a flag records the assignment and the emulator checks it at each such read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.language import ir
from windtunnel.language.types import BOOL

_State = frozenset[str] | None
"""The variables that are certainly assigned; None for unreachable code."""


def insert_checks(program: ir.Program) -> None:
    """Add a flag for each variable of an inferred kernel that may be read before it is assigned.

    Such reads name the flag (``Variable.given``). The flag is false until its variable is assigned.
    """
    analysis = _Analysis()
    analysis.block(program.body, frozenset(program.scalars), _Loop())
    if not analysis.reads:
        return
    taken = {*program.variables, *program.scalars, *program.arrays}
    flags: dict[str, str] = {}
    for name in sorted({read.name for read in analysis.reads}):
        flag = f"{name}_set"
        while flag in taken:
            flag += "_"
        taken.add(flag)
        flags[name] = flag
        program.variables[flag] = BOOL
    for read in analysis.reads:
        read.given = ir.Variable(read.line, flags[read.name], type=BOOL)
    program.body = _flagged(program.body, flags)


@dataclass
class _Loop:
    """The variables that are assigned at each ``break`` (``left``) and each ``continue`` (``next``) of a loop."""

    left: list[_State] = field(default_factory=list)
    next: list[_State] = field(default_factory=list)


class _Analysis:
    def __init__(self) -> None:
        self.reads: list[ir.Variable] = []
        """Reads of variables that may be unassigned."""

    def block(self, body: Sequence[ir.Stmt], state: _State, loop: _Loop) -> _State:
        """Return the variables that are assigned after a block."""
        for statement in body:
            if state is None:
                return None
            state = self._statement(statement, state, loop)
        return state

    def _statement(self, statement: ir.Stmt, state: frozenset[str], loop: _Loop) -> _State:
        for e in ir.expressions(statement):
            if isinstance(e, ir.Variable) and e.name not in state and not e.copied:
                self.reads.append(e)
        match statement:
            case ir.Assign():
                return state | {statement.name}
            case ir.If():
                return _both(self.block(statement.body, state, loop), self.block(statement.orelse, state, loop))
            case ir.While():
                inner = _Loop()
                self.block(statement.body, state, inner)
                # An iteration only adds assignments, so the state before the first holds before each.
                for_ever = isinstance(statement.condition, ir.Literal) and bool(statement.condition.value)
                return _all(inner.left) if for_ever else state
            case ir.For():
                inner = _Loop()
                after = self.block(statement.body, state | {statement.name}, inner)
                return _all([after, *inner.next, *inner.left]) if _turns(statement) else state
            case ir.Break():
                loop.left.append(state)
                return None
            case ir.Continue():
                loop.next.append(state)
                return None
            case ir.Return():
                return None
            case _:
                return state


def _both(first: _State, second: _State) -> _State:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _all(states: Sequence[_State]) -> _State:
    merged: _State = None
    for state in states:
        merged = _both(merged, state)
    return merged


def _turns(loop: ir.For) -> bool:
    """Return whether a range certainly has an element."""
    start, stop, step = loop.start, loop.stop, loop.step
    if not (isinstance(start, ir.Literal) and isinstance(stop, ir.Literal) and isinstance(step, ir.Literal)):
        return False
    return start.value < stop.value if step.value > 0 else start.value > stop.value


def _flagged(body: Sequence[ir.Stmt], flags: dict[str, str]) -> list[ir.Stmt]:
    flagged: list[ir.Stmt] = []
    for statement in body:
        flagged.append(statement)
        if isinstance(statement, ir.If):
            statement.body, statement.orelse = _flagged(statement.body, flags), _flagged(statement.orelse, flags)
        elif isinstance(statement, (ir.While, ir.For)):
            statement.body = _flagged(statement.body, flags)
        if isinstance(statement, (ir.Assign, ir.For)) and statement.name in flags:
            is_set = ir.Assign(statement.line, flags[statement.name], ir.Literal(statement.line, True, type=BOOL))
            if isinstance(statement, ir.For):
                statement.body.insert(0, is_set)
            else:
                flagged.append(is_set)
    return flagged
