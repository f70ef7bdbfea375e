"""Numbers: escape times, particles, n-body, integration, Monte Carlo, roots, functions and options."""

import math

import numpy as np
import scipy.special
from tests.corpus.registry import Case, Empty, Program, Step

import windtunnel
from windtunnel import (
    atomic,
    blockDim,
    blockIdx,
    f32,
    f64,
    grid,
    i32,
    local,
    shared,
    syncthreads,
    threadIdx,
    u8,
    u32,
)

BODIES = 32


@windtunnel.kernel
def mandelbrot(out: i32[:, :], x0: f64, y0: f64, step: f64, limit: i32):
    column, row = grid(2)
    if row >= out.shape[0] or column >= out.shape[1]:
        return
    cr = x0 + step * f64(column)
    ci = y0 + step * f64(row)
    zr = f64(0.0)
    zi = f64(0.0)
    turns = 0
    while zr * zr + zi * zi <= 4.0 and turns < limit:
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        turns += 1
    out[row, column] = turns


@windtunnel.kernel
def move_particles(position: f32[:, :], velocity: f32[:, :], dt: f32, gravity: f32, damping: f32, n: i32):
    i = grid(1)
    if i >= n:
        return
    velocity[i, 1] += gravity * dt
    for axis in range(3):
        velocity[i, axis] *= damping
        p = position[i, axis] + velocity[i, axis] * dt
        if p < 0.0:
            p = -p
            velocity[i, axis] = -velocity[i, axis]
        elif p > 1.0:
            p = 2.0 - p
            velocity[i, axis] = -velocity[i, axis]
        position[i, axis] = p


@windtunnel.kernel
def n_body(position: f32[:, :], mass: f32[:], force: f32[:, :], n: i32, softening: f32):
    i = grid(1)
    if i < n:
        fx = 0.0
        fy = 0.0
        fz = 0.0
        for j in range(n):
            dx = position[j, 0] - position[i, 0]
            dy = position[j, 1] - position[i, 1]
            dz = position[j, 2] - position[i, 2]
            square = dx * dx + dy * dy + dz * dz + softening
            pull = mass[j] / (square * math.sqrt(square))
            fx += pull * dx
            fy += pull * dy
            fz += pull * dz
        force[i, 0] = fx
        force[i, 1] = fy
        force[i, 2] = fz


@windtunnel.kernel
def n_body_tiled(position: f32[:, :], mass: f32[:], force: f32[:, :], n: i32, softening: f32):
    bodies = shared.array((BODIES, 4), f32)
    total = local.array(3, f32)
    t = threadIdx.x
    i = blockIdx.x * blockDim.x + t
    mine = min(i, n - 1)
    for axis in range(3):
        total[axis] = 0.0
    for start in range(0, n, BODIES):
        if start + t < n:
            for axis in range(3):
                bodies[t, axis] = position[start + t, axis]
            bodies[t, 3] = mass[start + t]
        else:
            for axis in range(4):
                bodies[t, axis] = 0.0
        syncthreads()
        for j in range(BODIES):
            square = softening
            for axis in range(3):
                off = bodies[j, axis] - position[mine, axis]
                square += off * off
            pull = bodies[j, 3] / (square * math.sqrt(square))
            for axis in range(3):
                total[axis] += pull * (bodies[j, axis] - position[mine, axis])
        syncthreads()
    if i < n:
        for axis in range(3):
            force[i, axis] = total[axis]


@windtunnel.kernel
def simpson(out: f64[:], low: f64, width: f64, pieces: i32):
    # Each thread integrates exp(-x*x) over its own strip.
    i = grid(1)
    if i < out.shape[0]:
        a = low + width * f64(i)
        h = width / f64(pieces)
        total = f64(0.0)
        for k in range(pieces + 1):
            x = a + h * f64(k)
            weight = f64(1.0)
            if 0 < k < pieces:
                weight = f64(4.0) if k % 2 == 1 else f64(2.0)
            total += weight * math.exp(-x * x)
        out[i] = total * h / 3.0


@windtunnel.kernel
def throw_darts(hits: i32[:], seed: u32, each: i32):
    i = grid(1)
    s = seed ^ (u32(i) * 2654435769 + 1)
    inside = 0
    for _ in range(each):
        s = s * 1664525 + 1013904223
        x = i32(s >> 16) - 32768
        s = s * 1664525 + 1013904223
        y = i32(s >> 16) - 32768
        if x * x + y * y < 1073741824:
            inside += 1
    atomic.add(hits, 0, inside)


@windtunnel.kernel
def newton_roots(x: f64[:], out: f64[:], turns: i32[:], n: i32):
    i = grid(1)
    if i < n:
        guess = x[i]
        count = 0
        for k in range(100):
            following = 0.5 * (guess + x[i] / guess)
            if abs(following - guess) <= 1e-15 * guess:
                break
            guess = following
            count = k + 1
        out[i] = guess
        turns[i] = 1 if count < 100 else 0


@windtunnel.kernel
def functions(x: f64[:], out: f64[:, :], n: i32):
    i = grid(1)
    if i < n:
        v = x[i]
        out[i, 0] = math.sin(v) + math.cos(v) * math.tan(v)
        out[i, 1] = math.exp(-v) + math.expm1(v)
        out[i, 2] = math.log(v + 4.0) + math.log2(v + 4.0) + math.log10(v + 4.0) + math.log1p(v * v)
        out[i, 3] = math.atan2(v, 2.0) + math.atan(v) + math.asin(v / 4.0) + math.acos(v / 4.0)
        out[i, 4] = math.sinh(v) + math.cosh(v) + math.tanh(v)
        out[i, 5] = math.sqrt(abs(v)) + math.hypot(v, 1.0) + math.pow(abs(v), 1.5)
        out[i, 6] = math.floor(v) + math.ceil(v) + math.fabs(v) + math.copysign(1.0, v)
        out[i, 7] = math.erf(v) + math.erfc(v)
        out[i, 8] = math.fmod(v, 0.7)


@windtunnel.kernel
def special_values(x: f32[:], out: u8[:], n: i32):
    i = grid(1)
    if i < n:
        kind = 0
        if math.isnan(x[i]):
            kind = 1
        elif math.isinf(x[i]):
            kind = 2 if x[i] > 0.0 else 3
        elif x[i] == 0.0:
            kind = 4
        out[i] = u8(kind)


@windtunnel.kernel
def kahan(x: f32[:, :], out: f32[:], columns: i32):
    # A compiler that reassociates spoils it.
    row = grid(1)
    if row < x.shape[0]:
        total = f32(0.0)
        lost = f32(0.0)
        for c in range(columns):
            term = x[row, c] - lost
            raised = total + term
            lost = (raised - total) - term
            total = raised
        out[row] = total


@windtunnel.kernel
def black_scholes(
    spot: f32[:], strike: f32[:], years: f32[:], call: f32[:], put: f32[:], rate: f32, volatility: f32, n: i32
):
    i = grid(1)
    if i < n:
        root = volatility * math.sqrt(years[i])
        d1 = (math.log(spot[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / root
        d2 = d1 - root
        n1 = 0.5 * math.erfc(-d1 / math.sqrt(2.0))
        n2 = 0.5 * math.erfc(-d2 / math.sqrt(2.0))
        discounted = strike[i] * math.exp(-rate * years[i])
        call[i] = spot[i] * n1 - discounted * n2
        put[i] = discounted * (1.0 - n2) - spot[i] * (1.0 - n1)


def _escape(out, x0, y0, step, limit):
    c = (x0 + step * np.arange(out.shape[1])) + 1j * (y0 + step * np.arange(out.shape[0]))[:, None]
    z = np.zeros_like(c)
    for _ in range(limit):
        inside = np.abs(z) <= 2
        z[inside] = z[inside] ** 2 + c[inside]
        out += inside
    return {"out": out}


def _particles(rng: np.random.Generator):
    return {
        "position": rng.random((120, 3), dtype=np.float32), "velocity": rng.standard_normal((120, 3), dtype=np.float32) * 3, "dt": 0.02,
        "gravity": -9.81, "damping": 0.99, "n": 120,
    }  # fmt: skip


def _moved(position, velocity, dt, gravity, damping, n):
    velocity = (velocity + np.array([0, gravity * dt, 0])) * damping
    position = position + velocity * dt
    out = (position < 0) | (position > 1)
    return {
        "position": np.where(position < 0, -position, np.where(position > 1, 2 - position, position)).astype(
            np.float32
        ),
        "velocity": np.where(out, -velocity, velocity).astype(np.float32),
    }


def _bodies(rng: np.random.Generator):
    return {
        "position": rng.standard_normal((75, 3), dtype=np.float32), "mass": rng.random(75, dtype=np.float32),
        "force": Empty((75, 3), np.float32), "n": 75, "softening": 0.01,
    }  # fmt: skip


def _forces(position, mass, force, n, softening):
    off = position[None].astype(np.float64) - position[:, None]
    square = (off**2).sum(2) + softening
    return {"force": np.einsum("ij,ijk->ik", mass / square**1.5, off).astype(np.float32)}


def _moves(position, velocity, dt, gravity, damping, n):
    for _ in range(5):
        yield Step(move_particles, 2, 64, (position, velocity, dt, gravity, damping, n))


def _moved_on(position, velocity, **rest):
    state = {"position": position, "velocity": velocity}
    for _ in range(5):
        state = _moved(**state, **rest)
    return state


def _darts(hits, seed, each):
    total = 0
    for i in range(96):
        s = seed ^ (i * 2654435769 + 1) % 2**32
        for _ in range(each):
            s = (s * 1664525 + 1013904223) % 2**32
            x = (s >> 16) - 2**15
            s = (s * 1664525 + 1013904223) % 2**32
            total += x**2 + ((s >> 16) - 2**15) ** 2 < 2**30
    return {"hits": np.array([total], np.int32)}


def _functions(x, out, n):
    return {
        "out": np.stack(
            [
                2 * np.sin(x), np.exp(-x) + np.exp(x) - 1, (1 + 1 / np.log(2) + 1 / np.log(10)) * np.log(x + 4) + np.log(1 + x * x),
                2 * np.arctan(x) * 0.5 + np.angle(2 + 1j * x) + np.pi / 2, np.exp(x) + np.tanh(x),
                np.abs(x) ** 0.5 + np.sqrt(x * x + 1) + np.abs(x) ** 1.5, np.floor(x) + np.ceil(x) + np.abs(x) + np.sign(x), np.ones(n),
                np.sign(x) * (np.abs(x) - 0.7 * np.floor(np.abs(x) / 0.7)),
            ],
            axis=1,
        )
    }  # fmt: skip


def _options(rng: np.random.Generator):
    n = 100
    return {
        "spot": rng.uniform(5, 30, n).astype(np.float32), "strike": rng.uniform(5, 30, n).astype(np.float32),
        "years": rng.uniform(0.25, 10, n).astype(np.float32), "call": Empty((n,), np.float32), "put": Empty((n,), np.float32), "rate": 0.02,
        "volatility": 0.3, "n": n,
    }  # fmt: skip


def _priced(spot, strike, years, rate, volatility, **_):
    s, k, t = (a.astype(np.float64) for a in (spot, strike, years))
    d = (np.log(s / k) + (rate - volatility**2 / 2) * t) / (volatility * np.sqrt(t))
    call = s * scipy.special.ndtr(d + volatility * np.sqrt(t)) - k * np.exp(-rate * t) * scipy.special.ndtr(d)
    return {"call": call.astype(np.float32), "put": (call - s + k * np.exp(-rate * t)).astype(np.float32)}


SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-45, -3e38], np.float32)
NEAR = {"exact": False, "rtol": 1e-5, "atol": 1e-5, "reason": "the reference works in f64"}

CASES = (
    Case(
        "mandelbrot", mandelbrot, (5, 3), (8, 8),
        # A grid of multiples of 1/16, and few turns: the boundary is not where roundings would tell.
        lambda rng: {"out": Empty((20, 35), np.int32), "x0": -1.5, "y0": -0.6875, "step": 0.0625, "limit": 20}, _escape, notes="divergent while",
    ),
    Case("particles_step", move_particles, 2, 64, _particles, _moved, **NEAR, notes="gravity, damping, bounces"),
    Case("n_body", n_body, 3, 32, _bodies, _forces, exact=False, rtol=1e-4, atol=1e-3, reason="close pairs cancel"),
    Case("n_body_tiled", n_body_tiled, 3, BODIES, _bodies, _forces, exact=False, rtol=1e-4, atol=1e-3, reason="close pairs cancel"),
    Case(
        "simpson_strips", simpson, 1, 32, lambda rng: {"out": Empty((20,), np.float64), "low": -2.0, "width": 0.2, "pieces": 16},
        lambda out, low, width, pieces: {"out": np.diff(scipy.special.erf(low + width * np.arange(21))) * math.sqrt(math.pi) / 2},
        exact=False, rtol=1e-7, atol=1e-9, reason="the rule's own error",
    ),
    Case(
        "monte_carlo_darts", throw_darts, 3, 32, lambda rng: {"hits": np.zeros(1, np.int32), "seed": int(rng.integers(2**32)), "each": 25}, _darts,
        notes="a linear congruential generator: products of u32 wrap; a sum of squares just below 2**31",
    ),
    Case(
        "newton_square_roots", newton_roots, 2, 32,
        lambda rng: {"x": rng.uniform(1e-3, 1e3, 50), "out": Empty((50,), np.float64), "turns": Empty((50,), np.int32), "n": 50},
        lambda x, out, turns, n: {"out": np.sqrt(x), "turns": np.ones(50, np.int32)}, exact=False, rtol=1e-14, atol=0.0,
        reason="it stops where a step no longer changes much",
    ),
    Case(
        "functions_f64", functions, 2, 32, lambda rng: {"x": rng.uniform(-3, 3, 50), "out": Empty((50, 9), np.float64), "n": 50}, _functions,
        exact=False, rtol=1e-11, atol=1e-12, reason="the reference uses other formulas",
    ),
    Case(
        "special_values", special_values, 1, 32, lambda rng: {"x": SPECIAL.copy(), "out": Empty((9,), np.uint8), "n": 9},
        lambda x, out, n: {"out": np.array([4, 4, 0, 0, 2, 3, 1, 0, 0], np.uint8)}, notes="NaN, infinities, the smallest subnormal",
    ),
    Case(
        "kahan_sums", kahan, 1, 32,
        lambda rng: {"x": rng.random((20, 2000), dtype=np.float32) * 10000, "out": Empty((20,), np.float32), "columns": 2000},
        lambda x, out, columns: {"out": x.sum(axis=1, dtype=np.float64).astype(np.float32)}, exact=False, rtol=1.5e-7, atol=0.0,
        reason="the last bit; an uncompensated sum is off by more",
    ),
    Case("black_scholes", black_scholes, 2, 64, _options, _priced, exact=False, rtol=1e-4, atol=1e-4, reason="differences of f32"),
)  # fmt: skip

PROGRAMS = (
    Program("particles", _particles, _moves, _moved_on, exact=False, rtol=1e-4, atol=1e-4, reason="roundings of f32 add up over the steps"),
)  # fmt: skip
