"""Typed memory of a device: a copy must have the buffer's element type and must fit into it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from windtunnel.core.errors import InvalidArgument, Leak, UseAfterFree, caller
from windtunnel.runtime.interface import Context, Memory, Stream


class BufferOwner(Protocol):
    """The accelerator that a buffer belongs to, as far as a buffer uses it."""

    context: Context

    @property
    def name(self) -> str:
        """The device's label."""

    def make_error(self, error: type[Any], operation: str, problem: str) -> Any:
        """Create an error of this device, with the API's code."""

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Copy from the host to the device."""

    def copy_out(
        self, array: np.ndarray, buffer: Buffer, stream: Stream | None = None, *, pinned: bool = False
    ) -> None:
        """Copy from the device to the host."""

    def copy_within(self, to: Buffer, buffer: Buffer, stream: Stream | None = None) -> None:
        """Copy on the device."""


class Buffer:
    """An array of ``shape`` and ``dtype`` in an accelerator's memory. A kernel takes it as an array."""

    start = 0
    """The byte of the memory at which it begins; see `Position`."""

    def __init__(self, owner: BufferOwner, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.owner, self.memory, self.shape, self.dtype = owner, memory, shape, dtype

    def viewed(self, dtype: np.dtype[Any]) -> Buffer:
        """Return all of the memory as an array of another type, without the bytes that do not fill an element."""
        return Buffer(self.owner, self.memory, (self.memory.size // dtype.itemsize,), dtype)

    @property
    def freed(self) -> bool:
        """Whether the memory was freed: by ``free``, by a reset, or because the device was closed."""
        return self.memory.freed

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"<{self.dtype} {shape} on {self.owner.name}{', freed' if self.freed else ''}>"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Refuse the conversion to a NumPy array, because the data are on a device."""
        file, line = caller()
        raise self._wrong("read", f"a device buffer is used as a NumPy array at {file}:{line}; copy it with to_host()")

    def check(self, array: np.ndarray, operation: str, *, written: bool = False) -> None:
        """Check that ``array`` can be copied to this buffer, or, if ``written``, from it.

        The array has the buffer's shape, or is the first part of it along the first axis, or has no elements. Raises
        InvalidArgument if it has another shape or element type, or is read-only and must be written.
        """
        self.check_not_freed(operation)
        if not isinstance(array, np.ndarray):
            raise self._wrong(operation, f"expected a NumPy array, got {type(array).__name__}")
        if written and not array.flags.writeable:
            raise self._wrong(operation, "the array is read-only")
        if array.dtype != self.dtype:
            raise self._wrong(operation, f"{array.dtype} elements for a buffer of {self.dtype}")
        if array.size and not self._begins_with(array.shape or (1,)):
            raise self._wrong(operation, f"an array of shape {array.shape} for a buffer of shape {self.shape}")

    def _begins_with(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of a shape is the first part of the buffer, along the first axis."""
        return len(shape) == len(self.shape) and shape[1:] == self.shape[1:] and shape[0] <= self.shape[0]

    def check_fits(self, other: Buffer, operation: str) -> None:
        """Check that ``other`` can be copied into this buffer.

        Raises InvalidArgument if the two differ in device or element type, ``other`` is not of the shape of this
        buffer's first part, or both share memory.
        """
        other.check_not_freed(operation)
        self.check_not_freed(operation)
        if other.owner is not self.owner or other.dtype != self.dtype or not self._begins_with(other.shape):
            raise self._wrong(operation, f"{other!r} does not fit into {self!r}")
        if other.memory is self.memory:
            raise self._wrong(operation, f"{self!r} overlaps itself")

    def check_not_freed(self, operation: str, what: str = "") -> None:
        """Raise UseAfterFree if the buffer was freed or its device was reset.

        ``what`` are words before the buffer in the message, such as ``"argument 0 is "``.
        """
        if self.freed:
            lines = {"allocated": self.memory.allocated_at, "freed": self.memory.freed_at}
            places = "".join(f", {done} at {at[0]}:{at[1]}" for done, at in lines.items() if at is not None)
            problem = f"the buffer was freed: {what}{self!r}{places}"
            raise self.owner.make_error(UseAfterFree, operation, problem)

    def copy_from(self, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Copy ``array`` from the host to the first elements of this buffer."""
        self.owner.copy_in(self, array, stream, pinned=pinned)

    def copy_to(self, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Copy the first elements of this buffer to ``array`` on the host."""
        self.owner.copy_out(array, self, stream, pinned=pinned)

    def copy_within(self, other: Buffer, stream: Stream | None = None) -> None:
        """Copy ``other`` to the first elements of this buffer, on the device."""
        self.owner.copy_within(self, other, stream)

    def host(self) -> np.ndarray:
        """Return unified or pinned memory as an array of the host, after the device has finished with it."""
        self.check_not_freed("host access")
        if self.memory.kind == "device":
            raise self._wrong("host access", f"the host cannot access {self.memory.kind} memory")
        return self.owner.context.host_view(self.memory, self.dtype, self.shape)

    def free(self) -> None:
        """Free the memory. Raises UseAfterFree if it was freed before."""
        self.check_not_freed("free")
        self.owner.context.free(self.memory)

    def _wrong(self, operation: str, problem: str) -> InvalidArgument:
        error: InvalidArgument = self.owner.make_error(InvalidArgument, operation, problem)
        return error


class Position(Buffer):
    """Memory of ``shape`` and ``dtype`` from ``start`` (bytes) on, as a copy's side or as the pointer of a kernel in C.

    Only emulated devices have it. A kernel may access all of the memory, also what lies before the pointer. ``span``:
    the bytes from ``start`` on that the program passes; the cost of a launch is that of moving them.
    """

    def __init__(
        self, owner: BufferOwner, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any], start: int,
        span: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(owner, memory, shape, dtype)
        self.start, self.span = start, span


def begin_of(buffer: Buffer) -> dict[str, int]:
    """Return the argument of a copy that does not begin at the start of the memory."""
    return {"begin": buffer.start} if buffer.start else {}


_MAX_SHOWN = 8
"""The number of source lines that a leak's message names; its ``lines`` has all."""


def leak_of(device: str, allocations: Sequence[tuple[int, str, int]], running: Sequence[str]) -> Leak | None:
    """Return the finding for memory and ring kernels that a program left behind, or None if it left nothing.

    Args:
        device: The device's label.
        allocations: (bytes, file, line) of each allocation that was not freed.
        running: The names of ring kernels that still run.
    """
    if not allocations and not running:
        return None
    what = [f"{sum(size for size, _, _ in allocations):,} bytes allocated"] if allocations else []
    what += [f"ring kernel '{name}' running" for name in running]
    lines: Counter[tuple[str, int]] = Counter()
    times: Counter[tuple[str, int]] = Counter()
    for size, file, line in allocations:
        lines[file, line] += size
        times[file, line] += 1
    shown = [
        f"{size:,} bytes at {file}:{line}" + (f" ({times[file, line]:,} times)" if times[file, line] > 1 else "")
        for (file, line), size in lines.most_common(_MAX_SHOWN)
    ]
    if len(lines) > _MAX_SHOWN:
        shown.append(f"{len(lines) - _MAX_SHOWN:,} more lines")
    largest = lines.most_common(1)[0][0][0] if lines else None
    return Leak(
        f"{device} was left with {' and '.join(what)}" + (f": {', '.join(shown)}" if shown else ""),
        file=largest,
        lines=tuple(sorted(line for file, line in lines if file == largest)),
    )
