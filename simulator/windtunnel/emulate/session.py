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


def _refusal() -> Exception:
    return forked()


@dataclass
class Session:
    """The devices of a program: ``count`` emulated devices of one kind, which are opened on first use.

    A process that is forked before the program uses a device has devices of its own, as with CUDA, whose context is
    made at first use. After it, the forked process is refused the devices.

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
    """The process in which the program first used a device; 0 before."""

    def accelerator(self, index: int = 0) -> Accelerator:
        """Return a device for the program."""
        if not 0 <= index < self.count:
            raise IndexError("list index out of range")
        self.initialise()
        if self._process != os.getpid():
            raise forked()
        return self.open(index)

    def initialise(self) -> None:
        """Note that the program has used CUDA: a process that is forked from now on cannot."""
        self._process = self._process or os.getpid()

    def open(self, index: int = 0) -> Accelerator:
        """Return a device for whoever prepares it, which is no use by the program."""
        opened = self._opened.get(index)
        if opened is None or opened.closed:
            opened = self._opened[index] = open_device(self.device, **self.options)
            context: Any = opened.context
            context.on_finding = child_findings.note
            opened.error_kind = context.error_kind = error_kind
        return opened

    @property
    def strict(self) -> bool:
        """Whether more is a finding: unordered writes of an equal value, and indices beyond a slice."""
        opened: Any = self._opened.get(0)
        return bool(self.options.get("strict")) if opened is None else bool(opened.context.kernels.strict)

    def synchronize(self) -> None:
        """Wait for the work of the program in this process."""
        if self._process == os.getpid():
            for opened in self._opened.values():
                if not opened.closed:
                    opened.synchronize()

    def forget_parent(self) -> None:
        """Leave the findings, and the devices that were in use, to the process of which this one is a fork."""
        for opened in self._opened.values():
            opened.findings.clear()
            if self._process:
                opened.injector.refuse(_refusal)

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


def _begin_fork() -> None:
    current.forget_parent()


os.register_at_fork(after_in_child=_begin_fork)


def begin(session: Session) -> Session:
    """Make a session the current one, and return the one before."""
    global current
    before, current = current, session
    return before
