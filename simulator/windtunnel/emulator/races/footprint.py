"""What a launch reads and writes: of which arrays, and as far as it can be told, of which elements.

A kernel that is written thread by thread says it in its tree; where work of another stream may meet it, its accesses
are noted element by element as it is executed, since two streams may well work on the two halves of one buffer. A
function of whole arrays says it in its source, where it uses its parameters plainly (``c[...] = a + b``); what it does
otherwise is told by comparing its arrays before and after. What cannot be told is taken not to have happened: a finding
is certain, its absence is not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.emulator.lockstep.arrays import Global, Launch, Position
from windtunnel.emulator.lockstep.forms import Pattern
from windtunnel.emulator.lockstep.lanes import Lanes, Value
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE
from windtunnel.language import ir
from windtunnel.language.source import UNKNOWN, KernelError, Source, source_of

if TYPE_CHECKING:
    from windtunnel.emulator.device.handles import EmulatedMemory


@dataclass(slots=True, eq=False)
class Extent:
    """Bytes ``first`` to ``end`` (not included) of a piece of memory.

    ``mask``: only those elements of them, of ``itemsize`` bytes each. ``some``: a part of them that is not known.
    """

    first: int
    end: int
    mask: np.ndarray | None = None
    itemsize: int = 1
    some: bool = False

    def meets(self, other: Extent) -> bool:
        """Whether they surely share a byte."""
        if self.some or other.some:
            # Some part of the memory, and all of it.
            known = other if self.some else self
            return not known.some and known.mask is None and self._holds(known, other)
        first, end = max(self.first, other.first), min(self.end, other.end)
        if first >= end:
            return False
        one, two = self.flags(first, end), other.flags(first, end)
        if one is None or two is None:
            rest = two if one is None else one
            return rest is None or bool(rest.any())
        return bool((one & two).any())

    def _holds(self, known: Extent, other: Extent) -> bool:
        part = self if self.some else other
        return known.first <= part.first and known.end >= part.end

    def flags(self, first: int, end: int) -> np.ndarray | None:
        """Of some of its bytes, which are meant; None where all are."""
        if self.mask is None:
            return None
        flags = self.mask if self.itemsize == 1 else np.repeat(self.mask, self.itemsize)
        return flags[first - self.first : end - self.first]

    def covers(self, other: Extent) -> bool:
        """Whether it has all of another, so that what meets the other meets it."""
        if self is other:
            return True
        if self.first > other.first or self.end < other.end:
            return False
        if self.some or other.some or self.mask is None:
            return self.mask is None and (not self.some or other.some)
        mine, theirs = self.flags(other.first, other.end), other.flags(other.first, other.end)
        return mine is not None and theirs is not None and not (theirs & ~mine).any()


def extent_of(mask: np.ndarray, itemsize: int) -> Extent | None:
    """The extent of the elements that are marked; None where none is."""
    if not mask.any():
        return None
    first, end = int(mask.argmax()), mask.size - int(mask[::-1].argmax())
    inner = None if mask[first:end].all() else mask[first:end].copy()
    return Extent(first * itemsize, end * itemsize, inner, itemsize)


class Trace:
    """Which elements of an array threads read, write and atomically change: a flag each."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marks: dict[str, np.ndarray] = {}

    def mark(self, how: str, position: Position) -> None:
        """Elements are touched."""
        found = self.marks.get(how)
        if found is None:
            found = self.marks[how] = np.zeros(self.size, bool)
        if isinstance(position, Pattern):
            position.put(found, True)
        else:
            found[position] = True


class Traced(Global):
    """An array in the device's memory whose accesses are noted."""

    def __init__(self, launch: Launch, name: str, shape: Sequence[int], flat: np.ndarray, trace: Trace) -> None:
        super().__init__(launch, name, shape, flat)
        self.trace = trace

    def load(self, lanes: Lanes, line: int, *indices: Value) -> Value:
        """See ``Memory``."""
        self._note(READ, lanes, line, indices)
        return super().load(lanes, line, *indices)

    def store(self, lanes: Lanes, line: int, value: Value, *indices: Value) -> None:
        """See ``Memory``."""
        self._note(WRITE, lanes, line, indices)
        super().store(lanes, line, value, *indices)

    def atomic(self, lanes: Lanes, line: int, op: str, values: Sequence[Value], used: bool, *indices: Value) -> Value:
        """See ``Memory``."""
        self._note(ATOMIC, lanes, line, indices)
        return super().atomic(lanes, line, op, values, used, *indices)

    def _note(self, how: str, lanes: Lanes, line: int, indices: Sequence[Value]) -> None:
        self.trace.mark(how, self.position(lanes, line, indices))


Touched = Sequence[tuple["EmulatedMemory", str, Extent]]
"""Pieces of memory, each with how it is touched, and where."""


class Touching:
    """One launch: made before it is executed, asked once, after.

    ``memories``: of each argument, None for numbers. ``program``: of a kernel written thread by thread. ``close``: of a
    piece of memory, whether it is worth knowing which elements are touched: others may touch it at the same time.
    """

    __slots__ = ("_copies", "_found", "_traced", "traces")

    def __init__(
        self,
        function: Callable[..., Any],
        program: ir.Program | None,
        memories: Sequence[EmulatedMemory | None],
        given: Sequence[Any],
        close: Callable[[EmulatedMemory], bool],
    ) -> None:
        self.traces: list[Trace | None] = []
        """For ``Executable.launch``: of each argument, what is to be noted; empty where nothing is."""
        self._found: list[tuple[EmulatedMemory, str, Extent]] = []
        self._traced: dict[EmulatedMemory, tuple[Trace, int]] = {}
        self._copies: dict[EmulatedMemory, tuple[np.ndarray, int]] = {}
        if program is not None:
            self._by_thread(program, memories, given, close)
        else:
            self._by_source(function, memories, given, close)

    def _by_thread(
        self,
        program: ir.Program,
        memories: Sequence[EmulatedMemory | None],
        given: Sequence[Any],
        close: Callable[[EmulatedMemory], bool],
    ) -> None:
        how = accesses(program)
        self.traces = [None] * len(memories)
        for place, (parameter, memory) in enumerate(zip(program.parameters, memories, strict=True)):
            if memory is None:
                continue
            if close(memory):
                trace, _ = self._traced.setdefault(memory, (Trace(given[place].size), given[place].itemsize))
                self.traces[place] = trace
            else:
                self._found += [(memory, one, _some(memory)) for one in how.get(parameter.name, ())]

    def _by_source(
        self,
        function: Callable[..., Any],
        memories: Sequence[EmulatedMemory | None],
        given: Sequence[Any],
        close: Callable[[EmulatedMemory], bool],
    ) -> None:
        uses = uses_of(function)
        for place, memory in enumerate(memories):
            if memory is None:
                continue
            use = uses[place] if uses is not None and place < len(uses) else _UNCLEAR
            if use.reads:
                self._found.append((memory, READ, whole(memory) if use.reads == _ALL else _some(memory)))
            if use.writes == _ALL:
                self._found.append((memory, WRITE, whole(memory)))
            elif use.writes and close(memory):
                self._copies[memory] = memory.data.copy(), given[place].itemsize
            elif use.writes == _PART:
                self._found.append((memory, WRITE, _some(memory)))

    def found(self) -> Touched:
        """What it has touched."""
        found = self._found
        for memory, (trace, itemsize) in self._traced.items():
            for how, mask in trace.marks.items():
                extent = extent_of(mask, itemsize)
                if extent is not None:
                    found.append((memory, how, extent))
        for memory, (before, itemsize) in self._copies.items():
            extent = extent_of(_elements(memory.data, itemsize) != _elements(before, itemsize), itemsize)
            if extent is not None:
                found.append((memory, WRITE, extent))
        return found


def _elements(data: np.ndarray, itemsize: int) -> np.ndarray:
    """Bytes as elements that can be compared: a NaN is itself."""
    found: np.ndarray = data.view(f"u{itemsize}" if itemsize in (1, 2, 4, 8) else np.dtype((np.void, itemsize)))
    return found


def whole(memory: EmulatedMemory) -> Extent:
    """All of a piece of memory."""
    if memory.whole is None:
        memory.whole = Extent(0, memory.size)
    return memory.whole


def _some(memory: EmulatedMemory) -> Extent:
    return Extent(0, memory.size, some=True)


_ACCESSES: WeakKeyDictionary[ir.Program, Mapping[str, tuple[str, ...]]] = WeakKeyDictionary()


def accesses(program: ir.Program) -> Mapping[str, tuple[str, ...]]:
    """How a kernel written thread by thread touches each of its arrays, by the array's name."""
    found = _ACCESSES.get(program)
    if found is None:
        each: dict[str, dict[str, None]] = {}
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Store):
                each.setdefault(statement.array, {})[WRITE] = None
            for expression in ir.expressions(statement):
                if isinstance(expression, ir.Load):
                    each.setdefault(expression.array, {})[READ] = None
                elif isinstance(expression, ir.Atomic):
                    each.setdefault(expression.array, {})[ATOMIC] = None
        found = _ACCESSES[program] = {name: tuple(how) for name, how in each.items()}
    return found


# Functions of whole arrays.

_NONE, _ALL, _PART, _PERHAPS = 0, 1, 2, 3


@dataclass(slots=True)
class Use:
    """What a function of whole arrays does with a parameter: nothing, with all of it, with a part, or perhaps."""

    reads: int = _NONE
    writes: int = _NONE

    def add(self, reads: int, writes: int) -> None:
        """It does this, too."""
        self.reads, self.writes = _more(self.reads, reads), _more(self.writes, writes)


def _more(one: int, other: int) -> int:
    return one if other == _NONE else other if one == _NONE else min(one, other)


_UNCLEAR = Use(_PART, _PERHAPS)
_PLAIN = frozenset({"shape", "size", "dtype", "ndim", "nbytes", "itemsize", "strides"})
_READS = frozenset(
    {"sum", "mean", "max", "min", "any", "all", "astype", "copy", "dot", "cumsum", "prod", "std", "var", "argmax",
     "argmin", "clip", "round", "take", "repeat", "tolist", "item", "conj", "trace", "nonzero"}
)  # fmt: skip
_VIEWS = frozenset({"reshape", "ravel", "view", "transpose", "squeeze", "swapaxes"})
_FUNCTIONS = (
    *(np.where, np.sum, np.dot, np.roll, np.mean, np.max, np.min, np.cumsum, np.clip, np.concatenate, np.sort, np.pad),
    *(np.stack, np.tile, np.outer, np.einsum, np.prod, np.var, np.std, np.argsort, np.bincount, np.linalg.norm, np.any),
    *(np.all, np.round, np.repeat, np.tensordot, np.convolve, np.float32, np.float64, float, int, bool, sum, max, min),
    *(abs, np.array, np.interp, np.searchsorted, np.histogram, np.zeros_like, np.empty_like, np.ones_like),
)
"""Functions that only read what they are given by position, and give something new."""


@cache
def uses_of(function: Callable[..., Any]) -> Sequence[Use] | None:
    """What a function of whole arrays does with each of its parameters, by position; None where it has no source."""
    try:
        source = source_of(function)
    except KernelError:
        return None
    arguments = source.tree.args
    found = {one.arg: Use() for one in (*arguments.posonlyargs, *arguments.args)}
    parents = {child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id in found:
            found[node.id].add(*_use(source, parents, node))
    return tuple(found.values())


def _use(source: Source, parents: Mapping[ast.AST, ast.AST], name: ast.Name) -> tuple[int, int]:
    """(reads, writes) of one mention of a parameter."""
    unclear = _UNCLEAR.reads, _UNCLEAR.writes
    above = parents[name]
    if not isinstance(name.ctx, ast.Load):
        # `a += b` changes the array; `a = ...` takes the name away from it.
        return (_ALL, _ALL) if isinstance(above, ast.AugAssign) else unclear
    node: ast.AST = name
    how = _ALL
    while True:
        above = parents[node]
        if isinstance(above, ast.Subscript) and above.value is node:
            how = how if _everything(above.slice) else _PART
            if isinstance(above.ctx, ast.Store):
                return (how if isinstance(parents[above], ast.AugAssign) else _NONE), how
            node = above
            continue
        if isinstance(above, ast.Attribute):
            if above.attr in _PLAIN:
                return _NONE, _NONE
            call = parents[above]
            if isinstance(call, ast.Call) and call.func is above:
                if above.attr in _READS and not call.keywords:
                    return how, _NONE
                if above.attr in _VIEWS:
                    node = call
                    continue
            elif above.attr == "T":
                node = above
                continue
            return unclear
        break
    if isinstance(above, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Subscript)):
        return how, _NONE
    if isinstance(above, ast.Assign) and all(isinstance(target, ast.Subscript) for target in above.targets):
        return how, _NONE
    if isinstance(above, ast.Expr):
        return _NONE, _NONE
    if isinstance(above, ast.Call):
        return _given(source.static(above.func), above, node, how)
    if isinstance(above, ast.keyword) and above.arg == "out":
        call = parents[above]
        known = isinstance(call, ast.Call) and isinstance(source.static(call.func), np.ufunc)
        return (_NONE, how) if known else unclear
    return unclear


def _given(function: Any, call: ast.Call, node: ast.AST, how: int) -> tuple[int, int]:
    """(reads, writes) of what is given to a function by position."""
    unclear = _UNCLEAR.reads, _UNCLEAR.writes
    if function is UNKNOWN or node not in call.args or any(isinstance(one, ast.Starred) for one in call.args):
        return unclear
    if function is len:
        return _NONE, _NONE
    if isinstance(function, np.ufunc):
        return (how, _NONE) if call.args.index(node) < function.nin else (_NONE, how)
    return (how, _NONE) if any(function is one for one in _FUNCTIONS) else unclear


def _everything(index: ast.expr) -> bool:
    """Whether an index takes a whole array: ``...``, ``:``, ``:, :``."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(one, ast.Constant) and one.value is ...)
        or (isinstance(one, ast.Slice) and one.lower is None and one.upper is None and one.step is None)
        for one in parts
    )
