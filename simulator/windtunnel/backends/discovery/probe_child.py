"""The child's side of a probe: one back end's driver is asked, and one JSON line goes to a private descriptor.

Standard output and standard error are the driver's, to chatter on. The process ends at once after the line: what a
driver does when it is unloaded is not waited for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from windtunnel import backends
from windtunnel.backends.discovery import registry
from windtunnel.core.errors import DeviceNotPresentError

_PR_SET_PDEATHSIG = 1


def answer(name: str, descriptor: int, folders: Sequence[str]) -> None:
    """Write what ``name``'s ``find`` says to ``descriptor`` and end this process.

    ``folders``: where the asking process finds the modules of back ends.
    """
    tie_to_parent()
    os.set_inheritable(descriptor, False)  # what the driver starts has no use for it
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash that is expected leaves no file
    backends.__path__[:] = folders
    line = json.dumps(_said(name)).encode() + b"\n"
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(descriptor, line) :]
    os._exit(0)


def tie_to_parent() -> None:
    """On Linux, let this process end with the one that started it: no driver that hangs outlives who asked."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _said(name: str) -> dict[str, Any]:
    """``{"devices": [...]}``, or ``{"failure": ..., "why": ...}``."""
    try:
        said = {"devices": [asdict(device) for device in registry.backend(name).find()]}
        json.dumps(said, allow_nan=False)
    except ModuleNotFoundError as error:
        return {"failure": "missing package", "why": f"the package '{error.name}' is not installed"}
    except ImportError as error:
        return {"failure": "missing package", "why": _words(error)}
    except DeviceNotPresentError as error:
        return {"failure": "absent", "why": str(error)}
    except BaseException as error:  # a driver's wrapper may exit, too
        return {"failure": "failed", "why": f"{type(error).__name__}: {_words(error)}".rstrip(": ")}
    return said


def _words(error: BaseException) -> str:
    """What an exception says, on one line of a length that can be read."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
