"""Finds arrays of which each thread accesses only its own elements, so that no race is possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windtunnel.language import ir


def private(program: ir.Program, written: Sequence[str]) -> Mapping[str, frozenset[int]]:
    """Return the written arrays of which each thread accesses only its own elements, with the axes that index them.

    If every index is the thread's global index (or advances by the grid's size), no two threads access one element, as
    long as the launch has no other axis: race detection can skip the array. Arrays with only atomic operations are
    included with all axes.
    """
    assigned: dict[str, list[ir.Stmt]] = {}
    for statement in ir.walk(program.body):
        if isinstance(statement, (ir.Assign, ir.For)):
            assigned.setdefault(statement.name, []).append(statement)
    accesses, plain = _accesses(program, written)
    private_axes = {name: frozenset({0, 1, 2}) for name in written if name not in plain}
    for name, array_accesses in accesses.items():
        axes = [
            _axes(indices, {name: places for name, places in assigned.items() if name in known}, program)
            for indices, known in array_accesses
        ]
        # All accesses must have the same indices in the same order; otherwise two threads may share an element.
        if axes and axes[0] is not None and all(index_axes == axes[0] for index_axes in axes):
            private_axes[name] = frozenset(axis for axis, _ in axes[0])
    return private_axes


def _accesses(
    program: ir.Program, written: Sequence[str]
) -> tuple[dict[str, list[tuple[Sequence[ir.Expr], frozenset[str]]]], set[str]]:
    """Return the accesses to each array (indices, variables assigned before), and the arrays with non-atomic ones."""
    accesses: dict[str, list[tuple[Sequence[ir.Expr], frozenset[str]]]] = {name: [] for name in written}
    plain: set[str] = set()
    for statement, known in _reached(program.body, frozenset(program.scalars)):
        if isinstance(statement, ir.Store) and statement.array in accesses:
            accesses[statement.array].append((statement.indices, known))
            plain.add(statement.array)
        for e in ir.expressions(statement):
            if isinstance(e, (ir.Load, ir.Atomic)) and e.array in accesses:
                accesses[e.array].append((e.indices, known))
                plain |= {e.array} if isinstance(e, ir.Load) else set()
    return accesses, plain


def _reached(body: Sequence[ir.Stmt], known: frozenset[str]) -> Iterator[tuple[ir.Stmt, frozenset[str]]]:
    """Yield every statement with the variables that are certainly assigned before it."""
    for statement in body:
        yield statement, known
        if isinstance(statement, ir.Assign):
            asked = {e.name for e in ir.inside(statement.value) if isinstance(e, ir.Variable)}
            known = known | {statement.name} if asked <= known else known - {statement.name}
        elif isinstance(statement, ir.If):
            yield from _reached(statement.body, known)
            yield from _reached(statement.orelse, known)
        elif isinstance(statement, ir.While):
            yield from _reached(statement.body, known)
        elif isinstance(statement, ir.For):
            yield from _reached(statement.body, known | {statement.name})


def _axes(
    indices: Sequence[ir.Expr], assigned: Mapping[str, list[ir.Stmt]], program: ir.Program
) -> tuple[tuple[int, str], ...] | None:
    axes = []
    for index in indices:
        axis = _axis(index, assigned, program)
        if axis is None:
            return None
        axes.append(axis)
    return tuple(axes)


def _axis(e: ir.Expr, assigned: Mapping[str, list[ir.Stmt]], program: ir.Program) -> tuple[int, str] | None:
    """Return the axis and the constant offset of an index that is a thread's global index; None for another index."""
    e = _unconverted(e)
    if isinstance(e, ir.Binary):
        axis = global_index(e)
        if axis is None and e.op in "+-" and isinstance(e.right, ir.Literal):
            inner = _axis(e.left, assigned, program)
            return None if inner is None else (inner[0], f"{inner[1]} {e.op} {e.right.value}")
        return None if axis is None else (axis, "")
    if not isinstance(e, ir.Variable) or e.name in program.scalars:
        return None
    return _axis_of_variable(assigned.get(e.name, []), assigned, program)


def _axis_of_variable(
    places: Sequence[ir.Stmt], assigned: Mapping[str, list[ir.Stmt]], program: ir.Program
) -> tuple[int, str] | None:
    """Return `_axis` of a variable that is assigned at these places."""
    # A variable that advances by the grid's size stays among the thread's own elements.
    steps = [one for one in places if isinstance(one, ir.Assign) and _advances(one) is not None]
    if len(places) - len(steps) != 1:
        return None
    (assignment,) = (one for one in places if one not in steps)
    if isinstance(assignment, ir.Assign):
        found = _axis(assignment.value, assigned, program)
        if found is None or not steps:
            return found
        strides = {_stride(step, assigned) for one in steps if (step := _advances(one)) is not None}
        return found if strides == {found[0]} and not found[1] else None
    if steps:
        return None
    assert isinstance(assignment, ir.For)  # noqa: S101  nothing else assigns
    start = _axis(assignment.start, assigned, program)
    if start is None or start[1] or _stride(assignment.step, assigned) != start[0]:
        return None
    return start[0], ""


def _advances(statement: ir.Assign) -> ir.Expr | None:
    """Return by how much a statement advances its own variable; None for another statement."""
    e = statement.value
    if isinstance(e, ir.Binary) and e.op == "+" and isinstance(e.left, ir.Variable) and e.left.name == statement.name:
        return e.right
    return None


def _stride(e: ir.Expr, assigned: Mapping[str, list[ir.Stmt]]) -> int | None:
    """Return the axis whose number of threads an expression is (gridDim * blockDim); None for another one."""
    e = _unconverted(e)
    if isinstance(e, ir.Variable) and len(assigned.get(e.name, ())) == 1:
        (assignment,) = assigned[e.name]
        return _stride(assignment.value, assigned) if isinstance(assignment, ir.Assign) else None
    if not isinstance(e, ir.Binary) or e.op != "*":
        return None
    sides = [side for side in map(_unconverted, (e.left, e.right)) if isinstance(side, ir.Index)]
    if len(sides) != 2 or {side.what for side in sides} != {"grid_size", "block_size"}:
        return None
    return sides[0].axis if sides[0].axis == sides[1].axis else None


def global_index(e: ir.Binary) -> int | None:
    """Return the axis of blockIdx * blockDim + threadIdx; None for another expression."""
    first, second = _unconverted(e.left), _unconverted(e.right)
    if e.op != "+" or not isinstance(second, ir.Index) or second.what != "thread" or not isinstance(first, ir.Binary):
        return None
    factors = [_unconverted(side) for side in (first.left, first.right)]
    sides = [side for side in factors if isinstance(side, ir.Index) and side.axis == second.axis]
    if first.op != "*" or len(sides) != 2:
        return None
    return second.axis if {side.what for side in sides} == {"block", "block_size"} else None


def _unconverted(e: ir.Expr) -> ir.Expr:
    """Return an integer without the conversions to wider integers around it, which keep its value."""
    while isinstance(e, ir.Convert):
        wide, narrow = e.type, e.operand.type
        if wide is None or narrow is None or wide.kind != "int" or narrow.kind != "int" or wide.bits < narrow.bits:
            return e
        e = e.operand
    return e
