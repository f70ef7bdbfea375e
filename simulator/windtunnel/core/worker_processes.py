"""Processes that work for this one: forked from a server that has imported modules, with one thread each.

This module imports little, so that the server imports modules while this process imports its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
_PR_SET_PDEATHSIG = 1  # prctl(2)
_MOST_WAIT_S = 10.0
"""How long the threads of a pool whose processes were killed may take to end (s); Python before 3.11.5 may not end them
at all (python/cpython#94777)."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)


def start_fork_server(preload: Sequence[str]) -> None:
    """Start the process from which workers are forked, unless it runs, and return at once while it imports modules."""
    forkserver.set_forkserver_preload(list(preload))
    with starting_workers():
        forkserver.ensure_running()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Let processes that are started in this context ignore Ctrl-C, which a terminal sends to all of them.

    This process handles it, and ends them. A process inherits the mask of signals, so that it is never without it: one
    that ignores the signal only once it runs would print a traceback before.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it removes the signal from the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # it raises what came meanwhile


@contextlib.contextmanager
def starting_workers() -> Iterator[None]:
    """Let processes that are started in this context use one thread each, as each processor has one, without Ctrl-C."""
    with without_interrupts(), _one_thread():
        yield


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(_ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def started(process: BaseProcess) -> None:
    """Start a process of the fork server whose function is in a module, and not in the main one.

    Otherwise a new process executes the main module again, which for the command line imports all of it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with starting_workers():
            process.start()
    finally:
        sys.modules["__main__"] = main


def end_at_once(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool whatever they do, and the threads of this process that write to their pipes."""
    # A shutdown forgets both.
    processes = list((vars(pool).get("_processes") or {}).values())
    manager: threading.Thread | None = vars(pool).get("_executor_manager_thread")
    with broken_pipes_are_errors():
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        if manager is not None:
            manager.join(_MOST_WAIT_S)


def end_with_parent() -> None:
    """End this process when the fork server ends, which ends with the process of the sweep.

    The fork server ends when the last process closes the write end of a pipe. It hands this end to each process that
    it forks, so a worker must close it: otherwise workers and fork server keep each other alive. On systems other than
    Linux a worker ends when it has finished its task and finds its pipe closed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = vars(forkserver)["_forkserver"]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None


def keep_memory() -> None:
    """Keep freed memory for the next task, which needs about as much as the last one.

    glibc returns large arrays to the system, which allocates them again page by page: a sixth of a point's time, and
    more if several workers allocate at once. Other C libraries have no such call, or ignore it.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, 2**30)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


@contextlib.contextmanager
def broken_pipes_are_errors() -> Iterator[None]:
    """Ignore SIGPIPE: a command ends when the reader of its output ends, but not when a worker or a browser does."""
    if not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)
