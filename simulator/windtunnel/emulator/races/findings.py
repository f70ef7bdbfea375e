"""The findings of a launch. Lockstep execution and execution thread by thread report them with the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from windtunnel.core import errors
from windtunnel.core.errors import DataRace, Deadlock, Finding, OutOfBounds, UninitializedRead
from windtunnel.emulator.common.launch import Launch

READ, WRITE, ATOMIC, ATOMIC_READ = "reads", "writes", "atomically changes", "atomically reads"
"""The kinds of access, as they stand in messages. A compare-and-swap that does not find the value is the last."""
OF_BLOCK, OF_BLOCK_READ = (f"atomically (in the scope of its block) {does}" for does in ("changes", "reads"))
"""The kinds of an atomic operation that is one among the threads of its block only."""
UNNAMED = "the mask of a warp's operation does not name the lane that executes it"
_ACROSS_BLOCKS = (
    "threads of two blocks are ordered only by a fence with an atomic operation, a grid barrier or another launch"
)
_WITHIN_BLOCK = "no barrier, warp synchronisation, or fence with an atomic operation orders the two accesses"


class AccessReport(NamedTuple):
    """An access, as a message states it: the thread's number in the launch, the kind of access, and the line."""

    thread: int
    kind: str
    line: int


def race(
    launch: Launch, array: str, index: int | tuple[int, ...], later: AccessReport, earlier: AccessReport
) -> DataRace:
    """Return the finding that nothing orders two accesses. Its threads are in the order of its lines."""
    accesses = ", and ".join(
        f"{launch.describe_thread(access.thread)} {access.kind} it at {launch.describe_line(access.line)}"
        for access in (later, earlier)
    )
    threads = [launch.thread(access.thread) for access in (later, earlier)]
    (file, line), (earlier_file, earlier_line) = (launch.program.place_of(a.line) for a in (later, earlier))
    if file == earlier_file and earlier_line < line:
        threads.reverse()
    same_block = launch.block_of(later.thread) == launch.block_of(earlier.thread)
    return DataRace(
        f"{launch}: data race on element {shown(launch, array, index)} of '{spelled(launch, array)}': {accesses}; "
        f"{_WITHIN_BLOCK if same_block else _ACROSS_BLOCKS}",
        **launch.position_of(later.line, earlier.line),
        array=array,
        index=index,
        threads=tuple(threads),
    )


def spelled(launch: Launch, name: str) -> str:
    """Return how the source spells the name of a variable or an array of the tree."""
    return launch.program.spellings.get(name, name)


def shown(launch: Launch, array: str, index: int | tuple[int, ...]) -> str:
    """Return an index in words. Where it counts smaller units, it is the one of an element, with the part of that."""
    unit, element = launch.program.units.get(array, (0, 0))
    if not unit or not isinstance(index, int):
        return str(index)
    number, byte = divmod(index * unit, element)
    part = f"byte {byte}" if unit == 1 else f"bytes {byte} to {byte + unit - 1}"
    return f"{number} ({part} of an element of {element})"


def in_flight(
    launch: Launch, array: str, index: int | tuple[int, ...], access: AccessReport, copy: AccessReport
) -> DataRace:
    """Return the finding that an access meets an asynchronous copy that is in flight."""
    threads = {line: launch.thread(one.thread) for one in (access, copy) for line in [one.line]}
    return DataRace(
        f"{launch}: data race on element {index} of '{spelled(launch, array)}': "
        f"{launch.describe_thread(access.thread)} {access.kind} it at {launch.describe_line(access.line)}, "
        "while an asynchronous copy that "
        f"{_who_began(launch, copy)} began at {launch.describe_line(copy.line)} {copy.kind} it; nothing "
        "waits for the copy before",
        **launch.position_of(access.line, copy.line),
        array=array,
        index=index,
        threads=tuple(threads.values()),
    )


def _who_began(launch: Launch, copy: AccessReport) -> str:
    """Return who began a copy: all threads of a block together, if it is a function of the block."""
    if copy.line in launch.program.collectives:
        return launch.describe_block(launch.block_of(copy.thread))
    return launch.describe_thread(copy.thread)


def never_awaited(launch: Launch, array: str, index: int | tuple[int, ...], copy: AccessReport) -> DataRace:
    """Return the finding that an asynchronous copy is in flight when the kernel ends."""
    return DataRace(
        f"{launch}: data race on element {index} of '{spelled(launch, array)}': an asynchronous copy that "
        f"{_who_began(launch, copy)} began at {launch.describe_line(copy.line)} {copy.kind} it, and nothing "
        "waits for the copy before the kernel ends",
        **launch.position_of(copy.line),
        array=array,
        index=index,
        threads=(launch.thread(copy.thread),),
    )


def out_of_bounds(
    launch: Launch, array: str, shape: Sequence[int], index: tuple[int, ...], thread: int, line: int, others: int = 0
) -> OutOfBounds:
    """Return the finding that a thread, and ``others`` more, access an index outside an array."""
    at = index[0] if len(index) == 1 else index
    unit, element = launch.program.units.get(array, (1, 1))
    sides = " x ".join(str(side * unit // element) for side in shape)
    found = OutOfBounds(
        f"{launch}: index {shown(launch, array, at)} is out of bounds for '{spelled(launch, array)}' of {sides} "
        f"elements, at {launch.describe_line(line)}: {launch.describe_thread(thread)}" + _and_others(others),
        **launch.position_of(line),
        array=array,
        index=at,
        threads=(launch.thread(thread),),
    )
    found.shape = tuple(shape)
    return found


def uninitialised_element(
    launch: Launch, array: str, index: int | tuple[int, ...], thread: int, line: int
) -> UninitializedRead:
    """Return the finding that a thread reads an element before any write."""
    return UninitializedRead(
        f"{launch}: uninitialised read: {launch.describe_thread(thread)} reads element "
        f"{shown(launch, array, index)} of '{spelled(launch, array)}' at {launch.describe_line(line)} before any write",
        **launch.position_of(line),
        array=array,
        index=index,
        threads=(launch.thread(thread),),
    )


def uninitialised_variable(launch: Launch, name: str, thread: int, line: int) -> UninitializedRead:
    """Return the finding that a thread reads a variable to which it has assigned nothing."""
    return UninitializedRead(
        f"{launch}: uninitialised variable: {launch.describe_thread(thread)} reads '{spelled(launch, name)}' at "
        f"{launch.describe_line(line)} before any assignment",
        **launch.position_of(line),
        threads=(launch.thread(thread),),
    )


def infinite_loop(launch: Launch, thread: int, line: int, others: int = 0) -> Deadlock:
    """Return the finding that a loop of a thread, and of ``others`` more, repeats a state."""
    return Deadlock(
        f"{launch}: infinite loop at {launch.describe_line(line)}: its state repeats, for "
        f"{launch.describe_thread(thread)}" + _and_others(others),
        **launch.position_of(line),
        threads=(launch.thread(thread),),
    )


def failed(
    launch: Launch, finding: str, message: str, thread: int, line: int, others: int = 0
) -> Finding | errors.InputError:
    """Return the finding of a class that a thread, and ``others`` more, break a condition of the kernel.

    It is an InputError if the kernel comes to what the emulator does not execute.
    """
    if finding == errors.InputError.__name__:
        column = launch.program.column_of(line)
        return errors.InputError(f"{launch}: {message}", where=errors.Location(*launch.program.place_of(line), column))
    made: Finding = getattr(errors, finding)(
        f"{launch}: {message}, at {launch.describe_line(line)}: {launch.describe_thread(thread)}" + _and_others(others),
        **launch.position_of(line),
        threads=(launch.thread(thread),),
    )
    return made


def _and_others(count: int) -> str:
    return f", and {others(count)}" if count else ""


def others(count: int) -> str:
    """Return how many other threads there are, in words."""
    return "1 other thread" if count == 1 else f"{count:,} other threads"
