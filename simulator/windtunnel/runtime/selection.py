"""Selects a back end: by an ordered preference, by the recommendation matrix, or by the name of a device.

A choice has its reason, and the preferred back ends that were not available. A requested device or back end that is not
available is an error; it is never replaced by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from windtunnel.core.errors import DeviceError, DeviceNotPresentError, InputError, list_choices, nearest
from windtunnel.core.recommendation import recommendation
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.interface import Backend, DeviceInfo


class KnownBackend(Backend, Protocol):
    """A back end with the methods that selection needs."""

    def absent(self) -> str:
        """Return why it has no device, if ``count()`` is 0."""

    def find(self, device: str) -> int | None:
        """Return the index of the device ``SKU`` or ``SKU@API``; None if it has no such device."""


@dataclass(frozen=True)
class Choice:
    """A device of a back end, and the reason of the choice."""

    backend: KnownBackend
    index: int
    reason: str
    passed: tuple[tuple[str, str], ...] = ()
    """The preferred back ends that were not available, each with the reason."""

    @property
    def info(self) -> DeviceInfo:
        """The description of the device."""
        return self.backend.info(self.index)

    def open(self) -> Accelerator:
        """Open the device."""
        return Accelerator(self.backend.context(self.index))

    def __str__(self) -> str:
        return self.reason


def select(preferred: Sequence[str], known: Mapping[str, KnownBackend], *, device: str | None = None) -> Choice:
    """Choose the first device of the first back end of ``preferred`` that has one, or that has ``device``.

    Raises InputError for an unknown back end, and DeviceNotPresentError, with each reason, if none has a device.
    """
    return _first([(name, "") for name in preferred], known, f"of {', '.join(preferred)}", device)


def select_for(use: str, known: Mapping[str, KnownBackend], *, device: str | None = None) -> Choice:
    """Choose by the recommendation matrix for ``use``: primary, alternative, fallback, each in the stated order."""
    row = recommendation(use)
    places = (("primary", row.primary), ("alternative", row.alternative), ("fallback", row.fallback))
    ordered = [(name, place) for place, names in places for name in names]
    return _first(ordered, known, f"for '{use}'", device)


def _first(
    ordered: Sequence[tuple[str, str]], known: Mapping[str, KnownBackend], asked: str, device: str | None
) -> Choice:
    if not ordered:
        raise InputError("no back end is preferred", expected=list_choices(known))
    for name, _ in ordered:
        if name not in known:
            raise InputError(f"unknown back end '{name}'", expected=list_choices(known), nearest=nearest(name, known))
    passed: list[tuple[str, str]] = []
    for name, place in ordered:
        backend = known[name]
        called = f"{name}, the {place}" if place else name
        index = _device_of(backend, device)
        if isinstance(index, int):
            info = backend.info(index)
            label = f"{info.name} (software, no accelerator)" if info.software else info.name
            what = f"{called}: {label}" if device is None else f"{label}, asked for by name, through {called}"
            return Choice(
                backend, index, "; ".join([f"{what}, the first {asked} that is here", *_rejections(passed)]), (*passed,)
            )
        passed.append((called, index))
    wanted = "none" if device is None else f"'{device}' is not here: none"
    raise DeviceNotPresentError(
        "; ".join([f"{wanted} {asked} has it" if device else f"none {asked} is here", *_rejections(passed)])
    )


def _rejections(passed: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (f"not {name}: {why}" for name, why in passed)


def _device_of(backend: KnownBackend, device: str | None) -> int | str:
    """Return the index of its first device, or of the requested one; if there is none, the reason in words."""
    try:
        if not backend.count():
            return backend.absent()
        if device is None:
            return 0
        index = backend.find(device)
    except DeviceError as error:  # the driver is installed and does not respond
        return str(error)
    count = backend.count()
    reaches = f"it reaches {count:,} device{'' if count == 1 else 's'}"
    return f"{reaches}, and none is '{device}'" if index is None else index
