"""Kernels of Numba CUDA that `test_numba_language` runs in a process of its own, in which ``numba.cuda`` is emulated."""

import io
import math
import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda import bf16, float32, float64, int32, vectorize
from numba.cuda.core import errors
from numba.cuda.extending import overload
from numba.cuda.np import numpy_support
from numba.cuda.types import bfloat16

warnings.simplefilter("ignore")
FACTOR = 3


def program_shapes_and_views() -> None:
    @cuda.jit
    def kernel(a, shape, got, bits, halves):
        i = cuda.grid(1)
        b = a.reshape(shape)
        shared = cuda.shared.array((2, 6), float64)
        flat = shared.reshape(12)
        flat[i] = a.ravel()[i]
        cuda.syncthreads()
        got[i] = b[i // b.shape[1], i % b.shape[1]] * 100 + shared[i // 6, i % 6]
        bits[i] = a.view(np.int64)[i // 4, i % 4]
        halves[i] = a.view(np.int32)[i // 4, 2 * (i % 4) + 1]

    a = np.arange(12, dtype=np.float64).reshape(3, 4) + 0.5
    got, bits, halves = np.zeros(12), np.zeros(12, np.int64), np.zeros(12, np.int32)
    kernel[1, 12](a, (-1, 6), got, bits, halves)
    assert (got == a.ravel() * 101).all()
    assert (bits == a.view(np.int64).ravel()).all()
    assert (halves == a.view(np.int32).ravel()[1::2]).all()


def program_libdevice() -> None:
    from numba.cuda import libdevice

    @cuda.jit
    def kernel(x, narrow, a, b, n, wild, whole, real, single):
        i = cuda.grid(1)
        whole[0, i] = libdevice.float_as_int(narrow[i])
        whole[1, i] = libdevice.double_as_longlong(x[i])
        whole[2, i] = libdevice.double2hiint(x[i])
        whole[3, i] = libdevice.double2loint(x[i])
        whole[4, i] = libdevice.mulhi(a[i], b[i])
        whole[5, i] = libdevice.umulhi(a[i], b[i])
        whole[6, i] = libdevice.mul64hi(n[i], a[i])
        whole[7, i] = libdevice.umul64hi(n[i], n[i])
        whole[8, i] = libdevice.umax(a[i], b[i])
        whole[9, i] = libdevice.ullmin(n[i], 5)
        whole[10, i] = libdevice.hadd(a[i], b[i])
        whole[11, i] = libdevice.urhadd(a[i], b[i])
        whole[12, i] = libdevice.usad(a[i], b[i], 7)
        whole[13, i] = libdevice.mul24(a[i], b[i])
        whole[14, i] = libdevice.umul24(a[i], b[i])
        whole[15, i] = libdevice.double2uint_rd(3e9 + i)
        whole[16, i] = libdevice.ilogb(x[i])
        whole[17, i] = libdevice.llround(x[i])
        whole[18, i] = libdevice.llrint(x[i])
        whole[19, i] = libdevice.double2int_rn(wild[i])
        whole[20, i] = libdevice.float2uint_rz(wild[i])
        whole[21, i] = libdevice.float2ll_rd(wild[i])
        real[0, i] = libdevice.hiloint2double(a[i], b[i])
        real[1, i] = libdevice.powi(x[i], i - 2)
        real[2, i] = libdevice.scalbn(x[i], -i)
        real[3, i] = libdevice.normcdfinv(0.1 + i / 10.0)
        real[4, i] = libdevice.sincospi(x[i])[1]
        real[5, i] = libdevice.longlong_as_double(n[i])
        real[6, i] = libdevice.j1(x[i])
        single[0, i] = libdevice.fmul_ru(narrow[i], 0.1)
        single[1, i] = libdevice.fdiv_rd(1.0, narrow[i])
        single[2, i] = libdevice.frcp_rz(narrow[i])
        single[3, i] = libdevice.int2float_rd(a[i])
        single[4, i] = libdevice.double2float_ru(x[i] + 0.1)
        single[5, i] = libdevice.saturatef(narrow[i])
        single[6, i] = libdevice.fsqrt_rn(libdevice.fma_rn(narrow[i], narrow[i], 1.0))
        single[7, i] = libdevice.int_as_float(a[i])
        single[8, i] = libdevice.half2float(libdevice.float2half_rn(narrow[i]))

    x = np.array([0.75, -2.5, 3.5, 1e-300])
    narrow, n = np.array([0.3, 7, -3, np.nan], np.float32), np.array([2**62 + 5, -3, 1 << 40, 7])
    a, b = np.array([-5, 2**31 - 1, 0x12345678, 100], np.int32), np.array([3, 2**31 - 3, -(2**31), -7], np.int32)
    whole, real, single = np.zeros((22, 4), np.int64), np.zeros((7, 4)), np.zeros((9, 4), np.float32)
    kernel[1, 4](x, narrow, a, b, n, np.array([1e20, np.nan, -5.5, 7.75]), whole, real, single)
    row, of = [int(one) for one in a], list(zip(map(int, a), map(int, b), strict=True))
    low, high, wide = 2**32 - 1, 2**64 - 1, [int(one) for one in n]

    def signed(value: int, bits: int = 32) -> int:
        return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)

    wanted = [
        narrow.view(np.int32).tolist(), x.view(np.int64).tolist(), x.view(np.int32)[1::2].tolist(),
        x.view(np.int32)[::2].tolist(), [p * q >> 32 for p, q in of], [signed((p & low) * (q & low) >> 32) for p, q in of],
        [m * p >> 64 for m, p in zip(wide, row, strict=True)], [signed((m & high) ** 2 >> 64, 64) for m in wide],
        [signed(max(p & low, q & low)) for p, q in of], [min(m & high, 5) for m in wide], [(p + q) >> 1 for p, q in of],
        [signed(((p & low) + (q & low) + 1) >> 1) for p, q in of],
        [signed(abs((p & low) - (q & low)) + 7) for p, q in of],
        [signed(signed(p, 24) * signed(q, 24)) for p, q in of],
        [signed((p & 0xFFFFFF) * (q & 0xFFFFFF)) for p, q in of], [signed(3 * 10**9 + i) for i in range(4)],
        [-1, 1, 1, -997], [1, -3, 4, 0], [1, -2, 4, 0],
        [2**31 - 1, -(2**31), -6, 8], [-1, 0, 0, 7], [2**63 - 1, -(2**63), -6, 7],
    ]  # fmt: skip
    assert whole.tolist() == wanted
    bits = [(p & low) << 32 | (q & low) for p, q in of]
    assert real[[0, 5]].tobytes() == np.array([bits, [m & high for m in wide]], np.uint64).tobytes()
    assert np.allclose(real[1], [x[0] ** -2, 1 / x[1], 1, x[3]], rtol=1e-15, atol=0)
    assert (real[2] == x / [1, 2, 4, 8]).all()
    assert np.allclose(real[3], [NormalDist().inv_cdf(0.1 + i / 10) for i in range(4)], rtol=1e-12)
    assert np.allclose(real[4], np.cos(np.pi * x), atol=1e-15)
    assert np.allclose(real[6, :3], [0.3492436023, -0.4970941025, 0.1373775274], rtol=1e-9)  # from tables
    third, tenth = np.float64(narrow), np.float64(np.float32(0.1))
    for got, exact, sign in (
        (single[0], third * tenth, 1), (single[1], 1 / third, -1), (single[2], 1 / third, 0), (single[3], a, -1),
        (single[4], x + 0.1, 1),
    ):  # fmt: skip
        exact, known = np.float64(exact), ~np.isnan(exact)
        error, step = (np.float64(got) - exact)[known], np.float64(np.spacing(np.abs(got)))[known]
        assert (np.abs(error) < step).all()
        assert ((error * sign >= 0) if sign else (error * exact[known] <= 0)).all()
    assert single[5].tolist() == [narrow[0], 1, 0, 0]
    assert single[7].tobytes() == a.tobytes() and single[8].tobytes() == np.float32(np.float16(narrow)).tobytes()
    assert np.allclose(single[6], np.sqrt(third**2 + 1), rtol=1e-7, equal_nan=True)


def program_libdevice_rounds_exactly_in_every_direction() -> None:
    from numba.cuda import libdevice

    exact_results = {
        "add": (2, lambda a, b: a + b), "sub": (2, lambda a, b: a - b), "mul": (2, lambda a, b: a * b),
        "div": (2, lambda a, b: a / b), "rcp": (1, lambda a: 1 / a), "sqrt": (1, None),
        "fma": (3, lambda a, b, c: a * b + c),
    }  # fmt: skip

    def launched(name: str, count: int, out: np.ndarray, *given: np.ndarray) -> np.ndarray:
        function = getattr(libdevice, name)

        @cuda.jit
        def one(out, a):
            out[cuda.grid(1)] = function(a[cuda.grid(1)])

        @cuda.jit
        def two(out, a, b):
            out[cuda.grid(1)] = function(a[cuda.grid(1)], b[cuda.grid(1)])

        @cuda.jit
        def three(out, a, b, c):
            out[cuda.grid(1)] = function(a[cuda.grid(1)], b[cuda.grid(1)], c[cuda.grid(1)])

        (one, two, three)[count - 1][1, len(out)](out, *given[:count])
        return out

    def check(found: float, compared: Any, way: str, kind: Any, name: str) -> None:
        """Check that a result is on the right side of the exact one, and its neighbour is not."""
        up = way == "ru" or (way == "rz" and compared(0.0) > 0)
        beyond = np.nextafter(kind(found), kind(-np.inf if up else np.inf))
        assert (compared(float(found)) >= 0) if up else (compared(float(found)) <= 0), (name, found)
        assert (compared(float(beyond)) < 0) if up else (compared(float(beyond)) > 0), (name, found)

    rng = np.random.default_rng(7)
    for kind, letter, stem, limits in ((np.float64, "d", "", 300), (np.float32, "f", "f", 30)):
        a, b, c = (rng.choice([0.1, 3, -7, 1 / 3, 1e-3], 40).astype(kind) for _ in range(3))
        a[:6], b[:6] = [10.0**limits, -(10.0**-limits), 1, -1, 5, 0.1], [10.0**limits, 10.0**-limits, 1e-9, 1, 7, 3]
        c[6:20] = -(a * b)[6:20]
        for op, (count, exact_of) in exact_results.items():
            for way in ("ru", "rd", "rz"):
                name = f"fma{stem}_{way}" if op == "fma" else f"{letter}{op}_{way}"
                if name.startswith("dsub"):
                    continue
                given = (np.abs(a),) if op == "sqrt" else (a, b, c)
                with np.errstate(all="ignore"):
                    found = launched(name, count, np.zeros(40, kind), *given)
                for i in range(40):
                    row = [Fraction(float(one[i])) for one in given[:count]]
                    exact = row[0] if exact_of is None else exact_of(*row)
                    if not exact:
                        assert found[i] == 0 and (op == "mul" or np.signbit(found[i]) == (way == "rd")), name
                        continue

                    def compared(x: float, exact: Fraction = exact, squared: bool = exact_of is None) -> int:
                        if np.isinf(x):
                            return 1 if x > 0 else -1
                        of = Fraction(x) * abs(Fraction(x)) if squared else Fraction(x)
                        return (of > exact) - (of < exact)

                    check(found[i], compared, way, kind, name)
    whole = np.array([2**63 - 1, -(2**63), 2**53 + 1, -(2**62) - 3, 7, 0], np.int64)
    for source, kind in (("ll", np.int64), ("ull", np.uint64)):
        for to, real in (("double", np.float64), ("float", np.float32)):
            for way in ("ru", "rd", "rz"):
                found = launched(f"{source}2{to}_{way}", 1, np.zeros(6, real), whole.view(kind))
                for value, exact in zip(found, map(int, whole.view(kind)), strict=True):
                    check(value, lambda x, e=exact: (x > e) - (x < e), way if exact else "", real, source)

    @cuda.jit
    def others(x, y, n, out, quotients):
        i = cuda.grid(1)
        out[0, i], quotients[0, i] = libdevice.remquo(x[i], y[i])
        out[1, i] = libdevice.erfcx(x[i])
        out[2, i] = libdevice.jn(n[i], x[i])
        out[3, i] = libdevice.yn(n[i], abs(x[i]))
        quotients[1, i] = libdevice.byte_perm(0x03020100, 0x07060504, 0x7531 + n[i])

    x, y, n = np.array([5.3, -29, 7.5, 1e10, 2.5]), np.array([2.0, 3, -1, 3, 1]), np.array([2, -1, 3, 5, 0], np.int32)
    out, quotients = np.zeros((4, 5)), np.zeros((2, 5), np.int32)
    others[1, 5](x, y, n, out, quotients)
    # What libdevice's own code gives on a processor: the quotient's low 3 bits.
    assert quotients[0].tolist() == [3, -2, 0, 5, 2] and out[0].tolist() == [np.remainder(5.3, 2) - 2, 1, -0.5, 1, 0.5]
    assert quotients[1].tolist() == [0x07050303, 0x07050300, 0x07050304, 0x07050306, 0x07050301]
    assert np.allclose(out[1, [0, 2, 4]], [math.exp(v * v) * math.erfc(v) for v in x[[0, 2, 4]]], rtol=1e-12, atol=0)
    turns = np.arange(64) * math.pi / 64  # Bessel's integral, whose sum over a period is exact
    integrals = [np.cos(k * turns * 2 - v * np.sin(turns * 2)).mean() for k, v in zip(n, x, strict=True)]
    assert np.isnan(out[2:, 1]).all() and np.allclose(out[2, [0, 2, 4]], np.array(integrals)[[0, 2, 4]], rtol=1e-12)
    assert math.isclose(out[3, 4], 0.4980703596152316)  # from tables


def program_a_variable_is_one_of_several_arrays() -> None:
    @cuda.jit
    def swapped(a, b, n):
        i = cuda.grid(1)
        src, dst = a, b
        for _ in range(n):
            dst[i] = src[i] * 2 + 1
            src, dst = dst, src

    @cuda.jit(device=True)
    def pick(first, x, y):
        if first:
            return x
        return y

    @cuda.jit
    def others(a, b, out, one, two, z):
        i = cuda.grid(1)
        out[0, i] = (a, b)[i % 2][i]
        chosen = a[2:] if i < 3 else b
        out[1, i] = chosen[0] + chosen.size
        out[2, i] = chosen[1:3].sum()
        for value in chosen:
            out[3, i] += value
        cuda.atomic.add(one if i % 3 == 0 else two, i % 2, i)
        w = z
        if i % 2:
            w = pick(i > 2, z, w)
        w[i] = w[i] * (1j if i else 2)

    @cuda.jit
    def summed(x, out):
        s1, s2 = cuda.shared.array(64, float64), cuda.shared.array(64, float64)
        t = cuda.threadIdx.x
        s1[t] = x[t]
        src, dst, step = s1, s2, 1
        while step < 64:
            cuda.syncthreads()
            dst[t] = src[t] + src[t - step] if t >= step else src[t]
            src, dst = dst, src
            step *= 2
        out[t] = src[t]

    a, b = np.arange(6.0), np.zeros(6)
    swapped[1, 6](a, b, 3)
    assert a.tolist() == [3 + 4 * i for i in range(6)] and b.tolist() == [7 + 8 * i for i in range(6)]
    i, a = np.arange(6), np.arange(6.0)
    out, one, two, z = np.zeros((4, 6)), np.zeros(2, np.int32), np.zeros(2, np.int32), np.arange(6) + 1j
    others[1, 6](a, a * 10, out, one, two, z)
    assert out.tolist() == [
        np.where(i % 2, 10 * a, a).tolist(), [6] * 6, [7] * 3 + [30] * 3, [14] * 3 + [150] * 3
    ]  # fmt: skip
    assert one.tolist() == [0, 3] and two.tolist() == [6, 6] and (z == (i + 1j) * np.where(i, 1j, 2)).all()
    summed[1, 64](x := np.arange(64.0), out := np.zeros(64))
    assert (out == x.cumsum()).all()


def program_arrays_are_unpacked_and_iterated_over() -> None:
    @cuda.jit
    def k(a, c, out, rgb, ints, z):
        i = cuda.grid(1)
        if i == 0:
            for x, y in np.ndindex(a.shape):
                out[0] += a[x, y] * (x + 10 * y)
            for x, y in np.ndindex(2, 3):
                out[1] += a[x, y]
            for ij, v in np.ndenumerate(a):
                out[2] += v * ij[0] + a[ij]
            for v in a.flat:
                out[3] += v
            for v in a.T.flat:
                out[10] = v
            out[4] = a.flat[5]
            out[5] = a.argmax() + 100 * a[1].argmin() + 1000 * np.argmax(a[:, 1])
            r, g, b = rgb[i + 1]
            out[6] = r * 100 + g * 10 + b
            (p, q), s = rgb[0, :2], rgb[0, 2]
            out[7] = p + q + s
            a2 = a[:, None, 1]
            out[8] = a2[2, 0] + a2.shape[1]
            for (n,), v in np.ndenumerate(ints):
                ints[n] = v + n
            for d1, d2 in zip(ints, rgb[0]):  # noqa: B905  kernels have no such argument
                out[9] += d1 * d2
            z[0] = c.sum()
            z[1] = c.mean()
            z[2] = c.prod()
            out[11] = ints.argmax()

    a = np.arange(12.0).reshape(3, 4)
    a[1, 2] = 50
    out = np.zeros(12)
    rgb = np.arange(9).reshape(3, 3) + 1
    ints = np.arange(5)
    c = np.arange(1, 5) + 1j
    z = np.zeros(3, complex)
    k[1, 1](a, c, out, rgb, ints, z)
    w = np.zeros(12)
    w[0] = sum(a[x, y] * (x + 10 * y) for x, y in np.ndindex(a.shape))
    w[1] = a[:2, :3].sum()
    w[2] = (a.sum(1) * np.arange(3)).sum() + a.sum()
    w[3] = a.sum()
    w[4] = 5
    w[5] = 6 + 0 + 2000
    w[6] = 456
    w[7] = 6
    w[8] = a[2, 1] + 1
    assert (ints == 2 * np.arange(5)).all()
    w[9] = (ints[:3] * rgb[0]).sum()
    w[10] = 11
    w[11] = 4
    assert (out == w).all(), (out, w)
    assert np.allclose(z, [c.sum(), c.mean(), c.prod()])


def program_memory_is_seen_as_another_type() -> None:
    from numba import complex64

    @cuda.jit
    def views(c, f, out, zs, d2):
        i = cuda.grid(1)
        v = c.view(np.float64)
        out[0, i] = v[2 * i] + 10 * v[2 * i + 1]
        out[1, i] = c[i].real + v.size + c.real[i] * 0 + c.imag[i]
        z = f.view(np.complex128)
        zs[i] = z[i] * 1j
        z2 = d2.view(np.complex64)
        out[2, i] = z2[1, i].imag + z2.shape[1]
        v[2 * i] = i
        c[i] *= 2
        sh = cuda.shared.array((2, 4), complex64)
        w = sh.view(np.float32)
        w[1, 2 * i] = i
        w[1, 2 * i + 1] = -i
        out[3, i] = sh[1, i].real - sh[1, i].imag
        flat = sh.reshape(8)
        out[4, i] = flat[4 + i].real

    @cuda.jit
    def complex_reshape(c, out):
        i = cuda.grid(1)
        out[i] = c.reshape(2, 2)[i // 2, i % 2] + c.ravel()[i]
        c.reshape(4)[i] = 1j

    @cuda.jit
    def float_max(x, m, n):
        i = cuda.grid(1)
        cuda.atomic.max(m.view(np.int32), 0, x.view(np.int32)[i])
        cuda.atomic.add(n.view(np.int32), 1, 5)
        if i == 0:
            m[1] = x[0] + 0.5

    @cuda.jit
    def unsigned(a, out):
        i = cuda.grid(1)
        out[i] = cuda.atomic.add(a.view(np.uint32), 0, 3)

    @cuda.jit
    def both_words(a):
        cuda.atomic.add(a.view(np.int32), 0, 1)
        cuda.atomic.add(a.view(np.int32), 1, 2)

    c = np.arange(4) + 1j * np.arange(4)[::-1]
    f = np.arange(8.0)
    out = np.zeros((5, 4))
    zs = np.zeros(4, complex)
    d2 = np.arange(16, dtype=np.float32).reshape(2, 8)
    views[1, 4](c, f, out, zs, d2)
    C = np.arange(4) + 1j * np.arange(4)[::-1]
    assert (out[0] == C.real + 10 * C.imag).all()
    assert (out[1] == C.real + 8 + C.imag).all(), out[1]
    assert (zs == f.view(complex) * 1j).all()
    assert (out[2] == d2.view(np.complex64)[1].imag + 4).all()
    assert (c == 2 * (np.arange(4) + 1j * C.imag)).all()
    assert (out[3] == 2 * np.arange(4)).all() and (out[4] == np.arange(4)).all()
    c = np.arange(4) + 0.5j
    o = np.zeros(4, complex)
    complex_reshape[1, 4](c, o)
    assert (o == 2 * (np.arange(4) + 0.5j)).all() and (c == 1j).all()
    x = np.array([3, 1, 7.5, 2], np.float32)
    m = np.zeros(2, np.float32)
    n = np.zeros(2, np.float32)
    float_max[1, 4](x, m, n)
    assert m[0] == 7.5 and m[1] == 3.5 and n.view(np.int32)[1] == 20
    a = np.array([-7], np.int32)
    o = np.zeros(4, np.uint32)
    unsigned[1, 4](a, o)
    assert a[0] == 5 and set(o) == {np.uint32(-7 + 2**32 + 3 * k & 0xFFFFFFFF) for k in range(4)}
    b = np.zeros(2, np.int64)
    both_words[1, 4](b)
    assert b[0] == 4 + (8 << 32)


def program_match_global_and_views_of_other_shapes() -> None:
    @cuda.jit
    def k(a, op, d2, b):
        global FACTOR  # noqa: PLW0602
        i = cuda.grid(1)
        match op[i]:
            case 0:
                a[i] = 1
            case 1 | 2 if i != 1:
                a[i] = 2 * FACTOR
            case 7:
                return
            case other:
                a[i] = other
        row = d2[i] if i < 2 else b
        a[i] += row[1]
        m = d2.T if i % 2 else d2
        a[i] += m[0, 1]

    a = np.zeros(5)
    d2 = np.array([[10.0, 20, 30], [40, 50, 60], [7, 8, 9]])
    b = np.array([0, 1000.0])
    k[1, 5](a, np.array([0, 1, 2, 5, 7]), d2, b)
    assert a.tolist() == [1 + 20 + 20, 1 + 50 + 40, 6 + 1000 + 20, 5 + 1000 + 40, 0], a


def program_a_variable_is_none_or_a_number() -> None:
    @cuda.jit
    def k(a, x):
        i = cuda.grid(1)
        y = None
        if x[i] > 0:
            y = x[i] * 2
        if y is not None:
            a[i] = y + 1
        else:
            a[i] = -1
        best = None
        for j in range(x.size):
            if x[j] > 2 and (best is None or x[j] < best):
                best = x[j]
        if best is None:
            a[i] = -5
        elif i == 0:
            a[i] = best
        z = 1.5 if i else None
        if z is None:
            a[i] += 100

    a = np.zeros(4)
    x = np.array([0, 5.0, 3, 1])
    k[1, 4](a, x)
    assert a.tolist() == [103, 11, 7, 3], a
    k[1, 4](a, x * 0)
    assert a.tolist() == [95, -5, -5, -5], a


def program_overloads_take_constants_and_functions_of_the_kernel() -> None:
    def chosen(number, function):
        raise NotImplementedError

    @overload(chosen)
    def choose(number, function):
        if isinstance(number, types.IntegerLiteral):
            return lambda number, function: function(number) + 0.5
        return lambda number, function: function(number)

    @cuda.jit
    def kernel(got, wide):
        def tenfold(x):
            return x * 10

        got[0] = chosen(4, tenfold)
        got[1] = chosen(got[2], tenfold)
        got[2] = np.count_nonzero(wide) + np.count_nonzero(0.0)

    got = np.array([0.0, 0.0, 7.0])
    kernel[1, 1](got, 2.5)
    assert got.tolist() == [40.5, 70, 1]


def in_a_forked_process() -> str:
    try:
        cuda.to_device(np.arange(3))
    except cuda.cudadrv.driver.CudaDriverError as error:
        return str(error)
    return "nothing was raised"


def program_processes() -> None:
    device = cuda.to_device(np.arange(3))
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(in_a_forked_process).result() == "CUDA initialized before forking"
    for handle in (device.get_ipc_handle, lambda: cuda.current_context().get_ipc_handle(device.gpu_data)):
        try:
            handle()
        except Exception as error:
            assert "get_ipc_handle" in str(error) and "one process" in str(error)
        else:
            raise AssertionError("a handle for other processes was made")


def program_types() -> None:
    @cuda.jit("void(float64[::1])")
    def kernel(a):
        tile = cuda.shared.array((2, 3), np.int16)
        tile[0, 0] = 3
        half = a[0] / 2
        a[0] = half + tile[0, 0]

    (compiled,) = kernel.overloads.values()
    found = compiled._type_annotation.typemap
    assert found["tile"] == types.Array(types.int16, 2, "C") and found["half"] == types.float64
    try:
        kernel[1, 1](np.array("2010", dtype="datetime64[10Y]"))
    except errors.TypingError as error:
        assert "Unsupported array dtype: datetime64[10Y]" in str(error)
    else:
        raise AssertionError("a date of no unit of Numba was passed")


def program_dynamic_memory_of_two_types() -> None:
    @cuda.jit
    def kernel(got):
        i = cuda.grid(1)
        words, bytes_ = cuda.shared.array(0, float32), cuda.shared.array(0, np.uint8)
        words[i] = i + 0.5
        cuda.syncthreads()
        got[i] = bytes_[4 * i + 3]

    got = np.zeros(8, np.int32)
    kernel[1, 8, 0, 32](got)
    assert (got == (np.arange(8) + 0.5).astype(np.float32).view(np.uint8)[3::4]).all()


def program_reductions() -> None:
    arrays = (np.array([1.0, -2.0, math.nan, 4.0]), np.array([math.inf, 3.0]), np.array([0.0, -0.0]))

    @cuda.jit
    def kernel(got):
        row = 0
        for a in cuda.literal_unroll(arrays):
            got[row, 0], got[row, 1], got[row, 2] = a.sum(), np.nanmax(a), np.mean(a)
            got[row, 3], got[row, 4], got[row, 5] = np.std(a), np.any(a), np.count_nonzero(a)
            row += 1  # noqa: SIM113  kernels have literal_unroll without enumerate

    got = np.zeros((3, 6))
    kernel[1, 1](got)
    with np.errstate(all="ignore"):
        wanted = [[a.sum(), np.nanmax(a), a.mean(), a.std(), a.any(), np.count_nonzero(a)] for a in arrays]
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


@cuda.jit(device=True)
def tree(depth, x):
    total = x * 0.5
    for k in range(3):
        if k == 1:
            continue
        if depth > 0:
            total += tree(depth - 1, x + k)
    return total


@cuda.jit(device=True)
def endless(n):
    return endless(n + 1)


def program_recursion() -> None:
    @cuda.jit
    def kernel(got, depth):
        got[cuda.grid(1)] = tree(depth, cuda.grid(1) + 0.0)

    def expected(depth, x):
        return x * 0.5 + sum(expected(depth - 1, x + k) for k in (0, 2) if depth > 0)

    got = np.zeros(5)
    kernel[1, 5](got, 4)
    assert (got == [expected(4, float(i)) for i in range(5)]).all()

    @cuda.jit
    def never(got):
        got[0] = endless(0)

    try:
        never[1, 1](got)
    except errors.TypingError as error:
        assert "runaway recursion" in str(error)
    else:
        raise AssertionError("a function that always calls itself was compiled")


def program_text_and_alignment() -> None:
    @cuda.jit
    def kernel(a, r):
        a[cuda.grid(1)] = "XYZ"
        r[cuda.grid(1)].name = b"AB"

    a, r = np.full(3, "longer", "<U8"), np.zeros(3, np.dtype([("x", np.int32), ("name", "S4")]))
    kernel[1, 2](a, r)
    assert list(a) == ["XYZ", "XYZ", "longer"] and list(r["name"]) == [b"AB", b"AB", b""]

    @cuda.jit
    def misaligned(r):
        r[0].b = 1

    try:
        misaligned[1, 1](np.zeros(1, np.dtype([("a", np.int32), ("b", np.float64)])))
    except errors.TypingError as error:
        assert "of type float64 is not aligned" in str(error)
    else:
        raise AssertionError("an unaligned field was written")


def program_arrays_of_the_device_from_outside() -> None:
    outside = cuda.to_device(np.arange(4.0))

    @cuda.jit
    def kernel():
        outside[cuda.grid(1)] *= 2

    kernel[1, 4]()
    kernel[1, 4]()
    assert (outside.copy_to_host() == np.arange(4.0) * 4).all()


def program_bfloat16() -> None:
    @cuda.jit
    def kernel(got, a):
        x, y = bfloat16(a[0]), bfloat16(float32(1.0078125))
        got[0], got[1], got[2] = float32(bf16.hadd(x, y)), float32(bf16.hmul_sat(x, y)), float32(math.sqrt(x))
        got[3] = float32(bf16.float32_to_bfloat16_rd(float32(-1.001)))
        got[4] = bf16.bfloat16_to_int32_ru(bfloat16(2.25))

    got = np.zeros(5, np.float32)
    kernel[1, 1](got, numpy_support.np.array([3.0], np.float32))
    assert list(got) == [4.0, 1.0, 1.734375, -1.0078125, 3.0], got


def program_variables_of_some_paths() -> None:
    @cuda.jit
    def kernel(got, n):
        for k in range(n):
            if k:  # noqa: SIM108  the branches assign on their own
                total = total + k  # noqa: F821  the first turn assigns it
            else:
                total = 10
        got[0] = total
        for k in range(2):
            k = got  # noqa: PLW2901  another type, which nothing reads
            k[1] = 7

    got = np.zeros(2, np.int64)
    kernel[1, 1](got, 4)
    assert list(got) == [16, 7]


@cuda.jit(device=True)
def bumped(a, i):
    a[i] += 1
    return a[i]


def program_order_of_evaluation() -> None:
    """An element is read before what the rest of the statement does to it."""

    def steps(a, got, bumped):
        a[1], a[2] = a[2], a[1]
        got[0] = a[0] + bumped(a, 0)
        t = (a[0], bumped(a, 0))
        got[1], got[2] = t[0], t[1]
        got[3] = a[0] < bumped(a, 0)
        a[0] += bumped(a, 0)
        got[4] = max(a[0], bumped(a, 0))
        a[bumped(a, 0) % 8] = bumped(a, 0)
        got[5] = (a[0], a[0] + 1)[bumped(a, 0) % 2]
        x = y = a[0]
        a[0] = 5
        got[6] = x + y
        got[7] = a[0] - (bumped(a, 0) if a[0] > 0 else 1)

    @cuda.jit
    def kernel(a, got):
        inner(a, got, bumped)

    inner = cuda.jit(device=True)(steps)
    a, got = np.arange(8) + 10, np.zeros(8, np.int64)
    wanted_a, wanted = a.tolist(), [0] * 8
    kernel[1, 1](a, got)
    steps(wanted_a, wanted, bumped.py_func)
    assert got.tolist() == wanted and a.tolist() == wanted_a, (got, wanted)


def program_slices_and_items_of_before() -> None:
    """A slice stays where it is when its index changes, and a loop over a tuple has the items of before."""

    def steps(a, got):
        k = 0
        row = a[2]
        while k < 3:
            row[0] += 1
            row = a[k]
            k += 1
        row[1] += 10
        part = a[0, 0:2]
        for j in range(4):
            part[1] += 7
            low = j
            part = a[low % 3, low : low + 2]
        part[0] -= 1
        for e in (a[1, 0], a[1, 1]):
            a[1, 1] = 50
            got[0] += e
        for q, e in enumerate((a[1, 1], a[1, 2])):
            a[1, 2] = 60
            got[1] += e * (q + 1)
        one, other = a[0], a[1]
        one, other = other, one
        one[0], other[0] = 77, 88

    @cuda.jit
    def kernel(a, got):
        inner(a, got)

    inner = cuda.jit(device=True)(steps)
    a, got = np.arange(20).reshape(4, 5), np.zeros(2, np.int64)
    wanted_a, wanted = a.copy(), got.copy()
    kernel[1, 1](a, got)
    steps(wanted_a, wanted)
    assert (a == wanted_a).all() and (got == wanted).all(), (a, got)


def program_one_name_in_several_loops() -> None:
    """What an earlier loop without turns left unassigned is read only if the program reads it."""

    @cuda.jit
    def kernel(rows, got):
        shared = cuda.shared.array(8, int32)
        t = cuda.threadIdx.x
        for k in range(t, 8, cuda.blockDim.x):
            shared[k] = k
        cuda.syncthreads()
        for r in range(rows):
            total = 0
            for k in range(4):
                total += shared[k] + r
            for k in range(t, 4):
                total += k
            got[t] += total
        for k in range(t, 8, cuda.blockDim.x):
            got[k] += 1

    got = np.zeros(16, np.int64)
    kernel[1, 16](2, got)
    assert list(got) == [2 * (6 + sum(range(t, 4))) + 4 + (t < 8) for t in range(16)]


def program_slices_with_any_step() -> None:
    @cuda.jit
    def kernel(a, got, step):
        part = a[::step]
        got[0], got[1], got[2] = part.size, part.sum(), a[6:1:step].sum()
        part[0] = 100

    for step in (1, 3, -1, -2):
        a, got = np.arange(8), np.zeros(3, np.int64)
        kernel[1, 1](a, got, step)
        b = np.arange(8)
        assert list(got) == [b[::step].size, b[::step].sum(), b[6:1:step].sum()]
        assert a[::step][0] == 100


def program_types_and_resources() -> None:
    @cuda.jit
    def kernel(a):
        total = 0.0
        for k in range(a.size):
            total += a[k]
        a[0] = total

    kernel[1, 1](np.ones(3))
    text = io.StringIO()
    kernel.inspect_types(text)
    assert "#   total :: float64" in text.getvalue() and "total += a[k]" in text.getvalue()
    (compiled,) = kernel.overloads.values()
    assert compiled.regs_per_thread == next(iter(kernel.get_regs_per_thread().values())) > 0
    assert (compiled.shared_mem_per_block, compiled.argument_types) == (0, kernel.signatures[0])
    assert cuda.runtime.get_version() >= (12, 0) and cuda.long2 is cuda.int64x2


def program_interface() -> None:
    @vectorize(["float64(float64)"])
    def doubled(x):
        return x * 2

    assert (doubled(np.arange(3.0)) == [0, 2, 4]).all()

    @cuda.jit("void(int32[::1], int32)")
    def kernel(a, n):
        a[cuda.grid(1)] += n

    again = pickle.loads(pickle.dumps(kernel))  # noqa: S301  made here
    a = np.arange(3, dtype=np.uint32)  # what the one signature says is not checked against the array's type
    again[1, 3](a, 2)
    assert list(a) == [2, 3, 4] and cuda.types.int32 is int32 is types.int32
    try:
        kernel[1, 3](a, 2.5)
    except TypeError as error:
        assert "2.5" in str(error)
    else:
        raise AssertionError("a float was passed for an integer")


if __name__ == "__main__":
    for name, program in list(globals().items()):
        if name.startswith("program_"):
            program()

            @cuda.jit
            def told(x):
                print("done", (x, (2.5, x == 1)), cuda.threadIdx)

            told[1, 1](1)
