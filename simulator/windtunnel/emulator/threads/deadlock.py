"""Reports about threads that cannot continue: barrier divergence, deadlock and livelock."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.core.errors import BarrierDivergence, Deadlock, Finding
from windtunnel.emulator.common.launch import Launch
from windtunnel.emulator.races.findings import others as count_of_others
from windtunnel.emulator.races.findings import spelled
from windtunnel.emulator.threads.state import LaunchState, Thread
from windtunnel.language import ir

_BARRIER = "the barrier"
_MAX_SHOWN = 4
"""Threads of a cycle that a message names."""


def divergence_error(
    launch: Launch, arrived: Sequence[Thread], ended: Sequence[Thread], what: str, of: str, counts: tuple[int, int]
) -> BarrierDivergence:
    """Return the finding that some threads reach a barrier and others end or wait at another one.

    ``what`` names the barrier, and ``of`` what the threads belong to. ``counts`` are the threads that reach it, and
    all.
    """
    first = arrived[0]
    what = launch.program.barrier_at(first.line) if what == _BARRIER else what
    other = next((thread for thread in arrived if thread.arrival != first.arrival and thread.line != first.line), None)
    if other is None:
        other = ended[0]
        lines: tuple[int, ...] = (first.line,)
        reach = f"{counts[0]:,} of {counts[1]:,} threads {of} reach"
        again = " this time" if first.line in _lines_in_loops(launch.program.body) else ""
        rest = f"{launch.describe_thread(other.id)} has ended without reaching it{again}"
    else:
        lines = (first.line, other.line)
        reach = f"some threads {of} reach"
        rest = f"{launch.describe_thread(other.id)} waits at another, at {launch.describe_line(other.line)}"
    return BarrierDivergence(
        f"{launch}: barrier divergence: {reach} {what} at {launch.describe_line(first.line)}: "
        f"{launch.describe_thread(first.id)} does, {rest}",
        **launch.position_of(*lines),
        threads=(launch.thread(first.id), launch.thread(other.id)),
    )


def _lines_in_loops(body: Sequence[ir.Stmt]) -> set[int]:
    """Return the lines of barriers and operations of a warp within loops of more than one turn."""
    lines: set[int] = set()
    for statement in ir.walk(body):
        if isinstance(statement, (ir.While, ir.For)) and not isinstance(statement.body[-1], ir.Break):
            for inner in ir.walk(statement.body):
                warps = [e.line for e in ir.expressions(inner) if isinstance(e, ir.Warp)]
                lines |= {*warps, inner.line} if isinstance(inner, ir.Barrier) else set(warps)
    return lines


def deadlock_error(state: LaunchState, threads: Sequence[Thread], not_begun: Sequence[int]) -> Finding:
    """Return the finding that none of the threads can continue, while the blocks ``not_begun`` wait for room."""
    if not any(thread.is_waiting for thread in threads):
        return _barrier_error(state, threads, not_begun)
    graph = _WaitGraph(state, threads)
    cycle = graph.cycle()
    shown = cycle or graph.chain()
    launch = state.launch
    reasons = [f"{launch.describe_thread(thread.id)} waits {graph.reason(thread)}" for thread in shown[:_MAX_SHOWN]]
    if len(shown) > _MAX_SHOWN:
        reasons.append(f"and so on, in a cycle of {len(shown)} threads")
    others = len(threads) - len(shown)
    text = "; ".join(reasons) + (f"; {count_of_others(others)} wait{'s' if others == 1 else ''} too" if others else "")
    lines = list(dict.fromkeys(thread.line for thread in shown))
    polled = shown[0].polled[0] if shown[0].polled else None
    return Deadlock(
        f"{launch}: deadlock: {text}{_residency(state, not_begun)}",
        **launch.position_of(*lines[:2]),
        array=polled.array.name if polled else None,
        index=polled.array.index_of(polled.at) if polled else None,
        threads=tuple(launch.thread(thread.id) for thread in shown[:2]),
    )


def livelock_error(launch: Launch, threads: Sequence[Thread]) -> Finding:
    """Return the finding that threads keep changing what the others wait for, and none makes progress."""
    looping = [thread for thread in threads if thread.loops] or list(threads)
    shown = [thread for thread in looping[:2] if thread.loops]
    loops = "; ".join(
        f"{launch.describe_thread(thread.id)} in the loop at {launch.describe_line(thread.loops[0].line)}"
        for thread in shown
    )
    others = len(looping) - len(shown)
    return Deadlock(
        f"{launch}: livelock: threads loop through repeated states without progress: {loops}"
        + (f"; {count_of_others(others)}" if others > 0 else ""),
        **launch.position_of(*[thread.loops[0].line for thread in shown]),
        threads=tuple(launch.thread(thread.id) for thread in looping[:2]),
    )


def _residency(state: LaunchState, not_begun: Sequence[int]) -> str:
    if not not_begun:
        return ""
    return (
        f". {len(not_begun):,} of {state.blocks:,} blocks have not begun: {state.launch.device} holds "
        f"{state.resident:,} of this size at once, and the resident blocks that wait never end"
    )


def _barrier_error(state: LaunchState, threads: Sequence[Thread], not_begun: Sequence[int]) -> Finding:
    """Return the finding about threads that all wait at barriers or for their warps, but not at the same place."""
    launch = state.launch
    warp_error = _warp_error(launch, threads)
    if warp_error is not None:
        return warp_error
    at_grid = [thread for thread in threads if thread.arrival is not None and thread.arrival.kind == "grid"]
    if at_grid and not_begun:
        problem = f"the grid barrier at {launch.describe_line(at_grid[0].line)} waits for all {state.blocks:,} blocks"
        return _deadlock(launch, at_grid[0], problem + _residency(state, not_begun))
    ended = [thread for block in state.live.values() for thread in block.ended]
    ended += [state.last_exited] if state.last_exited is not None else []
    first = at_grid[0] if at_grid else threads[0]
    elsewhere = [thread for thread in threads if thread.line != first.line]
    if not elsewhere and not ended:
        problem = f"{launch.describe_thread(first.id)} waits at {launch.describe_line(first.line)} for ended threads"
        return _deadlock(launch, first, problem)
    arrived = [first, *elsewhere[:1]]
    if at_grid:
        counts = (len(at_grid), state.blocks * state.threads)
        return divergence_error(launch, arrived, ended, "the grid barrier", "of the grid", counts)
    counts = (len(first.block.arrived), state.threads)
    return divergence_error(launch, arrived, ended, _BARRIER, "of a block", counts)


def _warp_error(launch: Launch, threads: Sequence[Thread]) -> Finding | None:
    """Return the finding about a thread that waits for its warp while others of the warp wait elsewhere."""
    at_warp = next((thread for thread in threads if thread.arrival is not None and thread.arrival.is_of_warp), None)
    if at_warp is None:
        return None
    mates = [thread for thread in threads if thread.block is at_warp.block and thread.warp == at_warp.warp]
    others = [thread for thread in mates if thread.arrival != at_warp.arrival and thread.line != at_warp.line]
    if not others:
        return None
    counts = (len(mates) - len(others), len(mates))
    arrived, ended = [at_warp, others[0]], at_warp.block.ended
    return divergence_error(launch, arrived, ended, "the warp synchronisation", "of a warp", counts)


def _deadlock(launch: Launch, thread: Thread, problem: str) -> Deadlock:
    where = launch.position_of(thread.line)
    return Deadlock(f"{launch}: deadlock: {problem}", **where, threads=(launch.thread(thread.id),))


class _WaitGraph:
    """Which thread waits for which."""

    def __init__(self, state: LaunchState, threads: Sequence[Thread]) -> None:
        self.launch = state.launch
        self.live = {thread.id: thread for thread in threads}
        self.edges = {thread.id: self._waits_for(thread) for thread in threads}

    def _waits_for(self, thread: Thread) -> list[int]:
        """Return the threads that could let one continue: those that changed last what it polls, or did not arrive."""
        if thread.is_waiting:
            changes = [
                read.array.memory.last_change.get(read.key) for read in thread.polled if read.array.memory is not None
            ]
            return [change[0] for change in changes if change is not None and change[0] in self.live]
        if thread.arrival is None:
            return []
        mates = list((self.live if thread.arrival.kind == "grid" else thread.block.live).values())
        if thread.arrival.is_of_warp:
            mates = [mate for mate in mates if mate.warp == thread.warp]
        return [mate.id for mate in mates if mate.arrival is None or mate.arrival.kind != thread.arrival.kind]

    def cycle(self) -> list[Thread]:
        """Return threads that wait for each other in a cycle, or one that waits for itself; empty if there is none."""
        done: set[int] = set()
        for start in self.edges:
            path: list[int] = []
            at: int | None = start
            on_path = set()
            while at is not None and at not in done:
                if at in on_path:
                    return [self.live[number] for number in path[path.index(at) :]]
                on_path.add(at)
                path.append(at)
                after = self.edges[at]
                at = next((number for number in after if number in on_path), after[0] if after else None)
            done |= on_path
        return []

    def chain(self) -> list[Thread]:
        """Return a thread that waits for what no thread will change and, if any, a thread that waits for it."""
        first = next(thread for thread in self.live.values() if thread.is_waiting and not self.edges[thread.id])
        after = next(
            (self.live[number] for number, edges in self.edges.items() if first.id in edges and number != first.id),
            None,
        )
        return [first] if after is None else [first, after]

    def reason(self, thread: Thread) -> str:
        """Return what a thread waits for, as the end of a sentence."""
        launch = self.launch
        if thread.arrival is not None:
            barriers = {
                **dict.fromkeys(
                    ("block", "block.shared", "block.global", "block.none"),
                    f"at {launch.program.barrier_at(thread.arrival.line)}",
                ),
                "grid": "at the grid barrier",
                "warp": "at the warp barrier",
            }
            where = barriers.get(thread.arrival.kind, "for its warp")
            missing = [self.live[other] for other in self.edges[thread.id]]
            rest = f", which {launch.describe_thread(missing[0].id)} has not reached" if missing else ""
            return f"{where} at {launch.describe_line(thread.arrival.line)}{rest}"
        read = thread.polled[0]
        array = read.array
        if array.name in launch.program.split_barriers:
            expected, pending = array.flat[read.at // 3 * 3 :][:2].tolist()
            which = f" {read.at // 3}" if array.flat.size > 3 else ""
            return (
                f"at {launch.describe_line(read.line)} for the barrier '{spelled(launch, array.name)}'{which}: "
                f"{expected - pending:,} of {expected:,} arrivals have come"
            )
        last = array.memory.last_change.get(read.key) if array.memory is not None else None
        if last is None:
            changed = "which no thread has changed"
        elif last[0] == thread.id:
            changed = f"which this thread changed last, at {launch.describe_line(last[1])}"
        else:
            ended = "" if last[0] in self.live else ", and has ended"
            changed = f"which {launch.describe_thread(last[0])} changed last, at {launch.describe_line(last[1])}{ended}"
        element = f"element {array.index_of(read.at)} of '{spelled(launch, array.name)}'"
        return f"at {launch.describe_line(read.line)} for {element}, {read.value}, {changed}"
