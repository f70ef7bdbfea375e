"""Which sequence of a continuous batch is preempted: for memory, or for a request that comes before it in the order."""

from __future__ import annotations

from windtunnel.engine.transitions.features import CLASSES, cold
from windtunnel.engine.transitions.queues import precedes
from windtunnel.engine.transitions.tables import World


@cold
def made_since_read(w: World, device: int, slot: int) -> int:
    """Return the tokens that a decoding sequence has made since it was read last."""
    made: int = 1 + w.servers[device].steps - w.sequences[slot].born
    return made


@cold
def first_victim(w: World, device: int, slot: int, needs: int) -> int:
    """Return the last sequence in the order of the policy, if a sequence comes before it and gets room in its place.

    It is preempted only if all sequences that come after the one of ``slot`` together leave it the room. It needs the
    memory of ``needs`` tokens; -1 if none is preempted.
    """
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    key = w.slots[slot].key
    last, freed, count = -1, 0, 0
    for first in (v.reading, v.decoding):
        other = first
        while other >= 0:
            if w.slots[other].key > key:
                q = w.sequences[other]
                freed += q.prompt + c.state
                if c.whole:
                    freed += q.output
                elif q.read == q.prompt:
                    freed += made_since_read(w, device, other) + 1
                count += 1
                if last < 0 or precedes(w, last, other):
                    last = other
            other = w.slots[other].next
    if count == 0:
        return -1
    needed = v.cached + needs + c.state + (w.sequences[slot].output + v.promised if c.whole else v.decoding_count)
    enough = needed - freed <= c.capacity or count == v.reading_count + v.decoding_count
    return last if enough else -1


@cold
def last_of(w: World, device: int) -> int:
    """Return the sequence that is preempted if memory is full: the youngest, or the last in the order of the policy."""
    v = w.servers[device]
    youngest: int = v.reading_end if v.reading_count else v.decoding_end
    if not (CLASSES and w.run[0].outranks):
        return youngest
    for first in (v.reading, v.decoding):
        slot = first
        while slot >= 0:
            if precedes(w, youngest, slot):
                youngest = slot
            slot = w.slots[slot].next
    return youngest
