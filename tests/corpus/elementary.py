"""One thread for each element: sums, scalings, fills, copies, grid-stride loops, ragged sizes, two and three dimensions."""

import numpy as np
from tests.corpus.registry import Case, Empty, blocks

import windtunnel
from windtunnel import (
    atomic,
    block_dim_x,
    block_idx_x,
    blockDim,
    blockIdx,
    f32,
    f64,
    grid,
    gridDim,
    gridsize,
    i32,
    i64,
    thread_idx_x,
    threadIdx,
    u8,
    u32,
)


@windtunnel.kernel
def vector_add(a: f32[:], b: f32[:], c: f32[:], n: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def vector_add_unguarded(a: f32[:], b: f32[:], c: f32[:]):
    gid = grid(1)
    c[gid] = a[gid] + b[gid]


@windtunnel.kernel
def vector_scale(data: f32[:], scale: f32, n: i32):
    idx = block_idx_x() * block_dim_x() + thread_idx_x()
    if idx >= n:
        return
    data[idx] = data[idx] * scale


@windtunnel.kernel
def double(source: f32[:], target: f32[:]):
    idx = grid(1)
    target[idx] = source[idx] * 2.0


@windtunnel.kernel
def saxpy(n: i32, a: f32, x: f32[:], y: f32[:]):
    i = grid(1)
    if i < n:
        y[i] = a * x[i] + y[i]


@windtunnel.kernel
def daxpy(n: i32, a: f64, x: f64[:], y: f64[:]):
    i = grid(1)
    if i < n:
        y[i] += a * x[i]


@windtunnel.kernel
def fill(out: u8[:], value: u8):
    i = grid(1)
    if i < out.shape[0]:
        out[i] = value


@windtunnel.kernel
def iota(out: i64[:], start: i64, step: i64, n: i32):
    i = grid(1)
    if i < n:
        out[i] = start + step * i64(i)


@windtunnel.kernel
def clamp_stride(x: f32[:], low: f32, high: f32, n: i32):
    for i in range(grid(1), n, gridsize(1)):
        x[i] = min(max(x[i], low), high)


@windtunnel.kernel
def add_stride(a: i32[:], b: i32[:], c: i32[:], n: i32):
    i = blockIdx.x * blockDim.x + threadIdx.x
    stride = blockDim.x * gridDim.x
    while i < n:
        c[i] = a[i] + b[i]
        i += stride


@windtunnel.kernel
def all_by_one(a: i32[:], out: i32[:], n: i32):
    if threadIdx.x == 0 and blockIdx.x == 0:
        total = 0
        for i in range(n):
            total += a[i]
            out[i] = total


@windtunnel.kernel
def add_matrix(a: f32[:, :], b: f32[:, :], c: f32[:, :], rows: i32, columns: i32):
    column, row = grid(2)
    if row < rows and column < columns:
        c[row, column] = a[row, column] + b[row, column]


@windtunnel.kernel
def coordinates(out: i32[:, :, :], nz: i32, ny: i32, nx: i32):
    x = blockIdx.x * blockDim.x + threadIdx.x
    y = blockIdx.y * blockDim.y + threadIdx.y
    z = blockIdx.z * blockDim.z + threadIdx.z
    if x >= nx or y >= ny or z >= nz:
        return
    out[z, y, x] = (z * ny + y) * nx + x


@windtunnel.kernel
def coordinates_grid(out: i32[:, :, :]):
    x, y, z = grid(3)
    if x < out.shape[2] and y < out.shape[1] and z < out.shape[0]:
        out[z, y, x] = 10000 * z + 100 * y + x


@windtunnel.kernel
def launch_shape(out: i32[:]):
    if grid(1) == 0 and threadIdx.y == 0 and threadIdx.z == 0 and blockIdx.y == 0 and blockIdx.z == 0:
        out[0] = blockDim.x
        out[1] = blockDim.y
        out[2] = blockDim.z
        out[3] = gridDim.x
        out[4] = gridDim.y
        out[5] = gridDim.z


@windtunnel.kernel
def count_threads(counter: i32[:]):
    atomic.add(counter, 0, 1)


@windtunnel.kernel
def gather(source: f32[:], index: i32[:], target: f32[:], n: i32):
    i = grid(1)
    if i < n:
        target[i] = source[index[i]]


@windtunnel.kernel
def scatter(source: u32[:], index: i32[:], target: u32[:], n: i32):
    i = grid(1)
    if i < n:
        target[index[i]] = source[i]


@windtunnel.kernel
def reverse_in_place(data: i32[:], n: i32):
    i = grid(1)
    if i < n // 2:
        j = n - 1 - i
        data[i], data[j] = data[j], data[i]


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _ints(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-(2**31), 2**31, shape, dtype=np.int32)


def _add(a, b, c, **_):
    return {"c": a + b}


def _vectors(n: int):
    def make(rng: np.random.Generator):
        return {"a": _floats(rng, n), "b": _floats(rng, n), "c": Empty((n,), np.float32), "n": n}

    return make


def _clamped(x, low, high, n):
    return {"x": np.clip(x, np.float32(low), np.float32(high))}


def _wrapped_sum(a, b, c, n):
    return {"c": ((a.astype(np.int64) + b + 2**31) % 2**32 - 2**31).astype(np.int32)}


def _volume(out, **_):
    return {"out": np.arange(out.size, dtype=np.int32).reshape(out.shape)}


def _places(out):
    z, y, x = np.indices(out.shape, dtype=np.int32)
    return {"out": 10000 * z + 100 * y + x}


def _scattered(source, index, target, n):
    target[index] = source
    return {"target": target}


FUSED = "a device may round the product and the sum once instead of twice"

CASES = (
    Case("vector_add", vector_add, blocks(1000, 256), 256, _vectors(1000), _add, notes="n is no multiple of the block"),
    Case("vector_add_one_thread", vector_add, 1, 1, _vectors(1), _add),
    Case("vector_add_large", vector_add, blocks(100_000, 256), 256, _vectors(100_000), _add),
    Case("vector_add_more_threads_than_work", vector_add, 8, 64, _vectors(3), _add, notes="most blocks have nothing to do"),
    Case("vector_add_odd_block", vector_add, blocks(500, 37), 37, _vectors(500), _add, notes="a block of one full and one ragged warp"),
    Case(
        "vector_add_unguarded", vector_add_unguarded, 8, 128,
        lambda rng: {"a": _floats(rng, 1024), "b": _floats(rng, 1024), "c": Empty((1024,), np.float32)}, _add,
        notes="the founding documents' OpenCL kernel: as many threads as elements",
    ),
    Case(
        "vector_scale", vector_scale, blocks(777, 256), 256,
        lambda rng: {"data": _floats(rng, 777), "scale": 2.5, "n": 777},
        lambda data, scale, n: {"data": data * np.float32(2.5)},
        notes="the founding documents' kernel, with their spellings and an early return",
    ),
    Case(
        "vector_scale_part", vector_scale, 2, 64,
        lambda rng: {"data": _floats(rng, 100), "scale": -1.0, "n": 60},
        lambda data, scale, n: {"data": np.concatenate([-data[:60], data[60:]])},
        notes="the array is longer than n: the rest stays",
    ),
    Case(
        "double", double, 2, 256, lambda rng: {"source": _floats(rng, 512), "target": Empty((512,), np.float32)},
        lambda source, target: {"target": source + source}, notes="the founding documents' WGSL kernel",
    ),
    Case(
        "saxpy", saxpy, blocks(1500, 128), 128,
        lambda rng: {"n": 1500, "a": 1.7, "x": _floats(rng, 1500), "y": _floats(rng, 1500)},
        lambda n, a, x, y: {"y": np.float32(1.7) * x + y}, exact=False, rtol=1e-6, atol=1e-6, reason=FUSED,
    ),
    Case(
        "daxpy", daxpy, blocks(700, 128), 128,
        lambda rng: {"n": 700, "a": 1 / 3, "x": rng.standard_normal(700), "y": rng.standard_normal(700)},
        lambda n, a, x, y: {"y": y + x / 3}, exact=False, rtol=1e-13, atol=1e-14, reason=FUSED,
        notes="f64: an answer of f32 precision fails",
    ),
    Case(
        "fill", fill, 3, 128, lambda rng: {"out": Empty((300,), np.uint8), "value": 0xA5},
        lambda out, value: {"out": np.full(300, 0xA5, np.uint8)}, notes="length from the array's shape",
    ),
    Case(
        "iota_64_bits", iota, 2, 64,
        lambda rng: {"out": Empty((100,), np.int64), "start": 2**40, "step": -(2**33), "n": 100},
        lambda out, start, step, n: {"out": np.arange(100, dtype=np.int64) * -(2**33) + 2**40},
    ),
    Case(
        "clamp_grid_stride", clamp_stride, 4, 64,
        lambda rng: {"x": _floats(rng, 1111), "low": -0.5, "high": 0.75, "n": 1111}, _clamped,
        notes="for over range(grid(1), n, gridsize(1))",
    ),
    Case(
        "add_grid_stride_wraps", add_stride, 3, 96,
        lambda rng: {"a": _ints(rng, 2000), "b": _ints(rng, 2000), "c": Empty((2000,), np.int32), "n": 2000}, _wrapped_sum,
        notes="while; sums of full-range i32 wrap",
    ),
    Case(
        "all_by_one_thread", all_by_one, 2, 32,
        lambda rng: {"a": rng.integers(-9, 9, 200, dtype=np.int32), "out": Empty((200,), np.int32), "n": 200},
        lambda a, out, n: {"out": np.cumsum(a, dtype=np.int32)},
    ),
    Case(
        "add_matrix", add_matrix, (4, 3), (16, 8),
        lambda rng: {
            "a": _floats(rng, 21, 50), "b": _floats(rng, 21, 50), "c": Empty((21, 50), np.float32), "rows": 21, "columns": 50,
        },
        _add, notes="neither side is a multiple of the block's",
    ),
    Case(
        "coordinates_3d", coordinates, (2, 3, 2), (8, 4, 2),
        lambda rng: {"out": Empty((3, 10, 13), np.int32), "nz": 3, "ny": 10, "nx": 13}, _volume,
    ),
    Case("coordinates_grid_3", coordinates_grid, (3, 2, 5), (4, 4, 1), lambda rng: {"out": Empty((5, 7, 11), np.int32)}, _places),
    Case(
        "launch_shape", launch_shape, (3, 2, 4), (8, 4, 2), lambda rng: {"out": Empty((6,), np.int32)},
        lambda out: {"out": np.array([8, 4, 2, 3, 2, 4], np.int32)},
    ),
    Case(
        "count_threads_3d", count_threads, (3, 2, 2), (7, 3, 2), lambda rng: {"counter": np.zeros(1, np.int32)},
        lambda counter: {"counter": np.array([3 * 2 * 2 * 7 * 3 * 2], np.int32)},
    ),
    Case(
        "gather", gather, blocks(333, 64), 64,
        lambda rng: {
            "source": _floats(rng, 50), "index": rng.integers(0, 50, 333, dtype=np.int32),
            "target": Empty((333,), np.float32), "n": 333,
        },
        lambda source, index, target, n: {"target": np.take(source, index)},
    ),
    Case(
        "scatter_permutation", scatter, blocks(400, 128), 128,
        lambda rng: {
            "source": rng.integers(0, 2**32, 400, dtype=np.uint32), "index": rng.permutation(400).astype(np.int32),
            "target": Empty((400,), np.uint32), "n": 400,
        },
        _scattered, notes="race-free because of what the data hold",
    ),
    Case(
        "reverse_in_place", reverse_in_place, blocks(301, 64), 64, lambda rng: {"data": _ints(rng, 301), "n": 301},
        lambda data, n: {"data": data[::-1].copy()}, notes="a swap by tuple assignment; the middle stays",
    ),
)  # fmt: skip
