"""The second size of `windtunnel check`: fewer elements than threads, for kernels that take a number of elements.

With as many elements as threads, a kernel without its guard (``if (i < n)``) has nothing to be found. Not every kernel
may be given another size: one without a number of elements has an element for each thread, and one that computes with
the number (``in[n - 1 - i]``) may need a multiple of the block. So a kernel has a second size only if an integer has a
name such as ``n`` or ``size``, and the kernel either compares a thread's index with it or never reads it; or if the
kernel compares a thread's index with the size of an array. One that never reads the number, and whose threads all come
to a barrier, has an element for each of them: it may be one of the steps of a reduction. A comparison of a neighbour
(``i + 1 < n``) is no guard of the thread's own element: a stencil that compares at its border only has an element for
each thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from windtunnel.language import ir

_OF = r"(?:elem(?:ent)?s?|items?|points?|values?|particles?|bodies|samples?|pixels?|data|entries|cells?|nodes?|words?)"
_COUNT = re.compile(
    rf"n|num|count|cnt|size|len|length|total|numel|nelem|elements|(?:n|num|number|count|total)(?:of)?{_OF}|{_OF}count"
    r"|(?:array|vector|vec|input|in|data|buffer|buf|problem|list|total|image|img)(?:size|len|length|n|count)|arrlen"
)
"""Names of a number of elements, in lower case and without underscores."""
_CONDITION = re.compile(r"\b(?:__(?:global_)?requires|__builtin_assume|__assume)\b")
"""What verifiers and compilers take for granted."""
_ORDERED = ("<", "<=", ">", ">=")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DATA = (ir.Load, ir.Atomic, ir.Warp)


def is_count(name: str) -> bool:
    """Return whether a name is that of a number of elements."""
    return _COUNT.fullmatch(name.replace("_", "").lower()) is not None


def states_conditions(lines: Sequence[str]) -> bool:
    """Return whether a file in C states what its kernels require, which may be that a number is of the threads."""
    return any(_CONDITION.search(line) for line in lines)


def smaller(threads: int, block: int) -> int | None:
    """Return a number of elements that leaves threads of the last block without one; None for a single thread.

    It is no multiple of the block, unless that has a single thread.
    """
    return threads - max(block // 3, 1) if threads > 1 else None


def other_order(sides: Mapping[str, int]) -> dict[str, int]:
    """Return the sides with the largest one as the smallest."""
    if len(sides) < 2:
        return {}
    largest, smallest = max(sides, key=lambda n: sides[n]), min(sides.values())
    return {**sides, largest: smallest - max(smallest // 4, 1)} if smallest > 1 else {}


class SecondSize(NamedTuple):
    """A further launch of a kernel.

    Attributes:
        elements: How many elements it has.
        several: Whether the kernel compares a multiple of a thread's index with their number (``4 * i < n``), so that a
            thread may have several of them.
        sides: The sizes of a launch of several dimensions, by the names of the parameters.
    """

    elements: int
    several: bool
    sides: Mapping[str, int] | None = None

    def described(self) -> str:
        """Return the number of elements, or the sizes, in words."""
        if self.sides is not None:
            return " and ".join(f"'{name}' of {number:,}" for name, number in self.sides.items())
        return f"{self.elements:,} elements"


def second_size(program: ir.Program, counts: Sequence[str], threads: int, block: int) -> SecondSize | None:
    """Return the further launch of a kernel that may have fewer elements than threads; None for another kernel.

    ``counts``: the parameters that are a number of elements by their name, and are not stated.
    """
    elements = smaller(threads, block)
    if elements is None:
        return None
    used = {e.name for s in ir.walk(program.body) for e in ir.expressions(s) if isinstance(e, ir.Variable)}
    sizes = any(isinstance(e, ir.Size) for s in ir.walk(program.body) for e in ir.expressions(s))
    guards = _guards(program, frozenset(counts)) if counts or sizes else []
    waits = any(isinstance(s, ir.Barrier) and s.scope.startswith("block") for s in ir.walk(program.body))
    if not guards and (waits or all(name in used for name in counts)):
        return None
    return SecondSize(elements, several=any(guards))


def _guards(program: ir.Program, counts: frozenset[str]) -> list[bool]:
    """Return the comparisons of an index that depends on the thread with a count, or an array's size.

    Each is stated by whether a multiple of a thread's index is compared.
    """
    of_thread: set[str] = set()
    near: set[str] = set(counts)

    def depends(e: ir.Expr) -> bool:
        if isinstance(e, _DATA):
            return False
        if isinstance(e, ir.Index) and e.what in ("thread", "block", "lane"):
            return True
        return (isinstance(e, ir.Variable) and e.name in of_thread) or any(map(depends, e.children()))

    def is_near(e: ir.Expr) -> bool:
        """Return whether an expression is a count, give or take a constant."""
        match _without_constant(e)[0]:
            case ir.Variable(name=name):
                return name in near
            case ir.Size(total=total, side=side):
                return total or not side
        return False

    offsets = dict.fromkeys(counts, 0)

    def offset_of(e: ir.Expr) -> int:
        """Return the constant that a number near a count is more than it."""
        inner, constant = _without_constant(e)
        return constant + (offsets.get(inner.name, 0) if isinstance(inner, ir.Variable) else 0)

    def guards(index: ir.Expr, op: str, count: ir.Expr) -> bool:
        """Return whether ``index op count`` lets through, or keeps out, what is beyond the last element."""
        if not (depends(index) and is_near(count)):
            return False
        most = offset_of(count) - _without_constant(index)[1] + (op in ("<=", ">"))
        return most >= 0

    multiples: set[str] = set()

    def multiplies(e: ir.Expr) -> bool:
        """Return whether an expression multiplies what depends on the thread by a constant."""
        if isinstance(e, ir.Variable):
            return e.name in multiples
        if isinstance(e, ir.Binary) and e.op in ("*", "<<"):
            for part, factor in ((e.left, e.right), (e.right, e.left)):
                if _constant(factor) is not None and depends(part) and not isinstance(part, ir.Index):
                    return True
        return not isinstance(e, _DATA) and any(map(multiplies, e.children()))

    assigned = [s for s in ir.walk(program.body) if isinstance(s, ir.Assign)]
    _closed(of_thread, [(s.name, s.value) for s in assigned], depends)
    loops = [s for s in ir.walk(program.body) if isinstance(s, ir.For)]
    _closed(of_thread, [(s.name, s.start) for s in loops], depends)
    _closed(near, [(s.name, s.value) for s in assigned if s.name not in of_thread], is_near)
    offsets |= {s.name: offset_of(s.value) for s in assigned if s.name in near - counts}
    compared = [
        (e.left, e.op, e.right)
        for s in ir.walk(program.body) for e in ir.expressions(s)
        if isinstance(e, ir.Binary) and e.op in _ORDERED
    ]  # fmt: skip
    compared += [(s.start, "<", s.stop) for s in loops]
    compared += [(b, _MIRRORED[op], a) for a, op, b in compared]
    _closed(multiples, [(s.name, s.value) for s in assigned], multiplies)
    return [multiplies(a) for a, op, b in compared if guards(a, op, b)]


def _closed(names: set[str], values: Sequence[tuple[str, ir.Expr]], holds: Callable[[ir.Expr], bool]) -> None:
    """Add the variables that are assigned a value for which ``holds`` holds, until there are no more."""
    before = -1
    while before != len(names):
        before = len(names)
        names |= {name for name, value in values if name not in names and holds(value)}


def _without_constant(e: ir.Expr) -> tuple[ir.Expr, int]:
    """Return an expression without the constants that are added to it, and their sum."""
    if isinstance(e, ir.Convert):
        return _without_constant(e.operand)
    if isinstance(e, ir.Binary) and e.op in "+-":
        right, left = _constant(e.right), _constant(e.left)
        if right is not None:
            inner, constant = _without_constant(e.left)
            return inner, constant + (right if e.op == "+" else -right)
        if left is not None and e.op == "+":
            inner, constant = _without_constant(e.right)
            return inner, constant + left
    return e, 0


def _constant(e: ir.Expr) -> int | None:
    """Return the integer that an expression is; None for another one."""
    if isinstance(e, ir.Literal):
        return int(e.value)
    if isinstance(e, ir.Convert):
        return _constant(e.operand)
    inner = _constant(e.operand) if isinstance(e, ir.Unary) and e.op == "-" else None
    return None if inner is None else -inner
