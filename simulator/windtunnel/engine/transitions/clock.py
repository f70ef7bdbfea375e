"""Schedules the ends of work and timers: with SimPy in the process engine, in heaps in the compiled engine."""

from __future__ import annotations

from windtunnel.engine.transitions.features import SIMPY, cold, hot
from windtunnel.engine.transitions.heap import ROOT, heap_push, heap_remove, sift_down
from windtunnel.engine.transitions.tables import ENTITIES, World


@hot
def set_end(w: World, device: int, tick: int) -> None:
    """Schedule the end of the device's present work."""
    if SIMPY and w.clock is not None:
        w.clock.set_end(device, tick)
        return
    r = w.run[0]
    if r.stale == device + 1:
        r.stale = 0
        w.ends[ROOT].tick, w.ends[ROOT].which = tick, device
        sift_down(w.ends, r.heap, ROOT)
    else:
        r.heap = heap_push(w.ends, r.heap, tick, device)


@cold
def cancel_end(w: World, device: int) -> None:
    """Cancel the end of the device's present work."""
    if SIMPY and w.clock is not None:
        w.clock.cancel_end(device)
        return
    r = w.run[0]
    r.heap = heap_remove(w.ends, r.heap, device)


@cold
def set_timer(w: World, kind: int, entity: int, tick: int) -> None:
    """Schedule an event of a kind."""
    if SIMPY and w.clock is not None:
        w.clock.set_timer(tick, kind * ENTITIES + entity)
        return
    r = w.run[0]
    r.timer_count = heap_push(w.timers, r.timer_count, tick, kind * ENTITIES + entity)
