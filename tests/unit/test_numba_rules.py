"""The table of Numba's arithmetic agrees with the installed Numba, for all pairs of types."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from numba.core import types
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from windtunnel.language.numba import rules

# float16 is for GPUs only, and bfloat16 a type of numba-cuda.
NAMES = [name for name in rules.NUMBA_NAMES if name not in ("boolean", "float16", "bfloat16")]
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_,
    "^": operator.xor,
}  # fmt: skip


@pytest.fixture(scope="module")
def context() -> Any:
    found = cpu_target.typing_context
    found.refresh()
    return found


def numba_type(name: str) -> Any:
    return types.boolean if name == "bool" else getattr(types, name)


def result(context: Any, function: Any, *names: str) -> str | None:
    try:
        signature = context.resolve_function_type(function, tuple(map(numba_type, names)), {})
    except TypingError:
        return None
    return None if signature is None else str(signature.return_type)


def test_operations_on_two_numbers_have_numba_s_types(context: Any) -> None:
    wrong = {}
    for op, function in BINARY.items():
        for a in NAMES:
            for b in NAMES:
                kind = rules.binary(op, rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b])
                found = None if kind is None else rules.name_of(kind)
                wanted = result(context, function, a, b)
                if found != wanted:
                    wrong[a, op, b] = (found, wanted)
    assert wrong == {}


def test_powers_have_numba_s_types(context: Any) -> None:
    for a in ("int32", "int64", "uint64", "float32", "float64", "complex64"):
        for b in ("int32", "int64", "float32", "float64"):
            kind = rules.binary("**", rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b])
            assert kind is not None
            assert rules.name_of(kind) == result(context, operator.pow, a, b), (a, b)


def test_operations_on_one_number_have_numba_s_types(context: Any) -> None:
    functions = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_, "abs": abs}
    for op, function in functions.items():
        for name in NAMES:
            kind = rules.unary(op, rules.NUMBA_NAMES[name])
            found = None if kind is None else rules.name_of(kind)
            assert found == result(context, function, name), (op, name)


def test_variables_of_two_types_have_the_type_that_numba_unifies_them_to(context: Any) -> None:
    for a in NAMES:
        for b in NAMES:
            wanted = context.unify_types(numba_type(a), numba_type(b))
            kind = rules.unified(rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b])
            assert rules.name_of(kind) == str(wanted), (a, b)
