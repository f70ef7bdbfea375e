"""Invariants of every placement run, checked from the recorded starts and ends alone (docs/placement.md).

P1 conservation  arrived = completed + running + queued + dropped, and each task has the times that its status needs
P2 causality     arrival <= start, and finish = start + the task's duration, within the run
P3 GPUs          each GPU holds 0 to 1000 thousandths; a fraction is of one GPU, several GPUs are whole
P4 CPU, memory   no node holds more than its capacity
P5 models        every task is on a node whose GPU model it accepts
P6 timeline      the reported allocation and demand are those of the tasks
P7 order         without backfill, tasks start in order of arrival
P8 fragments     fragmented GPUs are unallocated, and the incremental sum equals the recomputed one
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from windtunnel.core.errors import InvariantError
from windtunnel.core.recording import COMPLETED, DROPPED, QUEUED, RUNNING
from windtunnel.placement.nodes import ANY_MODEL, MILLI, IntArray, cluster_fragmentation
from windtunnel.placement.recording import PlacementRecording
from windtunnel.placement.tasks import PlacementProblem


def _broken(name: str, violation: str) -> NoReturn:
    raise InvariantError(f"invariant {name} is violated: {violation}. This is a bug in Windtunnel. Please report it.")


def check(recording: PlacementRecording, problem: PlacementProblem) -> None:
    """Raise InvariantError for the first invariant that ``recording`` violates."""
    tasks = recording.tasks
    status, started, ended = tasks.status, tasks.started >= 0, tasks.ended >= 0
    is_valid = np.isin(status, (COMPLETED, RUNNING, QUEUED, DROPPED))
    if (
        not is_valid.all()
        or (started != np.isin(status, (COMPLETED, RUNNING))).any()
        or (ended != (status == COMPLETED)).any()
    ):
        _broken("P1", "a task's status contradicts its start and end")
    if (started != (tasks.node >= 0)).any():
        _broken("P1", "a task runs on no node, or a node holds a task that never started")
    late = (started & (tasks.start < tasks.arrival)) | (ended & (tasks.finish != tasks.start + tasks.duration))
    late |= ended & ((tasks.finish > recording.end) | (tasks.ended < tasks.started))
    if recording.mode == "replay":
        late |= (status == RUNNING) & (tasks.start + tasks.duration < recording.end)
    if late.any():
        _broken("P2", f"the times of task {int(np.argmax(late))} are out of order")
    _check_gpus(recording)
    which = np.flatnonzero(started)
    node = tasks.node[which]
    for name, amount, capacity in (
        ("cores", tasks.cpu, problem.nodes.cpu),
        ("memory", tasks.memory, problem.nodes.memory),
    ):
        serial, change, where, _ = _changes(recording, which, node, amount[which])
        low, high = _extremes(where, serial, change, len(capacity))
        if (low < 0).any() or (high > capacity).any():
            _broken("P4", f"the {name} of a node are overcommitted")
    masks, model = problem.classes.models[tasks.kind[which]], problem.nodes.model[node]
    rejected = (masks != ANY_MODEL) & (((masks >> np.maximum(model, 0)) & 1 == 0) | (model < 0))
    if rejected.any():
        _broken("P5", f"task {int(which[np.argmax(rejected)])} is on a GPU model that it does not accept")
    _check_timeline(recording, problem)
    if recording.mode == "replay" and not recording.backfill:
        order = tasks.started[started]
        if (np.diff(order) <= 0).any() or (np.diff(started.astype(np.int64)) > 0).any():
            _broken("P7", "a task overtook another")


def _changes(
    recording: PlacementRecording, which: IntArray, where: IntArray, amount: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return (serial, change, place, task) of every start and end of the tasks ``which``."""
    tasks = recording.tasks
    over = tasks.ended[which] >= 0
    serial = np.concatenate([tasks.started[which], tasks.ended[which][over]])
    change = np.concatenate([amount, -amount[over]])
    return serial, change, np.concatenate([where, where[over]]), np.concatenate([which, which[over]])


def _extremes(where: IntArray, serial: IntArray, change: IntArray, places: int) -> tuple[IntArray, IntArray]:
    """Return the smallest and the largest amount that each place holds, with its changes in order of ``serial``."""
    order = np.lexsort((serial, where))
    where, change = where[order], change[order]
    total = np.cumsum(change)
    first = np.flatnonzero(np.diff(where, prepend=-1) != 0)
    before = np.concatenate([[0], total])[first]
    held = total - np.repeat(before, np.diff(np.append(first, len(where))))
    low, high = np.zeros(places, dtype=np.int64), np.zeros(places, dtype=np.int64)
    np.minimum.at(low, where, held)
    np.maximum.at(high, where, held)
    return low, high


def _check_gpus(recording: PlacementRecording) -> None:
    tasks = recording.tasks
    started = tasks.started >= 0
    taken = np.zeros(len(tasks), dtype=np.int64)
    most = max(int(recording.gpus.max(initial=0)), 1)
    low_all, high_all = 0, 0
    for g in range(most):
        bit = (tasks.gpu_mask >> g) & 1
        taken += bit
        which = np.flatnonzero(started & (bit == 1))
        if not len(which):
            continue
        node = tasks.node[which]
        if (g >= recording.gpus[node]).any():
            _broken("P3", f"a task holds GPU {g} of a node that does not have it")
        serial, change, where, _ = _changes(recording, which, node, tasks.milli[which])
        low, high = _extremes(where, serial, change, len(recording.nodes))
        low_all, high_all = min(low_all, int(low.min())), max(high_all, int(high.max()))
    if low_all < 0 or high_all > MILLI:
        _broken("P3", f"a GPU holds {low_all} to {high_all} thousandths")
    if (taken[started] != tasks.gpus[started]).any() or taken[~started].any():
        _broken("P3", "a task does not hold the number of GPUs that it requested")
    if ((tasks.gpus > 1) & (tasks.milli != MILLI)).any():
        _broken("P3", "a task holds fractions of several GPUs")


def _check_timeline(recording: PlacementRecording, problem: PlacementProblem) -> None:
    tasks, timeline = recording.tasks, recording.timeline
    demands = tasks.gpus * tasks.milli
    started, ended = tasks.started >= 0, tasks.ended >= 0
    moved = np.concatenate([tasks.start[started], tasks.finish[ended]])
    change = np.concatenate([demands[started], -demands[ended]])
    # The timeline of an inflation counts arrived tasks: it includes the i-th task from i + 1 on.
    shift = 1 if recording.mode == "inflate" else 0
    order = np.argsort(moved, kind="stable")
    sums = np.concatenate([[0], np.cumsum(change[order])])
    held = sums[np.searchsorted(moved[order] + shift, timeline.tick, side="right")]
    if (held != timeline.allocated).any() or (np.diff(timeline.tick) <= 0).any():
        _broken("P6", "the reported allocation is not that of the tasks")
    arrived = np.concatenate([[0], np.cumsum(demands)])[
        np.searchsorted(tasks.arrival + shift, timeline.tick, side="right")
    ]
    over = np.sort(tasks.finish[ended])
    departed = np.concatenate([[0], np.cumsum(demands[ended][np.argsort(tasks.finish[ended], kind="stable")])])
    if (arrived - departed[np.searchsorted(over, timeline.tick, side="right")] != timeline.demand).any():
        _broken("P6", "the reported demand is not that of the tasks")
    idle = (recording.capacity - timeline.allocated) * timeline.weight
    if (timeline.fragmented < 0).any() or (timeline.fragmented > idle).any():
        _broken("P8", "more GPUs are fragmented than are unallocated")
    nodes = problem.nodes.empty(problem.tags)
    still = np.flatnonzero(started & ~ended)
    np.subtract.at(nodes.cpu_left, tasks.node[still], tasks.cpu[still])
    for g in range(nodes.gpu_left.shape[1]):
        mine = still[(tasks.gpu_mask[still] >> g) & 1 == 1]
        np.subtract.at(nodes.gpu_left[:, g], tasks.node[mine], tasks.milli[mine])
    if int(cluster_fragmentation(nodes, problem.target).sum()) != int(timeline.fragmented[-1]):
        _broken("P8", "the incremental fragmentation differs from the recomputed one")
