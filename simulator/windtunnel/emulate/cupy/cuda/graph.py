"""``cupy.cuda.graph``: graphs captured from streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windtunnel.emulate.cupy.cuda.runtime_error import CUDARuntimeError


class Graph:
    """A graph of launches and copies."""

    def __init__(self, accelerator: Any, graph: Any, held: list[Any], raw_of: Callable[[Any], Any]) -> None:
        self._accelerator, self._graph, self._raw_of = accelerator, graph, raw_of
        self._compiled: Any = None
        self._held = held
        """The memory that it uses, which stays allocated as long as it."""

    def launch(self, stream: Any = None) -> None:
        """Enqueue the graph."""
        self.upload()
        self._accelerator.replay(self._compiled, self._raw_of(stream))

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

    def __init__(self, accelerator: Any, manager: Any, raw_of: Callable[[Any], Any]) -> None:
        self._accelerator, self._manager, self._raw_of = accelerator, manager, raw_of
        self._graph = manager.__enter__()
        self.held: list[Any] = []
        self.invalid = False
        open_captures.append(self)

    def end(self) -> Graph:
        """End it and return the graph."""
        if self.invalid:
            raise CUDARuntimeError(901)
        self._close()
        return Graph(self._accelerator, self._graph, self.held, self._raw_of)

    def _close(self) -> None:
        open_captures.remove(self)
        self._manager.__exit__(None, None, None)

    def invalidate(self) -> None:
        """End it without a graph."""
        self.invalid = True
        self._close()


def forbid() -> None:
    """Raise CUDARuntimeError if a graph is captured, for a call that makes the host wait. The capture is then lost."""
    if open_captures:
        abandon(*open_captures)
        raise CUDARuntimeError(900)


def begin(accelerator: Any, raw_of: Callable[[Any], Any]) -> Capturing:
    """Begin to capture the work of streams. ``raw_of`` returns the emulator's stream of a stream of CuPy."""
    return Capturing(accelerator, accelerator.capture(), raw_of)


def abandon(*captures: Capturing) -> None:
    """End captures that are still open."""
    for capture in captures:
        if capture in open_captures:
            capture.invalidate()
