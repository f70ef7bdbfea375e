"""Simulates the fleets of a plan, in processes that all its choices share."""

from __future__ import annotations

import errno
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import chain
from multiprocessing import get_context

from windtunnel.core.errors import WindtunnelError
from windtunnel.core.worker_processes import (
    end_at_once,
    end_with_parent,
    keep_memory,
    start_fork_server,
    starting_workers,
)
from windtunnel.engine.prepare.decoder_cache import Known, known_tables, receive_tables
from windtunnel.planning import looks
from windtunnel.planning.evaluation import Evaluation, judged_again
from windtunnel.planning.simulate import USUAL, Case, Redraws, Setting, simulate
from windtunnel_models.catalogue import Catalogue

_POOL_ABOVE_S = 0.4
"""The duration of a simulation below which no process of its own is used."""
ATTEMPTS = 3
"""The number of times that a worker may be killed before the plan ends with an error."""
_PRELOAD = (
    "windtunnel.planning.simulate", "windtunnel.engine.choice", "windtunnel.engine.results.metrics",
    "windtunnel.engine.compiled.run", "scipy.special", "scipy.optimize",
)  # fmt: skip
"""Modules that a simulation imports. Workers are forked from a server that has imported them once."""


# In a worker.

_catalogues: list[Catalogue] = []
_settings: dict[int, Setting] = {}


def begin(catalogue: Catalogue, tables: Known) -> None:
    """Begin a worker with what all simulations share: the catalogue, and the tables of step costs that are known."""
    end_with_parent()
    keep_memory()
    _catalogues[:] = [catalogue]
    receive_tables(tables)


def _in_worker(number: int, pickled: bytes, case: Case) -> Evaluation:
    if number not in _settings:
        parts: Mapping[str, object] = pickle.loads(pickled)  # noqa: S301  from the process that started this one
        _settings[number] = Setting(catalogue=_catalogues[0], **parts)  # type: ignore[arg-type]
    return simulate(_settings[number], case)


# In the process of the plan.

_Task = tuple[int, Case]


class Workers:
    """At most ``count`` processes, which start at the first simulation that takes long enough.

    Simulations that are asked for go before those that were only announced, and both before those that may be asked for
    next. ``copies``: how many processes, this one among them, may price decoders before that (see ``core.forks``).
    """

    def __init__(self, count: int, copies: int = 1) -> None:
        self.count, self.copies = count, min(count, copies)
        self.further_runs = 0
        """The runs of the scenario's length that further looks have taken."""
        self.longest_s = 0.0
        """The longest simulation in the process of the plan."""
        self._pool: ProcessPoolExecutor | None = None
        self._settings: list[Setting] = []
        self._pickled: list[bytes] = []
        self._announced: list[_Task] = []
        self._likely: list[_Task] = []
        self._started: dict[_Task, Future[Evaluation]] = {}
        """What was started and has not been handed out."""
        self._killed = 0

    def spend(self, runs: int) -> bool:
        """Return whether further looks may take so many more runs, which then count."""
        if self.further_runs + runs > looks.MOST_RUNS:
            return False
        self.further_runs += runs
        return True

    def begin_imports(self) -> None:
        """Let the server from which workers are forked import its modules meanwhile."""
        if self.count > 1:
            start_fork_server(_PRELOAD)

    @property
    def are_used(self) -> bool:
        """Whether there are workers, because simulations take long."""
        return self.count > 1 and self.longest_s >= _POOL_ABOVE_S

    @property
    def are_busy(self) -> bool:
        """Whether a worker simulates something, or has been told to."""
        return self._running() > 0 or bool(self._announced)

    def announce(self, setting: Setting, cases: Sequence[Case]) -> None:
        """Have ``cases`` simulated whenever a worker is free, because they will be asked for."""
        if self.are_used:
            number = self._number(setting)
            self._announced += [(number, case) for case in cases]
            self._start()

    def expect(self, likely: Sequence[tuple[Setting, Case]]) -> None:
        """Have cases simulated while a worker has nothing else to do, because they may be asked for next.

        Those of the call before are forgotten, unless they have begun.
        """
        self._likely = [(self._number(setting), case) for setting, case in likely] if self.are_used else []

    def has_begun(self, setting: Setting, case: Case) -> bool:
        """Return whether the simulation of a case has begun, or is finished."""
        return (self._number(setting), case) in self._started

    def results(self, setting: Setting, cases: Sequence[Case]) -> Iterator[Evaluation]:
        """Yield the evaluation of each case, in order; raises the error of the first that has one."""
        tasks = [(self._number(setting), case) for case in cases]
        self._announced = [task for task in self._announced if task not in tasks]
        self._likely = [task for task in self._likely if task not in tasks]
        for i, task in enumerate(tasks):
            self._start(tasks[i:])
            while task not in self._started or not self._started[task].done() or self._is_lost(task):
                if task in self._started and self._is_lost(task):
                    self._restart()
                else:
                    wait([f for f in self._started.values() if not f.done()], return_when=FIRST_COMPLETED)
                self._start(tasks[i:])
            yield self._started.pop(task).result()

    def close(self) -> None:
        """End the workers at once: what they still simulate was announced and is not asked for, or was interrupted."""
        if self._pool is not None:
            end_at_once(self._pool)
            self._pool = None

    def _is_lost(self, task: _Task) -> bool:
        """Return whether a simulation that was started has no outcome, because a worker was killed."""
        future = self._started[task]
        return future.done() and isinstance(future.exception(), BrokenProcessPool)

    def _restart(self) -> None:
        """Replace workers of which one was killed, and have what they simulated simulated again.

        What may be asked for next is forgotten, so that the plan does not end because of it.

        Raises:
            WindtunnelError: It happened too often.
        """
        self._killed += 1
        if self._killed >= ATTEMPTS:
            raise WindtunnelError(
                f"worker processes of the plan were killed {ATTEMPTS} times, perhaps because memory ran out; try "
                "--workers 1"
            )
        wait(self._started.values())  # all of them are lost that were not finished
        self._started = {task: future for task, future in self._started.items() if not self._is_lost(task)}
        self._likely = []
        self.close()

    def _running(self) -> int:
        return sum(not future.done() for future in self._started.values())

    def _start(self, asked: Sequence[_Task] = ()) -> None:
        """Start what is next while there is something."""
        while (task := self._next(asked)) is not None:
            number, case = task
            try:
                with starting_workers():  # handing out the work is what starts processes
                    self._started[task] = self._executor().submit(_in_worker, number, self._pickled[number], case)
            except (BrokenProcessPool, OSError) as error:
                # A pool whose worker was killed closes its connections, which this process may be just about to use.
                if isinstance(error, OSError) and error.errno != errno.EBADF:
                    raise
                self._restart()

    def _next(self, asked: Sequence[_Task]) -> _Task | None:
        """Return which simulation is to start now; None if there is none, or enough are under way.

        That is one more than there are workers, so that none waits for this process. What may be asked for next starts
        only while this process waits for what is asked for, and a worker has nothing else to do.
        """
        running = self._running()
        likely = self._likely if asked and running < self.count else ()
        waiting = chain(asked, self._announced, likely) if running <= self.count else ()
        return next((task for task in waiting if task not in self._started), None)

    def _executor(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = get_context("forkserver")
            context.set_forkserver_preload(list(_PRELOAD))
            begins = self._settings[0].catalogue, known_tables()
            self._pool = ProcessPoolExecutor(self.count, context, initializer=begin, initargs=begins)
        return self._pool

    def _number(self, setting: Setting) -> int:
        """Return the number of a setting, by which workers know it once they have received it."""
        for number, known in enumerate(self._settings):
            if known is setting:
                return number
        self._settings.append(setting)
        parts = {name: value for name, value in vars(setting).items() if name != "catalogue"}
        self._pickled.append(pickle.dumps(parts))
        return len(self._settings) - 1


class Simulator:
    """Simulates each case of one setting once, in this process or in workers."""

    def __init__(self, setting: Setting, workers: Workers, progress: Callable[[int], None] | None) -> None:
        self.setting = setting
        self.workers = workers
        self.progress = progress
        self.evaluations: dict[Case, Evaluation] = {}
        self._replaced: dict[Case, Case] = {}
        """The case of the further look at a fleet, by that of its first look."""

    def __call__(self, cases: Sequence[Case], *, redraws: Redraws = USUAL) -> list[Evaluation]:
        """Return the evaluations of ``cases``; those that are not known yet are simulated.

        ``redraws``: the redrawn runs of these.
        """
        new = self._unknown(cases, redraws)
        while new and not self._goes_to_workers(list(new.values())):
            case = next(iter(new))
            self.keep(case, self.here(self.setting, new.pop(case)))
        if new:
            results = self.workers.results(self.setting, list(new.values()))
            for case, evaluation in zip(new, results, strict=True):
                self.keep(case, evaluation)
        return [self.evaluation(case) for case in cases]

    def _unknown(self, cases: Sequence[Case], redraws: Redraws) -> dict[Case, Case]:
        """Return the cases whose evaluations are not known, each with the case that is simulated for it."""
        new = [case for case in dict.fromkeys(cases) if self.found(case) is None]
        return {case: case if redraws == USUAL else replace(case, redraws=redraws) for case in new}

    def here(self, setting: Setting, case: Case) -> Evaluation:
        """Simulate a case in this process."""
        began = time.monotonic()
        evaluation = simulate(setting, case)
        self.workers.longest_s = max(self.workers.longest_s, time.monotonic() - began)
        return evaluation

    def announce(self, cases: Sequence[Case], *, redraws: Redraws = USUAL) -> None:
        """Say that these cases will be asked for."""
        self.workers.announce(self.setting, list(self._unknown(cases, redraws).values()))

    def _goes_to_workers(self, new: Sequence[Case]) -> bool:
        workers = self.workers
        alone = len(new) == 1 and not workers.has_begun(self.setting, new[0]) and not workers.are_busy
        return workers.are_used and not alone

    def found(self, case: Case) -> Evaluation | None:
        """Return the evaluation of a case, from its whole run if there is one; None if it was not simulated."""
        key = case.whole
        whole = self.evaluations.get(self._replaced.get(key, key))
        return whole if whole is not None or not case.until_lost else self.evaluations.get(case)

    def evaluation(self, case: Case) -> Evaluation:
        """Return the evaluation of a case that was simulated."""
        found = self.found(case)
        assert found is not None  # noqa: S101  the callers have simulated it
        return found

    def look_again(self, cases: Sequence[Case], further: Sequence[Case], *, same_verdict: bool = False) -> None:
        """Have ``cases``, which were simulated, judged as the cases ``further`` are, which are simulated.

        ``same_verdict``: only those whose verdict stays the same.
        """
        self(further)
        for case, again in zip(cases, further, strict=True):
            first, found = self.evaluation(case), self.evaluations[again]
            if again.times > 1:
                self.evaluations[again] = found = judged_again(first, found)
            if not same_verdict or found.meets == first.meets:
                self._replaced[case.whole] = again

    def keep(self, case: Case, evaluation: Evaluation) -> None:
        """Store the evaluation of a case."""
        unsure = case.until_unsure and not evaluation.meets.confidence and evaluation.redrawn_runs > 0
        ended = evaluation.stopped_after is not None or unsure
        self.evaluations[case if ended else case.whole] = evaluation
        if self.progress is not None:
            self.progress(len(self.evaluations))
