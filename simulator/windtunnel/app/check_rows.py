"""The buffers that `windtunnel check` makes up with rising numbers: where the rows of a sparse matrix begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windtunnel.app.check_arguments import CheckParameter, LaunchRequest
from windtunnel.app.check_polynomials import ORDERED, Reading, combined
from windtunnel.language import ir

_MAX_DEPTH = 40


def row_starts(
    program: ir.Program, parameters: Sequence[CheckParameter], request: LaunchRequest, names: Mapping[str, str]
) -> frozenset[str]:
    """Return the buffers of integers that are not given and of which an element and the next one bound a loop.

    ``names``: the parameters, by the names of their arrays in the tree.
    """
    reading = Reading(program, (), request.block)
    found: set[str] = set()

    def loaded(e: ir.Expr) -> ir.Load | None:
        for _ in range(_MAX_DEPTH):
            if isinstance(e, ir.Convert):
                e = e.operand
            elif isinstance(e, ir.Variable) and (e.name in reading.values or e.name in reading.starts):
                e = reading.values.get(e.name) or reading.starts[e.name]
        return e if isinstance(e, ir.Load) and len(e.indices) == 1 else None

    for statement in ir.walk(program.body):
        bounds: list[tuple[ir.Expr, ir.Expr]] = []
        if isinstance(statement, ir.For):
            bounds = [(statement.start, statement.stop)]
        elif isinstance(statement, ir.While):
            compared = [e for e in ir.inside(statement.condition) if isinstance(e, ir.Binary) and e.op in ORDERED]
            bounds = [(e.left, e.right) for e in compared]
        for start, stop in bounds:
            one, other = loaded(start), loaded(stop)
            if one is not None and other is not None and one.array == other.array:
                to, since = reading.polynomial(other.indices[0]), reading.polynomial(one.indices[0])
                if combined("-", to, since) == {(): 1}:
                    found.add(one.array)
    integers = {p.name for p in parameters if p.kind == "pointer" and {d.kind for d in p.dtypes} <= set("iu")}
    return frozenset({names.get(one, one) for one in found} & integers - set(request.arguments))
