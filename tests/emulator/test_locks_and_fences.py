"""Locks and fences order what they are said to order, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.shared import KNOWN, device, zeros

import windtunnel
from windtunnel import atomic, blockIdx, errors, f32, grid, i32, syncthreads, threadfence, threadfence_block, threadIdx


@windtunnel.kernel
def guarded(lock: i32[:], total: i32[:], sums: f32[:]):  # type: ignore[no-untyped-def]
    done = False
    while not done:
        if atomic.cas(lock, 0, 0, 1) == 0:
            threadfence()
            total[0] += 1
            sums[0] = sums[0] * 0.5 + 1.0
            threadfence()
            atomic.exch(lock, 0, 0)
            done = True


@windtunnel.kernel
def guarded_without_fences(lock: i32[:], total: i32[:]):  # type: ignore[no-untyped-def]
    done = False
    while not done:
        if atomic.cas(lock, 0, 0, 1) == 0:
            total[0] += 1
            atomic.exch(lock, 0, 0)
            done = True


@windtunnel.kernel
def guarded_for_the_block_only(lock: i32[:], total: i32[:]):  # type: ignore[no-untyped-def]
    done = False
    while not done:
        if atomic.cas(lock, 0, 0, 1) == 0:
            threadfence_block()
            total[0] += 1
            threadfence_block()
            atomic.exch(lock, 0, 0)
            done = True


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_lock_within_a_warp_lets_one_in_at_a_time(seed: int | None) -> None:
    accelerator = device(seed)
    lock, total = zeros(accelerator, 1, 1)
    sums = accelerator.to_device(np.zeros(1, np.float32))
    accelerator.launch(guarded, 3, 64, lock, total, sums)
    assert accelerator.to_host(total)[0] == 192


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_lock_without_fences_orders_nothing(seed: int | None) -> None:
    accelerator = device(seed)
    with pytest.raises(errors.DataRace, match="element 0 of 'total'"):
        accelerator.launch(guarded_without_fences, 2, 4, *zeros(accelerator, 1, 1))


def test_a_fence_of_the_block_orders_the_block_and_no_other() -> None:
    accelerator = device()
    accelerator.launch(guarded_for_the_block_only, 1, 64, *zeros(accelerator, 1, 1))
    accelerator.synchronize()
    with pytest.raises(errors.DataRace, match="threads of two blocks are ordered only by"):
        accelerator.launch(guarded_for_the_block_only, 2, 1, *zeros(accelerator, 1, 1))


@windtunnel.kernel
def fenced(out: i32[:]):  # type: ignore[no-untyped-def]
    out[grid(1)] = 1
    threadfence()


def test_a_launch_too_large_to_be_followed_says_so() -> None:
    accelerator = device()
    out = accelerator.empty(1 << 18, np.int32)
    with pytest.warns(errors.ChecksSkippedWarning, match="262,144 threads with fences exceed the limit of 65,536"):
        accelerator.launch(fenced, 1024, 256, out)
    assert accelerator.to_host(out).all()


@windtunnel.kernel
def counts_without_atomics(out: i32[:], total: i32[:]):  # type: ignore[no-untyped-def]
    i = grid(1)
    out[i] = i
    total[0] += 1


def test_unchecked_devices_look_for_no_races_and_run_the_kernel() -> None:
    for kernel in (guarded_without_fences, counts_without_atomics):
        with pytest.raises(errors.DataRace):
            accelerator = device()
            accelerator.launch(kernel, 2, 4, *zeros(accelerator, 8, 1))
    accelerator = windtunnel.device("l4", catalogue=KNOWN, checked=False)
    lock, total = zeros(accelerator, 1, 1)
    accelerator.launch(guarded_without_fences, 2, 4, lock, total)
    assert accelerator.to_host(lock)[0] == 0 and accelerator.to_host(total)[0] == 8, "the lock was taken by all threads"
    out, total = zeros(accelerator, 8, 1)
    accelerator.launch(counts_without_atomics, 2, 4, out, total)
    assert accelerator.to_host(out).tolist() == [*range(8)] and accelerator.to_host(total)[0] > 0


@windtunnel.kernel
def fenced_and_met(a: i32[:], flag: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    t = threadIdx.x
    if blockIdx.x == 0:
        a[t] = t
        threadfence()
        syncthreads()
        if t == 0:
            atomic.exch(flag, 0, 1)
    else:
        while atomic.add(flag, 0, 0) == 0:
            pass
        threadfence()
        out[t] = a[63 - t]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_what_all_have_fenced_before_they_meet_one_may_release(seed: int | None) -> None:
    accelerator = device(seed)
    a, flag, out = zeros(accelerator, 64, 1, 64)
    accelerator.launch(fenced_and_met, 2, 64, a, flag, out)
    assert accelerator.to_host(out).tolist() == list(range(63, -1, -1))


@windtunnel.kernel
def place_of_some(a: i32[:], first: i32):  # type: ignore[no-untyped-def]
    if threadIdx.x >= first:
        i = grid(1)
    a[i] = threadIdx.x


def test_a_place_that_only_some_have_is_nobodys_own() -> None:
    accelerator = device()
    with pytest.raises((errors.DataRace, errors.UninitializedRead)):
        accelerator.launch(place_of_some, 1, 32, *zeros(accelerator, 32), 16)


@windtunnel.kernel
def locked(lock: i32[:], total: i32[:]):  # type: ignore[no-untyped-def]
    while atomic.cas(lock, 0, 0, 1) != 0:
        pass
    threadfence()
    total[0] += 1
    threadfence()
    atomic.exch(lock, 0, 0)


def test_a_thousand_threads_wait_for_one_lock() -> None:
    accelerator = device()
    lock, total = zeros(accelerator, 1, 1)
    accelerator.launch(locked, 16, 64, lock, total)
    assert accelerator.to_host(total)[0] == 1024
