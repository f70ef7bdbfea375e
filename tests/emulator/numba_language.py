"""Kernels of Numba CUDA that `test_numba_language` runs in a process of its own, in which ``numba.cuda`` is emulated."""

import math
import pickle
import warnings

import numpy as np
from numba import cuda, types
from numba.cuda import bf16, float32, float64, int32, vectorize
from numba.cuda.core import errors
from numba.cuda.np import numpy_support
from numba.cuda.types import bfloat16

warnings.simplefilter("ignore")


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
