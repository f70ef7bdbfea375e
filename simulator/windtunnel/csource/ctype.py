"""Types of C: numbers, pointers, arrays, records and vectors, with their layout in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from windtunnel.language import types
from windtunnel.language.types import Scalar


class CType:
    """A type of C. ``size`` and ``align`` are in bytes."""

    size: int = 0
    align: int = 1

    @cached_property
    def leaves(self) -> tuple[tuple[int, Number | Pointer], ...]:
        """The numbers and pointers that a value consists of, each with its offset in bytes."""
        return tuple(self._leaves())

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        return iter(())


@dataclass(frozen=True)
class Void(CType):
    """No value; also the type of functions."""

    name: str = "void"

    @property
    def is_opaque(self) -> bool:
        """Whether it is an image or a sampler."""
        return self.name in ("image", "sampler")

    @property
    def is_function(self) -> bool:
        """Whether it is the type of a function."""
        return self.name.startswith("FUNCTION")


@dataclass(frozen=True)
class Number(CType):
    """An integer, a float, a Boolean or an enumeration."""

    scalar: Scalar

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes of the number."""
        return max(self.scalar.bits // 8, 1)

    @property
    def align(self) -> int:  # type: ignore[override]
        """Alignment of the number in memory."""
        return self.size

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        yield 0, self


@dataclass(frozen=True)
class Pointer(CType):
    """A pointer, or a reference (``reference``) to an object."""

    pointee: CType = field(compare=False)
    space: str = ""
    reference: bool = False
    size: int = 8
    align: int = 8

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        yield 0, self


@dataclass(frozen=True)
class Array(CType):
    """An array of ``count`` elements; None if its size is not stated."""

    element: CType
    count: int | None

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes of all elements."""
        return self.element.size * (self.count or 0)

    @property
    def align(self) -> int:  # type: ignore[override]
        """Alignment of an element."""
        return self.element.align

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        for number in range(self.count or 0):
            for offset, leaf in self.element.leaves:
                yield number * self.element.size + offset, leaf


@dataclass(frozen=True)
class Field:
    """A member of a record. A base class is a member without a name.

    ``bits``: of a bit-field, the first one and how many.
    """

    name: str
    offset: int
    type: CType
    bits: tuple[int, int] | None = None

    @property
    def unit(self) -> Number:
        """The number that holds the bits of a bit-field."""
        return Number(types.SCALARS[f"u{self.type.size * 8}"])


@dataclass(eq=False)
class Record(CType):
    """A struct, class or union. ``is_lambda``: the type of a lambda expression."""

    name: str
    size: int
    align: int
    union: bool = False
    is_lambda: bool = False
    fields: list[Field] = field(default_factory=list)

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        if self.union:
            # The bytes of the largest member are all that can be copied.
            largest = max(self.fields, key=lambda member: member.type.size, default=None)
            if largest is not None:
                yield from largest.type.leaves
            return
        held: set[int] = set()
        for member in self.fields:
            if member.bits is not None:  # several bit-fields share a number
                if member.offset in held:
                    continue
                held.add(member.offset)
                yield member.offset, member.unit
                continue
            for offset, leaf in member.type.leaves:
                yield member.offset + offset, leaf

    def member(self, name: str) -> Field | None:
        """Return a member, also one of an unnamed member or a base class; None if there is none."""
        for one in self.fields:
            if one.name == name:
                return one
        for one in self.fields:
            if not one.name and isinstance(one.type, Record):
                inner = one.type.member(name)
                if inner is not None:
                    return Field(name, one.offset + inner.offset, inner.type, inner.bits)
        return None

    def offset_of(self, base: Record) -> int | None:
        """Return where a base class begins, in bytes; None for another class."""
        for one in self.fields:
            if not one.name and isinstance(one.type, Record):
                inner = 0 if one.type is base else one.type.offset_of(base)
                if inner is not None:
                    return one.offset + inner
        return None

    def has_base_at(self, offset: int, kind: CType) -> bool:
        """Return whether the part of a type at an offset is the base of another object, and not one of its own."""
        return any(
            (not one.name and one.offset == offset and one.type is kind)
            or (isinstance(one.type, Record) and one.type.has_base_at(offset - one.offset, kind))
            for one in self.fields
        )

    @cached_property
    def is_packed(self) -> bool:
        """Whether its members may lie at addresses that are no multiples of their sizes."""
        return any(leaf.size > self.align for _, leaf in self.leaves)

    @cached_property
    def in_memory(self) -> bool:
        """Whether a variable of this type lies in memory: it has a union or an array in it."""
        if self.union:
            return True
        return any(
            isinstance(one.type, Array) or (isinstance(one.type, Record) and one.type.in_memory) for one in self.fields
        )


@dataclass(frozen=True)
class Vector(CType):
    """A vector of OpenCL C. One of three elements has the size of four."""

    element: Number
    count: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """Bytes of the vector."""
        return self.element.size * (4 if self.count == 3 else self.count)

    @property
    def align(self) -> int:  # type: ignore[override]
        """Alignment of the vector in memory."""
        return self.size

    def _leaves(self) -> Iterator[tuple[int, Number | Pointer]]:
        for number in range(self.count):
            yield number * self.element.size, self.element


VOID = Void()
INT, UINT, LONG, ULONG = (Number(kind) for kind in (types.I32, types.U32, types.I64, types.U64))
BOOLEAN, CHAR = Number(types.BOOL), Number(types.I8)
FLOAT, DOUBLE = Number(types.F32), Number(types.F64)


def is_function_pointer(kind: CType) -> bool:
    """Return whether a type is that of pointers to functions."""
    return isinstance(kind, Pointer) and isinstance(kind.pointee, Void) and kind.pointee.is_function


def member_name(kind: CType, offset: int) -> str:
    """Return the name of the member at an offset."""
    if isinstance(kind, Record):
        for one in kind.fields:
            if one.offset <= offset < one.offset + max(one.type.size, 1):
                inner = (
                    member_name(one.type, offset - one.offset) if isinstance(one.type, (Record, Array, Vector)) else ""
                )
                return "_".join(part for part in (one.name, inner) if part) or str(offset)
    if isinstance(kind, Vector):
        number = offset // kind.element.size
        return "xyzw"[number] if kind.count <= 4 else f"s{number:x}"
    return str(offset)


def member_path(kind: CType, offset: int) -> str:
    """Return what follows the name of a variable in C for the number at an offset: ``.position.x``, ``.values[2]``."""
    if isinstance(kind, Record):
        for one in kind.fields:
            if one.offset <= offset < one.offset + max(one.type.size, 1):
                return f".{one.name}{member_path(one.type, offset - one.offset)}"
    if isinstance(kind, Array) and kind.element.size:
        number, rest = divmod(offset, kind.element.size)
        return f"[{number}]{member_path(kind.element, rest)}"
    return f".{member_name(kind, offset)}" if isinstance(kind, Vector) else ""


def promoted(kind: Scalar) -> Scalar:
    """Return the type of an integer after C's integer promotion. Other types are unchanged."""
    if kind.kind == "bool" or (kind.kind in ("int", "uint") and kind.bits < 32):
        return types.I32
    return kind


def common(left: Scalar, right: Scalar) -> Scalar:
    """Return the type of an operation on two numbers, by C's usual arithmetic conversions."""
    left, right = promoted(left), promoted(right)
    if "float" in (left.kind, right.kind):
        floats = [kind for kind in (left, right) if kind.kind == "float"]
        return max(floats, key=lambda kind: kind.bits)
    if left == right:
        return left
    if left.bits != right.bits:
        return max(left, right, key=lambda kind: kind.bits)
    return left if left.kind == "uint" else right
