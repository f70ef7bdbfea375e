"""Streams and events, as ``numba.cuda`` has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from windtunnel.core.errors import DeviceError
from windtunnel.emulate.common.streams import PER_THREAD, new_handle, stream_at
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.cudadrv.error import CudaAPIError


def _accelerator() -> Any:
    return devices.current_accelerator()


def _finish(future: Any, result: Any) -> None:
    if not future.done():
        future.set_result(result)


class Handle(ctypes.c_void_p):
    """The handle of a stream. As an integer it is the number that other libraries take."""

    def __int__(self) -> int:
        return self.value or 0


class Stream:
    """A stream. ``raw`` is the emulator's; None for the default stream."""

    def __init__(self, raw: Any, handle: int, *, external: bool = False) -> None:
        self.raw, self.handle_value, self.external = raw, handle, external
        self.accelerator = _accelerator()

    @property
    def handle(self) -> Any:
        """The handle, as a ctypes object."""
        return Handle(self.handle_value)

    def __int__(self) -> int:
        return self.handle_value

    def __bool__(self) -> bool:
        return self.raw is not None

    def __repr__(self) -> str:
        names = {0: "<Default CUDA stream>", 1: "<Legacy default CUDA stream>", 2: "<Per-thread default CUDA stream>"}
        if self.handle_value in names:
            return names[self.handle_value]
        return f"<{'External CUDA' if self.external else 'CUDA'} stream {self.handle_value}>"

    def synchronize(self) -> None:
        """Wait for its work."""
        if self.raw is None:
            self.accelerator.synchronize()
        else:
            self.raw.synchronize()

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Wait for its work at the end of the block."""
        yield self
        self.synchronize()

    def add_callback(self, callback: Callable[..., Any], arg: Any = None) -> None:
        """Call a function when its work so far has ended."""
        self.synchronize()
        callback(self, 0, arg)

    def async_done(self) -> Any:
        """Return an awaitable that is done when its work so far has ended."""
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.synchronize()
        loop.call_soon(_finish, future, self)
        return future


def stream() -> Stream:
    """Create a stream."""
    raw = _accelerator().stream()
    return Stream(raw, new_handle(raw))


def default_stream() -> Stream:
    """Return the default stream."""
    return Stream(None, 0)


def legacy_default_stream() -> Stream:
    """Return the legacy default stream."""
    return Stream(None, 1)


def per_thread_default_stream() -> Stream:
    """Return the default stream of the thread, which only the legacy default stream waits for."""
    return Stream(stream_at(PER_THREAD), PER_THREAD)


def external_stream(ptr: int) -> Stream:
    """Return the stream of a handle."""
    return Stream(stream_at(ptr), int(ptr), external=True)


class Event:
    """An event."""

    def __init__(self, timing: bool = True) -> None:
        self.timing, self.raw, self.recorded = timing, _accelerator().event(), False

    @property
    def handle(self) -> Any:
        """The handle, as a ctypes object."""
        import ctypes

        return ctypes.c_void_p(id(self.raw))

    def query(self) -> bool:
        """Return whether the work before it has ended."""
        self.synchronize()
        return True

    def record(self, stream: Any = 0) -> None:
        """Record the current position of a stream."""
        self.recorded = True
        self.raw.record(getattr(stream, "raw", None) if stream else None)

    def synchronize(self) -> None:
        """Wait for the work before it."""
        if self.recorded:
            self.raw.synchronize()

    def wait(self, stream: Any = 0) -> None:
        """Make later work of a stream wait for it."""
        if not self.recorded:
            return
        raw = getattr(stream, "raw", None) if stream else None
        if raw is not None:
            raw.wait(self.raw)
        else:
            self.raw.synchronize()

    def elapsed_time(self, evtend: Event) -> float:
        """Return the time to another event (ms)."""
        return event_elapsed_time(self, evtend)


def event(timing: bool = True) -> Event:
    """Create an event."""
    return Event(timing)


event_ = event


def event_elapsed_time(evtstart: Event, evtend: Event) -> float:
    """Return the time between two events (ms)."""
    if not all(one.recorded and one.timing for one in (evtstart, evtend)):
        raise CudaAPIError(400, "Call to cuEventElapsedTime results in CUDA_ERROR_INVALID_HANDLE")
    try:
        return float(evtend.raw.elapsed_s(evtstart.raw)) * 1e3
    except DeviceError as error:
        raise CudaAPIError(600, f"Call to cuEventElapsedTime results in CUDA_ERROR_NOT_READY: {error}") from error


devices.factories.update(stream=stream, event=event, default_stream=default_stream)
