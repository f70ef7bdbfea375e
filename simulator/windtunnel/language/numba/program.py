"""Reads a Python function as a kernel of Numba, for the types of its arguments."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from windtunnel.language import ir
from windtunnel.language.numba import rules
from windtunnel.language.numba.declarations import strided_names
from windtunnel.language.numba.outside import compiled_source
from windtunnel.language.numba.reader import Frame, NeedsFlat
from windtunnel.language.numba.recursion import RecursiveReader
from windtunnel.language.numba.values import Cplx, Num, Tup, Value, literal
from windtunnel.language.source import Source
from windtunnel.language.types import BOOL, I32, Array, Scalar

_ROUNDS = 24
"""An upper limit on the readings of a kernel until the types at the heads of its loops no longer change."""
ERROR_WORDS = 7
"""The words of the record of an error: its number, the thread's index and the block's."""


@dataclass(frozen=True)
class NumberArgument:
    """A number; ``unit`` is the type of a date or a duration."""

    type: rules.Number
    unit: str = ""


@dataclass(frozen=True)
class ArrayArgument:
    """An array. ``layout``: C, F, or A for one with an offset and strides of its own."""

    dtype: np.dtype[Any]
    ndim: int
    layout: str
    writable: bool = True
    unit: str = ""
    """The type of the integers as which the kernel sees the memory, such as ``u4``; empty for the array's elements."""


@dataclass(frozen=True)
class TupleArgument:
    """A tuple; ``names`` are those of a named one."""

    items: tuple[Argument, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownArgument:
    """An object that is part of the kernel's type: None, a function, a string."""

    value: Any


Argument = NumberArgument | ArrayArgument | TupleArgument | KnownArgument


class Extensions(Protocol):
    """What the program has added to Numba by `numba.extending`."""

    def overload_of(self, function: Any, /) -> Callable[..., Any] | None:
        """Return what chooses the code of a function by the types of a call; None if nothing was registered."""

    def member_of(self, owner: Value, name: str, /) -> tuple[bool, Callable[..., Any]] | None:
        """Return (whether it is a method, what chooses its code) of an attribute; None if there is none."""

    def untyped(self, value: Any, /) -> str:
        """Return why an object of the program has no type of Numba; empty if it has one."""

    def lowered(self, function: Any, /) -> str:
        """Return what a function is whose code is written for LLVM; empty if it is no such function."""


@dataclass(frozen=True)
class NumbaProgram:
    """A kernel that was read.

    Attributes:
        program: The typed tree. Its parameters are the numbers and arrays that the arguments consist of, in order, then
            the captured arrays, then the record of an error if ``errors`` are possible.
        captured: The arrays from outside that the kernel uses, of the host and of the device.
        errors: What the kernel may raise: (exception, arguments, function, line), by number from 1.
        cooperative: Whether it uses the group of the whole grid.
        arguments: The types of the arguments, with the layouts in which the kernel takes them.
    """

    program: ir.Program
    captured: Sequence[Any] = ()
    errors: Sequence[tuple[type[BaseException], tuple[Any, ...], str, int]] = ()
    cooperative: bool = False
    arguments: Sequence[Argument] = ()


@dataclass
class _Memory:
    """What is known of a kernel from the last time that it was read."""

    known: dict[tuple[Any, ...], Value] = field(default_factory=dict)
    negative: set[tuple[Any, ...]] = field(default_factory=set)
    raised: dict[Any, Any] = field(default_factory=dict)
    undefined: set[tuple[Any, ...]] = field(default_factory=set)
    flat: dict[str, str] = field(default_factory=dict)
    """Arrays that are kept as one dimension with strides, and the type of the integers that they consist of, if any."""


def read_kernel(
    function: Callable[..., Any],
    arguments: Sequence[Argument],
    *,
    debug: bool = False,
    fastmath: bool = False,
    strict: bool = False,
    overloads: Extensions | None = None,
) -> NumbaProgram:
    """Return the program of a kernel for arguments of these types. Raises KernelError if it is not one."""
    source = compiled_source(function)
    memory = _Memory()
    for _ in range(_ROUNDS):
        reader = _KernelReader(source, memory, overloads, debug=debug)
        reader.fastmath, reader.strict = fastmath, strict
        try:
            program = reader.program(arguments)
        except NeedsFlat as needed:
            memory.flat[needed.name] = needed.unit or memory.flat.get(needed.name, "")
            continue
        if not reader.changed:
            return program
    raise source.error(source.tree, "the types of the kernel's variables do not settle", expected="one type a variable")


def result_of(function: Callable[..., Any], arguments: Sequence[Argument]) -> Value | None:
    """Return a value with the type of a device function's result; None if it returns none. Raises KernelError."""
    source = compiled_source(function)
    memory = _Memory()
    for _ in range(_ROUNDS):
        reader = _KernelReader(source, memory, None, debug=False)
        value = reader.result(arguments)
        if not reader.changed:
            return reader.slot_type(value)
    return None


class _KernelReader(RecursiveReader):
    def __init__(
        self,
        source: Source,
        memory: _Memory,
        overloads: Extensions | None,
        *,
        debug: bool,
    ) -> None:
        super().__init__(source, memory.known)
        self.negative, self._raised, self.flattened = memory.negative, memory.raised, memory.flat
        self.undefined = memory.undefined
        self.debug, self._overloads = debug, overloads
        self.parameters: list[str] = []
        self._taken: list[Argument] = []
        self.error_array: str | None = None

    @property
    def raised(self) -> dict[Any, Any]:
        """Sources of functions in other files, with line numbers that name the file."""
        return self._raised

    def overload_of(self, function: Any) -> Callable[..., Any] | None:
        """Return the function that `numba.extending.overload` registered for another; None if there is none."""
        return None if self._overloads is None else self._overloads.overload_of(function)

    def member_of(self, owner: Value, name: str) -> tuple[bool, Callable[..., Any]] | None:
        """Return (whether it is a method, what chooses its code) of an added attribute; None if there is none."""
        return None if self._overloads is None else self._overloads.member_of(owner, name)

    def untyped(self, value: Any) -> str:
        """Return why an object from outside the kernel has no type; empty if it has one."""
        return "" if self._overloads is None else self._overloads.untyped(value)

    def lowered(self, function: Any) -> str:
        """Return what a function of the program is whose code is written for LLVM; empty if it is no such function."""
        return "" if self._overloads is None else self._overloads.lowered(function)

    def program(self, arguments: Sequence[Argument]) -> NumbaProgram:
        """Read the kernel."""
        tree = self.source.tree
        stated = tree.args
        for unsupported in (stated.kwarg, *stated.kwonlyargs):
            if unsupported is not None:
                self.refuse(unsupported, "a kernel's parameters are plain", "names, without **")
        names = [parameter.arg for parameter in (*stated.posonlyargs, *stated.args)]
        if len(arguments) > len(names) and stated.vararg is None:
            self.refuse(
                tree, f"{len(arguments)} arguments for kernel '{tree.name}'", f"{len(names)}: {', '.join(names)}"
            )
        if len(arguments) < len(names):
            missing = names[len(arguments) :]
            if len(missing) > len(stated.defaults):
                self.refuse(
                    tree, f"{len(arguments)} arguments for kernel '{tree.name}'", f"{len(names)}: {', '.join(names)}"
                )
            for name, default in zip(missing, stated.defaults[-len(missing) :], strict=True):
                self.frame.env[name] = self.expression(default)
        self.names |= set(names)
        self._taken = [
            replace(argument, layout="A", unit=self.flattened[name])
            if isinstance(argument, ArrayArgument) and name in self.flattened
            else argument
            for name, argument in zip(names, arguments, strict=False)
        ] + list(arguments[len(names) :])
        for name, argument in zip(names, self._taken, strict=False):
            self.frame.env[name] = self._bind(name, argument)
        if stated.vararg is not None:
            more = [self._bind(f"{stated.vararg.arg}_{at}", a) for at, a in enumerate(arguments[len(names) :])]
            self.frame.env[stated.vararg.arg] = Tup(tuple(more))
        body = self.body(tree.body)
        return self._finished(body)

    def result(self, arguments: Sequence[Argument]) -> Value:
        """Read the function as a device function, and return its result."""
        tree = self.source.tree
        names = [parameter.arg for parameter in (*tree.args.posonlyargs, *tree.args.args)]
        env = {name: self._bind(name, argument) for name, argument in zip(names, arguments, strict=True)}
        return self.inline(tree, Frame(self.source, tree, env, ("result",), depth=1))

    def _bind(self, name: str, argument: Argument) -> Value:
        """Return a parameter's value; the numbers and arrays that it consists of become parameters of the tree."""
        match argument:
            case KnownArgument(value=value):
                return self.known_object(self.source.tree, value)
            case NumberArgument(type=kind, unit=unit):
                if isinstance(kind, rules.Complex):
                    parts = [self._number(f"{name}__{part}", kind.part) for part in ("re", "im")]
                    return Cplx(parts[0], parts[1], kind)
                return Num(self._number(name, kind), unit)
            case TupleArgument(items=items, names=names):
                bound = [self._bind(f"{name}__{at}", item) for at, item in enumerate(items)]
                return Tup(tuple(bound), names)
            case ArrayArgument(dtype=dtype, ndim=ndim, layout=layout, writable=writable, unit=unit):
                value = self.parameter(name, dtype, ndim, layout, writable=writable, storage=unit)
                self.parameters += array_parameters(name, dtype, ndim, layout)
                return value

    def _number(self, name: str, kind: Scalar) -> ir.Expr:
        self.names.add(name)
        self.parameters.append(name)
        return self.scalar(name, kind)

    def _finished(self, body: list[ir.Stmt]) -> NumbaProgram:
        tree, source = self.source.tree, self.source
        captured: list[Any] = []
        for name, array in self.captured.items():
            if isinstance(array, np.ndarray):
                self.parameters += array_parameters(name, array.dtype, array.ndim, "C")
            else:
                interface = array.__cuda_array_interface__
                self.parameters += array_parameters(name, np.dtype(interface["typestr"]), len(interface["shape"]), "C")
            captured.append(array)
        if self.error_array is not None:
            self.parameters.append(self.error_array)
        _complete(body, self.variables)
        if self.strict:
            _need_fences_to_acquire(body)
        scalars = {name: self.variables.pop(name) for name in self.parameters if name not in self.arrays}
        shown = getattr(source.function, "shown_as", tree.name)  # for a kernel that was generated
        self.spellings.update(getattr(source.function, "shown_parameters", {}))
        program = ir.Program(
            shown,
            source.file,
            tree.lineno,
            ast.get_docstring(tree) or "",
            [ir.Parameter(name, None, tree.lineno) for name in self.parameters],
            body,
            source.lines[tree.lineno - source.line :],
            arrays={
                name: array for name, array in self.arrays.items() if name in self.parameters or name in self.declared
            },
            scalars=scalars,
            variables=self.variables,
            declared=self.declared,
            helpers=tuple(self.helpers.values()),
            spellings=self.spellings,
        )
        return NumbaProgram(program, captured, tuple(self.errors), self.cooperative, tuple(self._taken))

    def record_error(self, node: ast.AST, kind: type[BaseException], arguments: tuple[object, ...]) -> None:
        """Emit the record of an error that the kernel raises: of the first thread that gets there."""
        line: int = node.lineno  # type: ignore[attr-defined]
        if self.error_array is None:
            self.error_array = self.fresh("error_record")
            self.arrays[self.error_array] = Array(I32, 1)
        frame = self.frame
        name = getattr(frame.tree, "name", "a lambda")
        self.errors.append((kind, arguments, name, line - frame.source.raised))
        number = len(self.errors)

        def at(place: int) -> ir.Expr:
            return literal(line, place, I32)

        first = ir.Atomic(line, "cas", self.error_array, [at(0)], [at(0), at(number)], type=I32)
        was = self.hold_always(first, "raised")
        stores: list[ir.Stmt] = []
        for axis in range(3):
            for offset, what in ((1, "thread"), (4, "block")):
                index = ir.Index(line, what, axis, type=I32)
                stores.append(ir.Store(line, self.error_array, [at(offset + axis)], index))
        self.emit(ir.If(line, ir.Binary(line, "==", was, at(0), type=BOOL), stores, []))


def array_parameters(name: str, dtype: np.dtype[Any], ndim: int, layout: str) -> list[str]:
    """Return the parameters of the tree that an array consists of."""
    if dtype.names:
        found: list[str] = []
        for part in dtype.names:
            inner = dtype.fields[part][0]  # type: ignore[index]
            found += array_parameters(f"{name}__{part}", inner.base, ndim + len(inner.shape), "C")
        return found
    return [name, *(f"{name}__{stem}" for stem in strided_names(ndim))] if layout == "A" else [name]


def _need_fences_to_acquire(body: Sequence[ir.Stmt]) -> None:
    """Let what atomic operations read order nothing before the thread's next fence, which is all that PTX states."""
    for statement in ir.walk(body):
        for e in ir.expressions(statement):
            if isinstance(e, ir.Atomic):
                e.relaxed = True


def _complete(body: Sequence[ir.Stmt], variables: dict[str, Scalar]) -> None:
    """Set the types of what the removal of returns has added: flags and conditions."""
    for statement in ir.walk(body):
        for e in ir.expressions(statement):
            if e.type is None:
                e.type = variables[e.name] if isinstance(e, ir.Variable) else BOOL
