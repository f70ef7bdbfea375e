"""What is said of a data race, whoever finds it: threads side by side (`races`) and one by one (`threads.cells`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from windtunnel.core.errors import DataRace

if TYPE_CHECKING:
    from windtunnel.emulator.lockstep.arrays import Launch

READ, WRITE, ATOMIC = "reads", "writes", "atomically changes"
"""What a thread does with an element, in words."""
_ACROSS = (
    "nothing orders threads of two blocks but a fence with an atomic operation, a barrier of the grid or another launch"
)
_WITHIN = "no barrier, meeting of their warp, or fence with an atomic operation is between them"


class Touch(NamedTuple):
    """What a thread does with an element, and at which line."""

    thread: int
    verb: str
    line: int


def race(launch: Launch, array: str, index: int | tuple[int, ...], one: Touch, other: Touch) -> DataRace:
    """The finding that nothing orders ``one`` and ``other``, which came before it. Its threads are as its lines are."""
    told = ", and ".join(f"{launch.who(t.thread)} {t.verb} it at {launch.at(t.line)}" for t in (one, other))
    threads = [launch.thread(t.thread) for t in (one, other)]
    (file, line), (other_file, before) = (launch.program.place_of(t.line) for t in (one, other))
    if file == other_file and before < line:
        threads.reverse()
    same = launch.block_of(one.thread) == launch.block_of(other.thread)
    return DataRace(
        f"{launch.where()}: data race on element {index} of '{array}': {told}; {_WITHIN if same else _ACROSS}",
        **launch.found_at(one.line, other.line),
        array=array,
        index=index,
        threads=tuple(threads),
    )
