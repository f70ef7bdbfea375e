"""Measuring: rounds, budgets, intervals and what goes wrong, on devices whose time is a law and whose clock is ours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS
from windtunnel.core.results.validation import Conditions
from windtunnel.runtime.codes import code_of
from windtunnel.validation import load, measure, suite
from windtunnel.validation.budget import PATIENCE_SHARE, Budget
from windtunnel.validation.measure import LEAST_ROUNDS, MOST_ROUNDS, Point, Session, point
from windtunnel.validation.reference_points import REFERENCE_POINTS, is_reference_point

ADD = OPERATIONS.find("vector_add")


def law_s(n: float) -> float:
    return 5e-6 + n * 1e-9


class Clock:
    """Time that passes only when a device takes it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fake:
    """A device: ``law_s`` times a factor that is drawn for each visit, and one for each sample."""

    info = SimpleNamespace(software=True, kind="gpu", memory_bytes=16e9)

    def __init__(self, clock: Clock, visit: float = 0.0, sample: float = 0.0, *, seed: int = 0, **strange: Any) -> None:
        self.clock, self.visit, self.sample, self.strange = clock, visit, sample, strange
        self.rng = np.random.default_rng(seed)
        self.order: list[float] = []
        self.runs: Counter[float] = Counter()
        self.open = self.closed = 0
        self.joules = 0.0
        self.max_wait_s = 0.0

    def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
        return "not that" if op != "vector_add" else None

    def trial(self, op: str, columns: Mapping[str, Any]) -> Any:
        self.order.append(columns["n"])
        if columns["n"] in self.strange.get("too_large", ()):
            raise errors.DeviceOutOfMemory(
                "no", operation="trial", device="fake", code=code_of("cuda", errors.DeviceOutOfMemory)
            )
        self.open += 1
        if len(self.order) <= self.strange.get("readies", math.inf):
            self.clock.now += self.strange.get("ready", 0.0)
        return FakeTrial(self, columns["n"])

    def energy_j(self) -> float | None:
        return self.joules if "watts" in self.strange else None

    def close(self) -> None:
        self.closed += 1


class FakeTrial:
    timer, note = "device", "a law"

    def __init__(self, device: Fake, n: float) -> None:
        self.device, self.n = device, n
        self.factor = math.exp(device.visit * device.rng.standard_normal())
        self.cold = True

    def run(self, count: int = 1) -> float:
        device = self.device
        if self.n in device.strange.get("hangs", ()):
            device.clock.now += device.max_wait_s
            raise errors.DeviceHang("hung", operation="run", device="fake", code=code_of("cuda", errors.DeviceHang))
        seconds = law_s(self.n) * self.factor * math.exp(device.sample * device.rng.standard_normal())
        if self.cold:
            seconds, self.cold = seconds + 0.01, False  # compiled, the first time
        device.runs[self.n] += count
        device.clock.now += count * seconds * (1 + device.strange.get("pause", 0.0))
        device.joules += device.strange.get("watts", 0.0) * count * seconds
        return seconds

    def check(self) -> float:
        return 2.0 if self.n in self.device.strange.get("wrong", ()) else 0.1

    def close(self) -> None:
        self.device.open -= 1


def points(*sizes: int) -> list[Point]:
    return [point(ADD, n=n) for n in sizes]


def measured(device: Fake, wanted: Sequence[Point], budget_s: float = 60.0, **named: Any) -> measure.Measured:
    session = Session(lambda: device, budget=Budget(budget_s, device.clock), **named)
    able = session.supported(wanted)
    return session.run(able, [law_s(float(one.columns["n"])) for one in able], device="host@cuda", source="fake:0")


def test_a_law_without_noise_is_found_exactly_and_no_more_is_run_than_that_takes() -> None:
    device = Fake(Clock())
    found = measured(device, points(1000, 10**6, 10**8))
    assert [row.latency_s for row in found.rows] == pytest.approx([law_s(n) for n in (1e3, 1e6, 1e8)], rel=1e-12)
    assert found.rounds == LEAST_ROUNDS and device.open == 0
    for row in found.rows:
        assert len(row.repeats) == LEAST_ROUNDS and not row.suspect
        assert row.low_s == pytest.approx(row.latency_s) == row.high_s
        assert (row.device, row.source, row.timer, row.note, row.error_over_tolerance) == (
            "host@cuda",
            "fake:0",
            "device",
            "a law",
            0.1,
        )


def test_what_is_run_for_the_first_time_is_not_what_is_measured() -> None:
    """Compiling takes 10 ms, a thousand times the kernel."""
    found = measured(Fake(Clock()), points(1000))
    assert found.rows[0].latency_s == pytest.approx(law_s(1000))


def test_the_first_round_goes_by_size_and_the_others_each_by_an_order_of_their_own() -> None:
    device, sizes = Fake(Clock(), visit=0.05), [10**i for i in range(1, 8)]
    measured(device, points(*reversed(sizes)))
    orders = [tuple(device.order[at : at + 7]) for at in range(0, 21, 7)]
    assert orders[0] == tuple(sizes) and all(sorted(order) == sizes for order in orders)
    assert len(set(orders)) == 3


def test_the_seed_decides_the_order() -> None:
    orders = []
    for seed in (1, 1, 2):
        device = Fake(Clock(), visit=0.05)
        measured(device, points(*range(1, 9)), seed=seed)
        orders.append(device.order)
    assert orders[0] == orders[1] != orders[2]


def test_a_point_is_measured_until_its_interval_is_tight_or_rounds_are_over() -> None:
    quiet, noisy = measured(Fake(Clock(), visit=0.001), points(10)), measured(Fake(Clock(), visit=0.1), points(10))
    assert quiet.rounds == LEAST_ROUNDS < noisy.rounds == MOST_ROUNDS


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """95% of 400 devices whose rounds differ by 5%, or a little more: a median of few numbers is less uncertain than said."""
    held = 0
    for seed in range(400):
        (row,) = measured(Fake(Clock(), visit=0.05, seed=seed), points(10**6)).rows
        assert row.low_s is not None and row.high_s is not None
        held += row.low_s <= law_s(1e6) <= row.high_s
    assert 0.93 * 400 <= held <= 0.99 * 400, held


def test_an_interval_holds_its_median_however_few_the_rounds() -> None:
    rounds = set()
    for budget_s in (0.1, 0.2, 0.3, 0.5, 1.0):
        for seed in range(10):
            device = Fake(Clock(), visit=0.5, sample=0.05, seed=seed)
            for row in measured(device, points(*(10**6 + n for n in range(12))), budget_s).rows:
                rounds.add(min(len(row.repeats), LEAST_ROUNDS))
                assert row.low_s is None or row.low_s <= row.latency_s
                assert row.high_s is None or row.latency_s <= row.high_s
    assert {1, LEAST_ROUNDS} <= rounds
    # Of two rounds the median is between them, and what the first visit's samples said is not around it.
    record = measure._Record(repeats=[1.0, 3.0], spread=(0.9, 1.1))
    row = Session._row(points(10)[0], record, "host@cuda", "fake:0")
    assert (row.latency_s, row.low_s, row.high_s) == (2.0, None, None)


def test_where_time_is_short_some_points_are_measured_often_enough_rather_than_all_once() -> None:
    wanted = points(*(10**6 + n for n in range(60)))
    found = measured(Fake(Clock(), visit=0.2), wanted, budget_s=5.0)
    often = [row for row in found.rows if len(row.repeats) >= LEAST_ROUNDS]
    assert 30 < len(found.rows) < 60 and len(often) > 0.9 * len(found.rows)
    assert all(row.low_s is not None for row in often)
    # Spread over the sizes, its ends with it.
    sizes = sorted(float(row.columns["n"]) for row in often)
    assert sizes[0] == 10**6 and sizes[-1] == 10**6 + 59


def test_where_visits_take_longer_than_expected_points_are_left_out_early_and_the_others_get_their_rounds() -> None:
    """Operands take 0.5 s: 60 points with three rounds would take 90 s and more."""
    device = Fake(Clock(), visit=0.2, ready=0.5)
    found = measured(device, points(*(10**6 + n for n in range(60))), budget_s=30.0)
    assert 12 <= len(found.rows) <= 20 and len(found.rows) + len(found.over_budget) == 60
    assert sum(len(row.repeats) >= LEAST_ROUNDS for row in found.rows) > 0.8 * len(found.rows)
    sizes = sorted(float(row.columns["n"]) for row in found.rows)
    assert sizes[0] == 10**6 and sizes[-1] == 10**6 + 59
    # Where only the first visits are slow (a compiler), what was left out is measured in later rounds.
    device = Fake(Clock(), ready=0.5, readies=10)
    found = measured(device, points(*(10**6 + n for n in range(60))), budget_s=30.0)
    assert len(found.rows) == 60 and all(len(row.repeats) >= LEAST_ROUNDS for row in found.rows)
    assert len({*device.order[:60]}) < 60, "not all in the first round"


def test_rounds_that_differ_are_told() -> None:
    (row,) = measured(Fake(Clock(), visit=2.0), points(1000)).rows
    assert "unsteady" in row.suspect
    (row,) = measured(Fake(Clock(), visit=0.1), points(1000)).rows
    assert not row.suspect


def test_wrong_numbers_are_told_whatever_the_time() -> None:
    rows = measured(Fake(Clock(), wrong=(1000.0,)), points(1000, 2000)).rows
    assert "2 times the tolerance" in rows[0].suspect and not rows[1].suspect


def test_what_is_refused_is_said_with_its_reason_and_takes_no_time() -> None:
    launch = point(OPERATIONS.find("launch"))
    device = Fake(Clock(), too_large=(5000.0,))
    found = measured(device, [launch, *points(1000, 5000)])
    assert {(one.op, why.split(":")[0]) for one, why in found.refused} == {
        ("launch", "not that"),
        ("vector_add", "trial on fake"),
    }
    assert [row.columns["n"] for row in found.rows] == [1000.0] and device.order.count(5000.0) == 1


def test_a_device_that_hangs_is_opened_anew_and_the_others_are_still_measured() -> None:
    clock = Clock()
    devices: list[Fake] = []

    def anew() -> Fake:
        devices.append(Fake(clock, hangs=(2000.0,)))
        return devices[-1]

    session = Session(anew, budget=Budget(60.0, clock))
    wanted = points(1000, 2000, 3000)
    found = session.run(wanted, [1e-6, 2e-6, 3e-6], device="host", source="fake:0")
    assert [row.columns["n"] for row in found.rows] == [1000.0, 3000.0]
    assert [one.columns["n"] for one, _ in found.refused] == [2000.0]
    assert len(devices) == 2 and devices[0].closed == 1 and 2000.0 not in devices[1].order


def wait(device: Fake, most_s: float) -> None:
    device.max_wait_s = most_s


@pytest.mark.parametrize("budget_s", [12.0, 60.0, 3600.0])
def test_an_operation_that_hangs_at_every_size_costs_no_more_than_two_shares_and_the_others_are_measured(
    budget_s: float,
) -> None:
    clock, hangs = Clock(), tuple(range(2000, 30_000, 1000))
    session = Session(lambda: Fake(clock, hangs=hangs), budget=Budget(budget_s, clock), wait=wait)
    others = [point(ADD, n=n, dtype=dtype) for n in (1000, 30_000) for dtype in ("int8", "float16", "bfloat16")]
    wanted = [*points(1000, *hangs), *others]
    found = session.run(wanted, [law_s(float(one.columns["n"])) for one in wanted], device="host", source="fake:0")
    fine = [one for one in wanted if one.columns["n"] not in hangs]
    assert [row.columns for row in found.rows] == [one.columns for one in fine]
    assert all(len(row.repeats) >= LEAST_ROUNDS for row in found.rows)
    words = [why for _, why in found.refused]
    assert len(words) == len(hangs) and list(found.hung) == words[:2]
    assert [why.startswith("vector_add n=") and "hung" in why for why in words[:2]] == [True, True]
    assert all("not tried: vector_add n=2000" in why for why in words[2:])
    share = max(Budget.least_patience_s, PATIENCE_SHARE * budget_s)
    alone = measured(Fake(Clock()), fine, budget_s)
    assert found.spent_s <= 2 * share + 1.1 * alone.spent_s


def test_what_hung_once_is_tried_in_other_sizes_once_all_else_was_measured() -> None:
    clock, devices = Clock(), []

    def anew() -> Fake:
        devices.append(Fake(clock, hangs=(2000.0,)))
        return devices[-1]

    session = Session(anew, budget=Budget(60.0, clock), wait=wait)
    wanted = [*points(2000, 3000), point(ADD, n=9000, dtype="int8")]
    found = session.run(wanted, [1e-6, 2e-6, 3e-6], device="host", source="fake:0")
    assert [row.columns["n"] for row in found.rows] == [3000.0, 9000.0]
    assert devices[1].order[:2] == [9000.0, 3000.0]


def test_how_long_a_call_is_waited_for_goes_by_the_model_then_by_the_visits_before_and_by_what_is_left() -> None:
    clock, said = Clock(), []
    session = Session(
        lambda: Fake(clock), budget=Budget(3600.0, clock), wait=lambda _, most_s: said.append((clock.now, most_s))
    )
    session.run(points(10**9), [law_s(1e9)], device="host", source="fake:0")
    first, *later = [most_s for _, most_s in said]
    assert first == pytest.approx(measure.FIRST_S + measure.TIMES * law_s(1e9))
    visits = [end - begin for (begin, _), (end, _) in zip(said, said[1:], strict=False)]
    assert later[0] == pytest.approx(measure.AGAIN * visits[0]) and later[1] >= later[0] > Budget.least_patience_s
    said.clear()
    session.budget = Budget(clock.now + 30.0, clock)
    session.run(points(10**6), [1.0e-4], device="host", source="fake:0")
    assert said[0][1] == pytest.approx(30.0 * PATIENCE_SHARE)
    session.budget = Budget(clock.now + 0.1, clock)
    session._wait(100.0)
    assert said[-1][1] == Budget.least_patience_s


def test_a_device_that_hangs_when_it_is_asked_what_it_does_is_opened_anew() -> None:
    class Mute(Fake):
        def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
            if columns["n"] == 2000.0:
                raise errors.DeviceHang(
                    "hung", operation="refusal", device="fake", code=code_of("cuda", errors.DeviceHang)
                )
            return None

    devices: list[Fake] = []

    def anew() -> Fake:
        devices.append(Mute(Clock()))
        return devices[-1]

    session = Session(anew, budget=Budget(60.0, Clock()))
    assert session.supported(points(1000, 2000, 3000)) == points(1000, 3000)
    assert len(devices) == 2 and devices[0].closed == 1 and "n=2000" in session.refused[0][1]


def test_a_device_that_does_not_come_back_loses_nothing_that_was_measured() -> None:
    clock = Clock()
    devices = [Fake(clock, hangs=(2000.0,))]

    def once() -> Fake:
        if not devices:
            raise errors.DeviceNotPresentError("unplugged")
        return devices.pop()

    session = Session(once, budget=Budget(60.0, clock))
    found = session.run(points(1000, 2000, 3000), [1e-6, 2e-6, 3e-6], device="host", source="fake:0")
    assert [row.columns["n"] for row in found.rows] == [1000.0] and found.over_budget == []
    assert {one.columns["n"]: why for one, why in found.refused}[3000.0] == "the device did not open again: unplugged"


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30, unique=True), st.floats(0.05, 30.0))
def test_the_budget_is_kept_but_for_one_visit_and_every_point_is_accounted_for(
    sizes: list[int], budget_s: float
) -> None:
    device = Fake(Clock(), visit=0.02)
    found = measured(device, points(*sizes), budget_s)
    assert len(found.rows) + len(found.refused) + len(found.over_budget) == len(sizes)
    # A visit's parts: making ready, two warm-ups, a sample or so, and the numbers.
    longest = max((law_s(row.columns["n"]) for row in found.rows), default=0.0)  # type: ignore[arg-type]
    assert found.spent_s <= budget_s + 0.02 + 10 * longest + 10 * measure.SAMPLE_S
    assert all(row.repeats for row in found.rows)


def test_a_point_that_would_take_the_budget_is_left_and_said_to_be_also_where_the_model_is_far_off() -> None:
    """The model says a thousandth of what each takes: known after the first point."""
    device = Fake(Clock())
    wanted = points(10**6, 10**10)
    session = Session(lambda: device, budget=Budget(20.0, device.clock))
    found = session.run(wanted, [law_s(1e6) / 1000, law_s(1e10) / 1000], device="host", source="fake:0")
    assert [row.columns["n"] for row in found.rows] == [1e6] and [one.columns["n"] for one in found.over_budget] == [
        1e10
    ]
    assert 1e10 not in device.runs


def test_power_is_energy_over_a_second_where_a_device_counts_it() -> None:
    (row,) = measured(Fake(Clock(), watts=250.0), points(10**6)).rows
    assert row.power_w == pytest.approx(250.0) and "power" not in row.note
    (row,) = measured(Fake(Clock()), points(10**6)).rows
    assert row.power_w is None


@pytest.mark.parametrize(("pause", "busy"), [(0.1, True), (9.0, False)])
def test_power_takes_a_second_of_the_host_s_clock_and_is_of_a_device_that_is_busy_with_it(
    pause: float, busy: bool
) -> None:
    """Of each call the device executes the operation for a part, as with a GEMM behind a hold of the stream."""
    device = Fake(Clock(), watts=250.0, pause=pause)
    (row,) = measured(device, points(1000)).rows
    assert (row.power_w is not None) == busy
    assert busy or row.note == "a law; power not measured: the device was busy with it for 10% of the time"
    without = Fake(Clock(), pause=pause)
    measured(without, points(1000))
    assert device.clock.now - without.clock.now < load.POWER_S + 0.5


def test_power_takes_a_share_of_the_budget_and_only_once_points_have_an_interval() -> None:
    device = Fake(Clock(), watts=250.0)
    rows = measured(device, points(*range(10**6, 10**6 + 40)), 30.0).rows
    with_power = [row for row in rows if row.power_w is not None]
    assert 1 < len(with_power) <= measure.POWER_SHARE * 30.0 / load.POWER_S
    assert len(rows) == 40 and all(len(row.repeats) >= LEAST_ROUNDS for row in rows)


# What is measured.


def test_the_suite_has_every_operation_that_the_issue_names_and_no_point_twice() -> None:
    every = list(suite.points())
    assert {"launch", "copy", "vector_add", "elementwise", "gemm", "stencil", "fft", "aes", "compress"} <= {
        p.op for p in every
    }
    assert len({(p.op, tuple(p.columns.items())) for p in every}) == len(every)
    copies = [p.columns["bytes"] for p in every if p.op == "copy"]
    assert min(copies) == 4.0 and max(copies) == 1e9  # type: ignore[type-var]


@given(st.integers(1, 300))
def test_what_is_spread_keeps_its_order_and_has_of_every_operation_while_there_is_room(most: int) -> None:
    every = list(suite.points())
    kept = suite.spread(every, most)
    assert len(kept) == min(most, len(every))
    places = [every.index(one) for one in kept]
    assert places == sorted(places)
    assert len({p.op for p in kept}) == min(most, len({p.op for p in every}))


def test_what_a_model_does_not_know_or_takes_too_long_does_not_fit() -> None:
    wanted = points(1, 2, 3)
    costs = {1.0: None, 2.0: 1e-6, 3.0: 100.0}
    fits, beyond = suite.within(wanted, lambda one: costs[one.columns["n"]], 60.0)  # type: ignore[index]
    assert fits == [wanted[1]] and beyond == [wanted[0], wanted[2]]


@given(st.floats(1.0, 3600.0))
def test_what_fits_takes_no_more_than_the_budget_by_the_model_and_by_its_bytes(budget_s: float) -> None:
    every = list(suite.points())
    fits, beyond = suite.within(every, lambda _: 1e-3, budget_s)
    assert len(fits) + len(beyond) == len(every)
    visits = measure.LEAST_RUNS * 1e-3 + LEAST_ROUNDS * suite.A_VISIT_S
    taken = sum(visits + LEAST_ROUNDS * suite.footprint_bytes(one) / suite.READY_BYTES_S for one in fits)
    assert taken <= budget_s * (1 + 1e-9)
    if budget_s >= 30.0:
        assert len(fits) == len(every) or taken + visits > 0.5 * budget_s, "most of the budget is used"


def test_reference_points_are_points_of_the_suite_and_come_first_where_the_budget_is_small() -> None:
    every = list(suite.points())
    found = [one for one in every if one.share == suite.REFERENCE_POINT_SHARE]
    assert [(one.op, one.columns) for one in found] == [(one.op, one.columns) for one in REFERENCE_POINTS]
    fits, _ = suite.within(every, lambda _: 1e-3, 3.0)
    assert len(fits) < len(every) / 10
    assert all(one in fits for one in found)


@pytest.mark.parametrize("share", [math.inf, math.nan])
def test_numbers_that_are_not_finite_make_a_row_suspect_and_not_the_document_unwritable(share: float) -> None:
    device = Fake(Clock(), wrong=(1000.0,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeTrial, "check", lambda _: share)
        (row,) = measured(device, points(1000)).rows
    assert "not finite" in row.suspect and row.error_over_tolerance is None


def test_a_reference_point_may_take_a_greater_share_of_the_budget_than_others() -> None:
    product = next(one for one in suite.points() if one.op == "gemm" and is_reference_point(one.op, one.columns))
    other = replace(product, columns={**product.columns, "m": 1025.0}, share=Point.share)
    fits, beyond = suite.within([product, other], lambda _: 0.1 * 60.0 / measure.LEAST_RUNS, 60.0)
    assert (fits, beyond) == ([product], [other])


class Warming(Fake):
    """A device that tells its clocks: each look finds it warmer and slower, the third at its power cap."""

    looks = 0

    def conditions(self) -> Conditions:
        self.looks += 1
        if self.looks in self.strange.get("blind", ()):
            raise RuntimeError("NVML did not answer")
        held = ["power cap"] if self.looks == 3 else ["idle"]
        return Conditions(sm_clock_hz=2e9 - 1e7 * self.looks, temperature_c=40.0 + self.looks, held_back=held)


def test_clocks_and_heat_are_looked_at_at_the_begin_after_each_visit_and_at_the_end() -> None:
    device = Warming(Clock())
    told = measured(device, points(1000, 10**6)).conditions
    assert device.looks == 2 + 2 * LEAST_ROUNDS
    assert told.begin == Conditions(sm_clock_hz=1.99e9, temperature_c=41.0, held_back=["idle"])
    assert told.end.temperature_c == 40.0 + device.looks
    assert told.lowest == Conditions(sm_clock_hz=2e9 - 1e7 * device.looks, temperature_c=41.0)
    assert told.highest == Conditions(
        sm_clock_hz=1.99e9, temperature_c=40.0 + device.looks, held_back=["idle", "power cap"]
    )


def test_a_look_that_fails_costs_no_measurement_and_a_device_that_tells_none_has_none() -> None:
    found = measured(Warming(Clock(), blind=(1, 2)), points(1000))
    assert found.rows and not found.refused and found.conditions.begin.temperature_c == 43.0
    assert measured(Fake(Clock()), points(1000)).conditions is None
    assert measure.summary([]) is None


class Idling(Fake):
    """A GPU: its clock is low until it worked for 0.4 s without a pause of 0.1 s, and for a second afterwards.

    ``mute``: it does not report its clock. ``stuck``: it stays at the low clock. ``capped``: and its power cap is why.
    """

    info = SimpleNamespace(software=False, kind="gpu", memory_bytes=16e9)
    low_hz, high_hz = 0.6e9, 2e9

    def __init__(self, clock: Clock, **strange: Any) -> None:
        super().__init__(clock, **strange)
        self.worked_s, self.until, self.works = 0.0, -1.0, 0

    @property
    def hz(self) -> float:
        return self.high_hz if self.clock.now <= self.until and "stuck" not in self.strange else self.low_hz

    def trial(self, op: str, columns: Mapping[str, Any]) -> Any:
        found = super().trial(op, columns)
        run = found.run

        def slower(count: int = 1) -> float:
            began, slow = self.clock.now, self.high_hz / self.hz
            seconds = run(count)
            self.clock.now = began + slow * (self.clock.now - began)
            if columns["n"] > 1e6:
                self.worked_s += self.clock.now - began
                self.works += count
                if self.worked_s >= 0.4:
                    self.until = self.clock.now + 1.0
            else:
                self.worked_s = 0.0
            return seconds * slow

        found.run = slower
        return found

    def conditions(self) -> Conditions:
        if "mute" in self.strange:
            return Conditions()
        if "blind" in self.strange:
            raise RuntimeError("NVML did not answer")
        held = ["power cap"] if "capped" in self.strange else ["idle"]
        full_hz = self.high_hz if "stuck" in self.strange else None
        return Conditions(sm_clock_hz=self.hz, held_back=held, application_clock_hz=full_hz)


@pytest.mark.parametrize("strange", [{}, {"mute": True}, {"blind": True}])
def test_a_gpu_is_put_to_work_so_that_it_is_measured_at_its_clock(strange: Mapping[str, Any]) -> None:
    device = Idling(Clock(), **strange)
    wanted = points(*range(1000, 1030))
    found = measured(device, wanted)
    assert [row.latency_s for row in found.rows] == pytest.approx([law_s(n) for n in range(1000, 1030)])
    assert not any(row.suspect for row in found.rows) and device.open == 1
    # Its clock stays for a second, so that not every visit begins with work: 0.5 s in each 1.5 s or more.
    work_s = device.works * law_s(20e6)
    assert 0.5 <= work_s < 0.6 * found.spent_s
    device.info = SimpleNamespace(software=True, kind="gpu", memory_bytes=16e9)
    works = device.works
    assert measured(device, wanted).rows and device.works == works


def test_a_row_at_a_low_clock_is_suspect_unless_the_power_cap_lowers_it() -> None:
    (row,) = measured(Idling(Clock(), stuck=True), points(1000)).rows
    assert row.suspect == "the clock was 600 MHz, and the device's is 2000 MHz under load"
    (row,) = measured(Idling(Clock(), stuck=True, capped=True), points(1000)).rows
    assert not row.suspect
    record = measure._Record(repeats=[1.0, 1.0, 1.1], states=[Conditions(sm_clock_hz=hz) for hz in (2e9, 2e9, 0.6e9)])
    assert measure._suspect(record, 2e9) == "", "the median is that of the two other visits"


def test_a_gpu_without_the_operation_that_is_its_work_is_measured_and_its_rows_say_so() -> None:
    class Lacking(Idling):
        def refusal(self, op: str, columns: Mapping[str, Any]) -> str | None:
            return "no room" if columns["n"] > 1e6 else None

    (row,) = measured(Lacking(Clock()), points(1000)).rows
    assert row.note == "a law; the device was not put to work before: no room"


def test_work_that_hangs_is_not_tried_again() -> None:
    clock = Clock()
    session = Session(lambda: Idling(clock, hangs=(20e6,)), budget=Budget(60.0, clock), wait=wait)
    found = session.run(points(1000, 2000), [1e-6, 2e-6], device="host", source="fake:0")
    assert len(found.refused) == len(found.hung) == 1 and len(found.rows) == 1
    assert "not put to work before: run on fake: hung" in found.rows[0].note
