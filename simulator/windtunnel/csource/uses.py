"""What expressions do with variables: whose address they take, what they assign to, what they point to."""

from __future__ import annotations

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Pointer, Vector
from windtunnel.csource.places import bare, operands


def pointer_of(node: Node) -> int | None:
    """Return the variable that a pointer is, perhaps in another type; None for another expression."""
    node = bare(node)
    while node.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR") and operands(node):
        node = bare(operands(node)[-1])
    target = node.referred if node.kind == "DECL_REF_EXPR" else None
    return None if target is None else target.key


def pointed(node: Node) -> int | None:
    """Return the pointer variable whose first number an expression is: ``*p`` or ``p[0]``."""
    if node.kind == "UNARY_OPERATOR" and node.unary == "*":
        return pointer_of(operands(node)[0])
    if node.kind == "ARRAY_SUBSCRIPT_EXPR" and operands(node)[1].evaluated() == 0:
        return pointer_of(operands(node)[0])
    return None


def _root(node: Node) -> Node | None:
    """Return the name of the variable that a place is, or is a part of."""
    node = bare(node)
    while True:
        if node.kind == "MEMBER_REF_EXPR" and operands(node):
            inner = bare(operands(node)[0])
            if isinstance(inner.type, Pointer) and not inner.type.reference:
                return None
            node = inner
        elif node.kind == "ARRAY_SUBSCRIPT_EXPR":
            node = bare(operands(node)[0])
            if node.kind == "UNEXPOSED_EXPR" and len(node.kids) == 1 and isinstance(node.type, Pointer):
                node = bare(node.kids[0])
            if not isinstance(node.type, (Array, Vector)):
                return None  # an element of what a pointer points to
        elif node.kind == "UNEXPOSED_EXPR" and len(node.kids) == 1:
            node = bare(operands(node)[0])
        elif node.kind == "DECL_REF_EXPR":
            return node.referred
        else:
            return None


def addressed(node: Node) -> int | None:
    """Return the variable of which a node takes the address."""
    if node.kind == "UNARY_OPERATOR" and node.unary == "&":
        found = _root(operands(node)[0])
        return None if found is None else found.key
    if node.kind == "ARRAY_SUBSCRIPT_EXPR":  # an element of a vector by a number that is not known
        first = bare(operands(node)[0])
        if isinstance(first.type, Vector) and operands(node)[1].evaluated() is None:
            found = _root(first)
            return None if found is None else found.key
    return None


def assigned(node: Node) -> int | None:
    """Return the variable that a node assigns to."""
    if (
        (node.kind == "BINARY_OPERATOR" and node.binary == "=")
        or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR"
        or (node.kind == "UNARY_OPERATOR" and node.unary in ("x++", "x--", "++x", "--x"))
    ):
        found = _root(operands(node)[0])
        return None if found is None else found.key
    return None
