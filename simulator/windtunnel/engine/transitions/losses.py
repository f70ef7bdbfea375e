"""What the sequences of a device with continuous batching keep when it becomes unreachable, and when it is lost.

A request keeps the tokens that it has delivered. When its device is lost, they count as part of its prompt, which is
read again: there, or on another device.
"""

from __future__ import annotations

from windtunnel.engine.transitions.adapters import forget_adapters
from windtunnel.engine.transitions.features import ADAPTERS, PREFIXES, TIERS, TRANSFERS, cold
from windtunnel.engine.transitions.handover import take_handed
from windtunnel.engine.transitions.jobs import deliver_first_token
from windtunnel.engine.transitions.loading import load_no_more
from windtunnel.engine.transitions.prefixes import forget_prefixes, release_prompt
from windtunnel.engine.transitions.sequences import remove_decoding
from windtunnel.engine.transitions.servers import deliver_last, gap, last_token
from windtunnel.engine.transitions.tables import World
from windtunnel.engine.transitions.victims import made_since_read


@cold
def deliver(w: World, device: int) -> None:
    """Deliver what was produced while the device was unreachable."""
    v = w.servers[device]
    for first in (v.undelivered, v.decoding, v.reading, v.loading, v.off):
        slot = first
        while slot >= 0:
            following = w.slots[slot].next
            deliver_first_token(w, slot)
            if first == v.undelivered:
                deliver_last(w, device, slot)
            slot = following
    v.undelivered = -1


@cold
def _so_far(w: World, device: int, slot: int) -> tuple[int, int]:
    """Return how many tokens a sequence has produced, and when it produced the last one."""
    s, q = w.slots[slot], w.sequences[slot]
    made = q.prompt - w.ints[w.workloads[s.work].prompts + s.rank]
    if q.read == q.prompt:
        return made + made_since_read(w, device, slot), last_token(w, device, slot)
    return made, q.last


@cold
def cut_off(w: World, device: int) -> None:
    """Note what the sequences of a device have delivered, which becomes unreachable now."""
    v = w.servers[device]
    for first in (v.decoding, v.reading, v.loading, v.off):
        slot = first
        while slot >= 0:
            q = w.sequences[slot]
            q.delivered, q.seen = _so_far(w, device, slot)
            slot = w.slots[slot].next
    slot = v.loading
    while slot >= 0:
        s, q = w.slots[slot], w.sequences[slot]
        q.delivered, q.seen = q.prompt - w.ints[w.workloads[s.work].prompts + s.rank], q.last
        slot = s.next


@cold
def _interrupt(w: World, device: int, slot: int) -> int:
    """Let a sequence whose cache is lost begin again: its prompt and the tokens that it has delivered are read.

    Returns how many tokens it has delivered.
    """
    d, s, q = w.devices[device], w.slots[slot], w.sequences[slot]
    work = w.workloads[s.work]
    if d.linked:
        q.delivered, q.seen = _so_far(w, device, slot)
    q.last = q.seen
    if q.delivered:
        gap(w, device, 0, s.work, s.job)
        w.gaps[w.run[0].gaps - 1].end = q.last
    q.prompt = w.ints[work.prompts + s.rank] + q.delivered
    q.output = w.ints[work.outputs + s.rank] - q.delivered
    q.read = q.chunk = 0
    delivered: int = q.delivered
    return delivered


@cold
def take_sequence(w: World, device: int) -> tuple[int, int]:
    """Remove a sequence from a device whose batch is given up, the decoding ones first.

    Returns:
        The sequence, or -1 if none is left, and how many tokens it has delivered.
    """
    v = w.servers[device]
    slot: int = v.decoding
    if slot >= 0:
        w.slots[slot].energy += v.per_token - w.sequences[slot].joules_at_birth
        delivered = _interrupt(w, device, slot)
        remove_decoding(w, device, slot)
        if PREFIXES and w.run[0].caching:
            release_prompt(w, device, slot, True)
        return slot, delivered
    if v.reading >= 0:
        slot = v.reading
        v.reading = w.slots[slot].next
        if PREFIXES and w.run[0].caching:
            release_prompt(w, device, slot, w.sequences[slot].read == w.sequences[slot].prompt)
        return slot, _interrupt(w, device, slot)
    if TIERS and v.loading >= 0:
        slot = v.loading
        load_no_more(w, device, slot)
        # A KV cache that was sent is whole.
        release_prompt(w, device, slot, w.sequences[slot].read == w.sequences[slot].prompt)
        w.sequences[slot].read = 0
        return slot, _interrupt(w, device, slot)
    if TRANSFERS and w.run[0].disaggregated:
        slot = take_handed(w, device)
        if slot >= 0:
            return slot, _interrupt(w, device, slot)
    slot = v.off
    if slot >= 0:
        v.off = w.slots[slot].next
        return slot, _interrupt(w, device, slot)
    slot = v.undelivered
    if slot >= 0:
        v.undelivered = w.slots[slot].next
        return slot, _interrupt(w, device, slot)
    v.reading_end = -1
    v.reading_count = v.chunks = v.cached = v.attended = v.promised = v.produced = 0
    if PREFIXES and w.run[0].caching:
        forget_prefixes(w, device, w.run[0].lost_levels)
    if ADAPTERS and w.run[0].adapting:
        forget_adapters(w, device)
    return -1, 0
