"""Handles of streams, by which programs and other interfaces name them."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Any

from windtunnel.emulate.common.current import current_accelerator

_HANDLES = itertools.count(0x7F0000001000, 0x40)
_STREAMS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The emulator's streams by their handles."""

PER_THREAD = 2
"""The handle of the default stream of the thread that uses it."""
_OWN = threading.local()


def new_handle(raw: Any) -> int:
    """Return the handle of a new stream."""
    handle = next(_HANDLES)
    _STREAMS[handle] = raw
    return handle


def stream_at(handle: int) -> Any:
    """Return the emulator's stream of a handle; None for the legacy default stream, and for one that is not known."""
    if int(handle) == PER_THREAD:
        return _of_thread()
    return _STREAMS.get(int(handle))


def _of_thread() -> Any:
    """Return the default stream of this thread and the current device, which waits for the legacy default stream."""
    accelerator = current_accelerator()
    known: weakref.WeakKeyDictionary[Any, Any] | None = getattr(_OWN, "streams", None)
    if known is None:
        known = _OWN.streams = weakref.WeakKeyDictionary()
    if accelerator not in known:
        known[accelerator] = accelerator.stream()
    return known[accelerator]


def is_handle(handle: int) -> bool:
    """Return whether a handle is that of a stream that is in use, or of a default stream."""
    return int(handle) in (0, 1, 2) or int(handle) in _STREAMS
