"""Functions of libdevice, and values that an H200 was measured to give; `numba_language.py` runs them."""

import linecache
import math
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda import libdevice


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
    assert single[7].tobytes() == a.tobytes() and np.array_equal(
        single[8], np.float32(np.float16(narrow)), equal_nan=True
    )
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


# Measured on an NVIDIA H200 with numba-cuda 0.30.4 (reports/validation/h200-sxm-141gb/2026-11-26/numba).
MEASURED = (
    ("int32(f)", {"f": np.inf}, 2147483647), ("int64(f)", {"f": np.nan}, -(2**63)), ("uint32(f)", {"f": -2.5}, 0),
    ("uint16(f)", {"f": np.nan}, 32768), ("int32(float16(f))", {"f": 3.7}, 4), ("int64(float16(f))", {"f": -2.5}, -2),
    ("f // g", {"f": 0.0, "g": np.inf}, np.nan), ("f % g", {"f": np.finfo(float).max, "g": 7.0}, -9.9792015476736e291),
    ("uint8(n) % 0.1", {"n": 1}, -5.551115123125783e-17), ("uint8(n) // 0.1", {"n": 1}, 10.0),
    ("n ** m", {"n": 0, "m": -1}, -(2**63)), ("(-3) ** n", {"n": 64}, 8733086111712066817),
    ("n ** m", {"n": 2, "m": 2**31 - 1}, 2**63 - 1), ("f ** 0.5", {"f": -np.inf}, np.inf),
    ("math.pow(f, int16(n))", {"f": 3.7, "n": 64}, 2.316916275270901e36),
    ("round(f, 0)", {"f": np.finfo(float).max}, 9.223372036854776e18), ("round(n, 1)", {"n": 2**63 - 1}, 9.223372036854776e17),
    ("math.degrees(float32(f))", {"f": 1.0}, 57.295780181884766), ("len(range(n, 3, m))", {"n": 12, "m": -2}, 5),
    ("f * f + f", {"f": -0.9291141325165878}, -0.06586106127453632),
    ("bool(n) < uint64(m)", {"n": 0, "m": -1}, True), ("cuda.fp16.hne(float16(f), float16(g))", {"f": 0, "g": np.nan}, False),
    ("libdevice.j0(f)", {"f": np.inf}, 0.0), ("libdevice.fdim(f, g)", {"f": np.inf, "g": np.inf}, 0.0),
    ("libdevice.ilogb(f)", {"f": np.finfo(float).max}, 1023), ("libdevice.float2half_rn(f)", {"f": np.nan}, 0x7FFF),
    ("libdevice.fast_sinf(f)", {"f": 3.0891917e10}, 0.0), ("libdevice.fast_exp10f(f)", {"f": -7.5}, 3.1622807483699944e-08),
    ("libdevice.fast_powf(f, g)", {"f": 0.0, "g": 0.0}, np.nan),
    ("(complex(f, g) / complex(f, g)).imag", {"f": 2.0, "g": -3.0}, 2.5620531337503614e-17),
    ("abs(complex(f, f) ** complex(f, g))", {"f": 0.0, "g": 1.0}, 0.0),
    # What Numba computes in Python raises there, and ends the thread before it assigns.
    ("(complex(f, f) / complex(f, f)).real", {"f": 0.0}, -1.0), ("n ** m", {"n": 1, "m": -(2**63)}, -1.0),
)  # fmt: skip


def program_values_of_an_h200() -> None:
    calls = "\n".join(
        f"@cuda.jit\ndef k{at}(f, g, n, m, out):\n    out[0] = {text}\n" for at, (text, _, _) in enumerate(MEASURED)
    )
    names: dict[str, Any] = {"cuda": cuda, "math": math, "libdevice": libdevice, "float16": np.float16}
    names |= {
        kind: getattr(types, kind)
        for kind in ("float32", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    }
    linecache.cache["<measured>"] = (len(calls), None, calls.splitlines(True), "<measured>")
    exec(compile(calls, "<measured>", "exec"), names)
    for at, (text, given, wanted) in enumerate(MEASURED):
        out = np.full(1, -1, np.int64 if isinstance(wanted, int) and wanted is not True else np.float64)
        row = {"f": 0.0, "g": 0.0, "n": 0, "m": 0} | given
        names[f"k{at}"][1, 1](float(row["f"]), float(row["g"]), row["n"], row["m"], out)
        assert np.array_equal(out, np.array([wanted], out.dtype), equal_nan=out.dtype == float), (text, out[0], wanted)

    @cuda.jit
    def lanes(out, x):
        i = cuda.threadIdx.x
        out[0, i] = cuda.shfl_xor_sync(0xFFFFFFFF, i, 33)
        out[1, i] = cuda.match_any_sync(0xFFFFFFFF, x[i % 3])

    out = np.zeros((2, 32), np.int64)
    lanes[1, 32](out, np.array([0.0, -0.0, np.nan]))
    assert out[0, 0] == 1 and list(out[1, :3] % 2**32) == [sum(1 << i for i in range(k, 32, 3)) for k in range(3)]
    frozen = np.zeros((2, 32), np.int64)
    frozen.flags.writeable = False
    for grid, argument, wanted in (
        (0, out, "ValueError"),
        (1, frozen, "KernelTypingError"),
        ((1, 1 << 17), out, "CUDAError"),
    ):
        try:
            lanes[grid, 32](argument, np.zeros(3))
        except Exception as error:  # noqa: BLE001  its class is compared
            assert type(error).__name__ == wanted, error
        else:
            raise AssertionError(wanted)
