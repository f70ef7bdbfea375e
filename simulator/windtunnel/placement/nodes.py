"""The state of nodes, the interface of placement policies, and the fragmentation of a node's GPUs.

A GPU is 1000 thousandths ("milli"). A task takes a fraction of one GPU, or whole GPUs, and CPU and memory of the same
node. Tasks with equal requests are one class. A policy scores each node for a class, and the node with the highest
score takes the task.

Fragmentation is that of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC 2023): the GPUs that a task of an expected workload cannot use. Here it is an exact
integer (thousandths of a GPU, times tasks of the target workload), so that equal values compare as equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
from numba import njit as _njit

from windtunnel.core.registry import Registry

MILLI = 1000
"""Thousandths in a GPU."""

ANY_MODEL = -1
"""The mask of a task that accepts every model: all bits."""

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_F = TypeVar("_F", bound=Callable[..., Any])


def compiled(function: _F) -> _F:
    """Compile ``function`` with Numba and cache the result on disk; the type stays that of the function."""
    return cast("_F", _njit(cache=True)(function))


class Nodes(NamedTuple):
    """The present state of all nodes.

    Shapes: (nodes,), except ``gpu_left`` (nodes, largest number of GPUs) and ``tags`` (nodes, tags).
    """

    cpu_left: IntArray
    """Free thousandths of a core."""
    memory_left: IntArray
    """Free bytes."""
    gpu_left: IntArray
    """Free thousandths of each GPU; 0 beyond a node's last GPU."""
    gpus: IntArray
    model: IntArray
    """The index of the node's GPU model; -1 if it has no GPU."""
    tags: IntArray
    """The number of the node's tasks with each tag (the kind of GPU demand, see ``Classes``)."""


class Classes(NamedTuple):
    """The classes of tasks, one element for each class."""

    cpu: IntArray
    memory: IntArray
    gpus: IntArray
    milli: IntArray
    """Thousandths of each GPU: 1000 unless the task takes a fraction of a single GPU."""
    models: IntArray
    """A bit for each GPU model that the class accepts."""
    tag: IntArray
    """0 for no GPU, 1 for a fraction of one, and another number for each number of whole GPUs."""


class Target(NamedTuple):
    """The workload for which fragmentation is measured: classes, and the number of tasks of each class."""

    cpu: IntArray
    gpus: IntArray
    milli: IntArray
    models: IntArray
    weight: IntArray


class Largest(NamedTuple):
    """The CPU and GPU thousandths of the largest node, by which scores are normalised; never 0."""

    cpu: int
    gpu: int


Score = Callable[[Nodes, Classes, int, Target, Largest, IntArray, FloatArray], None]
"""(nodes, classes, class, target, largest, which, out): write the scores of the nodes ``which`` to ``out``."""

ChooseGpu = Callable[[Nodes, int, Classes, int, Target, float], int]
"""(nodes, node, classes, class, target, draw in [0, 1)): return the GPU of the node for a fraction of a GPU."""


@dataclass(frozen=True)
class PlacementPolicy:
    """A rule that selects the node of a task (the highest score) and, for a fraction of a GPU, the GPU."""

    name: str
    doc: str
    score: Score
    choose_gpu: ChooseGpu
    random: bool = False
    """Whether a random draw decides between equal nodes, independent of the scenario's ``ties``."""


PLACEMENTS: Registry[PlacementPolicy] = Registry("placement policy")


def placement(name: str, choose_gpu: ChooseGpu, *, random: bool = False) -> Callable[[Score], Score]:
    """Return a decorator that registers a score function (see ``compiled``) as the placement policy ``name``."""

    def add(score: Score) -> Score:
        PLACEMENTS.add(name, PlacementPolicy(name, (score.__doc__ or "").strip(), score, choose_gpu, random))
        return score

    return add


@compiled
def accepts(models: int, model: int) -> bool:
    """Return whether a task with the mask ``models`` accepts the GPU model with index ``model`` (-1: no GPU)."""
    return models == ANY_MODEL or (model >= 0 and (models >> model) & 1 == 1)


@compiled
def gpus_fit(gpu_left: IntArray, gpus: int, wanted: int, milli: int) -> bool:
    """Return whether ``wanted`` of the first ``gpus`` entries of ``gpu_left`` are at least ``milli`` each."""
    count = 0
    for g in range(gpus):
        if gpu_left[g] >= milli:
            count += 1
            if count >= wanted:
                return True
    return wanted == 0


@compiled
def fits(nodes: Nodes, n: int, classes: Classes, c: int) -> bool:
    """Return whether a task of class ``c`` fits on node ``n`` now."""
    if nodes.cpu_left[n] < classes.cpu[c] or nodes.memory_left[n] < classes.memory[c]:
        return False
    if classes.gpus[c] == 0:
        return True
    if not accepts(classes.models[c], nodes.model[n]):
        return False
    return gpus_fit(nodes.gpu_left[n], nodes.gpus[n], classes.gpus[c], classes.milli[c])


@compiled
def fits_somewhere(nodes: Nodes, classes: Classes, c: int) -> bool:
    """Return whether a task of class ``c`` fits on any node now."""
    for n in range(len(nodes.cpu_left)):  # noqa: SIM110  Numba has no any() of a generator
        if fits(nodes, n, classes, c):
            return True
    return False


@compiled
def node_fragmentation(cpu_left: int, gpu_left: IntArray, gpus: int, model: int, target: Target) -> int:
    """Return F_n(M) of one node: its unusable GPU thousandths, summed over the tasks of the target workload.

    If a task m of the target does not fit on the node (too little CPU or GPU, or another model), or requests no GPU,
    all unallocated thousandths of the node are fragments. Otherwise the fragments are on the GPUs that have less free
    than the task needs of one. The sum divided by the number of tasks of the target is the expectation.

    Memory is checked when a task is placed, but it is not part of the measure, as in the paper's own simulator
    (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0).
    """
    left = 0
    for g in range(gpus):
        left += gpu_left[g]
    if left == 0:
        return 0
    total = 0
    for m in range(len(target.weight)):
        milli = target.milli[m]
        useful = 0
        if target.gpus[m] > 0 and cpu_left >= target.cpu[m] and accepts(target.models[m], model):
            enough = 0
            for g in range(gpus):
                if gpu_left[g] >= milli:
                    enough += 1
                    useful += gpu_left[g]
            if enough < target.gpus[m]:
                useful = 0
        total += target.weight[m] * (left - useful)
    return total


@compiled
def after_placing(nodes: Nodes, n: int, classes: Classes, c: int, gpu: int, target: Target) -> int:
    """Return the fragmentation of node ``n`` with one more task of class ``c``, on ``gpu`` or its first idle GPUs."""
    row = nodes.gpu_left[n].copy()
    if classes.milli[c] < MILLI:
        row[gpu] -= classes.milli[c]
    else:
        wanted = classes.gpus[c]
        for g in range(nodes.gpus[n]):
            if wanted == 0:
                break
            if row[g] == MILLI:
                row[g] = 0
                wanted -= 1
    return node_fragmentation(nodes.cpu_left[n] - classes.cpu[c], row, nodes.gpus[n], nodes.model[n], target)


def cluster_fragmentation(nodes: Nodes, target: Target) -> IntArray:
    """Return ``node_fragmentation`` of every node, shape (nodes,)."""
    fragmentation = np.zeros(len(nodes.cpu_left), dtype=np.int64)
    _every_node(nodes, target, fragmentation)
    return fragmentation


@compiled
def _every_node(nodes: Nodes, target: Target, out: IntArray) -> None:
    for n in range(len(out)):
        out[n] = node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], target)
