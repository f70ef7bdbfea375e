"""How long the users of a closed loop think: drawn by user and by how often the user has thought before.

A user's times do not depend on when they are asked for, on other users, on other workloads, or on how many users there
are: users are drawn in groups of fixed size, a group's times round after round from one stream of its own.
"""

from __future__ import annotations

from array import array

import numpy as np

from windtunnel.core.rng import stream
from windtunnel.core.ticks import MAX_TICKS, TICKS_PER_SECOND, TickArray
from windtunnel.engine.arrivals.distributions import unit_variates
from windtunnel.scenario.arrivals import Closed

_GROUP = 64
"""Users that share a stream: one for each of a million users would take seconds and a gigabyte to make."""
_MOST_ROUNDS = 16
"""Rounds drawn at once: few at first. No time depends on it."""


class ThinkTimes:
    """The think times of one workload's users, in ticks."""

    def __init__(self, process: Closed, seed: int, name: str) -> None:
        self.users = process.users
        self._think = process.think
        self._name = (name, "think")
        self._seed = seed
        groups = -(-process.users // _GROUP)
        self._streams: list[np.random.Generator | None] = [None] * groups
        self._known: list[array[int]] = [array("q") for _ in range(groups)]

    def first(self) -> TickArray:
        """Every user's first think time, by user."""
        for group, known in enumerate(self._known):
            if not known:
                known.frombytes(self._more(group).tobytes())
        rows = [np.frombuffer(known, dtype=np.int64, count=_GROUP).copy() for known in self._known]
        return np.concatenate(rows)[: self.users]

    def ticks(self, user: int, before: int) -> int:
        """How long ``user`` thinks after having thought ``before`` times."""
        group, place = divmod(user, _GROUP)
        known = self._known[group]
        at = before * _GROUP + place
        while at >= len(known):
            known.frombytes(self._more(group).tobytes())
        return known[at]

    def _more(self, group: int) -> TickArray:
        rng = self._streams[group]
        if rng is None:
            rng = self._streams[group] = stream(self._seed, *self._name, str(group))
        rounds = min(1 + len(self._known[group]) // _GROUP, _MOST_ROUNDS)
        cv = 1.0 if self._think.cv is None else self._think.cv
        units = unit_variates(rng, self._think.distribution, cv, _GROUP * rounds)
        ticks = np.rint(units * (self._think.mean * TICKS_PER_SECOND))
        # Who thinks longer than a run may last is not heard of again.
        heard = ticks < float(MAX_TICKS)
        return np.where(heard, np.where(heard, ticks, 0.0).astype(np.int64), MAX_TICKS)
