"""Every placement policy against its definition written out plainly, on small random clusters; and what must always hold.

The reference below knows nothing of the engine: no kept scores, no compiled code, exact fractions, and the nodes are
searched from first to last for every task.
"""

from __future__ import annotations

import csv
import tempfile
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from windtunnel.core.errors import InputError, InvariantError
from windtunnel.core.recording import COMPLETED, DROPPED, QUEUED
from windtunnel.placement import engine as placement
from windtunnel.placement import invariants as placement_invariants
from windtunnel.placement import run as placement_run
from windtunnel.placement.nodes import PLACEMENTS
from windtunnel.placement.scenario import placement_from_data
from windtunnel.placement.tasks import prepare_placement

DETERMINISTIC = [name for name in placement_run.policies() if name != "random"]
MODELS = ("a", "b")


@dataclass
class Node:
    cpu: int
    memory: int
    gpus: int
    model: str
    left: list[int] = field(default_factory=list)
    tags: dict[Any, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = [1000] * self.gpus


@dataclass(frozen=True)
class Task:
    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...]

    @property
    def kind(self) -> tuple[int, int, int, tuple[str, ...]]:
        return (self.cpu, self.gpus, self.milli, self.models)

    @property
    def tag(self) -> Any:
        return None if not self.gpus else "part" if self.milli < 1000 else self.gpus


def accepts(task_models: tuple[str, ...], node: Node) -> bool:
    return not task_models or node.model in task_models


def has_room(node: Node, task: Task) -> bool:
    if node.cpu < task.cpu or node.memory < task.memory:
        return False
    return not task.gpus or (accepts(task.models, node) and sum(left >= task.milli for left in node.left) >= task.gpus)


def fragmentation(cpu: int, left: list[int], node: Node, target: dict[Any, int]) -> Fraction:
    """F_n(M) of the paper: the expectation, over the target mix, of the GPU that a task of it cannot use."""
    total = Fraction(0)
    for (need, gpus, milli, models), weight in target.items():
        runs = gpus > 0 and cpu >= need and accepts(models, node) and sum(x >= milli for x in left) >= gpus
        lost = sum(x for x in left if x < milli) if runs else sum(left)
        total += Fraction(weight, sum(target.values())) * lost
    return total


def after(node: Node, task: Task, gpu: int | None) -> list[int]:
    left, wanted = list(node.left), task.gpus
    if gpu is not None:
        left[gpu] -= task.milli
        return left
    for g, x in enumerate(left):
        if wanted and x == 1000:
            left[g], wanted = 0, wanted - 1
    return left


class Reference:
    """One policy, by its definition."""

    def __init__(self, policy: str, nodes: list[Node], target: dict[Any, int]) -> None:
        self.policy, self.nodes, self.target = policy, nodes, target
        self.most_cpu = max([n.cpu for n in nodes] + [1])
        self.most_gpu = max([n.gpus * 1000 for n in nodes] + [1])

    def gpu(self, node: Node, task: Task) -> int | None:
        if not task.gpus or task.milli == 1000:
            return None
        fitting = [g for g, left in enumerate(node.left) if left >= task.milli]
        if self.policy == "fragmentation-gradient-descent":
            cpu = node.cpu - task.cpu
            return min(fitting, key=lambda g: (fragmentation(cpu, after(node, task, g), node, self.target), g))
        return min(fitting, key=lambda g: (node.left[g], g))

    def score(self, node: Node, task: Task) -> Any:
        """The higher the better."""
        idle, total = sum(left == 1000 for left in node.left), sum(node.left)
        asked = task.gpus * task.milli
        if self.policy == "best-fit":
            return -(Fraction(node.cpu - task.cpu, self.most_cpu) + Fraction(total - asked, self.most_gpu))
        if self.policy == "dot-product":
            # The engine's own arithmetic: two roundings apart, equals would no longer be equal.
            cpu = (node.cpu / self.most_cpu) * (task.cpu / self.most_cpu)
            return -(cpu + (total / self.most_gpu) * (asked / self.most_gpu))
        if self.policy == "fragmentation-gradient-descent":
            left = after(node, task, self.gpu(node, task))
            now = fragmentation(node.cpu, node.left, node, self.target)
            return now - fragmentation(node.cpu - task.cpu, left, node, self.target)
        if not task.gpus:
            return (0,)
        if self.policy == "gpu-packing":
            shared = [left for left in node.left if task.milli <= left < 1000]
            if idle == node.gpus:
                return (0, -idle)
            return (2, -min(shared)) if shared else (1, -task.gpus)
        held = {tag for tag, count in node.tags.items() if count and tag is not None}
        rank = 3 if held == {task.tag} else 2 if task.tag in held else 1 if not held else 0
        return (rank, -total)

    def place(self, task: Task) -> tuple[int, list[int]] | None:
        room = [n for n, node in enumerate(self.nodes) if has_room(node, task)]
        if not room:
            return None
        best = max(room, key=lambda n: (self.score(self.nodes[n], task), -n))
        node = self.nodes[best]
        left = after(node, task, self.gpu(node, task))
        taken = [g for g, (x, y) in enumerate(zip(node.left, left, strict=True)) if x != y]
        node.left, node.cpu, node.memory = left, node.cpu - task.cpu, node.memory - task.memory
        node.tags[task.tag] = node.tags.get(task.tag, 0) + 1
        return best, taken

    def remove(self, n: int, task: Task, taken: list[int]) -> None:
        node = self.nodes[n]
        node.cpu, node.memory = node.cpu + task.cpu, node.memory + task.memory
        node.tags[task.tag] -= 1
        for g in taken:
            node.left[g] += task.milli


nodes_of = st.lists(
    st.tuples(st.integers(1, 16), st.integers(1, 8), st.integers(0, 4), st.sampled_from(MODELS)), min_size=1, max_size=6
)
tasks_of = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 3),
        st.sampled_from([(0, 0), (1, 200), (1, 300), (1, 500), (1, 700), (1, 1000), (2, 1000), (4, 1000)]),
        st.sampled_from(["", "a", "b", "a|b", "c|a"]),
        st.integers(0, 12),
        st.integers(0, 10),
    ),
    min_size=1,
    max_size=40,
)


def scenario(folder: Path, nodes: Any, tasks: Any, **keys: Any) -> Any:
    with (folder / "tasks.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["at", "gpus", "milli", "cpu", "memory", "models", "lasts"])
        for cpu, memory, (gpus, milli), models, at, lasts in tasks:
            writer.writerow([at, gpus, milli, cpu, memory, models, lasts])
    groups = [
        {"gpus": gpus, "cpu_milli": cpu, "memory": f"{memory} GiB", **({"model": model} if gpus else {})}
        for cpu, memory, gpus, model in nodes
    ]
    data = {
        "schema": 1,
        "name": "small",
        "cluster": {"nodes": groups},
        "workload": [
            {
                "name": "tasks",
                "arrivals": {"process": "trace", "file": "tasks.csv", "time": "at"},
                "resources": {
                    "gpus": "$gpus",
                    "gpu_milli": "$milli",
                    "cpu_milli": "$cpu",
                    "memory": "$memory GiB",
                    "models": "$models",
                },
                "duration": "$lasts s",
            }
        ],
        "fragmentation": {"popularity": 1},
        **keys,
    }
    return placement_from_data(data, str(folder / "scenario.yaml"))


def as_tasks(rows: Any) -> list[Task]:
    return [
        Task(cpu, memory, gpus, milli if gpus else 1000, tuple(sorted(models.split("|"))) if models and gpus else ())
        for cpu, memory, (gpus, milli), models, _, _ in rows
    ]


def placeable(nodes: Any, rows: Any) -> Any:
    """The tasks that fit some node when it is empty; others are refused before a run."""
    empty = [Node(*node) for node in nodes]
    return [row for row, task in zip(rows, as_tasks(rows), strict=True) if any(has_room(n, task) for n in empty)]


SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def mix(tasks: list[Task]) -> dict[Any, int]:
    target: dict[Any, int] = {}
    for task in tasks:
        # A model that no node has is as good as none named: it is accepted nowhere.
        target[task.kind] = target.get(task.kind, 0) + 1
    return target


@pytest.mark.parametrize("policy", DETERMINISTIC)
@SETTINGS
@given(nodes=nodes_of, rows=tasks_of)
def test_inflating_places_every_task_where_the_definition_does(policy: str, nodes: Any, rows: Any) -> None:
    rows = placeable(nodes, rows)
    assume(any(gpus for _, _, (gpus, _), _, _, _ in rows))
    with tempfile.TemporaryDirectory() as folder:
        stated = scenario(Path(folder), nodes, rows, policy=policy, mode={"kind": "inflate", "demand": 1.5})
        prepared = prepare_placement(stated)
        recording = placement.run(stated, prepared, PLACEMENTS[policy], 7)
    placement_invariants.check(recording, prepared)
    # Replaying wants order of time, inflating has none: the trace's own order.
    tasks = as_tasks(rows)
    reference = Reference(policy, [Node(*node) for node in nodes], mix(tasks))
    for i, row in enumerate(recording.tasks.names):
        found = reference.place(tasks[int(row)])
        if found is None:
            assert recording.tasks.status[i] == DROPPED
        else:
            assert (recording.tasks.node[i], recording.tasks.gpu_mask[i]) == (found[0], sum(1 << g for g in found[1]))
        lost = sum(fragmentation(n.cpu, n.left, n, reference.target) for n in reference.nodes)
        assert Fraction(int(recording.timeline.fragmented[i + 1]), recording.timeline.weight) == lost


@pytest.mark.parametrize("policy", ["best-fit", "gpu-clustering", "fragmentation-gradient-descent"])
@pytest.mark.parametrize("backfill", [False, True])
@SETTINGS
@given(nodes=nodes_of, rows=tasks_of)
def test_a_replay_starts_and_ends_every_task_when_the_definition_does(
    policy: str, backfill: bool, nodes: Any, rows: Any
) -> None:
    rows = placeable(nodes, rows)
    assume(rows)
    with tempfile.TemporaryDirectory() as folder:
        mode = {"kind": "replay", "backfill": backfill}
        stated = scenario(Path(folder), nodes, rows, policy=policy, mode=mode)
        prepared = prepare_placement(stated)
        recording = placement.run(stated, prepared, PLACEMENTS[policy], 7)
    placement_invariants.check(recording, prepared)
    tasks = as_tasks(rows)
    reference = Reference(policy, [Node(*node) for node in nodes], mix(tasks))
    waiting = sorted(range(len(rows)), key=lambda i: rows[i][4])
    order, started = list(waiting), {}
    running: list[Any] = []
    first = rows[waiting[0]][4]
    now = first
    while waiting or running:
        for entry in sorted(e for e in running if e[0] == now):
            reference.remove(entry[2], tasks[entry[1]], entry[3])
            running.remove(entry)
        for i in [i for i in waiting if rows[i][4] <= now]:
            found = reference.place(tasks[i])
            if found is None:
                if not backfill:
                    break
                continue
            waiting.remove(i)
            started[i] = (now, *found)
            running.append((now + rows[i][5], i, *found))
        times = [e[0] for e in running] + [rows[i][4] for i in waiting if rows[i][4] > now]
        now = min(times) if times else now
    for k, i in enumerate(order):
        at, node, taken = started[i]
        assert recording.tasks.names[k] == str(i)
        assert recording.tasks.start[k] == (at - first) * 10**9
        assert recording.tasks.finish[k] == (at - first + rows[i][5]) * 10**9
        assert (recording.tasks.node[k], recording.tasks.gpu_mask[k]) == (node, sum(1 << g for g in taken))


@SETTINGS
@given(
    nodes=nodes_of,
    rows=tasks_of,
    policy=st.sampled_from(placement_run.policies()),
    ties=st.sampled_from(["first", "shuffled", "random"]),
    stop=st.sampled_from([None, {"jobs": 5}, {"time": "6 s"}]),
    seed=st.integers(0, 1000),
)
def test_whatever_is_placed_the_invariants_hold_and_the_same_seed_gives_the_same(
    nodes: Any, rows: Any, policy: str, ties: str, stop: Any, seed: int
) -> None:
    rows = placeable(nodes, rows)
    assume(rows)
    with tempfile.TemporaryDirectory() as folder:
        stated = scenario(Path(folder), nodes, rows, policy=policy, ties=ties, seed=seed, stop=stop)
        prepared = prepare_placement(stated)
        runs = [placement.run(stated, prepared, PLACEMENTS[policy], seed) for _ in range(2)]
    placement_invariants.check(runs[0], prepared)
    for name in ("start", "finish", "node", "gpu_mask", "status"):
        assert np.array_equal(getattr(runs[0].tasks, name), getattr(runs[1].tasks, name))
    if stop is None:
        assert (runs[0].tasks.status == COMPLETED).all()
    else:
        assert (runs[0].tasks.status[runs[0].tasks.started < 0] == QUEUED).all()


def test_the_invariants_bite() -> None:
    rows = [(1, 1, (1, 700), "", i % 3, 3) for i in range(12)]
    with tempfile.TemporaryDirectory() as folder:
        stated = scenario(Path(folder), [(8, 8, 2, "a"), (8, 8, 1, "b")], rows)
        prepared = prepare_placement(stated)

    def fresh() -> Any:
        return placement.run(stated, prepared, PLACEMENTS["best-fit"], 1)

    placement_invariants.check(fresh(), prepared)

    def broken(name: str, change: Any) -> None:
        recording = fresh()
        change(recording)
        with pytest.raises(InvariantError, match=f"invariant {name} "):
            placement_invariants.check(recording, prepared)

    def swap(recording: Any, name: str, i: int, value: int) -> None:
        getattr(recording.tasks, name)[i] = value

    broken("P1", lambda r: swap(r, "status", 0, QUEUED))
    broken("P2", lambda r: swap(r, "finish", 0, 1))

    def take_the_same_gpu(recording: Any) -> None:
        swap(recording, "gpu_mask", 1, int(recording.tasks.gpu_mask[0]))
        swap(recording, "node", 1, int(recording.tasks.node[0]))

    broken("P3", take_the_same_gpu)
    broken("P3", lambda r: swap(r, "gpu_mask", 0, 3))
    broken("P4", lambda r: r.tasks.cpu.__setitem__(slice(None), 5))
    broken("P6", lambda r: r.timeline.allocated.__setitem__(0, 1))
    broken("P6", lambda r: r.timeline.demand.__setitem__(0, 1))
    broken("P8", lambda r: r.timeline.fragmented.__setitem__(-1, 1))

    def overtake(recording: Any) -> None:
        recording.tasks.started[[0, 1]] = recording.tasks.started[[1, 0]]

    broken("P7", overtake)


def test_a_task_that_no_node_could_ever_take_is_refused_with_its_line() -> None:
    rows = [(1, 1, (1, 500), "", 0, 1), (1, 1, (4, 1000), "", 0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        stated = scenario(Path(folder), [(8, 8, 2, "a")], rows)
        with pytest.raises(InputError, match=r"tasks\.csv:3.*fits on no node, even if it is empty"):
            prepare_placement(stated)
