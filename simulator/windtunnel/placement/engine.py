"""The placement engine: tasks arrive, hold GPUs, CPU and memory of one node, and leave.

A policy's score of a node depends only on that node and the class of the task. The engine therefore caches scores and
computes them again only for nodes that changed. All values except the scores are integers, and ties have one order.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.recording import COMPLETED, DROPPED, QUEUED, RUNNING
from windtunnel.core.rng import stream
from windtunnel.placement.nodes import (
    MILLI,
    Classes,
    FloatArray,
    IntArray,
    Nodes,
    PlacementPolicy,
    cluster_fragmentation,
    compiled,
    fits,
    node_fragmentation,
)
from windtunnel.placement.recording import NANO, PlacedTasks, PlacementRecording, PlacementTimeline
from windtunnel.placement.scenario import Inflate, PlacementScenario, Replay
from windtunnel.placement.tasks import PlacementProblem, TaskTable

_MAX_CACHED_SCORES = 20_000_000
"""The largest number of cached scores (nodes times classes); for larger problems every score is computed each time."""

_MAX_TASKS = 20_000_000


@compiled
def _stale(nodes: Nodes, classes: Classes, c: int, fresh: IntArray, scores: FloatArray, out: IntArray) -> int:
    """Write the nodes whose score for class ``c`` is out of date to ``out``, and return their number.

    A node on which the task does not fit gets the score -inf.
    """
    count = 0
    for n in range(len(fresh)):
        if not fresh[n]:
            fresh[n] = True
            if fits(nodes, n, classes, c):
                out[count] = n
                count += 1
            else:
                scores[n] = -np.inf
    return count


@compiled
def _pick(scores: FloatArray, order: IntArray, draw: float) -> int:
    """Return the node with the highest score, or -1 if the task fits nowhere.

    Of equal nodes it is the first in ``order``, or a random one if ``draw`` is in [0, 1).
    """
    best, place, equals = -1, 0, 0
    for k in range(len(order)):
        n = order[k]
        if scores[n] == -np.inf:
            continue
        if best < 0 or scores[n] > scores[best]:
            best, place, equals = n, k, 1
        elif scores[n] == scores[best]:
            equals += 1
    if draw < 0.0 or equals < 2:
        return best
    wanted = min(int(draw * equals), equals - 1)
    for k in range(place, len(order)):
        if scores[order[k]] == scores[best]:
            if wanted == 0:
                return int(order[k])
            wanted -= 1
    return best


@compiled
def _take(nodes: Nodes, n: int, classes: Classes, c: int, gpu: int) -> int:
    """Place a task on node ``n`` and return the mask of its GPUs.

    A fraction of a GPU is placed on ``gpu``, whole GPUs on the first idle ones.
    """
    nodes.cpu_left[n] -= classes.cpu[c]
    nodes.memory_left[n] -= classes.memory[c]
    nodes.tags[n, classes.tag[c]] += 1
    if classes.gpus[c] == 0:
        return 0
    if classes.milli[c] < MILLI:
        nodes.gpu_left[n, gpu] -= classes.milli[c]
        return 1 << gpu
    mask, wanted = 0, classes.gpus[c]
    for g in range(nodes.gpus[n]):
        if wanted > 0 and nodes.gpu_left[n, g] == MILLI:
            nodes.gpu_left[n, g] = 0
            mask |= 1 << g
            wanted -= 1
    return mask


@compiled
def _release(nodes: Nodes, n: int, classes: Classes, c: int, mask: int) -> None:
    nodes.cpu_left[n] += classes.cpu[c]
    nodes.memory_left[n] += classes.memory[c]
    nodes.tags[n, classes.tag[c]] -= 1
    for g in range(nodes.gpus[n]):
        if (mask >> g) & 1 == 1:
            nodes.gpu_left[n, g] += classes.milli[c]


class _Cluster:
    """The state of the nodes under one policy, with the cached scores."""

    def __init__(self, problem: PlacementProblem, policy: PlacementPolicy, ties: str, seed: int) -> None:
        self.problem, self.policy = problem, policy
        self.random = ties == "random" or policy.random
        self.nodes = problem.nodes.empty(problem.tags)
        size, kinds = len(problem.nodes.cpu), len(problem.classes.cpu)
        order = stream(seed, "placement", "order").permutation(size) if ties == "shuffled" else np.arange(size)
        self._order = order.astype(np.int64)
        self._kept = size * kinds <= _MAX_CACHED_SCORES
        rows = kinds if self._kept else 1
        self._scores = np.empty((rows, size))
        self._fresh = np.zeros((rows, size), dtype=np.bool_)
        self._which = np.empty(size, dtype=np.int64)
        self.fragmented = cluster_fragmentation(self.nodes, problem.target)
        self.total_fragmented = int(self.fragmented.sum())
        self.allocated = 0

    def place(self, c: int, node_draw: float, gpu_draw: float) -> tuple[int, int]:
        """Place a task of class ``c``; return its node and the mask of its GPUs, or (-1, 0) if it fits nowhere."""
        problem, nodes = self.problem, self.nodes
        row = c if self._kept else 0
        scores, fresh = self._scores[row], self._fresh[row]
        if not self._kept:
            fresh[:] = False
        count = _stale(nodes, problem.classes, c, fresh, scores, self._which)
        if count:
            which = self._which[:count]
            self.policy.score(nodes, problem.classes, c, problem.target, problem.largest, which, scores)
        n = int(_pick(scores, self._order, node_draw if self.random else -1.0))
        if n < 0:
            return -1, 0
        part = problem.classes.gpus[c] > 0 and problem.classes.milli[c] < MILLI
        gpu = self.policy.choose_gpu(nodes, n, problem.classes, c, problem.target, gpu_draw) if part else 0
        mask = int(_take(nodes, n, problem.classes, c, gpu))
        self.allocated += int(problem.gpu_milli[c])
        self._changed(n)
        return n, mask

    def remove(self, n: int, c: int, mask: int) -> None:
        """Remove a task of class ``c`` from node ``n``."""
        _release(self.nodes, n, self.problem.classes, c, mask)
        self.allocated -= int(self.problem.gpu_milli[c])
        self._changed(n)

    def _changed(self, n: int) -> None:
        nodes = self.nodes
        self._fresh[:, n] = False
        now = int(
            node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], self.problem.target)
        )
        self.total_fragmented += now - int(self.fragmented[n])
        self.fragmented[n] = now


@dataclass
class _Log:
    """The starts and ends of the tasks, in the order in which they occur."""

    start: IntArray
    finish: IntArray
    node: IntArray
    mask: IntArray
    status: IntArray
    started: IntArray
    ended: IntArray
    serial: int = 0

    @classmethod
    def of(cls, count: int) -> _Log:
        never = [np.full(count, -1, dtype=np.int64) for _ in range(5)]
        return cls(never[0], never[1], never[2], np.zeros(count, np.int64), np.full(count, QUEUED), never[3], never[4])

    def begin(self, i: int, tick: int, node: int, mask: int) -> None:
        self.start[i], self.node[i], self.mask[i], self.status[i] = tick, node, mask, RUNNING
        self.started[i] = self.serial
        self.serial += 1

    def end(self, i: int, tick: int) -> None:
        self.finish[i], self.status[i], self.ended[i] = tick, COMPLETED, self.serial
        self.serial += 1


def run(
    scenario: PlacementScenario, problem: PlacementProblem, policy: PlacementPolicy, seed: int
) -> PlacementRecording:
    """Return one run of the scenario under ``seed``. The same arguments give the same recording."""
    cluster = _Cluster(problem, policy, scenario.ties, seed)
    if isinstance(scenario.mode, Inflate):
        return _fill(problem, cluster, _drawn(scenario, problem, scenario.mode.demand, seed), seed)
    return _replay(scenario, problem, cluster, scenario.mode, seed)


def fill_without_departures(
    scenario: PlacementScenario, problem: PlacementProblem, policy: PlacementPolicy, seed: int, count: int
) -> PlacementRecording:
    """Place the first ``count`` tasks in order of arrival as if none left, and return the recording.

    It shows how much of the cluster the tasks of a replay would fill. A task that fits nowhere is dropped, as in an
    inflation.
    """
    cluster = _Cluster(problem, policy, scenario.ties, seed)
    return _fill(problem, cluster, np.arange(count, dtype=np.int64), seed)


def _draws(seed: int, count: int) -> tuple[list[float], list[float]]:
    """Return two random numbers in [0, 1) for each task: for ties between nodes, and for the choice of a GPU."""
    node, gpu = (stream(seed, "placement", name).random(count).tolist() for name in ("node", "gpu"))
    return node, gpu


def _fill(problem: PlacementProblem, cluster: _Cluster, drawn: IntArray, seed: int) -> PlacementRecording:
    """Place the tasks ``drawn`` (indices) one after another. No task leaves; one that fits nowhere is dropped."""
    tasks = problem.tasks
    kinds = tasks.kind[drawn].tolist()
    log = _Log.of(len(drawn))
    node_draws, gpu_draws = _draws(seed, len(drawn))
    allocated, fragmented = [0], [cluster.total_fragmented]
    for i, c in enumerate(kinds):
        node, mask = cluster.place(c, node_draws[i], gpu_draws[i])
        if node < 0:
            log.status[i] = DROPPED
        else:
            log.begin(i, i, node, mask)
        allocated.append(cluster.allocated)
        fragmented.append(cluster.total_fragmented)
    demand = np.concatenate([[0], np.cumsum(problem.gpu_milli[tasks.kind[drawn]])]).astype(np.int64)
    timeline = PlacementTimeline(
        np.arange(len(drawn) + 1, dtype=np.int64),
        demand,
        np.array(allocated, dtype=np.int64),
        np.array(fragmented, dtype=np.int64),
        np.zeros(len(drawn) + 1, dtype=np.int64),
        int(problem.target.weight.sum()),
    )
    arrival = np.arange(len(drawn), dtype=np.int64)
    return _recording("inflate", False, len(drawn), problem, drawn, arrival, log, timeline)


def _drawn(scenario: PlacementScenario, problem: PlacementProblem, demand: float, seed: int) -> IntArray:
    """Draw tasks of the trace with replacement until their GPU demand reaches ``demand`` times the capacity."""
    demands = problem.gpu_milli[problem.tasks.kind]
    wanted = demand * problem.nodes.capacity
    if not wanted or not demands.any():
        reason = "the cluster has no GPU" if not wanted else "no task requests a GPU"
        raise InputError(
            f"{reason}, so its demand cannot be inflated", where=scenario.where("mode"), expected="mode: replay"
        )
    if wanted / demands.mean() > _MAX_TASKS:
        raise InputError(
            f"this demand takes more than {_MAX_TASKS:,} tasks",
            where=scenario.where("mode"),
            expected="a lower demand, or a smaller cluster",
        )
    rng = stream(seed, "placement", "tasks")
    blocks: list[IntArray] = []
    reached = 0
    while reached < wanted:
        block = rng.integers(0, len(demands), 65_536)
        sums = reached + np.cumsum(demands[block])
        stop = int(np.searchsorted(sums, wanted, side="left")) + 1
        blocks.append(block[:stop])
        reached = int(sums[min(stop, len(block)) - 1])
    return np.concatenate(blocks)


def _replay(
    scenario: PlacementScenario, problem: PlacementProblem, cluster: _Cluster, mode: Replay, seed: int
) -> PlacementRecording:
    """Place the tasks at their arrival times; they leave when their duration has passed."""
    stop_s = scenario.stop.time if scenario.stop is not None else None
    last = None if stop_s is None else round(stop_s * NANO)
    arrival = problem.tasks.arrival
    count = len(arrival) if last is None else int(np.searchsorted(arrival, last, side="left"))
    replay = _ReplayState(problem, cluster, mode.backfill, count, seed)
    replay.run(last)
    weight = int(problem.target.weight.sum())
    columns = [np.array(column, dtype=np.int64) for column in zip(*replay.rows, strict=True)]
    timeline = PlacementTimeline(columns[0], columns[1], columns[2], columns[3], columns[4], weight)
    end = replay.now if last is None else last
    task_numbers = np.arange(count, dtype=np.int64)
    return _recording("replay", mode.backfill, end, problem, task_numbers, arrival[:count], replay.log, timeline)


class _ReplayState:
    """A replay in progress. ``rows`` are those of the timeline: tick, demand, allocated, fragmented, waiting tasks."""

    def __init__(self, problem: PlacementProblem, cluster: _Cluster, backfill: bool, count: int, seed: int) -> None:
        self.cluster, self.backfill, self.count = cluster, backfill, count
        self.log = _Log.of(count)
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.now = self._arrived = self._demand = 0
        self._arrivals, self._durations = problem.tasks.arrival[:count].tolist(), problem.tasks.duration.tolist()
        self._kinds, self._milli = problem.tasks.kind.tolist(), problem.gpu_milli.tolist()
        self._node_draws, self._gpu_draws = _draws(seed, count)
        self._queue: deque[int] = deque()
        self._ends: list[tuple[int, int]] = []

    def run(self, last: int | None) -> None:
        """Simulate until no task is left, or until the tick ``last``."""
        while self._arrived < self.count or self._ends:
            ticks = [self._arrivals[self._arrived]] if self._arrived < self.count else []
            self.now = min([*ticks, self._ends[0][0]] if self._ends else ticks)
            if last is not None and self.now > last:
                break
            self._leave()
            self._arrive()
            self._start()
            row = (self.now, self._demand, self.cluster.allocated, self.cluster.total_fragmented, len(self._queue))
            if self.rows and self.rows[-1][0] == self.now:
                self.rows[-1] = row
            else:
                self.rows.append(row)

    def _leave(self) -> None:
        while self._ends and self._ends[0][0] == self.now:
            _, i = heapq.heappop(self._ends)
            self.cluster.remove(int(self.log.node[i]), self._kinds[i], int(self.log.mask[i]))
            self.log.end(i, self.now)
            self._demand -= self._milli[self._kinds[i]]

    def _arrive(self) -> None:
        while self._arrived < self.count and self._arrivals[self._arrived] == self.now:
            self._queue.append(self._arrived)
            self._demand += self._milli[self._kinds[self._arrived]]
            self._arrived += 1

    def _start(self) -> None:
        """Start waiting tasks in order of arrival; with backfill, also tasks behind one that does not fit."""
        full: set[int] = set()
        waiting: list[int] = []
        while self._queue:
            i = self._queue.popleft()
            kind = self._kinds[i]
            node, mask = (-1, 0) if kind in full else self.cluster.place(kind, self._node_draws[i], self._gpu_draws[i])
            if node >= 0:
                self.log.begin(i, self.now, node, mask)
                heapq.heappush(self._ends, (self.now + self._durations[i], i))
                continue
            waiting.append(i)
            full.add(kind)  # later starts only take room, so a class that does not fit now cannot fit at this tick
            if not self.backfill:
                break
        self._queue.extendleft(reversed(waiting))


def _recording(
    mode: str,
    backfill: bool,
    end: int,
    problem: PlacementProblem,
    which: IntArray,
    arrival: IntArray,
    log: _Log,
    timeline: PlacementTimeline,
) -> PlacementRecording:
    tasks: TaskTable = problem.tasks
    kind, nodes = tasks.kind[which], problem.nodes
    classes = problem.classes
    return PlacementRecording(
        mode="inflate" if mode == "inflate" else "replay",
        backfill=backfill,
        end=end,
        tasks=PlacedTasks(
            names=[tasks.names[i] for i in which.tolist()],
            workload=tasks.workload[which],
            kind=kind,
            arrival=arrival,
            start=log.start,
            finish=log.finish,
            duration=tasks.duration[which],
            node=log.node,
            gpu_mask=log.mask,
            status=log.status,
            started=log.started,
            ended=log.ended,
            cpu=classes.cpu[kind],
            memory=classes.memory[kind],
            gpus=classes.gpus[kind],
            milli=classes.milli[kind],
        ),
        timeline=timeline,
        nodes=nodes.names,
        models=[nodes.models[m] if m >= 0 else "" for m in nodes.model.tolist()],
        gpus=nodes.gpus,
        workloads=problem.workloads,
        capacity=nodes.capacity,
    )
