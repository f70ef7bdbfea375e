"""What tests of the emulator share: a device of a schedule, its arrays, and the lines that kernels mark."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import windtunnel
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()


def device(schedule: int | None = None, name: str = "l4") -> Accelerator:
    return windtunnel.device(name, catalogue=KNOWN, schedule=schedule)


def line_of(kernel: Any, mark: str = "  # HERE") -> int:
    lines, first = inspect.getsourcelines(kernel.function)
    return next(first + at for at, line in enumerate(lines) if line.rstrip().endswith(mark))


def zeros(accelerator: Accelerator, *sizes: int) -> list[Any]:
    return [accelerator.to_device(np.zeros(size, np.int32)) for size in sizes]


def with_x(accelerator: Accelerator) -> tuple[Any, Any]:
    return accelerator.to_device(np.arange(32, dtype=np.int32)), accelerator.to_device(np.zeros(64, np.int32))


def lines_of(program: Callable[..., Any]) -> tuple[int, ...]:
    """Numbers of the lines that are marked."""
    source, first = inspect.getsourcelines(program)
    return tuple(first + i for i, line in enumerate(source) if "# HERE" in line)
