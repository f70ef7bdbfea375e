"""A kernel for the arguments of a launch: parsed for those that are arrays, with the types of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import types_of
from windtunnel.language.parse import header, parse
from windtunnel.language.source import KernelError
from windtunnel.language.types import Type


def specialised(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[ir.Program, dict[str, Type]]:
    """(the kernel, its parameters' types) for arrays, buffers and numbers; `infer` makes a typed kernel of the two.

    KernelError for a function that is no kernel, and where an argument is not what its annotation says.
    """
    # More arguments than parameters, or fewer, are told of when their types are asked for.
    named = zip(parameters_of(function), arguments, strict=False)
    arrays = frozenset(parameter.name for parameter, argument in named if getattr(argument, "shape", ()))
    try:
        program = parse(function, arrays)
    except KernelError:
        # An argument that is not what its annotation says comes first: the rest may be wrong only because of it.
        types_of(header(function), arguments)
        raise
    return program, types_of(program, arguments)
