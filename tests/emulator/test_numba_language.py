"""The language of Numba's kernels beyond the recorded programs (``tests/corpus/numba_cuda``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.core.errors import DataRace, UninitializedRead
from windtunnel.emulator.common.lanes import convert
from windtunnel.emulator.common.symbolic import Ramp
from windtunnel.language.numba.program import ArrayArgument, NumberArgument, read_kernel
from windtunnel.language.specialise import TypedKernel
from windtunnel.language.types import I64
from windtunnel.runtime.kernels import Kernel

PROGRAMS = Path(__file__).with_name("numba_language.py")
HOST = Path(__file__).with_name("numba_host.py")
REFUSALS = Path(__file__).with_name("numba_refusals.py")
COMPILATION = Path(__file__).with_name("numba_compilation.py")


@pytest.mark.parametrize("programs", [HOST, REFUSALS, COMPILATION], ids=lambda path: path.stem)
def test_what_the_host_does_is_checked_and_computes_what_numba_does_or_is_refused_in_its_words(programs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "windtunnel", "emulate", str(programs)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("program_") == programs.read_text().count("def program_")


def test_shapes_views_reductions_recursion_text_and_bfloat16_compute_what_numpy_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "windtunnel", "emulate", str(PROGRAMS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    files = [PROGRAMS, PROGRAMS.with_name("numba_arrays.py"), PROGRAMS.with_name("numba_libdevice.py")]
    count = sum(path.read_text().count("def program_") for path in files)
    assert done.stdout.splitlines() == ["done (1, (2.500000, True)) (0, 0, 0)"] * count


def test_symbolic_indices_of_64_bits_have_the_values_of_arrays() -> None:
    ramp = Ramp(2**31 - 3, 6, 1, np.int64)
    values = np.arange(6) + 2**31 - 3
    for made, wanted in (
        (ramp + np.int64(5), values + 5), (ramp - np.int64(2**31), values - 2**31), (ramp * np.int64(3), values * 3),
        (ramp < np.int64(2**31), values < 2**31), (ramp >= np.int64(2**31), values >= 2**31),
        (ramp == Ramp(2**31 - 3, 6, 1, np.int64), np.ones(6, bool)), (convert(ramp, np.dtype("i4")), values.astype("i4")),
        (convert(convert(ramp - np.int64(2**31), np.dtype("i4")), np.dtype("i8")), values - 2**31),
    ):  # fmt: skip
        got = np.broadcast_to(np.asarray(made), 6)
        assert got.tolist() == wanted.tolist()
    assert isinstance(convert(ramp - np.int64(2**31), np.dtype("i4")), Ramp)
    assert not isinstance(convert(ramp, np.dtype("i4")), Ramp)  # its values wrap around


def reads_it(n, got):  # type: ignore[no-untyped-def]
    for k in range(n):
        last = k
    for _ in range(1):
        got[0] = last


def test_a_variable_that_no_turn_of_a_loop_assigned_is_reported_where_the_program_reads_it() -> None:
    arguments = [NumberArgument(I64), ArrayArgument(np.dtype("i8"), 1, "C")]
    kernel = Kernel(TypedKernel(read_kernel(reads_it, arguments).program))
    with wt.device("l4") as device:
        got = device.to_device(np.zeros(1, np.int64))
        device.launch(kernel, 1, 1, 3, got)
        assert device.to_host(got)[0] == 2
        with pytest.raises(UninitializedRead, match=r"reads 'last' at line \d+ \(got\[0\] = last\)"):
            device.launch(kernel, 1, 1, 0, got)


@wt.kernel
def across(a: wt.f32[:], b: wt.f32[:], first: wt.i32, second: wt.i32) -> None:
    i = wt.grid(1)
    a[i] = i
    if first:
        wt.cg.this_grid().sync()
    b[i] = a[a.size - 1 - i]
    if second:
        wt.cg.this_grid().sync()
    a[i] = b[i] + 1


@pytest.mark.parametrize(("first", "second", "line"), [(1, 1, None), (0, 1, "b[i] = a"), (1, 0, "a[i] = b")])
def test_a_barrier_of_the_grid_orders_the_blocks_around_it_and_no_others(first: int, second: int, line: str) -> None:
    with wt.device("h100-sxm-80gb") as device:
        a, b = (device.to_device(np.zeros(1024, np.float32)) for _ in range(2))
        if line is None:
            device.launch(across, 16, 64, a, b, first, second)
            assert device.to_host(a).tolist() == [1024 - i for i in range(1024)]
            return
        with pytest.raises(DataRace) as found:
            device.launch(across, 16, 64, a, b, first, second)
        assert line in str(found.value)
