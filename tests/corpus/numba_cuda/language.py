"""Numba CUDA programs: the parts of Python that kernels may use. Each ``program_`` returns the arrays that it computed."""

import math
from collections import namedtuple
from enum import IntEnum

import numpy as np
from numba import cuda, float32, float64, int32, int64, types

TABLE = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
WHOLE = np.arange(10, dtype=np.int32) ** 2
SCALE = 3
NAMES = (1, 10, 100)
Point = namedtuple("Point", ("x", "y"))


class Colour(IntEnum):
    RED = 1
    GREEN = 5


@cuda.jit
def captured_kernel(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = TABLE[i % 4] * SCALE + WHOLE[i]


def program_captured_global_arrays():
    out = np.zeros(10)
    captured_kernel[1, 32](out)
    return {"out": out}


@cuda.jit
def constant_kernel(out):
    i = cuda.grid(1)
    held = cuda.const.array_like(WHOLE)
    if i < out.size:
        out[i] = held[out.size - 1 - i]


def program_constant_array():
    out = np.zeros(10, np.int64)
    constant_kernel[1, 32](out)
    return {"out": out}


@cuda.jit(device=True)
def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


@cuda.jit(device=True)
def swapped(a, b):
    return b, a


@cuda.jit
def helpers_kernel(x, out, pairs):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = clamp(x[i], -1, 1)  # the types of two calls differ
        pairs[i, 0], pairs[i, 1] = swapped(x[i], i)
        pairs[i, 2] = clamp(i, 1, 2)


def program_device_functions():
    x = np.array([-3.0, -0.5, 0.25, 9.0])
    out, pairs = np.zeros(4), np.zeros((4, 3))
    helpers_kernel[1, 32](x, out, pairs)
    return {"out": out, "pairs": pairs}


@cuda.jit(device=True)
def square(x):
    return x * x


@cuda.jit(device=True)
def cube(x):
    return x * x * x


def made_with(function, dtype):
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        scratch = cuda.local.array(2, dtype)
        scratch[0] = function(x[i])
        scratch[1] = dtype(i)
        out[i] = scratch[0] + scratch[1]

    return kernel


def program_functions_and_types_from_a_closure():
    found = {}
    for function, dtype in ((square, float32), (cube, float64), (square, int32)):
        x, out = np.linspace(0.1, 2, 8), np.zeros(8)
        made_with(function, dtype)[1, 8](x, out)
        found[f"{function.py_func.__name__}_{dtype}"] = out
    return found


@cuda.jit(device=True)
def converted(x, kind):
    return kind(x)


@cuda.jit(device=True)
def applied(function, x):
    return function(x)


@cuda.jit
def higher_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[0, i] = converted(x[i], float32)
        out[1, i] = converted(x[i], int64)
        out[2, i] = applied(square, x[i])
        out[3, i] = applied(cube, x[i])


def program_types_and_functions_as_helper_arguments():
    x = np.array([0.1, 1.7, -2.9])
    out = np.zeros((4, 3))
    higher_kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def inner_kernel(x, out):
    def shifted(v):
        return v + 0.5

    call = shifted
    i = cuda.grid(1)
    if i < x.size:
        out[i] = call(x[i]) * shifted(2.0)


def program_inner_functions_and_calls_through_a_variable():
    x, out = np.arange(4.0), np.zeros(4)
    inner_kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def slices_kernel(a, out, sums):
    i = cuda.grid(1)
    if i < a.shape[0]:
        row = a[i]
        part = a[i, 1:4]
        every = a[i, ::2]
        back = a[i, ::-1]
        total = 0.0
        for v in row:
            total += v
        sums[i, 0] = total
        sums[i, 1] = part[0] + part[-1]
        sums[i, 2] = every.size
        sums[i, 3] = every[1]
        sums[i, 4] = back[0]
        sums[i, 5] = len(part)
        for k in range(part.size):
            out[i, k] = part[k] * 2
        part[0] = -1.0  # a view: it writes the array


def program_slices_of_arrays():
    a = np.arange(24.0).reshape(4, 6)
    out, sums = np.zeros((4, 6)), np.zeros((4, 6))
    slices_kernel[1, 4](a, out, sums)
    return {"a": a, "out": out, "sums": sums}


@cuda.jit
def filled_slice_kernel(out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i, 1:3] = 9
        out[i][3:] = i


def program_a_number_assigned_to_a_slice():
    out = np.zeros((3, 5))
    filled_slice_kernel[1, 4](out)
    return {"out": out}


@cuda.jit
def shared_slice_kernel(out):
    held = cuda.shared.array((4, 8), dtype=float32)
    t = cuda.threadIdx.x
    row = held[t // 8]
    row[t % 8] = t
    cuda.syncthreads()
    total = float32(0)
    for v in held[:, t % 8]:
        total += v
    out[t] = total


def program_slices_of_shared_arrays():
    out = np.zeros(32, np.float32)
    shared_slice_kernel[1, 32](out)
    return {"out": out}


@cuda.jit(device=True)
def largest_of(part):
    most = part[0]
    for k in range(1, part.size):
        most = max(most, part[k])
    return most


@cuda.jit
def slice_to_helper_kernel(a, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = largest_of(a[i, 1:])


def program_a_slice_as_a_helper_s_argument():
    a = (np.arange(20.0) * 7 % 11).reshape(4, 5)
    out = np.zeros(4)
    slice_to_helper_kernel[1, 32](a, out)
    return {"out": out}


@cuda.jit
def unrolled_kernel(out):
    i = cuda.grid(1)
    offsets = ((0, 1), (1, 0), (-1, 0))
    for dx, dy in offsets:
        out[i] += dx * 10 + dy
    index = i, 0
    out[index[0]] += index[1] + 1


def program_loops_over_tuples_and_tuples_as_indices():
    out = np.zeros(4, np.int64)
    unrolled_kernel[1, 4](out)
    return {"out": out}


@cuda.jit
def keyword_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = scaled_by(x[i], by=3) + scaled_by(x=x[i])


@cuda.jit(device=True)
def scaled_by(x, by=2):
    return x * by


def program_default_and_keyword_arguments_of_helpers():
    x, out = np.arange(4.0), np.zeros(4)
    keyword_kernel[1, 32](x, out)
    return {"out": out}


@cuda.jit
def assert_kernel(x, out):
    i = cuda.grid(1)
    assert x[i] >= 0, "negative"
    out[i] = x[i]


def program_an_assertion_that_holds():
    x, out = np.arange(4.0), np.zeros(4)
    assert_kernel[1, 4](x, out)
    return {"out": out}


@cuda.jit
def numpy_types_kernel(out):
    i = cuda.grid(1)
    a = np.int8(100)
    b = np.uint8(200)
    c = np.float32(0.1)
    out[i, 0] = a + a
    out[i, 1] = b + b
    out[i, 2] = c * c
    out[i, 3] = np.int32(2**31 - 1) + np.int32(1)
    out[i, 4] = np.int64(7) // np.int64(-2)
    out[i, 5] = np.float32(1) / np.float32(3)
    out[i, 6] = np.uint32(1) - np.uint32(2)


def program_numbers_of_numpy_s_types():
    out = np.zeros((1, 7))
    numpy_types_kernel[1, 1](out)
    return {"out": out}


@cuda.jit
def negative_kernel(a, out):
    out[0] = a[-1]
    out[1] = a[a.size - 2]
    out[2] = a[-a.size]


def program_negative_indices_wrap():
    a, out = np.arange(5.0), np.zeros(3)
    negative_kernel[1, 1](a, out)
    return {"out": out}


@cuda.jit
def tuples_kernel(t, p, out):
    x, y = t
    out[0] = x + y
    out[1] = t[1]
    out[2] = len(t)
    out[3] = p.x * p.y
    total = 0
    for v in NAMES:
        total = total * 2 + v
    out[4] = total
    kept = (x, y, 5)
    out[5] = kept[2] + kept[0]
    for v in (2, 3, 4):
        out[6] += v
    nested = ((1, 2), (3, 4))
    out[7] = nested[1][0]
    joined = t + (7.5,)
    out[8] = joined[2]


def program_tuples():
    out = np.zeros(9)
    tuples_kernel[1, 1]((3, 4.5), Point(2, 2.5), out)
    return {"out": out}


@cuda.jit
def arrays_in_tuples_kernel(arrays, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = arrays[0][i] + arrays[1][i]


def program_tuple_of_arrays_as_argument():
    out = np.zeros(4)
    arrays_in_tuples_kernel[1, 32]((np.arange(4.0), np.arange(4.0) * 10), out)
    return {"out": out}


@cuda.jit
def loops_kernel(out):
    n = 0
    for i in range(10):
        if i == 3:
            continue
        if i == 8:
            break
        n += i
    else:
        n = -1
    out[0] = n
    k = 0
    while True:
        k += 1
        if k > 20:
            break
    out[1] = k
    for i, v in enumerate((5, 6, 7)):
        out[2] += i * v
    for a, b in zip((1, 2, 3), (4, 5, 6)):
        out[3] += a * b
    for i in range(2, 20, 5):
        out[4] += i
    k = 0
    while k < 5:
        k += 2
    else:
        k = 100 + k
    out[5] = k


def program_loops():
    out = np.zeros(6, np.int64)
    loops_kernel[1, 1](out)
    return {"out": out}


@cuda.jit(device=True)
def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)


@cuda.jit
def recursion_kernel(out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = factorial(i)


def program_recursion():
    out = np.zeros(10, np.int64)
    recursion_kernel[1, 32](out)
    return {"out": out}


@cuda.jit
def enum_kernel(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = 10 if x[i] == Colour.GREEN else Colour.RED + 1


def program_enumerations():
    x, out = np.array([1, 5, 7]), np.zeros(3, np.int64)
    enum_kernel[1, 32](x, out)
    return {"out": out}


RECORD = np.dtype([("count", np.int32), ("weight", np.float64), ("flags", np.uint8)], align=True)
NESTED = np.dtype([("at", np.float32, (3,)), ("id", np.int64)], align=True)


@cuda.jit
def records_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        a[i].count += i
        a[i]["weight"] = a[i]["weight"] * 2
        one = a[i]
        one.flags = 7
        out[i] = one.count + one.weight


def program_records():
    a = np.zeros(5, RECORD)
    a["count"], a["weight"] = np.arange(5), np.arange(5) * 0.5
    out = np.zeros(5)
    records_kernel[1, 32](a, out)
    return {"a": a, "out": out}


@cuda.jit
def nested_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        for k in range(3):
            a[i].at[k] += k
        out[i] = a[i].at[0] + a[i].at[2] + a[i].id


def program_records_with_arrays():
    a = np.zeros(4, NESTED)
    a["at"], a["id"] = 0.5, np.arange(4) * 100
    out = np.zeros(4)
    nested_kernel[1, 32](a, out)
    return {"a": a, "out": out}


@cuda.jit
def one_record_kernel(r, out):
    out[0] = r.count
    out[1] = r.weight
    out[2] = r.flags


def program_a_record_as_argument():
    a = np.zeros(2, RECORD)
    a[1] = (3, 4.5, 200)
    out = np.zeros(3)
    one_record_kernel[1, 1](a[1], out)
    return {"out": out}


@cuda.jit
def complex_kernel(a, b, out, parts):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] * b[i]
        out[1, i] = a[i] / b[i]
        out[2, i] = a[i] + 2
        out[3, i] = complex(b[i].imag, 1.5)
        out[4, i] = a[i].conjugate()
        out[5, i] = -a[i]
        parts[0, i] = abs(a[i])
        parts[1, i] = a[i].real
        parts[2, i] = a[i] == b[i]


def program_complex_numbers():
    found = {}
    for dtype in (np.complex64, np.complex128):
        a = np.array([1 + 2j, -0.5 + 0.25j, 3j, 2], dtype)
        b = np.array([0.5 - 1j, 1 + 1j, 2 - 2j, 2], dtype)
        out, parts = np.zeros((6, 4), dtype), np.zeros((3, 4))
        complex_kernel[1, 32](a, b, out, parts)
        found |= {f"out_{np.dtype(dtype).name}": out, f"parts_{np.dtype(dtype).name}": parts}
    return found


@cuda.jit
def mandelbrot_kernel(counts, limit):
    y, x = cuda.grid(2)
    if y < counts.shape[0] and x < counts.shape[1]:
        c = complex(-2 + 3 * x / counts.shape[1], -1 + 2 * y / counts.shape[0])
        z = 0j
        n = 0
        while n < limit and z.real * z.real + z.imag * z.imag <= 4:
            z = z * z + c
            n += 1
        counts[y, x] = n


def program_mandelbrot():
    counts = np.zeros((16, 24), np.int32)
    mandelbrot_kernel[(2, 3), (8, 8)](counts, 50)
    return {"counts": counts}


@cuda.jit
def shapes_kernel(a, out):
    x, y, z = cuda.grid(3)
    sx, sy, sz = cuda.gridsize(3)
    if x < a.shape[0] and y < a.shape[1] and z < a.shape[2]:
        a[x, y, z] = x * 100 + y * 10 + z
    if x == 0 and y == 0 and z == 0:
        out[0], out[1], out[2] = sx, sy, sz
        out[3], out[4], out[5] = a.ndim, a.size, a.strides[0]
        out[6], out[7], out[8] = cuda.gridDim.x, cuda.gridDim.y, cuda.gridDim.z
        out[9], out[10], out[11] = cuda.blockDim.x, cuda.blockDim.y, cuda.blockDim.z
        out[12] = a.itemsize
        out[13] = cuda.warpsize


def program_three_dimensions():
    a, out = np.zeros((3, 4, 5), np.int32), np.zeros(14, np.int64)
    shapes_kernel[(2, 2, 3), (2, 2, 2)](a, out)
    return {"a": a, "out": out}


@cuda.jit
def strides_kernel(a, out):
    i, j = cuda.grid(2)
    if i < a.shape[0] and j < a.shape[1]:
        out[i, j] = a[i, j]


def program_fortran_order_and_strides():
    a = np.arange(12.0).reshape(3, 4)
    found = {}
    for name, given in (("fortran", np.asfortranarray(a)), ("transposed", a.T.copy().T), ("every", cuda.to_device(np.arange(48.0).reshape(6, 8))[::2, ::2])):  # fmt: skip
        out = np.zeros((3, 4))
        strides_kernel[(1, 1), (4, 4)](given, out)
        found[name] = out
    return found


@cuda.jit
def zero_dimensional_kernel(a, out):
    out[()] = a[()] * 2


def program_arrays_without_dimensions():
    out = np.zeros(())
    zero_dimensional_kernel[1, 1](np.array(4.5), out)
    return {"out": out}


@cuda.jit
def empty_kernel(a, out):
    out[0] = a.size
    for i in range(a.size):
        out[0] += 100


def program_an_empty_array():
    out = np.zeros(1, np.int64)
    empty_kernel[1, 1](np.zeros(0), out)
    return {"out": out}


@cuda.jit
def print_kernel(out):
    i = cuda.grid(1)
    if i == 0:
        print("thread", i, 1.5, True)
    out[i] = i


def program_print():
    out = np.zeros(2, np.int64)
    print_kernel[1, 2](out)
    cuda.synchronize()
    return {"out": out}


@cuda.jit
def datetime_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = a[i] - a[0]


def program_dates():
    a = np.array(["2020-01-01", "2020-02-01", "2021-01-01"], "datetime64[D]")
    out = np.zeros(3, "timedelta64[D]")
    datetime_kernel[1, 32](a, out)
    return {"days": out.astype(np.int64)}


@cuda.jit
def bool_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = not a[i]


def program_arrays_of_bool():
    a, out = np.array([True, False, True]), np.zeros(3, np.bool_)
    bool_kernel[1, 32](a, out)
    return {"out": out}


@cuda.jit
def half_kernel(a, b, out):
    i = cuda.grid(1)
    if i < a.size:
        out[0, i] = a[i] + b[i]
        out[1, i] = a[i] * b[i]
        out[2, i] = a[i] - b[i]
        out[3, i] = cuda.fp16.hfma(a[i], b[i], a[i])
        out[4, i] = cuda.fp16.hdiv(a[i], b[i])
        out[5, i] = -a[i]
        out[6, i] = cuda.fp16.hsqrt(abs(a[i]))


def program_float16():
    a = np.array([0.1, 1.5, 1000.0, -2.25], np.float16)
    b = np.array([0.3, 2.5, 100.0, 3.0], np.float16)
    out = np.zeros((7, 4), np.float16)
    half_kernel[1, 32](a, b, out)
    return {"out": out}


@cuda.jit(types.void(types.float64[:], types.float64[:]), device=False)
def eager_kernel(a, out):
    i = cuda.grid(1)
    if i < a.size:
        out[i] = math.sqrt(a[i])


def program_compiled_from_types():
    out = np.zeros(4)
    eager_kernel[1, 32](np.array([1.0, 2.0, 9.0, 16.0]), out)
    return {"out": out}
