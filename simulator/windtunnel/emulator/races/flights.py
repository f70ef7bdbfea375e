"""Asynchronous copies that are in flight: which elements they read and write, and for whom they are not there yet.

A copy is executed when it begins. Until its thread waits for it, whoever reads or writes an element that it writes, or
writes an element that it reads, races with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.common.symbolic import materialise
from windtunnel.emulator.races.findings import READ, AccessReport, in_flight, never_awaited
from windtunnel.language import ir


class FlightArray(Protocol):
    """An array of a kernel, as far as copies in flight concern it."""

    launch: Launch
    name: str
    copies: list[Copies]

    def index_of(self, position: int) -> int | tuple[int, ...]:
        """Return the index of the element at a position of the flat array."""


@dataclass
class Copies:
    """Copies that one statement of many threads has begun.

    Attributes:
        positions: The elements, one for each thread; shape (threads,).
        owners: The threads' numbers in the launch.
        groups: For each thread, the number of the group that the copy belongs to.
        line: The statement.
        writes: Whether the elements are written, or read.
    """

    positions: np.ndarray
    owners: np.ndarray
    groups: np.ndarray
    line: int
    writes: bool


class Flights:
    """The copies in flight of the threads that are executed together."""

    def __init__(self) -> None:
        self._arrays: list[FlightArray] = []
        self._groups: dict[int, int] = {}
        """For each thread, the groups that it has committed."""

    def begin(self, array: FlightArray, positions: np.ndarray, owners: np.ndarray, line: int, *, writes: bool) -> None:
        """Record that copies begin: one for each thread."""
        groups = np.array([self._groups.get(int(owner), 0) + 1 for owner in owners])
        array.copies.append(Copies(np.array(positions), np.array(owners), groups, line, writes))
        if not any(known is array for known in self._arrays):
            self._arrays.append(array)

    def commit(self, owners: Sequence[int]) -> None:
        """Record that the copies of threads since their last commit are a group."""
        for owner in owners:
            self._groups[owner] = self._groups.get(owner, 0) + 1

    def wait(self, owners: np.ndarray, left: int) -> None:
        """Record that threads wait until at most ``left`` of their groups are in flight."""
        self._end({int(owner): self._groups.get(int(owner), 0) - left for owner in owners})

    def end(self, owners: np.ndarray, last: Any) -> None:
        """Record that threads wait for their groups up to the one of a number, which may differ between threads."""
        numbers = np.broadcast_to(np.asarray(materialise(last)), owners.shape)
        self._end(dict(zip(owners.tolist(), numbers.tolist(), strict=True)))

    def finish(self, program: ir.Program, *, checked: bool) -> None:
        """Raise DataRace if a copy is in flight at the end of a kernel that has to wait for its copies."""
        for array in self._arrays if checked and program.awaits_copies else ():
            for copies in array.copies:
                at = int(np.argmin(copies.owners))
                copy = AccessReport(int(copies.owners[at]), "writes" if copies.writes else "reads", copies.line)
                raise never_awaited(array.launch, array.name, array.index_of(int(copies.positions[at])), copy)

    def _end(self, ended: Mapping[int, int]) -> None:
        for array in self._arrays:
            remaining = []
            for copies in array.copies:
                last = np.array([ended.get(int(owner), 0) for owner in copies.owners])
                kept = copies.groups > last
                if kept.any():
                    positions, threads, groups = copies.positions[kept], copies.owners[kept], copies.groups[kept]
                    remaining.append(Copies(positions, threads, groups, copies.line, copies.writes))
            array.copies[:] = remaining


def check_flights(array: FlightArray, kind: str, positions: np.ndarray, threads: np.ndarray, line: int) -> None:
    """Raise DataRace if threads access elements that a copy in flight writes, or write elements that one reads."""
    for copies in array.copies:
        if kind == READ and not copies.writes:
            continue
        hit = np.isin(positions, copies.positions)
        if not hit.any():
            continue
        at = int(np.flatnonzero(hit)[0])
        place = int(positions[at])
        owner = int(copies.owners[np.flatnonzero(copies.positions == place)[0]])
        access = AccessReport(int(threads[at]), kind, line)
        copy = AccessReport(owner, "writes" if copies.writes else "reads", copies.line)
        raise in_flight(array.launch, array.name, array.index_of(place), access, copy)
