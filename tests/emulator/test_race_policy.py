"""What counts as a data race: unordered atomics, equal values, failed compare-and-swaps, and intended races.

Each case runs in lockstep (``schedule=None``) and thread by thread, in several orders; the verdict is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import atomic, blockIdx, errors, f32, grid, i32, syncthreads, syncwarp, threadfence, threadIdx
from windtunnel.emulator.races import records

ORDERS: Sequence[int | None] = (None, 0, 1, 2, 3, 4, 5)


def race_in(kernel: Any, blocks: int, threads: int, *, schedule: int | None, strict: bool = False) -> Any:
    """Return the race that a launch on 8 zeros reports; None if it reports none."""
    with windtunnel.device("l4", schedule=schedule, strict=strict) as accelerator:
        elements = accelerator.to_device(np.zeros(8, np.int32))
        out = accelerator.to_device(np.zeros(256, np.int32))
        try:
            accelerator.launch(kernel, blocks, threads, elements, out)
            accelerator.synchronize()
        except errors.DataRace as race:
            return race
    return None


@pytest.fixture(params=[False, True], ids=["interpreted", "compiled"], autouse=True)
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apply the rule in Python, and compiled."""
    monkeypatch.setattr(records, "_PYTHON_WORK", 0 if request.param else 2**60)


def always(kernel: Any, blocks: int, threads: int, *, races: bool, strict: bool = False) -> None:
    """Require one verdict in all orders."""
    for schedule in ORDERS:
        found = race_in(kernel, blocks, threads, schedule=schedule, strict=strict)
        assert (found is not None) == races, (kernel.name, schedule, str(found))


def reading_after_atomics(reader: int) -> Any:
    @windtunnel.kernel
    def all_add_then_one_reads(d: i32[:], out: i32[:]):
        atomic.add(d, 0, 1)
        if threadIdx.x == reader:
            out[0] = d[0]

    return all_add_then_one_reads


@pytest.mark.parametrize("reader", range(4))
def test_an_atomic_of_the_reader_hides_no_other_thread(reader: int) -> None:
    always(reading_after_atomics(reader), 1, 4, races=True)


@windtunnel.kernel
def seven_by_all_then_eight_by_the_last(d: i32[:], out: i32[:]):
    d[0] = 7
    if threadIdx.x == 3:
        d[0] = 8


@windtunnel.kernel
def seven_by_one_then_eight_by_two_warps(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        d[0] = 7
    syncwarp()
    if threadIdx.x == 1:
        d[0] = 8
    if threadIdx.x == 32:
        d[0] = 8


@windtunnel.kernel
def seven_then_eight_by_two_blocks(d: i32[:], out: i32[:]):
    if blockIdx.x == 0:
        d[0] = 7
        syncthreads()
    if threadIdx.x == 1:
        d[0] = 8


@windtunnel.kernel
def read_then_one_value_by_two(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        out[0] = d[0]
    syncwarp()
    if threadIdx.x == 1:
        d[0] = 0
    if threadIdx.x == 33:
        d[0] = 0


@pytest.mark.parametrize(
    ("kernel", "blocks", "threads"),
    [
        (seven_by_all_then_eight_by_the_last, 1, 4),
        (seven_by_one_then_eight_by_two_warps, 1, 64),
        (seven_then_eight_by_two_blocks, 2, 2),
        (read_then_one_value_by_two, 1, 64),
    ],
)
def test_an_equal_value_hides_no_other_pair(kernel: Any, blocks: int, threads: int) -> None:
    always(kernel, blocks, threads, races=True)


@windtunnel.kernel
def all_write_seven(d: i32[:], out: i32[:]):
    d[0] = 7


@windtunnel.kernel
def all_write_seven_and_read_it(d: i32[:], out: i32[:]):
    d[0] = 7
    out[grid(1)] = d[0]


@windtunnel.kernel
def last_writes_seven_and_reads_it(d: i32[:], out: i32[:]):
    d[0] = 7
    if threadIdx.x == 3:
        out[0] = d[0]


@windtunnel.kernel
def writes_what_was_there_and_another_reads(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        d[0] = 0
    if threadIdx.x == 1:
        out[0] = d[0]


@pytest.mark.parametrize("blocks", [1, 2])
def test_writes_of_one_equal_value_are_silent_unless_strict(blocks: int) -> None:
    always(all_write_seven, blocks, 4, races=False)
    always(all_write_seven, blocks, 4, races=True, strict=True)


@pytest.mark.parametrize(
    "kernel", [all_write_seven_and_read_it, last_writes_seven_and_reads_it, writes_what_was_there_and_another_reads]
)
def test_a_read_beside_a_write_of_another_thread_is_a_race_whatever_the_values(kernel: Any) -> None:
    always(kernel, 1, 4, races=True)


@windtunnel.kernel
def one_swaps_and_all_others_fail(d: i32[:], out: i32[:]):
    # The element holds 0, so a swap of 5 fails.
    atomic.cas(d, 0, 5, 9)
    out[grid(1)] = d[0]


@windtunnel.kernel
def all_swaps_succeed_or_fail_and_all_read(d: i32[:], out: i32[:]):
    atomic.cas(d, 0, 0, 9)
    out[grid(1)] = d[0]


@windtunnel.kernel
def a_failed_swap_beside_a_write(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        atomic.cas(d, 0, 5, 9)
    else:
        d[0] = 0


@windtunnel.kernel
def swaps_of_some_lanes_fail(d: i32[:], out: i32[:]):
    # Even threads add to their own element, odd ones fail on their neighbour's and read it.
    t = threadIdx.x
    old = atomic.cas(d, t // 2, t % 2 * 5, 0)
    if t % 2 == 0:
        out[t] = old + d[t // 2]


def test_a_failed_compare_and_swap_is_no_write() -> None:
    always(one_swaps_and_all_others_fail, 2, 4, races=False)
    always(swaps_of_some_lanes_fail, 1, 8, races=False)
    always(all_swaps_succeed_or_fail_and_all_read, 1, 4, races=True)


def test_a_failed_compare_and_swap_reads_the_element() -> None:
    always(a_failed_swap_beside_a_write, 1, 2, races=True)


@windtunnel.kernel
def a_failed_swap_after_a_fence(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        d[0] = 1
        threadfence()
        atomic.cas(d, 1, 5, 9)
    else:
        atomic.add(d, 1, 1)
        out[0] = d[0]


def test_a_failed_compare_and_swap_publishes_nothing() -> None:
    always(a_failed_swap_after_a_fence, 1, 2, races=True)


@windtunnel.kernel
def seven_between_two_eights(d: i32[:], out: i32[:]):
    if threadIdx.x == 0:
        d[0] = 8
    if threadIdx.x == 1:
        d[0] = 7  # windtunnel: benign
        d[0] = 7


def test_a_benign_write_hides_no_other_pair() -> None:
    always(seven_between_two_eights, 1, 2, races=True)


@windtunnel.kernel
def stops_early(d: i32[:], out: i32[:]):
    if d[0] == 0:
        d[0] = 1  # windtunnel: benign


@windtunnel.kernel
def stops_early_and_counts(d: i32[:], out: i32[:]):
    if d[0] == 0:
        d[0] = 1  # windtunnel: benign
    out[0] = threadIdx.x


def finds_it(d: Any) -> Any:
    d[0] = 1  # windtunnel: benign


@windtunnel.kernel
def a_helper_stops_early(d: i32[:], out: i32[:]):
    if d[0] == 0:
        finds_it(d)


def test_a_line_marked_benign_may_race() -> None:
    always(stops_early, 2, 4, races=False, strict=True)
    always(a_helper_stops_early, 2, 4, races=False, strict=True)
    always(stops_early_and_counts, 1, 4, races=True)


@windtunnel.kernel
def one_after_another(d: i32[:], out: i32[:]):
    # A lock: each thread's accesses are ordered after those of the thread before.
    while atomic.cas(d, 1, 0, 1) != 0:
        pass
    threadfence()
    if d[0] % 3 == 0:
        d[2] = 1
    d[0] += 1
    threadfence()
    atomic.exch(d, 1, 0)


def test_a_lock_orders_equal_and_other_values() -> None:
    always(one_after_another, 2, 5, races=False, strict=True)


def test_the_report_names_the_writes_that_differ() -> None:
    for schedule in ORDERS:
        race = race_in(seven_by_one_then_eight_by_two_warps, 1, 64, schedule=schedule)
        text = str(race)
        assert "d[0] = 7" in text and "d[0] = 8" in text, text
        assert {thread[0] for _, thread in race.threads} == {0, 32}, text


@windtunnel.kernel
def floats(d: f32[:], out: f32[:], nan: f32):
    d[0] = nan
    d[1] = 0.0 if threadIdx.x else -0.0


def test_nan_equals_nan_and_zero_equals_minus_zero() -> None:
    for schedule in ORDERS:
        with windtunnel.device("l4", schedule=schedule) as accelerator:
            elements = accelerator.to_device(np.zeros(2, np.float32))
            accelerator.launch(floats, 1, 4, elements, elements, np.float32("nan"))


@pytest.mark.accelerator("l4", strict=True)
def test_the_marker_makes_the_detector_strict(accelerator: Any) -> None:
    d = accelerator.to_device(np.zeros(8, np.int32))
    with pytest.raises(errors.DataRace):
        accelerator.launch(all_write_seven, 1, 4, d, d)
