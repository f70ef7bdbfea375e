"""A named collection with an error that helps: the one way operations, kinds and policies are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from windtunnel.core.errors import InputError, nearest, one_of

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Names to things, in the order they were added. A name is given once."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> T:
        """Add ``thing`` under ``name``; a name given twice is a programming error."""
        if name in self._things:
            raise ValueError(f"{self.noun} {name!r} is registered twice")
        self._things[name] = thing
        return thing

    def find(self, name: str) -> T:
        """The thing called ``name``, or an InputError that names the nearest right one."""
        try:
            return self._things[name]
        except KeyError:
            raise InputError(
                f"unknown {self.noun} '{name}'",
                expected=one_of(self._things),
                nearest=nearest(name, self._things),
            ) from None

    def __getitem__(self, name: str) -> T:
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
