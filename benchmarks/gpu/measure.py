"""Time the kernels of kernels.cu on a CUDA device with CuPy, or launch each once for Nsight Compute.

    python benchmarks/gpu/measure.py --out times.csv                    # medians by CUDA events
    ncu --kernel-name regex:^wt_ --clock-control none ... python benchmarks/gpu/measure.py --once

A row is one launch. Arrays of the streaming kernels are several times the L2 cache; `wt_banks` and the kernels of
arithmetic use hardly any memory. `bytes` and `flops` are what an ideal kernel moves and computes, counted by hand.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

N = 1 << 26
SIDE = 8192
MATRIX = 2048
BLOCK = 256

Row = tuple[str, str, Any, Any, int, Sequence[Any], float, float]
"""Name, kernel, grid, block, dynamic shared bytes, arguments, ideal bytes, flops."""


def rows(b: dict[str, Any]) -> list[Row]:
    """The launches, on buffers by name: f, g, h (float32), d (two of float64), x (indices), i (random int32), z (results)."""
    i4, ll = np.int32, N // BLOCK
    f, g, h = b["f"], b["g"], b["h"]
    n = i4(N)
    small = 132 * 16 * BLOCK
    one = i4(small)
    made: list[Row] = [("empty", "wt_empty", 1, 32, 0, (), 0, 0)]

    def plain(
        name: str, kernel: str, arguments: Sequence[Any], moved: float, flops: float = 0.0, count: int = N
    ) -> None:
        made.append((name, kernel, -(-count // BLOCK), BLOCK, 0, arguments, moved, flops))

    plain("copy", "wt_copy", (f, h, n), 8 * N)
    plain("copy float4", "wt_copy4", (f, h, n), 8 * N, 0, N // 4)
    for offset in (1, 8):
        plain(f"copy from offset {offset}", "wt_copy_offset", (f, h, n, i4(offset)), 8 * N)
    for stride in (2, 4, 8, 32):
        plain(f"read with stride {stride}", "wt_read_stride", (f, h, n, i4(stride)), 8 * N / stride, 0, N // stride)
        plain(f"write with stride {stride}", "wt_write_stride", (f, h, n, i4(stride)), 8 * N / stride, 0, N // stride)
    plain("gather at random", "wt_gather", (f, b["x"], h, n), 12 * N)
    plain("add", "wt_add", (f, g, h, n), 12 * N, N)
    for count in (1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
        plain(f"add {count}", "wt_add", (f, g, h, i4(count)), 12 * count, count, count)
    made.append(("add with a grid stride", "wt_add_grid_stride", 132 * 8, BLOCK, 0, (f, g, h, n), 12 * N, N))
    plain("add bytes", "wt_add_bytes", (f, g, h, n), 3 * N, N)
    plain("add double", "wt_add_double", (b["d"], b["e"], h, i4(N // 2)), 12 * N, N / 2, N // 2)
    plain("gelu", "wt_gelu", (f, h, n), 8 * N)
    plain("tanh", "wt_tanh", (f, h, n), 8 * N)
    plain("pow", "wt_pow", (f, g, h, n), 12 * N)
    plain("divide", "wt_divide", (f, g, h, n), 12 * N, N)
    rounds = 4096
    plain("fma float32", "wt_fma_f32", (h, one, i4(rounds)), 4 * small, 8.0 * small * rounds, small)
    plain("fma float64", "wt_fma_f64", (h, one, i4(rounds // 2)), 8 * small, 4.0 * small * rounds, small)
    plain("mad int32", "wt_mad_i32", (h, one, i4(rounds)), 4 * small, 8.0 * small * rounds, small)
    plain("dependent fma, full", "wt_latency_chain", (h, one, i4(rounds)), 4 * small, 2.0 * small * rounds, small)
    made.append(("dependent fma, a warp per multiprocessor", "wt_latency_chain", 132, 32, 0, (h, i4(132 * 32), i4(rounds)), 0, 2.0 * 132 * 32 * rounds))  # fmt: skip
    for kind in ("tree", "interleaved", "modulo", "shuffle"):
        plain(f"reduce {kind}", f"wt_reduce_{kind}", (f, h, n), 4 * N, N)
    few = 1 << 22
    plain("atomic on one address", "wt_atomic_one_address", (b["z"], i4(few)), 0, 0, few)
    plain("atomic on one address, old value kept", "wt_atomic_one_address_old", (b["z"], h, i4(few)), 4 * few, 0, few)
    for addresses in (2, 32, 1024, 1 << 20):
        plain(f"atomic on {addresses} addresses", "wt_atomic_spread", (b["z"], i4(few), i4(addresses)), 0, 0, few)
    plain("float atomic on 32 addresses", "wt_atomic_float_spread", (h, i4(few), i4(32)), 0, 0, few)
    plain("float atomic on one address", "wt_atomic_float_spread", (h, i4(few), i4(1)), 0, 0, few)
    plain("histogram in global memory", "wt_histogram_global", (b["i"], b["z"], n), 4 * N)
    made.append(("histogram in shared memory", "wt_histogram_shared", 132 * 8, BLOCK, 0, (b["i"], b["z"], n), 4 * N, 0))
    made.append(("histogram of one value in shared memory", "wt_histogram_shared", 132 * 8, BLOCK, 0, (b["o"], b["z"], n), 4 * N, 0))  # fmt: skip
    plain("compare and swap until it succeeds", "wt_cas_lock", (b["z"], i4(1 << 14)), 0, 0, 1 << 14)
    blocks = (SIDE // 32, SIDE // 32)
    for kind in ("naive", "conflicts", "padded"):
        made.append((f"transpose {kind}", f"wt_transpose_{kind}", blocks, (32, 8), 0, (f, h, i4(SIDE)), 8 * SIDE**2, 0))
    for stride in (0, 1, 2, 4, 8, 16, 32):
        plain(f"shared memory with stride {stride}", "wt_banks", (h, one, i4(stride), i4(2048)), 4 * small, 0, small)
    for ways in (1, 2, 4, 32):
        plain(
            f"divergent {ways} ways", "wt_divergent", (h, one, i4(ways), i4(1024)), 4 * small, 2.0 * small * 1024, small
        )
    plain("loops of 1 to 32 times 32", "wt_uneven_loop", (h, one, i4(1024)), 4 * small, 2.0 * small * 528, small)
    made.append(("stencil naive", "wt_stencil_naive", (SIDE // 32, SIDE // 8), (32, 8), 0, (f, h, i4(SIDE)), 8 * SIDE**2, 5 * SIDE**2))  # fmt: skip
    made.append(("stencil shared", "wt_stencil_shared", (SIDE // 32, SIDE // 8), (32, 8), 0, (f, h, i4(SIDE)), 8 * SIDE**2, 5 * SIDE**2))  # fmt: skip
    tiles = (MATRIX // 32, MATRIX // 32)
    for kind in ("naive", "tiled"):
        made.append((f"matmul {kind}", f"wt_matmul_{kind}", tiles, (32, 32), 0, (f, g, h, i4(MATRIX)), 12 * MATRIX**2, 2.0 * MATRIX**3))  # fmt: skip
    made.append(("softmax of rows", "wt_softmax_rows", SIDE, 256, 0, (f, h, i4(SIDE)), 8 * SIDE**2, 0))
    plain("local array", "wt_local_array", (b["x"], h, i4(N // 4)), 2 * N, 0, N // 4)
    for kib in (1, 24, 48):
        made.append((f"{kib} KiB of shared memory a block", "wt_occupancy", ll, BLOCK, kib * 1024, (f, h, n), 8 * N, 0))
    for threads in (32, 64, 128, 512, 1024):
        made.append((f"copy in blocks of {threads}", "wt_copy", N // threads, threads, 0, (f, h, n), 8 * N, 0))
    plain("barriers", "wt_barriers", (h, one, i4(1024)), 4 * small, 0, small)
    return made


def buffers(cupy: Any) -> dict[str, Any]:
    made = np.random.default_rng(5)
    head = made.random(1 << 20, np.float32) + np.float32(0.5)
    f = cupy.tile(cupy.asarray(head), N >> 20)
    return {
        "f": f, "g": f[::-1].copy(), "h": cupy.empty(N, cupy.float32), "d": f.view(cupy.float64), "e": f[::-1].copy().view(cupy.float64),
        "x": cupy.random.permutation(N).astype(cupy.int32), "i": cupy.random.randint(0, 1 << 30, N, dtype=cupy.int32),
        "o": cupy.full(N, 7, cupy.int32), "z": cupy.zeros(1 << 20, cupy.int32),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    import cupy

    source = Path(__file__).with_name("kernels.cu").read_text()
    capability = cupy.cuda.Device().compute_capability
    code, _ = cupy.cuda.compiler.compile_using_nvrtc(source, ("-std=c++17", "-lineinfo"), arch=capability)
    module = cupy.cuda.Module()
    module.load(code)
    stream = cupy.cuda.Stream(non_blocking=True)
    chosen = [row for row in rows(buffers(cupy)) if not given.only or row[0] in given.only.split(";")]
    cupy.cuda.Device().synchronize()
    found = []
    for name, kernel, grid, block, shared, arguments, moved, flops in chosen:
        function = module.get_function(kernel)
        sides = [(*((side,) if isinstance(side, int) else side), 1, 1)[:3] for side in (grid, block)]

        def launch(
            function: Any = function, sides: Any = sides, arguments: Any = arguments, shared: int = shared
        ) -> None:
            function(*sides, tuple(arguments), shared_mem=shared, stream=stream)

        if given.once:
            launch()
            stream.synchronize()
            print(name, kernel, flush=True)
            continue
        took = []
        for _ in range(3):
            launch()
        stream.synchronize()
        for _ in range(given.repeats):
            began, ended = cupy.cuda.Event(), cupy.cuda.Event()
            began.record(stream)
            launch()
            ended.record(stream)
            ended.synchronize()
            took.append(cupy.cuda.get_elapsed_time(began, ended) * 1e-3)
        ordered = sorted(took)
        row = {
            "name": name, "kernel": kernel, "grid": "x".join(map(str, sides[0])), "block": "x".join(map(str, sides[1])),
            "shared_bytes": shared, "scalars": ";".join(str(v) for v in arguments if isinstance(v, np.integer)),
            "median_s": statistics.median(took), "min_s": ordered[0], "p90_s": ordered[int(0.9 * (len(took) - 1))],
            "samples": len(took), "bytes": moved, "flops": flops,
        }  # fmt: skip
        found.append(row)
    if given.out and found:
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)
    for row in found:
        rate = max(row["bytes"] / row["median_s"] / 1e12, row["flops"] / row["median_s"] / 1e12)
        print(f"{row['name']:45} {row['median_s'] * 1e6:10.1f} us  {rate:8.3f} T/s", file=sys.stderr)


if __name__ == "__main__":
    main()
