"""The child's side of a probe: queries one back end's driver and writes one JSON line to a private descriptor.

Drivers may print on standard output and standard error. The process ends immediately after the line, without unloading
the driver.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Literal, TypedDict

from windtunnel import backends
from windtunnel.backends.discovery import registry
from windtunnel.core.errors import DeviceNotPresentError

_PR_SET_PDEATHSIG = 1
Failure = Literal["absent", "missing package", "crashed", "hung", "failed"]


class ProbeAnswer(TypedDict, total=False):
    """The answer of a probe: the fields of each device, or the kind of the failure and its description."""

    devices: Sequence[Mapping[str, object]]
    failure: Failure
    why: str


def answer(name: str, descriptor: int, folders: Sequence[str]) -> None:
    """Write the result of the back end's ``find`` to ``descriptor`` and end this process.

    ``folders`` are the folders in which the parent process finds the back ends.
    """
    tie_to_parent()
    os.set_inheritable(descriptor, False)  # processes that the driver starts do not need it
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # an expected crash must not leave a core file
    backends.__path__[:] = folders
    line = json.dumps(_result(name)).encode() + b"\n"
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(descriptor, line) :]
    os._exit(0)


def tie_to_parent() -> None:
    """On Linux, let this process end together with its parent, so that a hanging driver does not outlive it."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _result(name: str) -> ProbeAnswer:
    """Return the devices of a back end, or why there are none."""
    try:
        result: ProbeAnswer = {"devices": [asdict(device) for device in registry.backend(name).find()]}
        json.dumps(result, allow_nan=False)
    except ModuleNotFoundError as error:
        return {"failure": "missing package", "why": f"the package '{error.name}' is not installed"}
    except ImportError as error:
        return {"failure": "missing package", "why": _one_line(error)}
    except DeviceNotPresentError as error:
        return {"failure": "absent", "why": str(error)}
    except BaseException as error:  # a driver's package may call sys.exit
        return {"failure": "failed", "why": f"{type(error).__name__}: {_one_line(error)}".rstrip(": ")}
    return result


def _one_line(error: BaseException) -> str:
    """Return an exception's message on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
