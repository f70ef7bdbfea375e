"""What the contents of buffers are for in a kernel, which decides what `windtunnel check` makes them of.

- *A row start* bounds a row together with the next element (`check_rows`): the numbers rise.
- *A counter* is changed by atomic operations whose results, or a wait for it, decide what threads do: the program sets
  it to zero before the launch, or to what a compare-and-swap expects of it (a lock, an empty place of a table).
- *A flag* is stored to where an element of it is a number (``if (!visited[v]) visited[v] = 1``): it begins with that.
- *An index* says where a thread stores: the program sees to it that the threads do not store at one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from windtunnel.app.check_arguments import CheckParameter, LaunchRequest
from windtunnel.app.check_flow import Flow, adds_nothing, literal
from windtunnel.app.check_rows import row_starts
from windtunnel.language import ir

_COUNTING = ("add", "inc", "or_", "exch", "cas")
"""The changes of a counter. One that also goes down, as a semaphore, does not begin with zero."""

_LEAVES = (ir.Return, ir.ThreadExit, ir.Break, ir.Continue)
"""Statements after which the rest of a block is not executed."""


class Counter(NamedTuple):
    """A buffer that begins with a number: a counter, or a flag.

    Attributes:
        start: The number.
        is_open: Whether what decides depends on an integer that is made up, too.
        is_place: Whether a loop ends with a compare-and-swap that expects the number: a lock, or a place of a table.
    """

    start: int
    is_open: bool = False
    is_place: bool = False


@dataclass(frozen=True)
class Contents:
    """The buffers of integers that are made up, by what they are for.

    Attributes:
        names: The parameters of the arrays of the kernel's tree.
        rising: The row starts.
        counters: The counters and flags.
        places: For each buffer and line with stores at places that buffers state, and no reads, those buffers.
        indirect: The buffers and lines where every index depends on the contents of buffers.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    rising: frozenset[str] = frozenset()
    counters: Mapping[str, Counter] = field(default_factory=dict)
    places: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    indirect: frozenset[tuple[str, int]] = frozenset()


def contents_of(program: ir.Program, parameters: Sequence[CheckParameter], request: LaunchRequest) -> Contents:
    """Return what the buffers of a kernel in C are for that are not given."""
    spelled = program.spellings
    names = {name: spelled.get(name, name) for name in program.arrays if name not in program.declared}
    free = {p.name: p for p in parameters if p.name not in request.arguments}
    pointers = {
        p.name for p in free.values() if p.kind == "pointer" and len(set(p.dtypes)) == 1 and p.dtypes[0].kind in "iu"
    }
    integers = {name for name, parameter in names.items() if parameter in pointers}
    if not integers:
        return Contents(names)
    flow = Flow(program)
    numbers = {
        name for name, scalar in program.scalars.items()
        if scalar.kind in ("int", "uint") and spelled.get(name, name) in free
    }  # fmt: skip
    places, indirect = _places(program, flow, integers)
    return Contents(
        names,
        frozenset(names[name] for name in row_starts(program, request.block, integers)),
        {names[name]: counter for name, counter in _counters(program, flow, integers, numbers).items()},
        {(names[array], line): frozenset(names[one] for one in of) for (array, line), of in places.items()},
        frozenset((names[array], line) for array, line in indirect),
    )


# Long: one condition for each thing that a counter is not.
def _counters(
    program: ir.Program, flow: Flow, integers: Collection[str], numbers: Collection[str]
) -> dict[str, Counter]:
    changes: dict[str, list[ir.Atomic]] = {}
    for statement in ir.walk(program.body):
        for e in ir.expressions(statement):
            if isinstance(e, ir.Atomic) and e.op not in ("load", "store") and not adds_nothing(e):
                changes.setdefault(e.array, []).append(e)
    found = {name: Counter(start) for name, start in _flags(program.body, flow, frozenset()) if name in integers}
    conditions = [(flow.of(condition), waits) for condition, waits in _conditions(program.body, waits=False)]
    for name in integers & changes.keys():
        expected = {literal(e.values[0]) for e in changes[name] if e.op == "cas"}
        lowered = any((literal(e.values[0]) or 0) < 0 for e in changes[name] if e.op == "add")
        if lowered or None in expected or any(e.op not in _COUNTING for e in changes[name]):
            continue
        kinds = [({s.kind for s in sources if s.name == name}, sources, waits) for sources, waits in conditions]
        deciding = [sources for kind, sources, waits in kinds if "atomic" in kind or (waits and "load" in kind)]
        if deciding:
            others = {source.name for source in frozenset.union(*deciding)} - {name}
            start = next(iter(expected)) if len(expected) == 1 else 0
            is_place = bool(expected) and any("atomic" in kind and waits for kind, _, waits in kinds)
            found[name] = Counter(start or 0, bool(others & {*numbers, *integers}), is_place)
    return found


def _conditions(body: Sequence[ir.Stmt], *, waits: bool) -> Iterator[tuple[ir.Expr, bool]]:
    """Yield the conditions of statements, and whether they may end a loop."""
    for statement in body:
        if isinstance(statement, ir.If):
            ends = any(isinstance(s, ir.Break) for s in (*statement.body, *statement.orelse))
            yield statement.condition, waits and ends
            yield from _conditions([*statement.body, *statement.orelse], waits=waits)
        elif isinstance(statement, (ir.While, ir.For)):
            if isinstance(statement, ir.While):
                yield statement.condition, True
            yield from _conditions(statement.body, waits=True)
        for e in ir.expressions(statement):
            if isinstance(e, ir.Select):
                yield e.condition, False


def _flags(body: Sequence[ir.Stmt], flow: Flow, known: frozenset[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield the buffers that are stored to where an element of them is a number, and that number.

    ``known``: the buffers of which an element is a number where the statements are executed.
    """
    for statement in body:
        if isinstance(statement, ir.If):
            yes, no = (known | _equal(statement.condition, flow, holds=holds) for holds in (True, False))
            yield from _flags(statement.body, flow, yes)
            yield from _flags(statement.orelse, flow, no)
            if statement.body and isinstance(statement.body[-1], _LEAVES):
                known = no
        elif isinstance(statement, (ir.While, ir.For)):
            yield from _flags(statement.body, flow, known)
        elif isinstance(statement, ir.Store):
            yield from (one for one in known if one[0] == statement.array)


def _equal(e: ir.Expr, flow: Flow, *, holds: bool) -> frozenset[tuple[str, int]]:
    """Return the buffers of which an element is a number where a condition holds, or does not, and that number."""
    match e:
        case ir.Logic(op=op, left=left, right=right) if (op == "and") == holds:
            return _equal(left, flow, holds=holds) | _equal(right, flow, holds=holds)
        case ir.Unary(op="not", operand=operand):
            return _equal(operand, flow, holds=not holds)
        case ir.Binary(op="==" | "!=" as op, left=left, right=right) if (op == "==") == holds:
            pairs = [(left, literal(right)), (right, literal(left))]
        case ir.Convert(operand=operand) if not holds:
            pairs = [(operand, 0)]
        case _:
            pairs = []
    return frozenset(
        (source.name, number)
        for one, number in pairs if number is not None
        for source in flow.of(one) if source.kind == "load" and len(flow.of(one)) == 1
    )  # fmt: skip


def _places(
    program: ir.Program, flow: Flow, integers: Collection[str]
) -> tuple[dict[tuple[str, int], set[str]], set[tuple[str, int]]]:
    """Return the buffers that state where threads store, and where all indices depend on buffers."""
    stated: dict[tuple[str, int], set[str]] = {}
    plain: set[tuple[str, int]] = set()
    read: set[tuple[str, int]] = set()
    for statement in ir.walk(program.body):
        accesses = [e for e in ir.expressions(statement) if isinstance(e, (ir.Load, ir.Atomic))]
        stores = [statement] if isinstance(statement, ir.Store) else []
        for one in (*accesses, *stores):
            if one.array in program.declared:
                continue
            at = one.array, program.place_of(one.line)[1]
            of = {name for index in one.indices for name in flow.contents(index)} & {*integers}
            stated.setdefault(at, set()).update(of)
            if not of:
                plain.add(at)
            if not isinstance(one, ir.Store) or one.array in flow.contents(one.value):
                read.add(at)
    places = {at: of for at, of in stated.items() if of and at not in read}
    return places, {at for at, of in stated.items() if of and at not in plain}
