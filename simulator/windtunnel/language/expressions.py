"""Expressions of the kernel language: names, elements, arithmetic and calls."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from windtunnel.core.errors import list_choices, nearest
from windtunnel.language import ir
from windtunnel.language.arguments import arguments_of
from windtunnel.language.constants import folded
from windtunnel.language.names import ATOMICS, Group, Name
from windtunnel.language.parameters import is_number_type
from windtunnel.language.reader import BaseReader, Scope, is_plain
from windtunnel.language.returns import without_returns
from windtunnel.language.shortcuts import chosen, decided
from windtunnel.language.source import UNKNOWN, Source, source_of
from windtunnel.language.types import BOOL, F32, I32, Array, Scalar, Type, scalar_of
from windtunnel.language.words import many, words_of

_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
MATH = (
    "sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "floor", "ceil", "trunc", "fabs", "atan2", "pow", "fmod", "isnan", "isinf", "erf", "erfc", "expm1", "log1p",
    "copysign", "hypot", "cbrt",
)  # fmt: skip
"""The functions of Python's ``math``, and the same ones of NumPy, that a kernel may call."""
_NUMPY_MATH: Mapping[str, str] = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2", "absolute": "fabs", "power": "pow",
}  # fmt: skip
ARITY = {"hypot": 2, "atan2": 2, "pow": 2, "fmod": 2, "copysign": 2, "fma": 3}
_MAX_DEPTH = 16
"""The largest depth of inlined functions; a larger one means recursion."""


class Reader(BaseReader):
    """Reads expressions; ``parse`` adds statements, which inlined functions need (``_body``)."""

    def _body(self, nodes: Sequence[ast.stmt]) -> list[ir.Stmt]:
        """Read the statements of a block."""
        raise NotImplementedError

    def _expression(self, node: ast.expr) -> ir.Expr:
        line = node.lineno
        match node:
            case ast.Constant(value=value):
                return self._literal(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.BinOp(left=left, op=op, right=right):
                made = ir.Binary(line, self._operator(node, op), self._expression(left), self._expression(right))
                return folded(made)
            case ast.UnaryOp(op=op, operand=operand):
                inner = self._expression(operand)
                if isinstance(op, ast.USub) and isinstance(inner, ir.Literal) and not isinstance(inner.value, bool):
                    return ir.Literal(line, -inner.value)
                return ir.Unary(line, _UNARY[type(op)], inner)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp(op=op, values=values):
                return self._logic(node, "and" if isinstance(op, ast.And) else "or", values)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._choice(node, test, yes, no)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case _:
                self._refuse(
                    node, f"{words_of(node)}", "numbers, elements of arrays, arithmetic, and calls of known functions"
                )

    def _literal(self, node: ast.expr, value: Any) -> ir.Literal:
        if isinstance(value, (bool, np.bool_)):
            return ir.Literal(node.lineno, bool(value))
        if isinstance(value, (int, np.integer)):
            return ir.Literal(node.lineno, int(value))
        if isinstance(value, (float, np.floating)):
            return ir.Literal(node.lineno, float(value))
        self._refuse(node, f"{value!r}", "a number")

    def _number(self, node: ast.expr, value: Any) -> ir.Expr:
        """Return a number from outside the kernel; a NumPy number keeps its type."""
        made = self._literal(node, value)
        return ir.Convert(node.lineno, scalar_of(value.dtype), made) if isinstance(value, np.generic) else made

    def _name(self, node: ast.Name, name: str) -> ir.Expr:
        if name in self.scope.variables:
            return ir.Variable(node.lineno, self.scope.variables[name])
        if name in self.scope.arrays:
            self._refuse(node, f"'{name}' is a whole array: a thread works on single elements", f"{name}[i]")
        if name in self.scope.tuples:
            sides, text = len(self.scope.tuples[name]), self.scope.several[name]
            problem = f"'{name}' is all that {text} gives, {'two' if sides == 2 else 'three'} values"
            self._refuse(node, problem, f"{', '.join('xyz'[:sides])} = {text}")
        value = self.scope.source.static(node)
        if isinstance(value, Name) and value.op in ("lane", "warp_size"):
            return ir.Warp(node.lineno, value.op, [])
        if isinstance(value, (bool, int, float, np.generic)):
            return self._number(node, value)
        if value is UNKNOWN:
            known = [*self.scope.variables, *self.scope.arrays]
            if name in self.scope.source.assigned:
                self._refuse(node, f"'{name}' is not assigned yet", "an assignment before")
            self._refuse(
                node, f"'{name}' is not known here", list_choices(known) if known else None, nearest(name, known)
            )
        if isinstance(value, (Name, Group)):
            self._refuse(node, f"'{name}' alone", f"{name}.x" if "Idx" in name or "Dim" in name else f"{name}(...)")
        self._refuse(node, f"'{name}', a {type(value).__name__}", "a number")

    def _compare(self, node: ast.Compare) -> ir.Expr:
        operands = [self._expression(node.left)]
        for number, right in enumerate(node.comparators):
            made = self._expression(right)
            last = number == len(node.comparators) - 1
            operands.append(made if last or is_plain(made) else self._hold(made))
        chain: ir.Expr | None = None
        for op, left, right_side in zip(node.ops, operands[:-1], operands[1:], strict=True):
            if type(op) not in _COMPARE:
                self._refuse(node, "a comparison by identity or membership", "< <= > >= == !=")
            # An operand of two comparisons may have another type in each.
            comparison = ir.Binary(node.lineno, _COMPARE[type(op)], left, deepcopy(right_side))
            chain = comparison if chain is None else ir.Logic(node.lineno, "and", chain, comparison)
        assert chain is not None  # noqa: S101  a comparison has an operator
        return chain

    def _logic(self, node: ast.BoolOp, op: str, values: Sequence[ast.expr]) -> ir.Expr:
        result = self._expression(values[0])
        for value in values[1:]:
            before, right = self._lazily(value)
            if before:
                name = self._fresh("held")
                self.ahead[-1] += decided(op, result, before, right, name)
                result = ir.Variable(node.lineno, name)
            else:
                result = ir.Logic(node.lineno, op, result, right)
        return result

    def _choice(self, node: ast.IfExp, test: ast.expr, yes: ast.expr, no: ast.expr) -> ir.Expr:
        condition, if_true, if_false = self._expression(test), self._lazily(yes), self._lazily(no)
        if not if_true[0] and not if_false[0]:
            return ir.Select(node.lineno, condition, if_true[1], if_false[1])
        name = self._fresh("held")
        self.ahead[-1].append(chosen(condition, if_true, if_false, name))
        return ir.Variable(node.lineno, name)

    def _lazily(self, node: ast.expr) -> tuple[list[ir.Stmt], ir.Expr]:
        """Return an expression that may not be evaluated, and the statements that must precede it if it is."""
        self.ahead.append([])
        expression = self._expression(node)
        return self.ahead.pop(), expression

    def _subscript(self, node: ast.Subscript) -> ir.Expr:
        if (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "shape"
            and isinstance(node.value.value, ast.Name)
        ):
            name = node.value.value.id
            side = self._constant(node.slice)
            if name in self.scope.arrays and isinstance(side, int):
                return ir.Size(node.lineno, self.scope.arrays[name], side)
        if isinstance(node.value, ast.Name) and node.value.id in self.scope.tuples:
            parts = self.scope.tuples[node.value.id]
            place = self._constant(node.slice)
            if not isinstance(place, int) or not -len(parts) <= place < len(parts):
                self._refuse(node, f"part {place!r} of '{node.value.id}'", f"0 to {len(parts) - 1}")
            return ir.Variable(node.lineno, parts[place])
        entry = self._entry(node)
        if entry is not UNKNOWN:
            return self._number(node, entry)
        array, indices = self._element(node)
        return ir.Load(node.lineno, array, indices)

    def _attribute(self, node: ast.Attribute) -> ir.Expr:
        if isinstance(node.value, ast.Name) and node.value.id in self.scope.arrays:
            if node.attr == "size":
                known = self.scope.arrays[node.value.id]
                size: ir.Expr = ir.Size(node.lineno, known, 0)
                if known in self.declared or isinstance(self._annotated(known), Array):
                    for side in range(1, self._dimensions(node, known)):
                        size = ir.Binary(node.lineno, "*", size, ir.Size(node.lineno, known, side))
                    return size
                return ir.Size(node.lineno, known, 0, total=True)
            self._refuse(node, f"'{node.attr}' of an array", "shape[0], or size")
        value = self.scope.source.static(node)
        if isinstance(value, Name):
            kind, _, axis = value.op.partition(".")
            if kind in ("thread", "block", "block_size", "grid_size"):
                return ir.Index(node.lineno, kind, "xyz".index(axis))
            if value.op in ("lane", "warp_size"):
                return ir.Warp(node.lineno, value.op, [])
        if isinstance(value, (bool, int, float, np.generic)):
            return self._literal(node, value)
        self._refuse(node, f"'{ast.unparse(node)}'", "a name of the kernel language, or a number")

    def _annotated(self, array: str) -> Type | None:
        return next((p.annotation for p in self.parameters if p.name == array), None)

    # Calls.

    # Long: one case for each kind of callable, each a line or two.
    def _call(self, node: ast.Call, *, statement: bool = False) -> ir.Expr:
        line = node.lineno
        called = self.scope.source.static(node.func)
        if called is UNKNOWN:
            self._refuse(
                node.func, f"'{ast.unparse(node.func)}' is not known here", "a function of the kernel language"
            )
        if isinstance(called, Group):
            self._refuse(
                node.func,
                f"{called.spelling} is not a function",
                list_choices([f"{called.spelling}.{m}" for m in called.members]),
            )
        function = getattr(called, "function", called)
        helper = callable(function) and hasattr(function, "__code__")
        if node.keywords and not helper:
            self._refuse(node, "an argument by its name", "arguments in order")
        if isinstance(called, Name):
            return self._intrinsic(node, called)
        if isinstance(called, Scalar):
            return ir.Convert(line, called, self._only_argument(node))
        if called in (int, float, bool):
            kind = {int: I32, float: F32, bool: BOOL}[called]
            return ir.Convert(line, kind, self._only_argument(node), keeps=called is not bool)
        if is_number_type(called):
            return ir.Convert(line, scalar_of(called), self._only_argument(node))
        if called in (abs, min, max, len, round, pow):
            return self._builtin(node, called.__name__)
        name = _math_name(called)
        if name in ("min", "max"):
            return self._builtin(node, name)
        if name in ("minimum", "maximum") and len(node.args) == 2:
            left, right = (self._expression(argument) for argument in node.args)
            sides = (side if is_plain(side) else self._hold(side) for side in (left, right))
            return ir.Binary(line, name, *sides)
        if name is not None:
            made = self._function(node, f"math.{name}")
            # Python's math.floor returns an integer, NumPy's a float.
            whole = name in ("floor", "ceil", "trunc") and getattr(math, name) is called
            return ir.Convert(line, I32, made, keeps=True) if whole else made
        if helper:
            return self._inline(node, function, statement=statement)
        self._refuse(
            node, f"a call of '{ast.unparse(node.func)}'", "functions of the kernel language, math, or plain functions"
        )

    def _only_argument(self, node: ast.Call) -> ir.Expr:
        if len(node.args) != 1:
            self._refuse(node, f"a conversion of {many(len(node.args), 'value')}", "one")
        return self._expression(node.args[0])

    def _builtin(self, node: ast.Call, name: str) -> ir.Expr:
        if name == "len":
            if len(node.args) == 1 and isinstance(node.args[0], ast.Name) and node.args[0].id in self.scope.arrays:
                return ir.Size(node.lineno, self.scope.arrays[node.args[0].id], 0)
            self._refuse(node, "the length of something that is not an array", "len(array)")
        if name == "round":
            self._refuse(
                node,
                "round, which is not in the language",
                "math.floor(x + 0.5) for the nearest, math.floor, math.ceil or math.trunc",
            )
        given = [self._expression(argument) for argument in node.args]
        if name == "pow" and len(given) == 2:
            return ir.Binary(node.lineno, "**", *given)
        if name == "abs" and len(given) == 1:
            return ir.Unary(node.lineno, "abs", given[0])
        if name in ("min", "max") and len(given) >= 2:
            result = given[0]
            for other in given[1:]:
                result = ir.Binary(node.lineno, name, result, other)
            return result
        self._refuse(node, f"{name} of {many(len(given), 'value')}", "abs(x), min(a, b), max(a, b)")

    def _function(self, node: ast.Call, op: str) -> ir.Expr:
        wanted = ARITY.get(op.rpartition(".")[2], 1)
        if len(node.args) != wanted:
            self._refuse(node, f"{ast.unparse(node.func)} of {many(len(node.args), 'value')}", f"{wanted}")
        return ir.Call(node.lineno, op, [self._expression(argument) for argument in node.args])

    def _grid(self, node: ast.expr) -> list[ir.Expr] | None:
        """Return the indices that grid(n) or gridsize(n) stands for, one a dimension; None for another expression."""
        called = self.scope.source.static(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not isinstance(called, Name) or called.op not in ("grid", "gridsize"):
            return None
        count = self._constant(node.args[0]) if len(node.args) == 1 else None
        if count not in (1, 2, 3):
            self._refuse(
                node, f"{ast.unparse(node)}", f"{called.spelling}(1), {called.spelling}(2) or {called.spelling}(3)"
            )
        line = node.lineno
        indices: list[ir.Expr] = []
        for axis in range(count):
            size = ir.Index(line, "block_size", axis)
            if called.op == "grid":
                first = ir.Binary(line, "*", ir.Index(line, "block", axis), size)
                indices.append(ir.Binary(line, "+", first, ir.Index(line, "thread", axis)))
            else:
                indices.append(ir.Binary(line, "*", ir.Index(line, "grid_size", axis), size))
        return indices

    def _intrinsic(self, node: ast.Call, called: Name) -> ir.Expr:
        line = node.lineno
        kind, _, rest = called.op.partition(".")
        if kind in ("thread", "block", "block_size", "grid_size"):
            return ir.Index(line, kind, "xyz".index(rest))
        if kind in ("grid", "gridsize"):
            indices = self._grid(node)
            assert indices is not None  # noqa: S101  it is one of the two
            if len(indices) > 1:
                self._refuse(node, f"{ast.unparse(node)} where one number is expected", "x, y = grid(2)")
            return indices[0]
        if kind == "atomic":
            return self._atomic(node, rest)
        if kind in ("shuffle", "vote"):
            return self._exchange(node, called)
        if kind in ("lane", "warp_size"):
            return ir.Warp(line, called.op, [])
        if kind in ("bits", "math", "fma", "round"):
            return self._function(node, called.op)
        self._refuse(node, f"{called.spelling} in an expression", "a line of its own for it")

    def _atomic(self, node: ast.Call, op: str) -> ir.Expr:
        assert op in ATOMICS  # noqa: S101  the names come from there
        wanted = {"cas": 4, "load": 2}.get(op, 3)
        if len(node.args) != wanted or not isinstance(node.args[0], ast.Name):
            self._refuse(
                node,
                f"atomic.{op.rstrip('_')} of {many(len(node.args), 'value')}",
                "array, index" + {"cas": ", old, new", "load": ""}.get(op, ", value"),
            )
        name = node.args[0].id
        if name not in self.scope.arrays:
            self._refuse(
                node.args[0],
                f"'{name}' is not an array here",
                list_choices(sorted(self.scope.arrays)),
                nearest(name, sorted(self.scope.arrays)),
            )
        where = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
        indices = [self._expression(index) for index in where]
        return ir.Atomic(
            node.lineno, op, self.scope.arrays[name], indices, [self._expression(v) for v in node.args[2:]]
        )

    def _exchange(self, node: ast.Call, called: Name) -> ir.Expr:
        wanted = 2 if called.op.startswith("vote") else 3
        if len(node.args) != wanted:
            what = "mask, predicate" if wanted == 2 else "mask, value, lane or distance"
            self._refuse(node, f"{called.spelling} of {many(len(node.args), 'value')}", what)
        return ir.Warp(node.lineno, called.op, [self._expression(argument) for argument in node.args])

    def _inline(self, node: ast.Call, function: Callable[..., Any], *, statement: bool) -> ir.Expr:
        """Inline a call of a plain function: its statements come before, and its result is a variable."""
        if self.scope.depth >= _MAX_DEPTH:
            self._refuse(node, f"functions within functions, {_MAX_DEPTH} deep", "no recursion")
        source = self._helper(source_of(function))
        given = arguments_of(self.scope.source, node, source)
        inner = Scope(source, {}, depth=self.scope.depth + 1)
        before: list[ir.Stmt] = []
        for name, argument in given.items():
            if isinstance(argument, ast.Name) and argument.id in self.scope.arrays:
                inner.arrays[name] = self.scope.arrays[argument.id]
                continue
            if isinstance(argument, ast.Name) and argument.id in self.scope.positions:
                inner.positions.add(name)
                continue
            held = self._fresh(name)
            value = self._expression(argument) if isinstance(argument, ast.expr) else self._number(node, argument)
            before.append(ir.Assign(node.lineno, held, value))
            inner.variables[name] = held
        outer, result, self.scope = self.scope, self.result, inner
        self.result = self._fresh(function.__name__)
        body = self._body(source.tree.body)
        name, self.scope, self.result = self.result, outer, result
        body = without_returns(body, node.lineno, self._fresh)
        if not statement and not any(isinstance(inner, ir.Assign) and inner.name == name for inner in ir.walk(body)):
            self._refuse(node, f"the value of '{function.__name__}', which returns none", "a line of its own for it")
        # Most device functions have one line, whose value replaces the call.
        if (
            len(body) == 1
            and isinstance(body[0], ir.Assign)
            and all(isinstance(b, ir.Assign) and is_plain(b.value) for b in before)
        ):
            return _substituted(body[0].value, {b.name: b.value for b in before if isinstance(b, ir.Assign)})
        self.ahead[-1] += [*before, *body]
        return ir.Variable(node.lineno, name)

    def _helper(self, source: Source) -> Source:
        """Return the source of an inlined function, with line numbers that identify its file."""
        known = list(dict.fromkeys(helper.file for helper in self.helpers.values() if helper.raised))
        if source.file != self.source.file:
            number = known.index(source.file) if source.file in known else len(known)
            source = source.raised_by((number + 1) * ir.RAISED)
        self.helpers[source.function] = ir.Helper(source.file, source.line, source.lines, source.raised)
        return source


def _math_name(called: Any) -> str | None:
    """Return the name of a mathematical function; None for another object."""
    name = getattr(called, "__name__", "")
    if getattr(math, name, None) is called or isinstance(called, np.ufunc):
        name = _NUMPY_MATH.get(name, name)
        return name if name in MATH or name in ("min", "max", "minimum", "maximum") else None
    return None


def _substituted(value: ir.Expr, given: Mapping[str, ir.Expr]) -> ir.Expr:
    """Return an expression with its variables replaced."""
    if isinstance(value, ir.Variable) and value.name in given:
        return deepcopy(given[value.name])  # each copy gets its own types
    for name in value.__dataclass_fields__:
        inner = getattr(value, name)
        if isinstance(inner, ir.Expr):
            setattr(value, name, _substituted(inner, given))
        elif isinstance(inner, list):
            setattr(value, name, [_substituted(i, given) if isinstance(i, ir.Expr) else i for i in inner])
    return value
