"""``cupy.cuda.graph``: graphs captured from streams."""

from __future__ import annotations

from typing import Any


class Graph:
    """A graph of launches and copies."""

    def __init__(self, accelerator: Any, graph: Any) -> None:
        self._accelerator, self._graph = accelerator, graph
        self._compiled: Any = None

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


class Capturing:
    """A capture that has begun."""

    def __init__(self, accelerator: Any, manager: Any) -> None:
        self._accelerator, self._manager = accelerator, manager
        self._graph = manager.__enter__()

    def end(self) -> Graph:
        """End it and return the graph."""
        self._manager.__exit__(None, None, None)
        return Graph(self._accelerator, self._graph)


def begin(accelerator: Any, stream: Any) -> Capturing:
    """Begin to capture the work of a stream."""
    del stream
    return Capturing(accelerator, accelerator.capture())
