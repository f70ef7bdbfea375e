"""What expressions of a Numba kernel stand for while it is read: numbers, tuples, arrays, records and known objects.

Only numbers exist while a kernel runs. A tuple is its items, a slice is the array it was cut from with other indices,
and a complex number is a pair of floats, so that the tree holds numbers and elements of arrays alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windtunnel.language import ir
from windtunnel.language.numba.rules import Complex, Number, name_of
from windtunnel.language.types import I64, Scalar
from windtunnel.language.words import many


class Value:
    """A value of an expression."""

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Num(Value):
    """A number: a typed expression. ``unit`` is that of a date or a duration, as NumPy writes its type."""

    expr: ir.Expr
    unit: str = ""

    @property
    def type(self) -> Scalar:
        """Its type."""
        assert self.expr.type is not None  # noqa: S101  the front end types every expression
        return self.expr.type

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"a number ({name_of(self.type)})"


@dataclass(frozen=True, eq=False)
class Cplx(Value):
    """A complex number: two floats."""

    re: ir.Expr
    im: ir.Expr
    type: Complex

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return "a complex number"


@dataclass(frozen=True, eq=False)
class Maybe(Value):
    """A variable that is None on one path and a number on another: ``has`` says whether it is a number."""

    has: ir.Expr
    number: Num | Cplx

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"{self.number.description} or None"


@dataclass(frozen=True, eq=False)
class Tup(Value):
    """A tuple; ``names`` are those of a named one."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"a tuple of {len(self.items)}"


@dataclass(frozen=True, eq=False)
class Const(Value):
    """A Python object that is known before the kernel runs: a number, a type, a function, a module, a string."""

    value: Any

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"{self.value!r}"


@dataclass(frozen=True, eq=False)
class Closure(Value):
    """A function defined within a kernel, or a lambda; ``scope`` is the function around it."""

    node: Any
    scope: Any

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return "a function"


@dataclass(frozen=True)
class Dim:
    """A dimension of a view: which dimension of the array it goes along, in which steps, and its length."""

    axis: int
    size: ir.Expr
    step: ir.Expr | None = None
    """None for 1."""


@dataclass(frozen=True, eq=False)
class View(Value):
    """An array, a slice of one, or one element of it (without dimensions).

    ``base`` is the array of the tree and ``origin`` the index of the view's first element along each of its dimensions;
    None stands for 0. For complex elements ``base`` has a last dimension of 2 more.
    """

    base: str
    element: Number
    dims: tuple[Dim, ...]
    origin: tuple[ir.Expr | None, ...]
    space: str = "global"
    unit: str = ""
    writable: bool = True
    text: int = 0
    """The characters of an element that is text; ``base`` then has a last dimension of that length more."""
    contiguous: bool = False
    """Whether its elements are known to lie one after another, the last dimension's first."""
    others: tuple[str, ...] = ()
    """Further arrays of the tree that it may belong to instead of ``base``, if the kernel chooses while it runs."""
    which: ir.Expr | None = None
    """The number of the array that it belongs to, if there are others: 0 for ``base``."""

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"an array of {many(len(self.dims), 'dimension')}"

    @property
    def whole(self) -> bool:
        """Whether it is the array itself."""
        return all(start is None for start in self.origin) and all(
            dim.axis == number and dim.step is None for number, dim in enumerate(self.dims)
        )

    def with_dims(self, dims: tuple[Dim, ...], origin: tuple[ir.Expr | None, ...]) -> View:
        """Return a part of it."""
        return replace(self, dims=dims, origin=origin, contiguous=False)


@dataclass(frozen=True, eq=False)
class Records(Value):
    """An array of records, or one record (without dimensions): an array for each field."""

    fields: Mapping[str, Value]
    """A `View`, or `Records` for a field that is a record."""
    dims: tuple[Dim, ...] = field(default=())
    misaligned: Mapping[str, str] = field(default_factory=dict)
    """The types of the fields that do not lie at a multiple of their size."""

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return "a record" if not self.dims else "an array of records"


@dataclass(frozen=True, eq=False)
class Generated(Value):
    """What a loop iterates over: ``kind`` is range, enumerate, zip or ndindex."""

    kind: str
    items: tuple[Value, ...]

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return self.kind


@dataclass(frozen=True, eq=False)
class Method(Value):
    """An attribute of a value that is called: ``array.reshape``, ``z.conjugate``."""

    owner: Value
    name: str
    overload: Any = None
    """What chooses its code, if `numba.extending.overload_method` registered it."""

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return f"the method {self.name}"


@dataclass(frozen=True, eq=False)
class Unusable(Value):
    """A variable whose values on two paths have no common type; reading it is an error."""

    problem: str

    @property
    def description(self) -> str:
        """What it is, in words of messages."""
        return self.problem


def is_none(value: Value) -> bool:
    """Return whether a value is None of Python."""
    return isinstance(value, Const) and value.value is None


def same_object(a: Any, b: Any) -> bool:
    """Return whether two objects from outside are one: equal numbers of one type, or the same object."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, (bool, int, float, str, complex)):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def literal(line: int, value: float | bool, kind: Scalar = I64) -> ir.Literal:
    """Return a typed literal."""
    return ir.Literal(line, value, type=kind)


def memory_of(value: Value) -> str:
    """Return whether a value ``reads`` memory or ``changes`` it when it is evaluated; nothing otherwise."""
    match value:
        case View(dims=()):
            return "reads"
        case Num(expr=expr):
            parts: tuple[ir.Expr, ...] = (expr,)
        case Cplx(re=re, im=im):
            parts = (re, im)
        case Tup(items=items):
            found = {memory_of(item) for item in items}
            return "changes" if "changes" in found else "reads" if "reads" in found else ""
        case _:
            return ""
    inner = [e for part in parts for e in ir.inside(part)]
    if any(isinstance(e, (ir.Atomic, ir.Warp)) and getattr(e, "op", "") not in ("lane", "warp_size") for e in inner):
        return "changes"
    return "reads" if any(isinstance(e, ir.Load) for e in inner) else ""


def changes(body: Sequence[ir.Stmt]) -> bool:
    """Return whether statements change memory, or wait for threads that may."""
    return any(
        isinstance(statement, (ir.Store, ir.Barrier))
        or any(isinstance(e, (ir.Atomic, ir.Warp)) for e in ir.expressions(statement))
        for statement in ir.walk(body)
    )
