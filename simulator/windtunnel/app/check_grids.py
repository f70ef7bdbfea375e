"""The sizes that `windtunnel check` makes up for launches of two and three dimensions.

A kernel with ``y * width + x`` needs a width, a height and buffers that fit together. Comparisons and indices are read
as polynomials (`check_polynomials`) for three facts:

- *The size along an axis* is an integer that an index along the axis is compared with.
- *A pitch*, an integer that an index is multiplied by, is as large as the number of values of what is added to it.
- *A buffer's size* is the product of the bounds of its coordinates (what is multiplied by different pitches), if all
  accesses have the same one: of ``y * width + x``, the size that y is compared with times the one of x. Where a
  coordinate has no bound, the kernel does not tell the size, and the buffer grows until the launch stays within it.

Further launches have sizes that the block does not divide, in both orders if a pitch is the size of another axis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import NamedTuple

from windtunnel.app.check_flow import deciding_numbers
from windtunnel.app.check_polynomials import AXES, ORDERED, Polynomial, Reading, combined, without
from windtunnel.app.check_sizes import other_order, smaller
from windtunnel.language import ir

_FEW = 4
"""The largest value of a made-up integer that bounds loops and is no size: such as the radius of a filter."""
_WHOLE, _CLAMPED, _NEAR = range(3)
"""How an integer is compared with an index along an axis: with the index itself, with one that is replaced if it is
beyond, or with one beside it."""

Coordinate = frozenset[tuple[str, int]]
"""The sum of symbols, each with its sign."""


class Sizes(NamedTuple):
    """What is made up for one launch.

    Attributes:
        numbers: The values of integers, by name.
        elements: The elements of buffers, by name, of which the size is known.
        sides: The sizes along an axis that are smaller than the launch.
    """

    numbers: Mapping[str, int]
    elements: Mapping[str, int]
    sides: Mapping[str, int]


@dataclass(frozen=True)
class GridSizes:
    """What is made up for the launches of a kernel.

    Attributes:
        first: For a launch with an element for each thread.
        further: For launches with fewer; none if the kernel does not guard its accesses by its sizes.
    """

    first: Sizes
    further: Sequence[Sizes]


class Shape(NamedTuple):
    """The size of a buffer, as one access tells it.

    Attributes:
        factor: What the product of the sides is multiplied by.
        sides: The integers whose product is the size.
        steps: By how many columns and rows the access is beside the one of its coordinates.
        mixed: Whether a pitch is the size along another axis than the one that it is the length of.
        turned: Whether a coordinate is subtracted from its bound.
    """

    factor: int
    sides: tuple[str, ...]
    steps: tuple[int, ...]
    mixed: bool
    turned: bool


def grid_sizes(
    program: ir.Program, integers: Collection[str], grid: Sequence[int], block: Sequence[int], sizes: Mapping[str, int]
) -> GridSizes | None:
    """Return the sizes for a kernel; None if none of its ``integers`` is one, or the launch has one dimension.

    ``sizes``: the bytes of an element of each buffer that is made up.
    """
    if not integers or prod(grid[1:]) * prod(block[1:]) == 1:
        return None
    uses = Uses(program, integers, grid, block)
    if not uses.sides and not uses.pitches:
        return None
    numbers = uses.numbers()
    shapes = uses.shapes()
    of_arrays = {name: (size, program.arrays[name].element.dtype.itemsize) for name, size in sizes.items()
                 if name in program.arrays}  # fmt: skip

    def with_sides(sides: Mapping[str, int]) -> Sizes:
        known = {**numbers, **sides}
        elements = {
            name: -(-shapes[name].factor * prod(known[side] for side in shapes[name].sides) * bytes_ // whole)
            for name, (whole, bytes_) in of_arrays.items() if name in shapes
        }  # fmt: skip
        return Sizes(known, elements, sides)

    further = _fewer(uses, numbers, block)
    mixed = any(shape.mixed for shape in uses.read_shapes)
    other = other_order(further) if mixed and not uses.reads_grid else {}
    return GridSizes(with_sides({}), [with_sides(sides) for sides in (further, other) if sides])


def _fewer(uses: Uses, numbers: Mapping[str, int], block: Sequence[int]) -> dict[str, int]:
    """Return different sizes for the sides that guard the stores, none of which the block divides."""
    made: dict[str, int] = {}
    for name in sorted(uses.guards, key=lambda n: (-numbers[n], n)):
        value = smaller(numbers[name], block[uses.sides[name]]) or numbers[name]
        while value in made.values() and value > 1:
            value -= 1
        if value < numbers[name]:
            made[name] = value
    return dict(sorted(made.items()))


class Uses:
    """How a kernel uses its integers.

    Attributes:
        sides: The integers that are a size along an axis, and that axis.
        guards: Those of them that guard all stores, or are of another axis than those that do.
        reads_grid: Whether the kernel reads the number of blocks.
    """

    def __init__(
        self, program: ir.Program, integers: Collection[str], grid: Sequence[int], block: Sequence[int]
    ) -> None:
        self.reading = Reading(program, integers, block)
        self.program, self.integers, self.grid, self.block = program, frozenset(integers), grid, block
        self.extents = [g * stride for g, stride in zip(grid, self.reading.strides, strict=True)]
        self.limits: dict[Coordinate, list[str | int]] = {}
        """What coordinates are compared with."""
        self.reaching: set[Coordinate] = set()
        """Counters of loops, and clamped values, that may be as large as their limit: ``k <= n``, ``min(y, h)``."""
        self.roles: dict[str, dict[int, int]] = {}
        """For each integer, the axes of what it is compared with, and how it is."""
        self.counts: set[str] = set()
        """Integers that are compared with the counter of a loop."""
        self.indices: dict[str, list[Polynomial]] = {}
        self.read_shapes: list[Shape] = []
        self.sides: dict[str, int] = {}
        self.guards: set[str] = set()
        statements = list(ir.walk(program.body))
        expressions = [e for s in statements for e in ir.expressions(s)]
        self.reads_grid = any(
            isinstance(e, ir.Index) and e.what not in ("thread", "block", "block_size") for e in expressions
        )
        compared = [(e.left, e.right, e.op) for e in expressions
                    if isinstance(e, ir.Binary) and e.op in (*ORDERED, "min", "max")]  # fmt: skip
        loops = [(ir.Variable(s.line, s.name), s.stop, "<") for s in statements if isinstance(s, ir.For)]
        for left, right, _ in (*compared, *loops):
            self._count(left, right)
        for left, right, op in (*compared, *loops):
            self._compare(left, right, op)
        for e in expressions:
            if isinstance(e, (ir.Load, ir.Atomic)):
                self._index(e.array, e.indices)
        for statement in statements:
            if isinstance(statement, ir.Store):
                self._index(statement.array, statement.indices)
        self.pitches = self._pitches()
        self.sides = self._sides()
        self.guards = self._guards()

    # What integers are compared with.

    def _difference(self, left: ir.Expr, right: ir.Expr) -> Polynomial:
        return self.reading.in_grid(combined("-", self.reading.polynomial(left), self.reading.polynomial(right)))

    def _axes(self, made: Polynomial) -> set[int]:
        return {axis for m in made for s in m if (axis := self.reading.axis(s)) is not None}

    def _count(self, left: ir.Expr, right: ir.Expr) -> None:
        made = self._difference(left, right)
        if not self._axes(made) and any(s[1:] in self.reading.starts for m in made for s in m):
            self.counts |= {s for m in made for s in m} & self.integers

    # Long: a comparison with one integer, with several, and with a constant.
    def _side(self, left: ir.Expr, right: ir.Expr) -> tuple[str | int, Polynomial, int] | None:
        """Return the integer of a comparison, what is compared with it, and the sign of that; None for another one."""
        difference = self._difference(left, right)
        integers = [m for m in difference if set(m) & self.integers]
        if len(integers) > 1:  # W - K + 1, where K bounds loops, is a size less a constant
            kept = [m for m in integers if not set(m) <= self.counts]
            difference = {m: f for m, f in difference.items() if m in kept or m not in integers}
            integers = kept
        rest = {m: f for m, f in difference.items() if m and m not in integers}
        if not rest or len(integers) > 1 or any(len(m) != 1 for m in integers):
            return None
        sign = -difference[integers[0]] if integers else 1 if next(iter(rest.values())) > 0 else -1
        if abs(sign) != 1:
            return None
        limit: str | int = integers[0][0] if integers else -sign * difference.get((), 0)
        return limit, {m: f * sign for m, f in rest.items()}, sign

    def _compare(self, left: ir.Expr, right: ir.Expr, op: str) -> None:
        found = self._side(left, right)
        if found is None:
            return
        limit, rest, sign = found
        coordinate = frozenset((m[0] if len(m) == 1 else "?", factor) for m, factor in rest.items())
        ordered, axes = op in ORDERED, self._axes(rest)
        beyond = op in (("<=", ">") if sign > 0 else (">=", "<"))
        if isinstance(limit, int):
            limit += beyond
        elif ordered and not axes and beyond > sign * self._difference(left, right).get((), 0):
            self.reaching.add(coordinate)
        if ordered and (isinstance(limit, str) or limit > 0):
            self.limits.setdefault(coordinate, []).append(limit)
        if len(axes) == 1 and isinstance(limit, str):
            (axis,) = axes
            whole = rest == {("XYZ"[axis],): 1} or self._begins_at(rest, axis)
            self._has_role(limit, axis, _NEAR if not whole else _WHOLE if ordered else _CLAMPED)

    def _begins_at(self, made: Polynomial, axis: int) -> bool:
        """Return whether a value is a variable that begins with the index of a thread along an axis."""
        (monomial, factor), *others = made.items()
        start = self.reading.starts.get(monomial[0].removeprefix("?"))
        return (not others and factor == 1 and len(monomial) == 1 and start is not None
                and self.reading.in_grid(self.reading.polynomial(start)) == {("XYZ"[axis],): 1})  # fmt: skip

    def _has_role(self, name: str, axis: int, role: int) -> None:
        roles = self.roles.setdefault(name, {})
        roles[axis] = min(role, roles.get(axis, role))

    # What integers multiply.

    def _index(self, array: str, indices: Sequence[ir.Expr]) -> None:
        if array not in self.program.arrays or len(indices) != 1:
            return
        made = self.reading.in_grid(self.reading.polynomial(indices[0]))
        whole = self.reading.unknown.get(next(iter(made))[0]) if len(made) == 1 and len(next(iter(made))) == 1 else None
        if isinstance(whole, ir.Select):  # of two indices
            self._index(array, [whole.yes])
            self._index(array, [whole.no])
            return
        self.indices.setdefault(array, []).append(made)
        # (height - 1 - y) * width: what an index along y is subtracted from.
        for monomial, factor in made.items():
            names = self._names(monomial)
            for name in names if len(names) == len(monomial) else ():
                for other, negative in made.items():
                    axes = self._axes({other: 1})
                    if negative == -factor and len(axes) == 1 and self._names(other) == without(names, name):
                        self._has_role(name, axes.pop(), _CLAMPED)

    def _names(self, monomial: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(s for s in monomial if s in self.integers))

    # Long: what is multiplied, what is added, and what begins elsewhere.
    def _pitches(self) -> dict[str, set[int | None]]:
        """Return the integers that multiply an index, and the axes of what is added to the product."""
        found: dict[str, set[int | None]] = {}
        for index in chain.from_iterable(self.indices.values()):
            multiplied = [self._names(m) for m in index if len(self._names(m)) < len(m)]
            # Something else that is added, such as where a region begins: what follows is no size along an axis.
            begins = any(m and m == self._names(m) and m not in multiplied and f > 0 for m, f in index.items())
            for monomial in index:
                names = self._names(monomial)
                for name in names if len(names) < len(monomial) else ():
                    rest = without(names, name)
                    added = [m for m in index if len(m) > len(rest) and self._names(m) == rest]
                    axes = {axis for m in added for s in m if (axis := self.reading.axis(s)) is not None}
                    least = min(abs(f) for m, f in index.items() if self._names(m) == names)
                    whole = len(axes) == 1 and not begins and all(abs(index[m]) <= least for m in added)
                    found.setdefault(name, set()).add(axes.pop() if whole else None)
        return found

    def _sides(self) -> dict[str, int]:
        sides: dict[str, int] = {}
        for role in (_WHOLE, _CLAMPED):
            for name, roles in self.roles.items():
                axes = [axis for axis, one in roles.items() if one == role]
                if axes:
                    sides.setdefault(name, min(axes))
        for name, added in self.pitches.items():
            axes = sorted(axis for axis in added if axis is not None)
            if axes and name not in self.counts:
                sides.setdefault(name, max(axes, key=lambda axis: self.extents[axis]))
        for name, roles in self.roles.items():
            sides.setdefault(name, min(roles))
        # An integer on which no index and no condition depends is the size along the axis that has none.
        unused = self.integers - deciding_numbers(self.program)
        missing = [axis for axis in range(AXES) if self.extents[axis] > 1 and axis not in sides.values()]
        if len(unused) == 1 and len(missing) == 1 and sides:
            sides[next(iter(unused))] = missing[0]
        return sides

    def numbers(self) -> dict[str, int]:
        """Return the values of integers in the first launch."""
        made = {name: self.extents[axis] for name, axis in self.sides.items()}
        few = min(_FEW, *self.extents[:2])
        read = [name for index in chain.from_iterable(self.indices.values()) for m in index for name in self._names(m)]
        bounds = [name for shape in self.shapes().values() for name in shape.sides]
        others = dict.fromkeys(name for name in (*sorted(self.counts), *read, *bounds) if name not in made)
        made |= dict.fromkeys(others, few)
        radii = {n for coordinate, limits in self.limits.items() for n in limits
                 if len(coordinate) == 1 and self._is_below_zero(min(coordinate)[0])}  # fmt: skip
        for name in sorted((n for n in others if n not in radii), key=lambda n: n in self.pitches):  # not -r to r
            spans = [self._span(index, name, made) for index in chain.from_iterable(self.indices.values())]
            made[name] = min(max([few, *spans]), prod(self.extents))
        return made

    def _span(self, index: Polynomial, name: str, numbers: Mapping[str, int]) -> int:
        """Return how many values there are of what is added to an index times an integer, as far as known."""
        products = [m for m in index if name in m and len(self._names(m)) < len(m)]
        if not products:
            return 0
        others = prod(numbers[n] for n in without(self._names(min(products, key=len)), name))
        most = 1
        for monomial, factor in index.items():
            if name not in monomial and factor > 0:
                unknown = [s for s in monomial if s not in self.integers]
                bounds = [self._bound(frozenset({(s, 1)})) for s in unknown]
                most = max(most, self.extents[0] if None in bounds and len(monomial) == 1 else 1)  # rows of tiles
                values = prod(self._value(bound, numbers) - 1 for bound in bounds)
                most += factor * values * prod(numbers[n] for n in self._names(monomial))
        return -(-most // others)

    @staticmethod
    def _value(bound: str | int | None, numbers: Mapping[str, int]) -> int:
        return 1 if bound is None else numbers.get(bound, 1) if isinstance(bound, str) else bound

    # What buffers hold.

    # Long: one case for each kind of a coordinate.
    def _bound(self, coordinate: Coordinate) -> str | int | None:
        """Return what a coordinate stays below; None if that is not known."""
        if all(sign < 0 for _, sign in coordinate):
            coordinate = frozenset((s, -sign) for s, sign in coordinate)
        if coordinate in self.limits:
            return self._preferred(self.limits[coordinate], coordinate)
        symbols = [s for s, _ in coordinate]
        if len(symbols) > 1:
            # Neighbours on both sides are those of a stencil, which does not reach beyond the rows.
            inside = [(s, sign) for s, sign in coordinate if not self._is_below_zero(s)]
            return self._bound(frozenset(inside)) if len(inside) == 1 and inside[0][0] in ("X", "Y", "Z") else None
        (symbol,) = symbols
        if symbol in ("X", "Y", "Z"):
            axis = "XYZ".index(symbol)
            own = [name for name, one in self.sides.items() if one == axis]
            return next((n for n in own if n in self.pitches), next(iter(own), self.extents[axis]))
        if symbol[0] in "tb" and symbol[1:].isdigit():
            axis = int(symbol[1:])
            return self.block[axis] if symbol[0] == "t" else self.grid[axis]
        ends = self._ends(self.reading.unknown[symbol], coordinate) if symbol in self.reading.unknown else None
        return next(iter(ends)) if ends is not None and len(ends) == 1 else None

    def _preferred(self, limits: Sequence[str | int], coordinate: Coordinate) -> str | int:
        """Return the limit that is of the coordinate's axis and guards stores, or is a pitch, or is the first."""
        axes = {axis for s, _ in coordinate if (axis := self.reading.axis(s)) is not None}
        if len(axes) == 1:
            (axis,) = axes
            limits = [self._of_axis(n, axis) if isinstance(n, str) else n for n in limits]
        guards = [n for n in limits if isinstance(n, str) and n in self.guards]
        pitches = [n for n in limits if isinstance(n, str) and n in self.pitches]
        return next(iter([*guards, *pitches, *(n for n in limits if isinstance(n, str)), *limits]))

    def _is_below_zero(self, symbol: str) -> bool:
        """Return whether a variable begins with a number below zero, as an offset within a stencil."""
        start = self.reading.starts.get(symbol.removeprefix("?"))
        made = {} if start is None else self.reading.polynomial(start)
        return bool(made) and all(factor < 0 for factor in made.values())

    # Long: one case for each form of an expression.
    def _ends(self, e: ir.Expr, of: Coordinate) -> frozenset[str] | None:
        """Return the sizes that an expression stays below, or is limited to; None if that is not known."""
        made = self.reading.in_grid(self.reading.polynomial(e))
        symbols = {m: f for m, f in made.items() if m}
        if not symbols:
            return frozenset()
        if len(symbols) == 1 and next(iter(symbols.items())) in {((n,), 1) for n in self.integers}:
            if made.get((), 0) >= 0:
                self.reaching.add(of)
            return frozenset(next(iter(symbols)))
        match self.reading.unknown.get(next(iter(symbols))[0]) if len(symbols) == 1 else None:
            case ir.Binary(op="min", left=left, right=right):
                known = [ends for one in (right, left) if (ends := self._ends(one, of))]
                clamps = [ends for ends in known if self._is_size(ends, left) or self._is_size(ends, right)]
                return self._limited(next(iter([*clamps, *known])), left, right) if known else None
            case ir.Binary(op="max", left=left, right=right) | ir.Select(yes=left, no=right):
                one, other = self._ends(left, of), self._ends(right, of)
                if one is None or other is None:
                    return None
                return self._limited(one | other, left, right)
            case ir.Call(op="int.remainder", arguments=[dividend, divisor]):
                sizes = frozenset(n for n in self.integers if self.reading.polynomial(divisor) == {(n,): 1})
                return self._limited(sizes, dividend) if sizes else None
            case ir.Convert(operand=operand):
                return self._ends(operand, of)
        coordinate = frozenset((m[0] if len(m) == 1 else "?", factor) for m, factor in symbols.items())
        bound = self._bound_once(coordinate)
        return frozenset({bound}) if isinstance(bound, str) else None

    def _bound_once(self, coordinate: Coordinate) -> str | int | None:
        """Return the bound of a coordinate that is not an expression without one."""
        known = coordinate in self.limits or all(s in ("X", "Y", "Z") or self._is_below_zero(s) for s, _ in coordinate)
        return self._bound(coordinate) if known else None

    def _is_size(self, ends: frozenset[str], e: ir.Expr) -> bool:
        made = {m: f for m, f in self.reading.polynomial(e).items() if m}
        return len(ends) == 1 and made == {(next(iter(ends)),): 1}

    def _of_axis(self, name: str, axis: int) -> str:
        """Return the size along an axis instead of that along another one: what is compared with this is a mistake."""
        own = [n for n, roles in self.roles.items() if roles.get(axis) == _WHOLE]
        return own[0] if own and name not in own and _WHOLE in self.roles.get(name, {}).values() else name

    def _limited(self, ends: frozenset[str], *parts: ir.Expr) -> frozenset[str]:
        """Return sizes that parts of an expression are limited to, or those along the parts' axis."""
        axes = set().union(*(self._axes(self.reading.in_grid(self.reading.polynomial(part))) for part in parts))
        return frozenset(self._of_axis(name, min(axes)) for name in ends) if len(axes) == 1 else ends

    def shapes(self) -> dict[str, Shape]:
        """Return the buffers whose accesses tell one size."""
        found = {}
        of_arrays = {array: [self._shape(index) for index in indices] for array, indices in self.indices.items()}
        self.read_shapes = [one for shapes in of_arrays.values() for one in shapes if one is not None]
        for array, shapes in of_arrays.items():
            known = [one for one in shapes if one is not None]
            if len(known) == len(shapes) and len({(one.factor, one.sides) for one in known}) == 1 and (
                self._is_inside(known)
            ):  # fmt: skip
                found[array] = known[0]
        return found

    def _is_inside(self, shapes: Sequence[Shape]) -> bool:
        """Return whether accesses are within the rows, on both sides of them, or one column, row or plane beyond.

        Other neighbours on one side alone may be those of a filter, whose input is larger than its output. So may one
        of them be where the rows of some buffer are longer by a constant than a size.
        """
        steps = {step for shape in shapes for step in shape.steps}
        if max(steps, default=0) <= 0 or min(steps) < 0:
            return True
        beyond = {shape.steps for shape in shapes if any(shape.steps)}
        # Without an access of a thread's own row, the buffer may begin with a row more.
        own = any(shape.turned or not any(shape.steps) for shape in shapes)
        inner = {s for s in beyond if not any(s[1:])}
        outer = {s for s in beyond if own and s[0] == 0 and sorted(s)[-2:] == [0, 1]}
        return (
            len(inner) <= 1 and inner | outer == beyond and not self.is_staggered and not any(s.mixed for s in shapes)
        )

    @property
    def is_staggered(self) -> bool:
        """Whether an index is multiplied by a size and by a constant: ``i * (width + 1) + j``."""
        return any(
            len(names) == 1 and len(names) < len(m) and without(m, names[0]) in index and names[0] in self.sides
            and without(m, names[0])[0] in ("X", "Y", "Z")
            for index in chain.from_iterable(self.indices.values()) for m in index for names in [self._names(m)]
        )  # fmt: skip

    # Long: terms of an index, its coordinates, and what is added to them.
    def _shape(self, index: Polynomial) -> Shape | None:
        """Return the size that an index tells; None for one with a coordinate that has no bound."""
        groups: dict[tuple[tuple[str, ...], int], list[tuple[str, int]]] = {}
        of_names: dict[tuple[str, ...], list[tuple[str, int]]] = {}
        rest: dict[tuple[str, ...], int] = {}
        for monomial, factor in index.items():
            names = self._names(monomial)
            symbols = [s for s in monomial if s not in self.integers]
            if len(symbols) > 1:
                return None
            if symbols:
                of_names.setdefault(names, []).append((symbols[0], factor))
            else:
                rest[names] = factor
        for names, terms in of_names.items():
            if frozenset(terms) in self.limits:  # 16 * tile + thread
                groups[names, 1] = terms
                continue
            for symbol, factor in terms:
                groups.setdefault((names, abs(factor)), []).append((symbol, 1 if factor > 0 else -1))
        bounds: dict[tuple[tuple[str, ...], int], str | int] = {}
        for key, terms in groups.items():
            bound = self._bound(frozenset(terms))
            if bound is None:
                return None
            bounds[key] = bound
            pitches = {name for names, _ in groups for name in names}
            if frozenset(terms) in self.reaching and bound not in pitches and (
                frozenset(terms) in self.limits or not pitches <= set(self.roles)
            ):  # fmt: skip
                return None
            if all(sign < 0 for _, sign in terms) and isinstance(bound, str):  # bound - 1 - index
                names = tuple(sorted((*key[0], bound)))
                rest[names] = rest.get(names, 0) - key[1]
                rest[key[0]] = rest.get(key[0], 0) + key[1]
        return self._sized(groups, bounds, {names: step for names, step in rest.items() if step})

    # Long: steps beside the coordinates, pitches, and the sides whose product is the size.
    def _sized(
        self,
        groups: Mapping[tuple[tuple[str, ...], int], Sequence[tuple[str, int]]],
        bounds: Mapping[tuple[tuple[str, ...], int], str | int],
        rest: dict[tuple[str, ...], int],
    ) -> Shape | None:
        keys = sorted(groups, key=lambda key: (len(key[0]), key[1]))
        if not keys or not any(isinstance(bound, str) for bound in bounds.values()):
            return None
        steps = []
        for names, factor in keys:
            step = rest.pop(names, 0)
            steps.append(step // factor)
        if len(keys) == 1 and steps[0] > 0:  # where rows begin, perhaps
            return None
        if rest:
            return None
        if any(self._is_below_zero(s) for terms in groups.values() for s, _ in terms):
            steps += [-1, 1]  # neighbours on both sides
        of_bounds = {bound for bound in bounds.values() if isinstance(bound, str)}
        pitches = {name for names, _ in keys for name in names}
        free = sorted(name for name in pitches - of_bounds if name not in self.roles and name not in self.counts)
        sides, inside, factor = list(free), 0, 1
        for key in keys:
            bound, pitch = bounds[key], key[1] if len(key[0]) >= inside else 1
            inside += isinstance(bound, str)
            if not all(name in key[0] for name in free):
                continue
            # The constant of a pitch: 2 of (2 * y + 1) * width. Without the sizes inside, it stands for them.
            factor = max(factor, pitch) * (bound if isinstance(bound, int) else 1)
            sides += [bound] if isinstance(bound, str) else []
        turned = any(all(sign < 0 for _, sign in terms) for terms in groups.values())
        mixed = not free and not self._is_chain(keys, bounds)
        return Shape(factor, tuple(sorted(sides)), tuple(steps), mixed, turned)

    @staticmethod
    def _is_chain(
        keys: Sequence[tuple[tuple[str, ...], int]], bounds: Mapping[tuple[tuple[str, ...], int], str | int]
    ) -> bool:
        """Return whether each coordinate is multiplied by the bounds of those inside of it."""
        inside: list[str] = []
        for at, key in enumerate(keys):
            if at and len(key[0]) > len(keys[at - 1][0]) and sorted(inside) != list(key[0]):
                return False
            inside += [bound for bound in (bounds[key],) if isinstance(bound, str)]
        return True

    # What guards stores.

    def _guards(self) -> set[str]:
        every: list[frozenset[str]] = []
        self._stores(self.program.body, frozenset(), every)
        guards = set(frozenset.intersection(*every)) & set(self.sides) if every else set()
        guarded = {self.sides[name] for name in guards}
        # The sizes of other axes along which there are several blocks of several threads.
        free = {axis for axis in range(AXES) if self.grid[axis] > 1 < self.block[axis]} - guarded
        return guards | {name for name, axis in self.sides.items() if guards and axis in free}

    def _stores(self, body: Sequence[ir.Stmt], under: frozenset[str], every: list[frozenset[str]]) -> None:
        """Collect for each store to a parameter the integers that the index of a thread is below there."""
        for statement in body:
            if isinstance(statement, ir.If):
                yes, no = (self._below(statement.condition, holds=holds) for holds in (True, False))
                self._stores(statement.body, under | yes, every)
                self._stores(statement.orelse, under | no, every)
                if statement.body and isinstance(statement.body[-1], (ir.Return, ir.ThreadExit)):
                    under |= no
            elif isinstance(statement, ir.While):
                self._stores(statement.body, under | self._below(statement.condition, holds=True), every)
            elif isinstance(statement, ir.For):
                self._stores(statement.body, under, every)
            changes = [e for e in ir.expressions(statement) if isinstance(e, ir.Atomic) and e.op != "load"]
            arrays = [e.array for e in changes] + ([statement.array] if isinstance(statement, ir.Store) else [])
            if not isinstance(statement, (ir.If, ir.While, ir.For)) and any(
                a in self.program.arrays and a not in self.program.declared for a in arrays
            ):
                every.append(under)

    def _below(self, e: ir.Expr, *, holds: bool) -> frozenset[str]:
        """Return the integers that the index of a thread is below where a condition holds, or where it does not."""
        if isinstance(e, ir.Logic):
            parts = (e.left, e.right) if (e.op == "and") == holds else ()
            return frozenset[str]().union(*(self._below(part, holds=holds) for part in parts))
        if isinstance(e, ir.Convert):
            return self._below(e.operand, holds=holds)
        if isinstance(e, ir.Unary) and e.op == "not":
            return self._below(e.operand, holds=not holds)
        found = self._side(e.left, e.right) if isinstance(e, ir.Binary) and e.op in ORDERED else None
        if found is None:
            return frozenset()
        name, rest, sign = found
        axes = self._axes(rest)
        whole = len(axes) == 1 and (rest == {("XYZ"[min(axes)],): 1} or self._begins_at(rest, min(axes)))
        is_below = (isinstance(e, ir.Binary) and e.op in ("<", "<=")) == (sign > 0)
        return frozenset((name,)) if isinstance(name, str) and whole and is_below == holds else frozenset()
