"""Loads a kernel from a file, which is executed as a module."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.files import CODE_BYTES, check_file

_NAME = "_windtunnel_transpiled"


def load(reference: str) -> Callable[..., Any]:
    """Return the function that ``FILE.py:KERNEL`` names. The file is executed; its output goes to standard error.

    Raises InputError if the file does not exist, fails, or has no such function.
    """
    path, colon, name = reference.rpartition(":")
    if not colon or not path or not name:
        raise InputError(f"no kernel in {reference!r}", expected="FILE.py:KERNEL, such as kernels.py:saxpy")
    file = Path(path)
    check_file(file, "Python file", CODE_BYTES)
    module = _executed(file)
    functions = {key: value for key, value in vars(module).items() if _is_function(value) and not key.startswith("__")}
    if name not in functions:
        own = [key for key, value in functions.items() if _plain(value).__module__ == _NAME]
        raise InputError(
            f"no function '{name}'",
            where=Location(path),
            expected=list_choices(own) if own else "a function, defined with def",
            nearest=nearest(name, own),
        )
    function: Callable[..., Any] = _plain(functions[name])
    return function


def kernels_in(path: Path) -> list[str]:
    """Return the names of the functions of a file that are marked as kernels. The file is executed."""
    check_file(path, "Python file", CODE_BYTES)
    module = _executed(path)
    return [name for name, value in vars(module).items() if hasattr(value, "function") and _is_function(value)]


def _plain(value: Any) -> Any:
    """Return the function of a kernel marked with @windtunnel.kernel, or the function itself."""
    return getattr(value, "function", value)


def _is_function(value: Any) -> bool:
    return inspect.isfunction(_plain(value))


def _executed(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_NAME, file)
    if spec is None or spec.loader is None:
        raise InputError("no Python file", where=Location(str(file)), expected="a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    # Modules in the same folder can be imported, as if the file were run as a script.
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[_NAME] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(_NAME, None)
        line = error.lineno if isinstance(error, SyntaxError) else _line_in(file, error)
        raise InputError(
            f"the file cannot be executed: {type(error).__name__}: {error}",
            where=Location(str(file), line),
            expected="a file that can be imported",
        ) from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    return module


def _line_in(file: Path, error: BaseException) -> int | None:
    """Return the line of the file at which an error occurred."""
    there = str(file.resolve())
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == Path(there)
    ]
    return lines[-1] if lines else None
