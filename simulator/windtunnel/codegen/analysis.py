"""Analyses of a kernel for the emitters: what may overflow or be negative, and where variables are declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.language import ir
from windtunnel.language.types import Scalar

_SMALL = 1 << 16
"""The largest literal that may be multiplied by a thread index without regard to 32-bit overflow."""


class Facts:
    """Facts about an inferred kernel.

    ``geometric``: integer variables computed only from thread indices, sizes, loop counters and small literals. They
    are assumed not to overflow, because no grid has 2^31 threads along an axis, and no array as many elements.
    ``addresses``: variables that are used only in indices of elements; an overflow there is out of bounds anyway.
    ``nonnegative``: variables that are never negative.
    """

    def __init__(self, program: ir.Program, body: Sequence[ir.Stmt]) -> None:
        self.program = program
        self.body = body
        self.kinds = {**program.variables, **program.scalars}
        self.assigned: dict[str, list[ir.Assign | ir.For]] = {}
        self.written: set[str] = set()
        self.atomic: set[str] = set()
        self.sized: set[str] = set()
        self.has_barrier = self.has_warps = False
        self.calls: set[str] = set()
        """The warp operations: ``shuffle.down``, ``lane`` ..."""
        for statement in ir.walk(body):
            self._see(statement)
        self.loop_variables = self._contained()
        self.geometric: set[str] = set()
        self._find_geometric()
        self.nonnegative = {name for name in self.assigned if name not in program.scalars}
        self._find_nonnegative()
        self.addresses = {name for name in self.assigned if name not in program.scalars}
        self._find_addresses()

    def _see(self, statement: ir.Stmt) -> None:
        if isinstance(statement, (ir.Assign, ir.For)):
            self.assigned.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ir.Store):
            self.written.add(statement.array)
        elif isinstance(statement, ir.Barrier):
            self.has_barrier = True
            self.has_warps |= statement.scope == "warp"
        for e in ir.expressions(statement):
            if isinstance(e, ir.Atomic):
                self.written.add(e.array)
                self.atomic.add(e.array)
            elif isinstance(e, ir.Size):
                self.sized.add(e.array)
            elif isinstance(e, ir.Warp):
                self.calls.add(e.op)
                self.has_warps |= e.op != "warp_size"

    # Ranges of numbers.

    def is_geometric(self, e: ir.Expr) -> bool:
        """Return whether an expression is assumed not to overflow."""
        match e:
            case ir.Literal(value=value):
                return isinstance(value, int) and abs(value) <= _SMALL
            case ir.Index() | ir.Size() | ir.Warp() | ir.Call():
                return _is_count(e)
            case ir.Variable(name=name):
                return name in self.geometric
            case ir.Binary(op=op, left=left, right=right):
                known = op in ("+", "-", "*", "//", "%", "min", "max")
                return known and self.is_geometric(left) and self.is_geometric(right)
        return False

    def _find_geometric(self) -> None:
        while True:
            before = len(self.geometric)
            for name, places in self.assigned.items():
                if name in self.program.scalars or self.kinds[name].kind != "int":
                    continue
                if all(self._bounded(assignment) for assignment in places):
                    self.geometric.add(name)
            if before == len(self.geometric):
                return

    def _bounded(self, assignment: ir.Assign | ir.For) -> bool:
        if isinstance(assignment, ir.Assign):
            return self.is_geometric(assignment.value)
        # A counter does not exceed the bounds of its range.
        return self.is_geometric(assignment.start) and self.is_geometric(assignment.step)

    # Long: one case for each kind of expression, each a line or two.
    def is_nonnegative(self, e: ir.Expr) -> bool:
        """Return whether an integer expression is never negative."""
        if e.type is not None and e.type.kind in ("uint", "bool"):
            return True
        match e:
            case ir.Literal(value=value):
                return value >= 0
            case ir.Index() | ir.Size() | ir.Warp() | ir.Call():
                return _is_count(e)
            case ir.Variable(name=name):
                return name in self.nonnegative
            case ir.Convert(to=to, operand=operand):
                source = operand.type
                if source is None or source.kind == "float" or not self.is_nonnegative(operand):
                    return False
                return source.bits < to.bits or source.kind in (to.kind, "bool")
            case ir.Select(yes=yes, no=no):
                return self.is_nonnegative(yes) and self.is_nonnegative(no)
            case ir.Binary(op=op, left=left, right=right):
                left_holds, right_holds = self.is_nonnegative(left), self.is_nonnegative(right)
                match op:
                    case "+" | "*":
                        return left_holds and right_holds and self.is_geometric(e)
                    case "//" | "|" | "^" | "min":
                        return left_holds and right_holds
                    case "%":
                        return right_holds
                    case "&" | "max":
                        return left_holds or right_holds
                    case ">>":
                        return left_holds
        return False

    def _find_nonnegative(self) -> None:
        while True:
            wrong = {
                name
                for name in self.nonnegative
                if self.kinds[name].kind == "float" or not all(map(self._rises, self.assigned[name]))
            }
            if not wrong:
                return
            self.nonnegative -= wrong

    def _rises(self, assignment: ir.Assign | ir.For) -> bool:
        if isinstance(assignment, ir.Assign):
            return self.is_nonnegative(assignment.value)
        # Counting down, all values are above the stop; counting up, all are at least the start.
        step = assignment.step
        down = isinstance(step, ir.Literal) and step.value < 0
        if down:
            stop = assignment.stop
            return self.is_nonnegative(stop) or (isinstance(stop, ir.Literal) and stop.value == -1)
        return self.is_nonnegative(assignment.start) and self.is_nonnegative(step)

    def _find_addresses(self) -> None:
        while True:
            wrong: set[str] = set()
            for statement in ir.walk(self.body):
                for e, address in self._values(statement):
                    self._data(e, address, wrong)
            wrong &= self.addresses
            if not wrong:
                return
            self.addresses -= wrong

    def _values(self, statement: ir.Stmt) -> Iterator[tuple[ir.Expr, bool]]:
        match statement:
            case ir.Assign(name=name, value=value):
                yield value, name in self.addresses
            case ir.Store(indices=indices, value=value):
                yield from ((index, True) for index in indices)
                yield value, False
            case ir.ExpressionStatement(value=value):
                yield value, False
            case ir.If(condition=condition) | ir.While(condition=condition):
                yield condition, False
            case ir.For(start=start, stop=stop, step=step):
                yield from ((e, False) for e in (start, stop, step))

    def _data(self, e: ir.Expr, address: bool, used: set[str]) -> None:
        """Add the variables whose values are used outside of indices to ``found``."""
        match e:
            case ir.Variable(name=name):
                if not address:
                    used.add(name)
            case ir.Load(indices=indices):
                for index in indices:
                    self._data(index, True, used)
            case ir.Atomic(indices=indices, values=values):
                for index in indices:
                    self._data(index, True, used)
                for value in values:
                    self._data(value, False, used)
            case ir.Binary(op=op, left=left, right=right):
                inner = address and op in ("+", "-", "*")
                self._data(left, inner, used)
                self._data(right, inner, used)
            case _:
                for child in e.children():
                    self._data(child, False, used)

    # Where variables are declared.

    def _contained(self) -> set[str]:
        """Return loop counters that are used only in their loops and assigned nowhere else."""
        contained, outside = set(), _outside(self.body)
        for name, places in self.assigned.items():
            if name in self.program.scalars or not all(isinstance(place, ir.For) for place in places):
                continue
            if name not in outside:
                contained.add(name)
        return contained

    def places(self) -> tuple[dict[int, list[str]], set[int], list[str]]:
        """Return where variables are declared: before statements (by id), at assignments (ids), at the kernel's top.

        A variable is declared in the innermost block with all its uses, if that block always assigns it first.
        """
        before: dict[int, list[str]] = {}
        direct: set[int] = set()
        top: list[str] = []
        homes = uses_of(self.body).homes
        for name in self.assigned:
            if name in self.program.scalars or name in self.loop_variables:
                continue
            home = homes[name]
            if home is None:
                top.append(name)
            elif isinstance(home, ir.Assign):
                direct.add(id(home))
            else:
                before.setdefault(id(home), []).append(name)
        return before, direct, top

    def changes_in(self, body: Sequence[ir.Stmt]) -> set[str]:
        """Return the variables that a block assigns."""
        return {statement.name for statement in ir.walk(body) if isinstance(statement, (ir.Assign, ir.For))}


def _is_count(e: ir.Index | ir.Size | ir.Warp | ir.Call) -> bool:
    """Return whether an expression counts threads, elements or bits: it is small, and not negative."""
    match e:
        case ir.Warp(op=op):
            return op in ("lane", "warp_size")
        case ir.Call(op=op):
            return op in ("bits.popc", "bits.clz", "bits.ffs")
    return True


def blocks_of(statement: ir.Stmt) -> list[list[ir.Stmt]]:
    """Return the blocks of a statement."""
    if isinstance(statement, ir.If):
        return [list(statement.body), list(statement.orelse)]
    return [list(statement.body)] if isinstance(statement, (ir.While, ir.For)) else []


def _reads(statement: ir.Stmt) -> set[str]:
    """Return the variables that a statement reads, without its blocks."""
    return {e.name for e in ir.expressions(statement) if isinstance(e, ir.Variable)}


def _outside(body: Sequence[ir.Stmt], counted: frozenset[str] = frozenset()) -> set[str]:
    """Return the variables that are read outside of the loops that they count, or changed in them.

    ``counted``: those that the loops around count.
    """
    found: set[str] = set()
    for statement in body:
        found |= _reads(statement) - counted
        inner = counted
        if isinstance(statement, (ir.Assign, ir.For)):
            found |= counted & {statement.name}
            inner = counted | {statement.name}
        for block in blocks_of(statement):
            found |= _outside(block, inner)
    return found


@dataclass
class Uses:
    """What a block, or a statement with its blocks, does with variables.

    ``names``: those that it reads or assigns. ``sets``: those that it always assigns before it reads them. ``homes``:
    for each of its names, the statement before or in which it is declared, if the block has all its uses; None for the
    top of the kernel.
    """

    names: set[str] = field(default_factory=set)
    sets: set[str] = field(default_factory=set)
    homes: dict[str, ir.Stmt | None] = field(default_factory=dict)


def uses_of(body: Sequence[ir.Stmt]) -> Uses:
    """Return what a block does with variables, in one pass over it."""
    found = Uses()
    first: dict[str, tuple[ir.Stmt, Uses]] = {}
    several: set[str] = set()
    for statement in body:
        own = _of_statement(statement)
        several |= own.names & found.names
        for name in own.names - found.names:
            first[name] = statement, own
        found.sets |= own.sets - found.names
        found.names |= own.names
    for name, (statement, own) in first.items():
        if name not in several and name in own.homes:
            found.homes[name] = own.homes[name]
        else:
            found.homes[name] = statement if name in own.sets else None
    return found


def _of_statement(statement: ir.Stmt) -> Uses:
    """Return what a statement does with variables; ``homes`` has those that only one of its blocks uses."""
    reads = _reads(statement)
    blocks = [uses_of(block) for block in blocks_of(statement)]
    own = reads | ({statement.name} if isinstance(statement, (ir.Assign, ir.For)) else set())
    found = Uses(own.union(*(block.names for block in blocks)))
    if isinstance(statement, ir.Assign):
        found.sets = {statement.name} - reads
    elif isinstance(statement, ir.If):
        found.sets = (blocks[0].sets & blocks[1].sets) - reads
    for number, block in enumerate(blocks):
        others = own.union(*(other.names for k, other in enumerate(blocks) if k != number))
        found.homes.update((name, home) for name, home in block.homes.items() if name not in others)
    return found


def unpacked(program: ir.Program) -> list[ir.Stmt]:
    """Return the statements with ``x, y = a, b`` as two assignments, if the first does not affect the second.

    The parser first assigns each value to a temporary variable; these variables are removed.
    """
    uses: dict[str, int] = {}
    for statement in ir.walk(program.body):
        for e in ir.expressions(statement):
            if isinstance(e, ir.Variable):
                uses[e.name] = uses.get(e.name, 0) + 1

    def block(body: Sequence[ir.Stmt]) -> list[ir.Stmt]:
        statements: list[ir.Stmt] = []
        at = 0
        while at < len(body):
            statement = body[at]
            many = _held(body, at, uses, program)
            if many:
                for held, target in zip(body[at : at + many], body[at + many : at + 2 * many], strict=True):
                    assert isinstance(held, ir.Assign) and isinstance(target, ir.Assign)  # noqa: S101  as seen
                    statements.append(ir.Assign(target.line, target.name, held.value))
                    program.variables.pop(held.name)
                at += 2 * many
                continue
            if isinstance(statement, ir.If):
                statement.body, statement.orelse = block(statement.body), block(statement.orelse)
            elif isinstance(statement, (ir.While, ir.For)):
                statement.body = block(statement.body)
            statements.append(statement)
            at += 1
        return statements

    return block(program.body)


def _held(body: Sequence[ir.Stmt], at: int, uses: Mapping[str, int], program: ir.Program) -> int:
    """Return how many temporaries start here that can be removed; 0 if they are needed."""
    many = 0
    while at + 2 * many + 1 < len(body) and isinstance(body[at + many], ir.Assign):
        many += 1
        if _swapped(body[at : at + many], body[at + many : at + 2 * many], uses, program):
            return many
    return 0


def _swapped(held: Sequence[ir.Stmt], targets: Sequence[ir.Stmt], uses: Mapping[str, int], program: ir.Program) -> bool:
    changed: set[str] = set()
    for copy, target in zip(held, targets, strict=True):
        if not isinstance(copy, ir.Assign) or not isinstance(target, ir.Assign) or copy.name == target.name:
            return False
        value = target.value
        if not isinstance(value, ir.Variable) or value.name != copy.name or uses.get(copy.name) != 1:
            return False
        if copy.name in program.scalars or program.variables[copy.name] != value.type:
            return False
        if any(isinstance(e, ir.Variable) and e.name in changed for e in ir.inside(copy.value)):
            return False
        changed.add(target.name)
    kinds = {**program.variables, **program.scalars}
    return all(isinstance(t, ir.Assign) and kinds[t.name] == t.value.type for t in targets)


def sequenced(program: ir.Program, body: Sequence[ir.Stmt]) -> list[ir.Stmt]:
    """Return the statements with accesses to an array separated, if one of them is atomic.

    Python evaluates an expression from left to right, whereas C does not define the order.
    """
    statements: list[ir.Stmt] = []
    for statement in body:
        if isinstance(statement, ir.If):
            statement.body, statement.orelse = sequenced(program, statement.body), sequenced(program, statement.orelse)
        elif isinstance(statement, (ir.While, ir.For)):
            statement.body = sequenced(program, statement.body)
        accessed: list[str] = []
        changed = set()
        for e in ir.expressions(statement):
            if isinstance(e, (ir.Atomic, ir.Load)):
                accessed.append(e.array)
                changed |= {e.array} if isinstance(e, ir.Atomic) else set()
        contested = {array for array in changed if accessed.count(array) > 1}
        if contested and not isinstance(statement, ir.While):
            for field in ("start", "stop", "step", "condition", "value"):
                if hasattr(statement, field):
                    setattr(statement, field, _taken_out(program, getattr(statement, field), contested, statements))
        statements.append(statement)
    return statements


def _taken_out(program: ir.Program, e: ir.Expr, arrays: set[str], before: list[ir.Stmt]) -> ir.Expr:
    """Return an expression whose accesses to ``arrays`` are moved to assignments before it, in Python's order."""
    if isinstance(e, ir.Logic):
        e.left = _taken_out(program, e.left, arrays, before)
        return e  # the right side, and the sides of a conditional, are evaluated only if needed
    if isinstance(e, ir.Select):
        e.condition = _taken_out(program, e.condition, arrays, before)
        return e
    for name in vars(e):
        inner = getattr(e, name)
        if isinstance(inner, ir.Expr):
            setattr(e, name, _taken_out(program, inner, arrays, before))
        elif isinstance(inner, list):
            setattr(e, name, [_taken_out(program, i, arrays, before) for i in inner])
    if not isinstance(e, (ir.Atomic, ir.Load)) or e.array not in arrays or e.type is None:
        return e
    number = 1
    while f"{e.array}_was{number}" in program.variables:
        number += 1
    name = f"{e.array}_was{number}"
    program.variables[name] = e.type
    before.append(ir.Assign(e.line, name, e))
    return ir.Variable(e.line, name, type=e.type)


def typed(op: str, left: ir.Expr, right: ir.Expr, kind: Scalar) -> ir.Binary:
    """Return a binary expression with its type."""
    return ir.Binary(left.line, op, left, right, type=kind)
