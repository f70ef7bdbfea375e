"""Typed memory: what is copied must be of a buffer's element type, and fit into it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windtunnel.core.errors import InvalidArgument, Leak, UseAfterFree, caller
from windtunnel.runtime.codes import code_of

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.interface import Memory, Stream


class Buffer:
    """``shape`` elements of ``dtype`` in an accelerator's memory; a kernel takes it as an array."""

    def __init__(self, owner: Accelerator, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.owner, self.memory, self.shape, self.dtype = owner, memory, shape, dtype

    @property
    def freed(self) -> bool:
        """Whether its memory was given back, by ``free``, by a reset or with the device."""
        return self.memory.freed

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"<{self.dtype} {shape} on {self.owner.name}{', freed' if self.freed else ''}>"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """A buffer lies on a device: it is no array of the host's."""
        file, line = caller()
        raise self._wrong("read", f"at {file}:{line} a device's buffer is no NumPy array: to_host() copies it")

    def check(self, array: np.ndarray, operation: str, *, written: bool = False) -> None:
        """InvalidArgument where ``array`` is of another type than this, holds more, or is to be written and cannot."""
        self.alive(operation)
        if not isinstance(array, np.ndarray):
            raise self._wrong(operation, f"a {type(array).__name__} is no array of the host's")
        if written and not array.flags.writeable:
            raise self._wrong(operation, "the array is read-only")
        if array.dtype != self.dtype:
            raise self._wrong(operation, f"{array.dtype} elements for a buffer of {self.dtype}")
        if array.size > self.size:
            raise self._wrong(operation, f"{array.size:,} elements for a buffer of {self.size:,}")

    def fits(self, other: Buffer, operation: str) -> None:
        """InvalidArgument where ``other`` is of another type than this, or of another device, or holds more."""
        other.alive(operation)
        self.alive(operation)
        if other.owner is not self.owner or other.dtype != self.dtype or other.size > self.size:
            raise self._wrong(operation, f"{other!r} does not fit into {self!r}")
        if other.memory is self.memory:
            raise self._wrong(operation, f"{self!r} overlaps itself")

    def alive(self, operation: str, what: str = "") -> None:
        """UseAfterFree once the buffer was freed, or its device reset. ``what``: the argument that it is, in words."""
        if self.freed:
            code = code_of(self.owner.info.api, InvalidArgument)
            lines = {"allocated": self.memory.allocated_at, "freed": self.memory.freed_at}
            known = "".join(f", {done} at {at[0]}:{at[1]}" for done, at in lines.items() if at is not None)
            problem = f"the buffer was freed: {what}{self!r}{known}"
            raise UseAfterFree(problem, operation=operation, device=self.owner.name, code=code)

    def copy_from(self, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Host to device: its first elements become those of ``array``."""
        self.owner.copy_in(self, array, stream, pinned=pinned)

    def copy_to(self, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Device to host: ``array`` becomes its first elements."""
        self.owner.copy_out(array, self, stream, pinned=pinned)

    def copy_within(self, other: Buffer, stream: Stream | None = None) -> None:
        """Device to device: its first elements become those of ``other``."""
        self.owner.copy_within(self, other, stream)

    def host(self) -> np.ndarray:
        """Unified memory, or pinned memory, as the host sees it, once the device has done with it."""
        self.alive("host access")
        if self.memory.kind == "device":
            raise self._wrong("host access", f"{self.memory.kind} memory, which the host does not see")
        return self.owner.context.host_view(self.memory, self.dtype, self.shape)

    def free(self) -> None:
        """Give the memory back; InvalidArgument the second time."""
        self.alive("free")
        self.owner.context.free(self.memory)

    def _wrong(self, operation: str, problem: str) -> InvalidArgument:
        code = code_of(self.owner.info.api, InvalidArgument)
        return InvalidArgument(problem, operation=operation, device=self.owner.name, code=code)


_SHOWN = 8
"""Lines that a leak names in its message; ``lines`` has all."""


def leak_of(device: str, left: Sequence[tuple[int, str, int]], running: Sequence[str]) -> Leak | None:
    """What a device was left with: (bytes, file, line) of each allocation, ring kernels; None where with nothing."""
    if not left and not running:
        return None
    what = [f"{sum(size for size, _, _ in left):,} bytes allocated"] if left else []
    what += [f"ring kernel '{name}' running" for name in running]
    lines: Counter[tuple[str, int]] = Counter()
    times: Counter[tuple[str, int]] = Counter()
    for size, file, line in left:
        lines[file, line] += size
        times[file, line] += 1
    said = [
        f"{size:,} bytes at {file}:{line}" + (f" ({times[file, line]:,} times)" if times[file, line] > 1 else "")
        for (file, line), size in lines.most_common(_SHOWN)
    ]
    if len(lines) > _SHOWN:
        said.append(f"{len(lines) - _SHOWN:,} lines more")
    most = lines.most_common(1)[0][0][0] if lines else None
    return Leak(
        f"{device} was left with {' and '.join(what)}" + (f": {', '.join(said)}" if said else ""),
        file=most,
        lines=tuple(sorted(line for file, line in lines if file == most)),
    )
