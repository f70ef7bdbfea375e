"""The device's own functions: barriers, atomics, exchanges of a warp, bits and mathematics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.csource import build
from windtunnel.csource.assembly import Assembly
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Number, Pointer
from windtunnel.csource.mathematics import CONSTANTS, number_type
from windtunnel.csource.memory import ASSERTION
from windtunnel.csource.places import bare, operands
from windtunnel.csource.values import Aggregate, Mem, Place, Ptr, Value, copied
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, I32, U32, Scalar

_ATOMICS = {
    "Add": "add", "Sub": "sub", "Min": "min", "Max": "max", "And": "and_", "Or": "or_", "Xor": "xor", "Exch": "exch",
    "CAS": "cas", "Inc": "inc", "Dec": "dec",
}  # fmt: skip
_ATOMIC = re.compile(r"atomic(Add|Sub|Min|Max|And|Or|Xor|Exch|CAS|Inc|Dec)(_block|_system)?$")
_SHUFFLE = re.compile(r"__shfl(?:_(up|down|xor))?(_sync)?$")
_FENCES = {
    "__threadfence": "fence.device", "__threadfence_system": "fence.device", "__threadfence_block": "fence.block",
}  # fmt: skip


class Intrinsics(Assembly):
    """Translates calls of the device's own functions."""

    def intrinsic(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a call of one of the device's own functions; NotImplemented if there is none of this name."""
        special: Mapping[str, Callable[[Node, Sequence[Node]], Value | Place]] = {
            "__syncthreads": self._barrier, "__syncwarp": self._warp_barrier, "__wt_grid_sync": self._grid_barrier,
            "__syncthreads_count": self._counted, "__syncthreads_and": self._counted,
            "__syncthreads_or": self._counted, "printf": self._printf, "__wt_assert_fail": self._assertion,
            "__wt_active": self._active, "__trap": self.trap, "memcpy": self._memcpy, "memset": self._memset,
            "memmove": self._memcpy,
            "__wt_copy_async": self.copy_async, "__wt_copy_async_zeros": self.copy_async,
            "__wt_async_commit": lambda n, _: self.commit_copies(n),
            "__wt_async_wait": lambda n, a: self.await_copies(n, self.number(a[0])),
            "__cvta_generic_to_shared": lambda n, a: self.shared_address(self.line(n), self.pointer(a[0])),
            "__cvta_shared_to_generic": lambda n, a: self.of_shared_address(self.line(n), self.number(a[0])),
            "__all_sync": self._vote, "__any_sync": self._vote, "__ballot_sync": self._vote,
            "__wt_lane": self._lane, "__nanosleep": self._nothing, "__builtin_assume": self._nothing,
            "__builtin_unreachable": self._nothing, "__wt_nothing": self._nothing,
            "sincosf": self._sincos, "sincos": self._sincos, "__sincosf": self._sincos,
            "move": lambda _, a: self.place(a[0]), "forward": lambda _, a: self.place(a[0]),
            "__builtin_expect": lambda n, a: self.value(a[0]),
            **dict.fromkeys(CONSTANTS, self._constant),
            "frexp": self._with_integer, "frexpf": self._with_integer, "remquo": self._with_integer,
            "remquof": self._with_integer, "__wt_clock": self._clock,
            "modff": self._modf, "modf": self._modf, "__wt_dynamic_smem": self._nothing,
        }  # fmt: skip
        if name in special:
            return special[name](node, arguments)
        made = self.texels(node, name, arguments)
        if made is not NotImplemented:
            return made
        line = self.line(node)
        if name in _FENCES:
            self.emit(ir.Barrier(line, _FENCES[name]))
            return None
        found = _ATOMIC.match(name)
        if found is not None:
            return self._atomic(node, _ATOMICS[found[1]], arguments, of_block=found[2] == "_block")
        if name.startswith("__wt_c11_"):
            return self._c11(node, name.removeprefix("__wt_c11_"), arguments)
        found = _SHUFFLE.match(name)
        if found is not None:
            return self._shuffle(node, found[1] or "index", arguments, masked=bool(found[2]))
        made = self._reinterpreted(node, name, arguments)
        if made is not NotImplemented:
            return made
        return self._mathematics(node, name, arguments)

    def texels(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a function of images; NotImplemented if there is none of this name."""
        raise NotImplementedError

    def _nothing(self, node: Node, arguments: Sequence[Node]) -> Value:
        del node, arguments
        return None

    # Barriers.

    def _barrier(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        self.emit(ir.Barrier(self.line(node), "block"))
        return None

    def _grid_barrier(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        self.emit(ir.Barrier(self.line(node), "grid"))
        return None

    def _warp_barrier(self, node: Node, arguments: Sequence[Node]) -> Value:
        mask = build.converted(self.number(arguments[0]), U32) if arguments else None
        if isinstance(mask, ir.Literal) and mask.value == 0xFFFFFFFF:
            mask = None
        self.emit(ir.Barrier(self.line(node), "warp", mask))
        return None

    def _counted(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Translate ``__syncthreads_count`` and its kin: a count in shared memory, between barriers."""
        line = self.line(node)
        declared = node.referred
        which = (
            "count" if declared is None else declared.name.rpartition("_")[2].replace("all", "and").replace("any", "or")
        )
        if declared is not None:
            self.collectives[line] = declared.name
        condition = self.hold(self.condition(arguments[0]), "predicate")
        key = -1
        if key not in self.statics:
            self.statics[key] = self.new_object("threads_that_hold", "shared", 4, Number(I32), line)
        place = Mem(self.start_of(self.statics[key]), Number(I32))
        first: ir.Expr | None = None
        for axis in range(3):
            index = ir.Index(line, "thread", axis, type=I32)
            zero = build.binary(line, "==", index, build.literal(line, 0, I32))
            first = zero if first is None else ir.Logic(line, "and", first, zero, type=BOOL)
        assert first is not None  # noqa: S101  there are three axes
        self.emit(ir.Barrier(line, "block"))
        with self.block() as clears:
            self.store(line, place, build.literal(line, 0, I32))
        self.emit(ir.If(line, first, clears, []))
        self.emit(ir.Barrier(line, "block"))
        value = build.converted(condition if which != "and" else build.unary(line, "not", condition), I32)
        self.atomic(node, "add", place.at, Number(I32), [value])
        self.emit(ir.Barrier(line, "block"))
        count = self.load(line, place)
        assert isinstance(count, ir.Expr)  # noqa: S101  it is a number
        count = self.hold(count, "count")
        if which == "count":
            return count
        zero = build.literal(line, 0, I32)
        return build.converted(build.binary(line, "==" if which == "and" else "!=", count, zero), I32)

    # Memory.

    def _atomic(self, node: Node, op: str, arguments: Sequence[Node], *, of_block: bool) -> Value:
        pointer = arguments[0].type
        kind = pointer.pointee if isinstance(pointer, Pointer) else None
        if not isinstance(kind, Number):
            raise node.refused("an atomic operation on something that is no number")
        at = self.pointer(arguments[0])
        values = [build.converted(self.number(one), kind.scalar) for one in arguments[1:]]
        return self.atomic(node, op, at, kind, values, of_block=of_block)

    def _c11(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        if name == "fence":
            self.fence(node, self.order_of(arguments[0], arguments[1]))
            return None
        pointer = arguments[0].type
        kind = pointer.pointee if isinstance(pointer, Pointer) else None
        if not isinstance(kind, Number):
            raise node.refused("an atomic operation on something that is no number")
        return self.c11(node, name, self.pointer(arguments[0]), kind, arguments[1:], explicit=True)

    def _memcpy(self, node: Node, arguments: Sequence[Node]) -> Value:
        to, source, count = arguments[:3]
        target, origin = self.hold_pointer(self.pointer(to)), self.hold_pointer(self.pointer(source))
        size = self.number(count)
        unit = self._copied_type(to, source)
        self.copy(node, target, origin, size, unit)
        return target

    def _copied_type(self, *pointers: Node) -> Number:
        """Return the type of the numbers that a copy of bytes moves: that of the memory, where it is known."""
        for one in pointers:
            inner = bare(one)
            while inner.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR") and operands(inner):
                inner = bare(operands(inner)[-1])
            kind = inner.type
            target = kind.pointee if isinstance(kind, Pointer) else kind.element if isinstance(kind, Array) else kind
            leaves = {leaf for _, leaf in target.leaves}
            if len(leaves) == 1 and isinstance(only := leaves.pop(), Number):
                return only
        return Number(types.U8)

    def copy(self, node: Node, target: Ptr, origin: Ptr, size: ir.Expr, unit: Number) -> None:
        """Emit a copy of ``size`` bytes, in steps of one number."""
        line = self.line(node)
        if isinstance(size, ir.Literal) and size.value % unit.size:
            unit = Number(types.U8)
        steps = build.binary(line, "/", build.converted(size, types.U64), build.literal(line, unit.size, types.U64))
        if isinstance(size, ir.Literal):
            count = int(size.value) // unit.size
            if count <= 16:
                for number in range(count):
                    at = Mem(origin.moved(number, unit.size), unit)
                    self.store(line, Mem(target.moved(number, unit.size), unit), self.load(line, at))
                return
            steps = build.literal(line, count, I32)
        counter = self.fresh("copied")
        self.variables[counter] = I32
        variable = ir.Variable(line, counter, type=I32)
        with self.block() as body:
            value = self.load(line, Mem(origin.moved(variable, unit.size), unit))
            self.store(line, Mem(target.moved(variable, unit.size), unit), value)
        zero, one = build.literal(line, 0, I32), build.literal(line, 1, I32)
        self.emit(ir.For(line, counter, zero, build.converted(steps, I32), one, body))

    def _memset(self, node: Node, arguments: Sequence[Node]) -> Value:
        line = self.line(node)
        target = self.hold_pointer(self.pointer(arguments[0]))
        value, size = self.number(arguments[1]), self.number(arguments[2])
        unit = self._copied_type(arguments[0])
        if not (isinstance(value, ir.Literal) and value.value == 0):
            unit = Number(types.U8)
        byte = self.hold(build.converted(value, unit.scalar))
        steps = build.binary(line, "/", build.converted(size, types.U64), build.literal(line, unit.size, types.U64))
        counter = self.fresh("set")
        self.variables[counter] = I32
        with self.block() as body:
            at = target.moved(ir.Variable(line, counter, type=I32), unit.size)
            self.store(line, Mem(at, unit), byte)
        zero, one = build.literal(line, 0, I32), build.literal(line, 1, I32)
        self.emit(ir.For(line, counter, zero, build.converted(steps, I32), one, body))
        return target

    # Warps.

    def _mask(self, node: Node) -> ir.Expr:
        return build.converted(self.number(node), U32)

    def _exchange(self, line: int, op: str, arguments: list[ir.Expr], kind: Scalar) -> ir.Expr:
        """Return the result of an exchange, which happens now."""
        result = self.fresh("exchanged")
        self.variables[result] = kind
        self.emit(ir.Assign(line, result, ir.Warp(line, op, arguments, type=kind)))
        return ir.Variable(line, result, type=kind)

    def _lane(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        return ir.Warp(self.line(node), "lane", [], type=I32)

    def _active(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        return self._exchange(self.line(node), "active", [], U32)

    def _vote(self, node: Node, arguments: Sequence[Node]) -> Value:
        declared, line = node.referred, self.line(node)
        assert declared is not None  # noqa: S101  the call was found by its name
        mode = declared.name.removeprefix("__").removesuffix("_sync")
        mask, predicate = self.hold(self._mask(arguments[0])), self.hold(self.condition(arguments[1]))
        made = self._exchange(line, f"vote.{mode}", [mask, predicate], U32 if mode == "ballot" else BOOL)
        return build.converted(made, number_type(node.type))

    def _shuffle(self, node: Node, how: str, arguments: Sequence[Node], *, masked: bool) -> Value:
        line = self.line(node)
        if masked:
            mask, arguments = self.hold(self._mask(arguments[0])), arguments[1:]
        else:  # the function of older devices, of the lanes that are there
            mask = self._exchange(line, "active", [], U32)
        value = copied(self.hold(copied(self.number(arguments[0]))))
        lane = self.hold(build.converted(self.number(arguments[1]), I32))
        width = build.converted(self.number(arguments[2]), I32) if len(arguments) > 2 else build.literal(line, 32, I32)
        assert value.type is not None  # noqa: S101  all expressions here have types
        if how == "index" and not (isinstance(mask, ir.Literal) and mask.value == 0xFFFFFFFF):
            place = build.converted(build.binary(line, "&", lane, build.literal(line, 31, I32)), U32)
            bit = build.binary(line, "&", build.binary(line, ">>", mask, place), build.literal(line, 1, U32))
            message = "a shuffle reads the value of a lane that its mask does not name"
            full = isinstance(width, ir.Literal) and width.value == 32
            if full:
                self.emit(ir.Require(line, build.truth(bit), "UninitializedRead", message))
        if isinstance(width, ir.Literal) and width.value == 32:
            return self._exchange(line, f"shuffle.{how}", [mask, value, lane], value.type)
        source = self.hold(self._source(line, how, lane, self.hold(width)), "source")
        return self._exchange(line, "shuffle.index", [mask, value, source], value.type)

    def _source(self, line: int, how: str, by: ir.Expr, width: ir.Expr) -> ir.Expr:
        """Return the lane that a shuffle within groups of ``width`` lanes reads."""
        own = ir.Warp(line, "lane", [], type=I32)
        within = build.binary(line, "&", own, build.binary(line, "-", width, build.literal(line, 1, I32)))
        first = build.binary(line, "-", own, within)
        if how == "index":
            inner = build.binary(line, "&", by, build.binary(line, "-", width, build.literal(line, 1, I32)))
            return build.binary(line, "+", first, inner)
        op = {"up": "-", "down": "+", "xor": "^"}[how]
        inner = self.hold(build.binary(line, op, within, by))
        inside = ir.Logic(
            line,
            "and",
            build.binary(line, ">=", inner, build.literal(line, 0, I32)),
            build.binary(line, "<", inner, width),
            type=BOOL,
        )
        return build.select(line, inside, build.binary(line, "+", first, inner), own)

    # Messages.

    def _printf(self, node: Node, arguments: Sequence[Node]) -> Value:
        form = _text(arguments[0])
        if form is None:
            raise node.refused("a format of printf that is no literal")
        given: list[ir.Expr | str] = []
        for one in arguments[1:]:
            text = _text(one)
            if text is not None:
                given.append(text)
                continue
            value = self.value(one)
            if isinstance(value, Ptr):
                value = self.encoded(self.line(node), value)
            if isinstance(value, Aggregate):
                value = self.hold_value(value)
                assert isinstance(value, Aggregate)  # noqa: S101  holding keeps the kind
                given += [part for part in value.parts.values() if isinstance(part, ir.Expr)]
            elif isinstance(value, ir.Expr):
                given.append(self.hold(value))
        texts = [one if isinstance(one, str) else None for one in given]
        numbers = [one for one in given if isinstance(one, ir.Expr)]
        self.emit(ir.Print(self.line(node), form, numbers, texts))
        return build.literal(self.line(node), 0, I32)

    def _assertion(self, node: Node, arguments: Sequence[Node]) -> Value:
        text = _text(arguments[0]) or "..."
        line = self.line(node)
        self.emit(ir.Require(line, build.literal(line, False, BOOL), ASSERTION, f"the assertion '{text}' fails"))
        return None


def _text(node: Node) -> str | None:
    inner = bare(node)
    while inner.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "PAREN_EXPR") and len(inner.kids) == 1:
        inner = inner.kids[0]
    if inner.kind != "STRING_LITERAL":
        return None
    found = inner.evaluated()
    if isinstance(found, str):
        return found
    spelled = inner.name
    return bytes(spelled[1:-1], "utf-8").decode("unicode_escape") if spelled.startswith('"') else spelled
