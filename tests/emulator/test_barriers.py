"""Barriers of blocks, warps and grids: who has to meet, who need not, and who is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.emulator.shared import KNOWN, device, line_of, with_x, zeros

import windtunnel
from windtunnel import (
    any_sync,
    ballot_sync,
    blockIdx,
    cg,
    errors,
    grid,
    i32,
    shared,
    shfl_down_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    threadIdx,
    u32,
)  # fmt: skip


@windtunnel.kernel
def parts_ways(x: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    t = threadIdx.x
    part = shared.array(64, i32)
    part[t] = x[t]
    if x[t] > 0:
        syncthreads()  # ONE
        out[t] = part[63 - t]
    else:
        syncthreads()  # OTHER


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_two_barriers_that_parted_threads_reach_are_both_named(seed: int | None) -> None:
    accelerator = device(seed)
    x = accelerator.to_device(np.arange(64, dtype=np.int32) % 2)
    with pytest.raises(errors.BarrierDivergence) as met:
        accelerator.launch(parts_ways, 1, 64, x, accelerator.empty(64, np.int32))
    assert met.value.lines == (line_of(parts_ways, "# ONE"), line_of(parts_ways, "# OTHER"))


@windtunnel.kernel
def reversed_squares(x: i32[:], squares: i32[:], out: i32[:], n: i32):  # type: ignore[no-untyped-def]
    i = grid(1)
    squares[i] = x[i] * x[i]
    whole = cg.this_grid()
    whole.sync()
    out[i] = squares[n - 1 - i]


@windtunnel.kernel
def reversed_squares_too_early(x: i32[:], squares: i32[:], out: i32[:], n: i32):  # type: ignore[no-untyped-def]
    i = grid(1)
    squares[i] = x[i] * x[i]
    out[i] = squares[n - 1 - i]
    whole = cg.this_grid()
    whole.sync()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_blocks_meet_at_the_grids_barrier(seed: int | None) -> None:
    accelerator = device(seed)
    x = np.arange(200, dtype=np.int32)
    out = accelerator.empty(200, np.int32)
    accelerator.launch(reversed_squares, 4, 50, accelerator.to_device(x), accelerator.empty(200, np.int32), out, 200)
    assert (accelerator.to_host(out) == (x * x)[::-1]).all()


def test_more_blocks_than_fit_are_refused_with_how_many_do() -> None:
    """An L4's 58 units hold 1,536 threads each: one block of 1,024 a unit."""
    accelerator = device()
    n = 1024 * 59
    given = [accelerator.to_device(np.zeros(n, np.int32)) for _ in range(3)]
    before = accelerator.clock_s
    with pytest.raises(
        errors.LaunchError, match="waits for all 59 blocks, of which 58 of 1,024 threads fit on the device at once"
    ) as met:
        accelerator.launch(reversed_squares, 59, 1024, *given, n)
    assert met.value.code.name == "cudaErrorCooperativeLaunchTooLarge"
    assert accelerator.clock_s == before
    unchecked = windtunnel.device("l4", catalogue=KNOWN, checked=False)  # side by side, which is faster
    given = [unchecked.to_device(np.zeros(n, np.int32)) for _ in range(3)]
    unchecked.launch(reversed_squares, 58, 1024, *given, 1024 * 58)


def test_more_blocks_than_are_executed_one_by_one_meet_and_are_checked() -> None:
    """A GB200 has 152 units of 2,048 threads."""
    accelerator = device(name="gb200")
    n = 1024 * 200
    x = np.arange(n, dtype=np.int32) % 1000
    out = accelerator.empty(n, np.int32)
    given = [accelerator.to_device(x), accelerator.empty(n, np.int32), out, n]
    accelerator.launch(reversed_squares, 200, 1024, *given)
    assert (accelerator.to_host(out) == (x * x)[::-1]).all()
    with pytest.raises(errors.DataRace):  # the squares of the block across may not be there yet
        accelerator.launch(reversed_squares_too_early, 200, 1024, *given)


@windtunnel.kernel
def some_stay_away(out: i32[:]):  # type: ignore[no-untyped-def]
    if blockIdx.x > 0:
        cg.this_grid().sync()
    out[grid(1)] = 1


def test_blocks_that_stay_away_from_the_grids_barrier_are_told() -> None:
    accelerator = device()
    with pytest.raises(errors.BarrierDivergence, match="16 of 24 threads of the grid reach the grid barrier"):
        accelerator.launch(some_stay_away, 3, 8, accelerator.empty(24, np.int32))


@windtunnel.kernel
def half_a_warp_shuffles(x: i32[:], out: i32[:], mask: u32):  # type: ignore[no-untyped-def]
    lane = threadIdx.x
    value = x[lane]
    if lane < 16:
        value += shfl_xor_sync(mask, value, 8)  # HERE
    syncthreads()  # AND HERE
    out[lane] = value


@windtunnel.kernel
def half_a_warp_returns(x: i32[:], out: i32[:], distance: i32):  # type: ignore[no-untyped-def]
    lane = threadIdx.x
    if lane >= 16:
        return
    meets = any_sync(0xFFFFFFFF, lane == 20)
    syncwarp()
    total = x[lane] + shfl_down_sync(0xFFFFFFFF, x[lane], distance)
    if lane < 8 and not meets:
        out[lane] = total


@windtunnel.kernel
def half_a_warp_meets(x: i32[:], out: i32[:], mask: u32):  # type: ignore[no-untyped-def]
    lane = threadIdx.x
    if lane < 16:
        out[lane] = x[lane]
        syncwarp(mask)  # HERE
        out[15 - lane] += 0
    syncthreads()  # AND HERE
    out[16 + lane] = 1


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("kernel", [half_a_warp_shuffles, half_a_warp_meets], ids=lambda k: k.name)
def test_all_that_a_mask_names_have_to_meet(kernel: Any, seed: int | None) -> None:
    accelerator = device(seed)
    with pytest.raises(errors.BarrierDivergence) as met:
        accelerator.launch(kernel, 1, 32, *with_x(accelerator), 0xFFFFFFFF)
    assert met.value.lines == (line_of(kernel), line_of(kernel, "# AND HERE"))
    assert "the warp synchronisation" in str(met.value)


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("kernel", [half_a_warp_shuffles, half_a_warp_meets], ids=lambda k: k.name)
def test_a_thread_that_its_own_mask_does_not_name_is_a_finding(kernel: Any, seed: int | None) -> None:
    accelerator = device(seed)
    with pytest.raises(errors.BarrierDivergence, match="does not name the lane that executes it") as found:
        accelerator.launch(kernel, 1, 32, *with_x(accelerator), 0xFF)
    assert found.value.lines == (line_of(kernel),)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_those_that_a_mask_does_not_name_need_not_meet(seed: int | None) -> None:
    accelerator = device(seed)
    x, out = with_x(accelerator)
    accelerator.launch(half_a_warp_shuffles, 1, 32, x, out, 0xFFFF)
    lanes = np.arange(32)
    assert (accelerator.to_host(out)[:32] == np.where(lanes < 16, lanes + (lanes ^ 8), lanes)).all()
    accelerator.launch(half_a_warp_meets, 1, 32, x, out, 0xFFFF)
    accelerator.synchronize()


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_those_that_have_returned_need_not_meet(seed: int | None) -> None:
    accelerator = device(seed)
    x, out = with_x(accelerator)
    accelerator.launch(half_a_warp_returns, 1, 32, x, out, 8)
    assert accelerator.to_host(out)[:8].tolist() == [2 * lane + 8 for lane in range(8)]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_what_a_shuffle_reads_of_a_lane_that_has_returned_is_a_finding_where_it_is_used(seed: int | None) -> None:
    accelerator = device(seed)
    x, out = with_x(accelerator)
    with pytest.raises(errors.UninitializedRead) as used:
        accelerator.launch(half_a_warp_returns, 1, 32, x, out, 9)
    assert "has read of lane 16: that lane has ended" in str(used.value)


@windtunnel.kernel
def votes_by_halves(out: u32[:], some: i32[:], sums: i32[:], lanes: i32):  # type: ignore[no-untyped-def]
    t = threadIdx.x
    mask = u32(0xFFFF)
    if t >= 16:
        mask = u32(0xFFFF0000)
    out[t] = ballot_sync(mask, True)
    some[t] = 1 if any_sync(mask, t == 3) else 0
    sums[t] = shfl_xor_sync(mask, t, lanes)


@windtunnel.kernel
def halves_meet(out: i32[:]):  # type: ignore[no-untyped-def]
    part = shared.array(32, i32)
    t = threadIdx.x
    part[t] = t
    syncwarp(0x0000FFFF if t < 16 else 0xFFFF0000)
    out[t] = part[31 - t]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_threads_that_state_two_masks_are_two_groups(seed: int | None) -> None:
    accelerator = device(seed)
    out = accelerator.to_device(np.zeros(32, np.uint32))
    some, sums = zeros(accelerator, 32, 32)
    accelerator.launch(votes_by_halves, 1, 32, out, some, sums, 8)
    assert accelerator.to_host(out).tolist() == [0xFFFF] * 16 + [0xFFFF0000] * 16
    assert accelerator.to_host(some).tolist() == [1] * 16 + [0] * 16
    assert accelerator.to_host(sums).tolist() == [t ^ 8 for t in range(32)]
    with pytest.raises(errors.UninitializedRead):  # the other half is not asked
        accelerator.launch(votes_by_halves, 1, 32, out, some, sums, 24)
    with pytest.raises(errors.DataRace):
        accelerator.launch(halves_meet, 1, 32, accelerator.empty(32, np.int32))
