"""Specialises a kernel for the arguments of a launch: which are arrays, and the types of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windtunnel.language import ir
from windtunnel.language.infer import types_of
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import header, parse
from windtunnel.language.source import KernelError
from windtunnel.language.types import Type


def specialised(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[ir.Program, dict[str, Type]]:
    """Return the parsed kernel and the types of its parameters; `infer` combines the two.

    Raises KernelError if the function is not a kernel, or an argument does not match its annotation.
    """
    # `types_of` reports a wrong number of arguments.
    named = zip(parameters_of(function), arguments, strict=False)
    arrays = frozenset(parameter.name for parameter, argument in named if getattr(argument, "shape", ()))
    try:
        program = parse(function, arrays)
    except KernelError:
        # A mismatched argument is reported first, because it may be the cause of the other error.
        types_of(header(function), arguments)
        raise
    return program, types_of(program, arguments)
