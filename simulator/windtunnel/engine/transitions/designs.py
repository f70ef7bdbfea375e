"""The designs of reconfigurable devices: which are resident, which goes for another, and what a load adds.

A row of ``World.resident`` has designs, the most recently used first, and -1 for each empty region. The first rows are
what each device holds. The next ones are what each device is expected to hold when it has executed the jobs that are
assigned to it; routes are told the loads that a job needs then. One row is for trying. The last ones are what the
devices of each class hold at the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.containers import NOT_HERE
from windtunnel.engine.transitions.features import GANGS, cold
from windtunnel.engine.transitions.tables import World


@cold
def design_of(w: World, segment: int, slot: int) -> Any:
    """Return the design that the job needs in a segment of its program; -1 if none."""
    g = w.segments[segment]
    return np.int64(g.design) if g.design_at < 0 else w.ints[g.design_at + w.slots[slot].rank]


@cold
def expected_row(w: World, device: int) -> int:
    """Return the row of what the device is expected to hold after its jobs."""
    return len(w.devices) + device


@cold
def trial_row(w: World) -> int:
    """Return the row for trying."""
    return 2 * len(w.devices)


@cold
def copy_row(w: World, to: int, source: int) -> None:
    """Copy the designs of a row to another."""
    for place in range(w.resident.shape[1]):
        w.resident[to, place] = w.resident[source, place]


@cold
def find(w: World, row: int, design: int) -> int:
    """Return the place of a design in a row; -1 if it is absent."""
    for place in range(w.resident.shape[1]):
        if w.resident[row, place] == design:
            return place
    return -1


@cold
def use(w: World, row: int, regions: int, design: int) -> None:
    """Put a design in front of its row; if it was absent and no region is empty, the last one goes."""
    place = find(w, row, design)
    if place < 0:
        place = regions - 1
    for i in range(place, 0, -1):
        w.resident[row, i] = w.resident[row, i - 1]
    w.resident[row, 0] = design


@cold
def is_resident(w: World, device: int, design: int) -> bool:
    """Return whether the device, and all devices that follow it, hold a design; if so, it is used now."""
    member = device
    while member >= 0:
        if find(w, member, design) < 0:
            return False
        member = w.gangs[member].following if GANGS and w.run[0].ganging else -1
    _use_on_all(w, device, design)
    return True


@cold
def _use_on_all(w: World, device: int, design: int) -> None:
    regions = w.classes[w.devices[device].cls].regions
    member = device
    while member >= 0:
        use(w, member, regions, design)
        member = w.gangs[member].following if GANGS and w.run[0].ganging else -1


@cold
def clear_region(w: World, device: int, design: int) -> None:
    """Clear the region of a device into which a design is loaded: its own, an empty one, or the one used least lately.

    What was there is lost even if the load is interrupted.
    """
    regions = w.classes[w.devices[device].cls].regions
    place = find(w, device, design)
    if place < 0:
        place = regions - 1
    for i in range(place, regions - 1):
        w.resident[device, i] = w.resident[device, i + 1]
    w.resident[device, regions - 1] = -1


@cold
def begin_loading(w: World, device: int, design: int) -> None:
    """Note that the device, and all devices that follow it, load a design from now on. All are programmed together."""
    member = device
    while member >= 0:
        clear_region(w, member, design)
        w.overhead[0].loads += 1
        # Neither the speed of the device nor that of a job matters for the time of a load.
        w.extras[member].loading, w.extras[member].timed = 1 + design, 1
        member = w.gangs[member].following if GANGS and w.run[0].ganging else -1


@cold
def loaded(w: World, device: int) -> None:
    """Note that the load of the device, and of all devices that follow it, is complete."""
    _use_on_all(w, device, w.extras[device].loading - 1)
    stop_loading(w, device)


@cold
def stop_loading(w: World, device: int) -> None:
    """Note that the device, and all devices that follow it, do not load a design any more."""
    member = device
    while member >= 0:
        w.extras[member].loading = w.extras[member].timed = 0
        member = w.gangs[member].following if GANGS and w.run[0].ganging else -1


@cold
def lose_designs(w: World, device: int) -> None:
    """Note that the device holds no design any more, because it has failed or is reset."""
    for place in range(w.resident.shape[1]):
        w.resident[device, place] = -1
    if w.devices[device].present == 0:
        copy_row(w, expected_row(w, device), device)


@cold
def provide_designs(w: World, device: int) -> None:
    """Let the device hold what those of its class hold at the start."""
    copy_row(w, device, trial_row(w) + 1 + w.devices[device].cls)
    copy_row(w, expected_row(w, device), device)


@cold
def loads_of(w: World, row: int, device: int, slot: int) -> int:
    """Return how many designs the job of the slot loads on a device that holds those of a row, which changes."""
    r, c, s = w.run[0], w.classes[w.devices[device].cls], w.slots[slot]
    way = w.programs[w.devices[device].cls * r.workloads + s.work].ways
    choice = w.workloads[s.work].way_at
    if choice >= 0:
        way += w.ints[choice + s.rank]
    loads = 0
    for segment in range(w.ways[way].first, w.ways[way].last + 1):
        design = design_of(w, segment, slot)
        if design >= 0:
            if find(w, row, design) < 0:
                loads += 1
            use(w, row, c.regions, design)
    return loads


@cold
def loads_on(w: World, device: int, slot: int) -> int:
    """Return how many designs the job of the slot is expected to load on a device, after the jobs that it has."""
    copy_row(w, trial_row(w), expected_row(w, device))
    return loads_of(w, trial_row(w), device, slot)


@cold
def with_fewest_loads(w: World, cls: int, slot: int) -> int:
    """Return the available device of a class that needs the fewest loads for a job, of these the first by the route's
    index; -1 if none is available.
    """
    c = w.classes[cls]
    best: Any = np.int64(-1)
    fewest = 0
    least: Any = np.int64(0)
    for device in range(c.first, c.first + c.count):
        load = w.tree[c.leaf + device - c.first].load
        if load >= NOT_HERE:
            continue
        loads = loads_on(w, device, slot)
        if best < 0 or loads < fewest or (loads == fewest and load < least):
            best, fewest, least = np.int64(device), loads, load
    return int(best)
