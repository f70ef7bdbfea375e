"""Runs a program in this process with ``numba.cuda`` and ``cupy`` on an emulated device."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from windtunnel.core.errors import Finding, InputError
from windtunnel.emulate import child_findings, children, session
from windtunnel.emulate.hooks import available, install

_INTERNAL = str(Path(__file__).resolve().parents[1])

_terminates: list[Any] = []
"""What the command does when it is asked to terminate."""


def _begin_fork() -> None:
    """Let a fork of the program end by SIGTERM, as without Windtunnel: the command's files are not its own."""
    if signal.getsignal(signal.SIGTERM) in _terminates:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_begin_fork)


def run_script(
    script: Path | str, arguments: Sequence[str], device: str, options: dict[str, Any], *, is_module: bool = False
) -> int:
    """Run a program and return its exit status; 1 if a finding was reported.

    ``script``: a file, or with ``is_module`` the name of a module, which is run as ``python -m`` runs it. Raises
    InputError if there is no such file or module, or no such device.
    """
    folder = str(Path.cwd() if is_module else Path(script).resolve().parent)
    if is_module:
        _check_module(str(script), folder)
    elif not Path(script).is_file():
        raise InputError(f"there is no file '{script}'", expected="a Python program")
    _terminates[:] = [signal.getsignal(signal.SIGTERM)]
    emulated = session.Session(device, options)
    emulated.open()  # an unknown device is an error before the program begins
    interfaces = available()
    install(interfaces)
    children.announce(device, interfaces)
    before = session.begin(emulated)
    argv, path, leave, execute = sys.argv, list(sys.path), os._exit, (os.execv, os.execve)
    sys.argv, sys.path[0:0] = [str(script), *arguments], [folder]
    os._exit = _reporting(emulated, leave)  # type: ignore[assignment]  # its parameter has no name
    os.execve = _executing(os.execve)
    os.execv = lambda path, args: os.execve(path, args, os.environ)  # noqa: S606
    status, shown = 0, None
    broken_pipe = _errors_of_pipes()
    try:
        if is_module:
            runpy.run_module(str(script), run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(script), run_name="__main__")
        emulated.synchronize()
    except SystemExit as ended:
        status = _status(ended)
    except Exception as error:  # reported as Python does
        _print(error)
        status, shown = 1, error
    except BaseException:  # an interrupt, which is the caller's
        _reported(emulated, 1)
        raise
    finally:
        sys.argv, sys.path[:], os._exit, (os.execv, os.execve) = argv, path, leave, execute
        session.begin(before)
        if broken_pipe is not None:
            signal.signal(signal.SIGPIPE, broken_pipe)
    return _reported(emulated, status, shown)


def _errors_of_pipes() -> Any:
    """Let a closed pipe be an error of the program, as in Python, and return what the command does; None if nothing."""
    if hasattr(signal, "SIGPIPE") and threading.current_thread() is threading.main_thread():
        return signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    return None


def _check_module(name: str, folder: str) -> None:
    """Raise InputError if there is no such module. Only the outermost package is looked for, which imports nothing."""
    sys.path.insert(0, folder)
    try:
        found = find_spec(name.partition(".")[0]) is not None
    except ValueError:  # a module that has been imported and has no specification
        found = True
    finally:
        sys.path.remove(folder)
    if not found:
        raise InputError(f"there is no module '{name}'", expected="a Python module, as for `python -m`")


def _reported(emulated: session.Session, status: int, shown: BaseException | None = None) -> int:
    """Print the findings that were not shown yet, those of child processes too, and return the exit status."""
    found = emulated.findings
    for caught in found:
        if caught is not shown:
            sys.stderr.write(f"windtunnel: {type(caught).__name__}: {caught}{_file_of(caught)}\n")
    of_children = child_findings.take()
    for text in of_children:
        sys.stderr.write(f"windtunnel: in a child process: {text}\n")
    child_findings.end()
    return 1 if found or of_children else status


def _reporting(emulated: session.Session, leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """Return ``os._exit`` for the program and its forks: findings are reported, and make the status 1."""

    def _exit(status: int) -> NoReturn:
        status = _reported(emulated, status)
        sys.stderr.flush()
        leave(status)

    return _exit


def _executing(execute: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    """Return ``os.execve`` for the program and its forks.

    The program that takes the place of this one becomes a child process, because only what is left of this one can
    report its findings and those of its successor. A fork really executes it, as it is a child process itself.
    """
    own = os.getpid()

    def execve(path: Any, args: Sequence[str], env: Any) -> NoReturn:
        if os.getpid() != own:
            execute(path, args, env)
        sys.stdout.flush()
        done = subprocess.run(list(args), executable=path, env=env, check=False, close_fds=False)  # noqa: S603
        ended = done.returncode
        os._exit(ended if ended >= 0 else 128 - ended)  # as a shell names the end by a signal

    return execve


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
    sys.stderr.write("".join(lines).rstrip("\n") + _file_of(error, *(frame.filename for frame in own)) + "\n")


def _file_of(error: BaseException, *shown: str) -> str:
    """Return the file of a finding's lines for the end of its message; empty if it is one of those that are shown."""
    file = error.file if isinstance(error, Finding) else None
    return f" [{file}]" if file and file not in shown and file not in str(error) else ""
