"""Constant folding of integers, before their types are inferred."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from windtunnel.language import ir

_OPERATORS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_BITS = 64


def folded(e: ir.Binary) -> ir.Binary | ir.Literal:
    """Return ``2**16`` as 65536; the expression itself if a side is not an integer or no type holds the result."""
    left, right = (side.value if isinstance(side, ir.Literal) else None for side in (e.left, e.right))
    if type(left) is not int or type(right) is not int or e.op not in _OPERATORS:
        return e
    if (e.op in ("//", "%") and right == 0) or (e.op in ("**", "<<", ">>") and not 0 <= right <= _BITS):
        return e
    value = _OPERATORS[e.op](left, right)
    return ir.Literal(e.line, value) if -(2 ** (_BITS - 1)) <= value < 2**_BITS else e
