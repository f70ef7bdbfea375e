"""The catalogue: SKU files, API profiles and calibrations joined into devices.

A SKU is one YAML file, ``catalog/<kind>/<sku>.yaml``; a user's folder (``--catalog DIR``) may contain more. An API is
one YAML file, ``apis/<api>.yaml``. A calibration, ``calibration/<sku>.yaml``, replaces values of a SKU.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path

from windtunnel.core import kept
from windtunnel.core.device import Device, Kind, ModelAccuracy, Parameters, Residual
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.provenance import SourcedValue
from windtunnel.core.shipped import ShippedResiduals
from windtunnel.core.spec import ApiProfile, Changes, DeviceSpec
from windtunnel_models.host import host_spec
from windtunnel_models.hypothetical import changed
from windtunnel_models.kinds import find_kind
from windtunnel_models.learned.overlay import Overlay
from windtunnel_models.learned.read import calibrated_skus, read_overlay, shipped_overlay
from windtunnel_models.learned.residuals import TransferredResidual, TransferSource, bind
from windtunnel_models.learned.transfer import (
    SAME_DIE,
    Relative,
    closest,
    relatives,
    same_units,
    transferred_values,
)
from windtunnel_models.specs import api_names, api_profile, read_spec

HERE = Path(__file__).parent

HOST = "host"
"""The SKU without a file: this machine's processor."""


class Catalogue:
    """All SKUs and APIs; files are read on first use.

    Args:
        folders: Folders with further SKU files.
        host: The description of the SKU ``host``; without it, this machine is probed.

    Raises:
        InputError: if a folder does not exist.
    """

    def __init__(self, folders: Sequence[Path] = (), host: DeviceSpec | None = None) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise InputError(f"there is no catalogue folder '{folder}'", expected="a folder of SKU files")
        self._folders = (HERE / "catalog", *folders)
        self._host = host
        self._residuals: dict[tuple[str, str], Residual] = {}
        self._devices: dict[tuple[str, bool], Device] = {}
        self._replaced: Mapping[str, Mapping[str, float]] = {}
        self._original = self

    def __getstate__(self) -> dict[str, object]:
        # Devices and residuals can be built again from the files, so they are not sent to other processes.
        return {**self.__dict__, "_residuals": {}, "_devices": {}}

    def replaced(self, values: Mapping[str, Mapping[str, float]]) -> Catalogue:
        """Return the same catalogue whose devices have other values (SI): by label, then by path of the parameter.

        All else of a device stays, its calibration too. It is for studies of how sensitive a result is to an input.
        """
        other = copy.copy(self)
        other._devices, other._replaced, other._original = {}, values, self
        return other

    @cached_property
    def _files(self) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for folder in self._folders:
            for path in sorted(folder.rglob("*.yaml")):
                if path.stem in files or path.stem == HOST:
                    first = files.get(path.stem, "the probed host")
                    raise InputError(f"the SKU '{path.stem}' is described twice: {first} and {path}")
                files[path.stem] = path
        return files

    def skus(self) -> list[str]:
        """Return the name of every SKU, sorted by kind and name; ``host``, which is probed, comes last."""
        return [*self._files, HOST]

    def specs(self) -> Iterator[DeviceSpec]:
        """Return every SKU, read and checked."""
        return (self.spec(sku) for sku in self.skus())

    def spec(self, sku: str) -> DeviceSpec:
        """Return a SKU; raises InputError for an unknown one, with the nearest right name."""
        if sku == HOST:
            return self._host or host_spec()
        if sku not in self._files:
            raise InputError(
                f"unknown device '{sku}'",
                expected=f"one of the {len(self.skus())} SKUs that `windtunnel devices` lists",
                nearest=nearest(sku, self.skus()),
            )
        return read_spec(self._files[sku])

    def device(
        self,
        name: str,
        *,
        overlay: Mapping[str, SourcedValue] | None = None,
        calibration: Overlay | None = None,
        calibrated: bool = True,
        changes: Changes | None = None,
    ) -> Device:
        """Return the device model called ``SKU`` or ``SKU@API``.

        Each source of numbers replaces those before it: the kind's defaults, values transferred from calibrated
        relatives, the SKU file, the calibration, and ``overlay``. Without ``overlay`` and ``calibration`` the device is
        built once and reused.

        Args:
            name: The SKU, with an API if it is not the SKU's usual one.
            overlay: Single values that replace all others.
            calibration: A calibration that replaces the shipped one.
            calibrated: False ignores everything that was fitted to this SKU.
            changes: Other values of the SKU's parameters, for hardware that is not for sale; see ``hypothetical``.

        Raises:
            InputError: if the SKU or the API is unknown, a change is wrong, or the calibration was measured through
                another API.
        """
        if changes:
            key = f"{name}, {json.dumps(changes, sort_keys=True)}"
            if (key, calibrated) not in self._devices:
                self._devices[key, calibrated] = self._moved(self._device(name, None, None, calibrated, changes))
            return self._devices[key, calibrated]
        if overlay is not None or calibration is not None:
            return self._moved(self._device(name, overlay, calibration, calibrated))
        if (name, calibrated) not in self._devices:
            # What is fitted does not change with the values, so it is read once.
            original = self._original is not self
            device = self._original.device(name, calibrated=calibrated) if original else None
            self._devices[name, calibrated] = self._moved(device or self._device(name, None, None, calibrated))
        return self._devices[name, calibrated]

    def _device(
        self,
        name: str,
        overlay: Mapping[str, SourcedValue] | None,
        calibration: Overlay | None,
        calibrated: bool,
        changes: Changes | None = None,
    ) -> Device:
        own = overlay is not None or calibration is not None or changes is not None or len(self._folders) > 1
        if own or not calibrated or name.partition("@")[0] == HOST:
            return self._made(name, overlay, calibration, calibrated, changes)
        made = cache(partial(self._made, name))

        def parts() -> tuple[DeviceSpec, ApiProfile, Mapping[str, SourcedValue], Mapping[str, ModelAccuracy]]:
            device = made()
            return device.spec, device.api, device.values, device.accuracies

        spec, api, values, accuracies = kept.value("device", (HERE,), (name,), parts)
        kind = find_kind(spec.kind)
        files = partial(kept.contents_digest, HERE)
        residuals = ShippedResiduals(lambda: made().residuals, values, (spec, kind, api, accuracies), files)
        return Device(spec, kind, api, values, residuals=residuals, accuracies=accuracies)

    def _made(
        self,
        name: str,
        overlay: Mapping[str, SourcedValue] | None = None,
        calibration: Overlay | None = None,
        calibrated: bool = True,
        changes: Changes | None = None,
    ) -> Device:
        """Return a device that is made from the files; see ``device``."""
        sku, at, api_name = name.partition("@")
        spec = self.spec(sku)
        kind = find_kind(spec.kind)
        if changes:
            spec = changed(spec, kind, self.device(sku).values, changes)
        api_name = api_name or spec.apis[0]
        if at and api_name not in spec.apis:
            apis = api_names()
            if api_name not in apis:
                raise InputError(
                    f"unknown API '{api_name}' in '{name}'",
                    expected=list_choices(apis),
                    nearest=nearest(api_name, apis),
                )
            raise InputError(
                f"{sku} is not reached through {api_name}",
                expected=list_choices(spec.apis),
                nearest=nearest(api_name, spec.apis),
            )
        if calibration is not None and calibration.api not in (None, api_name):
            raise InputError(
                f"this overlay is of {sku} through {calibration.api}, not through {api_name}",
                where=Location(str(calibration.path), field="api"),
                expected=f"the device it is of, {sku}@{calibration.api}, or measurements of {sku}@{api_name}",
            )
        if calibration is None and calibrated and spec.base is None:
            calibration = shipped_overlay(sku, spec.kind)
        values, residuals, accuracies = self._calibrated(spec, kind, calibration)
        values.update(overlay or {})
        return Device(spec, kind, api_profile(api_name), values, residuals=residuals, accuracies=accuracies)

    def _moved(self, device: Device) -> Device:
        """Return a device with the values that ``replaced`` states for it."""
        others = self._replaced.get(device.label)
        if others is None:
            return device
        # With another division of its power, an operation might draw more than the device can: its limit is a cap.
        values = {**device.values, **{path: device.values[path].at(value) for path, value in others.items()}}
        return replace(device, values=values, cap_w=device.power_limit_w)

    def _calibrated(
        self, spec: DeviceSpec, kind: Kind, overlay: Overlay | None
    ) -> tuple[dict[str, SourcedValue], dict[str, Residual], dict[str, ModelAccuracy]]:
        """Return values, residuals and accuracies: from the calibration, or from relatives where it has none."""
        values = dict(kind.defaults)
        names = [parameter.name for parameter in kind.parameters if parameter.fitted]
        measured, overlays = self._relatives(spec) if names or kind.learned else ([], {})
        stated = {**spec.values, **(overlay.values if overlay is not None else {})}
        largest = {parameter.name: parameter.max for parameter in kind.parameters if parameter.max is not None}
        values.update(transferred_values(measured, overlays, names, self._carrier(spec, kind), stated, largest))
        values.update(stated)
        residuals: dict[str, Residual] = {}
        accuracies = {op: fit.accuracy() for op, fit in overlay.fits.items()} if overlay is not None else {}
        ops = {op for transferred in overlays.values() for op in transferred.learned}
        for op in sorted(ops | set(overlay.learned if overlay is not None else ())):
            base = self._transferred(spec, kind, measured, overlays, op, values)
            entry = overlay.learned.get(op) if overlay is not None else None
            if entry is not None and overlay is not None:
                frozen = Device(spec, kind, api_profile(overlay.api or spec.apis[0]), dict(values))
                residuals[op] = bind(entry, frozen, op, overlay.path, base)
            elif base is not None:
                residuals[op] = base
                accuracies.setdefault(op, base.accuracy(op))
        return values, residuals, accuracies

    def _relatives(self, spec: DeviceSpec) -> tuple[list[Relative], dict[str, Overlay]]:
        """Return the calibrated devices of the same kind as ``spec``, nearest first, and their overlays."""
        overlays = {
            sku: overlay
            for sku in calibrated_skus()
            if sku != spec.sku and sku in self._files and self._may_be(sku, spec.kind)
            if self.spec(sku).kind == spec.kind and (overlay := shipped_overlay(sku, spec.kind)) is not None
        }
        return relatives(spec, [self.spec(sku) for sku in overlays]), overlays

    def _may_be(self, sku: str, kind: str) -> bool:
        """Return False for a shipped SKU of another kind, by its folder, so that its file and kind are not read."""
        folder = self._files[sku].parent
        return folder.parent != HERE / "catalog" or folder.name == kind

    def _carrier(self, spec: DeviceSpec, kind: Kind) -> Callable[[Relative, str, float], float]:
        """Return the function that expresses a relative's fitted number for ``spec``, from both datasheets."""

        @cache
        def sheet(sku: str) -> Parameters:
            other = spec if sku == spec.sku else self.spec(sku)
            return Parameters(Device(other, kind, api_profile(other.apis[0]), {**kind.defaults, **other.values}))

        def carried(relative: Relative, path: str, value: float) -> float:
            same_die = relative.relation in SAME_DIE
            return kind.carried(sheet(relative.sku), sheet(spec.sku), path, value, same_die)

        return carried

    def _transferred(
        self,
        spec: DeviceSpec,
        kind: Kind,
        measured: Sequence[Relative],
        overlays: Mapping[str, Overlay],
        op: str,
        values: Mapping[str, SourcedValue],
    ) -> TransferredResidual | None:
        """Return the residual of ``op`` transferred from relatives, or None if none of them has one.

        Some arrays express themselves for the device, given its ``values``; others have a share where waves end alike.
        """
        applies = kind.applies.get(op)
        having = closest(
            [
                relative
                for relative in measured
                if op in overlays[relative.sku].learned and (applies is None or applies(spec, self.spec(relative.sku)))
            ]
        )
        if not having:
            return None
        shares = kind.transfer_shares.get(op, {})
        sources = []
        for relative in having:
            share, overlay = shares.get(relative.relation, 0.0), overlays[relative.sku]
            if applies is not None:
                frozen = Device(spec, kind, api_profile(spec.apis[0]), dict(values))
                residual = bind(overlay.learned[op], frozen, op, overlay.path, None)
            else:
                share = share if same_units(spec, self.spec(relative.sku)) else 0.0
                residual = self._own_residual(relative.sku, op)
            sources.append(TransferSource(relative.weight, share, residual))
        relation = having[0].relation
        names = ", ".join(relative.sku for relative in having)
        return TransferredResidual(
            sources, relation, kind.transfer_errors[op][relation], names, adds_spread=applies is not None
        )

    def _own_residual(self, sku: str, op: str) -> Residual:
        """Return the residual of a shipped calibration, bound to that device as it was fitted."""
        if (sku, op) not in self._residuals:
            spec = self.spec(sku)
            overlay = shipped_overlay(sku, spec.kind)
            if overlay is None:
                raise ValueError(f"{sku} has no calibration")
            kind = find_kind(spec.kind)
            values = dict(kind.defaults)
            values.update(spec.values)
            values.update(overlay.values)
            frozen = Device(spec, kind, api_profile(overlay.api or spec.apis[0]), values)
            self._residuals[sku, op] = bind(overlay.learned[op], frozen, op, overlay.path, None)
        return self._residuals[sku, op]


@cache
def shipped_catalogue() -> Catalogue:
    """Return the catalogue of the shipped devices, the same at every call: its devices are built once a process."""
    return Catalogue()


def device_model(
    name: str, catalogue: Catalogue, calibration: str | None = None, changes: Changes | None = None
) -> Device:
    """Return the device ``SKU`` or ``SKU@API``.

    ``calibration`` is an overlay's path, or "none". ``changes`` are other values of the SKU's parameters, for hardware
    that is not for sale. Raises InputError for both, because such a device has no measurements.
    """
    if changes:
        if calibration is not None:
            raise InputError(
                f"{name} with other values has no measurements, and so no calibration", expected="one of the two"
            )
        return catalogue.device(name, changes=changes)
    if calibration == "none":
        return catalogue.device(name, calibrated=False)
    if calibration is None:
        return catalogue.device(name)
    spec = catalogue.spec(name.partition("@")[0])
    return catalogue.device(name, calibration=read_overlay(Path(calibration), spec.sku, spec.kind))
