"""What a function does with its variables: which it assigns to, and of which it takes the address."""

from __future__ import annotations

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Pointer, Vector
from windtunnel.csource.places import bare, operands


class Uses:
    """What functions do with their variables, each function read once."""

    def __init__(self) -> None:
        self._in_memory: dict[int, frozenset[int]] = {}
        self._assigned: dict[int, frozenset[int]] = {}
        self._swapped: dict[int, frozenset[int]] = {}
        self._shuffles: dict[int, bool] = {}

    def in_memory(self, function: Node) -> frozenset[int]:
        """Return the variables of a function whose address is taken, or of which an element is asked by number."""
        found = self._in_memory.get(function.key)
        if found is None:
            taken = {key for one in function.walk() if (key := _addressed(one)) is not None}
            found = self._in_memory[function.key] = frozenset(taken)
        return found

    def assigned(self, function: Node) -> frozenset[int]:
        """Return the variables that a function assigns to after their declaration, or whose address it takes."""
        found = self._assigned.get(function.key)
        if found is None:
            changed = {key for one in function.walk() for key in (_changed(one), _addressed(one)) if key is not None}
            found = self._assigned[function.key] = frozenset(changed)
        return found

    def swapped(self, function: Node) -> frozenset[int]:
        """Return the pointers through which a function compares and swaps (``atomicCAS``)."""
        found = self._swapped.get(function.key)
        if found is None:
            keys = set()
            for one in function.walk():
                if one.kind == "CALL_EXPR" and one.name in ("atomicCAS", "atomic_cmpxchg", "atom_cmpxchg"):
                    target = _pointer_of(Node(one.unit, next(iter(one.cursor.get_arguments()))))
                    keys |= set() if target is None else {target}
            found = self._swapped[function.key] = frozenset(keys)
        return found

    def shuffles(self, function: Node) -> bool:
        """Return whether a function exchanges values among the lanes of a warp."""
        found = self._shuffles.get(function.key)
        if found is None:
            found = self._shuffles[function.key] = any(
                one.kind == "CALL_EXPR" and "shfl" in one.name for one in function.walk()
            )
        return found


def _pointer_of(node: Node) -> int | None:
    """Return the variable that a pointer is, perhaps in another type; None for another expression."""
    node = bare(node)
    while node.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR") and operands(node):
        node = bare(operands(node)[-1])
    target = node.referred if node.kind == "DECL_REF_EXPR" else None
    return None if target is None else target.key


def pointed(node: Node) -> int | None:
    """Return the pointer variable whose first number an expression is: ``*p`` or ``p[0]``."""
    if node.kind == "UNARY_OPERATOR" and node.unary == "*":
        return _pointer_of(operands(node)[0])
    if node.kind == "ARRAY_SUBSCRIPT_EXPR" and operands(node)[1].evaluated() == 0:
        return _pointer_of(operands(node)[0])
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


def _addressed(node: Node) -> int | None:
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


def _changed(node: Node) -> int | None:
    """Return the variable that a node assigns to."""
    if (
        (node.kind == "BINARY_OPERATOR" and node.binary == "=")
        or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR"
        or (node.kind == "UNARY_OPERATOR" and node.unary in ("x++", "x--", "++x", "--x"))
    ):
        found = _root(operands(node)[0])
        return None if found is None else found.key
    return None
