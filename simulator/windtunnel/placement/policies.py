"""Placement policies, one score each; the node with the highest score takes the task.

The five baselines and fragmentation gradient descent of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). Where the paper's prose leaves room, the
definition is that of its experiments' configuration (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; read for
its definitions, none of its text is here). One thing differs on purpose: that simulator cuts scores to whole numbers
from 0 to 100, which makes many nodes equal; scores here are exact. Between equals it takes the first of an order of
nodes drawn once a run (``ties: shuffled``).
"""

from __future__ import annotations

from windtunnel.placement.nodes import (
    MILLI,
    Classes,
    FloatArray,
    IntArray,
    Largest,
    Nodes,
    Target,
    after_placing,
    compiled,
    node_fragmentation,
    placement,
)


@compiled
def tightest_gpu(nodes: Nodes, n: int, classes: Classes, c: int, target: Target, draw: float) -> int:
    """The GPU with the least left of those on which the part fits; the first among equals."""
    best = -1
    for g in range(nodes.gpus[n]):
        left = nodes.gpu_left[n, g]
        if left >= classes.milli[c] and (best < 0 or left < nodes.gpu_left[n, best]):
            best = g
    return best


@compiled
def random_gpu(nodes: Nodes, n: int, classes: Classes, c: int, target: Target, draw: float) -> int:
    """Any GPU on which the part fits, each as likely."""
    fitting = 0
    for g in range(nodes.gpus[n]):
        if nodes.gpu_left[n, g] >= classes.milli[c]:
            fitting += 1
    wanted = min(int(draw * fitting), fitting - 1)
    for g in range(nodes.gpus[n]):
        if nodes.gpu_left[n, g] >= classes.milli[c]:
            if wanted == 0:
                return g
            wanted -= 1
    return -1


@compiled
def steepest_gpu(nodes: Nodes, n: int, classes: Classes, c: int, target: Target, draw: float) -> int:
    """The GPU whose part leaves the node least fragmented; the first among equals."""
    best, least = -1, 0
    for g in range(nodes.gpus[n]):
        if nodes.gpu_left[n, g] >= classes.milli[c]:
            fragmented = after_placing(nodes, n, classes, c, g, target)
            if best < 0 or fragmented < least:
                best, least = g, fragmented
    return best


@placement("random", random_gpu, random=True)
@compiled
def any_node(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """Any node that has room, each as likely, and any of its GPUs."""
    for n in which:
        out[n] = 0.0


@placement("best-fit", tightest_gpu)
@compiled
def least_left_over(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """The node with the least left over: CPU and GPU equally weighted, each over the largest node's."""
    gpu = classes.gpus[c] * classes.milli[c]
    for n in which:
        left = 0
        for g in range(nodes.gpus[n]):
            left += nodes.gpu_left[n, g]
        # Both shares over one denominator, so that the sum is a whole number.
        out[n] = -((nodes.cpu_left[n] - classes.cpu[c]) * largest.gpu + (left - gpu) * largest.cpu)


@placement("dot-product", tightest_gpu)
@compiled
def smallest_dot_product(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """The node whose (CPU, GPU) left has the smallest dot product with what the task asks for, over the largest node's.

    After Tetris (Grandl et al., Multi-resource packing for cluster schedulers, SIGCOMM 2014), whose alignment score
    the paper turns round: the smallest product goes first.
    """
    gpu = classes.gpus[c] * classes.milli[c]
    for n in which:
        left = 0
        for g in range(nodes.gpus[n]):
            left += nodes.gpu_left[n, g]
        cpu_part = (nodes.cpu_left[n] / largest.cpu) * (classes.cpu[c] / largest.cpu)
        gpu_part = (left / largest.gpu) * (gpu / largest.gpu)
        out[n] = -(cpu_part + gpu_part)


@placement("gpu-packing", tightest_gpu)
@compiled
def occupied_first(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """GPUs in use first (the fullest that fits), then idle GPUs of nodes in use, then idle nodes (the fewest GPUs).

    Tasks without a GPU find all nodes equal.
    """
    tier = 1e6
    for n in which:
        if classes.gpus[c] == 0:
            out[n] = 0.0
            continue
        idle, tightest = 0, MILLI
        for g in range(nodes.gpus[n]):
            left = nodes.gpu_left[n, g]
            if left == MILLI:
                idle += 1
            elif left >= classes.milli[c] and left < tightest:
                tightest = left
        if idle == nodes.gpus[n]:
            out[n] = -float(idle)
        elif tightest < MILLI:
            out[n] = 2 * tier - tightest
        else:
            out[n] = tier - classes.gpus[c]


@placement("gpu-clustering", tightest_gpu)
@compiled
def same_demand_together(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """Nodes that hold only tasks of the same GPU demand, then those that also do, then ones without any, then others.

    After Gandiva (Xiao et al., OSDI 2018). The demands are: a part of a GPU, one whole, two, and so on. Within a rank
    the node with the least GPU left. Tasks without a GPU find all nodes equal.
    """
    rank = 1e9
    for n in which:
        if classes.gpus[c] == 0:
            out[n] = 0.0
            continue
        left, kinds = 0, 0
        for g in range(nodes.gpus[n]):
            left += nodes.gpu_left[n, g]
        for tag in range(1, nodes.tags.shape[1]):
            if nodes.tags[n, tag] > 0:
                kinds += 1
        place = 1.0 if kinds == 0 else 0.0
        if nodes.tags[n, classes.tag[c]] > 0:
            place = 3.0 if kinds == 1 else 2.0
        out[n] = place * rank - left


@placement("fragmentation-gradient-descent", steepest_gpu)
@compiled
def steepest_descent(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """The node, and on it the GPU, whose fragmentation this task lowers most or raises least: the paper's policy."""
    for n in which:
        before = node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], target)
        part = classes.gpus[c] > 0 and classes.milli[c] < MILLI
        gpu = steepest_gpu(nodes, n, classes, c, target, 0.0) if part else 0
        out[n] = float(before - after_placing(nodes, n, classes, c, gpu, target))
