"""The parameters of a kernel and their annotations."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.language import ir
from windtunnel.language.source import UNKNOWN, Source, source_of
from windtunnel.language.types import BOOL, F32, I32, Array, Scalar, Type, scalar_of


@cache
def parameters_of(function: Callable[..., Any]) -> tuple[ir.Parameter, ...]:
    """Return a kernel's parameters and their annotations, without a stencil's position, which no caller passes.

    Raises KernelError for parameters with defaults, and for ``*`` parameters.
    """
    source = source_of(function)
    given = source.tree.args
    for unsupported in (given.vararg, given.kwarg, *given.kwonlyargs, *given.defaults):
        if unsupported is not None:
            raise source.error(
                unsupported, "a kernel's parameters are plain", expected="names, without defaults and without *"
            )
    return tuple(
        ir.Parameter(argument.arg, annotation_of(source, argument), argument.lineno)
        for argument in (*given.posonlyargs, *given.args)
        if argument.arg not in source.positions
    )


def annotation_of(source: Source, argument: ast.arg) -> Type | None:
    """Return the type of the kernel language in a parameter's annotation; None if the annotation is another one."""
    node = argument.annotation
    if node is None:
        return None
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    sides = None
    if isinstance(node, ast.Subscript):
        sides = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not all(isinstance(side, ast.Slice) for side in sides):
            return None  # such as npt.NDArray[np.float32]
        node = node.value
    kind: Any = source.environment.get(node.id, UNKNOWN) if isinstance(node, ast.Name) else source.static(node)
    if kind in (int, float, bool):
        kind = {int: I32, float: F32, bool: BOOL}[kind]
    try:
        scalar = scalar_of(kind) if isinstance(kind, Scalar) or is_number_type(kind) else None
    except InputError:
        scalar = None
    if scalar is None:
        return None
    return Array(scalar, len(sides)) if sides is not None else scalar


def is_number_type(value: Any) -> bool:
    """Return whether an object is a NumPy type of numbers."""
    return isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
