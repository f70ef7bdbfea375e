"""The same few computations in different spellings: aliases, qualified names, closures, shapes."""

import math as m

import numpy as np
from tests.corpus.registry import Case, Empty, blocks

import windtunnel
import windtunnel as cuda
from windtunnel import float32, float64, grid, i32, int32, uint32

RATE = 0.25
SIDE = 8
TABLE_SIZE = SIDE * 4


@windtunnel.kernel
def qualified(x: windtunnel.f32[:], out: windtunnel.f32[:]):
    """Names under the package's, and a docstring."""
    i = windtunnel.blockIdx.x * windtunnel.blockDim.x + windtunnel.threadIdx.x
    if i < len(x):
        out[i] = windtunnel.f32(2) * x[i]


@cuda.kernel
def as_numba_has_it(x: float32[:], out: float64[:]):
    tile = cuda.shared.array(shape=(SIDE, SIDE), dtype=np.float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    position = cuda.grid(2)
    at = position[1] * SIDE + position[0]
    tile[ty, tx] = x[at]
    cuda.syncthreads()
    total = float64(0.0)
    for k in range(SIDE):
        total += tile[ty, k] * tile[k, tx]
    out[at] = total


@windtunnel.kernel
def unannotated(a, b, out, n):
    i = grid(1)
    if i < n:
        out[i] = a[i] - b[i]


def scaler(factor: int, cut: bool):
    """A kernel for a constant known when it is made, as templates are in C++."""

    @windtunnel.kernel
    def scaled(x: int32[:], n: int32):
        i = grid(1)
        if i < n:
            if cut:
                x[i] = min(x[i] * factor, 100)
            else:
                x[i] = x[i] * factor

    return scaled


by_three_cut, by_seven = scaler(3, True), scaler(7, False)


@windtunnel.kernel
def unpacked_shape(x: float32[:, :], out: float32[:]):
    rows, columns = x.shape
    row = grid(1)
    if row < rows:
        total = x[row, 0]
        for c in range(1, columns):
            total += x[row, c]
        out[row] = total / columns


@windtunnel.kernel
def constants(x: float32[:], n: i32):
    i = grid(1)
    if i >= n:
        return
    x[i] = x[i] * RATE + m.pi * (1 if i % 2 else -1) + m.e


@windtunnel.kernel
def backwards(x: int32[:], out: int32[:], n: i32):
    if grid(1) != 0:
        return
    total = 0
    for i in range(n - 1, -1, -1):
        total = total * 3 + x[i]
        out[i] = total


@windtunnel.kernel
def truths(x: int32[:], out: int32[:], n: i32):
    i = grid(1)
    if not i < n:
        return
    small = x[i] < 10
    even = x[i] % 2 == 0
    both = small and even
    neither = not (small or even)
    odd_one = small != even
    code = 0
    if both:
        code += 1
    if neither:
        code += 2
    if odd_one and not neither:
        code += 4
    code += 8 if True else 16
    out[i] = code if x[i] >= 0 else (-1 if x[i] > -5 else -2)


@windtunnel.kernel
def nested_loops(out: int32[:], n: i32):
    i = grid(1)
    if i >= n:
        return
    found = -1
    tries = 0
    for a in range(1, 20):
        if a == 13:
            continue
        b = a
        while b < 20:
            tries += 1
            if a * a + b * b == 25 + i * i:
                found = a * 100 + b
                break
            b += 1
        if found >= 0:
            break
    out[i] = found if found >= 0 else -tries


def first_above(x, limit, n):
    for i in range(n):
        if x[i] > limit:
            return i
    return -1


def sign_of(v):
    if v > 0:
        return 1
    if v < 0:
        return -1
    return 0


def twice_sign_of(v):
    return 2 * sign_of(v)


@windtunnel.kernel
def helpers(x: int32[:], out: int32[:, :], n: i32):
    i = grid(1)
    if i < n:
        out[i, 0] = first_above(x, x[i], n)
        out[i, 1] = twice_sign_of(x[i])


@windtunnel.kernel
def annotated_locals(x: float32[:], out: float64[:], n: i32):
    i: i32 = grid(1)
    if i < n:
        total: float64 = 0.0
        for _ in range(10):
            total += x[i]
        out[i] = total


@windtunnel.kernel
def snake_case_block(x: uint32[:], out: uint32[:]):
    tile = windtunnel.shared.array(TABLE_SIZE, uint32)
    t = windtunnel.thread_idx_x()
    i = windtunnel.block_idx_x() * windtunnel.block_dim_x() + t
    tile[t] = x[i]
    windtunnel.sync_threads()
    out[i] = tile[windtunnel.block_dim_x() - 1 - t]


@windtunnel.kernel
def dynamic_shared(x: int32[:], out: int32[:]):
    tile = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    i = grid(1)
    tile[t] = x[i]
    cuda.syncthreads()
    out[i] = tile[(t + 1) % cuda.blockDim.x]


@windtunnel.kernel
def different_types(x: int32[:], out: float32[:], n: i32):
    # The local is an integer first and a float later.
    i = grid(1)
    if i < n:
        value = 1
        if x[i] > 50:
            value = 0.5
        out[i] = value * x[i]


def _sqrt_25(i: int) -> int:
    tries = 0
    for a in range(1, 20):
        if a == 13:
            continue
        for b in range(a, 20):
            tries += 1
            if a**2 + b**2 == 25 + i**2:
                return a * 100 + b
    return -tries


def _truths(x, out, n):
    small, even = x < 10, x % 2 == 0
    code = 8 + (small & even) + 2 * (~small & ~even) + 4 * (small ^ even)
    return {"out": np.where(x >= 0, code, np.where(x > -5, -1, -2)).astype(np.int32)}


def _helped(x, out, n):
    above = [next((j for j, v in enumerate(x) if v > limit), -1) for limit in x]
    return {"out": np.stack([above, 2 * np.sign(x)], axis=1).astype(np.int32)}


def _horner(x, out, n):
    total = 0
    for i in reversed(range(n)):
        total = (total * 3 + int(x[i]) + 2**31) % 2**32 - 2**31
        out[i] = total
    return {"out": out}


def _squares(x, out):
    tiles = x.reshape(2, SIDE, SIDE).astype(np.float64)
    return {"out": (tiles @ tiles).reshape(-1)}


def _numbers(rng: np.random.Generator, low: int, high: int, n: int) -> np.ndarray:
    return rng.integers(low, high, n, dtype=np.int32)


F32 = {"exact": False, "rtol": 1e-6, "atol": 1e-6, "reason": "roundings of f32"}

CASES = (
    Case(
        "qualified_names", qualified, 2, 64, lambda rng: {"x": rng.random(100, dtype=np.float32), "out": Empty((100,), np.float32)},
        lambda x, out: {"out": 2 * x}, notes="names under the package's; len() of an array; a docstring",
    ),
    Case(
        "as_numba_has_it", as_numba_has_it, (1, 2), (SIDE, SIDE),
        lambda rng: {"x": rng.random(2 * SIDE * SIDE, dtype=np.float32), "out": Empty((2 * SIDE * SIDE,), np.float64)}, _squares, **F32,
        notes="import windtunnel as cuda; shape= and dtype= by name, of NumPy; grid(2) kept and indexed",
    ),
    Case(
        "unannotated", unannotated, 2, 64, lambda rng: {"a": _numbers(rng, -99, 99, 90), "b": _numbers(rng, -99, 99, 90), "out": Empty((90,), np.int32), "n": 90},
        lambda a, b, out, n: {"out": a - b},
    ),
    Case(
        "unannotated_f64", unannotated, 2, 64, lambda rng: {"a": rng.random(90), "b": rng.random(90), "out": Empty((90,), np.float64), "n": 90},
        lambda a, b, out, n: {"out": a - b}, notes="the same kernel for other types",
    ),
    Case(
        "closure_by_three", by_three_cut, 2, 64, lambda rng: {"x": _numbers(rng, -99, 99, 100), "n": 100},
        lambda x, n: {"x": np.minimum(3 * x, 100)}, notes="constants from the enclosing function",
    ),
    Case("closure_by_seven", by_seven, 2, 64, lambda rng: {"x": _numbers(rng, -99, 99, 100), "n": 100}, lambda x, n: {"x": 7 * x}),
    Case(
        "unpacked_shape", unpacked_shape, 1, 32, lambda rng: {"x": rng.random((20, 30), dtype=np.float32), "out": Empty((20,), np.float32)},
        lambda x, out: {"out": x.mean(axis=1, dtype=np.float64).astype(np.float32)}, **F32, notes="a float divided by an integer",
    ),
    Case(
        "module_constants", constants, 2, 64, lambda rng: {"x": rng.random(100, dtype=np.float32), "n": 100},
        lambda x, n: {"x": (x / 4.0 + np.where(np.arange(n) % 2, np.pi, -np.pi) + np.e).astype(np.float32)}, **F32,
    ),
    Case("range_backwards", backwards, 1, 32, lambda rng: {"x": _numbers(rng, -99, 99, 40), "out": Empty((40,), np.int32), "n": 40}, _horner),
    Case("truth_values", truths, 2, 64, lambda rng: {"x": _numbers(rng, -12, 25, 120), "out": Empty((120,), np.int32), "n": 120}, _truths),
    Case(
        "nested_loops", nested_loops, 1, 32, lambda rng: {"out": Empty((25,), np.int32), "n": 25},
        lambda out, n: {"out": np.array([_sqrt_25(i) for i in range(n)], np.int32)}, notes="break and continue in loops within loops",
    ),
    Case(
        "helpers_on_helpers", helpers, 2, 32, lambda rng: {"x": _numbers(rng, -20, 20, 50), "out": Empty((50, 2), np.int32), "n": 50}, _helped,
        notes="an array as a helper's argument; several returns",
    ),
    Case(
        "annotated_locals", annotated_locals, 1, 64, lambda rng: {"x": rng.random(50, dtype=np.float32), "out": Empty((50,), np.float64), "n": 50},
        lambda x, out, n: {"out": x.astype(np.float64) * 10}, exact=False, rtol=1e-14, atol=0.0, reason="ten roundings of f64",
        notes="a local declared wider than what its literal would be",
    ),
    Case(
        "snake_case_block", snake_case_block, 3, TABLE_SIZE,
        lambda rng: {"x": rng.integers(0, 2**32, 96, dtype=np.uint32), "out": Empty((96,), np.uint32)},
        lambda x, out: {"out": x.reshape(3, TABLE_SIZE)[:, ::-1].reshape(-1)}, notes="the founding documents' spellings; a product of constants as a shape",
    ),
    Case(
        "dynamic_shared_memory", dynamic_shared, 2, 48, lambda rng: {"x": _numbers(rng, -99, 99, 96), "out": Empty((96,), np.int32)},
        lambda x, out: {"out": np.roll(x.reshape(2, 48), -1, axis=1).reshape(-1)}, shared_bytes=48 * 4, notes="as Numba has it: an array of 0 elements",
    ),
    Case(
        "integer_then_float", different_types, 2, 64, lambda rng: {"x": _numbers(rng, 0, 99, 100), "out": Empty((100,), np.float32), "n": 100},
        lambda x, out, n: {"out": np.where(x > 50, x / 2, x).astype(np.float32)}, notes="a local that needs the common type of what is assigned to it",
    ),
)  # fmt: skip
assert blocks(90, 64) == 2
