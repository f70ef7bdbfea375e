"""Nobody can go on: who waits for whom, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from windtunnel.core.errors import BarrierDivergence, Deadlock, Finding

if TYPE_CHECKING:
    from windtunnel.emulator.lockstep.arrays import Launch
    from windtunnel.emulator.threads.cells import Cells
    from windtunnel.emulator.threads.machine import Machine, Thread


class Look(NamedTuple):
    """What a waiting thread looked at, what it found, and where it did."""

    cells: Cells
    at: int
    value: Any
    line: int


_SHOWN = 4
"""Threads of a circle that a message tells of."""


def parted(
    launch: Launch, came: Sequence[Thread], ended: Sequence[Thread], what: str, of: str, number: tuple[int, int]
) -> BarrierDivergence:
    """Some come to a barrier, and others never do: they have ended, or wait at another.

    ``number``: threads that have come, and all.
    """
    first = came[0]
    other = next((one for one in came if one.meeting != first.meeting and _line(one) != _line(first)), None)
    if other is None:
        other = ended[0]
        tail = f"{launch.who(other.id)} has ended without"
        lines: tuple[int, ...] = (_line(first),)
        reach = f"{number[0]:,} of {number[1]:,} threads {of} reach"
    else:
        tail = f"{launch.who(other.id)} waits at another, at {launch.at(_line(other))}"
        lines = (_line(first), _line(other))
        reach = f"some threads {of} reach"
    return BarrierDivergence(
        f"{launch.where()}: {reach} {what} at {launch.at(_line(first))}: {launch.who(first.id)} does, {tail}",
        **launch.found_at(*lines),
        threads=(launch.thread(first.id), launch.thread(other.id)),
    )


def _line(thread: Thread) -> int:
    """Where a thread waits."""
    if thread.meeting is not None:
        return thread.meeting.line
    return thread.looks[0].line if thread.looks else 0


def stuck(machine: Machine, threads: Sequence[Thread], unborn: Sequence[int]) -> Finding:
    """What is found where no thread can go on. ``unborn``: blocks that have not begun."""
    if not any(one.waits is not None for one in threads):
        return _never_meets(machine, threads, unborn)
    graph = _Graph(machine, threads)
    circle = graph.circle()
    shown = circle or graph.chain()
    launch = machine.launch
    told = [f"{launch.who(one.id)} waits {graph.reason(one)}" for one in shown[:_SHOWN]]
    if len(shown) > _SHOWN:
        told.append(f"and so on, {len(shown)} threads in a circle")
    others = len(threads) - len(shown)
    text = "; ".join(told) + (f"; {others:,} other threads wait too" if others else "")
    lines = list(dict.fromkeys(_line(one) for one in shown))
    return Deadlock(
        f"{launch.where()}: deadlock: {text}{_residency(machine, unborn)}",
        **launch.found_at(*lines[:2]),
        array=shown[0].looks[0].cells.name if shown[0].looks else None,
        index=shown[0].looks[0].cells.index_of(shown[0].looks[0].at) if shown[0].looks else None,
        threads=tuple(launch.thread(one.id) for one in shown[:2]),
    )


def endless(machine: Machine, one: Thread, line: int) -> Finding:
    """A loop of one thread whose turns leave everything as it was."""
    launch = machine.launch
    return Deadlock(
        f"{launch.where()}: the loop at {launch.at(line)} never ends: it comes to turns that it has made before, for "
        f"{launch.who(one.id)}",
        **launch.found_at(line),
        threads=(launch.thread(one.id),),
    )


def livelock(machine: Machine, threads: Sequence[Thread]) -> Finding:
    """Threads go round and round, and change what the others wait for, and none comes out."""
    launch = machine.launch
    turning = [one for one in threads if one.loops] or list(threads)
    told = [f"{launch.who(one.id)} in the loop at {launch.at(one.loops[0].line)}" for one in turning[:2] if one.loops]
    others = len(turning) - len(told)
    return Deadlock(
        f"{launch.where()}: livelock: threads go round loops, come to states that they have been in before, and none "
        f"comes out: {'; '.join(told)}" + (f"; {others:,} other threads" if others > 0 else ""),
        **launch.found_at(*[one.loops[0].line for one in turning[:2] if one.loops]),
        threads=tuple(launch.thread(one.id) for one in turning[:2]),
    )


def _residency(machine: Machine, unborn: Sequence[int]) -> str:
    if not unborn:
        return ""
    return (
        f". {len(unborn):,} of {machine.blocks:,} blocks have not begun: {machine.launch.device} holds "
        f"{machine.resident:,} of this size at once, and those that wait never end"
    )


def _never_meets(machine: Machine, threads: Sequence[Thread], unborn: Sequence[int]) -> Finding:
    """All wait at barriers or for their warps, at places where they do not meet."""
    launch = machine.launch
    at_warp = [one for one in threads if one.meeting is not None and one.meeting.what not in ("block", "grid")]
    if at_warp:
        first = at_warp[0]
        mates = [one for one in threads if one.block is first.block and one.warp == first.warp]
        others = [one for one in mates if one.meeting != first.meeting and _line(one) != _line(first)]
        if others:
            what = "the warp's meeting"
            return parted(
                launch, [first, others[0]], first.block.ended, what, "of a warp", (len(mates) - len(others), len(mates))
            )
    at_grid = [one for one in threads if one.meeting is not None and one.meeting.what == "grid"]
    if at_grid and unborn:
        return Deadlock(
            f"{launch.where()}: the grid's barrier at {launch.at(_line(at_grid[0]))} waits for all {machine.blocks:,} "
            f"blocks{_residency(machine, unborn)}",
            **launch.found_at(_line(at_grid[0])),
            threads=(launch.thread(at_grid[0].id),),
        )
    ended = [one for block in machine.live.values() for one in block.ended]
    ended += [machine.gone] if machine.gone is not None else []
    first = at_grid[0] if at_grid else threads[0]
    rest = [one for one in threads if _line(one) != _line(first)]
    if not rest and not ended:
        return Deadlock(
            f"{launch.where()}: {launch.who(first.id)} waits at {launch.at(_line(first))} for threads that have ended",
            **launch.found_at(_line(first)),
            threads=(launch.thread(first.id),),
        )
    what = "the grid's barrier" if at_grid else "the barrier"
    everybody = machine.blocks * machine.threads if at_grid else machine.threads
    came = at_grid or first.block.came
    of = "of the grid" if at_grid else "of a block"
    return parted(launch, [first, *rest[:1]], ended, what, of, (len(came), everybody))


class _Graph:
    """Who waits for whom."""

    def __init__(self, machine: Machine, threads: Sequence[Thread]) -> None:
        self.machine = machine
        self.live = {one.id: one for one in threads}
        self.edges = {one.id: self._waits_for(one) for one in threads}

    def _waits_for(self, one: Thread) -> list[int]:
        """Threads that could let it go on: who changed last what it looks at, or who has not come."""
        if one.waits is not None:
            found = []
            for look in one.looks:
                last = look.cells.touched.changed.get(look.at) if look.cells.touched is not None else None
                if last is not None and last[0] in self.live:
                    found.append(last[0])
            return found
        if one.meeting is None:
            return []
        mates = list((self.live if one.meeting.what == "grid" else one.block.live).values())
        if one.meeting.what not in ("block", "grid"):
            mates = [other for other in mates if other.warp == one.warp]
        return [other.id for other in mates if other.meeting is None or other.meeting.what != one.meeting.what]

    def circle(self) -> list[Thread]:
        """Threads that wait for each other in a circle; none where there is no circle (a thread of its own is one)."""
        done: set[int] = set()
        for start in self.edges:
            path: list[int] = []
            at: int | None = start
            on = set()
            while at is not None and at not in done:
                if at in on:
                    return [self.live[one] for one in path[path.index(at) :]]
                on.add(at)
                path.append(at)
                after = self.edges[at]
                at = next((one for one in after if one in on), after[0] if after else None)
            done |= on
        return []

    def chain(self) -> list[Thread]:
        """Where there is no circle: one that waits for what nobody will change, and one that waits for it."""
        first = next(one for one in self.live.values() if one.waits is not None and not self.edges[one.id])
        after = next(
            (self.live[one] for one, edges in self.edges.items() if first.id in edges and one != first.id), None
        )
        return [first] if after is None else [first, after]

    def reason(self, one: Thread) -> str:
        """What it waits for, in words."""
        launch = self.machine.launch
        if one.meeting is not None:
            what = {"block": "at the barrier", "grid": "at the grid's barrier", "warp": "at the warp's barrier"}
            where = what.get(one.meeting.what, "for its warp")
            missing = [self.live[other] for other in self.edges[one.id]]
            tail = f", to which {launch.who(missing[0].id)} has not come" if missing else ""
            return f"{where} at {launch.at(one.meeting.line)}{tail}"
        look = one.looks[0]
        cells = look.cells
        last = cells.touched.changed.get(look.at) if cells.touched is not None else None
        if last is None:
            changed = "which nobody has changed"
        elif last[0] == one.id:
            changed = f"which it changed last itself, at {launch.at(last[1])}"
        else:
            ended = "" if last[0] in self.live else ", and has ended"
            changed = f"which {launch.who(last[0])} changed last, at {launch.at(last[1])}{ended}"
        index = cells.index_of(look.at)
        return f"at {launch.at(look.line)} for element {index} of '{cells.name}', {look.value}, {changed}"
