"""The pytest plugin in a project of its own: devices, budgets, faults, leaks, traces, and real ones that are not here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import windtunnel

pytest_plugins = "pytester"

PROGRAM = """
import numpy as np
import pytest
import windtunnel

@windtunnel.kernel
def double(a):
    a *= 2

def run(accelerator, launches=1):
    a = accelerator.to_device(np.ones(1000, np.float32))
    for _ in range(launches):
        accelerator.launch(double, 4, 256, a)
    found = accelerator.to_host(a)
    return a, found
"""


@dataclass(frozen=True)
class Done:
    """The outcome of a run of pytest."""

    returncode: int
    stdout: str
    stderr: str


class Project:
    """A project with one file of tests, in a folder of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        pytester.makeini("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")

    def run(self, tests: str, *options: str) -> Done:
        """Write the tests and run pytest in this process, with the installed plugins but none of this run's options."""
        (self.folder / "test_it.py").write_text(PROGRAM + tests)
        result = self.pytester.runpytest_inprocess("-q", *options)
        return Done(int(result.ret), result.stdout.str(), result.stderr.str())

    def run_in_processes(self, tests: str) -> Done:
        """Write the tests and run them in two worker processes."""
        (self.folder / "test_it.py").write_text(PROGRAM + tests)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "2"],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def _loaded() -> None:
    """Import what the tests need: a run of pytester forgets the modules that were imported during it."""
    with windtunnel.device("l4") as accelerator, accelerator.expect(launches=1):
        accelerator.launch(_double, 1, 32, accelerator.to_device(np.ones(32, np.float32)))
        with accelerator.faults({"kind": "out_of_memory"}), pytest.raises(windtunnel.errors.DeviceOutOfMemory):
            accelerator.empty(3)


@windtunnel.kernel
def _double(a):  # type: ignore[no-untyped-def]
    a *= 2


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, _loaded: None) -> Project:
    # The date of a .pyc file counts seconds, and a test writes its file several times.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Project(pytester)


def test_a_test_runs_on_each_device_that_its_marker_names(project: Project) -> None:
    done = project.run(
        """
@pytest.mark.accelerator("h100-sxm-80gb", "l4", "apple-m1")
def test_it(accelerator):
    assert (run(accelerator)[1] == 2).all()

def test_usual(accelerator):
    assert accelerator.name == "h100-sxm-80gb"
""",
        "-vv",
    )
    assert done.returncode == 0, done.stdout
    for name in ("test_it[h100-sxm-80gb]", "test_it[l4]", "test_it[apple-m1]", "4 passed"):
        assert name in done.stdout


def test_a_finding_that_a_test_catches_fails_it_unless_it_is_expected(project: Project) -> None:
    done = project.run(
        """
from windtunnel import errors, grid

@windtunnel.kernel
def beyond(a):
    a[grid(1)] = 1

def wrong(accelerator):
    accelerator.launch(beyond, 1, 4, accelerator.empty(3))

def test_hidden(accelerator):
    try:
        wrong(accelerator)
    except errors.OutOfBounds:
        pass

@pytest.mark.accelerator(findings="ignore")
def test_accepted(accelerator):
    test_hidden(accelerator)
    assert len(accelerator.findings) == 1

def test_expected(accelerator):
    with pytest.raises(errors.OutOfBounds):
        wrong(accelerator)
    with pytest.raises(RuntimeError):
        try:
            wrong(accelerator)
        except errors.Finding as finding:
            raise RuntimeError("the kernel is wrong") from finding
""",
    )
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout
    assert "the test catches a finding" in done.stdout and "OutOfBounds: beyond on h100" in done.stdout


def test_a_budget_that_is_not_kept_fails_with_the_figures_the_seed_and_a_trace(project: Project) -> None:
    done = project.run(
        """
def test_it(accelerator):
    with accelerator.expect(launches=2):
        run(accelerator, launches=3)
""",
        "--accelerator-seed",
        "7",
    )
    assert done.returncode == 1
    assert "launches 3 (limit 2)" in done.stdout
    assert "seed 7 (--accelerator-seed 7)" in done.stdout
    assert "3 launches, 8,000 bytes copied, 4,000 allocated" in done.stdout
    (trace,) = (project.folder / "windtunnel-traces").iterdir()
    names = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert names == ["copy h2d", "double", "double", "double", "copy d2h"]
    assert trace.name in done.stdout


def test_the_traceback_of_a_finding_ends_at_the_line_of_the_test(project: Project) -> None:
    text = """
from windtunnel import f32, grid

@windtunnel.kernel
def races(x: f32[:]):
    x[0] = x[0] + grid(1)

def test_it(accelerator):
    accelerator.launch(races, 1, 64, accelerator.to_device(np.ones(1, np.float32)))
"""
    done = project.run(text)
    assert done.returncode == 1
    assert re.search(r"^>\s+accelerator.launch\(races", done.stdout, re.MULTILINE)
    assert "???" not in done.stdout
    assert "DataRace: races on h100-sxm-80gb: data race on element 0 of 'x'" in done.stdout
    assert "shadow_memory.py" not in done.stdout
    assert "shadow_memory.py" in project.run(text, "--full-trace").stdout


def test_the_same_test_takes_the_same_time_wherever_it_runs(project: Project) -> None:
    text = "def test_it(accelerator):\n    run(accelerator, launches=10)\n    print(f'SPENT {accelerator.clock_s!r}, {accelerator.energy_j!r}')\n"
    printed = project.run(text, "-s").stdout
    spent = next(line for line in printed.splitlines() if "SPENT" in line).split("SPENT ")[1]
    assert float(spent.split(",")[0]) > 0.0
    tests = f"""
@pytest.mark.parametrize("again", range(6))
def test_it(accelerator, again):
    run(accelerator, launches=10)
    assert (accelerator.clock_s, accelerator.energy_j) == pytest.approx(({spent}), rel=1e-12)
"""
    for done in (project.run(tests), project.run_in_processes(tests)):
        assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout


def test_a_real_device_that_is_not_here_fails_and_is_never_skipped(project: Project) -> None:
    # Of an Apple device: no back end reaches one from a host that runs these tests.
    text = "@pytest.mark.accelerator('apple-m1')\ndef test_it(accelerator):\n    run(accelerator)\n"
    done = project.run(text, "--accelerator", "real")
    assert done.returncode == 1 and "skipped" not in done.stdout and "not found on this host" in done.stdout
    both = project.run(text, "--accelerator", "both")
    assert both.returncode == 1 and "1 passed, 1 error" in both.stdout


def test_a_test_marked_emulated_never_runs_on_a_real_device(project: Project) -> None:
    text = "@pytest.mark.accelerator('apple-m1', emulated=True)\ndef test_it(accelerator):\n    run(accelerator)\n"
    for backend in ("real", "both", "emulated"):
        done = project.run(text, "--accelerator", backend)
        assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    wrong = project.run(text.replace("True", "1"))
    assert wrong.returncode == 1 and "emulated=1; expected True or False" in wrong.stdout


def test_faults_of_the_marker_must_strike_and_leaks_are_found_where_asked(project: Project) -> None:
    done = project.run(
        """
@pytest.mark.accelerator(faults={"kind": "out_of_memory", "call": 2})
def test_struck(accelerator):
    accelerator.empty(3)
    with pytest.raises(windtunnel.errors.DeviceOutOfMemory):
        accelerator.empty(3)

@pytest.mark.accelerator(faults="device_lost")
def test_missed(accelerator):
    pass

@pytest.mark.accelerator(leaks="error")
def test_leak(accelerator):
    run(accelerator)

@pytest.mark.accelerator(leaks="error")
def test_no_leak(accelerator):
    run(accelerator)[0].free()

@pytest.mark.accelerator(leek="error")
def test_slip(accelerator):
    pass
""",
    )
    assert done.returncode == 1
    assert "never occurred: device_lost" in done.stdout
    assert re.search(r"was left with 4,000 bytes allocated: 4,000 bytes at \S*test_it\.py:11\b", done.stdout), (
        done.stdout
    )
    assert "the marker accelerator does not take 'leek'" in done.stdout and "did you mean 'leaks'?" in done.stdout
    assert "4 passed, 3 errors" in done.stdout


def test_faults_of_the_fixture_are_armed_within_a_test_and_must_strike_before_it_ends(project: Project) -> None:
    done = project.run(
        """
OOM = windtunnel.errors.DeviceOutOfMemory

def test_struck(accelerator, accelerator_faults):
    accelerator.empty(3)
    plan = accelerator_faults({"kind": "out_of_memory"})
    with pytest.raises(OOM):
        accelerator.empty(3)
    assert plan.log and plan.seed == 11

def test_it_needs_no_other_fixture(accelerator_faults):
    assert accelerator_faults({"kind": "ecc", "probability": 0.5}, seed=3).seed == 3

@pytest.mark.accelerator(seed=5)
def test_the_marker_has_the_seed(accelerator, accelerator_faults):
    assert accelerator_faults({"kind": "ecc", "probability": 0.5}).seed == 5

def test_a_plan_within_has_the_seed_too(accelerator):
    with accelerator.faults({"kind": "ecc", "probability": 0.5}) as plan:
        assert plan.seed == 11

def test_missed(accelerator_faults):
    accelerator_faults("device_lost", {"kind": "ecc", "probability": 0.5})

def test_failed_before_it_struck(accelerator_faults):
    accelerator_faults("device_lost")
    assert False, "the news"

@pytest.mark.accelerator(faults="device_lost")
def test_failed_before_the_marker_s_struck(accelerator):
    assert False, "the other news"

def test_slip(accelerator_faults):
    accelerator_faults({"kind": "out_of_memory", "cal": 3})

@pytest.mark.accelerator(faults={"knd": "ecc"})
def test_slip_of_the_marker(accelerator):
    pass

@pytest.mark.accelerator(faults={"kind": "ecc", "probability": 0.5})
def test_twice(accelerator_faults):
    accelerator_faults("device_lost")
""",
        "--accelerator-seed",
        "11",
    )
    assert "never occurred: device_lost (of 0 eligible calls); seed 11" in done.stdout
    assert "the news" in done.stdout and "the other news" in done.stdout
    assert "a fault has no 'cal'" in done.stdout and "did you mean 'call'?" in done.stdout
    assert "a fault has no 'knd'" in done.stdout and "did you mean 'kind'?" in done.stdout
    assert "faults are armed already" in done.stdout
    # Errors at teardown or setup: the missed fault and the marker's slip, and nothing of the tests that failed first.
    errors = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    of = "test_it.py::{}[h100-sxm-80gb]".format
    assert errors == [f"ERROR {of('test_missed')}", f"ERROR {of('test_slip_of_the_marker')}"]
    assert "4 failed, 5 passed, 2 errors" in done.stdout


def test_an_unknown_device_fails_with_the_nearest_name(project: Project) -> None:
    done = project.run("@pytest.mark.accelerator('h100-sxm-80g')\ndef test_it(accelerator):\n    pass\n")
    assert done.returncode == 1 and "did you mean 'h100-sxm-80gb'" in done.stdout


def test_the_marker_is_documented(project: Project) -> None:
    done = project.run("", "--markers")
    assert "@pytest.mark.accelerator(*devices" in done.stdout


def test_the_page_for_strangers_works_as_it_is_written(project: Project) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks[0].startswith("# test_add.py\n")
    (project.folder / "test_add.py").write_text("\n\n".join(blocks))
    done = project.run("", "test_add.py")
    assert done.returncode == 0 and "8 passed" in done.stdout, done.stdout
    shown = "allocate on l4: no memory is free (fault 'out_of_memory call=3', seed 0): cuda error 2"
    assert shown in page
    again = project.run(
        """
@pytest.mark.accelerator("l4", faults={"kind": "out_of_memory", "call": 3})
def test_it(accelerator):
    for _ in range(3):
        accelerator.empty(3)
""",
    )
    assert shown in again.stdout


ORDERS = """
from windtunnel import atomic, i32

@windtunnel.kernel
def lost_update(total: i32[:]):
    seen = atomic.add(total, 0, 0)
    atomic.exch(total, 0, seen + 1)

@pytest.mark.accelerator("l4", schedules=8)
def test_it(accelerator):
    total = accelerator.to_device(np.zeros(1, np.int32))
    accelerator.launch(lost_update, 1, 2, total)
    assert accelerator.to_host(total)[0] == 2
"""


def test_a_marker_runs_a_test_in_many_orders_and_a_seed_runs_a_failing_one_again(project: Project) -> None:
    done = project.run(ORDERS, "-vv")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    passed = re.findall(r"test_it\[(\S+)\] PASSED", done.stdout)
    assert len(failed) + len(passed) == 8
    assert failed
    assert passed, "some orders hide it"
    seed = int(re.findall(r"test_it\[l4-schedule(\d)\]", failed[0])[0])
    assert f"thread order: schedule {seed} (--accelerator-schedule {seed})" in done.stdout
    again = project.run(ORDERS, "--accelerator-schedule", str(seed))
    assert "1 failed" in again.stdout
    hidden = int(re.findall(r"l4-schedule(\d)", passed[0])[0])
    assert "1 passed" in project.run(ORDERS, "--accelerator-schedule", str(hidden)).stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--accelerator-schedules", "0"), "--accelerator-schedules 0: expected a number of at least 1"),
        (("--accelerator-schedule", "-1"), "--accelerator-schedule -1: expected a seed of at least 0"),
    ],
)
def test_schedules_that_are_none_are_refused(project: Project, options: tuple[str, ...], said: str) -> None:
    done = project.run(ORDERS, *options)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_all_tests_can_be_run_in_several_orders(project: Project) -> None:
    done = project.run("\ndef test_it(accelerator):\n    run(accelerator)\n", "--accelerator-schedules", "3")
    assert "3 passed" in done.stdout
