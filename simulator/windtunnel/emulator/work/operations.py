"""The operations that a statement of a kernel stands for, in the words of Nsight Compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from windtunnel.language import ir

_PREFIXES = {16: "h", 32: "f", 64: "d"}
EXPANSIONS: Mapping[str, Mapping[str, int]] = {
    "/": {"fma": 5, "special": 1},
    "math.acos": {"add": 1, "mul": 4, "fma": 10, "special": 1},
    "math.asin": {"mul": 5, "fma": 9, "special": 1},
    "math.atan": {"mul": 2, "fma": 9, "special": 1},
    "math.atan2": {"add": 5, "mul": 3, "fma": 12, "special": 2},
    "math.cbrt": {"add": 2, "mul": 3, "fma": 2, "special": 3},
    "math.cos": {"mul": 3, "fma": 9},
    "math.cosh": {"add": 1, "mul": 5, "fma": 3, "special": 2},
    "math.erf": {"add": 1, "mul": 1, "fma": 7, "special": 1},
    "math.erfc": {"add": 6, "mul": 8, "fma": 20, "special": 3},
    "math.exp": {"add": 1, "mul": 1, "fma": 4, "special": 1},
    "math.exp2": {"mul": 2, "special": 1},
    "math.expm1": {"add": 4, "mul": 4, "fma": 8, "special": 1},
    "math.hypot": {"add": 2, "mul": 6, "fma": 3, "special": 1},
    "math.log": {"add": 1, "mul": 2, "fma": 12},
    "math.log10": {"add": 1, "mul": 3, "fma": 12},
    "math.log1p": {"add": 2, "mul": 2, "fma": 12},
    "math.log2": {"add": 2, "mul": 3, "fma": 12},
    "math.pow": {"add": 15, "mul": 10, "fma": 19, "special": 1},
    "math.rsqrt": {"mul": 2, "special": 1},
    "math.sin": {"mul": 3, "fma": 9},
    "math.sinh": {"add": 1, "mul": 7, "fma": 7, "special": 2},
    "math.sqrt": {"mul": 2, "fma": 2, "special": 1},
    "math.tan": {"mul": 4, "fma": 9, "special": 1},
    "math.tanh": {"add": 1, "mul": 2, "fma": 6, "special": 2},
}
"""Machine instructions of division and of functions in float32, on floats and on the unit of special functions.

Counted in the machine code that NVRTC 12.9 makes for compute capability 9.0 without fast math, up to the end of the
kernel; behind it are calls for special operands. Instructions under a predicate are counted. Assumed for other types
and other compilers.
"""
_OTHER_FUNCTION: Mapping[str, int] = {"mul": 2, "fma": 8, "special": 1}
"""Another function of `math`, assumed (1 to 30 instructions): about the mean of those above."""


_UNROLLED = 4
"""Iterations of a loop that compilers put into one, so that its own counting is done once for all (NVCC's default)."""


def operations_of(statement: ir.Stmt) -> dict[str, float]:
    """Return what one thread executes for a statement, without the statements inside it: counts by name.

    ``instructions`` is their sum with loads, stores and branches. What a loop counts is shared by unrolled iterations.
    """
    counts: Counter[str] = Counter()
    for value in vars(statement).values():
        for expression in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(expression, ir.Expr):
                _count(expression, counts)
    counts["instructions"] = sum(counts.values()) + (not isinstance(statement, ir.Assign))
    share = _UNROLLED if isinstance(statement, ir.While) or _counts_iterations(statement) else 1
    return {name: count / share for name, count in counts.items()}


def _counts_iterations(statement: ir.Stmt) -> bool:
    """Return whether a statement is ``k = k + 1`` with a constant."""
    if not isinstance(statement, ir.Assign) or not isinstance(statement.value, ir.Binary):
        return False
    value = statement.value
    is_own = isinstance(value.left, ir.Variable) and value.left.name == statement.name
    return is_own and value.op in ("+", "-") and isinstance(value.right, (ir.Literal, ir.Variable))


def _count(e: ir.Expr, counts: Counter[str]) -> None:
    if isinstance(e, ir.Binary):
        _count_binary(e, counts)
        return
    if isinstance(e, ir.Call) and e.op.startswith(("math.", "fma", "round.")):
        kind = e.arguments[0].type if e.type is None or e.type.kind != "float" else e.type
        bits = 32 if kind is None or kind.kind != "float" else kind.bits
        _add_floats(counts, _functions_of(e.op), bits)
    elif isinstance(e, (ir.Unary, ir.Call, ir.Select, ir.Logic)):
        is_float = e.type is not None and e.type.kind == "float"
        counts["other" if is_float else "integer"] += 1
    elif isinstance(e, (ir.Load, ir.Atomic, ir.Warp, ir.Convert)):
        counts["other"] += 1
    for child in e.children():
        _count(child, counts)


def _functions_of(op: str) -> Mapping[str, int]:
    """Return the instructions of a function. Operations that are rounded in a direction are those that are not."""
    name = op.removeprefix("round.").rpartition("_")[0] if op.startswith("round.") else op
    if name in ("fma", "add", "mul"):
        return {name: 1}
    return EXPANSIONS.get({"div": "/", "sqrt": "math.sqrt"}.get(name, name), _OTHER_FUNCTION)


def _count_binary(e: ir.Binary, counts: Counter[str]) -> None:
    kind = e.type
    children = [e.left, e.right]
    if kind is None or kind.kind != "float" or e.op in ("min", "max"):
        # A comparison of floats, or their minimum, is no arithmetic operation of floats.
        floats = any(child.type is not None and child.type.kind == "float" for child in children)
        counts["other" if floats else "integer"] += 1
        product = next((child for child in children if isinstance(child, ir.Binary) and child.op == "*"), None)
        if product is not None and e.op in ("+", "-") and not floats:  # one multiply-add
            children.remove(product)
            children += [product.left, product.right]
    elif e.op in ("+", "-"):
        # Compilers contract a product and a sum unless they are told not to (-fmad=false).
        product = next((child for child in children if isinstance(child, ir.Binary) and child.op == "*"), None)
        _add_floats(counts, {"add": 1} if product is None else {"fma": 1}, kind.bits)
        if product is not None:
            children.remove(product)
            children += [product.left, product.right]
    else:
        _add_floats(counts, {"*": {"mul": 1}, "**": EXPANSIONS["math.pow"]}.get(e.op, EXPANSIONS["/"]), kind.bits)
    for child in children:
        _count(child, counts)


def _add_floats(counts: Counter[str], functions: Mapping[str, int], bits: int) -> None:
    for name, count in functions.items():
        counts["special" if name == "special" else _PREFIXES[bits] + name] += count
