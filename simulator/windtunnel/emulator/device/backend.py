"""Emulated back ends: the devices of an emulated machine that an API reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from windtunnel.core.device import Device
from windtunnel.core.errors import DeviceNotPresentError
from windtunnel.emulator.device.context import EmulatedContext
from windtunnel.emulator.device.timeline import Host
from windtunnel.runtime.interface import DeviceInfo


@dataclass
class EmulatedBackend:
    """An API or a kind of device, and the devices that it reaches; see ``runtime.interface.Backend``.

    ``devices`` are names of the catalogue, ``SKU@API``, and ``make`` returns the model of one. ``machine`` names the
    emulated machine in messages. Contexts share the clock of ``host``; without one, each has its own.
    """

    name: str
    devices: Sequence[str]
    make: Callable[[str], Device]
    machine: str
    host: Host | None = None
    _infos: dict[int, DeviceInfo] = field(default_factory=dict)

    def count(self) -> int:
        """Return the number of devices."""
        return len(self.devices)

    def absent(self) -> str:
        """Return why no device was found."""
        return f"{self.machine} has no device that it reaches"

    def find(self, device: str) -> int | None:
        """Return the index of a device, given as ``SKU`` or ``SKU@API``; None if it is not among the devices."""
        for index, name in enumerate(self.devices):
            if device in (name, name.partition("@")[0]):
                return index
        return None

    def info(self, index: int = 0) -> DeviceInfo:
        """Return the description of a device. It takes no time on any program's clock."""
        if index not in self._infos:
            self._infos[index] = EmulatedContext(self._device(index)).info
        return self._infos[index]

    def context(self, index: int = 0) -> EmulatedContext:
        """Open a device."""
        return EmulatedContext(self._device(index), self.host)

    def _device(self, index: int) -> Device:
        if not 0 <= index < len(self.devices):
            reached = f"it reaches {len(self.devices)}" if self.devices else self.absent()
            raise DeviceNotPresentError(f"emulated {self.name} has no device {index}: {reached}")
        return self.make(self.devices[index])
