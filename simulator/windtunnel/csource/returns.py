"""Returns of functions that are translated in place of their calls.

A function whose early returns all end a branch of an ``if`` needs no jump: what follows the ``if`` becomes the other
branch. Other early returns leave a loop of one turn around the function.
"""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource.clang import Node


def returns_early(body: Node) -> bool:
    """Return whether a function has a return that is not its last statement."""
    last = body.kids[-1] if body.kids else None
    returns = [one for one in _statements(body) if one.kind == "RETURN_STMT"]
    if not returns:
        return False
    return not (len(returns) == 1 and last is not None and last.kind == "RETURN_STMT")


def branches_only(kids: Sequence[Node]) -> bool:
    """Return whether all returns in some statements end them, or a branch of an ``if`` that divides the rest."""
    for number, kid in enumerate(kids):
        if not has_return(kid):
            continue
        if kid.kind == "RETURN_STMT":
            return True
        rest = kids[number + 1 :]
        if kid.kind == "COMPOUND_STMT":
            return branches_only(kid.kids) and (not rest or ends(kid))
        if kid.kind != "IF_STMT":
            return False
        yes, no = sides(kid)
        if ends(yes):
            return branches_only([yes]) and branches_only([*no, *rest])
        return bool(no) and ends(no[0]) and branches_only(no) and branches_only([yes, *rest])
    return True


def sides(node: Node) -> tuple[Node, list[Node]]:
    """Return what an ``if`` does if its condition holds, and what if not."""
    kids = [kid for kid in node.kids if kid.kind not in ("DECL_STMT", "VAR_DECL")]
    return kids[1], kids[2:]


def ends(node: Node) -> bool:
    """Return whether a statement returns from the function in any case."""
    if node.kind == "RETURN_STMT":
        return True
    if node.kind == "COMPOUND_STMT":
        return any(ends(kid) for kid in node.kids)
    if node.kind == "IF_STMT":
        yes, no = sides(node)
        return bool(no) and ends(yes) and ends(no[0])
    return False


def has_return(node: Node) -> bool:
    """Return whether a statement has a return in it."""
    return any(one.kind == "RETURN_STMT" for one in _statements(node))


def _statements(node: Node) -> list[Node]:
    """Return the statements within a statement, without the bodies of lambdas."""
    found, pending = [], [node]
    while pending:
        one = pending.pop()
        found.append(one)
        if one.kind.endswith("_STMT"):
            pending += one.kids
    return found


def has_goto(node: Node) -> bool:
    """Return whether a statement has a ``goto`` in it."""
    return any(one.kind == "GOTO_STMT" for one in node.walk())


def has_destructor(node: Node) -> bool:
    """Return whether a variable is an object of a class whose destructor does something."""
    declared = node.cursor.type.get_declaration()
    found = [one for one in declared.get_children() if one.kind.name == "DESTRUCTOR"] if declared is not None else []
    definitions = [one.get_definition() for one in found]
    bodies = [
        kid for one in definitions if one is not None for kid in one.get_children() if kid.kind.name == "COMPOUND_STMT"
    ]
    return any(next(iter(body.get_children()), None) is not None for body in bodies)
