"""Memory of an emulated device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from windtunnel.emulator.device.tracked_memory import TrackedBuffer
from windtunnel.emulator.races.footprint import Extent
from windtunnel.runtime.interface import MemoryKind


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
