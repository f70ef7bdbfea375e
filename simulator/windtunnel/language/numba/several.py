"""An array that is one of several, which the kernel chooses while it runs: ``data = a if even else b``.

Such a view has one shape and one origin, in variables, and the number of the array to which they belong at the time.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from windtunnel.language import ir
from windtunnel.language.numba.values import Dim, View, literal
from windtunnel.language.types import BOOL, I32


def bases(view: View) -> tuple[str, ...]:
    """Return the arrays that a view may belong to."""
    return (view.base, *view.others)


def together(a: View, b: View) -> View | None:
    """Return the type of a variable that is one of two views; None if they have no common type.

    What is 0 or 1 in both stays so, and all else is in variables.
    """
    same = a.element == b.element and a.unit == b.unit and a.text == b.text == 0 and len(a.origin) == len(b.origin)
    if not same or [dim.axis for dim in a.dims] != [dim.axis for dim in b.dims]:
        return None
    one = literal(0, 0)
    others = tuple(base for base in bases(b) if base not in bases(a))
    return replace(
        a,
        others=(*a.others, *others),
        which=one,
        origin=tuple(None if x is y is None else one for x, y in zip(a.origin, b.origin, strict=True)),
        dims=tuple(
            Dim(x.axis, one, None if x.step is y.step is None else one) for x, y in zip(a.dims, b.dims, strict=True)
        ),
        space=a.space if a.space == b.space else "global",
        writable=a.writable and b.writable,
        contiguous=False,
    )


def same_form(a: View, b: View) -> bool:
    """Return whether two views can be in one variable."""
    if bases(a) != bases(b) or a.element != b.element:
        return False
    if [dim.axis for dim in a.dims] != [dim.axis for dim in b.dims]:
        return False
    return not a.others or _unset(a) == _unset(b)


def _unset(view: View) -> list[bool]:
    return [part is None for part in (*view.origin, *(dim.step for dim in view.dims))]


def place(line: int, slot: View, view: View) -> ir.Expr:
    """Return the number among the arrays of ``slot`` of the array that ``view`` belongs to."""
    known = bases(slot)
    *rest, last = [literal(line, known.index(base), I32) for base in bases(view)]
    made: ir.Expr = last
    for at, number in reversed(list(enumerate(rest))):
        made = ir.Select(line, is_number(line, view, at), number, made, type=I32)
    return made


def is_number(line: int, view: View, at: int) -> ir.Expr:
    """Return whether a view belongs to the array of a number."""
    assert view.which is not None  # noqa: S101  it is one of several
    return ir.Binary(line, "==", copy(view.which), literal(line, at, I32), type=BOOL)
