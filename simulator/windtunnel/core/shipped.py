"""Which devices are described by files of the package alone, so that what is computed from them can be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

from windtunnel.core.device import Device, Residual
from windtunnel.core.provenance import SourcedValue


class ShippedResiduals(Mapping[str, Residual]):
    """The residuals of a device that files of the package describe alone, which are made when one is asked for.

    Args:
        make: A function that returns the residuals by operation.
        values: The values of the device, by name.
        parts: The device's SKU, kind, API and accuracies.
        files: A function that returns a digest of these files.
    """

    def __init__(
        self,
        make: Callable[[], Mapping[str, Residual]],
        values: Mapping[str, SourcedValue],
        parts: tuple[object, ...],
        files: Callable[[], str],
    ) -> None:
        self._make = make
        self.values_of_files, self.parts, self.files = values, parts, files

    @cached_property
    def _made(self) -> Mapping[str, Residual]:
        return self._make()

    def __getitem__(self, op: str) -> Residual:
        return self._made[op]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def description(device: Device) -> str | None:
    """Return a text that differs where costs of a device differ; None if a part of it does not come from the package.

    It has a digest of the files, and which values, speed and power cap a scenario states.
    """
    residuals = device.residuals
    if not isinstance(residuals, ShippedResiduals):
        return None
    now = device.spec, device.kind, device.api, device.accuracies
    if any(part is not shipped for part, shipped in zip(now, residuals.parts, strict=True)):
        return None
    own = residuals.values_of_files
    stated = [(name, *vars(value).values()) for name, value in device.values.items() if own.get(name) is not value]
    lacking = [name for name in own if name not in device.values]
    return repr((residuals.files(), device.label, device.speed, device.cap_w, stated, lacking))
