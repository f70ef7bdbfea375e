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


def test_powers_and_divmod_have_numba_s_types(context: Any) -> None:
    for a in (*NAMES, "float16"):
        for b in (*NAMES, "float16"):
            kind = rules.binary("**", rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b])
            assert kind is not None
            assert rules.name_of(kind) == result(context, operator.pow, a, b), (a, b)
            if "complex" not in a + b and "float16" not in (a, b):
                both = rules.quotient_and_rest(rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b])  # type: ignore[arg-type]
                assert f"UniTuple({rules.name_of(both)} x 2)" == result(context, divmod, a, b), (a, b)


REAL = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")  # fmt: skip
FUNCTIONS = {
    "copysign": "sssddsdddssd sssddsdddssd sssddsdddssd dddddddddddd dddddddddddd sssddsdddssd dddddddddddd dddddddddddd "
    "dddddddddddd sssddsdddssd sssddsdddssd dddddddddddd",
    "atan2": "dddddddddssd dddddddddssd dddddddddssd dddddddddddd dddddddddddd dddddddddssd dddddddddddd dddddddddddd "
    "dddddddddddd sssddsdddssd sssddsdddssd dddddddddddd",
    "pow": "ssssdsdddssd ssssdsdddssd ssssdsdddssd dddddddddddd dddddddddddd ssssdsdddssd dddddddddddd dddddddddddd "
    "dddddddddddd ssssdsdddssd ssssdssddssd dddddddddddd",
    "np.arctan2": "sssddssddssd sssddssddssd sssddssddssd dddddddddssd dddddddddssd sssddssddssd sssddssddssd "
    "dddddddddssd dddddddddssd sssssssssssd sssssssssssd dddddddddddd",
}
"""The types that numba-cuda 0.30.4 finds: s is float32, d float64. A row for each first, a letter for each second type."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_two_numbers_have_the_types_that_numba_cuda_finds(name: str) -> None:
    rows = []
    for a in REAL:
        kinds: list[Any] = [(rules.NUMBA_NAMES[a], rules.NUMBA_NAMES[b]) for b in REAL]
        found = [rules.of_ufunc(*pair) if name.startswith("np.") else rules.of_two(name, *pair) for pair in kinds]
        rows.append("".join("s" if rules.name_of(kind) == "float32" else "d" for kind in found))
    assert rows == FUNCTIONS[name].split()


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
