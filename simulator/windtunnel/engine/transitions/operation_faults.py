"""Faults of single operations: which of them take effect on an operation when it starts.

The random decision for a fault is keyed by fault, workload, job, attempt and the operation's place in the program.
Another fault at the end of the list, or other jobs, therefore change no decision. Eligible and affected operations are
counted over all devices together, in the order in which operations start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windtunnel.engine.transitions.features import cold
from windtunnel.engine.transitions.tables import World
from windtunnel.engine.transitions.work import way_of

ENDS, SLOWS, CORRUPTS = range(3)
"""What a fault does to an operation that it affects."""
_UNDECIDED, _NO, _YES = range(3)
"""Whether a fault applies to the operation that starts now."""

_WORD = 0xFFFFFFFF
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20


@cold
def threefry(key_0: int, key_1: int, word_0: int, word_1: int) -> tuple[int, int]:
    """Return two random 32-bit words for a key and a counter of two 32-bit words each.

    It is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
    SC 2011, section 4.1), which needs no multiplication, so plain Python and machine code give the same words.
    """
    keys = (np.int64(key_0), np.int64(key_1), np.int64(_PARITY ^ key_0 ^ key_1))
    x_0: Any = (np.int64(word_0) + keys[0]) & _WORD
    x_1: Any = (np.int64(word_1) + keys[1]) & _WORD
    for turn in range(_ROUNDS):
        x_0 = (x_0 + x_1) & _WORD
        bits = _ROTATIONS[turn % 8]
        x_1 = (((x_1 << bits) | (x_1 >> (32 - bits))) & _WORD) ^ x_0
        if turn % 4 == 3:
            step = turn // 4 + 1
            x_0 = (x_0 + keys[step % 3]) & _WORD
            x_1 = (x_1 + keys[(step + 1) % 3] + step) & _WORD
    return x_0, x_1


@cold
def uniform(key_0: int, key_1: int, first: int, second: int, third: int) -> float:
    """Return a random number in [0, 1) for a key and three numbers below 2^32."""
    word_0, word_1 = threefry(key_0, key_1, first, second)
    word_0, word_1 = threefry(word_0, word_1, third, 0)
    return float((word_0 << 21) | (word_1 >> 11)) * 2.0**-53


@cold
def consider(w: World, faults_at: int, count: int, work: int, first: int, second: int, third: int) -> bool:
    """Count an operation of a workload as eligible for faults; return whether any of them applies to it.

    Args:
        w: The tables.
        faults_at: The offset in ``ints`` of the faults.
        count: Their number. A fault that is already decided for this operation is not considered again.
        work: The workload.
        first: With ``second`` and ``third``, what identifies the operation among those of the workload: the job's rank,
            its attempt, and the operation's place in the program. Of a batch, these are those of its first job; of a
            step of a continuous batch, the device, the step and 0.
        second: See ``first``.
        third: See ``first``.
    """
    any_applies = False
    for place in range(faults_at, faults_at + count):
        f = w.operation_faults[w.ints[place]]
        if f.applies != _UNDECIDED:
            continue
        f.eligible += 1
        f.applies = _NO
        if f.limit >= 0 and f.affected >= f.limit:
            continue
        if f.probability > 0.0:
            key = f.keys_at + 2 * work
            applies = uniform(w.ints[key], w.ints[key + 1], first, second, third) < f.probability
        elif f.call > 0:
            applies = f.eligible >= f.call
        else:
            applies = w.run[0].now >= f.after
        if applies:
            f.applies = _YES
            any_applies = True
    return any_applies


@cold
def take_effect(w: World, ticks: int) -> tuple[int, int, int, int]:
    """Let the faults that apply to an operation of this duration take effect, and count them.

    If several faults would end the operation, the earliest one does, and of equally early ones the one that the
    scenario lists first. The other ones are not counted as affecting it.

    Returns:
        The operation's duration (ticks), the fault that ends it (-1 if none), whether that time is independent of the
        device's speed, and whether its data are corrupted.
    """
    faults = w.operation_faults
    slowdown = 1.0
    for number in range(len(faults)):
        if faults[number].applies == _YES and faults[number].kind == SLOWS:
            slowdown *= faults[number].factor
    slowed: Any = np.int64(ticks) if slowdown == 1.0 else np.int64(np.rint(float(ticks) * slowdown))
    ending = -1
    end: Any = slowed
    for number in range(len(faults)):
        f = faults[number]
        if f.applies == _YES and f.kind == ENDS:
            its_end = slowed if f.ticks < 0 else f.ticks
            if ending < 0 or its_end < end:
                ending, end = number, its_end
    is_timed = ending >= 0 and faults[ending].ticks >= 0
    corrupted = 0
    for number in range(len(faults)):
        f = faults[number]
        if f.applies == _YES:
            # An operation that ends at a stated time ends before a slow copy could take effect.
            if (f.kind == SLOWS and not is_timed) or number == ending:
                f.affected += 1
            elif f.kind == CORRUPTS and ending < 0:
                f.affected += 1
                corrupted = 1
    return end, ending, 1 if is_timed else 0, corrupted


@cold
def decided(w: World) -> None:
    """Forget which faults apply to the last operation."""
    for number in range(len(w.operation_faults)):
        w.operation_faults[number].applies = _UNDECIDED


@cold
def note_effect(w: World, device: int, ending: int, timed: int, corrupted: int) -> None:
    """Note how the device's work ends."""
    e = w.extras[device]
    e.corrupted |= corrupted
    if ending >= 0:
        e.ending, e.timed = w.operation_faults[ending].number, timed
    if timed:
        w.devices[device].first_left = -1


@cold
def affect_operation(w: World, device: int, ticks: int) -> int:
    """Return the ticks of the operation that the device's job begins, with the faults that affect it."""
    d = w.devices[device]
    g, s = w.segments[d.segment], w.slots[d.slot]
    place = d.segment - way_of(w, device, d.slot).first
    lasts: Any = np.int64(ticks)
    if consider(w, g.faults_at, g.faults, s.work, s.rank, s.starts, place):
        lasts, ending, timed, corrupted = take_effect(w, ticks)
        note_effect(w, device, ending, timed, corrupted)
    decided(w)
    return int(lasts)


@cold
def affect_step(w: World, device: int, ticks: int) -> int:
    """Return the ticks of the step that the device begins, with the faults that affect it."""
    r, d, v = w.run[0], w.devices[device], w.servers[device]
    lasts: Any = np.int64(ticks)
    applies = False
    for work in range(r.workloads):
        g = w.segments[w.ways[w.programs[d.cls * r.workloads + work].ways].first]
        if g.faults and _takes_part(w, device, work):
            applies |= consider(w, g.faults_at, g.faults, work, device, v.steps, 0)
    if applies:
        lasts, ending, timed, corrupted = take_effect(w, ticks)
        note_effect(w, device, ending, timed, corrupted)
    decided(w)
    return int(lasts)


@cold
def _takes_part(w: World, device: int, work: int) -> bool:
    """Return whether a request of the workload is in the present step of a device."""
    v = w.servers[device]
    if w.decoding_of[device, work] > 0 and not v.pausing:
        return True
    slot = v.reading
    for _ in range(v.chunks):
        if w.slots[slot].work == work:
            return True
        slot = w.slots[slot].next
    return False


@cold
def affect_task(w: World, number: int) -> None:
    """Let faults affect the operation that a task begins."""
    task = w.tasks[number]
    g, s = w.segments[task.segment], w.slots[task.slot]
    place = task.segment - way_of(w, task.on, task.slot).first
    if consider(w, g.faults_at, g.faults, s.work, s.rank, s.starts, place):
        ticks, ending, task.timed, task.corrupted = take_effect(w, int(np.rint(task.left)))
        task.left = float(ticks)
        if ending >= 0:
            task.ending = w.operation_faults[ending].number
        if task.timed:
            task.first_left = -1.0
    decided(w)
