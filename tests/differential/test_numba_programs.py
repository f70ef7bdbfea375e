"""Programs of Numba CUDA, unmodified, on an emulated device: what they compute is what they computed on an H200."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "numba_programs.py"

# Everything that does not agree in every bit, or with the class of its error, and why. A program that begins to agree
# must leave the list.
CLOSE = {
    "arithmetic.powers", "arithmetic.math_functions_float32", "arithmetic.math_functions_float64",
    "arithmetic.math_functions_of_two", "arithmetic.numpy_functions", "arithmetic.numpy_functions_of_two",
    "libraries.random_numbers", "libraries.cbrt", "libraries.libdevice",
}  # fmt: skip
"""Functions of NVIDIA's libraries differ in the last digits; or the sign of a zero or a NaN."""
CONTRACTED = {"language.functions_and_types_from_a_closure"}
"""NVVM contracts a product and a sum to one fused operation, here across a call."""
DIFFERS = {
    "arithmetic.fastmath": "wrong",  # approximations of fastmath
    # What ended without an error on the GPU, although it is one.
    "errors.wrong_number_of_arguments": "raises",
    "errors.an_argument_that_does_not_match_the_signature": "raises",
    "errors.index_out_of_bounds_with_debug": "raises",
    # Errors of other classes: those of the built-in target of Numba, or of libraries that Windtunnel does not have.
    "errors.too_much_static_shared_memory": "other error",
    "errors.try_in_a_kernel": "other error",
    "errors.with_in_a_kernel": "other error",
    "errors.a_global_written_in_a_kernel": "other error",
    # What numba-cuda 0.30 has no implementation of, and other versions of Numba do.
    "errors.an_array_assigned_to_a_slice": "no error",
    "errors.a_bool_given_to_syncthreads_count": "no error",
    "errors.a_function_of_numpy_without_an_implementation": "no error",
    "errors.a_callback_of_a_stream": "no error",
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, PROGRAMS], capture_output=True, text=True, check=False, cwd=PROGRAMS.parents[2]
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, str]] = json.loads(done.stdout)
    return found


def test_the_recorded_programs_compute_what_the_gpu_computed(verdicts: dict[str, tuple[str, str]]) -> None:
    assert len(verdicts) == 172
    wanted = dict.fromkeys(CLOSE | CONTRACTED, "close") | DIFFERS
    wrong = {
        name: (found, text)
        for name, (found, text) in verdicts.items()
        if found not in ((wanted[name],) if name in wanted else ("same", "error"))
        # The processor's own functions decide whether the last digit agrees.
        and not (wanted.get(name) == "close" and found == "same")
    }
    assert wrong == {}


def test_what_is_not_there_is_an_error_that_names_it_and_the_line(verdicts: dict[str, tuple[str, str]]) -> None:
    for name, text in {
        "errors.a_list_in_a_kernel": "errors.py:68:12: a list; expected a tuple",
        "errors.an_unknown_name": "NameError: name 'undefined_name' is not defined",
        "errors.try_in_a_kernel": "errors.py:322:5: try",
    }.items():
        assert text in verdicts[name][1], verdicts[name]
