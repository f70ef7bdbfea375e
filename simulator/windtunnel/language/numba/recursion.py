"""Device functions that call themselves, as a loop with a stack.

The tree of a kernel has no calls: functions are inlined. One that calls itself is read once. Its statements are divided
into blocks that end with a jump, a branch, a call or a return, and a loop executes one block after another. A call puts
the block that follows and the variables that are still needed on a stack, which is a local array.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

from windtunnel.language import ir
from windtunnel.language.numba.arithmetic import converted
from windtunnel.language.numba.reader import Frame, Reader
from windtunnel.language.numba.statements import StatementReader
from windtunnel.language.numba.values import Num, Value, literal
from windtunnel.language.source import Source
from windtunnel.language.types import BOOL, I32, I64, Array

DEPTH: Final = 64
"""The deepest recursion. CUDA's default stack, of 1 KiB a thread, holds about as many frames of small functions."""


@dataclass(eq=False)
class Call(ir.Stmt):
    """A call of the function by itself: ``target`` becomes its result. It exists only until `blocks_of`."""

    target: str
    arguments: Sequence[ir.Expr]


@dataclass
class Recursion:
    """A function that is being read and calls itself.

    ``parameters`` and ``result`` are variables, ``key`` is that of the result's type, and ``calls`` counts the calls
    that were read.
    """

    parameters: Sequence[str]
    result: Num
    key: tuple[Any, ...]
    calls: int = 0
    before_return: int = 0
    """The calls that were read before the return that is being read."""


@dataclass
class _Block:
    """Statements, and where they lead: one block, two by a condition, a call and the block after it, or a return."""

    body: list[ir.Stmt] = field(default_factory=list)
    condition: ir.Expr | None = None
    call: Call | None = None
    next: list[int] = field(default_factory=list)
    line: int = 0


class _Blocks:
    """Divides statements into blocks."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.blocks: list[_Block] = []

    def new(self, line: int) -> int:
        self.blocks.append(_Block(line=line))
        return len(self.blocks) - 1

    def add(self, body: Sequence[ir.Stmt], at: int, loop: tuple[int, int] | None) -> int | None:
        """Add statements to a block; return the block at their end, or None if it cannot be reached.

        ``loop``: the blocks to which ``continue`` and ``break`` lead.
        """
        here: int | None = at
        for statement in body:
            if here is None:
                return None
            here = self._statement(statement, here, loop)
        return here

    def _statement(self, statement: ir.Stmt, here: int, loop: tuple[int, int] | None) -> int | None:
        block, line = self.blocks[here], statement.line
        match statement:
            case Call():
                block.call = statement
                block.next = [self.new(line)]
                return block.next[0]
            case ir.Return():
                return None
            case ir.Break() | ir.Continue() if loop is not None:
                block.next = [loop[isinstance(statement, ir.Break)]]
                return None
            case ir.If(body=body, orelse=orelse) if _leaves(statement):
                sides = [self.new(line), self.new(line)]
                block.condition, block.next = statement.condition, sides
                ends = [self.add(side, at, loop) for side, at in zip((body, orelse), sides, strict=True)]
                reached = [end for end in ends if end is not None]
                if not reached:
                    return None
                after = self.new(line)
                for end in reached:
                    self.blocks[end].next = [after]
                return after
            case ir.While(body=body) if _leaves(statement):
                return self._loop(line, here, statement.condition, body, [])
            case ir.For() if _leaves(statement):
                return self._for(statement, here)
            case _:
                block.body.append(statement)
                return here

    def _loop(self, line: int, here: int, condition: ir.Expr, body: Sequence[ir.Stmt], latch: Sequence[ir.Stmt]) -> int:
        head, inside, step, after = (self.new(line) for _ in range(4))
        self.blocks[here].next = [head]
        self.blocks[head].condition, self.blocks[head].next = condition, [inside, after]
        self.blocks[step].body, self.blocks[step].next = list(latch), [head]
        end = self.add(body, inside, (step, after))
        if end is not None:
            self.blocks[end].next = [step]
        return after

    def _for(self, loop: ir.For, here: int) -> int:
        line, reader = loop.line, self.reader
        kind = reader.variables[loop.name]
        counter, stop, step = (reader.variable(stem, kind) for stem in ("counter", "stop", "step"))
        for name, e in ((counter, loop.start), (stop, loop.stop), (step, loop.step)):
            self.blocks[here].body.append(ir.Assign(line, name, converted(e, kind)))

        def compared(op: str) -> ir.Expr:
            return ir.Binary(line, op, reader.read(line, counter), reader.read(line, stop), type=BOOL)

        rises = ir.Binary(line, ">", reader.read(line, step), literal(line, 0, kind), type=BOOL)
        condition = ir.Select(line, rises, compared("<"), compared(">"), type=BOOL)
        following = ir.Binary(line, "+", reader.read(line, counter), reader.read(line, step), type=kind)
        begin = ir.Assign(line, loop.name, reader.read(line, counter))
        return self._loop(line, here, condition, [begin, *loop.body], [ir.Assign(line, counter, following)])


def _leaves(statement: ir.Stmt) -> bool:
    """Return whether a statement holds a call, a return, or a jump of a loop around it."""
    if any(isinstance(inner, (Call, ir.Return)) for inner in ir.walk([statement])):
        return True
    return _jumps([statement])


def _jumps(body: Sequence[ir.Stmt]) -> bool:
    return any(
        isinstance(one, (ir.Break, ir.Continue))
        or (isinstance(one, ir.If) and (_jumps(one.body) or _jumps(one.orelse)))
        for one in body
    )


def _reads(statements: Sequence[ir.Stmt]) -> set[str]:
    found: set[str] = set()
    for statement in ir.walk(statements):
        expressions = [*ir.expressions(statement)]
        if isinstance(statement, Call):
            expressions += statement.arguments
        for e in expressions:
            found |= {inner.name for inner in ir.inside(e) if isinstance(inner, ir.Variable)}
    return found


def _needed_after_calls(blocks: Sequence[_Block], own: set[str]) -> list[str]:
    """Return the function's variables that are read after some call before they are assigned again."""
    live: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(blocks))):
            block = blocks[number]
            now: set[str] = set().union(*(live[at] for at in block.next)) if block.next else set()
            if block.call is not None:
                now = (now - {block.call.target}) | _reads([block.call])
            if block.condition is not None:
                now |= {e.name for e in ir.inside(block.condition) if isinstance(e, ir.Variable)}
            for statement in reversed(block.body):
                if isinstance(statement, ir.Assign):
                    now = now - {statement.name}
                now |= _reads([statement])
            if now != live[number]:
                live[number], changed = now, True
    needed: set[str] = set()
    for block in blocks:
        if block.call is not None:
            needed |= live[block.next[0]] - {block.call.target}
    return sorted(needed & own)


def emit(reader: Reader, name: str, recursion: Recursion, body: Sequence[ir.Stmt], line: int, others: set[str]) -> None:
    """Emit the loop that executes a function that calls itself. ``others`` are the variables around it."""
    divided = _Blocks(reader)
    divided.add(body, divided.new(line), None)
    blocks = divided.blocks
    saved = _needed_after_calls(blocks, set(reader.variables) - others)
    place, depth = reader.variable("place", I32), reader.variable("depth", I32)
    stacks: dict[str, str] = {}
    for one in (place, *saved):
        stack = reader.fresh(f"stack_of_{name}_{one}")
        reader.spellings[stack] = f"the stack of {name}"
        kind = reader.variables[one]
        reader.declared[stack] = ir.Declare(line, stack, "local", (DEPTH,), kind)
        reader.arrays[stack] = Array(kind, 1)
        stacks[one] = stack

    def at(to: int) -> ir.Stmt:
        return ir.Assign(line, place, literal(line, to, I32))

    def moved(by: int) -> ir.Stmt:
        return ir.Assign(line, depth, ir.Binary(line, "+", reader.read(line, depth), literal(line, by, I32), type=I32))

    def emitted(block: _Block) -> list[ir.Stmt]:
        made = list(block.body)
        if block.call is not None:
            for one in saved:
                value = ir.Variable(line, one, type=reader.variables[one], copied=True)
                made.append(ir.Store(block.line, stacks[one], [reader.read(line, depth)], value))
            made.append(
                ir.Store(block.line, stacks[place], [reader.read(line, depth)], literal(line, block.next[0], I32))
            )
            held: list[ir.Expr] = []
            for parameter, argument in zip(recursion.parameters, block.call.arguments, strict=True):
                kind = reader.variables[parameter]
                variable = reader.variable("argument", kind)
                made.append(ir.Assign(block.line, variable, converted(argument, kind)))
                held.append(reader.read(block.line, variable))
            made += [ir.Assign(line, p, e) for p, e in zip(recursion.parameters, held, strict=True)]
            return [*made, moved(1), at(0)]
        if block.condition is not None:
            yes, no = block.next
            return [*made, ir.If(block.line, block.condition, [at(yes)], [at(no)])]
        if block.next:
            return [*made, at(block.next[0])]
        leave = ir.Binary(line, "==", reader.read(line, depth), literal(line, 0, I32), type=BOOL)
        made += [ir.If(line, leave, [ir.Break(line)], []), moved(-1)]
        for one in (place, *saved):
            loaded = ir.Load(line, stacks[one], [reader.read(line, depth)], type=reader.variables[one])
            loaded.copied = one != place
            made.append(ir.Assign(line, one, loaded))
        return made

    for block in blocks:
        if block.call is not None:
            got = ir.Assign(block.line, block.call.target, copy(recursion.result.expr))
            blocks[block.next[0]].body.insert(0, got)
    chain: list[ir.Stmt] = []
    for number, block in reversed(list(enumerate(blocks))):
        here = ir.Binary(line, "==", reader.read(line, place), literal(line, number, I32), type=BOOL)
        chain = [ir.If(line, here, emitted(block), chain)]
    reader.emit(at(0))
    reader.emit(ir.Assign(line, depth, literal(line, 0, I32)))
    reader.emit(ir.While(line, literal(line, True, BOOL), chain))


def calls_itself(frame: Frame, function: Any) -> bool:
    """Return whether a function calls itself by its own name."""
    for node in ast.walk(frame.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = frame.source.environment.get(node.func.id)
            if called is not None and getattr(called, "py_func", called) is function:
                return True
    return False


class RecursiveReader(StatementReader):
    """Reads functions that call themselves."""

    def __init__(self, source: Source, known: dict[tuple[Any, ...], Value]) -> None:
        super().__init__(source, known)
        self.recursions: dict[Any, Recursion] = {}
        """The functions that are being read and call themselves."""

    def recursive(self, node: ast.Call, function: Any, frame: Frame) -> Value | None:
        """Return the value of a call of a function that calls itself; None for another function."""
        active = self.recursions.get(function)
        if active is not None:
            active.calls += 1
            target = self.variable("returned", active.result.type)
            arguments = [self.num(node, value).expr for value in frame.env.values()]
            self.emit(Call(node.lineno, target, arguments))
            return Num(self.read(node.lineno, target))
        if not isinstance(frame.tree, ast.FunctionDef) or not calls_itself(frame, function):
            return None
        line, name = node.lineno, getattr(frame.tree, "name", "a function")
        before = set(self.variables)
        variables: list[str] = []
        for key, value in frame.env.items():
            given = self.num(node, value)
            variables.append(self.variable(key, given.type))
            self.emit(ir.Assign(line, variables[-1], given.expr))
            frame.env[key] = Num(self.read(line, variables[-1]))
        path = (*frame.path, "recursive")
        known = self.known.get(path)
        kind = known.type if isinstance(known, Num) else I64
        held = self.variable("result", kind)
        result = Num(self.read(line, held))
        recursion = self.recursions[function] = Recursion(variables, result, path)
        outer, self.frame = self.frame, frame
        frame.recursion = recursion
        body = self.body(frame.tree.body)
        self.frame, self.dead = outer, False
        del self.recursions[function]
        if path not in self.known:
            self.refuse(node, f"cannot type infer runaway recursion of '{name}'", "a return that does not call it")
        emit(self, name, recursion, body, line, before)
        return Num(self.read(line, held))

    def _return(self, node: ast.Return, value: ast.expr | None) -> None:
        recursion = self.frame.recursion
        if recursion is not None:
            recursion.before_return = recursion.calls
        super()._return(node, value)

    def _result(self, node: ast.AST, made: Value) -> None:
        recursion = self.frame.recursion
        if recursion is None:
            super()._result(node, made)
            return
        made_type = self.slot_type(made)
        if not isinstance(made_type, Num):
            self.refuse(node, "Return type of recursive function does not converge: it is no number", "a number")
        # What the function returns of itself has a type only when another return has shown it.
        if recursion.calls == recursion.before_return or recursion.key in self.known:
            self._learn(recursion.key, made_type)
        self.assign_slot(node.lineno, recursion.result, made)  # type: ignore[attr-defined]
