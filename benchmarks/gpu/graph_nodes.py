"""Time the nodes of CUDA graphs of small kernels, captured by CuPy alone, to compare with `windtunnel validate`.

    python benchmarks/gpu/graph_nodes.py

A line of the table: the case, the device's time of a node (us, three medians), and the host's time of the launch (us).
Behind a hold, a kernel spins for 3 ms before the first event, so that the time does not contain the host's launch.
Takes about 5 s. Imports nothing of Windtunnel.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

SOURCE = r"""
extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void hold(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""
NODES = 300
HOLD_CYCLES = 6_000_000

KERNELS = cupy.RawModule(code=SOURCE)
ADD, NOTHING, HOLD = (KERNELS.get_function(name) for name in ("add", "nothing", "hold"))
STREAM = cupy.cuda.Stream.null


def adds(n: int, sets: int) -> Callable[[int], None]:
    """Return what enqueues additions of ``n`` floats in the current stream, on each set of operands in turn."""
    operands = [[cupy.zeros(n, cupy.float32) for _ in range(3)] for _ in range(sets)]

    def enqueue(count: int) -> None:
        for i in range(count):
            ADD((-(-n // 256),), (256,), (*operands[i % sets], np.int32(n)))

    return enqueue


def nothings(count: int) -> None:
    for _ in range(count):
        NOTHING((1,), (32,), ())


def captured(enqueue: Callable[[int], None]) -> Any:
    """Return a graph of `NODES` operations, one after another."""
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        enqueue(NODES)
        return stream.end_capture()


def show(case: str, launch: Callable[[], None], count: int = NODES, *, held: bool = False) -> None:
    """Print a line of the table."""
    device_us, host_us = [], []
    for _ in range(3):
        values: list[float] = []
        until = time.perf_counter() + 0.03
        while time.perf_counter() < until or len(values) < 5:
            first, last = cupy.cuda.Event(), cupy.cuda.Event()
            STREAM.synchronize()
            if held:
                HOLD((1,), (1,), (np.int64(HOLD_CYCLES),))
            first.record()
            began = time.perf_counter()
            launch()
            host_us.append((time.perf_counter() - began) * 1e6)
            last.record()
            last.synchronize()
            values.append(cupy.cuda.get_elapsed_time(first, last) * 1e3 / count)
        device_us.append(statistics.median(values))
    print(f"{case:50s}", *(f"{v:6.2f}" for v in device_us), f"  launch {statistics.median(host_us):7.1f}", flush=True)


def main() -> None:
    for n, sets in ((10_000, 256), (100_000, 214), (100_000, 1)):
        for number in range(3):  # new operands and a new graph each time
            graph = captured(adds(n, sets))
            show(f"add of {n}, {sets} sets of operands, graph {number}", lambda graph=graph: graph.launch(STREAM))
            show("  behind a hold", lambda graph=graph: graph.launch(STREAM), held=True)
    empty = captured(nothings)
    show("empty kernels", lambda: empty.launch(STREAM))
    few = 200  # fewer than the queue of a stream takes
    enqueue = adds(100_000, 214)
    show("add of 100000, launched one by one behind a hold", lambda: enqueue(few), few, held=True)
    show("empty kernels, launched one by one behind a hold", lambda: nothings(few), few, held=True)


if __name__ == "__main__":
    main()
