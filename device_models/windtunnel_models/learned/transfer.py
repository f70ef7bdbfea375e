"""Transfer: which measured devices are related to another device, and how closely.

A device of the same die runs the same kernels. One of the same generation and memory technology shares most of the
library's choices. Any other shares little more than the form of the formula. The relation follows from the lineage
alone, which a datasheet states, so that a device without measurements has relatives too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.spec import DeviceSpec
from windtunnel_models.learned.overlay import Overlay

RELATIONS = ("die", "generation", "class", "maker")
"""From the nearest: same die; same maker and memory class within two generations; same maker; another maker."""

_YEARS_A_GENERATION = 2.0
_CLASS_APART = _VENDOR_APART = 2.0
"""Another memory technology (so another balance of the design) or another maker counts as two generations."""

_LEAST_RANGE = 1.2
"""A transferred value ranges over at least this factor in either direction."""


@dataclass(frozen=True)
class Relative:
    """A measured device, its relation to the device in question, and its weight among all relatives."""

    sku: str
    relation: str
    weight: float


def relation(spec: DeviceSpec, other: DeviceSpec) -> tuple[str, float]:
    """Return the relation of ``other`` to ``spec``, and its distance in generations."""
    own, others = spec.lineage, other.lineage
    same = own.die is not None and others.die is not None and own.die.casefold() == others.die.casefold()
    if same and spec.vendor.casefold() == other.vendor.casefold():
        return "die", 0.0
    years = abs(own.since - others.since) if own.since and others.since else 2.0 * _YEARS_A_GENERATION
    far = years / _YEARS_A_GENERATION
    far += _CLASS_APART if own.stacked_memory != others.stacked_memory else 0.0
    if spec.vendor.casefold() != other.vendor.casefold():
        return "maker", far + _VENDOR_APART
    alike = own.stacked_memory == others.stacked_memory and years <= 2.0 * _YEARS_A_GENERATION
    return ("generation" if alike else "class"), far


def same_units(spec: DeviceSpec, other: DeviceSpec) -> bool:
    """Return whether the same number of compute units is enabled, so that waves of tiles end at the same sizes."""
    own, others = spec.values.get("compute_units"), other.values.get("compute_units")
    return own is None or others is None or own.value == others.value


def relatives(spec: DeviceSpec, measured: Sequence[DeviceSpec]) -> list[Relative]:
    """Return the measured devices as relatives of ``spec``, nearest first, with weights exp(-generations apart)."""
    related = [(other.sku, *relation(spec, other)) for other in measured if other.sku != spec.sku]
    related = sorted(related, key=lambda entry: (RELATIONS.index(entry[1]), entry[2], entry[0]))
    return [Relative(sku, name, math.exp(-far)) for sku, name, far in related]


def closest(related: Sequence[Relative]) -> list[Relative]:
    """Return the relatives of the same die, or else of the same maker, or else all, with weights that sum to 1.

    Numbers of another maker depend on another library and on another campaign's host.
    """
    kept = [relative for relative in related if relative.relation == "die"]
    kept = kept or [relative for relative in related if relative.relation != "maker"] or list(related)
    total = sum(relative.weight for relative in kept)
    return [Relative(r.sku, r.relation, r.weight / total) for r in kept]


def transferred_values(
    related: Sequence[Relative], overlays: Mapping[str, Overlay], names: Sequence[str]
) -> dict[str, SourcedValue]:
    """Return the parameters ``names`` as weighted geometric means of the values in the relatives' overlays.

    The range of each value is that of the relatives, and at least a fifth in either direction. Where the error of the
    whole prediction was found by leaving out whole devices (``TransferredResidual``), that error includes this range.
    """
    paths = dict.fromkeys(
        path for relative in related for path in overlays[relative.sku].values if path.partition(".")[0] in names
    )
    values: dict[str, SourcedValue] = {}
    for path in paths:
        have = closest([r for r in related if path in overlays[r.sku].values])
        numbers = [overlays[r.sku].values[path].value for r in have]
        if min(numbers) > 0.0:
            value = math.exp(sum(r.weight * math.log(x) for r, x in zip(have, numbers, strict=True)))
        else:
            value = sum(r.weight * x for r, x in zip(have, numbers, strict=True))
        names_of = ", ".join(r.sku for r in have)
        if have[0].relation == "die":
            source = overlays[have[0].sku].values[path].source
            values[path] = SourcedValue(value, Provenance.PUBLISHED, f"{names_of}, the same die: {source}")
        else:
            reason = f"transferred from {names_of}, weighted by nearness of vendor, generation and memory"
            low, high = min(*numbers, value / _LEAST_RANGE), max(*numbers, value * _LEAST_RANGE)
            values[path] = SourcedValue(value, Provenance.ASSUMED, "other devices' measurements", low, high, reason)
    return values
