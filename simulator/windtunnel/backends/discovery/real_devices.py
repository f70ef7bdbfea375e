"""What back ends reach on this host: `windtunnel devices --real`, and real devices by their names.

No driver is loaded by it, but where a device is opened. `doctor` says the rest: what is missing and what to install.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.backends.common import system as _system
from windtunnel.backends.common.backend import Found
from windtunnel.backends.discovery import registry
from windtunnel.backends.discovery.probe import Probed, probe
from windtunnel.backends.discovery.reached import Reached, ReachedBackend
from windtunnel.core.errors import DeviceNotPresentError, InputError
from windtunnel_models.labels import HOST, HOST_APIS, model_of

if TYPE_CHECKING:
    from windtunnel.runtime.interface import Context

NO_GPU = "software: real code on this host's processor, no accelerator; lavapipe (llvmpipe) and PoCL are not GPUs"
_API_OF = {"jax": "tpu"}
"""APIs whose back end has another name."""


def reached(probed: Iterable[Probed]) -> list[Reached]:
    """The devices that these back ends found, each with the SKU that it is."""
    return [_reached(found) for one in probed for found in one.devices]


def _reached(found: Found) -> Reached:
    if found.software and found.kind != "cpu":  # a program that stands in for a card is not that card
        return Reached(found, None, None)
    model = model_of(found.label, found.kind, found.memory_bytes)
    modelled = model is not None and (model != HOST or found.api in HOST_APIS)
    return Reached(found, model, f"{model}@{found.api}" if modelled else None)


def real_devices() -> list[dict[str, Any]]:
    """What `windtunnel devices --real` prints: the devices that back ends reach here, hardware first."""
    rows = [
        {
            "name": one.found.name,
            "kind": one.found.kind,
            "api": one.found.api,
            "software": one.found.software,
            "driver": one.found.driver,
            "label": one.found.label,
            "vendor": one.found.vendor,
            "memory_bytes": one.found.memory_bytes,
            "backend": one.found.backend,
            "index": one.found.index,
            "model": one.model,
            "programs": one.programs,
        }
        for one in reached(probe())
    ]
    return sorted(rows, key=lambda row: bool(row["software"]))


Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""A title, the header, the rows."""


def devices_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The rows of ``real_devices`` for people: hardware apart from software."""
    header = ("name", "kind", "api", "what it is", "model", "memory", "driver")
    tables: list[Table] = []
    for software, title in ((False, "hardware"), (True, NO_GPU)):
        shown = [
            (
                row["name"],
                row["kind"],
                row["api"],
                row["label"],
                row["model"] or "none in the catalogue",
                f"{row['memory_bytes'] / 1e9:,.1f} GB" if row["memory_bytes"] else "not said",
                row["driver"],
            )
            for row in rows
            if row["software"] is software
        ]
        if shown:
            tables.append((title, header, shown))
    return tables


def unreached(found: Iterable[Reached]) -> list[_system.PciDevice]:
    """Accelerators on the bus of whose kind no back end reaches one."""
    kinds = {one.found.kind for one in found if not one.found.software}
    return [device for device in _system.accelerators() if device.kind not in kinds]


# Real devices for programs.


def real_backends(apis: Iterable[str], kinds: Iterable[str]) -> dict[str, ReachedBackend]:
    """Every API and every kind, with the devices of this host that programs can be opened on, hardware first.

    By its kind a software device is found only where it is a processor and is asked for as one.
    """
    probed = probe()
    found = sorted(reached(probed), key=lambda one: one.found.software)
    return {
        **{
            kind: ReachedBackend(
                kind,
                [one for one in found if one.programs and _is_of(one, kind)],
                _why_no_kind(kind, [one for one in found if one.found.kind == kind]),
            )
            for kind in kinds
        },
        **{
            api: ReachedBackend(
                api,
                [one for one in found if one.programs and one.found.api == api],
                _why_no_api(api, probed, [one for one in found if one.found.api == api]),
            )
            for api in apis
        },
    }


def _is_of(one: Reached, kind: str) -> bool:
    return one.found.kind == kind and (kind == "cpu" or not one.found.software)


def _why_no_kind(kind: str, found: Sequence[Reached]) -> str:
    if not found:
        return f"no back end reaches a {kind} on this host (windtunnel doctor says what each found)"
    return _why_not(found, f" {kind}")


def _why_no_api(api: str, probed: Sequence[Probed], found: Sequence[Reached]) -> str:
    if found:
        return _why_not(found, "")
    for one in probed:
        if one.name == _API_OF.get(api, api) and not one.present:
            return _with_install(one)
    return f"no back end of this installation reaches devices through {api} on this host"


def _why_not(found: Sequence[Reached], kind: str) -> str:
    """Of devices that are here and are none that programs are opened on."""
    return "; ".join(
        f"{one.found.name} does single operations and runs no programs"
        if not one.programs
        else f"{one.found.name} is software, no{kind or ' accelerator'}"
        for one in found
    )


def open_real(name: str, usual_api: str | None) -> Context:
    """``opencl:0``, ``SKU`` or ``SKU@API``, opened; a SKU without an API is meant through ``usual_api``.

    InputError for a back end that is none; DeviceNotPresentError where the device is not here, with what is.
    """
    if usual_api is None:
        return require(name).open()
    sku, _, api = name.partition("@")
    found = reached(probe())
    meant = [one for one in found if one.modelled_as == f"{sku}@{api or usual_api}"]
    for one in meant:
        if one.programs:
            return one.open()
    if meant:
        return meant[0].open()  # which says why not
    others = [one for one in found if one.model == sku]
    if others:
        ways = ", ".join(f"{sku}@{one.found.api} ({one.found.name})" for one in others)
        raise DeviceNotPresentError(f"'{name}' is not here through {api or usual_api}; this host reaches it as {ways}")
    here = ", ".join(f"{one.found.name} ({one.modelled_as or one.found.label})" for one in found)
    raise DeviceNotPresentError(
        f"'{name}' is not here; what back ends reach on this host is {here or 'nothing'} (windtunnel doctor says why)"
    )


def require(name: str) -> Reached:
    """``opencl:0``, as its driver tells it.

    InputError for a back end that is none; DeviceNotPresentError where the device is not here, with why and what is.
    """
    backend, _, number = name.partition(":")
    (probed,) = probe([backend])
    if not number.isdecimal():
        raise InputError(f"'{name}' is no device", expected=f"a number after the back end: {backend}:0")
    for one in reached([probed]):
        if one.found.index == int(number):
            return one
    count = len(probed.devices)
    here = f"{backend} reaches {count} device{'s' * (count != 1)}" if count else _with_install(probed)
    raise DeviceNotPresentError(f"'{name}' is not here: {here}")


def _with_install(probed: Probed) -> str:
    return f"{probed.why}; to install: {registry.backend(probed.name).install}"
