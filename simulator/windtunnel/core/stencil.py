"""The tile and the halo of a stencil kernel, as its author states them.

This module is separate because the decorator is part of the runtime and its meaning is part of the language, and
neither imports the other.
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
    """The form of a stencil.

    ``tile``: the cells of a block along the array's dimensions, rows before columns; None: cells are read from device
    memory. ``halo``: the width in cells of the boundary on every side, and the largest distance of a cell that a
    thread may read.
    """

    tile: tuple[int, ...] | None = None
    halo: int = 1

    @property
    def block(self) -> tuple[int, int, int] | None:
        """Return the threads of a block along x, y and z that match the tile; None without a tile."""
        if self.tile is None:
            return None
        x, y, z = (*reversed(self.tile), 1, 1)[:3]
        return x, y, z


def stated(tile: int | Sequence[int] | None, halo: int) -> StencilForm:
    """Return the form that a decorator states; raises InputError if it is not valid."""
    if not _whole(halo, 0):
        raise InputError(f"halo is {halo!r}", expected="a whole number from 0")
    if tile is None:
        return StencilForm(None, halo)
    sides = tuple(tile) if isinstance(tile, Sequence) and not isinstance(tile, str) else (tile,)
    if not 1 <= len(sides) <= 3 or not all(_whole(side, 1) for side in sides):
        raise InputError(f"tile is {tile!r}", expected="one to three whole numbers from 1, rows first: (16, 16)")
    return StencilForm(tuple(int(side) for side in sides if isinstance(side, int)), halo)


def with_form(function: Callable[..., Any], form: StencilForm) -> Callable[..., Any]:
    """Return a copy of ``function`` that is a stencil of this form, so that a function can have several forms.

    Raises:
        InputError: ``function`` is not a Python function.
    """
    if not isinstance(function, FunctionType):
        raise InputError(f"{function!r} is not a stencil", expected="a function, defined with def")
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    for name in ("__module__", "__qualname__", "__doc__", "__kwdefaults__", "__annotations__"):
        setattr(copy, name, getattr(function, name))
    copy.__dict__.update(function.__dict__)
    setattr(copy, _ATTRIBUTE, form)
    return copy


def form_of(function: Callable[..., Any]) -> StencilForm | None:
    """Return the stencil form of a function; None if it is not a stencil."""
    form = getattr(function, _ATTRIBUTE, None)
    return form if isinstance(form, StencilForm) else None


def _whole(number: Any, minimum: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= minimum
