"""Time is integer picoseconds through one door; randomness is keyed by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.core.errors import InputError
from windtunnel.core.recording import sum_of_ticks
from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_SECONDS, MAX_TICKS, to_seconds, to_tick_array, to_ticks


def test_ten_tenths_make_a_second() -> None:
    assert sum([to_ticks(0.1)] * 10) == to_ticks(1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1e-12, MAX_SECONDS * 1.01])
def test_what_is_no_time_is_refused(bad: float) -> None:
    with pytest.raises(InputError):
        to_ticks(bad)
    with pytest.raises(InputError):
        to_tick_array([0.0, bad])


@given(st.floats(min_value=0, max_value=9e6))
def test_seconds_survive_the_door_to_half_a_tick(seconds: float) -> None:
    assert abs(to_seconds(to_ticks(seconds)) - seconds) <= 0.5e-12 + seconds * 2**-52
    assert int(to_tick_array([seconds])[0]) == pytest.approx(to_ticks(seconds), abs=max(1, seconds * 1e-3))


def test_a_sum_of_times_is_exact_beyond_the_longest_time() -> None:
    rng = np.random.default_rng(1)
    ticks = np.append(rng.integers(0, MAX_TICKS, 1_000), [MAX_TICKS, 0, 1])
    assert sum_of_ticks(ticks) == sum(ticks.tolist()) > MAX_TICKS
    assert sum_of_ticks(ticks[:0]) == 0


def test_a_stream_is_its_name_and_seed_and_nothing_else() -> None:
    one = stream(1, "calls", "arrivals").random(5)
    stream(1, "other").random(100)
    assert np.array_equal(one, stream(1, "calls", "arrivals").random(5))
    assert not np.array_equal(one, stream(2, "calls", "arrivals").random(5))
    assert not np.array_equal(one, stream(1, "callsarrivals").random(5))


def test_the_ith_draw_does_not_depend_on_how_many_are_asked_for() -> None:
    whole = stream(3, "w", "service").exponential(1.0, 1000)
    rng = stream(3, "w", "service")
    assert np.array_equal(whole, np.concatenate([rng.exponential(1.0, n) for n in (1, 9, 90, 900)]))
