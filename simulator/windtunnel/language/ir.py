"""What a kernel is to its compilers: a tree of few forms, each with its line, every expression with its type.

`parse` makes it from a Python function, `infer` writes the types in. All names are resolved, calls of device functions
are put in their place, chained comparisons and augmented assignments are taken apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from windtunnel.core.stencil import StencilForm
from windtunnel.language.types import Array, Scalar, Type


@dataclass(eq=False)
class Expr:
    """An expression. ``type`` is written by inference; None until then, or where a literal has none of its own."""

    line: int
    type: Scalar | None = field(default=None, kw_only=True)

    def children(self) -> Iterator[Expr]:
        """The expressions in it."""
        # In the order of the fields; asking dataclasses for them takes a quarter of a long transpilation.
        for value in vars(self).values():
            if isinstance(value, Expr):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (item for item in value if isinstance(item, Expr))


@dataclass(eq=False)
class Literal(Expr):
    """A number as the source has it; typed by what it meets."""

    value: int | float | bool


@dataclass(eq=False)
class Variable(Expr):
    """A local variable, or a scalar parameter.

    ``given``: the flag variable that records whether it is assigned (`definite_assignment.insert_checks`).
    """

    name: str
    given: Variable | None = field(default=None, kw_only=True)


@dataclass(eq=False)
class Index(Expr):
    """An index of a thread: ``what`` is one of thread, block, block_size, grid_size; ``axis`` 0 to 2."""

    what: str
    axis: int


@dataclass(eq=False)
class Size(Expr):
    """The length of an array's side; below 0, counted from the last, until inference counts it from the first.

    ``total``: the number of elements, which inference makes of the sides where there are several.
    """

    array: str
    side: int
    total: bool = False


@dataclass(eq=False)
class Load(Expr):
    """An element of an array."""

    array: str
    indices: Sequence[Expr]


@dataclass(eq=False)
class Binary(Expr):
    """``op``: + - * / // % ** << >> & | ^ min max, or a comparison < <= > >= == !=.

    ``minimum`` and ``maximum`` are NumPy's, whose value is NaN where either is: inference takes them apart.
    """

    op: str
    left: Expr
    right: Expr


@dataclass(eq=False)
class Unary(Expr):
    """``op``: - + ~ not abs."""

    op: str
    operand: Expr


@dataclass(eq=False)
class Logic(Expr):
    """``and`` or ``or``; the right side is evaluated only where the left does not decide."""

    op: str
    left: Expr
    right: Expr


@dataclass(eq=False)
class Select(Expr):
    """``a if c else b``; only the chosen side is evaluated."""

    condition: Expr
    yes: Expr
    no: Expr


@dataclass(eq=False)
class Convert(Expr):
    """A conversion to ``to``.

    ``keeps``: to its like of 64 bits where the operand has 64 (a whole number of any kind, a float of a float), as
    Python's own conversions lose nothing; inference writes which it is into ``to``.
    """

    to: Scalar
    operand: Expr
    keeps: bool = False


@dataclass(eq=False)
class Call(Expr):
    """A function of numbers: ``op`` is ``math.sqrt``, ``bits.popc``, ``fma``, ``round.tf32`` ..."""

    op: str
    arguments: Sequence[Expr]


@dataclass(eq=False)
class Warp(Expr):
    """What a warp's threads exchange: ``op`` is ``shuffle.down``, ``vote.any``, ``lane``, ``warp_size`` ..."""

    op: str
    arguments: Sequence[Expr]


@dataclass(eq=False)
class Atomic(Expr):
    """An atomic operation on an element; its value is what was there before."""

    op: str
    array: str
    indices: Sequence[Expr]
    values: Sequence[Expr]


@dataclass(eq=False)
class Cell(Expr):
    """The only index of an element: a stencil's own cell, or one near it. `stencil.expand` puts indices in its place.

    ``offsets``: steps along the array's last sides, in their order; none: the own cell. ``whole``: they are of all its
    sides. ``text``: how the source says it.
    """

    offsets: tuple[int, ...]
    whole: bool
    text: str


@dataclass(eq=False)
class PositionIndex(Expr):
    """Where a stencil's own cell is along ``axis`` (0: x, the array's last side). `stencil.expand` replaces it."""

    axis: int
    text: str


@dataclass(eq=False)
class Stmt:
    """A statement."""

    line: int


@dataclass(eq=False)
class Assign(Stmt):
    """To a local variable."""

    name: str
    value: Expr


@dataclass(eq=False)
class Store(Stmt):
    """To an element of an array. ``update``: the operator of ``a[i] += x``, whose load is in ``value``."""

    array: str
    indices: Sequence[Expr]
    value: Expr


@dataclass(eq=False)
class ExpressionStatement(Stmt):
    """An expression for what it does: an atomic, a shuffle."""

    value: Expr


@dataclass(eq=False)
class If(Stmt):
    """A choice."""

    condition: Expr
    body: list[Stmt]
    orelse: list[Stmt]


@dataclass(eq=False)
class While(Stmt):
    """A loop."""

    condition: Expr
    body: list[Stmt]


@dataclass(eq=False)
class For(Stmt):
    """``for name in range(start, stop, step)``: the three are evaluated once, before."""

    name: str
    start: Expr
    stop: Expr
    step: Expr
    body: list[Stmt]


@dataclass(eq=False)
class Break(Stmt):
    """Leave the innermost loop."""


@dataclass(eq=False)
class Continue(Stmt):
    """Go on with the innermost loop's next turn."""


@dataclass(eq=False)
class Return(Stmt):
    """The thread is done."""


@dataclass(eq=False)
class ThreadExit(Stmt):
    """The thread has returned: what follows is not for it. Only where jumps are lowered, and only if asked for."""


@dataclass(eq=False)
class Barrier(Stmt):
    """``scope``: ``block`` (syncthreads), ``warp`` (syncwarp), ``grid`` (all blocks), or a
    fence: ``fence.device``, ``fence.block``.
    """

    scope: str
    mask: Expr | None = None
    """Of a warp's: the lanes that meet; all where it is not stated."""


@dataclass(eq=False)
class Declare(Stmt):
    """An array of a block's (``shared``) or a thread's (``local``) own, of a constant shape. Its elements are unset."""

    name: str
    space: str
    shape: tuple[int, ...]
    element: Scalar


@dataclass(frozen=True)
class Parameter:
    """A parameter as the source annotates it; None where it does not."""

    name: str
    annotation: Type | None
    line: int


RAISED: Final = 1 << 20
"""A line of a helper in another file than the kernel's is this much higher in the tree, times the file's number.

So a line alone says where it is, and is one number still: that is what accesses are watched by.
"""


@dataclass(frozen=True)
class Helper:
    """A function that a kernel calls, as its file has it. ``raised``: what its lines are higher by in the tree."""

    file: str
    line: int
    source: Sequence[str]
    raised: int = 0


@dataclass(eq=False)
class Program:
    """A kernel. ``variables``: types of local variables, ``arrays``: of parameters and declarations, once inferred."""

    name: str
    file: str
    line: int
    doc: str
    parameters: Sequence[Parameter]
    body: list[Stmt]
    source: Sequence[str]
    """The function's lines; the first is line ``line``."""
    arrays: dict[str, Array] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)
    variables: dict[str, Scalar] = field(default_factory=dict)
    declared: dict[str, Declare] = field(default_factory=dict)
    form: StencilForm | None = None
    """Of a stencil."""
    cells: Sequence[str] = ()
    """Of a stencil, the arrays that it reaches through its position, once inferred."""
    helpers: Sequence[Helper] = ()
    """The functions that were put in the place of their calls."""

    def text_of(self, line: int) -> str:
        """The source's line, stripped."""
        known = [(self.line, self.source), *((one.line + one.raised, one.source) for one in self.helpers)]
        return next((source[line - first].strip() for first, source in known if 0 <= line - first < len(source)), "")

    def place_of(self, line: int) -> tuple[str, int]:
        """(file, line in it) of a line of the tree."""
        number = line % RAISED
        return next((one.file for one in self.helpers if one.raised == line - number != 0), self.file), number


def walk(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer before inner, in order."""
    for one in body:
        yield one
        if isinstance(one, If):
            yield from walk(one.body)
            yield from walk(one.orelse)
        elif isinstance(one, (While, For)):
            yield from walk(one.body)


def expressions(statement: Stmt) -> Iterator[Expr]:
    """The expressions directly in a statement, and all in them, outer before inner."""
    found: list[Expr] = []
    for value in vars(statement).values():
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, Expr)]
    for expression in found:
        yield from inside(expression)


def inside(expression: Expr) -> Iterator[Expr]:
    """An expression and all in it, outer before inner."""
    yield expression
    for child in expression.children():
        yield from inside(child)


Signature = Mapping[str, Any]
