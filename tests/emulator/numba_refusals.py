"""Programs for Numba CUDA that `test_numba_language` runs: what is refused, in which words, and early reads by NumPy."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import cuda, njit, prange
from numba.core.errors import TypingError
from numba.cuda.cudadrv import nvvm
from numba.extending import overload, register_jitable
from scipy.special import erf  # of NumPy's kind, with the name of one of Python's functions

from windtunnel import errors
from windtunnel.core.errors import MissingSync
from windtunnel.emulate import session

warnings.simplefilter("ignore")
FINDINGS = session.current.open().findings


@cuda.jit
def fill(a):
    a[cuda.grid(1)] = 7


@cuda.jit
def fill_half(a):
    i = cuda.grid(1)
    if i < a.size // 2:
        a[i] = 7


@njit
def first(a):
    return a[0]


READS: tuple[Callable[[Any], Any], ...] = (
    lambda m: m.item(3), lambda m: m.flat[3], lambda m: list(m.flat), lambda m: m[[1, 2]], lambda m: m.take([1]),
    lambda m: m.tofile("/dev/null"), lambda m: pickle.dumps(m), lambda m: np.save(io.BytesIO(), m),
    lambda m: np.copyto(np.empty(8), m), lambda m: np.dot(m, m), lambda m: np.einsum("i,i", m, m),
    lambda m: np.linalg.norm(m), lambda m: np.concatenate([m, m]), lambda m: np.stack([m, m]), lambda m: np.where(m),
    lambda m: np.fft.fft(m), lambda m: np.interp(1, m, m), lambda m: np.histogram(m, 4), lambda m: np.ravel(m[::2]),
    lambda m: np.sort(m), lambda m: m.argsort(), lambda m: np.concatenate([[1.0], m[2:]]),
    lambda m: np.where([True] * 8, 1, m), lambda m: m.reshape(2, 4).T.reshape(8),
)  # fmt: skip
VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda m: m.T, lambda m: np.shape(m), lambda m: np.ndim(m), np.size, lambda m: np.reshape(m, (2, 4)), np.ravel,
    lambda m: np.expand_dims(m, 0), np.atleast_2d, lambda m: np.split(m, 2), np.empty_like, np.zeros_like, np.real,
    lambda m: np.broadcast_to(m, (3, 8)), lambda m: np.broadcast_arrays(m, np.zeros((3, 1))), np.iscomplexobj,
    lambda m: np.may_share_memory(m, m), np.result_type, np.flip, lambda m: np.moveaxis(m, 0, -1), np.squeeze,
    lambda m: m.ctypes.data, lambda m: m[...], lambda m: m.reshape(2, 4), lambda m: m[4:].take([0, 1]),
    lambda m: m.item(6), lambda m: m[[5, 6]], lambda m: np.sum(m[4:]), lambda m: np.dot(m[4:], m[4:]),
)  # fmt: skip


def raised(call: Callable[[], Any], kind: type[BaseException]) -> str:
    try:
        call()
    except kind as error:
        FINDINGS.clear()
        return str(error)
    return ""


def program_early_reads_by_functions_and_methods_of_numpy_are_found() -> None:
    for make in (cuda.mapped_array, cuda.managed_array):
        m = make(8)
        m[:] = 0
        for number, read in enumerate(READS):
            fill[1, 8](m)
            said = raised(partial(read, m), MissingSync)
            assert "the host reads the 64 bytes" in said and "numba_refusals.py:" in said, (number, said)
            cuda.synchronize()
            assert raised(partial(read, m), MissingSync) == "", number
        for number, view in enumerate(VIEWS):
            fill_half[1, 8](m)
            assert raised(partial(view, m), MissingSync) == "", number
            cuda.synchronize()


def program_an_array_without_dimensions_is_read_as_any_other() -> None:
    m = cuda.managed_array(())
    m[()] = 3

    @cuda.jit
    def put(a):
        a[()] = 7

    for read in (lambda: m[()], lambda: m.item(), lambda: float(m)):
        put[1, 1](m)
        assert "the host reads the 8 bytes" in raised(read, MissingSync)
        cuda.synchronize()
        assert read() == 7


def program_an_early_read_by_a_compiled_function_is_reported_and_raised_at_the_next_wait() -> None:
    m = cuda.managed_array(8)
    m[:] = 0
    for _ in range(2):
        fill[1, 8](m)
        assert first(m) == 7  # Numba passes over errors of attributes
        line = program_an_early_read_by_a_compiled_function_is_reported_and_raised_at_the_next_wait.__code__
        assert len(FINDINGS) == 1 and f"numba_refusals.py:{line.co_firstlineno + 5}: " in str(FINDINGS[0])
        assert "the host reads the 64 bytes" in raised(cuda.synchronize, MissingSync)
        cuda.synchronize()
        assert first(m) == 7 and not FINDINGS


def program_writes_by_functions_of_numpy_are_found_and_no_reads() -> None:
    m = cuda.mapped_array(8)
    m[:] = 0
    writes = (
        lambda: np.copyto(m, np.ones(8)), lambda: np.put(m, [1], 5), lambda: np.fill_diagonal(m.reshape(2, 4), 3),
        lambda: np.dot(np.eye(8), np.full(8, 2.0), out=m), lambda: setattr(m, "flat", 4),
    )  # fmt: skip
    out = cuda.to_device(np.zeros(8))

    @cuda.jit
    def copy(a, b):
        b[cuda.grid(1)] = a[cuda.grid(1)]

    for number, write in enumerate(writes):
        copy[1, 8](m, out)
        said = raised(write, MissingSync)
        assert "the host writes through the view" in said and "host()" not in said, (number, said)
        cuda.synchronize()
        assert raised(write, MissingSync) == ""
    assert type(np.reshape(m, (2, 4))) is type(m) and cuda.is_cuda_array(np.reshape(m, (2, 4)))


def plain(x):
    return x + 1


class Namesake:
    """A function with the name of one of Python's that is none of Python's."""

    @staticmethod
    def prange(x):
        return x


namesake = Namesake.prange
device, compiled, jitable = cuda.jit(device=True)(plain), njit(plain), register_jitable(lambda x: x + 1)


def chosen(x):
    return x


@overload(chosen)
def _(x):
    return lambda x: x + 1


def program_functions_of_other_kinds_are_refused_in_numba_s_words() -> None:
    def calls_plain(a):
        a[0] = plain(1)

    def calls_namesake(a):
        a[0] = namesake(1)

    def calls_ufunc(a):
        a[0] = erf(0.5)

    def shows(a):
        print(f"x = {a[0]}")

    def asserts(a):
        assert a[0] == 0, f"x = {a[0]}"

    def measures(a):
        a[0] = len(text[0])

    def interpolates(a):
        a[0] = np.interp(1.0, a, a)

    def adds(a):
        a[:] = a + 1

    def launches(a):
        fill[1, 1](a)

    text = np.array(["ab"])
    for function, words in (
        (calls_plain, "Untyped global name 'plain': Cannot determine Numba type of <class 'function'>"),
        (calls_plain, "@cuda.jit(device=True) before 'plain'"), (calls_namesake, "name 'namesake': Cannot determine"),
        (calls_ufunc, "Untyped global name 'erf', a ufunc"), (shows, "the f-string f'x = {a[0]}'"),
        (asserts, "the f-string"), (measures, "text"), (interpolates, "'np.interp' of an array"),
        (adds, "'+' of an array"), (launches, "kernels cannot launch kernels"),
    ):  # fmt: skip
        said = raised(lambda function=function: cuda.jit(function)[1, 1](np.zeros(1)), TypingError)
        assert words in said, (function.__name__, said)


def program_functions_that_numba_takes_are_called() -> None:
    @cuda.jit
    def calls(a):
        def inner(x):
            return x + 1

        a[0] = device(1)
        a[1] = compiled(1)
        a[2] = jitable(1)
        a[3] = chosen(1)
        a[4] = inner(1)
        a[5] = (lambda x: x + 1)(1)
        for _ in prange(2):
            a[6] += 1
        assert a[6] == 2, "a" + "b"
        print(f"text", "te" + "xt")  # noqa: F541

    a = np.zeros(7)
    calls[1, 1](a)
    assert a.tolist() == [2] * 7, a
    assert cuda.reduce(lambda x, y: x + y)(a) == 14


def program_options_names_and_arrays_that_kernels_do_not_have_are_named() -> None:
    def one(a):
        a[0] = 1

    said = raised(lambda: cuda.jit("void(float64[:])", fastmth=True)(one), TypeError)
    assert "unexpected keyword argument 'fastmth'; did you mean 'fastmath'?" in said, said
    assert "argument 'bogus'" in raised(lambda: cuda.jit(bogus=True)(one)[1, 1](np.zeros(1)), TypeError)
    kernel = cuda.jit(max_registers=32, fastmath=True, lto=False, opt=True, cache=True, inline="never")(one)
    kernel[1, 1](np.zeros(1))
    cuda.jit(device=True, bogus=True)(plain)  # which numba-cuda takes
    said = raised(lambda: kernel[1, 1](a=np.zeros(1)), TypeError)
    assert said == "_LaunchConfiguration.__call__() got an unexpected keyword argument 'a'", said
    said = raised(lambda: kernel[1, 1](np.array([object()])), TypingError)
    assert "Unsupported array dtype: object, of argument 'a' of one" in said, said
    driver = cuda.cudadrv.driver
    for owner, name in ((driver.driver, "cuMemAlloc"), (driver, "cuMemAlloc"), (nvvm, "NVVM")):
        said = raised(lambda owner=owner, name=name: getattr(owner, name), AttributeError)
        assert said.endswith(f".{name} is not part of Windtunnel's numba.cuda"), said


def program_a_use_of_freed_memory_says_so_first() -> None:
    memory = cuda.current_context().memalloc(64)
    array = cuda.cudadrv.devicearray.DeviceNDArray((8,), (8,), np.float64, gpu_data=memory)
    memory.free()
    for use, code in ((lambda: fill[1, 1](array), "INVALID_VALUE"), (array.copy_to_host, "[1] Call to cuMemcpyDtoH")):
        said = raised(use, errors.UseAfterFree)
        assert said.partition(": ")[2].startswith("the buffer was freed") and code in said, said


if __name__ == "__main__":
    for name, program in list(globals().items()):
        if name.startswith("program_"):
            program()
            print(name)
    assert not FINDINGS
