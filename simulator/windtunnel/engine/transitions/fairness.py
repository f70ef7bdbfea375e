"""Fair queueing of requests, by virtual token counters.

They are those of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024), algorithm 2. A flow is a
tenant's requests of one priority (`engine/prepare/tenants.py`). Of the flows with waiting requests, the one that was
served the least is next. It is charged for the tokens of a prompt when its request is admitted for the first time, and
for a generated token when it is made. A flow that had no waiting request does not save up what it did not use: its
counter is raised to the least of the flows that wait, or if none waits, to that of the last one that did.

A device with a queue of its own counts what it served itself; the devices of a central queue count together.
"""

from __future__ import annotations

from windtunnel.engine.transitions.features import cold, hot
from windtunnel.engine.transitions.tables import Records, World


@cold
def flow_of(w: World, slot: int) -> int:
    """Return the flow of a job."""
    s = w.slots[slot]
    flows: int = w.workloads[s.work].flows
    return w.ints[flows + s.rank] if flows >= 0 else -1 - flows


@cold
def share_of(w: World, queue: int) -> int:
    """Return the row in ``shares`` of the flow that waits in a queue."""
    r = w.run[0]
    return queue if r.routed else queue % r.lines


@cold
def joins(w: World, queue: int) -> None:
    """Count a job that begins to wait in a queue. If it is the first of its flow, raise the counter of the flow."""
    r = w.run[0]
    mine = share_of(w, queue)
    flow = mine % r.lines
    own, f, shares = w.shares[mine], w.flows[flow], mine - flow
    own.waiting += 1
    if own.waiting > 1:
        return
    least = -1
    for other in range(f.first, f.end):
        if other == flow or w.shares[shares + other].waiting == 0:
            continue
        if least < 0 or w.shares[shares + other].served < w.shares[shares + least].served:
            least = other
    if least < 0:
        least = w.shares[shares + f.first].latest
    if least >= 0:
        own.served = max(own.served, w.shares[shares + least].served)


@cold
def leaves(w: World, queue: int) -> None:
    """Count a job that does not wait in a queue any more."""
    mine = share_of(w, queue)
    flow = mine % w.run[0].lines
    own = w.shares[mine]
    own.waiting -= 1
    if own.waiting == 0:
        w.shares[mine - flow + w.flows[flow].first].latest = flow


@cold
def _served(w: World, device: int, flow: int) -> Records:
    return w.shares[(device * w.run[0].lines if w.run[0].routed else 0) + flow]


@cold
def charge_prompt(w: World, device: int, slot: int) -> None:
    """Charge a flow for the tokens of an admitted prompt that have to be read."""
    flow, q = flow_of(w, slot), w.sequences[slot]
    _served(w, device, flow).served += w.flows[flow].prompt * (q.prompt - q.read)


@cold
def charge_tokens(w: World, device: int, slot: int, tokens: int) -> None:
    """Charge the flow of a request for generated tokens: the first one after a prompt, and those of accepted drafts."""
    flow = flow_of(w, slot)
    _served(w, device, flow).served += w.flows[flow].output * tokens


@hot
def charge_step(w: World, device: int) -> None:
    """Charge every flow for a token of each of its sequences that decode on a device."""
    r = w.run[0]
    for flow in range(r.lines):
        count = w.decoding_of[device, r.workloads + flow]
        if count:
            _served(w, device, flow).served += w.flows[flow].output * count


@hot
def count_decoding(w: World, device: int, slot: int, change: int) -> None:
    """Note that a sequence of a device begins or ceases to decode."""
    w.decoding_of[device, w.run[0].workloads + flow_of(w, slot)] += change
