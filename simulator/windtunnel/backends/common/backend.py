"""The interface between a back end and discovery: the declaration `RealBackend` and the devices that it detects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from windtunnel.core.errors import DeviceNotPresentError

if TYPE_CHECKING:  # these modules import NumPy, which would slow down every probe
    from windtunnel.runtime.interface import Context, DeviceInfo, Limits
    from windtunnel.runtime.trial import Operations

T = TypeVar("T")


@dataclass(frozen=True)
class DetectedDevice:
    """A device of this host as its driver describes it."""

    backend: str
    index: int
    label: str
    """The name that the driver reports: ``NVIDIA H200``."""
    kind: str
    """The kind of the hardware that does the work: a processor behind lavapipe is a ``cpu``."""
    software: bool
    """Whether the host's processor does the work, as with PoCL and lavapipe. Such a device is no accelerator."""
    driver: str
    """Name and version of the driver or the library."""
    api: str
    vendor: str = ""
    memory_bytes: float = 0.0
    """0 if the driver does not report it."""

    @property
    def name(self) -> str:
        """The device's name in commands and scenarios: ``opencl:0``."""
        return f"{self.backend}:{self.index}"

    def opened(self, limits: Limits, features: Iterable[str], compute_units: int = 1) -> DeviceInfo:
        """Return the description of the device once it is open, when its limits and features are known."""
        from windtunnel.runtime.interface import DeviceInfo

        return DeviceInfo(
            name=self.label,
            kind=self.kind,
            api=self.api,
            memory_bytes=self.memory_bytes,
            limits=limits,
            features=frozenset(features),
            virtual=False,
            software=self.software,
            compute_units=compute_units,
            driver=self.driver,
        )


@dataclass(frozen=True)
class RealBackend:
    """The declaration of a back end.

    ``find`` calls the driver, which may hang, crash or print. `discovery.probe` therefore calls it in a child process.
    """

    name: str
    description: str
    """The devices that the back end drives, in words: ``NVIDIA GPUs``. Shown when none is found."""
    install: str
    """What to install when the driver is missing, in words."""
    find: Callable[[], Sequence[DetectedDevice]]
    """Returns all devices in the back end's own numbering. Raises ImportError if a package is missing."""
    operations: Callable[[int], Operations]
    """Opens the device with this index for single operations. Raises DeviceNotPresentError if there is none."""
    context: Callable[[int], Context] | None = None
    """Opens the device with this index for programs. None if the back end executes single operations only."""
    present: Callable[[], bool] = lambda: True
    """Quick check without the driver (system files, packages). If it returns False, the back end is not probed."""
    packages: Sequence[str] = ()
    """Python packages that ``find`` imports. If one is not installed, no child process is started."""
    timeout_s: float = 10.0
    """Time limit of a probe, before `core.time_limits`. A driver that takes longer is reported as hung."""


def device_at(index: int, devices: Sequence[T], backend: str) -> T:
    """Return ``devices[index]``; raise DeviceNotPresentError if the back end has no device with this index."""
    if not 0 <= index < len(devices):
        count = len(devices)
        raise DeviceNotPresentError(
            f"{backend}:{index} not found: {backend} has {count} device{'s' * (count != 1)} on this host"
        )
    return devices[index]
