"""Devices with continuous batching: sequences join and leave the batch at every step, as in serving engines.

Each step produces a token for every decoding sequence, and uses the remaining tokens of the step for chunks of prompts.
KV cache is reserved as tokens are produced. When memory is full, the youngest sequence is preempted, and its tokens are
recomputed later (as in vLLM; Kwon et al., SOSP 2023, section 4.5). A request is admitted when its prompt fits, and
while the next step has tokens left for prompts; a serving engine that reserves whole contexts admits it when its output
fits too, whatever the step has left. With a prefix cache (`prefixes`) a prompt is read from the first token on that the
cache does not have. `engine/prepare/decoding.py` computes the cost of a step.

A device that only reads prompts hands each request over when its prompt has been read (`handover`). A device that
decodes it reserves memory for it, and takes it into the batch when its KV cache has arrived, between two steps, as the
schedulers of engines do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.core.step_cost import MICROBATCH_TOKENS
from windtunnel.engine.prepare.decoder_tables import CONTEXT_GRAIN
from windtunnel.engine.prepare.prepared import FAR
from windtunnel.engine.prepare.programs import WATT_GRAIN
from windtunnel.engine.transitions.adapters import adapters_cost, lacks_slot
from windtunnel.engine.transitions.consequences import ask
from windtunnel.engine.transitions.fairness import charge_prompt, charge_step, charge_tokens
from windtunnel.engine.transitions.features import (
    ADAPTERS,
    CLASSES,
    INTERRUPTS,
    OPERATION_FAULTS,
    PREFIXES,
    QUESTIONS,
    SPECULATION,
    TIERS,
    TRANSFERS,
    cold,
    hot,
)
from windtunnel.engine.transitions.handover import hold, send, take_landed
from windtunnel.engine.transitions.jobs import ended, record_first_token, row_of, started
from windtunnel.engine.transitions.loading import (
    admitted,
    is_loaded,
    next_loaded,
    note_hits,
    note_start,
    wait_for_load,
    wake,
)
from windtunnel.engine.transitions.operation_faults import affect_step
from windtunnel.engine.transitions.power import may_draw, release
from windtunnel.engine.transitions.prefixes import keep_answer, make_room
from windtunnel.engine.transitions.queues import best_queue, insert, is_available, own_queue, pop, take_head
from windtunnel.engine.transitions.sequences import (
    append_decoding,
    append_reading,
    has_room,
    needed_tokens,
    release_memory,
    remove_decoding,
    reserve,
    sequences_of,
)
from windtunnel.engine.transitions.speculation import queries_of, room_of, verify
from windtunnel.engine.transitions.tables import (
    FAILED_OPERATION,
    PER_SECOND,
    PREFILLS,
    SHARED_MEMORY,
    TOO_MANY,
    Records,
    World,
)
from windtunnel.engine.transitions.victims import first_victim, last_of, preempt
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
def last_token(w: World, device: int, slot: int) -> int:
    """Return the tick of the last token of a decoding sequence, before the present step."""
    v = w.servers[device]
    tick: int = max(v.produced if v.produced else v.began, w.sequences[slot].last)
    return tick


@hot
def _next_in(w: World, device: int, accepts: bool, passed_off: bool) -> tuple[int, int]:
    """Return the sequence that a device admits next, and its queue: -1 if it is preempted and waits in none.

    Preempted sequences come first, or with ``outranks``, unless a waiting one precedes them by the order of the policy.
    With ``passed_off`` none of them is admitted.
    """
    r, slot = w.run[0], w.servers[device].off
    if ADAPTERS and passed_off:
        slot = -1
    if slot >= 0 and not (CLASSES and r.outranks):
        return slot, -1
    queue = best_queue(w, device, -math.inf, -1) if accepts else -1
    if queue < 0 or (CLASSES and slot >= 0 and w.slots[slot].key <= w.slots[w.queues[queue].head].key):
        return slot, -1
    return w.queues[queue].head, queue


@hot
def _starts(w: World, device: int, slot: int, queue: int) -> None:
    """Take a sequence that is about to be admitted from its queue."""
    r = w.run[0]
    pop(w, queue)
    if CLASSES and r.fair and w.slots[slot].starts == 0:
        charge_prompt(w, device, slot)
    started(w, device, slot)
    if PREFIXES and r.caching:
        w.jobs[row_of(w, w.slots[slot].job)].hits = w.sequences[slot].hits
        if TIERS and r.levels > 1:
            note_start(w, slot)


@cold
def _pass(w: World, queue: int, passed: int) -> int:
    """Take the next job of a queue out of it, before those that were ``passed``; return the job."""
    slot = take_head(w, queue)
    w.slots[slot].next = passed
    return slot


@cold
def _return_passed(w: World, device: int, passed: int) -> None:
    """Return jobs to their queues, the last one first, so that each is at the head when it returns."""
    slot = passed
    while slot >= 0:
        following = w.slots[slot].next
        insert(w, own_queue(w, device, slot), slot)
        slot = following


@hot
def _admit(w: World, device: int, slot: int, needs: int) -> None:
    """Reserve memory for the prompt of a sequence, and let it be read when what is loaded for it is there."""
    reserve(w, device, slot, needs)
    if not is_loaded(w, slot):
        wait_for_load(w, device, slot)
        return
    append_reading(w, device, slot)


@hot
def _join(w: World, device: int) -> None:
    """Take the requests into the batch whose KV cache has arrived. Each has its first token now.

    Blocks of its prompt that a tier of this device had were not sent, and are waited for.
    """
    while w.ports[device].landed:
        slot = take_landed(w, device)
        if not is_loaded(w, slot):
            wait_for_load(w, device, slot)
        else:
            _has_read(w, device, slot)


@hot
def _join_loaded(w: World, device: int) -> None:
    """Let the sequences continue whose blocks are loaded: those with the rest of their KV cache here join the batch."""
    slot = next_loaded(w, device)
    while slot >= 0:
        if TRANSFERS and w.sequences[slot].read == w.sequences[slot].prompt:
            _has_read(w, device, slot)
        else:
            append_reading(w, device, slot)
        slot = next_loaded(w, device)


@hot
def _receive_next(w: World, device: int) -> bool:
    """Reserve memory for the first request that awaits it, and send its KV cache; return whether there is room."""
    slot = w.ports[device].awaiting
    if sequences_of(w, device) >= w.classes[w.devices[device].cls].most_sequences:
        return False
    if ADAPTERS and w.run[0].adapting and lacks_slot(w, device, slot):
        return False
    needs = needed_tokens(w, device, slot)
    if not has_room(w, device, slot, needs):
        return False
    reserve(w, device, slot, needs)
    send(w, device, slot)
    return True


@hot
def _room_for_prompts(w: World, device: int) -> int:
    """Return the tokens of the next step that neither decoding sequences nor prompts in prefill take.

    An engine that reserves whole outputs admits requests whether the next step has tokens for them or not.
    """
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    room: Any = np.int64(c.most_tokens)
    if c.whole:
        return int(room)
    if not c.alone:
        room -= v.decoding_count * queries_of(c)
    slot = v.reading
    while slot >= 0 and room > 0:
        room -= w.sequences[slot].prompt - w.sequences[slot].read
        slot = w.slots[slot].next
    return int(room)


# Long: every step passes through it, and a call takes time.
@hot
def _fill(w: World, device: int) -> None:
    """Admit sequences while there is memory and the next step has tokens: first the preempted ones, then others."""
    r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
    moves = TRANSFERS and r.disaggregated
    if moves:
        _join(w, device)
    accepts = is_available(w, device)
    if TIERS:
        _join_loaded(w, device)
    room = _room_for_prompts(w, device)
    passed_off, passed = False, -1
    while (CLASSES and r.outranks) or sequences_of(w, device) < c.most_sequences:
        if moves and v.off < 0 and w.ports[device].awaiting >= 0:
            if not _receive_next(w, device):
                break
            continue
        slot, queue = _next_in(w, device, accepts, passed_off)
        if slot < 0 or room <= 0:
            break
        if lacks_slot(w, device, slot):
            # Others may pass it. One that waits in a queue returns to its place below.
            passed_off |= queue < 0
            if queue >= 0:
                passed = _pass(w, queue, passed)
            continue
        needs = needed_tokens(w, device, slot)
        is_full = CLASSES and sequences_of(w, device) >= c.most_sequences
        if is_full or not has_room(w, device, slot, needs):
            victim = first_victim(w, device, slot, needs) if CLASSES and r.outranks else -1
            if victim < 0:
                break
            preempt(w, device, victim)
            room = _room_for_prompts(w, device)
            continue
        if queue < 0:
            v.off = w.slots[slot].next
        else:
            _starts(w, device, slot, queue)
        _admit(w, device, slot, needs)
        if not c.whole and is_loaded(w, slot):
            room -= w.sequences[slot].prompt - w.sequences[slot].read
    if passed >= 0:
        _return_passed(w, device, passed)
    _keep_within_memory(w, device)


@hot
def _keep_within_memory(w: World, device: int) -> None:
    """Preempt sequences until the others have memory for their next tokens, and then remove cached blocks."""
    r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
    while room_of(c, v) < 0 and (admitted(v) > v.decoding_count or v.decoding_count > 1):
        preempt(w, device, last_of(w, device))
    if TRANSFERS and r.disaggregated and w.ports[device].reserved:
        # The memory of requests whose KV cache is on its way is not taken back, not even for a last sequence.
        while room_of(c, v) < 0 and v.decoding_count:
            preempt(w, device, last_of(w, device))
    if PREFIXES and r.caching == SHARED_MEMORY and w.caches[device].spare > room_of(c, v):
        make_room(w, device, room_of(c, v))


@hot
def _take_chunks(w: World, device: int, decoding: int) -> tuple[float, float, int, int]:
    """Choose the chunks of prompts of a step in which sequences decode ``decoding`` tokens.

    Returns:
        The seconds and the joules of their attention, their tokens, and the number of prompts that end.
    """
    v, c = w.servers[device], w.classes[w.devices[device].cls]
    room = c.most_tokens - decoding
    # Each copy of the attention has its part of the tokens, and a prompt is on one copy.
    most = c.most_tokens // c.copies
    seconds = joules = 0.0
    ends = tokens = v.chunks = 0
    slot = v.reading
    while slot >= 0 and room > 0:
        q = w.sequences[slot]
        chunk = min(room, q.prompt - q.read, most)
        if c.undivided and q.read == 0 and chunk < q.prompt <= min(c.most_tokens - decoding, most):
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
def _microbatches(c: Records, decoding: int, tokens: int) -> int:
    """Return into how many microbatches a step with so many tokens of prompts is divided.

    A group with pipeline stages works on as many as it has stages, and each waits for the slowest stage.
    """
    return min(max(decoding, -(-tokens // MICROBATCH_TOKENS), 1), c.stages) if c.stages > 1 else 1


@hot
def _count_step(w: World, device: int, decoding: int, tokens: int, ends: int) -> None:
    """Count a completed step, for the shares of the device's peak rates."""
    cls = w.devices[device].cls
    micro = _microbatches(w.classes[cls], decoding, tokens)
    verified = decoding * queries_of(w.classes[cls])
    w.step_counts[cls, 0, -(-(verified + tokens) // micro)] += micro
    w.step_counts[cls, 1, -(-(verified + ends) // micro)] += micro


# Long: every step passes through it, and a call takes time.
@hot
def begin_step(w: World, device: int) -> None:
    """Begin the device's next step if it has work, and power for it."""
    r, d, v = w.run[0], w.devices[device], w.servers[device]
    c = w.classes[d.cls]
    _fill(w, device)
    # With prompts in steps of their own, the decoding sequences pause until all prompts are read.
    v.pausing = c.alone and v.reading >= 0
    decoding = 0 if v.pausing else v.decoding_count
    verified = decoding * queries_of(c)
    seconds, joules, tokens, ends = _take_chunks(w, device, verified)
    chunks = v.chunks
    if chunks == 0 and decoding == 0:
        if TIERS and v.loading >= 0:
            wake(w, device)
        return
    micro = _microbatches(c, decoding, tokens)
    linear, head = c.linear + -(-(verified + tokens) // micro), c.head + -(-(verified + ends) // micro)
    factor = (verified * c.decode_factor + tokens * c.prefill_factor) / float(verified + tokens)
    # A prompt is on one copy of the attention, and the others wait for the copy with the most tokens.
    most = -(-decoding // c.copies) * queries_of(c) + (-(-tokens // min(c.copies, chunks)) if tokens else 0)
    more_s, more_j = adapters_cost(w, c, v, -(-most // micro))
    step_s = factor * (w.numbers[linear] + w.numbers[head] + more_s)
    heads_j = w.numbers[head + c.most_sequences * queries_of(c) + 1]
    step_j = factor * (w.numbers[linear + c.most_tokens + 1] + heads_j + more_j)
    if c.copies > 1:
        of_copy = c.copy + -(-most // micro)
        step_s += factor * w.numbers[of_copy]
        working = float(verified + tokens) / float(c.copies * most)
        step_j += factor * (w.numbers[of_copy + c.most_tokens + 1] * working)
    if decoding:
        table, apart = c.decode + -(-decoding // micro) * c.columns, (c.most_sequences + 1) * c.columns
        more_s, more_j = _between(w.numbers, table, apart, float(v.attended) / float(decoding))
        step_s, step_j = step_s + c.decode_factor * more_s, step_j + c.decode_factor * more_j
    seconds, joules = c.prefill_factor * seconds, c.prefill_factor * joules
    if c.copies > 1:
        seconds /= float(min(c.copies, max(chunks, 1)))
    through_s = seconds / micro + step_s
    seconds = through_s * max(1.0, micro * c.stage_share)
    if tokens:
        seconds = max(seconds, c.prompt_s)
    seconds += c.host_s + c.host_sequence_s * (decoding + ends)
    seconds += c.drafting_s if decoding else 0.0
    # The devices wait for the host and for other stages, awake.
    joules = joules + micro * step_j + c.awake_w * max(seconds - micro * through_s / c.stages, 0.0)
    seconds, joules = seconds * c.step_factor, joules * c.step_factor
    seconds += v.loading_s
    scaled = np.rint(seconds * PER_SECOND)
    if scaled > TOO_MANY:
        r.too_long = 1
        return
    ticks: Any = np.int64(scaled)
    watts: Any = np.rint(joules / seconds / WATT_GRAIN) * WATT_GRAIN
    if INTERRUPTS and r.gated and not may_draw(w, device, watts):
        if v.decoding_count and v.produced == 0:
            v.produced = r.now
        return
    v.began = d.began = r.now
    v.peak = max(v.peak, v.cached + verified)
    v.loading_s = 0.0
    d.slot = 0
    if OPERATION_FAULTS and len(w.operation_faults):
        ticks = affect_step(w, device, ticks)
    proceed(w, device, ticks, watts)


@hot
def gap(w: World, ticks: int, tokens: int, work: int, of: int) -> None:
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
            gap(w, r.now - since, 1, w.slots[slot].work, w.slots[slot].job)
            slot = w.slots[slot].next
        v.produced = 0
        return
    for work in range(r.workloads):
        count = w.decoding_of[device, work]
        if count:
            gap(w, r.now - v.began, count, work, -1 - device)


@hot
def deliver_last(w: World, device: int, slot: int) -> None:
    """Deliver the last token of a sequence."""
    if TIERS and w.run[0].levels > 1:
        note_hits(w, slot)
    ended(w, device, slot, True)


@hot
def _finish(w: World, device: int, slot: int) -> None:
    """Deliver the last token of a sequence; an unreachable device holds it back."""
    if PREFIXES and w.run[0].caching and w.workloads[w.slots[slot].work].answers >= 0:
        keep_answer(w, device, slot)
    if w.devices[device].linked:
        deliver_last(w, device, slot)
    else:
        w.slots[slot].next = w.servers[device].undelivered
        w.servers[device].undelivered = slot


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
        gap(w, r.now - q.last, 1, w.slots[slot].work, w.slots[slot].job)
    v.cached += 1
    v.promised -= 1
    if CLASSES and r.fair:
        charge_tokens(w, device, slot, 1)
    q.last = r.now
    if q.output == 1:
        release_memory(w, device, slot, q.prompt + 1)
        _finish(w, device, slot)
        return
    v.attended += q.prompt + 1
    q.joules_at_birth = v.per_token
    q.born = v.steps
    q.ends = v.steps + q.output - 1
    if SPECULATION and w.classes[w.devices[device].cls].queries > 1:
        # It is not known in advance after which step it ends.
        q.made, q.ends = 1, FAR
    append_decoding(w, device, slot)


@hot
def note_use(w: World, device: int) -> None:
    """Add the sequences and the cached tokens of the device's present step to its sums."""
    v = w.servers[device]
    ticks = float(w.run[0].now - v.began)
    v.held += float(v.cached) * ticks
    v.present += float(admitted(v)) * ticks


@hot
def _end_decoding(w: World, device: int, slot: int) -> None:
    """End a sequence that has produced all of its output."""
    v, q = w.servers[device], w.sequences[slot]
    remove_decoding(w, device, slot)
    held = q.prompt + q.output
    v.attended -= held
    release_memory(w, device, slot, held)
    w.slots[slot].energy += v.per_token - q.joules_at_birth
    _finish(w, device, slot)


@hot
def _end_complete(w: World, device: int) -> None:
    """End the decoding sequences that have produced all of their output."""
    slot = w.servers[device].decoding
    while slot >= 0:
        following = w.slots[slot].next
        if w.sequences[slot].made == w.sequences[slot].output:
            _end_decoding(w, device, slot)
        slot = following


# Long: every step passes through it, and a call takes time.
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
    speculating = SPECULATION and w.classes[d.cls].queries > 1
    v.decoded += decoding
    if decoding:
        v.contexts += v.attended
    if v.pausing:
        if v.produced == 0:
            v.produced = v.began
    else:
        v.steps += 1
        made: Any = np.int64(decoding)
        if SPECULATION and speculating:
            made = verify(w, device)
        v.tokens += made
        v.cached += made
        v.attended += made
        v.promised -= made
        _record_gaps(w, device)
        if SPECULATION and speculating:
            _end_complete(w, device)
        elif CLASSES and r.fair:
            charge_step(w, device)
    while v.ending >= 0 and w.sequences[v.ending].ends == v.steps:
        _end_decoding(w, device, v.ending)
    read: Any = np.int64(0)
    ends = 0
    v.chunks_read += v.chunks
    for _ in range(v.chunks):
        slot = v.reading
        q = w.sequences[slot]
        v.scores += float(q.chunk) * (float(q.read) + float(q.chunk + 1) / 2.0)
        q.read += q.chunk
        v.spans += float(q.read)
        read += q.chunk
        if q.read == q.prompt:
            ends += 1
            v.reading = w.slots[slot].next
            if v.reading < 0:
                v.reading_end = -1
            else:
                w.sequences[v.reading].before = -1
            v.reading_count -= 1
            _has_read(w, device, slot)
    v.chunks = 0
    v.tokens += read
    v.prompt_tokens += read
    _count_step(w, device, decoding, read, ends)
    r.feeding = device
