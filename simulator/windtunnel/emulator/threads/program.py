"""Compilation of a kernel to a Python generator of one thread, which stops before each step visible to other threads.

With a seed it stops at every such step. Without one it stops at atomic operations, barriers and iterations of spin
loops only: plain accesses that race are reported in any order. Values are NumPy scalars of their own types, so that
results equal those of lockstep execution bit for bit. Between two stops a thread accesses nothing that others access,
or nothing whose order they could observe: the results depend on the order of the stops alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.emulator.common import mathematics
from windtunnel.emulator.common.lanes import convert
from windtunnel.emulator.common.printing import print_line
from windtunnel.emulator.common.source_text import FUNCTIONS, Writer, unary
from windtunnel.emulator.common.spin_loops import exit_variables, spin_state
from windtunnel.emulator.threads.undefined import UndefinedAware, aware
from windtunnel.language import ir

_LONG_LOOP = 1024
"""Iterations of a loop before its states are compared."""


@dataclass(frozen=True)
class BarrierArrival:
    """The event that a thread waits for others of its block, warp or grid.

    Attributes:
        line: Line of the barrier, shuffle or vote.
        kind: ``block``, ``warp`` or ``grid`` for barriers, otherwise ``shuffle.up``, ``vote.any`` and so on.
        mask: The lanes that must arrive, for events of a warp.
        value: The value that the thread offers in a shuffle or a vote.
        argument: The distance or lane of a shuffle.
    """

    line: int
    kind: str
    mask: int = 0xFFFFFFFF
    value: Any = None
    argument: int = 0

    @property
    def is_of_warp(self) -> bool:
        """Whether the thread waits for its warp."""
        return not self.kind.startswith(("block", "grid"))


WAIT = object()
"""The event that a thread waits in a spin loop until a polled element changes."""


@dataclass(frozen=True)
class ThreadProgram:
    """A kernel compiled for execution thread by thread.

    ``run(thread, arrays, scalars)`` is a generator: it yields None before a visible step, ``WAIT``, or a
    ``BarrierArrival``.
    """

    program: ir.Program
    run: Callable[..., Iterator[Any]]
    source: str


def counted(thread: Any, line: int, start: Any, stop: Any, step: Any) -> Iterator[Any]:
    """Yield the values of a range in their own type. Raises Deadlock for a step of 0 that never reaches the end."""
    kind, at, end, by = type(start), int(start), int(stop), int(step)
    if by == 0 and at > end:
        thread.report_zero_step(line)
    while at < end if by > 0 else at > end:
        thread.take_turn(line, of_thread=True)
        yield kind(at)
        at += by


def compile_thread(program: ir.Program, stored: set[str], *, every_access: bool) -> ThreadProgram:
    """Compile a typed kernel to a generator.

    ``stored`` are the parameters that threads share and change. With ``every_access``, the generator stops before plain
    accesses of these arrays too.
    """
    generator = _Generator(program, stored, every_access=every_access)
    source = generator.source()
    helpers = {
        "np": np, "m": mathematics, "convert": convert, "counted": counted, "WAIT": WAIT,
        "BarrierArrival": BarrierArrival, "print_line": print_line,
    }  # fmt: skip
    names: dict[str, Any] = {**helpers, **generator.constants}
    if _has_undefined_values(program):
        names |= {"m": UndefinedAware(mathematics), "convert": aware(convert)}
    # The text is emitted from a typed tree: of the user's source it holds nothing but names and numbers.
    exec(compile(source, f"<thread of {program.name}>", "exec"), names)  # noqa: S102
    return ThreadProgram(program, names["run"], source)


def _has_undefined_values(program: ir.Program) -> bool:
    """Return whether lanes of a warp read values of each other in a kernel, which need not be set."""
    return any(
        (isinstance(e, ir.Warp) and e.op.startswith("shuffle")) or (isinstance(e, ir.Load) and e.moved)
        for s in ir.walk(program.body)
        for e in ir.expressions(s)
    )


class _Generator(Writer):
    def __init__(self, program: ir.Program, stored: set[str], *, every_access: bool) -> None:
        self.program, self.stored, self.every_access = program, stored, every_access
        self.shared = stored | {name for name, declared in program.declared.items() if declared.space == "shared"}
        super().__init__()

    def source(self) -> str:
        """Return the text of the function."""
        for stem, attribute in (("t", "index"), ("b", "block_index"), ("n", "block_size"), ("g", "grid_size")):
            self.emit(f"{stem}_0, {stem}_1, {stem}_2 = thread.{attribute}")
        for name in self.program.arrays:
            self.emit(f"a_{name} = arrays[{name!r}]")
        for name in self.program.scalars:
            self.emit(f"v_{name} = scalars[{name!r}]")
        for name, kind in self.program.variables.items():
            self.emit(f"v_{name} = {self._constant(kind.dtype.type(0))}")
        body = self.program.body
        self.block(body[:-1] if body and isinstance(body[-1], ir.Return) else body)
        self.emit("thread.came_to_end = True")
        # This makes a generator of a kernel that has no visible step.
        self.emit("return")
        self.emit("yield")
        return "\n".join(["def run(thread, arrays, scalars):", *self.lines, ""])

    # Statements.

    def block(self, body: Sequence[ir.Stmt]) -> None:
        """Emit statements."""
        if not body:
            self.emit("pass")
        for statement in body:
            self.statement(statement)

    def _inner(self, body: Sequence[ir.Stmt]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1

    # Long: one case for each kind of statement.
    def statement(self, statement: ir.Stmt) -> None:
        """Emit a statement."""
        match statement:
            case ir.Assign():
                self.emit(f"v_{statement.name} = {self.value(statement.value)}")
            case ir.Store():
                value = self.value(statement.value)
                indices = [self.value(index) for index in statement.indices]
                self._stop(statement.array, atomic=False)
                self.emit(f"a_{statement.array}.store(thread, {statement.line}, {', '.join([value, *indices])})")
            case ir.ExpressionStatement(value=ir.Atomic() as atomic):
                self._atomic(atomic)
            case ir.ExpressionStatement():
                self.value(statement.value)
            case ir.Barrier():
                self._barrier(statement)
            case ir.Declare():
                pass  # allocated before the thread runs
            case ir.Forget():
                if statement.name in self.program.declared:
                    self.emit(f"a_{statement.name}.forget()")
            case ir.Require():
                condition = self.value(statement.condition)
                arguments = f"{statement.line}, {statement.finding!r}, {statement.message!r}"
                if statement.same:
                    condition = f"thread.has_same({statement.line}, {condition})"
                self.emit(f"if not {condition}: thread.fail({arguments})")
            case ir.Flight(what="commit"):
                self.emit("thread.flights.commit([thread.id])")
            case ir.Flight(what="wait", last=ir.Expr() as last):
                self.emit(f"thread.flights.end(np.array([thread.id]), {self.value(last)})")
            case ir.Flight(what="wait"):
                self.emit(f"thread.flights.wait(np.array([thread.id]), {statement.left})")
            case ir.Flight():
                places = ", ".join(self.value(index) for index in statement.indices)
                writes = statement.what == "write"
                self.emit(f"a_{statement.array}.begin_copy(thread, {statement.line}, {writes}, {places})")
            case ir.Print():
                numbers = ", ".join(self.value(number) for number in statement.numbers)
                self.emit(f"print_line({statement.form!r}, {list(statement.texts)!r}, [{numbers}])")
            case ir.If():
                self.emit(f"if {self.value(statement.condition)}:")
                self._inner(statement.body)
                if statement.orelse:
                    self.emit("else:")
                    self._inner(statement.orelse)
            case ir.While():
                self._while(statement)
            case ir.For():
                start, stop, step = (self.value(e) for e in (statement.start, statement.stop, statement.step))
                self.emit(f"for v_{statement.name} in counted(thread, {statement.line}, {start}, {stop}, {step}):")
                self._inner(statement.body)
            case ir.Break():
                self.emit("break")
            case ir.Continue():
                self.emit("continue")
            case ir.Return():
                self.emit("return")
            case _:
                raise AssertionError(f"{statement} is not a statement of a kernel")

    def _barrier(self, statement: ir.Barrier) -> None:
        if statement.scope.startswith("fence"):
            self.emit(f"thread.fence({statement.scope == 'fence.block'})")
        else:
            mask = "" if statement.mask is None else f", int({self.value(statement.mask)})"
            self.emit(f"yield BarrierArrival({statement.line}, {statement.scope!r}{mask})")

    def _while(self, statement: ir.While) -> None:
        state_names = spin_state(statement, self.shared)
        loop, count, kept = self._new_name("loop"), self._new_name("count"), self._new_name("kept")
        if state_names is not None:
            self.emit(f"{loop} = thread.enter({statement.line})")
        else:
            self.emit(f"{count}, {kept} = 0, None")
        self.emit("while True:")
        self.depth += 1
        self.emit(f"thread.take_turn({statement.line}, of_thread=True)")
        if state_names is not None:
            state = "".join(f"v_{name}, " for name in sorted(state_names))
            self.emit(f"yield WAIT if {loop}.iterate(({state})) else None")
        else:
            state = "".join(f"v_{name}, " for name in sorted(exit_variables(statement)))
            self.emit(f"{count} += 1")
            self.emit(f"if {count} >= {_LONG_LOOP}:")
            self.emit(f"    {kept} = thread.check_progress({statement.line}, {count}, ({state}), {kept})")
        condition = self.value(statement.condition)
        self.emit(f"if not {condition}: break")
        self.block(statement.body)
        self.depth -= 1
        if state_names is not None:
            self.emit(f"{loop}.leave()")

    def _stop(self, array: str, *, atomic: bool) -> None:
        if array in self.shared and (self.every_access or atomic):
            self.emit("yield")

    # Expressions.

    # Long: one case for each kind of expression.
    def value(self, e: ir.Expr) -> str:
        """Return the text of an expression, after emitting the statements that it depends on."""
        match e:
            case ir.Literal():
                return self._literal(e)
            case ir.Variable():
                if e.given is not None:
                    self.emit(f"if not v_{e.given.name}: thread.require_assigned({e.line}, {e.name!r})")
                return f"v_{e.name}"
            case ir.Index():
                stem = {"thread": "t", "block": "b", "block_size": "n", "grid_size": "g"}[e.what]
                return f"{stem}_{e.axis}"
            case ir.Size():
                return f"a_{e.array}.side({e.side})"
            case ir.Load():
                indices = [self.value(index) for index in e.indices]
                self._stop(e.array, atomic=False)
                return self._emit_temporary(
                    f"a_{e.array}.load(thread, {e.line}, {', '.join(indices)}{', copied=True' if e.copied else ''}"
                    f"{', moved=True' if e.moved else ''})"
                )
            case ir.Atomic():
                return self._atomic(e)
            case ir.Binary():
                left, right = self.value(e.left), self.value(e.right)
                if e.op in FUNCTIONS:
                    return f"{FUNCTIONS[e.op]}({left}, {right})"
                return f"({left} {e.op} {right})"
            case ir.Unary():
                inner = self.value(e.operand)
                return unary(e.op, inner, f"(not {inner})")
            case ir.Logic():
                result = self._emit_temporary(self.value(e.left))
                self.emit(f"if {result}:" if e.op == "and" else f"if not {result}:")
                self._into(result, e.right)
                return result
            case ir.Select():
                result = self._new_name("t")
                self.emit(f"if {self.value(e.condition)}:")
                self._into(result, e.yes)
                self.emit("else:")
                self._into(result, e.no)
                return result
            case ir.Convert():
                return self._conversion(e, self.value(e.operand))
            case ir.Call():
                arguments = ", ".join(self.value(argument) for argument in e.arguments)
                return f"m.{e.op.partition('.')[2] or e.op}({arguments})"
            case ir.Warp():
                return self._warp(e)
            case _:
                raise AssertionError(f"{e} is not an expression of a kernel")

    def _into(self, result: str, value: ir.Expr) -> None:
        self.depth += 1
        self.emit(f"{result} = {self.value(value)}")
        self.depth -= 1

    def _atomic(self, e: ir.Atomic) -> str:
        values = [self.value(value) for value in e.values]
        indices = [self.value(index) for index in e.indices]
        self._stop(e.array, atomic=True)
        return self._emit_temporary(
            f"a_{e.array}.atomic(thread, {e.line}, {e.op!r}, [{', '.join(values)}], {', '.join(indices)}"
            f"{', of_block=True' if e.of_block else ''}{', relaxed=True' if e.relaxed else ''})"
        )

    def _warp(self, e: ir.Warp) -> str:
        if e.op in ("lane", "warp_size"):
            return f"thread.{e.op}"
        if e.op == "active":
            self.emit(f"yield BarrierArrival({e.line}, 'active')")
            return self._emit_temporary("thread.result")
        mask, value, *rest = (self.value(argument) for argument in e.arguments)
        argument = f", int({rest[0]})" if rest else ""
        self.emit(f"yield BarrierArrival({e.line}, {e.op!r}, int({mask}), {value}{argument})")
        return self._emit_temporary("thread.result")
