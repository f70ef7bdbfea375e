"""Handles of streams, by which programs and other interfaces name them."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

_HANDLES = itertools.count(0x7F0000001000, 0x40)
_STREAMS: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""The emulator's streams by their handles."""


def new_handle(raw: Any) -> int:
    """Return the handle of a new stream."""
    handle = next(_HANDLES)
    _STREAMS[handle] = raw
    return handle


def stream_at(handle: int) -> Any:
    """Return the emulator's stream of a handle; None for the default stream, and for one that is not known."""
    return _STREAMS.get(int(handle))


def is_handle(handle: int) -> bool:
    """Return whether a handle is that of a stream that is in use, or of a default stream."""
    return int(handle) in (0, 1, 2) or int(handle) in _STREAMS
