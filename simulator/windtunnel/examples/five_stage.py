"""Preprocess on the CPU, transfer, compute, transfer back, output: with a wait after each stage, and as a pipeline.

A batch is 32 pictures of 224 x 224 in 8-bit colour. The CPU scales them to float32 in patches of 16 x 16 (19 MB). The
GPU projects each patch to 192 numbers (the first step of ViT-Tiny), which are copied back (4.8 MB). The CPU converts
them to float16. The CPU is a device with its own model on the same clock, so its stages are predictions too.

With a wait after each stage the times add up. In the pipeline stages of different batches overlap, and the slowest
hardware engine is the bottleneck; the CPU, which executes two of the stages, is one engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import windtunnel
from windtunnel.core.columns import Columns
from windtunnel.examples.measure import Opener, devices, percent, same, seconds, table, usage_of
from windtunnel.runtime.accelerator import Accelerator

PICTURES, SIDE, PATCH, WIDTH = 32, 224, 16, 192
PATCHES = PICTURES * (SIDE // PATCH) ** 2
VALUES = PATCH * PATCH * 3
BATCHES = 6
LANES = 3
"""The number of batches in the pipeline at one time."""
STAGES = ("preprocess", "transfer", "compute", "transfer back", "output")
CPU, GPU = "epyc-9654", "rtx-4090"


class Batch:
    """A batch in the memory of the CPU and host. Kernels of the CPU use buffers, and copies to the GPU use arrays."""

    def __init__(self, cpu: Accelerator, pictures: np.ndarray) -> None:
        self.pictures = cpu.empty(pictures.shape, np.uint8, kind="unified")
        """The 8-bit samples of each patch in turn."""
        self.patches = cpu.empty((PATCHES, VALUES), kind="unified")
        self.features = cpu.empty((PATCHES, WIDTH), kind="unified")
        self.output = cpu.empty((PATCHES, WIDTH), np.float16, kind="unified")
        self.pictures.host()[...] = pictures
        self.patches_seen, self.features_seen = self.patches.host(), self.features.host()


def _pass_over(*arrays: np.ndarray, flops: float) -> Columns:
    elements = max(array.size for array in arrays)
    return {
        "op": "kernel",
        "threads": elements,
        "bytes": sum(array.nbytes for array in arrays),
        "flops": flops * elements,
    }


@windtunnel.kernel(work=lambda pictures, patches: _pass_over(pictures, patches, flops=2.0))
def preprocess(pictures: np.ndarray, patches: np.ndarray) -> None:
    """Convert 8-bit samples to numbers around zero."""
    np.multiply(pictures, np.float32(2 / 255), out=patches)
    np.subtract(patches, np.float32(1.0), out=patches)


@windtunnel.kernel(work=lambda features, output: _pass_over(features, output, flops=1.0))
def put_out(features: np.ndarray, output: np.ndarray) -> None:
    """Reduce a batch to its output."""
    output[...] = features


@windtunnel.kernel(
    work=lambda patches, weights, _features: {
        "op": "gemm",
        "m": patches.shape[0],
        "n": weights.shape[1],
        "k": weights.shape[0],
        "dtype": "float32",
    }
)
def project(patches: np.ndarray, weights: np.ndarray, features: np.ndarray) -> None:
    """Multiply patches by weights."""
    np.matmul(patches, weights, out=features)


class Pipeline:
    """Both devices, the weights, and buffers for ``lanes`` batches."""

    def __init__(self, cpu: Accelerator, gpu: Accelerator, lanes: int = LANES, seed: int = 1) -> None:
        draw = np.random.default_rng(seed)
        self.cpu, self.gpu = cpu, gpu
        self.weights = gpu.to_device(draw.standard_normal((VALUES, WIDTH), np.float32))
        self.lanes = [
            (gpu.stream(non_blocking=True), gpu.empty((PATCHES, VALUES)), gpu.empty((PATCHES, WIDTH)))
            for _ in range(lanes)
        ]
        self.cpu_lanes = [cpu.stream(non_blocking=True) for _ in range(lanes)]
        self.grid, self.block = gpu.configuration(PATCHES * WIDTH)

    def one_by_one(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Wait for every stage of every batch; return the total time of each stage (s)."""
        spent = dict.fromkeys(STAGES, 0.0)
        stream, patches, features = self.lanes[0]

        @contextmanager
        def stage(name: str, device: Accelerator) -> Iterator[None]:
            before = device.clock_s
            yield
            device.synchronize()
            spent[name] += device.clock_s - before

        for batch in batches:
            with stage("preprocess", self.cpu):
                self.cpu.launch(preprocess, 1, 1, batch.pictures, batch.patches)
            with stage("transfer", self.gpu):
                patches.copy_from(batch.patches_seen, stream, pinned=True)
            with stage("compute", self.gpu):
                self.gpu.launch(project, self.grid, self.block, patches, self.weights, features, stream=stream)
            with stage("transfer back", self.gpu):
                features.copy_to(batch.features_seen, stream, pinned=True)
            with stage("output", self.cpu):
                self.cpu.launch(put_out, 1, 1, batch.features, batch.output)
        return spent

    def overlapped(self, batches: Sequence[Batch]) -> None:
        """Run the pipeline: events order the queues of CPU and GPU, and the host waits only at the end."""
        for number, batch in enumerate(batches):
            stream, patches, features = self.lanes[number % len(self.lanes)]
            ready, done = self.cpu.event(), self.gpu.event()
            on_cpu = self.cpu_lanes[number % len(self.cpu_lanes)]
            self.cpu.launch(preprocess, 1, 1, batch.pictures, batch.patches, stream=on_cpu)
            ready.record(on_cpu)
            stream.wait(ready)
            patches.copy_from(batch.patches_seen, stream, pinned=True)
            self.gpu.launch(project, self.grid, self.block, patches, self.weights, features, stream=stream)
            features.copy_to(batch.features_seen, stream, pinned=True)
            done.record(stream)
            on_cpu.wait(done)
            self.cpu.launch(put_out, 1, 1, batch.features, batch.output, stream=on_cpu)
        self.gpu.synchronize()
        self.cpu.synchronize()


@dataclass(frozen=True)
class Result:
    """Times for all batches (s): each stage, their total, and the pipeline; and the engines' busy time."""

    batches: int
    stages: dict[str, float]
    total_s: float
    pipelined_s: float
    busy_s: dict[str, float]

    @property
    def gain(self) -> float:
        """The throughput of the pipeline relative to the sequential form."""
        return self.total_s / self.pipelined_s


def compare(opener: Opener, count: int = BATCHES, seed: int = 1) -> Result:
    """Run both forms. Raises ResultsDiffer if their results differ."""
    draw = np.random.default_rng(seed)
    pictures = [draw.integers(0, 256, (PATCHES, VALUES), dtype=np.uint8) for _ in range(count)]
    pipeline = Pipeline(opener(CPU), opener(GPU))
    first, second = ([Batch(pipeline.cpu, picture) for picture in pictures] for _ in range(2))
    stages: dict[str, float] = {}
    total = usage_of(pipeline.gpu, lambda: stages.update(pipeline.one_by_one(first)))
    spans = {"CPU": pipeline.cpu.start_trace(), "GPU": pipeline.gpu.start_trace()}
    pipelined = usage_of(pipeline.gpu, lambda: pipeline.overlapped(second))
    busy: dict[str, float] = {}
    for device, seen in spans.items():
        for span in seen:
            engine = f"{device} {span.engine}"
            busy[engine] = busy.get(engine, 0.0) + (span.end - span.start) / 1e12
    for serial, overlapped in zip(first, second, strict=True):
        same(serial.output.host(), overlapped.output.host(), "overlapped")
    return Result(count, stages, total.seconds, pipelined.seconds, busy)


def _sum(result: Result) -> tuple[str, str, str]:
    whole = sum(result.stages.values())
    return "sum", seconds(whole / result.batches), percent(whole / result.total_s)


def main() -> None:
    """Print each stage's time, and both totals."""
    result = compare(devices())
    print(f"{result.batches} batches of {PICTURES} pictures on {CPU} and {GPU}")
    count = result.batches
    lines = [(name, seconds(spent / count), percent(spent / result.total_s)) for name, spent in result.stages.items()]
    print(table(("stage", "time per batch", "share"), [*lines, _sum(result)]))
    print()
    lines = [
        (engine, seconds(busy / count), percent(busy / result.pipelined_s))
        for engine, busy in result.busy_s.items()
        if busy
    ]
    print(table(("engine in the pipeline", "busy per batch", "utilisation"), lines))
    print(f"pipeline: {seconds(result.pipelined_s / count)} per batch, {result.gain:.2f} times the throughput")


if __name__ == "__main__":
    main()
