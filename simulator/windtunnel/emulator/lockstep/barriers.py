"""Barriers and variable checks in lockstep execution: the functions that the emitted code calls for them."""

from __future__ import annotations

import numpy as np

from windtunnel.core.errors import BarrierDivergence
from windtunnel.emulator.common.lanes import Lanes, Value
from windtunnel.emulator.common.launch import LockstepStalledError
from windtunnel.emulator.common.layout import Chunk
from windtunnel.emulator.common.symbolic import materialise
from windtunnel.emulator.races.findings import UNNAMED, failed, uninitialised_variable

_OF_SHARED, _OF_GLOBAL = ("block", "grid", "block.shared"), ("block", "grid", "block.global")
"""The barriers that order accesses of a block's shared memory, and of the grid's memory."""


def require_warp(lanes: Lanes, line: int, mask: Value) -> None:
    """Check that all threads that a warp mask names are here or have returned. Raises LockstepStalledError.

    A device lets the others wait for a missing thread until it comes or ends. Execution by thread finds out which.
    Raises BarrierDivergence if a mask does not name the thread that states it.
    """
    chunk = lanes.chunk
    if mask is not None and chunk.launch.checked:
        own = (lanes.linear % chunk.warp).astype(np.uint64)
        bit = np.asarray(materialise(mask)).astype(np.uint64) >> np.minimum(own, np.uint64(31)) & np.uint64(1)
        require(lanes, line, (own >= 32) | (bit == 1), BarrierDivergence.__name__, UNNAMED)
    if lanes.selection is None or chunk.launch.ignores_partial_warps:
        return
    is_here = np.zeros(chunk.size, bool)
    is_here[lanes.numbers] = True
    is_elsewhere = ~is_here & ~chunk.exited
    if not is_elsewhere.any():
        return
    linear = chunk.layout.linear
    lane = linear % chunk.warp
    warp = chunk.layout.block_of_thread * (-(-chunk.threads // chunk.warp)) + linear // chunk.warp
    masks = np.zeros(int(warp[-1]) + 1, np.uint64)
    stated = np.full(lanes.size, 0xFFFFFFFF if mask is None else np.asarray(mask), np.uint64)
    np.bitwise_or.at(masks, warp[lanes.numbers], stated)
    is_present = np.zeros(len(masks), bool)
    is_present[warp[lanes.numbers]] = True
    # A mask has 32 bits. Lanes beyond them always take part.
    named = (lane >= 32) | ((masks[warp] >> np.minimum(lane, 31).astype(np.uint64)) & 1 == 1)
    if (is_elsewhere & is_present[warp] & named).any():
        raise LockstepStalledError


def barrier(lanes: Lanes, line: int, scope: str) -> None:
    """Synchronise the threads of blocks or warps. Raises BarrierDivergence if only some threads of a block are here.

    In lockstep, the threads of a warp are always synchronised, and every write is visible to all threads.
    """
    chunk = lanes.chunk
    if scope == "warp":
        epochs = chunk.warp_epochs.copy()
        epochs[slice(None) if lanes.selection is None else lanes.selection] += 1
        chunk.warp_epochs = epochs
        return
    if scope.startswith("fence"):
        return
    chunk.grid_barriers += scope == "grid"
    if lanes.selection is None:
        _passed(chunk, scope, 1)
        chunk.interval += scope in _OF_SHARED
        return
    arrived = np.bincount(lanes.blocks, minlength=chunk.blocks)
    if not np.all(((arrived == 0) & (scope != "grid")) | (arrived == chunk.threads)):
        raise _divergence(lanes, line, arrived)
    _passed(chunk, scope, (arrived > 0).astype(np.int32))


def _passed(chunk: Chunk, scope: str, blocks: int | np.ndarray) -> None:
    """Record that blocks have passed a barrier."""
    if scope in _OF_SHARED:
        chunk.epochs = chunk.epochs + blocks
    if scope in _OF_GLOBAL:
        chunk.global_epochs = chunk.global_epochs + blocks


def _divergence(lanes: Lanes, line: int, arrived: np.ndarray) -> BarrierDivergence:
    chunk, launch = lanes.chunk, lanes.chunk.launch
    partial = np.flatnonzero((arrived != 0) & (arrived != chunk.threads))
    # At a grid barrier, whole blocks may be missing.
    block = int(partial[0] if len(partial) else np.flatnonzero(arrived == 0)[0])
    first = (chunk.first + block) * chunk.threads
    here = lanes.identities[lanes.blocks == block] if len(partial) else lanes.identities
    missing = int(np.setdiff1d(np.arange(first, first + chunk.threads), here)[0])
    return BarrierDivergence(
        f"{launch}: barrier divergence: {int(arrived[block]):,} of {chunk.threads:,} threads of a block reach "
        f"{launch.program.barrier_at(line)} at {launch.describe_line(line)}: "
        f"{launch.describe_thread(int(here[0]))} does, {launch.describe_thread(missing)} does not",
        **launch.position_of(line),
        threads=(launch.thread(int(here[0])), launch.thread(missing)),
    )


def check_assigned(lanes: Lanes, line: int, name: str, assigned: Value) -> None:
    """Raise UninitializedRead if a thread reads a variable that it has not assigned.

    ``assigned`` states for each thread whether it has.
    """
    launch = lanes.chunk.launch
    bad = np.flatnonzero(~np.atleast_1d(np.asarray(materialise(assigned), np.bool_)))
    if len(bad) and launch.checked:
        raise uninitialised_variable(launch, name, int(lanes.identities[bad[0]]), line)


def same_in_blocks(lanes: Lanes, value: Value) -> np.ndarray:
    """Return, for each thread, whether a number is that of the first thread of its block."""
    numbers = np.broadcast_to(np.asarray(materialise(value)), lanes.size)
    _, first, block = np.unique(lanes.blocks, return_index=True, return_inverse=True)
    holds: np.ndarray = numbers == numbers[first][block]
    return holds


def require(lanes: Lanes, line: int, condition: Value, finding: str, message: str) -> None:
    """Raise a finding if a condition does not hold for all threads."""
    holds = np.asarray(materialise(condition))
    if holds.all():
        return
    holds = np.broadcast_to(holds, lanes.size)
    first = int(np.flatnonzero(~holds)[0])
    raise failed(lanes.chunk.launch, finding, message, int(lanes.identities[first]), line, int((~holds).sum()) - 1)
