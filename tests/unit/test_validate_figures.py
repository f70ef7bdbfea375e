"""What is said of model against measurement: figures by hand, laws they keep, and the noise floor by theory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.device import Device, Kind, Parameters, RawCost
from windtunnel.core.errors import InputError
from windtunnel.core.ops import OPERATIONS, Rows
from windtunnel.core.provenance import Provenance, SourcedValue, assumed
from windtunnel.core.results.validation import Environment, SuspectRow, UnsupportedPart
from windtunnel.core.spec import ApiProfile, DeviceSpec, Parameter
from windtunnel.report.validation import api_rows
from windtunnel.report.validation_page import render
from windtunnel.validation.compare import Comparison, compare, halves
from windtunnel.validation.page import charts, points
from windtunnel.validation.rows import Measurement
from windtunnel.validation.statistics import figures, mean_difference, noise_floor


def _cost(p: Parameters, rows: Rows) -> RawCost:
    if rows.choices["dtype"] == "int8":
        raise p.unsupported("does not add int8")
    n = rows.numbers["n"]
    return RawCost(p("second_s") * n, np.asarray(1.0), np.where(n < 10.0, "launch", "memory"), np.full(n.shape, 0.1))


KIND = Kind(
    name="ruler",
    doc="as many seconds as elements",
    parameters=(Parameter("second_s", "s", "a second"),),
    costs={"vector_add": _cost},
    errors={"vector_add": assumed(1.2, 1.1, 1.3, "a test's")},
)
VALUES = {"second_s": SourcedValue(1.0, Provenance.DATASHEET, "a test")}
RULER = Device(
    DeviceSpec("ruler", "ruler", "nobody", "Ruler", ("native",), VALUES),
    KIND,
    ApiProfile("native", "", ("ruler",), frozenset(), {}),
    VALUES,
)


def row(n: float, latency_s: float, dtype: str = "float32", **more: object) -> Measurement:
    columns = OPERATIONS.find("vector_add").complete({"n": n, "dtype": dtype})
    return Measurement("ruler", "by hand", "vector_add", columns, latency_s, **more)  # type: ignore[arg-type]


def compared(rows: Sequence[Measurement]) -> Comparison:
    """The comparison of rows of one device and operation with a model that says n seconds."""
    (found,) = compare(rows, lambda *_: RULER)
    return found


def test_the_figures_of_a_small_table_are_those_worked_out_by_hand() -> None:
    # Errors: 10/8 - 1 = +25%, 20/25 - 1 = -20%, 30/30 - 1 = 0, 5/4 - 1 = +25%.
    said = compared([row(10, 8.0), row(20, 25.0), row(30, 30.0), row(5, 4.0)]).report()
    assert said.n == 4
    assert said.mape == pytest.approx(0.175)
    assert said.median_ape == pytest.approx(0.225)
    assert said.p90_ape == pytest.approx(0.25)  # the third and fourth of four are alike
    assert said.bias == pytest.approx(0.075)
    assert said.coverage == 0.25  # exp(0.1) is 1.105: the one that is right
    assert said.noise_floor is None
    assert said.noise_points == 0


def test_regimes_and_formats_are_told_apart_and_add_up() -> None:
    said = compared([row(5, 4.0), row(20, 25.0), row(30, 30.0), row(40, 50.0, "float16")]).report()
    bounds = {part.bound: part.figures for part in said.by_bound}
    assert list(bounds) == ["memory", "launch"]  # the most rows first
    assert (bounds["launch"].n, bounds["launch"].mape) == (1, pytest.approx(0.25))
    assert (bounds["memory"].n, bounds["memory"].mape) == (3, pytest.approx((0.2 + 0.0 + 0.2) / 3))
    assert {part.dtype: part.figures.bias for part in said.by_dtype} == pytest.approx(
        {"float32": (0.25 - 0.2) / 3, "float16": -0.2}
    )
    assert sum(part.figures.n * part.figures.mape for part in said.by_bound) == pytest.approx(4 * said.mape)


def test_the_row_furthest_off_by_factor_comes_first_whichever_way_it_is_off() -> None:
    worst = compared([row(10, 9.0), row(20, 80.0), row(30, 10.0, line=7)]).report().worst
    assert [one.columns["n"] for one in worst] == [20.0, 30.0, 10.0]  # four times too short, three times too long
    assert worst[1].error == pytest.approx(2.0)
    assert worst[1].line == 7
    assert [one.inside for one in worst] == [False, False, False]


def test_a_suspect_row_enters_no_figure_and_is_named() -> None:
    said = compared([row(10, 10.0), row(10, 99.0, suspect="numbers wrong", line=3)]).report()
    assert (said.n, said.mape, said.noise_floor) == (1, 0.0, None)
    assert said.suspect == [SuspectRow(row(10, 1.0).columns, 99.0, "numbers wrong", 3)]


def test_where_all_rows_are_suspect_there_are_no_figures() -> None:
    said = compared([row(10, 10.0, suspect="hot")]).report()
    assert said.n == 0
    assert [said.mape, said.median_ape, said.p90_ape, said.bias, said.noise_floor, said.coverage] == [None] * 6


def test_rows_that_the_model_refuses_are_counted_apart_with_why() -> None:
    said = compared([row(10, 10.0), row(20, 1.0, "int8", line=9), row(30, 1.0, "int8")]).report()
    assert said.n == 1
    assert said.unsupported == [UnsupportedPart(2, "ruler does not add int8", 9, lines=[9])]


def test_sizes_whose_times_do_not_grow_are_suspect_unless_a_launch_explains_them() -> None:
    flat = [row(10.0**i, 1.0, line=2 + i) for i in range(4)]  # the model says as many seconds as elements
    grows = [row(2e4, 1e4, line=7), row(2e5, 1e5, line=8), row(10.0, 8.0, "float16", line=9)]
    said = compared([*flat, *grows]).report()
    assert [(one.line, one.why) for one in said.suspect] == [
        (4, "its time does not grow with its size: 1/100 of the size (line 2) takes as long"),
        (5, "its time does not grow with its size: 1/100 of the size (line 3) takes as long"),
    ]
    assert said.n == 5
    launches = [row(n, 1e6) for n in (1.0, 1e2, 1e4)]  # the times of a launch, longer than the model says
    assert compared(launches).report().suspect == []


def test_a_model_that_refuses_every_row_is_an_error_with_the_place() -> None:
    with pytest.raises(InputError, match="by hand:9: ruler does not add int8"):
        compared([row(20, 1.0, "int8", line=9)])


def test_devices_and_operations_come_in_the_order_of_the_rows() -> None:
    other = Measurement("other", "by hand", "vector_add", row(3, 1.0).columns, 3.0)
    found = compare([other, row(10, 10.0), other], lambda *_: RULER)
    assert [(one.name, len(one.rows)) for one in found] == [("other", 2), ("ruler", 1)]


TIMES = st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-3, 1e3)), min_size=1, max_size=20)


@given(TIMES)
def test_a_model_that_is_the_truth_errs_by_nothing(pairs: list[tuple[int, float]]) -> None:
    said = compared([row(n, float(n)) for n, _ in pairs]).report()
    assert (said.mape, said.median_ape, said.p90_ape, said.bias, said.coverage) == (0, 0, 0, 0, 1)
    assert said.noise_floor in (None, 0.0)


@given(TIMES, st.floats(1e-3, 1e3))
def test_the_figures_do_not_depend_on_the_unit_of_time(pairs: list[tuple[int, float]], scale: float) -> None:
    modelled = np.array([float(n) for n, _ in pairs])
    measured = np.array([n * ratio for n, ratio in pairs])
    one = figures(modelled, measured, 0.9 * modelled, 1.1 * modelled)
    modelled = modelled * scale
    other = figures(modelled, measured * scale, 0.9 * modelled, 1.1 * modelled)
    for mine, theirs in zip(astuple(one)[1:5], astuple(other)[1:5], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)


@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=12), st.floats(1e-3, 1e3))
def test_the_noise_floor_does_not_depend_on_the_unit_of_time_or_on_order(times: list[float], scale: float) -> None:
    whole = mean_difference(times)
    pairs = [abs(math.log(a / b)) for i, a in enumerate(times) for b in times[:i]]
    assert whole == pytest.approx(sum(pairs) / len(pairs), abs=1e-9)
    assert mean_difference([scale * time for time in reversed(times)]) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("repetitions", [2, 3, 7])
@pytest.mark.parametrize("sigma", [0.01, 0.05])
def test_the_noise_floor_is_what_a_perfect_model_shows_however_few_the_repetitions(
    repetitions: int, sigma: float
) -> None:
    # Lognormal errors: E|d| is sigma sqrt(2/pi), and so, to second order, is the MAPE of the truth.
    rng = np.random.default_rng(repetitions)
    truth = np.exp(rng.uniform(-10.0, 0.0, 20_000))
    times = truth[:, None] * np.exp(rng.normal(0.0, sigma, (len(truth), repetitions)))
    floor, points = noise_floor((point.tolist(), 1) for point in times)
    assert points == len(truth)
    assert floor == pytest.approx(sigma * math.sqrt(2.0 / math.pi), rel=0.02)
    perfect = figures(truth, times[:, 0], truth, truth).mape
    assert floor == pytest.approx(perfect, rel=0.03)


def test_points_weigh_as_many_rows_as_they_stand_for() -> None:
    floor, points = noise_floor([([1.0, math.e], 1), ([1.0, 1.0], 3), ([5.0], 9)])
    assert points == 2
    assert floor == pytest.approx(0.25 / math.sqrt(2.0))


def test_rows_of_one_point_are_repeated_measurements_and_else_a_rows_own_repetitions_are() -> None:
    # Twice n = 10, which differ by a factor of e; n = 20 has repetitions that agree.
    said = compared([row(10, 1.0), row(10, math.e), row(20, 20.0, repeats=(20.0, 20.0, 20.0)), row(30, 30.0)]).report()
    assert said.noise_points == 2
    assert said.noise_floor == pytest.approx(2.0 / 3.0 / math.sqrt(2.0))


def test_another_context_is_another_point_and_so_is_another_source() -> None:
    warm = OPERATIONS.find("vector_add").complete({"n": 10, "cache": "warm"})
    apart = [
        row(10, 10.0),
        Measurement("ruler", "by hand", "vector_add", warm, 20.0),
        Measurement("ruler", "another card", "vector_add", row(10, 1.0).columns, 30.0),
    ]
    assert compared(apart).report().noise_floor is None


def product(m: int, n: int, k: int, dtype: str = "float32") -> Measurement:
    columns = OPERATIONS.find("gemm").complete({"m": m, "n": n, "k": k, "dtype": dtype})
    return Measurement("l4", "by hand", "gemm", columns, 1.0)


def test_halves_are_of_whole_shapes_and_the_same_whatever_the_order() -> None:
    rows = [
        product(m, n, k, dtype)
        for n in (64, 128, 256)
        for k in (32, 64, 512)
        for m in (1, 7, 100)
        for dtype in ("float32", "float16")
    ]
    fitted, held, how = halves(rows)

    def shapes(of: Sequence[Measurement]) -> set[tuple[object, ...]]:
        return {(one.columns["n"], one.columns["k"]) for one in of}

    assert len(fitted) + len(held) == len(rows)
    assert not shapes(fitted) & shapes(held)
    assert abs(len(shapes(fitted)) - len(shapes(held))) <= 1
    assert how == "every other (n, k, batch) held out with all their m, 9 in all"
    again = halves(rows[::-1])
    assert (shapes(again[0]), shapes(again[1])) == (shapes(fitted), shapes(held))


def test_few_shapes_are_split_by_every_size() -> None:
    fitted, held, how = halves([product(m, 64, 64) for m in range(1, 11)])
    assert (len(fitted), len(held)) == (5, 5)
    assert how == "every other (m, n, k, batch) held out, 10 in all"
    assert halves([row(n, 1.0) for n in range(1, 5)])[2] == "every other (n) held out, 4 in all"


def test_of_many_rows_the_page_draws_some_evenly_by_time_and_all_that_are_furthest_off() -> None:
    far = {17 * i + 3 for i in range(10)}
    rows = [row(n, n * (3.0 if n in far else 1.001)) for n in range(1, 1001)]
    drawn = points(compared(rows), most=60)
    assert (drawn.shown, drawn.all) == (len(drawn.measured), 1000)
    assert 55 <= drawn.shown <= 60
    sizes = drawn.numbers["n"]
    assert far <= set(sizes)
    usual = sorted(n for n in sizes if n not in far)
    assert (usual[0], usual[-1]) == (1.0, 1000.0)
    assert max(b - a for a, b in zip(usual, usual[1:], strict=False)) < 50
    assert points(compared(rows), most=1000).shown == 1000


def test_a_point_of_the_page_is_one_row_through_all_its_columns() -> None:
    (chart,) = charts([compared([row(5, 4.0), row(20, 25.0, "float16"), row(1, 1.0, suspect="hot")])])
    assert [chart.bounds[i] for i in chart.bound] == ["launch", "memory"]
    assert [chart.choices[i] for i in chart.choice] == ["float32", "float16"]
    assert (chart.measured, chart.modelled, chart.numbers) == ([4.0, 25.0], [5.0, 20.0], {"n": [5.0, 20.0]})
    assert (chart.size, chart.size_unit) == ([60.0, 120.0], "B")  # two reads and a write, of 4 and of 2 bytes
    assert charts([compared([row(1, 1.0, suspect="hot")])]) == []


def test_the_apis_of_one_chip_stand_side_by_side_where_several_did_the_same_work() -> None:
    columns = OPERATIONS.find("vector_add").complete({"n": 1_000_000})
    times = {"ruler@cuda": 2.0, "ruler@vulkan": 1.0, "other@cuda": 5.0}
    rows = [Measurement(name, "by hand", "vector_add", columns, seconds) for name, seconds in times.items()]
    rows += [Measurement("ruler@vulkan", "by hand", "vector_add", {**columns, "n": 7.0}, 0.3)]
    results = [one.report() for one in compare(rows, lambda *_: RULER)]
    assert [len(one.reference_points) for one in results] == [1, 1, 1]
    quickest, other = api_rows(results)
    assert (quickest[1:4], other[1:4]) == (["vulkan", "1.00 s", "×1"], ["cuda", "2.00 s", "×2"])
    assert quickest[0].endswith("on ruler")
    twice = [*rows[:2], Measurement("ruler@cuda", "cuda:1", "vector_add", columns, 4.0)]
    labels = [one[1] for one in api_rows([one.report() for one in compare(twice, lambda *_: RULER)])]
    assert labels == ["vulkan", "cuda (by hand)", "cuda (cuda:1)"]
    assert "Comparison of APIs" in render(results, [], Environment())
    assert "Comparison of APIs" not in render(results[2:], [], Environment())
