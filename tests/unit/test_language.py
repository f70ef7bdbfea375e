"""The kernel language's front end: what a kernel's expressions are, and of which types."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import windtunnel
from windtunnel import grid
from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import infer
from windtunnel.language.parse import parse
from windtunnel.language.types import F32, I32, Array, f32, i32
from windtunnel_models.catalogue import Catalogue


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


def _least(a, i):
    if a[i] < 0:
        return 0
    return a[i]


@windtunnel.kernel
def _guarded(a: i32[:], out: i32[:]):
    i = grid(1)
    out[i] = 100
    if 0 < i < a.size and _least(a, i - 1) > 2:
        out[i] = 120 + (1 if i < a.size and 0 < a[i] < 5 else 0)
    elif i >= a.size or _least(a, i) == 0:
        out[i] = 130 if i >= a.size else 120 - _least(a, i)
    elif i:
        out[i] = 121 if _least(a, i) == 4 and a[i - 1] else 0


def test_a_literal_given_to_a_function_takes_the_type_of_each_place_where_it_is_used() -> None:
    assert literals(typed(_calls)) == [(7, I32), (7, F32)]


def test_a_literal_between_two_comparisons_takes_the_type_of_each() -> None:
    assert literals(typed(_compares)) == [(7, F32), (7, I32)]


def test_what_comes_after_and_or_and_if_may_need_statements_of_its_own_which_run_only_then() -> None:
    device = windtunnel.device("l4", known=Catalogue())
    given, out = np.array([9, 3, -2, 4], np.int32), device.to_device(np.zeros(6, np.int32))
    device.launch(_guarded, 1, 6, device.to_device(given), out)
    assert device.to_host(out).tolist() == [100, 121, 120, 121, 130, 130]
