"""Waves on a grid."""

from pathlib import Path

import cupy as cp

HERE = Path(__file__).parent
MODULE = cp.RawModule(
    code=(HERE / "waves.cu").read_text(),
    options=("-std=c++17", f"-I{HERE}"),
    name_expressions=("row_sums<float, 128>", "row_sums<double, 128>"),
)
energy_of = cp.ReductionKernel(
    "T before, T now", "T energy", "(now - before) * (now - before)", "a + b", "energy = 0.5 * a", "0", "energy_of"
)
damped = cp.ElementwiseKernel("T now, T factor", "T after", "after = now * (T(1) - factor)", "damped")


def set_speed(value):
    pointer = MODULE.get_global("speed")
    cp.ndarray((1,), cp.float32, pointer)[...] = value


def step(before, now, dt):
    """Return the grid one step later."""
    rows, columns = now.shape
    after = cp.zeros_like(now)
    block = (32, 8)
    grid = (-(-columns // block[0]), -(-rows // block[1]))
    MODULE.get_function("step")(grid, block, (before, now, after, rows, columns, cp.float32(dt)))
    return after


def row_sums(values):
    """Return the sum of each row."""
    name = {"float32": "row_sums<float, 128>", "float64": "row_sums<double, 128>"}[values.dtype.name]
    sums = cp.empty(len(values), values.dtype)
    MODULE.get_function(name)((len(values),), (128,), (values, sums, values.shape[1]))
    return sums


def two_grids(a, b, dt):
    """Advance two grids side by side, each in a stream of its own, and return both."""
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    ready = cp.cuda.get_current_stream().record()
    results = []
    for stream, grid in zip(streams, (a, b)):
        stream.wait_event(ready)
        with stream:
            results.append(step(grid, grid, dt))
    for stream in streams:
        stream.synchronize()
    return results
