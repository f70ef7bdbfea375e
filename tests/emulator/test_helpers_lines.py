"""A finding in a function that a kernel calls names the file, line and text of that function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.emulator import elsewhere

import windtunnel
from windtunnel import errors, grid, i32, shared, syncthreads, threadIdx
from windtunnel.language import ir
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
ORDERS = pytest.mark.parametrize("schedule", [None, 1])


def device(schedule: int | None) -> Accelerator:
    return windtunnel.device("l4", catalogue=KNOWN, schedule=schedule)


def line_of(text: str, of: Any) -> int:
    """The one line of a module or function that is this text, numbered as its file is."""
    function = getattr(of, "function", of)
    lines, first = inspect.getsourcelines(function)
    return next(at for at, line in enumerate(lines, max(first, 1)) if line.strip() == text)


def near(a: Any, i: int) -> None:
    a[i + 1] = i


@windtunnel.kernel
def beyond(a: i32[:]):
    elsewhere.put(a, grid(1) + 1, 7)


@windtunnel.kernel
def beyond_here(a: i32[:]):
    near(a, grid(1))


@windtunnel.kernel
def one_element(a: i32[:]):
    elsewhere.put(a, 0, threadIdx.x)


@windtunnel.kernel
def against_helper(a: i32[:], out: i32[:]):
    i = grid(1)
    if i == 40:
        a[0] = 1
    out[i] = elsewhere.first(a)


@windtunnel.kernel
def unset(out: i32[:]):
    own = shared.array(4, i32)
    out[threadIdx.x] = elsewhere.first(own)


@windtunnel.kernel
def waits(a: i32[:]):
    elsewhere.wait_for(a, threadIdx.x)


@windtunnel.kernel
def parts():
    elsewhere.meet_half(threadIdx.x)


@windtunnel.kernel
def not_the_language(a: i32[:]):
    elsewhere.unknown(a, grid(1))


@windtunnel.kernel
def not_the_types(a: i32[:]):
    elsewhere.mixed(a, grid(1))


@windtunnel.kernel
def both(a: i32[:]):
    near(a, 0)
    syncthreads()
    elsewhere.put(a, 0, 1)


def found_in(
    kind: type[errors.Finding], kernel: Callable[..., Any], schedule: int | None, threads: int, *sizes: int
) -> errors.Finding:
    with device(schedule) as accelerator, pytest.raises(kind) as met:
        accelerator.launch(kernel, 1, threads, *[accelerator.to_device(np.zeros(n, np.int32)) for n in sizes])
        accelerator.synchronize()
    return met.value


@ORDERS
@pytest.mark.parametrize(
    ("kind", "kernel", "threads", "sizes", "text"),
    [
        (errors.OutOfBounds, beyond, 8, [8], "a[i] = value"),
        (errors.DataRace, one_element, 8, [8], "a[i] = value"),
        (errors.Deadlock, waits, 1, [1], "while a[i] == 0:"),
        (errors.UninitializedRead, unset, 4, [4], "return a[0]"),
        (errors.BarrierDivergence, parts, 8, [], "syncthreads()"),
    ],
)
def test_a_finding_in_a_helper_of_another_file_names_that_file_its_line_and_its_text(
    kind: type[errors.Finding],
    kernel: Callable[..., Any],
    threads: int,
    sizes: list[int],
    text: str,
    schedule: int | None,
) -> None:
    found = found_in(kind, kernel, schedule, threads, *sizes)
    line = line_of(text, elsewhere)
    assert (found.file, found.lines) == (elsewhere.__file__, (line,))
    assert f"line {line} of elsewhere.py ({text})" in str(found)


@ORDERS
def test_a_finding_in_a_helper_of_the_kernels_own_file_shows_the_helpers_text(schedule: int | None) -> None:
    found = found_in(errors.OutOfBounds, beyond_here, schedule, 8, 8)
    line = line_of("a[i + 1] = i", near)
    assert (found.file, found.lines) == (__file__, (line,))
    assert f"at line {line} (a[i + 1] = i)" in str(found)


@ORDERS
def test_a_race_of_kernel_and_helper_names_both_lines_and_the_file_of_the_one_that_met_it(
    schedule: int | None,
) -> None:
    found = found_in(errors.DataRace, against_helper, schedule, 64, 1, 64)
    mine, other = line_of("a[0] = 1", against_helper), line_of("return a[0]", elsewhere)
    assert f"line {mine} (a[0] = 1)" in str(found)
    assert f"line {other} of elsewhere.py (return a[0])" in str(found)
    assert (found.file, found.lines) in ((__file__, (mine,)), (elsewhere.__file__, (other,)))


@pytest.mark.parametrize(
    ("kernel", "text"), [(not_the_language, "with a[i]:"), (not_the_types, "a[i] = ~1.5")], ids=["statement", "type"]
)
def test_what_a_helper_may_not_say_is_refused_at_its_own_file_and_line(kernel: Callable[..., Any], text: str) -> None:
    with device(None) as accelerator, pytest.raises(KernelError) as met:
        accelerator.launch(kernel, 1, 8, accelerator.to_device(np.zeros(8, np.int32)))
    assert (met.value.where.file, met.value.where.line) == (elsewhere.__file__, line_of(text, elsewhere))


def test_a_program_knows_the_place_and_text_of_each_of_its_lines() -> None:
    program = parse(both.function, frozenset({"a"}))
    stores = [one.line for one in ir.walk(program.body) if isinstance(one, ir.Store)]
    assert [program.place_of(line) for line in stores] == [
        (__file__, line_of("a[i + 1] = i", near)),
        (elsewhere.__file__, line_of("a[i] = value", elsewhere)),
    ]
    assert [program.text_of(line) for line in stores] == ["a[i + 1] = i", "a[i] = value"]
    assert program.text_of(stores[0] + 10_000) == ""


@windtunnel.kernel
def reads_what_another_writes(a: i32[:]):
    i = grid(1)
    if i == 70:
        a[i] = a[0]
    if i == 0:
        a[i] = 5


@ORDERS
@pytest.mark.parametrize(
    ("grid_of", "why"),
    [
        (1, "no barrier, warp synchronisation, or fence with an atomic operation orders the two accesses"),
        (
            4,
            "threads of two blocks are ordered only by a fence with an atomic operation, a grid barrier or another "
            "launch",
        ),
    ],
)
def test_a_race_says_who_does_what_and_what_would_order_them_and_its_threads_are_as_its_lines(
    grid_of: int, why: str, schedule: int | None
) -> None:
    block = 128 // grid_of
    with device(schedule) as accelerator, pytest.raises(errors.DataRace) as met:
        accelerator.launch(reads_what_another_writes, grid_of, block, accelerator.to_device(np.zeros(128, np.int32)))
        accelerator.synchronize()
    found, text = met.value, str(met.value)
    kernel = reads_what_another_writes
    reads, writes = line_of("a[i] = a[0]", kernel), line_of("a[i] = 5", kernel)
    assert found.lines == (reads, writes)
    assert found.threads == (((70 // block, 0, 0), (70 % block, 0, 0)), ((0, 0, 0), (0, 0, 0)))
    reader = f"thread {70 % block} of block {70 // block} reads it at line {reads} (a[i] = a[0])"
    writer = f"thread 0 of block 0 writes it at line {writes} (a[i] = 5)"
    assert "data race on element 0 of 'a': " in text
    assert any(f"{one}, and {other}; {why}" in text for one, other in ((reader, writer), (writer, reader)))
