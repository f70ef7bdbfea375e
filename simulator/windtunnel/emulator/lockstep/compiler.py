"""Kernels executed for many threads at once: a kernel becomes a Python function of NumPy arrays.

What is the same for all threads is a NumPy scalar, and branches on it are plain branches. A branch that threads take
differently is executed twice, by those that take it and by those that do not; a loop goes on with those that are still
in it. So all threads of a chunk are at the same statement, and a barrier only has to ask whether all of its block have
come. A program that is right in any order is right in this one; one that is not is told so by what watches the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.emulator.lockstep import mathematics
from windtunnel.emulator.lockstep.arrays import assigned, barrier, meet
from windtunnel.emulator.lockstep.endless_loops import Turns
from windtunnel.emulator.lockstep.lanes import (
    EMPTY,
    branch,
    chosen,
    convert,
    full,
    holds,
    narrow,
    put,
    put_into,
    take,
    taken,
)
from windtunnel.emulator.lockstep.source_text import Writer
from windtunnel.emulator.lockstep.waiting import decides, looks
from windtunnel.emulator.threads.launch import ByThread
from windtunnel.language import definite_assignment, flow, ir
from windtunnel.language.places import global_index, private
from windtunnel.language.types import BOOL, Scalar

_HELPERS: Mapping[str, Any] = {
    "np": np, "EMPTY": EMPTY, "barrier": barrier, "branch": branch, "chosen": chosen,
    "convert": convert, "full": full, "holds": holds, "narrow": narrow, "put": put, "put_into": put_into, "take": take,
    "taken": taken, "m": mathematics, "meet": meet, "Turns": Turns, "assigned": assigned,
}  # fmt: skip
_PLAIN = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=")
_FUNCTIONS = {"min": "m.minimum", "max": "m.maximum", "**": "m.power"}


@dataclass(frozen=True)
class Compiled:
    """A kernel for some types of arguments. ``run(lanes, warp, memories, scalars)`` executes a chunk of blocks."""

    program: ir.Program
    run: Callable[..., None]
    source: str
    written: frozenset[str]
    """Arrays that the kernel stores to, atomically or not."""
    waits: bool
    """Whether a loop of it goes on until memory that threads change says so."""
    spins: bool
    """Whether such a loop asks with atomic operations, as locks and flags do."""
    parts: bool
    """Whether a barrier, or a meeting of warps, stands where threads of a block may part ways."""
    fences: bool
    """Whether what comes before what is said by fences, or by barriers of the grid, too."""
    meets: bool
    """Whether all blocks meet, so that all have to be there at once."""
    threads: ByThread
    """The same, one thread after another."""
    private: Mapping[str, frozenset[int]]
    """Of them, those in which no two threads can race, and on which axes (``places.private``)."""


def compiled(program: ir.Program) -> Compiled:
    """An inferred kernel, ready to be executed. Its tree is changed: what may be unset is asked for."""
    definite_assignment.insert_checks(program)
    stored = written_by(program.body)
    alone = private(program, sorted(stored))
    warps = any(_meets_warp(one) for one in ir.walk(program.body))
    body = flow.lowered(program, leaving=warps)
    waits = [look for one in ir.walk(body) if isinstance(one, ir.While) for look in looks(one, stored)]
    scopes = {one.scope for one in ir.walk(body) if isinstance(one, ir.Barrier)}
    made = _Generator(program, body)
    source = made.source()
    names: dict[str, Any] = {**_HELPERS, **made.constants}
    # The text is made here from a tree of known forms: nothing of a user's gets into it but names and numbers.
    exec(compile(source, f"<lockstep {program.name}>", "exec"), names)  # noqa: S102
    return Compiled(
        program,
        names["run"],
        source,
        frozenset(stored),
        bool(waits),
        any(isinstance(look, ir.Atomic) for look in waits),
        made.parts,
        any(scope.startswith(("fence", "grid")) for scope in scopes) or any(map(_in_part, ir.walk(body))),
        "grid" in scopes,
        ByThread(program, frozenset(stored)),
        alone,
    )


def written_by(body: Sequence[ir.Stmt]) -> set[str]:
    """Arrays that statements store to."""
    found = {one.array for one in ir.walk(body) if isinstance(one, ir.Store)}
    for one in ir.walk(body):
        found |= {e.array for e in ir.expressions(one) if isinstance(e, ir.Atomic)}
    return found


@dataclass
class _Frame:
    """A set of threads that the code being written is executed by: its variables' names."""

    lanes: str
    names: dict[str, str] = field(default_factory=dict)


class _Generator(Writer):
    def __init__(self, program: ir.Program, body: list[ir.Stmt]) -> None:
        self.program, self.body = program, body
        self.stored = written_by(body)
        self.types: dict[str, Scalar] = {**program.variables, **program.scalars}
        super().__init__()
        self.varying: set[str] = set()
        self.parts = False
        """Whether a barrier, or a meeting of warps, stands where threads of a block may part ways."""
        while self._vary(body, under=False):
            pass

    def source(self) -> str:
        """The function's text."""
        self.emit("lanes_0 = lanes", at=1)
        frame = _Frame("lanes_0")
        for name in self.program.arrays:
            self.emit(f"a_{name} = memories[{name!r}]")
        for name in self.program.scalars:
            self.emit(f"{self._name(frame, name)} = scalars[{name!r}]")
        for name, kind in self.program.variables.items():
            self.emit(f"{self._name(frame, name)} = {self._constant(kind.dtype.type(0))}")
        self.block(self.body, frame)
        return "\n".join(["def run(lanes, memories, scalars):", *self.lines, ""])

    # What differs from thread to thread.

    def _vary(self, body: Sequence[ir.Stmt], *, under: bool) -> bool:
        """Find variables that do; whether one more was. ``under``: within a branch that threads take differently."""
        found = False
        for one in body:
            if isinstance(one, ir.Assign):
                if one.name not in self.varying and (under or self.varies(one.value)):
                    self.varying.add(one.name)
                    found = True
            elif isinstance(one, ir.If):
                inner = under or self.varies(one.condition)
                found |= self._vary(one.body, under=inner) | self._vary(one.orelse, under=inner)
            elif isinstance(one, ir.While):
                found |= self._vary(one.body, under=under or self.varies(one.condition))
            self.parts |= under and (isinstance(one, ir.Barrier) or _meets_warp(one))
        return found

    def varies(self, e: ir.Expr) -> bool:
        """Whether an expression may have different values."""
        if isinstance(e, ir.Variable):
            return e.name in self.varying or (e.given is not None and e.given.name in self.varying)
        if isinstance(e, ir.Index):
            return e.what in ("thread", "block")
        if isinstance(e, ir.Atomic) or (isinstance(e, ir.Warp) and e.op != "warp_size"):
            return True
        if isinstance(e, ir.Load) and e.array in self.program.declared:
            return True
        return any(self.varies(child) for child in e.children())

    # Statements.

    def block(self, body: Sequence[ir.Stmt], frame: _Frame) -> None:
        """Write statements."""
        if not body:
            self.emit("pass")
        for one in body:
            self.statement(one, frame)

    def statement(self, one: ir.Stmt, frame: _Frame) -> None:
        """Write a statement."""
        match one:
            case ir.Assign():
                self.emit(f"{self._name(frame, one.name)} = {self.value(one.value, frame)}")
            case ir.Store():
                value = self.value(one.value, frame)
                indices = [self.value(index, frame) for index in one.indices]
                self.emit(f"a_{one.array}.store({frame.lanes}, {one.line}, {', '.join([value, *indices])})")
            case ir.ExpressionStatement(value=ir.Atomic() as atomic):
                self.emit(self.atomic(atomic, frame, used=False))
            case ir.ExpressionStatement():
                self.emit(self.value(one.value, frame))
            case ir.Barrier():
                if one.scope == "warp":
                    self._meet(one.mask, frame)
                self.emit(f"barrier({frame.lanes}, {one.line}, {one.scope!r})")
            case ir.ThreadExit():
                self.emit(f"{frame.lanes}.chunk.leave({frame.lanes})")
            case ir.Declare():
                pass  # made before the kernel runs
            case ir.If():
                self._if(one, frame)
            case ir.While():
                self._while(one, frame)
            case _:
                raise AssertionError(f"{one} should have been lowered")

    def _if(self, one: ir.If, frame: _Frame) -> None:
        condition = self.value(one.condition, frame)
        if not self.varies(one.condition):
            self.emit(f"if {condition}:")
            self._indented(one.body, frame)
            if one.orelse:
                self.emit("else:")
                self._indented(one.orelse, frame)
            return
        yes, no = self._fresh("yes"), self._fresh("no")
        self.emit(f"{yes}, {no} = branch({frame.lanes}, {condition})")
        for side, body in ((yes, one.body), (no, one.orelse)):
            if not body:
                continue
            self.emit(f"if {side} is not None:")
            self.depth += 1
            self._within(side, body, frame)
            self.depth -= 1

    def _within(self, side: str, body: Sequence[ir.Stmt], frame: _Frame) -> None:
        """Statements for some of the threads."""
        selection, inner = self._fresh("some"), _Frame(self._fresh("lanes"))
        self.emit(f"{selection}, {inner.lanes} = {side}")
        read, assigned = self._used(body)
        for name in sorted(read | assigned):
            inner.names[name] = self._fresh(f"v_{name}")
            self.emit(f"{inner.names[name]} = take({self._name(frame, name)}, {selection}, {inner.lanes})")
        self.block(body, inner)
        for name in sorted(assigned):
            outer, dtype = self._name(frame, name), self._dtype(self.types[name])
            self.emit(f"{outer} = put({outer}, {selection}, {inner.names[name]}, {frame.lanes}.size, {dtype})")

    def _while(self, one: ir.While, frame: _Frame) -> None:
        spins = bool(looks(one, self.stored))
        turns = self._fresh("turns")
        self.emit(f"{turns} = Turns({frame.lanes}, {one.line}, {spins})")
        deciding = sorted(decides(one))
        if not self.varies(one.condition):
            self.emit("while True:")
            self.depth += 1
            values = ", ".join(self._name(frame, name) for name in deciding)
            self.emit(f"if {turns}.turn(): {turns}.look({frame.lanes}, [{values}])")
            self.emit(f"if not ({self.value(one.condition, frame)}): break")
            self.block(one.body, frame)
            self.depth -= 1
            return
        selection, inner = self._fresh("some"), _Frame(self._fresh("lanes"))
        read, assigned = self._used([one])
        size = f"{frame.lanes}.size"
        for name in sorted(read | assigned):
            outer = self._name(frame, name)
            inner.names[name] = self._fresh(f"v_{name}")
            self.emit(f"{inner.names[name]} = {outer}")
            if name in assigned:
                self.emit(f"{outer} = full({outer}, {size}, {self._dtype(self.types[name])})")
        self.emit(f"{selection}, {inner.lanes} = None, {frame.lanes}")
        self.emit("while True:")
        self.depth += 1
        values = ", ".join(self._name(inner, name) for name in deciding)
        self.emit(f"if {turns}.turn(): {turns}.look({inner.lanes}, [{values}])")
        condition = self._fresh("on")
        self.emit(f"{condition} = {self.value(one.condition, inner)}")
        self.emit(f"if not holds({condition}):")
        self.depth += 1
        for name in sorted(assigned):
            outer = self._name(frame, name)
            dtype = self._dtype(self.types[name])
            self.emit(f"{outer} = put_into({outer}, {selection}, {inner.names[name]}, {size}, {dtype})")
        self.emit(f"{selection} = narrow({selection}, {condition}, {size})")
        self.emit(f"if {selection} is EMPTY: break")
        self.emit(f"{inner.lanes} = {frame.lanes}.sub({selection})")
        for name in sorted(read | assigned):
            self.emit(f"{inner.names[name]} = taken({self._name(frame, name)}, {selection}, {inner.lanes})")
        self.depth -= 1
        self.block(one.body, inner)
        self.depth -= 1

    def _used(self, body: Sequence[ir.Stmt]) -> tuple[set[str], set[str]]:
        """(varying variables that statements read, those that they assign)."""
        read, assigned = set(), set()
        for one in ir.walk(body):
            if isinstance(one, ir.Assign):
                assigned.add(one.name)
            for e in ir.expressions(one):
                if isinstance(e, ir.Variable):
                    read.add(e.name)
        return read & self.varying, assigned & self.varying

    def _indented(self, body: Sequence[ir.Stmt], frame: _Frame) -> None:
        self.depth += 1
        self.block(body, frame)
        self.depth -= 1

    # Expressions.

    def value(self, e: ir.Expr, frame: _Frame) -> str:
        """What an expression is; what has to come before is written."""
        match e:
            case ir.Literal():
                return self._literal(e)
            case ir.Variable():
                if e.given is not None:
                    given = self._name(frame, e.given.name)
                    self.emit(f"assigned({frame.lanes}, {e.line}, {e.name!r}, {given})")
                return self._name(frame, e.name)
            case ir.Index():
                return self._index(e, frame)
            case ir.Size():
                return f"a_{e.array}.side({e.side})"
            case ir.Load():
                indices = [self.value(index, frame) for index in e.indices]
                return self._held(f"a_{e.array}.load({frame.lanes}, {e.line}, {', '.join(indices)})")
            case ir.Atomic():
                return self._held(self.atomic(e, frame, used=True))
            case ir.Binary():
                return self._binary(e, frame)
            case ir.Unary():
                inner = self.value(e.operand, frame)
                if e.op == "not":
                    return f"m.opposite({inner})" if self.varies(e.operand) else f"(not {inner})"
                return {"-": f"m.negative({inner})", "+": inner, "~": f"(~{inner})", "abs": f"m.absolute({inner})"}[
                    e.op
                ]
            case ir.Logic():
                return self._logic(e, frame)
            case ir.Select():
                return self._choose(e, frame)
            case ir.Convert():
                assert e.operand.type is not None  # noqa: S101  inference has been there
                inner = self.value(e.operand, frame)
                if e.to == BOOL:
                    return f"({inner} != {self._constant(e.operand.type.dtype.type(0))})"
                return f"convert({inner}, {self._dtype(e.to)})"
            case ir.Call():
                arguments = ", ".join(self.value(argument, frame) for argument in e.arguments)
                return f"m.{e.op.partition('.')[2] or e.op}({arguments})"
            case ir.Warp():
                arguments = ", ".join(self.value(argument, frame) for argument in e.arguments)
                if _meets_warp(e):
                    self._meet(e.arguments[0], frame)
                call = f"m.{e.op.replace('.', '_')}({frame.lanes}" + (f", {arguments})" if arguments else ")")
                return self._held(call)
            case _:
                raise AssertionError(f"{e} is of no known form")

    def _meet(self, mask: ir.Expr | None, frame: _Frame) -> None:
        """The threads of a warp that a mask names have to be here."""
        self.emit(f"meet({frame.lanes}, {'None' if mask is None else self.value(mask, frame)})")

    def atomic(self, e: ir.Atomic, frame: _Frame, *, used: bool) -> str:
        """A call that does an atomic operation."""
        values = [self.value(value, frame) for value in e.values]
        indices = [self.value(index, frame) for index in e.indices]
        given = f"{frame.lanes}, {e.line}, {e.op!r}, [{', '.join(values)}], {used}, {', '.join(indices)}"
        return f"a_{e.array}.atomic({given})"

    def _index(self, e: ir.Index, frame: _Frame) -> str:
        if e.what in ("thread", "block"):
            return f"{frame.lanes}.{e.what}({e.axis})"
        which = "block" if e.what == "block_size" else "grid"
        return f"np.int32({frame.lanes}.chunk.{which}[{e.axis}])"

    def _binary(self, e: ir.Binary, frame: _Frame) -> str:
        axis = global_index(e)
        if axis is not None:
            return f"{frame.lanes}.globally({axis})"
        left, right = self.value(e.left, frame), self.value(e.right, frame)
        if e.op in _FUNCTIONS:
            return f"{_FUNCTIONS[e.op]}({left}, {right})"
        assert e.op in _PLAIN  # noqa: S101  the parser knows no other
        return f"({left} {e.op} {right})"

    def _logic(self, e: ir.Logic, frame: _Frame) -> str:
        if not self.varies(e):
            if not _needs_lines(e.right):
                return f"({self.value(e.left, frame)} {e.op} {self.value(e.right, frame)})"
            found = self._fresh("t")
            self.emit(f"{found} = {self.value(e.left, frame)}")
            self.emit(f"if {found}:" if e.op == "and" else f"if not {found}:")
            self.depth += 1
            self.emit(f"{found} = {self.value(e.right, frame)}")
            self.depth -= 1
            return found
        if not _careful(e.right):
            return f"({self.value(e.left, frame)} {'&' if e.op == 'and' else '|'} {self.value(e.right, frame)})"
        # Only those whom the left does not decide evaluate the right.
        found, yes, no = self._fresh("t"), self._fresh("yes"), self._fresh("no")
        self.emit(f"{found} = {self.value(e.left, frame)}")
        self.emit(f"{yes}, {no} = branch({frame.lanes}, {found})")
        self._some(found, yes if e.op == "and" else no, e.right, frame, BOOL)
        return found

    def _choose(self, e: ir.Select, frame: _Frame) -> str:
        assert e.type is not None  # noqa: S101  inference has been there
        condition = self.value(e.condition, frame)
        if not self.varies(e.condition):
            found = self._fresh("t")
            self.emit(f"if {condition}:")
            for chosen, keyword in ((e.yes, "else:"), (e.no, None)):
                self.depth += 1
                self.emit(f"{found} = {self.value(chosen, frame)}")
                self.depth -= 1
                if keyword:
                    self.emit(keyword)
            return found
        if not _careful(e.yes) and not _careful(e.no):
            return f"chosen({condition}, {self.value(e.yes, frame)}, {self.value(e.no, frame)})"
        found, yes, no = self._fresh("t"), self._fresh("yes"), self._fresh("no")
        self.emit(f"{found} = {self._constant(e.type.dtype.type(0))}")
        self.emit(f"{yes}, {no} = branch({frame.lanes}, {condition})")
        for side, value in ((yes, e.yes), (no, e.no)):
            self._some(found, side, value, frame, e.type)
        return found

    def _some(self, found: str, side: str, value: ir.Expr, frame: _Frame, kind: Scalar) -> None:
        """Put what an expression is for some of the threads into ``found``."""
        self.emit(f"if {side} is not None:")
        self.depth += 1
        selection, inner = self._fresh("some"), _Frame(self._fresh("lanes"))
        self.emit(f"{selection}, {inner.lanes} = {side}")
        used = {e.name for e in ir.inside(value) if isinstance(e, ir.Variable)} & self.varying
        for name in sorted(used):
            inner.names[name] = self._fresh(f"v_{name}")
            self.emit(f"{inner.names[name]} = take({self._name(frame, name)}, {selection}, {inner.lanes})")
        made = self.value(value, inner)
        self.emit(f"{found} = put({found}, {selection}, {made}, {frame.lanes}.size, {self._dtype(kind)})")
        self.depth -= 1

    # Text.

    def _name(self, frame: _Frame, name: str) -> str:
        """A variable as the threads of a frame have it."""
        if name in self.varying and name in frame.names:
            return frame.names[name]
        return f"v_{name}"


def _in_part(one: ir.Stmt) -> bool:
    """Whether some threads of a warp meet without the others: side by side only whole warps' meetings are counted."""
    if not isinstance(one, ir.Barrier) or one.mask is None:
        return False
    mask = one.mask.operand if isinstance(one.mask, ir.Convert) else one.mask
    return not (isinstance(mask, ir.Literal) and int(mask.value) & 0xFFFFFFFF == 0xFFFFFFFF)


def _meets_warp(one: ir.Stmt | ir.Expr) -> bool:
    """Whether threads of a warp meet in it."""
    if isinstance(one, ir.Stmt):
        return (isinstance(one, ir.Barrier) and one.scope == "warp") or any(map(_meets_warp, ir.expressions(one)))
    return isinstance(one, ir.Warp) and one.op not in ("lane", "warp_size")


def _careful(e: ir.Expr) -> bool:
    """Whether an expression must not be evaluated by threads that do not ask for it."""
    return any(isinstance(one, (ir.Load, ir.Atomic, ir.Warp)) or _asks(one) for one in ir.inside(e))


def _needs_lines(e: ir.Expr) -> bool:
    lines = (ir.Load, ir.Atomic, ir.Warp, ir.Logic, ir.Select)
    return any(isinstance(one, lines) or _asks(one) for one in ir.inside(e))


def _asks(e: ir.Expr) -> bool:
    """Whether it is a variable that may be unset."""
    return isinstance(e, ir.Variable) and e.given is not None
