"""What a back end says of itself before its driver is touched, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # they import NumPy, which a probe would wait for
    from windtunnel.runtime.interface import Context
    from windtunnel.runtime.trial import Operations


@dataclass(frozen=True)
class Found:
    """A device of this host, as a back end's driver tells it."""

    backend: str
    index: int
    label: str
    """What the driver calls it: ``NVIDIA H200``."""
    kind: str
    """What it is, not what it stands in for: a processor behind lavapipe is a ``cpu``."""
    software: bool
    """Real code, but no accelerator: PoCL, lavapipe, a processor doing what a card would."""
    driver: str
    """Name and version of the driver or the library."""
    api: str
    vendor: str = ""
    memory_bytes: float = 0.0
    """0 where the driver does not say."""

    @property
    def name(self) -> str:
        """``opencl:0``: how commands and scenarios name it."""
        return f"{self.backend}:{self.index}"


@dataclass(frozen=True)
class RealBackend:
    """A way to devices of this host.

    ``find`` touches the driver, which may hang, crash or chatter: `_probe` calls it in a process of its own.
    """

    name: str
    reaches: str
    """In words, what kind of devices: shown where none is found."""
    install: str
    """What to install where it is missing, in words for a person."""
    find: Callable[[], Sequence[Found]]
    """All devices, the back end's own numbering. An ImportError says that a package is missing."""
    operations: Callable[[int], Operations]
    """Device ``index`` as one that does operations. DeviceNotPresentError where it is not here."""
    context: Callable[[int], Context] | None = None
    """Device ``index`` opened for programs; None where there are no programs for it, only operations."""
    present: Callable[[], bool] = lambda: True
    """Quick and without the driver: whether it may be here at all (files of the system, packages). False: no probe."""
    packages: Sequence[str] = ()
    """That its driver is reached through. Where one is not installed, no process is started to find that out."""
    timeout_s: float = 10.0
    """Of a probe; a driver that takes longer is taken to hang."""
