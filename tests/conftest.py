"""What every test shares: small scenarios as plain data, and a run that is always checked."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

# One thread of linear algebra a process: the number of threads changes the last digits of products, and two workers on
# two cores otherwise run four threads that spin. It must be set before NumPy is imported.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# No test fails because a process or a driver answers slowly. Child processes inherit it.
os.environ.setdefault("WINDTUNNEL_TIMEOUT_FACTOR", "30")

# Mesa and the Vulkan loader warn where it is not set. Every test finds it set, so that no test depends on another.
if "XDG_RUNTIME_DIR" not in os.environ:
    _RUNTIME_FOLDER = tempfile.TemporaryDirectory(prefix="windtunnel-tests-")
    os.environ["XDG_RUNTIME_DIR"] = _RUNTIME_FOLDER.name

# A shell starts a command in the background with SIGINT ignored, and the children of the tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]

# Deterministic in CI, so that a red build is a changed build; by hand Hypothesis explores.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("explore" if os.environ.get("HYPOTHESIS_EXPLORE") else "ci")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def windtunnel_command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of Windtunnel in this process, in the root of the repository; the arguments are its words.

    Tests of the process itself (signals, pipes, imports) start a process of their own.
    """
    from windtunnel.cli.main import main

    def command(*words: str | Path, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        arguments = [str(word) for word in words]
        capfd.readouterr()
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.chdir(ROOT)
            patch.setenv("COLUMNS", "200")
            # Some outputs record the command.
            patch.setattr("sys.argv", ["windtunnel", *arguments])
            main(arguments)
        code = ended.value.code
        assert isinstance(code, int)
        printed = capfd.readouterr()
        assert expect is None or code == expect, printed.err
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return command


AVX512 = ("aes", "avx2", "avx512f", "vaes")


@pytest.fixture
def describe_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Replace what the operating system reports about this host, so that no law depends on where the tests run."""
    from windtunnel_models import host
    from windtunnel_models.catalogue import shipped_catalogue

    def forget() -> None:
        host.host_spec.cache_clear()
        shipped_catalogue.cache_clear()

    def describe(
        cores: int = 2, clock_hz: float = 2.1e9, llc_bytes: float = 32e6, flags: Sequence[str] = AVX512
    ) -> None:
        stated = host._Facts("a processor", "a vendor", cores, clock_hz, clock_hz, 16e9, llc_bytes, frozenset(flags))
        monkeypatch.setattr(host, "_facts", lambda: stated)
        forget()

    yield describe
    monkeypatch.undo()
    forget()


def queue_scenario(**changes: Any) -> dict[str, Any]:
    """An M/M/2 at load 0.8; top-level keys can be replaced."""
    data: dict[str, Any] = {
        "schema": 1,
        "name": "queue",
        "seed": 5,
        "fleet": [{"device": "server", "count": 2, "power": {"idle": "60 W", "max": "300 W"}}],
        "workload": [
            {
                "name": "calls",
                "arrivals": {"process": "poisson", "rate": "1600 /s"},
                "ops": [{"service": {"distribution": "exponential", "mean": "1 ms"}}],
            }
        ],
        "policy": "fifo",
        "stop": {"jobs": 4000},
    }
    return data | changes


@pytest.fixture
def queue() -> Any:
    return queue_scenario
