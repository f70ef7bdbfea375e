"""``cupy.cuda.graph``: graphs captured from streams."""

from __future__ import annotations

from typing import Any


class Graph:
    """A graph of launches and copies."""

    def __init__(self, accelerator: Any, graph: Any, held: list[Any]) -> None:
        self._accelerator, self._graph = accelerator, graph
        self._compiled: Any = None
        self._held = held
        """The memory that it uses, which stays allocated as long as it."""

    def launch(self, stream: Any = None) -> None:
        """Enqueue the graph."""
        from windtunnel.emulate.cupy.cuda.stream import current_raw

        self.upload()
        self._accelerator.replay(self._compiled, current_raw(stream))

    def upload(self, stream: Any = None) -> None:
        """Prepare the graph."""
        del stream
        if self._compiled is None:
            self._compiled = self._graph.compile()


open_captures: list[Capturing] = []
"""The captures that have begun."""


def hold(*values: Any) -> None:
    """Keep memory allocated for a graph that is being captured."""
    for capture in open_captures:
        capture.held += values


class Capturing:
    """A capture that has begun."""

    def __init__(self, accelerator: Any, manager: Any) -> None:
        self._accelerator, self._manager = accelerator, manager
        self._graph = manager.__enter__()
        self.held: list[Any] = []
        open_captures.append(self)

    def end(self) -> Graph:
        """End it and return the graph."""
        open_captures.remove(self)
        self._manager.__exit__(None, None, None)
        return Graph(self._accelerator, self._graph, self.held)


def begin(accelerator: Any, stream: Any) -> Capturing:
    """Begin to capture the work of a stream."""
    del stream
    return Capturing(accelerator, accelerator.capture())
