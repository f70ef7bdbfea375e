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
    for one in ir.walk(program.body):
        if isinstance(one, (ir.Assign, ir.For)):
            assigned.setdefault(one.name, []).append(one)
    accesses, plain = _accesses(program, written)
    found = {name: frozenset({0, 1, 2}) for name in written if name not in plain}
    for name, each in accesses.items():
        axes = [
            _axes(indices, {name: places for name, places in assigned.items() if name in known}, program)
            for indices, known in each
        ]
        # All accesses must have the same indices in the same order; otherwise two threads may share an element.
        if axes and axes[0] is not None and all(one == axes[0] for one in axes):
            found[name] = frozenset(axis for axis, _ in axes[0])
    return found


def _accesses(
    program: ir.Program, written: Sequence[str]
) -> tuple[dict[str, list[tuple[Sequence[ir.Expr], frozenset[str]]]], set[str]]:
    """Return the accesses to each array (indices, variables assigned before), and the arrays with non-atomic ones."""
    accesses: dict[str, list[tuple[Sequence[ir.Expr], frozenset[str]]]] = {name: [] for name in written}
    plain: set[str] = set()
    for one, known in _reached(program.body, frozenset(program.scalars)):
        if isinstance(one, ir.Store) and one.array in accesses:
            accesses[one.array].append((one.indices, known))
            plain.add(one.array)
        for e in ir.expressions(one):
            if isinstance(e, (ir.Load, ir.Atomic)) and e.array in accesses:
                accesses[e.array].append((e.indices, known))
                plain |= {e.array} if isinstance(e, ir.Load) else set()
    return accesses, plain


def _reached(body: Sequence[ir.Stmt], known: frozenset[str]) -> Iterator[tuple[ir.Stmt, frozenset[str]]]:
    """Yield every statement with the variables that are certainly assigned before it."""
    for one in body:
        yield one, known
        if isinstance(one, ir.Assign):
            asked = {e.name for e in ir.inside(one.value) if isinstance(e, ir.Variable)}
            known = known | {one.name} if asked <= known else known - {one.name}
        elif isinstance(one, ir.If):
            yield from _reached(one.body, known)
            yield from _reached(one.orelse, known)
        elif isinstance(one, ir.While):
            yield from _reached(one.body, known)
        elif isinstance(one, ir.For):
            yield from _reached(one.body, known | {one.name})


def _axes(
    indices: Sequence[ir.Expr], assigned: Mapping[str, list[ir.Stmt]], program: ir.Program
) -> tuple[tuple[int, str], ...] | None:
    found = []
    for index in indices:
        axis = _axis(index, assigned, program)
        if axis is None:
            return None
        found.append(axis)
    return tuple(found)


def _axis(e: ir.Expr, assigned: Mapping[str, list[ir.Stmt]], program: ir.Program) -> tuple[int, str] | None:
    """Return the axis and the constant offset of an index that is a thread's global index; None for another index."""
    if isinstance(e, ir.Binary):
        axis = global_index(e)
        if axis is None and e.op in "+-" and isinstance(e.right, ir.Literal):
            inner = _axis(e.left, assigned, program)
            return None if inner is None else (inner[0], f"{inner[1]} {e.op} {e.right.value}")
        return None if axis is None else (axis, "")
    if not isinstance(e, ir.Variable) or e.name in program.scalars or len(assigned.get(e.name, ())) != 1:
        return None
    (one,) = assigned[e.name]
    if isinstance(one, ir.Assign):
        return _axis(one.value, assigned, program)
    assert isinstance(one, ir.For)  # noqa: S101  nothing else assigns
    start = _axis(one.start, assigned, program)
    if start is None or start[1] or _stride(one.step, assigned) != start[0]:
        return None
    return start[0], ""


def _stride(e: ir.Expr, assigned: Mapping[str, list[ir.Stmt]]) -> int | None:
    """Return the axis whose number of threads an expression is (gridDim * blockDim); None for another one."""
    if isinstance(e, ir.Variable) and len(assigned.get(e.name, ())) == 1:
        (one,) = assigned[e.name]
        return _stride(one.value, assigned) if isinstance(one, ir.Assign) else None
    if not isinstance(e, ir.Binary) or e.op != "*":
        return None
    sides = [side for side in (e.left, e.right) if isinstance(side, ir.Index)]
    if len(sides) != 2 or {side.what for side in sides} != {"grid_size", "block_size"}:
        return None
    return sides[0].axis if sides[0].axis == sides[1].axis else None


def global_index(e: ir.Binary) -> int | None:
    """Return the axis of blockIdx * blockDim + threadIdx; None for another expression."""
    first, second = e.left, e.right
    if e.op != "+" or not isinstance(second, ir.Index) or second.what != "thread" or not isinstance(first, ir.Binary):
        return None
    sides = [side for side in (first.left, first.right) if isinstance(side, ir.Index) and side.axis == second.axis]
    if first.op != "*" or len(sides) != 2:
        return None
    return second.axis if {side.what for side in sides} == {"block", "block_size"} else None
