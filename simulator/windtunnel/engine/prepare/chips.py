"""Chips that several devices of a fleet reach: one processor behind several APIs, for example.

The power of such a chip is counted once. Its devices share its idle power, and what they draw together never exceeds
the chip's limit (`engine.results.chips`). Jobs on them do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class ChipClass(Protocol):
    """The devices of one fleet entry, as far as their chips concern them."""

    @property
    def chip(self) -> str | None:
        """The name of the chip that the first device reaches; None if no other entry reaches it."""

    @property
    def first(self) -> int:
        """The number of the first device."""

    @property
    def count(self) -> int:
        """The number of devices."""


@dataclass(frozen=True)
class Chip:
    """A chip that several devices reach; ``devices`` are their numbers, in the order of the fleet."""

    name: str
    devices: tuple[int, ...]


def shared_chips(classes: Sequence[ChipClass]) -> list[Chip]:
    """Return the chips that several devices reach.

    The k-th devices of all entries with the same chip reach one chip, and the devices of one entry reach different
    chips.
    """
    groups: dict[str, list[ChipClass]] = {}
    for fleet_class in classes:
        if fleet_class.chip is not None:
            groups.setdefault(fleet_class.chip, []).append(fleet_class)
    chips = []
    for name, group in groups.items():
        shared = sorted(fleet_class.count for fleet_class in group)[-2] if len(group) > 1 else 0
        for k in range(shared):
            devices = tuple(c.first + k for c in group if k < c.count)
            chips.append(Chip(name if shared == 1 else f"{name}-{k}", devices))
    return chips
