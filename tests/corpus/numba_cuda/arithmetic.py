"""Numba CUDA programs: the types and values of arithmetic. Each ``program_`` returns the arrays that it computed."""

import math

import numpy as np
from numba import cuda, float32, float64, int8, int32, int64, uint8, uint32, uint64


@cuda.jit
def literals_kernel(out):
    i = cuda.grid(1)
    big = 2147483647 + 1  # int64, no overflow
    out[0, i] = big
    out[1, i] = 3000000000 + i
    out[2, i] = (1 << 40) + i
    out[3, i] = -(1 << 62) + i


def program_int64_literals():
    out = np.zeros((4, 4), np.int64)
    literals_kernel[1, 4](out)
    return {"out": out}


@cuda.jit
def products_of_indices_kernel(out):
    i = cuda.grid(1)
    out[i, 0] = cuda.threadIdx.x * 1000003 * 1000003  # an int32 times int64 literals
    out[i, 1] = cuda.blockDim.x * cuda.blockDim.x * cuda.blockDim.x * cuda.blockDim.x * cuda.blockDim.x
    out[i, 2] = cuda.grid(1) * 3000000000
    out[i, 3] = cuda.gridsize(1) * 3000000000


def program_products_of_indices():
    out = np.zeros((256, 4), np.int64)
    products_of_indices_kernel[2, 128](out)
    return {"out": out}


@cuda.jit
def narrow_kernel(a, b, sums, products, differences, shifts):
    i = cuda.grid(1)
    if i < a.size:
        sums[i] = a[i] + b[i]
        products[i] = a[i] * b[i]
        differences[i] = a[i] - b[i]
        shifts[i] = a[i] << 3


def narrow(dtype):
    limits = np.iinfo(dtype)
    a = np.array([limits.max, limits.min, limits.max, 100, 7, 1], dtype)
    b = np.array([limits.max, limits.max, 1, 100, 3, 2], dtype)
    outs = [np.zeros(a.size, np.int64) for _ in range(4)]
    narrow_kernel[1, 32](a, b, *outs)
    return dict(zip(("sums", "products", "differences", "shifts"), outs, strict=True))


def program_promotion_of_int8():
    return narrow(np.int8)


def program_promotion_of_uint8():
    return narrow(np.uint8)


def program_promotion_of_int16():
    return narrow(np.int16)


def program_promotion_of_uint16():
    return narrow(np.uint16)


def program_promotion_of_int32():
    return narrow(np.int32)


def program_promotion_of_uint32():
    return narrow(np.uint32)


@cuda.jit
def narrow_in_place_kernel(a, b):
    i = cuda.grid(1)
    if i < a.size:
        a[i] = a[i] + b[i]  # computed in 64 bits, stored in 8


def program_narrow_results_wrap_when_stored():
    found = {}
    for dtype in (np.int8, np.uint8, np.int16, np.uint16):
        limits = np.iinfo(dtype)
        a = np.array([limits.max, limits.min, 100], dtype)
        b = np.array([1, limits.max, 100], dtype)
        narrow_in_place_kernel[1, 32](a, b)
        found[np.dtype(dtype).name] = a
    return found


@cuda.jit
def division_kernel(a, b, true, floor, rest):
    i = cuda.grid(1)
    if i < a.size:
        true[i] = a[i] / b[i]
        floor[i] = a[i] // b[i]
        rest[i] = a[i] % b[i]


def divided(dtype, pairs, whole):
    a, b = (np.array(side, dtype) for side in zip(*pairs, strict=True))
    true, floor, rest = np.zeros(a.size, np.float64), np.zeros(a.size, whole), np.zeros(a.size, whole)
    division_kernel[1, 32](a, b, true, floor, rest)
    return {"true": true, "floor": floor, "rest": rest}


PAIRS = [(7, 2), (-7, 2), (7, -2), (-7, -2), (1, 3), (0, 5), (6, 3), (-6, 3), (100, 7), (-100, 7)]


def program_division_of_int32():
    return divided(np.int32, PAIRS, np.int64)


def program_division_of_int64():
    return divided(np.int64, [*PAIRS, (2**62 + 1, 3), (-(2**62) - 1, 3)], np.int64)


def program_division_of_uint8():
    return divided(np.uint8, [(7, 2), (255, 254), (1, 3), (200, 7)], np.int64)


def program_division_of_float32():
    return divided(np.float32, [(7.5, 2), (-7.5, 2), (7.5, -2), (-7.5, -2), (0.1, 0.03), (1e10, 3)], np.float64)


def program_division_of_float64():
    return divided(np.float64, [(7.5, 2), (-7.5, 2), (7.5, -2), (-7.5, -2), (0.1, 0.03), (1e300, 3)], np.float64)


@cuda.jit
def zero_kernel(a, b, c, d, out, whole):
    out[0] = a[0] / b[0]
    out[1] = a[1] / b[0]
    out[2] = a[2] / b[0]
    out[3] = c[0] / d[0]
    whole[0] = c[0] // d[0]
    whole[1] = c[0] % d[0]


def program_division_by_zero_without_debug():
    a, b = np.array([1.0, -1.0, 0.0]), np.zeros(1)
    c, d = np.array([5]), np.array([0])
    out, whole = np.full(4, 77.0), np.full(2, 77)
    zero_kernel[1, 1](a, b, c, d, out, whole)
    return {"out": out}  # what `//` and `%` give is undefined


@cuda.jit
def mixed_kernel(f, d, i, u, l, k, out):
    out[0] = f[0] * i[0]  # float32 and int32
    out[1] = f[0] * f[0]  # float32
    out[2] = f[0] * 2.0  # with a literal
    out[3] = f[0] + d[0]
    out[4] = f[0] * k[0]  # float32 and int64
    out[5] = u[0] + l[0]  # uint64 and int64
    out[6] = i[0] / k[0]
    out[7] = f[0] / 3
    out[8] = 1 / f[0]
    out[9] = f[0] ** 2
    out[10] = f[0] + True


def program_mixed_types():
    f, d = np.array([0.1], np.float32), np.array([0.1])
    i, u = np.array([123456789], np.int32), np.array([2**63 + 3], np.uint64)
    l, k = np.array([5], np.int64), np.array([2**53 + 1], np.int64)
    out = np.zeros(11)
    mixed_kernel[1, 1](f, d, i, u, l, k, out)
    return {"out": out}


@cuda.jit
def casts_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = int(x[i])
        out[1, i] = int8(int64(x[i]))
        out[2, i] = uint8(int64(x[i]))
        out[3, i] = int32(x[i])
        out[4, i] = int64(float32(x[i]))
        out[5, i] = np.int16(int64(x[i]))
        out[6, i] = bool(x[i])
        out[7, i] = int64(uint32(int64(x[i])))


def program_casts():
    x = np.array([0.0, 1.5, -1.5, 2.5, 127.9, 128.0, 255.0, 256.0, -129.0, 40000.0, 1e9, 16777217.0])
    out = np.zeros((8, x.size), np.int64)
    casts_kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def stored_kernel(x, a8, u8, a32, f32, f16):
    i = cuda.grid(1)
    if i < x.size:
        a8[i] = int64(x[i])
        u8[i] = int64(x[i])
        a32[i] = x[i]  # a float stored in an array of integers is truncated
        f32[i] = x[i]
        f16[i] = x[i]


def program_stores_convert():
    x = np.array([0.0, 1.5, -1.5, 2.999, 100.1, 127.0, 3.14159265358979])
    outs = {
        "a8": np.zeros(x.size, np.int8), "u8": np.zeros(x.size, np.uint8), "a32": np.zeros(x.size, np.int32),
        "f32": np.zeros(x.size, np.float32), "f16": np.zeros(x.size, np.float16),
    }  # fmt: skip
    stored_kernel[1, 32](x, *outs.values())
    return outs


@cuda.jit
def rounding_kernel(x, out, digits, floors):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = round(x[i])
        digits[0, i] = round(x[i], 1)
        digits[1, i] = round(x[i], -1)
        digits[2, i] = round(x[i], 3)
        floors[0, i] = math.floor(x[i])
        floors[1, i] = math.ceil(x[i])
        floors[2, i] = math.trunc(x[i])
        floors[3, i] = int(math.fabs(x[i]))


def program_round_and_its_kin():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.675, 123.456, -123.456, 15.0, 25.0, 0.05, 1234.5678])
    out, digits = np.zeros(x.size, np.int64), np.zeros((3, x.size))
    floors = np.zeros((4, x.size), np.int64)
    rounding_kernel[1, 32](x, out, digits, floors)
    return {"out": out, "digits": digits, "floors": floors}


@cuda.jit
def powers_kernel(a, b, out, floats):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] ** 2
        out[1, i] = a[i] ** 3
        out[2, i] = a[i] ** b[i]
        floats[0, i] = a[i] ** 0.5
        floats[1, i] = float64(a[i]) ** -2
        floats[2, i] = math.pow(a[i], b[i])


def program_powers():
    a, b = np.array([1, 2, 3, 7, 10, 11], np.int32), np.array([0, 5, 3, 11, 9, 2], np.int32)
    out, floats = np.zeros((3, a.size), np.int64), np.zeros((3, a.size))
    powers_kernel[1, 32](a, b, out, floats)
    return {"out": out, "floats": floats}


@cuda.jit
def bits_kernel(a, u, out, unsigned):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = ~a[i]
        out[1, i] = a[i] >> 3
        out[2, i] = a[i] & 0xFF
        out[3, i] = a[i] | 0x100
        out[4, i] = a[i] ^ -1
        out[5, i] = -a[i]
        out[6, i] = not a[i]
        unsigned[0, i] = u[i] >> uint64(3)
        unsigned[1, i] = ~u[i]
        unsigned[2, i] = u[i] << uint64(5)
        unsigned[3, i] = u[i] + uint64(1)


def program_bits_of_signed_and_unsigned():
    a = np.array([0, 1, -1, 255, -256, 2**31 - 1, -(2**31)], np.int32)
    u = np.array([0, 1, 2**64 - 1, 255, 2**63, 2**32, 12345678901234567890], np.uint64)
    out, unsigned = np.zeros((7, a.size), np.int64), np.zeros((4, a.size), np.uint64)
    bits_kernel[1, 32](a, u, out, unsigned)
    return {"out": out, "unsigned": unsigned}


@cuda.jit
def bit_functions_kernel(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = cuda.popc(a[i])
        out[1, i] = cuda.clz(a[i])
        out[2, i] = cuda.ffs(a[i])
        out[3, i] = cuda.brev(a[i])
        out[4, i] = cuda.popc(b[i])
        out[5, i] = cuda.clz(b[i])
        out[6, i] = cuda.ffs(b[i])
        out[7, i] = cuda.selp(a[i] > uint32(9), 3, 5)


def program_popc_clz_ffs_brev_selp():
    a = np.array([0, 1, 2, 10, 2**31, 2**32 - 1], np.uint32)
    b = np.array([0, 1, 2**40, 2**63, 2**64 - 1, 6], np.uint64)
    out = np.zeros((8, a.size), np.int64)
    bit_functions_kernel[1, 32](a, b, out)
    return {"out": out}


@cuda.jit
def comparisons_kernel(a, u, f, out):
    out[0] = a[0] < u[0]  # int64 and uint64
    out[1] = a[0] == u[1]
    out[2] = f[0] == f[0]  # NaN
    out[3] = f[0] != f[0]
    out[4] = f[0] < 1.0
    out[5] = min(f[1], 2.0)
    out[6] = max(a[0], 3)
    out[7] = 1 < a[1] < 10
    out[8] = abs(a[0])
    out[9] = a[1] and 9
    out[10] = a[2] or 7
    out[11] = -1 if a[1] > 4 else -2
    out[12] = f[2] == 0.0  # -0.0


def program_comparisons_and_logic():
    a, u = np.array([-1, 5, 0], np.int64), np.array([1, 2**64 - 1], np.uint64)
    f, out = np.array([np.nan, 5.0, -0.0]), np.zeros(13)
    comparisons_kernel[1, 1](a, u, f, out)
    return {"out": out}


@cuda.jit
def overflow_kernel(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i] + b[i]
        out[i + a.size] = a[i] * b[i]


def program_int64_wraps():
    a = np.array([2**63 - 1, -(2**63), 3037000500, -1], np.int64)
    b = np.array([1, -1, 3037000500, -(2**63)], np.int64)
    out = np.zeros(8, np.int64)
    overflow_kernel[1, 32](a, b, out)
    return {"out": out}


@cuda.jit
def variable_kernel(out, n):
    total = 0  # int64, and float64 from the first addition of a float on
    for i in range(n):
        total += i * 0.5
    out[0] = total
    x = float32(0)
    for i in range(n):
        x += float32(0.1)
    out[1] = x
    y = 0.0
    for i in range(10, 0, -3):
        y = y * 10 + i
    out[2] = y


def program_a_variable_s_type_is_the_widest():
    out = np.zeros(3)
    variable_kernel[1, 1](out, 10)
    return {"out": out}


@cuda.jit
def scalars_kernel(i, f, b, c, out):
    out[0] = i * i
    out[1] = f * f
    out[2] = b
    out[3] = c.real * c.imag


def program_python_scalars_as_arguments():
    out, of_numpy = np.zeros(4), np.zeros(4)
    scalars_kernel[1, 1](3000000000, 0.1, True, 2 + 3j, out)
    scalars_kernel[1, 1](np.int32(70000), np.float32(0.1), np.bool_(False), np.complex64(2 - 3j), of_numpy)
    return {"out": out, "of_numpy": of_numpy}


@cuda.jit("void(int32[:], int32)")
def signed_kernel(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x * i


def program_a_signature_converts_arguments():
    out = np.zeros(4, np.int32)
    signed_kernel[1, 32](out, 7)
    wrapped = np.zeros(4, np.int32)
    signed_kernel[1, 32](wrapped, 2**32 + 3)
    return {"out": out, "wrapped": wrapped}


@cuda.jit(fastmath=True)
def fast_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = math.sin(x[i])
        out[1, i] = math.exp(x[i])
        out[2, i] = x[i] / float32(3)


def program_fastmath():
    x = np.linspace(0.1, 3, 16, dtype=np.float32)
    out = np.zeros((3, x.size), np.float32)
    fast_kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def fma_kernel(a, b, c, fused, plain):
    i = cuda.grid(1)
    if i < a.size:
        fused[i] = cuda.fma(a[i], b[i], c[i])
        plain[i] = a[i] * b[i] + c[i]


def program_fma_and_contraction():
    a = np.array([1 + 2.0**-30, 1 + 2.0**-40, 3.0])
    b = np.array([1 - 2.0**-30, 1 - 2.0**-40, 5.0])
    c = np.array([-1.0, -1.0, 7.0])
    fused, plain = np.zeros(3), np.zeros(3)
    fma_kernel[1, 32](a, b, c, fused, plain)
    return {"fused": fused, "plain": plain}


UNARY = (
    math.acos, math.asin, math.atan, math.acosh, math.asinh, math.atanh, math.cos, math.sin, math.tan, math.cosh,
    math.sinh, math.tanh, math.exp, math.expm1, math.log, math.log2, math.log10, math.log1p, math.sqrt, math.erf,
    math.erfc, math.gamma, math.lgamma, math.fabs, math.degrees, math.radians,
)  # fmt: skip


def unary(dtype):
    found = {}
    x = np.array([0.1, 0.25, 0.5, 0.75, 0.9], dtype)
    for function in UNARY:
        name = function.__name__
        shifted = x + dtype(1) if name == "acosh" else x

        @cuda.jit
        def captured(a, out):
            i = cuda.grid(1)
            if i < a.size:
                out[i] = function(a[i])  # noqa: B023  compiled at once

        out = np.zeros(x.size, dtype)
        captured[1, 32](shifted, out)
        found[name] = out
    return found


def program_math_functions_float32():
    return unary(np.float32)


def program_math_functions_float64():
    return unary(np.float64)


@cuda.jit
def binary_math_kernel(a, b, out, whole):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = math.atan2(a[i], b[i])
        out[1, i] = math.hypot(a[i], b[i])
        out[2, i] = math.copysign(a[i], -b[i])
        out[3, i] = math.fmod(a[i], b[i])
        out[4, i] = math.pow(a[i], b[i])
        out[5, i] = math.remainder(a[i], b[i])
        fraction, power = math.frexp(a[i])
        out[6, i] = fraction
        out[7, i] = math.ldexp(a[i], 3)
        part, rest = math.modf(a[i])
        out[8, i] = part
        out[9, i] = rest
        whole[0, i] = power
        whole[1, i] = math.isnan(a[i])
        whole[2, i] = math.isinf(a[i])
        whole[3, i] = math.isfinite(a[i])


def program_math_functions_of_two():
    a = np.array([1.5, 7.25, 0.1, 100.0, 3.0])
    b = np.array([2.0, 3.5, 0.7, 0.25, 3.0])
    out, whole = np.zeros((10, a.size)), np.zeros((4, a.size), np.int64)
    binary_math_kernel[1, 32](a, b, out, whole)
    return {"out": out, "whole": whole}


UFUNCS = (
    np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.sinh, np.cosh, np.tanh, np.log, np.log2, np.log10,
    np.degrees, np.radians, np.deg2rad,
)  # fmt: skip


def program_numpy_functions():
    x = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
    found = {}
    for function in UFUNCS:

        @cuda.jit
        def kernel(a, out):
            i = cuda.grid(1)
            if i < a.size:
                out[i] = function(a[i])  # noqa: B023  compiled at once

        out = np.zeros(x.size)
        kernel[1, 32](x, out)
        found[function.__name__] = out
    return found


@cuda.jit
def numpy_binary_kernel(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = np.minimum(a[i], b[i])
        out[1, i] = np.maximum(a[i], b[i])
        out[2, i] = np.hypot(a[i], b[i])
        out[3, i] = np.arctan2(a[i], b[i])
        out[4, i] = np.fmax(a[i], b[i])
        out[5, i] = np.pi * a[i]
        out[6, i] = np.isnan(a[i])
        out[7, i] = np.logical_and(a[i], b[i])


def program_numpy_functions_of_two():
    a, b = np.array([1.5, 2.5, 0.5, np.nan]), np.array([2.0, 1.0, 3.0, 1.0])
    out = np.zeros((8, 4))
    numpy_binary_kernel[1, 32](a, b, out)
    return {"out": out}
