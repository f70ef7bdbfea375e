"""The functions of OpenCL C that all work-items of a group, or of a sub-group (a warp), compute together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.csource import build
from windtunnel.csource.clang import Node
from windtunnel.csource.ctype import Array, Number
from windtunnel.csource.mathematics import number_type
from windtunnel.csource.opencl_numbers import OpenCLNumbers
from windtunnel.csource.values import Mem, copied
from windtunnel.language import ir
from windtunnel.language.types import I32, U32, Scalar

_COLLECTIVE = re.compile(r"(work_group|sub_group)_(reduce|scan_inclusive|scan_exclusive)_(add|min|max)$")
_BROADCAST = re.compile(r"(work_group|sub_group)_broadcast$")
_MOST = 1024
"""Work-items of a group at most."""


class Collectives(OpenCLNumbers):
    """Translates functions of groups."""

    def collective(self, node: Node, name: str, arguments: Sequence[Node]) -> Any:
        """Translate a function of a group; NotImplemented if there is none of this name."""
        if name.startswith(("work_group_", "sub_group_")) and not name.endswith("barrier"):
            self.collectives[self.line(node)] = name
        found = _COLLECTIVE.match(name)
        if found is not None:
            return self._combined(node, found[1], found[2], found[3], arguments[0])
        found = _BROADCAST.match(name)
        if found is not None:
            return self._broadcast(node, found[1], arguments)
        line = self.line(node)
        rank = self.thread_rank(line)
        warp = build.literal(line, 32, I32)
        if name in ("get_sub_group_local_id", "get_sub_group_id"):
            which = "%" if name.endswith("local_id") else "/"
            return build.converted(build.binary(line, which, rank, warp), U32)
        if name == "get_max_sub_group_size":
            return build.literal(line, 32, U32)
        if name == "get_sub_group_size":
            return build.converted(self._lanes(line), U32)
        if name in ("get_num_sub_groups", "get_enqueued_num_sub_groups"):
            rounded = build.binary(line, "+", self._threads(line), build.literal(line, 31, I32))
            return build.converted(build.binary(line, "/", rounded, warp), U32)
        if name == "sub_group_barrier":
            self.emit(ir.Barrier(line, "warp", None))
            return None
        if name in ("sub_group_all", "sub_group_any"):
            how = "min" if name.endswith("all") else "max"
            condition = build.converted(self.condition(arguments[0]), I32)
            return self._summed(node, "sub_group", "reduce", how, self.hold(condition))
        return NotImplemented

    def thread_rank(self, line: int) -> ir.Expr:
        """Return the number of a thread in its block, or of a work-item in its group."""
        x, y, z = (ir.Index(line, "thread", axis, type=I32) for axis in range(3))
        width, height = (ir.Index(line, "block_size", axis, type=I32) for axis in range(2))
        plane = build.binary(line, "+", build.binary(line, "*", z, height), y)
        return self.hold(build.binary(line, "+", build.binary(line, "*", plane, width), x), "rank")

    def _threads(self, line: int) -> ir.Expr:
        a, b, c = (ir.Index(line, "block_size", axis, type=I32) for axis in range(3))
        return self.hold(build.binary(line, "*", build.binary(line, "*", a, b), c), "items")

    def _lanes(self, line: int) -> ir.Expr:
        """Return the work-items of a sub-group: fewer in the last one, if the group's size is no multiple of 32."""
        rank, warp = self.thread_rank(line), build.literal(line, 32, I32)
        first = build.binary(line, "*", build.binary(line, "/", rank, warp), warp)
        left = build.binary(line, "-", self._threads(line), first)
        return self.hold(ir.Binary(line, "min", left, warp, type=I32), "lanes")

    def _combined(self, node: Node, group: str, what: str, how: str, argument: Node) -> Any:
        kind = number_type(node.type)
        value = self.hold(build.converted(self.number(argument), kind))
        return self._summed(node, group, what, how, value)

    def _summed(self, node: Node, group: str, what: str, how: str, value: ir.Expr) -> ir.Expr:
        line = self.line(node)
        kind = value.type
        assert kind is not None  # noqa: S101  all expressions here have types
        rank, place = self.thread_rank(line), self._shared(line, kind)
        own = rank
        first: ir.Expr = build.literal(line, 0, I32)
        last = self._threads(line)
        if group == "sub_group":
            warp = build.literal(line, 32, I32)
            first = self.hold(build.binary(line, "*", build.binary(line, "/", rank, warp), warp), "first")
            last = self.hold(build.binary(line, "+", first, self._lanes(line)), "last")
        if what != "reduce":
            last = rank if what == "scan_exclusive" else build.binary(line, "+", rank, build.literal(line, 1, I32))
            last = self.hold(last, "last")
        barrier = "block" if group == "work_group" else "warp"
        self.emit(ir.Barrier(line, barrier))
        self.store(line, Mem(place.at.moved(own, kind.bits // 8), place.type), value)
        self.emit(ir.Barrier(line, barrier))
        total, counter = self.fresh("total"), self.fresh("item")
        self.variables[total], self.variables[counter] = kind, I32
        self.emit(ir.Assign(line, total, build.literal(line, _identity(how, kind), kind)))
        sum_, at = ir.Variable(line, total, type=kind), ir.Variable(line, counter, type=I32)
        with self.block() as body:
            other = self.load(line, Mem(place.at.moved(at, kind.bits // 8), place.type))
            assert isinstance(other, ir.Expr)  # noqa: S101  it is a number
            added = (
                build.binary(line, "+", sum_, other) if how == "add" else ir.Binary(line, how, sum_, other, type=kind)
            )
            self.emit(ir.Assign(line, total, added))
        self.emit(ir.For(line, counter, first, last, build.literal(line, 1, I32), body))
        self.emit(ir.Barrier(line, barrier))
        return self.hold(ir.Variable(line, total, type=kind))

    def _shared(self, line: int, kind: Scalar) -> Mem:
        """Return memory of the group with a number for each work-item."""
        key = -1000 - kind.bits - (500 if kind.kind == "float" else 0)
        if key not in self.statics:
            size = _MOST * kind.bits // 8
            shared = Array(Number(kind), _MOST)
            self.statics[key] = self.new_object(f"collective_{kind.name}", "shared", size, shared, line)
        return Mem(self.start_of(self.statics[key]), Number(kind))

    def _broadcast(self, node: Node, group: str, arguments: Sequence[Node]) -> Any:
        line, kind = self.line(node), number_type(node.type)
        value = copied(self.hold(copied(build.converted(self.number(arguments[0]), kind))))
        ids = [build.converted(self.number(one), I32) for one in arguments[1:]]
        rank: ir.Expr = ids[-1]
        for axis in reversed(range(len(ids) - 1)):
            size = ir.Index(line, "block_size", axis, type=I32)
            rank = build.binary(line, "+", build.binary(line, "*", rank, size), ids[axis])
        if group == "sub_group":
            warp = build.literal(line, 32, I32)
            own = self.thread_rank(line)
            rank = build.binary(line, "+", build.binary(line, "*", build.binary(line, "/", own, warp), warp), rank)
        rank = self.hold(rank, "source")
        barrier = "block" if group == "work_group" else "warp"
        place = self._shared(line, kind)
        self.emit(ir.Barrier(line, barrier))
        self.store(line, Mem(place.at.moved(self.thread_rank(line), kind.bits // 8), place.type), value)
        self.emit(ir.Barrier(line, barrier))
        result = self.load(line, Mem(place.at.moved(rank, kind.bits // 8), place.type))
        assert isinstance(result, ir.Expr)  # noqa: S101  it is a number
        result = copied(self.hold(copied(result)))
        self.emit(ir.Barrier(line, barrier))
        return result


def _identity(how: str, kind: Scalar) -> float | int:
    """Return the number that changes no sum, minimum or maximum."""
    if how == "add":
        return 0
    if kind.kind == "float":
        return float("inf") if how == "min" else float("-inf")
    info = np.iinfo(kind.dtype)
    return int(info.max if how == "min" else info.min)
