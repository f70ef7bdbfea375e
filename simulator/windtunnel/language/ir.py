"""The intermediate representation of a kernel: a tree of statements and typed expressions, each with its line.

`parse` creates it from a Python function, and `infer` adds the types. All names are resolved, calls of device functions
are inlined, and chained comparisons and augmented assignments are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

from windtunnel.core.stencil import StencilForm
from windtunnel.language.types import Array, Scalar, Type


@dataclass(eq=False)
class Expr:
    """An expression. ``type`` is None until inference sets it."""

    line: int
    type: Scalar | None = field(default=None, kw_only=True)

    def children(self) -> Iterator[Expr]:
        """Yield the direct subexpressions."""
        yield from direct(self)


@dataclass(eq=False)
class Literal(Expr):
    """A number of the source. It takes the type of the other operand."""

    value: int | float | bool


@dataclass(eq=False)
class Variable(Expr):
    """A local variable, or a scalar parameter.

    ``given``: the flag variable that records whether it is assigned (`definite_assignment.insert_checks`).
    """

    name: str
    given: Variable | None = field(default=None, kw_only=True)
    copied: bool = field(default=False, kw_only=True)
    """Whether the value is only copied, as part of a struct: it need not be assigned."""


@dataclass(eq=False)
class Index(Expr):
    """A thread index: ``what`` is thread, block, block_size or grid_size; ``axis`` is 0 to 2."""

    what: str
    axis: int


@dataclass(eq=False)
class Size(Expr):
    """The length of an array's dimension ``side``; a negative one counts from the last until inference resolves it.

    ``total``: the number of elements, which inference expands to a product.
    """

    array: str
    side: int
    total: bool = False


@dataclass(eq=False)
class Load(Expr):
    """An element of an array."""

    array: str
    indices: Sequence[Expr]
    moved: bool = field(default=False, kw_only=True)
    """Whether lanes pass the number on, so that it need not be set as long as nothing depends on it."""
    copied: bool = False
    """Whether the element is only copied, as part of a struct: it need not be initialised."""


@dataclass(eq=False)
class Binary(Expr):
    """``op``: + - * / // % ** << >> & | ^ min max, or a comparison < <= > >= == !=.

    ``minimum`` and ``maximum`` are NumPy's, which return NaN if either operand is; inference expands them.
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
    """``and`` or ``or``. The right side is evaluated only if the left does not decide."""

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

    ``keeps``: the conversion keeps 64 bits if the operand has 64, as Python's ``int`` and ``float`` do. Inference then
    sets ``to``.
    """

    to: Scalar
    operand: Expr
    keeps: bool = False


@dataclass(eq=False)
class Call(Expr):
    """A mathematical function: ``op`` is ``math.sqrt``, ``bits.popc``, ``fma``, ``round.tf32`` ..."""

    op: str
    arguments: Sequence[Expr]


@dataclass(eq=False)
class Warp(Expr):
    """An exchange between threads of a warp: ``op`` is ``shuffle.down``, ``vote.any``, ``lane``, ``warp_size`` ..."""

    op: str
    arguments: Sequence[Expr]


@dataclass(eq=False)
class Atomic(Expr):
    """An atomic operation on an element. Its value is the element's old value."""

    op: str
    array: str
    indices: Sequence[Expr]
    values: Sequence[Expr]
    of_block: bool = False
    """Whether it is atomic among the threads of its block only."""
    relaxed: bool = False
    """Whether what it reads orders nothing before the thread's next fence (C11's relaxed and release orders)."""


@dataclass(eq=False)
class Cell(Expr):
    """The index of a stencil's own cell or of a neighbour. `stencil.expand` replaces it by indices.

    ``offsets`` are steps along the array's last dimensions, in order; none means the own cell. ``whole``: they are
    along all dimensions. ``text`` is the source.
    """

    offsets: tuple[int, ...]
    whole: bool
    text: str


@dataclass(eq=False)
class PositionIndex(Expr):
    """The own cell's index along ``axis`` (0: x, the last dimension). `stencil.expand` replaces it."""

    axis: int
    text: str


@dataclass(eq=False)
class Stmt:
    """A statement."""

    line: int


@dataclass(eq=False)
class Assign(Stmt):
    """An assignment to a local variable."""

    name: str
    value: Expr


@dataclass(eq=False)
class Store(Stmt):
    """An assignment to an element of an array. For ``a[i] += x``, ``value`` contains the load."""

    array: str
    indices: Sequence[Expr]
    value: Expr


@dataclass(eq=False)
class ExpressionStatement(Stmt):
    """An expression that is evaluated for its effect: an atomic operation or a shuffle."""

    value: Expr


@dataclass(eq=False)
class Forget(Stmt):
    """A variable or an array of the thread begins or ends its life here: what it holds is not set."""

    name: str


@dataclass(eq=False)
class Print(Stmt):
    """A line that each thread prints, in C's format. ``texts`` has the strings of its arguments; None for a number."""

    form: str
    numbers: Sequence[Expr]
    texts: Sequence[str | None]


@dataclass(eq=False)
class If(Stmt):
    """An ``if`` statement."""

    condition: Expr
    body: list[Stmt]
    orelse: list[Stmt]


@dataclass(eq=False)
class While(Stmt):
    """A ``while`` loop."""

    condition: Expr
    body: list[Stmt]


@dataclass(eq=False)
class For(Stmt):
    """``for name in range(start, stop, step)``. The three are evaluated once, before the loop."""

    name: str
    start: Expr
    stop: Expr
    step: Expr
    body: list[Stmt]


@dataclass(eq=False)
class Break(Stmt):
    """End the innermost loop."""


@dataclass(eq=False)
class Continue(Stmt):
    """Continue with the next iteration of the innermost loop."""


@dataclass(eq=False)
class Return(Stmt):
    """End the thread."""


@dataclass(eq=False)
class ThreadExit(Stmt):
    """The thread has returned, and takes no part in later statements. It exists only after lowering (`flow`)."""


@dataclass(eq=False)
class Barrier(Stmt):
    """``scope``: ``block`` (syncthreads), ``warp`` (syncwarp), ``grid`` (all blocks), or a
    fence: ``fence.device``, ``fence.block``.

    ``block.shared`` and ``block.global`` are barriers of a block that order accesses of its shared memory, or of the
    grid's memory, only (OpenCL C). ``block.none`` orders nothing: all threads of a block must come to it.
    """

    scope: str
    mask: Expr | None = None
    """The lanes that synchronise, for a warp's barrier; None means all."""


@dataclass(eq=False)
class Require(Stmt):
    """A condition that must hold for each thread. ``finding`` is the class of the finding if it does not.

    ``same``: it is a number instead, which must be the same for all threads of a block.
    """

    condition: Expr
    finding: str
    message: str
    same: bool = False


@dataclass(eq=False)
class Flight(Stmt):
    """Asynchronous copies of a thread.

    ``what``: ``write`` or ``read`` (an element is the target or the source of a copy that is in flight from now on),
    ``commit`` (the thread's copies since the last one are a group), or ``wait`` (until at most ``left`` of the thread's
    groups are in flight, or those up to the group of the number ``last`` have ended, where it is given).
    """

    what: str
    array: str = ""
    indices: Sequence[Expr] = ()
    left: int = 0
    last: Expr | None = None


@dataclass(eq=False)
class Declare(Stmt):
    """A shared array (of a block) or local array (of a thread) of a constant shape, with uninitialised elements."""

    name: str
    space: str
    shape: tuple[int, ...]
    element: Scalar


@dataclass(frozen=True)
class Parameter:
    """A parameter and its annotation; None if it has none."""

    name: str
    annotation: Type | None
    line: int


RAISED: Final = 1 << 20
"""The offset of line numbers for each further file. Helpers may be in other files than the kernel.

A line number thereby identifies the file as well, and remains one number, which race detection records.
"""
_BENIGN = re.compile(r"#\s*windtunnel:\s*benign\b")
"""The comment of a line whose accesses may race."""


@dataclass(frozen=True)
class Helper:
    """The source of an inlined function. ``raised`` is the offset of its line numbers in the tree.

    ``calls``: the lines that call it, where the front end notes them.
    """

    file: str
    line: int
    source: Sequence[str]
    raised: int = 0
    calls: Sequence[int] = ()


@dataclass(eq=False)
class Program:
    """A kernel. Inference sets the types of ``arrays`` (parameters and declarations), ``scalars`` and ``variables``."""

    name: str
    file: str
    line: int
    doc: str
    parameters: Sequence[Parameter]
    body: list[Stmt]
    source: Sequence[str]
    """The lines of the function, from line ``line``."""
    arrays: dict[str, Array] = field(default_factory=dict)
    scalars: dict[str, Scalar] = field(default_factory=dict)
    variables: dict[str, Scalar] = field(default_factory=dict)
    declared: dict[str, Declare] = field(default_factory=dict)
    form: StencilForm | None = None
    """The tile and halo of a stencil; None for another kernel."""
    cells: Sequence[str] = ()
    """The arrays that a stencil accesses through its position; set by inference."""
    helpers: Sequence[Helper] = ()
    """The functions whose calls were inlined."""
    temporaries: Collection[str] = ()
    """The variables that a front end made to hold the values of expressions."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """The names in the source of variables that have others in the tree."""
    units: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Arrays whose indices count units that are smaller than an element as it is declared: the bytes of both."""
    is_opencl: bool = False
    """Whether it is written in OpenCL C, so that findings speak of work-items and work-groups."""
    warp: int | None = None
    """The threads of a warp that the source is written for; None if it asks for their number."""
    block: tuple[int, ...] | None = None
    """The threads of a block along x, y and z that the source requires; None if it requires none."""
    collectives: Mapping[int, str] = field(default_factory=dict)
    """The lines of functions that all threads of a group compute together, with the functions' names."""
    split_barriers: Collection[str] = ()
    """Arrays of barriers of which arriving and waiting are apart: of each the expected arrivals, those that are still
    to come, and the phase."""
    awaits_copies: bool = False
    """Whether asynchronous copies must have ended when the kernel ends."""

    @property
    def _sources(self) -> list[tuple[int, Sequence[str]]]:
        """The first line and the lines of the kernel and of each helper."""
        return [(self.line, self.source), *((helper.line + helper.raised, helper.source) for helper in self.helpers)]

    def text_of(self, line: int) -> str:
        """Return a line of the source, stripped."""
        known = self._sources
        return next((source[line - first].strip() for first, source in known if 0 <= line - first < len(source)), "")

    @cached_property
    def benign_lines(self) -> frozenset[int]:
        """The lines marked ``# windtunnel: benign``, whose accesses may race."""
        return frozenset(
            first + number
            for first, source in self._sources
            for number, text in enumerate(source)
            if _BENIGN.search(text)
        )

    def barrier_at(self, line: int) -> str:
        """Return how messages call the barrier at a line of the tree."""
        return f"'{self.collectives[line]}'" if line in self.collectives else "the barrier"

    def column_of(self, line: int) -> int | None:
        """Return the column of a line of the tree; None if it is not known."""
        del line
        return None

    def place_of(self, line: int) -> tuple[str, int]:
        """Return the file and the line in it of a line of the tree."""
        number = line % RAISED
        return next((helper.file for helper in self.helpers if helper.raised == line - number != 0), self.file), number

    def calls_of(self, line: int) -> Sequence[int]:
        """Return the lines of the kernel's own file whose calls come to a line of another file, if they are known."""
        found: set[int] = set()
        waiting, seen = [line], set()
        while waiting:
            one = waiting.pop()
            seen.add(one)
            if one < RAISED:
                found.add(one)
                continue
            around = (h for h in self.helpers if 0 <= one - h.raised - h.line < len(h.source))
            waiting += [call for helper in around for call in helper.calls if call not in seen]
        return sorted(found)


def walk(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Yield every statement in order, outer before inner."""
    for statement in body:
        yield statement
        if isinstance(statement, If):
            yield from walk(statement.body)
            yield from walk(statement.orelse)
        elif isinstance(statement, (While, For)):
            yield from walk(statement.body)


def expressions(statement: Stmt) -> Iterator[Expr]:
    """Yield the expressions of a statement, without those of inner statements, outer before inner."""
    for expression in direct(statement):
        yield from inside(expression)


def inside(expression: Expr) -> Iterator[Expr]:
    """Yield an expression and its subexpressions, outer before inner."""
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(direct(one))


_PLAIN = frozenset({
    "int", "float", "bool", "str", "int | float | bool", "Scalar", "Scalar | None", "tuple[int, ...]", "list[Stmt]",
    "Sequence[str | None]",
})  # fmt: skip
"""The annotations of fields in which there are no expressions."""


_PARTS: dict[type[Any], tuple[str, ...]] = {}
"""For each kind of statement and expression, the fields in which expressions may be."""


def direct(node: Expr | Stmt) -> list[Expr]:
    """Return the expressions of a statement or an expression, without theirs, in the order of the fields."""
    kind = type(node)
    if kind not in _PARTS:
        _PARTS[kind] = tuple(part.name for part in fields(kind) if part.type not in _PLAIN)
    found: list[Expr] = []
    for name in _PARTS[kind]:
        value = getattr(node, name)
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [item for item in value if isinstance(item, Expr)]
    return found
