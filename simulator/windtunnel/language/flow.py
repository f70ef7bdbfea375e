"""Lowers control flow: removes `break`, `continue` and `return` for the execution of many threads together.

Statements after a branch that always jumps move into the other branch. Otherwise a flag records that a thread has
jumped, and later statements test it. Ranges become loops with a separate counter. Lockstep execution needs this,
because some threads of a vector jump while others do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from windtunnel.language import ir
from windtunnel.language.types import BOOL, Scalar


def lowered(program: ir.Program, *, leaving: bool = False) -> list[ir.Stmt]:
    """Return the statements of an inferred kernel without jumps. New variables are added to ``program.variables``.

    ``leaving``: mark each return by an `ir.ThreadExit`.
    """
    lowering = _Lowering(program, leaving=leaving)
    body, _ = lowering.block(program.body, None)
    # A target's variables are uninitialised until they are assigned.
    return _pruned([_set(program.line, lowering.returned, False), *body], lowering.flags)


@dataclass
class _Loop:
    """The flags of the loop that is being lowered."""

    left: str
    next: str


@dataclass
class _Exits:
    """The flags that a block may set, and whether it always jumps."""

    flags: set[str] = field(default_factory=set)
    always: bool = False


class _Lowering:
    def __init__(self, program: ir.Program, *, leaving: bool) -> None:
        self.program, self.leaving = program, leaving
        self.flags: set[str] = set()
        """The flags that the lowering added."""
        self.names = {*program.variables, *program.scalars, *program.arrays}
        self.read = _read(program.body)
        self.returned = self._fresh("returned")

    def _fresh(self, name: str, kind: Scalar = BOOL) -> str:
        number = 0
        flag = f"{name}_"
        while flag in self.names:
            number += 1
            flag = f"{name}_{number}_"
        self.names.add(flag)
        if kind == BOOL:
            self.flags.add(flag)
        self.program.variables[flag] = kind
        return flag

    def block(self, body: Sequence[ir.Stmt], loop: _Loop | None) -> tuple[list[ir.Stmt], _Exits]:
        """Return the statements without jumps, and how they may end early."""
        statements: list[ir.Stmt] = []
        exits = _Exits()
        for at, statement in enumerate(body):
            made, leaves = self._statement(statement, loop)
            exits.flags |= leaves.flags
            if leaves.always:
                exits.always = True
                return [*statements, *made], exits
            if not leaves.flags:
                statements += made
                continue
            rest, after = self.block(body[at + 1 :], loop)
            exits.flags |= after.flags
            exits.always = after.always
            last = made[-1]
            if isinstance(last, ir.If) and self._always(statement, 0, loop) and not self._may(statement, 1, loop):
                last.orelse = [*last.orelse, *rest]
            elif isinstance(last, ir.If) and self._always(statement, 1, loop) and not self._may(statement, 0, loop):
                last.body = [*last.body, *rest]
            elif rest:
                made.append(ir.If(statement.line, _not_any(statement.line, sorted(leaves.flags)), rest, []))
            return [*statements, *made], exits
        return statements, exits

    def _statement(self, statement: ir.Stmt, loop: _Loop | None) -> tuple[list[ir.Stmt], _Exits]:
        match statement:
            case ir.Return():
                leave = [ir.ThreadExit(statement.line)] if self.leaving else []
                return [*leave, _set(statement.line, self.returned)], _Exits({self.returned}, always=True)
            case ir.Break():
                assert loop is not None  # noqa: S101  Python has seen that there is one
                return [_set(statement.line, loop.left)], _Exits({loop.left}, always=True)
            case ir.Continue():
                assert loop is not None  # noqa: S101  Python has seen that there is one
                return [_set(statement.line, loop.next)], _Exits({loop.next}, always=True)
            case ir.If():
                body, yes = self.block(statement.body, loop)
                orelse, no = self.block(statement.orelse, loop)
                always = yes.always and no.always
                return [ir.If(statement.line, statement.condition, body, orelse)], _Exits(yes.flags | no.flags, always)
            case ir.While():
                return self._loop(statement.line, statement.condition, statement.body, [], [])
            case ir.For():
                return self._range(statement)
            case _:
                return [statement], _Exits()

    def _loop(
        self, line: int, condition: ir.Expr, body: Sequence[ir.Stmt], first: Sequence[ir.Stmt], last: Sequence[ir.Stmt]
    ) -> tuple[list[ir.Stmt], _Exits]:
        loop = _Loop(self._fresh("left"), self._fresh("next"))
        inner, exits = self.block(body, loop)
        before: list[ir.Stmt] = []
        inner = [*first, *inner]
        if loop.next in exits.flags:
            inner.insert(0, _set(line, loop.next, False))
        leaves = sorted(exits.flags - {loop.next})
        if leaves:
            if loop.left in exits.flags:
                before.append(_set(line, loop.left, False))
            condition = ir.Logic(line, "and", _not_any(line, leaves), condition, type=BOOL)
            if last:
                last = [ir.If(line, _not_any(line, leaves), list(last), [])]
        return [*before, ir.While(line, condition, [*inner, *last])], _Exits(exits.flags & {self.returned})

    def _range(self, loop: ir.For) -> tuple[list[ir.Stmt], _Exits]:
        line, kind = loop.line, self.program.variables.get(loop.name) or self.program.scalars[loop.name]
        counter = self._fresh(loop.name, kind)
        before: list[ir.Stmt] = [ir.Assign(line, counter, loop.start)]
        stop, step = self._held(loop.stop, "stop", kind, before), self._held(loop.step, "step", kind, before)
        here = ir.Variable(line, counter, type=kind)
        up = ir.Binary(line, "<", here, stop, type=BOOL)
        down = ir.Binary(line, ">", here, stop, type=BOOL)
        condition: ir.Expr
        if isinstance(step, ir.Literal):
            condition = up if step.value > 0 else down
        elif kind.kind == "uint" or _counts_up(loop.step):
            condition = up
        else:
            rising = ir.Binary(line, ">", step, ir.Literal(line, 0, type=kind), type=BOOL)
            condition = ir.Select(line, rising, up, down, type=BOOL)
        first = [ir.Assign(line, loop.name, here)] if loop.name in self.read else []
        last = [ir.Assign(line, counter, ir.Binary(line, "+", here, step, type=kind))]
        made, exits = self._loop(line, condition, loop.body, first, last)
        return [*before, *made], exits

    def _held(self, value: ir.Expr, name: str, kind: Scalar, before: list[ir.Stmt]) -> ir.Expr:
        if isinstance(value, ir.Literal):
            return value
        held = self._fresh(name, kind)
        before.append(ir.Assign(value.line, held, value))
        return ir.Variable(value.line, held, type=kind)

    def _always(self, statement: ir.Stmt, side: int, loop: _Loop | None) -> bool:
        assert isinstance(statement, ir.If)  # noqa: S101  the caller has seen it
        body = statement.orelse if side else statement.body
        return bool(body) and _leaves(body)

    def _may(self, statement: ir.Stmt, side: int, loop: _Loop | None) -> bool:
        assert isinstance(statement, ir.If)  # noqa: S101  the caller has seen it
        return _jumps(statement.orelse if side else statement.body)


def _leaves(body: Sequence[ir.Stmt]) -> bool:
    """Return whether a block always ends in a jump."""
    for statement in body:
        if isinstance(statement, (ir.Return, ir.Break, ir.Continue)):
            return True
        if isinstance(statement, ir.If) and statement.orelse and _leaves(statement.body) and _leaves(statement.orelse):
            return True
    return False


def _jumps(body: Sequence[ir.Stmt]) -> bool:
    """Return whether a block may jump out of itself."""
    for statement in body:
        if isinstance(statement, (ir.Return, ir.Break, ir.Continue)):
            return True
        if isinstance(statement, ir.If) and (_jumps(statement.body) or _jumps(statement.orelse)):
            return True
        if isinstance(statement, (ir.While, ir.For)) and any(isinstance(i, ir.Return) for i in ir.walk(statement.body)):
            return True
    return False


def _counts_up(step: ir.Expr) -> bool:
    """Return whether a step is certainly positive: sizes and their products are."""
    if isinstance(step, ir.Index):
        return step.what in ("block_size", "grid_size")
    if isinstance(step, ir.Convert):
        return _counts_up(step.operand)
    if isinstance(step, ir.Literal):
        return step.value > 0
    return isinstance(step, ir.Binary) and step.op in "*+" and _counts_up(step.left) and _counts_up(step.right)


def _set(line: int, flag: str, value: bool = True) -> ir.Assign:
    return ir.Assign(line, flag, ir.Literal(line, value, type=BOOL))


def _not_any(line: int, flags: Sequence[str]) -> ir.Expr:
    condition: ir.Expr = ir.Unary(line, "not", ir.Variable(line, flags[0], type=BOOL), type=BOOL)
    for flag in flags[1:]:
        other = ir.Unary(line, "not", ir.Variable(line, flag, type=BOOL), type=BOOL)
        condition = ir.Logic(line, "and", condition, other, type=BOOL)
    return condition


def _read(body: Sequence[ir.Stmt]) -> set[str]:
    """Return the variables that statements read."""
    return {e.name for statement in ir.walk(body) for e in ir.expressions(statement) if isinstance(e, ir.Variable)}


def _pruned(body: list[ir.Stmt], flags: set[str]) -> list[ir.Stmt]:
    """Remove assignments to ``flags`` that no statement reads."""
    asked = _read(body)

    def kept(block: Sequence[ir.Stmt]) -> list[ir.Stmt]:
        remaining = []
        for statement in block:
            if isinstance(statement, ir.Assign) and statement.name in flags and statement.name not in asked:
                continue
            if isinstance(statement, ir.If):
                statement.body, statement.orelse = kept(statement.body), kept(statement.orelse)
            elif isinstance(statement, ir.While):
                statement.body = kept(statement.body)
            remaining.append(statement)
        return remaining

    return kept(body)
