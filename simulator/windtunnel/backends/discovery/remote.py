"""A device's operations in a process of their own: a driver that hangs or dies takes nobody with it.

The parent asks in lines of JSON and waits no longer than it says; a child that does not answer in time is killed with
all that it started, and the error is DeviceHang; one that died is DeviceLost. Drivers chatter on the standard streams,
so answers go over a descriptor of their own, and what was chattered is kept for the error's words alone.
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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from windtunnel.backends.common.channel import Questions
from windtunnel.backends.discovery.probe_child import tie_to_parent
from windtunnel.core import errors
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
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import DeviceInfo, Limits
from windtunnel.runtime.trial import Conditioned, Conditions, Timer, Trial

OPEN_S = 60.0
"""For a driver to open a device, compilers and all."""
READY_S = 120.0
"""For an operation to be made ready: operands are drawn and copied, kernels compiled."""
CLOSE_S = 5.0


class RemoteOperations:
    """`runtime.trial.Operations` in a child process. A call that takes longer than it may is DeviceHang.

    ``limit_s``: what a run may take, unless it says otherwise; ``open_s``: what opening may. ``patience_s``, to be set
    at any time: what no call may take longer than, whatever its own limit.
    """

    def __init__(self, backend: str, index: int, limit_s: float = 60.0, open_s: float = OPEN_S) -> None:
        self.name = f"{backend}:{index}"
        self.limit_s, self.patience_s = limit_s, math.inf
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  as long as the child
        answers, child_end = os.pipe()
        self._questions = Questions()
        try:
            self._child = subprocess.Popen(  # noqa: S603  our own interpreter, with our own words
                [sys.executable, "-P", "-m", __name__, backend, str(index), str(child_end)],
                stdin=self._questions.child.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=(child_end,),
                start_new_session=True,
                env=_environment(),
            )
        finally:
            os.close(child_end)
            self._questions.started()
        self._answers = answers
        self._rest = b""
        self._ended: tuple[type[DeviceError], str] | None = None
        self._api = "native"
        try:
            told = self._ask({"do": "open"}, open_s)
        except BaseException:
            self._kill()
            raise
        limits: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in told["limits"].items()
        }
        info = {**told["info"], "limits": Limits(**limits), "features": frozenset(told["info"]["features"])}
        self.info = DeviceInfo(**info)
        self._api = self.info.api
        self.versions: Mapping[str, str] = told["versions"]

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        """See ``Operations``."""
        found: str | None = self._ask({"do": "refusal", "op": op, "columns": dict(columns)}, READY_S)
        return found

    def trial(self, op: str, columns: Mapping[str, Any]) -> RemoteTrial:
        """See ``Operations``."""
        return RemoteTrial(self, self._ask({"do": "trial", "op": op, "columns": dict(columns)}, READY_S))

    def energy_j(self) -> float | None:
        """See ``Operations``."""
        found: float | None = self._ask({"do": "energy"}, READY_S)
        return found

    def conditions(self) -> Conditions:
        """See ``Conditioned``; empty, too, of a back end that has none."""
        found: Conditions = self._ask({"do": "conditions"}, READY_S)
        return found

    @property
    def alive(self) -> bool:
        """Whether the child still answers, as far as is known."""
        return self._ended is None and self._child.poll() is None

    @property
    def process(self) -> int:
        """The child's number."""
        return self._child.pid

    def close(self) -> None:
        """See ``Operations``. A child that does not go is killed."""
        if self._ended is None:
            with contextlib.suppress(DeviceError):
                self._ask({"do": "close"}, CLOSE_S)
        self._end(errors.InvalidArgument, "the device was closed")
        self._kill()

    def _ask(self, question: Mapping[str, Any], limit_s: float) -> Any:
        """The answer to a question; whatever was raised in the child is raised here."""
        operation = f"{question['do']} {question.get('op', '')}".strip()
        if self._ended is not None:
            raise self._error(operation)
        try:
            self._questions.send(json.dumps(question).encode() + b"\n")
        except OSError:
            self._end(DeviceLost, f"its process ended ({self._why()})")
            raise self._error(operation) from None
        limit_s = min(limit_s, self.patience_s)
        line = self._line(time.monotonic() + limit_s)
        if line is None:
            self._end(DeviceHang, f"no answer within {limit_s:.3g} s: its process was ended")
            self._kill()
            raise self._error(operation)
        if not line:
            self._end(DeviceLost, f"its process ended ({self._why()})")
            raise self._error(operation)
        answer = json.loads(line)
        if "raised" in answer:
            told = answer["raised"]
            failed = _HOSTS.get(told.get("of", ""))
            if failed is not None:
                raise failed(told["words"], operation=operation, device=self.name, code=code_of(self._api, failed))
            raise _raised(told)
        return answer["gives"]

    def _line(self, until: float) -> bytes | None:
        """A line of the child's; None when the time is over, empty when it has ended."""
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
        """How the child ended, and the last that it wrote."""
        until = time.monotonic() + CLOSE_S
        # Looked at without being waited for, so that its group is still its own when what it started is ended.
        look = os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, self._child.pid, look) is None and time.monotonic() < until:
                time.sleep(0.01)
        self._end_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSE_S)
        code = self._child.returncode
        with contextlib.suppress(ValueError, OSError):
            self._log.seek(0)
            lines = self._log.read()[-4000:].decode(errors="replace").strip().splitlines()
            said = f"; it wrote: {lines[-1]}" if lines else ""
            how = signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"
            return f"{how}{said}"
        return f"exit {code}"

    def _end(self, kind: type[DeviceError], problem: str) -> None:
        self._ended = self._ended or (kind, problem)

    def _error(self, operation: str) -> DeviceError:
        assert self._ended is not None  # noqa: S101  whoever asks has seen
        kind, problem = self._ended
        return kind(problem, operation=operation, device=self.name, code=code_of(self._api, kind))

    def _kill(self) -> None:
        """End the child and all of its own, whatever they do."""
        self._end_group()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSE_S)
        self._questions.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._log.close()

    def _end_group(self) -> None:
        """End all that the child has started, and itself; not once it was waited for: its number may be another's."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)

    def __del__(self) -> None:
        if getattr(self, "_answers", -1) >= 0:
            self._kill()


class RemoteTrial:
    """A trial in a child process; see ``runtime.trial.Trial``."""

    def __init__(self, owner: RemoteOperations, told: Mapping[str, Any]) -> None:
        self.owner, self._number = owner, told["number"]
        self.timer: Timer = told["timer"]
        self.note: str = told["note"]

    def run(self, count: int = 1, limit_s: float | None = None) -> float:
        """See ``Trial``. DeviceHang where it takes longer than ``limit_s``, the device's unless given."""
        question = {"do": "run", "number": self._number, "count": count}
        return float(self.owner._ask(question, self.owner.limit_s if limit_s is None else limit_s))

    def check(self) -> float:
        """See ``Trial``."""
        return float(self.owner._ask({"do": "check", "number": self._number}, READY_S))

    def close(self) -> None:
        """See ``Trial``."""
        if self.owner.alive:
            self.owner._ask({"do": "drop", "number": self._number}, READY_S)


_KINDS = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DeviceError)
}


_HOSTS: Mapping[str, type[DeviceError]] = {"OSError": LaunchError, "MemoryError": DeviceOutOfMemory}
"""What the host lacks for an operation, a full disk for what is compiled say: it fails, and may work later."""


def _raised(told: Mapping[str, Any]) -> Exception:
    """An exception of the child's, as it was there."""
    name, words = told["kind"], told["words"]
    if name in _KINDS:
        code = ApiCode(*told["code"])
        return _KINDS[name](words, operation=told["operation"], device=told["device"], code=code)
    if name == "UnsupportedOperationError":
        return UnsupportedOperationError(words)
    if name == "DeviceNotPresentError":
        return DeviceNotPresentError(words)
    if name in ("InputError", "KernelError"):
        return InputError(words)
    return RuntimeError(f"{name} in a back end's process: {words}\n{told['trace']}")


def _environment() -> dict[str, str]:
    """The parent's, and where this package is."""
    path = os.pathsep.join(one for one in sys.path if one)
    return {**os.environ, "PYTHONPATH": path}


# The child.


def _serve(backend: str, index: int, descriptor: int) -> None:
    """Answer questions until there are no more."""
    from windtunnel.backends.discovery.registry import backend as find

    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # Where memory runs out it is this process that goes, and not who asked.
            Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")
    tie_to_parent()
    trials: dict[int, Trial] = {}
    device: Any = None
    with os.fdopen(descriptor, "wb", buffering=0) as out:
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            try:
                if asked["do"] == "open":
                    device = find(backend).operations(index)
                    gives = _described(device)
                else:
                    gives = _done(device, trials, asked)
                answer: dict[str, Any] = {"gives": gives}
            except Exception as error:
                answer = {"raised": _told(error)}
            out.write(json.dumps(answer).encode() + b"\n")
            if asked["do"] == "close":
                return


def _described(device: Any) -> dict[str, Any]:
    info = asdict(device.info)
    limits = info.pop("limits")
    info["features"] = sorted(info["features"])
    return {"info": info, "limits": limits, "versions": dict(device.versions)}


def _done(device: Any, trials: dict[int, Trial], asked: Mapping[str, Any]) -> Any:
    match asked["do"]:
        case "refusal":
            return device.refusal(asked["op"], asked["columns"])
        case "trial":
            number = max(trials, default=-1) + 1
            trials[number] = made = device.trial(asked["op"], asked["columns"])
            return {"number": number, "timer": made.timer, "note": made.note}
        case "run":
            return trials[asked["number"]].run(asked["count"])
        case "check":
            return trials[asked["number"]].check()
        case "drop":
            trials.pop(asked["number"]).close()
            return None
        case "energy":
            return device.energy_j()
        case "conditions":
            return device.conditions() if isinstance(device, Conditioned) else {}
        case _:
            for trial in trials.values():
                trial.close()
            device.close()
            return None


def _told(error: Exception) -> dict[str, Any]:
    import traceback

    told: dict[str, Any] = {"kind": type(error).__name__, "words": str(error)}
    told["of"] = next((kind.__name__ for kind in (OSError, MemoryError) if isinstance(error, kind)), "")
    if isinstance(error, DeviceError):
        code = error.code
        told |= {"words": error.problem, "operation": error.operation, "device": error.device}
        told["code"] = [code.api, code.name, code.number]
    else:
        told["trace"] = "".join(traceback.format_exception(error))
    return told


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
