"""Removes the returns of a function that is inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.language import ir

_MAX_COPIES = 3
"""The largest number of copies of a function's remaining statements; beyond it, a flag records the return."""


def without_returns(body: list[ir.Stmt], line: int, fresh: Callable[[str], str]) -> list[ir.Stmt]:
    """Return the statements of an inlined call at ``line``. ``fresh`` returns an unused variable's name."""
    loops = any(isinstance(statement, (ir.While, ir.For)) and _returns(statement.body) for statement in ir.walk(body))
    if not loops and _copies(body) <= _MAX_COPIES:
        return _tail(body)
    done = fresh("done")
    return [ir.Assign(line, done, ir.Literal(line, False)), *_left(body, done, in_loop=False)]


def _tail(body: list[ir.Stmt]) -> list[ir.Stmt]:
    """Return statements without returns: what follows a branch that returns moves into the other branch."""
    statements: list[ir.Stmt] = []
    for at, statement in enumerate(body):
        if isinstance(statement, ir.Return):
            return statements
        if isinstance(statement, ir.If) and (_returns(statement.body) or _returns(statement.orelse)):
            rest = body[at + 1 :]
            yes = _tail([*statement.body, *([] if _ends(statement.body) else rest)])
            no = _tail([*statement.orelse, *([] if _ends(statement.orelse) else rest)])
            return [*statements, ir.If(statement.line, statement.condition, yes, no)]
        statements.append(statement)
    return statements


def _copies(body: Sequence[ir.Stmt]) -> int:
    """Return how many branches need a copy of the statements after them; each doubles the size of the result."""
    return sum(
        isinstance(branch, ir.If) and _returns([branch]) and not _ends(branch.body) and not _ends(branch.orelse)
        for branch in ir.walk(body)
    )


def _left(body: Sequence[ir.Stmt], done: str, *, in_loop: bool) -> list[ir.Stmt]:
    """Return statements without returns where loops return: a flag records it, and later statements test the flag."""
    statements: list[ir.Stmt] = []
    for at, statement in enumerate(body):
        line = statement.line
        if isinstance(statement, ir.Return):
            statements.append(ir.Assign(line, done, ir.Literal(line, True)))
            return [*statements, ir.Break(line)] if in_loop else statements
        inner = statement.body if isinstance(statement, (ir.While, ir.For)) else []
        if isinstance(statement, ir.If) and (_returns(statement.body) or _returns(statement.orelse)):
            yes, no = (_left(side, done, in_loop=in_loop) for side in (statement.body, statement.orelse))
            statements.append(ir.If(line, statement.condition, yes, no))
        elif _returns(inner):
            assert isinstance(statement, (ir.While, ir.For))  # noqa: S101  nothing else has an inner body
            statement.body = _left(inner, done, in_loop=True)
            statements.append(statement)
            if in_loop:
                statements.append(ir.If(line, ir.Variable(line, done), [ir.Break(line)], []))
        else:
            statements.append(statement)
            continue
        if not in_loop:
            rest = _left(body[at + 1 :], done, in_loop=False)
            statements.append(ir.If(line, ir.Unary(line, "not", ir.Variable(line, done)), rest, []))
            return statements
    return statements


def _returns(body: Sequence[ir.Stmt]) -> bool:
    return any(isinstance(statement, ir.Return) for statement in ir.walk(body))


def _ends(body: Sequence[ir.Stmt]) -> bool:
    """Return whether a block always returns."""
    if not body:
        return False
    last = body[-1]
    return isinstance(last, ir.Return) or (isinstance(last, ir.If) and _ends(last.body) and _ends(last.orelse))
