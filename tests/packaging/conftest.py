"""The wheel, and a fresh environment with it: made once for a whole run of the suite, whichever workers ask."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def _needed(requirements: Iterable[Requirement]) -> list[Distribution]:
    """Return the distributions that these requirements and their own requirements name, of this environment.

    Each is of a version that every requirement of it allows.
    """
    found: dict[tuple[str, frozenset[str]], Distribution] = {}
    wanted = list(requirements)
    while wanted:
        one = wanted.pop()
        installed = distribution(one.name)
        assert one.specifier.contains(installed.version, prereleases=True), (one, installed.version)
        if (one.name, frozenset(one.extras)) not in found:
            found[one.name, frozenset(one.extras)] = installed
            wanted += _own_requirements(installed, one.extras)
    return list(found.values())


def _own_requirements(of: Distribution, extras: Iterable[str]) -> list[Requirement]:
    named = ("", *extras)
    stated = [Requirement(text) for text in of.requires or ()]
    return [one for one in stated if not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in named)]


def _link(installed: Distribution, into: Path) -> None:
    """Let an environment have a distribution of this one, by links: nothing is downloaded, unpacked or compiled."""
    for name in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
        link = into / name
        if not link.is_symlink():
            link.symlink_to(Path(str(installed.locate_file(name))).resolve())


@pytest.fixture(scope="session")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a new environment that holds nothing but the wheel with its extra for C, what it needs, pytest and its workers.

    The wheel's own metadata say what it needs. The machine code of this checkout is copied beside the same sources.
    """
    with _once(tmp_path_factory, "fresh") as (home, empty):
        binaries = home / "venv" / "bin"
        if empty:
            _run(sys.executable, "-m", "venv", "--without-pip", home / "venv", cwd=home)
            install = ("install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check")
            _run(sys.executable, "-m", "pip", "--python", binaries / "python", *install, wheel, cwd=home)
            (packages,) = (home / "venv" / "lib").glob("python*/site-packages")
            (metadata,) = packages.glob("windtunnel-*.dist-info")
            asked = _own_requirements(Distribution.at(metadata), ["check"])
            for needed in _needed([*asked, Requirement("pytest"), Requirement("pytest-xdist")]):
                _link(needed, packages)
            machine_code = packages / "windtunnel" / "engine" / "transitions" / "__pycache__"
            machine_code.mkdir(exist_ok=True)
            for file in (ROOT / "simulator" / "windtunnel" / "engine" / "transitions" / "__pycache__").glob("*.o"):
                shutil.copy(file, machine_code)
    return binaries
