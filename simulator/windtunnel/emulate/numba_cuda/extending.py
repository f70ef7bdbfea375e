"""``numba.cuda.extending``: functions that stand for others in kernels."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.datamodel import models as core_models  # noqa: F401  a name of numba.cuda.extending
from numba.core.errors import NumbaError
from numba.core.extending import (  # noqa: F401  names of numba.cuda.extending
    NativeValue,
    _Intrinsic,
    as_numba_type,
    box,
    intrinsic,
    lower_builtin,
    lower_cast,
    make_attribute_wrapper,
    models,
    overload,
    overload_attribute,
    overload_classmethod,
    overload_method,
    reflect,
    register_jitable,
    register_model,
    type_callable,
    typeof_impl,
    unbox,
)
from numba.core.imputils import (  # noqa: F401  names of numba.cuda.extending
    lower_getattr,
    lower_getattr_generic,
    lower_setattr,
    lower_setattr_generic,
)
from numba.core.typing.templates import builtin_registry, infer, infer_getattr  # noqa: F401
from numba.core.typing.typeof import Purpose, typeof

from windtunnel.emulate.numba_cuda.types import numba_type_of

_TYPED = (
    int, float, complex, str, bytes, type(None), FunctionType, BuiltinFunctionType, ModuleType, np.generic, np.ufunc,
)  # fmt: skip
_HIGHLIGHTING = re.compile(r"\x1b\[[0-9;]*m")
_TARGETS = ("cuda", "gpu", "generic")
"""The targets of overloads that a kernel may call, the most specific first."""


def overload_of(function: Any) -> Callable[..., Any] | None:
    """Return what chooses the code for a function by the types of a call; None if nothing was registered for it."""
    found: dict[str, list[Any]] = {}
    for known, kind in builtin_registry.globals:
        if known is not function:
            continue
        for template in getattr(kind, "templates", ()):
            chosen = getattr(template, "_overload_func", None)
            if chosen is not None:
                metadata = getattr(template, "metadata", {}) or {}
                found.setdefault(metadata.get("target", "generic") or "generic", []).append(chosen)
    usable = [chosen for target in _TARGETS for chosen in found.get(target, ())]
    return _chooser(usable) if usable else None


def member_of(owner: Any, name: str) -> tuple[bool, Callable[..., Any]] | None:
    """Return what the program has registered as an attribute of a value: (whether it is a method, what chooses it)."""
    found: dict[str, list[Any]] = {}
    kind = None
    for template in builtin_registry.attributes:
        chosen = getattr(template, "_overload_func", None)
        if chosen is None or template._attr != name or chosen.__module__.startswith("numba."):
            continue
        try:
            kind = kind or numba_type_of(owner)
        except (TypeError, ValueError):
            return None  # a value of the front end alone
        if isinstance(kind, template.key) if isinstance(template.key, type) else kind == template.key:
            target = template.metadata.get("target", "generic") or "generic"
            found.setdefault(target, []).append((template.is_method, chosen))
    usable = [one for target in _TARGETS for one in found.get(target, ())]
    return (usable[0][0], _chooser([chosen for _, chosen in usable])) if usable else None


def lowered(function: Any) -> str:
    """Return what a function is whose code the program writes for LLVM; empty if it is no such function."""
    if isinstance(function, _Intrinsic):
        return "an intrinsic: its code is written for LLVM, which Windtunnel does not have"
    own = isinstance(function, type) and function.__module__.partition(".")[0] not in ("builtins", "numba", "numpy")
    if own and any(known is function for known, _ in builtin_registry.globals):
        return "a type whose code is written for LLVM (type_callable, register_model), which Windtunnel does not have"
    return ""


def untyped(value: Any) -> str:
    """Return why an object of the program has no type, in Numba's words; empty if it has one."""
    kind = value if isinstance(value, type) else type(value)
    if isinstance(value, _TYPED) or _known(kind) or _known(value) or hasattr(value, "py_func"):
        return ""
    if isinstance(value, (list, set)):
        why = "because globals are compile-time constants and there is no way to compile one as a constant"
        return f"a reflected {kind.__name__}, {why}"
    if overload_of(value) is not None or lowered(value):
        return ""
    try:
        typeof(value, Purpose.constant)
    except (ValueError, NumbaError) as error:
        return _HIGHLIGHTING.sub("", str(error)).strip()
    return ""


def _known(value: Any) -> bool:
    """Return whether a type, or another object with a module, is one of NumPy, Numba or Windtunnel, or a builtin."""
    module = getattr(value, "__module__", None)
    if module == "builtins":
        return getattr(builtins, getattr(value, "__name__", ""), None) is value and value not in (dict, list, set)
    return isinstance(module, str) and module.partition(".")[0] in ("numba", "numpy", "windtunnel")


def _chooser(usable: list[Any]) -> Callable[..., Any]:
    """Return what chooses the first code, of several, that takes the types of a call."""

    def choose(given: list[Any], named: dict[str, Any]) -> Any:
        types = [numba_type_of(value) for value in given]
        named_types = {key: numba_type_of(value) for key, value in named.items()}
        for chosen in usable:
            implementation = chosen(*types, **named_types)
            if implementation is not None:
                return implementation
        return None

    return choose
