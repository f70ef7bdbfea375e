"""Loops that may wait for what others do: what decides whether one goes on, and what that asks of memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from windtunnel.language import ir


def waits_on(loop: ir.While, stored: Collection[str]) -> frozenset[str] | None:
    """The variables that say what a loop that may wait for others does next; None where it waits for nobody.

    A loop may where memory that threads change decides whether it goes on. If in a turn neither these variables nor
    the memory that was looked at change, the next turn is the same.
    """
    deciding = _Deciding(loop)
    if not deciding.looks(stored):
        return None
    # What changes memory, or is asked of it, is part of what the turn does, too.
    names = set(deciding.names)
    for one in ir.walk(loop.body):
        for e in ir.expressions(one):
            if isinstance(e, (ir.Load, ir.Atomic, ir.Warp)):
                names |= _names(*e.children())
        if isinstance(one, ir.Store):
            names |= _names(*one.indices, one.value)
        elif isinstance(one, (ir.If, ir.While)):
            names |= _names(one.condition)
    return frozenset(deciding.closed(names) & deciding.assigned.keys())


def decides(loop: ir.While) -> frozenset[str]:
    """The variables, of those that a loop assigns, that decide whether it goes on."""
    deciding = _Deciding(loop)
    return frozenset(deciding.names & deciding.assigned.keys())


def looks(loop: ir.While, stored: Collection[str]) -> list[ir.Load | ir.Atomic]:
    """What a loop asks of memory that the kernel changes, to go on or not: it may wait for what others do."""
    return _Deciding(loop).looks(stored)


class _Deciding:
    """What decides whether a loop goes on: conditions, what they are made of, and what those depend on in turn."""

    def __init__(self, loop: ir.While) -> None:
        self.assigned: dict[str, list[ir.Expr]] = {}
        """Of each variable, what is assigned to it in the loop, and the conditions under which it is."""
        self.expressions: list[ir.Expr] = [loop.condition]
        self._read(loop.body, [], inner=False)
        self.names = self.closed(_names(*self.expressions))
        self.expressions += [e for name in self.names for e in self.assigned.get(name, ())]

    def looks(self, stored: Collection[str]) -> list[ir.Load | ir.Atomic]:
        """What is asked of ``stored`` arrays, or atomically."""
        asked = [e for one in self.expressions for e in ir.inside(one) if isinstance(e, (ir.Load, ir.Atomic))]
        return [e for e in asked if isinstance(e, ir.Atomic) or e.array in stored]

    def closed(self, names: set[str]) -> set[str]:
        """Variables with all those that they are made of."""
        found = set(names)
        before: set[str] = set()
        while before != found:
            before = set(found)
            for name in before & self.assigned.keys():
                found |= _names(*self.assigned[name])
        return found

    def _read(self, body: Sequence[ir.Stmt], under: Sequence[ir.Expr], *, inner: bool) -> None:
        for one in body:
            match one:
                case ir.Assign():
                    self.assigned.setdefault(one.name, []).extend([one.value, *under])
                case ir.If():
                    self._read(one.body, [*under, one.condition], inner=inner)
                    self._read(one.orelse, [*under, one.condition], inner=inner)
                case ir.While():
                    self._read(one.body, [*under, one.condition], inner=True)
                case ir.For():
                    bounds = [one.start, one.stop, one.step]
                    self.assigned.setdefault(one.name, []).extend([*bounds, *under])
                    self._read(one.body, [*under, *bounds], inner=True)
                case ir.Return():
                    self.expressions += under
                case ir.Break() if not inner:
                    self.expressions += under
                case _:
                    pass


def _names(*expressions: ir.Expr) -> set[str]:
    return {e.name for one in expressions for e in ir.inside(one) if isinstance(e, ir.Variable)}
