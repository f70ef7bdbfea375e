"""The devices that back ends detect on this host, with the SKU of each: for `devices --real`, `doctor` and programs.

A driver is loaded into this process only when a device is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from windtunnel.backends.common import system
from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe import ProbeResult, probe
from windtunnel.core.errors import DeviceNotPresentError, InputError, UnsupportedOperationError
from windtunnel.core.results.host import RealDeviceRow
from windtunnel_models.labels import HOST, HOST_APIS, model_of

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context, DeviceInfo

_BACKEND_OF_API = {"jax": "tpu"}
"""The back end of an API, where their names differ."""


@dataclass(frozen=True)
class RealDevice:
    """A device that a back end detected on this host, and its SKU."""

    detected: DetectedDevice
    sku: str | None
    """SKU of the catalogue, or ``host`` for the processor; None if the catalogue does not have the device."""
    model: str | None
    """``SKU@API``, the device model; None if there is no model for this API."""

    @property
    def runs_programs(self) -> bool:
        """Whether programs can be opened on it. Otherwise it executes single operations only."""
        return registry.backend(self.detected.backend).context is not None

    def is_called(self, name: str) -> bool:
        """Return whether ``name`` (``opencl:0``, ``SKU`` or ``SKU@API``) is a name of this device."""
        return name in (self.detected.name, self.sku, self.model)

    def open(self) -> Context:
        """Open the device in this process. Raises UnsupportedOperationError if it does not run programs."""
        context = registry.backend(self.detected.backend).context
        if context is None:
            raise UnsupportedOperationError(
                f"{self.detected.name} ({self.detected.label}) executes single operations only, not programs"
            )
        return context(self.detected.index)


@dataclass
class RealBackendView:
    """The devices of this host behind one API, or of one kind. Implements ``runtime.selection.KnownBackend``."""

    name: str
    devices: Sequence[RealDevice]
    why_absent: str
    """Why there is no device, in words, for the case that there is none."""
    _infos: dict[int, DeviceInfo] = field(default_factory=dict)

    def count(self) -> int:
        """Return the number of devices."""
        return len(self.devices)

    def absent(self) -> str:
        """Return why there is no device."""
        return self.why_absent

    def find(self, device: str) -> int | None:
        """Return the index of the device called ``SKU``, ``SKU@API`` or ``opencl:0``; None if there is none."""
        return next((index for index, real in enumerate(self.devices) if real.is_called(device)), None)

    def info(self, index: int = 0) -> DeviceInfo:
        """Return a device's description. The first call opens the device and closes it again."""
        if index not in self._infos:
            context = self.context(index)
            try:
                self._infos[index] = context.info
            finally:
                context.close()
        return self._infos[index]

    def context(self, index: int = 0) -> Context:
        """Open a device for programs. Raises DeviceNotPresentError if there is none with this index."""
        if not 0 <= index < len(self.devices):
            why = f"it has {len(self.devices)} on this host" if self.devices else self.why_absent
            raise DeviceNotPresentError(f"{self.name} has no device {index}: {why}")
        return self.devices[index].open()


def identify(probes: Iterable[ProbeResult]) -> list[RealDevice]:
    """Return the devices that these probes detected, each with its SKU."""
    return [_real_device(detected) for probed in probes for detected in probed.devices]


def _real_device(detected: DetectedDevice) -> RealDevice:
    if detected.software and detected.kind != "cpu":  # a program that stands in for a card is not that card
        return RealDevice(detected, None, None)
    sku = model_of(detected.label, detected.kind, detected.memory_bytes)
    modelled = sku is not None and (sku != HOST or detected.api in HOST_APIS)
    if detected.api == "jax" and detected.kind != "tpu":  # no model of a GPU is reached through JAX
        modelled = False
    return RealDevice(detected, sku, f"{sku}@{detected.api}" if modelled else None)


def real_devices() -> list[RealDeviceRow]:
    """Return the rows of `windtunnel devices --real`: the devices detected on this host, hardware first."""
    rows = [
        RealDeviceRow(
            name=real.detected.name,
            kind=real.detected.kind,
            api=real.detected.api,
            software=real.detected.software,
            driver=real.detected.driver,
            label=real.detected.label,
            vendor=real.detected.vendor,
            memory_bytes=real.detected.memory_bytes,
            backend=real.detected.backend,
            index=real.detected.index,
            model=real.sku,
            programs=real.runs_programs,
        )
        for real in identify(probe())
    ]
    return sorted(rows, key=lambda row: row.software)


def without_backend(devices: Iterable[RealDevice]) -> list[system.PciDevice]:
    """Return the accelerators on the PCI bus of whose kind no back end detected a hardware device."""
    kinds = {real.detected.kind for real in devices if not real.detected.software}
    return [device for device in system.accelerators() if device.kind not in kinds]


def real_backends(apis: Iterable[str], kinds: Iterable[str]) -> dict[str, RealBackendView]:
    """Return a view for every API and every kind, with the devices that programs can be opened on, hardware first.

    The view of a kind contains software devices only for the kind ``cpu``.
    """
    probes = probe()
    devices = sorted(identify(probes), key=lambda real: real.detected.software)
    views = {}
    for kind in kinds:
        of_kind = [real for real in devices if real.detected.kind == kind]
        usable = [real for real in of_kind if real.runs_programs and (kind == "cpu" or not real.detected.software)]
        views[kind] = RealBackendView(kind, usable, _why_no_kind(kind, of_kind))
    for api in apis:
        of_api = [real for real in devices if real.detected.api == api]
        usable = [real for real in of_api if real.runs_programs]
        views[api] = RealBackendView(api, usable, _why_no_api(api, probes, of_api))
    return views


def _why_no_kind(kind: str, devices: Sequence[RealDevice]) -> str:
    if not devices:
        return f"no back end detects a {kind} on this host (see windtunnel doctor)"
    return _why_unusable(devices, f" {kind}")


def _why_no_api(api: str, probes: Sequence[ProbeResult], devices: Sequence[RealDevice]) -> str:
    if devices:
        return _why_unusable(devices, "")
    for probed in probes:
        if probed.name == _BACKEND_OF_API.get(api, api) and not probed.present:
            return _with_install(probed)
    return f"no back end of this installation detects devices with the API {api} on this host"


def _why_unusable(devices: Sequence[RealDevice], kind: str) -> str:
    """Return why each of these devices cannot be opened for programs."""
    return "; ".join(
        f"{real.detected.name} executes single operations only, not programs"
        if not real.runs_programs
        else f"{real.detected.name} is software, not a{kind or 'n accelerator'}"
        for real in devices
    )


def open_real(name: str, usual_api: str | None) -> Context:
    """Open the device called ``opencl:0``, ``SKU`` or ``SKU@API`` for programs.

    A SKU without an API is opened through ``usual_api``, which is None for names such as ``opencl:0``.

    Raises:
        InputError: if there is no such back end.
        DeviceNotPresentError: if the device is not on this host; the message names those that are.

    """
    if usual_api is None:
        return require(name).open()
    sku, _, api = name.partition("@")
    devices = identify(probe())
    matching = [real for real in devices if real.model == f"{sku}@{api or usual_api}"]
    for real in matching:
        if real.runs_programs:
            return real.open()
    if matching:
        return matching[0].open()  # raises the reason
    same_sku = [real for real in devices if real.sku == sku]
    if same_sku:
        names = ", ".join(f"{sku}@{real.detected.api} ({real.detected.name})" for real in same_sku)
        raise DeviceNotPresentError(
            f"'{name}' not found on this host through {api or usual_api}; available through other APIs: {names}"
        )
    names = ", ".join(f"{real.detected.name} ({real.model or real.detected.label})" for real in devices)
    raise DeviceNotPresentError(
        f"'{name}' not found on this host; available: {names or 'nothing'}. Run `windtunnel doctor` for missing drivers"
    )


def require(name: str) -> RealDevice:
    """Return the device called ``opencl:0``.

    Raises:
        InputError: if there is no such back end, or the name has no number.
        DeviceNotPresentError: if the device is not on this host; the message says why.

    """
    backend, _, number = name.partition(":")
    (probed,) = probe([backend])
    if not number.isdecimal():
        raise InputError(f"'{name}' is not a device", expected=f"a number after the back end: {backend}:0")
    for real in identify([probed]):
        if real.detected.index == int(number):
            return real
    count = len(probed.devices)
    why = f"{backend} detects {count} device{'s' * (count != 1)}" if count else _with_install(probed)
    raise DeviceNotPresentError(f"'{name}' not found on this host: {why}")


def _with_install(probed: ProbeResult) -> str:
    return f"{probed.why}; to install: {registry.backend(probed.name).install}"
