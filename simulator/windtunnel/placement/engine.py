"""The placement engine: tasks come, take GPUs, CPU and memory of one node, and leave.

A policy's score of a node depends on that node and the class of task alone, so scores are kept and only those of
nodes that changed are worked out anew. Everything is integer but the scores, and ties have one order.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from windtunnel.core.errors import InputError
from windtunnel.core.result import COMPLETED, DROPPED, QUEUED, RUNNING
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
from windtunnel.placement.recording import NANO, Course, PlacedTasks, PlacementRecording
from windtunnel.placement.scenario import Inflate, PlacementScenario, Replay
from windtunnel.placement.tasks import Placing, TaskTable

_KEPT_SCORES = 20_000_000
"""Scores kept at most (nodes times classes); above it every score is worked out each time."""

_MAX_TASKS = 20_000_000


@compiled
def _stale(nodes: Nodes, classes: Classes, c: int, fresh: IntArray, scores: FloatArray, out: IntArray) -> int:
    """Nodes to score anew for class ``c``, written to ``out``; returns how many. What has no room scores -inf."""
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
    """The node with the highest score: the first in ``order``, or with a ``draw`` in [0, 1) any of the equals.

    -1 for none.
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
    """Put a task on node ``n``: a part on ``gpu``, whole GPUs on the first idle ones. Returns their mask."""
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
def _give_back(nodes: Nodes, n: int, classes: Classes, c: int, mask: int) -> None:
    nodes.cpu_left[n] += classes.cpu[c]
    nodes.memory_left[n] += classes.memory[c]
    nodes.tags[n, classes.tag[c]] -= 1
    for g in range(nodes.gpus[n]):
        if (mask >> g) & 1 == 1:
            nodes.gpu_left[n, g] += classes.milli[c]


class _Cluster:
    """The nodes' state under one policy, and the scores that still hold."""

    def __init__(self, placing: Placing, policy: PlacementPolicy, ties: str, seed: int) -> None:
        self.placing, self.policy = placing, policy
        self.random = ties == "random" or policy.random
        self.nodes = placing.nodes.empty(placing.tags)
        size, kinds = len(placing.nodes.cpu), len(placing.classes.cpu)
        order = stream(seed, "placement", "order").permutation(size) if ties == "shuffled" else np.arange(size)
        self._order = order.astype(np.int64)
        self._kept = size * kinds <= _KEPT_SCORES
        rows = kinds if self._kept else 1
        self._scores = np.empty((rows, size))
        self._fresh = np.zeros((rows, size), dtype=np.bool_)
        self._which = np.empty(size, dtype=np.int64)
        self.fragmented = cluster_fragmentation(self.nodes, placing.target)
        self.total_fragmented = int(self.fragmented.sum())
        self.allocated = 0

    def place(self, c: int, node_draw: float, gpu_draw: float) -> tuple[int, int]:
        """Put a task of class ``c`` somewhere: (node, mask of GPUs), or (-1, 0) where it has no room."""
        placing, nodes = self.placing, self.nodes
        row = c if self._kept else 0
        scores, fresh = self._scores[row], self._fresh[row]
        if not self._kept:
            fresh[:] = False
        count = _stale(nodes, placing.classes, c, fresh, scores, self._which)
        if count:
            which = self._which[:count]
            self.policy.score(nodes, placing.classes, c, placing.target, placing.largest, which, scores)
        n = int(_pick(scores, self._order, node_draw if self.random else -1.0))
        if n < 0:
            return -1, 0
        part = placing.classes.gpus[c] > 0 and placing.classes.milli[c] < MILLI
        gpu = self.policy.choose_gpu(nodes, n, placing.classes, c, placing.target, gpu_draw) if part else 0
        mask = int(_take(nodes, n, placing.classes, c, gpu))
        self.allocated += int(placing.gpu_milli[c])
        self._changed(n)
        return n, mask

    def remove(self, n: int, c: int, mask: int) -> None:
        """Take a task of class ``c`` off node ``n``."""
        _give_back(self.nodes, n, self.placing.classes, c, mask)
        self.allocated -= int(self.placing.gpu_milli[c])
        self._changed(n)

    def _changed(self, n: int) -> None:
        nodes = self.nodes
        self._fresh[:, n] = False
        now = int(
            node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], self.placing.target)
        )
        self.total_fragmented += now - int(self.fragmented[n])
        self.fragmented[n] = now


@dataclass
class _Log:
    """What happens to each task, and the course of the cluster, as they come."""

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


def run(scenario: PlacementScenario, placing: Placing, policy: PlacementPolicy, seed: int) -> PlacementRecording:
    """One run of the scenario under ``seed``; the same arguments give the same recording."""
    cluster = _Cluster(placing, policy, scenario.ties, seed)
    if isinstance(scenario.mode, Inflate):
        return _held(placing, cluster, _drawn(scenario, placing, scenario.mode.demand, seed), seed)
    return _replay(scenario, placing, cluster, scenario.mode, seed)


def hold(
    scenario: PlacementScenario, placing: Placing, policy: PlacementPolicy, seed: int, count: int
) -> PlacementRecording:
    """The first ``count`` tasks in order of arrival, if none left: what a replay's tasks would fill of the cluster.

    One that finds no room is dropped, as when inflating.
    """
    cluster = _Cluster(placing, policy, scenario.ties, seed)
    return _held(placing, cluster, np.arange(count, dtype=np.int64), seed)


def _draws(seed: int, count: int) -> tuple[list[float], list[float]]:
    """Two numbers in [0, 1) for each task: for ties between nodes, and for the choice of a GPU."""
    node, gpu = (stream(seed, "placement", what).random(count).tolist() for what in ("node", "gpu"))
    return node, gpu


def _held(placing: Placing, cluster: _Cluster, drawn: IntArray, seed: int) -> PlacementRecording:
    """The tasks ``drawn`` (indices), one after another; none leaves, and one without room is dropped."""
    tasks = placing.tasks
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
    demand = np.concatenate([[0], np.cumsum(placing.gpu_milli[tasks.kind[drawn]])]).astype(np.int64)
    course = Course(
        np.arange(len(drawn) + 1, dtype=np.int64),
        demand,
        np.array(allocated, dtype=np.int64),
        np.array(fragmented, dtype=np.int64),
        np.zeros(len(drawn) + 1, dtype=np.int64),
        int(placing.target.weight.sum()),
    )
    arrival = np.arange(len(drawn), dtype=np.int64)
    return _recording("inflate", False, len(drawn), placing, drawn, arrival, log, course)


def _drawn(scenario: PlacementScenario, placing: Placing, demand: float, seed: int) -> IntArray:
    """Tasks of the trace, drawn with replacement until their GPU demand reaches ``demand`` of the capacity."""
    each = placing.gpu_milli[placing.tasks.kind]
    wanted = demand * placing.nodes.capacity
    if not wanted or not each.any():
        what = "the cluster has no GPU" if not wanted else "no task asks for a GPU"
        raise InputError(
            f"{what}, so that its demand cannot be inflated", where=scenario.where("mode"), expected="mode: replay"
        )
    if wanted / each.mean() > _MAX_TASKS:
        raise InputError(
            f"that would take more than {_MAX_TASKS:,} tasks",
            where=scenario.where("mode"),
            expected="a lower demand, or a smaller cluster",
        )
    rng = stream(seed, "placement", "tasks")
    blocks: list[IntArray] = []
    reached = 0
    while reached < wanted:
        block = rng.integers(0, len(each), 65_536)
        sums = reached + np.cumsum(each[block])
        stop = int(np.searchsorted(sums, wanted, side="left")) + 1
        blocks.append(block[:stop])
        reached = int(sums[min(stop, len(block)) - 1])
    return np.concatenate(blocks)


def _replay(
    scenario: PlacementScenario, placing: Placing, cluster: _Cluster, mode: Replay, seed: int
) -> PlacementRecording:
    tasks = placing.tasks
    horizon = scenario.stop.time if scenario.stop is not None else None
    last = None if horizon is None else round(horizon * NANO)
    count = len(tasks) if last is None else int(np.searchsorted(tasks.arrival, last, side="left"))
    arrivals, lasts, kinds = tasks.arrival[:count].tolist(), tasks.duration.tolist(), tasks.kind.tolist()
    milli = placing.gpu_milli.tolist()
    node_draws, gpu_draws = _draws(seed, count)
    log = _Log.of(count)
    queue: deque[int] = deque()
    ends: list[tuple[int, int]] = []
    rows: list[tuple[int, int, int, int, int]] = []
    came, demand, now = 0, 0, 0
    while came < count or ends:
        now = min(arrivals[came] if came < count else ends[0][0], ends[0][0] if ends else arrivals[came])
        if last is not None and now > last:
            break
        while ends and ends[0][0] == now:
            _, i = heapq.heappop(ends)
            cluster.remove(int(log.node[i]), kinds[i], int(log.mask[i]))
            log.end(i, now)
            demand -= milli[kinds[i]]
        while came < count and arrivals[came] == now:
            queue.append(came)
            demand += milli[kinds[came]]
            came += 1
        full: set[int] = set()
        held: list[int] = []
        while queue:
            i = queue.popleft()
            node, mask = (-1, 0) if kinds[i] in full else cluster.place(kinds[i], node_draws[i], gpu_draws[i])
            if node >= 0:
                log.begin(i, now, node, mask)
                heapq.heappush(ends, (now + lasts[i], i))
                continue
            held.append(i)
            full.add(kinds[i])  # what follows only takes room, so a class that does not fit now will not
            if not mode.backfill:
                break
        queue.extendleft(reversed(held))
        row = (now, demand, cluster.allocated, cluster.total_fragmented, len(queue))
        if rows and rows[-1][0] == now:
            rows[-1] = row
        else:
            rows.append(row)
    end = now if last is None else last
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    weight = int(placing.target.weight.sum())
    course = Course(columns[0], columns[1], columns[2], columns[3], columns[4], weight)
    every = np.arange(count, dtype=np.int64)
    return _recording("replay", mode.backfill, end, placing, every, tasks.arrival[:count], log, course)


def _recording(
    mode: str,
    backfill: bool,
    end: int,
    placing: Placing,
    which: IntArray,
    arrival: IntArray,
    log: _Log,
    course: Course,
) -> PlacementRecording:
    tasks: TaskTable = placing.tasks
    kind, nodes = tasks.kind[which], placing.nodes
    classes = placing.classes
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
        course=course,
        nodes=nodes.names,
        models=[nodes.models[m] if m >= 0 else "" for m in nodes.model.tolist()],
        gpus=nodes.gpus,
        workloads=placing.workloads,
        capacity=nodes.capacity,
    )
