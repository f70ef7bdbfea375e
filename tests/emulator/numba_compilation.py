"""Programs for Numba CUDA that `test_numba_language` runs: what a compilation keeps, takes and refuses."""

from __future__ import annotations

import warnings

import numpy as np
from numba import cuda

warnings.simplefilter("ignore")
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


if __name__ == "__main__":
    for name, program in list(globals().items()):
        if name.startswith("program_"):
            program()
            print(name)
