"""Access footprints: which elements of its arrays a launch reads and writes, as far as they can be determined.

For a kernel written thread by thread, the typed tree states which arrays it accesses. Where work of another stream may
access the same memory, the accesses are recorded element by element while the kernel executes, because two streams may
work on two halves of one buffer. For a function of whole arrays, the source states the accesses where it uses its
parameters plainly (``c[...] = a + b``). Accesses that cannot be determined are ignored: a finding is certain, but its
absence is not.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from windtunnel.emulator.common.symbolic import AffinePositions, Position
from windtunnel.emulator.races.findings import ATOMIC, READ, WRITE
from windtunnel.language import ir
from windtunnel.language.source import UNKNOWN, KernelError, Source, source_of


@dataclass(slots=True, eq=False)
class Extent:
    """Bytes of a memory allocation.

    Attributes:
        first: The first byte.
        end: The byte after the last.
        mask: Flags of the accessed elements between the two; None for all.
        itemsize: Bytes of an element of ``mask``.
        partial: Whether the extent stands for an unknown part of these bytes.
    """

    first: int
    end: int
    mask: np.ndarray | None = None
    itemsize: int = 1
    partial: bool = False

    def overlaps(self, other: Extent) -> bool:
        """Return whether two extents certainly share a byte."""
        if self.partial or other.partial:
            # Any part of the allocation overlaps with all of it.
            part, complete = (self, other) if self.partial else (other, self)
            contains = complete.first <= part.first and complete.end >= part.end
            return not complete.partial and complete.mask is None and contains
        first, end = max(self.first, other.first), min(self.end, other.end)
        if first >= end:
            return False
        flags, other_flags = self.flags(first, end), other.flags(first, end)
        if flags is None or other_flags is None:
            known = other_flags if flags is None else flags
            return known is None or bool(known.any())
        return bool((flags & other_flags).any())

    def flags(self, first: int, end: int) -> np.ndarray | None:
        """Return a flag for each byte from ``first`` to ``end`` whether it is accessed; None if all are."""
        if self.mask is None:
            return None
        flags = self.mask if self.itemsize == 1 else np.repeat(self.mask, self.itemsize)
        return flags[first - self.first : end - self.first]

    def covers(self, other: Extent) -> bool:
        """Return whether the extent contains another, so that everything that overlaps the other overlaps it."""
        if self is other:
            return True
        if self.first > other.first or self.end < other.end:
            return False
        if self.partial or other.partial or self.mask is None:
            return self.mask is None and (not self.partial or other.partial)
        flags, other_flags = self.flags(other.first, other.end), other.flags(other.first, other.end)
        missing = np.zeros(0, bool) if flags is None else ~flags if other_flags is None else other_flags & ~flags
        return not missing.any()


def extent_of(mask: np.ndarray, itemsize: int) -> Extent | None:
    """Return the extent of the marked elements of ``itemsize`` bytes; None if none is marked."""
    if not mask.any():
        return None
    first, end = int(mask.argmax()), mask.size - int(mask[::-1].argmax())
    inner = None if mask[first:end].all() else mask[first:end].copy()
    return Extent(first * itemsize, end * itemsize, inner, itemsize)


def extent_within(root: np.ndarray, array: np.ndarray) -> Extent:
    """Return where the elements of an array lie in the memory of the array that owns it."""
    first: int = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return Extent(first, first + array.nbytes)
    # Mark one flag for each byte, by an array of the same strides.
    flags = np.zeros(root.nbytes, np.uint8)
    element: Any = np.dtype((np.void, array.itemsize))
    np.ndarray(array.shape, element, flags, first, array.strides)[...] = np.void(b"\1" * array.itemsize)
    return extent_of(flags, 1) or Extent(first, first)


class FootprintRecorder:
    """Records which of ``size`` elements of an array the threads read, write and atomically change."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marks: dict[str, np.ndarray] = {}
        """Flags by kind of access; shape (size,)."""

    def mark(self, kind: str, position: Position) -> None:
        """Record an access of elements."""
        flags = self.marks.get(kind)
        if flags is None:
            flags = self.marks[kind] = np.zeros(self.size, bool)
        if isinstance(position, AffinePositions):
            position.put(flags, True)
        else:
            flags[position] = True


_ACCESS_KINDS: WeakKeyDictionary[ir.Program, Mapping[str, tuple[str, ...]]] = WeakKeyDictionary()


def access_kinds(program: ir.Program) -> Mapping[str, tuple[str, ...]]:
    """Return how a kernel written thread by thread accesses each of its arrays, by the array's name."""
    cached = _ACCESS_KINDS.get(program)
    if cached is None:
        kinds: dict[str, dict[str, None]] = {}
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Store):
                kinds.setdefault(statement.array, {})[WRITE] = None
            for expression in ir.expressions(statement):
                if isinstance(expression, ir.Load):
                    kinds.setdefault(expression.array, {})[READ] = None
                elif isinstance(expression, ir.Atomic):
                    kinds.setdefault(expression.array, {})[READ if expression.op == "load" else ATOMIC] = None
        cached = _ACCESS_KINDS[program] = {name: tuple(of_array) for name, of_array in kinds.items()}
    return cached


# Functions of whole arrays.


class Share(IntEnum):
    """How much of an array is accessed."""

    NONE = 0
    ALL = 1
    PART = 2
    UNKNOWN = 3


@dataclass(slots=True)
class ParameterUse:
    """How much of a parameter a function of whole arrays reads and writes."""

    reads: Share = Share.NONE
    writes: Share = Share.NONE

    def add(self, other: ParameterUse) -> None:
        """Add another use of the same parameter."""
        self.reads, self.writes = _larger(self.reads, other.reads), _larger(self.writes, other.writes)


def _larger(a: Share, b: Share) -> Share:
    return a if b == Share.NONE else b if a == Share.NONE else min(a, b)


UNCLEAR = ParameterUse(Share.PART, Share.UNKNOWN)
"""The use of a parameter about which the source does not say enough."""
_UNUSED = ParameterUse()
_METADATA = frozenset({"shape", "size", "dtype", "ndim", "nbytes", "itemsize", "strides"})
_READING_METHODS = frozenset(
    {"sum", "mean", "max", "min", "any", "all", "astype", "copy", "dot", "cumsum", "prod", "std", "var", "argmax",
     "argmin", "clip", "round", "take", "repeat", "tolist", "item", "conj", "trace", "nonzero"}
)  # fmt: skip
_VIEW_METHODS = frozenset({"reshape", "ravel", "view", "transpose", "squeeze", "swapaxes"})
_READING_FUNCTIONS = (
    *(np.where, np.sum, np.dot, np.roll, np.mean, np.max, np.min, np.cumsum, np.clip, np.concatenate, np.sort, np.pad),
    *(np.stack, np.tile, np.outer, np.einsum, np.prod, np.var, np.std, np.argsort, np.bincount, np.linalg.norm, np.any),
    *(np.all, np.round, np.repeat, np.tensordot, np.convolve, np.float32, np.float64, float, int, bool, sum, max, min),
    *(abs, np.array, np.interp, np.searchsorted, np.histogram, np.zeros_like, np.empty_like, np.ones_like),
)
"""Functions that only read their positional arguments and return a new value."""


@cache
def parameter_uses(function: Callable[..., Any]) -> tuple[ParameterUse, ...] | None:
    """Return how a function of whole arrays uses each of its parameters, by position; None if it has no source."""
    try:
        source = source_of(function)
    except KernelError:
        return None
    arguments = source.tree.args
    uses = {argument.arg: ParameterUse() for argument in (*arguments.posonlyargs, *arguments.args)}
    parents = {child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id in uses:
            uses[node.id].add(_use_of_name(source, parents, node))
    return tuple(uses.values())


def _use_of_name(source: Source, parents: Mapping[ast.AST, ast.AST], name: ast.Name) -> ParameterUse:
    """Return what one mention of a parameter does with it."""
    if not isinstance(name.ctx, ast.Load):
        # `a += b` changes the array; `a = ...` binds the name to another value.
        return ParameterUse(Share.ALL, Share.ALL) if isinstance(parents[name], ast.AugAssign) else UNCLEAR
    node: ast.AST = name
    share = Share.ALL
    while True:
        parent = parents[node]
        if isinstance(parent, ast.Subscript) and parent.value is node:
            share = share if _is_everything(parent.slice) else Share.PART
            if isinstance(parent.ctx, ast.Store):
                is_read = isinstance(parents[parent], ast.AugAssign)
                return ParameterUse(share if is_read else Share.NONE, share)
            node = parent
        elif isinstance(parent, ast.Attribute):
            view = _view_by_attribute(parents, parent)
            if view is None:
                return _use_of_attribute(parents, parent, share)
            node = view
        else:
            return _use_in(source, parents, parent, node, share)


def _view_by_attribute(parents: Mapping[ast.AST, ast.AST], attribute: ast.Attribute) -> ast.AST | None:
    """Return the node that is a view of the array (``a.T``, ``a.reshape(...)``); None if the attribute is no view."""
    call = parents[attribute]
    if isinstance(call, ast.Call) and call.func is attribute:
        return call if attribute.attr in _VIEW_METHODS else None
    return attribute if attribute.attr == "T" else None


def _use_of_attribute(parents: Mapping[ast.AST, ast.AST], attribute: ast.Attribute, share: Share) -> ParameterUse:
    if attribute.attr in _METADATA:
        return _UNUSED
    call = parents[attribute]
    if isinstance(call, ast.Call) and call.func is attribute and attribute.attr in _READING_METHODS:
        return UNCLEAR if call.keywords else ParameterUse(share, Share.NONE)
    return UNCLEAR


def _use_in(
    source: Source, parents: Mapping[ast.AST, ast.AST], parent: ast.AST, node: ast.AST, share: Share
) -> ParameterUse:
    """Return what the expression or statement ``parent`` does with the array ``node``."""
    read = ParameterUse(share, Share.NONE)
    if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Subscript)):
        return read
    if isinstance(parent, ast.Assign) and all(isinstance(target, ast.Subscript) for target in parent.targets):
        return read
    if isinstance(parent, ast.Expr):
        return _UNUSED
    if isinstance(parent, ast.Call):
        return _use_as_argument(source.static(parent.func), parent, node, share)
    if isinstance(parent, ast.keyword) and parent.arg == "out":
        call = parents[parent]
        is_ufunc = isinstance(call, ast.Call) and isinstance(source.static(call.func), np.ufunc)
        return ParameterUse(Share.NONE, share) if is_ufunc else UNCLEAR
    return UNCLEAR


def _use_as_argument(function: Any, call: ast.Call, node: ast.AST, share: Share) -> ParameterUse:
    """Return what a function does with an argument that is given by position."""
    if function is UNKNOWN or node not in call.args or any(isinstance(a, ast.Starred) for a in call.args):
        return UNCLEAR
    if function is len:
        return _UNUSED
    read = ParameterUse(share, Share.NONE)
    if isinstance(function, np.ufunc):
        return read if call.args.index(node) < function.nin else ParameterUse(Share.NONE, share)
    return read if any(function is known for known in _READING_FUNCTIONS) else UNCLEAR


def _is_everything(index: ast.expr) -> bool:
    """Return whether an index selects the whole array: ``...``, ``:``, ``:, :``."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        (isinstance(part, ast.Constant) and part.value is ...)
        or (isinstance(part, ast.Slice) and part.lower is None and part.upper is None and part.step is None)
        for part in parts
    )
