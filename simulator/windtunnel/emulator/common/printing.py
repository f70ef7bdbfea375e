"""Lines that the threads of a kernel print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.common.symbolic import materialise


def print_lines(threads: int, form: str, values: Sequence[Any]) -> None:
    """Print a line for each of some threads, in order; ``form`` is C's format of numbers, with ``%lld`` and ``%f``."""
    columns = [np.broadcast_to(np.asarray(materialise(value)), threads) for value in values]
    plain = form.replace("%lld", "%d")
    for thread in range(threads):
        sys.stdout.write(plain % tuple(column[thread].item() for column in columns))
