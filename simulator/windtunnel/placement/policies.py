"""The placement policies. Each is a score; the node with the highest score takes the task.

They are the five baselines and fragmentation gradient descent of Weng et al., "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC 2023). Where the text of the paper is ambiguous,
the definition is that of its experiments' configuration (hkust-adsl/kubernetes-scheduler-simulator, Apache-2.0; only
the definitions were used, no code). One difference is intended: that simulator rounds scores to whole numbers from 0 to
100, which makes many nodes equal, and scores here are exact. Between equal nodes it takes the first in an order that is
drawn once per run (``ties: shuffled``).
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
    """Return the fullest GPU on which the fraction fits; of equal GPUs the first."""
    best = -1
    for g in range(nodes.gpus[n]):
        left = nodes.gpu_left[n, g]
        if left >= classes.milli[c] and (best < 0 or left < nodes.gpu_left[n, best]):
            best = g
    return best


@compiled
def random_gpu(nodes: Nodes, n: int, classes: Classes, c: int, target: Target, draw: float) -> int:
    """Return a random GPU on which the fraction fits, each with the same probability."""
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
    """Return the GPU that leaves the node least fragmented; of equal GPUs the first."""
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
    """A random node on which the task fits, and a random GPU of it."""
    for n in which:
        out[n] = 0.0


@placement("best-fit", tightest_gpu)
@compiled
def least_left_over(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """The node with the least free CPU and GPU after placing, equally weighted, relative to the largest node."""
    gpu = classes.gpus[c] * classes.milli[c]
    for n in which:
        left = 0
        for g in range(nodes.gpus[n]):
            left += nodes.gpu_left[n, g]
        # Both shares have one denominator, so that the sum is a whole number.
        out[n] = -((nodes.cpu_left[n] - classes.cpu[c]) * largest.gpu + (left - gpu) * largest.cpu)


@placement("dot-product", tightest_gpu)
@compiled
def smallest_dot_product(
    nodes: Nodes, classes: Classes, c: int, target: Target, largest: Largest, which: IntArray, out: FloatArray
) -> None:
    """The node whose free (CPU, GPU) has the smallest dot product with the request, relative to the largest node.

    It follows Tetris (Grandl et al., Multi-resource packing for cluster schedulers, SIGCOMM 2014), whose alignment
    score the paper inverts: the smallest product is best.
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
    """GPUs in use first (the fullest that fits), then idle GPUs of nodes in use, then idle nodes with the fewest GPUs.

    For a task without a GPU all nodes are equal.
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
    """Nodes with tasks of the same GPU demand only, then with such and other tasks, then without tasks, then others.

    It follows Gandiva (Xiao et al., OSDI 2018). The demands are a fraction of a GPU, one GPU, two GPUs, and so on.
    Within a rank the node with the least free GPU is best. For a task without a GPU all nodes are equal.
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
    """The node and the GPU for which the task lowers the fragmentation most, or raises it least: the paper's policy."""
    for n in which:
        before = node_fragmentation(nodes.cpu_left[n], nodes.gpu_left[n], nodes.gpus[n], nodes.model[n], target)
        part = classes.gpus[c] > 0 and classes.milli[c] < MILLI
        gpu = steepest_gpu(nodes, n, classes, c, target, 0.0) if part else 0
        out[n] = float(before - after_placing(nodes, n, classes, c, gpu, target))
