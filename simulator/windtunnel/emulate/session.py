"""The emulated devices of a program that was written for another interface."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windtunnel.core.errors import Finding
from windtunnel.emulate import child_findings
from windtunnel.emulate.common.api_errors import error_kind
from windtunnel.library.devices import open_device
from windtunnel.runtime.accelerator import Accelerator

DEFAULT_DEVICE = "h100-sxm-80gb"


def _forked() -> Exception:
    return RuntimeError("CUDA was initialized before this process was forked, which CUDA forbids; start it by 'spawn'")


forked: Callable[[], Exception] = _forked
"""What makes the error for a process that was forked after a device was opened. A front end has an error of its own."""


@dataclass
class Session:
    """The devices of a program: ``count`` emulated devices of one kind, which are opened on first use.

    Attributes:
        device: The name of the device.
        options: Further arguments of `open_device`, such as ``schedule``.
        count: The number of devices.
    """

    device: str = DEFAULT_DEVICE
    options: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    _opened: dict[int, Accelerator] = field(default_factory=dict)
    _process: int = 0
    """The process in which the devices were opened."""

    def accelerator(self, index: int = 0) -> Accelerator:
        """Return a device."""
        if not 0 <= index < self.count:
            raise IndexError("list index out of range")
        if self._opened and self._process != os.getpid():
            raise forked()
        opened = self._opened.get(index)
        if opened is None or opened.closed:
            opened = self._opened[index] = open_device(self.device, **self.options)
            context: Any = opened.context
            context.on_finding = child_findings.note
            opened.error_kind = context.error_kind = error_kind
            self._process = os.getpid()
        return opened

    @property
    def findings(self) -> list[Finding]:
        """The findings so far, also those that the program caught."""
        return [finding for opened in self._opened.values() for finding in opened.findings]

    def close(self) -> None:
        """Close the devices."""
        for opened in self._opened.values():
            if not opened.closed:
                opened.close()
        self._opened.clear()

    def reset(self, index: int = 0) -> None:
        """Free everything on a device."""
        if index in self._opened:
            self._opened[index].clear()


current = Session()
"""The session of this program."""


def begin(session: Session) -> Session:
    """Make a session the current one, and return the one before."""
    global current
    before, current = current, session
    return before
