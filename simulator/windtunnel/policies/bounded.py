"""Limits on the code of a user's policy: on the iterations of its loops, and on the time until it has been loaded.

The first limit does not depend on the speed of the machine and holds in both engines: every loop of the file counts its
iterations in a variable of its function, and fails above `MAX_ITERATIONS`. The second one is for what has no loop, such
as a sleep. It holds while the file is executed and tried.
"""

from __future__ import annotations

import ast
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

MAX_ITERATIONS = 1_000_000
"""The largest number of iterations of all loops of one function while it gives one answer, or of a module's own loops
while the file is loaded."""

ENDLESS = f"does not end within {MAX_ITERATIONS:,} iterations"
"""The end of the message of a loop that exceeds the limit. It is a `ValueError`, because Numba has to compile it."""

_COUNTER = "_windtunnel_iterations"
_Loop = ast.For | ast.AsyncFor | ast.While
_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class TimeLimitError(BaseException):
    """A time limit has passed. It is no `Exception`, so that the code under the limit does not catch it."""


def compile_bounded(source: bytes, file: str) -> CodeType:
    """Return the code of a module in which every loop counts its iterations.

    Lines are those of the source.

    Raises:
        SyntaxError, ValueError: the source is not Python.
    """
    tree = ast.parse(source, file)
    for scope in [node for node in ast.walk(tree) if isinstance(node, _Scope)]:
        loops = list(_loops_of(scope.body))
        for loop in loops:
            loop.body[:0] = _placed(
                f"{_COUNTER} += 1\n"
                f"if {_COUNTER} > {MAX_ITERATIONS}:\n"
                f"    raise ValueError('the loop in line {loop.lineno} {ENDLESS}')",
                loop,
            )
        if loops:
            begin = _first_statement(scope.body)
            scope.body[begin:begin] = _placed(f"{_COUNTER} = 0", scope.body[min(begin, len(scope.body) - 1)])
    return compile(tree, file, "exec", dont_inherit=True)


def _placed(source: str, at: ast.stmt) -> list[ast.stmt]:
    """Return statements whose line is that of ``at``."""
    body = ast.parse(source).body
    for statement in body:
        for node in ast.walk(statement):
            ast.copy_location(node, at)
    return body


def _loops_of(body: list[ast.stmt]) -> Iterator[_Loop]:
    """Yield the loops of one scope, without those of the functions and classes inside it."""
    for statement in body:
        if isinstance(statement, _Scope):
            continue
        if isinstance(statement, _Loop):
            yield statement
        for name in ("body", "orelse", "finalbody"):
            yield from _loops_of(getattr(statement, name, []))
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _loops_of(part.body)


def _first_statement(body: list[ast.stmt]) -> int:
    """Return the index of the first statement that is neither a docstring nor an import from ``__future__``."""
    index = 0
    for index, statement in enumerate(body):
        docstring = index == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not docstring and not future:
            break
    return index


@contextmanager
def time_limited(seconds: float) -> Iterator[None]:
    """Raise TimeLimitError in the code of a ``with`` block that takes longer than ``seconds``.

    It has no effect outside of the main thread and on systems without interval timers.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def passed(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGALRM, passed)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)
        signal.signal(signal.SIGALRM, before)
