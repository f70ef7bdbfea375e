"""The kernels of the tests of transpiling: each one's arguments, and its numbers by NumPy."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

KERNELS = Path(__file__).resolve().parents[1] / "golden" / "transpile" / "kernels.py"


@cache
def kernels() -> ModuleType:
    found = importlib.util.spec_from_file_location("transpiled_kernels_source", KERNELS)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


def for_each(names: Iterable[str], check: Callable[[str], object]) -> None:
    """Apply a check to every kernel; the assertion names every kernel that fails, with its error."""
    failures = []
    count = 0
    for name in names:
        count += 1
        try:
            check(name)
        except (Exception, pytest.fail.Exception) as error:
            failures.append(f"{name}: {type(error).__name__}: {error}")
    assert count, "no kernel was checked"
    assert not failures, f"{len(failures)} of {count} kernels fail:\n" + "\n".join(failures)


@dataclass(frozen=True)
class Case:
    """A launch, and the numbers that the arrays must have after it."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Mapping[str, Any]
    expected: Mapping[str, np.ndarray]


def _f32(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _saxpy() -> Case:
    x, y, a = _f32(1, 1000), _f32(2, 1000), np.float32(1.7)
    return Case((16, 1, 1), (64, 1, 1), {"x": x, "y": y, "n": 1000, "a": a}, {"y": a * x + y})


def _strided() -> Case:
    x, scale = _f32(3, 1000), np.float32(0.3)
    made = np.fmax(x, np.float32(0)) * scale - np.fmin(x, np.float32(-1))
    return Case((3, 1, 1), (64, 1, 1), {"x": x, "out": np.zeros_like(x), "scale": scale}, {"out": made})


def _matmul() -> Case:
    a, b = _f32(4, 21, 19), _f32(5, 19, 26)
    c = np.zeros((21, 26), np.float32)
    made = c.copy()
    for k in range(19):
        made = made + a[:, k : k + 1] * b[k]
    return Case((4, 3, 1), (8, 8, 1), {"a": a, "b": b, "c": c}, {"c": made})


def _reduction() -> Case:
    x = np.random.default_rng(6).integers(-(2**31), 2**31, 1000).astype(np.int32)
    sums = np.zeros(1024, np.int64)
    sums[:1000] = x
    made = sums.reshape(16, 64).sum(1).astype(np.int32)  # modulo 2^32
    return Case((16, 1, 1), (64, 1, 1), {"x": x, "out": np.zeros(16, np.int32)}, {"out": made})


def _histogram() -> Case:
    values = np.random.default_rng(7).integers(-500, 500, 1000).astype(np.int32)
    start = {"bins": np.full(16, 5, np.uint32), "largest": np.array([-900], np.int32), "total": np.zeros(2, np.float32)}
    made = {
        "bins": np.bincount(values % 16, minlength=16).astype(np.uint32) + np.uint32(5),
        "largest": values.max(keepdims=True),
        # Whole numbers below 2^24: their sum is exact in any order.
        "total": np.array([values.sum(), values.max()], np.float32),
    }
    return Case((16, 1, 1), (64, 1, 1), {"values": values, **start}, made)


def _stencil() -> Case:
    field = _f32(8, 21, 30)
    made = field.copy()
    around = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:]
    inner = field[1:-1, 1:-1]
    made[1:-1, 1:-1] = inner + np.float32(0.1) * (around - np.float32(4) * inner)
    return Case((4, 3, 1), (8, 8, 1), {"field": field, "out": np.zeros_like(field)}, {"out": made})


def warp_sum(width: int) -> Case:
    """It depends on how many threads a warp has."""
    x = np.random.default_rng(9).integers(-9, 7, 256).astype(np.int32)
    rows = x.reshape(-1, width)
    index = np.arange(256, dtype=np.int32)
    sums = np.repeat(rows.sum(1), width) + (index ^ 1) - index
    bits = ((rows > 0).astype(np.uint64) << np.arange(width, dtype=np.uint64)).sum(1).astype(np.uint32)
    flags = np.repeat(np.where((rows > 5).any(1), bits, 0), width).astype(np.uint32)
    flags[::width] += 1
    given = {"x": x, "sums": np.zeros(256, np.int32), "flags": np.zeros(256, np.uint32)}
    return Case((4, 1, 1), (64, 1, 1), given, {"sums": sums.astype(np.int32), "flags": flags})


def _collatz() -> Case:
    x = np.random.default_rng(10).integers(-2, 5000, 500).astype(np.int32)
    made = []
    for n in x.tolist():
        count = 0 if n > 0 else -2
        while n > 1:
            if count == 200:
                count = -1
                break
            count, n = count + 1, n // 2 if n % 2 == 0 else 3 * n + 1
        made.append(count)
    return Case((8, 1, 1), (64, 1, 1), {"x": x, "steps": np.zeros_like(x)}, {"steps": np.array(made, np.int32)})


def _signed(n: int) -> int:
    return (n + 2**31) % 2**32 - 2**31


def _hashing() -> Case:
    x = np.random.default_rng(11).integers(-(2**31), 2**31, 100).astype(np.int32)
    x[:4] = [0, -1, -(2**31), 2**31 - 1]
    out, signed = [], []
    for i, n in enumerate(x.tolist()):
        h = n % 2**32 ^ 2166136261
        for turn in range(4):
            h = ((h ^ h >> 15) * 16777619 + (turn << 3)) % 2**32
        bits = h.bit_count() + (32 - h.bit_length()) + ((h & -h).bit_length())
        out.append(h ^ bits)
        s = _signed(n * 1103515245 + 12345)
        s = _signed(s - (s << 13) + (s >> (i & 31)) * -s)
        signed.append(_signed(abs(s) + (s >> i) + (s << i if i < 32 else 0) + n**3 - s**2))
    given = {"x": x, "out": np.zeros(100, np.uint32), "signed": np.zeros(100, np.int32)}
    return Case((2, 1, 1), (64, 1, 1), given, {"out": np.array(out, np.uint32), "signed": np.array(signed, np.int32)})


def _halves() -> Case:
    x = (_f32(12, 500) * 30).astype(np.float16)
    y = (_f32(13, 500) * 1000).astype(np.float16)
    x[:4], y[:4] = [0.0, -0.0, 65504, 6e-8], [65504, 6e-8, 65504, 6e-8]
    a, scale = np.float16(1.7), np.float32(0.3)
    with np.errstate(over="ignore", invalid="ignore"):
        z = a * x + y
        z = z / (abs(x) + np.float16(1)) - np.float16(scale * np.float32(0.1))
        more = np.sqrt(abs(y)) + z // np.float16(3)
        z = (z.astype(np.float32) * np.float32(a) + more.astype(np.float32)).astype(np.float16)
    made = np.fmax(np.fmin(z, np.float16(1000)), -x)
    return Case((8, 1, 1), (64, 1, 1), {"x": x, "y": y, "a": a, "scale": scale}, {"y": made})


def _floors() -> Case:
    random = np.random.default_rng(14)
    a, b = random.integers(-20, 20, 400).astype(np.int32), random.integers(-6, 6, 400).astype(np.int32)
    a[:5], b[:5] = [-(2**31), 2**31 - 1, -(2**31), -7, 7], [-1, -1, 2, 0, -2]
    x, y = (random.integers(-40, 40, 400) / 4).astype(np.float32), (random.integers(1, 13, 400) / 2).astype(np.float32)
    y[::2] *= -1
    index = np.arange(400, dtype=np.int32)
    with np.errstate(divide="ignore", over="ignore"):
        made = {
            "quotient": a // b + index % 64 // 4, "rest": a % b + index % 3, "fq": x // y, "fr": x % y,
        }  # fmt: skip
    empty = {name: np.zeros_like(value) for name, value in made.items()}
    return Case((7, 1, 1), (64, 1, 1), {"a": a, "b": b, "x": x, "y": y, **empty}, made)


def _scattered() -> Case:
    x, rounds = np.random.default_rng(15).random(200).astype(np.float32), 9
    one = np.float32
    made = []
    for i in range(len(x)):
        window = [x[(i + k) % len(x)] for k in range(4)]
        for k in range(min(rounds, 6), 0, -2):
            if x[i] > 0.5 and (window[k % 4] > 0.25 or k > 3):
                last, sign = window[k % 4], one(1)
            elif x[i] > 0.25:
                last, sign = x[i] * one(2), one(-1)
            else:
                last, sign = one(0), one(0.5)
            window[(k + 1) % 4] += last * sign
        total = one(0)
        for value in window:
            if value >= 0:
                total += value
        bits = int(x[i].view(np.uint32))
        kept = np.uint32((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).view(one)
        made.append(one(float(total) * 2.0 + float(kept)) + one(math.floor(total)))
    given = {"x": x, "out": np.zeros_like(x), "rounds": rounds}
    return Case((4, 1, 1), (64, 1, 1), given, {"out": np.array(made, one)})


def _wide() -> Case:
    random = np.random.default_rng(16)
    a, b = (random.integers(-(2**63), 2**63 - 1, 70, endpoint=True) for _ in range(2))
    bits = random.integers(0, 2**64, 70, dtype=np.uint64)
    bits[:2], b[:2] = [0, 1], [-(2**63), 0]
    x = random.standard_normal(70) * 9
    scale = 0.7
    words = [int(w) for w in bits]
    counted = np.bitwise_count(b.view(np.uint64)).astype(np.int64)
    with np.errstate(over="ignore"):
        first = a * np.int64(6364136223846793005) + np.int64(1442695040888963407) - b
        second = b // 7 + b % -5 + (b >> 3) + abs(b) + np.minimum(b, 5) + counted
    mixed = [
        (w << i) + int(f"{w:064b}"[::-1], 2) + 64 - w.bit_length() + (w & -w).bit_length() for i, w in enumerate(words)
    ]
    exact = np.array([float(Fraction(v) ** 2 - 1) for v in x])
    out = np.sqrt(abs(x)) * scale + x // 0.75 + 1e-300 + exact
    given = {"a": a, "b": b, "bits": bits, "x": x, "out": np.zeros(70), "place": 0, "scale": scale}
    made = {"a": first, "b": second, "bits": np.array([m % 2**64 for m in mixed], np.uint64), "out": out}
    return Case((2, 1, 1), (64, 1, 1), given, made)


class Memory(list[Any]):
    """An array, and atomic operations on it by one thread."""

    def do(self, op: str, at: int, value: Any, new: Any = None) -> Any:
        old = self[at]
        self[at] = {
            "add": lambda: old + value, "sub": lambda: old - value, "min": lambda: min(old, value),
            "max": lambda: max(old, value), "and": lambda: old & value, "or": lambda: old | value,
            "xor": lambda: old ^ value, "exch": lambda: value, "cas": lambda: new if old == value else old,
            "inc": lambda: 0 if old >= value else old + 1,
            "dec": lambda: value if old == 0 or old > value else old - 1,
        }[op]()  # fmt: skip
        return old


def _sum(memory: Memory, *done: tuple[Any, ...]) -> Any:
    return sum(memory.do(*one) for one in done)


def _wide_atomics() -> Case:
    a, b, x = Memory(range(11)), Memory(range(11)), Memory(float(n) for n in range(11))
    given = {"a": np.array(a, np.int64), "b": np.array(b, np.uint64), "x": np.array(x)}
    a[9] = _sum(a, ("add", 0, 7), ("sub", 1, 7), ("min", 2, -5), ("exch", 3, 9))
    a[10] = _sum(a, ("and", 4, 6), ("or", 5, 9), ("xor", 6, 5), ("cas", 7, 7, 70))
    b[9] = _sum(b, ("add", 0, 7), ("sub", 1, 7), ("min", 2, 1), ("max", 3, 9), ("cas", 4, 3, 1))
    x[9] = _sum(x, ("add", 0, 7.0), ("sub", 1, 7.0), ("min", 2, -5.0), ("max", 3, 9.0))
    x[10] = _sum(x, ("exch", 4, 1.5), ("cas", 5, 5.0, 70.0))
    b[1] %= 2**64
    made = {"a": np.array(a, np.int64), "b": np.array(b, np.uint64), "x": np.array(x)}
    return Case((1, 1, 1), (1, 1, 1), given, made)


def _atomics() -> Case:
    a, b, x = Memory(range(11)), Memory(range(11)), Memory(float(n) for n in range(11))
    here, there = Memory(range(4)), Memory(float(n) for n in range(4))
    given = {"a": np.array(a, np.int32), "b": np.array(b, np.uint32), "x": np.array(x, np.float32)}
    old = [
        _sum(a, ("add", 0, 7), ("sub", 1, 7), ("min", 2, -5), ("max", 3, 50)),
        _sum(a, ("and", 4, 6), ("or", 5, 9), ("xor", 6, 5), ("exch", 7, 9)),
        _sum(a, ("cas", 8, 8, 80), ("cas", 9, 8, 90)),
    ]
    b[9] = _sum(b, ("inc", 0, 7), ("inc", 1, 0), ("dec", 2, 9), ("dec", 3, 1), ("dec", 4, 9))
    x[9] = _sum(x, ("add", 0, 7.5), ("sub", 1, 7.5), ("min", 2, -5.0), ("max", 3, 50.0))
    x[8] = _sum(x, ("exch", 4, 1.5), ("cas", 5, 5.0, 70.0), ("cas", 6, 5.0, 70.0))
    old.append(_sum(here, ("add", 1, 5), ("cas", 2, 2, 9)) + here[1] + here[2])
    x[7] = _sum(there, ("add", 2, 2.5), ("max", 3, 9.0)) + there[2] + there[3]
    made = {
        "a": np.array(a, np.int32), "b": np.array(b, np.uint32), "x": np.array(x, np.float32),
        "old": np.array(old, np.int32),
    }  # fmt: skip
    return Case((1, 1, 1), (2, 1, 1), {**given, "old": np.zeros(4, np.int32)}, made)


def _narrow(flag: bool) -> Case:
    random = np.random.default_rng(17)
    a, b = random.integers(-128, 128, 300).astype(np.int8), random.integers(-(2**15), 2**15, 300).astype(np.int16)
    c, d = random.integers(0, 256, 300).astype(np.uint8), random.integers(0, 2**16, 300).astype(np.uint16)
    x, y, z, w = a * a, b * b + b, c + c, d * d - d
    flipped = np.array([int(f"{n:08b}"[::-1], 2) for n in z.tolist()], np.uint8)
    made = {
        "a": -x // np.int8(3) if flag else x % np.int8(7),
        "b": abs(y) + (y >> 2) + np.minimum(y, np.int16(100)),
        "c": ~z + (z << np.uint8(1)) + flipped,
        "d": w // np.uint16(7) + w % np.uint16(5) + np.maximum(w, np.uint16(9)),
    }
    zeros = np.array([8 - int(n).bit_length() for n in x.view(np.uint8)])
    ones, lowest = (
        np.bitwise_count(y.view(np.uint16)).astype(int),
        np.array([(int(n) & -int(n)).bit_length() for n in z]),
    )
    out = zeros + ones * 100 + lowest * 1000 + (w == made["d"]) + (not flag)
    given = {"a": a, "b": b, "c": c, "d": d, "flag": flag, "out": np.zeros(300, np.int32)}
    return Case((5, 1, 1), (64, 1, 1), given, {**made, "out": out.astype(np.int32)})


def _bfloats() -> Case:
    b = ml_dtypes.bfloat16
    x, y, a = (_f32(18, 500) * 9).astype(b), _f32(19, 500).astype(b), b(1.3)
    quotient = (x * a) / (abs(y) + b(0.7))
    made = (quotient.astype(np.float32) - np.float32(0.1)).astype(b)
    return Case((8, 1, 1), (64, 1, 1), {"x": x, "y": y, "a": a}, {"y": made})


def functions() -> Case:
    """Functions that only come near: by NumPy in f64."""
    x = _f32(20, 200)
    w = x.astype(np.float64)
    v = abs(w) + 0.5
    made = np.array([
        np.sqrt(v) + 1 / np.sqrt(v),
        np.exp(-v) + np.exp2(-v) + np.log(v) + np.log2(v) + np.log10(v),
        np.sin(v) + np.cos(v) + np.tan(v * 0.1) + np.arctan(v) + np.arctan2(v, 2.0),
        np.arcsin(v * 0.1) + np.arccos(v * 0.1) + np.sinh(v) + np.cosh(v) + np.tanh(v),
        np.floor(x) + np.ceil(x * np.float32(3)) + np.trunc(x * np.float32(9)) + abs(w),
        v**1.5 + v**2.5 + (v + 1.0) ** 2 + np.fmod(x, np.float32(0.3)) + np.copysign(v, w),
        np.full(200, 1 / 3),
    ])  # fmt: skip
    return Case((4, 1, 1), (64, 1, 1), {"x": x, "out": np.zeros((7, 200), np.float32)}, {"out": made})


def _awkward() -> Case:
    one = np.float32
    sampler, kernel, given_half, stop = np.random.default_rng(21).random(40).astype(one), 2, one(0.9), 12
    out = np.zeros(64, one)
    for i in range(64):
        half = given_half
        inside = i < 40
        switch = sampler[i] if inside else one(0)
        while inside and (sampler[i] if switch > 0.25 else one(0)) > 0.5:
            switch = switch * half
            if switch < one(0.1):
                break
            if switch < one(0.2) or (sampler[i - 1] if i > 0 else one(1)) > 0.5:
                continue
            switch = switch - one(0.01)
        value = switch if switch > 0 else half
        for turn in range(kernel, stop, 3):
            half = one(turn)
            value = value + half
            half = half + one(1)
        out[i] = value if half > 3 else value * one(2)
    arguments = {
        "out": np.zeros(64, one), "sampler": sampler, "kernel": kernel, "half": given_half, "out_shape0": stop,
    }  # fmt: skip
    return Case((1, 1, 1), (64, 1, 1), arguments, {"out": out})


def _smoothed() -> Case:
    x, one = _f32(30, 1000), np.float32
    made = np.full_like(x, -1)
    near = x[1:-3] + x[3:-1]
    made[2:-2] = one(0.5) * x[2:-2] + one(0.25) * near - one(0.0625) * (x[:-4] + x[4:])
    return Case((16, 1, 1), (64, 1, 1), {"x": x, "out": np.full_like(x, -1)}, {"out": made})


def _laplacian() -> Case:
    a = _f32(31, 21, 30)
    made = np.full_like(a, -1)
    around = a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2]
    made[1:-1, 1:-1] = around - np.float32(4) * a[1:-1, 1:-1]
    return Case((4, 3, 1), (8, 8, 1), {"a": a, "out": np.full_like(a, -1)}, {"out": made})


def _diffused() -> Case:
    heat, rate, out, dt = (
        _f32(32, 9, 13, 22),
        _f32(33, 9, 13, 22).astype(np.float16),
        _f32(34, 9, 13, 22),
        np.float32(0.3),
    )

    def near(z: int, y: int, x: int) -> np.ndarray:
        return heat[2 + z : 7 + z, 2 + y : 11 + y, 2 + x : 20 + x]

    here = near(0, 0, 0)
    around = near(-1, 0, 0) + near(1, 0, 0) + near(0, -1, 0) + near(0, 1, 0) + near(0, 0, -1) + near(0, 0, 1)
    flow = rate[2:-2, 2:-2, 2:-2].astype(np.float32) * (around - np.float32(6) * here)
    flow[::2] += np.float32(0.5) * (near(2, -1, 0) - near(2, 0, 0))[::2]
    made = out.copy()
    made[2:-2, 2:-2, 2:-2] += here + dt * flow
    return Case((3, 3, 3), (8, 4, 2), {"heat": heat, "rate": rate, "out": out, "dt": dt}, {"out": made})


def _diffused_untiled() -> Case:
    heat = _f32(35, 5, 6, 19)
    made = np.zeros_like(heat)
    made[1:-1, 1:-1, 1:-1] = (heat[2:, 1:-1, 1:-1] - heat[:-2, 1:-1, 1:-1]) + heat[2:, :-2, 2:]
    return Case((2, 2, 2), (16, 2, 2), {"heat": heat, "out": np.zeros_like(heat)}, {"out": made})


CASES: Mapping[str, Callable[[], Case]] = {
    "saxpy": _saxpy, "strided": _strided, "matmul": _matmul, "reduction": _reduction, "histogram": _histogram,
    "stencil": _stencil, "collatz": _collatz, "hashing": _hashing, "halves": _halves, "floors": _floors,
    "scattered": _scattered, "wide": _wide, "wide_atomics": _wide_atomics, "atomics": _atomics,
    "narrow": lambda: _narrow(True), "bfloats": _bfloats, "awkward": _awkward, "smoothed": _smoothed,
    "laplacian": _laplacian, "laplacian_untiled": _laplacian, "diffused": _diffused,
    "diffused_untiled": _diffused_untiled,
}  # fmt: skip
