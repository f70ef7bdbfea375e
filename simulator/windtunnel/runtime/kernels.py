"""Kernels as a program states them: a function, and how much work a launch of it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, NoReturn, overload

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.stencil import stated, with_form
from windtunnel.runtime.interface import Dims

Work = Mapping[str, Any] | tuple[str, Mapping[str, Any]]
"""An operation by its columns, as `windtunnel predict` takes it: ``{"op": "vector_add", "n": 1_000_000}``.

Or by its name and columns: ``("elementwise", {"op": "relu", "rows": 64, "width": 64})`` has a column ``op`` of its own.
"""


@dataclass(eq=False)
class Kernel:
    """A function to be launched on devices.

    It takes buffers as arrays and scalars as numbers, and works on whole arrays. ``work``: of a launch's arguments the
    operation that it is (see ``Work``), or several, done one after another; where it is not stated, what the arrays
    given hold is moved once.
    """

    function: Callable[..., Any]
    work: Callable[..., Work | Sequence[Work]] | Work | Sequence[Work] | None = None
    registers: int = 0
    """32-bit registers that a thread takes, as a device's compiler reports them; 0 where that is not known."""

    def __post_init__(self) -> None:
        if isinstance(self.registers, bool) or not isinstance(self.registers, int) or self.registers < 0:
            raise InputError(f"a kernel's registers are {self.registers!r}", expected="a number from 0")
        if not callable(self.function):
            raise InputError(f"{self.function!r} is not a kernel", expected="a function of whole arrays")
        update_wrapper(self, self.function)
        named = getattr(self.function, "func", self.function)  # a partial has the name of its function
        self.name = str(getattr(named, "__name__", type(named).__name__))
        """The function's name."""
        self.constant = self.work is not None and not callable(self.work)
        """Whether each launch is the same work, whatever it is given."""

    def __call__(self, *arguments: Any) -> Any:
        """Call it as the plain function it is."""
        return self.function(*arguments)

    def __getitem__(self, configuration: Any) -> NoReturn:
        """Refused: Numba's ``kernel[grid, block](...)`` does not say on which device."""
        raise InputError(
            f"'{self.name}' is not launched by kernel[grid, block](...)",
            expected=f"accelerator.launch({self.name}, grid, block, ...)",
        )

    def work_of(self, grid: Dims, block: Dims, arguments: Sequence[Any]) -> Sequence[Work]:
        """The operations that a launch with these arguments is."""
        stated = self.work(*arguments) if callable(self.work) else self.work
        if isinstance(stated, Mapping):
            return [stated]
        if stated is not None:
            # One operation by its name and columns is a pair, too.
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

    ``registers``: of a thread, as a device's compiler reports them: they bound how many blocks a device holds.
    """
    if function is not None:
        return Kernel(*_plain(function, work, registers))
    return lambda found: Kernel(*_plain(found, work, registers))


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

    ``halo``: cells round the interior of every array, and how far a thread may look. ``tile``: cells of a block along
    the array's sides, rows first; what is read of cells near a thread's own then comes through shared memory, and a
    launch's block has to be the tile. ``work``: as of `kernel`. InputError for a tile or a halo that is none.
    """
    form = stated(tile, halo)

    def made(found: Callable[..., Any]) -> Kernel:
        plain, known, registers = _plain(found, work, 0)
        return Kernel(with_form(plain, form), known, registers)

    return made if function is None else made(function)


def _plain(function: Callable[..., Any], work: Any, registers: int) -> tuple[Callable[..., Any], Any, int]:
    """(the function, its work, its registers) of what is marked a second time; what is stated then counts."""
    if isinstance(function, Kernel):
        return function.function, function.work if work is None else work, registers or function.registers
    return function, work, registers
