"""What is known of this host: the report of `doctor`, and the devices of `devices --real`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.core.results.data import Result


@dataclass(frozen=True)
class RealDeviceRow(Result):
    """A device that a back end detected on this host."""

    name: str
    """Its name in commands and scenarios: ``opencl:0``."""
    kind: str
    api: str
    software: bool
    """Whether the host's processor does the work."""
    driver: str
    label: str
    """The name that the driver reports."""
    vendor: str
    memory_bytes: float
    """0 if the driver does not report it."""
    backend: str
    index: int
    model: str | None
    """Its SKU; None if the catalogue does not have it."""
    programs: bool
    """Whether programs can be opened on it, and not only single operations."""


@dataclass(frozen=True)
class PythonVersion(Result):
    """The interpreter."""

    version: str
    executable: str
    platform: str


@dataclass(frozen=True)
class Package(Result):
    """A required distribution; the version is None if it is missing."""

    name: str
    version: str | None


@dataclass(frozen=True)
class Compiler(Result):
    """A compiler that tests use; the version is None if it is missing."""

    name: str
    version: str | None
    purpose: str
    install: str

    def to_dict(self) -> dict[str, object]:
        """Return the compiler as plain data, with its purpose under the key ``for``."""
        return {"name": self.name, "version": self.version, "for": self.purpose, "install": self.install}


@dataclass(frozen=True)
class BusDevice(Result):
    """An accelerator on the PCI bus."""

    address: str
    ids: str
    kind: str
    what: str


@dataclass(frozen=True)
class FoundDevice(Result):
    """A device that a back end detected."""

    name: str
    label: str
    software: bool
    driver: str


@dataclass(frozen=True)
class BackendState(Result):
    """A back end: ``present``, or why it has no device, and how to install what is missing."""

    name: str
    state: str
    present: bool
    why: str
    reaches: str
    install: str
    took_s: float
    devices: Sequence[FoundDevice]


@dataclass(frozen=True)
class HostLimits(Result):
    """What this process may use."""

    cores: float
    memory_bytes: float
    address_space_bytes: float | None


@dataclass(frozen=True)
class Measurable(Result):
    """A device that `validate` can measure, and the model that it is compared with; None if it has none."""

    name: str
    model: str | None
    software: bool

    def to_dict(self) -> dict[str, object]:
        """Return the device as plain data, with its model under the key ``as``."""
        return {"name": self.name, "as": self.model, "software": self.software}


@dataclass(frozen=True)
class HostReport(Result):
    """The report of `doctor`. ``missing`` are the ``required`` back ends that found no device."""

    windtunnel: str
    python: PythonVersion
    packages: Sequence[Package]
    compilers: Sequence[Compiler]
    bus: Sequence[BusDevice]
    unreached: Sequence[str]
    """The addresses of accelerators on the bus that no back end reaches."""
    backends: Sequence[BackendState]
    root: bool
    limits: HostLimits
    required: Sequence[str]
    missing: Sequence[str]
    validate: Sequence[Measurable]
