"""Devices with continuous batching: sequences join and leave the batch at every step, as in serving engines.

Each step produces a token for every decoding sequence, and uses the remaining tokens of the step for chunks of prompts.
KV cache is reserved as tokens are produced. When memory is full, the youngest sequence is preempted, and its tokens are
recomputed later (as in vLLM; Kwon et al., SOSP 2023, section 4.5). A request is admitted when its prompt fits, or,
if the serving engine reserves whole contexts, when its output fits too. With a prefix cache (`prefixes`) a prompt is
read from the first token on that the cache does not have. `engine/prepare/decoding.py` computes the cost of a step.

A device that only reads prompts hands each request over when its prompt has been read (`handover`). A device that
decodes it reserves memory for it, and takes it into the batch when its KV cache has arrived, between two steps, as the
schedulers of engines do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.step_cost import MICROBATCH_TOKENS
from windtunnel.engine.prepare.decoding import CONTEXT_GRAIN
from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.transitions.consequences import ask
from windtunnel.engine.transitions.features import (
    INTERRUPTS,
    OPERATION_FAULTS,
    PREFIXES,
    QUESTIONS,
    TRANSFERS,
    cold,
    hot,
)
from windtunnel.engine.transitions.handover import hold, send, take_handed, take_landed
from windtunnel.engine.transitions.jobs import deliver_first_token, ended, record_first_token, row_of, started
from windtunnel.engine.transitions.operation_faults import affect_step
from windtunnel.engine.transitions.power import may_draw, release
from windtunnel.engine.transitions.prefixes import forget_prefixes, make_room, release_prompt
from windtunnel.engine.transitions.queues import best_queue, is_available, pop
from windtunnel.engine.transitions.sequences import (
    append_decoding,
    append_reading,
    has_room,
    needed_tokens,
    release_memory,
    remove_decoding,
    reserve,
    sequences_of,
    tokens_made,
)
from windtunnel.engine.transitions.tables import (
    FAILED_OPERATION,
    PER_SECOND,
    PREFILLS,
    SHARED_MEMORY,
    TOO_MANY,
    Records,
    World,
)
from windtunnel.engine.transitions.work import proceed, settle

# The cost of a step.


@hot
def _between(numbers: Any, table: int, apart: int, context: float) -> tuple[float, float]:
    """Return (seconds, joules) at ``context`` tokens. A table's joules are ``apart`` elements after its seconds."""
    place = context / CONTEXT_GRAIN
    low = np.int64(place)
    weight = place - low
    s, j = table + low, table + apart + low
    return (numbers[s] + (numbers[s + 1] - numbers[s]) * weight, numbers[j] + (numbers[j + 1] - numbers[j]) * weight)


@hot
def _scores(tokens: float, window: float) -> float:
    inside = min(tokens, window)
    return inside * (inside + 1.0) / 2.0 + (tokens - inside) * inside


@hot
def _prompt_attention(numbers: Any, c: Records, start: int, chunk: int) -> tuple[float, float]:
    """Return the same as ``DecoderCosts.prompt_attention``."""
    seconds = joules = 0.0
    until = float(start + chunk)
    for kind in range(c.kinds):
        window = numbers[c.windows + kind]
        priced = min(until, max(2.0 * window, float(chunk)))
        share = (_scores(until, window) - _scores(float(start), window)) / (priced * (priced + 1.0) / 2.0)
        s, j = _between(numbers, c.prefill + 2 * kind * c.columns, c.columns, priced)
        seconds, joules = seconds + s * share, joules + j * share
    return seconds, joules


# Steps.


@cold
def _preempt_youngest(w: World, device: int) -> None:
    """Preempt the sequence that came last: release its memory; its tokens are recomputed later."""
    r, v = w.run[0], w.servers[device]
    r.preemptions += 1
    if v.reading_count:
        slot = v.reading_end
        q = w.sequences[slot]
        v.reading_end = q.before
        if q.before < 0:
            v.reading = -1
        else:
            w.slots[q.before].next = -1
        v.reading_count -= 1
        release_memory(w, device, slot, q.prompt)
        v.promised -= tokens_made(w.classes[w.devices[device].cls], q)
    else:
        slot = v.decoding_end
        q = w.sequences[slot]
        remove_decoding(w, device, slot)
        made = 1 + v.steps - q.born
        held = q.prompt + made
        v.attended -= held
        release_memory(w, device, slot, held)
        v.promised -= q.output - made
        w.slots[slot].energy += v.per_token - q.joules_at_birth
        q.last = r.now
        q.prompt, q.output = held, q.output - made
    q.read = 0
    w.workloads[w.slots[slot].work].preempted += 1
    w.slots[slot].next = v.off
    v.off = slot


@hot
def _join(w: World, device: int) -> None:
    """Take the requests into the batch whose KV cache has arrived. Each has its first token now."""
    while w.ports[device].landed:
        slot = take_landed(w, device)
        _has_read(w, device, slot)


@hot
def _receive_next(w: World, device: int) -> bool:
    """Reserve memory for the first request that awaits it, and send its KV cache; return whether there is room."""
    slot = w.ports[device].awaiting
    needs = needed_tokens(w, device, slot)
    if not has_room(w, device, slot, needs):
        return False
    reserve(w, device, slot, needs)
    send(w, device, slot)
    return True


@hot
def _fill(w: World, device: int) -> None:
    """Admit sequences while there is memory: first the preempted ones, then those that wait."""
    r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
    if TRANSFERS and r.disaggregated:
        _join(w, device)
    accepts = is_available(w, device)
    while sequences_of(w, device) < c.most_sequences:
        if v.off >= 0:
            slot = v.off
            needs = needed_tokens(w, device, slot)
            if not has_room(w, device, slot, needs):
                break
            v.off = w.slots[slot].next
            reserve(w, device, slot, needs)
            append_reading(w, device, slot)
            continue
        if TRANSFERS and r.disaggregated and w.ports[device].awaiting >= 0:
            if not _receive_next(w, device):
                break
            continue
        queue = best_queue(w, device, -math.inf, -1) if accepts else -1
        if queue < 0:
            break
        slot = w.queues[queue].head
        needs = needed_tokens(w, device, slot)
        if not has_room(w, device, slot, needs):
            break
        slot = pop(w, queue)
        started(w, device, slot)
        if PREFIXES and r.caching:
            w.jobs[row_of(w, w.slots[slot].job)].hits = w.sequences[slot].hits
        reserve(w, device, slot, needs)
        append_reading(w, device, slot)
    _hold_to_memory(w, device)


@hot
def _hold_to_memory(w: World, device: int) -> None:
    """Preempt sequences, and remove blocks of the prefix cache, until the tokens of the next step have memory."""
    r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
    while v.cached + v.decoding_count > c.capacity and (v.reading_count or v.decoding_count > 1):
        _preempt_youngest(w, device)
    if TRANSFERS and r.disaggregated and w.ports[device].reserved:
        # The memory of requests whose KV cache is on its way is not taken back, not even for a last sequence.
        while v.cached + v.decoding_count > c.capacity and v.decoding_count:
            _preempt_youngest(w, device)
    if PREFIXES and r.caching == SHARED_MEMORY and v.cached + v.decoding_count + v.spare > c.capacity:
        make_room(w, device, c.capacity - v.cached - v.decoding_count)


@hot
def _take_chunks(w: World, device: int, decoding: int) -> tuple[float, float, int, int]:
    """Choose the chunks of prompts of a step in which ``decoding`` sequences decode.

    Returns:
        The seconds and the joules of their attention, their tokens, and the number of prompts that end.
    """
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    room = c.most_tokens - decoding
    seconds = joules = 0.0
    ends = tokens = v.chunks = 0
    slot = v.reading
    while slot >= 0 and room > 0:
        q = w.sequences[slot]
        chunk = min(room, q.prompt - q.read)
        if c.undivided and q.read == 0 and chunk < q.prompt <= c.most_tokens - decoding:
            break
        more_s, more_j = _prompt_attention(w.numbers, c, q.read, chunk)
        seconds, joules = seconds + more_s, joules + more_j
        q.chunk = chunk
        v.chunks += 1
        room -= chunk
        tokens += chunk
        if q.read + chunk == q.prompt:
            ends += 1
        slot = w.slots[slot].next
    return seconds, joules, tokens, ends


@hot
def begin_step(w: World, device: int) -> None:
    """Begin the device's next step if it has work, and power for it."""
    r, d, v = w.run[0], w.devices[device], w.servers[device]
    c = w.classes[d.cls]
    _fill(w, device)
    # With prompts in steps of their own, the decoding sequences pause until all prompts are read.
    v.pausing = c.alone and v.reading >= 0
    decoding = 0 if v.pausing else v.decoding_count
    seconds, joules, tokens, ends = _take_chunks(w, device, decoding)
    chunks = v.chunks
    if chunks == 0 and decoding == 0:
        return
    # A group with pipeline stages works on as many microbatches as it has stages, and each waits for the slowest stage.
    micro = min(max(decoding, -(-tokens // MICROBATCH_TOKENS), 1), c.stages) if c.stages > 1 else 1
    linear, head = c.linear + -(-(decoding + tokens) // micro), c.head + -(-(decoding + ends) // micro)
    factor = (decoding * c.decode_factor + tokens * c.prefill_factor) / float(decoding + tokens)
    step_s = factor * (w.numbers[linear] + w.numbers[head])
    step_j = factor * (w.numbers[linear + c.most_tokens + 1] + w.numbers[head + c.most_sequences + 1])
    if decoding:
        table, apart = c.decode + -(-decoding // micro) * c.columns, (c.most_sequences + 1) * c.columns
        more_s, more_j = _between(w.numbers, table, apart, float(v.attended) / float(decoding))
        step_s, step_j = step_s + c.decode_factor * more_s, step_j + c.decode_factor * more_j
    seconds, joules = c.prefill_factor * seconds, c.prefill_factor * joules
    if c.copies > 1:
        seconds /= float(min(c.copies, max(chunks, 1)))
    seconds = (seconds / micro + step_s) * max(1.0, micro * c.stage_share)
    if tokens:
        seconds = max(seconds, c.prompt_s)
    seconds += c.host_s + c.host_sequence_s * (decoding + ends)
    joules = joules + micro * step_j
    seconds, joules = seconds * c.step_factor, joules * c.step_factor
    scaled = np.rint(seconds * PER_SECOND)
    if scaled > TOO_MANY:
        r.too_long = 1
        return
    ticks: Any = np.int64(scaled)
    watts: Any = np.rint(joules / seconds / WATT_GRAIN) * WATT_GRAIN
    if INTERRUPTS and r.gated and not may_draw(w, device, watts):
        return
    v.began = d.began = r.now
    v.peak = max(v.peak, v.cached + decoding)
    d.slot = 0
    if OPERATION_FAULTS and len(w.operation_faults):
        ticks = affect_step(w, device, ticks)
    proceed(w, device, ticks, watts)


@hot
def _gap(w: World, ticks: int, tokens: int, work: int, of: int) -> None:
    """Record that ``tokens`` tokens of a workload followed their predecessors after ``ticks``; see ``tables.GAP``."""
    r = w.run[0]
    g = w.gaps[r.gaps]
    r.gaps += 1
    g.ticks, g.tokens, g.end, g.work, g.of = ticks, tokens, r.now, work, of


@hot
def _record_gaps(w: World, device: int) -> None:
    """Record that every decoding sequence of a device produced a token now."""
    r, v = w.run[0], w.servers[device]
    if v.produced:
        # After a pause the sequences that began to decode during it waited for a shorter time.
        slot = v.decoding
        while slot >= 0:
            since = max(v.produced, w.sequences[slot].last)
            _gap(w, r.now - since, 1, w.slots[slot].work, w.slots[slot].job)
            slot = w.slots[slot].next
        v.produced = 0
        return
    for work in range(r.workloads):
        count = w.decoding_of[device, work]
        if count:
            _gap(w, r.now - v.began, count, work, -1 - device)


@hot
def _finish(w: World, device: int, slot: int) -> None:
    """Deliver the last token of a sequence; an unreachable device holds it back."""
    if w.devices[device].linked:
        ended(w, device, slot, True)
    else:
        w.slots[slot].next = w.servers[device].undelivered
        w.servers[device].undelivered = slot


@cold
def deliver(w: World, device: int) -> None:
    """Deliver what was produced while the device was unreachable."""
    v = w.servers[device]
    for first in (v.undelivered, v.decoding, v.reading, v.off):
        slot = first
        while slot >= 0:
            following = w.slots[slot].next
            deliver_first_token(w, slot)
            if first == v.undelivered:
                ended(w, device, slot, True)
            slot = following
    v.undelivered = -1


@hot
def _has_read(w: World, device: int, slot: int) -> None:
    """End the prefill of a sequence, which produces a token."""
    r, v, q = w.run[0], w.servers[device], w.sequences[slot]
    if TRANSFERS and q.output > 1 and w.classes[w.devices[device].cls].role == PREFILLS:
        v.promised -= 1
        hold(w, device, slot)
        return
    if w.jobs[row_of(w, w.slots[slot].job)].first == -1:
        record_first_token(w, device, slot, r.now)
    else:
        _gap(w, r.now - q.last, 1, w.slots[slot].work, w.slots[slot].job)
    v.cached += 1
    v.promised -= 1
    q.last = r.now
    if q.output == 1:
        release_memory(w, device, slot, q.prompt + 1)
        _finish(w, device, slot)
        return
    v.attended += q.prompt + 1
    q.joules_at_birth = v.per_token
    q.born = v.steps
    q.ends = v.steps + q.output - 1
    append_decoding(w, device, slot)


@hot
def note_use(w: World, device: int) -> None:
    """Add the sequences and the cached tokens of the device's present step to its sums."""
    v = w.servers[device]
    ticks = float(w.run[0].now - v.began)
    v.held += float(v.cached) * ticks
    v.present += float(v.reading_count + v.decoding_count) * ticks


@hot
def end_step(w: World, device: int) -> None:
    """End the device's present step."""
    r, d, v = w.run[0], w.devices[device], w.servers[device]
    settle(w, device)
    if QUESTIONS and w.extras[device].ending >= 0:
        ask(w, FAILED_OPERATION, device)
        return
    if INTERRUPTS and r.gated:
        release(w, device)
    decoding = 0 if v.pausing else v.decoding_count
    note_use(w, device)
    d.slot = -1
    v.tokens += decoding
    if v.pausing:
        if v.produced == 0:
            v.produced = v.began
    else:
        v.steps += 1
        v.cached += decoding
        v.attended += decoding
        v.promised -= decoding
        _record_gaps(w, device)
    while v.ending >= 0 and w.sequences[v.ending].ends == v.steps:
        slot = v.ending
        q = w.sequences[slot]
        remove_decoding(w, device, slot)
        held = q.prompt + q.output
        v.attended -= held
        release_memory(w, device, slot, held)
        w.slots[slot].energy += v.per_token - q.joules_at_birth
        _finish(w, device, slot)
    for _ in range(v.chunks):
        slot = v.reading
        q = w.sequences[slot]
        q.read += q.chunk
        v.tokens += q.chunk
        if q.read == q.prompt:
            v.reading = w.slots[slot].next
            if v.reading < 0:
                v.reading_end = -1
            else:
                w.sequences[v.reading].before = -1
            v.reading_count -= 1
            _has_read(w, device, slot)
    v.chunks = 0
    r.feeding = device


@cold
def take_sequence(w: World, device: int) -> int:
    """Remove a sequence from a device whose batch is given up, the decoding ones first; -1 if none is left."""
    v = w.servers[device]
    if v.decoding >= 0:
        slot: int = v.decoding
        w.slots[slot].energy += v.per_token - w.sequences[slot].joules_at_birth
        remove_decoding(w, device, slot)
        if PREFIXES and w.run[0].caching:
            release_prompt(w, device, slot, True)
        return slot
    if v.reading >= 0:
        slot = v.reading
        v.reading = w.slots[slot].next
        if PREFIXES and w.run[0].caching:
            release_prompt(w, device, slot, True)
        return slot
    if TRANSFERS and w.run[0].disaggregated:
        slot = take_handed(w, device)
        if slot >= 0:
            return slot
    slot = v.off
    if slot >= 0:
        v.off = w.slots[slot].next
        return slot
    slot = v.undelivered
    if slot >= 0:
        v.undelivered = w.slots[slot].next
        return slot
    v.reading_end = -1
    v.reading_count = v.chunks = v.cached = v.attended = v.promised = v.produced = 0
    if PREFIXES and w.run[0].caching:
        forget_prefixes(w, device)
    return -1


@cold
def restart(w: World, slot: int) -> None:
    """Let a sequence begin again from its whole prompt."""
    s, q = w.slots[slot], w.sequences[slot]
    work = w.workloads[s.work]
    q.prompt, q.output = w.ints[work.prompts + s.rank], w.ints[work.outputs + s.rank]
    q.read = q.chunk = 0
