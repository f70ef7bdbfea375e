"""Transfer: which measured devices are related to another device, and how closely.

A device of the same die runs the same kernels, and on a similar board at the same clocks. A board of the same die with
another memory or another power limit shares the kernels only. A device of the same generation and memory technology
shares most of the library's choices. Any other shares little more than the form of the formula. The relation follows
from the datasheet alone, so that a device without measurements has relatives too. What relatives do not share is
expressed for the other device by the kind (``Kind.carried``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from windtunnel.core.provenance import Provenance, SourcedValue
from windtunnel.core.spec import DeviceSpec
from windtunnel_models.learned.overlay import Overlay

RELATIONS = ("die", "board", "generation", "class", "maker")
"""From the nearest: same die on a similar board; same die on another board (other memory, or other power for its peak);
same maker within two generations, both with stacked memory; same maker; another maker. Boards whose memory is not
stacked differ in power limits and in what is enabled of their dies, so each counts as another class."""

SAME_DIE = ("die", "board")

_YEARS_A_GENERATION = 2.0
_CLASS_APART = _VENDOR_APART = 2.0
"""Another memory technology (so another balance of the design) or another maker counts as two generations."""

_POWER_APART = 1.2
"""Boards whose power limits per FLOP/s of their peaks differ by more than this factor run the die at other clocks."""

_OTHER_BOARD = 0.5
"""The distance of another board of the same die, in generations."""

_LEAST_RANGE = 1.2
"""A transferred value ranges over at least this factor in either direction."""


@dataclass(frozen=True)
class Relative:
    """A measured device, its relation to the device in question, and its weight among all relatives.

    ``own``: the device in question is this one with other values, so that no other relative is nearer.
    """

    sku: str
    relation: str
    weight: float
    own: bool = False


def relation(spec: DeviceSpec, other: DeviceSpec) -> tuple[str, float]:
    """Return the relation of ``other`` to ``spec``, and its distance in generations."""
    own, others = spec.lineage, other.lineage
    same = own.die is not None and others.die is not None and own.die.casefold() == others.die.casefold()
    if same and spec.vendor.casefold() == other.vendor.casefold():
        return ("die", 0.0) if similar_boards(spec, other) else ("board", _OTHER_BOARD)
    years = abs(own.since - others.since) if own.since and others.since else 2.0 * _YEARS_A_GENERATION
    far = years / _YEARS_A_GENERATION
    far += _CLASS_APART if own.stacked_memory != others.stacked_memory else 0.0
    if spec.vendor.casefold() != other.vendor.casefold():
        return "maker", far + _VENDOR_APART
    alike = own.stacked_memory and others.stacked_memory and years <= 2.0 * _YEARS_A_GENERATION
    return ("generation" if alike else "class"), far


def _power_per_peak(spec: DeviceSpec) -> float | None:
    """Return the power limit over the 16-bit peak of the matrix units, or over that of the vector units (J/FLOP)."""
    peaks = ("matrix_flops_per_s.bfloat16", "matrix_flops_per_s.float16", "vector_flops_per_s.float32")
    power, peak = spec.values.get("max_power_w"), next((spec.values[p] for p in peaks if p in spec.values), None)
    return None if power is None or peak is None else power.value / peak.value


def similar_boards(spec: DeviceSpec, other: DeviceSpec) -> bool:
    """Return whether two boards of one die share the class of their memory and the power they have for their peak.

    What the datasheet does not state counts as similar.
    """
    if spec.lineage.stacked_memory != other.lineage.stacked_memory:
        return False
    own, others = (s.values.get("inband_ecc") for s in (spec, other))
    if (own is not None and own.value > 0.0) != (others is not None and others.value > 0.0):
        return False
    power, power_other = _power_per_peak(spec), _power_per_peak(other)
    return power is None or power_other is None or 1.0 / _POWER_APART <= power / power_other <= _POWER_APART


def same_units(spec: DeviceSpec, other: DeviceSpec) -> bool:
    """Return whether the same number of compute units is enabled, so that waves of tiles end at the same sizes."""
    own, others = spec.values.get("compute_units"), other.values.get("compute_units")
    return own is None or others is None or own.value == others.value


def relatives(spec: DeviceSpec, measured: Sequence[DeviceSpec]) -> list[Relative]:
    """Return the measured devices as relatives of ``spec``, nearest first, with weights exp(-generations apart)."""
    related = [(other.sku, *relation(spec, other)) for other in measured if other.sku != spec.sku]
    related = sorted(related, key=lambda entry: (RELATIONS.index(entry[1]), entry[2], entry[0]))
    return [Relative(sku, name, math.exp(-far), sku == spec.base) for sku, name, far in related]


def closest(related: Sequence[Relative]) -> list[Relative]:
    """Return the device itself, the relatives of the same die, of the same maker, or all, with weights that sum to 1.

    They are the first of these that are not empty. The device itself is a relative of hardware that is not for sale.

    Numbers of another maker depend on another library and on another campaign's host.
    """
    kept = [relative for relative in related if relative.own]
    kept = kept or [relative for relative in related if relative.relation in SAME_DIE]
    kept = kept or [relative for relative in related if relative.relation != "maker"] or list(related)
    total = sum(relative.weight for relative in kept)
    return [replace(r, weight=r.weight / total) for r in kept]


def transferred_values(
    related: Sequence[Relative],
    overlays: Mapping[str, Overlay],
    names: Sequence[str],
    carried: Callable[[Relative, str, float], float],
    stated: Mapping[str, SourcedValue],
    largest: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, SourcedValue]:
    """Return the parameters ``names`` as weighted geometric means of the values in the relatives' overlays.

    Those that the device itself states (``stated``) are returned as they are, in the same order as the others.

    ``carried`` expresses a relative's value for the device in question, given its path. The range of each value is that
    of the relatives, and at least a fifth in either direction; a value of a similar board of the same die has none, nor
    one of another board that holds as it is. No value exceeds that of its parameter in ``largest``.
    Where the error of the whole prediction was found by leaving out whole devices (``TransferredResidual``), that error
    includes this range.
    """
    paths = dict.fromkeys(
        path for relative in related for path in overlays[relative.sku].values if path.partition(".")[0] in names
    )
    values: dict[str, SourcedValue] = {}
    groups: dict[tuple[str, ...], list[Relative]] = {}
    for path in paths:
        if path in stated:
            values[path] = stated[path]
            continue
        stating = tuple(r.sku for r in related if path in overlays[r.sku].values)
        if stating not in groups:
            groups[stating] = closest([r for r in related if r.sku in stating])
        found = _mean(path, groups[stating], overlays, carried)
        most = largest.get(path.partition(".")[0], math.inf)
        if found.high is not None and found.high > most:
            found = replace(found, value=min(found.value, most), high=most)
        values[path] = found
    return values


def _mean(
    path: str,
    have: Sequence[Relative],
    overlays: Mapping[str, Overlay],
    carried: Callable[[Relative, str, float], float],
) -> SourcedValue:
    """Return one parameter from the relatives that state it; see ``transferred_values``."""
    measured = [overlays[r.sku].values[path].value for r in have]
    numbers = [carried(r, path, number) for r, number in zip(have, measured, strict=True)]
    if min(numbers) > 0.0:
        value = math.exp(sum(r.weight * math.log(x) for r, x in zip(have, numbers, strict=True)))
    else:
        value = sum(r.weight * x for r, x in zip(have, numbers, strict=True))
    names_of = ", ".join(r.sku for r in have)
    if have[0].relation == "die" or (have[0].relation in SAME_DIE and numbers == measured):
        source = overlays[have[0].sku].values[path].source
        return SourcedValue(value, Provenance.PUBLISHED, f"{names_of}, the same die: {source}")
    reason = f"transferred from {names_of}, weighted by nearness of vendor, generation and memory"
    if have[0].relation in SAME_DIE:
        reason = f"{names_of} has the same die on a board with other rates, memory or power"
    low, high = min(*numbers, value / _LEAST_RANGE), max(*numbers, value * _LEAST_RANGE)
    return SourcedValue(value, Provenance.ASSUMED, "other devices' measurements", low, high, reason)
