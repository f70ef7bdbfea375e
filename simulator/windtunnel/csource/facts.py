"""What one pass over a kernel finds out about its pointers and memory, and the next pass uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd

from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import CType, Number, Pointer
from windtunnel.language import types
from windtunnel.language.types import BOOL, U8, Scalar


@dataclass
class Facts:
    """What one pass finds and the next one uses.

    Attributes:
        bases: For each pointer variable, the objects that it may point into.
        units: For each pointer variable, the number of bytes of which its offset is a multiple.
        accessed: For each object, the types of the numbers accessed in it, and whether atomically.
        escaped: The objects of which a pointer is stored in memory.
        read: The members of struct variables that are read, and not only copied with their struct.
        written: The images that are written.
        of_file: The functions, and the variables of the file, among the objects that pointers may point to.
    """

    bases: dict[str, frozenset[str]] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    accessed: dict[str, set[tuple[Scalar, bool]]] = field(default_factory=dict)
    escaped: frozenset[str] = frozenset()
    of_file: dict[str, Node] = field(default_factory=dict, compare=False)
    read: set[str] = field(default_factory=set)
    written: set[int] = field(default_factory=set)

    def storage(self, name: str, declared: CType) -> Scalar:
        """Return the type of the elements of an object."""
        used = self.accessed.get(name, set())
        kinds = {kind for kind, _ in used}
        if not kinds:
            kinds = {stored(leaf) for _, leaf in declared.leaves[:1]} or {U8}
        size = gcd(*(kind.bits for kind in kinds))
        if len({kind.bits for kind in kinds}) > 1:
            return types.SCALARS[f"u{size}"]
        atomic = [kind for kind, is_atomic in used if is_atomic]
        own = [stored(leaf) for _, leaf in declared.leaves[:1] if stored(leaf) in kinds]
        # Floats are swapped as integers where operations on both meet: a comparison of floats is none of bits.
        ordered = sorted(atomic, key=lambda kind: (kind.kind == "float", kind.name)) or own
        return ordered[0] if ordered else min(kinds, key=lambda kind: (kind.kind == "float", kind.name))


def stored(leaf: Number | Pointer) -> Scalar:
    """Return the type that a number or a pointer has in memory."""
    if isinstance(leaf, Pointer):
        return types.U64
    return U8 if leaf.scalar == BOOL else leaf.scalar
