"""A CUDA or ROCm device opened for programs: native graphs, cooperative launches and sticky errors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import device_at
from windtunnel.backends.common.context import RealContext, RealFunction, RealMemory, RealStream
from windtunnel.backends.cuda.devices import detected_devices, nvml_device
from windtunnel.backends.cuda.driver import BuiltKernel, CupyDriver, kernel_arguments, max_shared_bytes
from windtunnel.backends.cuda.graphs import CapturedGraph
from windtunnel.codegen import Emitted
from windtunnel.core.errors import ApiCode, DeviceError, LaunchError, caller
from windtunnel.runtime.graph import Node
from windtunnel.runtime.interface import DeviceInfo, Dims, Limits

_STICKY = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Errors after which every call fails until the process is restarted (CUDA Runtime API)."""


class CupyContext(RealContext[Any, Any]):
    """A `RealContext` on a device of CuPy."""

    driver: CupyDriver

    def __init__(self, driver: CupyDriver, info: DeviceInfo) -> None:
        self.broken = False
        """Whether a sticky error has occurred."""
        self._graphs: weakref.WeakKeyDictionary[Node, CapturedGraph] = weakref.WeakKeyDictionary()
        """Captured graphs by their first node, which belongs to one graph only."""
        super().__init__(driver, info)

    def default_queue(self) -> Any:
        """Return the legacy default stream. All contexts of a device share it."""
        return self.driver.cupy.cuda.Stream.null

    def after(self, stream: RealStream[Any, Any]) -> list[Any]:
        """Return the events that the stream's next work waits for. The device itself applies the legacy rule."""
        return self.events_before(stream)

    @contextmanager
    def driving(self, operation: str, usual: type[DeviceError] = LaunchError) -> Iterator[None]:
        """Raise CuPy's exceptions as device errors with the API's own error code."""
        try:
            with super().driving(operation, usual):
                yield
        except DeviceError as error:
            cause = error.__cause__
            status = self.driver.status(cause) if isinstance(cause, Exception) else None
            if status is None:
                raise
            self.broken = self.broken or status in _STICKY
            code = ApiCode(self.info.api, str(cause).partition(":")[0], status)
            raise type(error)(error.problem, operation=operation, device=self.info.name, code=code) from cause

    def free(self, memory: RealMemory) -> None:
        """Free memory. After a sticky error nothing is left to free, and nothing is raised."""
        if self.broken and self.memories.pop(memory.address, None) is memory:
            memory.freed, memory.freed_at = True, caller()
            return
        super().free(memory)

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Any, Any] | None,
        shared: int,
    ) -> None:
        """Enqueue a kernel."""
        queue = self.stream_of(stream)
        kernel, emitted, values = self.prepare(function, grid, block, arguments, shared)
        with self.driving(f"launch {function.name}"):
            self.driver.launch(kernel, emitted, grid, block, values, queue.native, self.after(queue), shared)

    def prepare(
        self, function: RealFunction, grid: Dims, block: Dims, arguments: Sequence[Any], shared: int
    ) -> tuple[BuiltKernel, Emitted, list[Any]]:
        """Compile a kernel, check its launch configuration, and return it with its argument values."""
        kernel, emitted = self.built(function, grid, block, arguments, shared)
        values = self.values(function, emitted, arguments, grid)
        operation = f"launch {function.name}"
        if shared or kernel.static_bytes:
            total = kernel.static_bytes + shared
            if total > self.driver.max_shared_bytes:
                problem = (
                    f"{total:,} bytes of shared memory, {kernel.static_bytes:,} of them static, exceed the limit of "
                    f"{self.driver.max_shared_bytes:,}"
                )
                raise self.error(LaunchError, operation, problem, "configuration")
            with self.driving(operation):
                self.driver.opt_in(kernel, shared)
        if kernel.cooperative:
            with self.driving(operation):
                limit = self.driver.resident(kernel, int(np.prod(block)), shared)
            blocks = int(np.prod([float(side) for side in grid]))
            if blocks > limit:
                problem = f"a grid barrier needs all {blocks:,} blocks resident at once; {limit:,} fit"
                raise self.error(LaunchError, operation, problem, "cooperative")
        return kernel, emitted, values

    def replay(self, nodes: Sequence[Node], stream: RealStream[Any, Any] | None) -> None:
        """Launch a graph of the API, which is captured when it is replayed for the first time."""
        if "graphs" not in self.info.features:
            super().replay(nodes, stream)
        queue = self.stream_of(stream)
        if not nodes:
            return
        captured = self._graphs.get(nodes[0])
        if captured is None:
            prepared = {
                node.number: self.prepare(node.function, node.grid, node.block, node.arguments, node.shared)
                for node in nodes
                if node.what == "launch"
            }
            kernels = {number: (kernel, kernel_arguments(values)) for number, (kernel, _, values) in prepared.items()}
            with self.driving("replay a graph"):
                self.driver.make_current()
                captured = self._graphs[nodes[0]] = CapturedGraph(self.driver, nodes, kernels)
        with self.driving("replay a graph"):
            self.driver.make_current()
            self.driver.follow(queue.native, self.after(queue))
            captured.launch(queue.native)


def features_of(properties: Mapping[str, int], *, hip: bool) -> frozenset[str]:
    """Return a device's features, by the table of compute capabilities in the CUDA Programming Guide."""
    features = {"float16", "int8"}  # both are stored as such and computed in 32 bits
    if properties["canMapHostMemory"]:
        features.add("pinned")
    # Without concurrent access the host must not touch managed memory while any kernel runs.
    if properties["managedMemory"] and properties["concurrentManagedAccess"]:
        features.add("unified")
    if hip:
        return frozenset(features | {"bfloat16"})
    features.add("graphs")
    capability = (int(properties["major"]), int(properties["minor"]))
    for minimum, name in (((7, 0), "matrix"), ((8, 0), "bfloat16"), ((8, 9), "fp8"), ((10, 0), "fp4")):
        if capability >= minimum:
            features.add(name)
    return frozenset(features)


def open_context(cupy: Any, backend: str, index: int) -> CupyContext:
    """Open a device for programs. Raises DeviceNotPresentError if there is none with this index."""
    detected = device_at(index, detected_devices(cupy, backend), backend)
    properties = cupy.cuda.runtime.getDeviceProperties(index)
    sides, blocks = properties["maxThreadsDim"], properties["maxGridSize"]
    limits = Limits(
        threads_per_block=int(properties["maxThreadsPerBlock"]),
        block=(int(sides[0]), int(sides[1]), int(sides[2])),
        grid=(int(blocks[0]), int(blocks[1]), int(blocks[2])),
        shared_bytes=max_shared_bytes(properties),
        warp=int(properties["warpSize"]),
        source="reported by the driver",
    )
    features = features_of(properties, hip=backend == "hip")
    info = detected.opened(limits, features, int(properties["multiProcessorCount"]))
    return CupyContext(CupyDriver(cupy, index, nvml_device(cupy, index)), info)
