"""Counted work: figures that follow from the kernel by hand, profiles, and prices by the counts."""

from __future__ import annotations

import json
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.fake_compilers import nvrtc

import windtunnel
from windtunnel import atomic, blockIdx, cg, errors, f32, f64, grid, i32, shared, syncthreads, threadfence, threadIdx
from windtunnel.emulator.work.operations import EXPANSIONS
from windtunnel.runtime.work_counts import WorkCounts
from windtunnel_models.catalogue import shipped_catalogue

N, BLOCK = 1 << 14, 256
WARPS = N // 32


def counted(kernel: Any, *arguments: Any, blocks: int = N // BLOCK, threads: int = BLOCK) -> WorkCounts:
    with windtunnel.device("h200-sxm-141gb") as accelerator:
        given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        with accelerator.profile() as profile:
            accelerator.launch(kernel, blocks, threads, *given)
        counts = profile.launches[0].counts
    assert counts is not None
    return counts


def floats(n: int = N) -> np.ndarray:
    return np.zeros(n, np.float32)


@windtunnel.kernel
def multiply_add(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = grid(1)
    if i < n:
        c[i] = a[i] * b[i] + c[i]


@windtunnel.kernel
def in_doubles(a: f64[:], n: i32):
    i = grid(1)
    a[i] = a[i] * 2.0
    for _ in range(n):
        a[i] = a[i] + 1.0


def test_operations_are_counted_by_type() -> None:
    counts = counted(multiply_add, floats(), floats(), floats(), N)
    assert counts.operations["ffma"] == N
    assert counts.flops == {"float16": 0, "float32": 2 * N, "float64": 0}
    counts = counted(in_doubles, np.zeros(N), 5)
    assert (counts.operations["dmul"], counts.operations["dadd"]) == (N, 5 * N)


@windtunnel.kernel
def strided(a: f32[:], c: f32[:], stride: i32):
    i = grid(1)
    c[i] = a[i * stride]


@pytest.mark.parametrize(("stride", "sectors"), [(0, 1), (1, 4), (2, 8), (8, 32), (32, 32)])
def test_a_request_touches_the_sectors_of_its_elements(stride: int, sectors: int) -> None:
    counts = counted(strided, floats(N * max(stride, 1)), floats(), stride)
    assert (counts.loads.requests, counts.loads.sectors) == (WARPS, WARPS * sectors)
    assert (counts.stores.requests, counts.stores.sectors) == (WARPS, WARPS * 4)


@windtunnel.kernel
def banks(c: f32[:], stride: i32):
    held = shared.array(1024, f32)
    for k in range(threadIdx.x, 1024, 256):
        held[k] = 1.0
    syncthreads()
    c[grid(1)] = held[(threadIdx.x * stride) & 1023]


@pytest.mark.parametrize(("stride", "passes"), [(0, 1), (1, 1), (2, 2), (8, 8), (32, 32)])
def test_a_request_to_shared_memory_passes_over_its_banks(stride: int, passes: int) -> None:
    counts = counted(banks, floats(), stride)
    assert counts.shared_loads.wavefronts == WARPS * passes
    assert counts.shared_loads.conflicts == WARPS * (passes - 1)
    assert counts.shared_stores.conflicts == 0
    assert counts.barriers == WARPS


@windtunnel.kernel
def odd_ones(c: f32[:]):
    i = grid(1)
    if i % 2 == 1:
        c[i] = 1.0
    if blockIdx.x == 0:
        c[i] = 2.0


def test_divergent_branches_are_counted_by_warp() -> None:
    counts = counted(odd_ones, floats())
    assert (counts.branches, counts.divergent_branches) == (2 * WARPS, WARPS)
    assert counts.branch_efficiency == 0.5
    assert counts.stores.elements == N // 2 + BLOCK
    assert 16 < counts.threads_per_instruction < 32


@windtunnel.kernel
def spread(c: i32[:], f: f32[:], elements: i32):
    i = grid(1)
    atomic.add(c, i % elements, 1)
    atomic.add(f, 0, 1.0)


def test_atomic_operations_on_one_element_take_turns() -> None:
    one, many = (counted(spread, np.zeros(N, np.int32), floats(1), elements) for elements in (2, N))
    assert one.atomics.conflicts == WARPS * (30 + 31)
    assert many.atomics.conflicts == WARPS * 31
    assert one.atomic_turns[256] == many.atomic_turns[256] == 2 * N  # those of the float


FLOAT_OPCODES = {0x020: "mul", 0x021: "add", 0x023: "fma", 0x108: "special"}
EXIT = 0x14D


def instructions(cubin: bytes, kernel: str) -> dict[str, int]:
    """Return the instructions of a kernel on floats, up to its exit (compute capability 9.0: 16 bytes each).

    The opcode is in the lowest 9 bits, and the predicate, 7 for none, in bits 12 to 15.
    """
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    count, names = struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + 64 * i) for i in range(count)]
    text = sections[names][4]
    (code,) = (s for s in sections if cubin[text + s[0] :].split(b"\0", 1)[0] == b".text." + kernel.encode())
    found: Counter[str] = Counter()
    for (word,) in struct.iter_unpack("<Q8x", cubin[code[4] : code[4] + code[5]]):
        if word & 0x1FF == EXIT and word >> 12 & 15 == 7:
            return dict(found)
        if word & 0x1FF in FLOAT_OPCODES:
            found[FLOAT_OPCODES[word & 0x1FF]] += 1
    raise AssertionError("no exit")


def test_functions_are_the_instructions_that_nvrtc_makes_of_them() -> None:
    expressions = {}
    for name in EXPANSIONS:
        function = name.removeprefix("math.") + "f"
        two = name in ("math.atan2", "math.hypot", "math.pow")
        expressions[function] = "x / y" if name == "/" else f"{function}(x, y)" if two else f"{function}(x)"
    names = {function: f"k{i}" for i, function in enumerate(expressions)}
    source = "\n".join(
        f'extern "C" __global__ void {names[function]}(const float *a, float *c)'
        f"{{ float x = a[threadIdx.x], y = a[threadIdx.x + 32]; c[threadIdx.x] = {expression}; }}"
        for function, expression in expressions.items()
    )
    cubin, problem = nvrtc(source, ("--gpu-architecture=sm_90",))
    assert not problem
    for (name, expected), function in zip(EXPANSIONS.items(), expressions, strict=True):
        assert instructions(cubin, names[function]) == expected, name


def test_a_sample_of_blocks_stands_for_all() -> None:
    n = 1 << 22
    counts = counted(multiply_add, floats(n), floats(n), floats(n), n, blocks=n // BLOCK)
    assert counts.sampled < counts.blocks == n // BLOCK
    assert counts.operations["ffma"] == n and counts.loads.sectors == 3 * n / 8
    assert counts.memory_bytes == 16 * n


def test_counting_changes_neither_memory_nor_findings() -> None:
    with windtunnel.device("l4") as accelerator:
        c = accelerator.to_device(np.zeros(4, np.int32))
        f = accelerator.to_device(floats(1))
        with accelerator.profile():
            accelerator.launch(spread, 2, 32, c, f, 4)
            with pytest.raises(errors.OutOfBounds):
                accelerator.launch(spread, 2, 32, c, f, 5)
        assert (accelerator.to_host(c) == 16).all()


def times(counted_work: bool, kernel: Any, *arguments: Any) -> float:
    with windtunnel.device("h200-sxm-141gb", counted=counted_work) as accelerator:
        given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        accelerator.synchronize()
        before = accelerator.clock_s
        accelerator.launch(kernel, N // BLOCK, BLOCK, *given)
        accelerator.synchronize()
        return accelerator.clock_s - before


@windtunnel.kernel
def long(a: f32[:], rounds: i32):
    i = grid(1)
    w = a[i]
    for _ in range(rounds):
        w = w * 0.5 + 1.0
    a[i] = w


def test_the_clock_follows_the_counted_work_unless_it_is_refused() -> None:
    assert times(True, long, floats(), 100_000) > 10 * times(True, long, floats(), 10)
    assert times(False, long, floats(), 1000) == times(False, long, floats(), 10)
    assert times(True, strided, floats(N * 8), floats(), 8) <= times(False, strided, floats(N * 8), floats(), 8)


@windtunnel.kernel
def on_one_float(f: f32[:]):
    atomic.add(f, threadIdx.x % 2, 1.0)


@windtunnel.kernel
def loads(a: f32[:], c: f32[:]):
    if a[threadIdx.x % 8] > 0.0:
        c[0] = 1.0


@windtunnel.kernel
def begins(c: f32[:]):
    if blockIdx.x < 0:
        c[0] = 1.0


@pytest.mark.parametrize(
    ("kernel", "threads", "below", "above"),
    [(on_one_float, 256, 2.0, 2.0), (loads, 1024, 1.5, 1.0 / 0.6), (begins, 32, 2.5, 2.0)],
    ids=["atomics", "residence", "starts of blocks"],
)
def test_an_interval_contains_the_ranges_of_assumed_times(
    kernel: Any, threads: int, below: float, above: float
) -> None:
    taken_s = {}
    for interval in ("low", "best", "high"):
        with windtunnel.device("h200-sxm-141gb", interval=interval) as accelerator:
            given = [accelerator.to_device(floats(8)) for _ in kernel.function.__annotations__]
            with accelerator.profile() as profile:
                accelerator.launch(kernel, 1 << 14, threads, *given)
            taken_s[interval] = profile.launches[0].duration_s
    assert taken_s["best"] > 1e-5  # and so not the time of a launch
    assert taken_s["best"] / taken_s["low"] > below and taken_s["high"] / taken_s["best"] > above


@windtunnel.kernel
def copied(a: f32[:, :], out: f32[:, :]):
    x, y = grid(2)
    out[y, x] = a[y, x]


@windtunnel.kernel
def transposed(a: f32[:, :], out: f32[:, :]):
    x, y = grid(2)
    out[x, y] = a[y, x]


@windtunnel.kernel
def scattered(out: f32[:], stride: i32):
    out[grid(1) * stride] = 1.0


@windtunnel.kernel
def rows_summed(a: f32[:, :], out: f32[:], rows: i32):
    total = f32(0.0)
    for k in range(8):
        for row in range(rows):
            total += a[grid(1) * rows + row, k]
    out[grid(1)] = total


def profiled(kernel: Any, blocks: Any, threads: Any, *arguments: Any, **options: Any) -> Any:
    with windtunnel.device("h200-sxm-141gb", **options) as accelerator:
        given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        with accelerator.profile() as profile:
            accelerator.launch(kernel, blocks, threads, *given)
    return profile.launches[0]


def test_stores_of_parts_of_sectors_make_a_transposition_slow() -> None:
    square = np.zeros((2048, 2048), np.float32)
    straight, across = (profiled(kernel, (64, 256), (32, 8), square, square) for kernel in (copied, transposed))
    assert straight.counts.stores.partial == 0
    # Each warp writes 4 bytes of 32 lines; the eight warps of a block write whole sectors together.
    assert across.counts.stores.partial == across.counts.stores.lines == square.size
    assert across.counts.arrays["out"].filled == 0
    assert across.limited_by == "L2 Cache" and across.duration_s > 2.5 * straight.duration_s
    assert across.duration_low_s < across.duration_s < across.duration_high_s


@pytest.mark.parametrize(("stride", "filled"), [(1, 0), (2, 8 * N), (8, 32 * N), (32, 32 * N)])
def test_a_sector_that_is_written_in_part_is_read_before(stride: int, filled: int) -> None:
    counts = counted(scattered, floats(N * stride), stride)
    assert counts.arrays["out"].filled == filled
    assert counts.arrays["out"].stored == max(filled, 4 * N)


@pytest.mark.parametrize(("rows", "rate"), [(16, 7 / 8), (64, 0.0)])
def test_the_l1_cache_holds_what_its_size_allows(rows: int, rate: float) -> None:
    # Each thread reads the 8 elements of the sectors of its rows. A block has 256 KiB of its own: room for the sectors
    # of 16 rows of each of its 256 threads, and not for those of 64.
    n = 4096
    counts = counted(rows_summed, np.zeros((n * rows, 8), np.float32), floats(n), rows, blocks=n // BLOCK)
    assert counts.loads.sectors == 8 * n * rows
    assert counts.l1_hit_rate == pytest.approx(rate, abs=0.05)


@windtunnel.kernel
def until_zero(a: i32[:]):
    i = grid(1)
    while a[i] > 0:
        a[i] = a[i] - 1


@windtunnel.kernel
def scaled(a: f32[:], by: f32, n: i32):
    i = grid(1)
    if i < n:
        a[i] = a[i] * by


def test_launches_are_counted_again_where_data_decides() -> None:
    times_s = []
    with windtunnel.device("h200-sxm-141gb") as accelerator:
        for first in (1, 400):
            a = accelerator.to_device(np.full(N, first, np.int32))
            with accelerator.profile() as profile:
                accelerator.launch(until_zero, N // BLOCK, BLOCK, a)
            times_s.append(profile.launches[0].duration_s)
        assert times_s[1] > 1.5 * times_s[0]
        work = accelerator.context.work
        a = accelerator.to_device(floats())
        counting: list[bool] = []
        original = work.counting
        work.counting = lambda launch: counting.append((found := original(launch)) is not None) or found  # type: ignore[func-returns-value]
        for by, n in ((2.0, N), (3.0, N), (3.0, N - 1)):
            accelerator.launch(scaled, N // BLOCK, BLOCK, a, by, n)
    # A factor decides nothing; a length decides which threads work.
    assert counting == [True, False, True]


@windtunnel.kernel
def in_two_steps(a: f32[:], out: f32[:]):
    i = grid(1)
    a[i] = a[i] + 1.0
    cg.this_grid().sync()
    out[i] = a[(i + 1) % a.size]


def test_every_way_of_execution_has_one_price(tmp_path: Path) -> None:
    arguments = (floats(4096), floats(4096))
    plain = profiled(in_two_steps, 16, BLOCK, *arguments)
    assert plain.counts is not None and plain.basis == "counted"  # a grid barrier
    assert plain.counts.flops["float32"] == 4096
    small = (np.zeros(64, np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32), 64)
    by_thread = profiled(multiply_add, 2, 32, *small, schedule=7)
    lockstep = profiled(multiply_add, 2, 32, *small)
    assert by_thread.duration_s == lockstep.duration_s and by_thread.counts == lockstep.counts
    # A kernel in C with the same work.
    source = tmp_path / "same.cu"
    source.write_text(
        "__global__ void same(const float *a, const float *b, float *c, int n) {"
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) c[i] = a[i] * b[i] + c[i]; }"
    )
    in_c = profiled(windtunnel.load(source).same, 2, 32, *small)
    assert in_c.basis == "counted" and in_c.counts.flops == lockstep.counts.flops
    assert in_c.duration_s == pytest.approx(lockstep.duration_s, rel=0.01)
    # A graph of it.
    with windtunnel.device("h200-sxm-141gb") as accelerator, accelerator.profile() as profile:
        given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in small]
        with accelerator.capture() as graph:
            accelerator.launch(multiply_add, 2, 32, *given)
        graph.compile().replay()
    assert profile.launches[0].duration_s == lockstep.duration_s


def test_energy_is_not_that_of_memory_where_threads_wait_for_each_other() -> None:
    power_w = {}
    for kernel, blocks, given in ((on_one_float, 1 << 11, [floats(8)]), (scattered, 1 << 16, [floats(1 << 24), 1])):
        with windtunnel.device("h200-sxm-141gb") as accelerator:
            arguments = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in given]
            accelerator.synchronize()
            before_s, before_j = accelerator.clock_s, accelerator.energy_j
            accelerator.launch(kernel, blocks, BLOCK, *arguments)
            accelerator.synchronize()
            power_w[kernel.name] = (accelerator.energy_j - before_j) / (accelerator.clock_s - before_s)
    assert 75 < power_w["on_one_float"] < 0.8 * power_w["scattered"]


def stated(a: Any) -> None:
    a[...] = 1


@windtunnel.kernel
def waits(flags: i32[:]):
    if threadIdx.x == 0:
        threadfence()
        atomic.exch(flags, 0, 1)
    while atomic.add(flags, 0, 0) == 0:
        pass


def test_a_profile_has_a_line_for_each_kernel(tmp_path: Path) -> None:
    with windtunnel.device("h200-sxm-141gb") as accelerator:
        a, flags = accelerator.to_device(floats()), accelerator.to_device(np.zeros(1, np.int32))
        accelerator.launch(odd_ones, N // BLOCK, BLOCK, a)
        with accelerator.profile() as profile:
            for _ in range(3):
                accelerator.launch(odd_ones, N // BLOCK, BLOCK, a)
            accelerator.launch(stated, 1, 1, a)
            accelerator.launch(waits, 1, 4, flags)
            with accelerator.capture() as graph:
                accelerator.launch(odd_ones, N // BLOCK, BLOCK, a)
            graph.compile().replay()
    assert [launch.name for launch in profile.launches] == ["odd_ones"] * 3 + ["stated", "waits", "odd_ones"]
    lines = profile.table().splitlines()
    assert lines[0].split()[:3] == ["Kernel", "Launches", "Duration"]
    assert [line.split()[:2] for line in lines[1:4]] == [["odd_ones", "4"], ["stated", "1"], ["waits", "1"]]
    assert (
        "50%" in lines[1]
        and "registers. Only @windtunnel.kernel(registers=...)" in lines[4]
        and "without counts" in lines[5]
    )
    profile.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "C"}
    assert {"Branch Efficiency [%]", "Theoretical Occupancy [%]"} <= {e["name"] for e in events if e["ph"] == "C"}


def test_occupancy_is_limited_by_registers_and_shared_memory() -> None:
    many = windtunnel.kernel(registers=128)(odd_ones)
    with windtunnel.device("h200-sxm-141gb") as accelerator, accelerator.profile() as profile:
        a = accelerator.to_device(floats())
        accelerator.launch(many, N // BLOCK, BLOCK, a)
        accelerator.launch(odd_ones, N // BLOCK, BLOCK, a, shared_bytes=48_000)
    # 65,536 registers hold two blocks of 256 threads with 128 each, of eight; 227 KiB of shared memory hold four.
    assert [launch.theoretical_occupancy for launch in profile.launches] == [0.25, 0.5]


@pytest.mark.accelerator("h200-sxm-141gb")
def test_budgets_are_those_of_the_counted_work(accelerator: Any) -> None:
    a = accelerator.to_device(floats())
    with (
        accelerator.expect(time_s=1e-3),
        pytest.raises(AssertionError, match="time_s"),
        accelerator.expect(time_s=2e-5),
    ):
        accelerator.launch(long, N // BLOCK, BLOCK, a, 20_000)


def test_every_device_that_runs_kernels_prices_counted_work() -> None:
    catalogue = shipped_catalogue()
    for sku in catalogue.skus():
        device = catalogue.device(sku)
        if device.kind.name not in ("gpu", "cpu"):
            continue
        with windtunnel.device(sku) as accelerator, accelerator.profile() as profile:
            a = accelerator.to_device(floats(512))
            accelerator.launch(odd_ones, 4, 128, a)
            accelerator.launch(long, 4, 128, a, 5)
            accelerator.synchronize()
            assert all(0 < launch.duration_s < 1e-3 for launch in profile.launches), sku
