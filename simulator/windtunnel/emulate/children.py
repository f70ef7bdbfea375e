"""Child processes of an emulated program are emulated too: the environment tells their interpreters."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from windtunnel.core.errors import Finding

_DEVICE = "WINDTUNNEL_EMULATE_DEVICE"
_INTERFACES = "WINDTUNNEL_EMULATE_INTERFACES"
_FINDINGS = "WINDTUNNEL_EMULATE_FINDINGS"
_PARENT = "WINDTUNNEL_EMULATE_PARENT"
_FOLDER = str(Path(__file__).resolve().parent / "child")


def announce(device: str, interfaces: Sequence[str]) -> None:
    """Make child processes begin with the emulation of a device (``child/sitecustomize.py``)."""
    os.environ[_DEVICE], os.environ[_INTERFACES] = device, ",".join(interfaces)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join([_FOLDER, *paths])
    handle, os.environ[_FINDINGS] = tempfile.mkstemp(prefix="windtunnel-findings-")
    os.close(handle)
    os.environ[_PARENT] = str(os.getpid())


def note(finding: Finding) -> None:
    """Tell the process that announced the emulation of a finding of a child process."""
    path = os.environ.get(_FINDINGS)
    if path and os.environ.get(_PARENT) != str(os.getpid()) and Path(path).exists():
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(f"{type(finding).__name__}: {finding}") + "\n")


def take_findings() -> list[str]:
    """Return the findings of child processes since the last call."""
    path = os.environ.get(_FINDINGS)
    if not path or os.environ.get(_PARENT) != str(os.getpid()) or not Path(path).exists():
        return []
    with Path(path).open("r+", encoding="utf-8") as file:
        lines = file.readlines()
        file.truncate(0)
    return [json.loads(line) for line in lines]


def end() -> None:
    """Remove the file of the findings of child processes."""
    path = os.environ.get(_FINDINGS)
    if path and os.environ.get(_PARENT) == str(os.getpid()):
        Path(path).unlink(missing_ok=True)


def begin() -> None:
    """Begin the emulation in a child process; devices are opened when they are used."""
    device = os.environ.get(_DEVICE)
    if not device:
        return
    from windtunnel.emulate.hooks import install

    install(os.environ.get(_INTERFACES, "numba").split(","), device)
