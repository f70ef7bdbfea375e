"""What the author of a stencil states of it: the tile that a block works on, and how far a cell looks.

The decorator is the runtime's and the meaning the language's, which know nothing of each other: this stands between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from windtunnel.core.errors import InputError

_ATTRIBUTE = "__windtunnel_stencil__"


@dataclass(frozen=True)
class StencilForm:
    """``tile``: cells of a block along the array's sides, rows before columns; None: cells are read where they lie.

    ``halo``: how many cells lie round the interior on every side, and how far from its own a thread may look.
    """

    tile: tuple[int, ...] | None = None
    halo: int = 1

    @property
    def block(self) -> tuple[int, int, int] | None:
        """Threads of a block along x, y and z, as the tile wants them; None without a tile."""
        if self.tile is None:
            return None
        x, y, z = (*reversed(self.tile), 1, 1)[:3]
        return x, y, z


def stated(tile: int | Sequence[int] | None, halo: int) -> StencilForm:
    """The form that a decorator states; InputError for what is none."""
    if not _whole(halo, 0):
        raise InputError(f"a halo of {halo!r}", expected="a whole number from 0")
    if tile is None:
        return StencilForm(None, halo)
    sides = tuple(tile) if isinstance(tile, Sequence) and not isinstance(tile, str) else (tile,)
    if not 1 <= len(sides) <= 3 or not all(_whole(side, 1) for side in sides):
        raise InputError(f"a tile of {tile!r}", expected="one to three whole numbers from 1, rows first: (16, 16)")
    return StencilForm(tuple(int(side) for side in sides if isinstance(side, int)), halo)


def with_form(function: Callable[..., Any], form: StencilForm) -> Callable[..., Any]:
    """A copy of ``function`` that is a stencil of that form: one function may be several.

    InputError for what is no function.
    """
    if not isinstance(function, FunctionType):
        raise InputError(f"{function!r} is no stencil", expected="a function, defined with def")
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    for name in ("__module__", "__qualname__", "__doc__", "__kwdefaults__", "__annotations__"):
        setattr(copy, name, getattr(function, name))
    copy.__dict__.update(function.__dict__)
    setattr(copy, _ATTRIBUTE, form)
    return copy


def form_of(function: Callable[..., Any]) -> StencilForm | None:
    """What was stated of a function; None where nothing was."""
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, StencilForm) else None


def _whole(number: Any, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least
