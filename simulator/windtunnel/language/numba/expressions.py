"""Expressions of a Numba kernel: names, literals, arithmetic, comparisons, tuples, attributes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from types import ModuleType
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.names import Group, Name
from windtunnel.language.numba import arithmetic, rules
from windtunnel.language.numba.arithmetic import converted, number_of, truth
from windtunnel.language.numba.folding import folded
from windtunnel.language.numba.iteration import IterationReader
from windtunnel.language.numba.reader import Environment, Frame
from windtunnel.language.numba.values import (
    Closure,
    Const,
    Cplx,
    Maybe,
    Method,
    Num,
    Records,
    Tup,
    Unusable,
    Value,
    View,
    changes,
    is_none,
    literal,
    memory_of,
)
from windtunnel.language.source import UNKNOWN
from windtunnel.language.types import BOOL, F32, I32, I64, U64
from windtunnel.language.words import words_of

_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
FOLDED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_LARGEST_SHIFT = 256


class ExpressionReader(IterationReader):
    """Reads expressions; `calls` adds calls."""

    naming = "held"

    def call(self, node: ast.Call, *, statement: bool = False) -> Value:
        """Read a call."""
        raise NotImplementedError

    def expression(self, node: ast.expr) -> Value:
        """Read an expression."""
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.BinOp() if (known := folded(node)) is not None:
                return self._constant(node, known)
            case ast.BinOp(left=left, op=op, right=right):
                first, second = self.in_order([left, right])
                return self.binary(node, self.operator(node, op), first, second)
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(node, _UNARY[type(op)], self.expression(operand))
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._logic(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                if isinstance(node, ast.List):
                    self.refuse(node, "a list", "a tuple, or cuda.local.array(n, dtype)")
                return Tup(tuple(self.loaded(node, value) for value in self.in_order(elements)))
            case ast.Subscript(value=owner, slice=index):
                array = self.expression(owner)
                if isinstance(array, Tup) and memory_of(array):
                    array = self.stored(array, "held")
                return self.element(node, array, index)
            case ast.Attribute(value=owner, attr=name):
                return self.attribute(node, self.expression(owner), name)
            case ast.Call():
                return self.call(node)
            case ast.Lambda():
                return Closure(node, self.frame)
            case ast.NamedExpr(target=target, value=value):
                made = self.expression(value)
                self.frame.env[target.id] = self.stored(made, target.id)
                return self.frame.env[target.id]
            case ast.JoinedStr(values=parts):
                return self._joined_text(node, parts)
            case _:
                self.refuse(
                    node, words_of(node), "numbers, elements of arrays, arithmetic, and calls of known functions"
                )

    def _constant(self, node: ast.expr, value: Any) -> Value:
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            self.refuse(node, f"Int value is too large: {value}", "an integer of 64 bits, or a float")
        return Const(value)

    def _joined_text(self, node: ast.expr, parts: list[ast.expr]) -> Value:
        """Return an f-string without values, a constant. Numba has no text of a number in a kernel."""
        if not all(isinstance(part, ast.Constant) for part in parts):
            self.refuse(node, f"the f-string {ast.unparse(node)}: text of a value", 'constants: print("x =", x)')
        return Const("".join(str(part.value) for part in parts if isinstance(part, ast.Constant)))

    def in_order(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Return the values of expressions, each as it is before the effects of those after it."""
        values: list[Value] = []
        marks: list[int] = []
        for node in nodes:
            values.append(self.expression(node))
            marks.append(len(self.blocks[-1]))
        for at in reversed(range(len(values) - 1)):
            values[at] = self.before_effects(nodes[at], values[at], marks[at])
        return values

    def before_effects(self, node: ast.AST, value: Value, mark: int) -> Value:
        """Return a value that was read when the block had ``mark`` statements, as it was then."""
        block = self.blocks[-1]
        if mark == len(block):
            return value
        own = memory_of(value)
        if not own or not (changes(block[mark:]) or own == "changes"):
            return value
        self.blocks.append([])
        value = self.stored(self.loaded(node, value), "held")
        block[mark:mark] = self.blocks.pop()
        return value

    def loaded(self, node: ast.AST, value: Value) -> Value:
        """Return an element as the number that it is now, and any other value unchanged."""
        return self.load(node, value) if isinstance(value, View) and not value.dims and not value.text else value

    def operator(self, node: ast.AST, op: ast.operator) -> str:
        """Return the text of an operator."""
        if type(op) not in _OPERATORS:
            self.refuse(node, f"the operator {type(op).__name__}", " ".join(_OPERATORS.values()))
        return _OPERATORS[type(op)]

    # Names.

    def _name(self, node: ast.Name, name: str) -> Value:
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.env:
                held = frame.env[name]
                if isinstance(held, Unusable):
                    self.refuse(node, f"'{name}' is {held.problem}", "one type on every path")
                return self.at(node.lineno, held)
            frame = frame.outer
        source = self.frame.source
        value = source.environment.get(name, UNKNOWN)
        if value is UNKNOWN or (name in source.assigned and self.frame.outer is None and not _free(self.frame, name)):
            if name in source.assigned:
                return self._unassigned(node, name)
            called = getattr(self.frame.tree, "name", "a lambda")
            within = f" (resolving callee type: type(CUDADispatcher({called})))" if self.frame.depth else ""
            self.refuse(node, f"NameError: name '{name}' is not defined{within}", None)
        return self.known_object(node, value)

    def _unassigned(self, node: ast.Name, name: str) -> Value:
        """Return a variable that no path here has assigned: as in Numba, reading it is an error only where it runs."""
        key = self.undefined_key(name)
        known = self.known.get(key)
        if known is None:
            if key in self.undefined:
                self.refuse(node, f"'{name}' is not assigned yet", "an assignment before")
            self.undefined.add(key)
            self.changed = True
            known = Num(literal(node.lineno, 0))
        slot = self.slot(name, known)
        self.frame.env[name] = slot
        return self.at(node.lineno, slot)

    def untyped(self, value: Any) -> str:
        """Return why an object from outside the kernel has no type; empty if it has one."""
        raise NotImplementedError

    def known_object(self, node: ast.AST, value: Any) -> Value:
        """Return an object from outside the kernel."""
        if isinstance(value, Name) and value.op in ("lane", "warp_size"):
            return Num(ir.Warp(node.lineno, value.op, [], type=I32))  # type: ignore[attr-defined]
        if isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__"):
            return self.capture(node, value)
        if isinstance(value, tuple) and not isinstance(value, type):
            names = tuple(getattr(value, "_fields", ()))
            return Tup(tuple(self.known_object(node, item) for item in value), names)
        if isinstance(value, np.void):
            return self.capture(node, np.asarray(value))
        problem = self.untyped(value)
        if problem:
            text = ast.unparse(node) if isinstance(node, ast.expr) else repr(value)
            expected = "a number, a tuple, an array, an enumeration or a function from outside the kernel"
            self.refuse(node, f"Untyped global name '{text}': {problem}", expected)
        return Const(value)

    # Long: one case for each kind of owner, each a line or two.
    def attribute(self, node: ast.AST, owner: Value, name: str) -> Value:
        """Return an attribute of a value."""
        line: int = node.lineno  # type: ignore[attr-defined]
        match owner:
            case Const(value=value):
                plain = number_of(line, value)
                if (
                    plain is not None
                    and name in ("real", "imag", "conjugate", "dtype", "bit_count")
                    and not hasattr(value, "_fields")
                ):
                    return self.attribute(node, plain, name)
                return self._object_attribute(node, value, name)
            case Tup(items=items, names=names):
                if name in names:
                    return items[names.index(name)]
                if name in ("x", "y", "z") and not names:
                    return items["xyz".index(name)]
            case Cplx(re=re, im=im):
                if name in ("real", "imag"):
                    return Num(re if name == "real" else im)
                if name == "conjugate":
                    return Method(owner, name)
            case Num(expr=expr):
                if name in ("real", "imag"):
                    return Num(expr) if name == "real" else Num(literal(line, 0, owner.type))
                if name == "value":
                    return owner
                if name in _methods_of(owner.type):
                    return Method(owner, name)
            case View() if not owner.dims:
                return self.attribute(node, self.load(node, owner), name)
            case View() | Records():
                return self.array_attribute(node, owner, name)
            case _:
                pass
        return self.added_attribute(node, owner, name, None)

    def _object_attribute(self, node: ast.AST, value: Any, name: str) -> Value:
        line: int = node.lineno  # type: ignore[attr-defined]
        try:
            found = getattr(value, name)
        except AttributeError as error:
            if isinstance(value, (Group, Name, ModuleType)):
                self.refuse(node, str(error))
            self.refuse(node, f"the attribute '{name}' of {value!r}", None)
        if isinstance(found, Name):
            kind, _, axis = found.op.partition(".")
            if kind in ("thread", "block", "block_size", "grid_size") and axis:
                return Num(ir.Index(line, kind, "xyz".index(axis), type=I32))
        return self.known_object(node, found)

    # Operators.

    # Long: one case for each kind of operand, each a line or two.
    def binary(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        """Return ``left op right``."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if isinstance(left, Const) and isinstance(right, Const):
            folded = self._folded(op, left.value, right.value)
            if folded is not None:
                return folded
        if isinstance(left, Tup) or isinstance(right, Tup):
            return self._tuples(node, op, left, right)
        if op in ("==", "!=") and isinstance(left, Const) and isinstance(right, Const):
            return Const(FOLDED[op](left.value, right.value))
        self.refuse_arrays(node, f"'{op}'", (left, right), "an operation on elements, in a loop")
        a, b = self.numeric(node, left), self.numeric(node, right)
        if self.debug and not self.fastmath and op in ("/", "//", "%") and isinstance(a, Num) and isinstance(b, Num):
            b = self._checked_divisor(node, b)
        if (isinstance(a, Num) and a.unit) or (isinstance(b, Num) and b.unit):
            return self._dates(node, op, a, b)
        if rules.C64 in (a.type, b.type) or rules.C128 in (a.type, b.type):
            a, b = self.held(a), self.held(b)
        if op in rules.COMPARISONS and {a.type, b.type} & {I64, U64}:
            a, b = self.held(a), self.held(b)
        if op in ("/", "**"):
            b = self._that_may_raise(node, op, a, b)
        made = arithmetic.binary(line, op, a, b)
        if op == "/" and self.fastmath and isinstance(made, Num) and made.type == F32:
            assert isinstance(made.expr, ir.Binary)  # noqa: S101  a quotient of numbers
            made = Num(ir.Call(line, "math.fast_divide", [made.expr.left, made.expr.right], type=F32))
        if made is None:
            self.refuse(node, f"{op} of {rules.name_of(a.type)} and {rules.name_of(b.type)}", None)
        if isinstance(made, Cplx):
            return self.held(made)
        return made if self.debug else Num(arithmetic.contracted(made.expr), made.unit)

    def _checked_divisor(self, node: ast.AST, divisor: Num) -> Num:
        """Return a divisor, after a check that it is not 0: with ``debug=True`` Numba raises ZeroDivisionError."""
        line: int = node.lineno  # type: ignore[attr-defined]
        held = Num(self.hold(divisor.expr), divisor.unit)
        zero = literal(line, 0.0 if held.type.kind == "float" else 0, held.type)
        is_zero = ir.Binary(line, "==", copy(held.expr), zero, type=BOOL)
        self.raises_if(node, is_zero, ZeroDivisionError, "division by zero")
        return Num(copy(held.expr), held.unit)

    def _that_may_raise(self, node: ast.AST, op: str, left: Num | Cplx, right: Num | Cplx) -> Num | Cplx:
        """Return the right operand of an operation, after a check that it does not raise."""
        if arithmetic.raising(node.lineno, op, left, right) is None:  # type: ignore[attr-defined]
            return right
        held = self.held(right)
        found = arithmetic.raising(node.lineno, op, left, held)  # type: ignore[attr-defined]
        assert found is not None  # noqa: S101  the operand's type is the same
        self.raises_if(node, *found)
        return held

    def raises_if(self, node: ast.AST, condition: ir.Expr, kind: type[Exception], *arguments: object) -> None:
        """Emit an error under a condition. It ends the thread; only with ``debug=True`` the launch raises it."""
        line: int = node.lineno  # type: ignore[attr-defined]
        self.blocks.append([])
        if self.debug:
            self.record_error(node, kind, arguments)
        if self.frame.depth == 0:
            self.emit(ir.Return(line))
        body = self.blocks.pop()
        if body:
            self.emit_if(line, condition, body)

    def _dates(self, node: ast.AST, op: str, a: Num | Cplx, b: Num | Cplx) -> Value:
        """Return an operation on dates and durations, which are numbers of units."""
        if not isinstance(a, Num) or not isinstance(b, Num) or op not in ("+", "-", "*", "//", "/", *rules.COMPARISONS):
            self.refuse(node, f"{op} of dates", "+ - and comparisons")
        made = arithmetic.binary(node.lineno, op, Num(a.expr), Num(b.expr))  # type: ignore[attr-defined]
        assert isinstance(made, Num)  # noqa: S101  both are integers
        if op in rules.COMPARISONS or op == "/":
            return made
        unit = a.unit or b.unit
        if op == "-" and a.unit.startswith("datetime") and b.unit.startswith("datetime"):
            unit = unit.replace("datetime", "timedelta")
        return Num(made.expr, unit)

    def held(self, value: Num | Cplx) -> Num | Cplx:
        """Return a number that may be used several times."""
        if isinstance(value, Cplx):
            return Cplx(self.hold(value.re), self.hold(value.im), value.type)
        return Num(self.hold(value.expr), value.unit)

    def _folded(self, op: str, left: Any, right: Any) -> Value | None:
        plain = (bool, int, float)
        if type(left) not in plain or type(right) not in plain:
            return None
        if op in ("<<", "**") and isinstance(right, int) and abs(right) > _LARGEST_SHIFT:
            return None
        try:
            value = FOLDED[op](left, right)
        except (ArithmeticError, ValueError, TypeError):
            return None
        if type(value) is int and not -(2**63) <= value < 2**63:
            value = (value + 2**63) % 2**64 - 2**63
        if op == "**" and type(left) is int and type(right) is int and right < 0:
            return None
        return Const(value) if type(value) in plain else None

    def _tuples(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        if isinstance(left, Tup) and isinstance(right, Tup):
            if op == "+":
                return Tup((*left.items, *right.items))
            if op in rules.COMPARISONS:
                return self._compared(node, op, left, right)
        self.refuse(node, f"{op} of {left.description} and {right.description}", None)

    def _compared(self, node: ast.AST, op: str, left: Tup, right: Tup) -> Value:
        line: int = node.lineno  # type: ignore[attr-defined]
        if op in ("==", "!="):
            if len(left.items) != len(right.items):
                return Const(op == "!=")
            sides = [self.binary(node, op, a, b) for a, b in zip(left.items, right.items, strict=True)]
            made = [truth(self.numeric(node, side)) for side in sides]
            if not made:
                return Const(op == "==")
            chain = made[0]
            for other in made[1:]:
                chain = ir.Logic(line, "and" if op == "==" else "or", chain, other, type=BOOL)
            return Num(chain)
        self.refuse(node, f"{op} of tuples", "== or !=")

    def unary(self, node: ast.AST, op: str, operand: Value) -> Value:
        """Return ``op operand``."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if isinstance(operand, Const) and type(operand.value) in (bool, int, float):
            if op == "not":
                return Const(not operand.value)
            if op == "-":
                return Const(-operand.value)
            if op == "+":
                return Const(+operand.value)
            if type(operand.value) is int:
                return Const(~operand.value)
        if op == "not":
            known = self.known_truth(operand)
            if known is not None:
                return Const(not known)
        value = self.numeric(node, operand)
        made = arithmetic.unary(line, op, value)
        if made is None:
            self.refuse(node, f"{op} of {rules.name_of(value.type)}", None)
        return (
            Num(made.expr, value.unit) if isinstance(made, Num) and isinstance(value, Num) and op in "-+abs" else made
        )

    def known_truth(self, value: Value) -> bool | None:
        """Return whether a value is true, if that is known now."""
        match value:
            case Const(value=known):
                if isinstance(known, (bool, int, float, complex, str, bytes, type(None), np.generic)):
                    return bool(known)
                return None if number_of(0, known) is not None else bool(known)
            case Tup(items=items):
                return bool(items)
            case _:
                return None

    def _compare(self, node: ast.Compare) -> Value:
        left = self.expression(node.left)
        chain: Value | None = None
        for at, (op, right_node) in enumerate(zip(node.ops, node.comparators, strict=True)):
            mark = len(self.blocks[-1])
            right = self.expression(right_node)
            left = self.before_effects(node.left, left, mark)
            if at < len(node.ops) - 1:
                right = self.stored(right, "held") if isinstance(right, (Num, Cplx)) else right
            result = self._comparison(node, op, left, right)
            chain = result if chain is None else self._both(node, chain, result)
            left = self.at(node.lineno, right)
        assert chain is not None  # noqa: S101  a comparison has an operator
        return chain

    def _both(self, node: ast.AST, first: Value, second: Value) -> Value:
        known, other = self.known_truth(first), self.known_truth(second)
        if known is not None:
            return second if known else first
        if other is not None:
            return first if other else second
        sides = [truth(self.numeric(node, side)) for side in (first, second)]
        return Num(ir.Logic(node.lineno, "and", *sides, type=BOOL))  # type: ignore[attr-defined]

    def _comparison(self, node: ast.Compare, op: ast.cmpop, left: Value, right: Value) -> Value:
        if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(left, Maybe) and is_none(right):
            return Num(ir.Unary(node.lineno, "not", left.has, type=BOOL) if isinstance(op, ast.Is) else left.has)
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = self._identical(node, left, right)
            return (
                Const(same is isinstance(op, ast.Is))
                if isinstance(same, bool)
                else self.unary(node, "not", same)
                if (isinstance(op, ast.IsNot))
                else same
            )
        if isinstance(op, (ast.In, ast.NotIn)):
            found: Value = Const(False)
            for item in self.items(node, right):
                same = self.binary(node, "==", left, item)
                known, other = self.known_truth(found), self.known_truth(same)
                if known is True or other is True:
                    found = Const(True)
                elif known is False:
                    found = same
                elif other is not False:
                    sides = [truth(self.numeric(node, side)) for side in (found, same)]
                    found = Num(ir.Logic(node.lineno, "or", *sides, type=BOOL))
            return self.unary(node, "not", found) if isinstance(op, ast.NotIn) else found
        return self.binary(node, _COMPARE[type(op)], left, right)

    def _identical(self, node: ast.AST, left: Value, right: Value) -> bool | Value:
        if isinstance(left, Const) and isinstance(right, Const):
            return left.value is right.value or (left.value == right.value and type(left.value) is type(right.value))
        if any(isinstance(side, Const) and side.value is None for side in (left, right)):
            return False
        return self.binary(node, "==", left, right)

    def _logic(self, node: ast.BoolOp) -> Value:
        """Read ``and`` and ``or``, whose value is that of the operand that decides."""
        op = "and" if isinstance(node.op, ast.And) else "or"
        result = self.expression(node.values[0])
        for right_node in node.values[1:]:
            known = self.known_truth(result)
            if known is not None:
                if known == (op == "or"):
                    return result
                result = self.expression(right_node)
                continue
            before = dict(self.frame.env)
            self.blocks.append([])
            right = self.expression(right_node)
            ahead = self.blocks.pop()
            result = self._decided(node, op, result, right, ahead, before)
        return result

    def _decided(
        self, node: ast.AST, op: str, left: Value, right: Value, ahead: list[ir.Stmt], before: Environment
    ) -> Value:
        line: int = node.lineno  # type: ignore[attr-defined]
        a, b = self.numeric(node, left), self.numeric(node, right)
        if a.type == b.type == BOOL and not ahead:
            return Num(ir.Logic(line, op, truth(a), truth(b), type=BOOL))
        both = self.unify(a, b)
        slot = self.slot("held", both)
        self.assign_slot(line, slot, a)
        held = self.at(line, slot)
        assert isinstance(held, (Num, Cplx))  # noqa: S101  both operands are numbers
        goes_on = truth(held) if op == "and" else ir.Unary(line, "not", truth(held), type=BOOL)
        self.blocks.append(ahead)
        self.assign_slot(line, slot, b)
        self.blocks.pop()
        nothing: list[ir.Stmt] = []
        self.frame.env = self.merge(line, [(self.frame.env, ahead), (before, nothing)])
        self.emit(ir.If(line, goes_on, ahead, nothing))
        return self.at(line, slot)

    def _choice(self, node: ast.IfExp) -> Value:
        line = node.lineno
        test = self.expression(node.test)
        known = self.known_truth(test)
        if known is not None:
            return self.expression(node.body if known else node.orelse)
        condition = truth(self.numeric(node.test, test))
        sides: list[tuple[Value, list[ir.Stmt]]] = []
        before = dict(self.frame.env)
        for side in (node.body, node.orelse):
            self.blocks.append([])
            value = self.expression(side)
            if isinstance(value, View) and not value.dims:
                value = self.load(node, value)
            sides.append((value, self.blocks.pop()))
            self.frame.env = dict(before)
        (yes, yes_ahead), (no, no_ahead) = sides
        both = self.unify(yes, no)
        if isinstance(both, Unusable):
            self.refuse(node, both.problem, "one type")
        if isinstance(both, Num) and not yes_ahead and not no_ahead:
            parts = [converted(self.num(node, side).expr, both.type) for side in (yes, no)]
            return Num(ir.Select(line, condition, *parts, type=both.type), both.unit)
        slot = self.slot("held", both)
        for value, block in sides:
            self.blocks.append(block)
            self.assign_slot(line, slot, value)
            self.blocks.pop()
        self.emit(ir.If(line, condition, yes_ahead, no_ahead))
        return self.at(line, slot)


def _methods_of(kind: rules.Number) -> tuple[str, ...]:
    return ("conjugate", "item", "bit_count") if rules.is_integer(kind) else ("conjugate", "item")


def _free(frame: Frame, name: str) -> bool:
    """Return whether a name is one from outside, although the function around a lambda assigns it."""
    return isinstance(frame.tree, ast.Lambda) or name not in frame.source.assigned
