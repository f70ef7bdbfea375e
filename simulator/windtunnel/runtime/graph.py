"""Graphs: work that is recorded once and replayed at a low launch cost.

A program builds a graph node by node, or captures it from streams: launches and copies inside ``accelerator.capture()``
are recorded instead of executed. ``compile()`` rejects a cycle and orders the nodes. A replay then costs the host one
dispatch, and each node the API's gap between nodes of a graph, whereas separate launches cost one dispatch each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, Protocol

import numpy as np

from windtunnel.core.errors import InputError, caller
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import Dims, Function


class GraphDevice(Protocol):
    """The accelerator that a graph belongs to, as far as a graph uses it."""

    def prepare_launch(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int,
    ) -> tuple[Function, tuple[Dims, Dims], list[Any]]:
        """Check a launch; return the compiled kernel, (grid, block) and the arguments."""

    def check_buffer(self, buffer: Buffer, operation: str, what: str = "") -> None:
        """Raise InvalidArgument for a freed buffer and for one of another device."""

    def replay(self, compiled: CompiledGraph, stream: Any = None) -> None:
        """Enqueue a graph."""


@dataclass(eq=False)
class Node:
    """A launch or a copy of a graph. ``after`` holds the nodes that must complete before it starts."""

    number: int
    what: Literal["launch", "copy_in", "copy_out", "copy_within"]
    name: str
    after: list[Node] = field(default_factory=list)
    function: Any = None
    grid: Dims = (1, 1, 1)
    block: Dims = (1, 1, 1)
    arguments: Sequence[Any] = ()
    shared: int = 0
    """Dynamic shared memory of a block (bytes)."""
    buffer: Buffer | None = None
    source: Buffer | None = None
    array: np.ndarray | None = None
    pinned: bool = False
    """Whether the host's array is in pinned memory."""
    where: tuple[str, int] | None = None
    """The file and line of the program that added the node."""

    @property
    def copied_bytes(self) -> int:
        """The size of a copy in bytes; 0 for a launch."""
        if self.array is not None:
            return self.array.nbytes
        return 0 if self.source is None else self.source.nbytes

    def __str__(self) -> str:
        return f"{self.name} (node {self.number})"


@dataclass
class Graph:
    """Nodes and their dependencies, before compilation."""

    accelerator: GraphDevice
    nodes: list[Node] = field(default_factory=list)

    def launch(
        self,
        kernel: Any,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        after: Sequence[Node] = (),
        shared_bytes: int = 0,
    ) -> Node:
        """Add a launch. Its configuration is checked now; its buffers are read when the graph is replayed."""
        function, sizes, checked = self.accelerator.prepare_launch(kernel, grid, block, arguments, shared_bytes)
        node = Node(len(self.nodes), "launch", function.name, list(after), function, *sizes, checked, shared_bytes)
        return self._add(node)

    def copy_in(self, buffer: Buffer, array: np.ndarray, *, after: Sequence[Node] = (), pinned: bool = False) -> Node:
        """Add a copy from the host. The array must stay alive, and is read when the graph is replayed."""
        self.accelerator.check_buffer(buffer, "copy in")
        buffer.check(array, "copy in")
        return self._add(
            Node(len(self.nodes), "copy_in", "copy in", list(after), buffer=buffer, array=array, pinned=pinned)
        )

    def copy_out(self, array: np.ndarray, buffer: Buffer, *, after: Sequence[Node] = (), pinned: bool = False) -> Node:
        """Add a copy to the host. The array must stay alive."""
        self.accelerator.check_buffer(buffer, "copy out")
        buffer.check(array, "copy out", written=True)
        return self._add(
            Node(len(self.nodes), "copy_out", "copy out", list(after), buffer=buffer, array=array, pinned=pinned)
        )

    def copy_within(self, to: Buffer, buffer: Buffer, *, after: Sequence[Node] = ()) -> Node:
        """Add a copy on the device."""
        self.accelerator.check_buffer(to, "copy within")
        to.check_fits(buffer, "copy within")
        return self._add(Node(len(self.nodes), "copy_within", "copy within", list(after), buffer=to, source=buffer))

    def depend(self, node: Node, *on: Node) -> None:
        """Make ``node`` wait for the nodes ``on`` as well."""
        node.after.extend(other for other in on if other not in node.after)

    def _add(self, node: Node) -> Node:
        node.where = caller()
        self.nodes.append(node)
        return node

    def compile(self) -> CompiledGraph:
        """Order the nodes by their dependencies. Later changes of the graph do not affect the result.

        Raises InputError if the dependencies form a cycle, or a node waits for a node of another graph.
        """
        own = set(map(id, self.nodes))
        for node in self.nodes:
            for other in node.after:
                if id(other) not in own:
                    raise InputError(
                        f"{node} waits for {other}, which is of another graph", expected="nodes of this graph"
                    )
        sorter = TopologicalSorter({node.number: [other.number for other in node.after] for node in self.nodes})
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            around = " waits for ".join(str(self.nodes[number]) for number in reversed(error.args[1]))
            raise InputError(f"the graph has a cycle: {around}", expected="dependencies without one") from None
        copies = [replace(node) for node in self.nodes]
        for node in copies:
            node.after = [copies[other.number] for other in node.after]
        return CompiledGraph(self.accelerator, [copies[number] for number in order])


@dataclass
class CompiledGraph:
    """A graph that is ready to be replayed: its nodes in order.

    What a replay needs of all nodes is found once. A replay that went through them would cost the host about 3 us for
    each, more than many a node costs the device (measured on an H200).
    """

    accelerator: GraphDevice
    order: Sequence[Node]
    replays: int = 0

    def __post_init__(self) -> None:
        self.copied_bytes = sum(node.copied_bytes for node in self.order)
        self._memories = list({id(b.memory): b.memory for _, b in self._buffers()}.values())

    def _buffers(self) -> Iterator[tuple[Node, Buffer]]:
        for node in self.order:
            for argument in (*node.arguments, node.buffer, node.source):
                if isinstance(argument, Buffer):
                    yield node, argument

    def check_not_freed(self) -> None:
        """Raise UseAfterFree with the first node whose buffer was freed."""
        if any(memory.freed for memory in self._memories):
            for node, buffer in self._buffers():
                buffer.check_not_freed(f"replay {node}")

    def replay(self, stream: Any = None) -> None:
        """Enqueue the graph on ``stream``. Independent nodes overlap as far as the device allows."""
        self.accelerator.replay(self, stream)
        self.replays += 1


@dataclass
class Capture:
    """The state of a capture: nodes of one stream follow each other, and events order streams."""

    graph: Graph
    _last: dict[Any, list[Node]] = field(default_factory=dict)
    """By stream. It keeps the stream alive, so that no other stream takes its identity."""

    def after(self, stream: Any) -> list[Node]:
        """Return the nodes that the next node of ``stream`` waits for."""
        return self._last.get(stream, [])

    def follow(self, stream: Any, node: Node) -> None:
        """Record that ``node`` is the last node of ``stream``."""
        self._last[stream] = [node]

    def wait(self, stream: Any, nodes: Sequence[Node]) -> None:
        """Make the next node of ``stream`` wait for ``nodes`` as well."""
        waited = self._last.setdefault(stream, [])
        self._last[stream] = [*waited, *(node for node in nodes if node not in waited)]
