"""A compiled graph as a CUDA graph: its nodes are captured once, on streams that fork and join through events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from windtunnel.backends.cuda.driver import BuiltKernel, CupyDriver
from windtunnel.runtime.graph import Node


class CapturedGraph:
    """The nodes of a graph, executed in order by one launch.

    ``kernels`` maps a node's number to its kernel and arguments. The object keeps what the nodes' work needs, but not
    the nodes. Host arrays are read and written when the graph is launched; CUDA accepts pageable arrays, as its sample
    simpleCudaGraphs shows. Arrays that are not contiguous are gathered before and scattered after the launch, which
    makes the host wait.
    """

    def __init__(
        self, driver: CupyDriver, nodes: Sequence[Node], kernels: Mapping[int, tuple[BuiltKernel, tuple[Any, ...]]]
    ) -> None:
        self.driver, self.kernels = driver, kernels
        self._gathered: list[tuple[np.ndarray, np.ndarray]] = []
        """Pairs of (array to copy from, contiguous copy)."""
        self._scattered: list[tuple[np.ndarray, np.ndarray]] = []
        self._kept: list[np.ndarray] = []
        self._last: Any = None
        """Event after the previous launch, if that reads gathered arrays."""
        cuda = driver.cupy.cuda
        origin = cuda.Stream(non_blocking=True)
        origin.begin_capture()
        try:
            self._capture(nodes, origin)
        except BaseException:
            with suppress(RuntimeError):  # the first error is the one to report
                origin.end_capture()
            raise
        self.graph = origin.end_capture()

    def launch(self, queue: Any) -> None:
        """Execute the graph once in ``queue``."""
        if self._gathered and self._last is not None:
            self._last.synchronize()
        for array, whole in self._gathered:
            whole[...] = array
        self.graph.launch(stream=queue)
        if self._gathered:
            self._last = self.driver.mark(queue, ())
        if self._scattered:
            queue.synchronize()
            for array, whole in self._scattered:
                array[...] = whole

    def _capture(self, nodes: Sequence[Node], origin: Any) -> None:
        start = self._mark(origin)
        lanes: list[Any] = []
        ends: dict[int, Any] = {}
        """By node, the lane that nobody has taken on from there."""
        marks: dict[int, Any] = {}
        last: dict[int, Any] = {}
        """By lane, its last mark."""
        for node in nodes:
            before = [other.number for other in node.after]
            taken = next((number for number in before if number in ends), None)
            if taken is not None:
                lane = ends.pop(taken)
            else:
                lane = self.driver.cupy.cuda.Stream(non_blocking=True)
                lanes.append(lane)
                lane.wait_event(start)  # so that it is captured, too
            for number in before:
                if number != taken:
                    lane.wait_event(marks[number])
            self._do(node, lane)
            ends[node.number] = lane
            marks[node.number] = last[lane.ptr] = self._mark(lane)
        for lane in lanes:
            origin.wait_event(last[lane.ptr])

    def _mark(self, lane: Any) -> Any:
        event = self.driver.cupy.cuda.Event(disable_timing=True)
        event.record(lane)
        return event

    def _do(self, node: Node, lane: Any) -> None:
        if node.what == "launch":
            kernel, arguments = self.kernels[node.number]
            self.driver.start(kernel, node.grid, node.block, arguments, lane, node.shared)
            return
        runtime = self.driver.runtime
        assert node.buffer is not None  # noqa: S101  a copy has one
        to: Any = node.buffer.memory
        if node.source is not None:
            source: Any = node.source.memory
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(to.handle.address, source.handle.address, source.size, kind, lane.ptr)
            return
        array = node.array
        assert array is not None  # noqa: S101  a copy from or to the host has one
        if not array.nbytes:
            return
        whole = array
        if not array.flags.c_contiguous:
            whole = np.empty(array.shape, array.dtype)
            (self._gathered if node.what == "copy_in" else self._scattered).append((array, whole))
        self._kept.append(whole)
        here, there = whole.ctypes.data, to.handle.address
        if node.what == "copy_in":
            runtime.memcpyAsync(there, here, whole.nbytes, runtime.memcpyHostToDevice, lane.ptr)
        else:
            runtime.memcpyAsync(here, there, whole.nbytes, runtime.memcpyDeviceToHost, lane.ptr)
