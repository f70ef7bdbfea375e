"""Emulated back ends: what an API reaches of the devices of an emulated machine."""

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
    """An API (or a kind of device), and which devices it reaches; see ``runtime.interface.Backend``.

    ``devices`` are names of the catalogue, ``SKU@API``; ``make`` gives the model of one. Contexts share the clock of
    ``host``, or have one each.
    """

    name: str
    devices: Sequence[str]
    make: Callable[[str], Device]
    machine: str
    """The emulated machine, in words: what is said where it has no such device."""
    host: Host | None = None
    _infos: dict[int, DeviceInfo] = field(default_factory=dict)

    def count(self) -> int:
        """See ``Backend``."""
        return len(self.devices)

    def absent(self) -> str:
        """See ``selection.KnownBackend``."""
        return f"{self.machine} has no device that it reaches"

    def find(self, device: str) -> int | None:
        """See ``selection.KnownBackend``: ``SKU`` is found behind this back end's API, ``SKU@API`` behind its own."""
        for index, name in enumerate(self.devices):
            if device in (name, name.partition("@")[0]):
                return index
        return None

    def info(self, index: int = 0) -> DeviceInfo:
        """See ``Backend``. It takes no time on any program's clock."""
        if index not in self._infos:
            self._infos[index] = EmulatedContext(self._device(index)).info
        return self._infos[index]

    def context(self, index: int = 0) -> EmulatedContext:
        """See ``Backend``."""
        return EmulatedContext(self._device(index), self.host)

    def _device(self, index: int) -> Device:
        if not 0 <= index < len(self.devices):
            reached = f"it reaches {len(self.devices)}" if self.devices else self.absent()
            raise DeviceNotPresentError(f"emulated {self.name} has no device {index}: {reached}")
        return self.make(self.devices[index])
