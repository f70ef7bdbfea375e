"""The built-in functions of OpenCL C: work-items, barriers, atomics, vectors in memory, conversions, copies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.collectives import Collectives
from windtunnel.csource.copies import COPIES
from windtunnel.csource.ctype import INT, Number, Pointer, Vector
from windtunnel.csource.memory import DIVERGENCE
from windtunnel.csource.values import Mem, Ptr, Value
from windtunnel.language import ir, types
from windtunnel.language.types import BOOL, I32, I64, U32, U64

_ATOMIC = re.compile(r"atom(?:ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)$")
_C11 = re.compile(
    r"atomic_(fetch_(?:add|sub|min|max|and|or|xor)|load|store|exchange|compare_exchange_(?:strong|weak)|init)(_explicit)?$"
)
_FLAG = re.compile(r"atomic_flag_(test_and_set|clear)(_explicit)?$")
_OPS = {"add": "add", "sub": "sub", "xchg": "exch", "cmpxchg": "cas", "min": "min", "max": "max", "and": "and_",
        "or": "or_", "xor": "xor", "inc": "add", "dec": "sub"}  # fmt: skip
_VECTORS = re.compile(r"v(load|store)(a?)(_half)?(2|3|4|8|16)?(_rte|_rtz|_rtp|_rtn)?$")
_CONVERTS = re.compile(r"convert_(?:u?char|u?short|u?int|u?long|half|float|double)\d*(_sat)?(_rte|_rtz|_rtp|_rtn)?$")
_IDS = {
    "get_local_id": "thread", "get_group_id": "block", "get_local_size": "block_size",
    "get_enqueued_local_size": "block_size", "get_num_groups": "grid_size",
}  # fmt: skip
_ROUND = {"_rte": "rint", "_rtz": "trunc", "_rtp": "ceil", "_rtn": "floor"}


class OpenCL(Collectives):
    """Translates what OpenCL C has beside C."""

    # Long: one case for each group of functions.
    def intrinsic(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a call of one of the device's own functions; NotImplemented if there is none of this name."""
        if not self.unit.opencl:
            return super().intrinsic(node, name, arguments)
        line = self.line(node)
        special: Mapping[str, Callable[[Node, Sequence[Node]], Value]] = {
            "barrier": self._group_barrier, "work_group_barrier": self._group_barrier,
            "mem_fence": self._fence, "read_mem_fence": self._fence, "write_mem_fence": self._fence,
            "atomic_work_item_fence": self._fence, "get_global_id": self._global_id,
            "get_global_size": self._global_size, "get_work_dim": self._work_dim,
            "get_global_offset": self._zero, "get_global_linear_id": self._linear_id,
            "get_local_linear_id": self._linear_id, "prefetch": self._nothing, "get_fence": self._fence_of,
            **dict.fromkeys(("to_global", "to_local", "to_private"), lambda _, given: self.value(given[0])),
            "async_work_group_copy": self._group_copy, "async_work_group_strided_copy": self._group_copy,
            "wait_group_events": self._group_wait,
            "work_group_all": self._counted, "work_group_any": self._counted,
            "printf": self._printf,
        }  # fmt: skip
        if name in special:
            return special[name](node, arguments)
        if name in _IDS:
            return self._index(node, _IDS[name], self._axis(node, arguments))
        found = _ATOMIC.match(name)
        if found is not None:
            return self._old_atomic(node, found[1], arguments)
        found = _C11.match(name) or _FLAG.match(name)
        if found is not None:
            return self._new_atomic(node, found[1], arguments, explicit=found[2] is not None)
        found = _VECTORS.match(name)
        if found is not None:
            return self._vector_in_memory(node, found, arguments)
        found = _CONVERTS.match(name)
        if found is not None:
            return self._convert(node, found, arguments)
        if name.startswith("as_") and len(arguments) == 1 and isinstance(node.type, (Number, Vector)):
            return self.reinterpreted(node, self.value(arguments[0]), node.type)
        if name in ("modf", "fract", "sincos", "frexp", "remquo", "lgamma_r"):
            return self._two_results(node, name, arguments)
        made = self.collective(node, name, arguments)
        if made is not NotImplemented:
            return made
        made = self.opencl_numbers(node, name, arguments)
        if made is not NotImplemented:
            return made
        del line
        return super().intrinsic(node, name, arguments)

    # Work-items. Sizes and numbers are size_t, of 64 bits.

    def _axis(self, node: Node, arguments: Sequence[Node]) -> int | ir.Expr:
        found = build.converted(self.number(arguments[0]), I32)
        return int(found.value) if isinstance(found, ir.Literal) else self.hold(found, "axis")

    def _index(self, node: Node, what: str, axis: int | ir.Expr) -> ir.Expr:
        line = self.line(node)
        rest = 1 if what.endswith("size") else 0
        if isinstance(axis, ir.Expr):
            result: ir.Expr = build.literal(line, rest, U64)
            for number in range(3):
                here = build.binary(line, "==", axis, build.literal(line, number, I32))
                result = build.select(line, here, self._index(node, what, number), result)
            return result
        if not 0 <= axis <= 2:
            return build.literal(line, rest, U64)
        return ir.Convert(line, U64, ir.Index(line, what, axis, type=I32), type=U64)

    def _global_id(self, node: Node, arguments: Sequence[Node]) -> Value:
        return self._along(node, self._axis(node, arguments))

    def _along(self, node: Node, axis: int | ir.Expr) -> ir.Expr:
        line = self.line(node)
        if isinstance(axis, int) and 0 <= axis <= 2:
            block, size, thread = (ir.Index(line, what, axis, type=I32) for what in ("block", "block_size", "thread"))
            first = ir.Binary(line, "*", block, size, type=I32)
            return ir.Convert(line, U64, ir.Binary(line, "+", first, thread, type=I32), type=U64)
        first64 = build.binary(line, "*", self._index(node, "block", axis), self._index(node, "block_size", axis))
        return build.binary(line, "+", first64, self._index(node, "thread", axis))

    def _global_size(self, node: Node, arguments: Sequence[Node]) -> Value:
        return self._size(node, self._axis(node, arguments))

    def _size(self, node: Node, axis: int | ir.Expr) -> ir.Expr:
        line = self.line(node)
        if isinstance(axis, int) and 0 <= axis <= 2:
            sides = (ir.Index(line, what, axis, type=I32) for what in ("grid_size", "block_size"))
            return ir.Convert(line, U64, ir.Binary(line, "*", *sides, type=I32), type=U64)
        return build.binary(line, "*", self._index(node, "grid_size", axis), self._index(node, "block_size", axis))

    def _linear_id(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        declared, line = node.referred, self.line(node)
        whole = declared is not None and declared.name == "get_global_linear_id"
        result: ir.Expr | None = None
        for axis in (2, 1, 0):
            place = self._along(node, axis) if whole else self._index(node, "thread", axis)
            size = self._size(node, axis) if whole else self._index(node, "block_size", axis)
            result = place if result is None else build.binary(line, "+", build.binary(line, "*", result, size), place)
        return result

    def _work_dim(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Return the axes of the launch: the last one with more than one work-item."""
        del arguments
        line = self.line(node)
        result: ir.Expr = build.literal(line, 1, U32)
        for axis in (1, 2):
            more = build.binary(line, ">", self._size(node, axis), build.literal(line, 1, U64))
            result = build.select(line, more, build.literal(line, axis + 1, U32), result)
        return result

    def _zero(self, node: Node, arguments: Sequence[Node]) -> Value:
        del arguments
        return build.literal(self.line(node), 0, U64)

    # Barriers and fences.

    def _group_barrier(self, node: Node, arguments: Sequence[Node]) -> Value:
        for one in arguments[1:]:
            self.discarded(one)
        flags = build.converted(self.number(arguments[0]), I32)
        scope = "block"
        if isinstance(flags, ir.Literal):
            scope = {0: "block.none", 1: "block.shared", 2: "block.global"}.get(int(flags.value) & 3, "block")
        self.emit(ir.Barrier(self.line(node), scope))
        return None

    def _fence(self, node: Node, arguments: Sequence[Node]) -> Value:
        if len(arguments) > 1:
            self.fence(node, self.order_of(arguments[1], arguments[2] if len(arguments) > 2 else None))
            return None
        flags = self.number(arguments[0]) if arguments else None
        local = isinstance(flags, ir.Literal) and flags.value == 1
        self.emit(ir.Barrier(self.line(node), "fence.block" if local else "fence.device"))
        return None

    def _fence_of(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Return the flag of the memory that a pointer points to."""
        line, at = self.line(node), self.hold_pointer(self.pointer(arguments[0]))
        which = self.which(line, at)
        result: ir.Expr = build.literal(line, 2, U32)
        for base in at.bases:
            if base in self.objects and self.objects[base].space == "shared":
                here = build.binary(line, "==", which, build.literal(line, self.ids[base], I32))
                result = build.select(line, here, build.literal(line, 1, U32), result)
        return result

    # Atomic operations.

    def _target(self, node: Node) -> tuple[Ptr, Number]:
        kind = node.type.pointee if isinstance(node.type, Pointer) else None
        if not isinstance(kind, Number):
            raise node.refused("an atomic operation on something that is no number")
        return self.pointer(node), kind

    def _old_atomic(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        at, kind = self._target(arguments[0])
        given = [build.converted(self.number(one), kind.scalar) for one in arguments[1:]]
        if name in ("inc", "dec"):
            given = [build.literal(self.line(node), 1, kind.scalar)]
        return self.atomic(node, _OPS[name], at, kind, given)

    def _new_atomic(self, node: Node, name: str, arguments: Sequence[Node], *, explicit: bool) -> Value:
        at, kind = self._target(arguments[0])
        if name == "init":
            self.store(self.line(node), Mem(at, kind), self.number(arguments[1]))
            return None
        return self.c11(node, name, at, kind, arguments[1:], explicit=explicit)

    # Vectors in memory.

    def _vector_in_memory(self, node: Node, found: re.Match[str], arguments: Sequence[Node]) -> Value:
        line, stores = self.line(node), found[1] == "store"
        value = self.hold_value(self.value(arguments[0])) if stores else None
        offset, pointer = arguments[1:] if stores else arguments
        count = int(found[4] or 1)
        number = self.number(offset)
        step = 4 if found[2] and count == 3 else count
        element = Number(types.F16) if found[3] else pointer.type.pointee if isinstance(pointer.type, Pointer) else None
        if not isinstance(element, Number):
            raise node.refused("a vector of something that is no number")
        at = self.hold_pointer(self.pointer(pointer).moved(number, step * element.size))
        if stores:
            for place, part in enumerate(self.parts_of(node, value, count)):
                made = self.half(line, part, found[5]) if found[3] else build.converted(part, element.scalar)
                self.store(line, Mem(at.moved(place, element.size), element), made)
            return None
        parts = [self.load(line, Mem(at.moved(place, element.size), element)) for place in range(count)]
        numbers = [part for part in parts if isinstance(part, ir.Expr)]
        if isinstance(node.type, Vector):
            return self.vector(node.type, numbers)
        assert isinstance(node.type, Number)  # noqa: S101  a vload returns a vector or a number
        return build.converted(numbers[0], node.type.scalar)

    # Conversions.

    def _convert(self, node: Node, found: re.Match[str], arguments: Sequence[Node]) -> Value:
        line, saturates, mode = self.line(node), bool(found[1]), found[2]

        def act(row: list[ir.Expr], kind: types.Scalar) -> ir.Expr:
            e = row[0]
            assert e.type is not None  # noqa: S101  all expressions here have types
            if e.type.kind == "float" and kind.kind != "float":
                whole = e if mode in (None, "_rtz") else ir.Call(line, f"math.{_ROUND[mode]}", [e], type=e.type)
                return build.converted(whole, kind)
            if saturates and kind.kind in ("int", "uint"):
                return self.saturated(line, e, kind)
            if kind.kind == "float" and mode in ("_rtz", "_rtp", "_rtn") and kind.bits == 32:
                direction = {"_rtz": "rz", "_rtp": "ru", "_rtn": "rd"}[mode]
                return ir.Call(line, f"round.f32_{direction}", [build.converted(e, types.F64)], type=kind)
            return build.converted(e, kind)

        return self.elementwise(node, [self.value(arguments[0])], act)

    def _two_results(self, node: Node, name: str, arguments: Sequence[Node]) -> Value:
        """Translate functions that also store a result through a pointer."""
        line = self.line(node)
        value = self.hold_value(self.value(arguments[0]))
        if name in ("frexp", "remquo", "lgamma_r"):
            return self._and_an_integer(node, name, value, arguments)
        other = {"modf": "trunc", "fract": "floor", "sincos": "cos"}[name]
        second = self.elementwise(node, [value], lambda row, kind: ir.Call(line, f"math.{other}", [row[0]], type=kind))
        second = self.hold_value(second)
        self.store(line, Mem(self.pointer(arguments[1]), node.type), second)
        if name == "sincos":
            return self.elementwise(node, [value], lambda row, kind: ir.Call(line, "math.sin", [row[0]], type=kind))

        def rest(row: list[ir.Expr], kind: types.Scalar) -> ir.Expr:
            made = self.hold(build.binary(line, "-", row[0], row[1]))
            infinite = ir.Call(line, "math.isinf", [row[0]], type=BOOL)
            if name == "fract":  # below 1, although the difference may round to it
                below = build.literal(line, float(np.nextafter(kind.dtype.type(1), kind.dtype.type(0))), kind)
                made = self.hold(build.select(line, build.binary(line, ">", made, below), below, made))
            return build.select(line, infinite, build.literal(line, 0, kind), made)

        return self.elementwise(node, [value, second], rest)

    def _and_an_integer(self, node: Node, name: str, value: Value, arguments: Sequence[Node]) -> Value:
        """Translate functions that store an integer for each element beside their result."""
        line = self.line(node)
        pointer = arguments[-1].type
        whole = pointer.pointee if isinstance(pointer, Pointer) else None
        if not isinstance(whole, (Number, Vector)):
            raise node.refused(f"'{name}' with this pointer")
        at = self.hold_pointer(self.pointer(arguments[-1]))
        second = self.hold_value(self.value(arguments[1])) if name == "remquo" else None
        integers: list[ir.Expr] = []

        def act(row: list[ir.Expr], kind: types.Scalar) -> ir.Expr:
            made, integer = self.with_integer(line, name, [self.hold(one) for one in row], kind)
            integers.append(self.hold(integer))
            return self.hold(made)

        result = self.elementwise(node, [value] if second is None else [value, second], act)
        self.store(line, Mem(at, whole), self.vector(whole, integers) if isinstance(whole, Vector) else integers[0])
        return result

    # Copies of a group.

    # Long: one case for each kind of argument.
    def _group_copy(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Translate a copy by all work-items of a group: each copies every element of its number."""
        line = self.line(node)
        target, origin = (self.hold_pointer(self.pointer(one)) for one in arguments[:2])
        pointer = arguments[0].type
        element = pointer.pointee if isinstance(pointer, Pointer) else None
        if element is None or not element.size:
            raise node.refused("a copy of elements of no size")
        count = self.hold(build.converted(self.number(arguments[2]), I64), "count")
        strided = len(arguments) == 5
        stride = self.hold(build.converted(self.number(arguments[3]), I64)) if strided else None
        to_global = isinstance(pointer, Pointer) and pointer.space == "global"
        items: ir.Expr = build.literal(line, 1, I32)
        for axis in range(3):
            items = build.binary(line, "*", items, build.converted(self._index(node, "block_size", axis), I32))
        # A work-item copies the elements of its neighbour, so that its own writes before the copy, which nothing orders
        # with the copy, are not taken for ordered.
        neighbour = build.binary(line, "+", build.converted(self._linear_local(node), I32), build.literal(line, 1, I32))
        first = build.converted(build.binary(line, "%", neighbour, items), I64)
        threads = build.converted(items, I64)
        counter = self.fresh("copied")
        self.variables[counter] = I64
        here = ir.Variable(line, counter, type=I64)
        far = here if stride is None else build.binary(line, "*", here, stride)
        with self.block() as body:
            read = Mem(origin.moved(far if strided and not to_global else here, element.size), element)
            write = Mem(target.moved(far if strided and to_global else here, element.size), element)
            self.store(line, write, self.load(line, read))
            for what, place in (("write", write), ("read", read)):
                for offset, leaf in element.leaves:
                    if isinstance(leaf, Number):
                        self.in_flight(line, what, place.at.moved(offset, 1), leaf)
        # All work-items of a group must come to the copy, with the same arguments.
        self.collectives[line] = node.name
        self.emit(ir.Barrier(line, "block.none"))
        same = [
            self.linear(line, target, 1),
            self.linear(line, origin, 1),
            count,
            *([] if stride is None else [stride]),
        ]
        for number in [*same, *(at.which for at in (target, origin) if at.which is not None)]:
            if not isinstance(number, ir.Literal):
                message = f"the arguments of {node.name} differ among the work-items of a group"
                self.emit(ir.Require(line, number, DIVERGENCE, message, same=True))
        self.emit(ir.For(line, counter, first, count, self.hold(threads, "threads"), body))
        self.emit(ir.Flight(line, "commit"))
        # The whole copy has begun, and so is done, before a work-item goes on.
        self.emit(ir.Barrier(line, "block.none"))
        # An event is the number of the copy. A copy that joins an event ends with it or later, never before.
        self.variables[COPIES] = I32
        number = ir.Variable(line, COPIES, type=I32)
        self.emit(ir.Assign(line, COPIES, build.binary(line, "+", number, build.literal(line, 1, I32))))
        return self.hold(number, "event")

    def _linear_local(self, node: Node) -> ir.Expr:
        line = self.line(node)
        result: ir.Expr | None = None
        for axis in (2, 1, 0):
            place = self._index(node, "thread", axis)
            if result is None:
                result = place
                continue
            result = build.binary(
                line, "+", build.binary(line, "*", result, self._index(node, "block_size", axis)), place
            )
        assert result is not None  # noqa: S101  there are three axes
        return result

    def _group_wait(self, node: Node, arguments: Sequence[Node]) -> Value:
        """Translate a wait for copies: what the group has copied up to the last of the events is there for all."""
        line = self.line(node)
        self.collectives[line] = node.name
        count = self.hold(build.converted(self.number(arguments[0]), I32), "count")
        at = self.hold_pointer(self.pointer(arguments[1]))
        last, counter = self.fresh("last"), self.fresh("waited")
        self.variables[last] = self.variables[counter] = I32
        newest = ir.Variable(line, last, type=I32)
        zero, one = build.literal(line, 0, I32), build.literal(line, 1, I32)
        with self.block() as body:
            event = self.load(line, Mem(at.moved(ir.Variable(line, counter, type=I32), INT.size), INT))
            assert isinstance(event, ir.Expr)  # noqa: S101  an event is a number
            self.emit(ir.Assign(line, last, ir.Binary(line, "max", newest, event, type=I32)))
        self.emit(ir.Assign(line, last, zero))
        self.emit(ir.For(line, counter, zero, count, one, body))
        self.emit(ir.Flight(line, "wait", last=newest))
        self.emit(ir.Barrier(line, "block"))
        return None
