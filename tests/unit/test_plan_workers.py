"""The workers of a plan: what is simulated again when one is killed, and that none outlives the plan."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windtunnel.core.errors import WindtunnelError
from windtunnel.core.results.plan import Meets
from windtunnel.planning import workers as planning
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.simulate import Case, Redraws, Setting
from windtunnel.planning.workers import Simulator, Workers
from windtunnel_models.catalogue import shipped_catalogue

ROOT = Path(__file__).resolve().parents[2]
SETTING = cast(Setting, SimpleNamespace(catalogue=shipped_catalogue()))


def killed_once(_number: int, _pickled: bytes, case: Any) -> Any:
    """Stand for a simulation: the first worker that is given a path without a file is killed as by the kernel."""
    if not Path(case).exists():
        Path(case).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return case


def killed(_number: int, _pickled: bytes, _case: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def waits_for_the_other(_number: int, _pickled: bytes, case: Any) -> Any:
    """Stand for a simulation that lasts until another one, on another worker, has begun too."""
    Path(case).touch()
    end = time.monotonic() + 60
    while len(list(Path(case).parent.iterdir())) < 2:
        assert time.monotonic() < end, "the other worker does nothing"
        time.sleep(0.01)
    return case


def sleeps(_number: int, _pickled: bytes, _case: Any) -> Any:
    time.sleep(30)


def test_what_a_killed_worker_simulated_is_simulated_again_and_one_that_is_always_killed_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT)  # workers import this module to call its functions
    known = tmp_path / "known"
    known.touch()
    cases = cast("list[Case]", [str(known), str(tmp_path / "new")])
    pool = Workers(2)
    try:
        monkeypatch.setattr(planning, "_in_worker", killed_once)
        assert list(pool.results(SETTING, cases)) == cases
        monkeypatch.setattr(planning, "_in_worker", killed)
        with pytest.raises(WindtunnelError, match="worker processes of the plan were killed 3 times.*--workers 1"):
            list(pool.results(SETTING, cases))
        # An interrupted plan ends at once: its workers are killed in the middle of a simulation.
        monkeypatch.setattr(planning, "_in_worker", sleeps)
        pool = Workers(2)
        interrupted = pool.results(SETTING, cases)
        monkeypatch.setattr(planning, "wait", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            next(interrupted)
        processes = list(vars(pool._pool)["_processes"].values())
        assert processes
    finally:
        pool.close()
    for process in processes:
        process.join()
        assert process.exitcode != 0, "it was not ended, and came to its end by itself"


def test_a_worker_that_is_idle_simulates_what_may_be_asked_for_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(planning, "_in_worker", waits_for_the_other)
    pool = Workers(2)
    pool.longest_s = 1.0
    likely, asked = cast("list[Case]", [str(tmp_path / name) for name in ("likely", "asked")])
    try:
        pool.expect([(SETTING, likely)])
        assert list(pool.results(SETTING, [asked])) == [asked]
    finally:
        pool.close()


def test_what_is_asked_for_starts_before_what_was_announced_and_nothing_starts_twice_unless_a_worker_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []
    under_way: deque[tuple[str, Future[Any]]] = deque()

    def submit(_function: Any, _number: int, _pickled: bytes, case: str) -> Future[Any]:
        started.append(case)
        under_way.append((case, Future()))
        return under_way[-1][1]

    def finish_the_first(_futures: Any, **_keys: Any) -> None:
        if under_way:
            case, future = under_way.popleft()
            future.set_result(case)

    pool = Workers(2)
    pool.longest_s = 1.0
    monkeypatch.setattr(pool, "_executor", lambda: SimpleNamespace(submit=submit))
    monkeypatch.setattr(planning, "wait", finish_the_first)
    pool.expect([(SETTING, cast(Case, name)) for name in ("later", "likely")])
    for names in (["first"], ["second", "third", "later"], ["later"]):
        pool.announce(SETTING, cast("list[Case]", names))
    assert started == ["first", "second", "third"]
    asked = cast("list[Case]", ["a", "b"])
    assert list(pool.results(SETTING, asked)) == asked
    assert started == ["first", "second", "third", "a", "b", "later", "likely"]

    # The plan does without a simulation that kills its worker and is not asked for.
    while under_way:
        under_way.pop()[1].set_exception(BrokenProcessPool())
    assert list(pool.results(SETTING, [cast(Case, "later")])) == ["later"]
    assert started[7:] == ["later"]


def test_a_fleet_is_simulated_once_where_all_redrawn_runs_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Case] = []

    def simulated(_setting: Setting, case: Case) -> Evaluation:
        made.append(case)
        return cast(Evaluation, SimpleNamespace(meets=Meets(True, True), stopped_after=None, redrawn_runs=8, runs=1))

    monkeypatch.setattr(planning, "simulate", simulated)
    simulator, case = Simulator(SETTING, Workers(1), None), Case((2,), until_lost=True)
    for asked in (case, Case((2,))):
        assert simulator([asked], redraws=Redraws(all=True)) == list(simulator.evaluations.values())
    assert made == [replace(case, redraws=Redraws(all=True))]


def test_intervals_of_fewer_runs_are_not_taken_for_those_of_a_whole_simulation() -> None:
    case = Case((2,), load=1.2)
    asked = replace(case, until_lost=True, until_unsure=True)
    for reaches in (False, True):
        simulator = Simulator(SETTING, Workers(1), None)
        evaluation = cast(Evaluation, SimpleNamespace(meets=Meets(True, reaches), stopped_after=None, redrawn_runs=2))
        simulator.keep(asked, evaluation)
        assert simulator.found(asked) is evaluation
        # One that meets the targets with confidence has all its runs.
        assert simulator.found(case) is (evaluation if reaches else None)
