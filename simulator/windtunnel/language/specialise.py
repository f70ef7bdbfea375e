"""Kernels as all devices take them: the typed tree for the arguments of a launch, in whatever language they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from windtunnel.core.errors import InputError, Location
from windtunnel.core.stencil import form_of
from windtunnel.language import ir
from windtunnel.language.infer import infer, types_of
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import header, parse
from windtunnel.language.source import KernelError, KernelSource, source_of
from windtunnel.language.types import Array, Type


class PythonSource(KernelSource):
    """A Python function in the kernel language. Its tree depends on the types of a launch's arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.form = function, form_of(function)
        self.name = str(getattr(function, "__name__", "kernel"))
        self._typed: dict[tuple[Type, ...], ir.Program] = {}

    def typed(self, arguments: Sequence[Any]) -> ir.Program:
        """Return the typed tree.

        Raises KernelError if the function is not a kernel, or an argument does not match its annotation.
        """
        # `types_of` reports a wrong number of arguments.
        named = zip(parameters_of(self.function), arguments, strict=False)
        arrays = frozenset(parameter.name for parameter, argument in named if getattr(argument, "shape", ()))
        try:
            program = parse(self.function, arrays)
        except KernelError:
            # A mismatched argument is reported first, because it may be the cause of the other error.
            types_of(header(self.function), arguments)
            raise
        types = types_of(program, arguments)
        key = tuple(types.values())
        if key not in self._typed:
            self._typed[key] = infer(program, types)
        return self._typed[key]

    def declared(self, local_bytes: Mapping[str, int]) -> ir.Program:
        """Return the typed tree by the annotations. Raises KernelError if a parameter has none."""
        del local_bytes
        parameters = parameters_of(self.function)
        for parameter in parameters:
            if parameter.annotation is None:
                raise KernelError(
                    f"parameter '{parameter.name}' has no type, but the target's language needs one",
                    where=Location(source_of(self.function).file, parameter.line, field=parameter.name),
                    expected=f"an annotation: {parameter.name}: i32 for a number, "
                    f"{parameter.name}: f32[:] for an array",
                )
        types = {parameter.name: parameter.annotation for parameter in parameters if parameter.annotation is not None}
        arrays = frozenset(name for name, kind in types.items() if isinstance(kind, Array))
        return infer(parse(self.function, arrays), types)


class TypedKernel(KernelSource):
    """A kernel that another front end has read and typed. A launch takes it in the place of a Python function."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.name = self.__name__ = program.name

    def typed(self, arguments: Sequence[Any]) -> ir.Program:
        """Return the tree."""
        del arguments
        return self.program

    def declared(self, local_bytes: Mapping[str, int]) -> ir.Program:
        """Return the tree."""
        del local_bytes
        return self.program

    def __call__(self, *_: object) -> NoReturn:
        """Raise InputError: the kernel can only be launched."""
        raise InputError(f"'{self.name}' is called as a function", expected="a launch on a device")


def kernel_source(function: Callable[..., Any]) -> KernelSource:
    """Return a kernel of threads as a source of typed trees; that of another language is one already."""
    return function if isinstance(function, KernelSource) else PythonSource(function)
