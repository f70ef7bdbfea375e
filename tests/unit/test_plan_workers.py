"""The workers of a plan: what is simulated again when one is killed, and that none outlives the plan."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windtunnel.core.errors import WindtunnelError
from windtunnel.core.results.plan import Meets
from windtunnel.planning import workers as planning
from windtunnel.planning.evaluation import Evaluation
from windtunnel.planning.simulate import Case, Setting
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
