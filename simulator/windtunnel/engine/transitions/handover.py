"""Requests that move from a device that has read their prompt to a device that decodes them.

When a prompt has been read, the request keeps its KV cache where it is. A route chooses the device that decodes it
(`dispatch.hand_next`). That device reserves memory for it between two of its steps, in the order in which requests were
handed to it, and then the KV cache is sent. A transfer occupies the links of the sender and of the receiver, each in
one direction, and begins when both are free; so each link is a queue. When it has ended, the memory of the sender is
free, and the request joins the receiver's batch between two steps (as in vLLM's NIXL connector and in SGLang).

Docs: docs/decisions/0034-disaggregated-serving.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windtunnel.engine.transitions.adapters import release_adapter
from windtunnel.engine.transitions.clock import set_timer
from windtunnel.engine.transitions.features import ADAPTERS, INTERRUPTS, PREFIXES, QUESTIONS, TRANSFERS, cold, hot
from windtunnel.engine.transitions.jobs import count_running, row_of
from windtunnel.engine.transitions.prefixes import release_prompt
from windtunnel.engine.transitions.queues import left, reindex
from windtunnel.engine.transitions.sequences import release_memory
from windtunnel.engine.transitions.tables import (
    AWAITS,
    HANDED,
    LANDED,
    LANDING,
    LATEST,
    NOT_HANDED,
    PER_SECOND,
    SENT,
    STRANDED,
    World,
)
from windtunnel.engine.transitions.waits import SLOTS, entity_of

# The lists.


@hot
def hold(w: World, device: int, slot: int) -> None:
    """Keep the KV cache of a request whose prompt has been read on the device, and let a device be chosen for it."""
    p, q = w.ports[device], w.sequences[slot]
    q.before = -1
    w.slots[slot].next = p.holding
    if p.holding >= 0:
        w.sequences[p.holding].before = slot
    p.holding = slot
    h = w.handovers[slot]
    h.sender, h.receiver, h.asked = device, -1, w.run[0].now
    # What it has delivered, if a device is lost that it is on: before an earlier device was lost.
    q.delivered = q.prompt - w.ints[w.workloads[w.slots[slot].work].prompts + w.slots[slot].rank]
    q.seen = q.last
    hand(w, slot)


@hot
def hand(w: World, slot: int) -> None:
    """Append a request to those that a device is to be chosen for."""
    r, h = w.run[0], w.handovers[slot]
    h.stage, h.next = HANDED, -1
    if r.handing < 0:
        r.handing = slot
    else:
        w.handovers[r.handing_end].next = slot
    r.handing_end = slot


@hot
def _hold_no_more(w: World, slot: int) -> None:
    """Remove a request from those that its sender holds."""
    p, q = w.ports[w.handovers[slot].sender], w.sequences[slot]
    following = w.slots[slot].next
    if q.before < 0:
        p.holding = following
    else:
        w.slots[q.before].next = following
    if following >= 0:
        w.sequences[following].before = q.before


@hot
def offer_later(w: World, device: int) -> None:
    """Let the device start work that it has memory for now, after the present event."""
    r, p = w.run[0], w.ports[device]
    if not p.listed:
        p.listed, p.following = 1, r.freed
        r.freed = device


@hot
def next_offer(w: World) -> int:
    """Remove and return a device that may start work."""
    r = w.run[0]
    device: int = r.freed
    p = w.ports[device]
    r.freed, p.listed = p.following, 0
    return device


@hot
def await_room(w: World, device: int, slot: int) -> None:
    """Append a request to those that come to the device."""
    r, p, q, h = w.run[0], w.ports[device], w.sequences[slot], w.handovers[slot]
    h.stage, h.receiver = AWAITS, device
    q.earlier, q.later = p.incoming_end, -1
    if p.incoming_end < 0:
        p.incoming = slot
    else:
        w.sequences[p.incoming_end].later = slot
    p.incoming_end = slot
    if p.awaiting < 0:
        p.awaiting = slot
    p.waiting += 1
    if r.routed:
        w.devices[device].present += 1
        reindex(w, device)
    if QUESTIONS and r.scaling:
        count_running(w, device, 1)


@hot
def _comes_no_more(w: World, slot: int) -> None:
    """Remove a request from those that come to its receiver."""
    h, q = w.handovers[slot], w.sequences[slot]
    p = w.ports[h.receiver]
    if h.stage == AWAITS:
        p.waiting -= 1
        if p.awaiting == slot:
            p.awaiting = q.later
    else:
        p.reserved -= 1
        if h.stage == LANDED:
            p.landed -= 1
    if q.earlier < 0:
        p.incoming = q.later
    else:
        w.sequences[q.earlier].later = q.later
    if q.later < 0:
        p.incoming_end = q.earlier
    else:
        w.sequences[q.later].earlier = q.earlier


# The transfer.


@hot
def send(w: World, device: int, slot: int) -> None:
    """Send the KV cache of the first request that awaits memory of the device, which was reserved now.

    What the prefix cache of the device has is not sent. The slower of both ends decides.
    """
    r, p, q, h = w.run[0], w.ports[device], w.sequences[slot], w.handovers[slot]
    to, sender = w.classes[w.devices[device].cls], w.ports[h.sender]
    by = w.classes[w.devices[h.sender].cls]
    h.tokens = q.prompt
    if PREFIXES and r.caching:
        h.tokens = q.prompt - q.read
    size = float(h.tokens) * to.token_bytes + to.state_bytes
    if sender.node >= 0 and sender.node == p.node:
        seconds = size / min(by.link_rate, to.link_rate) + max(by.link_s, to.link_s)
    else:
        seconds = size / min(by.network_rate, to.network_rate) + max(by.network_s, to.network_s)
    scaled = math.ceil(seconds * PER_SECOND)
    h.began = max(r.now, sender.sends_until, p.receives_until)
    if scaled > float(LATEST - h.began):
        r.too_long = 1
        return
    ticks: Any = np.int64(max(scaled, 1))
    h.lands = h.began + ticks
    h.stage = SENT
    sender.sends_until = p.receives_until = h.lands
    p.waiting -= 1
    p.reserved += 1
    p.awaiting = q.later
    if h.lands < r.end:
        set_timer(w, LANDING, entity_of(w, slot), h.lands)


@hot
def _leave_sender(w: World, slot: int) -> None:
    """Release what the sender of a request keeps for it."""
    r, h, q = w.run[0], w.handovers[slot], w.sequences[slot]
    _hold_no_more(w, slot)
    # Both devices use the same number of runs of its prompt.
    using = q.using
    q.read = q.prompt
    release_memory(w, h.sender, slot, q.prompt)
    q.using = using
    left(w, h.sender)
    if QUESTIONS and r.scaling:
        count_running(w, h.sender, -1)


@hot
def land(w: World, entity: int) -> None:
    """End the transfer of a request, unless it was given up."""
    r, slot = w.run[0], entity % SLOTS
    h = w.handovers[slot]
    if h.stage != SENT or h.lands != r.now or entity_of(w, slot) != entity:
        return
    row = w.transfers[r.transfers]
    r.transfers += 1
    row.job, row.sender, row.receiver, row.tokens = w.slots[slot].job, h.sender, h.receiver, h.tokens
    row.asked, row.began, row.landed = h.asked, h.began, r.now
    _leave_sender(w, slot)
    h.stage = LANDED
    w.ports[h.receiver].landed += 1
    w.jobs[row_of(w, w.slots[slot].job)].on = h.receiver
    offer_later(w, h.sender)
    r.feeding = h.receiver
    if INTERRUPTS and r.gated:
        r.draining = 1


@hot
def take_landed(w: World, device: int) -> int:
    """Remove and return the first request whose KV cache has arrived."""
    slot: int = w.ports[device].incoming
    _comes_no_more(w, slot)
    w.handovers[slot].stage = NOT_HANDED
    return slot


# Devices that fail.


@cold
def _give_up(w: World, slot: int) -> None:
    """Take a request that has not arrived away from its receiver."""
    r, h = w.run[0], w.handovers[slot]
    device, was = h.receiver, h.stage
    _comes_no_more(w, slot)
    h.receiver = -1
    if was == SENT:
        q = w.sequences[slot]
        v, c = w.servers[device], w.classes[w.devices[device].cls]
        v.promised -= q.output
        using = q.using
        if PREFIXES and r.caching:
            v.cached -= _reserved_tokens(w, device, slot)
        else:
            v.cached -= q.prompt
        v.cached -= c.state
        q.using = using
        if ADAPTERS and r.adapting:
            release_adapter(w, device, slot)
    left(w, device)
    if QUESTIONS and r.scaling:
        count_running(w, device, -1)


@cold
def _reserved_tokens(w: World, device: int, slot: int) -> int:
    """Release the blocks of a request that does not arrive; return the tokens that its memory had."""
    kept = release_prompt(w, device, slot, False)
    tokens: int = w.sequences[slot].prompt - kept
    return tokens


@cold
def hand_again(w: World, device: int) -> None:
    """Let another device be chosen for the requests that were to come to a device that failed.

    Their KV caches are on their senders. Those that have arrived are lost with the device.
    """
    p = w.ports[device]
    slot = p.incoming
    while slot >= 0:
        following = w.sequences[slot].later
        if w.handovers[slot].stage != LANDED:
            _give_up(w, slot)
            hand(w, slot)
        slot = following


@cold
def take_handed(w: World, device: int) -> int:
    """Remove a request from a device that failed: one that has arrived, or one that it holds; -1 if none is left."""
    r, p = w.run[0], w.ports[device]
    if p.landed:
        slot = take_landed(w, device)
    elif p.holding >= 0:
        slot = p.holding
        h = w.handovers[slot]
        if h.stage == STRANDED:
            _leave_stranded(w, slot)
        elif h.stage in (AWAITS, SENT):
            receiver = h.receiver
            _give_up(w, slot)
            offer_later(w, receiver)
        _hold_no_more(w, slot)
        h.stage = NOT_HANDED
    else:
        return -1
    if PREFIXES and r.caching:
        release_prompt(w, device, slot, True)
    w.sequences[slot].read = 0
    return int(slot)


# Requests without a device.


@cold
def strand(w: World, slot: int) -> None:
    """Keep a request whose prompt has been read until a device becomes available that decodes it."""
    r, h = w.run[0], w.handovers[slot]
    h.stage, h.next = STRANDED, -1
    if r.stranded < 0:
        r.stranded = slot
    else:
        w.handovers[r.stranded_end].next = slot
    r.stranded_end = slot
    r.strandeds += 1
    r.last_finish = r.now


@cold
def _leave_stranded(w: World, slot: int) -> None:
    r, before, at = w.run[0], -1, w.run[0].stranded
    while at != slot:
        before, at = at, w.handovers[at].next
    following = w.handovers[slot].next
    if before < 0:
        r.stranded = following
    else:
        w.handovers[before].next = following
    if following < 0:
        r.stranded_end = before
    r.strandeds -= 1


@cold
def hand_stranded(w: World) -> None:
    """Choose devices for the requests that had none, because a device has become available."""
    r = w.run[0]
    if not TRANSFERS or not r.disaggregated:
        return
    while r.stranded >= 0:
        slot = r.stranded
        r.stranded = w.handovers[slot].next
        r.strandeds -= 1
        hand(w, slot)
