"""Programs for Numba CUDA that `test_numba_language` runs: what compilations keep, take and refuse, and records."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.core.errors import TypingError

from windtunnel.core.errors import Finding
from windtunnel.emulate import session

warnings.simplefilter("ignore")
FINDINGS = session.current.open().findings
NUMBER, PAIR, ARRAY, ROWS = 1, (1, 2), np.array([1.0, 2.0]), (np.ones(1),)


@cuda.jit(device=True)
def scaled(x):
    return NUMBER * x + ARRAY[0]


@cuda.jit
def reads_globals(got):
    got[0], got[1], got[2], got[3], got[4] = NUMBER, PAIR[0], ARRAY[0], ROWS[0][0], scaled(1)


def made() -> tuple:
    cell = 1

    @cuda.jit
    def reads_a_cell(got):
        got[0] = cell

    def set_cell(value):
        nonlocal cell
        cell = value

    return reads_a_cell, set_cell


def program_a_compilation_keeps_the_globals_arrays_and_cells_of_its_own_time() -> None:
    global NUMBER, PAIR
    reads_a_cell, set_cell = made()
    stated = cuda.jit("void(float32[::1])")(reads_globals.py_func)  # compiled here, and launched later
    first, cell = np.zeros(5), np.zeros(1)
    reads_globals[1, 1](first)
    reads_a_cell[1, 1](cell)
    NUMBER, PAIR, ARRAY[0], ROWS[0][0] = 4, (4, 5), 4, 4
    set_cell(4)
    again, of_float, of_int = np.zeros(5), np.zeros(5, np.float32), np.zeros(5, np.int32)
    for kernel, got in ((reads_globals, again), (stated, of_float), (reads_globals, of_int)):
        kernel[1, 1](got)
    cell_of_int = np.zeros(1, np.int32)
    reads_a_cell[1, 1](cell_of_int)
    # A device function is compiled once for the types of its arguments.
    assert first.tolist() == again.tolist() == of_float.tolist() == [1, 1, 1, 1, 2]
    assert of_int.tolist() == [4, 4, 4, 4, 2]
    assert (cell[0], cell_of_int[0]) == (1, 4)


def refused(call: Callable[[], Any]) -> str:
    """The message of the TypeError or the finding of a call; empty if there is none."""
    try:
        call()
    except (TypeError, TypingError, Finding) as error:
        FINDINGS.clear()
        return str(error)
    return ""


@cuda.jit("void(int64[:, ::1])")
def of_rows(a):
    a[0, 1] = 7


@cuda.jit("void(int64[::1, :], int64[:])")
def of_columns(a, b):
    a[0, 1] = b[1]


def program_arrays_that_do_not_lie_as_the_only_signature_says_are_refused() -> None:
    rows, columns = np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64, order="F")
    every_second = cuda.to_device(np.arange(8))[::2]
    of_rows[1, 1](rows)
    of_columns[1, 1](columns, every_second)
    of_columns[1, 1](np.zeros((2, 2), np.int64)[:1], every_second)  # one row lies in both orders
    assert (rows[0, 1], columns[0, 1]) == (7, 2)
    for call, words in (
        (lambda: of_rows[1, 1](columns), "argument 'a' of of_rows, array(int64, 2d, F), lies column after column"),
        (
            lambda: of_rows[1, 1](cuda.to_device(rows)[:, ::2]),
            "lies with gaps or in other steps (A), and the signature",
        ),
        (
            lambda: of_columns[1, 1](rows, every_second),
            "row after row (C), and the signature (array(int64, 2d, F), arr",
        ),
        (
            lambda: of_columns[1, 1](columns, rows),
            "argument 'b' of of_columns, array(int64, 2d, C), has another number",
        ),
    ):
        assert words in refused(call), refused(call)


PADDED = np.dtype([("small", np.int8), ("inner", [("one", np.float32), ("two", np.complex64)]), ("large", np.int64, 2)],
                  align=True)  # fmt: skip


@cuda.jit
def write_fields(r, n, large):
    i = cuda.grid(1)
    if i < n:
        r[i].small = 1
        r[i].inner.one = 2
        r[i].inner.two = 3
        if large:
            r[i].large[0] = 4
            r[i].large[1] = 5


@cuda.jit
def read_fields(r, got):
    i = cuda.grid(1)
    got[i] = r[i].small + r[i].inner.one + r[i].inner.two.real + r[i].large[1]


def program_fields_of_records_that_nothing_has_written_are_reported() -> None:
    records, got = cuda.device_array(4, PADDED), np.zeros(4)
    assert "of 'r.inner.two'" in refused(lambda: read_fields[1, 4](records, got))
    assert "copies 128 bytes, which nothing has written" in refused(records.copy_to_host)
    write_fields[1, 4](records, 4, False)
    assert "element (0, 1) of 'r.large'" in refused(lambda: read_fields[1, 4](records, got))
    write_fields[1, 4](records, 3, True)
    assert "thread 3 of block 0 reads element (3, 1) of 'r.large'" in refused(lambda: read_fields[1, 4](records, got))
    write_fields[1, 4](records, 4, True)
    read_fields[1, 4](records, got)
    assert got.tolist() == [11] * 4
    # The bytes between the fields, which no program writes, count as written with them.
    assert refused(records.copy_to_host) == ""
    for make in (cuda.mapped_array, cuda.managed_array):
        shared = make(4, dtype=PADDED)
        write_fields[1, 4](shared, 4, True)
        cuda.synchronize()
        assert shared["inner"]["one"].tolist() == [2] * 4


@cuda.jit
def add_one(a):
    a[cuda.grid(1)] += 1


def program_the_default_stream_of_a_thread_is_a_stream_of_its_own() -> None:
    own, other, d = cuda.per_thread_default_stream(), cuda.stream(), cuda.to_device(np.zeros(8))
    for stream in (own, 0, cuda.external_stream(2)):  # the legacy default stream waits for the others, and they for it
        add_one[1, 8, stream](d)
    assert "which kernel 'add_one' on stream" in refused(lambda: add_one[1, 8, other](d))
    cuda.synchronize()


def program_what_the_host_writes_while_a_copy_to_it_is_in_progress_is_reported() -> None:
    stream, d, host = cuda.stream(), cuda.to_device(np.zeros(8)), cuda.pinned_array(8)
    for _ in range(2):
        host[:] = 5
        for _ in range(2):
            add_one[1, 8, stream](d)
            d.copy_to_host(host, stream=stream)
        d.copy_to_device(host, stream=stream)
        stream.synchronize()  # the copies change the array themselves
    d.copy_to_host(host, stream=stream)
    host[0] = 77
    assert "to the host's array of 64 bytes, which copy out on stream" in refused(stream.synchronize)


class Settings:
    value = 3


SETTINGS, TABLE, LISTED = Settings(), {"x": 5}, [1, 2]


def program_objects_of_python_without_a_type_of_numba_are_refused() -> None:
    def of_class(a):
        a[0] = Settings.value

    def of_object(a):
        a[0] = SETTINGS.value

    def of_dict(a):
        a[0] = TABLE["x"]

    def of_list(a):
        a[0] = LISTED[1]

    def raises_from(a):
        if a[0] > 1:
            raise ValueError from None

    for function, words in (
        (of_class, "Untyped global name 'Settings': Cannot determine Numba type of <class 'type'>"),
        (of_object, "Untyped global name 'SETTINGS': Cannot determine Numba type of <class '__main__.Settings'>"),
        (of_dict, "Untyped global name 'TABLE': Cannot determine Numba type of <class 'dict'>"),
        (of_list, "Untyped global name 'LISTED': a reflected list"),
        (raises_from, "Multiple argument raise is not supported"),
    ):
        said = refused(lambda function=function: cuda.jit(function)[1, 1](ONE))
        assert words in said, said


ONE, FLAG = np.zeros(1), np.zeros(1, np.int32)


@cuda.jit
def hands_over(data, flag, got, fenced):
    if cuda.blockIdx.x == 0:
        data[0] = 42
        cuda.threadfence()
        cuda.atomic.add(flag, 0, 1)
    else:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        if fenced:
            cuda.threadfence()
        got[0] = data[0]


def program_a_missing_fence_of_the_thread_that_acquires_is_found_with_strict() -> None:
    kernels = session.current.open().context.kernels
    for strict, fenced, words in (
        (False, False, ""),
        (True, True, ""),
        (True, False, "data race on element 0 of 'data'"),
    ):
        kernels.strict, before = strict, kernels.strict
        said = refused(lambda fenced=fenced: hands_over[2, 1](ONE.copy(), FLAG.copy(), ONE.copy(), fenced))
        kernels.strict = before
        assert words in said and bool(words) == bool(said), (strict, fenced, said)


if __name__ == "__main__":
    for name, program in list(globals().items()):
        if name.startswith("program_"):
            program()
            print(name)
