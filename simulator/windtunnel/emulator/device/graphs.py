"""The replay of a graph on an emulated device: each node's time, its effect, and its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windtunnel.core.columns import Columns
from windtunnel.core.errors import MissingSync
from windtunnel.emulator.device.base import EmulatedDevice
from windtunnel.emulator.device.costs import Price
from windtunnel.emulator.device.kernels import KernelLaunch, Kernels
from windtunnel.emulator.device.launch_work import LaunchWork
from windtunnel.emulator.device.stream_order import StreamOrder
from windtunnel.emulator.device.streams import EmulatedStream
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.emulator.device.tracked_memory import StreamClock
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.emulator.races.footprint import Extent
from windtunnel.runtime.graph import Node
from windtunnel.runtime.work_counts import WorkCounts

_DIRECTIONS = {"copy_in": "h2d", "copy_out": "d2h", "copy_within": "d2d"}


def launch_of(kernels: Kernels, node: Node) -> KernelLaunch:
    """Return the launch that a node is."""
    return kernels.launch(node.function, node.grid, node.block, node.arguments, node.shared)


class Replay:
    """One replay of a graph's nodes, in order; see ``EmulatedContext.replay``."""

    def __init__(
        self, device: EmulatedDevice, kernels: Kernels, work: LaunchWork, nodes: Sequence[Node], stream: EmulatedStream
    ) -> None:
        self.device, self.kernels, self.work, self.nodes, self.stream = device, kernels, work, nodes, stream
        self._clocks: dict[int, Mapping[StreamClock, int]] = {}
        """For each executed node, the clock of a node that waits for it."""
        self.finding: MissingSync | None = None
        """The first stream race. All nodes are executed nevertheless, as the device would do."""

    def run(self, begin: int) -> int:
        """Execute all nodes from the tick ``begin`` on; return the tick at which the last one ends."""
        order, clock = self.device.order, self.stream.clock
        if order is None or clock is None:
            return self._run(begin, None, None)
        order.begin_graph(clock)
        try:
            return self._run(begin, order, clock)
        finally:
            order.end_graph(clock)

    def _run(self, begin: int, order: StreamOrder | None, clock: StreamClock | None) -> int:
        ends: dict[int, int] = {}
        branches: dict[int, tuple[StreamTime, StreamClock | None]] = {}
        for node in self.nodes:
            # The node continues a branch that no other node has continued yet, or begins one.
            branch = next((branches.pop(other.number) for other in node.after if other.number in branches), None)
            if branch is None:
                branch_clock = None if order is None or clock is None else order.graph_branch(clock)
                branch = StreamTime(self.stream.time.number, False, begin), branch_clock
            time, branch_clock = branch
            after = [ends[other.number] for other in node.after]
            if order is not None and branch_clock is not None:
                for other in node.after:
                    branch_clock.follow(self._clocks[other.number])
                order.enqueue(branch_clock)
                self._clocks[node.number] = branch_clock.current_clock()
            try:
                ends[node.number] = self._enqueue(node, time, branch_clock, after)
            except MissingSync as error:
                self.finding, ends[node.number] = self.finding or error, time.last
            branches[node.number] = branch
        return max(ends.values(), default=begin)

    def _enqueue(self, node: Node, time: StreamTime, clock: StreamClock | None, after: Sequence[int]) -> int:
        """Give a node its time and execute it; return the tick at which it ends."""
        if node.what == "launch":
            return self._launch(node, time, clock, after)
        device, costs = self.device, self.device.costs
        assert node.buffer is not None  # noqa: S101  a copy has one
        size = node.buffer.nbytes if node.array is None else node.array.nbytes
        memory = "pinned" if node.pinned or node.what == "copy_within" else "pageable"
        columns: Columns = {"bytes": max(size, 1), "direction": _DIRECTIONS[node.what], "memory": memory}
        price = costs.price_of_work([("copy", columns)])
        ticks, share = device.fit(price, 1.0, node.name)
        span = device.time.enqueue(
            time, price.engine, node.name, ticks, joules=price.joules, share=share, after=after, size=size
        )
        device.host.deliver(span.start)
        self._copy(node, clock, span.end)
        return span.end

    def _launch(self, node: Node, time: StreamTime, clock: StreamClock | None, after: Sequence[int]) -> int:
        """Execute a kernel and give it its time; return the tick at which it ends."""
        device, costs, work = self.device, self.device.costs, self.work
        launch = launch_of(self.kernels, node)
        work.require_price(launch)
        counting = work.counting(launch)
        if counting is None:
            end = self._enqueue_launch(node, launch, time, after, work.counts(launch, None))
        else:
            device.fit(Price(0, 0.0, costs.compute_engine), device.share_of(launch.blocks), node.name)
            device.host.deliver(device.time.ready(time, after))
        try:
            self.kernels.execute(launch, clock, node.where, counting)
        finally:
            if counting is not None:
                end = self._enqueue_launch(node, launch, time, after, work.counts(launch, counting))
        return end

    def _enqueue_launch(
        self, node: Node, launch: KernelLaunch, time: StreamTime, after: Sequence[int], counts: WorkCounts | None
    ) -> int:
        """Give a kernel its time; return the tick at which it ends."""
        device, costs, price = self.device, self.device.costs, self.work.price(launch, counts)
        ticks, share = device.fit(price, device.share_of(launch.blocks), node.name)
        lead = 0 if node is self.nodes[0] else costs.node_ticks - costs.empty_ticks
        ticks = max(round(ticks * device.duration_scale) + lead, 0)
        span = device.time.enqueue(time, price.engine, node.name, ticks, joules=price.joules, share=share, after=after)
        device.host.deliver(span.start)
        self.work.record(launch, span, counts)
        return span.end

    def _copy(self, node: Node, clock: StreamClock | None, end: int) -> None:
        device, order = self.device, self.device.order
        assert node.buffer is not None  # noqa: S101  a copy has one
        memory: Any = node.buffer.memory
        elements = memory.data[node.buffer.start :][: node.buffer.nbytes].view(node.buffer.dtype)
        begin = node.buffer.start
        extent = Extent(begin, begin + node.copied_bytes)
        footprint = [(memory, READ if node.what == "copy_out" else WRITE, extent)]
        if node.source is not None:
            source: Any = node.source.memory
            footprint.append((source, READ, Extent(0, node.copied_bytes)))
        host_access = None
        if order is not None and clock is not None:
            host_access = order.record_copy(clock, node.name, footprint, node.array, where=node.where)
        if node.what == "copy_in" and node.array is not None:
            elements[: node.array.size] = node.array.reshape(-1)
            memory.mark_written(node.array.nbytes, begin)
            if host_access is not None:
                host_access.watch(node.array)
        elif node.what == "copy_out" and node.array is not None:
            copied = memory.copied(begin, begin + node.array.nbytes).view(node.array.dtype)
            around = device.watching(host_access, node.array)
            device.host.expect(end, node.array, copied.reshape(node.array.shape), around)
            self.kernels.check_read_back(memory, begin, begin + node.array.nbytes, node.where)
        elif node.source is not None:
            elements[: node.source.size] = device.as_array(node.source).reshape(-1)
            memory.copy_initialisation(node.source.memory, node.source.nbytes)
        device.raise_pending_finding()
