"""Which sequence of a continuous batch is preempted: for memory, or for a request that comes before it in the order."""

from __future__ import annotations

from windtunnel.engine.transitions.features import CLASSES, PREFIXES, SPECULATION, TIERS, cold
from windtunnel.engine.transitions.loading import admitted, is_loaded, load_no_more
from windtunnel.engine.transitions.queues import precedes
from windtunnel.engine.transitions.sequences import release_memory, remove_decoding, remove_reading, tokens_made
from windtunnel.engine.transitions.speculation import queries_of, room_of
from windtunnel.engine.transitions.tables import World


@cold
def made_since_read(w: World, device: int, slot: int) -> int:
    """Return the tokens that a decoding sequence has made since it was read last."""
    q = w.sequences[slot]
    if SPECULATION and w.classes[w.devices[device].cls].queries > 1:
        counted: int = q.made
        return counted
    made: int = 1 + w.servers[device].steps - q.born
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
    for first in (v.reading, v.loading, v.decoding):
        other = first
        while other >= 0:
            if w.slots[other].key > key:
                q = w.sequences[other]
                freed += q.prompt + c.state
                if c.whole:
                    freed += q.output
                elif first == v.decoding:
                    freed += made_since_read(w, device, other) + queries_of(c)
                count += 1
                if last < 0 or precedes(w, last, other):
                    last = other
            other = w.slots[other].next
    if count == 0:
        return -1
    present = admitted(v)
    needed = needs + c.state - freed
    if c.whole:
        needed += w.sequences[slot].output + v.promised + (queries_of(c) - 1) * (present - count + 1)
        enough = v.cached + needed <= c.capacity or count == present
    else:
        enough = needed <= room_of(c, v) or count == present
    return last if enough else -1


@cold
def last_of(w: World, device: int) -> int:
    """Return the sequence that is preempted if memory is full: the youngest, or the last in the order of the policy."""
    v = w.servers[device]
    youngest: int = v.reading_end if v.reading_count else v.decoding_end
    if TIERS and v.loading_count:
        youngest = v.loading_end
    if not (CLASSES and w.run[0].outranks):
        return youngest
    for first in (v.reading, v.loading, v.decoding):
        slot = first
        while slot >= 0:
            if precedes(w, youngest, slot):
                youngest = slot
            slot = w.slots[slot].next
    return youngest


@cold
def preempt(w: World, device: int, slot: int) -> None:
    """Preempt a sequence between two steps: release its memory; its tokens are recomputed later."""
    r, v, q = w.run[0], w.servers[device], w.sequences[slot]
    r.preemptions += 1
    w.workloads[w.slots[slot].work].preempted += 1
    loads = not is_loaded(w, slot)
    if loads or q.read < q.prompt:
        if PREFIXES and CLASSES and r.caching and r.outranks:
            # Prompts behind this one may begin with blocks that it has not read, and none of them has been read yet.
            while v.loading_count and v.loading_end != slot:
                _put_back(w, device, v.loading_end)
            while not loads and v.reading_end != slot:
                _put_back(w, device, v.reading_end)
        _put_back(w, device, slot)
        return
    made = made_since_read(w, device, slot)
    # The step before this one has ended now, unless prompts were read in steps of their own since then.
    q.last = max(v.produced, q.last) if v.produced else r.now
    remove_decoding(w, device, slot)
    held = q.prompt + made
    v.attended -= held
    release_memory(w, device, slot, held)
    v.promised -= q.output - made
    w.slots[slot].energy += v.per_token - q.joules_at_birth
    q.prompt, q.output = held, q.output - made
    _waits_off(w, device, slot)


@cold
def _put_back(w: World, device: int, slot: int) -> None:
    """Release the memory of a sequence in prefill, or that waits for loads, which will be read from the beginning."""
    v, q = w.servers[device], w.sequences[slot]
    if is_loaded(w, slot):
        remove_reading(w, device, slot)
    else:
        load_no_more(w, device, slot)
    release_memory(w, device, slot, q.prompt)
    v.promised -= tokens_made(w.classes[w.devices[device].cls], q)
    _waits_off(w, device, slot)


@cold
def _waits_off(w: World, device: int, slot: int) -> None:
    """Let a sequence without memory wait to be resumed: before the others, or at its place in the order."""
    r, v = w.run[0], w.servers[device]
    w.sequences[slot].read = 0
    before, following = -1, v.off
    if CLASSES and r.outranks:
        while following >= 0 and precedes(w, following, slot):
            before, following = following, w.slots[following].next
    w.slots[slot].next = following
    if before < 0:
        v.off = slot
    else:
        w.slots[before].next = slot
