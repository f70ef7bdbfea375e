"""Stencils in one to three dimensions, with and without a halo in shared memory; waves, heat, cells, convolution, pooling."""

import numpy as np
import scipy.ndimage
from tests.corpus.registry import Case, Empty, Program, Step, blocks

import windtunnel
from windtunnel import (
    block_dim_x,
    block_dim_y,
    block_idx_x,
    block_idx_y,
    blockDim,
    blockIdx,
    f32,
    f64,
    grid,
    i32,
    shared,
    sync_threads,
    syncthreads,
    thread_idx_x,
    thread_idx_y,
    threadIdx,
    u8,
)

RADIUS = 3
WIDTH = 64
TILE = 8


@windtunnel.kernel
def laplacian(source: f32[:, :], target: f32[:, :], height: i32, width: i32):
    x = block_idx_x() * block_dim_x() + thread_idx_x()
    y = block_idx_y() * block_dim_y() + thread_idx_y()
    if x < 1 or y < 1 or x >= width - 1 or y >= height - 1:
        return
    north = source[y - 1, x]
    south = source[y + 1, x]
    east = source[y, x + 1]
    west = source[y, x - 1]
    target[y, x] = north + south + east + west - 4.0 * source[y, x]


@windtunnel.kernel
def laplacian_tiled(source: f32[:, :], target: f32[:, :], height: i32, width: i32):
    # A tile with a halo of one: edge threads load it too, before the barrier that all reach.
    tile = shared.array((TILE + 2, TILE + 2), f32)
    tx = thread_idx_x() + 1
    ty = thread_idx_y() + 1
    x = block_idx_x() * TILE + thread_idx_x()
    y = block_idx_y() * TILE + thread_idx_y()
    if x < width and y < height:
        tile[ty, tx] = source[y, x]
        if tx == 1 and x > 0:
            tile[ty, 0] = source[y, x - 1]
        if (tx == TILE or x == width - 1) and x + 1 < width:
            tile[ty, tx + 1] = source[y, x + 1]
        if ty == 1 and y > 0:
            tile[0, tx] = source[y - 1, x]
        if (ty == TILE or y == height - 1) and y + 1 < height:
            tile[ty + 1, tx] = source[y + 1, x]
    sync_threads()
    if 0 < x < width - 1 and 0 < y < height - 1:
        target[y, x] = tile[ty - 1, tx] + tile[ty + 1, tx] + tile[ty, tx + 1] + tile[ty, tx - 1] - 4.0 * tile[ty, tx]


@windtunnel.kernel
def stencil_1d(x: i32[:], out: i32[:], n: i32):
    temp = shared.array(WIDTH + 2 * RADIUS, i32)
    i = grid(1)
    s = threadIdx.x + RADIUS
    temp[s] = x[i] if i < n else 0
    if threadIdx.x < RADIUS:
        temp[s - RADIUS] = x[i - RADIUS] if i >= RADIUS else 0
        temp[s + WIDTH] = x[i + WIDTH] if i + WIDTH < n else 0
    syncthreads()
    if i < n:
        total = 0
        for offset in range(-RADIUS, RADIUS + 1):
            total += temp[s + offset]
        out[i] = total


@windtunnel.kernel
def periodic_difference(x: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n:
        # Python's remainder: -1 % n is n - 1.
        out[i] = x[(i + 1) % n] - x[(i - 1) % n]


@windtunnel.kernel
def heat_3d(u: f64[:, :, :], new: f64[:, :, :], alpha: f64):
    x, y, z = grid(3)
    nz = u.shape[0]
    ny = u.shape[1]
    nx = u.shape[2]
    if x >= nx or y >= ny or z >= nz:
        return
    here = u[z, y, x]
    if x == 0 or y == 0 or z == 0 or x == nx - 1 or y == ny - 1 or z == nz - 1:
        new[z, y, x] = here
    else:
        around = u[z - 1, y, x] + u[z + 1, y, x] + u[z, y - 1, x] + u[z, y + 1, x] + u[z, y, x - 1] + u[z, y, x + 1]
        new[z, y, x] = here + alpha * (around - 6.0 * here)


@windtunnel.kernel
def heat_3d_marching(u: f32[:], new: f32[:], nx: i32, ny: i32, nz: i32, alpha: f32):
    # A plane of threads goes up z and keeps the plane below and above in registers.
    x = blockIdx.x * blockDim.x + threadIdx.x
    y = blockIdx.y * blockDim.y + threadIdx.y
    if x < 1 or x >= nx - 1 or y < 1 or y >= ny - 1:
        return
    plane = nx * ny
    at = y * nx + x
    below = u[at]
    here = u[at + plane]
    for _ in range(1, nz - 1):
        at += plane
        above = u[at + plane]
        around = u[at - 1] + u[at + 1] + u[at - nx] + u[at + nx] + below + above
        new[at] = here + alpha * (around - 6.0 * here)
        below = here
        here = above


@windtunnel.kernel
def wave_step(previous: f32[:, :], now: f32[:, :], following: f32[:, :], c2: f32):
    j, i = grid(2)
    rows = now.shape[0]
    columns = now.shape[1]
    if i < rows and j < columns:
        if i == 0 or j == 0 or i == rows - 1 or j == columns - 1:
            following[i, j] = 0.0
        else:
            bend = now[i - 1, j] + now[i + 1, j] + now[i, j - 1] + now[i, j + 1] - 4.0 * now[i, j]
            following[i, j] = 2.0 * now[i, j] - previous[i, j] + c2 * bend


@windtunnel.kernel
def life(cells: u8[:, :], new: u8[:, :], height: i32, width: i32):
    x, y = grid(2)
    if x < width and y < height:
        alive = 0
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                if dx != 0 or dy != 0:
                    alive += i32(cells[(y + dy + height) % height, (x + dx + width) % width])
        if alive == 3 or (alive == 2 and cells[y, x] == 1):
            new[y, x] = 1
        else:
            new[y, x] = 0


@windtunnel.kernel
def conv2d(image: f32[:, :], weights: f32[:, :], out: f32[:, :], height: i32, width: i32, radius: i32):
    x, y = grid(2)
    if x >= width or y >= height:
        return
    total = f32(0.0)
    for ky in range(-radius, radius + 1):
        iy = y + ky
        if iy < 0 or iy >= height:
            continue
        for kx in range(-radius, radius + 1):
            ix = x + kx
            if ix >= 0 and ix < width:
                total += image[iy, ix] * weights[ky + radius, kx + radius]
    out[y, x] = total


@windtunnel.kernel
def conv2d_channels(images: f32[:, :, :, :], weights: f32[:, :, :, :], bias: f32[:], out: f32[:, :, :, :]):
    # N, C, H, W; valid, stride 1. A block an image and an output channel, a thread a pixel.
    x = threadIdx.x
    y = threadIdx.y
    k = blockIdx.x
    image = blockIdx.y
    if y < out.shape[2] and x < out.shape[3]:
        total = bias[k]
        for c in range(weights.shape[1]):
            for r in range(weights.shape[2]):
                for s in range(weights.shape[3]):
                    total += images[image, c, y + r, x + s] * weights[k, c, r, s]
        out[image, k, y, x] = max(total, 0.0)


@windtunnel.kernel
def max_pool(x: f32[:, :], out: f32[:, :], places: i32[:, :], size: i32, columns: i32):
    j, i = grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        best = x[i * size, j * size]
        place = i * size * columns + j * size
        for di in range(size):
            for dj in range(size):
                value = x[i * size + di, j * size + dj]
                if value > best:
                    best = value
                    place = (i * size + di) * columns + j * size + dj
        out[i, j] = best
        places[i, j] = place


@windtunnel.kernel
def sobel(image: u8[:, :], out: u8[:, :], height: i32, width: i32):
    x, y = grid(2)
    if x >= width or y >= height:
        return
    if x == 0 or y == 0 or x == width - 1 or y == height - 1:
        out[y, x] = 0
        return
    gx = 0
    gy = 0
    for d in range(-1, 2):
        weight = 2 - abs(d)
        gx += weight * (i32(image[y + d, x + 1]) - i32(image[y + d, x - 1]))
        gy += weight * (i32(image[y + 1, x + d]) - i32(image[y - 1, x + d]))
    out[y, x] = u8(min(abs(gx) + abs(gy), 255))


def _plane(rng: np.random.Generator, height: int = 21, width: int = 30):
    return {
        "source": rng.standard_normal((height, width), dtype=np.float32), "target": np.zeros((height, width), np.float32),
        "height": height, "width": width,
    }  # fmt: skip


def _laplacian(source, target, height, width):
    s = source.astype(np.float64)
    target[1:-1, 1:-1] = s[:-2, 1:-1] + s[2:, 1:-1] + s[1:-1, 2:] + s[1:-1, :-2] - 4 * s[1:-1, 1:-1]
    return {"target": target}


def _heat(u: np.ndarray, alpha: float) -> np.ndarray:
    cross = scipy.ndimage.generate_binary_structure(3, 1).astype(np.float64)
    cross[1, 1, 1] = -6
    changed = u + alpha * scipy.ndimage.convolve(u.astype(np.float64), cross)
    out = u.copy()
    out[1:-1, 1:-1, 1:-1] = changed[1:-1, 1:-1, 1:-1]
    return out


def _marched(u, new, nx, ny, nz, alpha):
    inner = (slice(1, -1),) * 3
    new = new.reshape(nz, ny, nx)
    new[inner] = _heat(u.reshape(nz, ny, nx), alpha)[inner]
    return {"new": new.reshape(-1)}


def _wave(previous: np.ndarray, now: np.ndarray, c2: float) -> np.ndarray:
    bend = sum(np.roll(now, s, axis).astype(np.float64) for s in (-1, 1) for axis in (0, 1)) - 4.0 * now
    out = np.zeros_like(now)
    out[1:-1, 1:-1] = (2.0 * now - previous + np.float32(c2) * bend)[1:-1, 1:-1]
    return out


def _waves(rng: np.random.Generator):
    y, x = np.mgrid[-1:1:24j, -1:1:33j]
    bump = np.exp(-20 * (x**2 + y**2)).astype(np.float32)
    bump[[0, -1]] = bump[:, [0, -1]] = 0
    return {"previous": bump, "now": bump.copy(), "following": Empty(bump.shape, np.float32), "c2": 0.25}


def _wave_steps(previous, now, following, c2):
    # Twelve steps, a multiple of three: then the names mean again what they did.
    for _ in range(4):
        yield Step(wave_step, (3, 3), (16, 8), (previous, now, following, c2))
        yield Step(wave_step, (3, 3), (16, 8), (now, following, previous, c2))
        yield Step(wave_step, (3, 3), (16, 8), (following, previous, now, c2))


def _waved(previous, now, following, c2):
    for _ in range(12):
        previous, now = now, _wave(previous, now, c2)
    return {"previous": previous, "now": now}


def _next_cells(cells: np.ndarray) -> np.ndarray:
    alive = scipy.ndimage.convolve(cells, np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], np.uint8), mode="wrap")
    return ((alive == 3) | ((alive == 2) & (cells == 1))).astype(np.uint8)


def _life_steps(cells, new, height, width):
    for _ in range(5):
        yield Step(life, (2, 3), (16, 8), (cells, new, height, width))
        yield Step(life, (2, 3), (16, 8), (new, cells, height, width))


def _lived(cells, new, **_):
    for _ in range(10):
        cells = _next_cells(cells)
    return {"cells": cells}


def _images(rng: np.random.Generator):
    return {
        "images": rng.standard_normal((2, 3, 10, 9), dtype=np.float32), "weights": rng.standard_normal((4, 3, 3, 3), dtype=np.float32),
        "bias": rng.standard_normal(4, dtype=np.float32), "out": Empty((2, 4, 8, 7), np.float32),
    }  # fmt: skip


def _convolved(images, weights, bias, out):
    windows = np.lib.stride_tricks.sliding_window_view(images.astype(np.float64), (3, 3), axis=(2, 3))
    total = np.einsum("ncyxrs,kcrs->nkyx", windows, weights) + bias[:, None, None]
    return {"out": np.maximum(total, 0).astype(np.float32)}


def _pooled(x, out, places, size, columns):
    for i, j in np.ndindex(out.shape):
        window = x[i * size : (i + 1) * size, j * size : (j + 1) * size]
        di, dj = np.unravel_index(window.argmax(), window.shape)
        out[i, j] = window[di, dj]
        places[i, j] = (i * size + di) * columns + j * size + dj
    return {"out": out, "places": places}


def _edges(image, out, height, width):
    wide = image.astype(np.int32)
    steep = np.abs(scipy.ndimage.sobel(wide, 1)) + np.abs(scipy.ndimage.sobel(wide, 0))
    out[1:-1, 1:-1] = np.minimum(steep, 255)[1:-1, 1:-1]
    return {"out": out}


SUMS = {"exact": False, "rtol": 1e-5, "atol": 1e-5, "reason": "the reference sums in f64"}

CASES = (
    Case(
        "laplacian", laplacian, (4, 3), (8, 8), _plane, _laplacian, **SUMS,
        notes="the founding documents' stencil: north, south, east, west and the middle; their spellings",
    ),
    Case(
        "laplacian_tiled", laplacian_tiled, (blocks(30, TILE), blocks(21, TILE)), (TILE, TILE), _plane, _laplacian, **SUMS,
        notes="the founding documents' tile with a halo of one; the corners of the halo are neither written nor read",
    ),
    Case(
        "stencil_1d_halo", stencil_1d, blocks(200, WIDTH), WIDTH,
        lambda rng: {"x": rng.integers(-99, 99, 200, dtype=np.int32), "out": Empty((200,), np.int32), "n": 200},
        lambda x, out, n: {"out": np.convolve(x, np.ones(2 * RADIUS + 1, np.int32), "same")},
    ),
    Case(
        "periodic_difference", periodic_difference, 2, 64,
        lambda rng: {"x": rng.integers(-99, 99, 101, dtype=np.int32), "out": Empty((101,), np.int32), "n": 101},
        lambda x, out, n: {"out": np.roll(x, -1) - np.roll(x, 1)}, notes="the remainder of a negative number, as Python has it",
    ),
    Case(
        "heat_3d", heat_3d, (2, 3, 4), (8, 4, 2),
        lambda rng: {"u": rng.standard_normal((7, 10, 13)), "new": Empty((7, 10, 13), np.float64), "alpha": 0.1},
        lambda u, new, alpha: {"new": _heat(u, alpha)}, exact=False, rtol=1e-12, atol=1e-13, reason="the reference sums in another order",
    ),
    Case(
        "heat_3d_marching", heat_3d_marching, (2, 2), (8, 8),
        lambda rng: {
            "u": rng.standard_normal(9 * 12 * 14, dtype=np.float32), "new": np.zeros(9 * 12 * 14, np.float32), "nx": 14, "ny": 12, "nz": 9,
            "alpha": 0.1,
        },
        _marched, **SUMS, notes="early returns, and no barrier after them",
    ),
    Case("wave_step", wave_step, (3, 3), (16, 8), _waves, lambda previous, now, following, c2: {"following": _wave(previous, now, c2)}, **SUMS),
    Case(
        "life_step", life, (2, 3), (16, 8),
        lambda rng: {"cells": rng.integers(0, 2, (19, 27), dtype=np.uint8), "new": Empty((19, 27), np.uint8), "height": 19, "width": 27},
        lambda cells, new, height, width: {"new": _next_cells(cells)}, notes="periodic",
    ),
    Case(
        "conv2d", conv2d, (4, 3), (8, 8),
        lambda rng: {
            "image": rng.standard_normal((22, 27), dtype=np.float32), "weights": rng.standard_normal((5, 5), dtype=np.float32),
            "out": Empty((22, 27), np.float32), "height": 22, "width": 27, "radius": 2,
        },
        lambda image, weights, **_: {
            "out": scipy.ndimage.correlate(image.astype(np.float64), weights, mode="constant").astype(np.float32)
        },
        **SUMS, notes="zeros beyond the edge; continue",
    ),
    Case("conv2d_channels_relu", conv2d_channels, (4, 2), (8, 8), _images, _convolved, **SUMS, notes="arrays of four dimensions"),
    Case(
        "max_pool", max_pool, (2, 2), (8, 4),
        lambda rng: {
            "x": rng.integers(0, 9, (18, 30)).astype(np.float32), "out": Empty((6, 10), np.float32), "places": Empty((6, 10), np.int32),
            "size": 3, "columns": 30,
        },
        _pooled, notes="the first of equals; also where it was, for the gradient",
    ),
    Case(
        "sobel", sobel, (3, 3), (8, 8),
        lambda rng: {"image": rng.integers(0, 256, (18, 23), dtype=np.uint8), "out": Empty((18, 23), np.uint8), "height": 18, "width": 23},
        _edges, notes="bytes widened to i32, saturated on the way back",
    ),
)  # fmt: skip

PROGRAMS = (
    Program(
        "wave_equation", _waves, _wave_steps, _waved, scratch=("following",), exact=False, rtol=1e-4, atol=1e-5,
        reason="roundings of f32 add up over the steps",
    ),
    Program(
        "life",
        lambda rng: {"cells": rng.integers(0, 2, (19, 27), dtype=np.uint8), "new": Empty((19, 27), np.uint8), "height": 19, "width": 27},
        _life_steps, _lived, scratch=("new",),
    ),
)  # fmt: skip
