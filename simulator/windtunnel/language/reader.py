"""What reading a kernel keeps: scopes, names, declared arrays, and values that are known before the kernel runs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from windtunnel.core.errors import InputError, list_choices
from windtunnel.language import ir
from windtunnel.language.names import Name
from windtunnel.language.parameters import parameters_of
from windtunnel.language.source import UNKNOWN, Source
from windtunnel.language.types import Array, scalar_of
from windtunnel.language.words import words_of

BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip


@dataclass
class Scope:
    """A function that is being read: its source, and the names in the kernel of its names."""

    source: Source
    arrays: dict[str, str]
    """Names of arrays in the function, and in the kernel."""
    variables: dict[str, str] = field(default_factory=dict)
    tuples: dict[str, list[str]] = field(default_factory=dict)
    """Names that stand for several variables."""
    several: dict[str, str] = field(default_factory=dict)
    """The call that such a name was assigned, as text."""
    grids: set[str] = field(default_factory=set)
    """Names of the grid of cooperative groups."""
    positions: set[str] = field(default_factory=set)
    """Names of a stencil's position (``GridPos``)."""
    depth: int = 0


class BaseReader:
    """The state of reading one kernel, and its names, arrays and constants."""

    def __init__(self, source: Source, arrays: frozenset[str]) -> None:
        self.source = source
        self.parameters = parameters_of(source.function)
        self.scope = Scope(source, {name: name for name in arrays})
        self.declared: dict[str, ir.Declare] = {}
        self.names: set[str] = set(source.assigned)
        self.helpers: dict[Callable[..., Any], ir.Helper] = {}
        """Functions whose calls were inlined."""
        self.ahead: list[list[ir.Stmt]] = []
        """Statements that must precede the one that is being read."""
        self.inner: list[ir.Declare] = []
        """Arrays declared in a branch or a loop. They exist before the kernel runs, so they are moved to its top."""
        self.loops = 0
        self.result: str | None = None
        """The variable for the result of the inlined function that is being read; None in the kernel itself."""

    # Arrays.

    def _declaration(self, name: str, value: ast.expr) -> ir.Declare | None:
        """Return the shared or local array that a value declares; None for another value."""
        called = self.scope.source.static(value.func) if isinstance(value, ast.Call) else None
        if not isinstance(value, ast.Call) or not isinstance(called, Name) or called.op not in ("shared", "local"):
            return None
        given = dict(zip(("shape", "dtype"), value.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in value.keywords if keyword.arg}
        if set(given) != {"shape", "dtype"}:
            self._refuse(
                value, f"{called.spelling} of {', '.join(given) or 'nothing'}", f"{called.spelling}(shape, dtype)"
            )
        sides = self._shape(given["shape"], dynamic=called.op == "shared")
        try:
            element = scalar_of(self._constant(given["dtype"]))
        except InputError as error:
            self._refuse(given["dtype"], error.problem, error.expected)
        if name in self.scope.arrays:
            self._refuse(value, f"'{name}' is an array already", "another name")
        if sides == (0,) and any(declaration.shape == (0,) for declaration in self.declared.values()):
            self._refuse(
                value,
                f"'{name}' is a second shared array whose size the launch sets; in CUDA both are the same memory",
                f"one such array, or a size: {name} = {ast.unparse(value.func)}(256, ...)",
            )
        kernel_name = name if self.scope.depth == 0 else self._fresh(name)
        self.scope.arrays[name] = kernel_name
        array = ir.Declare(value.lineno, kernel_name, called.op, sides, element)
        self.declared[kernel_name] = array
        self.inner += [array] if self.loops or len(self.ahead) > 1 + self.scope.depth else []
        return array

    def _shape(self, node: ast.expr, *, dynamic: bool) -> tuple[int, ...]:
        """Return the constant shape of an array; ``dynamic``: it may be 0, for a size that the launch sets."""
        shape = self._constant(node)
        sides = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        # As in CUDA, a shared array of size 0 has the size that the launch sets (shared_bytes).
        minimum = 0 if dynamic and len(sides) == 1 else 1
        integers = all(isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in sides)
        if not sides or not integers or min(sides) < minimum:
            expected = "whole numbers from 1 that are known before the kernel runs"
            self._refuse(node, f"a shape of {shape!r}", expected)
        return tuple(int(side) for side in sides)

    def _constant(self, node: ast.expr) -> Any:
        """Return a value that is known before the kernel runs: a literal, an outside name, or arithmetic of those."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(self._constant(element) for element in node.elts)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            left, right = self._constant(node.left), self._constant(node.right)
            return _fold(BINARY[type(node.op)], left, right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._constant(node.operand)
        value = self._entry(node) if isinstance(node, ast.Subscript) else self.scope.source.static(node)
        if value is UNKNOWN:
            what = words_of(node)
            if isinstance(node, ast.Name):
                parameter = self.scope.depth == 0 and any(node.id == p.name for p in self.parameters)
                what = f"'{node.id}'" + (", a parameter" if parameter else "")
            self._refuse(
                node, f"{what}, which is known only while the kernel runs", "a number that is known before it runs"
            )
        return value

    def _entry(self, node: ast.Subscript) -> Any:
        """Return an entry of an outside tuple or list, such as ``WEIGHTS[2]``; UNKNOWN for another subscript."""
        outer = node.value
        table = self._entry(outer) if isinstance(outer, ast.Subscript) else self.scope.source.static(outer)
        if not isinstance(table, (tuple, list)):
            return UNKNOWN
        text = ast.unparse(outer)
        try:
            place = self._constant(node.slice)
        except InputError:
            what = (
                f"an entry of '{text}', a {type(table).__name__} from outside, that is known only while the kernel runs"
            )
            self._refuse(node, what, f"a constant index, or the numbers as an array: pass '{text}' to the kernel")
        if not isinstance(place, (int, np.integer)) or not -len(table) <= place < len(table):
            self._refuse(
                node, f"entry {place!r} of '{text}'", f"0 to {len(table) - 1}" if table else "one that has any"
            )
        return table[place]

    def _element(self, node: ast.Subscript) -> tuple[str, list[ir.Expr]]:
        """Return the array and the indices of an element."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self.scope.arrays:
            what = f"'{node.value.id}'" if isinstance(node.value, ast.Name) else words_of(node.value)
            self._refuse(
                node, f"an element of {what}, which is not an array here", list_choices(sorted(self.scope.arrays))
            )
        given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in given:
            if isinstance(index, ast.Slice) or (isinstance(index, ast.Constant) and index.value is ...):
                self._refuse(index, "a slice: a thread works on single elements", "an index")
        return self.scope.arrays[node.value.id], [self._expression(index) for index in given]

    def _sides(self, node: ast.expr) -> list[ir.Expr] | None:
        """Return the dimensions of ``array.shape``; None for another expression."""
        if not (isinstance(node, ast.Attribute) and node.attr == "shape" and isinstance(node.value, ast.Name)):
            return None
        name = node.value.id
        if name not in self.scope.arrays:
            return None
        known = self.scope.arrays[name]
        return [ir.Size(node.lineno, known, side) for side in range(self._dimensions(node, known))]

    def _dimensions(self, node: ast.expr, array: str) -> int:
        if array in self.declared:
            return len(self.declared[array].shape)
        annotation = next((p.annotation for p in self.parameters if p.name == array), None)
        if not isinstance(annotation, Array):
            self._refuse(
                node, f"the shape of '{array}' as a whole", f"{array}.shape[0], or an annotation: {array}: f32[:, :]"
            )
        return annotation.dimensions

    def _expression(self, node: ast.expr) -> ir.Expr:
        """Read an expression."""
        raise NotImplementedError

    # Names.

    def _variable(self, name: str) -> str:
        if name not in self.scope.variables:
            self.scope.variables[name] = name if self.scope.depth == 0 else self._fresh(name)
        return self.scope.variables[name]

    def _known(self, node: ast.expr, name: str) -> None:
        if name not in self.scope.variables:
            self._refuse(node, f"'{name}' is not assigned yet", "an assignment before")

    def _fresh(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self.names:
            number += 1
        fresh = f"{name}_{number}"
        self.names.add(fresh)
        return fresh

    def _hold(self, value: ir.Expr) -> ir.Expr:
        """Assign a value that is used twice to a variable, and return it."""
        name = self._fresh("held")
        self.ahead[-1].append(ir.Assign(value.line, name, value))
        return ir.Variable(value.line, name)

    def _operator(self, node: ast.AST, op: ast.operator) -> str:
        if type(op) not in BINARY:
            self._refuse(node, f"the operator {type(op).__name__}", " ".join(BINARY.values()))
        return BINARY[type(op)]

    def _refuse(self, node: ast.AST, problem: str, expected: str | None = None, close: str | None = None) -> NoReturn:
        raise self.scope.source.error(node, problem, expected=expected, nearest=close)


def is_plain(value: ir.Expr) -> bool:
    """Return whether an expression may be evaluated twice without a cost or an effect."""
    return isinstance(value, (ir.Literal, ir.Variable, ir.Index, ir.Size, ir.Cell, ir.PositionIndex)) or (
        isinstance(value, ir.Binary) and value.op in "+-*" and is_plain(value.left) and is_plain(value.right)
    )


def _fold(op: str, left: Any, right: Any) -> Any:
    return {
        "+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "//": lambda: left // right,
        "%": lambda: left % right, "**": lambda: left**right, "<<": lambda: left << right, ">>": lambda: left >> right,
        "/": lambda: left / right, "&": lambda: left & right, "|": lambda: left | right, "^": lambda: left ^ right,
    }[op]()  # fmt: skip
