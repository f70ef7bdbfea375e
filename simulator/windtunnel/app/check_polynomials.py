"""Integers of a kernel as polynomials of the indices of threads and blocks, its parameters, and what is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from windtunnel.language import ir

ORDERED = ("<", "<=", ">", ">=")
AXES = 3
_MAX_DEPTH = 40
_MAX_TERMS = 64
"""Terms of a polynomial; one of more is not known."""

Monomial = tuple[str, ...]
Polynomial = dict[Monomial, int]
"""Coefficients of products of symbols: ``X``, ``Y``, ``Z`` (an index in the grid), ``t0`` and ``b0`` (one of a thread
in its block, and of a block), names of parameters, and others, which begin with ``?`` and are not known."""


class Reading:
    """A kernel's integers.

    Attributes:
        values: The values of variables that are assigned once, by name.
        starts: The first values of variables that change, as those of a loop that begins with a thread's index.
        unknown: The expressions of symbols that are not known.
        strides: By what an index of a block is multiplied, along each axis: the threads of a block, or a tile.
    """

    def __init__(self, program: ir.Program, integers: Collection[str], block: Sequence[int]) -> None:
        self.program, self.integers, self.block = program, frozenset(integers), block
        assigned = [s for s in ir.walk(program.body) if isinstance(s, ir.Assign)]
        loops = [s for s in ir.walk(program.body) if isinstance(s, ir.For)]
        changed = Counter([s.name for s in assigned] + [s.name for s in loops])
        self.values = {s.name: s.value for s in assigned if changed[s.name] == 1}
        self._names = self._versions(Counter(s.name for s in program.body if isinstance(s, ir.Assign)), changed)
        """The names of the values of variables that are assigned anew, by the identity of their uses."""
        self._changed = frozenset(changed)
        self.starts: dict[str, ir.Expr] = {}
        for statement in ir.walk(program.body):
            if isinstance(statement, ir.Assign | ir.For) and statement.name not in self.values:
                value = statement.value if isinstance(statement, ir.Assign) else statement.start
                self.starts.setdefault(statement.name, value)
        self.unknown: dict[str, ir.Expr] = {}
        self._polynomials: dict[str, Polynomial] = {}
        self.strides = list(block)
        for value in [*self.values.values(), *self.starts.values()]:
            self._read_stride(self.polynomial(value))

    def _read_stride(self, made: Polynomial) -> None:
        """Take ``b1 * 16 + t0`` as an index of tiles of 16 threads or more along y."""
        blocks = [int(s[1]) for m in made for s in m if m == (s,) and s in ("b0", "b1", "b2")]
        threads = [factor for m, factor in made.items() if len(m) == 1 and m[0] in ("t0", "t1", "t2")]
        if len(blocks) == 1 and threads == [1] and {len(m) for m in made} <= {0, 1}:
            self.strides[blocks[0]] = max(self.strides[blocks[0]], made[(f"b{blocks[0]}",)])

    def _versions(self, direct: Mapping[str, int], changed: Mapping[str, int]) -> dict[int, str]:
        """Give a name to each value of a variable that is assigned several times, one after the other."""
        at = {name: 0 for name, count in direct.items() if 1 < count == changed[name]}
        found: dict[int, str] = {}
        for statement in self.program.body if at else ():
            for e in chain.from_iterable(ir.expressions(s) for s in ir.walk([statement])):
                if isinstance(e, ir.Variable) and at.get(e.name):
                    name = f"{e.name}#{at[e.name]}"
                    # An expression that occurs twice in the tree may have two values.
                    found[id(e)] = name if found.setdefault(id(e), name) == name else e.name
            if isinstance(statement, ir.Assign) and statement.name in at:
                at[statement.name] += 1
                self.values[f"{statement.name}#{at[statement.name]}"] = statement.value
        return found

    def polynomial(self, e: ir.Expr, depth: int = 0) -> Polynomial:
        """Return an integer as a polynomial."""
        if depth > _MAX_DEPTH:
            return self._unknown(e)
        match e:
            case ir.Literal(value=value) if isinstance(value, int):
                return {(): int(value)} if value else {}
            case ir.Convert(operand=operand) if e.type is not None and e.type.kind in ("int", "uint"):
                return self.polynomial(operand, depth + 1)
            case ir.Index(what="block_size", axis=axis):
                return {(): self.block[axis]}
            case ir.Index(what=what, axis=axis) if what in ("thread", "block"):
                return {(f"{what[0]}{axis}",): 1}
            case ir.Variable():
                name = self._names.get(id(e), e.name)
                if name in self.values:
                    if name not in self._polynomials:
                        self._polynomials[name] = {(f"?{name}",): 1}  # of a variable that depends on itself
                        self._polynomials[name] = self.polynomial(self.values[name], depth + 1)
                    return self._polynomials[name]
                return {(name if name in self.integers and name not in self._changed else f"?{name}",): 1}
            case ir.Binary(op="+" | "-" | "*" as op, left=left, right=right):
                one, other = self.polynomial(left, depth + 1), self.polynomial(right, depth + 1)
                if max(len(one) * len(other) if op == "*" else 0, len(one) + len(other)) <= _MAX_TERMS:
                    return combined(op, one, other)
            case ir.Binary(op="<<", left=left, right=ir.Literal(value=bits)):
                return combined("*", self.polynomial(left, depth + 1), {(): 1 << int(bits)})
            case ir.Unary(op="-", operand=operand):
                return combined("*", self.polynomial(operand, depth + 1), {(): -1})
            case ir.Call(op="index.linear", arguments=[start, *terms]):
                made = self.polynomial(start, depth + 1)
                for term, factor in zip(terms[::2], terms[1::2], strict=True):
                    product = combined("*", self.polynomial(term, depth + 1), self.polynomial(factor, depth + 1))
                    made = combined("+", made, product)
                return made
        return self._unknown(e)

    def _unknown(self, e: ir.Expr) -> Polynomial:
        self.unknown[f"?{id(e)}"] = e
        return {(f"?{id(e)}",): 1}

    def in_grid(self, made: Polynomial) -> Polynomial:
        """Return a polynomial with ``X``, ``Y`` and ``Z`` for the indices of threads in the grid.

        ``b1 * 16 + t0`` is one along y, too, for tiles of 16 by 16, as in a transpose.
        """
        made = dict(made)
        for axis in range(AXES):
            for within in (axis, *(other for other in range(AXES) if other != axis)):
                if within != axis and self.strides[within] != self.strides[axis]:
                    continue
                for monomial, factor in list(made.items()):
                    if f"b{axis}" not in monomial or monomial not in made:
                        continue
                    rest = without(monomial, f"b{axis}")
                    thread = tuple(sorted((*rest, f"t{within}")))
                    of_thread = made.get(thread, 0) if self.block[within] > 1 else factor // self.strides[axis]
                    if of_thread and factor == of_thread * self.strides[axis]:
                        del made[monomial]
                        made.pop(thread, None)
                        made[tuple(sorted((*rest, "XYZ"[axis])))] = of_thread
        return made

    def axis(self, symbol: str) -> int | None:
        """Return the axis of a symbol, also of a variable that begins with an index along one; None for another."""
        if symbol in ("X", "Y", "Z"):
            return "XYZ".index(symbol)
        if symbol in ("t0", "t1", "t2", "b0", "b1", "b2"):
            return int(symbol[1])
        start = self.starts.get(symbol.removeprefix("?")) if symbol.startswith("?") else None
        axes = set() if start is None else {
            int(one[1]) for m in self.polynomial(start) for one in m if one in ("t0", "t1", "t2", "b0", "b1", "b2")
        }  # fmt: skip
        return axes.pop() if len(axes) == 1 else None


def combined(op: str, a: Polynomial, b: Polynomial) -> Polynomial:
    """Return the sum, the difference or the product of polynomials."""
    made: Polynomial = {} if op == "*" else dict(a)
    if op == "*":
        for left, factor in a.items():
            for right, other in b.items():
                monomial = tuple(sorted(left + right))
                made[monomial] = made.get(monomial, 0) + factor * other
    else:
        for monomial, factor in b.items():
            made[monomial] = made.get(monomial, 0) + (factor if op == "+" else -factor)
    return {monomial: factor for monomial, factor in made.items() if factor}


def without(monomial: Monomial, symbol: str) -> Monomial:
    """Return a product without one of its symbols."""
    rest = list(monomial)
    rest.remove(symbol)
    return tuple(rest)
