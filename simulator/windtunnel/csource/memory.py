"""Memory: how places are read and written, and what each object in memory consists of.

An object is one array of the tree. The size of its elements is the largest that all accesses to it are multiples of,
so that a number is one element, or several that are put together. What pointers point into, and how memory is
accessed, is collected while a kernel is translated, and known in the next pass (`Facts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windtunnel.csource import build
from windtunnel.csource.bits import bits_of, with_bits
from windtunnel.csource.ctype import Array, CType, Number, Pointer, Record, Vector
from windtunnel.csource.facts import stored
from windtunnel.csource.values import (
    NULL,
    Aggregate,
    Bits,
    Given,
    Mem,
    Place,
    Ptr,
    Reg,
    Swizzle,
    Value,
    numbers_of,
    require_set,
)
from windtunnel.csource.variables import Variables
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, I32, I64, Scalar

OUT_OF_BOUNDS, MISALIGNED, ASSERTION = "OutOfBounds", "MisalignedAccess", "AssertionFailed"
DIVERGENCE, DIVISION = "BarrierDivergence", "DivisionByZero"
NOT_FOLLOWED = "InputError"  # no finding: what would be needed is not translated


class Memory(Variables):
    """Reads and writes places."""

    # Places.

    # Long: one case for each kind of place and type.
    def load(self, line: int, place: Place) -> Value:
        """Return the value at a place."""
        kind = place.type
        if isinstance(place, Bits):
            number = self.load(line, place.of)
            assert isinstance(number, ir.Expr)  # noqa: S101  as its type
            return bits_of(line, number, (place.first, place.count), place.type)
        if isinstance(place, Swizzle):
            whole = self.load(line, place.of)
            assert isinstance(whole, Aggregate) and isinstance(place.of.type, Vector)  # noqa: S101
            size = place.of.type.element.size
            if isinstance(kind, Number):
                return whole.parts[place.numbers[0] * size]
            return Aggregate(kind, {i * size: whole.parts[n * size] for i, n in enumerate(place.numbers)})
        if isinstance(place, Given):
            return _part(place.value, place.offset, kind)
        if isinstance(kind, Array):
            if not isinstance(place, Mem):
                raise TypeError("an array is in memory")
            return place.at
        if isinstance(kind, Number):
            if isinstance(place, Reg):
                name = place.var.leaves[place.offset]
                if isinstance(place.var.type, Record) and not self.copying:
                    self.found.read.add(name)
                return ir.Variable(line, name, type=kind.scalar)
            return self.load_number(line, place.at, kind)
        if isinstance(kind, Pointer):
            if isinstance(place, Reg):
                return self.read_pointer(line, place.var.leaves[place.offset])
            return self.decoded(line, self.load_number(line, place.at, Number(types.U64)), kind)
        if isinstance(place, Mem) and len(kind.leaves) > 1:
            place = Mem(self.hold_pointer(place.at), kind)
            self.aligned(line, place.at, kind.align)
        self.copying += 1  # which reads nothing
        parts = {o: self.load(line, self.part(place, o, leaf)) for o, leaf in kind.leaves}
        self.copying -= 1
        if isinstance(kind, Record):
            held = set(place.var.leaves.values()) if isinstance(place, Reg) else set()
            for value in parts.values():
                for e in numbers_of(value):
                    if isinstance(e, ir.Variable) and isinstance(place, Reg):
                        e.copied = e.name in held or (isinstance(value, Ptr) and e.name.removesuffix("_of") in held)
                    elif isinstance(e, ir.Load) and isinstance(value, ir.Expr):
                        e.copied = True
        if isinstance(kind, Vector) and kind.count == 4 and not (isinstance(place, Mem) and self._is_shared(place.at)):
            # Kernels leave the last element unset where three are used.
            last = parts[3 * kind.element.size]
            for e in ir.inside(last) if isinstance(last, ir.Expr) else ():
                if isinstance(e, (ir.Variable, ir.Load)):
                    e.copied = True
        return Aggregate(kind, parts)  # type: ignore[arg-type]

    def _is_global(self, at: Ptr) -> bool:
        """Return whether a pointer points into the grid's memory."""
        return any(base in self.objects and self.objects[base].space in ("parameter", "global") for base in at.bases)

    def _is_shared(self, at: Ptr) -> bool:
        """Return whether a pointer may point into memory that threads share."""
        return any(base not in self.objects or self.objects[base].space != "local" for base in at.bases)

    def part(self, place: Place, offset: int, kind: CType) -> Place:
        """Return the place of a part, at an offset in bytes."""
        match place:
            case Reg():
                return Reg(place.var, place.offset + offset, kind)
            case Mem():
                return Mem(place.at.moved(offset, 1) if offset else place.at, kind)
            case Given():
                return Given(place.value, place.offset + offset, kind)
            case Bits():
                return place
            case Swizzle():
                assert isinstance(place.of.type, Vector)  # noqa: S101  only vectors have swizzles
                number = offset // place.of.type.element.size
                return Swizzle(place.of, (place.numbers[number],), kind)

    def store(self, line: int, place: Place, value: Value) -> None:
        """Assign a value of the place's type."""
        kind = place.type
        if isinstance(place, Bits):
            self._store_bits(line, place, value)
            return
        if isinstance(value, Aggregate):
            self._store_parts(line, place, value)
            return
        if isinstance(place, Swizzle):
            assert isinstance(place.of.type, Vector)  # noqa: S101  only vectors have swizzles
            place = self.part(place.of, place.numbers[0] * place.of.type.element.size, place.of.type.element)
            self.store(line, place, value)
            return
        if isinstance(value, Ptr):
            if isinstance(place, Reg):
                self.write_pointer(line, place.var.leaves[place.offset], value)
            elif isinstance(place, Mem):
                self.store_number(line, place.at, Number(types.U64), self.encoded(line, value))
            return
        assert isinstance(value, ir.Expr)  # noqa: S101  nothing else is left
        if isinstance(place, Reg):
            assert isinstance(kind, Number)  # noqa: S101  as the value
            self.emit(ir.Assign(line, place.var.leaves[place.offset], build.converted(value, kind.scalar)))
        elif isinstance(place, Mem):
            assert isinstance(kind, Number)  # noqa: S101  as the value
            self.store_number(line, place.at, kind, build.converted(value, kind.scalar))

    def _store_parts(self, line: int, place: Place, value: Aggregate) -> None:
        kind = place.type
        if isinstance(place, Mem) and self._is_global(place.at):
            require_set(value)
        if isinstance(place, Reg) and isinstance(place.var.type, Record):
            self._copied_into(place, value)
        if len(value.parts) > 1:
            if isinstance(place, (Reg, Swizzle)):
                value = Aggregate(kind, {at: self.hold_value(part) for at, part in value.parts.items()})  # type: ignore[misc]
            elif isinstance(place, Mem):
                place = Mem(self.hold_pointer(place.at), kind)
                self.aligned(line, place.at, kind.align)
        for offset, leaf in kind.leaves:
            if offset in value.parts:
                self.store(line, self.part(place, offset, leaf), value.parts[offset])

    def _copied_into(self, place: Reg, value: Aggregate) -> None:
        """Let those parts of a struct be checked that are read of the variable that it is copied into."""
        for offset, part in value.parts.items():
            name = place.var.leaves.get(place.offset + offset)
            for e in numbers_of(part) if name is not None else ():
                if isinstance(e, ir.Load) and self.objects[e.array].space != "local" and name in self.facts.read:
                    e.copied = False
                elif isinstance(e, ir.Variable) and name:
                    self.copies.setdefault(name, set()).add(e.name)

    def read_through_copies(self) -> None:
        """Add the members that are read of a copy of their struct."""
        pending = list(self.found.read)
        while pending:
            new = self.copies.get(pending.pop(), set()) - self.found.read
            self.found.read |= new
            pending += new

    def _store_bits(self, line: int, place: Bits, value: Value) -> None:
        number = self.load(line, place.of)
        assert isinstance(number, ir.Expr) and isinstance(value, ir.Expr)  # noqa: S101  as their types
        for e in ir.inside(number):  # the other bits need not be set
            if isinstance(e, (ir.Variable, ir.Load)):
                e.copied = True
        self.store(line, place.of, with_bits(line, number, (place.first, place.count), value))

    # Numbers in memory.

    def each_base(self, at: Ptr) -> Sequence[str]:
        """Return the objects that a pointer may point into, those that exist last."""
        return sorted(at.bases, key=lambda name: (name == NULL, self.ids[name]))

    def storage_of(self, base: str) -> Scalar:
        """Return the type of the elements of an object."""
        return self.facts.storage(base, self.objects[base].type)

    def _accessed(self, base: str, kind: Scalar, *, atomic: bool = False) -> None:
        self.found.accessed.setdefault(base, set()).add((kind, atomic))

    def aligned(self, line: int, at: Ptr, size: int) -> None:
        """Emit the check that an address is a multiple of the size of what is accessed, if that is not certain."""
        types_there = (self.objects[base].type for base in at.bases if base in self.objects)
        if at.unit % size == 0 or any(isinstance(one, Record) and one.is_packed for one in types_there):
            return
        if at.unit == at.const == 0:
            return
        whole = ir.Call(line, "index.exact", [self.linear(line, at, 1)], type=I64)
        rest = build.binary(line, "&", whole, build.literal(line, size - 1, I64))
        condition = build.binary(line, "==", rest, build.literal(line, 0, I64))
        message = f"an access of {size} bytes at an address that is no multiple of {size}"
        self.emit(ir.Require(line, condition, MISALIGNED, message))

    def fail_null(self, line: int) -> None:
        """Emit the finding that a null pointer is followed."""
        condition = build.literal(line, False, BOOL)
        self.emit(ir.Require(line, condition, OUT_OF_BOUNDS, "the null pointer is followed"))

    def load_number(self, line: int, at: Ptr, kind: Number) -> ir.Expr:
        """Return a number in memory."""
        scalar = stored(kind)
        if not at.bases:  # not known in this pass
            return build.literal(line, 0, kind.scalar)
        self.aligned(line, at, kind.size)
        if len(at.bases) == 1:
            (base,) = at.bases
            if base == NULL:
                self.fail_null(line)
                return build.literal(line, 0, kind.scalar)
            return build.converted(self._load(line, base, at, scalar), kind.scalar)
        at = self.hold_pointer(at)
        result = self.temporary("loaded", scalar)

        def read(base: str) -> None:
            value = build.literal(line, 0, scalar) if base == NULL else self._load(line, base, at, scalar)
            if base == NULL:
                self.fail_null(line)
            self.emit(ir.Assign(line, result, value))

        self._dispatch(line, at, read)
        return build.converted(ir.Variable(line, result, type=scalar), kind.scalar)

    def _dispatch(self, line: int, at: Ptr, act: Callable[[str], None]) -> None:
        """Emit what is to be done for the object that a pointer points into."""
        bases = list(self.each_base(at))
        which = self.which(line, at)

        def cases(rest: list[str]) -> None:
            if len(rest) == 1:
                act(rest[0])
                return
            condition = build.binary(line, "==", which, build.literal(line, self.ids[rest[0]], I32))
            with self.block() as yes:
                act(rest[0])
            with self.block() as no:
                cases(rest[1:])
            self.emit(ir.If(line, condition, yes, no))

        cases(bases)

    def _load(self, line: int, base: str, at: Ptr, scalar: Scalar) -> ir.Expr:
        self._accessed(base, scalar)
        storage = self.storage_of(base)
        if storage.bits >= scalar.bits:
            index = self.linear(line, at, storage.bits // 8)
            loaded = ir.Load(line, base, [index], type=storage)
            return loaded if storage.bits != scalar.bits else build.bits_as(loaded, scalar)
        whole = types.SCALARS[f"u{scalar.bits}"]
        at = self.hold_pointer(at)
        result: ir.Expr | None = None
        for number in range(scalar.bits // storage.bits):
            index = self.linear(line, at.moved(number, storage.bits // 8), storage.bits // 8)
            unsigned = types.SCALARS[f"u{storage.bits}"]
            piece = build.converted(build.bits_as(ir.Load(line, base, [index], type=storage), unsigned), whole)
            moved = build.binary(line, "<<", piece, build.literal(line, number * storage.bits, whole))
            result = piece if result is None else build.binary(line, "|", result, moved)
        assert result is not None  # noqa: S101  a number has a piece
        return build.bits_as(self.hold(result, "loaded"), scalar)

    def store_number(self, line: int, at: Ptr, kind: Number, value: ir.Expr) -> None:
        """Set a number in memory."""
        scalar = stored(kind)
        value = build.converted(value, scalar)
        if not at.bases:
            return
        self.aligned(line, at, kind.size)
        if len(at.bases) == 1:
            (base,) = at.bases
            if base == NULL:
                self.fail_null(line)
            else:
                self._store(line, base, at, scalar, value)
            return
        at, value = self.hold_pointer(at), self.hold(value)

        def write(base: str) -> None:
            if base == NULL:
                self.fail_null(line)
            else:
                self._store(line, base, at, scalar, value)

        self._dispatch(line, at, write)

    def _store(self, line: int, base: str, at: Ptr, scalar: Scalar, value: ir.Expr) -> None:
        self._accessed(base, scalar)
        storage = self.storage_of(base)
        if storage.bits == scalar.bits:
            index = self.linear(line, at, storage.bits // 8)
            self.emit(ir.Store(line, base, [index], build.bits_as(value, storage)))
            return
        if storage.bits > scalar.bits:  # the facts of the next pass have smaller elements
            return
        whole, unsigned = types.SCALARS[f"u{scalar.bits}"], types.SCALARS[f"u{storage.bits}"]
        at, bits = self.hold_pointer(at), self.hold(build.bits_as(value, whole))
        for number in range(scalar.bits // storage.bits):
            moved = build.binary(line, ">>", bits, build.literal(line, number * storage.bits, whole))
            index = self.linear(line, at.moved(number, storage.bits // 8), storage.bits // 8)
            piece = build.bits_as(build.converted(moved, unsigned), storage)
            self.emit(ir.Store(line, base, [index], piece))

    def in_flight(self, line: int, what: str, at: Ptr, kind: Number) -> None:
        """Emit that an asynchronous copy reads or writes a number from now on."""

        def mark(base: str) -> None:
            if base == NULL:
                return
            storage = self.storage_of(base)
            for number in range(max(stored(kind).bits // storage.bits, 1)):
                index = self.linear(line, at.moved(number, storage.bits // 8), storage.bits // 8)
                self.emit(ir.Flight(line, what, base, [index]))

        if at.bases:
            at = self.hold_pointer(at)
            self._dispatch(line, at, mark)


def _part(value: Aggregate, offset: int, kind: CType) -> Value:
    if isinstance(kind, (Number, Pointer)):
        found = value.parts.get(offset)
        if found is None:
            raise KeyError(offset)
        return found
    return Aggregate(kind, {at: value.parts[offset + at] for at, _ in kind.leaves if offset + at in value.parts})
