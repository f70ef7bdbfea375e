"""The power budget of the whole fleet, which holds at every instant.

Work reserves its peak power before it starts. Refused work waits: with a queue for each device, and on devices with
continuous batches, the devices wait in line; with a central queue, no other job starts before the first one. If the
budget falls below the reserved power, the work that started last is paused (at one tick, that of the device with the
highest number first), and it continues before other work starts.
"""

from __future__ import annotations

from windtunnel.engine.transitions.consequences import sweep_classes
from windtunnel.engine.transitions.features import GANGS, cold
from windtunnel.engine.transitions.gangs import any_down, leader_of
from windtunnel.engine.transitions.tables import STREAM, World
from windtunnel.engine.transitions.work import halt, resume


@cold
def may_draw(w: World, device: int, need: float) -> bool:
    """Return whether the budget allows a start that needs ``need`` watts, and reserve them; else the work waits."""
    r, d = w.run[0], w.devices[device]
    in_turn = r.line_count == 0 or w.line[r.line_first] == device
    if r.paused == 0 and in_turn and r.drawn_w + need <= r.cap_w:
        r.drawn_w += need
        d.need += need
        return True
    r.refused = 1
    if (r.routed or r.serving) and not d.in_line:
        w.line[(r.line_first + r.line_count) % len(w.line)] = device
        r.line_count += 1
        d.in_line = 1
    return False


@cold
def release(w: World, device: int) -> None:
    """Release the power of the device's work, which has ended or stopped."""
    r, d = w.run[0], w.devices[device]
    if d.paused:
        d.paused = 0
        r.paused -= 1
    else:
        r.drawn_w -= d.need
    d.need = 0.0
    r.draining = 1


@cold
def shed(w: World) -> None:
    """Pause the work that started last until the rest fits into the budget."""
    r = w.run[0]
    while r.drawn_w > r.cap_w:
        latest = -1
        for device in range(r.devices):
            d = w.devices[device]
            if GANGS and r.ganging and leader_of(w, device) != device:
                continue
            if (
                d.slot >= 0
                and not d.paused
                and not d.held
                and d.outages == 0
                and (latest < 0 or d.began >= w.devices[latest].began)
            ):
                latest = device
        if latest < 0:
            return
        halt(w, latest)
        w.devices[latest].paused = 1
        r.paused += 1
        r.drawn_w -= w.devices[latest].need


@cold
def drain(w: World) -> None:
    """Give available power to the next consumer: first paused work, the oldest first, then devices in line."""
    r = w.run[0]
    if r.paused:
        oldest = -1
        for device in range(r.devices):
            d = w.devices[device]
            # The jobs of a device that is down are about to be interrupted.
            if d.paused and (oldest < 0 or d.began < w.devices[oldest].began) and not any_down(w, device):
                oldest = device
        if oldest < 0:
            r.draining = 0
            return
        d = w.devices[oldest]
        if r.drawn_w + d.need > r.cap_w:
            r.draining = 0
            return
        r.drawn_w += d.need
        d.paused = 0
        r.paused -= 1
        resume(w, oldest)
        return
    if r.line_count:
        _drain_line(w)
        return
    r.draining = 0
    if not r.routed:
        sweep_classes(w, r.all_classes, r.all_classes + r.classes)


@cold
def _drain_line(w: World) -> None:
    """Offer power to the first device in line, once; a device that does not need it any more leaves the line."""
    r = w.run[0]
    device = w.line[r.line_first]
    d = w.devices[device]
    if r.tried != device and (d.slot < 0 or w.classes[d.cls].kind == STREAM) and d.outages == 0:
        r.tried, r.refused = device, 0
        r.feeding = device
        return
    if r.tried == device and r.refused:
        r.draining = 0
    else:
        r.line_first = (r.line_first + 1) % len(w.line)
        r.line_count -= 1
        d.in_line = 0
    r.tried = -1
