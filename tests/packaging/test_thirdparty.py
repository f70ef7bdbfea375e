"""A stranger's project with the wheel: its tests pass, and those that have to fail say all that is needed to mend them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]
THIRD_PARTY = Path(__file__).parent / "thirdparty"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(THIRD_PARTY, tmp_path / "heat", ignore=shutil.ignore_patterns("__pycache__")))


def test_its_tests_pass_alone_and_in_parallel(fresh: Path, run: Run, project: Path) -> None:
    for workers in ((), ("-n", "2")):
        done = run(fresh / "python", "-m", "pytest", "-q", *workers, cwd=project)
        assert re.search(r"^23 passed in", done.stdout, re.MULTILINE), done.stdout
    where = run(fresh / "python", "-c", "import windtunnel; print(windtunnel.__file__)", cwd=project).stdout
    assert Path(where.strip()).is_relative_to(fresh.parent)
    assert not (project / "windtunnel-traces").exists()


def test_what_has_to_fail_fails_with_the_seed_the_trace_and_the_faults_that_struck(
    fresh: Path, run: Run, project: Path
) -> None:
    options = ("-q", "--accelerator-seed", "42", "--accelerator-traces", "traces")
    said = run(fresh / "python", "-m", "pytest", *options, "-n", "2", "planted", cwd=project, expect=1).stdout
    # Of seven, three fail when they are over: what never struck, what was left; and a device that is unknown, before.
    assert re.search(r"^4 failed, 2 passed, 3 errors in", said, re.MULTILINE), said
    parts = dict(re.findall(r"^_+ (?:ERROR at \w+ of )?test_(\w+)\[\S+ _+$(.*?)(?=^_{4,} |^=)", said, re.M | re.S))
    expected = {
        "over_budget": ("BudgetExceeded", "launches 10 (limit 9)", "time_s "),
        "device_lost": (
            "launch spread on h100-sxm-80gb: the device is lost (fault 'device_lost on=launch call=4', seed 42)",
            "injected faults:\n  slow_copy injected into copy_in at ",
            "  device_lost on=launch call=4 injected into launch spread at ",
            "3 launches, 256 bytes copied, 0 allocated",
        ),
        "by_chance": ("(fault 'launch_failure probability=0.2', seed 42)", "injected faults:\n  launch_failure"),
        "never_struck": ("never occurred: link_down call=3 (of 2 eligible calls); seed 42",),
        "leak": ("l4 was left with 4,000 bytes allocated",),
        "unknown_key": ("a fault has no 'hang'", "did you mean 'watchdog_timeout_s'?"),
        "unknown_device": ("did you mean 'l4'?",),
    }
    assert set(parts) == set(expected)
    for test, texts in expected.items():
        for text in texts:
            assert text in parts[test], (test, text, parts[test])
        if test != "unknown_device":
            assert "seed 42 (--accelerator-seed 42)" in parts[test]
    for test in ("over_budget", "device_lost", "by_chance", "never_struck"):
        trace = re.search(r"^trace: (\S+)$", parts[test], re.M)
        assert trace is not None and test in trace[1]
        names = [event["name"] for event in json.loads((project / trace[1]).read_text())["traceEvents"]]
        assert names[0] == "copy h2d" and set(names[1:]) <= {"spread", "copy d2h"}
    # The same seed, and the same launch fails, also in one process; another, and another does.
    by_chance = [*options, "planted", "-k", "by_chance"]
    again = run(fresh / "python", "-m", "pytest", *by_chance, cwd=project, expect=1).stdout
    other = run(fresh / "python", "-m", "pytest", *by_chance, "--accelerator-seed", "43", cwd=project, expect=1).stdout
    struck = [
        re.findall(r"injected into launch spread at (\S+) s", text) for text in (parts["by_chance"], again, other)
    ]
    assert struck[0] == struck[1] != struck[2] and len(struck[0]) == 1


def test_pytest_lists_the_marker_and_the_fixtures(fresh: Path, run: Run, project: Path) -> None:
    markers = run(fresh / "python", "-m", "pytest", "--markers", cwd=project).stdout
    assert (
        "@pytest.mark.accelerator(*devices, leaks='ignore', findings='error', faults=(), seed=None, interval=None, schedules=None, strict=False, counted=True, emulated=False): run the test"
        in markers
    )
    fixtures = run(fresh / "python", "-m", "pytest", "--fixtures", "planted", cwd=project).stdout
    for name, says in (
        ("accelerator", "The device under test: a new emulated device, or a real one."),
        ("accelerator_faults", "Arm faults on ``accelerator`` until the end of the test"),
        ("windtunnel_run", "Simulate a scenario"),
    ):
        assert re.search(rf"^{name} -- .*\n +{re.escape(says)}", fixtures, re.M), fixtures
