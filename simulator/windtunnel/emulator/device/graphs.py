"""Graphs on an emulated device: each node's time on the engines, its effect, and what it comes after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import MissingSync
from windtunnel.emulator.device.handles import EmulatedStream
from windtunnel.emulator.device.stream_order import Order, Queue
from windtunnel.emulator.device.timeline import StreamTime
from windtunnel.emulator.races.findings import READ, WRITE
from windtunnel.runtime.graph import Node

if TYPE_CHECKING:
    from windtunnel.emulator.device.context import EmulatedContext

_DIRECTIONS = {"copy_in": "h2d", "copy_out": "d2h", "copy_within": "d2d"}


class Replay:
    """One replay of a graph's nodes, in order, on a stream; see ``EmulatedContext.replay``."""

    def __init__(self, context: EmulatedContext, nodes: Sequence[Node], stream: EmulatedStream) -> None:
        self.context, self.nodes, self.stream = context, nodes, stream
        self._clocks: dict[int, Mapping[Queue, int]] = {}
        """Of each node that was done, the clock of who waits for it."""
        self.found: MissingSync | None = None
        """Of nodes that nothing orders, the first found: all are done all the same, as the device would do them."""

    def run(self, begin: int) -> int:
        """Do all nodes, from the tick ``begin`` on; when the last ends."""
        order, queue = self.context.order, self.stream.queue
        if order is None or queue is None:
            return self._run(begin, None, None)
        order.begin(queue)
        try:
            return self._run(begin, order, queue)
        finally:
            order.end(queue)

    def _run(self, begin: int, order: Order | None, queue: Queue | None) -> int:
        ends: dict[int, int] = {}
        branches: dict[int, tuple[StreamTime, Queue | None]] = {}
        for node in self.nodes:
            # A branch that nobody has taken up yet goes on as the stream of this node; else it begins one.
            taken = next((branches.pop(other.number) for other in node.after if other.number in branches), None)
            if taken is None:
                mine = None if order is None or queue is None else order.branch(queue)
                taken = StreamTime(self.stream.time.number, False, begin), mine
            time, mine = taken
            after = [ends[other.number] for other in node.after]
            if order is not None and mine is not None:
                for other in node.after:
                    mine.follow(self._clocks[other.number])
                order.enter(mine)
                self._clocks[node.number] = mine.here()
            try:
                ends[node.number] = self._node(node, time, mine, after)
            except MissingSync as error:
                self.found, ends[node.number] = self.found or error, time.last
            branches[node.number] = taken
        return max(ends.values(), default=begin)

    def _node(self, node: Node, time: StreamTime, queue: Queue | None, after: Sequence[int]) -> int:
        context = self.context
        share, size, lead, stretch = 1.0, 0, 0, 1.0
        if node.what == "launch":
            given = [context.given(argument) for argument in node.arguments]
            price = context.price(node.function.work_of(node.grid, node.block, given))
            lead, stretch = 0 if node is self.nodes[0] else context.node_ticks - context.empty_ticks, context.slowed
            share = min(node.grid[0] * node.grid[1] * node.grid[2] / context.units, 1.0)
        else:
            assert node.buffer is not None  # noqa: S101  a copy has one
            size = node.buffer.nbytes if node.array is None else node.array.nbytes
            memory = "pinned" if node.pinned or node.what == "copy_within" else "pageable"
            columns = {"bytes": max(size, 1), "direction": _DIRECTIONS[node.what], "memory": memory}
            price = context.price([("copy", columns)])
        ticks, share = context.fit(price, share, node.name)
        ticks = max(round(ticks * stretch) + lead, 0)
        span = context.time.enqueue(
            time, price.engine, node.name, ticks, joules=price.joules, share=share, after=after, size=size
        )
        context.host.deliver(span.start)
        self._do(node, queue, span.end)
        return span.end

    def _do(self, node: Node, queue: Queue | None, end: int) -> None:
        context, order = self.context, self.context.order
        if node.what == "launch":
            given = [context.given(argument) for argument in node.arguments]
            sizes = node.grid, node.block
            context.kernels.execute(node.function, *sizes, node.arguments, given, node.shared, queue, node.where)
            return
        assert node.buffer is not None  # noqa: S101  a copy has one
        memory: Any = node.buffer.memory
        there = context.given(node.buffer).reshape(-1)
        touched = [(memory, WRITE, node.copied_bytes)]
        if node.source is not None:
            touched.append((node.source.memory, READ, node.copied_bytes))
        elif node.what == "copy_out":
            touched = [(memory, READ, node.copied_bytes)]
        read = None
        if order is not None and queue is not None:
            read = order.copied(queue, node.name, touched, node.array, where=node.where)
        if node.what == "copy_in" and node.array is not None:
            there[: node.array.size] = node.array.reshape(-1)
            memory.write(node.array.nbytes)
            if read is not None:
                read.keep(node.array)
        elif node.what == "copy_out" and node.array is not None:
            context.host.expect(end, node.array, there[: node.array.size].reshape(node.array.shape).copy())
        elif node.source is not None:
            there[: node.source.size] = context.given(node.source).reshape(-1)
            memory.take_over(node.source.memory, node.source.nbytes)
        if order is not None:
            order.tell()
