"""Compilation of a kernel to a Python function of NumPy arrays that executes many threads in lockstep.

A value that is the same for all threads is a NumPy scalar, and a branch on it is a plain branch. A branch that threads
take differently is executed twice, by the threads that take it and by those that do not. A loop continues with the
threads that are still in it. So all threads of a chunk are at the same statement, and a barrier only checks whether all
threads of its block are there. A program that is correct in any order is correct in this order. Programs that are not
are reported by the checks of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError, Location
from windtunnel.emulator.common import mathematics
from windtunnel.emulator.common.lanes import (
    EMPTY,
    branch,
    convert,
    full,
    holds,
    narrow,
    put,
    put_into,
    select_values,
    take,
    take_copy,
)
from windtunnel.emulator.common.printing import print_lines
from windtunnel.emulator.common.source_text import FUNCTIONS, Writer, unary
from windtunnel.emulator.common.spin_loops import exit_variables, polled_reads
from windtunnel.emulator.lockstep.barriers import barrier, check_assigned, require, require_warp, same_in_blocks
from windtunnel.emulator.lockstep.infinite_loops import LoopStateTracker
from windtunnel.language import definite_assignment, flow, ir
from windtunnel.language.places import global_index, private
from windtunnel.language.types import BOOL, Scalar

HELPERS: Mapping[str, object] = {
    "np": np, "EMPTY": EMPTY, "barrier": barrier, "branch": branch, "select_values": select_values,
    "convert": convert, "full": full, "holds": holds, "narrow": narrow, "put": put, "put_into": put_into, "take": take,
    "take_copy": take_copy, "m": mathematics, "require_warp": require_warp, "LoopStateTracker": LoopStateTracker,
    "check_assigned": check_assigned, "require": require, "same_in_blocks": same_in_blocks, "print_lines": print_lines,
}  # fmt: skip
_OPERATORS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class LockstepKernel:
    """A kernel compiled for some argument types, and what its execution depends on.

    Attributes:
        program: The typed tree.
        run: ``run(lanes, arrays, scalars)`` executes a chunk of blocks.
        source: Text of the emitted function.
        written: Names of the arrays that the kernel stores to, atomically or not.
        has_spin_loops: Whether memory that threads change decides if a loop continues.
        polls_atomically: Whether such a loop polls with atomic operations, as locks and flags do.
        may_diverge: Whether threads of a block may reach a barrier or a warp synchronisation on different paths.
        has_fences: Whether fences or barriers of part of a warp order accesses.
        has_grid_barrier: Whether all blocks must be resident at once.
        has_shuffles: Whether lanes of a warp read values of each other.
        passes_elements: Whether lanes pass elements of arrays of a block or a thread on, which need not be set.
        shuffles_in_part: Whether they do so with a mask that may not name all of them.
        private: For each array that only one thread may access at each element, the axes along which that is so.
        body: The statements that are executed, without jumps.
        varying: The variables that may differ among the threads of a block.
    """

    program: ir.Program
    run: Callable[..., None]
    source: str
    written: frozenset[str]
    has_spin_loops: bool
    polls_atomically: bool
    may_diverge: bool
    has_fences: bool
    has_grid_barrier: bool
    has_shuffles: bool
    passes_elements: bool
    shuffles_in_part: bool
    private: Mapping[str, frozenset[int]]
    body: list[ir.Stmt]
    varying: frozenset[str]


def lowered(program: ir.Program) -> list[ir.Stmt]:
    """Return the statements that are executed: without `for`, `break`, `continue` and `return`."""
    has_warp_barriers = any(_synchronises_warp(statement) for statement in ir.walk(program.body))
    return flow.lowered(program, leaving=has_warp_barriers)


def compile_lockstep(program: ir.Program) -> LockstepKernel:
    """Compile a typed kernel. The tree is changed: checks of unassigned variables are inserted."""
    definite_assignment.insert_checks(program)
    stored = written_by(program.body)
    private_axes = private(program, sorted(stored))
    body = lowered(program)
    polls = [poll for loop in ir.walk(body) if isinstance(loop, ir.While) for poll in polled_reads(loop, stored)]
    scopes = {statement.scope for statement in ir.walk(body) if isinstance(statement, ir.Barrier)}
    shuffles = [e for s in ir.walk(body) for e in ir.expressions(s) if isinstance(e, ir.Warp) and "shuffle" in e.op]
    generator = LockstepGenerator(program, body)
    source = generator.source()
    names: dict[str, Any] = {**HELPERS, **generator.constants}
    # The text is emitted from a typed tree: of the user's source it holds nothing but names and numbers.
    try:
        made = compile(source, f"<lockstep {program.name}>", "exec")
    except (SyntaxError, RecursionError) as error:  # Python nests 20 loops, and 100 blocks
        raise InputError(
            f"'{program.name}' has loops and branches nested too deeply for the emulator ({error})",
            where=Location(*program.place_of(program.line)), expected="fewer, or less recursion",
        ) from error  # fmt: skip
    exec(made, names)  # noqa: S102
    has_fences = any(scope.startswith("fence") for scope in scopes)
    return LockstepKernel(
        program,
        names["run"],
        source,
        written=frozenset(stored),
        has_spin_loops=bool(polls),
        polls_atomically=any(isinstance(poll, ir.Atomic) for poll in polls),
        may_diverge=generator.may_diverge,
        has_fences=has_fences or any(map(_is_partial_warp_barrier, ir.walk(body))),
        has_grid_barrier="grid" in scopes,
        has_shuffles=bool(shuffles),
        passes_elements=any(
            isinstance(e, ir.Load) and e.moved and e.array in program.declared
            for s in ir.walk(body)
            for e in ir.expressions(s)
        ),
        shuffles_in_part=not all(_names_all(e.arguments[0]) for e in shuffles),
        private=private_axes,
        body=body,
        varying=frozenset(generator.varying),
    )


def written_by(body: Sequence[ir.Stmt]) -> set[str]:
    """Return the names of the arrays that statements store to, atomically or not."""
    written = {statement.array for statement in ir.walk(body) if isinstance(statement, ir.Store)}
    for statement in ir.walk(body):
        written |= {e.array for e in ir.expressions(statement) if isinstance(e, ir.Atomic)}
    return written


@dataclass
class Frame:
    """The threads that execute the code being emitted: the name of their lanes, and the names of their variables."""

    lanes: str
    names: dict[str, str] = field(default_factory=dict)


class LockstepGenerator(Writer):
    """Emits the function that executes a kernel in lockstep."""

    def __init__(self, program: ir.Program, body: list[ir.Stmt], varying: frozenset[str] = frozenset()) -> None:
        self.program, self.body = program, body
        self.stored = written_by(body)
        self.types: dict[str, Scalar] = {**program.variables, **program.scalars}
        super().__init__()
        self.varying: set[str] = set(varying)
        self.may_diverge = False
        """Whether a barrier or a warp synchronisation stands inside a divergent branch."""
        while self._mark_varying(body, divergent=False):
            pass

    def source(self) -> str:
        """Return the text of the function."""
        self.emit("lanes_0 = lanes", at=1)
        frame = Frame("lanes_0")
        for name in self.program.arrays:
            self.emit(f"a_{name} = arrays[{name!r}]")
        for name in self.program.scalars:
            self.emit(f"{self._name(frame, name)} = scalars[{name!r}]")
        for name, kind in self.program.variables.items():
            self.emit(f"{self._name(frame, name)} = {self._constant(kind.dtype.type(0))}")
        self.block(self.body, frame)
        return "\n".join(["def run(lanes, arrays, scalars):", *self.lines, ""])

    # Which values vary from thread to thread.

    def _mark_varying(self, body: Sequence[ir.Stmt], *, divergent: bool) -> bool:
        """Mark the variables that vary; return whether another one was marked.

        ``divergent`` states whether the statements are inside a branch that threads take differently.
        """
        marked = False
        for statement in body:
            if isinstance(statement, ir.Assign):
                if statement.name not in self.varying and (divergent or self.varies(statement.value)):
                    self.varying.add(statement.name)
                    marked = True
            elif isinstance(statement, ir.If):
                inner = divergent or self.varies(statement.condition)
                marked |= self._mark_varying(statement.body, divergent=inner)
                marked |= self._mark_varying(statement.orelse, divergent=inner)
            elif isinstance(statement, ir.While):
                inner = divergent or self.varies(statement.condition)
                marked |= self._mark_varying(statement.body, divergent=inner)
            self.may_diverge |= divergent and (isinstance(statement, ir.Barrier) or _synchronises_warp(statement))
        return marked

    def varies(self, e: ir.Expr) -> bool:
        """Return whether an expression may differ from thread to thread."""
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

    def block(self, body: Sequence[ir.Stmt], frame: Frame) -> None:
        """Emit statements."""
        if not body:
            self.emit("pass")
        for statement in body:
            self.statement(statement, frame)

    def statement(self, statement: ir.Stmt, frame: Frame) -> None:
        """Emit a statement."""
        match statement:
            case ir.Assign():
                self.emit(f"{self._name(frame, statement.name)} = {self.value(statement.value, frame)}")
            case ir.Store():
                value = self.value(statement.value, frame)
                indices = [self.value(index, frame) for index in statement.indices]
                self.emit(f"a_{statement.array}.store({frame.lanes}, {statement.line}, {', '.join([value, *indices])})")
            case ir.ExpressionStatement(value=ir.Atomic() as atomic):
                self.emit(self.atomic(atomic, frame, used=False))
            case ir.ExpressionStatement():
                self.emit(self.value(statement.value, frame))
            case ir.Barrier():
                if statement.scope == "warp":
                    self._require_warp(statement.line, statement.mask, frame)
                self.emit(f"barrier({frame.lanes}, {statement.line}, {statement.scope!r})")
            case ir.ThreadExit():
                self.emit(f"{frame.lanes}.chunk.leave({frame.lanes})")
            case ir.Declare():
                pass  # allocated before the kernel runs
            case ir.Forget():
                if statement.name in self.program.declared:
                    self.emit(f"a_{statement.name}.forget({frame.lanes})")
            case ir.Require():
                condition = self.value(statement.condition, frame)
                if statement.same:
                    condition = f"same_in_blocks({frame.lanes}, {condition})"
                arguments = f"{condition}, {statement.finding!r}, {statement.message!r}"
                self.emit(f"require({frame.lanes}, {statement.line}, {arguments})")
            case ir.Flight():
                self._flight(statement, frame)
            case ir.Print():
                numbers = ", ".join(self.value(number, frame) for number in statement.numbers)
                self.emit(f"print_lines({frame.lanes}, {statement.form!r}, {list(statement.texts)!r}, [{numbers}])")
            case ir.If():
                self._if(statement, frame)
            case ir.While():
                self._while(statement, frame)
            case _:
                raise AssertionError(f"{statement} is not lowered")

    def _flight(self, statement: ir.Flight, frame: Frame) -> None:
        if statement.what == "commit":
            self.emit(f"{frame.lanes}.chunk.flights.commit({frame.lanes}.identities.tolist())")
        elif statement.last is not None:
            last = self.value(statement.last, frame)
            self.emit(f"{frame.lanes}.chunk.flights.end({frame.lanes}.identities, {last})")
        elif statement.what == "wait":
            self.emit(f"{frame.lanes}.chunk.flights.wait({frame.lanes}.identities, {statement.left})")
        else:
            indices = ", ".join(self.value(index, frame) for index in statement.indices)
            arguments = f"{frame.lanes}, {statement.line}, {statement.what == 'write'}, {indices}"
            self.emit(f"a_{statement.array}.begin_copy({arguments})")

    def _if(self, statement: ir.If, frame: Frame) -> None:
        condition = self.value(statement.condition, frame)
        if not self.varies(statement.condition):
            self.emit(f"if {condition}:")
            self._indented(statement.body, frame)
            if statement.orelse:
                self.emit("else:")
                self._indented(statement.orelse, frame)
            return
        yes, no = self._new_name("yes"), self._new_name("no")
        self.emit(f"{yes}, {no} = {self.branch(frame, condition)}")
        for side, body in ((yes, statement.body), (no, statement.orelse)):
            if not body:
                continue
            self.emit(f"if {side} is not None:")
            self.depth += 1
            self._within(side, body, frame)
            self.depth -= 1

    def branch(self, frame: Frame, condition: str) -> str:
        """Return the text of a call that divides the threads at a branch."""
        return f"branch({frame.lanes}, {condition})"

    def _within(self, side: str, body: Sequence[ir.Stmt], frame: Frame) -> None:
        """Emit statements for some of the threads."""
        selection, inner = self._new_name("some"), Frame(self._new_name("lanes"))
        self.emit(f"{selection}, {inner.lanes} = {side}")
        read, assigned = self._used(body)
        for name in sorted(read | assigned):
            inner.names[name] = self._new_name(f"v_{name}")
            self.emit(f"{inner.names[name]} = take({self._name(frame, name)}, {selection}, {inner.lanes})")
        self.block(body, inner)
        for name in sorted(assigned):
            outer, dtype = self._name(frame, name), self._dtype(self.types[name])
            self.emit(f"{outer} = put({outer}, {selection}, {inner.names[name]}, {frame.lanes}.size, {dtype})")

    def _while(self, statement: ir.While, frame: Frame) -> None:
        spins = bool(polled_reads(statement, self.stored))
        tracker = self._new_name("tracker")
        self.emit(f"{tracker} = LoopStateTracker({frame.lanes}, {statement.line}, {spins})")
        state = sorted(exit_variables(statement))
        if not self.varies(statement.condition):
            self.emit("while True:")
            self.depth += 1
            values = ", ".join(self._name(frame, name) for name in state)
            self.emit(f"if {tracker}.iteration(): {tracker}.compare({frame.lanes}, [{values}])")
            self.emit(f"if not ({self.value(statement.condition, frame)}): break")
            self.block(statement.body, frame)
            self.depth -= 1
            return
        selection, inner = self._new_name("some"), Frame(self._new_name("lanes"))
        read, assigned = self._used([statement])
        size = f"{frame.lanes}.size"
        for name in sorted(read | assigned):
            outer = self._name(frame, name)
            inner.names[name] = self._new_name(f"v_{name}")
            self.emit(f"{inner.names[name]} = {outer}")
            if name in assigned:
                self.emit(f"{outer} = full({outer}, {size}, {self._dtype(self.types[name])})")
        self.emit(f"{selection}, {inner.lanes} = None, {frame.lanes}")
        self.emit("while True:")
        self.depth += 1
        values = ", ".join(self._name(inner, name) for name in state)
        self.emit(f"if {tracker}.iteration(): {tracker}.compare({inner.lanes}, [{values}])")
        condition = self._new_name("continues")
        self.emit(f"{condition} = {self.value(statement.condition, inner)}")
        self.emit(f"if not holds({condition}):")
        self.depth += 1
        for name in sorted(assigned):
            outer = self._name(frame, name)
            dtype = self._dtype(self.types[name])
            self.emit(f"{outer} = put_into({outer}, {selection}, {inner.names[name]}, {size}, {dtype})")
        self.emit(f"{selection} = narrow({selection}, {condition})")
        self.emit(f"if {selection} is EMPTY: break")
        self.emit(f"{inner.lanes} = {frame.lanes}.sub({selection})")
        for name in sorted(read | assigned):
            self.emit(f"{inner.names[name]} = take_copy({self._name(frame, name)}, {selection}, {inner.lanes})")
        self.depth -= 1
        self.block(statement.body, inner)
        self.depth -= 1

    def _used(self, body: Sequence[ir.Stmt]) -> tuple[set[str], set[str]]:
        """Return (varying variables that statements read, those that they assign)."""
        read, assigned = set(), set()
        for statement in ir.walk(body):
            if isinstance(statement, ir.Assign):
                assigned.add(statement.name)
            read |= {e.name for e in ir.expressions(statement) if isinstance(e, ir.Variable)}
        return read & self.varying, assigned & self.varying

    def _indented(self, body: Sequence[ir.Stmt], frame: Frame) -> None:
        self.depth += 1
        self.block(body, frame)
        self.depth -= 1

    # Expressions.

    def value(self, e: ir.Expr, frame: Frame) -> str:
        """Return the text of an expression, after emitting the statements that it depends on."""
        match e:
            case ir.Literal():
                return self._literal(e)
            case ir.Variable():
                return self._variable(e, frame)
            case ir.Index():
                return self._index(e, frame)
            case ir.Size():
                return f"a_{e.array}.side({e.side})"
            case ir.Load():
                indices = [self.value(index, frame) for index in e.indices]
                arguments = ", ".join([frame.lanes, str(e.line), *indices, *(["copied=True"] if e.copied else [])])
                arguments += ", moved=True" if e.moved else ""
                return self._emit_temporary(f"a_{e.array}.load({arguments})")
            case ir.Atomic():
                return self._emit_temporary(self.atomic(e, frame, used=True))
            case ir.Binary():
                return self._binary(e, frame)
            case ir.Unary():
                inner = self.value(e.operand, frame)
                negation = f"m.logical_not({inner})" if self.varies(e.operand) else f"(not {inner})"
                return unary(e.op, inner, negation)
            case ir.Logic():
                return self._logic(e, frame)
            case ir.Select():
                return self._select(e, frame)
            case ir.Convert():
                return self._conversion(e, self.value(e.operand, frame))
            case ir.Call():
                arguments = ", ".join(self.value(argument, frame) for argument in e.arguments)
                return f"m.{e.op.partition('.')[2] or e.op}({arguments})"
            case ir.Warp():
                return self._warp(e, frame)
            case _:
                raise AssertionError(f"{e} is not an expression of a kernel")

    def _variable(self, e: ir.Variable, frame: Frame) -> str:
        if e.given is not None:
            assigned = self._name(frame, e.given.name)
            self.emit(f"check_assigned({frame.lanes}, {e.line}, {e.name!r}, {assigned})")
        return self._name(frame, e.name)

    def _warp(self, e: ir.Warp, frame: Frame) -> str:
        arguments = [frame.lanes, *(self.value(argument, frame) for argument in e.arguments)]
        if _synchronises_warp(e):
            self._require_warp(e.line, e.arguments[0], frame)
        return self._emit_temporary(f"m.{e.op.replace('.', '_')}({', '.join(arguments)})")

    def _require_warp(self, line: int, mask: ir.Expr | None, frame: Frame) -> None:
        """Emit the check that the threads of a warp that a mask names are here, and that it names those that are."""
        stated = "None" if mask is None or _names_all(mask) else self.value(mask, frame)
        self.emit(f"require_warp({frame.lanes}, {line}, {stated})")

    def atomic(self, e: ir.Atomic, frame: Frame, *, used: bool) -> str:
        """Return the text of a call that performs an atomic operation."""
        values = [self.value(value, frame) for value in e.values]
        indices = [self.value(index, frame) for index in e.indices]
        arguments = f"{frame.lanes}, {e.line}, {e.op!r}, [{', '.join(values)}], {used}, {', '.join(indices)}"
        return f"a_{e.array}.atomic({arguments}{', of_block=True' if e.of_block else ''})"

    def _index(self, e: ir.Index, frame: Frame) -> str:
        if e.what in ("thread", "block"):
            return f"{frame.lanes}.{e.what}({e.axis})"
        which = "block" if e.what == "block_size" else "grid"
        return f"np.int32({frame.lanes}.chunk.{which}[{e.axis}])"

    def _binary(self, e: ir.Binary, frame: Frame) -> str:
        axis = global_index(e)
        if axis is not None:
            wide = ", np.int64" if e.type is not None and e.type.bits == 64 else ""
            return f"{frame.lanes}.globally({axis}{wide})"
        left, right = self.value(e.left, frame), self.value(e.right, frame)
        if e.op in FUNCTIONS:
            return f"{FUNCTIONS[e.op]}({left}, {right})"
        assert e.op in _OPERATORS  # noqa: S101  the parser accepts no other
        return f"({left} {e.op} {right})"

    def _logic(self, e: ir.Logic, frame: Frame) -> str:
        if not self.varies(e):
            if not _needs_statements(e.right):
                return f"({self.value(e.left, frame)} {e.op} {self.value(e.right, frame)})"
            result = self._new_name("t")
            self.emit(f"{result} = {self.value(e.left, frame)}")
            self.emit(f"if {result}:" if e.op == "and" else f"if not {result}:")
            self._assign(result, e.right, frame)
            return result
        if not _is_guarded(e.right):
            return f"({self.value(e.left, frame)} {'&' if e.op == 'and' else '|'} {self.value(e.right, frame)})"
        # Only the threads for which the left operand does not decide evaluate the right one.
        result, yes, no = self._new_name("t"), self._new_name("yes"), self._new_name("no")
        self.emit(f"{result} = {self.value(e.left, frame)}")
        self.emit(f"{yes}, {no} = {self.branch(frame, result)}")
        self._put_for(result, yes if e.op == "and" else no, e.right, frame, BOOL)
        return result

    def _select(self, e: ir.Select, frame: Frame) -> str:
        assert e.type is not None  # noqa: S101  type inference has set it
        condition = self.value(e.condition, frame)
        if not self.varies(e.condition):
            result = self._new_name("t")
            self.emit(f"if {condition}:")
            self._assign(result, e.yes, frame)
            self.emit("else:")
            self._assign(result, e.no, frame)
            return result
        if not _is_guarded(e.yes) and not _is_guarded(e.no):
            return f"select_values({condition}, {self.value(e.yes, frame)}, {self.value(e.no, frame)})"
        result, yes, no = self._new_name("t"), self._new_name("yes"), self._new_name("no")
        self.emit(f"{result} = {self._constant(e.type.dtype.type(0))}")
        self.emit(f"{yes}, {no} = {self.branch(frame, condition)}")
        for side, value in ((yes, e.yes), (no, e.no)):
            self._put_for(result, side, value, frame, e.type)
        return result

    def _assign(self, result: str, value: ir.Expr, frame: Frame) -> None:
        self.depth += 1
        self.emit(f"{result} = {self.value(value, frame)}")
        self.depth -= 1

    def _put_for(self, result: str, side: str, value: ir.Expr, frame: Frame, kind: Scalar) -> None:
        """Emit the evaluation of an expression for some of the threads into ``result``."""
        self.emit(f"if {side} is not None:")
        self.depth += 1
        selection, inner = self._new_name("some"), Frame(self._new_name("lanes"))
        self.emit(f"{selection}, {inner.lanes} = {side}")
        used = {e.name for e in ir.inside(value) if isinstance(e, ir.Variable)} & self.varying
        for name in sorted(used):
            inner.names[name] = self._new_name(f"v_{name}")
            self.emit(f"{inner.names[name]} = take({self._name(frame, name)}, {selection}, {inner.lanes})")
        text = self.value(value, inner)
        self.emit(f"{result} = put({result}, {selection}, {text}, {frame.lanes}.size, {self._dtype(kind)})")
        self.depth -= 1

    # Text.

    def _name(self, frame: Frame, name: str) -> str:
        """Return the name under which the threads of a frame hold a variable."""
        if name in self.varying and name in frame.names:
            return frame.names[name]
        return f"v_{name}"


def _is_partial_warp_barrier(statement: ir.Stmt) -> bool:
    """Return whether part of a warp synchronises without the rest. Lockstep counts barriers of whole warps only."""
    if not isinstance(statement, ir.Barrier) or statement.mask is None:
        return False
    return not _names_all(statement.mask)


def _names_all(mask: ir.Expr) -> bool:
    """Return whether a mask certainly names all lanes of a warp."""
    mask = mask.operand if isinstance(mask, ir.Convert) else mask
    return isinstance(mask, ir.Literal) and int(mask.value) & 0xFFFFFFFF == 0xFFFFFFFF


def _synchronises_warp(node: ir.Stmt | ir.Expr) -> bool:
    """Return whether threads of a warp wait for each other in a statement or an expression."""
    if isinstance(node, ir.Stmt):
        is_barrier = isinstance(node, ir.Barrier) and node.scope == "warp"
        return is_barrier or any(map(_synchronises_warp, ir.expressions(node)))
    return isinstance(node, ir.Warp) and node.op not in ("lane", "warp_size", "active")


def _is_guarded(e: ir.Expr) -> bool:
    """Return whether threads that do not need an expression must not evaluate it."""
    return any(isinstance(inner, (ir.Load, ir.Atomic, ir.Warp)) or _is_checked(inner) for inner in ir.inside(e))


def _needs_statements(e: ir.Expr) -> bool:
    """Return whether statements must be emitted before an expression."""
    kinds = (ir.Load, ir.Atomic, ir.Warp, ir.Logic, ir.Select)
    return any(isinstance(inner, kinds) or _is_checked(inner) for inner in ir.inside(e))


def _is_checked(e: ir.Expr) -> bool:
    """Return whether it is a variable that may be unassigned."""
    return isinstance(e, ir.Variable) and e.given is not None
