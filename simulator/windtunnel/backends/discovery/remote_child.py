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
from typing import Any

from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe_child import tie_to_parent
from windtunnel.core.errors import DeviceError
from windtunnel.runtime.trial import Conditioned, Trial


def serve(backend: str, index: int, descriptor: int) -> None:
    """Execute requests until there are no more."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            # If memory runs out, the kernel should end this process and not the parent.
            Path("/proc/self/oom_score_adj").write_text("800", encoding="ascii")
    tie_to_parent()
    trials: dict[int, Trial] = {}
    device: Any = None
    with os.fdopen(descriptor, "wb", buffering=0) as out:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            try:
                if request["do"] == "open":
                    device = registry.backend(backend).operations(index)
                    result = _description(device)
                else:
                    result = _execute(device, trials, request)
                answer: dict[str, Any] = {"result": result}
            except Exception as error:
                answer = {"raised": _serialised(error)}
            out.write(json.dumps(answer).encode() + b"\n")
            if request["do"] == "close":
                return


def _description(device: Any) -> dict[str, Any]:
    info = asdict(device.info)
    limits = info.pop("limits")
    info["features"] = sorted(info["features"])
    return {"info": info, "limits": limits, "versions": dict(device.versions)}


def _execute(device: Any, trials: dict[int, Trial], request: Mapping[str, Any]) -> Any:
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
            return trials.pop(request["number"]).close()
        case "energy":
            return device.energy_j()
        case "conditions":
            return device.conditions().to_dict() if isinstance(device, Conditioned) else {}
        case _:
            for trial in trials.values():
                trial.close()
            return device.close()


def _serialised(error: Exception) -> dict[str, Any]:
    """Return an exception as JSON; ``host``: OSError or MemoryError if it is one of these."""
    host = next((kind.__name__ for kind in (OSError, MemoryError) if isinstance(error, kind)), "")
    data: dict[str, Any] = {"kind": type(error).__name__, "message": str(error), "host": host}
    if isinstance(error, DeviceError):
        code = error.code
        data |= {"message": error.problem, "operation": error.operation, "device": error.device}
        data["code"] = [code.api, code.name, code.number]
    else:
        data["trace"] = "".join(traceback.format_exception(error))
    return data


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
