"""Statements of a Numba kernel as simpler ones: ``match`` as branches, and branches that return as an expression."""

from __future__ import annotations

import ast


def as_branches(node: ast.Match, subject: str) -> list[ast.stmt] | None:
    """Return a ``match`` as statements, with its subject in the variable ``subject``; None for another pattern.

    Patterns may be values, constants, alternatives and names.
    """
    rest: list[ast.stmt] = []
    for case in reversed(node.cases):
        found = _condition(case.pattern, subject)
        if found is None:
            return None
        test, name = found
        tests = [one for one in (test, case.guard) if one is not None]
        taken = None if name is None else ast.Assign([ast.Name(name, ast.Store())], ast.Name(subject, ast.Load()))
        if name is not None and case.guard is not None:
            return None
        body = [*([] if taken is None else [taken]), *case.body]
        if not tests:
            rest = body
            continue
        condition = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
        rest = [ast.If(condition, body, rest)]
    first = ast.Assign([ast.Name(subject, ast.Store())], node.subject)
    return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in (first, *rest)]


def _condition(pattern: ast.pattern, subject: str) -> tuple[ast.expr | None, str | None] | None:
    """Return the condition of a pattern (None if it always matches) and the name that it binds; None if unknown."""
    known = ast.Name(subject, ast.Load())
    match pattern:
        case ast.MatchValue(value=value):
            return ast.Compare(known, [ast.Eq()], [value]), None
        case ast.MatchSingleton(value=value):
            return ast.Compare(known, [ast.Is()], [ast.Constant(value)]), None
        case ast.MatchAs(pattern=None, name=name):
            return None, name
        case ast.MatchOr(patterns=patterns):
            found = [_condition(one, subject) for one in patterns]
            tests = [one[0] for one in found if one is not None and one[0] is not None and one[1] is None]
            return (ast.BoolOp(ast.Or(), tests), None) if len(tests) == len(patterns) else None
        case _:
            return None


def as_expression(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return ``if a: return x`` and ``return y`` at the end of a function as ``return x if a else y``."""
    at = next((number for number, node in enumerate(body) if isinstance(node, ast.If)), len(body))
    match body[at:]:
        case [ast.If(body=[ast.Return(value=ast.expr() as yes)], orelse=orelse) as chosen, *after] if not (
            after and orelse
        ):
            rest = as_expression(orelse or after)
            match rest:
                case [ast.Return(value=ast.expr() as no)]:
                    both = ast.copy_location(ast.IfExp(chosen.test, yes, no), chosen)
                    return [*body[:at], ast.copy_location(ast.Return(both), chosen)]
    return body
