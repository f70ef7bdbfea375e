"""A project of a CuPy user: unmodified and without CuPy, its tests pass on an emulated device, and findings name its lines."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "cupy_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "ripple", ignore=shutil.ignore_patterns("__pycache__")))


def run_tests(project: Path, *options: str, expect: int) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", *options]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expect, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_nothing_of_the_project_imports_windtunnel() -> None:
    for path in PROJECT.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) windtunnel", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_the_wheel_has_the_headers_of_cupy(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for header in ("cupy/complex.cuh", "cupy/carray.cuh", "cuComplex.h"):
        assert f"windtunnel/csource/prelude/{header}" in names


def test_its_tests_pass(project: Path) -> None:
    said = run_tests(project, "--emulate", "cupy", expect=0)
    assert re.search(r"^11 passed", said, re.MULTILINE), said


def test_what_has_to_fail_fails_with_its_own_lines(project: Path) -> None:
    said = run_tests(project, "--emulate", "numba,cupy", "planted", expect=1)
    assert re.search(r"^9 failed, 1 passed, 1 error", said, re.MULTILINE), said
    lines = (project / "planted" / "test_planted.py").read_text(encoding="utf-8").splitlines()

    def line_of(text: str) -> int:
        return next(number for number, line in enumerate(lines, 1) if text in line)

    for text in (
        "OutOfBounds: beyond on h100-sxm-80gb: index 20 is out of bounds for 'a' of 20 elements, at line "
        f"{line_of('one too many')} of",
        f"writes it at line {line_of('no barrier after this')} of",
        f"test_planted.py:{line_of('nothing waits for the zeros')}: kernel 'cupy_add' on stream 1",
        f"OutOfBounds: shifted on h100-sxm-80gb: index 10 is out of bounds for 'x' of 10 elements, at line "
        f"{line_of('y = x[i + 1]')} of",
        f"UninitializedRead: cupy_sum on h100-sxm-80gb: uninitialised read of element 0 of an array of float64 (5,), "
        f"at line {line_of('cp.empty(5)')} of",
        "BudgetExceeded",
        "Leak: h100-sxm-80gb was left with 8,000 bytes allocated",
        f"test_planted.py:{line_of('stays in a list of the module')}",
        "the argument 'n' is 20.0 (float64); expected cupy.int32(...)",
        "TypeError: Unsupported type <class 'numpy.ndarray'>",
        "cupyx.scipy is not part of Windtunnel's cupyx",
    ):
        assert text in said, (text, said)
    # The frames inside Windtunnel explain nothing about the project.
    assert "windtunnel/emulator" not in said
