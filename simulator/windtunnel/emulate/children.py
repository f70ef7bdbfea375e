"""Child processes of an emulated program are emulated too: the environment tells their interpreters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from windtunnel.emulate import child_findings

_DEVICE = "WINDTUNNEL_EMULATE_DEVICE"
_INTERFACES = "WINDTUNNEL_EMULATE_INTERFACES"
_FOLDER = str(Path(__file__).resolve().parent / "child")


def announce(device: str, interfaces: Sequence[str]) -> None:
    """Make child processes begin with the emulation of a device (``child/sitecustomize.py``)."""
    os.environ[_DEVICE], os.environ[_INTERFACES] = device, ",".join(interfaces)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join([_FOLDER, *paths])
    child_findings.begin()


def begin() -> None:
    """Begin the emulation in a child process; devices are opened when they are used."""
    device = os.environ.get(_DEVICE)
    if not device:
        return
    from windtunnel.emulate.hooks import install

    install(os.environ.get(_INTERFACES, "numba").split(","), device)
