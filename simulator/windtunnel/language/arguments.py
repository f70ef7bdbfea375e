"""The arguments of a call of a plain function in a kernel."""

from __future__ import annotations

import ast
import inspect

import numpy as np

from windtunnel.core.errors import nearest
from windtunnel.language.source import Source

Number = bool | int | float | np.number | np.bool_


def arguments_of(caller: Source, node: ast.Call, called: Source) -> dict[str, ast.expr | Number]:
    """Return the argument of each parameter: an expression of the caller, or the default, a number.

    The order is that of Python's evaluation: positional arguments, keyword arguments, defaults. Raises KernelError for
    a call that Python would reject, and for a default that is not a number.
    """
    stated = called.tree.args
    name = called.tree.name
    if stated.vararg is not None or stated.kwarg is not None:
        raise caller.error(node, f"a call of '{name}', which takes any arguments", expected="parameters without *")
    positions = [parameter.arg for parameter in (*stated.posonlyargs, *stated.args)]
    by_name = [parameter.arg for parameter in (*stated.args, *stated.kwonlyargs)]
    names = [*positions, *(parameter.arg for parameter in stated.kwonlyargs)]
    listed = f"{len(names)}: {', '.join(names)}" if names else "none"
    if len(node.args) > len(positions):
        raise caller.error(node, f"{len(node.args)} arguments for '{name}'", expected=listed)
    arguments: dict[str, ast.expr | Number] = dict(zip(positions, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None:
            raise caller.error(node, f"'**' in a call of '{name}'", expected="arguments one by one")
        if keyword.arg not in by_name:
            close = nearest(keyword.arg, by_name)
            raise caller.error(node, f"'{name}' has no argument '{keyword.arg}'", expected=listed, nearest=close)
        if keyword.arg in arguments:
            raise caller.error(node, f"'{keyword.arg}' of '{name}' is given twice", expected="one value")
        arguments[keyword.arg] = keyword.value
    parameters = inspect.signature(called.function).parameters
    missing = [key for key in names if key not in arguments and parameters[key].default is inspect.Parameter.empty]
    if missing:
        problem = f"{len(arguments)} arguments for '{name}', and none for '{missing[0]}'"
        raise caller.error(node, problem, expected=listed)
    for key in names:
        if key not in arguments:
            arguments[key] = _default(caller, node, name, key, parameters[key].default)
    return arguments


def _default(caller: Source, node: ast.Call, name: str, parameter: str, value: object) -> Number:
    if not isinstance(value, (bool, int, float, np.number, np.bool_)):
        problem = f"the default of '{parameter}' of '{name}', which is {value!r}"
        raise caller.error(node, problem, expected="a number, or an argument for it")
    return value
