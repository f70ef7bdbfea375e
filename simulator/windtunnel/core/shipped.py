"""Which devices are described by files of the package alone, so that what is computed from them can be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windtunnel.core.device import Device, Residual


class ShippedResiduals(dict[str, Residual]):
    """The residuals of a device of which all parts but its values come from files of the package.

    Args:
        residuals: The residuals by operation.
        parts: The device's kind, API and accuracies.
        files: A function that returns a digest of these files.
    """

    def __init__(self, residuals: Mapping[str, Residual], parts: tuple[object, ...], files: Callable[[], str]) -> None:
        super().__init__(residuals)
        self.parts, self.files = parts, files


def files_digest(device: Device) -> str | None:
    """Return a digest of the files that a device comes from; None if any part of it comes from elsewhere.

    Its values, its speed and its power cap may be those of a scenario.
    """
    residuals = device.residuals
    if not isinstance(residuals, ShippedResiduals):
        return None
    now = device.kind, device.api, device.accuracies
    same = all(part is shipped for part, shipped in zip(now, residuals.parts, strict=True))
    return residuals.files() if same else None
