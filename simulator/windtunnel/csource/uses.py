"""What a function does with its variables: which it assigns to, and of which it takes the address."""

from __future__ import annotations

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Pointer, Vector
from windtunnel.csource.places import bare, is_place, is_this, operands

_TAKES_THIS = (
    "CSTYLE_CAST_EXPR", "CXX_STATIC_CAST_EXPR", "CALL_EXPR", "BINARY_OPERATOR", "RETURN_STMT", "VAR_DECL",
)  # fmt: skip
"""Nodes in which ``this`` is a pointer that is passed on."""


class Uses:
    """What functions do with their variables, each function read once."""

    def __init__(self) -> None:
        self._in_memory: dict[int, frozenset[int]] = {}
        self._assigned: dict[int, frozenset[int]] = {}
        self._swapped: dict[int, frozenset[Where]] = {}
        self._shuffles: dict[int, bool] = {}

    def in_memory(self, function: Node) -> frozenset[int]:
        """Return the variables of a function whose address is taken, or of which an element is asked by number."""
        found = self._in_memory.get(function.key)
        if found is None:
            self._in_memory[function.key] = frozenset()  # for a function that calls itself
            taken = {key for one in function.walk() for key in _addressed(one)}
            for one in function.walk():
                taken |= self._addressed_by_call(one) if one.kind == "CALL_EXPR" else set()
            found = self._in_memory[function.key] = frozenset(taken)
        return found

    def _addressed_by_call(self, node: Node) -> set[int]:
        """Return the variables that a call passes by reference to a function that takes their address."""
        declared = node.referred
        definition = None if declared is None else declared.definition
        if definition is None:
            return set()
        stated = [kid for kid in definition.kids if kid.kind == "PARM_DECL"]
        given = [Node(node.unit, one) for one in node.cursor.get_arguments()]
        if definition.kind == "CXX_METHOD" and _takes_this(definition):
            callee = bare(node.kids[0])
            whole = given[0] if len(given) > len(stated) else next(iter(operands(callee)), None)
            root = None if whole is None else _root(whole)
            return set() if root is None else {root.key}
        if not any(isinstance(kid.type, Pointer) and kid.type.reference for kid in stated):
            return set()
        within = self.in_memory(definition)
        # The first argument of an operator that is a method is its object.
        pairs = zip(stated, given[len(given) - len(stated) :] if len(given) > len(stated) else given, strict=False)
        roots = [_root(argument) for parameter, argument in pairs if parameter.key in within]
        return {root.key for root in roots if root is not None}

    def assigned(self, function: Node) -> frozenset[int]:
        """Return the variables that a function assigns to after their declaration, or whose address it takes."""
        found = self._assigned.get(function.key)
        if found is None:
            changed = {key for one in function.walk() for key in (*_changed(one), *_addressed(one))}
            found = self._assigned[function.key] = frozenset(changed)
        return found

    def swapped(self, function: Node) -> frozenset[Where]:
        """Return the places that a function compares and swaps (``atomicCAS``)."""
        found = self._swapped.get(function.key)
        if found is None:
            keys = set()
            for one in function.walk():
                if one.kind == "CALL_EXPR" and one.name in ("atomicCAS", "atomic_cmpxchg", "atom_cmpxchg"):
                    keys.add(_pointed(Node(one.unit, next(iter(one.cursor.get_arguments())))))
            found = self._swapped[function.key] = frozenset(key for key in keys if key is not None)
        return found

    def shuffles(self, function: Node) -> bool:
        """Return whether a function exchanges values among the lanes of a warp."""
        found = self._shuffles.get(function.key)
        if found is None:
            found = self._shuffles[function.key] = any(
                one.kind == "CALL_EXPR" and "shfl" in one.name for one in function.walk()
            )
        return found


Where = tuple[int, str]
"""A place: a variable (with an empty text), or a variable that points to it and the text of the index."""


def _pointer_of(node: Node) -> int | None:
    """Return the variable that a pointer is, perhaps in another type; None for another expression."""
    node = _uncast(node)
    target = node.referred if node.kind == "DECL_REF_EXPR" else None
    return None if target is None else target.key


def _uncast(node: Node) -> Node:
    node = bare(node)
    while node.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CXX_REINTERPRET_CAST_EXPR") and operands(node):
        node = bare(operands(node)[-1])
    return node


def _pointed(node: Node) -> Where | None:
    """Return the place that a pointer points to: ``p``, ``p + i`` or ``&place``; None for another expression."""
    node = _uncast(node)
    if node.kind == "UNARY_OPERATOR" and node.unary == "&":
        return place_of(operands(node)[0])
    if node.kind == "BINARY_OPERATOR" and node.binary == "+":
        return _element(*operands(node))
    pointer = _pointer_of(node)
    return None if pointer is None else (pointer, "0")


def _element(array: Node, index: Node) -> Where | None:
    pointer = _pointer_of(array)
    text = "0" if index.evaluated() == 0 else " ".join(token.spelling for token in index.cursor.get_tokens())
    return None if pointer is None or not text else (pointer, text)


def place_of(node: Node) -> Where | None:
    """Return the place that an expression is: ``x``, ``*p`` or ``p[i]``; None for another expression."""
    node = bare(node)
    if node.kind == "UNARY_OPERATOR" and node.unary == "*":
        return _pointed(operands(node)[0])
    if node.kind == "ARRAY_SUBSCRIPT_EXPR":
        return _element(*operands(node))
    variable = _pointer_of(node) if node.kind == "DECL_REF_EXPR" else None
    return None if variable is None else (variable, "")


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


def _addressed(node: Node) -> set[int]:
    """Return the variables of which a node takes the address."""
    if node.kind == "UNARY_OPERATOR" and node.unary == "&":
        return _keys(operands(node)[0])
    if node.kind == "ARRAY_SUBSCRIPT_EXPR":  # an element of a vector by a number that is not known
        first = bare(operands(node)[0])
        if isinstance(first.type, Vector) and operands(node)[1].evaluated() is None:
            return _keys(first)
    if node.kind == "CONDITIONAL_OPERATOR" and all(map(is_place, operands(node)[1:])):
        return _keys(*operands(node)[1:])  # a choice between places
    return set()


def _keys(*nodes: Node) -> set[int]:
    """Return the variables that places are, or are parts of."""
    return {root.key for root in map(_root, nodes) if root is not None}


def _takes_this(method: Node) -> bool:
    """Return whether a method takes the address of its object, other than to name a member of a base class."""
    nodes = list(method.walk())
    named = {bare(operands(one)[0]).key for one in nodes if one.kind == "MEMBER_REF_EXPR" and operands(one)}
    return any(_addresses_this(one) and not (one.key in named and is_this(one)) for one in nodes)


def _addresses_this(node: Node) -> bool:
    """Return whether a node takes the address of the object that a method is called for, or of a member of it."""
    if node.kind in _TAKES_THIS:
        return any(bare(kid).kind == "CXX_THIS_EXPR" for kid in operands(node))
    if node.kind != "UNARY_OPERATOR" or node.unary != "&":
        return False
    node = bare(operands(node)[0])
    while node.kind == "MEMBER_REF_EXPR" and operands(node):
        node = bare(operands(node)[0])
    return node.kind in ("MEMBER_REF_EXPR", "CXX_THIS_EXPR")


def _changed(node: Node) -> set[int]:
    """Return the variable that a node assigns to."""
    assigns = (
        (node.kind == "BINARY_OPERATOR" and node.binary == "=")
        or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR"
        or (node.kind == "UNARY_OPERATOR" and node.unary in ("x++", "x--", "++x", "--x"))
    )
    return _keys(operands(node)[0]) if assigns else set()
