"""A project of a Numba user with the wheel: unmodified, its tests pass on an emulated device, and findings name its lines."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]
PROJECT = Path(__file__).parent / "numba_project"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "orbit", ignore=shutil.ignore_patterns("__pycache__")))


def test_nothing_of_the_project_imports_windtunnel() -> None:
    for path in PROJECT.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) windtunnel", path.read_text(encoding="utf-8"), re.MULTILINE), path


def test_its_tests_pass_alone_and_in_parallel(fresh: Path, run: Run, project: Path) -> None:
    for workers in ((), ("-n", "2")):
        done = run(fresh / "python", "-m", "pytest", "-q", "--emulate", "numba", *workers, cwd=project)
        assert re.search(r"^8 passed", done.stdout, re.MULTILINE), done.stdout


def test_what_has_to_fail_fails_with_its_own_lines(fresh: Path, run: Run, project: Path) -> None:
    options = ("-q", "--emulate", "numba", "planted")
    said = run(fresh / "python", "-m", "pytest", *options, cwd=project, expect=1).stdout
    assert re.search(r"^4 failed", said, re.MULTILINE), said
    lines = (project / "planted" / "test_planted.py").read_text(encoding="utf-8").splitlines()

    def line_of(text: str) -> int:
        return next(number for number, line in enumerate(lines, 1) if text in line)

    for text in (
        f"OutOfBounds: beyond on h100-sxm-80gb: index 20 is out of bounds for 'a' of 20 elements, at line "
        f"{line_of('a[i] += 1')}",
        f"writes it at line {line_of('held[t] = a[t]')}",
        "BudgetExceeded",
        f"test_planted.py:{line_of('held = [1.0, 2.0]')}:",
    ):
        assert text in said, (text, said)
    # The frames inside Windtunnel explain nothing about the project.
    assert "windtunnel/emulator" not in said


def test_a_program_is_emulated_and_ends_with_its_own_status(fresh: Path, run: Run, project: Path) -> None:
    program = project / "main.py"
    program.write_text(
        "import sys\nimport numpy as np\nfrom numba import cuda\n\n\n@cuda.jit\ndef double(a):\n    i = cuda.grid(1)\n"
        "    a[i] *= 2\n\n\na = np.ones(int(sys.argv[1]))\ndouble[1, 32](a)\nprint(a.sum())\nsys.exit(7)\n",
        encoding="utf-8",
    )
    done = run(fresh / "windtunnel", "emulate", "--device", "l4", program, "32", cwd=project, expect=7)
    assert done.stdout == "64.0\n"
    found = run(fresh / "windtunnel", "emulate", program, "20", cwd=project, expect=1)
    assert "OutOfBounds: double on h100-sxm-80gb: index 20 is out of bounds for 'a'" in found.stderr
    assert f'File "{program}", line 13' in found.stderr and "windtunnel/emulator" not in found.stderr
    unknown = run(fresh / "windtunnel", "emulate", "--device", "l44", program, cwd=project, expect=2)
    assert "did you mean 'l4'?" in unknown.stderr
