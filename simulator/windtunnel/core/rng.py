"""Random streams that are keyed by name: each consumer has its own, so a new consumer does not change the others.

The i-th number of a stream belongs to the i-th job of its workload, whatever the size of the blocks in which numbers
are drawn. So neither the engine nor the number of workers affects it.
"""

from __future__ import annotations

import hashlib

import numpy as np

_opened = 0


def opened() -> int:
    """Return how many streams this process has opened. A run that opens none is the same for every seed."""
    return _opened


def stream(seed: int, *name: str) -> np.random.Generator:
    """Return the random stream of the consumer ``name`` (workload, purpose, ...) for ``seed``.

    The generator is Philox, keyed by a 128-bit BLAKE2b digest of the name. Streams with different names are independent
    for every practical purpose. The same name and seed give the same numbers on every machine.
    """
    global _opened  # noqa: PLW0603  a counter of the process
    _opened += 1
    digest = hashlib.blake2b("\x1f".join(name).encode(), digest_size=16).digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=words)))


def key_words(seed: int, *name: str) -> tuple[int, int]:
    """Return the key of the consumer ``name`` for ``seed``: two 32-bit words, for a counter-based generator.

    They are the first words of the BLAKE2b digest of the name and the seed.
    """
    global _opened  # noqa: PLW0603  as above
    _opened += 1
    digest = hashlib.blake2b("\x1f".join(name).encode(), digest_size=8, salt=seed.to_bytes(16, "little")).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
