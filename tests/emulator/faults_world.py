"""A program on an emulated device, call by call, each given as data: what it did can be done again elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import windtunnel
from windtunnel.core import errors
from windtunnel.runtime.faults import FaultNotFired
from windtunnel_models.catalogue import Catalogue

SKU = "l4"
ELEMENTS = np.uint8
TAKING_S = Catalogue().device(SKU).api.values["allocate_s"].value
"""What memory from the driver takes."""


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def increment(a: np.ndarray) -> None:
    a += 1


KERNELS = {"double": double, "increment": increment}


class World:
    """A program, call by call, each given as data: what it did can be done again elsewhere."""

    def __init__(self) -> None:
        self.device = windtunnel.device(SKU)
        self.spans = self.device.start_trace()
        self.buffers: list[Any] = []
        self.graphs: list[Any] = []
        self.streams = [None, self.device.stream(), self.device.stream(non_blocking=True)]
        self.events = [self.device.event() for _ in range(2)]
        self.last = self.device.event()
        self.armed: Any = None
        self.plan: Any = None
        self.script: list[tuple[str, tuple[Any, ...]]] = []
        self.outcomes: list[str] = []

    def do(self, what: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """(what came of a call, None) or (None, its error)."""
        self.script.append((what, arguments))
        found, error = None, None
        try:
            found = getattr(self, f"_{what}")(*arguments)
        except (errors.WindtunnelError, AssertionError) as raised:
            if not isinstance(raised, (errors.DeviceError, FaultNotFired)):
                raise
            error = raised
        said = found.tobytes().hex() if isinstance(found, np.ndarray) else repr(found)
        self.outcomes.append(f"{what}: {said if error is None else f'{type(error).__name__} {error}'}")
        return found, error

    @contextmanager
    def _in_order(self, stream: int) -> Iterator[Any]:
        """Streams meet on the same buffers, so what one of them is given waits for what any was given before."""
        chosen = self.streams[stream]
        (self.device.context.default if chosen is None else chosen).wait(self.last)
        yield chosen
        self.last.record(chosen)

    def _empty(self, size: int, kind: str) -> None:
        made = self.device.empty(size, ELEMENTS, kind=kind)
        made.memory.mark_written(made.memory.size)  # the model reads memory back whatever was written to it
        self.buffers.append(made)

    def _to_device(self, values: bytes) -> None:
        self.buffers.append(self.device.to_device(np.frombuffer(values, ELEMENTS)))

    def _free(self, place: int) -> None:
        self.buffers[place].free()

    def _copy_in(self, place: int, values: bytes, stream: int, pinned: bool) -> None:
        with self._in_order(stream) as chosen:
            self.buffers[place].copy_from(np.frombuffer(values, ELEMENTS), chosen, pinned=pinned)

    def _copy_out(self, place: int, size: int, stride: int, stream: int, pinned: bool) -> np.ndarray:
        found = np.zeros(size * stride, ELEMENTS)[::stride]
        with self._in_order(stream) as chosen:
            self.buffers[place].copy_to(found, chosen, pinned=pinned)
        return found

    def _copy_within(self, to: int, source: int, stream: int) -> None:
        with self._in_order(stream) as chosen:
            self.buffers[to].copy_within(self.buffers[source], chosen)

    def _launch(self, kernel: str, place: int, block: int, stream: int) -> None:
        with self._in_order(stream) as chosen:
            self.device.launch(KERNELS[kernel], 2, block, self.buffers[place], stream=chosen)

    def _synchronize(self) -> None:
        self.device.synchronize()

    def _wait_for_stream(self, stream: int) -> None:
        self.streams[stream].synchronize()

    def _record(self, event: int, stream: int) -> None:
        self.events[event].record(self.streams[stream])

    def _wait_for_event(self, event: int) -> None:
        self.events[event].synchronize()

    def _stream_waits(self, stream: int, event: int) -> None:
        self.streams[stream].wait(self.events[event])

    def _host(self, place: int) -> None:
        self.buffers[place].host()

    def _graph(self, place: int, kernels: tuple[str, ...], values: bytes) -> None:
        graph = self.device.graph()
        last = graph.copy_in(self.buffers[place], np.frombuffer(values, ELEMENTS))
        for kernel in kernels:
            last = graph.launch(KERNELS[kernel], 2, 32, self.buffers[place], after=[last])
        self.graphs.append(graph.compile())

    def _replay(self, graph: int, stream: int) -> None:
        with self._in_order(stream) as chosen:
            self.graphs[graph].replay(chosen)

    def _reset(self) -> None:
        self.device.reset()

    def _arm(self, faults: tuple[tuple[tuple[str, Any], ...], ...], seed: int) -> None:
        self.armed = self.device.faults(*map(dict, faults), seed=seed)
        self.plan = self.armed.__enter__()

    def _disarm(self) -> None:
        self.plan = None
        self.armed.__exit__(None, None, None)

    def inside(self, place: int) -> np.ndarray:
        """What a buffer holds, looked at past all calls."""
        buffer = self.buffers[place]
        return np.array(self.device.context.view(buffer.memory, buffer.dtype, buffer.shape))
