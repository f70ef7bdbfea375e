"""Linear algebra: transposes, products, batched matrix times vector, sparse rows, factorisation, iteration, transforms."""

import math

import numpy as np
import scipy.sparse
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import (
    blockDim,
    blockIdx,
    f32,
    f64,
    fma,
    grid,
    i8,
    i32,
    local,
    shared,
    shfl_down_sync,
    syncthreads,
    threadIdx,
)

TILE = 16
ROWS = 4
FFT = 64
FULL = 0xFFFFFFFF


@windtunnel.kernel
def transpose_naive(m: f32[:, :], out: f32[:, :], rows: i32, columns: i32):
    x, y = grid(2)
    if x < columns and y < rows:
        out[x, y] = m[y, x]


@windtunnel.kernel
def transpose_tiled(m: f32[:, :], out: f32[:, :], rows: i32, columns: i32):
    # One column of padding, so that a column of the tile lies in different banks.
    tile = shared.array((TILE, TILE + 1), f32)
    x = blockIdx.x * TILE + threadIdx.x
    y = blockIdx.y * TILE + threadIdx.y
    if x < columns and y < rows:
        tile[threadIdx.y, threadIdx.x] = m[y, x]
    syncthreads()
    x = blockIdx.y * TILE + threadIdx.x
    y = blockIdx.x * TILE + threadIdx.y
    if x < rows and y < columns:
        out[y, x] = tile[threadIdx.x, threadIdx.y]


@windtunnel.kernel
def transpose_rows(m: i32[:], out: i32[:], side: i32):
    # Flat indices; each thread moves TILE / ROWS elements, as in CUDA's samples.
    tile = shared.array((TILE, TILE + 1), i32)
    x = blockIdx.x * TILE + threadIdx.x
    y = blockIdx.y * TILE + threadIdx.y
    for j in range(0, TILE, ROWS):
        tile[threadIdx.y + j, threadIdx.x] = m[(y + j) * side + x]
    syncthreads()
    x = blockIdx.y * TILE + threadIdx.x
    y = blockIdx.x * TILE + threadIdx.y
    for j in range(0, TILE, ROWS):
        out[(y + j) * side + x] = tile[threadIdx.x, threadIdx.y + j]


@windtunnel.kernel
def matmul(a: f32[:, :], b: f32[:, :], c: f32[:, :]):
    row = blockIdx.y * blockDim.y + threadIdx.y
    column = blockIdx.x * blockDim.x + threadIdx.x
    if row < c.shape[0] and column < c.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@windtunnel.kernel
def matmul_tiled(a: f32[:], b: f32[:], c: f32[:], m: i32, n: i32, k: i32, alpha: f32, beta: f32):
    a_tile = shared.array((TILE, TILE), f32)
    b_tile = shared.array((TILE, TILE), f32)
    tx = threadIdx.x
    ty = threadIdx.y
    row = blockIdx.y * TILE + ty
    column = blockIdx.x * TILE + tx
    total = f32(0.0)
    for step in range((k + TILE - 1) // TILE):
        ka = step * TILE + tx
        kb = step * TILE + ty
        a_tile[ty, tx] = a[row * k + ka] if row < m and ka < k else 0.0
        b_tile[ty, tx] = b[kb * n + column] if kb < k and column < n else 0.0
        syncthreads()
        for kk in range(TILE):
            total += a_tile[ty, kk] * b_tile[kk, tx]
        syncthreads()
    if row < m and column < n:
        c[row * n + column] = alpha * total + beta * c[row * n + column]


@windtunnel.kernel
def matmul_registers(a: f32[:, :], b: f32[:, :], c: f32[:, :], size: i32):
    # Each thread computes 4 x 4 elements, kept in a local array.
    acc = local.array((4, 4), f32)
    row = (blockIdx.y * blockDim.y + threadIdx.y) * 4
    column = (blockIdx.x * blockDim.x + threadIdx.x) * 4
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0.0
    for k in range(size):
        for i in range(4):
            left = a[row + i, k]
            for j in range(4):
                acc[i, j] = fma(left, b[k, column + j], acc[i, j])
    for i in range(4):
        for j in range(4):
            c[row + i, column + j] = acc[i, j]


@windtunnel.kernel
def matmul_int8(a: i8[:, :], b: i8[:, :], c: i32[:, :], inner: i32):
    column, row = grid(2)
    if row >= c.shape[0] or column >= c.shape[1]:
        return
    total = 0
    for k in range(inner):
        total += i32(a[row, k]) * i32(b[k, column])
    c[row, column] = total


@windtunnel.kernel
def batched_gemv(a: f32[:, :, :], x: f32[:, :], y: f32[:, :], rows: i32, columns: i32):
    # A block a matrix, a thread a row; the vector is shared.
    vector = shared.array(128, f32)
    batch = blockIdx.x
    for c in range(threadIdx.x, columns, blockDim.x):
        vector[c] = x[batch, c]
    syncthreads()
    for r in range(threadIdx.x, rows, blockDim.x):
        total = f32(0.0)
        for c in range(columns):
            total += a[batch, r, c] * vector[c]
        y[batch, r] = total


@windtunnel.kernel
def spmv_scalar(starts: i32[:], columns: i32[:], values: f64[:], x: f64[:], y: f64[:], rows: i32):
    row = grid(1)
    if row < rows:
        total = f64(0.0)
        for k in range(starts[row], starts[row + 1]):
            total += values[k] * x[columns[k]]
        y[row] = total


@windtunnel.kernel
def spmv_warp(starts: i32[:], columns: i32[:], values: f64[:], x: f64[:], y: f64[:], rows: i32):
    row = grid(1) // 32
    lane = threadIdx.x % 32
    if row < rows:
        total = f64(0.0)
        k = starts[row] + lane
        while k < starts[row + 1]:
            total += values[k] * x[columns[k]]
            k += 32
        offset = 16
        while offset > 0:
            total += shfl_down_sync(FULL, total, offset)
            offset >>= 1
        if lane == 0:
            y[row] = total


@windtunnel.kernel
def jacobi_step(a: f64[:, :], b: f64[:], x: f64[:], new: f64[:], n: i32):
    i = grid(1)
    if i < n:
        total = b[i]
        for j in range(n):
            if j == i:
                continue
            total -= a[i, j] * x[j]
        new[i] = total / a[i, i]


@windtunnel.kernel
def lu_in_shared(a: f32[:, :, :], n: i32):
    # Doolittle, without pivoting, a block a matrix; L below the diagonal, U on it and above.
    m = shared.array((TILE, TILE), f32)
    t = threadIdx.x
    if t < n:
        for j in range(n):
            m[t, j] = a[blockIdx.x, t, j]
    syncthreads()
    for k in range(n - 1):
        if k < t < n:
            factor = m[t, k] / m[k, k]
            m[t, k] = factor
            for j in range(k + 1, n):
                m[t, j] -= factor * m[k, j]
        syncthreads()
    if t < n:
        for j in range(n):
            a[blockIdx.x, t, j] = m[t, j]


def reverse_bits(i, bits):
    reversed_ = 0
    for _ in range(bits):
        reversed_ = (reversed_ << 1) | (i & 1)
        i >>= 1
    return reversed_


@windtunnel.kernel
def fft_shared(real: f32[:, :], imaginary: f32[:, :], bits: i32):
    # Radix 2, in place, a block a row; each thread does one butterfly a stage.
    re = shared.array(FFT, f32)
    im = shared.array(FFT, f32)
    t = threadIdx.x
    row = blockIdx.x
    half = FFT // 2
    for i in range(t, FFT, half):
        j = reverse_bits(i, bits)
        re[j] = real[row, i]
        im[j] = imaginary[row, i]
    syncthreads()
    span = 1
    while span < FFT:
        angle = -math.pi * f32(t % span) / f32(span)
        wr = math.cos(angle)
        wi = math.sin(angle)
        low = (t // span) * span * 2 + t % span
        high = low + span
        br = re[high] * wr - im[high] * wi
        bi = re[high] * wi + im[high] * wr
        ar = re[low]
        ai = im[low]
        re[low] = ar + br
        im[low] = ai + bi
        re[high] = ar - br
        im[high] = ai - bi
        syncthreads()
        span *= 2
    for i in range(t, FFT, half):
        real[row, i] = re[i]
        imaginary[row, i] = im[i]


@windtunnel.kernel
def power_iteration(a: f64[:, :], x: f64[:], y: f64[:], eigenvalue: f64[:], n: i32):
    # One block: y = A x, then x = y / |y|.
    squares = shared.array(32, f64)
    t = threadIdx.x
    total = f64(0.0)
    for j in range(n):
        total += a[t, j] * x[j]
    y[t] = total
    squares[t] = total * total
    syncthreads()
    s = 16
    while s > 0:
        if t < s:
            squares[t] += squares[t + s]
        syncthreads()
        s //= 2
    norm = math.sqrt(squares[0])
    x[t] = total / norm
    if t == 0:
        eigenvalue[0] = norm


def _matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _wide(product: np.ndarray) -> np.ndarray:
    return product.astype(np.float32)


def _gemm(a, b, c, m, n, k, alpha, beta):
    product = a.reshape(m, k).astype(np.float64) @ b.reshape(k, n)
    return {"c": _wide(np.float32(alpha) * product + np.float32(beta) * c.reshape(m, n)).reshape(-1)}


def _csr(rng: np.random.Generator, rows: int, columns: int, density: float):
    m = scipy.sparse.random(rows, columns, density, format="csr", rng=rng)
    return {
        "starts": m.indptr.astype(np.int32), "columns": m.indices.astype(np.int32), "values": m.data,
        "x": rng.standard_normal(columns), "y": Empty((rows,), np.float64), "rows": rows,
    }  # fmt: skip


def _spmv(starts, columns, values, x, y, rows):
    dense = np.zeros((rows, x.size))
    for row in range(rows):
        dense[row, columns[starts[row] : starts[row + 1]]] = values[starts[row] : starts[row + 1]]
    return {"y": dense @ x}


def _dominant(rng: np.random.Generator, n: int, *batch: int) -> np.ndarray:
    return rng.uniform(-1, 1, (*batch, n, n)) + np.eye(n) * 2 * n


def _jacobi(a, b, x, new, n):
    return {"new": x + (b - a @ x) / np.diag(a)}


def _jacobi_steps(a, b, x, new, n):
    for _ in range(20):
        yield Step(jacobi_step, 2, 32, (a, b, x, new, n))
        yield Step(jacobi_step, 2, 32, (a, b, new, x, n))


def _lu(a, n):
    out = np.empty(a.shape)
    for m, into in zip(a.astype(np.float64), out, strict=True):
        for i in range(n):
            for j in range(n):
                known = into[i, : min(i, j)] @ into[: min(i, j), j]
                into[i, j] = m[i, j] - known if j >= i else (m[i, j] - known) / into[j, j]
    return {"a": out.astype(np.float32)}


def _fft(real, imaginary, bits):
    found = np.fft.fft(real.astype(np.complex128) + 1j * imaginary, axis=1)
    return {"real": found.real.astype(np.float32), "imaginary": found.imag.astype(np.float32)}


def _power(a, x, y, eigenvalue, n):
    y = a @ x
    return {"x": y / np.linalg.norm(y), "y": y, "eigenvalue": np.array([np.linalg.norm(y)])}


ORDER = "sums of products depend on the order of their terms, and on whether a device fuses them"
NEAR = {"exact": False, "rtol": 1e-5, "atol": 2e-5, "reason": ORDER}
NEAR_64 = {"exact": False, "rtol": 1e-12, "atol": 1e-13, "reason": ORDER}

CASES = (
    Case(
        "transpose_naive", transpose_naive, (3, 5), (16, 8),
        lambda rng: {"m": _matrix(rng, 37, 45), "out": Empty((45, 37), np.float32), "rows": 37, "columns": 45},
        lambda m, **_: {"out": m.T.copy()},
    ),
    Case(
        "transpose_tiled", transpose_tiled, (blocks(45, TILE), blocks(37, TILE)), (TILE, TILE),
        lambda rng: {"m": _matrix(rng, 37, 45), "out": Empty((45, 37), np.float32), "rows": 37, "columns": 45},
        lambda m, **_: {"out": m.T.copy()}, notes="padding against bank conflicts is never read; ragged tiles",
    ),
    Case(
        "transpose_four_rows_a_thread", transpose_rows, (3, 3), (TILE, ROWS),
        lambda rng: {"m": rng.integers(0, 9999, 48 * 48, dtype=np.int32), "out": Empty((48 * 48,), np.int32), "side": 48},
        lambda m, out, side: {"out": m.reshape(side, side).T.reshape(-1)},
    ),
    Case(
        "matmul_naive", matmul, (2, 3), (16, 8),
        lambda rng: {"a": _matrix(rng, 20, 33), "b": _matrix(rng, 33, 25), "c": Empty((20, 25), np.float32)},
        lambda a, b, c: {"c": _wide(a.astype(np.float64) @ b)}, **NEAR, notes="sides from the arrays' shapes",
    ),
    Case(
        "matmul_tiled", matmul_tiled, (blocks(29, TILE), blocks(35, TILE)), (TILE, TILE),
        lambda rng: {
            "a": _matrix(rng, 35 * 41), "b": _matrix(rng, 41 * 29), "c": _matrix(rng, 35 * 29),
            "m": 35, "n": 29, "k": 41, "alpha": 1.5, "beta": -0.5,
        },
        _gemm, **NEAR, notes="no side is a multiple of the tile",
    ),
    Case(
        "matmul_in_registers", matmul_registers, (2, 2), (4, 4),
        lambda rng: {"a": _matrix(rng, 32, 32), "b": _matrix(rng, 32, 32), "c": Empty((32, 32), np.float32), "size": 32},
        lambda a, b, c, size: {"c": _wide(a.astype(np.float64) @ b)}, **NEAR, notes="a local array of two dimensions, and fma",
    ),
    Case(
        "matmul_int8", matmul_int8, (3, 2), (8, 8),
        lambda rng: {
            "a": rng.integers(-128, 128, (13, 50), dtype=np.int8), "b": rng.integers(-128, 128, (50, 21), dtype=np.int8),
            "c": Empty((13, 21), np.int32), "inner": 50,
        },
        lambda a, b, c, inner: {"c": a.astype(np.int32) @ b.astype(np.int32)}, notes="widened before the product",
    ),
    Case(
        "batched_gemv", batched_gemv, 6, 32,
        lambda rng: {"a": _matrix(rng, 6, 45, 70), "x": _matrix(rng, 6, 70), "y": Empty((6, 45), np.float32), "rows": 45, "columns": 70},
        lambda a, x, y, rows, columns: {"y": _wide(np.einsum("brc,bc->br", a.astype(np.float64), x))}, **NEAR,
    ),
    Case("spmv_csr_scalar", spmv_scalar, 3, 64, lambda rng: _csr(rng, 150, 120, 0.05), _spmv, **NEAR_64, notes="some rows are empty"),
    Case(
        "spmv_csr_warp_a_row", spmv_warp, blocks(50, 4), 128, lambda rng: _csr(rng, 50, 200, 0.3), _spmv, **NEAR_64,
        notes="whole warps leave at the ragged end, no lane alone",
    ),
    Case(
        "jacobi_step", jacobi_step, 2, 32,
        lambda rng: {
            "a": _dominant(rng, 40), "b": rng.standard_normal(40), "x": rng.standard_normal(40), "new": Empty((40,), np.float64), "n": 40,
        },
        _jacobi, **NEAR_64,
    ),
    Case(
        "lu_in_shared_memory", lu_in_shared, 5, TILE, lambda rng: {"a": _dominant(rng, 13, 5).astype(np.float32), "n": 13}, _lu,
        **NEAR, notes="a chained comparison; a barrier in a loop of uniform length",
    ),
    Case(
        "fft_radix_2", fft_shared, 4, FFT // 2,
        lambda rng: {"real": _matrix(rng, 4, FFT), "imaginary": _matrix(rng, 4, FFT), "bits": 6}, _fft,
        exact=False, rtol=1e-4, atol=1e-4, reason="sines, cosines and sums of f32", notes="bit reversal in a helper with a loop",
    ),
    Case(
        "power_iteration_step", power_iteration, 1, 32,
        lambda rng: {
            "a": _dominant(rng, 32), "x": rng.standard_normal(32), "y": Empty((32,), np.float64), "eigenvalue": Empty((1,), np.float64), "n": 32,
        },
        _power, **NEAR_64, notes="x is read by all, then written, with barriers between",
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "jacobi_solves",
        lambda rng: {
            "a": _dominant(rng, 40), "b": rng.standard_normal(40), "x": np.zeros(40), "new": Empty((40,), np.float64), "n": 40,
        },
        _jacobi_steps, lambda a, b, x, new, n: {"x": np.linalg.solve(a, b)}, scratch=("new",),
        exact=False, rtol=1e-9, atol=1e-10, reason="it converges, and the direct solver rounds otherwise",
    ),
)  # fmt: skip
