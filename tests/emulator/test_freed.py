"""Use after free: the message names the buffer, and the lines that allocated and freed it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import errors, f32, grid
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


@windtunnel.kernel
def add(a: f32[:], b: f32[:]):  # type: ignore[no-untyped-def]
    i = grid(1)
    b[i] += a[i]


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def launched(accelerator: Accelerator, one: Any, other: Any) -> None:
    accelerator.launch(add, 1, 8, other, one)


def downloaded(accelerator: Accelerator, one: Any, other: Any) -> None:
    accelerator.to_host(one)


def freed_again(accelerator: Accelerator, one: Any, other: Any) -> None:
    one.free()


@pytest.mark.parametrize(("use", "what"), [(launched, "argument 1 is "), (downloaded, ""), (freed_again, "")])
def test_a_use_after_free_says_which_buffer_and_the_lines_that_allocated_and_freed_it(use: Any, what: str) -> None:
    with windtunnel.device("l4", catalogue=KNOWN) as accelerator:
        other = accelerator.to_device(np.zeros(8, np.float32))
        one, made = accelerator.to_device(np.zeros(8, np.float32)), here()
        gone = here() + 1
        one.free()
        with pytest.raises(errors.UseAfterFree) as met:
            use(accelerator, one, other)
    assert (f"the buffer was freed: {what}{one!r}, allocated at {__file__}:{made}, freed at {__file__}:{gone}") in str(
        met.value
    )


def test_a_buffer_that_a_reset_took_says_the_line_of_the_reset() -> None:
    with windtunnel.device("l4", catalogue=KNOWN) as accelerator:
        one = accelerator.to_device(np.zeros(8, np.float32))
        gone = here() + 1
        accelerator.reset()
        with pytest.raises(errors.UseAfterFree, match=f"freed at .*test_freed.py:{gone}"):
            accelerator.to_host(one)
