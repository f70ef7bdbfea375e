"""Integers: Collatz, bits, primes, divisors, powers, quotients, casts and shifts."""

import math

import numpy as np
from tests.corpus.registry import Case, Empty

import windtunnel
from windtunnel import (
    brev,
    clz,
    f32,
    f64,
    ffs,
    grid,
    gridsize,
    i8,
    i16,
    i32,
    i64,
    popc,
    u8,
    u32,
)


@windtunnel.kernel
def collatz(steps: i32[:], n: i32):
    for i in range(grid(1), n, gridsize(1)):
        value = i64(i) + 1
        count = 0
        while value != 1:
            if value % 2 == 0:
                value //= 2
            else:
                value = 3 * value + 1
            count += 1
        steps[i] = count


@windtunnel.kernel
def count_bits(x: u32[:], out: i32[:, :], n: i32):
    i = grid(1)
    if i >= n:
        return
    v = x[i]
    kernighan = 0
    while v != 0:
        v &= v - 1
        kernighan += 1
    out[i, 0] = kernighan
    out[i, 1] = i32(popc(x[i]))
    out[i, 2] = i32(clz(x[i]))
    out[i, 3] = i32(ffs(x[i]))


@windtunnel.kernel
def bit_reversal(x: u32[:], by_hand: u32[:], by_name: u32[:], n: i32):
    i = grid(1)
    if i < n:
        v = x[i]
        v = ((v >> 1) & 0x55555555) | ((v & 0x55555555) << 1)
        v = ((v >> 2) & 0x33333333) | ((v & 0x33333333) << 2)
        v = ((v >> 4) & 0x0F0F0F0F) | ((v & 0x0F0F0F0F) << 4)
        v = ((v >> 8) & 0x00FF00FF) | ((v & 0x00FF00FF) << 8)
        by_hand[i] = (v >> 16) | (v << 16)
        by_name[i] = brev(x[i])


@windtunnel.kernel
def primes(flags: u8[:], n: i32):
    i = grid(1)
    if i >= n:
        return
    if i < 2:
        flags[i] = 0
        return
    d = 2
    while d * d <= i:
        if i % d == 0:
            flags[i] = 0
            return
        d += 1
    flags[i] = 1


def gcd_of(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@windtunnel.kernel
def gcds(a: i32[:], b: i32[:], out: i32[:], n: i32):
    i = grid(1)
    if i < n:
        out[i] = gcd_of(a[i], b[i])


def power_of(base, exponent, modulus):
    result = u32(1)
    base = base % modulus
    while exponent > 0:
        if exponent & 1 != 0:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


@windtunnel.kernel
def modular_powers(bases: u32[:], exponents: u32[:], out: u32[:], modulus: u32, n: i32):
    i = grid(1)
    if i < n:
        out[i] = power_of(bases[i], exponents[i], modulus)


@windtunnel.kernel
def divide_and_remain(a: i32[:], b: i32[:], quotients: i32[:], remainders: i32[:], ratios: f32[:], n: i32):
    i = grid(1)
    if i < n:
        quotients[i] = a[i] // b[i]
        remainders[i] = a[i] % b[i]
        ratios[i] = a[i] / b[i]


@windtunnel.kernel
def casts(x: f32[:], whole: i32[:], narrow: i8[:], short: i16[:], wide: f64[:], n: i32):
    i = grid(1)
    if i < n:
        whole[i] = int(x[i])
        narrow[i] = i8(i32(x[i]))
        short[i] = i16(i32(x[i]) * 300)
        wide[i] = f64(x[i]) / 3.0


@windtunnel.kernel
def shifts(x: i32[:], y: u32[:], signed: i32[:], unsigned: u32[:], n: i32):
    i = grid(1)
    if i < n:
        signed[i] = (x[i] >> (i % 32)) ^ (x[i] << 3)
        unsigned[i] = (y[i] >> u32(i % 32)) ^ ~y[i]


def _collatz(steps, n):
    known = {1: 0}
    for value in range(1, n + 1):
        chain = []
        while value not in known:
            chain.append(value)
            value = value // 2 if value % 2 == 0 else 3 * value + 1
        for back, member in enumerate(reversed(chain), 1):
            known[member] = known[value] + back
    return {"steps": np.array([known[i] for i in range(1, n + 1)], np.int32)}


def _bits(x, out, n):
    texts = [f"{int(v):032b}" for v in x]
    return {
        "out": np.array(
            [[t.count("1"), t.count("1"), (t + "1").index("1"), (t[::-1].find("1") + 1)] for t in texts], np.int32
        )
    }


def _reversed(x, **_):
    turned = np.array([int(f"{int(v):032b}"[::-1], 2) for v in x], np.uint32)
    return {"by_hand": turned, "by_name": turned}


def _sieve(flags, n):
    flags[2:] = 1
    for p in range(2, math.isqrt(n) + 1):
        flags[p * p :: p] = 0
    return {"flags": flags}


def _divided(a, b, n, **_):
    return {
        "quotients": np.floor_divide(a, b),
        "remainders": np.mod(a, b),
        "ratios": (a.astype(np.float64) / b).astype(np.float32),
    }


def _cast(x, n, **_):
    whole = np.trunc(x.astype(np.float64)).astype(np.int64)
    return {
        "whole": whole.astype(np.int32), "narrow": ((whole + 128) % 256 - 128).astype(np.int8),
        "short": ((whole * 300 + 2**15) % 2**16 - 2**15).astype(np.int16), "wide": x.astype(np.float64) / 3,
    }  # fmt: skip


def _shifted(x, y, n, **_):
    signed, unsigned = [], []
    for i, (a, b) in enumerate(zip(x.tolist(), y.tolist(), strict=True)):
        left = (a * 8 + 2**31) % 2**32 - 2**31
        signed.append(a // 2 ** (i % 32) ^ left)
        unsigned.append(b // 2 ** (i % 32) ^ (2**32 - 1 - b))
    return {"signed": np.array(signed, np.int32), "unsigned": np.array(unsigned, np.uint32)}


def _powers(bases, exponents, out, modulus, n):
    return {
        "out": np.array(
            [pow(b, e, modulus) for b, e in zip(bases.tolist(), exponents.tolist(), strict=True)], np.uint32
        )
    }


CASES = (
    Case("collatz", collatz, 2, 32, lambda rng: {"steps": Empty((300,), np.int32), "n": 300}, _collatz, notes="i64; trip counts from 0 to 127"),
    Case(
        "count_bits", count_bits, 2, 64,
        lambda rng: {
            "x": np.concatenate([[0, 1, 2**31, 2**32 - 1], rng.integers(0, 2**32, 90)]).astype(np.uint32), "out": Empty((94, 4), np.int32), "n": 94,
        },
        _bits, notes="clz of 0 is 32, ffs counts from 1 and of 0 is 0",
    ),
    Case(
        "bit_reversal", bit_reversal, 2, 64,
        lambda rng: {
            "x": rng.integers(0, 2**32, 90, dtype=np.uint32), "by_hand": Empty((90,), np.uint32), "by_name": Empty((90,), np.uint32), "n": 90,
        },
        _reversed,
    ),
    Case("primes", primes, 5, 64, lambda rng: {"flags": Empty((301,), np.uint8), "n": 301}, _sieve, notes="returns from within a loop"),
    Case(
        "greatest_common_divisors", gcds, 2, 64,
        lambda rng: {
            "a": rng.integers(0, 5000, 90, dtype=np.int32), "b": rng.integers(0, 5000, 90, dtype=np.int32), "out": Empty((90,), np.int32), "n": 90,
        },
        lambda a, b, out, n: {"out": np.gcd(a, b)}, notes="a helper with a loop and a tuple assignment",
    ),
    Case(
        "modular_powers", modular_powers, 2, 32,
        lambda rng: {
            "bases": rng.integers(0, 2**16, 50, dtype=np.uint32), "exponents": rng.integers(0, 2**31, 50, dtype=np.uint32),
            "out": Empty((50,), np.uint32), "modulus": 65521, "n": 50,
        },
        _powers, notes="a helper that assigns to its parameters",
    ),
    Case(
        "divide_and_remain", divide_and_remain, 2, 64,
        lambda rng: {
            "a": rng.integers(-500, 500, 100, dtype=np.int32), "b": rng.integers(1, 20, 100, dtype=np.int32) * np.where(rng.random(100) < 0.5, -1, 1).astype(np.int32),
            "quotients": Empty((100,), np.int32), "remainders": Empty((100,), np.int32), "ratios": Empty((100,), np.float32), "n": 100,
        },
        _divided, exact=False, rtol=2e-7, atol=0.0, reason="GPUs' division of f32 may be off by an ulp",
        notes="// and % of negative numbers are Python's; / of integers is a division of floats",
    ),
    Case(
        "casts", casts, 2, 64,
        lambda rng: {
            "x": rng.uniform(-1000, 1000, 100).astype(np.float32), "whole": Empty((100,), np.int32), "narrow": Empty((100,), np.int8),
            "short": Empty((100,), np.int16), "wide": Empty((100,), np.float64), "n": 100,
        },
        _cast, notes="int() cuts towards zero; narrower integers keep the low bits",
    ),
    Case(
        "shifts", shifts, 2, 64,
        lambda rng: {
            "x": rng.integers(-(2**31), 2**31, 100, dtype=np.int32), "y": rng.integers(0, 2**32, 100, dtype=np.uint32),
            "signed": Empty((100,), np.int32), "unsigned": Empty((100,), np.uint32), "n": 100,
        },
        _shifted, notes="arithmetic for i32, logical for u32",
    ),
)  # fmt: skip
