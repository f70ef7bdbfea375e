"""Runs a program in this process with ``numba.cuda`` and ``cupy`` on an emulated device."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.core.errors import InputError
from windtunnel.emulate import child_findings, children, session
from windtunnel.emulate.hooks import available, install

_INTERNAL = str(Path(__file__).resolve().parents[1])


def run_script(script: Path, arguments: Sequence[str], device: str, options: dict[str, Any]) -> int:
    """Run a program and return its exit status; 1 if a finding was reported.

    Raises InputError if there is no such file or no such device.
    """
    if not script.is_file():
        raise InputError(f"there is no file '{script}'", expected="a Python program")
    emulated = session.Session(device, options)
    emulated.accelerator()  # an unknown device is an error before the program begins
    interfaces = available()
    install(interfaces)
    children.announce(device, interfaces)
    before = session.begin(emulated)
    argv, path = sys.argv, list(sys.path)
    sys.argv, sys.path[0:0] = [str(script), *arguments], [str(script.resolve().parent)]
    status, shown = 0, None
    try:
        runpy.run_path(str(script), run_name="__main__")
        for index in range(emulated.count):
            emulated.accelerator(index).synchronize()
    except SystemExit as ended:
        status = _status(ended)
    except Exception as error:  # reported as Python does
        _print(error)
        status, shown = 1, error
    finally:
        sys.argv, sys.path[:] = argv, path
        session.begin(before)
    found = emulated.findings
    for caught in found:
        if caught is not shown:
            sys.stderr.write(f"windtunnel: {type(caught).__name__}: {caught}\n")
    of_children = child_findings.take()
    for text in of_children:
        sys.stderr.write(f"windtunnel: in a child process: {text}\n")
    child_findings.end()
    return 1 if found or of_children else status


def _status(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    if isinstance(ended.code, int):
        return ended.code
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _print(error: BaseException) -> None:
    """Print the traceback of an error, with the program's own lines alone."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((_INTERNAL, "<")) and "runpy" not in f.filename]
    lines = [
        "Traceback (most recent call last):\n",
        *traceback.format_list(own),
        *traceback.format_exception_only(error),
    ]
    sys.stderr.write("".join(lines))
