"""Think times of the users of a closed loop.

A think time depends only on the seed, the workload, the user and the number of earlier think times of this user. Users
are drawn in groups of fixed size; each group takes its times, round after round, from a separate random stream.
"""

from __future__ import annotations

from array import array

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, TickArray
from windtunnel.engine.arrivals.distributions import unit_variates
from windtunnel.scenario.arrivals import Closed, Think

_GROUP = 64
"""Users that share a random stream. Separate streams for a million users would take seconds and a gigabyte."""
_MAX_ROUNDS = 16
"""The largest number of rounds that are drawn at once. No think time depends on it."""


class ThinkTimes:
    """The think times of the users of one workload, in ticks."""

    def __init__(self, process: Closed, seed: int, name: str) -> None:
        self.users = process.users
        self._think, self._ramp = process.think, process.ramp
        self._name = (name, "think")
        self._seed = seed
        groups = -(-process.users // _GROUP)
        self._streams: list[np.random.Generator | None] = [None] * groups
        self._drawn: list[array[int]] = [array("q") for _ in range(groups)]

    def first(self) -> TickArray:
        """Return when every user submits the first job: its place in the ramp and its first think time; (users,)."""
        for group, drawn in enumerate(self._drawn):
            if not drawn:
                drawn.frombytes(self._draw(group).tobytes())
        rows = [np.frombuffer(drawn, dtype=np.int64, count=_GROUP).copy() for drawn in self._drawn]
        begins = np.rint(np.arange(self.users) * (self._ramp * TICKS_PER_SECOND / self.users)).astype(np.int64)
        first: TickArray = np.minimum(np.concatenate(rows)[: self.users] + begins, MAX_TICKS)
        return first

    def ticks(self, user: int, before: int) -> int:
        """Return the think time of ``user`` after ``before`` earlier think times."""
        group, place = divmod(user, _GROUP)
        drawn = self._drawn[group]
        at = before * _GROUP + place
        while at >= len(drawn):
            drawn.frombytes(self._draw(group).tobytes())
        return drawn[at]

    def rounds(self, count: int) -> TickArray:
        """Return the first ``count`` think times of every user; shape (count, users)."""
        groups = []
        for group, drawn in enumerate(self._drawn):
            while len(drawn) < count * _GROUP:
                drawn.frombytes(self._draw(group).tobytes())
            groups.append(np.frombuffer(drawn, dtype=np.int64, count=count * _GROUP).reshape(count, _GROUP).copy())
        return np.concatenate(groups, axis=1)[:, : self.users]

    def _draw(self, group: int) -> TickArray:
        rng = self._streams[group]
        if rng is None:
            rng = self._streams[group] = stream(self._seed, *self._name, str(group))
        rounds = min(1 + len(self._drawn[group]) // _GROUP, _MAX_ROUNDS)
        return think_ticks(self._think, rng, _GROUP * rounds)


def think_ticks(think: Think, rng: np.random.Generator, count: int) -> TickArray:
    """Return ``count`` think times; shape (count,)."""
    cv = 1.0 if think.cv is None else think.cv
    ticks = np.rint(unit_variates(rng, think.distribution, cv, count) * (think.mean * TICKS_PER_SECOND))
    # A think time beyond the longest run is represented by MAX_TICKS.
    is_finite = ticks < float(MAX_TICKS)
    return np.where(is_finite, np.where(is_finite, ticks, 0.0).astype(np.int64), MAX_TICKS)
