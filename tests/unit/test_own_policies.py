"""A user's own policy file: written once, run in both engines, refused with its place when something is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel.core.errors import InputError
from windtunnel.scenario.read import scenario_from_data

MINE = '''
import math
import random

def choose(device):
    """As shortest-expected-completion, spelled another way."""
    return (device.jobs + 1) * device.mean_s

def soonest(device):
    """Where it will be done first."""
    return device.backlog_s + device.estimate_s, device.cost_usd

soonest.rank_by = "backlog"
soonest.requires = ("price",)

def longest_first(job):
    return -job.size_s

def words(device):
    """Python that Numba does not compile."""
    return float({"a": device.jobs}.get("a", sorted([device.last_chosen], key=lambda x: -x)[0]))

def text(device):
    return "first"

def three(device):
    return 1, 2, 3

def nothing(device):
    return float("nan")

def fickle(device):
    return random.random()

class Thing:
    pass

def divides(device):
    return 1 / device.jobs

def lost(device):
    # A number for the example that it is tried with, none for an empty queue.
    return 0.0 if device.jobs else float("inf") - float("inf")

def imports(device):
    from math import sqrt
    return sqrt(device.jobs)

def broken(device):
    return device.presnet
'''


def scenario(folder: Path, policy: Any, **more: Any) -> Any:
    (folder / "mine.py").write_text(MINE)
    data = {
        "schema": 1,
        "name": "own",
        "fleet": [
            {"device": "server", "count": 3, "price": "1 USD/h", "power": {"idle": "10 W", "max": "100 W"}},
            {"device": "server", "speed": 3.0, "price": "4 USD/h", "power": {"idle": "10 W", "max": "100 W"}},
        ],
        "workload": [
            {
                "name": "jobs",
                "arrivals": {"process": "poisson", "rate": "4500 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            }
        ],
        "policy": policy,
        "stop": {"jobs": 400},
        **more,
    }
    return scenario_from_data(data, str(folder / "scenario.yaml"))


def placements(asked: Any, engine: str) -> tuple[list[int], list[int]]:
    jobs = windtunnel.run(asked, engine=engine).recording.jobs
    return jobs.device.tolist(), jobs.finish.tolist()


@pytest.mark.parametrize(
    "policy",
    [
        "./mine.py:choose",
        {"route": "./mine.py:soonest", "order": "./mine.py:longest_first"},
        {"order": "mine.py:longest_first"},
        {"route": "./mine.py:choose", "order": "shortest"},
    ],
)
def test_both_engines_run_the_same_file(tmp_path: Path, policy: Any) -> None:
    asked = scenario(tmp_path, policy)
    assert placements(asked, "process") == placements(asked, "compiled")


def test_a_copy_of_a_shipped_policy_decides_as_it_does(tmp_path: Path) -> None:
    mine = placements(scenario(tmp_path, "./mine.py:choose"), "process")
    assert mine == placements(scenario(tmp_path, "shortest-expected-completion"), "process")
    assert mine != placements(scenario(tmp_path, "./mine.py:soonest"), "process")


def test_the_longest_job_goes_first(tmp_path: Path) -> None:
    # All at once on one device: after the first to come they are taken by size.
    burst = [
        {
            "name": "w",
            "arrivals": {"process": "deterministic", "rate": "1000000 /s"},
            "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
        }
    ]
    asked = scenario(
        tmp_path, {"order": "./mine.py:longest_first"}, workload=burst, fleet=[{"device": "server"}], stop={"jobs": 30}
    )
    jobs = windtunnel.run(asked, engine="process").recording.jobs
    # The size that an order knows is the expected one, the same for all: so they go in order of arrival.
    assert np.all(np.diff(jobs.start) > 0)


def test_what_does_not_compile_runs_in_the_process_engine_and_says_why(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "./mine.py:words")
    windtunnel.run(asked, engine="process")
    with pytest.raises(InputError, match="does not compile"):
        windtunnel.run(asked, engine="compiled")
    long = scenario(tmp_path, "./mine.py:words", stop={"jobs": 20_001})
    finished = windtunnel.run(long)
    assert finished.result.engine == "process"
    assert "does not compile" in finished.result.engine_reason


@pytest.mark.parametrize("engine", ["process", "compiled"])
@pytest.mark.parametrize("name", ["divides", "lost"])
def test_what_fails_during_a_run_is_the_file_s_error(tmp_path: Path, engine: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        windtunnel.run(scenario(tmp_path, f"./mine.py:{name}"), engine=engine)
    assert caught.value.where.file == str(tmp_path / "mine.py")
    lines = MINE.split("\n")
    at = next(i for i, line in enumerate(lines, 1) if line.startswith(f"def {name}"))
    # Compiled code does not know its lines.
    assert caught.value.where.line == at + (engine == "process" and name == "divides")


def test_a_policy_that_imports_runs_in_the_process_engine(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "./mine.py:imports", stop={"jobs": 20_001})
    assert "does not compile" in windtunnel.run(asked).result.engine_reason


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("./other.py:choose", "there is no policy file"),
        ("./mine.py:chose", "choose"),
        ("./mine.py:text", "could not convert string to float"),
        ("./mine.py:three", "a number, or two"),
        ("./mine.py:nothing", "expected a number"),
        ("./mine.py:fickle", "different numbers for the same Candidate"),
        ("./mine.py:Thing", "is a type"),
        ("./mine.py:broken", "presnet"),
        ({"order": "./mine.py:chose"}, "choose"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path: Path, policy: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        windtunnel.run(scenario(tmp_path, policy))
    assert says in str(caught.value)
    assert "policy" in str(caught.value)


def test_needs_of_an_own_policy_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="requires `price`"):
        windtunnel.run(scenario(tmp_path, "./mine.py:soonest", fleet=[{"device": "server"}]))


@pytest.mark.parametrize(
    "stated",
    ["./counted.py:choose", {"route": "./counted.py:choose"}, {"route": "./counted.py:choose", "order": "shortest"}],
)
def test_a_policy_file_is_executed_once_a_run(tmp_path: Path, stated: Any) -> None:
    asked = scenario(tmp_path, stated)
    (tmp_path / "counted.py").write_text(
        f"with open({str(tmp_path / 'executions')!r}, 'a') as stream:\n    stream.write('x')\n\n\n"
        "def choose(device):\n    return device.jobs\n"
    )
    windtunnel.run(asked, engine="process")
    assert (tmp_path / "executions").read_text() == "x"
