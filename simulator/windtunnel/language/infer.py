"""Infers the types of a kernel's expressions and variables from those of its parameters.

A variable has one type: the common type of all values that are assigned to it. Literals are weak: as in NumPy 2, they
take the type of the other operand, and alone are ``i32``, ``u32`` or ``f32``. ``/`` and the mathematical functions of
integers are ``f32``, and ``f64`` for integers of 64 bits; ``//`` and ``%`` round down, as in Python. A value that is
stored into an array is converted to the type of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NoReturn

import numpy as np

from windtunnel.core.errors import Location
from windtunnel.language import ir
from windtunnel.language.source import KernelError
from windtunnel.language.stencil import expand
from windtunnel.language.types import BOOL, F32, F64, I32, I64, U32, Array, Scalar, Type, scalar_of, unify
from windtunnel.language.words import many

_INT: Final = Scalar("an integer", "int", 0)
_UINT: Final = Scalar("a large integer", "uint", 0)
_FLOAT: Final = Scalar("a float", "float", 0)
"""The types of literals without an operand that has a type."""
_WEAK = (_INT, _UINT, _FLOAT)
_ALONE = {_INT: I32, _UINT: U32, _FLOAT: F32}
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_ROUNDS = 64
"""An upper limit on the iterations until the types of mutually dependent variables no longer change."""


def infer(program: ir.Program, given: Mapping[str, Type]) -> ir.Program:
    """Return a copy of ``program`` in which every expression has its type; KernelError if one has none."""
    typed = deepcopy(program)
    typed.arrays = {name: t for name, t in given.items() if isinstance(t, Array)}
    typed.scalars = {name: t for name, t in given.items() if isinstance(t, Scalar)}
    if typed.form is not None:
        expand(typed, typed.form)
    for declared in typed.declared.values():
        typed.arrays[declared.name] = Array(declared.element, len(declared.shape))
    _Inference(typed).run()
    return typed


def types_of(program: ir.Program, arguments: Sequence[Any]) -> dict[str, Type]:
    """Return the types of parameters: the annotations, else the types of the arguments (arrays, buffers, numbers).

    A Python float is ``f64`` if an array is, else ``f32``; a Python integer is ``i32``, or ``i64`` if it needs to be.
    Raises KernelError if an argument does not match its annotation.
    """
    if len(arguments) != len(program.parameters):
        names = ", ".join(p.name for p in program.parameters)
        problem = f"{many(len(arguments), 'argument')} for kernel '{program.name}'"
        raise KernelError(
            problem, where=Location(program.file, program.line), expected=f"{len(program.parameters)}: {names}"
        )
    wide = any(getattr(a, "dtype", None) == np.float64 and getattr(a, "shape", ()) for a in arguments)
    types: dict[str, Type] = {}
    for parameter, argument in zip(program.parameters, arguments, strict=True):
        actual = type_of(argument, wide=wide)
        stated = parameter.annotation
        if stated is None:
            if isinstance(argument, int) and not -(2**63) <= argument < 2**63:
                where = Location(program.file, parameter.line, field=parameter.name)
                problem = f"'{parameter.name}' is {argument}, which does not fit into i64"
                raise KernelError(problem, where=where, expected=f"-2**63 to 2**63 - 1, or {parameter.name}: u64")
            types[parameter.name] = actual
            continue
        fits = stated == actual if isinstance(actual, Array) else isinstance(stated, Scalar)
        if fits and isinstance(stated, Scalar) and not _keeps(stated, argument):
            where = Location(program.file, parameter.line, field=parameter.name)
            raise KernelError(f"'{parameter.name}' is {argument!r}, which does not fit into {stated}", where=where)
        if not fits:
            where = Location(program.file, parameter.line, field=parameter.name)
            raise KernelError(f"'{parameter.name}' is annotated {stated}, but the argument is {actual}", where=where)
        types[parameter.name] = stated
    return types


def _keeps(stated: Scalar, argument: Any) -> bool:
    """Return whether a number fits into a type, apart from the rounding of a float."""
    value = argument.item() if hasattr(argument, "item") else argument
    if stated.kind not in ("int", "uint"):
        return True
    if isinstance(value, float) and not value.is_integer():
        return False
    low, high = (-(2 ** (stated.bits - 1)), 2 ** (stated.bits - 1)) if stated.kind == "int" else (0, 2**stated.bits)
    return bool(low <= int(value) < high)


def type_of(argument: Any, *, wide: bool = False) -> Type:
    """Return the type of an argument; ``wide``: Python floats are f64."""
    shape = getattr(argument, "shape", ())
    if shape:
        return Array(scalar_of(argument.dtype), len(shape))
    if isinstance(argument, np.generic):
        return scalar_of(argument.dtype)  # np.float64 is a subclass of float
    if isinstance(argument, bool):
        return BOOL
    if isinstance(argument, int):
        return I32 if -(2**31) <= argument < 2**31 else I64
    if isinstance(argument, float):
        return F64 if wide else F32
    return scalar_of(np.asarray(argument).dtype)


class _Inference:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.kinds: dict[str, Scalar] = dict(program.scalars)

    def run(self) -> None:
        """Infer and set all types."""
        for _ in range(_ROUNDS):
            before = dict(self.kinds)
            for statement in ir.walk(self.program.body):
                self._learn(statement)
            if before == self.kinds:
                break
        for name, kind in self.kinds.items():
            if name not in self.program.scalars:
                self.program.variables[name] = _ALONE.get(kind, kind)
        # A parameter that is assigned is also a variable, and keeps its type.
        self.kinds = {**self.program.variables, **self.program.scalars}
        self._write(self.program.body)

    # Which types variables have.

    def _learn(self, statement: ir.Stmt) -> None:
        if isinstance(statement, ir.Assign):
            self._meet(statement.name, self._kind(statement.value), statement.line)
        elif isinstance(statement, ir.For):
            kind = self._kind(statement.start)
            for other in (statement.stop, statement.step):
                kind = self._unify(kind, self._kind(other), statement.line)
            if kind.kind not in ("int", "uint", "bool"):
                self._refuse(statement.line, f"a range over {_ALONE.get(kind, kind)}", "integers")
            self._meet(statement.name, I32 if kind == BOOL else kind, statement.line)

    def _meet(self, name: str, kind: Scalar, line: int) -> None:
        known = self.kinds.get(name)
        if name in self.program.scalars:
            return
        self.kinds[name] = kind if known is None else self._unify(known, kind, line)

    def _unify(self, left: Scalar, right: Scalar, line: int) -> Scalar:
        if left in _WEAK or right in _WEAK:
            return _weakly(left, right)
        common = unify(left, right)
        if common is None:
            self._refuse(line, f"{left} and {right} have no common type", "a conversion of one, f32(x)")
        return common

    def _kind(self, e: ir.Expr) -> Scalar:
        match e:
            case ir.Literal(value=value):
                return _literal_kind(value)
            case ir.Variable(name=name):
                return self.kinds.get(name, _INT)
            case ir.Load(array=array) | ir.Atomic(array=array):
                return self.program.arrays[array].element
            case ir.Binary(op=op, left=left, right=right):
                return self._binary_kind(op, left, right, e.line)
            case ir.Unary(op="not"):
                return BOOL
            case ir.Unary(operand=operand):
                kind = self._kind(operand)
                return I32 if kind == BOOL else kind
            case ir.Logic():
                return BOOL
            case ir.Select(yes=yes, no=no):
                return self._unify(self._kind(yes), self._kind(no), e.line)
            case ir.Convert():
                return self._converted(e)
            case ir.Call(op=op, arguments=arguments):
                return self._call_kind(op, arguments, e.line)
            case ir.Warp(op=op, arguments=arguments):
                if op.startswith("shuffle"):
                    return self._kind(arguments[1])
                return {"vote.ballot": U32, "vote.any": BOOL, "vote.all": BOOL}.get(op, I32)
            case _:
                return I32  # indices of threads and sizes

    def _binary_kind(self, op: str, left: ir.Expr, right: ir.Expr, line: int) -> Scalar:
        if op in _COMPARISONS:
            return BOOL
        left_kind, right_kind = self._kind(left), self._kind(right)
        if op in ("<<", ">>"):
            return I32 if left_kind == BOOL else left_kind
        kind = self._unify(left_kind, right_kind, line)
        if op == "/" and kind.kind != "float":
            return _float_of_integer(kind)
        if kind == BOOL and op not in ("&", "|", "^"):
            return I32
        return kind

    def _converted(self, e: ir.Convert) -> Scalar:
        if not e.keeps:
            return e.to
        kind = self._kind(e.operand)
        if e.to == I32:
            return I64 if kind.bits == 64 else I32
        return F64 if kind.bits == 64 else F32

    def _call_kind(self, op: str, arguments: Sequence[ir.Expr], line: int) -> Scalar:
        if op in ("math.isnan", "math.isinf"):
            return BOOL
        if op in ("bits.popc", "bits.clz", "bits.ffs"):
            return I32
        if op == "round.tf32":
            return F32
        kind = self._kind(arguments[0])
        for other in arguments[1:]:
            kind = self._unify(kind, self._kind(other), line)
        if op.startswith("bits"):
            return kind
        return kind if kind.kind == "float" else _float_of_integer(kind)

    # Writing them in.

    def _write(self, body: Sequence[ir.Stmt]) -> None:
        for statement in body:
            match statement:
                case ir.Assign():
                    statement.value = self._typed(statement.value, self.kinds[statement.name])
                case ir.Store():
                    statement.indices = self._places(statement.array, statement.indices, statement.line)
                    statement.value = self._typed(statement.value, self.program.arrays[statement.array].element)
                case ir.ExpressionStatement():
                    statement.value = self._typed(statement.value, None)
                case ir.Barrier():
                    statement.mask = None if statement.mask is None else self._typed(statement.mask, U32)
                case ir.If():
                    statement.condition = self._typed(statement.condition, BOOL)
                    self._write(statement.body)
                    self._write(statement.orelse)
                case ir.While():
                    statement.condition = self._typed(statement.condition, BOOL)
                    self._write(statement.body)
                case ir.For():
                    kind = self.kinds[statement.name]
                    self._counts(statement, kind)
                    bounds = (statement.start, statement.stop, statement.step)
                    statement.start, statement.stop, statement.step = (self._typed(e, kind) for e in bounds)
                    self._write(statement.body)

    def _counts(self, loop: ir.For, kind: Scalar) -> None:
        """Raise KernelError for an unsigned range with a negative number: the counter would wrap."""
        given = [e.value for e in (loop.start, loop.stop, loop.step) if isinstance(e, ir.Literal)]
        below = next((value for value in given if value < 0), None)
        if kind.kind == "uint" and below is not None:
            self._refuse(loop.line, f"a range over {kind} with {below} in it", "a signed counter: i32(n)")

    def _extreme(self, e: ir.Binary) -> ir.Expr:
        kind, extreme = self._kind(e), ir.Binary(e.line, e.op[:3], e.left, e.right)
        if kind.kind != "float":
            return extreme
        # The sum is NaN if either operand is, and is used only then.
        nans = (ir.Binary(e.line, "!=", deepcopy(side), deepcopy(side)) for side in (e.left, e.right))
        either = ir.Logic(e.line, "or", *nans)
        return ir.Select(e.line, either, ir.Binary(e.line, "+", deepcopy(e.left), deepcopy(e.right)), extreme)

    def _size(self, e: ir.Size) -> ir.Expr:
        sides = self.program.arrays[e.array].dimensions
        if e.total:
            product: ir.Expr = ir.Size(e.line, e.array, 0)
            for side in range(1, sides):
                product = ir.Binary(e.line, "*", product, ir.Size(e.line, e.array, side))
            return product
        if not -sides <= e.side < sides:
            self._refuse(e.line, f"axis {e.side} of '{e.array}', which has {sides}", f"{-sides} to {sides - 1}")
        e.side %= sides
        return e

    def _places(self, array: str, indices: Sequence[ir.Expr], line: int) -> list[ir.Expr]:
        sides = self.program.arrays[array].dimensions
        if len(indices) != sides:
            self._refuse(
                line, f"{many(len(indices), 'index')} for '{array}', which has {many(sides, 'dimension')}", f"{sides}"
            )
        return [self._place(index) for index in indices]

    def _place(self, index: ir.Expr) -> ir.Expr:
        kind = self._kind(index)
        if kind.kind == "float":
            self._refuse(index.line, f"an index of type {_ALONE.get(kind, kind)}", "an integer: int(x)")
        return self._typed(index, I32 if kind == BOOL or kind in _WEAK else kind)

    def _typed(self, e: ir.Expr, want: Scalar | None) -> ir.Expr:
        """Return ``e`` with its types set, converted to ``want``."""
        if isinstance(e, ir.Size):
            e = self._size(e)
        elif isinstance(e, ir.Binary) and e.op in ("minimum", "maximum"):
            e = self._extreme(e)
        kind = self._kind(e)
        own = _ALONE.get(kind, kind)
        if kind in _WEAK and want is not None and want != BOOL and _holds(want, kind):
            own = want
        e.type = own
        self._inner(e, own)
        if want is None or want == own:
            return e
        if isinstance(e, ir.Literal):
            e.type = want
            if want == BOOL:
                e.value = bool(e.value)
            return e
        return ir.Convert(e.line, want, e, type=want)

    def _inner(self, e: ir.Expr, own: Scalar) -> None:
        match e:
            case ir.Literal():
                self._fits(e, own)
            case ir.Load():
                e.indices = self._places(e.array, e.indices, e.line)
            case ir.Binary():
                self._binary(e, own)
            case ir.Unary():
                wanted = BOOL if e.op == "not" else own
                if e.op == "~" and own.kind == "float":
                    self._refuse(e.line, f"~ of {own}", "an integer")
                e.operand = self._typed(e.operand, wanted)
            case ir.Logic():
                e.left, e.right = self._typed(e.left, BOOL), self._typed(e.right, BOOL)
            case ir.Select():
                e.condition = self._typed(e.condition, BOOL)
                e.yes, e.no = self._typed(e.yes, own), self._typed(e.no, own)
            case ir.Convert():
                e.to, e.keeps = self._converted(e), False
                # A literal is rounded once, to the type of the conversion.
                weak = self._kind(e.operand) in _WEAK and isinstance(e.operand, ir.Literal)
                same = weak and _holds(e.to, self._kind(e.operand))
                e.operand = self._typed(e.operand, e.to if same else None)
            case ir.Call():
                self._call(e, own)
            case ir.Warp():
                self._warp(e, own)
            case ir.Atomic():
                self._atomic(e, own)

    def _binary(self, e: ir.Binary, own: Scalar) -> None:
        if e.op in _COMPARISONS:
            kind = self._unify(self._kind(e.left), self._kind(e.right), e.line)
            shared = _ALONE.get(kind, kind)
            e.left, e.right = self._typed(e.left, shared), self._typed(e.right, shared)
            return
        if e.op in ("&", "|", "^", "<<", ">>") and own.kind == "float":
            self._refuse(e.line, f"{e.op} of {own}", "integers")
        if e.op == "**" and own.kind != "float":
            power = e.right.value if isinstance(e.right, ir.Literal) else None
            if not isinstance(power, int) or not 0 <= power <= 8:
                self._refuse(e.line, "a power of integers", "a literal exponent from 0 to 8, or a float base")
        e.left, e.right = self._typed(e.left, own), self._typed(e.right, own)

    def _call(self, e: ir.Call, own: Scalar) -> None:
        if e.op.startswith("bits"):
            kind = self._kind(e.arguments[0])
            if kind.kind not in ("int", "uint"):
                self._refuse(e.line, f"{e.op.partition('.')[2]} of {_ALONE.get(kind, kind)}", "an integer")
            e.arguments = [self._typed(e.arguments[0], _ALONE.get(kind, kind))]
            return
        wanted = own
        if own == BOOL:  # isnan, isinf
            kind = self._kind(e.arguments[0])
            wanted = kind if kind.kind == "float" and kind not in _WEAK else F32
        e.arguments = [self._typed(argument, wanted) for argument in e.arguments]

    def _warp(self, e: ir.Warp, own: Scalar) -> None:
        if e.op.startswith("shuffle"):
            mask, value, lane = e.arguments
            e.arguments = [self._typed(mask, U32), self._typed(value, own), self._typed(lane, I32)]
        elif e.op.startswith("vote"):
            mask, predicate = e.arguments
            e.arguments = [self._typed(mask, U32), self._typed(predicate, BOOL)]

    def _atomic(self, e: ir.Atomic, own: Scalar) -> None:
        e.indices = self._places(e.array, e.indices, e.line)
        if e.op in ("and_", "or_", "xor") and own.kind not in ("int", "uint"):
            self._refuse(e.line, f"atomic.{e.op.rstrip('_')} on {own}", "integers")
        if e.op in ("inc", "dec") and own != U32:
            self._refuse(e.line, f"atomic.{e.op} on {own}", "u32")
        if own.bits < 32:
            self._refuse(e.line, f"an atomic operation on {own}", "elements of 32 or 64 bits")
        e.values = [self._typed(value, own) for value in e.values]

    def _fits(self, e: ir.Literal, own: Scalar) -> None:
        if own.kind in ("int", "uint") and isinstance(e.value, int) and not isinstance(e.value, bool):
            low, high = (-(2 ** (own.bits - 1)), 2 ** (own.bits - 1) - 1) if own.kind == "int" else (0, 2**own.bits - 1)
            # A literal may state the bits of a signed number: 0xFFFFFFFF is -1.
            if not low <= e.value <= max(high, 2**own.bits - 1 if own.bits >= 32 else high):
                if own.kind == "uint" and -(2 ** (own.bits - 1)) <= e.value < 0:
                    return
                self._refuse(e.line, f"{e.value} does not fit into {own}", f"{low} to {high}")

    def _refuse(self, line: int, problem: str, expected: str | None = None) -> NoReturn:
        raise KernelError(problem, where=Location(*self.program.place_of(line)), expected=expected)


def _float_of_integer(kind: Scalar) -> Scalar:
    """Return the type of a quotient or a mathematical function of integers."""
    return _FLOAT if kind in _WEAK else F64 if kind.bits == 64 else F32


def _literal_kind(value: float | bool) -> Scalar:
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return _FLOAT
    if -(2**31) <= value < 2**31:
        return _INT
    return _UINT if 0 <= value < 2**32 else I64


def _weakly(left: Scalar, right: Scalar) -> Scalar:
    if left in _WEAK and right in _WEAK:
        return max(left, right, key=_WEAK.index)
    weak, strong = (left, right) if left in _WEAK else (right, left)
    if weak == _FLOAT:
        return strong if strong.kind == "float" else _FLOAT
    return weak if strong == BOOL else strong


def _holds(strong: Scalar, weak: Scalar) -> bool:
    return strong.kind == "float" or weak != _FLOAT
