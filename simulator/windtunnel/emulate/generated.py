"""Keeps the source of functions that a program generates with ``exec``, because kernels are read from their source."""

from __future__ import annotations

import builtins
import itertools
import linecache
import sys
from typing import Any

_NUMBERS = itertools.count(1)
_exec = builtins.exec


def keep_sources() -> None:
    """Make ``exec`` keep the text of functions, under a file name of its own. Calling it again has no effect."""
    builtins.exec = _keeping
    if "-c" in sys.orig_argv[:-1]:
        # The program stands in the command line: python -c "...".
        source = sys.orig_argv[sys.orig_argv.index("-c") + 1]
        linecache.cache["<string>"] = (len(source), None, source.splitlines(keepends=True), "<string>")


def executed(source: str, names: dict[str, Any], local: Any = None) -> None:
    """Execute generated source under a name of its own."""
    file = f"<generated {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    _exec(compile(source, file, "exec", dont_inherit=True), names, names if local is None else local)


def _keeping(source: Any, names: Any = None, local: Any = None, /, **more: Any) -> None:
    if names is None:
        frame = sys._getframe(1)
        names, local = frame.f_globals, frame.f_locals if local is None else local
    if (
        isinstance(source, str)
        and "def " in source
        and not more
        and sys._getframe(1).f_globals.get("__name__") not in (sys.stdlib_module_names)
    ):
        executed(source, names, local)
        return
    _exec(source, names, names if local is None else local, **more)
