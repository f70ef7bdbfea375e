"""Placing tasks on nodes: what a policy sees, what it answers, what fits, and how fragmented a node's GPUs are.

A GPU is 1000 thousandths ("milli"). A task takes a part of one GPU, or whole GPUs, and CPU and memory of the same
node. Tasks that ask for the same are one class; a policy scores a node for a class, and the highest score wins.

Fragmentation is that of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC 2023): a statistical measure against the workload that is to come. Here it is
an exact integer: thousandths of a GPU, times tasks of the target workload. So ties are ties.
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
    """Numba's ``njit``, its result kept on disk, typed as what it wraps."""
    return cast("_F", _njit(cache=True)(function))


class Nodes(NamedTuple):
    """Every node's present state. Shapes (nodes,), but ``gpu_left`` (nodes, most GPUs) and ``tags`` (nodes, tags)."""

    cpu_left: IntArray
    """Thousandths of a core."""
    memory_left: IntArray
    """Bytes."""
    gpu_left: IntArray
    """Thousandths of each GPU; 0 beyond a node's last."""
    gpus: IntArray
    model: IntArray
    """The index of its GPUs' model; -1 where it has none."""
    tags: IntArray
    """How many of its tasks have each tag (the kind of GPU demand, see ``Classes``)."""


class Classes(NamedTuple):
    """The classes of tasks, one element each."""

    cpu: IntArray
    memory: IntArray
    gpus: IntArray
    milli: IntArray
    """Of each GPU: 1000 unless the task takes a part of a single one."""
    models: IntArray
    """A bit for each model that it accepts."""
    tag: IntArray
    """0 for no GPU, 1 for a part of one, and another number for each number of whole GPUs."""


class Target(NamedTuple):
    """The workload that fragmentation is measured against: classes, and how many tasks of each it holds."""

    cpu: IntArray
    gpus: IntArray
    milli: IntArray
    models: IntArray
    weight: IntArray


class Largest(NamedTuple):
    """The largest node's CPU and GPU thousandths, which scores are normalised by; never 0."""

    cpu: int
    gpu: int


Score = Callable[[Nodes, Classes, int, Target, Largest, IntArray, FloatArray], None]
"""(nodes, classes, class, target, largest, which nodes, out): writes the scores of ``which`` to ``out``."""

ChooseGpu = Callable[[Nodes, int, Classes, int, Target, float], int]
"""(nodes, node, classes, class, target, draw in [0, 1)): which GPU of the node takes a part-GPU task."""


@dataclass(frozen=True)
class PlacementPolicy:
    """How a node is chosen (the highest score) and, within it, the GPU of a task that takes a part of one."""

    name: str
    doc: str
    score: Score
    choose_gpu: ChooseGpu
    random: bool = False
    """Whether equals are told apart by a draw, whatever the scenario says of ties."""


PLACEMENTS: Registry[PlacementPolicy] = Registry("placement policy")


def placement(name: str, choose_gpu: ChooseGpu, *, random: bool = False) -> Callable[[Score], Score]:
    """Decorator: registers a score (compiled by ``compiled``) as the placement policy ``name``."""

    def add(score: Score) -> Score:
        PLACEMENTS.add(name, PlacementPolicy(name, (score.__doc__ or "").strip(), score, choose_gpu, random))
        return score

    return add


@compiled
def accepts(models: int, model: int) -> bool:
    """Whether a task with the mask ``models`` accepts the GPU model of that index (-1: there is none)."""
    return models == ANY_MODEL or (model >= 0 and (models >> model) & 1 == 1)


@compiled
def gpus_fit(gpu_left: IntArray, gpus: int, wanted: int, milli: int) -> bool:
    """Whether ``wanted`` of a node's ``gpus`` GPUs (shape (most GPUs,)) have ``milli`` left each."""
    found = 0
    for g in range(gpus):
        if gpu_left[g] >= milli:
            found += 1
            if found >= wanted:
                return True
    return wanted == 0


@compiled
def fits(nodes: Nodes, n: int, classes: Classes, c: int) -> bool:
    """Whether node ``n`` can take a task of class ``c`` now."""
    if nodes.cpu_left[n] < classes.cpu[c] or nodes.memory_left[n] < classes.memory[c]:
        return False
    if classes.gpus[c] == 0:
        return True
    if not accepts(classes.models[c], nodes.model[n]):
        return False
    return gpus_fit(nodes.gpu_left[n], nodes.gpus[n], classes.gpus[c], classes.milli[c])


@compiled
def fits_somewhere(nodes: Nodes, classes: Classes, c: int) -> bool:
    """Whether any node can take a task of class ``c`` now."""
    for n in range(len(nodes.cpu_left)):  # noqa: SIM110  Numba has no any() of a generator
        if fits(nodes, n, classes, c):
            return True
    return False


@compiled
def node_fragmentation(cpu_left: int, gpu_left: IntArray, gpus: int, model: int, target: Target) -> int:
    """F_n(M) of one node: its GPU thousandths that are of no use, summed over the tasks of the target workload.

    For a task m of the target: if the node cannot take it - too little CPU or GPU, a model
    it does not accept, or it asks for no GPU at all - everything unallocated on its GPUs is a fragment. If it can,
    what is left on GPUs with less than the task needs of one is. Divide by the target's tasks for the expectation.

    Memory is checked when a task is placed but, as in the paper's own simulator (hkust-adsl/
    kubernetes-scheduler-simulator, Apache-2.0), is no part of the measure.
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
    """Fragmentation of node ``n`` once a task of class ``c`` is on it: on GPU ``gpu``, or on its first idle ones."""
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
    """``node_fragmentation`` of every node, shape (nodes,)."""
    found = np.zeros(len(nodes.cpu_left), dtype=np.int64)
    _every_node(nodes, target, found)
    return found


@compiled
def _every_node(nodes: Nodes, target: Target, out: IntArray) -> None:
    for n in range(len(out)):
        out[n] = node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], target)
