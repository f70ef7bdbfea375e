"""The content of catalogue files: parameters of kinds, SKUs and their lineage, and API profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.units import parse_unit


@dataclass(frozen=True)
class Parameter:
    """A number, or a table of numbers, that describes a device of a kind (or an API).

    ``unit`` is the dimension, written as a unit; values are in SI units. ``keys`` are the allowed keys of a table, and
    empty for a single number. ``default`` (or ``defaults``, by key) applies to every device of the kind whose file does
    not state the parameter, and has its own provenance. ``fitted``: a fitted number, which is transferred from
    calibrated related devices to a device without measurements (the uncertainty of the whole result includes its own).
    ``max``: no device has a larger value, so that ranges end there: a share of what is attained is at most 1.
    """

    name: str
    unit: str
    doc: str
    keys: tuple[str, ...] = ()
    required: bool = False
    default: SourcedValue | None = None
    defaults: Mapping[str, SourcedValue] = field(default_factory=dict)
    fitted: bool = False
    max: float | None = None

    @property
    def is_rate(self) -> bool:
        """Return whether the unit is work, data or events per second, which a fleet entry's ``speed`` scales."""
        time, _data, energy, _work, money, _mass = parse_unit(self.unit).exponents
        return time == -1 and energy == 0 and money == 0


KERNEL_TYPES = ("bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")
"""Names of the kernel language's types. API profiles use them to state which types an API lacks."""


@dataclass(frozen=True)
class SourcedText:
    """A value of a profile with its origin; ``reason`` is required if it is assumed."""

    value: str
    provenance: Provenance
    source: str
    reason: str | None = None


@dataclass(frozen=True)
class Numbers:
    """Number formats of kernels in an API. The defaults are those of NumPy.

    ``lacks``: types of the kernel language that the API does not support. ``tf32``: rounding of ties in the conversion
    to TF32, ``nearest-even`` or ``nearest-away`` (from zero). ``subnormals``: subnormal ``f32`` numbers are ``kept`` or
    ``flushed`` to zero. ``stated``: the origin of each, by name.
    """

    lacks: frozenset[str] = frozenset()
    tf32: str = "nearest-even"
    subnormals: str = "kept"
    stated: Mapping[str, SourcedText] = field(default_factory=dict)


@dataclass(frozen=True)
class ApiProfile:
    """The overheads and features of an API.

    ``values``: overheads (in SI units) with their sources. ``features``: names that cost functions test. ``numbers``:
    number formats of kernels. ``no_launch``: why operations have no launch beside their own time, so that a program
    pays no dispatch for them; None where each operation is launched.
    """

    name: str
    doc: str
    kinds: tuple[str, ...]
    features: frozenset[str]
    values: Mapping[str, SourcedValue]
    numbers: Numbers = field(default_factory=Numbers)
    no_launch: str | None = None


@dataclass(frozen=True)
class Lineage:
    """The lineage of a SKU, as far as its file states it. Transfer between related devices uses it.

    ``die``: name of the chip; ``architecture``: the vendor's name of the design; ``since``: the year of its first
    product; ``memory``: the memory technology (``HBM3``, ``GDDR6``, ``LPDDR5``); ``process``: the foundry and its
    process (``TSMC 4N``).
    """

    die: str | None = None
    architecture: str | None = None
    since: int | None = None
    memory: str | None = None
    process: str | None = None

    @property
    def stacked_memory(self) -> bool:
        """Return whether the memory is stacked (HBM), as on server devices."""
        return self.memory is not None and self.memory.upper().startswith("HBM")


Changes = Mapping[str, object]
"""Other values of a SKU's parameters, by name: quantities or factors as text, for a table by its keys."""


NOT_FOR_SALE = "hardware that is not for sale"
"""How the reason of a value begins that replaces the one of a SKU."""


def changed_name(sku: str, changes: Changes) -> str:
    """Return the name of a SKU with other values, such as ``h200-sxm-141gb with memory_bandwidth 1.5x``."""
    texts = []
    for name, stated in changes.items():
        keys = [(f"{name}.{key}", value) for key, value in stated.items()] if isinstance(stated, Mapping) else []
        texts += [f"{path} {value}" for path, value in keys or [(name, stated)]]
    return f"{sku} with {', '.join(texts)}" if texts else sku


@dataclass(frozen=True)
class DeviceSpec:
    """The content of a SKU file: the device's numbers with their sources, independent of the API.

    ``base``: the SKU of which some values were changed, for hardware that is not for sale; None for a product.
    """

    sku: str
    kind: str
    vendor: str
    name: str
    apis: tuple[str, ...]
    values: Mapping[str, SourcedValue]
    notes: tuple[str, ...] = ()
    lineage: Lineage = field(default_factory=Lineage)
    base: str | None = None

    @property
    def provenance(self) -> Provenance:
        """Return the least certain provenance of all numbers in the file."""
        return max((value.provenance for value in self.values.values()), default=Provenance.DATASHEET)
