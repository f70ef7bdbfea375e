"""Sample data for compression: generated from a seed, and neither zeros nor noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from windtunnel.core.rng import stream

SEED = 20
"""Seed of all operands, so that they are the same bytes on every machine."""
MIN_POOL_BYTES = 4 * 2**20
MAX_POOL_BYTES = 64 * 2**20
_PIECE_BYTES = 1024
_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
_LETTER_SHARES = [12.7, 9.1, 8.2, 7.5, 7.0, 6.7, 6.3, 6.1, 6.0, 4.3, 4.0, 2.8, 2.8]
_LETTER_SHARES += [2.4, 2.4, 2.2, 2.0, 2.0, 1.9, 1.5, 1.0, 0.8, 0.15, 0.15, 0.1, 0.07]
"""Frequency of each letter in English text (%): Lewand, Cryptological Mathematics (2000), rounded."""

Bytes = npt.NDArray[np.uint8]


def _words(rng: np.random.Generator, size: int, vocabulary: int, shortest: int, longest: int) -> Bytes:
    """Return words of a random vocabulary, drawn by Zipf's law (Mandelbrot's shift of 2.7), with English letters."""
    letters = np.frombuffer(_LETTERS.encode(), np.uint8)
    weights = np.array(_LETTER_SHARES) / sum(_LETTER_SHARES)
    words = [
        np.append(rng.choice(letters, length, p=weights), np.uint8(ord(" ")))
        for length in rng.integers(shortest, longest, vocabulary)
    ]
    sizes = np.array([len(word) for word in words])
    begins = np.cumsum(sizes) - sizes
    shares = 1.0 / (np.arange(vocabulary) + 2.7)
    shares /= shares.sum()
    # Somewhat more words than the mean length requires.
    drawn = rng.choice(vocabulary, int(size / (sizes * shares).sum() * 1.2) + 256, p=shares)
    lengths = sizes[drawn]
    ends = np.cumsum(lengths)
    index = np.arange(ends[-1]) + np.repeat(begins[drawn] - (ends - lengths), lengths)
    return np.resize(np.concatenate(words)[index], size)


_RECORD = np.dtype(
    [("id", "<u8"), ("time", "<u8"), ("kind", "<u2"), ("flags", "<u2"), ("size", "<u4"), ("value", "<f8")]
)


def _records(rng: np.random.Generator, size: int) -> Bytes:
    """Return rows of a table: a serial number, a time in microseconds, small codes, a length, a reading."""
    rows = np.zeros(size // _RECORD.itemsize + 1, _RECORD)
    rows["id"] = np.arange(len(rows)) + rng.integers(2**40)
    rows["time"] = np.cumsum(rng.integers(1, 5000, len(rows))) + 1_700_000_000_000_000
    rows["kind"] = rng.zipf(2, len(rows)) % 64
    rows["flags"] = rng.choice([0, 1, 4], len(rows))
    rows["size"] = rng.integers(64, 1519, len(rows))
    rows["value"] = np.round(rng.normal(20, 5, len(rows)), 2)
    return rows.view(np.uint8)[:size]


@lru_cache(maxsize=1)
def mixture(size: int) -> bytes:
    """Return ``size`` bytes that compress to about half, as the processor model assumes (1.5 bytes moved per byte).

    The data are pieces of 1 KiB in random order. Of 16 pieces, five are text, four are records, five are lines of a
    repetitive log, and two are noise, like data that is already compressed. ISA-L's level 1 compresses it 2.0 times.
    """
    rng = stream(SEED, "backends", "mixture")
    makers: Sequence[tuple[int, Callable[[int], Bytes]]] = (
        (5, lambda n: _words(rng, n, 4096, 2, 10)),
        (4, lambda n: _records(rng, n)),
        (5, lambda n: _words(rng, n, 300, 20, 60)),
        (2, lambda n: np.frombuffer(rng.bytes(n), np.uint8)),
    )
    pieces = -(-size // _PIECE_BYTES)
    which = rng.permutation(np.resize(np.repeat(np.arange(len(makers)), [share for share, _ in makers]), pieces))
    data = np.empty((pieces, _PIECE_BYTES), np.uint8)
    for number, (_, make) in enumerate(makers):
        mine = which == number
        if mine.any():
            data[mine] = make(int(mine.sum()) * _PIECE_BYTES).reshape(-1, _PIECE_BYTES)
    return data.reshape(-1)[:size].tobytes()


def sample_pool(size: int) -> bytes:
    """Return the data from which operands of ``size`` bytes are cut. Longer operands repeat it."""
    return mixture(min(max(MIN_POOL_BYTES, 1 << (size - 1).bit_length()), MAX_POOL_BYTES))


def cut(pool: bytes, size: int, number: int) -> bytes:
    """Return the ``number``th operand of ``size`` bytes of a pool, starting again at its end."""
    if size >= len(pool):
        return (pool * -(-size // len(pool)))[:size]
    begin = number % (len(pool) // size) * size
    return pool[begin : begin + size]
