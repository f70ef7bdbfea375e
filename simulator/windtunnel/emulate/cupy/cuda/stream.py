"""``cupy.cuda.stream``: streams and events. Every thread has a current stream for each device."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Self

from windtunnel.core.errors import DeviceError
from windtunnel.emulate.common.current import current_accelerator, current_index
from windtunnel.emulate.common.streams import is_handle, new_handle, stream_at
from windtunnel.emulate.cupy.cuda import graph as graphs
from windtunnel.emulate.cupy.cuda.runtime_error import CUDARuntimeError

_POLL_S = 1e-6
"""The time that the host takes to ask whether work has ended; assumed, a call of the driver."""
_local = threading.local()


def _entered(device: int) -> list[_BaseStream]:
    """Return the streams of this thread whose ``with`` blocks are open."""
    stacks: dict[int, list[_BaseStream]] = _local.__dict__.setdefault("entered", {})
    return stacks.setdefault(device, [])


def _use(stream: _BaseStream, device: int) -> None:
    _local.__dict__.setdefault("current", {})[device] = stream


def get_current_stream(device_id: int = -1) -> _BaseStream:
    """Return the current stream of this thread on a device, by default on the current one."""
    device = current_index() if device_id == -1 else device_id
    current: dict[int, _BaseStream] = _local.__dict__.get("current", {})
    return current.get(device, Stream.null)


def current_raw(stream: Any = None) -> Any:
    """Return the emulator's stream of a stream, by default of the current one; None for the default stream."""
    chosen = get_current_stream() if stream is None else stream
    if isinstance(chosen, _BaseStream):
        return chosen.raw
    handle = chosen if isinstance(chosen, int) else chosen.ptr
    return stream_at(handle)


class Event:
    """An event."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        if interprocess and not disable_timing:
            raise ValueError("Timing must be disabled for interprocess events")
        del block
        self.disable_timing, self.recorded = disable_timing, False
        self.raw = current_accelerator().event()
        self.ptr = id(self.raw)

    @property
    def done(self) -> bool:
        """Whether the work before it has ended. Asking takes a microsecond of the host's clock."""
        if self.recorded and self.raw.tick > self.raw.device.host.now:
            current_accelerator().sleep(_POLL_S)
            return False
        self.synchronize()
        return True

    def record(self, stream: Any = None) -> None:
        """Record the current position of a stream."""
        self.recorded = True
        self.raw.record(current_raw(stream))

    def synchronize(self) -> None:
        """Wait for the work before it."""
        graphs.forbid()
        if self.recorded:
            self.raw.synchronize()


def get_elapsed_time(start_event: Event, end_event: Event) -> float:
    """Return the time between two events (ms)."""
    for event in (start_event, end_event):
        if event.disable_timing or not event.recorded:
            raise CUDARuntimeError(400)
    try:
        return float(end_event.raw.elapsed_s(start_event.raw)) * 1e3
    except DeviceError as error:
        if "later one" in str(error):
            return -float(start_event.raw.elapsed_s(end_event.raw)) * 1e3
        raise CUDARuntimeError(600) from error


class _BaseStream:
    """A stream. ``raw`` is the emulator's; None for the default stream."""

    def __init__(self, ptr: int, device_id: int, raw: Any) -> None:
        self.ptr, self.device_id, self.raw = ptr, device_id, raw
        self.is_non_blocking = False
        self.priority = 0
        self._capture: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BaseStream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ptr} (device {self.device_id})>"

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def _check_device(self) -> int:
        device = current_index()
        if self.device_id not in (-1, device):
            raise RuntimeError(
                f"This stream was created on device {self.device_id} but current device is {device}; use it on "
                f"device {self.device_id}"
            )
        return device

    def __enter__(self) -> Self:
        device = self._check_device()
        _entered(device).append(self)
        _use(self, device)
        return self

    def __exit__(self, *_: object) -> None:
        device = current_index() if self.device_id == -1 else self.device_id
        stack = _entered(device)
        stack.pop()
        _use(stack[-1] if stack else Stream.null, device)

    def use(self) -> Self:
        """Make it the current stream."""
        _use(self, self._check_device())
        return self

    @property
    def done(self) -> bool:
        """Whether its work has ended. Asking takes a microsecond of the host's clock."""
        event = Event()
        event.record(self)
        return event.done

    def synchronize(self) -> None:
        """Wait for its work."""
        graphs.forbid()
        if self.raw is not None:
            self.raw.synchronize()
            return
        # The default stream waits for blocking streams, and work of non-blocking ones may go on.
        event = current_accelerator().event()
        event.record()
        event.synchronize()

    def add_callback(self, callback: Callable[..., Any], arg: Any) -> None:
        """Call a function with the stream, 0 and ``arg`` when its work so far has ended."""
        self.synchronize()
        callback(self, 0, arg)

    def launch_host_func(self, callback: Callable[..., Any], arg: Any) -> None:
        """Call a function with ``arg`` when its work so far has ended."""
        self.synchronize()
        callback(arg)

    def record(self, event: Event | None = None) -> Event:
        """Record an event on it."""
        made = Event() if event is None else event
        made.record(self)
        return made

    def wait_event(self, event: Event) -> None:
        """Make later work wait for an event."""
        if not event.recorded:
            return
        if self.raw is not None:
            self.raw.wait(event.raw)
        else:
            current_accelerator().context.default.wait(event.raw)

    def begin_capture(self, mode: int | None = None) -> None:
        """Record the work of this stream, and of streams that wait for its events, in a graph."""
        del mode
        if self.raw is None:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self._capture is not None:
            raise CUDARuntimeError(401)
        self._capture = graphs.begin(current_accelerator(), current_raw)
        # A stream that nothing refers to ends its capture, as a stream that is destroyed does.
        weakref.finalize(self, graphs.abandon, self._capture)

    def end_capture(self) -> graphs.Graph:
        """End the capture and return the graph."""
        if self._capture is None:
            raise CUDARuntimeError(401)
        capture, self._capture = self._capture, None
        made: graphs.Graph = capture.end()
        return made

    def is_capturing(self) -> bool:
        """Return whether a graph is captured."""
        return self._capture is not None and not self._capture.invalid


class Stream(_BaseStream):
    """A stream: a new one, or the default stream (``null``, ``ptds``)."""

    null: ClassVar[Stream]
    ptds: ClassVar[Stream]
    _foreign_stream_ref: Any = None

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        if null or ptds:
            super().__init__(2 if ptds else 0, -1, None)
            return
        raw = current_accelerator().stream(non_blocking=non_blocking)
        super().__init__(new_handle(raw), current_index(), raw)
        self.is_non_blocking = non_blocking
        self.priority = 0 if priority is None else max(min(priority, 0), -5)

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        """Return a stream for an object with ``__cuda_stream__``."""
        method = getattr(stream, "__cuda_stream__", None)
        if method is None:
            raise TypeError(
                f"Object of type {type(stream).__name__} does not implement the CUDA stream protocol "
                "(__cuda_stream__ method)"
            )
        given = method()
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError("__cuda_stream__() must return a 2-tuple of (version, stream_ptr)")
        if not all(isinstance(one, int) for one in given):
            names = ", ".join(type(one).__name__ for one in given)
            raise TypeError(f"__cuda_stream__() must return (int, int), got ({names})")
        if given[0] != 0:
            raise TypeError(f"__cuda_stream__() returned unsupported version {given[0]}, only version 0 is supported")
        made = cls.__new__(cls)
        _BaseStream.__init__(made, given[1], -1, _known(given[1]))
        made._foreign_stream_ref = stream
        return made


class ExternalStream(_BaseStream):
    """The stream of a handle."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        warnings.warn(
            "ExternalStream is deprecated. Use Stream.from_external() instead", DeprecationWarning, stacklevel=2
        )
        super().__init__(ptr, device_id, _known(ptr))


def _known(handle: int) -> Any:
    if not is_handle(handle):
        raise CUDARuntimeError(400)
    return stream_at(handle)


Stream.null = Stream(null=True)
Stream.ptds = Stream(ptds=True)
