"""Building blocks of neural networks, row by row: softmax, norms, activations, losses; k-means and nearest neighbours; f16."""

import math

import numpy as np
import scipy.special
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import (
    atomic,
    blockDim,
    blockIdx,
    f16,
    f32,
    grid,
    i8,
    i32,
    local,
    rsqrt,
    shared,
    shfl_xor_sync,
    syncthreads,
    threadIdx,
)

ROW = 64
FULL = 0xFFFFFFFF


@windtunnel.kernel
def softmax_rows(x: f32[:, :], out: f32[:, :], columns: i32):
    partial = shared.array(ROW, f32)
    t = threadIdx.x
    row = blockIdx.x
    highest = f32(-math.inf)
    for c in range(t, columns, ROW):
        highest = max(highest, x[row, c])
    partial[t] = highest
    syncthreads()
    s = ROW // 2
    while s > 0:
        if t < s:
            partial[t] = max(partial[t], partial[t + s])
        syncthreads()
        s //= 2
    highest = partial[0]
    syncthreads()
    total = f32(0.0)
    for c in range(t, columns, ROW):
        e = math.exp(x[row, c] - highest)
        out[row, c] = e
        total += e
    partial[t] = total
    syncthreads()
    s = ROW // 2
    while s > 0:
        if t < s:
            partial[t] += partial[t + s]
        syncthreads()
        s //= 2
    total = partial[0]
    for c in range(t, columns, ROW):
        out[row, c] /= total


@windtunnel.kernel
def layer_norm(x: f32[:, :], gain: f32[:], bias: f32[:], out: f32[:, :], columns: i32, epsilon: f32):
    # A warp a row; every lane holds the sums after the butterfly.
    lane = threadIdx.x
    row = blockIdx.x * blockDim.y + threadIdx.y
    if row >= x.shape[0]:
        return
    total = f32(0.0)
    for c in range(lane, columns, 32):
        total += x[row, c]
    mask = 16
    while mask > 0:
        total += shfl_xor_sync(FULL, total, mask)
        mask //= 2
    mean = total / f32(columns)
    spread = f32(0.0)
    for c in range(lane, columns, 32):
        off = x[row, c] - mean
        spread += off * off
    mask = 16
    while mask > 0:
        spread += shfl_xor_sync(FULL, spread, mask)
        mask //= 2
    scale = 1.0 / math.sqrt(spread / f32(columns) + epsilon)
    for c in range(lane, columns, 32):
        out[row, c] = (x[row, c] - mean) * scale * gain[c] + bias[c]


@windtunnel.kernel
def rms_norm(x: f32[:, :], gain: f32[:], columns: i32, epsilon: f32):
    squares = shared.array(ROW, f32)
    t = threadIdx.x
    row = blockIdx.x
    total = f32(0.0)
    for c in range(t, columns, ROW):
        total += x[row, c] ** 2
    squares[t] = total
    syncthreads()
    s = ROW // 2
    while s > 0:
        if t < s:
            squares[t] += squares[t + s]
        syncthreads()
        s //= 2
    scale = rsqrt(squares[0] / f32(columns) + epsilon)
    for c in range(t, columns, ROW):
        x[row, c] = x[row, c] * scale * gain[c]


def gelu_of(x):
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


@windtunnel.kernel
def gelu(x: f32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n:
        out[i] = gelu_of(x[i])


@windtunnel.kernel
def gelu_tanh(x: f32[:], n: i32):
    i = grid(1)
    if i < n:
        v = x[i]
        x[i] = 0.5 * v * (1.0 + math.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))


@windtunnel.kernel
def silu_gate(gate: f32[:], up: f32[:], out: f32[:], n: i32):
    i = grid(1)
    if i < n:
        g = gate[i]
        out[i] = g / (1.0 + math.exp(-g)) * up[i]


@windtunnel.kernel
def cross_entropy(logits: f32[:, :], labels: i32[:], loss: f32[:], rows: i32, classes: i32):
    row = grid(1)
    if row < rows:
        highest = logits[row, 0]
        for c in range(1, classes):
            highest = max(highest, logits[row, c])
        total = f32(0.0)
        for c in range(classes):
            total += math.exp(logits[row, c] - highest)
        loss[row] = math.log(total) + highest - logits[row, labels[row]]


@windtunnel.kernel
def embedding(table: f32[:, :], tokens: i32[:], out: f32[:, :], width: i32):
    token = tokens[blockIdx.x]
    for c in range(threadIdx.x, width, blockDim.x):
        out[blockIdx.x, c] = table[token, c]


@windtunnel.kernel
def rotary(x: f32[:, :], positions: i32[:], half: i32, base: f32):
    # Pairs of elements are turned by an angle of their token's position.
    t = threadIdx.x
    token = blockIdx.x
    if t < half:
        angle = f32(positions[token]) * math.pow(base, -f32(t) / f32(half))
        c = math.cos(angle)
        s = math.sin(angle)
        a = x[token, t]
        b = x[token, t + half]
        x[token, t] = a * c - b * s
        x[token, t + half] = b * c + a * s


@windtunnel.kernel
def adam(w: f32[:], g: f32[:], m: f32[:], v: f32[:], rate: f32, b1: f32, b2: f32, epsilon: f32, c1: f32, c2: f32):
    i = grid(1)
    if i < w.shape[0]:
        m[i] = b1 * m[i] + (1.0 - b1) * g[i]
        v[i] = b2 * v[i] + (1.0 - b2) * g[i] * g[i]
        w[i] -= rate * (m[i] / c1) / (math.sqrt(v[i] / c2) + epsilon)


@windtunnel.kernel
def quantise(x: f32[:], scale: f32, out: i8[:], n: i32):
    i = grid(1)
    if i < n:
        level = math.floor(x[i] / scale + 0.5)
        out[i] = i8(i32(min(max(level, -127.0), 127.0)))


@windtunnel.kernel
def dot_int8(a: i8[:, :], b: i8[:], out: i32[:], columns: i32):
    row = grid(1)
    if row < a.shape[0]:
        total = i32(0)
        for c in range(columns):
            total += i32(a[row, c]) * i32(b[c])
        out[row] = total


@windtunnel.kernel
def half_axpy(a: f16, x: f16[:], y: f16[:], n: i32):
    i = grid(1)
    if i < n:
        scaled = a * x[i]
        y[i] = scaled + y[i]


@windtunnel.kernel
def half_sum_in_single(x: f16[:, :], out: f16[:], columns: i32):
    row = grid(1)
    if row < x.shape[0]:
        total = f32(0.0)
        for c in range(columns):
            total += f32(x[row, c])
        out[row] = f16(total)


@windtunnel.kernel
def nearest_centre(points: f32[:, :], centres: f32[:, :], labels: i32[:], n: i32, k: i32, width: i32):
    i = grid(1)
    if i >= n:
        return
    best = 0
    best_distance = f32(math.inf)
    for c in range(k):
        distance = f32(0.0)
        for d in range(width):
            off = points[i, d] - centres[c, d]
            distance += off * off
        if distance < best_distance:
            best_distance = distance
            best = c
    labels[i] = best


@windtunnel.kernel
def sum_members(points: i32[:, :], labels: i32[:], sums: i32[:, :], counts: i32[:], n: i32, width: i32):
    i = grid(1)
    if i < n:
        label = labels[i]
        atomic.add(counts, label, 1)
        for d in range(width):
            atomic.add(sums, (label, d), points[i, d])


@windtunnel.kernel
def nearest_neighbours(points: f32[:, :], queries: f32[:, :], found: i32[:, :], n: i32, count: i32):
    # The five nearest of each query, by insertion into local arrays.
    distances = local.array(5, f32)
    places = local.array(5, i32)
    q = grid(1)
    if q < count:
        for k in range(5):
            distances[k] = math.inf
            places[k] = -1
        for i in range(n):
            dx = points[i, 0] - queries[q, 0]
            dy = points[i, 1] - queries[q, 1]
            far = dx * dx + dy * dy
            if far < distances[4]:
                k = 4
                while k > 0 and distances[k - 1] > far:
                    distances[k] = distances[k - 1]
                    places[k] = places[k - 1]
                    k -= 1
                distances[k] = far
                places[k] = i
        for k in range(5):
            found[q, k] = places[k]


def _rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def _normed(x, gain, bias, out, columns, epsilon):
    x = x.astype(np.float64)
    return {
        "out": ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon) * gain + bias).astype(
            np.float32
        )
    }


def _rms(x, gain, columns, epsilon):
    x = x.astype(np.float64)
    return {"x": (x / np.sqrt((x**2).mean(1, keepdims=True) + epsilon) * gain).astype(np.float32)}


def _tanh_gelu(x, n):
    wide = x.astype(np.float64)
    return {"x": (wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))).astype(np.float32)}


def _turned(x, positions, half, base):
    pairs = (x[:, :half] + 1j * x[:, half:]).astype(np.complex128)
    pairs *= np.exp(1j * np.outer(positions, base ** (-np.arange(half) / half)))
    return {"x": np.concatenate([pairs.real, pairs.imag], axis=1).astype(np.float32)}


def _adam(w, g, m, v, rate, b1, b2, epsilon, c1, c2):
    w, g, m, v = (a.astype(np.float64) for a in (w, g, m, v))
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g**2
    w = w - rate * (m / c1) / (np.sqrt(v / c2) + epsilon)
    return {"w": w.astype(np.float32), "m": m.astype(np.float32), "v": v.astype(np.float32)}


def _clusters(rng: np.random.Generator):
    # Far apart, so that no rounding moves a point to another centre.
    centres = rng.permutation(np.arange(7))[:, None] * 10 + rng.random((7, 3))
    points = centres[rng.integers(0, 7, 200)] + rng.normal(0, 0.5, (200, 3))
    return {
        "points": points.astype(np.float32), "centres": centres.astype(np.float32), "labels": Empty((200,), np.int32), "n": 200, "k": 7,
        "width": 3,
    }  # fmt: skip


def _assigned(points, centres, labels, **_):
    return {"labels": np.linalg.norm(points[:, None].astype(np.float64) - centres, axis=2).argmin(1).astype(np.int32)}


def _members(points, labels, sums, counts, n, width):
    np.add.at(sums, labels, points)
    return {"sums": sums, "counts": counts + np.bincount(labels, minlength=counts.size).astype(np.int32)}


def _neighbours(points, queries, found, n, count):
    far = ((points[None].astype(np.float64) - queries[:, None]) ** 2).sum(2)
    return {"found": far.argsort(1, kind="stable")[:, :5].astype(np.int32)}


def _kmeans_step(points, integers, centres, labels, sums, counts):
    yield Step(nearest_centre, 2, 128, (points, centres, labels, 200, 7, 3))
    yield Step(sum_members, 2, 128, (integers, labels, sums, counts, 200, 3))


def _kmeans_arguments(rng: np.random.Generator):
    centres = rng.permutation(np.arange(7))[:, None] * 100 + rng.integers(0, 9, (7, 3))
    points = centres[rng.integers(0, 7, 200)] + rng.integers(-9, 10, (200, 3))
    return {
        "points": points.astype(np.float32), "integers": points.astype(np.int32), "centres": centres.astype(np.float32),
        "labels": Empty((200,), np.int32), "sums": np.zeros((7, 3), np.int32), "counts": np.zeros(7, np.int32),
    }  # fmt: skip


def _kmeans(points, integers, centres, labels, sums, counts):
    labels = _assigned(points, centres, labels)["labels"]
    return {"labels": labels, **_members(integers, labels, sums, counts, 200, 3)}


NEAR = {"exact": False, "rtol": 1e-5, "atol": 1e-5, "reason": "sums, exponentials and roots of f32"}

CASES = (
    Case(
        "softmax_row_a_block", softmax_rows, 7, ROW, lambda rng: {"x": 5 * _rows(rng, 7, 150), "out": Empty((7, 150), np.float32), "columns": 150},
        lambda x, out, columns: {"out": scipy.special.softmax(x.astype(np.float64), axis=1).astype(np.float32)}, **NEAR,
        notes="the shared array is used twice, with a barrier between",
    ),
    Case(
        "softmax_short_rows", softmax_rows, 3, ROW, lambda rng: {"x": _rows(rng, 3, 9), "out": Empty((3, 9), np.float32), "columns": 9},
        lambda x, out, columns: {"out": scipy.special.softmax(x.astype(np.float64), axis=1).astype(np.float32)}, **NEAR,
        notes="most threads bring minus infinity",
    ),
    Case(
        "layer_norm", layer_norm, 3, (32, 4),
        lambda rng: {
            "x": _rows(rng, 10, 75) + 3, "gain": _rows(rng, 75), "bias": _rows(rng, 75), "out": Empty((10, 75), np.float32), "columns": 75,
            "epsilon": 1e-5,
        },
        _normed, **NEAR, notes="a block of (32, 4): each row of threads is a warp; whole warps return early",
    ),
    Case("rms_norm", rms_norm, 5, ROW, lambda rng: {"x": _rows(rng, 5, 100), "gain": _rows(rng, 100), "columns": 100, "epsilon": 1e-6}, _rms, **NEAR),
    Case(
        "gelu_erf", gelu, 5, 64, lambda rng: {"x": 3 * _rows(rng, 300), "out": Empty((300,), np.float32), "n": 300},
        lambda x, out, n: {"out": (x * scipy.special.ndtr(x.astype(np.float64))).astype(np.float32)},
        exact=False, rtol=1e-5, atol=2e-6, reason="1 + erf cancels in f32", notes="a helper of one expression",
    ),
    Case("gelu_tanh", gelu_tanh, 5, 64, lambda rng: {"x": 3 * _rows(rng, 300), "n": 300}, _tanh_gelu, **NEAR),
    Case(
        "silu_gate", silu_gate, 5, 64,
        lambda rng: {"gate": 3 * _rows(rng, 300), "up": _rows(rng, 300), "out": Empty((300,), np.float32), "n": 300},
        lambda gate, up, **_: {"out": (gate * scipy.special.expit(gate.astype(np.float64)) * up).astype(np.float32)}, **NEAR,
    ),
    Case(
        "cross_entropy", cross_entropy, 2, 32,
        lambda rng: {
            "logits": 4 * _rows(rng, 50, 11), "labels": rng.integers(0, 11, 50, dtype=np.int32), "loss": Empty((50,), np.float32), "rows": 50,
            "classes": 11,
        },
        lambda logits, labels, **_: {
            "loss": -scipy.special.log_softmax(logits.astype(np.float64), axis=1)[np.arange(50), labels].astype(np.float32)
        },
        **NEAR,
    ),
    Case(
        "embedding", embedding, 12, 32,
        lambda rng: {"table": _rows(rng, 30, 50), "tokens": rng.integers(0, 30, 12, dtype=np.int32), "out": Empty((12, 50), np.float32), "width": 50},
        lambda table, tokens, **_: {"out": table[tokens]},
    ),
    Case(
        "rotary_positions", rotary, 9, 32,
        lambda rng: {"x": _rows(rng, 9, 48), "positions": np.arange(9, dtype=np.int32), "half": 24, "base": 10000.0}, _turned, **NEAR,
    ),
    Case(
        "adam_step", adam, 3, 64,
        lambda rng: {
            "w": _rows(rng, 150), "g": _rows(rng, 150), "m": _rows(rng, 150), "v": _rows(rng, 150) ** 2, "rate": 1e-3, "b1": 0.9, "b2": 0.999,
            "epsilon": 1e-8, "c1": 0.271, "c2": 0.003,
        },
        _adam, **NEAR,
    ),
    Case(
        "quantise_int8", quantise, 4, 64,
        # A power of two and multiples of its quarter: every quotient is exact, and no half is among them.
        lambda rng: {"x": (rng.integers(-400, 400, 250) * 4 + 1).astype(np.float32) / 128, "scale": 0.125 / 2, "out": Empty((250,), np.int8), "n": 250},
        lambda x, scale, out, n: {"out": np.clip(np.rint(x / np.float32(scale)), -127, 127).astype(np.int8)}, notes="saturates at both ends",
    ),
    Case(
        "dot_int8", dot_int8, 1, 48,
        lambda rng: {
            "a": rng.integers(-128, 128, (40, 300), dtype=np.int8), "b": rng.integers(-128, 128, 300, dtype=np.int8), "out": Empty((40,), np.int32),
            "columns": 300,
        },
        lambda a, b, out, columns: {"out": np.array([sum(int(p) * int(q) for p, q in zip(row, b, strict=True)) for row in a], np.int32)},
    ),
    Case(
        "half_axpy", half_axpy, 2, 64,
        lambda rng: {"a": 1.5, "x": rng.standard_normal(100).astype(np.float16), "y": rng.standard_normal(100).astype(np.float16), "n": 100},
        lambda a, x, y, n: {"y": np.float16(1.5) * x + y}, exact=False, rtol=1e-3, atol=1e-3, reason="a device may round the product and the sum once",
    ),
    Case(
        "half_sum_in_single", half_sum_in_single, 1, 32,
        lambda rng: {"x": rng.standard_normal((20, 200)).astype(np.float16), "out": Empty((20,), np.float16), "columns": 200},
        lambda x, out, columns: {"out": x.sum(axis=1, dtype=np.float64).astype(np.float16)},
        exact=False, rtol=1e-3, atol=1e-4, reason="the sum may round the other way", notes="a sum kept in f16 fails",
    ),
    Case("k_means_assign", nearest_centre, 4, 64, _clusters, _assigned),
    Case(
        "k_means_sums", sum_members, 4, 64,
        lambda rng: {
            "points": rng.integers(-99, 99, (230, 2), dtype=np.int32), "labels": rng.integers(0, 5, 230, dtype=np.int32),
            "sums": np.zeros((5, 2), np.int32), "counts": np.zeros(5, np.int32), "n": 230, "width": 2,
        },
        _members, notes="an atomic on an array of two dimensions",
    ),
    Case(
        "nearest_neighbours", nearest_neighbours, 2, 16,
        lambda rng: {
            "points": rng.permutation(400)[:120].reshape(60, 2).astype(np.float32), "queries": rng.random((25, 2), dtype=np.float32) * 400,
            "found": Empty((25, 5), np.int32), "n": 60, "count": 25,
        },
        _neighbours, notes="insertion into local arrays",
    ),
)  # fmt: skip

PROGRAMS = (
    Program("k_means_step", _kmeans_arguments, _kmeans_step, _kmeans, notes="labels from one kernel feed the next"),
)  # fmt: skip
assert blocks(150, 64) == 3
