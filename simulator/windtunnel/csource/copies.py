"""Asynchronous copies from global to shared memory (cp.async), and addresses in shared memory as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Number
from windtunnel.csource.facts import stored
from windtunnel.csource.mathematics import Mathematics
from windtunnel.csource.values import NULL, Mem, Ptr, Value
from windtunnel.language import ir, types
from windtunnel.language.types import I32, I64, U32

COPIES = "copies_begun"
"""The variable that counts the groups of asynchronous copies of a thread; in OpenCL C, the copies of a group."""
_OFFSET_BITS = 18
"""Bits of an address in shared memory that are the offset in its object: 256 KiB, more than a block has."""


class Copies(Mathematics):
    """Translates asynchronous copies."""

    def copy_async(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Translate an asynchronous copy: target, origin, bytes, and of these the last that are 0 instead."""
        line = self.line(node)
        target, origin = (self.hold_pointer(self.pointer(one)) for one in arguments[:2])
        size = self.number(arguments[2])
        given: ir.Expr | None = None
        if len(arguments) > 3 and not (isinstance(zeros := self.number(arguments[3]), ir.Literal) and not zeros.value):
            given = build.binary(line, "-", build.converted(size, I32), build.converted(zeros, I32))
        self.begin_copy(line, target, origin, size, given)
        return None

    def begin_copy(self, line: int, target: Ptr, origin: Ptr, size: ir.Expr, given: ir.Expr | None = None) -> None:
        """Emit an asynchronous copy of ``size`` bytes: it is done at once, and in flight until a wait.

        ``given``: the bytes that are read, if the others are zeros; None for all.
        """
        whole = int(size.value) if isinstance(size, ir.Literal) else 0
        unit = Number(U32 if whole % 4 == 0 else types.U8)
        declared = {stored(leaf) for at in (target, origin) for base in at.bases if base in self.objects
                    for _, leaf in self.objects[base].type.leaves[:1]}  # fmt: skip
        if len(declared) == 1 and whole % ((only := declared.pop()).bits // 8) == 0:
            unit = Number(only)
        read = None if given is None else self.hold(build.converted(given, I32), "given")
        if not isinstance(size, ir.Literal):
            self._copy_many(line, target, origin, size, unit, read)
            return
        for number in range(whole // unit.size):
            at = build.literal(line, number * unit.size, I32)
            self._copy_one(line, target.moved(number, unit.size), origin.moved(number, unit.size), unit, at, read)
        for number in range(whole // unit.size):
            at = build.literal(line, number * unit.size, I32)
            self._flight_of_one(line, target.moved(number, unit.size), origin.moved(number, unit.size), unit, at, read)

    def _copy_one(
        self, line: int, to: Ptr, origin: Ptr, unit: Number, at: ir.Expr, read: ir.Expr | None
    ) -> None:  # fmt: skip
        """Emit the copy of one number ``at`` bytes from the start; it is 0 if that is not below ``read``."""
        with self.block() as copied:
            self.store(line, Mem(to, unit), self.load(line, Mem(origin, unit)))
        if read is None:
            self.body += copied
            return
        with self.block() as zeros:
            self.store(line, Mem(to, unit), build.literal(line, 0, unit.scalar))
        self.emit(ir.If(line, build.binary(line, "<", at, read), copied, zeros))

    def _flight_of_one(
        self, line: int, to: Ptr, origin: Ptr, unit: Number, at: ir.Expr, read: ir.Expr | None
    ) -> None:  # fmt: skip
        self.in_flight(line, "write", to, unit)
        with self.block() as begun:
            self.in_flight(line, "read", origin, unit)
        if read is None:
            self.body += begun
        elif begun:
            self.emit(ir.If(line, build.binary(line, "<", at, read), begun, []))

    def _copy_many(
        self, line: int, target: Ptr, origin: Ptr, size: ir.Expr, unit: Number, read: ir.Expr | None
    ) -> None:  # fmt: skip
        """Emit an asynchronous copy of a size that is known when the kernel runs."""
        counter = self.fresh("copied")
        self.variables[counter] = I32
        number = ir.Variable(line, counter, type=I32)
        to, source = target.moved(number, unit.size), origin.moved(number, unit.size)
        with self.block() as body:
            at = build.binary(line, "*", number, build.literal(line, unit.size, I32))
            self._copy_one(line, to, source, unit, at, read)
            self._flight_of_one(line, to, source, unit, at, read)
        steps = build.binary(line, "/", build.converted(size, I32), build.literal(line, unit.size, I32))
        zero, one = build.literal(line, 0, I32), build.literal(line, 1, I32)
        self.emit(ir.For(line, counter, zero, self.hold(steps), one, body))

    def commit_copies(self, node: Node) -> Value:
        """Emit the end of a group of copies."""
        line = self.line(node)
        self.emit(ir.Flight(line, "commit"))
        self.variables[COPIES] = I32
        number = ir.Variable(line, COPIES, type=I32)
        self.emit(ir.Assign(line, COPIES, build.binary(line, "+", number, build.literal(line, 1, I32))))
        return None

    def await_copies(self, node: Node, left: ir.Expr) -> Value:
        """Emit a wait for all groups of copies but the last ``left``."""
        line = self.line(node)
        if isinstance(left, ir.Literal):
            self.emit(ir.Flight(line, "wait", left=int(left.value)))
            return None
        self.variables[COPIES] = I32
        begun = ir.Variable(line, COPIES, type=I32)
        self.emit(ir.Flight(line, "wait", last=build.binary(line, "-", begun, build.converted(left, I32))))
        return None

    # Addresses.

    def shared_address(self, line: int, value: Ptr) -> ir.Expr:
        """Return the number of 32 bits that stands for a pointer to shared memory, for assembly."""
        self.found.escaped |= value.bases
        which = build.converted(self.which(line, value), I64)
        high = build.binary(line, "<<", which, build.literal(line, _OFFSET_BITS, I64))
        low = ir.Call(line, "index.exact", [self.linear(line, value, 1)], type=I64)
        return build.converted(build.binary(line, "+", high, low), types.U64)

    def of_shared_address(self, line: int, value: ir.Expr) -> Ptr:
        """Return the pointer that a number of `shared_address` stands for."""
        whole = self.hold(build.converted(value, I64), "address")
        low = build.binary(line, "&", whole, build.literal(line, 2**_OFFSET_BITS - 1, I64))
        bases = frozenset(
            base for base in self.facts.escaped if base in self.objects and self.objects[base].space == "shared"
        ) or frozenset({NULL})  # fmt: skip
        which = None
        if len(bases) > 1:
            which = build.converted(build.binary(line, ">>", whole, build.literal(line, _OFFSET_BITS, I64)), I32)
            which = self.hold(which, "of")
        return Ptr(bases, 0, ((self.hold(low, "at"), 1),), which)
