"""The kernel language's front end: what a kernel's expressions are, and of which types."""

from __future__ import annotations

from collections.abc import Callable

from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import infer
from windtunnel.language.parse import parse
from windtunnel.language.types import F32, I32, Array, f32, i32


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
