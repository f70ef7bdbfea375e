"""The wheel, and a fresh environment with it: made once for a whole run of the suite, whichever workers ask."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Projects of their own, which are run from a copy, in an environment of its own.
collect_ignore = ["thirdparty", "numba_project", "cupy_project", "kernel_project"]


def _run(*command: str | Path, cwd: Path, expect: int = 0) -> subprocess.CompletedProcess[str]:
    # None of this run's own: its packages would stand before those of the wheel, its options before a project's.
    hidden = ("PYTEST_", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == expect, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="session")
def run() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command that has to end with ``expect`` (0)."""
    return _run


@contextmanager
def _once(factory: pytest.TempPathFactory, name: str) -> Iterator[tuple[Path, bool]]:
    """(a folder that the workers of a run share, whether it is to be filled): by one of them, while the others wait."""
    base = factory.getbasetemp()
    shared = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / f"shared-{name}"
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared, not (shared / "done").exists()
        (shared / "done").touch()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with _once(tmp_path_factory, "dist") as (out, empty):
        if empty:
            _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, cwd=ROOT)
        (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds nothing but the wheel with its extra for C, what it needs, pytest and its workers."""
    with _once(tmp_path_factory, "fresh") as (home, empty):
        binaries = home / "venv" / "bin"
        if empty:
            _run(sys.executable, "-m", "venv", home / "venv", cwd=home)
            constraints = ROOT / ".ci" / "constraints.txt"
            # Without compiling: most of what is installed is never imported.
            quiet = ("-q", "--disable-pip-version-check", "--no-compile")
            wanted = (f"{wheel}[check]", "pytest", "pytest-xdist")
            _run(binaries / "python", "-m", "pip", "install", *quiet, "-c", constraints, *wanted, cwd=home)
    return binaries
