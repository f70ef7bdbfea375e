"""Lines that the threads of a kernel print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.common.symbolic import materialise


def print_lines(threads: int, texts: Sequence[str], values: Sequence[Any]) -> None:
    """Print a line for each of some threads, in order; ``texts`` stand before, between and after the values.

    Numbers are written as CUDA's ``printf`` writes ``%d`` and ``%f``.
    """
    columns = [np.broadcast_to(np.asarray(materialise(value)), threads) for value in values]
    for thread in range(threads):
        line = texts[0]
        for column, text in zip(columns, texts[1:], strict=True):
            value = column[thread]
            line += (f"{value:f}" if column.dtype.kind == "f" else f"{int(value)}") + text
        sys.stdout.write(line + "\n")
