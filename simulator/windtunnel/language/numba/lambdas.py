"""The source of functions that a kernel calls, also of those that ``lambda`` made."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from windtunnel.language.source import Source, compiled_text, source_of


def function_source(function: Callable[..., Any]) -> Source:
    """Return the source of a function; KernelError if it cannot be read."""
    if getattr(function, "__name__", "") == "<lambda>" and inspect.isfunction(function):
        return _lambda_source(function)
    return source_of(function)


@cache
def _lambda_source(function: Callable[..., Any]) -> Source:
    """Return a lambda as a function that returns its expression. What its outer names mean is added by `outside`."""
    code = function.__code__
    text, compiled = compiled_text(function)
    node = next(
        node for node in ast.walk(text.tree)
        if isinstance(node, ast.Lambda) and node.lineno <= compiled.co_firstlineno <= (node.end_lineno or node.lineno)
        and _same(node, code)
    )  # fmt: skip
    body: ast.stmt = ast.copy_location(ast.Return(node.body), node.body)
    tree = ast.copy_location(ast.FunctionDef("lambda", node.args, [body], [], None, None), node)
    assigned = frozenset(argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
    line = node.lineno
    return Source(function, text.file, line, tuple(text.lines[line - 1 : node.end_lineno]), tree, {}, assigned)


def _same(node: ast.Lambda, code: Any) -> bool:
    """Return whether a lambda of the source is the one that a code object was compiled from."""
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    if names != list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
        return False
    made = compile(ast.fix_missing_locations(ast.Expression(node)), "<lambda>", "eval")
    inner = next((const for const in made.co_consts if inspect.iscode(const)), None)
    # A name of the function around the lambda is compiled to another instruction, so only the names are compared then.
    if inner is None or code.co_freevars:
        return True
    return bool(inner.co_code == code.co_code and inner.co_consts == code.co_consts)
