"""Signals that arrive where the exception of their handler would be discarded."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self, cast

_Handler = Callable[[int, FrameType | None], object]


class HeldSignals:
    """While this context is active, SIGINT and SIGTERM are recorded; their handlers are called when it ends.

    Some libraries discard any exception of Python code that they call, also the KeyboardInterrupt of a signal that
    arrives during the call. Signals are handled by the main thread only, so the context does nothing in other threads.
    """

    def __init__(self) -> None:
        self._holding = False
        self._handlers: dict[int, _Handler] = {}
        self._arrived: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                # Signals that are ignored, or that end the process at once, call no Python code.
                if callable(handler):
                    self._handlers[number] = cast("_Handler", handler)
                    signal.signal(number, self._receive)
            self._holding = True
        return self

    def __exit__(self, *_: object) -> None:
        self._holding = False
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number, frame in self._arrived:
            self._handlers[number](number, frame)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._arrived.append((number, frame))
        else:  # it arrived while the handlers were being exchanged
            self._handlers[number](number, frame)
