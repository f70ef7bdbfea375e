"""Work recorded once and replayed cheaply: nodes, what each waits for, one order found once.

A graph is built node by node, or captured from streams: what is launched and copied within ``accelerator.capture()`` is
recorded and not done. ``compile()`` refuses a cycle and orders the nodes; ``replay()`` then costs the host one
dispatch, and each node the API's gap between nodes of a graph, where single launches cost a dispatch each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from windtunnel.core.errors import InputError, caller
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.interface import Dims

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator


@dataclass(eq=False)
class Node:
    """One launch or copy of a graph. ``after``: the nodes that it waits for."""

    number: int
    what: Literal["launch", "copy_in", "copy_out", "copy_within"]
    name: str
    after: list[Node] = field(default_factory=list)
    function: Any = None
    grid: Dims = (1, 1, 1)
    block: Dims = (1, 1, 1)
    arguments: Sequence[Any] = ()
    shared: int = 0
    buffer: Buffer | None = None
    source: Buffer | None = None
    array: np.ndarray | None = None
    pinned: bool = False
    """Whether the host's array is in pinned memory."""
    where: tuple[str, int] | None = None
    """File and line of the program that made it a node."""

    @property
    def copied_bytes(self) -> int:
        """What a copy moves; 0 for a launch."""
        if self.array is not None:
            return self.array.nbytes
        return 0 if self.source is None else self.source.nbytes

    def __str__(self) -> str:
        return f"{self.name} (node {self.number})"


@dataclass
class Graph:
    """Nodes and their dependencies; see the module."""

    accelerator: Accelerator
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
        """A launch; its configuration is checked now. Arguments keep their buffers; what is in them then counts."""
        function, sizes, given = self.accelerator.prepare_launch(kernel, grid, block, arguments, shared_bytes)
        node = Node(len(self.nodes), "launch", function.name, list(after), function, *sizes, given, shared_bytes)
        return self._add(node)

    def copy_in(self, buffer: Buffer, array: np.ndarray, *, after: Sequence[Node] = (), pinned: bool = False) -> Node:
        """Host to device; the array is read when the graph is replayed, and has to stay."""
        self.accelerator.check_buffer(buffer, "copy in")
        buffer.check(array, "copy in")
        return self._add(
            Node(len(self.nodes), "copy_in", "copy in", list(after), buffer=buffer, array=array, pinned=pinned)
        )

    def copy_out(self, array: np.ndarray, buffer: Buffer, *, after: Sequence[Node] = (), pinned: bool = False) -> Node:
        """Device to host, into an array that has to stay."""
        self.accelerator.check_buffer(buffer, "copy out")
        buffer.check(array, "copy out", written=True)
        return self._add(
            Node(len(self.nodes), "copy_out", "copy out", list(after), buffer=buffer, array=array, pinned=pinned)
        )

    def copy_within(self, to: Buffer, buffer: Buffer, *, after: Sequence[Node] = ()) -> Node:
        """Device to device."""
        self.accelerator.check_buffer(to, "copy within")
        to.fits(buffer, "copy within")
        return self._add(Node(len(self.nodes), "copy_within", "copy within", list(after), buffer=to, source=buffer))

    def depend(self, node: Node, *on: Node) -> None:
        """``node`` waits for ``on``, too."""
        node.after.extend(one for one in on if one not in node.after)

    def _add(self, node: Node) -> Node:
        node.where = caller()
        self.nodes.append(node)
        return node

    def compile(self) -> CompiledGraph:
        """The graph in an order that keeps all dependencies.

        InputError that names a cycle, or a node of another graph.
        """
        known = set(map(id, self.nodes))
        for node in self.nodes:
            for other in node.after:
                if id(other) not in known:
                    raise InputError(
                        f"{node} waits for {other}, which is of another graph", expected="nodes of this graph"
                    )
        sorter = TopologicalSorter({node.number: [other.number for other in node.after] for node in self.nodes})
        try:
            order = list(sorter.static_order())
        except CycleError as error:
            around = " waits for ".join(str(self.nodes[number]) for number in reversed(error.args[1]))
            raise InputError(f"the graph has a cycle: {around}", expected="dependencies without one") from None
        # What is changed in the graph from now on is no part of it.
        copies = [replace(node) for node in self.nodes]
        for node in copies:
            node.after = [copies[other.number] for other in node.after]
        return CompiledGraph(self.accelerator, [copies[number] for number in order])


@dataclass
class CompiledGraph:
    """A graph that is ready to be replayed: its nodes in order."""

    accelerator: Accelerator
    order: Sequence[Node]
    replays: int = 0

    def replay(self, stream: Any = None) -> None:
        """Do all of it, on ``stream``; nodes that do not wait for each other overlap as the device lets them."""
        self.accelerator.replay(self, stream)
        self.replays += 1


@dataclass
class Capture:
    """What a context asks while streams are captured: nodes of one stream follow each other, events tie streams."""

    graph: Graph
    _last: dict[Any, list[Node]] = field(default_factory=dict)
    """By stream, which is kept so that no other takes its place in memory."""

    def after(self, stream: Any) -> list[Node]:
        """What the next node of ``stream`` waits for."""
        return self._last.get(stream, [])

    def follow(self, stream: Any, node: Node) -> None:
        """``node`` is the last of ``stream`` now."""
        self._last[stream] = [node]

    def wait(self, stream: Any, nodes: Sequence[Node]) -> None:
        """The next node of ``stream`` waits for ``nodes``, too."""
        mine = self._last.setdefault(stream, [])
        self._last[stream] = [*mine, *(node for node in nodes if node not in mine)]
