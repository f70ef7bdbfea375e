"""Stencils: kernels that access the neighbours of a thread's cell by direction instead of by index.

A parameter annotated ``GridPos`` is the position of the thread's cell: its place in the grid, shifted by the halo that
surrounds the interior of every array. No caller passes it. `StencilReader` reads its uses, and `expand` replaces them
by indices once the arrays' dimensions are known. Threads beyond the interior do nothing. If the stencil has a tile,
arrays whose neighbouring cells are read are staged in shared memory. Executors and emitters therefore see plain
kernels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from windtunnel.core.errors import Location, list_choices, nearest
from windtunnel.core.stencil import StencilForm
from windtunnel.language import ir
from windtunnel.language.expressions import Reader
from windtunnel.language.names import AXES
from windtunnel.language.source import KernelError, Source
from windtunnel.language.types import Array

DIRECTIONS: Mapping[str, tuple[int, ...]] = {
    "west": (-1,), "east": (1,), "north": (-1, 0), "south": (1, 0), "down": (-1, 0, 0), "up": (1, 0, 0),
}  # fmt: skip
"""The step of each direction along an array's last dimensions: planes, rows, columns."""
_WORDS = (*DIRECTIONS, "at", "idx", *AXES)
_MOST_SIDES = 3


class StencilReader(Reader):
    """Reads a kernel's uses of its position: `ir.Cell` for cells, `ir.PositionIndex` for the own cell's coordinates."""

    def __init__(self, source: Source, arrays: frozenset[str], form: StencilForm | None) -> None:
        super().__init__(source, arrays)
        self.scope.positions = set(source.positions)
        if form is not None and not source.positions:
            self._refuse(source.tree, f"the stencil '{source.tree.name}' has no position", "a parameter: pos: GridPos")
        self.form = (form or StencilForm()) if source.positions else None

    def _named(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.scope.positions

    def _name(self, node: ast.Name, name: str) -> ir.Expr:
        if self._named(node):
            self._refuse(
                node, f"'{name}' alone is not a number", f"{name}.idx() as an index, {name}.north(a), {name}.x"
            )
        return super()._name(node, name)

    def _attribute(self, node: ast.Attribute) -> ir.Expr:
        if not self._named(node.value):
            return super()._attribute(node)
        if node.attr not in AXES:
            self._check_word(node)
            self._refuse(node, f"'{ast.unparse(node)}' without its arguments", f"{ast.unparse(node)}(...)")
        return ir.PositionIndex(node.lineno, AXES.index(node.attr), ast.unparse(node))

    def _call(self, node: ast.Call, *, statement: bool = False) -> ir.Expr:
        called = node.func
        if not isinstance(called, ast.Attribute) or not self._named(called.value):
            return super()._call(node, statement=statement)
        self._check_word(called)
        text, word = ast.unparse(node), called.attr
        if word in AXES:
            self._refuse(node, f"'{text}': it is a number", ast.unparse(called))
        if node.keywords:
            self._refuse(node, "an argument by its name", "arguments in order")
        if word == "idx":
            if node.args:
                self._refuse(node, f"'{text}' with an argument", f"a[{ast.unparse(called)}()]")
            return ir.Cell(node.lineno, (), whole=False, text=text)
        array = self._array(node, called)
        whole = word == "at"
        offsets = tuple(self._steps(argument) for argument in node.args[1:]) if whole else self._directed(node, word)
        self._check_reach(node, text, offsets)
        return ir.Load(node.lineno, array, [ir.Cell(node.lineno, offsets, whole=whole, text=text)])

    def _check_word(self, node: ast.Attribute) -> None:
        if node.attr not in _WORDS:
            self._refuse(node, f"a position has no '{node.attr}'", list_choices(_WORDS), nearest(node.attr, _WORDS))

    def _array(self, node: ast.Call, called: ast.Attribute) -> str:
        usage = f"{ast.unparse(called)}(a, ...)" if called.attr == "at" else f"{ast.unparse(called)}(a)"
        if not node.args:
            self._refuse(node, f"'{ast.unparse(node)}' of no array", usage)
        given, known = node.args[0], sorted(self.scope.arrays)
        if not isinstance(given, ast.Name) or given.id not in self.scope.arrays:
            text = ast.unparse(given)
            self._refuse(
                given, f"'{text}' is not an array here", list_choices(known) if known else usage, nearest(text, known)
            )
        return self.scope.arrays[given.id]

    def _directed(self, node: ast.Call, word: str) -> tuple[int, ...]:
        text = ast.unparse(node)
        if len(node.args) > 2:
            self._refuse(node, f"'{text}' of {len(node.args)} values", f"an array and a distance: {word}(a, 2)")
        distance = self._steps(node.args[1]) if len(node.args) == 2 else 1
        if distance < 1:
            other = next(name for name, steps in DIRECTIONS.items() if steps == tuple(-s for s in DIRECTIONS[word]))
            self._refuse(node, f"a distance of {distance} in '{text}'", f"a number from 1; the other way is {other}")
        return tuple(step * distance for step in DIRECTIONS[word])

    def _steps(self, node: ast.expr) -> int:
        steps = self._constant(node)
        if not isinstance(steps, int) or isinstance(steps, bool):
            self._refuse(node, f"{steps!r} cells away", "a whole number that is known before the kernel runs")
        return steps

    def _check_reach(self, node: ast.Call, text: str, offsets: Sequence[int]) -> None:
        assert self.form is not None  # noqa: S101  it has a position
        far = max((abs(step) for step in offsets), default=0)
        if far > self.form.halo:
            halo = self.form.halo
            self._refuse(
                node,
                f"'{text}' looks {far} cells away, beyond the halo of {halo}",
                f"at most {halo}, or @windtunnel.stencil(halo={far})",
            )


def expand(program: ir.Program, form: StencilForm) -> None:
    """Replace a stencil's positions by indices, in place. ``program`` has its arrays, and no types yet."""
    _Expansion(program, form).run()


def launch_mismatch(program: ir.Program, grid: Sequence[int], block: Sequence[int], given: Sequence[Any]) -> str | None:
    """Return the problem of a launch in words, of a stencil or a source that requires a block; None for none.

    ``grid`` and ``block`` are along x, y and z; ``given`` are the arguments in the order of the parameters.
    """
    if program.block is not None and tuple(block) != program.block:
        return f"a block of {_product(block)} threads along x, y and z; the source requires {_product(program.block)}"
    if program.form is None:
        return None
    named = zip(program.parameters, given, strict=True)
    shapes = {parameter.name: tuple(argument.shape) for parameter, argument in named if parameter.name in program.cells}
    first = program.cells[0]
    for name, shape in shapes.items():
        if shape != shapes[first]:
            return (
                f"'{name}' has {_product(shape)} elements and '{first}' {_product(shapes[first])}; "
                "arrays of a stencil are of one shape, each with its halo"
            )
    wanted = program.form.block
    if wanted is not None and tuple(block) != wanted:
        return (
            f"a block of {_product(block)} threads along x, y and z; the stencil's tile of "
            f"{_product(program.form.tile or ())} cells, rows first, takes {_product(wanted)}"
        )
    sides = len(shapes[first])
    for axis in range(sides, _MOST_SIDES):
        many = grid[axis] * block[axis]
        if many > 1:
            return f"{many} threads along {AXES[axis]}, where '{first}' has {_sides(sides)}: threads would share cells"
    return None


class _Expansion:
    def __init__(self, program: ir.Program, form: StencilForm) -> None:
        self.program, self.form = program, form
        self.accesses = list(_accesses(program.body))
        """(array, cell) of each access through the position."""
        self.dimensions = 0
        self.names = {parameter.name for parameter in program.parameters} | set(program.arrays) | set(program.declared)
        self.names |= {node.name for node in ir.walk(program.body) if isinstance(node, (ir.Assign, ir.For))}
        self.at: list[str] = []
        """The variables with the own cell's indices, in the order of an array's dimensions."""
        self.at_tile: list[str] = []
        """The same variables within a tile."""
        self.staged: dict[str, str] = {}
        """The arrays that are staged in shared memory, and their names there."""

    def run(self) -> None:
        """Expand the whole stencil."""
        program = self.program
        self._check()
        self.at = [self._fresh(AXES[axis]) for axis in reversed(range(self.dimensions))]
        declarations = [statement for statement in program.body if isinstance(statement, ir.Declare)]
        body = [statement for statement in program.body if not isinstance(statement, ir.Declare)]
        staging = self._staging() if self.form.tile is not None else []
        line = program.line
        places: list[ir.Stmt] = []
        for axis, name in enumerate(reversed(self.at)):
            places.append(ir.Assign(line, name, _moved(_in_grid(line, axis), self.form.halo)))
        for axis, name in enumerate(reversed(self.at_tile)):
            places.append(ir.Assign(line, name, _moved(ir.Index(line, "thread", axis), self.form.halo)))
        for statement in ir.walk(body):
            self._rewrite(statement)
        program.body = [*declarations, *staging, *places, ir.If(line, self._inside(), body, [])]

    # What a stencil must be.

    def _check(self) -> None:
        program = self.program
        reached = {array for array, _ in self.accesses}
        indices = {id(cell) for _, cell in self.accesses}
        for statement in ir.walk(program.body):
            for e in ir.expressions(statement):
                if isinstance(e, ir.Cell) and id(e) not in indices:
                    self._refuse(e.line, f"'{e.text}' is not a number", f"it alone as an index, a[{e.text}]; or pos.x")
        program.cells = [parameter.name for parameter in program.parameters if parameter.name in reached]
        for array, cell in self.accesses:
            if array in program.declared:
                expected = "an array that the kernel is given"
                self._refuse(
                    cell.line, f"'{array}' is the kernel's own, and '{cell.text}' an index of parameters", expected
                )
        if not program.cells:
            expected = "an element of one: a[pos.idx()], pos.north(a)"
            self._refuse(program.line, f"the stencil '{program.name}' reaches no array through its position", expected)
        first = program.cells[0]
        self.dimensions = program.arrays[first].dimensions
        if self.dimensions > _MOST_SIDES:
            self._refuse(program.line, f"'{first}' has {_sides(self.dimensions)}", "a stencil of one to three")
        for array, cell in self.accesses:
            self._check_cell(array, cell, first)
        tile = self.form.tile
        if tile is not None and len(tile) != self.dimensions:
            problem = f"a tile of {_sides(len(tile))}, where '{first}' has {_sides(self.dimensions)}"
            self._refuse(program.line, problem, f"a tile of {_sides(self.dimensions)}, rows first")
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Barrier) and statement.scope == "block":
                problem = "a barrier in a stencil, which threads beyond the interior do not reach"
                self._refuse(statement.line, problem, "a kernel without GridPos, or two stencils one after another")

    def _check_cell(self, array: str, cell: ir.Cell, first: str) -> None:
        sides = self.program.arrays[array].dimensions
        if sides != self.dimensions:
            problem = f"'{array}' has {_sides(sides)}, and '{first}' {_sides(self.dimensions)}"
            self._refuse(cell.line, problem, "arrays of one shape where a stencil reaches them through its position")
        if cell.whole and len(cell.offsets) != sides:
            axes = ", ".join(f"d{axis}" for axis in reversed(AXES[:sides]))
            problem = f"'{cell.text}' has {_many(len(cell.offsets), 'offset')}, and '{array}' {_sides(sides)}"
            self._refuse(cell.line, problem, f"one for each: at({array}, {axes})")
        if len(cell.offsets) > sides:
            known = [word for word, steps in DIRECTIONS.items() if len(steps) <= sides]
            self._refuse(
                cell.line, f"no such direction in '{cell.text}': '{array}' has {_sides(sides)}", list_choices(known)
            )

    # What all threads do: the tile.

    def _staging(self) -> list[ir.Stmt]:
        """Return the statements that load tile and halo of each array whose neighbouring cells are read."""
        program, tile = self.program, self.form.tile
        assert tile is not None  # noqa: S101  the caller has seen it
        near: dict[str, ir.Cell] = {}
        for array, cell in self.accesses:
            if any(cell.offsets):
                near.setdefault(array, cell)
        if not near:
            return []
        for array, cell in near.items():
            self._check_unwritten(array, cell)
        self.at_tile = [self._fresh(f"t{AXES[axis]}") for axis in reversed(range(self.dimensions))]
        staging: list[ir.Stmt] = []
        shape = tuple(side + 2 * self.form.halo for side in tile)
        for array in sorted(near, key=list(program.cells).index):
            name = self.staged[array] = self._fresh(f"{array}_tile")
            kind = program.arrays[array].element
            declared = ir.Declare(near[array].line, name, "shared", shape, kind)
            program.declared[name] = declared
            program.arrays[name] = Array(kind, len(shape))
            staging.append(declared)
        line = next(iter(near.values())).line
        inner = self._copying(line, {array: near[array].line for array in self.staged})
        return [*staging, inner, ir.Barrier(line, "block")]

    def _check_unwritten(self, array: str, cell: ir.Cell) -> None:
        for statement in ir.walk(self.program.body):
            writes = isinstance(statement, ir.Store) and statement.array == array
            changes = any(isinstance(e, ir.Atomic) and e.array == array for e in ir.expressions(statement))
            if writes or changes:
                self._refuse(
                    cell.line,
                    f"'{cell.text}' reads '{array}', which line {statement.line} writes: with a tile, one block would "
                    "copy cells that another has already written",
                    "two arrays, one to read and one to write",
                )

    def _copying(self, line: int, lines: Mapping[str, int]) -> ir.Stmt:
        """Return the loops in which the block's threads copy the tile of each array, up to its bounds."""
        first, sides = self.program.cells[0], self.dimensions
        assert self.form.tile is not None  # noqa: S101  the caller has seen it
        counters = [self._fresh(name) for name in "kji"[-sides:]]
        places = [self._fresh(name) for name in ("plane", "row", "column")[-sides:]]
        here: list[ir.Stmt] = []
        for counter, place, axis in zip(counters, places, reversed(range(sides)), strict=True):
            here.append(ir.Assign(line, place, _in_grid(line, axis, ir.Variable(line, counter))))
        inside = _all(
            ir.Binary(line, "<", ir.Variable(line, place), ir.Size(line, first, side))
            for side, place in reversed(list(enumerate(places)))
        )
        copies: list[ir.Stmt] = [
            ir.Store(
                at,
                self.staged[array],
                [ir.Variable(at, counter) for counter in counters],
                ir.Load(at, array, [ir.Variable(at, place) for place in places]),
            )
            for array, at in lines.items()
        ]
        body = [*here, ir.If(line, inside, copies, [])]
        # The last dimension is the innermost loop, so that adjacent threads copy adjacent elements.
        for side in reversed(range(sides)):
            axis = sides - 1 - side
            stop = ir.Literal(line, self.form.tile[side] + 2 * self.form.halo)
            start, step = ir.Index(line, "thread", axis), ir.Index(line, "block_size", axis)
            body = [ir.For(line, counters[side], start, stop, step, body)]
        return body[0]

    # What threads of the interior do.

    def _inside(self) -> ir.Expr:
        line, first = self.program.line, self.program.cells[0]
        return _all(
            ir.Binary(line, "<", ir.Variable(line, name), _moved(ir.Size(line, first, side), -self.form.halo))
            for side, name in reversed(list(enumerate(self.at)))
        )

    def _rewrite(self, holder: ir.Stmt | ir.Expr) -> None:
        """Replace cells and positions by indices and variables in the parts of a statement or expression."""
        if isinstance(holder, (ir.Store, ir.Atomic)):
            cell = _only_cell(holder.indices)
            if cell is not None:
                holder.indices = self._indices(cell, self.at)
        for name in holder.__dataclass_fields__:
            part = getattr(holder, name)
            if isinstance(part, ir.Expr):
                setattr(holder, name, self._plain(part))
            elif isinstance(part, (list, tuple)) and any(isinstance(item, ir.Expr) for item in part):
                setattr(holder, name, [self._plain(item) for item in part])

    def _plain(self, e: Any) -> Any:
        if isinstance(e, ir.Load):
            cell = _only_cell(e.indices)
            if cell is not None and e.array in self.staged:
                return ir.Load(e.line, self.staged[e.array], self._indices(cell, self.at_tile))
            if cell is not None:
                return ir.Load(e.line, e.array, self._indices(cell, self.at))
        if isinstance(e, ir.PositionIndex):
            if e.axis >= self.dimensions:
                first = self.program.cells[0]
                known = [f"{e.text[:-1]}{axis}" for axis in AXES[: self.dimensions]]
                self._refuse(e.line, f"'{e.text}': '{first}' has {_sides(self.dimensions)}", list_choices(known))
            return ir.Variable(e.line, self.at[self.dimensions - 1 - e.axis])
        self._rewrite(e)
        return e

    def _indices(self, cell: ir.Cell, at: Sequence[str]) -> list[ir.Expr]:
        offsets = (*(0,) * (self.dimensions - len(cell.offsets)), *cell.offsets)
        return [_moved(ir.Variable(cell.line, name), by) for name, by in zip(at, offsets, strict=True)]

    # Names and errors.

    def _fresh(self, name: str) -> str:
        unused, number = name, 1
        while unused in self.names:
            unused = f"{name}_{number}"
            number += 1
        self.names.add(unused)
        return unused

    def _refuse(self, line: int, problem: str, expected: str) -> NoReturn:
        raise KernelError(problem, where=Location(*self.program.place_of(line)), expected=expected)


def _accesses(body: Sequence[ir.Stmt]) -> Iterator[tuple[str, ir.Cell]]:
    for statement in ir.walk(body):
        for holder in (statement, *ir.expressions(statement)):
            if isinstance(holder, (ir.Store, ir.Load, ir.Atomic)):
                cell = _only_cell(holder.indices)
                if cell is not None:
                    yield holder.array, cell


def _only_cell(indices: Sequence[ir.Expr]) -> ir.Cell | None:
    return indices[0] if len(indices) == 1 and isinstance(indices[0], ir.Cell) else None


def _in_grid(line: int, axis: int, within: ir.Expr | None = None) -> ir.Expr:
    """Return blockIdx * blockDim + ``within``; default: threadIdx."""
    block = ir.Binary(line, "*", ir.Index(line, "block", axis), ir.Index(line, "block_size", axis))
    return ir.Binary(line, "+", block, within or ir.Index(line, "thread", axis))


def _moved(e: ir.Expr, by: int) -> ir.Expr:
    return e if by == 0 else ir.Binary(e.line, "+" if by > 0 else "-", e, ir.Literal(e.line, abs(by)))


def _all(conditions: Iterator[ir.Expr]) -> ir.Expr:
    conjunction = next(conditions)
    for condition in conditions:
        conjunction = ir.Logic(condition.line, "and", conjunction, condition)
    return conjunction


def _sides(many: int) -> str:
    return _many(many, "dimension")


def _many(number: int, what: str) -> str:
    return f"one {what}" if number == 1 else f"{number} {what}s"


def _product(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))
