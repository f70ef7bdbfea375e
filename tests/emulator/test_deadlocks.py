"""Who waits for what cannot come, and who loops without an end, is told; who gets somewhere is let be."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from tests.corpus import planted_deadlocks
from tests.corpus.planted_deadlocks import two_locks_crosswise, waits_for_the_last_block
from tests.emulator.shared import device, line_of, with_x, zeros

import windtunnel
from windtunnel import atomic, blockIdx, errors, grid, i32, threadfence, threadIdx


@windtunnel.kernel
def polite(wants: i32[:]):  # type: ignore[no-untyped-def]
    # Each gives way to the other, for ever.
    mine = blockIdx.x
    atomic.exch(wants, mine, 1)
    while atomic.add(wants, 1 - mine, 0) == 1:  # HERE
        atomic.exch(wants, mine, 0)
        atomic.exch(wants, mine, 1)
    atomic.exch(wants, mine, 0)


@windtunnel.kernel
def counts_its_turns(flag: i32[:], turns: i32[:]):  # type: ignore[no-untyped-def]
    spins = 0
    while atomic.add(flag, 0, 0) == 0:  # HERE
        spins += 1
    turns[grid(1)] = spins


def test_a_deadlock_tells_the_circle() -> None:
    accelerator = device()
    with pytest.raises(errors.Deadlock) as met:
        accelerator.launch(two_locks_crosswise, 2, 1, *zeros(accelerator, 2, 1))
    line = line_of(two_locks_crosswise, "  # BUG")
    text = str(met.value)
    assert met.value.lines == (line,)
    assert met.value.file == planted_deadlocks.__file__
    assert f"thread 0 of block 0 waits at line {line}" in text
    assert "element 1 of 'locks', 1, which thread 0 of block 1 changed last" in text
    assert "element 0 of 'locks', 1, which thread 0 of block 0 changed last" in text
    assert met.value.threads == (((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (0, 0, 0)))


def test_a_wait_for_a_block_that_has_not_begun_says_how_many_fit() -> None:
    """An L4 has 58 units of 24 blocks each: of 1,400 blocks 1,392 fit, and with as many there is no deadlock."""
    accelerator = device()
    with pytest.raises(errors.Deadlock) as met:
        accelerator.launch(waits_for_the_last_block, 1400, 1, *zeros(accelerator, 1))
    assert "8 of 1,400 blocks have not begun: l4 holds 1,392 of this size at once" in str(met.value)
    assert met.value.lines == (line_of(waits_for_the_last_block, "  # BUG"),)
    accelerator = device()
    accelerator.launch(waits_for_the_last_block, 1392, 1, *zeros(accelerator, 1))
    accelerator.synchronize()


def test_giving_way_for_ever_is_a_livelock() -> None:
    accelerator = device()
    with pytest.raises(errors.Deadlock, match="livelock: threads loop through repeated states") as met:
        accelerator.launch(polite, 2, 1, *zeros(accelerator, 2))
    assert met.value.lines == (line_of(polite),)


def test_giving_way_ends_in_another_order() -> None:
    ended = []
    for seed in range(12):
        accelerator = device(seed)
        (wants,) = zeros(accelerator, 2)
        with contextlib.suppress(errors.Deadlock):
            accelerator.launch(polite, 2, 1, wants)
            ended.append(accelerator.counters.launches)
    assert 0 < len(ended) < 12, "in some orders one of them goes first, and in some both give way for ever"
    assert set(ended) == {1}


def test_a_wait_that_counts_its_turns_is_seen_to_wait() -> None:
    accelerator = device()
    with pytest.raises(errors.Deadlock, match="which no thread has changed") as met:
        accelerator.launch(counts_its_turns, 1, 2, *zeros(accelerator, 1, 2))
    assert met.value.lines == (line_of(counts_its_turns),)


@windtunnel.kernel
def looks_for_a_while(flag: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    turns = 0
    while turns < 50 and atomic.add(flag, 0, 0) == 0:
        turns += 1
    out[grid(1)] = turns


def test_a_wait_with_an_end_ends() -> None:
    accelerator = device(0)
    flag, out = zeros(accelerator, 1, 3)
    accelerator.launch(looks_for_a_while, 3, 1, flag, out)
    assert accelerator.to_host(out).tolist() == [50, 50, 50]


@windtunnel.kernel
def forgets_to_count(x: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    i = grid(1)
    k = 0
    total = 0
    while k < 10:  # HERE
        total = x[i] + k
    out[i] = total


@windtunnel.kernel
def for_ever(out: i32[:]):  # type: ignore[no-untyped-def]
    while True:  # HERE
        i = grid(1)  # noqa: F841


@windtunnel.kernel
def never_zero(x: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    i = grid(1)
    left = x[i]
    while left != 0:  # HERE
        left -= left // 2
    out[i] = left


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("kernel", [forgets_to_count, for_ever, never_zero], ids=lambda k: k.name)
def test_a_loop_that_changes_nothing_is_told(kernel: Any, seed: int | None) -> None:
    accelerator = device(seed)
    x, out = with_x(accelerator)
    with pytest.raises(errors.Deadlock, match="infinite loop at .*: its state repeats") as met:
        accelerator.launch(kernel, 2, 4, *((out,) if kernel is for_ever else (x, out)))
    assert met.value.lines == (line_of(kernel),)


@windtunnel.kernel
def counts_far(out: i32[:], n: i32):  # type: ignore[no-untyped-def]
    k = 0
    while k < n:
        k += 1
    out[grid(1)] = k


@pytest.mark.parametrize("seed", [None, 0])
def test_a_long_loop_that_gets_somewhere_is_let_be(seed: int | None) -> None:
    accelerator = device(seed)
    out = accelerator.empty(2, np.int32)
    accelerator.launch(counts_far, 1, 2, out, 140_000)
    assert accelerator.to_host(out).tolist() == [140_000, 140_000]


@windtunnel.kernel
def walks_in_a_circle(after: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    node = grid(1)
    while node != -1:  # HERE
        node = after[node]
    out[0] = 1


@pytest.mark.parametrize("seed", [None, 0])
def test_a_circle_of_several_turns_is_told(seed: int | None) -> None:
    accelerator = device(seed)
    after = accelerator.to_device(np.array([1, 2, 0], np.int32))
    with pytest.raises(errors.Deadlock, match="infinite loop") as met:
        accelerator.launch(walks_in_a_circle, 1, 3, after, *zeros(accelerator, 1))
    assert met.value.lines == (line_of(walks_in_a_circle),)


@windtunnel.kernel
def one_works_while_others_count(flag: i32[:], spins: i32[:], n: i32):  # type: ignore[no-untyped-def]
    t = threadIdx.x
    if t == 0:
        for k in range(n):
            spins[1 + k % 2] = k
        threadfence()
        atomic.exch(flag, 0, 1)
    else:
        while atomic.add(flag, 0, 0) == 0:
            atomic.add(spins, 0, 1)


def test_who_waits_for_long_work_and_changes_memory_meanwhile_is_in_no_livelock() -> None:
    """The waiting threads loop more often than a livelock takes to be detected, while one thread works."""
    for seed, turns in ((0, 100), (2, 6000)):
        accelerator = device(seed)
        flag, spins = zeros(accelerator, 1, 3)
        accelerator.launch(one_works_while_others_count, 1, 8, flag, spins, turns)
        counted, *last = accelerator.to_host(spins).tolist()
        assert accelerator.to_host(flag)[0] == 1 and last == [turns - 2, turns - 1]
        assert counted > turns, "the other threads did not wait"


@windtunnel.kernel
def stands(out: i32[:], step: i32):  # type: ignore[no-untyped-def]
    for k in range(5, 0, step):  # HERE
        out[threadIdx.x] = k


@pytest.mark.parametrize("seed", [None, 0])
def test_steps_of_0_that_never_arrive_are_told(seed: int | None) -> None:
    accelerator = device(seed)
    with pytest.raises(errors.Deadlock, match="infinite loop") as met:
        accelerator.launch(stands, 1, 2, *zeros(accelerator, 2), 0)
    assert met.value.lines == (line_of(stands),)
