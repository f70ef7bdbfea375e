"""Finds variables that a thread may read before it assigns them, and adds checks for the emulator.

A variable that only one branch assigns is correct if every thread that reads it took that branch. The source alone does
not tell, so a flag records the assignment and the emulator checks it at each such read. A variable that is a copy of
another one's version, as where paths join, is assigned if that one is.
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
    for name in sorted(analysis.names()):
        flag = f"{name}_set"
        while flag in taken:
            flag += "_"
        taken.add(flag)
        flags[name] = flag
        program.variables[flag] = BOOL
    for read in analysis.reads.values():
        read.given = ir.Variable(read.line, flags[read.name], type=BOOL)
    program.body = _flagged(program.body, flags)


@dataclass
class _Loop:
    """The variables that are assigned at each ``break`` (``left``) and each ``continue`` (``next``) of a loop."""

    left: list[_State] = field(default_factory=list)
    next: list[_State] = field(default_factory=list)


class _Analysis:
    def __init__(self) -> None:
        self.reads: dict[int, ir.Variable] = {}
        """Reads of variables that may be unassigned."""
        self.copies: dict[str, set[str]] = {}
        """The variables of which each variable may be an unassigned copy."""

    def names(self) -> set[str]:
        """Return the variables that need a flag: those that are read, and what they are copies of."""
        found: set[str] = set()
        new = {read.name for read in self.reads.values()}
        while new:
            found |= new
            new = {source for name in new for source in self.copies.get(name, ())} - found
        return found

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
                self.reads[id(e)] = e
        match statement:
            case ir.Assign():
                source = _copied(statement)
                if source is not None and source not in state:
                    self.copies.setdefault(statement.name, set()).add(source)
                    return state - {statement.name}
                return state | {statement.name}
            case ir.If():
                return _both(self.block(statement.body, state, loop), self.block(statement.orelse, state, loop))
            case ir.While():
                state, inner, _ = self._iterated(statement.body, state, frozenset())
                for_ever = isinstance(statement.condition, ir.Literal) and bool(statement.condition.value)
                return _all(inner.left) if for_ever else _all([state, *inner.left])
            case ir.For():
                state, inner, after = self._iterated(statement.body, state, frozenset({statement.name}))
                ended = _all([after, *inner.next, *inner.left])
                return ended if _turns(statement) else _both(state, ended)
            case ir.Break():
                loop.left.append(state)
                return None
            case ir.Continue():
                loop.next.append(state)
                return None
            case ir.Return():
                return None
            case ir.Forget():
                return state - {statement.name}
            case _:
                return state

    def _iterated(
        self, body: Sequence[ir.Stmt], state: frozenset[str], counter: frozenset[str]
    ) -> tuple[frozenset[str], _Loop, _State]:
        """Return what is assigned before each iteration of a loop, at its jumps, and at the end of an iteration."""
        while True:
            inner = _Loop()
            after = self.block(body, state | counter, inner)
            again = _all([state, after, *inner.next])
            assert again is not None  # noqa: S101  the state before the loop is one of them
            if again == state:
                return state, inner, after
            # A copy of an unassigned variable has made another one unassigned.
            state = again


def _copied(statement: ir.Assign) -> str | None:
    """Return the variable whose version an assignment copies; None if it does something else."""
    value = statement.value
    while isinstance(value, ir.Convert):
        value = value.operand
    return value.name if isinstance(value, ir.Variable) and value.copied else None


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
        if isinstance(statement, ir.Forget) and statement.name in flags:
            unset = ir.Literal(statement.line, False, type=BOOL)
            flagged.append(ir.Assign(statement.line, flags[statement.name], unset))
        if isinstance(statement, (ir.Assign, ir.For)) and statement.name in flags:
            value: ir.Expr = ir.Literal(statement.line, True, type=BOOL)
            source = _copied(statement) if isinstance(statement, ir.Assign) else None
            if source in flags:
                value = ir.Variable(statement.line, flags[source], type=BOOL)
            is_set = ir.Assign(statement.line, flags[statement.name], value)
            if isinstance(statement, ir.For):
                statement.body.insert(0, is_set)
            else:
                flagged.append(is_set)
    return flagged
