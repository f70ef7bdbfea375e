"""A kernel as a Python generator of one thread, which stops before each step that others can see.

It stops at all of them where a seed picks the order; else at atomic operations, meetings and turns of loops that may
wait: what plain accesses find in an order where they race is said to be a race in any. Values are NumPy scalars of
their own types, so that numbers are those of `lockstep`, bit for bit. Between two stops a thread touches nothing that
others do, or nothing whose order they could tell: what happens depends on the order of the stops alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.emulator.lockstep import mathematics
from windtunnel.emulator.lockstep.lanes import convert
from windtunnel.emulator.lockstep.source_text import Writer
from windtunnel.emulator.lockstep.waiting import decides, waits_on
from windtunnel.language import ir
from windtunnel.language.types import BOOL

_FUNCTIONS = {"min": "m.minimum", "max": "m.maximum", "**": "m.power"}


_LONG = 1024
"""Turns of a loop before it is asked whether they do anything."""


@dataclass(frozen=True)
class Meeting:
    """What a thread stops for until others of its block or warp have come: a barrier, a shuffle or a vote."""

    line: int
    what: str
    """``block``, ``warp`` or ``grid`` for barriers, else ``shuffle.up``, ``vote.any`` ..."""
    mask: int = 0xFFFFFFFF
    value: Any = None
    argument: int = 0


WAIT = object()
"""What a thread yields that goes round a loop until somebody changes what it looks at."""


@dataclass(frozen=True)
class Threaded:
    """``run(me, cells, scalars)`` is a thread: it yields None before a visible step, ``WAIT`` or a ``Meeting``."""

    program: ir.Program
    run: Callable[..., Iterator[Any]]
    source: str


def counted(me: Any, line: int, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    """The values of a range, as numbers of their own type. Deadlock for steps of 0 that never arrive."""
    kind, at, end, by = type(start), int(start), int(stop), int(step)
    if by == 0 and at > end:
        me.stands(line)
    while at < end if by > 0 else at > end:
        yield kind(at)
        at += by


def threaded(program: ir.Program, stored: set[str], *, fine: bool) -> Threaded:
    """An inferred kernel as a generator. ``stored``: the arrays that threads can meet in.

    ``fine``: it stops before plain accesses, too.
    """
    made = _Generator(program, stored, fine=fine)
    source = made.source()
    helpers = {"np": np, "m": mathematics, "convert": convert, "counted": counted, "WAIT": WAIT, "Meeting": Meeting}
    names: dict[str, Any] = {**helpers, **made.constants}
    # The text is made here from a tree of known forms: nothing of a user's gets into it but names and numbers.
    exec(compile(source, f"<thread of {program.name}>", "exec"), names)  # noqa: S102
    return Threaded(program, names["thread"], source)


class _Generator(Writer):
    def __init__(self, program: ir.Program, stored: set[str], *, fine: bool) -> None:
        self.program, self.stored, self.fine = program, stored, fine
        self.shared = stored | {name for name, one in program.declared.items() if one.space == "shared"}
        super().__init__()

    def source(self) -> str:
        """The function's text."""
        for stem, given in (("t", "index"), ("b", "block_index"), ("n", "block_size"), ("g", "grid_size")):
            self.emit(f"{stem}_0, {stem}_1, {stem}_2 = me.{given}")
        for name in self.program.arrays:
            self.emit(f"a_{name} = cells[{name!r}]")
        for name in self.program.scalars:
            self.emit(f"v_{name} = scalars[{name!r}]")
        for name, kind in self.program.variables.items():
            self.emit(f"v_{name} = {self._constant(kind.dtype.type(0))}")
        self.block(self.program.body)
        # A kernel without a step that others see is a generator all the same.
        self.emit("return")
        self.emit("yield")
        return "\n".join(["def thread(me, cells, scalars):", *self.lines, ""])

    # Statements.

    def block(self, body: Sequence[ir.Stmt]) -> None:
        """Write statements."""
        if not body:
            self.emit("pass")
        for one in body:
            self.statement(one)

    def _inner(self, body: Sequence[ir.Stmt]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def statement(self, one: ir.Stmt) -> None:
        """Write a statement."""
        match one:
            case ir.Assign():
                self.emit(f"v_{one.name} = {self.value(one.value)}")
            case ir.Store():
                value = self.value(one.value)
                indices = [self.value(index) for index in one.indices]
                self._stop(one.array, atomic=False)
                self.emit(f"a_{one.array}.store(me, {one.line}, {', '.join([value, *indices])})")
            case ir.ExpressionStatement(value=ir.Atomic() as atomic):
                self._atomic(atomic)
            case ir.ExpressionStatement():
                self.value(one.value)
            case ir.Barrier():
                self._barrier(one)
            case ir.Declare():
                pass  # made before the thread runs
            case ir.If():
                self.emit(f"if {self.value(one.condition)}:")
                self._inner(one.body)
                if one.orelse:
                    self.emit("else:")
                    self._inner(one.orelse)
            case ir.While():
                self._while(one)
            case ir.For():
                start, stop, step = (self.value(e) for e in (one.start, one.stop, one.step))
                self.emit(f"for v_{one.name} in counted(me, {one.line}, {start}, {stop}, {step}):")
                self._inner(one.body)
            case ir.Break():
                self.emit("break")
            case ir.Continue():
                self.emit("continue")
            case ir.Return():
                self.emit("return")
            case _:
                raise AssertionError(f"{one} is of no known form")

    def _barrier(self, one: ir.Barrier) -> None:
        if one.scope.startswith("fence"):
            self.emit(f"me.fence({one.scope == 'fence.block'})")
        else:
            mask = "" if one.mask is None else f", int({self.value(one.mask)})"
            self.emit(f"yield Meeting({one.line}, {one.scope!r}{mask})")

    def _while(self, one: ir.While) -> None:
        held = waits_on(one, self.shared)
        loop, turns, kept = self._fresh("loop"), self._fresh("turns"), self._fresh("kept")
        if held is not None:
            self.emit(f"{loop} = me.enter({one.line})")
        else:
            self.emit(f"{turns}, {kept} = 0, None")
        self.emit("while True:")
        self.depth += 1
        if held is not None:
            state = "".join(f"v_{name}, " for name in sorted(held))
            self.emit(f"yield WAIT if {loop}.turn(({state})) else None")
        else:
            state = "".join(f"v_{name}, " for name in sorted(decides(one)))
            self.emit(f"{turns} += 1")
            self.emit(f"if {turns} >= {_LONG}: {kept} = me.endless({one.line}, {turns}, ({state}), {kept})")
        condition = self.value(one.condition)
        self.emit(f"if not {condition}: break")
        self.block(one.body)
        self.depth -= 1
        if held is not None:
            self.emit(f"{loop}.leave()")

    def _stop(self, array: str, *, atomic: bool) -> None:
        if array in self.shared and (self.fine or atomic):
            self.emit("yield")

    # Expressions.

    def value(self, e: ir.Expr) -> str:
        """What an expression is; what has to come before is written."""
        match e:
            case ir.Literal():
                return self._literal(e)
            case ir.Variable():
                if e.given is not None:
                    self.emit(f"if not v_{e.given.name}: me.unset({e.line}, {e.name!r})")
                return f"v_{e.name}"
            case ir.Index():
                stem = {"thread": "t", "block": "b", "block_size": "n", "grid_size": "g"}[e.what]
                return f"{stem}_{e.axis}"
            case ir.Size():
                return f"a_{e.array}.side({e.side})"
            case ir.Load():
                indices = [self.value(index) for index in e.indices]
                self._stop(e.array, atomic=False)
                return self._held(f"a_{e.array}.load(me, {e.line}, {', '.join(indices)})")
            case ir.Atomic():
                return self._atomic(e)
            case ir.Binary():
                left, right = self.value(e.left), self.value(e.right)
                if e.op in _FUNCTIONS:
                    return f"{_FUNCTIONS[e.op]}({left}, {right})"
                return f"({left} {e.op} {right})"
            case ir.Unary():
                inner = self.value(e.operand)
                return {
                    "not": f"(not {inner})", "-": f"m.negative({inner})", "+": inner, "~": f"(~{inner})",
                    "abs": f"m.absolute({inner})",
                }[e.op]  # fmt: skip
            case ir.Logic():
                found = self._held(self.value(e.left))
                self.emit(f"if {found}:" if e.op == "and" else f"if not {found}:")
                self._into(found, e.right)
                return found
            case ir.Select():
                found = self._fresh("t")
                self.emit(f"if {self.value(e.condition)}:")
                self._into(found, e.yes)
                self.emit("else:")
                self._into(found, e.no)
                return found
            case ir.Convert():
                assert e.operand.type is not None  # noqa: S101  inference has been there
                inner = self.value(e.operand)
                if e.to == BOOL:
                    return f"({inner} != {self._constant(e.operand.type.dtype.type(0))})"
                return f"convert({inner}, {self._dtype(e.to)})"
            case ir.Call():
                arguments = ", ".join(self.value(argument) for argument in e.arguments)
                return f"m.{e.op.partition('.')[2] or e.op}({arguments})"
            case ir.Warp():
                return self._warp(e)
            case _:
                raise AssertionError(f"{e} is of no known form")

    def _into(self, found: str, value: ir.Expr) -> None:
        self.depth += 1
        self.emit(f"{found} = {self.value(value)}")
        self.depth -= 1

    def _atomic(self, e: ir.Atomic) -> str:
        values = [self.value(value) for value in e.values]
        indices = [self.value(index) for index in e.indices]
        self._stop(e.array, atomic=True)
        return self._held(f"a_{e.array}.atomic(me, {e.line}, {e.op!r}, ({', '.join(values)},), {', '.join(indices)})")

    def _warp(self, e: ir.Warp) -> str:
        if e.op in ("lane", "warp_size"):
            return f"me.{e.op}"
        mask, value, *rest = (self.value(argument) for argument in e.arguments)
        argument = f", int({rest[0]})" if rest else ""
        self.emit(f"yield Meeting({e.line}, {e.op!r}, int({mask}), {value}{argument})")
        return self._held("me.result")
