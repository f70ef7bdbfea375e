"""Kernels of a program: a function, and the work of a launch, from which the emulator computes its cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, NoReturn, overload

import numpy as np

from windtunnel.core.columns import Columns
from windtunnel.core.errors import InputError
from windtunnel.core.stencil import stated, with_form
from windtunnel.runtime.interface import Dims

Work = Columns | tuple[str, Columns]
"""An operation by its columns, as `windtunnel predict` takes it: ``{"op": "vector_add", "n": 1_000_000}``.

Or by its name and columns: ``("elementwise", {"op": "relu", "rows": 64, "width": 64})`` has a column ``op`` of its own.
"""


@dataclass(eq=False)
class ArrayOperation:
    """A function of whole arrays that states which elements of its buffers it reads and writes.

    ``action`` takes no arguments. ``reads`` and ``writes`` list what it accesses: the number of a launch's argument, a
    view of its contents, and an index of that view, or None for all of it. A launch of it is not remembered, because a
    program makes many of them.
    """

    name: str
    action: Callable[[], None]
    reads: Sequence[tuple[int, np.ndarray, Any]] = ()
    writes: Sequence[tuple[int, np.ndarray, Any]] = ()
    copies: bool = False
    """Whether it copies the elements of the first array that it reads; those that nothing has written may be among."""

    def __post_init__(self) -> None:
        self.__name__ = self.name

    def __call__(self, *_: Any) -> None:
        """Execute it."""
        self.action()


@dataclass(eq=False)
class Kernel:
    """A function to be launched on devices.

    It takes buffers as arrays and scalars as numbers, and works on whole arrays. ``work`` is the operation of a launch
    (see ``Work``), or a function of the arguments that returns it; several operations execute one after another.
    Default: the work of a kernel that is written thread by thread is counted; a function of whole arrays moves all
    array arguments once.
    """

    function: Callable[..., Any]
    work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None
    registers: int = 0
    """The 32-bit registers of a thread, as a device's compiler reports them; 0 if unknown."""

    def __post_init__(self) -> None:
        if isinstance(self.registers, bool) or not isinstance(self.registers, int) or self.registers < 0:
            raise InputError(f"a kernel's registers are {self.registers!r}", expected="a number from 0")
        if not callable(self.function):
            raise InputError(f"{self.function!r} is not a kernel", expected="a function of whole arrays")
        if not isinstance(self.function, ArrayOperation):
            update_wrapper(self, self.function)
        named = getattr(self.function, "func", self.function)  # a partial has the name of its function
        self.name = str(getattr(named, "__name__", type(named).__name__))
        """The name of the function."""
        self.constant = (
            self.work is not None and not callable(self.work) and not isinstance(self.function, ArrayOperation)
        )
        """Whether every launch has the same work."""
        self.once = isinstance(self.function, ArrayOperation)
        """Whether it is launched once, so that nothing is kept for later launches."""
        self.allowed_shared_bytes = 0
        """Shared memory (bytes) of a block that the program has allowed beyond the API's usual limit; see CUDA's
        attribute ``MaxDynamicSharedMemorySize``."""

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain function."""
        return self.function(*arguments)

    def __getitem__(self, configuration: Any) -> NoReturn:
        """Raise InputError: Numba's ``kernel[grid, block](...)`` does not name a device."""
        raise InputError(
            f"'{self.name}' is not launched by kernel[grid, block](...)",
            expected=f"accelerator.launch({self.name}, grid, block, ...)",
        )

    def work_of(self, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Sequence[Work]:
        """Return the operations of a launch with these arguments."""
        stated = self.work(*arguments) if callable(self.work) else self.work
        if isinstance(stated, Mapping):
            return [stated]
        if stated is not None:
            # An operation by its name and columns is also a pair.
            return [(stated[0], stated[1])] if isinstance(stated[0], str) else stated  # type: ignore[list-item,return-value]
        moved = sum(a.nbytes for a in arguments if isinstance(a, np.ndarray))
        threads = math.prod(grid) * math.prod(block)
        return [{"op": "kernel", "threads": threads, "bytes": max(moved, 1), "flops": 0.0}]


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    *, work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None, registers: int = 0
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None,
    registers: int = 0,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Mark a function as a kernel: ``@kernel``, or ``@kernel(work=lambda a, b: {"op": "vector_add", "n": a.size})``.

    ``registers`` of a thread, as a device's compiler reports them, limit the number of resident blocks.
    """
    if function is not None:
        return Kernel(*_plain(function, work, registers))
    return lambda decorated: Kernel(*_plain(decorated, work, registers))


@overload
def stencil(function: Callable[..., Any]) -> Kernel: ...
@overload
def stencil(
    *,
    tile: int | Sequence[int] | None = None,
    halo: int = 1,
    work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def stencil(
    function: Callable[..., Any] | None = None,
    *,
    tile: int | Sequence[int] | None = None,
    halo: int = 1,
    work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Mark a function as a stencil: a kernel with a parameter ``pos: GridPos`` (docs/kernels.md).

    ``halo`` is the number of cells around the interior of every array, and the largest distance of a neighbour.
    ``tile`` is the number of cells of a block along the array's dimensions, rows first: neighbouring cells are then
    read through shared memory, and a launch's block must equal the tile. ``work`` is as for `kernel`. Raises InputError
    for an invalid tile or halo.
    """
    form = stated(tile, halo)

    def made(plain_function: Callable[..., Any]) -> Kernel:
        plain, known, registers = _plain(plain_function, work, 0)
        return Kernel(with_form(plain, form), known, registers)

    return made if function is None else made(function)


def _plain(function: Callable[..., Any], work: Any, registers: int) -> tuple[Callable[..., Any], Any, int]:
    """Return function, work and registers; new values of a function that is marked already override the old ones."""
    if isinstance(function, Kernel):
        return function.function, function.work if work is None else work, registers or function.registers
    return function, work, registers
