"""Execution thread by thread: the same numbers as in lockstep, and schedules by seeds."""

from __future__ import annotations

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
from tests.emulator.shared import KNOWN, device, zeros
from tests.emulator.traced import traced

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, errors, grid, i32, threadIdx
from windtunnel.core.errors import Finding
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.device.executable import Executable, with_size
from windtunnel.language import ir
from windtunnel.language.source import KernelError
from windtunnel.language.types import scalar_of

LARGE = {"vector_add_large"}
"""Cases that take seconds one by one, and have a smaller case of the same kernel."""


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
    text = "from tests.emulator.traced import traced; print(traced(7))"
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


# Registers, values that nobody reads, and helpers.


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
