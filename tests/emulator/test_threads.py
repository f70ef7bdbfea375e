"""Execution thread by thread: the same numbers as in lockstep, schedules by seeds, and reports of deadlocks."""

from __future__ import annotations

import contextlib
import inspect
import os
import runpy
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cases import check_all
from tests.corpus import registry
from tests.corpus.planted_orders import ORDERED, Ordered
from tests.corpus.synchronised import CASES

import windtunnel
from windtunnel import (
    any_sync,
    atomic,
    ballot_sync,
    blockDim,
    blockIdx,
    cg,
    errors,
    f32,
    grid,
    gridDim,
    i32,
    shared,
    shfl_down_sync,
    shfl_xor_sync,
    syncthreads,
    syncwarp,
    threadfence,
    threadfence_block,
    threadIdx,
    u32,
)  # fmt: skip
from windtunnel.core.errors import Finding
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.device.executable import Executable, with_size
from windtunnel.language import ir
from windtunnel.language.source import KernelError
from windtunnel.language.types import scalar_of
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


LARGE = {"vector_add_large"}
"""Cases that take seconds one by one, and have a smaller case of the same kernel."""


def device(schedule: int | None = None, name: str = "l4") -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN, schedule=schedule)


# The same numbers.


def left_by(case: Any, *, one_by_one: bool) -> dict[str, np.ndarray]:
    """What a case's arrays hold after it, executed side by side (as far as threads can be) or one by one."""
    arrays: dict[int, np.ndarray] = {}
    given: dict[str, Any] = {}
    for name, value in case.arguments().items():
        if isinstance(value, registry.Empty):
            given[name] = np.zeros(value.shape, value.dtype)
        else:
            given[name] = arrays.setdefault(id(value), value.copy()) if isinstance(value, np.ndarray) else value
    found = Executable(case.kernel.function).specialised([*given.values()])
    sides = [side if isinstance(side, tuple) else (side,) for side in (case.grid, case.block)]
    grid3, block3 = ((*side, 1, 1)[:3] for side in sides)
    if one_by_one:
        launch = Launch(found.program, grid3, block3, "l4")
        sized = partial(with_size, shared_bytes=case.shared_bytes)
        found.threads.run(launch, [*given.values()], resident=1 << 31, sized=sized)
    else:
        Executable.launch(
            found, grid3, block3, [*given.values()], device="l4", checked=False, shared_bytes=case.shared_bytes
        )
    return {name: value for name, value in given.items() if isinstance(value, np.ndarray)}


def compare_both_ways(case: registry.Case) -> None:
    one, other = (left_by(case, one_by_one=way) for way in (True, False))
    program = Executable(case.kernel.function).specialised([*case.arguments().values()]).program
    summed = any(
        isinstance(e, ir.Atomic) and e.array in program.arrays and program.arrays[e.array].element.kind == "float"
        for statement in ir.walk(program.body)
        for e in ir.expressions(statement)
    )
    for name in one:
        kind = program.arrays[name].element if name in program.arrays else None
        if summed and kind is not None and kind.kind == "float":
            np.testing.assert_allclose(one[name], other[name], rtol=1e-4)  # floats added in another order
        else:
            assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("module", registry.MODULES)
def test_one_by_one_and_side_by_side_give_the_same_bits(module: str) -> None:
    cases = [case for case in registry.cases(module) if case.name not in LARGE]
    check_all(cases, compare_both_ways, lambda case: case.name)


OPERATORS = ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=")
FLOATS = ("+", "-", "*", "/", "//", "%", "<", ">=", "==")
FUNCTIONS = ("math.sqrt", "math.exp", "math.log", "math.sin", "math.cos", "math.tanh", "math.floor", "abs", "math.atan")
TYPES = ("i8", "u8", "i16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64")


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(["a[i]", "b[i]", "c[i]", "i", "n", "3", "-2", "0.5", "v"]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    how = draw(st.integers(0, 6))
    if how == 0:
        return f"{draw(st.sampled_from(TYPES))}({left})"
    if how == 1:
        return f"({left} if {right} > 1 else b[i])"
    if how == 2:
        return f"{draw(st.sampled_from(FUNCTIONS))}(f32({left}))"
    if how == 3:
        return f"{draw(st.sampled_from(['min', 'max']))}({left}, {right})"
    if how == 4:
        return f"(f64({left}) {draw(st.sampled_from(FLOATS))} f64({right}))"
    return f"(i64({left}) {draw(st.sampled_from(OPERATORS))} i64({right}))"


@given(
    kinds=st.tuples(*[st.sampled_from(TYPES)] * 4),
    first=expressions(),
    second=expressions(),
    turns=st.integers(0, 3),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_random_kernels_give_the_same_bits_both_ways(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: tuple[str, ...],
    first: str,
    second: str,
    turns: int,
    seed: int,
) -> None:
    """Arithmetic of all types, conversions, choices, loops left early: one by one as side by side."""
    a, b, c, out = kinds
    text = f"""
import math
from windtunnel import {", ".join(TYPES)}, grid

def kernel(a: {a}[:], b: {b}[:], c: {c}[:], out: {out}[:], n: i32):
    i = grid(1)
    v = 1.5
    for k in range({turns} + i % 3):
        if a[i] > b[i] and k == 2:
            continue
        v = f32({first})
        if v > 100:
            break
    if i % 5 == 3:
        return
    out[i] = {out}({second})
"""
    path = tmp_path_factory.mktemp("kernels") / "kernel.py"
    path.write_text(text)
    try:
        function = runpy.run_path(str(path))["kernel"]
        rng = np.random.default_rng(seed)
        arrays = [(rng.normal(0, 20, 70)).astype(scalar_of(kind).dtype) for kind in (a, b, c)]
        with np.errstate(all="ignore"):
            unwritten = np.full(70 * scalar_of(out).dtype.itemsize, 0x5A, np.uint8).view(scalar_of(out).dtype)
            given_ = [*arrays, unwritten, 70]
        found = Executable(function).specialised(given_)
    except KernelError:
        assume(False)  # types that do not go together are told so, which is tested elsewhere
    results = []
    for one_by_one in (False, True):
        mine = [g.copy() if isinstance(g, np.ndarray) else g for g in given_]
        if one_by_one:
            found.threads.run(Launch(found.program, (7, 1, 1), (10, 1, 1), "l4"), mine, resident=3)
        else:
            Executable.launch(found, (7, 1, 1), (10, 1, 1), mine, device="l4")
        results.append(mine[3])
    plain = [np.where(np.isnan(r), 0, r) if r.dtype.kind in "fV" else r for r in results]  # every NaN is one
    assert plain[0].tobytes() == plain[1].tobytes(), text
    assert plain[0].tobytes() != unwritten.tobytes(), "nothing was written"
    skipped = np.arange(70) % 5 == 3
    assert plain[0][skipped].tobytes() == unwritten[skipped].tobytes(), text


# Orders.


def expose(ordered: Ordered) -> None:
    with pytest.raises((Finding, AssertionError)) as met:
        windtunnel.explore(lambda a: ordered.run(a, ordered.kernel), "l4", catalogue=KNOWN)
    (note,) = [note for note in met.value.__notes__ if note.startswith("schedule ")]
    seed = int(note.split()[1].rstrip(","))
    assert f"windtunnel.device('l4', schedule={seed}) repeats this run" in note
    assert met.value.schedule == seed  # type: ignore[union-attr]
    if ordered.finding and isinstance(met.value, Finding):
        assert type(met.value).__name__ == ordered.finding
        assert f"(schedule {seed})" in str(met.value)
    for _ in range(2):
        with device(seed) as again, pytest.raises(type(met.value)) as same:
            ordered.run(again, ordered.kernel)
            again.synchronize()
        assert str(same.value) == str(met.value)


def test_64_schedules_expose_an_ordering_bug_and_its_seed_replays_it() -> None:
    check_all(ORDERED, expose, lambda ordered: ordered.name)


def find_nothing(ordered: Ordered) -> None:
    found = windtunnel.explore(lambda a: ordered.run(a, ordered.right), "l4", catalogue=KNOWN)
    assert len(found.hashes) == 64
    assert found.distinct > 1, "orders that differ are met"


def test_64_schedules_find_nothing_in_the_right_program() -> None:
    check_all(ORDERED, find_nothing, lambda ordered: ordered.name)


def run_in_six_orders(case: registry.Case) -> None:
    for seed in range(6):
        arguments = case.arguments()
        accelerator = device(seed)
        buffers = [
            accelerator.empty(v.shape, v.dtype)
            if isinstance(v, registry.Empty)
            else accelerator.to_device(v)
            if isinstance(v, np.ndarray)
            else v
            for v in arguments.values()
        ]
        accelerator.launch(case.kernel, case.grid, case.block, *buffers, shared_bytes=case.shared_bytes)
        for (name, _), buffer in zip(arguments.items(), buffers, strict=True):
            expected = case.reference(arguments).get(name)
            if expected is not None:
                assert case.comparison.wrong(accelerator.to_host(buffer), expected) is None, (seed, name)


def test_right_synchronised_kernels_are_right_in_any_order() -> None:
    check_all(CASES, run_in_six_orders, lambda case: case.name)


def traced(seed: int) -> str:
    accelerator = device(seed)
    case = next(case for case in CASES if case.name == "chained_scan")
    arguments = case.arguments()
    given = [
        accelerator.empty(v.shape, v.dtype) if isinstance(v, registry.Empty) else accelerator.to_device(v)
        for v in arguments.values()
    ]
    accelerator.launch(case.kernel, case.grid, case.block, *given)
    return accelerator.trace_hash


def test_a_seed_gives_one_trace_a_hundred_times_and_seeds_differ() -> None:
    first = ORDERED[2]
    hashes = set()
    for _ in range(100):
        accelerator = device(0)
        first.run(accelerator, first.right)
        hashes.add(accelerator.trace_hash)
    assert len(hashes) == 1
    assert len({traced(seed) for seed in range(6)}) == 6


def test_a_seed_gives_one_trace_in_every_process_beside_others() -> None:
    """Under load: several processes at once, each with its own hash seed, and this one."""
    text = "from tests.emulator.test_threads import traced; print(traced(7))"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": os.pathsep.join(["", *sys.path])},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(1, 3)
    ]
    assert {process.communicate()[0].strip() for process in running} == {traced(7)}


def test_without_a_schedule_there_is_no_trace() -> None:
    accelerator = device()
    ORDERED[0].run(accelerator, ORDERED[0].right)
    assert accelerator.trace_hash == ""


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "7"])
def test_a_schedule_is_a_seed(wrong: Any) -> None:
    with pytest.raises(errors.InputError, match="is not a valid schedule; expected a seed: an integer of at least 0"):
        windtunnel.device("l4", catalogue=KNOWN, schedule=wrong)


@pytest.mark.parametrize("wrong", [0, [], [-1], [True], "7"])
def test_an_exploration_has_schedules(wrong: Any) -> None:
    with pytest.raises(errors.InputError, match="is not a number of schedules"):
        windtunnel.explore(lambda a: None, "l4", catalogue=KNOWN, schedules=wrong)


# Who is stuck, and for whom.


@windtunnel.kernel
def crosswise(locks: i32[:], holding: i32[:]):  # type: ignore[no-untyped-def]
    mine = blockIdx.x
    while atomic.cas(locks, mine, 0, 1) != 0:
        pass
    atomic.add(holding, 0, 1)
    while atomic.add(holding, 0, 0) < 2:
        pass
    while atomic.cas(locks, 1 - mine, 0, 1) != 0:  # HERE
        pass


@windtunnel.kernel
def waits_for_the_last(flag: i32[:]):  # type: ignore[no-untyped-def]
    if blockIdx.x == gridDim.x - 1:
        atomic.exch(flag, 0, 1)
    else:
        while atomic.add(flag, 0, 0) == 0:  # HERE
            pass


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


def line_of(kernel: Any, mark: str = "  # HERE") -> int:
    lines, first = inspect.getsourcelines(kernel.function)
    return next(first + at for at, line in enumerate(lines) if line.rstrip().endswith(mark))


def zeros(accelerator: Accelerator, *sizes: int) -> list[Any]:
    return [accelerator.to_device(np.zeros(size, np.int32)) for size in sizes]


def test_a_deadlock_tells_the_circle() -> None:
    accelerator = device()
    with pytest.raises(errors.Deadlock) as met:
        accelerator.launch(crosswise, 2, 1, *zeros(accelerator, 2, 1))
    line = line_of(crosswise)
    text = str(met.value)
    assert met.value.lines == (line,)
    assert met.value.file == __file__
    assert f"thread 0 of block 0 waits at line {line}" in text
    assert "element 1 of 'locks', 1, which thread 0 of block 1 changed last" in text
    assert "element 0 of 'locks', 1, which thread 0 of block 0 changed last" in text
    assert met.value.threads == (((0, 0, 0), (0, 0, 0)), ((1, 0, 0), (0, 0, 0)))


def test_a_wait_for_a_block_that_has_not_begun_says_how_many_fit() -> None:
    """An L4 has 58 units of 24 blocks each: of 1,400 blocks 1,392 fit, and with as many there is no deadlock."""
    accelerator = device()
    with pytest.raises(errors.Deadlock) as met:
        accelerator.launch(waits_for_the_last, 1400, 1, *zeros(accelerator, 1))
    assert "8 of 1,400 blocks have not begun: l4 holds 1,392 of this size at once" in str(met.value)
    assert met.value.lines == (line_of(waits_for_the_last),)
    accelerator = device()
    accelerator.launch(waits_for_the_last, 1392, 1, *zeros(accelerator, 1))
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


@windtunnel.kernel(registers=80)
def heavy(out: i32[:]):  # type: ignore[no-untyped-def]
    out[grid(1)] = threadIdx.x


def test_registers_bound_the_block() -> None:
    """65,536 registers a unit: 819 threads of 80, so 816 in whole warps."""
    accelerator = device()
    accelerator.launch(heavy, 1, 819, *zeros(accelerator, 1024))
    with pytest.raises(errors.LaunchError, match="820 threads of 80 registers are 65,600, of at most 65,536"):
        accelerator.launch(heavy, 1, 820, *zeros(accelerator, 1024))


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


# The grid's barrier.


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


# Warps that do not meet, and loops without an end.


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


def with_x(accelerator: Accelerator) -> tuple[Any, Any]:
    return accelerator.to_device(np.arange(32, dtype=np.int32)), accelerator.to_device(np.zeros(64, np.int32))


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("kernel", [half_a_warp_shuffles, half_a_warp_meets], ids=lambda k: k.name)
def test_all_that_a_mask_names_have_to_meet(kernel: Any, seed: int | None) -> None:
    accelerator = device(seed)
    with pytest.raises(errors.BarrierDivergence) as met:
        accelerator.launch(kernel, 1, 32, *with_x(accelerator), 0xFFFFFFFF)
    assert met.value.lines == (line_of(kernel), line_of(kernel, "# AND HERE"))
    assert "the warp synchronisation" in str(met.value)


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
    assert "has read of lane 16, for thread 7 of block 0: that lane has ended" in str(used.value)


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


@windtunnel.kernel
def dropped_value(out: i32[:]):  # type: ignore[no-untyped-def]
    _ = atomic.add(out, 0, 1)
    last_ = atomic.exch(out, 1, 5)  # noqa: F841


def gid():  # type: ignore[no-untyped-def]
    return blockIdx.x * blockDim.x + threadIdx.x


@windtunnel.kernel
def by_helper(out: i32[:]):  # type: ignore[no-untyped-def]
    out[gid()] = 1


@windtunnel.kernel
def of_every_thread(a: i32[:], out: i32[:]):  # type: ignore[no-untyped-def]
    for k in range(a.size):
        out[0] += a[k]


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_a_value_that_nobody_reads_is_worked_out_for_what_it_does(seed: int | None) -> None:
    accelerator = device(seed)
    (out,) = zeros(accelerator, 2)
    accelerator.launch(dropped_value, 2, 32, out)
    assert accelerator.to_host(out).tolist() == [64, 5]


def test_kernels_are_told_by_their_helpers_and_their_annotations() -> None:
    accelerator = device()
    out, a = zeros(accelerator, 64, 5)
    accelerator.launch(by_helper, 2, 32, out)
    assert accelerator.to_host(out).all()
    with pytest.raises(errors.DataRace):
        accelerator.launch(of_every_thread, 1, 4, a, out)


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
