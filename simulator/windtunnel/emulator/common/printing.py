"""Lines that kernels print, in C's format."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from windtunnel.emulator.common.lanes import Lanes
from windtunnel.emulator.common.symbolic import materialise

_FIELD = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(v\d+)?(hh|hl|h|ll|l|z|t|j|L)?([diouxXeEfFgGaAcspn%])")


def formatted(form: str, arguments: Sequence[Any]) -> str:
    """Return a text in C's format. What an argument is missing for stays as it is."""
    rest = list(arguments)

    def field(found: re.Match[str]) -> str:
        flags, width, precision, vector, _, letter = found.groups()
        if letter == "%":
            return "%"
        if width == "*" and rest:
            width = str(int(rest.pop(0)))
        if precision == "*" and rest:
            precision = str(int(rest.pop(0)))
        count = int(vector[1:]) if vector else 1
        if len(rest) < count:
            return found[0]
        return ",".join(_one(flags, width, precision, letter, rest.pop(0)) for _ in range(count))

    return _FIELD.sub(field, form)


def _one(flags: str, width: str | None, precision: str | None, letter: str, value: Any) -> str:
    spec = f"%{flags}{width or ''}{'.' + precision if precision is not None else ''}"
    if letter == "s":
        return str((spec + "s") % (value,))
    if letter == "p":
        return f"{int(value):#x}"
    if letter == "c":
        return str((spec + "c") % chr(int(value) & 0xFF))
    if letter in "di":
        return str((spec + "d") % int(value))
    if letter in "ouxX":
        bits = 8 * getattr(value, "itemsize", 4)
        return str((spec + letter.replace("u", "d")) % (int(value) & (2**bits - 1)))
    return str((spec + letter.replace("a", "e").replace("A", "E")) % float(value))


def print_line(form: str, texts: Sequence[str | None], numbers: Sequence[Any]) -> None:
    """Print what one thread prints."""
    given = iter(numbers)
    sys.stdout.write(formatted(form, [next(given) if text is None else text for text in texts]))


def print_lines(lanes: Lanes, form: str, texts: Sequence[str | None], numbers: Sequence[Any]) -> None:
    """Print what each thread prints, in the order of the threads."""
    columns = [np.broadcast_to(np.asarray(materialise(number)), lanes.size) for number in numbers]
    for thread in range(lanes.size):
        print_line(form, texts, [column[thread] for column in columns])
