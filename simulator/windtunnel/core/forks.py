"""Work that copies of this process do on other processors while it goes on.

A copy is forked, so that it has everything that this process has, and nothing is sent to it. What a copy does not
deliver, for whatever reason, this process does itself: results and errors are the same as without copies.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from ctypes import CDLL
from typing import Generic, NoReturn, Self, TypeVar

from windtunnel.core.processors import processors

T = TypeVar("T")
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux: the signal that a process gets when its parent ends."""
_TOKEN = 4
"""The bytes of a number in the pipe from which the processes take their numbers."""


def usable_processors() -> int:
    """Return the number of processors that this process and copies of it may use; 1 where it must not be forked.

    Only Linux forks a process safely whatever libraries it has loaded, and only one that has a single thread in Python.
    """
    return processors() if sys.platform == "linux" and threading.active_count() == 1 else 1


class Copy(Generic[T]):
    """A copy of this process that calls ``function``; leaving the context ends it.

    An interrupt ends the copy without a word, because this process reports it.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._read, write = os.pipe()
        this = os.getpid()
        # A signal that arrives between fork and the lines after it would be handled in the copy as in this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self._pid: int | None = None
        with suppress(OSError):  # there are too many processes
            self._pid = os.fork()
        if self._pid == 0:
            _deliver(function, write, before, this)
        os.close(write)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # it raises what a signal meanwhile was for
        except BaseException:
            self.__exit__()
            raise

    def result(self) -> T | None:
        """Wait for the copy, and return what its function returned; None if it failed."""
        with os.fdopen(self._read, "rb", closefd=False) as pipe:
            content = pipe.read()
        return pickle.loads(content) if self._ended() else None  # noqa: S301  written by the copy

    def _ended(self) -> bool:
        """Wait for the end of the copy, and return whether it did what it was made for."""
        if self._pid is None:
            return False
        _, status = os.waitpid(self._pid, 0)
        self._pid = None
        return status == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._ended()
        os.close(self._read)


def _deliver(function: Callable[[], object], write: int, mask: set[int | signal.Signals], parent: int) -> NoReturn:
    """Write what ``function`` returns, and end this process without anything that it would do at its end.

    It is killed when ``parent`` ends for whatever reason.
    """
    code = 1
    try:
        CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(code)  # it has ended already
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        gc.disable()  # a collection writes to all objects, so that their memory would be copied
        content = pickle.dumps(function())
        with os.fdopen(write, "wb") as pipe:
            pipe.write(content)
        code = 0
    finally:
        os._exit(code)


class Shared(Generic[T]):
    """Calls of ``function`` with each number, which ``copies`` copies of this process begin with at once.

    Each process takes the next number when it is done with one. What the function returns must be picklable, and it
    must not change anything that is used later. Leaving the context ends the copies.
    """

    def __init__(self, function: Callable[[int], T], numbers: Sequence[int], copies: int) -> None:
        self._function, self._numbers = function, numbers
        self._open = ExitStack()
        self._source, sink = os.pipe()
        self._open.callback(os.close, self._source)
        with self._open.pop_all() as unless_begun:
            with os.fdopen(sink, "wb") as pipe:
                pipe.write(b"".join(place.to_bytes(_TOKEN, "little") for place in range(len(numbers))))
            self._copies = [unless_begun.enter_context(Copy(self._take)) for _ in range(copies)]
            self._open = unless_begun.pop_all()

    def _take(self) -> dict[int, T]:
        done: dict[int, T] = {}
        while token := os.read(self._source, _TOKEN):
            place = int.from_bytes(token, "little")
            done[place] = self._function(self._numbers[place])
        return done

    def results(self) -> list[T]:
        """Return what the function returns for each number; this process takes numbers too."""
        done = self._take()
        for copy in self._copies:
            done.update(copy.result() or {})
        return [done[p] if p in done else self._function(number) for p, number in enumerate(self._numbers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


def shared(function: Callable[[int], T], numbers: Sequence[int], count: int) -> list[T]:
    """Return ``function`` of each number, computed by this process and ``count`` - 1 copies of it (``Shared``)."""
    count = min(count, len(numbers))
    if count < 2:
        return [function(number) for number in numbers]
    with Shared(function, numbers, count - 1) as begun:
        return begun.results()
