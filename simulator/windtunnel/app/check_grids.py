"""The sizes that `windtunnel check` makes up for launches of two and three dimensions.

A kernel with ``y * width + x`` needs a width, a height and buffers that fit together. What an integer is for is told by
its use: one that a thread's index along an axis is compared with is a size along that axis, and so is one that an index
along another axis is multiplied by (the length of a row). Indices are read as polynomials of the indices of threads
and blocks, the parameters, and what is not known.

A buffer that is indexed by rows (``y * width + x``, where x is compared with the width and y with the height) has as
many elements as rows and columns. The size of another one is not told by its kernel: it grows until the launch stays
within it (``check_made_up``). A second launch has sizes that the block does not divide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import NamedTuple

from windtunnel.app.check_sizes import smaller
from windtunnel.language import ir

ORDERED = ("<", "<=", ">", ">=")
_FEW = 4
"""The largest value of a made-up integer that bounds loops and is no size: such as the radius of a filter."""
_MAX_DEPTH = 40
_MAX_TERMS = 64
"""Terms of a polynomial; one of more is not known."""
_AXES = 3

Monomial = tuple[str, ...]
Polynomial = dict[Monomial, int]
"""Coefficients of products of symbols: ``X``, ``Y``, ``Z`` (a thread's index in the grid), names of parameters, and
others that are not known."""


class Sizes(NamedTuple):
    """What is made up for one launch.

    Attributes:
        numbers: The values of integers, by name.
        elements: The elements of buffers, by name, of which the size is known.
    """

    numbers: Mapping[str, int]
    elements: Mapping[str, int]


@dataclass(frozen=True)
class GridSizes:
    """What is made up for the launches of a kernel.

    Attributes:
        first: For a launch with an element for each thread.
        second: For a launch with fewer; None if the kernel does not guard its accesses by its sizes.
        sides: The integers that are sizes along an axis, and their values in the second launch.
    """

    first: Sizes
    second: Sizes | None
    sides: Mapping[str, int]


def grid_sizes(
    program: ir.Program, integers: Collection[str], grid: Sequence[int], block: Sequence[int], sizes: Mapping[str, int]
) -> GridSizes | None:
    """Return the sizes for a kernel; None if none of its ``integers`` is one, or the launch has one dimension.

    ``sizes``: the bytes of an element of each buffer that is made up.
    """
    extents = [g * b for g, b in zip(grid, block, strict=True)]
    if not integers or prod(extents[1:]) == 1:
        return None
    uses = Uses(program, integers, block)
    uses.read()
    sides = uses.sides()
    if not sides:
        return None
    numbers = {name: extents[axis] for name, axis in sides.items()}
    numbers |= {name: prod(extents[:axis]) for name, axis in uses.strides.items() if name not in sides}
    loops = {
        name: max(min(_FEW, *extents[:2]), uses.added(name, extents)) for name in uses.counts if name not in numbers
    }
    rows = uses.rows(sides)
    of_arrays = {name: (size, program.arrays[name].element.dtype.itemsize) for name, size in sizes.items()
                 if name in program.arrays}  # fmt: skip
    first = Sizes(numbers | loops, _elements(rows, numbers, of_arrays))
    guarded, fewer = _fewer(uses, sides, extents, block)
    # Strides of planes are products of sides, so they are known only where no side changes.
    second = None
    if guarded and not set(uses.strides) - set(sides):
        second = Sizes(numbers | loops | fewer, _elements(rows, numbers | fewer, of_arrays))
    return GridSizes(first, second, {name: fewer[name] for name in sorted(guarded)})


def _fewer(
    uses: Uses, sides: Mapping[str, int], extents: Sequence[int], block: Sequence[int]
) -> tuple[set[str], dict[str, int]]:
    """Return the sides that guard all stores and are smaller in the second launch, and their values there."""
    guarded = {name for name in uses.guards if name in sides and sides[name] < _AXES}
    fewer = {name: smaller(extents[axis], block[axis]) or extents[axis] for name, axis in sides.items()}
    guarded = {name for name in guarded if fewer[name] < extents[sides[name]]}
    return guarded, {name: fewer[name] for name in guarded}


def _elements(
    rows: Mapping[str, tuple[int, Monomial]], numbers: Mapping[str, int], sizes: Mapping[str, tuple[int, int]]
) -> dict[str, int]:
    """Return the elements of the parameters that hold the rows."""
    return {
        array: -(-factor * prod(numbers[name] for name in sides) * sizes[array][1] // sizes[array][0])
        for array, (factor, sides) in rows.items()
        if array in sizes
    }


class Uses:
    """How a kernel uses its integers."""

    def __init__(self, program: ir.Program, integers: Collection[str], block: Sequence[int]) -> None:
        self.program, self.integers, self.block = program, frozenset(integers), block
        assigned = [s for s in ir.walk(program.body) if isinstance(s, ir.Assign)]
        loops = [s for s in ir.walk(program.body) if isinstance(s, ir.For)]
        changed = Counter([s.name for s in assigned] + [s.name for s in loops])
        self.values = {s.name: s.value for s in assigned if changed[s.name] == 1}
        self.versions = self._versions(Counter(s.name for s in program.body if isinstance(s, ir.Assign)), changed)
        """The names of the values of variables that are assigned anew, by the identity of their uses."""
        self.changed = frozenset(changed)
        self.starts: dict[str, ir.Expr] = {}
        """The first values of variables that change, as those of a loop that begins with a thread's index."""
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Assign | ir.For) and statement.name not in self.values:
                value = statement.value if isinstance(statement, ir.Assign) else statement.start
                self.starts.setdefault(statement.name, value)
        self.compared: dict[int, dict[str, int]] = {axis: {} for axis in range(_AXES)}
        """For each axis, the integers that an index along it is compared with, and how often."""
        self.turned: dict[str, int] = {}
        """Integers that the index of a tile that is turned round is compared with, and the axis."""
        self.near: dict[str, int] = {}
        """Integers that a part of an index along an axis is compared with, as a tile's, and that axis."""
        self.stops: dict[str, Polynomial] = {}
        """Where loops end, by the names of their counters."""
        self.bounds: set[str] = set()
        """Integers that bound the loops whose counter does not begin with a thread's index."""
        self.paired: dict[str, int] = {}
        """Integers that multiply an index to which one along the axis is added, or that it is subtracted from."""
        self.lengths: set[str] = set()
        """Integers that an index along y or z is multiplied by."""
        self.strides: dict[str, int] = {}
        """Integers that an index along z alone is multiplied by: the elements of a plane."""
        self.read_at_all: set[str] = set()
        self.counts: set[str] = set()
        """Integers that a variable that changes is compared with, as the counter of a loop, and those in indices."""
        self.guards: set[str] = set()
        self.indices: dict[str, list[Polynomial]] = {}
        self._polynomials: dict[str, Polynomial] = {}

    def read(self) -> None:
        """Read the kernel's comparisons and indices."""
        for statement in ir.walk(self.program.body):
            if isinstance(statement, ir.For) and self._axis_of_sum(self.polynomial(statement.start)) is None:
                self.bounds |= self._counted(self.polynomial(statement.stop))
            elif isinstance(statement, ir.While):
                for e in ir.inside(statement.condition):
                    if isinstance(e, ir.Binary) and e.op in ORDERED:
                        self._bound(combined("-", self.polynomial(e.left), self.polynomial(e.right)))
        self._read_uses()
        every: list[frozenset[str]] = []
        loads: list[frozenset[str]] = []
        self._stores(self.program.body, frozenset(), frozenset(), every, loads)
        self.guards = set(frozenset.intersection(*every)) if every else set()
        of_loads = set(frozenset.intersection(*loads)) if loads else set()
        # A store that is guarded along one axis only, by a size that guards all loads too, lacks the other guard.
        if self.guards and self.guards < of_loads:
            self.guards |= {n for n in of_loads if all(self._along(n) != self._along(g) for g in self.guards)}
        self.guards |= self.never if len(self.never) == 1 else set()
        self.strides = {name: axis for name, axis in self.strides.items() if name not in self.bounds}

    def _along(self, name: str) -> int | None:
        """Return the axis of a size that is compared with indices along it."""
        axes = [axis for axis, names in self.compared.items() if name in names]
        return axes[0] if axes else self.turned.get(name, self.near.get(name))

    def _read_uses(self) -> None:
        for statement in ir.walk(self.program.body):
            if isinstance(statement, ir.For):
                self.stops[statement.name] = self.polynomial(statement.stop)
                self.counts |= {s for m in self.polynomial(statement.stop) for s in m} & self.integers
                self._compare(statement.start, statement.stop)
            for e in ir.expressions(statement):
                if isinstance(e, ir.Binary) and (e.op in ORDERED or e.op in ("min", "max")):
                    self._compare(e.left, e.right)
                elif isinstance(e, ir.Variable) and e.name in self.integers:
                    self.read_at_all.add(e.name)
                elif isinstance(e, (ir.Load, ir.Atomic)):
                    self._index(e.array, e.indices)
            if isinstance(statement, ir.Store):
                self._index(statement.array, statement.indices)

    def _versions(self, direct: Mapping[str, int], changed: Mapping[str, int]) -> dict[int, str]:
        """Give a name to each value of a variable that is assigned several times, one after the other."""
        at = {name: 0 for name, count in direct.items() if 1 < count == changed[name]}
        found: dict[int, str] = {}
        for statement in self.program.body if at else ():
            for e in chain.from_iterable(ir.expressions(s) for s in ir.walk([statement])):
                if isinstance(e, ir.Variable) and at.get(e.name):
                    name = f"{e.name}#{at[e.name]}"
                    # An expression that occurs twice in the tree may have two values.
                    found[id(e)] = name if found.setdefault(id(e), name) == name else e.name
            if isinstance(statement, ir.Assign) and statement.name in at:
                at[statement.name] += 1
                self.values[f"{statement.name}#{at[statement.name]}"] = statement.value
        return found

    def _counted(self, bound: Polynomial) -> set[str]:
        return {s for m in bound for s in m} & self.integers

    def _axis_of_sum(self, made: Polynomial) -> int | None:
        return next((axis for m in made for s in m if (axis := self._axis(s)) is not None), None)

    def _bound(self, difference: Polynomial) -> None:
        """Record integers with which the condition of a loop compares a counter."""
        counters = {s[1:] for m in difference for s in m} & set(self.starts)
        if counters and self._axis_of_sum(difference) is None:
            self.bounds |= self._counted(difference)

    def sides(self) -> dict[str, int]:
        """Return the integers that are sizes, and their axes."""
        found: dict[str, int] = {}
        for axis, names in self.compared.items():
            for name in names:
                found.setdefault(name, axis)
        for name, axis in self.turned.items():
            found.setdefault(name, axis)
        for name, axis in self.paired.items():
            found.setdefault(name, axis)
        for name in self.lengths - set(self.strides) - self.bounds:
            found.setdefault(name, 0)
        for name, axis in self.near.items():
            found.setdefault(name, axis)
        # An integer that is never read is the size along the axis that is compared with none.
        missing = [axis for axis in (0, 1) if not self.compared[axis] and axis not in self.turned.values()]
        if len(self.never) == 1 and len(missing) == 1 and found:
            found.setdefault(next(iter(self.never)), missing[0])
        return found

    @property
    def never(self) -> frozenset[str]:
        """The integers that are never read."""
        return self.integers - self.read_at_all

    # Polynomials.

    def polynomial(self, e: ir.Expr, depth: int = 0) -> Polynomial:
        """Return an integer as a polynomial."""
        if depth > _MAX_DEPTH:
            return {(f"?{id(e)}",): 1}
        match e:
            case ir.Literal(value=value) if isinstance(value, int):
                return {(): int(value)} if value else {}
            case ir.Convert(operand=operand) if e.type is not None and e.type.kind in ("int", "uint"):
                return self.polynomial(operand, depth + 1)
            case ir.Index(what="block_size", axis=axis):
                return {(): self.block[axis]}
            case ir.Index(what=what, axis=axis) if what in ("thread", "block"):
                return {(f"{what[0]}{axis}",): 1}
            case ir.Variable():
                name = self.versions.get(id(e), e.name)
                if name in self.values:
                    if name not in self._polynomials:
                        self._polynomials[name] = {(f"?{name}",): 1}  # of a variable that depends on itself
                        self._polynomials[name] = self.polynomial(self.values[name], depth + 1)
                    return self._polynomials[name]
                return {(name if name in self.integers and name not in self.changed else f"?{name}",): 1}
            case ir.Binary(op="+" | "-" | "*" as op, left=left, right=right):
                one, other = self.polynomial(left, depth + 1), self.polynomial(right, depth + 1)
                if max(len(one) * len(other) if op == "*" else 0, len(one) + len(other)) <= _MAX_TERMS:
                    return combined(op, one, other)
            case ir.Binary(op="<<", left=left, right=ir.Literal(value=bits)):
                return combined("*", self.polynomial(left, depth + 1), {(): 1 << int(bits)})
            case ir.Unary(op="-", operand=operand):
                return combined("*", self.polynomial(operand, depth + 1), {(): -1})
            case ir.Call(op="index.linear", arguments=[start, *terms]):
                made = self.polynomial(start, depth + 1)
                for term, factor in zip(terms[::2], terms[1::2], strict=True):
                    product = combined("*", self.polynomial(term, depth + 1), self.polynomial(factor, depth + 1))
                    made = combined("+", made, product)
                return made
        return {(f"?{id(e)}",): 1}

    def in_grid(self, made: Polynomial, *, turned: bool = True) -> Polynomial:
        """Return a polynomial with ``X``, ``Y`` and ``Z`` for the indices of threads in the grid.

        ``turned``: ``b1 * 16 + t0`` is one along y, too, for blocks of 16 by 16, as in a transpose.
        """
        made = dict(made)
        for axis in range(_AXES):
            for within in (axis, *(other for other in range(_AXES) if other != axis)):
                if self.block[within] != self.block[axis] or (within != axis and not turned):
                    continue
                for monomial, factor in list(made.items()):
                    if f"b{axis}" not in monomial or monomial not in made:
                        continue
                    rest = _without(monomial, f"b{axis}")
                    thread = tuple(sorted((*rest, f"t{within}")))
                    of_thread = made.get(thread, 0) if self.block[within] > 1 else factor // self.block[axis]
                    if of_thread and factor == of_thread * self.block[axis]:
                        del made[monomial]
                        made.pop(thread, None)
                        made[tuple(sorted((*rest, "XYZ"[axis])))] = of_thread
        return made

    # Uses.

    def _axis(self, symbol: str) -> int | None:
        """Return the axis of a symbol, also of a variable that begins with an index along one; None for another."""
        if not symbol.startswith("?") or symbol[1:] not in self.starts:
            return _axis_of(symbol)
        start = self.polynomial(self.starts[symbol[1:]])
        axes = {axis for monomial in start for one in monomial if (axis := _axis_of(one)) is not None}
        return axes.pop() if len(axes) == 1 else None

    def _compare(self, left: ir.Expr, right: ir.Expr) -> None:
        found = self._side(left, right)
        if found is None:
            symbols = {s for value in (left, right) for m in self.polynomial(value) for s in m}
            if any(s[1:] in self.starts for s in symbols):
                self.counts |= symbols & self.integers
            return
        name, axis, whole = found
        if whole and self._side(left, right, turned=False) is not None:
            self.compared[axis][name] = self.compared[axis].get(name, 0) + 1
        elif whole:
            self.turned.setdefault(name, axis)
        else:
            self.near.setdefault(name, axis)

    # Long: one condition for each form of a comparison.
    def _side(self, left: ir.Expr, right: ir.Expr, *, turned: bool = True) -> tuple[str, int, bool] | None:
        """Return the integer that an index of a thread is compared with, its axis, and whether it is the whole one."""
        difference = self.in_grid(combined("-", self.polynomial(left), self.polynomial(right)), turned=turned)
        integers = [m for m in difference if set(m) & self.integers]
        if len(integers) > 1:  # W - K + 1, where K bounds loops, is a size less a constant
            kept = [m for m in integers if not set(m) <= self.bounds]
            difference = {m: f for m, f in difference.items() if m in kept or m not in integers}
            integers = kept
        rest = [m for m in difference if m and m not in integers]
        if len(integers) != 1 or len(integers[0]) != 1 or not rest:
            return None
        (name,) = integers[0]
        axes = {axis for m in rest for s in m if (axis := self._axis(s)) is not None}
        if len(axes) != 1:
            return None
        whole = len(rest) == 1 and rest[0] in (("X",), ("Y",), ("Z",)) and difference[rest[0]] == -difference[(name,)]
        return name, axes.pop(), whole

    def _index(self, array: str, indices: Sequence[ir.Expr]) -> None:
        if array not in self.program.arrays or len(indices) != 1:
            return
        made = self.in_grid(self.polynomial(indices[0]))
        self.indices.setdefault(array, []).append(made)
        for monomial in made:
            axes = {axis for s in monomial if (axis := self._axis(s)) is not None}
            names = [s for s in monomial if s in self.integers]
            self.counts |= set(names)
            if axes and max(axes) > 0:
                self.lengths |= set(names)
                if axes == {2} and len(names) == 1:
                    self.strides[names[0]] = 2
        self._pair(made)

    # Long: two forms of indices.
    def _pair(self, index: Polynomial) -> None:
        """Record the integers that are sizes along an axis by what is added to, or subtracted from, their product."""
        for one in index:
            axes = {axis for s in one if (axis := self._axis(s)) is not None}
            names = [s for s in one if s in self.integers]
            for name in set(names):
                # x * height + y: the multiplier of an index along x to which one along y is added, once.
                rest = _without(tuple(sorted(names)), name)
                for other in index if axes else ():
                    added = [axis for s in other if (axis := self._axis(s)) is not None]
                    same = tuple(sorted(s for s in other if s in self.integers)) == rest
                    if same and len(added) == 1 == len(other) - len(rest) and added[0] not in axes:
                        self.paired.setdefault(name, added[0])
                # (height - 1 - y) * width: what an index along y is subtracted from.
                for other, factor in index.items() if not axes and len(names) == len(one) else ():
                    taken = [axis for s in other if (axis := self._axis(s)) is not None]
                    same = tuple(sorted(s for s in other if s in self.integers)) == rest
                    if same and len(taken) == 1 == len(other) - len(rest) and factor == -index[one]:
                        self.paired.setdefault(name, taken[0])

    def added(self, name: str, extents: Sequence[int]) -> int:
        """Return how many values there are of what is added to a thread's index times an integer, as far as known."""
        most = 0
        for index in chain.from_iterable(self.indices.values()):
            for one in index:
                if name not in one or all(self._axis(s) is None for s in one):
                    continue
                rest = _without(tuple(sorted(s for s in one if s in self.integers)), name)
                values = [
                    factor if s is None else factor * (self._values(s, extents) - 1)
                    for other, factor in index.items()
                    if other != one and tuple(sorted(m for m in other if m in self.integers)) == rest
                    for s in [next((m for m in other if m not in self.integers), None)]
                ]
                most = max(most, 1 + sum(value for value in values if value > 0))
        return min(most, prod(extents))

    def _values(self, symbol: str, extents: Sequence[int]) -> int:
        """Return how many values a symbol has, if that is known; 1 if it is not."""
        axis = self._axis(symbol)
        if axis is None:
            stop = self.stops.get(symbol[1:], {})
            return stop.get((), 1) if set(stop) == {()} else 1
        return self.block[axis] if symbol[0] == "t" else extents[axis]

    def rows(self, sides: Mapping[str, int]) -> dict[str, tuple[int, Monomial]]:
        """Return the arrays that are indexed by rows, with a factor and the sides whose product is their size."""
        found = {}
        for array, indices in self.indices.items():
            made = [self._row(index, sides) for index in indices]
            shapes = {(one[0], one[1]) for one in made if one is not None}
            offsets = [frozenset(one[2].items()) for one in made if one is not None]
            if None in made or len(shapes) != 1:
                continue
            signs = {sign for offset in offsets for _, sign in offset}
            factor = next(iter(shapes))[0]
            inside = all(m == () and 0 <= sign < factor for offset in offsets for m, sign in offset)
            # Neighbours on both sides are those of a stencil, which does not reach beyond the rows.
            if inside or (min(signs) < 0 < max(signs)) or self._is_one_beyond(offsets, factor, next(iter(shapes))[1]):
                found[array] = next(iter(shapes))
        return found

    def _is_one_beyond(self, offsets: Sequence[frozenset[tuple[Monomial, int]]], factor: int, row: Monomial) -> bool:
        """Return whether indices are by rows, but for those of one column, and of one row, beyond.

        Other neighbours on one side alone may be those of a filter, whose input is larger than its output. So may those
        of rows of a pitch.
        """
        bounds = {*chain.from_iterable(self.compared.values()), *self.turned}
        beyond = {offset for offset in offsets if offset and offset != frozenset({((), 0)})}
        columns = {next(iter(o)) for o in beyond if len(o) == 1 and next(iter(o))[0] == ()}
        rows = {next(iter(o)) for o in beyond if o == frozenset({(row[:1], factor)})}
        return (
            bool(beyond)
            and set(row) <= bounds
            and len(columns) <= 1
            and len(columns) + len(rows) == len(beyond)
            and all(constant > 0 for _, constant in columns)
        )

    def _row(self, index: Polynomial, sides: Mapping[str, int]) -> tuple[int, Monomial, Polynomial] | None:
        """Return the factor and the sides of an index by rows, and what is added to it; None for another index."""
        terms = {m: f for m, f in index.items() if not set(m).isdisjoint("XYZ")}
        rest = {m: f for m, f in index.items() if m not in terms}
        unknown = any(_is_unknown(s) for m in index for s in m)
        if unknown or len(set(terms.values())) != 1:
            return None
        ordered = sorted(terms, key=len)
        row: list[str] = []
        used = set()
        for monomial in ordered:
            axis = next(s for s in monomial if s in "XYZ")
            if sorted(_without(monomial, axis)) != sorted(row) or axis in used:
                return None
            used.add(axis)
            outer = chain.from_iterable(m for m in ordered if len(m) == len(monomial) + 1)
            length = self._length("XYZ".index(axis), sorted(set(outer) & set(sides) - set(row)), sides)
            if length is None:
                return None
            row.append(length)
        return terms[ordered[0]], tuple(row), rest

    def _length(self, axis: int, following: Sequence[str], sides: Mapping[str, int]) -> str | None:
        """Return the side that is the length along an axis; None if there is none.

        ``following``: those by which the indices along the next axis are multiplied. A pitch is of another axis.
        """
        own = [name for name in following if sides[name] == axis]
        compared = (*self.compared[axis], *self.turned, *self.never)
        bounds = [name for name in sides if sides[name] == axis and name in compared]
        return next(iter([*own, *following, *bounds]), None)

    def _stores(
        self,
        body: Sequence[ir.Stmt],
        under: frozenset[str],
        near: frozenset[str],
        every: list[frozenset[str]],
        loads: list[frozenset[str]],
    ) -> None:
        """Collect for each store to a parameter, and each load, the integers whose comparison it is under.

        ``under``: those that the index of a thread is below; ``near``: those that an index beside it is.
        """
        for statement in body:
            for one in ir.direct(statement):
                self._loads(one, under | near, loads)
            if isinstance(statement, ir.If):
                yes, no = (self._bounds(statement.condition, holds=holds) for holds in (True, False))
                beside, far = (self._bounds(statement.condition, holds=holds, whole=False) for holds in (True, False))
                self._stores(statement.body, under | yes, near | beside, every, loads)
                self._stores(statement.orelse, under | no, near | far, every, loads)
                if statement.body and isinstance(statement.body[-1], (ir.Return, ir.ThreadExit)):
                    under |= no
            elif isinstance(statement, (ir.While, ir.For)):
                self._stores(statement.body, under, near, every, loads)
            changes = [e for e in ir.expressions(statement) if isinstance(e, ir.Atomic) and e.op != "load"]
            arrays = [e.array for e in changes] + ([statement.array] if isinstance(statement, ir.Store) else [])
            if not isinstance(statement, (ir.If, ir.While, ir.For)) and any(
                a in self.program.arrays and a not in self.program.declared for a in arrays
            ):
                every.append(under)

    def _loads(self, e: ir.Expr, under: frozenset[str], loads: list[frozenset[str]]) -> None:
        if isinstance(e, ir.Load) and e.array in self.program.arrays and e.array not in self.program.declared:
            loads.append(under)
        if isinstance(e, ir.Select):
            self._loads(e.condition, under, loads)
            self._loads(e.yes, under | self._bounds(e.condition, holds=True, whole=False), loads)
            self._loads(e.no, under | self._bounds(e.condition, holds=False, whole=False), loads)
        elif isinstance(e, ir.Logic):
            self._loads(e.left, under, loads)
            self._loads(e.right, under | self._bounds(e.left, holds=e.op == "and", whole=False), loads)
        else:
            for part in e.children():
                self._loads(part, under, loads)

    def _bounds(self, e: ir.Expr, *, holds: bool, whole: bool = True) -> frozenset[str]:
        """Return the integers that an index is below where a condition holds, or where it does not.

        ``whole``: only the index of a thread itself, not one beside it.
        """
        if isinstance(e, ir.Logic):
            parts = (e.left, e.right) if (e.op == "and") == holds else ()
            return frozenset[str]().union(*(self._bounds(part, holds=holds, whole=whole) for part in parts))
        if isinstance(e, ir.Convert):
            return self._bounds(e.operand, holds=holds, whole=whole)
        if isinstance(e, ir.Unary) and e.op == "not":
            return self._bounds(e.operand, holds=not holds, whole=whole)
        if not isinstance(e, ir.Binary) or e.op not in ORDERED:
            return frozenset()
        found = self._side(e.left, e.right)
        if found is None or (whole and not found[2]):
            return frozenset()
        of_size = combined("-", self.polynomial(e.left), self.polynomial(e.right)).get((found[0],), 0)
        is_below = (e.op in ("<", "<=")) == (of_size < 0)
        return frozenset((found[0],)) if is_below == holds else frozenset()


def combined(op: str, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return the sum, the difference or the product of polynomials."""
    made: Polynomial = {} if op == "*" else dict(a)
    if op == "*":
        for left, factor in a.items():
            for right, other in b.items():
                monomial = tuple(sorted(left + right))
                made[monomial] = made.get(monomial, 0) + factor * other
    else:
        for monomial, factor in b.items():
            made[monomial] = made.get(monomial, 0) + (factor if op == "+" else -factor)
    return {monomial: factor for monomial, factor in made.items() if factor}


def _without(monomial: Monomial, symbol: str) -> Monomial:
    rest = list(monomial)
    rest.remove(symbol)
    return tuple(rest)


def _axis_of(symbol: str) -> int | None:
    """Return the axis of a symbol of an index; None for another symbol."""
    if symbol in ("X", "Y", "Z"):
        return "XYZ".index(symbol)
    return int(symbol[1]) if symbol in ("t0", "t1", "t2", "b0", "b1", "b2") else None


def _is_unknown(symbol: str) -> bool:
    return symbol.startswith("?") or (_axis_of(symbol) is not None and symbol not in ("X", "Y", "Z"))
