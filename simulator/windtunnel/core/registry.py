"""A collection of named items, such as operations, kinds and policies, with helpful errors for unknown names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from windtunnel.core.errors import InputError, list_choices, nearest

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to items, in the order in which they were added. Names are unique."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._items: dict[str, T] = {}

    def add(self, name: str, item: T) -> T:
        """Add ``item`` under ``name`` and return it; raises ValueError if the name exists already."""
        if name in self._items:
            raise ValueError(f"{self.noun} {name!r} is registered twice")
        self._items[name] = item
        return item

    def find(self, name: str) -> T:
        """Return the item ``name``; raises InputError with the nearest right name."""
        try:
            return self._items[name]
        except KeyError:
            raise InputError(
                f"unknown {self.noun} '{name}'", expected=list_choices(self._items), nearest=nearest(name, self._items)
            ) from None

    def __getitem__(self, name: str) -> T:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
