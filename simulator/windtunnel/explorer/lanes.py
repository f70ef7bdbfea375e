"""Worker processes of the page: each answers one call at a time, and gives up a call whose answer is not wanted.

A process, and not a thread, because a simulation does not let other threads run. There are two: one for first looks,
which take a moment, and one for whole scenarios. So a first look never waits for a whole scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from windtunnel.core.errors import InputError, InvariantError, WindtunnelError
from windtunnel.core.worker_processes import end_with_parent, starting_workers
from windtunnel.core.yamlfile import Document
from windtunnel.explorer.look import Looker
from windtunnel_models.catalogue import Catalogue

_PRELOAD = ("windtunnel.explorer.look", "windtunnel.engine.compiled.run", "scipy.optimize")
"""Modules that workers need. They are forked from a process that has imported them once."""
_KEPT = ("make_ready",)
"""Calls that are not given up, because what they compile is needed sooner or later."""
_AGAIN_S = 0.02


class LaneError(Exception):
    """A worker failed, which is a bug or a lack of memory, and not an error of the design."""


class _Unwanted(BaseException):
    """The answer of the present call is not wanted any more."""


class Lane:
    """One worker process, used from one event loop. It is started at the first call, and again after it died.

    ``niceness`` lowers its priority.
    """

    def __init__(self, document: Document, catalogue: Catalogue, *, niceness: int = 0) -> None:
        self._arguments = (document, catalogue, niceness)
        self._lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1)
        self._process: Any = None
        self._pipe: Connection | None = None
        self._reply: asyncio.Future[tuple[str, Any]] | None = None
        self._ready = self._unwanted = False

    async def call(self, method: str, *arguments: object) -> Any:
        """Return what a method of `Looker` returns. If the caller is cancelled, the worker gives up the call.

        Raises:
            InputError: The design cannot be simulated.
            LaneError: The worker failed.
        """
        async with self._lock:
            try:
                if self._reply is not None and not self._reply.done():
                    await asyncio.wait({self._reply})  # of a call that was given up
                pipe = self._started()
                self._unwanted = False
                pipe.send((method, arguments))
                self._reply = asyncio.get_running_loop().run_in_executor(self._thread, self._receive, pipe)
                self._reply.add_done_callback(lambda reply: reply.cancelled() or reply.exception())
                kind, value = await asyncio.shield(self._reply)
            except asyncio.CancelledError:
                self._give_up(method)
                raise
            except (EOFError, OSError) as error:
                self.close()
                raise LaneError("a worker process ended; out of memory?") from error
        if kind == "refused":
            raise InputError(value)
        if kind == "failed":
            raise LaneError(value)
        return value

    def _give_up(self, method: str) -> None:
        """Tell the worker that nobody waits for its answer any more; it then answers at once."""
        working = self._reply is not None and not self._reply.done()
        if working and method not in _KEPT and self._process is not None and hasattr(signal, "SIGUSR1"):
            self._unwanted = True
            if self._ready:
                os.kill(self._process.pid, signal.SIGUSR1)

    def _receive(self, pipe: Connection) -> tuple[str, Any]:
        """Return the answer of the worker. The signal would end one that has not said yet that it handles it."""
        process = self._process
        if not self._ready:
            pipe.recv()
            self._ready = True
            while self._unwanted and not pipe.poll(_AGAIN_S):
                os.kill(process.pid, signal.SIGUSR1)
        answer: tuple[str, Any] = pipe.recv()
        return answer

    def _started(self) -> Connection:
        if self._pipe is None:
            context = get_context("forkserver")
            context.set_forkserver_preload(list(_PRELOAD))
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other, *self._arguments), daemon=True)
            with starting_workers():
                self._process.start()
            other.close()
        return self._pipe

    def close(self) -> None:
        """End the worker."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        self._ready = False


@dataclass
class _Work:
    """Whether the worker is in a call that it may give up."""

    busy: bool = False

    def give_up(self, number: int, _frame: object) -> None:
        """End the present call. The timer tries again where Python discards the exception, as in a finalizer."""
        if self.busy:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            raise _Unwanted

    def ended(self) -> None:
        self.busy = False
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _serve(pipe: Connection, document: Document, catalogue: Catalogue, niceness: int) -> None:
    """Answer calls until the parent ends."""
    if hasattr(os, "nice"):
        os.nice(niceness)
    end_with_parent()
    work = _Work()
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, work.give_up)
        signal.signal(signal.SIGALRM, work.give_up)
    pipe.send("ready")
    looker = Looker(document, catalogue)
    with contextlib.suppress(EOFError, OSError):
        while True:
            method, arguments = pipe.recv()
            pipe.send(_answer(work, looker, method, arguments))


def _answer(work: _Work, looker: Looker, method: str, arguments: tuple[Any, ...]) -> tuple[str, object]:
    try:
        try:
            work.busy = method not in _KEPT
            return "done", getattr(looker, method)(*arguments)
        finally:
            work.ended()
    except _Unwanted:
        work.ended()
        return "unwanted", None
    except WindtunnelError as error:
        if not isinstance(error, InvariantError):
            return "refused", str(error)
        return "failed", str(error)
    except Exception:
        # The terminal has the whole of it, and the page the last line.
        text = traceback.format_exc()
        sys.stderr.write(text)
        return "failed", text.strip().splitlines()[-1]
