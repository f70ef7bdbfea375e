"""Fixtures of the unit tests: the command `check`, and one answer of `plan`."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from tests.unit.checking import Command
from tests.unit.planning import plan_scenario

from windtunnel.app import plan as planner
from windtunnel.cli.main import main
from windtunnel.core.results.plan import PlanResult
from windtunnel.planning import looks
from windtunnel.scenario.read import scenario_from_data


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that writes a source and checks it, and returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)

    def run(source: str | None, *words: str, file: str = "kernel.cu") -> tuple[int, str, str]:
        if source is not None:
            Path(file).write_text(source)
        with pytest.raises(SystemExit) as ended:
            main(["check", file, *words])
        captured = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def found() -> PlanResult:
    """Return the answer for the scenario that most tests of a plan share; none of them changes it."""
    """A plan whose fleets are looked at once, so that the best by value is not certain."""
    with patch.object(looks, "MOST_RUNS", 0):
        return planner.plan(scenario_from_data(plan_scenario()), workers=1)
