"""Real devices as programs and selection see them: by API or kind, by SKU, or by the back end's own numbering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windtunnel.backends.common.backend import Found
from windtunnel.backends.discovery import registry
from windtunnel.core.errors import DeviceNotPresentError, UnsupportedOperationError

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context, DeviceInfo


@dataclass(frozen=True)
class Reached:
    """A device that a back end found on this host, and the SKU that it is."""

    found: Found
    model: str | None
    """Of the catalogue, or ``host`` for the processor; None for a device that the catalogue does not have."""
    modelled_as: str | None
    """``SKU@API``, what its model is called; None where there is none of it through this API."""

    @property
    def programs(self) -> bool:
        """Whether programs can be opened on it; else it does single operations alone."""
        return registry.backend(self.found.backend).context is not None

    def is_called(self, name: str) -> bool:
        """Whether ``opencl:0``, ``SKU`` or ``SKU@API`` means it."""
        return name in (self.found.name, self.model, self.modelled_as)

    def open(self) -> Context:
        """The device, opened in this process. UnsupportedOperationError where it runs no programs."""
        context = registry.backend(self.found.backend).context
        if context is None:
            raise UnsupportedOperationError(
                f"{self.found.name} ({self.found.label}) does single operations, and no programs can be opened on it"
            )
        return context(self.found.index)


@dataclass
class ReachedBackend:
    """What one API reaches of this host, or which of its devices are of one kind; see ``selection.KnownBackend``."""

    name: str
    devices: Sequence[Reached]
    why: str
    """In words, why there is none, where there is none."""
    _infos: dict[int, DeviceInfo] = field(default_factory=dict)

    def count(self) -> int:
        """See ``runtime.interface.Backend``."""
        return len(self.devices)

    def absent(self) -> str:
        """See ``selection.KnownBackend``."""
        return self.why

    def find(self, device: str) -> int | None:
        """See ``selection.KnownBackend``; ``opencl:0`` is found, too."""
        return next((index for index, one in enumerate(self.devices) if one.is_called(device)), None)

    def info(self, index: int = 0) -> DeviceInfo:
        """See ``Backend``: the device is opened for it, and closed, when it is first asked."""
        if index not in self._infos:
            context = self.context(index)
            try:
                self._infos[index] = context.info
            finally:
                context.close()
        return self._infos[index]

    def context(self, index: int = 0) -> Context:
        """See ``Backend``."""
        if not 0 <= index < len(self.devices):
            reaches = f"it reaches {len(self.devices)}" if self.devices else self.why
            raise DeviceNotPresentError(f"{self.name} has no device {index}: {reaches}")
        return self.devices[index].open()
