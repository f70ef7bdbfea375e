"""Virtual time: room of engines, order of streams, and energy over time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.emulator.device.timeline import DeviceTime, Engine, Host

SHARES = st.sampled_from([1.0, 0.5, 0.25, 0.3, 0.7])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), SHARES), max_size=14))
def test_work_starts_as_early_as_the_engine_has_room_throughout(asked: list[tuple[int, int, float]]) -> None:
    engine, taken = Engine(), []

    def room(start: int, ticks: int, share: float) -> bool:
        at = (sum(s for begin, end, s in taken if begin <= tick < end) for tick in range(start, start + ticks))
        return all(used + share <= 1 + 1e-9 for used in at)

    for ready, ticks, share in asked:
        found = engine.place(ready, ticks, share)
        assert found == next(start for start in range(ready, 1000) if room(start, ticks, share))
        if ticks:
            taken.append((found, found + ticks, share))
    assert all(-1e-9 <= used <= 1 + 1e-9 for _, used in engine.steps())


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), SHARES), max_size=10), st.integers(0, 30))
def test_what_is_forgotten_changes_nothing_that_comes_later(asked: list[tuple[int, int, float]], tick: int) -> None:
    one, other = Engine(), Engine()
    for ready, ticks, share in asked:
        assert one.place(ready, ticks, share) == other.place(ready, ticks, share)
    other.forget(tick)
    for ready, ticks, share in asked:
        assert one.place(tick + ready, ticks, share) == other.place(tick + ready, ticks, share)


def test_a_long_queue_of_full_kernels_is_one_step() -> None:
    engine = Engine()
    for _ in range(1000):
        engine.place(0, 7)
    assert engine.steps() == [(0, 1.0), (7000, 0.0)]


@pytest.fixture
def device() -> DeviceTime:
    return DeviceTime(Host(), idle_w=100.0)


def test_one_stream_sums_and_equal_streams_on_an_engine_with_room_overlap(device: DeviceTime) -> None:
    one = device.stream()
    ends = [device.enqueue(one, "compute", "k", 10, share=0.5).end for _ in range(3)]
    assert ends == [10, 20, 30]
    two = [device.stream() for _ in range(2)]
    assert [device.enqueue(s, "compute", "k", 10, share=0.5).end for s in two] == [10, 20]  # beside the first stream
    assert device.enqueue(two[0], "compute", "k", 10).end == 40  # all of the engine, after it
    assert device.last() == 40


def test_copies_and_kernels_are_engines_of_their_own(device: DeviceTime) -> None:
    copy, compute = device.stream(), device.stream()
    assert device.enqueue(copy, "copy_h2d", "in", 10).start == 0
    assert device.enqueue(compute, "compute", "k", 10).start == 0
    assert device.enqueue(copy, "copy_d2h", "out", 10).start == 10


def test_a_kernel_that_waits_does_not_hold_up_another_stream(device: DeviceTime) -> None:
    held, free = device.stream(), device.stream()
    assert device.enqueue(held, "compute", "late", 10, after=[100]).start == 100
    assert device.enqueue(free, "compute", "now", 10).start == 0
    assert device.enqueue(free, "compute", "too long for the gap", 95).start == 110


def test_the_default_stream_waits_for_blocking_streams_and_they_for_it(device: DeviceTime) -> None:
    blocking, apart = device.stream(), device.stream(blocking=False)
    device.enqueue(blocking, "a", "k", 10)
    device.enqueue(apart, "b", "k", 50)
    default = device.streams[0]
    assert device.enqueue(default, "c", "k", 5).start == 10
    assert device.enqueue(blocking, "d", "k", 5).start == 15
    assert device.enqueue(apart, "e", "k", 5).start == 50
    fresh = device.stream()
    assert device.enqueue(fresh, "f", "k", 5).start == 15


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 5), st.integers(0, 3)), max_size=30)
)
def test_energy_is_the_integral_of_power_at_every_moment(calls: list[tuple[str, int, int, int]]) -> None:
    host = Host()
    device = DeviceTime(host, idle_w=100.0)
    streams = [device.stream(blocking=bool(i % 2)) for i in range(4)]
    spans = []
    for engine, ticks, spent, which in calls:
        spans.append(device.enqueue(streams[which], engine, "k", ticks * 10**9, joules=float(ticks)))
        host.spend(spent * 10**9)
        done = 0.0
        for span in spans:
            if span.end > span.start:
                done += (
                    span.joules * min(max(host.now - span.start, 0), span.end - span.start) / (span.end - span.start)
                )
        assert device.energy_j() == pytest.approx(100.0 * host.now / 1e12 + done)


def test_a_host_that_runs_ahead_costs_no_more_the_longer_its_queue() -> None:
    """Settling looks at what is open; each span is looked at a few times, whatever the length of the queue."""
    looked: list[int] = []

    class Counted(DeviceTime):
        def _settle(self) -> None:
            looked.append(len(self._open))
            super()._settle()

    device = Counted(Host(), idle_w=0.0)
    stream = device.stream()
    for _ in range(20_000):
        device.enqueue(stream, "compute", "k", 5, joules=1.0)
    assert sum(looked) < 3 * 20_000


def test_spans_are_told_in_order(device: DeviceTime) -> None:
    told: list[str] = []
    watch: Callable[..., None] = lambda span: told.append(f"{span.name} {span.start}-{span.end}")  # noqa: E731
    device.observers.append(watch)
    stream = device.stream()
    device.enqueue(stream, "compute", "a", 3)
    device.host.spend(5)
    device.enqueue(stream, "compute", "b", 3)
    assert told == ["a 0-3", "b 5-8"]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), SHARES), max_size=8),
    st.integers(0, 20),
    st.sampled_from([0.25, 0.5]),
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8), st.sampled_from([0.25, 0.5])), max_size=6),
    st.integers(0, 40),
)
def test_what_is_held_is_taken_from_where_it_fits_for_good_until_it_is_released(
    before: list[tuple[int, int, float]],
    ready: int,
    share: float,
    beside: list[tuple[int, int, float]],
    lasts: int,
) -> None:
    engine, taken = Engine(), []

    def used(tick: int) -> float:
        return sum(s for begin, end, s in taken if begin <= tick < end)

    for at, ticks, part in before:
        start = engine.place(at, ticks, part)
        taken.append((start, start + ticks, part))
    began = engine.hold(ready, share)
    far = 1000
    fits = (t for t in range(ready, far) if all(used(later) + share <= 1 + 1e-9 for later in range(t, far)))
    assert began == next(fits)
    taken.append((began, far, share))
    for at, ticks, part in beside:
        start = engine.place(at, ticks, part)
        assert all(used(tick) + part <= 1 + 1e-9 for tick in range(start, start + ticks))
        taken.append((start, start + ticks, part))
    engine.release(began + lasts, share)
    taken[len(before)] = (began, began + lasts, share)
    assert engine.held == 0.0
    for tick in range(120):
        assert used(tick) == pytest.approx(next(s for t, s in reversed(engine.steps()) if t <= tick), abs=1e-9)


def test_what_stays_leaves_no_more_than_the_rest() -> None:
    engine = Engine()
    engine.hold(0, 0.75)
    with pytest.raises(ValueError, match="left"):
        engine.place(0, 5, 0.5)
    with pytest.raises(ValueError, match="left"):
        engine.hold(0, 0.5)
    assert engine.place(0, 5, 0.25) == 0
