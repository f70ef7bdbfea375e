"""The cases of a ``switch``."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource.clang import Node


def sections_of(body: Node) -> list[tuple[list[Node], list[Node]]] | None:
    """Return the labels and the statements of each case; None if there are statements before the first."""
    sections: list[tuple[list[Node], list[Node]]] = []
    for kid in body.kids if body.kind == "COMPOUND_STMT" else [body]:
        labels: list[Node] = []
        inner: Node | None = kid
        while inner is not None and inner.kind in ("CASE_STMT", "DEFAULT_STMT"):
            labels.append(inner)
            inner = inner.kids[-1] if len(inner.kids) > (inner.kind == "CASE_STMT") else None
        if labels:
            if sections and not sections[-1][1]:
                sections[-1][0].extend(labels)
            else:
                sections.append((labels, []))
        elif not sections:
            if kid.kind == "DECL_STMT":
                continue
            return None
        if inner is not None:
            sections[-1][1].append(inner)
    return sections


def breaks(statements: Sequence[Node]) -> bool:
    """Return whether the statements of a case end in a break, or a return, so that the next case does not follow."""
    last = statements[-1] if statements else None
    if last is not None and last.kind == "COMPOUND_STMT":
        return False
    return last is not None and last.kind == "BREAK_STMT"


def jumps_out(statements: Sequence[Node]) -> bool:
    """Return whether a break stands anywhere but at the end of a case."""

    def within(node: Node, *, looped: bool) -> bool:
        if node.kind == "BREAK_STMT":
            return not looped
        inner = looped or node.kind in ("FOR_STMT", "WHILE_STMT", "DO_STMT", "SWITCH_STMT")
        return any(within(kid, looped=inner) for kid in node.kids if kid.kind.endswith("_STMT"))

    rest = statements[:-1] if statements and statements[-1].kind == "BREAK_STMT" else statements
    return any(within(one, looped=False) for one in rest)
