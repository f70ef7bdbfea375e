"""Random streams that are keyed by name: each consumer has its own, so a new consumer does not change the others.

The i-th number of a stream belongs to the i-th job of its workload, whatever the size of the blocks in which numbers
are drawn. So neither the engine nor the number of workers affects it.
"""

from __future__ import annotations

import hashlib
import struct

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


class KeyedRandom:
    """Uniform random numbers of the consumer ``name`` that can be drawn in any order.

    A random number is keyed by integers (job, attempt, ...): it is 53 bits of their keyed BLAKE2b digest. A separate
    generator for each job would be twenty times as slow.
    """

    def __init__(self, seed: int, *name: str) -> None:
        global _opened  # noqa: PLW0603  as above
        _opened += 1
        key = hashlib.blake2b("\x1f".join(name).encode(), digest_size=32, salt=seed.to_bytes(16, "little")).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=8)

    def at(self, *numbers: int) -> float:
        """Return the random number in [0, 1) for these integers; every call must give equally many."""
        digest = self._keyed.copy()
        digest.update(struct.pack(f"<{len(numbers)}q", *numbers))
        return float(int.from_bytes(digest.digest(), "little") >> 11) * 2.0**-53
