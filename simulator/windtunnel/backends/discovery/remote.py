"""A device's operations in a child process, so that a driver that hangs or crashes does not affect this process.

The parent sends requests as JSON lines and waits for each answer up to a time limit. A child that does not answer in
time is killed with all processes that it started, and the error is DeviceHang. If the child has ended, the error is
DeviceLost. What drivers print on the standard streams is kept, and its last line becomes part of the error message.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from windtunnel.backends.common.child_requests import ChildRequests
from windtunnel.backends.discovery import remote_child
from windtunnel.backends.discovery.remote_child import Answer, Prepared, Raised, Request
from windtunnel.core import errors
from windtunnel.core.columns import Columns
from windtunnel.core.errors import (
    ApiCode,
    DeviceError,
    DeviceHang,
    DeviceLost,
    DeviceNotPresentError,
    DeviceOutOfMemory,
    InputError,
    LaunchError,
    UnsupportedOperationError,
)
from windtunnel.core.results.validation import Conditions
from windtunnel.core.time_limits import time_limit
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo, Limits
from windtunnel.runtime.trial import Timer

OPEN_S = 60.0
"""Time limit for a driver to open a device, including compilers."""
READY_S = 120.0
"""Time limit for preparing an operation: operands are generated and copied, kernels compiled."""
CLOSE_S = 5.0


class RemoteOperations:
    """`runtime.trial.Operations` in a child process. A call that exceeds its time limit raises DeviceHang.

    ``limit_s`` is the default time limit of a run and ``open_s`` that of opening the device (s). ``max_wait_s`` may be
    set at any time and bounds every call, whatever its own limit. All limits are multiplied by the factor of
    `core.time_limits`.
    """

    def __init__(self, backend: str, index: int, limit_s: float = 60.0, open_s: float = OPEN_S) -> None:
        self.name = f"{backend}:{index}"
        self.limit_s, self.max_wait_s = limit_s, math.inf
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  it stays open as long as the child
        answers, child_end = os.pipe()
        self._requests = ChildRequests()
        try:
            self._child = subprocess.Popen(  # noqa: S603  this interpreter and a module of this package
                [sys.executable, "-P", "-m", remote_child.__name__, backend, str(index), str(child_end)],
                stdin=self._requests.child.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=(child_end,),
                start_new_session=True,
                env=_environment(),
            )
        finally:
            os.close(child_end)
            self._requests.child_started()
        self._answers = answers
        self._rest = b""
        self._ended: tuple[type[DeviceError], str] | None = None
        self._api = "native"
        try:
            opened = self._ask({"do": "open"}, open_s)
        except BaseException:
            self._kill()
            raise
        limits = {name: _as_tuple(value) for name, value in opened["limits"].items()}
        info = {**opened["info"], "limits": Limits(**limits), "features": frozenset(opened["info"]["features"])}
        self.info = DeviceInfo(**info)
        self._api = self.info.api
        self.versions: Mapping[str, str] = opened["versions"]

    def refusal(self, op: str, columns: Columns) -> str | None:
        """Return why ``op`` is not supported with these columns, or None."""
        refusal: str | None = self._ask({"do": "refusal", "op": op, "columns": dict(columns)}, READY_S)
        return refusal

    def trial(self, op: str, columns: Columns) -> RemoteTrial:
        """Prepare ``op``."""
        return RemoteTrial(self, self._ask({"do": "trial", "op": op, "columns": dict(columns)}, READY_S))

    def energy_j(self) -> float | None:
        """Return the device's energy counter (J); None if it has none."""
        energy_j: float | None = self._ask({"do": "energy"}, READY_S)
        return energy_j

    def conditions(self) -> Conditions:
        """Return clocks, temperature and power of the device; empty if its back end does not report them."""
        return Conditions(**self._ask({"do": "conditions"}, READY_S))

    @property
    def alive(self) -> bool:
        """Whether the child has neither ended nor exceeded a limit."""
        return self._ended is None and self._child.poll() is None

    @property
    def process(self) -> int:
        """The child's process id."""
        return self._child.pid

    def close(self) -> None:
        """Close the device and end the child. A child that does not end in time is killed."""
        if self._ended is None:
            with contextlib.suppress(DeviceError):
                self._ask({"do": "close"}, CLOSE_S)
        self._end(errors.InvalidArgument, "the device was closed")
        self._kill()

    def _ask(self, question: Request, limit_s: float) -> Any:
        """Return the answer to a request. An exception in the child is raised here."""
        operation = f"{question['do']} {question.get('op', '')}".strip()
        if self._ended is not None:
            raise self._error(operation)
        try:
            self._requests.send(json.dumps(question).encode() + b"\n")
        except OSError:
            self._end(DeviceLost, f"its process ended ({self._why()})")
            raise self._error(operation) from None
        limit_s = time_limit(min(limit_s, self.max_wait_s))
        line = self._line(time.monotonic() + limit_s)
        if line is None:
            self._end(DeviceHang, f"no answer within {limit_s:.3g} s; its process was killed")
            self._kill()
            raise self._error(operation)
        if not line:
            self._end(DeviceLost, f"its process ended ({self._why()})")
            raise self._error(operation)
        answer: Answer = json.loads(line)
        if "raised" in answer:
            raised = answer["raised"]
            kind = _HOST_ERRORS.get(raised.get("host", ""))
            if kind is not None:
                raise kind(raised["message"], operation=operation, device=self.name, code=code_of(self._api, kind))
            raise _exception(raised)
        return answer["result"]

    def _line(self, until: float) -> bytes | None:
        """Return the child's next line; None at the time limit, empty if the child has ended."""
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return None
            got = os.read(self._answers, 1 << 16)
            if not got:
                return b""
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _why(self) -> str:
        """Return how the child ended, and its last line of output."""
        until = time.monotonic() + time_limit(CLOSE_S)
        # The child is not reaped yet, so that its process group still exists when the group is killed.
        look = os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, self._child.pid, look) is None and time.monotonic() < until:
                time.sleep(0.01)
        self._end_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(time_limit(CLOSE_S))
        code = self._child.returncode
        with contextlib.suppress(ValueError, OSError):
            self._log.seek(0)
            lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
            last_line = f"; it wrote: {lines[-1]}" if lines else ""
            how = signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"
            return f"{how}{last_line}"
        return f"exit {code}"

    def _end(self, kind: type[DeviceError], problem: str) -> None:
        self._ended = self._ended or (kind, problem)

    def _error(self, operation: str) -> DeviceError:
        assert self._ended is not None  # noqa: S101  the caller has checked it
        kind, problem = self._ended
        return kind(problem, operation=operation, device=self.name, code=code_of(self._api, kind))

    def _kill(self) -> None:
        """Kill the child and all processes that it started."""
        self._end_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(time_limit(CLOSE_S))
        self._requests.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._log.close()

    def _end_group(self) -> None:
        """Kill the child's process group; not after the child was reaped, when its number may be reused."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def __del__(self) -> None:
        if getattr(self, "_answers", -1) >= 0:
            self._kill()


class RemoteTrial:
    """A trial in a child process. Implements `runtime.trial.Trial`."""

    def __init__(self, owner: RemoteOperations, prepared: Prepared) -> None:
        self.owner, self._number = owner, prepared["number"]
        self.timer: Timer = prepared["timer"]
        self.note: str = prepared["note"]

    def run(self, count: int = 1, limit_s: float | None = None) -> float:
        """Run ``count`` times; return the mean seconds of one. Raises DeviceHang after ``limit_s`` seconds."""
        question: Request = {"do": "run", "number": self._number, "count": count}
        return float(self.owner._ask(question, self.owner.limit_s if limit_s is None else limit_s))

    def check(self) -> float:
        """Return the error of the last run's result as a share of the tolerance."""
        return float(self.owner._ask({"do": "check", "number": self._number}, READY_S))

    def close(self) -> None:
        """Release the operands."""
        if self.owner.alive:
            self.owner._ask({"do": "drop", "number": self._number}, READY_S)


_KINDS = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DeviceError)
}


_HOST_ERRORS: Mapping[str, type[DeviceError]] = {"OSError": LaunchError, "MemoryError": DeviceOutOfMemory}
"""What the host may lack for an operation, such as disk space for compiled code. The operation may succeed later."""


def _exception(raised: Raised) -> Exception:
    """Return an exception of the child."""
    name, message = raised["kind"], raised["message"]
    if name in _KINDS:
        code = ApiCode(*raised["code"])
        return _KINDS[name](message, operation=raised["operation"], device=raised["device"], code=code)
    if name == "UnsupportedOperationError":
        return UnsupportedOperationError(message)
    if name == "DeviceNotPresentError":
        return DeviceNotPresentError(message)
    if name in ("InputError", "KernelError"):
        return InputError(message)
    return RuntimeError(f"{name} in a back end's process: {message}\n{raised['trace']}")


def _as_tuple(value: Any) -> Any:
    """Return a list of JSON as a tuple, and any other value unchanged."""
    return tuple(value) if isinstance(value, list) else value


def _environment() -> dict[str, str]:
    """Return this process's environment, with its module search path."""
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**os.environ, "PYTHONPATH": path}
