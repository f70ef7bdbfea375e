"""The workers of a sweep: processes of this machine, or a Dask cluster.

Both take the same tasks and return the same outcomes, in the order of completion. The local workers are plain
``multiprocessing`` processes, each with one task at a time over a pipe. A ``ProcessPoolExecutor`` (or joblib's loky)
is not used, because it gives up all running tasks when one worker dies, without naming its task, and leaves its
workers running when the parent is killed. Here a worker that dies loses only its own task, and is replaced.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

from windtunnel.core.errors import InputError, Location
from windtunnel.core.time_limits import time_limit
from windtunnel.core.worker_processes import end_with_parent, keep_memory, start_fork_server, started
from windtunnel.sweep.grid import Inputs
from windtunnel.sweep.records import Outcome

ATTEMPTS = 3
"""The largest number of attempts of a task whose workers die."""

_CONNECT_TIMEOUT_S, _START_TIMEOUT_S = 10.0, 30.0


@dataclass(frozen=True)
class Task:
    """A task for one point: ``what`` is "check" or "run"."""

    what: str
    changes: tuple[str, ...]


Work = Callable[[Path, Task], Outcome]
"""Executes a task with the inputs under a folder. It never raises, and can be pickled: a function of a module, or a
``partial`` of one."""


class Executor(Protocol):
    """Executes tasks in parallel."""

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield the index in ``tasks`` and the outcome of each task, in order of completion; every task once."""


# This machine.


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    task: int | None = None


@dataclass
class LocalPool:
    """Worker processes of this machine; use it as a context manager.

    They are forked from a server process that has imported the modules ``preload``, so each module is imported only
    once. Each worker uses one thread. The workers end with this process.
    """

    work: Work
    tree: Path
    workers: int
    preload: tuple[str, ...] = ()
    _pool: list[_Worker] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._pool:
            worker.process.kill()
        for worker in self._pool:
            worker.process.join()
            worker.pipe.close()
        self._pool.clear()

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield index and outcome of each task. A task whose worker died is repeated, ``ATTEMPTS`` times in all."""
        waiting = deque(range(len(tasks)))
        attempts = [0] * len(tasks)
        while len(self._pool) < self.workers:
            self._pool.append(self._start())
        ended: list[tuple[int, Outcome]] = []
        while waiting or any(worker.task is not None for worker in self._pool):
            for worker in self._pool:
                if worker.task is None and waiting:
                    worker.task = waiting.popleft()
                    attempts[worker.task] += 1
                    with contextlib.suppress(OSError):  # an idle worker died, which its pipe reports below
                        worker.pipe.send(tasks[worker.task])
            # A worker has its next task before the outcome of its last one is handled.
            yield from ended
            ended.clear()
            ready = set(wait([worker.pipe for worker in self._pool if worker.task is not None]))
            for place, worker in enumerate(self._pool):
                if worker.pipe not in ready or worker.task is None:
                    continue
                task = worker.task
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    how = self._replace(place)
                    if attempts[task] < ATTEMPTS:
                        waiting.appendleft(task)
                        continue
                    outcome = Outcome(error=f"the worker process {how} in each of {ATTEMPTS} attempts", code=70)
                worker.task = None
                ended.append((task, outcome))
        yield from ended

    def _start(self) -> _Worker:
        start_fork_server(self.preload)
        context = multiprocessing.get_context("forkserver")
        parent_end, child_end = context.Pipe()
        process = context.Process(target=_serve, args=(child_end, self.work, self.tree), daemon=True)
        started(process)
        child_end.close()
        return _Worker(process, parent_end)

    def _replace(self, place: int) -> str:
        """Replace a worker that died; returns how it ended."""
        dead = self._pool[place]
        dead.pipe.close()
        dead.process.join()
        self._pool[place] = self._start()
        code = dead.process.exitcode
        return f"was killed (signal {-code})" if code is not None and code < 0 else f"ended (exit code {code})"


def _serve(pipe: Connection, work: Work, tree: Path) -> None:
    """The loop of a worker: it receives tasks and sends outcomes until the parent ends."""
    end_with_parent()
    keep_memory()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(work(tree, pipe.recv()))


# A cluster.

Facts = Callable[[], Mapping[str, str]]
"""Returns the versions that the results of a machine depend on, by name."""


@dataclass(frozen=True)
class _Bundle:
    """The data that all tasks of a sweep need, for workers without access to files of this machine."""

    name: str
    work: Work
    inputs: Inputs
    facts: Facts
    expected: Mapping[str, str]


class DaskCluster:
    """A Dask cluster by its scheduler's address; use it as a context manager.

    The inputs are sent with the sweep, and each worker process writes them under its own local directory. If a worker
    dies, Dask repeats its task on another one, as often as the scheduler's ``allowed-failures`` states.

    Raises InputError if Dask is not installed, nothing answers at ``address``, there are no workers, or a worker's
    results would differ from this machine's because of another version of Windtunnel, NumPy or Python.
    """

    def __init__(self, address: str, work: Work, inputs: Inputs, facts: Facts) -> None:
        self._where = Location(address, field="--cluster")
        example = "the address a scheduler prints, such as tcp://10.0.0.1:8786"
        if not re.fullmatch(r"[a-z]+://[^/]+:[0-9]{1,5}", address):
            raise InputError("this is no scheduler's address", where=self._where, expected=example)
        try:
            import distributed
        except ImportError:
            raise InputError(
                "a cluster needs Dask, which is not installed",
                where=self._where,
                expected="pip install 'windtunnel[cluster]'",
            ) from None
        self._dask: Any = distributed  # distributed has no annotations
        self._bundle = _Bundle(os.urandom(8).hex(), work, inputs, facts, dict(facts()))
        try:
            self._client = self._dask.Client(address, timeout=time_limit(_CONNECT_TIMEOUT_S), set_as_default=False)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise InputError(
                f"no Dask scheduler answers there: {str(error).splitlines()[0]}", where=self._where, expected=example
            ) from None

    def __enter__(self) -> Self:
        try:
            self._check_workers()
            # A task, and not scattered data: the scheduler can repeat it if the worker that holds it dies.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Dask warns about 10 MiB and more
                self._sent = self._client.submit(_same, self._bundle, key=f"windtunnel-{self._bundle.name}-inputs")
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # the scheduler may be lost
            if self._client.status == "running":
                self._client.run(_forget, self._bundle.name, on_error="ignore")
            self._client.close()

    def _check_workers(self) -> None:
        try:
            self._client.wait_for_workers(1, timeout=time_limit(_START_TIMEOUT_S))
        except TimeoutError:
            raise InputError("the cluster has no workers", where=self._where, expected="at least one") from None
        answers = self._client.run(self._bundle.facts, on_error="return")
        for worker in sorted(answers):
            self._compare(f"the worker {worker}", answers[worker])

    def _compare(self, who: str, facts: Any) -> None:
        problem = _difference(who, facts, self._bundle.expected)
        if problem is not None:
            raise InputError(problem, where=self._where, expected="the same installation everywhere")

    def map(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """Yield index and outcome of each task; raises InputError if the connection to the cluster is lost."""
        name = f"windtunnel-{self._bundle.name}"
        futures = {
            self._client.submit(_on_worker, self._sent, task, key=f"{name}-{task.what}-{i}", pure=False): i
            for i, task in enumerate(tasks)
        }
        try:
            for future in self._dask.as_completed(list(futures), loop=self._client.loop):
                yield futures[future], self._outcome(future)
                future.release()
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel([future for future in futures if not future.done()])

    def _outcome(self, future: Any) -> Outcome:
        error: BaseException | None = None
        if future.status == "finished":
            outcome = future.result()
            if isinstance(outcome, Outcome):
                return outcome
            raise InputError(outcome, where=self._where, expected="the same installation everywhere")
        if future.status == "error":
            error = future.exception()
        if error is None or isinstance(error, self._dask.client.FutureCancelledError):
            raise InputError("the cluster was lost", where=self._where, expected="that it stays until the sweep ends")
        if isinstance(error, self._dask.KilledWorker):
            return Outcome(error="the worker process ended in every attempt that the cluster allows", code=70)
        return Outcome(error=f"{type(error).__name__}: {error}", code=70)


def _same(bundle: _Bundle) -> _Bundle:
    return bundle


def _difference(who: str, facts: Any, expected: Mapping[str, str]) -> str | None:
    """Return the difference between the versions of ``who`` and the expected ones; None if there is none."""
    if not isinstance(facts, Mapping):
        return f"{who} cannot run Windtunnel: {type(facts).__name__}: {facts}"
    for name, version in expected.items():
        if facts.get(name) != version:
            return f"{who} has {name} {facts.get(name)}, and this machine has {version}"
    return None


_one_at_a_time = threading.Lock()
_unpacked: dict[str, Path | str] = {}


def _on_worker(bundle: _Bundle, task: Task) -> Outcome | str:
    """Execute a task on a worker of the cluster; a returned text is the reason why this worker cannot.

    A worker with several threads executes one task at a time, because a simulation holds the interpreter and memory.
    """
    with _one_at_a_time:
        if bundle.name not in _unpacked:
            _unpacked[bundle.name] = _unpack(bundle)
        tree = _unpacked[bundle.name]
        return tree if isinstance(tree, str) else bundle.work(tree, task)


def _unpack(bundle: _Bundle) -> Path | str:
    import distributed

    here = distributed.get_worker()
    problem = _difference(f"the worker {here.address}", bundle.facts(), bundle.expected)
    if problem is not None:
        return problem
    # It is under the worker's own directory, which Dask deletes when the worker ends.
    tree = Path(tempfile.mkdtemp(dir=here.local_directory, prefix="windtunnel-"))
    try:
        bundle.inputs.write(tree)
    except BaseException:
        shutil.rmtree(tree, ignore_errors=True)
        raise
    return tree


def _forget(name: str) -> None:
    """Remove the inputs of a sweep that has ended."""
    tree = _unpacked.pop(name, None)
    if isinstance(tree, Path):
        shutil.rmtree(tree, ignore_errors=True)
