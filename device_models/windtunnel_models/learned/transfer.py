"""What the measurements of some devices say of another: who is related to whom, and how near.

A device of the same die knows the kernels that will run; one of the same generation and memory knows most of the
library's choices; anything else knows the form of the answer and little more. Nearness is set by lineage alone, which
a datasheet states, so that a device nobody measured has relatives too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from windtunnel.core.device import DeviceSpec
from windtunnel.core.provenance import Provenance, Sourced
from windtunnel_models.learned.overlay import Overlay

RELATIONS = ("die", "generation", "class", "maker")
"""From the nearest: the same die; the same maker and memory class within two generations; the same maker; another."""

_YEARS_A_GENERATION = 2.0
_CLASS_APART = _VENDOR_APART = 2.0
"""Another memory (so another balance of the design) or another maker count as two generations."""


_LEAST_RANGE = 1.2


@dataclass(frozen=True)
class Relative:
    """A measured device, how it is related to the one in question, and its weight beside the others."""

    sku: str
    relation: str
    weight: float


def relation(spec: DeviceSpec, other: DeviceSpec) -> tuple[str, float]:
    """How ``other`` is related to ``spec``, and its distance in generations."""
    mine, theirs = spec.lineage, other.lineage
    same = mine.die is not None and theirs.die is not None and mine.die.casefold() == theirs.die.casefold()
    if same and spec.vendor.casefold() == other.vendor.casefold():
        return "die", 0.0
    years = abs(mine.since - theirs.since) if mine.since and theirs.since else 2.0 * _YEARS_A_GENERATION
    far = years / _YEARS_A_GENERATION
    far += _CLASS_APART if mine.stacked_memory != theirs.stacked_memory else 0.0
    if spec.vendor.casefold() != other.vendor.casefold():
        return "maker", far + _VENDOR_APART
    alike = mine.stacked_memory == theirs.stacked_memory and years <= 2.0 * _YEARS_A_GENERATION
    return ("generation" if alike else "class"), far


def same_units(spec: DeviceSpec, other: DeviceSpec) -> bool:
    """Whether as many compute units are enabled: waves of tiles, and so dips of a residual, then end alike."""
    mine, theirs = (one.values.get("compute_units") for one in (spec, other))
    return mine is None or theirs is None or mine.value == theirs.value


def relatives(spec: DeviceSpec, measured: Sequence[DeviceSpec]) -> list[Relative]:
    """The measured devices that bear on ``spec``, nearest first; weights fall as exp(-generations apart)."""
    found = [(other.sku, *relation(spec, other)) for other in measured if other.sku != spec.sku]
    found = sorted(found, key=lambda entry: (RELATIONS.index(entry[1]), entry[2], entry[0]))
    return [Relative(sku, kin, math.exp(-far)) for sku, kin, far in found]


def nearest(kin: Sequence[Relative]) -> list[Relative]:
    """Those of the same die alone, where there are any; else those of the same maker; else all. Weights sum to 1.

    Another maker's numbers hold another library's habits and another campaign's host.
    """
    kept = [relative for relative in kin if relative.relation == "die"]
    kept = kept or [relative for relative in kin if relative.relation != "maker"] or list(kin)
    total = sum(relative.weight for relative in kept)
    return [Relative(r.sku, r.relation, r.weight / total) for r in kept]


def taught(kin: Sequence[Relative], overlays: Mapping[str, Overlay], names: Sequence[str]) -> dict[str, Sourced]:
    """Values of the parameters ``names`` as relatives' overlays have them: weighted geometric means.

    Their range is that of the relatives, and a fifth either way at least. Where whole devices left out gave the spread
    of the whole answer (``Transferred``), that holds it already.
    """
    paths = dict.fromkeys(
        path for relative in kin for path in overlays[relative.sku].values if path.partition(".")[0] in names
    )
    found: dict[str, Sourced] = {}
    for path in paths:
        have = nearest([r for r in kin if path in overlays[r.sku].values])
        numbers = [overlays[r.sku].values[path].value for r in have]
        if min(numbers) > 0.0:
            value = math.exp(sum(r.weight * math.log(x) for r, x in zip(have, numbers, strict=True)))
        else:
            value = sum(r.weight * x for r, x in zip(have, numbers, strict=True))
        names_of = ", ".join(r.sku for r in have)
        if have[0].relation == "die":
            source = overlays[have[0].sku].values[path].source
            found[path] = Sourced(value, Provenance.PUBLISHED, f"{names_of}, the same die: {source}")
        else:
            reason = f"carried over from {names_of}, weighted by nearness of vendor, generation and memory"
            low, high = min(*numbers, value / _LEAST_RANGE), max(*numbers, value * _LEAST_RANGE)
            found[path] = Sourced(value, Provenance.ASSUMED, "other devices' measurements", low, high, reason)
    return found
