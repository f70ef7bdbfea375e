"""Memory of an emulated device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from windtunnel.emulator.device.tracked_memory import TrackedBuffer
from windtunnel.emulator.races.footprint import Extent
from windtunnel.runtime.interface import MemoryKind

UNWRITTEN = 0xFF
"""What the host gets for bytes that nothing has written: floats are NaN, integers -1 or their largest value."""


@dataclass(eq=False)
class EmulatedMemory:
    """A memory allocation.

    Attributes:
        kind: Device, pinned or unified memory.
        size: Its size in bytes.
        address: Its address, unique in the context.
        data: Its contents; shape (size,), bytes.
        tracked: Its accesses by streams, and the program's line that allocated it.
        on_device: Whether the pages of unified memory are on the device; None until either side accesses them.
        freed: Whether it was freed.
        freed_at: The program's line that freed it.
        uninitialised: The elements that nothing has written: True for all, False for none, or a flag for each.
        is_static: Whether it is a variable of a loaded module, which no program frees.
    """

    kind: MemoryKind
    size: int
    address: int
    data: np.ndarray
    tracked: TrackedBuffer
    on_device: bool | None = None
    freed: bool = False
    freed_at: tuple[str, int] | None = None
    uninitialised: np.ndarray | bool = True
    is_static: bool = False
    _full_extent: Extent | None = None
    _written_bytes: int = 0
    """Bytes at the beginning that were written, as long as the size of the elements is not known."""

    @property
    def allocated_at(self) -> tuple[str, int]:
        """The program's line that allocated it."""
        return self.tracked.allocated_at

    @property
    def full_extent(self) -> Extent:
        """The extent of all its bytes."""
        if self._full_extent is None:
            self._full_extent = Extent(0, self.size)
        return self._full_extent

    def adopt(self, data: np.ndarray) -> None:
        """Take bytes of the program's own array as the contents, before anything has accessed it."""
        self.data, self.uninitialised = data, False

    def mark_written(self, size: int, begin: int = 0) -> None:
        """Record that ``size`` bytes were written, from byte ``begin`` on."""
        if begin:
            if self.uninitialised is not False:
                known = self.size // len(self.uninitialised) if isinstance(self.uninitialised, np.ndarray) else 4
                itemsize = 1 if begin % known or size % known else known
                self.uninitialised_mask(itemsize)[begin // itemsize : (begin + size) // itemsize] = False
        elif size >= self.size:
            self.uninitialised = False
        elif isinstance(self.uninitialised, np.ndarray):
            self.uninitialised[: size * len(self.uninitialised) // self.size] = False
        else:
            self._written_bytes = max(self._written_bytes, size)

    def uninitialised_mask(self, itemsize: int) -> np.ndarray:
        """Return a flag for each element of ``itemsize`` bytes, set if nothing has written it. Writes must clear it."""
        if isinstance(self.uninitialised, bool):
            self.uninitialised = np.full(self.size // itemsize, self.uninitialised)
            self.uninitialised[: self._written_bytes // itemsize] = False
        elif len(self.uninitialised) != self.size // itemsize:
            # Another kernel has accessed elements of another size. One is uninitialised if a byte of it is.
            known = self.size // max(len(self.uninitialised), 1)
            of_bytes = np.repeat(self.uninitialised, known)[: self.size // itemsize * itemsize]
            of_bytes = np.pad(of_bytes, (0, self.size // itemsize * itemsize - len(of_bytes)))
            self.uninitialised = np.asarray(of_bytes.reshape(-1, itemsize).any(axis=1))
        return self.uninitialised

    def flags_of(self, view: np.ndarray, *, by_byte: bool = False) -> np.ndarray | None:
        """Return flags of the elements of a view of `data` that nothing has written, as a view; None if all were.

        There is a last dimension more with a flag for each part of an element, where parts are known: each byte with
        ``by_byte``, and of a view whose elements do not lie at multiples of their size.
        """
        if self.uninitialised is False or not view.size:
            return None
        start: int = view.__array_interface__["data"][0] - self.data.__array_interface__["data"][0]
        unit = math.gcd(view.itemsize, start, *view.strides)
        if isinstance(self.uninitialised, np.ndarray):
            unit = math.gcd(unit, self.size // len(self.uninitialised))
        unit = 1 if by_byte or unit < view.itemsize else unit
        shape, strides = view.shape, tuple(stride // unit for stride in view.strides)
        if unit < view.itemsize:
            shape, strides = (*shape, view.itemsize), (*strides, 1)
        found: np.ndarray = np.ndarray(shape, bool, self.uninitialised_mask(unit), start // unit, strides)
        return found

    def mark_view(self, view: np.ndarray, selected: Any = None, copied: np.ndarray | None = None) -> None:
        """Record that elements of a view of `data` were written.

        ``selected``: the index of these elements; None for all. ``copied``: flags of those that still have no value.
        """
        if copied is not None and self.uninitialised is False:
            self.uninitialised_mask(view.itemsize)
        elif copied is None and view.nbytes == self.size and selected is None:
            self.mark_written(self.size)
            return
        flags = self.flags_of(view)
        if flags is None:
            return
        if copied is None:
            flags[... if selected is None else selected] = False
        else:
            if copied.ndim != flags.ndim:  # one of them is for the parts of elements
                copied = np.asarray(copied.any(axis=-1)) if copied.ndim > flags.ndim else copied[..., None]
            flags[...] = copied
        self.recount()

    def recount(self) -> None:
        """Forget the flags if everything has been written."""
        if isinstance(self.uninitialised, np.ndarray) and not self.uninitialised.any():
            self.uninitialised = False

    def unwritten_bytes(self, begin: int, end: int) -> np.ndarray | bool:
        """Return which bytes from ``begin`` to ``end`` nothing has written: all, none, or a flag for each."""
        if self.uninitialised is False:
            return False
        flags = np.zeros(end - begin, bool)
        if isinstance(self.uninitialised, bool):
            flags[max(self._written_bytes - begin, 0) :] = True
        elif len(self.uninitialised):
            itemsize = self.size // len(self.uninitialised)
            first = begin // itemsize
            known = np.repeat(self.uninitialised[first : -(-end // itemsize)], itemsize)[begin - first * itemsize :]
            flags[: len(known)] = known[: len(flags)]  # the bytes after the last element are padding
        return flags if flags.any() and not flags.all() else bool(flags.any())

    def copied(self, begin: int, end: int) -> np.ndarray:
        """Return what the host gets from bytes ``begin`` to ``end``; those that nothing has written are not zero."""
        copied, unwritten = self.data[begin:end].copy(), self.unwritten_bytes(begin, end)
        if unwritten is not False:
            copied[... if unwritten is True else unwritten] = UNWRITTEN
        return copied

    def copy_initialisation(self, other: EmulatedMemory, size: int) -> None:
        """Record that the first ``size`` bytes of other memory were copied here, written or not."""
        if other.uninitialised is False:
            self.mark_written(size)
        elif isinstance(other.uninitialised, np.ndarray):
            itemsize = other.size // len(other.uninitialised)
            count = size // itemsize
            self.uninitialised_mask(itemsize)[:count] = other.uninitialised[:count]
        else:
            self.mark_written(min(size, other._written_bytes))
