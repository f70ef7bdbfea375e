"""What C expressions stand for while they are translated: numbers, pointers, records, places and functions.

A pointer is the object that it points into and an offset in bytes. The offset is a sum, so that an element's index can
be had without a division. Where a pointer may point into several objects, ``which`` says into which one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import TYPE_CHECKING

from windtunnel.csource.ctype import CType, Number, Record, Vector
from windtunnel.language import ir

if TYPE_CHECKING:
    from windtunnel.csource.clang import Node

NULL = "null"
"""The object of a null pointer."""


@dataclass(frozen=True)
class Ptr:
    """A pointer: into one of ``bases``, ``const`` bytes plus the sum of ``parts`` (number, bytes) from its start."""

    bases: frozenset[str]
    const: int = 0
    parts: tuple[tuple[ir.Expr, int], ...] = ()
    which: ir.Expr | None = None

    def moved(self, by: ir.Expr | int, scale: int) -> Ptr:
        """Return the pointer moved by a number of steps of ``scale`` bytes."""
        if isinstance(by, ir.Literal):
            by = int(by.value)
        if isinstance(by, int):
            return replace(self, const=self.const + by * scale)
        return replace(self, parts=(*self.parts, (by, scale)))

    @property
    def unit(self) -> int:
        """The number of bytes of which the offset is certainly a multiple; 0 for the start of an object."""
        return gcd(self.const, *(scale for _, scale in self.parts))


@dataclass
class Var:
    """A variable that is not in memory: for each number or pointer in it, by its offset, the name in the tree."""

    name: str
    type: CType
    leaves: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reg:
    """A place in a variable: the part of ``type`` at an offset."""

    var: Var
    offset: int
    type: CType


@dataclass(frozen=True)
class Mem:
    """A place in memory."""

    at: Ptr
    type: CType


@dataclass(frozen=True)
class Swizzle:
    """Some elements of a vector, in an order: ``v.xz``."""

    of: Place
    numbers: tuple[int, ...]
    type: CType


@dataclass(frozen=True)
class Given:
    """A value without a place, of which a part is asked."""

    value: Aggregate
    offset: int
    type: CType


@dataclass(frozen=True)
class Bits:
    """A bit-field: some bits of a number that has a place, from the lowest one on."""

    of: Reg | Mem
    first: int
    count: int
    type: Number


Place = Reg | Mem | Swizzle | Given | Bits


@dataclass(frozen=True)
class Aggregate:
    """A record or a vector: its numbers and pointers by their offsets. What is absent was never set."""

    type: CType
    parts: Mapping[int, ir.Expr | Ptr]


def is_whole(place: Place | None) -> bool:
    """Return whether an object is known to be a whole one, which it is not if it may be the base of another object."""
    if isinstance(place, (Reg, Given)):
        whole = place.var.type if isinstance(place, Reg) else place.value.type
        return not (isinstance(whole, Record) and whole.has_base_at(place.offset, place.type))
    return False


@dataclass
class Closure:
    """A lambda: its expression, and the frame of the function that it stands in."""

    node: Node
    frame: Frame


Value = ir.Expr | Ptr | Aggregate | Closure | None


@dataclass
class Frame:
    """A function that is being translated, in place of its call.

    Attributes:
        bound: What the names that it declares stand for, by the key of the declaration.
        this: The object of a method.
        outer: The frame around a lambda.
        result: Where its value goes; None if it returns nothing.
        returns: The type that it returns.
        by_reference: Whether it returns a reference; ``place`` is then the result.
        jumps: Whether returns leave an enclosing loop, which exists only for that.
        divides: Whether what follows a branch that returns is the other branch.
        returned: The variable that says that it has returned, for returns in loops within it.
        labels: For each label that a statement may go to, the variable that says that it does.
        depth: How many loops of the tree stand around a statement, within the function.
    """

    name: str
    bound: dict[int, Var | Place | Ptr | Closure] = field(default_factory=dict)
    this: Place | None = None
    outer: Frame | None = None
    result: Reg | None = None
    returns: CType | None = None
    by_reference: bool = False
    place: Place | None = None
    closure: Closure | None = None
    kernel: bool = False
    jumps: bool = False
    divides: bool = False
    returned: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    depth: int = 0

    def find(self, key: int) -> Var | Place | Ptr | Closure | None:
        """Return what a declaration stands for; None if it is not of this function or one around it."""
        frame: Frame | None = self
        while frame is not None:
            if key in frame.bound:
                return frame.bound[key]
            frame = frame.outer
        return None


@dataclass
class Obj:
    """Memory that pointers may point into.

    ``space``: parameter, global, shared, local. ``bytes``: its size; None if the launch states it. ``type``: what it is
    declared as.
    """

    name: str
    space: str
    bytes: int | None
    type: CType
    line: int
    initial: Sequence[tuple[int, float | int, str]] = ()
    """Offset, number and type of the numbers that it begins with."""
    declared: str = ""
    """The name of a variable of the file, by which programs know it."""


def copied(e: ir.Expr) -> ir.Expr:
    """Return a number as it is copied: it need not be set, as what a lane passes to a shuffle."""
    if isinstance(e, ir.Variable):
        return ir.Variable(e.line, e.name, type=e.type, copied=True)
    if isinstance(e, ir.Load):
        return replace(e, moved=True)
    return replace(e, operand=copied(e.operand)) if isinstance(e, ir.Convert) else e


def numbers_of(value: Value) -> Iterator[ir.Expr]:
    """Yield the expressions of a number or a pointer, and those inside."""
    if isinstance(value, ir.Expr):
        yield from ir.inside(value)
    elif isinstance(value, Ptr):
        for e in [*(e for e, _ in value.parts), *([] if value.which is None else [value.which])]:
            yield from ir.inside(e)


def require_set(value: Aggregate) -> None:
    """Let all parts of a struct be checked: what was never set must not get into the grid's memory."""
    if isinstance(value.type, Vector):
        return
    for part in value.parts.values():
        for e in ir.inside(part) if isinstance(part, ir.Expr) else ():
            if isinstance(e, (ir.Variable, ir.Load)):
                e.copied = False
