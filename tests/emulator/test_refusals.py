"""Errors of kernels outside the language: the message states what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import f32, grid, i32, shared
from windtunnel.core.errors import InputError
from windtunnel.language.source import KernelError
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


@windtunnel.kernel
def two_as_one(a: i32[:]):
    i = grid(2)
    a[i] = 1


@windtunnel.kernel
def number_wanted(a: i32[:], n: i32):
    for i in range(n):
        a[grid(1)] = i


@windtunnel.kernel
def array_wanted(a: i32[:], x: f32[:]):
    a[grid(1)] = x[0]


@windtunnel.kernel
def unknown_size(a: i32[:], n: i32):
    own = shared.array(n, f32)
    a[grid(1)] = own[0]


@windtunnel.kernel
def rounds(a: i32[:], x: f32):
    a[grid(1)] = round(x)


@windtunnel.kernel
def two_indices(a: i32[:]):
    a[grid(1), 0] = 1


@windtunnel.kernel
def no_values(a: i32[:]):
    a[grid(1)] = math.sqrt()


def refused(kernel: Callable[..., Any], *arguments: Any) -> KernelError:
    with windtunnel.device("l4", catalogue=KNOWN) as accelerator, pytest.raises(KernelError) as met:
        given = [accelerator.to_device(a) if isinstance(a, np.ndarray) else a for a in arguments]
        accelerator.launch(kernel, 1, 8, *given)
    return met.value


ARRAY = np.zeros(8, np.int32)


@pytest.mark.parametrize(
    ("kernel", "arguments", "line", "said"),
    [
        (two_as_one, [ARRAY], 2, "'i' is all that grid(2) gives, two values; expected x, y = grid(2)"),
        (number_wanted, [ARRAY, ARRAY], 0, "'n' is annotated i32, but the argument is i32[:]"),
        (array_wanted, [ARRAY, 1.0], 0, "'x' is annotated f32[:], but the argument is f32"),
        (unknown_size, [ARRAY, 4], 1, "'n', a parameter, which is known only while the kernel runs"),
        (rounds, [ARRAY, 1.0], 1, "round, which is not in the language; expected math.floor(x + 0.5)"),
        (two_indices, [ARRAY], 1, "2 indices for 'a', which has 1 dimension;"),
        (no_values, [ARRAY], 1, "math.sqrt of 0 values; expected 1"),
        (rounds, [ARRAY], 0, "1 argument for kernel 'rounds'; expected 2: a, x"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_has_its_file_and_line(
    kernel: Any, arguments: list[Any], line: int, said: str
) -> None:
    error = refused(kernel, *arguments)
    assert said in str(error)
    assert error.file == __file__
    assert error.lines == (kernel.function.__code__.co_firstlineno + 1 + line,)


def test_an_error_that_is_no_lines_has_no_lines() -> None:
    error = KernelError("its source cannot be read")
    assert (error.file, error.lines) == (None, ())


def test_a_launch_in_brackets_is_refused_with_the_call_that_launches() -> None:
    with pytest.raises(InputError, match=r"expected accelerator\.launch\(rounds, grid, block, \.\.\.\)"):
        rounds[1, 8](ARRAY, 1.0)
