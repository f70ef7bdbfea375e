"""Sequences that wait until the blocks of their prompts are loaded from a tier below the prefix cache.

They have been admitted, so memory is reserved for them, and the device continues with other sequences meanwhile. A
device without other work is woken when the next load ends.
"""

from __future__ import annotations

from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.features import TIERS, cold, hot
from windtunnel.engine.transitions.tables import TIMER, Records, World


@hot
def admitted(v: Records) -> int:
    """Return the number of sequences that a device has admitted."""
    count: int = v.reading_count + v.decoding_count
    if TIERS:
        count += v.loading_count
    return count


@hot
def is_loaded(w: World, slot: int) -> bool:
    """Return whether all that an admitted request found in tiers is on its device now."""
    if TIERS and w.run[0].levels > 1:
        return bool(w.loads[slot].ready <= w.run[0].now)
    return True


@cold
def wait_for_load(w: World, device: int, slot: int) -> None:
    """Insert a sequence into those that wait for loads, after those whose blocks are there at the same time."""
    v = w.servers[device]
    before = v.loading_end
    while before >= 0 and w.loads[before].ready > w.loads[slot].ready:
        before = w.sequences[before].before
    following = v.loading if before < 0 else w.slots[before].next
    w.sequences[slot].before, w.slots[slot].next = before, following
    if before < 0:
        v.loading = slot
    else:
        w.slots[before].next = slot
    if following < 0:
        v.loading_end = slot
    else:
        w.sequences[following].before = slot
    v.loading_count += 1
    w.loads[slot].waits = 1


@cold
def load_no_more(w: World, device: int, slot: int) -> None:
    """Remove a sequence from those that wait for loads."""
    v = w.servers[device]
    before, following = w.sequences[slot].before, w.slots[slot].next
    if before < 0:
        v.loading = following
    else:
        w.slots[before].next = following
    if following < 0:
        v.loading_end = before
    else:
        w.sequences[following].before = before
    v.loading_count -= 1
    w.loads[slot].waits = 0


@cold
def next_loaded(w: World, device: int) -> int:
    """Remove the next sequence whose blocks are there now from those that wait, and return it; -1 if there is none."""
    slot: int = w.servers[device].loading
    if slot < 0 or w.loads[slot].ready > w.run[0].now:
        return -1
    load_no_more(w, device, slot)
    return slot


@cold
def wake(w: World, device: int) -> None:
    """Let a device without other work look again when the blocks of the next sequence are there."""
    v = w.servers[device]
    ready = w.loads[v.loading].ready
    if v.wakes != ready:
        v.wakes = ready
        set_timer(w, TIMER, device, ready)


@cold
def note_start(w: World, slot: int) -> None:
    """Note what a request that starts now found in the tiers."""
    load = w.loads[slot]
    load.started_blocks_1, load.started_tokens_1 = load.blocks_1, load.tokens_1 - load.read_1
    load.started_blocks_2, load.started_tokens_2 = load.blocks_2, load.tokens_2 - load.read_2


@cold
def note_hits(w: World, slot: int) -> None:
    """Add what a completed request found in the tiers to the sums of its workload."""
    x, load = w.workloads[w.slots[slot].work], w.loads[slot]
    x.blocks_1 += load.started_blocks_1
    x.tokens_1 += load.started_tokens_1
    x.blocks_2 += load.started_blocks_2
    x.tokens_2 += load.started_tokens_2
