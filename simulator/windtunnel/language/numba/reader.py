"""The state of reading a Numba kernel: emitted statements, variables and their versions, and values on several paths.

As in Numba, every assignment makes a new version of a variable, with the type of its value. Where paths join, versions
that differ are unified. A loop's versions at its head have a type that the whole loop decides, so a kernel is read
again until no such type changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from windtunnel.language import ir
from windtunnel.language.numba import rules, several
from windtunnel.language.numba.arithmetic import UNSIGNED, as_type, converted, moved, number, number_of
from windtunnel.language.numba.values import (
    Const,
    Cplx,
    Dim,
    Maybe,
    Num,
    Records,
    Tup,
    Unusable,
    Value,
    View,
    is_none,
    literal,
    same_object,
)
from windtunnel.language.source import Source
from windtunnel.language.types import BOOL, I32, I64, Array, Scalar

Environment = dict[str, Value]


class NeedsFlat(Exception):
    """An array must be seen as one of one dimension with strides, of integers of the type ``unit`` if it is given."""

    def __init__(self, name: str, unit: str = "") -> None:
        super().__init__(name)
        self.name, self.unit = name, unit


@dataclass
class Loop:
    """A loop that is being read.

    ``heads`` are the versions of its variables at its head, ``broke`` the variable that records a ``break``.
    """

    key: tuple[Any, ...]
    heads: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Value] = field(default_factory=dict)
    """Variables that are None or another object before it, and that it assigns."""
    wanted: set[str] = field(default_factory=set)
    """Variables that only the loop assigns and something after it reads."""
    broke: str | None = None
    unrolled: bool = False


@dataclass
class Frame:
    """A function that is being read."""

    source: Source
    tree: ast.FunctionDef | ast.Lambda
    env: Environment
    path: tuple[Any, ...]
    depth: int = 0
    outer: Frame | None = None
    """The frame of the function around a function that is defined in a kernel."""
    loops: list[Loop] = field(default_factory=list)
    returns: list[Value] = field(default_factory=list)
    result: Value | None = None
    """The variables of the result, if there are several returns."""
    recursion: Any = None
    """What is known of a function that calls itself (`recursion.Recursion`)."""
    single: bool = False
    """Whether the only return is the last statement."""


class Reader:
    """The state of reading one kernel."""

    def __init__(self, source: Source, known: dict[tuple[Any, ...], Value]) -> None:
        self.source = source
        self.known = known
        """The types of versions at the heads of loops and of results, as of the last time the kernel was read."""
        self.changed = False
        self.blocks: list[list[ir.Stmt]] = [[]]
        self.names: set[str] = set()
        self.spellings: dict[str, str] = {}
        """The names in the source of the versions of variables."""
        self.variables: dict[str, Scalar] = {}
        self.arrays: dict[str, Array] = {}
        self.declared: dict[str, ir.Declare] = {}
        self.captured: dict[str, Any] = {}
        """Arrays from outside the kernel, which become further parameters."""
        self.helpers: dict[Any, ir.Helper] = {}
        self.errors: list[tuple[Any, ...]] = []
        """What ``raise`` and ``assert`` state, by their number from 1."""
        self.debug = False
        self.fastmath = False
        self.strict = False
        """Whether an index beyond a slice that is within its array is a finding."""
        self.cooperative = False
        """Whether the kernel uses the group of the whole grid."""
        self.changing: set[str] = set()
        """Variables that are assigned several times: versions where paths join, and counters of loops."""
        self.nonnegative: set[str] = set()
        """Variables that are certainly at least 0, so that an index by one does not wrap around."""
        self.hopeful: dict[str, tuple[Any, ...]] = {}
        """Variables at the heads of loops that are taken to be at least 0 until an assignment shows otherwise."""
        self.negative: set[tuple[Any, ...]] = set()
        """The keys of those that are not, as of the last time the kernel was read."""
        self.frame = Frame(source, source.tree, {}, ())
        self.undefined: set[tuple[Any, ...]] = set()
        """Variables that are read before any path assigns them, as of the last time the kernel was read."""
        self.flattened: dict[str, str] = {}
        """Arrays that are kept as one dimension with strides, and the bytes of what they consist of; 0 for elements."""
        self.dead = False
        """Whether the statement that is being read cannot be reached."""

    # Errors and places.

    def refuse(self, node: ast.AST, problem: str, expected: str | None = None) -> NoReturn:
        """Raise KernelError at a node."""
        raise self.frame.source.error(node, problem, expected=expected)

    # Statements and variables.

    def emit(self, statement: ir.Stmt) -> None:
        """Append a statement to the block that is being read."""
        self.blocks[-1].append(statement)

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem)
        name, count = stem, 0
        while name in self.names:
            count += 1
            name = f"{stem}_{count}"
        self.names.add(name)
        self.spellings[name] = stem
        return name

    def variable(self, stem: str, kind: Scalar) -> str:
        """Return a new variable."""
        name = self.fresh(stem)
        self.variables[name] = kind
        return name

    def read(self, line: int, name: str) -> ir.Variable:
        """Return the value of a variable."""
        return ir.Variable(line, name, type=self.variables[name])

    def hold(self, e: ir.Expr, stem: str = "held") -> ir.Expr:
        """Assign a value that is used several times to a variable, unless it is as simple as one."""
        if isinstance(e, (ir.Literal, ir.Variable, ir.Index, ir.Size)):
            return copy(e)
        assert e.type is not None  # noqa: S101  the front end types every expression
        name = self.variable(stem, e.type)
        self.emit(ir.Assign(e.line, name, e))
        if self.is_nonnegative(e):
            self.nonnegative.add(name)
        return self.read(e.line, name)

    def stored(self, value: Value, stem: str) -> Value:
        """Return a value whose numbers are evaluated now, in variables."""
        match value:
            case Num(expr=expr, unit=unit):
                return Num(self.hold_always(expr, stem), unit)
            case Cplx(re=re, im=im, type=kind):
                return Cplx(self.hold_always(re, f"{stem}_re"), self.hold_always(im, f"{stem}_im"), kind)
            case Maybe(has=has):
                made = self.slot(stem, value)
                self.assign_slot(has.line, made, value)
                return made
            case Tup(items=items, names=names):
                return Tup(tuple(self.stored(item, f"{stem}_{number}") for number, item in enumerate(items)), names)
            case View(dims=dims, origin=origin) if dims:
                # A slice stays where it is when the variables that its bounds came from change.
                kept = tuple(Dim(dim.axis, self._fixed(dim.size), self._fixed_or_none(dim.step)) for dim in dims)
                origin = tuple(map(self._fixed_or_none, origin))
                return replace(value, dims=kept, origin=origin, which=self._fixed_or_none(value.which))
            case _:
                return value

    def _fixed(self, e: ir.Expr) -> ir.Expr:
        """Return a bound of a slice, in a variable that no later statement assigns."""
        changes = any(isinstance(part, ir.Variable) and part.name in self.changing for part in ir.inside(e))
        return self.hold_always(copy(e), "bound") if changes else e

    def _fixed_or_none(self, e: ir.Expr | None) -> ir.Expr | None:
        return None if e is None else self._fixed(e)

    def hold_always(self, e: ir.Expr, stem: str) -> ir.Expr:
        """Assign a value to a new variable, and return it."""
        assert e.type is not None  # noqa: S101  the front end types every expression
        name = self.variable(stem, e.type)
        self.emit(ir.Assign(e.line, name, e))
        if self.is_nonnegative(e):
            self.nonnegative.add(name)
        return self.read(e.line, name)

    def is_nonnegative(self, e: ir.Expr) -> bool:
        """Return whether an integer is certainly at least 0."""
        match e:
            case ir.Literal(value=value):
                return value >= 0
            case ir.Index() | ir.Size():
                return True
            case ir.Variable(name=name):
                return name in self.nonnegative or self.variables[name].kind in ("uint", "bool")
            case ir.Convert(operand=operand):
                if operand.type is not None and operand.type.kind == "uint":
                    return operand.type.bits < (e.type.bits if e.type else 0) or (
                        e.type is not None and e.type.kind == "uint"
                    )
                return self.is_nonnegative(operand)
            case ir.Binary(op=op, left=left, right=right) if op in ("+", "*", "//", ">>", "<<"):
                return self.is_nonnegative(left) and self.is_nonnegative(right)
            case ir.Binary(op="%", right=right) | ir.Binary(op="&", right=right):
                return self.is_nonnegative(right)
            case ir.Warp(op=op):
                return op in ("lane", "warp_size")
            case _:
                return e.type is not None and e.type.kind in ("uint", "bool")

    # Values.

    def numeric(self, node: ast.AST, value: Value) -> Num | Cplx:
        """Return a value as a number; KernelError if it is none."""
        if isinstance(value, (Num, Cplx)):
            return value
        if isinstance(value, Maybe):
            return value.number
        if isinstance(value, Unusable):
            self.refuse(node, value.problem, "one type on every path")
        if isinstance(value, View) and not value.dims:
            return self.load(node, value)
        if isinstance(value, Const):
            made = number_of(node.lineno, value.value)  # type: ignore[attr-defined]
            if made is not None:
                return made
        self.refuse(node, f"{value.description} where a number is expected", "a number")

    def num(self, node: ast.AST, value: Value) -> Num:
        """Return a value as a real number."""
        made = self.numeric(node, value)
        if isinstance(made, Cplx):
            self.refuse(node, "a complex number here", "a real number: z.real, z.imag or abs(z)")
        return made

    def integer(self, node: ast.AST, value: Value) -> ir.Expr:
        """Return a value as an expression of an integer type."""
        made = self.num(node, value)
        if not rules.is_integer(made.type):
            self.refuse(node, f"{rules.name_of(made.type)} where an integer is expected", "an integer: int(x)")
        return converted(made.expr, I64) if made.type == BOOL else made.expr

    def load(self, node: ast.AST, value: View) -> Num | Cplx:
        """Return the element that a view without dimensions is."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if value.others:
            found = self.of_each(node, value, lambda one: self.load(node, one))
            assert isinstance(found, (Num, Cplx))  # noqa: S101  each is a number
            return found
        if value.text:
            self.refuse(node, "text as a value", "an assignment of a constant to an element")
        if isinstance(value.element, rules.Complex):
            re, im = (self.numeric(node, self.part_of(line, value, number)) for number in (0, 1))
            assert isinstance(re, Num)  # noqa: S101  parts are real numbers
            assert isinstance(im, Num)  # noqa: S101
            return Cplx(self.hold(re.expr), self.hold(im.expr), value.element)
        indices = [literal(line, 0) if start is None else copy(start) for start in value.origin]
        storage = self.arrays[value.base].element
        if storage == value.element:
            return Num(ir.Load(line, value.base, indices, type=storage), value.unit)
        return Num(self._joined(line, value.base, indices, storage, value.element), value.unit)

    def of_each(self, node: ast.AST, where: View, use: Callable[[View], Value | None]) -> Value | None:
        """Emit what is done with an element of one of several arrays, under a condition for each; return its value."""
        line: int = node.lineno  # type: ignore[attr-defined]
        held = replace(where, origin=tuple(None if s is None else self.hold(s, "index") for s in where.origin))
        values, blocks = [], []
        for base in several.bases(held):
            self.blocks.append([])
            values.append(use(replace(held, base=base, others=(), which=None)))
            blocks.append(self.blocks.pop())
        slot = None if values[0] is None else self.slot("item", values[0])
        for value, block in zip(values, blocks, strict=True):
            if slot is not None and value is not None:
                self.blocks.append(block)
                self.assign_slot(line, slot, value)
                self.blocks.pop()
        rest = blocks.pop()
        for at in reversed(range(len(blocks))):
            rest = [ir.If(line, several.is_number(line, held, at), blocks[at], rest)]
        for statement in rest:
            self.emit(statement)
        return None if slot is None else self.at(line, slot)

    def holds_parts(self, view: View) -> bool:
        """Return whether a view of complex numbers is of memory of single numbers, in which the parts alternate."""
        return self.arrays[view.base].dimensions == len(view.origin)

    def part_of(self, line: int, view: View, number: int) -> View:
        """Return the real (0) or the imaginary part (1) of complex numbers."""
        assert isinstance(view.element, rules.Complex)  # noqa: S101  it has parts
        part, origin = view.element.part, view.origin
        if not self.holds_parts(view):
            return replace(view, element=part, origin=(*origin, literal(line, number)))
        by = literal(line, number * (part.bits // self.arrays[view.base].element.bits))
        *first, last = origin
        if number:
            last = by if last is None else ir.Binary(line, "+", converted(copy(last), I64), by, type=I64)
        return replace(view, element=part, origin=(*first, last))

    def _joined(self, line: int, base: str, indices: list[ir.Expr], storage: Scalar, element: Scalar) -> ir.Expr:
        """Return an element of another type than the memory has: its bits, from one or several elements there."""
        if element.bits == storage.bits:
            return as_type(ir.Load(line, base, indices, type=storage), element)
        held = [self.hold(index, "index") for index in indices]
        whole: ir.Expr | None = None
        for at in range(element.bits // storage.bits):
            loaded = as_type(ir.Load(line, base, moved(held, at), type=storage), UNSIGNED[storage.bits])
            part = self.hold_always(converted(loaded, UNSIGNED[element.bits]), "part")
            if whole is None:
                whole = part
                continue
            shift = literal(line, at * storage.bits, UNSIGNED[element.bits])
            shifted = ir.Binary(line, "<<", part, shift, type=UNSIGNED[element.bits])
            whole = ir.Binary(line, "|", whole, shifted, type=UNSIGNED[element.bits])
        assert whole is not None  # noqa: S101  an element has at least one part
        return as_type(whole, element)

    def split(self, line: int, base: str, indices: list[ir.Expr], stored: ir.Expr, element: Scalar) -> None:
        """Store an element of another type than the memory has."""
        storage = self.arrays[base].element
        if element.bits == storage.bits:
            self.emit(ir.Store(line, base, indices, as_type(stored, storage)))
            return
        held = [self.hold(index, "index") for index in indices]
        wide = UNSIGNED[element.bits]
        whole = self.hold(as_type(stored, wide), "whole")
        for at in range(element.bits // storage.bits):
            part: ir.Expr = copy(whole)
            if at:
                part = ir.Binary(line, ">>", part, literal(line, at * storage.bits, wide), type=wide)
            self.emit(ir.Store(line, base, moved(held, at), as_type(converted(part, UNSIGNED[storage.bits]), storage)))

    # Values on several paths.

    def unify(self, a: Value, b: Value) -> Value:
        """Return what a variable is that has one of two values: its numbers' expressions mean types only."""
        if a is b:
            return a
        if isinstance(a, Const) and isinstance(b, Const) and same_object(a.value, b.value):
            return a
        line = 0
        one, other = (
            number_of(line, v.value) if isinstance(v, Const) else v if isinstance(v, (Num, Cplx)) else None
            for v in (a, b)
        )
        if one is not None and other is not None:
            kind = rules.unified(one.type, other.type)
            return number(one, kind)
        maybe = self._maybe(a, b)
        if maybe is not None:
            return maybe
        if isinstance(a, Tup) and isinstance(b, Tup) and len(a.items) == len(b.items):
            return Tup(tuple(self.unify(x, y) for x, y in zip(a.items, b.items, strict=True)), a.names)
        both = self._one_view(a, b) if isinstance(a, View) and isinstance(b, View) else None
        if both is not None:
            return both
        return Unusable(f"a variable that is {a.description} on one path and {b.description} on another")

    def _one_view(self, a: View, b: View) -> View | None:
        """Return the type of a variable that is one of two arrays; None if they have no common type."""
        if several.same_form(a, b):
            return a if a.contiguous == b.contiguous else replace(a, contiguous=False)
        self._flatten_one(a, b)
        return several.together(a, b) if self._memory(a) == self._memory(b) else None

    def _maybe(self, a: Value, b: Value) -> Maybe | None:
        """Return the type of a variable that is None on one path and a number on another; None if it is not one."""
        if not any(isinstance(value, Maybe) or is_none(value) for value in (a, b)):
            return None
        given = [value.number if isinstance(value, Maybe) else value for value in (a, b) if not is_none(value)]
        both = given[0] if len(given) == 1 else self.unify(*given)
        made = number_of(0, both.value) if isinstance(both, Const) else both
        return Maybe(literal(0, False, BOOL), made) if isinstance(made, (Num, Cplx)) else None

    def _flatten_one(self, a: View, b: View) -> None:
        """Ask for an array of one dimension, if two views can only then be in one variable: ``a`` and ``b[0]``."""
        forms = [([dim.axis for dim in view.dims], len(view.origin)) for view in (a, b)]
        if len(a.dims) != len(b.dims) or a.element != b.element or forms[0] == forms[1]:
            return
        for view in (a, b):
            for base in several.bases(view):
                if len(view.origin) > 1 and base not in self.flattened and base not in self.captured:
                    raise NeedsFlat(base)

    def _memory(self, view: View) -> set[tuple[Scalar, int]]:
        return {(self.arrays[base].element, self.arrays[base].dimensions) for base in several.bases(view)}

    def same_type(self, a: Value, b: Value) -> bool:
        """Return whether two values have one type."""
        if isinstance(a, (Num, Cplx)) and isinstance(b, (Num, Cplx)):
            return a.type == b.type
        if isinstance(a, Tup) and isinstance(b, Tup):
            return len(a.items) == len(b.items) and all(map(self.same_type, a.items, b.items))
        if isinstance(a, View) and isinstance(b, View):
            return several.same_form(a, b)
        if isinstance(a, Maybe) and isinstance(b, Maybe):
            return a.number.type == b.number.type
        return type(a) is type(b)

    def slot_type(self, value: Value) -> Value | None:
        """Return a value whose type a variable can have; None for what is no variable, such as a function."""
        match value:
            case Const(value=known):
                return number_of(0, known)
            case Num() | Cplx() | View() | Maybe():
                return value
            case Tup(items=items, names=names):
                inner = [self.slot_type(item) for item in items]
                return None if None in inner else Tup(tuple(item for item in inner if item is not None), names)
            case _:
                return None

    def slot(self, name: str, like: Value) -> Value:
        """Return new variables for a value of a type."""
        match like:
            case Const(value=value):
                made = number_of(0, value)
                return like if made is None else self.slot(name, made)
            case Num(unit=unit):
                return Num(self.read(0, self._slot_variable(name, like.type)), unit)
            case Cplx(type=kind):
                parts = [self.read(0, self.variable(f"{name}_{part}", kind.part)) for part in ("re", "im")]
                return Cplx(parts[0], parts[1], kind)
            case Maybe(number=inner):
                has = self.read(0, self._slot_variable(f"{name}_has", BOOL))
                return Maybe(has, self.slot(name, inner))  # type: ignore[arg-type]  # of a number
            case Tup(items=items, names=names):
                return Tup(tuple(self.slot(f"{name}_{at}", item) for at, item in enumerate(items)), names)
            case View():

                def new(stem: str) -> ir.Expr:
                    return self.read(0, self._slot_variable(f"{name}_{stem}", I64))

                def kept(part: ir.Expr | None, stem: str) -> ir.Expr | None:
                    return None if part is None and like.others else new(stem)

                origin = tuple(kept(start, "start") for start in like.origin)
                dims = tuple(Dim(dim.axis, new("size"), kept(dim.step, "step")) for dim in like.dims)
                for dim in dims:
                    assert isinstance(dim.size, ir.Variable)  # noqa: S101  it is a new variable
                    self.nonnegative.add(dim.size.name)
                which = self.read(0, self._slot_variable(f"{name}_which", I32)) if like.others else None
                return replace(like, dims=dims, origin=origin, which=which)
            case _:
                return like

    def _slot_variable(self, name: str, kind: Scalar) -> str:
        made = self.variable(name, kind)
        self.changing.add(made)
        return made

    def assign_slot(self, line: int, slot: Value, value: Value) -> None:
        """Emit the assignment of a value to the variables of a slot."""
        match slot:
            case Num(expr=ir.Variable(name=name)):
                made = number_of(line, value.value) if isinstance(value, Const) else value
                if isinstance(made, Num):
                    self._set(line, name, converted(made.expr, slot.type))
                elif isinstance(made, Cplx):
                    self._set(line, name, converted(made.re, slot.type))
            case Cplx(re=ir.Variable(name=re), im=ir.Variable(name=im)):
                made = number_of(line, value.value) if isinstance(value, Const) else value
                if isinstance(made, (Num, Cplx)):
                    both = number(made, slot.type)
                    assert isinstance(both, Cplx)  # noqa: S101  it was converted to complex
                    parts = [self.hold(both.re), self.hold(both.im)]
                    self._set(line, re, parts[0])
                    self._set(line, im, parts[1])
            case Maybe(has=ir.Variable(name=name), number=numeric):
                known = value.has if isinstance(value, Maybe) else literal(line, not is_none(value), BOOL)
                self._set(line, name, known)
                if not is_none(value):
                    self.assign_slot(line, numeric, value.number if isinstance(value, Maybe) else value)
            case Tup(items=items) if isinstance(value, Tup):
                for inner, item in zip(items, value.items, strict=False):
                    self.assign_slot(line, inner, item)
            case View() if isinstance(value, View):
                if isinstance(slot.which, ir.Variable):
                    self._set(line, slot.which.name, several.place(line, slot, value))
                for target, start in zip(slot.origin, value.origin, strict=True):
                    self._to(line, target, start, 0)
                for dim, given in zip(slot.dims, value.dims, strict=True):
                    self._to(line, dim.size, given.size, 0)
                    self._to(line, dim.step, given.step, 1)

    def _to(self, line: int, target: ir.Expr | None, given: ir.Expr | None, default: int) -> None:
        if isinstance(target, ir.Variable):
            self._set(line, target.name, literal(line, default) if given is None else converted(copy(given), I64))

    def _set(self, line: int, name: str, e: ir.Expr) -> None:
        if not (isinstance(e, ir.Variable) and e.name == name):
            self.emit(ir.Assign(line, name, _version(e)))
        key = self.hopeful.get(name)
        if key is not None and key not in self.negative and not self.is_nonnegative(e):
            self.negative.add(key)
            self.changed = True

    def undefined_key(self, name: str) -> tuple[Any, ...]:
        """Return the key of the type of a variable that is read before any path assigns it."""
        return (*self.frame.path, "undefined", name)

    def hope(self, key: tuple[Any, ...], slot: Value) -> None:
        """Take an integer at the head of a loop to be at least 0 until an assignment shows otherwise."""
        if (
            isinstance(slot, Num)
            and isinstance(slot.expr, ir.Variable)
            and slot.type.kind == "int"
            and key not in self.negative
        ):
            self.nonnegative.add(slot.expr.name)
            self.hopeful[slot.expr.name] = key

    def at(self, line: int, value: Value) -> Value:
        """Return a value that is read from its variables at a line."""
        match value:
            case Num(expr=ir.Variable(name=name), unit=unit):
                return Num(self.read(line, name), unit)
            case Cplx(re=ir.Variable(name=re), im=ir.Variable(name=im), type=kind):
                return Cplx(self.read(line, re), self.read(line, im), kind)
            case Maybe(has=ir.Variable(name=name), number=inner):
                return Maybe(self.read(line, name), self.at(line, inner))  # type: ignore[arg-type]  # of a number
            case Tup(items=items, names=names):
                return Tup(tuple(self.at(line, item) for item in items), names)
            case _:
                return value

    def _known_nonnegative(self, value: Value) -> bool:
        made = number_of(0, value.value) if isinstance(value, Const) else value
        return isinstance(made, Num) and rules.is_integer(made.type) and self.is_nonnegative(made.expr)

    def merge(self, line: int, sides: Sequence[tuple[Environment, list[ir.Stmt]]]) -> Environment:
        """Return the variables after paths that join, and emit at their ends what makes them the same."""
        (first, first_block), (second, second_block) = sides
        joined: Environment = {}
        for name in [*first, *(other for other in second if other not in first)]:
            a, b = first.get(name), second.get(name)
            if a is None or b is None:
                known, block = (a, first_block) if b is None else (b, second_block)
                assert known is not None  # noqa: S101  one of the two has it
                if isinstance(known, Const) and number_of(0, known.value) is not None:
                    slot = self.slot(name, known)
                    self.blocks.append(block)
                    self.assign_slot(line, slot, known)
                    self.blocks.pop()
                    known = slot
                joined[name] = known
                continue
            both = self.unify(a, b)
            if both is a and (both is b or isinstance(both, Const)):
                joined[name] = a
                continue
            if isinstance(both, (Unusable, Records)):
                joined[name] = both
                continue
            slot = self.slot(name, both)
            for value, block in ((a, first_block), (b, second_block)):
                self.blocks.append(block)
                self.assign_slot(line, slot, value)
                self.blocks.pop()
            if (
                isinstance(slot, Num)
                and isinstance(slot.expr, ir.Variable)
                and all(map(self._known_nonnegative, (a, b)))
            ):
                self.nonnegative.add(slot.expr.name)
            joined[name] = slot
        return joined


def _version(e: ir.Expr) -> ir.Expr:
    """Return a variable's version, which another one copies whether or not it is assigned."""
    if isinstance(e, ir.Variable):
        return ir.Variable(e.line, e.name, type=e.type, copied=True)
    if isinstance(e, ir.Convert) and isinstance(e.operand, (ir.Variable, ir.Convert)):
        return ir.Convert(e.line, e.to, _version(e.operand), type=e.type)
    return e
