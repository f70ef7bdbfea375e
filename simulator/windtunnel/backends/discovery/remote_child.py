"""The child's side of `discovery.remote`: executes the requests of a parent process on one device.

Requests come as JSON lines on standard input. Answers go to a separate descriptor, because drivers print on the
standard streams.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Required, TypedDict

from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe_child import tie_to_parent
from windtunnel.core.columns import Columns
from windtunnel.core.errors import DeviceError
from windtunnel.runtime.trial import Conditioned, Operations, Timer, Trial


class Request(TypedDict, total=False):
    """A request: ``open``, ``refusal`` and ``trial`` (``op``, ``columns``), ``run``, ``check`` and ``drop`` of a trial
    (``number``), ``energy``, ``conditions`` or ``close``.
    """

    do: Required[str]
    op: str
    columns: Columns
    number: int
    count: int


class Opened(TypedDict):
    """The answer to ``open``: the fields of the device's description and of its limits, and the versions."""

    info: Mapping[str, object]
    limits: Mapping[str, object]
    versions: Mapping[str, str]


class Prepared(TypedDict):
    """The answer to ``trial``."""

    number: int
    timer: Timer
    note: str


class Raised(TypedDict, total=False):
    """An exception. ``host`` is OSError or MemoryError if it is one of these; device errors have the other keys but
    ``trace``.
    """

    kind: Required[str]
    message: Required[str]
    host: Required[str]
    operation: str
    device: str
    code: tuple[str, str, int | None]
    trace: str


class Answer(TypedDict, total=False):
    """The result of a request, or the exception that it raised."""

    result: object
    raised: Raised


def serve(backend: str, index: int, descriptor: int) -> None:
    """Execute requests until there are no more."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # If memory runs out, the kernel should end this process and not the parent.
            Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")
    tie_to_parent()
    trials: dict[int, Trial] = {}
    device: Operations
    with os.fdopen(descriptor, "wb", buffering=0) as out:
        for line in sys.stdin.buffer:
            request: Request = json.loads(line)
            try:
                if request["do"] == "open":
                    device = registry.backend(backend).operations(index)
                    answer: Answer = {"result": _description(device)}
                else:
                    answer = {"result": _execute(device, trials, request)}
            except Exception as error:
                answer = {"raised": _serialised(error)}
            out.write(json.dumps(answer).encode() + b"\n")
            if request["do"] == "close":
                return


def _description(device: Operations) -> Opened:
    info = asdict(device.info)
    limits = info.pop("limits")
    info["features"] = sorted(info["features"])
    return {"info": info, "limits": limits, "versions": dict(device.versions)}


def _execute(device: Operations, trials: dict[int, Trial], request: Request) -> object:
    match request["do"]:
        case "refusal":
            return device.refusal(request["op"], request["columns"])
        case "trial":
            number = max(trials, default=-1) + 1
            trials[number] = trial = device.trial(request["op"], request["columns"])
            return {"number": number, "timer": trial.timer, "note": trial.note}
        case "run":
            return trials[request["number"]].run(request["count"])
        case "check":
            return trials[request["number"]].check()
        case "drop":
            trials.pop(request["number"]).close()
            return None
        case "energy":
            return device.energy_j()
        case "conditions":
            return device.conditions().to_dict() if isinstance(device, Conditioned) else {}
        case _:
            for trial in trials.values():
                trial.close()
            device.close()
            return None


def _serialised(error: Exception) -> Raised:
    host = next((kind.__name__ for kind in (OSError, MemoryError) if isinstance(error, kind)), "")
    data: Raised = {"kind": type(error).__name__, "message": str(error), "host": host}
    if isinstance(error, DeviceError):
        code = error.code
        data |= {"message": error.problem, "operation": error.operation, "device": error.device}
        data["code"] = (code.api, code.name, code.number)
    else:
        data["trace"] = "".join(traceback.format_exception(error))
    return data


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
