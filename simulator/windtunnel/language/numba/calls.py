"""Calls in a Numba kernel: conversions, builtins, functions of ``math`` and NumPy, methods, and functions to inline."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from windtunnel.language import ir
from windtunnel.language.names import Group, Name
from windtunnel.language.numba import arithmetic, rules
from windtunnel.language.numba.arithmetic import converted, number, truth
from windtunnel.language.numba.brain import BrainReader
from windtunnel.language.numba.declarations import number_type
from windtunnel.language.numba.names import VectorType
from windtunnel.language.numba.outside import compiled_source, type_key
from windtunnel.language.numba.reader import Frame
from windtunnel.language.numba.values import (
    Closure,
    Const,
    Cplx,
    Generated,
    Method,
    Num,
    Tup,
    Value,
    View,
    literal,
)
from windtunnel.language.source import KernelError
from windtunnel.language.types import BOOL, F32, F64, I32, I64, U64, Scalar

_OPERATOR_FUNCTIONS: Mapping[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&",
    operator.or_: "|", operator.xor: "^", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=", operator.iadd: "+", operator.isub: "-", operator.imul: "*",
    operator.itruediv: "/", operator.ifloordiv: "//", operator.imod: "%", operator.ipow: "**", operator.ilshift: "<<",
    operator.irshift: ">>", operator.iand: "&", operator.ior: "|", operator.ixor: "^",
}  # fmt: skip
_OPERATOR_UNARY: Mapping[Any, str] = {
    operator.neg: "-", operator.pos: "+", operator.invert: "~", operator.not_: "not", operator.abs: "abs",
}  # fmt: skip


_IMPOSSIBLE = 1000
"""The distance of a complex number from a real one."""

_MAKES_ARRAYS = (
    "arange", "concatenate", "empty", "empty_like", "eye", "full", "full_like", "identity", "linspace", "ones",
    "ones_like", "stack", "zeros", "zeros_like",
)  # fmt: skip
"""The functions of NumPy that allocate memory."""
_FOR_PROCESSORS = ("numba.np.", "numba.core.", "numba.cpython.", "numba.typed.")
"""The modules of Numba with code for the processor."""


class CallReader(BrainReader):
    """Reads calls."""

    def inline(self, node: ast.AST, frame: Frame) -> Value:
        """Read a function that is called, and return its result."""
        raise NotImplementedError

    def call(self, node: ast.Call, *, statement: bool = False) -> Value:
        """Read a call."""
        del statement
        called = self.expression(node.func)
        if any(keyword.arg is None for keyword in node.keywords):
            self.refuse(node, "'**' in a call", "arguments one by one")
        nodes = [argument.value if isinstance(argument, ast.Starred) else argument for argument in node.args]
        values = self.in_order([*nodes, *(keyword.value for keyword in node.keywords)])
        given: list[Value] = []
        for argument, value in zip(node.args, values, strict=False):
            given += self.items(argument, value) if isinstance(argument, ast.Starred) else [value]
        named = dict(zip([str(keyword.arg) for keyword in node.keywords], values[len(node.args) :], strict=True))
        return self.call_value(node, called, given, named)

    def call_value(self, node: ast.Call, called: Value, given: list[Value], named: Mapping[str, Value]) -> Value:
        """Return the value of a call of something."""
        match called:
            case Method(overload=chosen) if chosen is not None:
                return self._overloaded(node, chosen, [called.owner, *given], named)
            case Method():
                return self.method(node, called, given)
            case Closure():
                return self._closure(node, called, given, named)
            case Const(value=function):
                return self._call_object(node, function, given, named)
            case _:
                self.refuse(node, f"a call of {called.description}", "a function")

    # Long: one case for each kind of callable, each a line or two.
    def _call_object(self, node: ast.Call, function: Any, given: list[Value], named: Mapping[str, Value]) -> Value:
        if isinstance(function, Name):
            return self.intrinsic(node, function, given, named)
        if isinstance(function, Group):
            self.refuse(
                node, f"{function.spelling} is not a function", f"{function.spelling}.{next(iter(function.members))}"
            )
        if isinstance(function, VectorType):
            return self.vector(node, function, given)
        plain = getattr(function, "py_func", None)
        if plain is not None and getattr(function, "_can_compile", True) is False:
            name = getattr(plain, "__name__", "")
            self.refuse(node, f"Untyped global name '{name}': using cpu function on device", "a function without types")
        if plain is not None:
            stated = self.stated_signature(function, given)
            if stated is None:
                return self._function(node, plain, given, named, function)
            return self._stated(node, function, given, named, stated)
        external = getattr(function, "external_name", None)
        if external is not None:
            self.refuse(node, f"the foreign function '{external}'", "a function in Python")
        kind = (
            number_type(function)
            if isinstance(function, type) or not callable(function) or _is_type(function)
            else None
        )
        if kind is not None:
            return self._conversion(node, function, kind, given)
        if function is np.dtype and len(given) == 1 and isinstance(given[0], Const):
            return Const(np.dtype(given[0].value))
        if function in _OPERATOR_FUNCTIONS if _hashable(function) else False:
            return self.binary(node, _OPERATOR_FUNCTIONS[function], *given)
        if _hashable(function) and function in _OPERATOR_UNARY:
            return self.unary(node, _OPERATOR_UNARY[function], given[0])
        name = getattr(function, "__name__", "")
        if getattr(builtins, name, None) is function:
            handler = getattr(self, f"_builtin_{name}", None)
            if handler is not None:
                result: Value = handler(node, given, named)
                return result
        if function in (np.ndindex, np.ndenumerate) if _hashable(function) else False:
            return Generated(name, tuple(self.items(node, given[0])) if isinstance(given[0], Tup) else tuple(given))
        if name in _MAKES_ARRAYS and function is getattr(np, name, None):
            problem = f"'{ast.unparse(node.func)}', which makes an array: a thread has no memory for it"
            self.refuse(node, problem, "cuda.local.array(n, dtype), or cuda.shared.array for an array of the block")
        found = self.mathematical(node, function, name, given)
        if found is not None:
            return found
        if isinstance(function, type) and issubclass(function, tuple) and hasattr(function, "_fields"):
            bound = dict(zip(function._fields, given, strict=False)) | dict(named)
            return Tup(tuple(bound[field] for field in function._fields), tuple(function._fields))
        from_numba = str(getattr(function, "__module__", "")).startswith("numba.")
        if from_numba and name in ("literal_unroll", "literally") and len(given) == 1:
            return given[0]
        if from_numba and name in ("carray", "farray"):
            return self._from_pointer(node, name, given, named)
        if from_numba and name == "prange":
            return self._builtin_range(node, given, named)
        overload = self.overload_of(function)
        if overload is not None:
            return self._overloaded(node, overload, given, named)
        if inspect.isfunction(function) and from_numba:
            return self._function(node, function, given, named)
        called = ast.unparse(node.func)
        lowered = self.lowered(function)
        if lowered:
            self.refuse(node, f"'{called}', {lowered}", "a device function, or an overload in Python")
        if inspect.isfunction(function):
            problem = f"Untyped global name '{called}': Cannot determine Numba type of <class 'function'>"
            self.refuse(node, problem, f"a device function: @cuda.jit(device=True) before '{name}'")
        problem = f"Untyped global name '{called}', a {type(function).__name__} that no kernel can call"
        in_math = f"math.{name}, or " if getattr(math, name, function) is not function else ""
        self.refuse(node, problem, f"{in_math}functions of numba.cuda, math, or device functions")

    def _from_pointer(self, node: ast.Call, name: str, given: list[Value], named: Mapping[str, Value]) -> Value:
        """Return the memory that a pointer points to as an array of a shape: in C or in Fortran order."""
        stated = dict(zip(("ptr", "shape", "dtype"), given, strict=False)) | dict(named)
        owner, shape = stated.get("ptr"), stated.get("shape")
        if not isinstance(owner, View) or len(owner.dims) != 1 or shape is None:
            self.refuse(node, f"{name} of these arguments", f"{name}(pointer, shape, dtype)")
        dtype = stated.get("dtype")
        if isinstance(dtype, Const) and number_type(dtype.value) not in (None, owner.element):
            self.refuse(
                node, f"{name} of another type than that of the pointer", f"dtype={rules.name_of(owner.element)}"
            )
        stated_sides = self.items(node, shape) if isinstance(shape, Tup) else [shape]
        sides = [converted(self.integer(node, side), I64) for side in stated_sides]
        if name == "carray":
            return self.reshaped(node, owner, [self.hold(side, "size") for side in sides])
        made = self.reshaped(node, owner, [self.hold(side, "size") for side in reversed(sides)])
        assert isinstance(made, View)  # noqa: S101  it is a view of one
        return made.with_dims(tuple(reversed(made.dims)), made.origin)

    def overloaded_attribute(self, node: ast.AST, owner: Value, name: str) -> Value | None:
        """Return an attribute or a method that the program has added to a type; None if there is none."""
        found = self.member_of(owner, name)
        if found is None:
            return None
        is_method, overload = found
        if is_method:
            return Method(owner, name, overload)
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
        called = ast.Name(f"{ast.unparse(node)}", ast.Load(), lineno=line, col_offset=column)
        call = ast.Call(called, [], [], lineno=line, col_offset=column)
        return self._overloaded(call, overload, [owner], {})

    def member_of(self, owner: Value, name: str) -> tuple[bool, Callable[..., Any]] | None:
        """Return (whether it is a method, what chooses its code) of an added attribute; None if there is none."""
        del owner, name
        return None

    def lowered(self, function: Any) -> str:
        """Return what a function of the program is whose code is written for LLVM; empty if it is no such function."""
        del function
        return ""

    def overload_of(self, function: Any) -> Callable[..., Any] | None:
        """Return the function that `numba.extending.overload` registered for another; None if there is none."""
        del function
        return None

    def _overloaded(
        self, node: ast.Call, overload: Callable[..., Any], given: list[Value], named: Mapping[str, Value]
    ) -> Value:
        """Return the value of a function for which an overload gives the code, by the types of the arguments."""
        try:
            implementation = overload(given, dict(named))
        except (TypeError, ValueError) as error:
            self.refuse(node, f"an overload: {error}", "a device function")
        if implementation is None:
            kinds = ", ".join(value.description for value in given) or "no arguments"
            problem = f"a call of '{ast.unparse(node.func)}' with {kinds}, for which no overload has code"
            self.refuse(node, problem, "other types, or a device function")
        if str(getattr(implementation, "__module__", "")).startswith(_FOR_PROCESSORS):
            # What Numba has for the processor. An error in it is told where the kernel calls it.
            outer = self.frame
            try:
                return self._function(node, implementation, given, named)
            except KernelError as error:
                self.frame = outer
                problem = f"a call of '{ast.unparse(node.func)}', whose code in Numba no kernel can have"
                self.refuse(node, f"{problem} ({error.problem})", "functions of numba.cuda, math, or device functions")
        return self._function(node, implementation, given, named)

    def stated_signature(self, function: Any, given: list[Value]) -> tuple[tuple[Any, ...], Any] | None:
        """Return the signature, of those that a device function states, that fits best: argument types and result.

        A type is one of numbers, or None for any other. None: the function states no signature.
        """
        signatures = getattr(function, "device_signatures", ())
        fitting = [signature for signature in signatures if len(signature[0]) == len(given)]
        if not fitting:
            return None

        def distance(signature: tuple[tuple[Any, ...], Any]) -> int:
            total = 0
            for kind, value in zip(signature[0], given, strict=True):
                made = self.slot_type(value)
                if isinstance(made, (Num, Cplx)) and kind is not None and made.type != kind:
                    total += 1 if rules.unified(made.type, kind) == kind else 8
                    total += _IMPOSSIBLE * (isinstance(made, Cplx) and not isinstance(kind, rules.Complex))
            return total

        best: tuple[tuple[Any, ...], Any] = min(fitting, key=distance)
        return best

    def _stated(
        self, node: ast.Call, function: Any, given: list[Value], named: Mapping[str, Value],
        stated: tuple[tuple[Any, ...], Any],
    ) -> Value:  # fmt: skip
        """Return the value of a device function whose signature states the types of its arguments and its result."""
        kinds, returned = stated
        values: list[Value] = []
        for value, kind in zip(given, kinds, strict=True):
            made = value if kind is None else self.numeric(node, value)
            if isinstance(made, Cplx) and not isinstance(kind, rules.Complex):
                listed = ", ".join(rules.name_of(self.numeric(node, one).type) for one in given)
                self.refuse(
                    node, f"Invalid use of type {function.py_func.__name__} with parameters ({listed})", "its signature"
                )
            values.append(number(made, kind) if isinstance(made, (Num, Cplx)) and kind is not None else made)
        result = self._function(node, function.py_func, values, named, function)
        if returned is None or (isinstance(result, Const) and result.value is None):
            return result
        return number(self.numeric(node, result), returned)

    # Functions that are inlined.

    def _function(
        self, node: ast.Call, function: Any, given: list[Value], named: Mapping[str, Value], owner: Any = None
    ) -> Value:
        """Return the value of a call of a function, of which ``owner`` keeps what was compiled."""
        types = (tuple(map(type_key, given)), tuple((name, type_key(value)) for name, value in named.items()))
        try:
            source = compiled_source(function, owner, types)
        except KernelError as error:
            self.refuse(node, error.problem, error.expected)
        if source.file != self.source.file:
            files = list(dict.fromkeys(helper.file for helper in self.helpers.values() if helper.raised))
            at = files.index(source.file) if source.file in files else len(files)
            if function not in self.raised:
                self.raised[function] = source.raised_by((at + 1) * ir.RAISED)
            source = replace(self.raised[function], environment=source.environment)
        calls = [*(self.helpers[function].calls if function in self.helpers else ()), node.lineno]
        self.helpers[function] = ir.Helper(source.file, source.line, source.lines, source.raised, calls)
        env = self._parameters_of(node, source.tree.name, source.tree.args, function, given, named)
        path = (*self.frame.path, id(node))
        frame = Frame(source, source.tree, env, path, depth=self.frame.depth + 1)
        recursive = self.recursive(node, function, frame)
        return self.inline(node, frame) if recursive is None else recursive

    def recursive(self, node: ast.Call, function: Any, frame: Frame) -> Value | None:
        """Return the value of a call of a function that calls itself; None for another function."""
        raise NotImplementedError

    @property
    def raised(self) -> dict[Any, Any]:
        """Sources of functions in other files, with line numbers that name the file."""
        raise NotImplementedError

    def _closure(self, node: ast.Call, called: Closure, given: list[Value], named: Mapping[str, Value]) -> Value:
        name = getattr(called.node, "name", "a lambda")
        env = self._parameters_of(node, name, called.node.args, None, given, named, called.scope)
        path = (*self.frame.path, id(node))
        outer: Frame = called.scope
        return self.inline(node, Frame(outer.source, called.node, env, path, depth=self.frame.depth + 1, outer=outer))

    def _parameters_of(
        self, node: ast.Call, name: str, stated: ast.arguments, function: Any, given: list[Value],
        named: Mapping[str, Value], scope: Frame | None = None,
    ) -> dict[str, Value]:  # fmt: skip
        """Return the variables of a function that is called: its parameters."""
        positions = [parameter.arg for parameter in (*stated.posonlyargs, *stated.args)]
        keywords = [parameter.arg for parameter in stated.kwonlyargs]
        listed = f"{len(positions)}: {', '.join(positions)}" if positions else "none"
        if len(given) > len(positions) and stated.vararg is None:
            self.refuse(node, f"{len(given)} arguments for '{name}'", listed)
        env: dict[str, Value] = dict(zip(positions, given, strict=False))
        if stated.vararg is not None:
            env[stated.vararg.arg] = Tup(tuple(given[len(positions) :]))
        for key, value in named.items():
            if key not in (*positions, *keywords):
                self.refuse(node, f"'{name}' has no argument '{key}'", listed)
            env[key] = value
        defaults = dict(zip(reversed(positions), reversed(stated.defaults), strict=False))
        defaults |= {key: value for key, value in zip(keywords, stated.kw_defaults, strict=False) if value is not None}
        signature = inspect.signature(function).parameters if function is not None else {}
        for key in (*positions, *keywords):
            if key in env:
                continue
            if key not in defaults:
                self.refuse(node, f"{len(given)} arguments for '{name}', and none for '{key}'", listed)
            env[key] = (
                self.known_object(node, signature[key].default)
                if function is not None
                else self.expression(defaults[key])
            )
        del scope
        # A parameter is evaluated once, before the function.
        return {key: self._parameter(value, key) for key, value in env.items()}

    def _parameter(self, value: Value, key: str) -> Value:
        match value:
            case Num(expr=ir.Literal()):
                return value
            case Num() | Cplx():
                return self.stored(value, key)
            case Tup(items=items, names=names):
                return Tup(tuple(self._parameter(item, f"{key}_{at}") for at, item in enumerate(items)), names)
            case View(dims=()):
                return self.stored(self.load(ast.Pass(lineno=self.source.tree.lineno, col_offset=0), value), key)
            case _:
                return value

    # Conversions.

    def _of_text(self, node: ast.Call, value: Value) -> Value:
        """Return the number that a constant text states, such as ``"nan"``, and any other value unchanged."""
        if not isinstance(value, Const) or not isinstance(value.value, str):
            return value
        try:
            return Const(float(value.value))
        except ValueError as error:
            self.refuse(node, str(error), "the text of a number")

    def _conversion(self, node: ast.Call, function: Any, kind: rules.Number, given: list[Value]) -> Value:
        line = node.lineno
        if function is complex or isinstance(kind, rules.Complex):
            complex_kind = kind if isinstance(kind, rules.Complex) else rules.C128
            if len(given) == 2:
                parts = [converted(self.num(node, value).expr, complex_kind.part) for value in given]
                return self.held(Cplx(parts[0], parts[1], complex_kind))
            value = self.numeric(node, given[0])
            if function is complex and value.type in (rules.C64, F32):
                complex_kind = rules.C64
            return self.held(number(value, complex_kind))
        if len(given) != 1:
            self.refuse(node, f"a conversion of {len(given)} values", "one")
        value = self.numeric(node, self._of_text(node, given[0]) if function is float else given[0])
        if isinstance(value, Cplx) and kind != BOOL:
            self.refuse(node, f"the conversion of a complex number to {rules.name_of(kind)}", "z.real or z.imag")
        if kind == BOOL or isinstance(value, Cplx):
            return Num(truth(value))
        if function is int:
            return Num(converted(value.expr, I64) if value.type.kind == "float" or value.type == BOOL else value.expr)
        if function is float:
            return Num(converted(value.expr, F64) if rules.is_integer(value.type) else value.expr)
        assert isinstance(kind, Scalar)  # noqa: S101  complex types were handled before
        del line
        return Num(converted(value.expr, kind))

    # Builtins.

    def _builtin_range(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        if not 1 <= len(given) <= 3:
            self.refuse(node, f"range of {len(given)} numbers", "one to three")
        start = Const(0) if len(given) == 1 else given[0]
        stop = given[0] if len(given) == 1 else given[1]
        step = given[2] if len(given) == 3 else Const(1)
        if not isinstance(step, Const):
            step = Num(self.hold(self.num(node, step).expr))
            is_zero = ir.Binary(node.lineno, "==", copy(step.expr), literal(node.lineno, 0, step.type), type=BOOL)
            self.raises_if(node, is_zero, ValueError, "range() arg 3 must not be zero")
        # The type of a range is that of the numbers that are given.
        if all(not isinstance(value, Const) for value in given):
            kinds = [self.num(node, value).type for value in given]
            if all(kind.kind == "uint" for kind in kinds):
                start, step = (Num(literal(node.lineno, value.value, U64)) if isinstance(value, Const) else value
                               for value in (start, step))  # fmt: skip
            elif all(kind.bits <= 32 for kind in kinds):
                start, step = (Num(literal(node.lineno, value.value, I32)) if isinstance(value, Const) else value
                               for value in (start, step))  # fmt: skip
        return Generated("range", (start, stop, step))

    def _builtin_enumerate(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del node
        start = given[1] if len(given) > 1 else named.get("start", Const(0))
        return Generated("enumerate", (given[0], start))

    def _builtin_zip(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del node, named
        return Generated("zip", tuple(given))

    def _builtin_len(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        length = self.length(node, given[0], "the length of", "an array or a tuple")
        return Const(length) if isinstance(length, int) else Num(converted(length, I64))

    def _builtin_abs(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        return self.unary(node, "abs", self.numeric(node, given[0]))

    def _builtin_min(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        return self._extremes(node, "min", given)

    def _builtin_max(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        return self._extremes(node, "max", given)

    def _extremes(self, node: ast.Call, op: str, given: list[Value]) -> Value:
        items = self.items(node, given[0]) if len(given) == 1 else given
        if not items:
            self.refuse(node, f"{op} of nothing", "values")
        numbers = [self.num(node, item) for item in items]
        result = numbers[0]
        # Two floats have a function of CUDA, which passes over NaN. All others are compared one after the other.
        passes_over = len(given) == 2 and all(value.type in (F32, F64) for value in numbers)
        for other in numbers[1:]:
            kind = rules.unified(result.type, other.type)
            if passes_over or rules.is_integer(kind):
                result = arithmetic.extreme(node.lineno, op, result, other)
                continue
            best, value = (self.held(number(side, kind)) for side in (result, other))
            assert isinstance(best, Num) and isinstance(value, Num)  # noqa: S101  both are real
            beyond = self.binary(node, ">" if op == "max" else "<", value, best)
            sides = (copy(side.expr) for side in (value, best))
            result = Num(ir.Select(node.lineno, self.num(node, beyond).expr, *sides, type=value.type))
        return result

    def _builtin_pow(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        return self.binary(node, "**", *given)

    def _builtin_divmod(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        a, b = (self.num(node, value) for value in given)
        kind = rules.quotient_and_rest(a.type, b.type)
        held = [self.held(number(value, kind)) for value in (a, b)]
        return Tup(tuple(self.stored(self.binary(node, op, *held), "part") for op in ("//", "%")))

    def _builtin_round(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        line = node.lineno
        value = self.num(node, given[0])
        digits = given[1] if len(given) > 1 else named.get("ndigits")
        wide = rules.mathematical(value.type)
        if digits is None or (isinstance(digits, Const) and digits.value is None):
            rounded = ir.Call(line, "math.rint", [converted(value.expr, wide)], type=wide)
            return Num(converted(rounded, I64))
        places, wide = converted(self.integer(node, digits), I64), rules.of_float(value.type)
        return Num(ir.Call(line, "math.round_to", [converted(value.expr, wide), places], type=wide))

    def _builtin_sum(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        result: Value = given[1] if len(given) > 1 else Const(0)
        for item in self.items(node, given[0]):
            result = self.binary(node, "+", result, item)
        return result

    def _builtin_tuple(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        return Tup(tuple(self.items(node, given[0]) if given else ()))

    def _builtin_slice(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        if not all(isinstance(value, Const) for value in given):
            self.refuse(node, "slice() of numbers that are known only while the kernel runs", "a[start:stop]")
        return Const(slice(*(value.value for value in given if isinstance(value, Const))))

    def _builtin_isinstance(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        wanted = given[1]
        kinds = (
            [item.value for item in self.items(node, wanted) if isinstance(item, Const)]
            if isinstance(wanted, Tup)
            else [wanted.value if isinstance(wanted, Const) else None]
        )
        value = given[0]
        known: Any
        match value:
            case Num():
                known = {"bool": bool, "float": float}.get(value.type.kind, int)
            case Cplx():
                known = complex
            case Tup():
                known = tuple
            case Const(value=inner):
                known = type(inner)
            case _:
                known = np.ndarray
        return Const(any(kind is known for kind in kinds))

    def _builtin_print(self, node: ast.Call, given: list[Value], named: Mapping[str, Value]) -> Value:
        del named
        self.printed(node, given)
        return Const(None)


def _is_type(function: Any) -> bool:
    return type(function).__module__.startswith("numba.")


def _hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True
