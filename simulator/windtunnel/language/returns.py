"""Removes the returns of a function that is inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.language import ir

_MAX_COPIES = 3
"""The largest number of copies of a function's remaining statements; beyond it, a flag records the return."""


def without_returns(body: list[ir.Stmt], line: int, fresh: Callable[[str], str]) -> list[ir.Stmt]:
    """Return the statements of an inlined call at ``line``. ``fresh`` returns an unused variable's name."""
    loops = any(isinstance(one, (ir.While, ir.For)) and _returns(one.body) for one in ir.walk(body))
    if not loops and _copies(body) <= _MAX_COPIES:
        return _tail(body)
    done = fresh("done")
    return [ir.Assign(line, done, ir.Literal(line, False)), *_left(body, done, in_loop=False)]


def _tail(body: list[ir.Stmt]) -> list[ir.Stmt]:
    """Return statements without returns: what follows a branch that returns moves into the other branch."""
    found: list[ir.Stmt] = []
    for at, one in enumerate(body):
        if isinstance(one, ir.Return):
            return found
        if isinstance(one, ir.If) and (_returns(one.body) or _returns(one.orelse)):
            rest = body[at + 1 :]
            yes = _tail([*one.body, *([] if _ends(one.body) else rest)])
            no = _tail([*one.orelse, *([] if _ends(one.orelse) else rest)])
            return [*found, ir.If(one.line, one.condition, yes, no)]
        found.append(one)
    return found


def _copies(body: Sequence[ir.Stmt]) -> int:
    """Return how many branches need a copy of the statements after them; each doubles the size of the result."""
    return sum(
        isinstance(one, ir.If) and _returns([one]) and not _ends(one.body) and not _ends(one.orelse)
        for one in ir.walk(body)
    )


def _left(body: Sequence[ir.Stmt], done: str, *, in_loop: bool) -> list[ir.Stmt]:
    """Return statements without returns where loops return: a flag records it, and later statements test the flag."""
    found: list[ir.Stmt] = []
    for at, one in enumerate(body):
        line = one.line
        if isinstance(one, ir.Return):
            found.append(ir.Assign(line, done, ir.Literal(line, True)))
            return [*found, ir.Break(line)] if in_loop else found
        inner = one.body if isinstance(one, (ir.While, ir.For)) else []
        if isinstance(one, ir.If) and (_returns(one.body) or _returns(one.orelse)):
            yes, no = (_left(side, done, in_loop=in_loop) for side in (one.body, one.orelse))
            found.append(ir.If(line, one.condition, yes, no))
        elif _returns(inner):
            assert isinstance(one, (ir.While, ir.For))  # noqa: S101  nothing else has an inner body
            one.body = _left(inner, done, in_loop=True)
            found.append(one)
            if in_loop:
                found.append(ir.If(line, ir.Variable(line, done), [ir.Break(line)], []))
        else:
            found.append(one)
            continue
        if not in_loop:
            rest = _left(body[at + 1 :], done, in_loop=False)
            found.append(ir.If(line, ir.Unary(line, "not", ir.Variable(line, done)), rest, []))
            return found
    return found


def _returns(body: Sequence[ir.Stmt]) -> bool:
    return any(isinstance(one, ir.Return) for one in ir.walk(body))


def _ends(body: Sequence[ir.Stmt]) -> bool:
    """Return whether a block always returns."""
    if not body:
        return False
    last = body[-1]
    return isinstance(last, ir.Return) or (isinstance(last, ir.If) and _ends(last.body) and _ends(last.orelse))
