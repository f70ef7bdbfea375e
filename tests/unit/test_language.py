"""The kernel language's front end: what a kernel's expressions are, and of which types."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from windtunnel import shared
from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import infer
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError
from windtunnel.language.types import F32, I32, Array, f32, i32

HALF = np.float32(1.5)
WEIGHTS = (1.0, 0.5, 0.25, 0.125)
ROWS = [[5, 7], [6, 8]]
SHAPES = (1, (4, 8))
OPTIONS = {"share": 0.5}


def typed(function: Callable[..., None]) -> ir.Program:
    given = {one.name: one.annotation for one in parameters_of(function) if one.annotation is not None}
    return infer(parse(function, frozenset(n for n, kind in given.items() if isinstance(kind, Array))), given)


def literals(program: ir.Program) -> list[tuple[float, object]]:
    found = (e for one in ir.walk(program.body) for e in ir.expressions(one) if isinstance(e, ir.Literal))
    return [(e.value, e.type) for e in found if e.value == 7]


def _mixed(a, k, z):
    return k * a + i32(z * a)


def _calls(x: i32[:], k: i32, z: f32):
    x[0] = _mixed(7, k, z)


def _compares(x: i32, y: f32, out: i32[:]):
    if y < 7 < x:
        out[0] = 1


def test_a_literal_given_to_a_function_takes_the_type_of_each_place_where_it_is_used() -> None:
    assert literals(typed(_calls)) == [(7, I32), (7, F32)]


def test_a_literal_between_two_comparisons_takes_the_type_of_each() -> None:
    assert literals(typed(_compares)) == [(7, F32), (7, I32)]


def _blend(a, b, share=0.5, *, offset=HALF):
    return a * share + b * (1.0 - share) + offset


def _named(x: f32[:]):
    x[0] = _blend(b=x[1], a=x[2])
    x[1] = _blend(x[1], x[2], share=0.25, offset=7.0)


def _assigned_values(program: ir.Program) -> list[object]:
    return [e.value for one in ir.walk(program.body) for e in ir.expressions(one) if isinstance(e, ir.Literal)]


def test_a_function_takes_arguments_by_their_names_and_defaults() -> None:
    values = _assigned_values(typed(_named))
    assert [values.count(one) for one in (0.5, 1.5, 0.25, 7.0)] == [1, 1, 1, 1]


def _unknown_name(x: f32[:]):
    x[0] = _blend(x[0], x[1], sharing=0.5)


def _given_twice(x: f32[:]):
    x[0] = _blend(x[0], x[1], a=x[2])


def _missing(x: f32[:]):
    x[0] = _blend(x[0], share=0.5)


def _too_many(x: f32[:]):
    x[0] = _blend(x[0], x[1], 0.5, 1.0)


def _starred(x: f32[:]):
    x[0] = _blend(x[0], x[1], **OPTIONS)


def _without(a, other=None):
    return a if other is None else other


def _no_number(x: f32[:]):
    x[0] = _without(x[0])


def _named_math(x: f32[:]):
    x[0] = math.sqrt(x=x[0])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_unknown_name, r"'_blend' has no argument 'sharing'; expected 4: a, b, share, offset; did you mean 'share'"),
        (_given_twice, "'a' of '_blend' is given twice"),
        (_missing, "2 arguments for '_blend', and none for 'b'"),
        (_too_many, "4 arguments for '_blend'; expected 4: a, b, share, offset"),
        (_starred, r"'\*\*' in a call of '_blend'"),
        (_no_number, "the default of 'other' of '_without', which is None"),
        (_named_math, "an argument by its name"),
    ],
)
def test_wrong_arguments_of_a_function_are_errors_at_the_call(kernel: Callable[..., None], message: str) -> None:
    with pytest.raises(KernelError, match=message) as found:
        typed(kernel)
    assert found.value.where is not None
    assert found.value.where.line == kernel.__code__.co_firstlineno + 1


def _table(x: f32[:]):
    part = shared.array(SHAPES[1], f32)
    part[0, 0] = WEIGHTS[2] + WEIGHTS[-1]
    x[0] = part[0, 0] * ROWS[1][0]


def test_an_entry_of_a_table_from_outside_is_its_number() -> None:
    program = typed(_table)
    assert program.declared["part"].shape == (4, 8)
    assert {0.25, 0.125, 6} <= set(_assigned_values(program))


def _table_by_variable(x: f32[:], i: i32):
    x[0] = WEIGHTS[i]


def _beyond_table(x: f32[:]):
    x[0] = WEIGHTS[4]


def _whole_row(x: f32[:]):
    x[0] = ROWS[0]


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_table_by_variable, "a tuple from outside, that only the running kernel knows; .*: pass 'WEIGHTS'"),
        (_beyond_table, "entry 4 of 'WEIGHTS'; expected 0 to 3"),
        (_whole_row, r"\[5, 7\]; expected a number"),
    ],
)
def test_a_table_from_outside_that_cannot_be_a_number_is_an_error_that_says_what_to_do(
    kernel: Callable[..., None], message: str
) -> None:
    with pytest.raises(KernelError, match=message) as found:
        typed(kernel)
    assert found.value.where is not None
    assert found.value.where.line == kernel.__code__.co_firstlineno + 1
