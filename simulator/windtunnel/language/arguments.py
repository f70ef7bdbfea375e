"""What a call within a kernel gives to the parameters of a plain function."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np

from windtunnel.core.errors import nearest
from windtunnel.language.source import Source


def arguments_of(caller: Source, node: ast.Call, called: Source) -> dict[str, Any]:
    """Each parameter's argument: an expression of the caller's, or the number that is its default.

    In the order of Python's evaluation: positions, names as the call has them, defaults. KernelError, at the call's
    line, for what Python would refuse, and for a default that no kernel can hold.
    """
    stated = called.tree.args
    name = called.tree.name
    if stated.vararg is not None or stated.kwarg is not None:
        raise caller.error(node, f"a call of '{name}', which takes any arguments", expected="parameters without *")
    positions = [one.arg for one in (*stated.posonlyargs, *stated.args)]
    by_name = [one.arg for one in (*stated.args, *stated.kwonlyargs)]
    every = [*positions, *(one.arg for one in stated.kwonlyargs)]
    listed = f"{len(every)}: {', '.join(every)}" if every else "none"
    if len(node.args) > len(positions):
        raise caller.error(node, f"{len(node.args)} arguments for '{name}'", expected=listed)
    found: dict[str, Any] = dict(zip(positions, node.args, strict=False))
    for keyword in node.keywords:
        if keyword.arg is None:
            raise caller.error(node, f"'**' in a call of '{name}'", expected="arguments one by one")
        if keyword.arg not in by_name:
            close = nearest(keyword.arg, by_name)
            raise caller.error(node, f"'{name}' has no argument '{keyword.arg}'", expected=listed, nearest=close)
        if keyword.arg in found:
            raise caller.error(node, f"'{keyword.arg}' of '{name}' is given twice", expected="it once")
        found[keyword.arg] = keyword.value
    parameters = inspect.signature(called.function).parameters
    missing = [one for one in every if one not in found and parameters[one].default is inspect.Parameter.empty]
    if missing:
        problem = f"{len(found)} arguments for '{name}', and none for '{missing[0]}'"
        raise caller.error(node, problem, expected=listed)
    for one in every:
        if one not in found:
            found[one] = _default(caller, node, name, one, parameters[one].default)
    return found


def _default(caller: Source, node: ast.Call, name: str, parameter: str, value: Any) -> Any:
    if not isinstance(value, (bool, int, float, np.number, np.bool_)):
        problem = f"the default of '{parameter}' of '{name}', which is {value!r}"
        raise caller.error(node, problem, expected="a number, or an argument for it")
    return value
