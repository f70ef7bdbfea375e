"""Queries the driver of every back end for its devices, each in a child process: drivers hang, crash and print.

A child (`discovery.probe_child`) writes one JSON line to a pipe within the back end's ``timeout_s``. What it prints is
discarded. If it fails in any way, the back end has no devices and the reason is kept in words. A child is killed with
its process group, and so with what a driver started (except processes that it put into a new session).
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
from typing import Any, get_args

import windtunnel.backends as package
from windtunnel.backends.common.backend import DetectedDevice, RealBackend
from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe_child import Failure, ProbeAnswer
from windtunnel.core.time_limits import time_limit

_START = (
    "import json, sys; request = json.loads(sys.argv[1]); sys.path[:] = request['path']; "
    "from windtunnel.backends.discovery.probe_child import answer; "
    "answer(request['name'], request['descriptor'], request['folders'])"
)
_POLL_S = 0.02
"""Interval between two checks whether a child has ended."""
_MAX_ANSWER = 1 << 20
"""Longest answer (bytes). A longer one is an error."""


@dataclass(frozen=True)
class ProbeResult:
    """The answer of a back end's driver, or why there is none."""

    name: str
    devices: tuple[DetectedDevice, ...]
    why: str = ""
    """Why there is no device, in words; empty if there is one."""
    failure: Failure | None = None
    """None if there is a device. ``absent``: there is nothing to query, or the driver reports that it has no device.
    ``failed``: the driver raised an exception, or its answer is invalid."""
    probe_s: float = 0.0

    @property
    def present(self) -> bool:
        """Whether the back end detected a device."""
        return bool(self.devices)


_TYPES: Mapping[str, type | tuple[type, ...]] = {"str": str, "bool": bool, "int": int, "float": (int, float)}

_cache: dict[str, ProbeResult] = {}


def probe(names: Iterable[str] | None = None) -> list[ProbeResult]:
    """Query these back ends (default: all) in parallel and return the result of each, in order.

    A back end is queried once per process, unless `forget` is called. No error of a driver is raised. Raises InputError
    for an unknown name.
    """
    backends = [registry.backend(name) for name in (registry.names() if names is None else names)]
    new = {backend.name: backend for backend in backends if backend.name not in _cache}
    if new:
        _cache.update(_probe(list(new.values())))
    return [_cache[backend.name] for backend in backends]


def forget() -> None:
    """Discard all results, so that every driver is queried again."""
    _cache.clear()


def _probe(backends: Sequence[RealBackend]) -> dict[str, ProbeResult]:
    results = {backend.name: _without_driver(backend) for backend in backends}
    done = {name: result for name, result in results.items() if result is not None}
    to_start = [backend for backend in backends if backend.name not in done]
    if not to_start:
        return done
    with ExitStack() as until_all_are_done:
        environment = dict(os.environ)
        if "XDG_RUNTIME_DIR" not in environment:  # lavapipe warns about it again and again
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
        while waiting := [child for child in children if child.result is None]:
            for key, _ in selector.select(_POLL_S):
                key.data.read()
                if not key.data.reading:
                    selector.unregister(key.fd)
            for child in waiting:
                child.update()
                if child.result is not None:
                    if child.pipe in selector.get_map():
                        selector.unregister(child.pipe)
                    child.close()
        return done | {child.backend.name: child.result for child in children if child.result is not None}


def _without_driver(backend: RealBackend) -> ProbeResult | None:
    """Return the result of a back end that need not be queried: its driver or a package is missing. Else None."""
    began = time.monotonic()

    def failed(failure: Failure, why: str) -> ProbeResult:
        return ProbeResult(backend.name, (), why, failure, time.monotonic() - began)

    try:
        if not backend.present():
            return failed("absent", "no package, driver or device file was found")
    except Exception as error:  # an unreadable system file must not stop the other back ends
        return failed("failed", f"{type(error).__name__}: {error}".rstrip(": "))
    missing = next((package for package in backend.packages if find_spec(package) is None), None)
    return None if missing is None else failed("missing package", f"the package '{missing}' is not installed")


@dataclass
class _Child:
    """A process that queries one driver."""

    backend: RealBackend
    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1
    reading: bool = False
    """Whether more may come through the pipe."""
    answer: bytes = b""
    result: ProbeResult | None = None
    began: float = field(default_factory=time.monotonic)

    def start(self, environment: Mapping[str, str]) -> None:
        """Start the process. If it cannot be started, that is the result."""
        self.began = time.monotonic()
        self.pipe, end = os.pipe()
        request = {
            "name": self.backend.name,
            "descriptor": end,
            "path": [folder for folder in sys.path if isinstance(folder, str)],
            "folders": list(package.__path__),
        }
        try:
            # -P: a file of the working directory must not replace a module that the driver's package imports.
            self.process = subprocess.Popen(  # noqa: S603  this interpreter and a fixed program
                [sys.executable, "-P", "-c", _START, json.dumps(request)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                pass_fds=(end,),
                start_new_session=True,
            )
        except OSError as error:
            self._fail("failed", f"the process to query its driver could not be started: {error}")
        finally:
            os.close(end)
        os.set_blocking(self.pipe, False)
        self.reading = self.process is not None

    def read(self) -> None:
        """Read what is in the pipe."""
        while self.reading:
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            self.answer += data
            self.reading = bool(data) and b"\n" not in self.answer and len(self.answer) <= _MAX_ANSWER

    def update(self) -> None:
        """Set the result if there is an answer, or if there will be none."""
        if self.result is not None or self.process is None:
            return
        ended = _has_ended(self.process)
        if ended:
            self.read()  # what it wrote before it ended
        if b"\n" in self.answer or len(self.answer) > _MAX_ANSWER:
            self._parse()
        elif ended:
            code = self._end() or 0
            how = _signal(-code) if code < 0 else f"exit code {code}"
            self._fail("crashed", f"the process that queried its driver ended with {how}, without an answer")
        elif time.monotonic() - self.began > (limit_s := time_limit(self.backend.timeout_s)):
            self._fail("hung", f"its driver did not answer in {limit_s:g} s")

    def close(self) -> None:
        """Kill the process with all that it started, and close the pipe. Closing again does nothing."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe, self.reading = -1, False
        self._end()

    def _end(self) -> int | None:
        """Kill the process group, and return the exit code of the process."""
        if self.process is None:
            return None
        process, self.process = self.process, None
        # The process leads its group. The group's number is not reused until the process is reaped.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # A driver that hangs in the kernel does not react to any signal. It is abandoned.
        with suppress(subprocess.TimeoutExpired):
            return process.wait(time_limit(1.0))
        return None

    def _parse(self) -> None:
        line = self.answer.partition(b"\n")[0]
        try:
            answer: ProbeAnswer = json.loads(line)
            if "devices" not in answer:
                if answer["failure"] not in get_args(Failure):
                    raise ValueError(answer["failure"])
                self._fail(answer["failure"], str(answer["why"]))
                return
            devices = tuple(_device(fields_, self.backend.name) for fields_ in answer["devices"])
        except (ValueError, TypeError, KeyError, RecursionError):
            shown = line[:60].decode("ascii", "backslashreplace")
            self._fail("failed", f"invalid answer from its driver's process: {shown!r}")
            return
        if devices:
            self.result = ProbeResult(self.backend.name, devices, probe_s=time.monotonic() - self.began)
        else:
            self._fail("absent", "its driver reports no device")

    def _fail(self, failure: Failure, why: str) -> None:
        self.result = ProbeResult(self.backend.name, (), why, failure, time.monotonic() - self.began)


def _close(children: Iterable[_Child]) -> None:
    for child in children:
        child.close()


def _device(fields_: Any, backend: str) -> DetectedDevice:
    """Return a device of an answer. Raises TypeError or ValueError if it is invalid."""
    device = DetectedDevice(**fields_)
    for spec in fields(DetectedDevice):
        value = getattr(device, spec.name)
        if not isinstance(value, _TYPES[str(spec.type)]):
            raise TypeError(f"{spec.name} is {value!r}")
    if device.backend != backend:
        raise ValueError(f"a device of {device.backend}")
    return device


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended. It is not reaped if possible, so that its group keeps its number."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
