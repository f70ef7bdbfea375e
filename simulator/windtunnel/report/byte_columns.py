"""The text of many rows at once: a column is a matrix of bytes with one row for each cell.

Cells of a column have different lengths, so a cell is filled up with ``BLANK``, which is no part of UTF-8, and
``joined`` removes it. NumPy converts integers in this way some ten times as fast as ``str`` converts each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.uint8]
"""The bytes of cells; shape (rows, width)."""
Numbers = npt.NDArray[np.int64]

BLANK = 0xFF
_SEPARATOR = 0xFE
"""Another byte that is no part of UTF-8."""
_GROUP = 4
_BASE = 10**_GROUP
_NO_TRAILING, _NO_LEADING = _BASE, 2 * _BASE
"""Where the parts of ``_DIGITS`` begin that leave out zeros."""


def _digits() -> npt.NDArray[np.uint32]:
    """Return the four digits of each number below 10,000: all, then without the last zeros, then without the first."""
    digits = np.arange(_BASE)[:, np.newaxis] // 10 ** np.arange(_GROUP)[::-1] % 10
    text = digits + ord("0")
    last = np.logical_and.accumulate(digits[:, ::-1] == 0, axis=1)[:, ::-1]
    first = np.logical_and.accumulate(digits == 0, axis=1)
    shown = np.concatenate([text, np.where(last, BLANK, text), np.where(first, BLANK, text)])
    return shown.astype(np.uint8).view(np.uint32)[:, 0]


_DIGITS = _digits()
_ZERO = np.frombuffer(b"\xff\xff\xff0", dtype=np.uint32)[0]


def integers(numbers: Numbers) -> Column:
    """Return the decimal text of integers that are at least 0."""
    count, largest = 1, int(numbers.max(initial=0))
    while largest >= _BASE**count:
        count += 1
    text = np.empty((len(numbers), count), dtype=np.uint32)
    left = numbers
    for column in reversed(range(count)):
        left, group = np.divmod(left, _BASE)
        text[:, column] = _DIGITS[group + _NO_LEADING * (left == 0)]
    text[numbers == 0, -1] = _ZERO
    return text.view(np.uint8)


def decimals(numbers: Numbers, places: int, *, trimmed: bool) -> Column:
    """Return ``numbers`` / 10^``places`` as exact decimal text; blank for numbers below 0.

    Args:
        numbers: Integers.
        places: The number of decimal places, at most 18.
        trimmed: Whether zeros at the end of the decimal places are left out, and the point if nothing follows it.
    """
    known = numbers >= 0
    if not known.any():
        return np.empty((len(numbers), 0), dtype=np.uint8)
    whole, left = np.divmod(np.maximum(numbers, 0), 10**places)
    groups = -(-places // _GROUP)
    fraction = np.empty((len(numbers), groups), dtype=np.uint32)
    ends = np.full(len(numbers), trimmed)
    for column in reversed(range(groups)):
        left, group = np.divmod(left, _BASE)
        fraction[:, column] = _DIGITS[group + _NO_TRAILING * ends]
        ends &= group == 0
    point = np.where(ends, np.uint8(BLANK), np.uint8(ord(".")))[:, np.newaxis]
    # The first group may have more digits than are left of the places. These digits are zeros.
    text = np.hstack([integers(whole), point, fraction.view(np.uint8)[:, groups * _GROUP - places :]])
    text[~known] = BLANK
    return text


def words(names: Sequence[str], index: Numbers) -> Column:
    """Return the text with each index; blank for an index below 0."""
    encoded = [name.encode() for name in names]
    width = max(map(len, encoded), default=0)
    filler = bytes([BLANK])
    known = b"".join([name.ljust(width, filler) for name in encoded]) + filler * width
    return np.frombuffer(known, dtype=np.uint8).reshape(len(encoded) + 1, width)[index]


def floats(numbers: npt.NDArray[np.float64]) -> Column:
    """Return the shortest decimal text that gives each number back, as ``repr`` does."""
    text = np.array(list(map(repr, numbers.tolist())), dtype=np.bytes_)
    column = text.view(np.uint8).reshape(len(text), -1).copy()
    column[column == 0] = BLANK  # what NumPy fills text up with
    return column


def joined(parts: Sequence[Column | str]) -> bytes:
    """Return the rows one after the other, each of which has the cells of all columns. A text is in every row."""
    encoded = [part.encode() if isinstance(part, str) else bytes(part.shape[1]) for part in parts]
    count = max((len(part) for part in parts if not isinstance(part, str)), default=0)
    rows = np.tile(np.frombuffer(b"".join(encoded), dtype=np.uint8), (count, 1))
    first = 0
    for part, constant in zip(parts, encoded, strict=True):
        if not isinstance(part, str):
            rows[:, first : first + len(constant)] = part
        first += len(constant)
    return rows.tobytes().translate(None, bytes([BLANK]))


def cells(column: Column) -> list[str]:
    """Return the cells of a column as text."""
    separator = np.full((len(column), 1), _SEPARATOR, dtype=np.uint8)
    return [cell.decode() for cell in joined([column, separator]).split(bytes([_SEPARATOR]))[:-1]]
