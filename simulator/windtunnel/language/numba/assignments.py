"""The names that statements of a kernel assign and read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping


def assigned_in(nodes: Iterable[ast.AST]) -> list[str]:
    """Return the names that statements assign, in order, without those of inner functions."""
    found: dict[str, None] = {}

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            if isinstance(node, ast.FunctionDef):
                found[node.name] = None
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
        if isinstance(node, ast.MatchAs) and node.name is not None:
            found[node.name] = None
        for child in ast.iter_child_nodes(node):
            visit(child)

    for node in nodes:
        visit(node)
    return list(found)


def loads(nodes: Iterable[ast.AST]) -> Mapping[str, int]:
    """Return how often statements read each name."""
    counts: dict[str, int] = {}
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                counts[inner.id] = counts.get(inner.id, 0) + 1
    return counts
