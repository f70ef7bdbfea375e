"""The slots of LoRA adapters on devices with continuous batching.

The sequences of a batch use at most as many adapters as a device has slots. A request whose adapter has no slot waits
until one is free, and later requests may pass it, as in vLLM's scheduler. An adapter that no sequence uses keeps its
slot until another one needs it; the least recently used one goes. Loading is part of the next step of the device,
because the engine copies the weights before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.features import ADAPTERS, cold, hot
from windtunnel.engine.transitions.tables import Records, World


@hot
def adapter_of(w: World, slot: int) -> int:
    """Return the number of a job's adapter; 0 if it has none."""
    s = w.slots[slot]
    at = w.workloads[s.work].adapters
    number: int = w.ints[at + s.rank] if at >= 0 else 0
    return number


@hot
def _place(w: World, device: int, adapter: int) -> int:
    """Return where the device has an adapter in a slot; -1 if nowhere."""
    first = device * w.run[0].adapter_places
    for place in range(first, first + w.classes[w.devices[device].cls].slots):
        if w.adapters[place].number == adapter:
            return place
    return -1


@hot
def has_adapter(w: World, device: int, slot: int) -> bool:
    """Return whether the device has the job's adapter in a slot, or the job needs none."""
    adapter = adapter_of(w, slot)
    return adapter == 0 or _place(w, device, adapter) >= 0


@hot
def lacks_slot(w: World, device: int, slot: int) -> bool:
    """Return whether the job has to wait, because the sequences of the device use all slots for other adapters."""
    if not (ADAPTERS and w.run[0].adapting):
        return False
    full = w.servers[device].adapters == w.classes[w.devices[device].cls].slots
    return bool(full and not has_adapter(w, device, slot))


@hot
def adapters_cost(w: World, c: Records, v: Records, tokens: int) -> tuple[float, float]:
    """Return the seconds and the joules that the adapters of a batch add to the products of so many tokens."""
    if not (ADAPTERS and v.adapters):
        return 0.0, 0.0
    at = c.adapted + v.adapters * (c.most_tokens + 1) + tokens
    return w.numbers[at], w.numbers[at + (c.slots + 1) * (c.most_tokens + 1)]


@cold
def _oldest(w: World, first: int, last: int) -> int:
    """Return the least recently used place from ``first`` on, before ``last``, that no sequence uses."""
    oldest: Any = np.int64(-1)
    for place in range(first, last):
        if w.adapters[place].users == 0 and (oldest < 0 or w.adapters[place].used < w.adapters[oldest].used):
            oldest = np.int64(place)
    return int(oldest)


@cold
def _is_on_host(w: World, device: int, adapter: int) -> bool:
    """Return whether the device's host holds an adapter, and let it hold it from now on."""
    r, c = w.run[0], w.classes[w.devices[device].cls]
    if c.host == 0:
        return True
    first = device * r.adapter_places + c.slots
    for place in range(first, first + c.host):
        if w.adapters[place].number == adapter:
            w.adapters[place].used = r.adapter_turn
            return True
    place = _oldest(w, first, first + c.host)
    w.adapters[place].number, w.adapters[place].used = adapter, r.adapter_turn
    return False


@cold
def use_adapter(w: World, device: int, slot: int) -> None:
    """Let an admitted sequence use its adapter, which is loaded if no slot has it."""
    r, v, c = w.run[0], w.servers[device], w.classes[w.devices[device].cls]
    adapter, work = adapter_of(w, slot), w.workloads[w.slots[slot].work]
    if adapter == 0:
        return
    r.adapter_turn += 1
    on_host = _is_on_host(w, device, adapter)
    place = _place(w, device, adapter)
    if place >= 0:
        work.adapter_hits += 1
    else:
        first = device * r.adapter_places
        place = _oldest(w, first, first + c.slots)
        w.adapters[place].number = adapter
        work.adapter_loads += 1
        v.loading_s += c.load_adapter_s
        if not on_host:
            work.adapter_reads += 1
            v.loading_s += c.read_adapter_s
    if w.adapters[place].users == 0:
        v.adapters += 1
    w.adapters[place].users += 1
    w.adapters[place].used = r.adapter_turn


@cold
def release_adapter(w: World, device: int, slot: int) -> None:
    """Let a sequence that leaves the batch use its adapter no more."""
    adapter = adapter_of(w, slot)
    if adapter == 0:
        return
    place = _place(w, device, adapter)
    w.adapters[place].users -= 1
    if w.adapters[place].users == 0:
        w.servers[device].adapters -= 1


@cold
def forget_adapters(w: World, device: int) -> None:
    """Empty the slots of a device without sequences, and what its host holds, because the engine starts again."""
    r, v = w.run[0], w.servers[device]
    v.adapters, v.loading_s = 0, 0.0
    for place in range(device * r.adapter_places, (device + 1) * r.adapter_places):
        a = w.adapters[place]
        a.number = a.users = a.used = 0
