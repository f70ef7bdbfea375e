"""Sequences on devices with continuous batching: their lists, and the memory that is reserved for them.

Sequences are slots in doubly linked lists of their device, so memory is proportional to the number of jobs present.
Decoding sequences are also in a list in the order in which they end. A sequence enters it once in hundreds of steps,
and each step examines only its first element.
"""

from __future__ import annotations

from windtunnel.engine.transitions.adapters import release_adapter, use_adapter
from windtunnel.engine.transitions.fairness import count_decoding
from windtunnel.engine.transitions.features import ADAPTERS, CLASSES, PREFIXES, TRANSFERS, cold, hot
from windtunnel.engine.transitions.loading import admitted
from windtunnel.engine.transitions.prefixes import look_up, release_prompt, use_prompt
from windtunnel.engine.transitions.speculation import queries_of, room_of
from windtunnel.engine.transitions.tables import PREFILLS, Records, World

# Lists of sequences.


@hot
def append_reading(w: World, device: int, slot: int) -> None:
    """Append the sequence to those in prefill."""
    v = w.servers[device]
    w.slots[slot].next, w.sequences[slot].before = -1, v.reading_end
    if v.reading_end < 0:
        v.reading = slot
    else:
        w.slots[v.reading_end].next = slot
    v.reading_end = slot
    v.reading_count += 1


@cold
def remove_reading(w: World, device: int, slot: int) -> None:
    """Remove the sequence from those in prefill."""
    v, s, q = w.servers[device], w.slots[slot], w.sequences[slot]
    if q.before < 0:
        v.reading = s.next
    else:
        w.slots[q.before].next = s.next
    if s.next < 0:
        v.reading_end = q.before
    else:
        w.sequences[s.next].before = q.before
    v.reading_count -= 1


@hot
def append_decoding(w: World, device: int, slot: int) -> None:
    """Append the sequence to the decoding ones, and insert it after those that end after the same step."""
    v, q = w.servers[device], w.sequences[slot]
    w.slots[slot].next, q.before = -1, v.decoding_end
    if v.decoding_end < 0:
        v.decoding = slot
    else:
        w.slots[v.decoding_end].next = slot
    v.decoding_end = slot
    v.decoding_count += 1
    before = v.ending_end
    while before >= 0 and w.sequences[before].ends > q.ends:
        before = w.sequences[before].earlier
    q.earlier = before
    if before < 0:
        q.later = v.ending
        v.ending = slot
    else:
        q.later = w.sequences[before].later
        w.sequences[before].later = slot
    if q.later < 0:
        v.ending_end = slot
    else:
        w.sequences[q.later].earlier = slot
    w.decoding_of[device, w.slots[slot].work] += 1
    if CLASSES and w.run[0].fair:
        count_decoding(w, device, slot, 1)


@hot
def remove_decoding(w: World, device: int, slot: int) -> None:
    """Remove the sequence from the decoding ones."""
    v, s, q = w.servers[device], w.slots[slot], w.sequences[slot]
    if q.before < 0:
        v.decoding = s.next
    else:
        w.slots[q.before].next = s.next
    if s.next < 0:
        v.decoding_end = q.before
    else:
        w.sequences[s.next].before = q.before
    v.decoding_count -= 1
    if q.earlier < 0:
        v.ending = q.later
    else:
        w.sequences[q.earlier].later = q.later
    if q.later < 0:
        v.ending_end = q.earlier
    else:
        w.sequences[q.later].earlier = q.earlier
    w.decoding_of[device, s.work] -= 1
    if CLASSES and w.run[0].fair:
        count_decoding(w, device, slot, -1)


# Memory.


@hot
def sequences_of(w: World, device: int) -> int:
    """Return the sequences of a device that count for its largest step, with those whose KV cache is on its way."""
    number = admitted(w.servers[device])
    if TRANSFERS and w.run[0].disaggregated:
        number += w.ports[device].reserved
    return number


@hot
def tokens_made(c: Records, q: Records) -> int:
    """Return how many tokens of its output a sequence may still produce on a device of a class."""
    made: int = q.output
    if TRANSFERS and c.role == PREFILLS:
        made = min(made, 1)
    return made


@hot
def needed_tokens(w: World, device: int, slot: int) -> int:
    """Return the tokens for which the memory of a sequence that does not run is needed, less its state."""
    if PREFIXES and w.run[0].caching:
        return look_up(w, device, slot)
    needs: int = w.sequences[slot].prompt
    return needs


@hot
def has_room(w: World, device: int, slot: int, needs: int) -> bool:
    """Return whether there is memory for ``needs`` tokens of a sequence beside the present ones and their tokens."""
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    needed = needs + c.state
    if c.whole:
        present = sequences_of(w, device)
        drafted = (queries_of(c) - 1) * (present + 1)
        made = tokens_made(c, w.sequences[slot])
        return bool(v.cached + needed + made + v.promised + drafted <= c.capacity or present == 0)
    return bool(needed <= room_of(c, v))


@hot
def reserve(w: World, device: int, slot: int, needs: int) -> None:
    """Reserve memory for the prompt of a sequence."""
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    v.cached += needs + c.state
    v.promised += tokens_made(c, w.sequences[slot])
    if PREFIXES and w.run[0].caching:
        use_prompt(w, device, slot, room_of(c, v))
    if ADAPTERS and w.run[0].adapting:
        use_adapter(w, device, slot)


@hot
def release_memory(w: World, device: int, slot: int, held: int) -> None:
    """Release the memory of a sequence that holds so many tokens."""
    v = w.servers[device]
    v.cached -= held + w.classes[w.devices[device].cls].state
    if PREFIXES and w.run[0].caching:
        v.cached += release_prompt(w, device, slot, w.sequences[slot].read == w.sequences[slot].prompt)
    if ADAPTERS and w.run[0].adapting:
        release_adapter(w, device, slot)
