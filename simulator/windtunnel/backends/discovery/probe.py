"""Asking every back end's driver for its devices, each in a process of its own: drivers hang, crash and chatter.

A child writes one JSON line to a pipe (`_answer`) and has ``timeout_s`` for it; what it prints goes nowhere. However
it fails, its devices are none and the reason is kept in words. Children are killed with their process group, so that
what a driver started goes with them (not what it made a session of its own for).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from selectors import EVENT_READ, DefaultSelector
from typing import Any, Literal, get_args

from windtunnel import backends
from windtunnel.backends.common.backend import Found, RealBackend
from windtunnel.backends.discovery import registry

Failure = Literal["absent", "missing package", "crashed", "hung", "failed"]

_START = (
    "import json, sys; asked = json.loads(sys.argv[1]); sys.path[:] = asked['path']; "
    "from windtunnel.backends.discovery.probe_child import answer; "
    "answer(asked['name'], asked['descriptor'], asked['folders'])"
)
_POLL_S = 0.02
"""Between two looks at children that say nothing."""
_LONGEST = 1 << 20
"""Bytes of an answer; more is none."""


@dataclass(frozen=True)
class Probed:
    """What a back end's driver said."""

    name: str
    devices: tuple[Found, ...]
    why: str = ""
    """In words, why there is no device; empty where there is one."""
    kind_of_failure: Failure | None = None
    """``absent``: nothing to ask, or the driver answers that it has no device; ``failed``: it raised, or what it said
    is no answer. None where there is a device."""
    took_s: float = 0.0

    @property
    def present(self) -> bool:
        """Whether it reaches a device."""
        return bool(self.devices)


_TYPES: Mapping[str, Any] = {"str": str, "bool": bool, "int": int, "float": (int, float)}

_known: dict[str, Probed] = {}


def probe(names: Iterable[str] | None = None) -> list[Probed]:
    """Ask these back ends (all unless given), at once, and return what each said, in order. Never raises for a driver.

    A back end is asked once in a process's life; ``forget`` makes it be asked again. InputError for an unknown name.
    """
    asked = [registry.backend(name) for name in (registry.names() if names is None else names)]
    new = {backend.name: backend for backend in asked if backend.name not in _known}
    if new:
        _known.update(_probe(list(new.values())))
    return [_known[backend.name] for backend in asked]


def forget() -> None:
    """Ask every driver anew from now on."""
    _known.clear()


def _probe(asked: Sequence[RealBackend]) -> dict[str, Probed]:
    done: dict[str, Probed] = {}
    to_start: list[RealBackend] = []
    for backend in asked:
        began = time.monotonic()
        try:
            here = backend.present()
        except Exception as error:  # a file of the system that cannot be read is no reason to stop the others
            why = f"{type(error).__name__}: {error}".rstrip(": ")
            done[backend.name] = Probed(backend.name, (), why, "failed", time.monotonic() - began)
            continue
        missing = next((package for package in backend.packages if find_spec(package) is None), None)
        if not here:
            why = "nothing of it is on this host: no package, driver or device"
            done[backend.name] = Probed(backend.name, (), why, "absent", time.monotonic() - began)
        elif missing is not None:
            why = f"the package '{missing}' is not installed"
            done[backend.name] = Probed(backend.name, (), why, "missing package", time.monotonic() - began)
        else:
            to_start.append(backend)
    if not to_start:
        return done
    with ExitStack() as until_all_are_done:
        environment = dict(os.environ)
        if "XDG_RUNTIME_DIR" not in environment:  # lavapipe says so, again and again
            environment["XDG_RUNTIME_DIR"] = until_all_are_done.enter_context(
                tempfile.TemporaryDirectory(prefix="windtunnel-", ignore_cleanup_errors=True)
            )
        selector = until_all_are_done.enter_context(DefaultSelector())
        children: list[_Child] = []
        until_all_are_done.callback(_close, children)
        for backend in to_start:
            child = _Child(backend)
            children.append(child)
            child.start(environment)
            if child.reading:
                selector.register(child.pipe, EVENT_READ, child)
        while waited := [child for child in children if child.result is None]:
            for key, _ in selector.select(_POLL_S):
                key.data.read()
                if not key.data.reading:
                    selector.unregister(key.fd)
            for child in waited:
                child.look()
                if child.result is not None:
                    if child.pipe in selector.get_map():
                        selector.unregister(child.pipe)
                    child.close()
        return done | {child.backend.name: child.result for child in children if child.result is not None}


@dataclass
class _Child:
    """A process that asks one driver."""

    backend: RealBackend
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    reading: bool = False
    """Whether more may come through the pipe."""
    said: bytes = b""
    result: Probed | None = None
    began: float = field(default_factory=time.monotonic)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start it; what keeps it from starting is its result."""
        self.began = time.monotonic()
        self.pipe, end = os.pipe()
        asked = {
            "name": self.backend.name,
            "descriptor": end,
            "path": [folder for folder in sys.path if isinstance(folder, str)],
            "folders": list(backends.__path__),
        }
        try:
            # -P: a file of the working directory is not taken for a module that the driver's wrapper imports.
            self.process = subprocess.Popen(  # noqa: S603  this interpreter, and words of ours
                [sys.executable, "-P", "-c", _START, json.dumps(asked)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=(end,),
                start_new_session=True,
            )
        except OSError as error:
            self._failed("failed", f"no process could be started to ask it: {error}")
        finally:
            os.close(end)
        os.set_blocking(self.pipe, False)
        self.reading = self.process is not None

    def read(self) -> None:
        """Take what is in the pipe."""
        while self.reading:
            try:
                some = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            self.said += some
            self.reading = bool(some) and b"\n" not in self.said and len(self.said) <= _LONGEST

    def look(self) -> None:
        """Whether there is an answer, or will be none."""
        if self.result is not None or self.process is None:
            return
        ended = _has_ended(self.process)
        if ended:
            self.read()  # what it wrote with its last breath
        if b"\n" in self.said or len(self.said) > _LONGEST:
            self._answered()
        elif ended:
            code = self._end() or 0
            how = _signal(-code) if code < 0 else f"exit code {code}"
            self._failed("crashed", f"the process that asked its driver ended with {how}, without an answer")
        elif time.monotonic() - self.began > self.backend.timeout_s:
            self._failed("hung", f"its driver did not answer in {self.backend.timeout_s:g} s")

    def close(self) -> None:
        """Kill it with all that it started, and give back the pipe. Closing again does nothing."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe, self.reading = -1, False
        self._end()

    def _end(self) -> int | None:
        """Kill its group, and return the exit code of itself."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        # It leads its group, whose number is not given away while the process is not waited for or anyone is in it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # A driver that hangs in the kernel is not ended by any signal: it is abandoned.
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        return None

    def _answered(self) -> None:
        line = self.said.partition(b"\n")[0]
        try:
            said = json.loads(line)
            if "devices" not in said:
                if said["failure"] not in get_args(Failure):
                    raise ValueError(said["failure"])
                self._failed(said["failure"], str(said["why"]))
                return
            devices = tuple(_found(one, self.backend.name) for one in said["devices"])
        except (ValueError, TypeError, KeyError, RecursionError):
            shown = line[:60].decode("ascii", "backslashreplace")
            self._failed("failed", f"what its driver's process said is no answer: {shown!r}")
            return
        if devices:
            self.result = Probed(self.backend.name, devices, took_s=time.monotonic() - self.began)
        else:
            self._failed("absent", "its driver answers, and has no device")

    def _failed(self, failure: Failure, why: str) -> None:
        self.result = Probed(self.backend.name, (), why, failure, time.monotonic() - self.began)


def _close(children: Iterable[_Child]) -> None:
    for child in children:
        child.close()


def _found(one: Mapping[str, Any], name: str) -> Found:
    """A device from an answer; TypeError or ValueError for what is none."""
    found = Found(**one)
    for each in fields(Found):
        value = getattr(found, each.name)
        if not isinstance(value, _TYPES[str(each.type)]):
            raise TypeError(f"{each.name} is {value!r}")
    if found.backend != name:
        raise ValueError(f"a device of {found.backend}")
    return found


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has. It stays in the table of processes, where that is possible: its group keeps its number."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
