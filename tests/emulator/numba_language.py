"""Kernels of Numba CUDA that `test_numba_language` runs in a process of its own, in which ``numba.cuda`` is emulated."""

import io
import math
import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor

import numba_arrays
import numba_libdevice
import numpy as np
from numba import cuda, types
from numba.cuda import bf16, float32, int32, vectorize
from numba.cuda.core import errors
from numba.cuda.extending import overload, overload_attribute, overload_method
from numba.cuda.np import numpy_support
from numba.cuda.types import bfloat16

warnings.simplefilter("ignore")


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


def program_python_computes_what_has_constants_alone() -> None:
    @cuda.jit
    def kernel(a):
        a[0] = 2**-1
        a[1] = 2**64 - 1
        a[2] = (1 << 63) + (10**-3 * 5)
        a[3] = 7.5 % 0.1
        a[4] = 1e16 // 0.3
        a[5] = ~-(3 - 8) + (1 << 100 >> 99) + True * 2

    a = np.zeros(6)
    kernel[1, 1](a)
    assert a.tolist() == [0.5, 2.0**64, 2.0**63, 7.5 % 0.1, 1e16 // 0.3, -2], a


def program_overloads_add_methods_and_attributes_to_types() -> None:
    @overload_method(types.Array, "scaled")
    def scaled(array, by=2):
        def first(array, by=2):
            return array[0] * by

        return first

    @overload_attribute(types.Array, "last")
    def last(array):
        return lambda array: array[-1] if array.ndim == 1 else 0

    @overload_attribute(types.Float, "halved")
    def halved(x):
        return lambda x: x / 2

    @cuda.jit
    def kernel(a, got):
        got[0] = a.scaled() + a[1:].scaled(by=10)
        got[1] = a.last
        got[2] = a[0].halved

    got = np.zeros(3)
    kernel[1, 1](np.array([3.0, 4.0, 5.0]), got)
    assert got.tolist() == [46, 5, 1.5]


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
    for name, program in {**globals(), **vars(numba_arrays), **vars(numba_libdevice)}.items():
        if name.startswith("program_"):
            program()

            @cuda.jit
            def told(x):
                print("done", (x, (2.5, x == 1)), cuda.threadIdx)

            told[1, 1](1)
