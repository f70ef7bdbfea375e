"""Atomic operations, and the orders and scopes of C11's: those of OpenCL C and of CUDA's ``cuda::atomic``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Number, Pointer
from windtunnel.csource.facts import stored
from windtunnel.csource.places import Places
from windtunnel.csource.values import NULL, Mem, Place, Ptr, Value
from windtunnel.language import ir
from windtunnel.language.types import BOOL, U32, U64

_ACQUIRE, _RELEASE = (1, 2, 4, 5), (3, 4, 5)
"""The numbers of the memory orders, in OpenCL C and in CUDA: those that acquire, and those that release."""
_WIDE = (2, 3)
"""The numbers of the scopes beyond a block: the device, and all devices. Narrower ones count as the block."""
_VALUES = {"load": 0, "store": 1, "test_and_set": 0, "clear": 0, "compare_exchange": 2}
"""How many values an operation takes, beside the address; others take one."""
_OPS = {"exchange": "exch", "fetch_add": "add", "fetch_sub": "sub", "fetch_min": "min", "fetch_max": "max",
        "fetch_and": "and_", "fetch_or": "or_", "fetch_xor": "xor"}  # fmt: skip


@dataclass(frozen=True)
class Order:
    """What an atomic operation orders, and among which threads."""

    acquires: bool = True
    releases: bool = True
    of_block: bool = False


class Atomics(Places):
    """Translates atomic operations."""

    def atomic(
        self,
        node: Node,
        op: str,
        at: Ptr,
        kind: Number,
        values: Sequence[ir.Expr],
        *,
        of_block: bool = False,
        relaxed: bool = False,
    ) -> ir.Expr:
        """Emit an atomic operation, and return the number that was there before."""
        line, scalar = self.line(node), stored(kind)
        result = self.temporary("before", scalar)
        values = [self.hold(value) for value in values]

        def change(base: str) -> None:
            if base == NULL:
                self.fail_null(line)
                self.emit(ir.Assign(line, result, build.literal(line, 0, scalar)))
                return
            self._accessed(base, scalar, atomic=True)
            storage = self.storage_of(base)
            if storage.bits > scalar.bits:
                return
            if storage.bits < scalar.bits:
                if base not in self.facts.accessed:
                    return  # the next pass knows how it is accessed
                raise node.refused(f"an atomic operation on memory that is also accessed in parts of {storage}")
            index = self.linear(line, at, storage.bits // 8)
            scoped = of_block and self.objects[base].space != "shared"
            if (
                storage != scalar
                and op in ("add", "sub", "min", "max", "inc", "dec")
                and (op in ("min", "max") or "float" in (storage.kind, scalar.kind))
            ):
                swap = ir.Atomic(line, "cas", base, [self.hold(index)], [], scoped, relaxed, type=storage)
                self.emit(ir.Assign(line, result, self._by_swapping(swap, op, build.converted(values[0], scalar))))
                return
            given = [build.bits_as(build.converted(value, scalar), storage) for value in values]
            made = ir.Atomic(line, op, base, [index], given, scoped, relaxed, type=storage)
            self.emit(ir.Assign(line, result, build.bits_as(made, scalar)))

        if at.bases:
            self.aligned(line, at, kind.size)
            at = self.hold_pointer(at)
            self._dispatch(line, at, change)
        else:
            self.emit(ir.Assign(line, result, build.literal(line, 0, scalar)))
        return build.converted(ir.Variable(line, result, type=scalar), kind.scalar)

    def _by_swapping(self, swap: ir.Atomic, op: str, value: ir.Expr) -> ir.Expr:
        """Emit an operation on numbers of another type than those of the memory, and return the number before.

        ``swap``: the operation that compares and swaps, without its values.
        """
        line, storage, scalar = swap.line, swap.type, value.type
        assert storage is not None and scalar is not None  # noqa: S101  all expressions here have types
        bits = U32 if storage.bits == U32.bits else U64
        seen, expected = self.temporary("seen", storage), self.temporary("expected", storage)
        now, then = ir.Variable(line, seen, type=storage), ir.Variable(line, expected, type=storage)
        zero = build.literal(line, 0, storage)
        self.emit(ir.Assign(line, seen, replace(swap, values=[zero, zero])))
        with self.block() as turn:
            self.emit(ir.Assign(line, expected, now))
            old = self.hold(build.bits_as(then, scalar))
            if op in ("add", "sub"):
                new = build.binary(line, "+" if op == "add" else "-", old, value)
            elif op in ("min", "max"):
                new = build.select(line, build.binary(line, "<" if op == "min" else ">", value, old), value, old)
            else:
                one, none = build.literal(line, 1, scalar), build.literal(line, 0, scalar)
                above = build.binary(line, ">=" if op == "inc" else ">", old, value)
                if op == "inc":
                    new = build.select(line, above, none, build.binary(line, "+", old, one))
                else:
                    ends = build.binary(line, "or", build.binary(line, "==", old, none), above)
                    new = build.select(line, ends, value, build.binary(line, "-", old, one))
            self.emit(ir.Assign(line, seen, replace(swap, values=[then, build.bits_as(new, storage)])))
            same = build.binary(line, "==", build.bits_as(now, bits), build.bits_as(then, bits))
            self.emit(ir.If(line, same, [ir.Break(line)], []))
        self.emit(ir.While(line, build.literal(line, True, BOOL), turn))
        return build.bits_as(then, scalar)

    def atomic_read(
        self, node: Node, at: Ptr, kind: Number, *, of_block: bool = False, relaxed: bool = False
    ) -> ir.Expr:
        """Return a number in memory, read by an atomic operation that changes nothing."""
        return self.atomic(node, "load", at, kind, [], of_block=of_block, relaxed=relaxed)

    # The operations of C11.

    def order_of(self, order: Node | None, scope: Node | None) -> Order:
        """Return what an order and a scope say; by default all of it, on the device."""
        number = 5 if order is None else self._stated_constant(order, "order")
        among = 2 if scope is None else self._stated_constant(scope, "scope")
        return Order(number in _ACQUIRE, number in _RELEASE, among not in _WIDE)

    def _stated_constant(self, node: Node, what: str) -> int:
        found = self.number(node)
        if not isinstance(found, ir.Literal):
            raise node.refused(f"an atomic operation whose memory {what} is not constant", "a constant")
        return int(found.value)

    def fence(self, node: Node, order: Order) -> None:
        """Emit a fence."""
        if order.acquires or order.releases:
            self.emit(ir.Barrier(self.line(node), "fence.block" if order.of_block else "fence.device"))

    def c11(self, node: Node, name: str, at: Ptr, kind: Number, arguments: Sequence[Node], *, explicit: bool) -> Value:
        """Translate an operation of C11; ``arguments`` are those after the address.

        An operation that releases is a fence and a relaxed operation, which orders at least as much.
        """
        line = self.line(node)
        name = name.removesuffix("_strong").removesuffix("_weak")
        count = _VALUES.get(name, 1)
        rest = list(arguments[count:]) if explicit else []
        # A compare-and-swap has the order of a failure behind that of success.
        scope = rest[2 if name == "compare_exchange" else 1 :]
        order = self.order_of(rest[0] if rest else None, scope[0] if scope else None)
        of_block, relaxed = order.of_block, not order.acquires
        zero, one = (build.literal(line, value, kind.scalar) for value in (0, 1))
        if name == "load":
            return self.atomic_read(node, at, kind, of_block=of_block, relaxed=relaxed)
        if name == "compare_exchange":
            return self._compare_exchange(node, at, kind, arguments, order)
        if name in ("clear", "test_and_set"):
            values: list[ir.Expr] = [zero if name == "clear" else one]
        else:
            values = [build.converted(self.number(arguments[0]), kind.scalar)]
        if order.releases:
            self.emit(ir.Barrier(line, "fence.block" if of_block else "fence.device"))
        op = _OPS.get(name, "exch" if name == "test_and_set" else "store")
        before = self.atomic(node, op, at, kind, values, of_block=of_block, relaxed=relaxed)
        if name in ("store", "clear"):
            return None
        return build.converted(before, BOOL) if name == "test_and_set" else before

    def _compare_exchange(self, node: Node, at: Ptr, kind: Number, arguments: Sequence[Node], order: Order) -> Value:
        line = self.line(node)
        # OpenCL C has a pointer to the value that is expected, C++ a reference.
        is_pointer = isinstance(arguments[0].type, Pointer) and not arguments[0].type.reference
        expected: Place = Mem(self.pointer(arguments[0]), kind) if is_pointer else self.place(arguments[0])
        expected = self.fixed(expected)
        old = self.load(line, expected)
        assert isinstance(old, ir.Expr)  # noqa: S101  it is a number
        old = self.hold(old, "expected")
        wanted = build.converted(self.number(arguments[1]), kind.scalar)
        if order.releases:
            self.emit(ir.Barrier(line, "fence.block" if order.of_block else "fence.device"))
        made = self.atomic(node, "cas", at, kind, [old, wanted], of_block=order.of_block, relaxed=not order.acquires)
        before = self.hold(made)
        equal = self.hold(build.binary(line, "==", before, old), "equal")
        with self.block() as failed:
            self.store(line, expected, before)
        self.emit(ir.If(line, build.unary(line, "not", equal), failed, []))
        return equal
