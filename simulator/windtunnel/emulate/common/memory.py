"""Memory of an emulated device, which is freed when nothing refers to it any more."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from windtunnel.emulate import session
from windtunnel.emulate.common.current import current_accelerator, current_index
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import MemoryKind

ALLOCATIONS: weakref.WeakSet[Allocation] = weakref.WeakSet()
"""The memory of the program that is in use."""


class Allocation:
    """Memory of a device, which is freed when nothing refers to it any more. Raises DeviceOutOfMemory.

    ``owned``: False for memory that the program frees itself. ``host``: bytes of the host that the memory shares.
    """

    def __init__(
        self,
        size: int,
        kind: MemoryKind = "device",
        device: int | None = None,
        *,
        owned: bool = True,
        host: np.ndarray | None = None,
    ) -> None:
        self.device = current_index() if device is None else device
        self.accelerator: Accelerator = session.current.accelerator(self.device)
        self.size, self.kind = size, kind
        ALLOCATIONS.add(self)
        self.buffer: Buffer | None = None
        if size:
            self.buffer = self.accelerator.empty(size, np.uint8, kind=kind)
            if host is not None:
                memory: Any = self.buffer.memory
                memory.adopt(host)
            if owned:
                weakref.finalize(self, free, self.accelerator, self.buffer.memory)

    @property
    def address(self) -> int:
        """The address of its first byte."""
        return 0 if self.buffer is None else int(self.buffer.memory.address)

    def bytes(self) -> np.ndarray:
        """Return its contents."""
        if self.buffer is None:
            return np.empty(0, np.uint8)
        memory = self.buffer.memory
        if memory.kind != "device":
            view: np.ndarray = self.accelerator.context.host_view(memory, np.dtype(np.uint8), (self.size,))
            return view
        return self.contents()

    def contents(self) -> np.ndarray:
        """Return its contents as the device sees them, without waiting for it."""
        if self.buffer is None:
            return np.empty(0, np.uint8)
        self.buffer.check_not_freed("access")
        data: np.ndarray = self.accelerator.context.view(self.buffer.memory, np.dtype(np.uint8), (self.size,))
        return data

    def host_reads(self, array: np.ndarray, *, raises: bool = True) -> None:
        """Raise MissingSync if the host reads a view of its contents that an unfinished kernel writes.

        ``raises``: otherwise it is reported at once, and raised where the host next waits.
        """
        if self.buffer is not None:
            context: Any = self.accelerator.context
            context.host_reads(self.buffer.memory, array, raises=raises)

    def host_wrote(self) -> None:
        """Raise MissingSync if the host has just changed what an unfinished operation uses."""
        if self.buffer is not None:
            context: Any = self.accelerator.context
            context.host_wrote(self.buffer.memory)

    def mark_written(self, view: np.ndarray | None = None) -> None:
        """Record that its elements have values: all, or those of a view of its contents."""
        if self.buffer is not None:
            memory: Any = self.buffer.memory
            if view is None:
                memory.mark_written(self.size)
            else:
                memory.mark_view(view)

    def unwritten(self, view: np.ndarray) -> np.ndarray | None:
        """Return a flag for each byte of a view of its contents, set if nothing has written it; None if all were.

        The flags are the memory's own, and may be changed.
        """
        memory: Any = None if self.buffer is None else self.buffer.memory
        flags: np.ndarray | None = None if memory is None else memory.flags_of(view, by_byte=True)
        return flags


def free(accelerator: Accelerator, memory: Any) -> None:
    """Free memory of a device that is still open."""
    if not accelerator.closed and not memory.freed:
        accelerator.context.free(memory)


def allocation_at(address: int) -> Allocation | None:
    """Return the memory in use that an address points into; None if there is none.

    Another device of the process, such as that of another test, may use the same address; the current one's is meant.
    """
    in_use = (a for a in list(ALLOCATIONS) if a.buffer is not None and not a.buffer.freed)
    found = [a for a in in_use if a.address <= address < a.address + max(a.size, 1)]
    own = current_accelerator() if len(found) > 1 else None
    return next((a for a in found if a.accelerator is own), found[0] if found else None)
