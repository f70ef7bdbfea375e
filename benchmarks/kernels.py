"""Emulated kernels: the cost of the detectors, and a comparison with Numba's CUDA simulator and PoCL.

    python benchmarks/kernels.py --out reports/benchmarks [--rounds 5] [--only NAME ...]

Each kernel is launched alternately with and without detectors, in one process. A rate is the best of all rounds, and
the ratio compares the best rates. With detectors, all of them are on, and arrays that a kernel only writes start
uninitialised. Numba's simulator executes some blocks of two of the kernels in a separate process, and the second launch
is timed. PoCL executes the code of the OpenCL emitter, timed from start to end, without copies and compilation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import windtunnel
from windtunnel import atomic, blockDim, blockIdx, f32, grid, gridsize, i32, shared, syncthreads, threadIdx, u32
from windtunnel.codegen import transpile
from windtunnel.codegen.signature import Buffer, Side
from windtunnel.emulator.device.executable import Executable

PEERS = Path(__file__).parent / "peers"
DEVICE = "h100-sxm-80gb"
TILE, BLOCK, BINS, SIDE = 16, 256, 256, 32


@windtunnel.kernel
def saxpy(x: f32[:], y: f32[:], a: f32, n: i32):
    i = grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@windtunnel.kernel
def gelu(x: f32[:], y: f32[:], a: f32, n: i32):
    i = grid(1)
    if i < n:
        y[i] = a * x[i] * (f32(1.0) + math.erf(x[i] * f32(0.70710678)))


@windtunnel.kernel
def scaled(x: f32[:], y: f32[:], a: f32, n: i32):
    for i in range(grid(1), n, gridsize(1)):
        y[i] = a * x[i]


@windtunnel.kernel
def matmul(a: f32[:, :], b: f32[:, :], c: f32[:, :], n: i32):
    left = shared.array((TILE, TILE), f32)
    right = shared.array((TILE, TILE), f32)
    tx = threadIdx.x
    ty = threadIdx.y
    row = blockIdx.y * blockDim.y + ty
    column = blockIdx.x * blockDim.x + tx
    total = f32(0.0)
    for tile in range(n // TILE):
        left[ty, tx] = a[row, tile * TILE + tx]
        right[ty, tx] = b[tile * TILE + ty, column]
        syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        syncthreads()
    c[row, column] = total


@windtunnel.kernel
def reduction(x: f32[:], out: f32[:], n: i32):
    part = shared.array(BLOCK, f32)
    t = threadIdx.x
    i = grid(1)
    part[t] = x[i] if i < n else 0.0
    syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        syncthreads()
        half //= 2
    if t == 0:
        out[blockIdx.x] = part[0]


@windtunnel.kernel
def transpose(m: f32[:, :], out: f32[:, :], n: i32):
    # One column of padding, so that the elements of a column are in different banks.
    tile = shared.array((SIDE, SIDE + 1), f32)
    x = blockIdx.x * SIDE + threadIdx.x
    y = blockIdx.y * SIDE + threadIdx.y
    for j in range(0, SIDE, 8):
        if x < n and y + j < n:
            tile[threadIdx.y + j, threadIdx.x] = m[y + j, x]
    syncthreads()
    x = blockIdx.y * SIDE + threadIdx.x
    y = blockIdx.x * SIDE + threadIdx.y
    for j in range(0, SIDE, 8):
        if x < n and y + j < n:
            out[y + j, x] = tile[threadIdx.x, threadIdx.y + j]


@windtunnel.kernel
def histogram(x: u32[:], counts: u32[:], n: i32):
    local = shared.array(BINS, u32)
    t = threadIdx.x
    local[t] = u32(0)
    syncthreads()
    i = grid(1)
    if i < n:
        atomic.add(local, i32(x[i] % u32(BINS)), u32(1))
    syncthreads()
    atomic.add(counts, t, local[t])


@windtunnel.kernel
def scan(x: f32[:], out: f32[:], n: i32):
    part = shared.array(BLOCK, f32)
    t = threadIdx.x
    i = grid(1)
    part[t] = x[i] if i < n else 0.0
    syncthreads()
    step = 1
    while step < BLOCK:
        before = f32(0.0)
        if t >= step:
            before = part[t - step]
        syncthreads()
        part[t] += before
        syncthreads()
        step *= 2
    if i < n:
        out[i] = part[t]


@windtunnel.kernel
def stencil(x: f32[:, :], out: f32[:, :], n: i32):
    tile = shared.array((TILE + 2, TILE + 2), f32)
    tx = threadIdx.x + 1
    ty = threadIdx.y + 1
    column = blockIdx.x * TILE + tx
    row = blockIdx.y * TILE + ty
    tile[ty, tx] = x[row, column]
    if threadIdx.y == 0:
        tile[0, tx] = x[row - 1, column]
    if threadIdx.y == TILE - 1:
        tile[TILE + 1, tx] = x[row + 1, column]
    if threadIdx.x == 0:
        tile[ty, 0] = x[row, column - 1]
    if threadIdx.x == TILE - 1:
        tile[ty, TILE + 1] = x[row, column + 1]
    syncthreads()
    around = tile[ty - 1, tx] + tile[ty + 1, tx] + tile[ty, tx - 1] + tile[ty, tx + 1]
    out[row, column] = 0.5 * tile[ty, tx] + 0.125 * around


@windtunnel.kernel
def softmax(x: f32[:, :], out: f32[:, :], columns: i32):
    # One block per row.
    part = shared.array(BLOCK, f32)
    t = threadIdx.x
    row = blockIdx.x
    most = f32(-3.0e38)
    for c in range(t, columns, BLOCK):
        most = max(most, x[row, c])
    part[t] = most
    syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] = max(part[t], part[t + half])
        syncthreads()
        half //= 2
    most = part[0]
    syncthreads()
    total = f32(0.0)
    for c in range(t, columns, BLOCK):
        total += np.exp(x[row, c] - most)
    part[t] = total
    syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        syncthreads()
        half //= 2
    for c in range(t, columns, BLOCK):
        out[row, c] = np.exp(x[row, c] - most) / part[0]


@windtunnel.kernel
def collatz(steps: i32[:], n: i32):
    i = grid(1)
    if i < n:
        x = u32(i + 1)
        count = 0
        while x != u32(1):
            if x % u32(2) == u32(0):  # noqa: SIM108  as users write it
                x = x // u32(2)
            else:
                x = u32(3) * x + u32(1)
            count += 1
        steps[i] = count


@windtunnel.kernel
def bodies(x: f32[:], y: f32[:], mass: f32[:], force: f32[:], n: i32):
    xs = shared.array(BLOCK, f32)
    ys = shared.array(BLOCK, f32)
    masses = shared.array(BLOCK, f32)
    t = threadIdx.x
    i = grid(1)
    total = f32(0.0)
    for tile in range(n // BLOCK):
        xs[t] = x[tile * BLOCK + t]
        ys[t] = y[tile * BLOCK + t]
        masses[t] = mass[tile * BLOCK + t]
        syncthreads()
        for j in range(BLOCK):
            dx = xs[j] - x[i]
            dy = ys[j] - y[i]
            d = dx * dx + dy * dy + f32(0.01)
            total += masses[j] * dx / (d * np.sqrt(d))
        syncthreads()
    force[i] = total


@windtunnel.kernel
def permuted(x: f32[:], place: i32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n:
        out[place[i]] = x[i]


@windtunnel.kernel
def scattered(x: f32[:], place: i32[:], out: f32[:], n: i32):
    # The second iteration accesses the same elements, by the same threads.
    i = grid(1)
    for turn in range(2):
        if i < n:
            out[place[i]] += x[i] * f32(turn + 1)


@windtunnel.kernel
def exchanged(x: f32[:], between: f32[:], out: f32[:]):
    # Only the barrier orders the accesses to global memory, so the detectors check every access.
    i = grid(1)
    between[i ^ 1] = x[i]
    syncthreads()
    out[i] = between[i ^ 2]


@windtunnel.kernel
def bitonic(x: f32[:]):
    # Each block sorts its own section.
    part = shared.array(BLOCK, f32)
    t = threadIdx.x
    part[t] = x[grid(1)]
    syncthreads()
    length = 2
    while length <= BLOCK:
        apart = length // 2
        while apart > 0:
            other = t ^ apart
            if other > t:
                first = part[t]
                second = part[other]
                if (first > second) == ((t & length) == 0):
                    part[t] = second
                    part[other] = first
            syncthreads()
            apart //= 2
        length *= 2
    x[grid(1)] = part[t]


Dims = tuple[int, int, int]


@dataclass(frozen=True)
class Case:
    """A launch. ``units``: its number of units of work; ``uninitialised``: arrays that were not written before it."""

    name: str
    kernel: Any
    grid: Dims
    block: Dims
    arguments: dict[str, Any]
    unit: str
    units: int
    uninitialised: tuple[str, ...] = ()
    blocks_for_numba: Dims | None = None


def cases() -> list[Case]:
    numbers = np.random.default_rng(7)

    def draws(*shape: int) -> np.ndarray:
        return numbers.random(shape, np.float32)

    def flat(n: int) -> tuple[Dims, Dims]:
        return (n // BLOCK, 1, 1), (BLOCK, 1, 1)

    def square(n: int, side: int = TILE, rows: int = TILE) -> tuple[Dims, Dims]:
        return (n // side, n // side, 1), (side, rows, 1)

    many, size, n = 1 << 22, 1 << 20, 1024
    listed = [
        Case("saxpy", saxpy, *flat(many), {"x": draws(many), "y": draws(many), "a": 2.0, "n": many}, "threads", many,
             blocks_for_numba=(8, 1, 1)),
    ]  # fmt: skip
    for side in (64, 256):
        arguments = {"a": draws(side, side), "b": draws(side, side), "c": np.zeros((side, side), np.float32), "n": side}
        fewer = (1, 1, 1) if side == 64 else None
        listed.append(
            Case(f"tiled GEMM of {side}", matmul, *square(side), arguments, "multiply-adds", side**3, ("c",), fewer)
        )
    out = np.zeros(size // BLOCK, np.float32)
    same = np.zeros((n, n), np.float32)
    rows, columns = 1024, 1024
    count = 4096
    listed += [
        Case("reduction", reduction, *flat(size), {"x": draws(size), "out": out, "n": size}, "threads", size, ("out",)),
        Case("transpose", transpose, *square(n, SIDE, 8), {"m": draws(n, n), "out": same, "n": n}, "elements", n * n,
             ("out",)),
        Case("histogram", histogram, *flat(size),
             {"x": numbers.integers(0, 2**32, size).astype(np.uint32), "counts": np.zeros(BINS, np.uint32), "n": size},
             "threads", size),
        Case("block scan", scan, *flat(size),
             {"x": draws(size), "out": np.zeros(size, np.float32), "n": size}, "threads", size, ("out",)),
        Case("tiled stencil", stencil, *square(n),
             {"x": draws(n + 2, n + 2), "out": np.zeros((n + 2, n + 2), np.float32), "n": n}, "threads", n * n,
             ("out",)),
        Case("row softmax", softmax, (rows, 1, 1), (BLOCK, 1, 1),
             {"x": draws(rows, columns), "out": np.zeros((rows, columns), np.float32), "columns": columns},
             "elements", rows * columns, ("out",)),
        Case("permutation", permuted, *flat(size),
             {"x": draws(size), "place": numbers.permutation(size).astype(np.int32), "out": np.zeros(size, np.float32),
              "n": size}, "threads", size, ("out",)),
        Case("permutation, two additions", scattered, *flat(size),
             {"x": draws(size), "place": numbers.permutation(size).astype(np.int32), "out": np.zeros(size, np.float32),
              "n": size}, "threads", size),
        Case("exchange through global memory", exchanged, *flat(size),
             {"x": draws(size), "between": np.zeros(size, np.float32), "out": np.zeros(size, np.float32)}, "threads",
             size, ("between", "out")),
        Case("block bitonic sort", bitonic, *flat(1 << 18), {"x": draws(1 << 18)}, "elements", 1 << 18),
        Case("Collatz", collatz, *flat(1 << 16), {"steps": np.zeros(1 << 16, np.int32), "n": 1 << 16}, "threads",
             1 << 16, ("steps",)),
        Case("n-body", bodies, *flat(count),
             {"x": draws(count), "y": draws(count), "mass": draws(count), "force": np.zeros(count, np.float32),
              "n": count}, "pairs", count * count, ("force",)),
    ]  # fmt: skip
    return listed


def emulated(case: Case) -> tuple[Callable[[bool], None], dict[str, Any]]:
    """(a launch with or without detectors; the arguments that it writes to)."""
    executable = Executable(case.kernel.function)
    arguments = {name: a.copy() if isinstance(a, np.ndarray) else a for name, a in case.arguments.items()}
    given = list(arguments.values())
    code = executable.specialised(given)

    def launch(detectors: bool) -> None:
        missing = [np.ones(arguments[name].size, bool) if name in case.uninitialised else None for name in arguments]
        executable.launch(
            code,
            case.grid,
            case.block,
            given,
            device=DEVICE,
            checked=detectors,
            uninitialised=missing if detectors else (),
        )

    return launch, arguments


def opencl(case: Case) -> Callable[[], float]:
    """A function that launches the kernel through PoCL and returns the seconds."""
    import pyopencl

    emitted = transpile(case.kernel.function, "opencl", case.block)
    device = pyopencl.get_platforms()[0].get_devices()[0]
    context = pyopencl.Context([device])
    queue = pyopencl.CommandQueue(context)
    kernel = getattr(
        pyopencl.Program(context, emitted.source).build(options=list(emitted.options)), emitted.signature.name
    )
    flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.COPY_HOST_PTR
    held: list[Any] = []  # PoCL keeps no references to them, so ``launch`` does
    for argument in emitted.signature.arguments:
        if isinstance(argument, Buffer):
            held.append(pyopencl.Buffer(context, flags, hostbuf=case.arguments[argument.name]))
        elif isinstance(argument, Side):
            held.append(np.int32(case.arguments[argument.array].shape[argument.side]))
        else:
            held.append(argument.passed.dtype.type(case.arguments[argument.name]))
    size = [g * b for g, b in zip(case.grid, case.block, strict=True)]

    def launch() -> float:
        for argument, value in zip(emitted.signature.arguments, held, strict=True):
            kernel.set_arg(argument.position, value)
        began = time.perf_counter()
        pyopencl.enqueue_nd_range_kernel(queue, kernel, size, case.block)
        queue.finish()
        return time.perf_counter() - began

    return launch


def numba_seconds(case: Case) -> tuple[float, float]:
    """(seconds of Numba's simulator for some of the blocks, their share of all blocks)."""
    blocks = case.blocks_for_numba
    assert blocks is not None
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    words = [sys.executable, str(PEERS / "numba_simulator.py"), case.kernel.name, json.dumps([blocks, case.block])]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
    share = np.prod(blocks) / np.prod(case.grid)
    return float(done.stdout.split()[-1]), float(share)


def measured(case: Case, rounds: int) -> dict[str, float]:
    """Units per second: with detectors, without, through PoCL, and in Numba's simulator (for some kernels)."""
    launch, _ = emulated(case)
    pocl = opencl(case)
    seconds: dict[str, list[float]] = {"detectors": [], "no detectors": [], "pocl": []}
    began = time.perf_counter()
    launch(True)
    # Short kernels are launched more often, because disturbances last longer than a launch.
    turns = min(max(round(0.02 / (time.perf_counter() - began)), 1), 20)
    for number in range(rounds * turns + 1):
        for name, detectors in (("detectors", True), ("no detectors", False)):
            began = time.perf_counter()
            launch(detectors)
            seconds[name].append(time.perf_counter() - began)
        seconds["pocl"].append(pocl())
        if not number:  # discard the first launch
            for times in seconds.values():
                times.clear()
    rates = {name: case.units / min(times) for name, times in seconds.items()}
    if case.blocks_for_numba is not None:
        took, share = numba_seconds(case)
        rates["numba"] = case.units * share / took
    return rates


def in_c(rounds: int) -> str:
    """Return a table of the time of elementwise kernels in C, over that of the same ones in the kernel language."""
    module, n = windtunnel.load(Path(__file__).with_suffix(".cu")), 1 << 20
    lines = ["", "| elementwise kernel | time in C over that in the kernel language |", "|---|---|"]
    for kernel, blocks in ((saxpy, n // BLOCK), (gelu, n // BLOCK), (scaled, 512)):
        seconds: dict[str, list[float]] = {"language": [], "c": []}
        with windtunnel.device(DEVICE) as accelerator:
            x, y = (accelerator.to_device(np.random.default_rng(0).random(n, np.float32)) for _ in range(2))
            for number in range(rounds * 4 + 1):
                for name, one in (("language", kernel), ("c", getattr(module, kernel.name))):
                    began = time.process_time()
                    accelerator.launch(one, blocks, BLOCK, x, y, 0.5, n)
                    if number:  # the first launch compiles
                        seconds[name].append(time.process_time() - began)
        lines.append(f"| {kernel.name} | {min(seconds['c']) / min(seconds['language']):.2f} |")
    return "\n".join(lines) + "\n"


def table(chosen: list[Case], results: list[dict[str, float]], rounds: int) -> str:
    lines = [
        "# Emulated kernels: cost of the detectors",
        "",
        f"Written by `python benchmarks/kernels.py`: {platform.python_implementation()} {platform.python_version()}, "
        f"NumPy {np.__version__}, {os.cpu_count()} cores, {platform.machine()}. Each rate is the best of {rounds} "
        "launches (more for short kernels), alternately with and without detectors. The absolute rates depend on the "
        "machine, which also had other work: ratios differ by up to a third from run to run. Numba's CUDA simulator "
        "executes 2,048 threads of saxpy, and one block of the tiled GEMM of 64. The last two columns compare the "
        "emulator with detectors to PoCL and to Numba's simulator.",
        "",
        "| kernel | unit | without detectors (units/s) | with detectors (units/s) | slowdown by detectors | "
        "speed-up of PoCL over the emulator | speed-up of the emulator over Numba's simulator |",
        "|---|---|---|---|---|---|---|",
    ]
    for case, rates in zip(chosen, results, strict=True):
        numba = f"{rates['detectors'] / rates['numba']:,.0f}" if "numba" in rates else ""
        cells = (
            case.name,
            case.unit,
            f"{rates['no detectors']:.2g}",
            f"{rates['detectors']:.2g}",
            f"{rates['no detectors'] / rates['detectors']:.2f}",
            f"{rates['pocl'] / rates['detectors']:.3g}",
            numba,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="beginnings of the names of the kernels")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    chosen = [case for case in cases() if not options.only or case.name.startswith(tuple(options.only))]
    results = []
    for case in chosen:
        results.append(measured(case, options.rounds))
        print(case.name, {name: f"{value:.3g}" for name, value in results[-1].items()}, flush=True)
    text = table(chosen, results, options.rounds) + in_c(options.rounds)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "kernels.md").write_text(text)


if __name__ == "__main__":
    main()
