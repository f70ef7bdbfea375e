"""Memory that is left when a device is closed, and pointers of the other side, are reported with their lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.emulator.shared import KNOWN, device, lines_of

import windtunnel
from windtunnel import errors

ONES = np.ones(1024, np.float32)


@windtunnel.kernel
def put(a: np.ndarray, out: np.ndarray) -> None:
    out[...] = a + 1


def test_a_device_that_is_closed_with_memory_left_says_which_lines_allocated_it() -> None:
    def program() -> None:
        with windtunnel.device("l4", catalogue=KNOWN, leaks="error") as device:
            for _ in range(3):
                device.empty(10)  # HERE
            device.to_device(ONES)  # HERE
            device.empty(5).free()

    with pytest.raises(errors.Leak) as caught:
        program()
    one, other = lines_of(program)
    assert caught.value.lines == (one, other) and caught.value.file == __file__
    assert str(caught.value) == (
        f"l4 was left with 4,216 bytes allocated: 4,096 bytes at {__file__}:{other}, "
        f"120 bytes at {__file__}:{one} (3 times)"
    )


def test_a_leak_is_no_error_unless_asked_for_nor_where_something_else_went_wrong() -> None:
    device = windtunnel.device("l4", catalogue=KNOWN)
    device.empty(10)
    device.close()
    assert device.left is not None and device.left_bytes == 40 and device.leak() is device.left
    with pytest.raises(ZeroDivisionError), windtunnel.device("l4", catalogue=KNOWN, leaks="error") as device:
        device.empty(10)
        raise ZeroDivisionError
    with windtunnel.device("l4", catalogue=KNOWN, leaks="error") as device:
        device.empty(10).free()
    with pytest.raises(errors.InputError, match="expected ignore or error"):
        windtunnel.device("l4", catalogue=KNOWN, leaks="warn")  # type: ignore[arg-type]


def test_a_pointer_of_the_other_side_is_refused_with_its_line() -> None:
    accelerator = device()
    a = accelerator.to_device(ONES)

    def launches() -> None:
        accelerator.launch(put, 1, 32, ONES, a)  # HERE

    def reads() -> None:
        np.asarray(a)  # HERE

    for program, says in (
        (launches, "argument 0 is an array of the host (float32, 1,024 elements)"),
        (reads, "read"),
    ):
        (line,) = lines_of(program)
        with pytest.raises(errors.InvalidArgument) as caught:
            program()
        assert caught.value.lines == (line,) and caught.value.file == __file__
        assert says in str(caught.value) and f"{Path(__file__)}:{line}" in str(caught.value)
