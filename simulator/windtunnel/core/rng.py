"""Randomness keyed by name: one stream a consumer, so that a new consumer shifts no other.

The i-th draw of a stream belongs to the i-th job of its workload, whoever asks and in whatever blocks,
so that neither the engine nor the number of workers can change a draw.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

_opened = 0


def opened() -> int:
    """How many streams were opened in this process so far; a run that opens none is the same under every seed."""
    return _opened


def stream(seed: int, *name: str) -> np.random.Generator:
    """The generator of the consumer called ``name`` (workload, purpose, ...) under ``seed``.

    Philox, keyed by a 128-bit BLAKE2b digest of the name: streams of different names are independent for
    every practical purpose, and the same name and seed give the same draws on every machine.
    """
    global _opened  # noqa: PLW0603  a count of the process, as its name says
    _opened += 1
    digest = hashlib.blake2b("\x1f".join(name).encode(), digest_size=16).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=words)))


class Lots:
    """Uniform draws of the consumer called ``name`` that are asked for one by one, in whatever order.

    A draw belongs to the numbers it is asked for by (job, attempt, ...): 53 bits of their keyed BLAKE2b digest, for
    which a generator a job would be twenty times as slow.
    """

    def __init__(self, seed: int, *name: str) -> None:
        global _opened  # noqa: PLW0603  as above
        _opened += 1
        key = hashlib.blake2b("\x1f".join(name).encode(), digest_size=32, salt=seed.to_bytes(16, "little")).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=8)

    def at(self, *numbers: int) -> float:
        """The draw in [0, 1) that belongs to these numbers (of the same count at every call)."""
        digest = self._keyed.copy()
        digest.update(struct.pack(f"<{len(numbers)}q", *numbers))
        return float(int.from_bytes(digest.digest(), "little") >> 11) * 2.0**-53
