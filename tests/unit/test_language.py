"""The kernel language's front end: what a kernel's expressions are, and of which types."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import windtunnel
from windtunnel import grid, shared
from windtunnel.codegen.keywords import RESERVED
from windtunnel.language import ir
from windtunnel.language.infer import infer, type_of
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError
from windtunnel.language.types import F32, F64, I32, Array, f32, f64, i32, i64, u32
from windtunnel_models.catalogue import Catalogue

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


@windtunnel.kernel
def _sized(a, out: i32[:]):
    i = grid(1)
    out[i] = a.shape[-1]
    out[1] = a.shape[-2]
    out[2] = a.size


@windtunnel.kernel
def _third(a, out: i32[:]):
    i = grid(1)
    out[i] = a.shape[-3]


@windtunnel.kernel
def _kept(x: f64[:], n: i64, given, out: i64[:], reals: f64[:]):
    i = grid(1)
    out[i] = int(x[0])
    out[1] = math.floor(x[0])
    out[2] = int(n)
    reals[0] = float(x[1])
    reals[1] = given


@windtunnel.kernel
def _extremes(a: f32[:], b: f32[:], out: f32[:], ints: i32[:]):
    i = grid(1)
    out[i] = np.minimum(a[i], b[i])
    out[4 + i] = np.maximum(a[i], b[i])
    ints[i] = np.maximum(i, 2)


@windtunnel.kernel
def _powers(out: f64[:], x: f32[:], wide: i64[:]):
    i = grid(1)
    out[i] = 2**16
    wide[i] = 2**33
    x[i] = x[i] * ((1 << 20) - 1)


def _many_returns(a):
    s = 0
    if a > 0:
        s += 0
        if s > 1000:
            return 0
    if a > 1:
        s += 1
        if s > 1000:
            return 1
    if a > 2:
        s += 2
        if s > 1000:
            return 2
    if a > 3:
        s += 3
        if s > 1000:
            return 3
    if a > 4:
        s += 4
        if s > 1000:
            return 4
    if a > 5:
        s += 5
        if s > 1000:
            return 5
    if a > 6:
        s += 6
        if s > 1000:
            return 6
    if a > 7:
        s += 7
        if s > 1000:
            return 7
    if a > 8:
        s += 8
        if s > 1000:
            return 8
    if a > 9:
        s += 9
        if s > 1000:
            return 9
    if a > 10:
        s += 10
        if s > 1000:
            return 10
    if a > 11:
        s += 11
        if s > 1000:
            return 11
    if a > 12:
        s += 12
        if s > 1000:
            return 12
    if a > 13:
        s += 13
        if s > 1000:
            return 13
    return s


@windtunnel.kernel
def _returning(out: i32[:]):
    i = grid(1)
    out[i] = _many_returns(i * 10)


@windtunnel.kernel
def _backwards(out: i32[:], n: u32):
    i = grid(1)
    for j in range(n - 1, -1, -1):
        out[j] = i


@windtunnel.kernel
def _two_launched(out: f32[:]):
    one = windtunnel.shared.array(0, f32)
    other = windtunnel.shared.array(0, f32)
    other[0] = 1.0
    out[0] = one[0]


@windtunnel.kernel
def _chained(out: f32[:], ints: i32[:]):
    i = grid(1)
    a = b = 0
    a += i
    b += 0.5
    a = c = a + 1
    out[i] = b + c
    ints[i] = a


@windtunnel.kernel
def _given(out: i64[:], n):
    i = grid(1)
    out[i] = n


def test_a_literal_given_to_a_function_takes_the_type_of_each_place_where_it_is_used() -> None:
    assert literals(typed(_calls)) == [(7, I32), (7, F32)]


def test_a_literal_between_two_comparisons_takes_the_type_of_each() -> None:
    assert literals(typed(_compares)) == [(7, F32), (7, I32)]


def test_what_comes_after_and_or_and_if_may_need_statements_of_its_own_which_run_only_then() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    given, out = np.array([9, 3, -2, 4], np.int32), device.to_device(np.zeros(6, np.int32))
    device.launch(_guarded, 1, 6, device.to_device(given), out)
    assert device.to_host(out).tolist() == [100, 121, 120, 121, 130, 130]


def test_axes_below_zero_count_from_the_last_and_one_beyond_is_refused() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    given, out = device.to_device(np.zeros((2, 3), np.float32)), device.to_device(np.zeros(3, np.int32))
    device.launch(_sized, 1, 1, given, out)
    assert device.to_host(out).tolist() == [3, 2, 6]
    with pytest.raises(KernelError, match="axis -3 of 'a', which has 2"):
        device.launch(_third, 1, 1, given, out)


def test_conversions_of_numbers_of_64_bits_keep_their_bits() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    x = device.to_device(np.array([1e12 + 0.5, 0.1]))
    out, reals = device.to_device(np.zeros(3, np.int64)), device.to_device(np.zeros(2))
    device.launch(_kept, 1, 1, x, 2**40, np.float64(0.1), out, reals)
    assert device.to_host(out).tolist() == [10**12, 10**12, 2**40]
    assert device.to_host(reals).tolist() == [0.1, 0.1]
    assert type_of(np.float64(0.1)) == F64


def test_numpy_s_minimum_and_maximum_are_nan_where_either_is() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    a, b = np.array([1, np.nan, 3, np.inf], np.float32), np.array([np.nan, 2, 4, -np.inf], np.float32)
    out, ints = device.to_device(np.zeros(8, np.float32)), device.to_device(np.zeros(4, np.int32))
    device.launch(_extremes, 1, 4, device.to_device(a), device.to_device(b), out, ints)
    np.testing.assert_array_equal(device.to_host(out), np.concatenate([np.minimum(a, b), np.maximum(a, b)]))
    assert device.to_host(ints).tolist() == [2, 2, 2, 3]


def test_arithmetic_of_literals_is_worked_out_before_it_is_judged() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    out, x = device.to_device(np.zeros(1)), device.to_device(np.full(1, 0.5, np.float32))
    wide = device.to_device(np.zeros(1, np.int64))
    device.launch(_powers, 1, 1, out, x, wide)
    assert [device.to_host(one)[0] for one in (out, wide, x)] == [2**16, 2**33, 0.5 * (2**20 - 1)]


def test_a_function_of_many_returns_is_put_in_its_place_once_and_gives_what_python_s_does() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    out = device.to_device(np.zeros(4, np.int32))
    device.launch(_returning, 1, 4, out)
    assert device.to_host(out).tolist() == [_many_returns(i * 10) for i in range(4)]
    assert sum(1 for _ in ir.walk(typed(_returning.function).body)) < 200


def test_an_unsigned_counter_that_would_pass_zero_is_refused_at_its_line() -> None:
    with pytest.raises(KernelError, match=r"a range over u32 with -1 in it; expected a signed counter: i32\(n\)"):
        typed(_backwards.function)


def test_a_second_shared_array_of_the_launch_s_size_is_refused() -> None:
    with pytest.raises(KernelError, match="'other' is a second shared array whose size the launch sets"):
        typed(_two_launched.function)


def test_one_value_given_to_several_names_is_worked_out_once_and_a_literal_takes_each_one_s_type() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    out, ints = device.to_device(np.zeros(2, np.float32)), device.to_device(np.zeros(2, np.int32))
    device.launch(_chained, 1, 2, out, ints)
    assert device.to_host(out).tolist() == [1.5, 2.5]
    assert device.to_host(ints).tolist() == [1, 2]


def test_a_number_that_no_type_of_its_kind_holds_is_refused_by_its_name() -> None:
    device = windtunnel.device("l4", catalogue=Catalogue())
    out = device.to_device(np.zeros(1, np.int64))
    with pytest.raises(KernelError, match="'n' is 9223372036854775808, which does not fit into i64"):
        device.launch(_given, 1, 1, out, 2**63)


@pytest.mark.parametrize("name", ["linux", "unix", "typeof", "M_PI", "INT32_MAX", "SIZE_MAX"])
def test_names_that_a_compiler_has_as_macros_are_spelled_otherwise(name: str) -> None:
    assert name in RESERVED


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
        (_table_by_variable, "a tuple from outside, that is known only while the kernel runs; .*: pass 'WEIGHTS'"),
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
