"""What files state about devices: the parameters of kinds, SKUs and their lineage, and API profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.core.provenance import Provenance, Sourced
from windtunnel.core.units import parse_unit


@dataclass(frozen=True)
class Parameter:
    """One number a kind needs to know of a device (or an API), or a table of them.

    ``unit`` is the dimension, written as a unit; values are SI. ``keys`` are a table's allowed keys, empty
    for a single number. ``default`` (or ``defaults``, by key) is what every device of the kind is taken
    to have unless its file says otherwise, with its own provenance. ``taught``: a number fitted to measurements, which
    calibrated relatives hand on to a device that nobody measured (its uncertainty is that of the whole answer).
    """

    name: str
    unit: str
    doc: str
    keys: tuple[str, ...] = ()
    required: bool = False
    default: Sourced | None = None
    defaults: Mapping[str, Sourced] = field(default_factory=dict)
    taught: bool = False

    @property
    def is_rate(self) -> bool:
        """Whether the unit is a quantity of work or data or events a second, which a fleet entry's ``speed`` scales."""
        time, _data, energy, _work, money, _mass = parse_unit(self.unit).exponents
        return time == -1 and energy == 0 and money == 0


KERNEL_TYPES = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")
"""The names of the kernel language's types, by which profiles say what an API lacks."""


@dataclass(frozen=True)
class Stated:
    """A word of a profile with its origin; ``reason``: why, where it is assumed."""

    value: str
    provenance: Provenance
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Numbers:
    """How the numbers of a kernel are done through an API. What a profile does not state is as NumPy does it.

    ``lacks``: types of the kernel language that no kernel may have. ``tf32``: how the conversion to TF32 rounds half
    of a unit, ``nearest-even`` or ``nearest-away`` (from zero). ``subnormals``: of ``f32``, ``kept`` or ``flushed`` to
    zero. ``stated``: where each comes from, by name.
    """

    lacks: frozenset[str] = frozenset()
    tf32: str = "nearest-even"
    subnormals: str = "kept"
    stated: Mapping[str, Stated] = field(default_factory=dict)


@dataclass(frozen=True)
class ApiProfile:
    """What it costs to reach silicon through an API, and what the API offers.

    ``values``: overheads (SI) with their sources. ``features``: words cost functions ask for. ``numbers``: how those
    of kernels are done.
    """

    name: str
    doc: str
    kinds: tuple[str, ...]
    features: frozenset[str]
    values: Mapping[str, Sourced]
    numbers: Numbers = field(default_factory=Numbers)


@dataclass(frozen=True)
class Lineage:
    """What silicon descends from, as far as its file says: how measurements of one device bear on another.

    ``die``: the chip's own name; ``architecture``: the vendor's word for the design; ``since``: the year of its first
    product; ``memory``: the technology (``HBM3``, ``GDDR6``, ``LPDDR5``).
    """

    die: str | None = None
    architecture: str | None = None
    since: int | None = None
    memory: str | None = None

    @property
    def stacked_memory(self) -> bool:
        """Whether memory is stacked beside the die (high-bandwidth memory): servers' parts, of another balance."""
        return self.memory is not None and self.memory.upper().startswith("HBM")


@dataclass(frozen=True)
class DeviceSpec:
    """What a SKU file says: the silicon's numbers, each with its source, before any API is chosen."""

    sku: str
    kind: str
    vendor: str
    name: str
    apis: tuple[str, ...]
    values: Mapping[str, Sourced]
    notes: tuple[str, ...] = ()
    lineage: Lineage = field(default_factory=Lineage)

    @property
    def provenance(self) -> Provenance:
        """The weakest provenance of any number in the file."""
        return max((value.provenance for value in self.values.values()), default=Provenance.DATASHEET)
