"""What a function does with its variables: which it assigns to, and of which it takes the address."""

from __future__ import annotations

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Pointer
from windtunnel.csource.places import addressed, addresses_this, bare, changed_by, operands, pointer_of, root_of


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
            self._in_memory[function.key] = frozenset()  # for a function that calls itself
            taken = {key for one in function.walk() if (key := addressed(one)) is not None}
            for one in function.walk():
                taken |= self._addressed_by_call(one) if one.kind == "CALL_EXPR" else set()
            found = self._in_memory[function.key] = frozenset(taken)
        return found

    def _addressed_by_call(self, node: Node) -> set[int]:
        """Return the variables that a call passes by reference to a function that takes their address."""
        definition = None if node.referred is None else node.referred.definition
        if definition is None:
            return set()
        stated = [kid for kid in definition.kids if kid.kind == "PARM_DECL"]
        given = [Node(node.unit, one) for one in node.cursor.get_arguments()]
        if definition.kind == "CXX_METHOD" and any(addresses_this(one) for one in definition.walk()):
            callee = bare(node.kids[0])
            whole = given[0] if len(given) > len(stated) else next(iter(operands(callee)), None)
            root = None if whole is None else root_of(whole)
            return set() if root is None else {root.key}
        if not any(isinstance(kid.type, Pointer) and kid.type.reference for kid in stated):
            return set()
        within = self.in_memory(definition)
        # The first argument of an operator that is a method is its object.
        pairs = zip(stated, given[len(given) - len(stated) :] if len(given) > len(stated) else given, strict=False)
        roots = [root_of(argument) for parameter, argument in pairs if parameter.key in within]
        return {root.key for root in roots if root is not None}

    def assigned(self, function: Node) -> frozenset[int]:
        """Return the variables that a function assigns to after their declaration, or whose address it takes."""
        found = self._assigned.get(function.key)
        if found is None:
            changed = {key for one in function.walk() for key in (changed_by(one), addressed(one)) if key is not None}
            found = self._assigned[function.key] = frozenset(changed)
        return found

    def swapped(self, function: Node) -> frozenset[int]:
        """Return the pointers through which a function compares and swaps (``atomicCAS``)."""
        found = self._swapped.get(function.key)
        if found is None:
            keys = set()
            for one in function.walk():
                if one.kind == "CALL_EXPR" and one.name in ("atomicCAS", "atomic_cmpxchg", "atom_cmpxchg"):
                    target = pointer_of(Node(one.unit, next(iter(one.cursor.get_arguments()))))
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
