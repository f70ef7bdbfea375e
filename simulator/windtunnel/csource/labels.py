"""``goto`` to a label further on: the statements before the label become a loop of one turn, which it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource.clang import Node

LOOPS = ("FOR_STMT", "WHILE_STMT", "DO_STMT", "CXX_FOR_RANGE_STMT")


def label_among(kids: Sequence[Node]) -> int | None:
    """Return the place of the last label among statements that one of them before it goes to; None if there is none."""
    for place in reversed(range(len(kids))):
        if kids[place].kind == "LABEL_STMT" and any(goes_to(kid, kids[place].name) for kid in kids[:place]):
            return place
    return None


def goes_to(node: Node, label: str) -> bool:
    """Return whether a statement has a ``goto`` of this label in it."""
    if node.kind == "GOTO_STMT":
        return target(node) == label
    return any(goes_to(kid, label) for kid in node.kids)


def target(node: Node) -> str:
    """Return the label of a ``goto``."""
    return next((kid.name for kid in node.kids if kid.kind == "LABEL_REF"), "")


def leaves_a_loop(node: Node, *, looped: bool = False, switched: bool = False) -> bool:
    """Return whether a statement has a ``break`` or ``continue`` of a loop or switch around it."""
    if node.kind == "BREAK_STMT":
        return not looped and not switched
    if node.kind == "CONTINUE_STMT":
        return not looped
    return any(
        leaves_a_loop(kid, looped=looped or node.kind in LOOPS, switched=switched or node.kind == "SWITCH_STMT")
        for kid in node.kids
    )
