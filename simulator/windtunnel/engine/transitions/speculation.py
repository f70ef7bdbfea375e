"""Speculative decoding on devices with continuous batching: which drafted tokens of a step are accepted."""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.fairness import charge_tokens
from windtunnel.engine.transitions.features import CLASSES, SPECULATION, hot
from windtunnel.engine.transitions.operation_faults import uniform
from windtunnel.engine.transitions.tables import Records, World


@hot
def queries_of(c: Records) -> int:
    """Return the tokens of each decoding sequence in a step of a class, for all of which it reserves memory."""
    queries: int = c.queries if SPECULATION else 1
    return queries


@hot
def room_of(c: Records, v: Records) -> int:
    """Return the tokens for which there is memory beside the present ones and what the next step may add to them."""
    room: int = c.capacity - v.cached - v.decoding_count * queries_of(c)
    return room


@hot
def _accepted(w: World, device: int, slot: int) -> int:
    """Return how many drafted tokens of a sequence are accepted in the present step.

    The random number belongs to the job and to the place of the tokens in its output, so it does not depend on when,
    where and beside which sequences they are verified.
    """
    q, s = w.sequences[slot], w.slots[slot]
    work = w.workloads[s.work]
    place = w.ints[work.outputs + s.rank] - (q.output - q.made)
    drawn = uniform(w.ints[work.draft_keys], w.ints[work.draft_keys + 1], s.rank, place, 0)
    drafted = w.classes[w.devices[device].cls].queries - 1
    accepted: Any = np.int64(0)
    while accepted < drafted and drawn < w.numbers[work.reached + accepted]:
        accepted += 1
    return int(accepted)


@hot
def verify(w: World, device: int) -> int:
    """Give every decoding sequence its tokens of the present step: one, and the accepted ones; return their number.

    What is accepted beyond the end of an output is counted as accepted, as in the counters of vLLM, and not produced.
    """
    made: Any = np.int64(0)
    slot = w.servers[device].decoding
    while slot >= 0:
        q, s = w.sequences[slot], w.slots[slot]
        accepted = _accepted(w, device, slot)
        w.accepted[s.work, accepted] += 1
        more = min(1 + accepted, q.output - q.made)
        q.made += more
        made += more
        if CLASSES and w.run[0].fair:
            charge_tokens(w, device, slot, more)
        slot = s.next
    return int(made)
