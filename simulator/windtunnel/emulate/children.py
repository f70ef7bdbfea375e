"""Child processes of an emulated program are emulated too: the environment tells their interpreters."""

from __future__ import annotations

import os
from pathlib import Path

_DEVICE = "WINDTUNNEL_EMULATE_DEVICE"
_FOLDER = str(Path(__file__).resolve().parent / "child")


def announce(device: str) -> None:
    """Make child processes begin with the emulation of a device (``child/sitecustomize.py``)."""
    os.environ[_DEVICE] = device
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != _FOLDER]
    os.environ["PYTHONPATH"] = os.pathsep.join([_FOLDER, *paths])


def begin() -> None:
    """Begin the emulation in a child process; devices are opened when they are used."""
    device = os.environ.get(_DEVICE)
    if not device:
        return
    from windtunnel.emulate.hooks import install

    install(device)
