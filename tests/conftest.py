"""What every test shares: small scenarios as plain data, and a run that is always checked."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import tempfile
from collections import Counter
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

# No test finds what another one, or an earlier version of it, has computed.
os.environ.setdefault("WINDTUNNEL_KEEP_TABLES", "0")

# What is compiled once for all workers of a run; they inherit the name of the folder.
if "WINDTUNNEL_TESTS_FOLDER" not in os.environ:
    _SHARED_FOLDER = tempfile.TemporaryDirectory(prefix="windtunnel-tests-")
    os.environ["WINDTUNNEL_TESTS_FOLDER"] = _SHARED_FOLDER.name

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


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of all further garbage collections; it stays until the end anyway."""
    gc.collect()
    gc.freeze()


# Processor time by file and by test: what they cost, however busy the machine is.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-times", type=int, default=0, metavar="N", help="show the N files and tests that took most processor time"
    )


def _cpu_s() -> float:
    """Return the processor time of this process and of those that it started and that ended."""
    return sum(os.times()[:4])


class CpuTimes:
    """Measures each phase of each test where it runs, and adds the times up where they are reported.

    A fixture of a module counts for the first test that uses it.
    """

    def __init__(self) -> None:
        self.since_s = 0.0
        self.by_file: Counter[str] = Counter()
        self.by_test: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self.since_s = _cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[None]:
        report: Any = yield
        now_s = _cpu_s()
        report.cpu_s, self.since_s = now_s - self.since_s, now_s  # a worker sends the attributes of a report
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        cpu_s = getattr(report, "cpu_s", 0.0)
        self.by_file[report.nodeid.partition("::")[0]] += cpu_s
        self.by_test[report.nodeid] += cpu_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        terminalreporter.section(f"processor time: {self.by_file.total():.0f} s in all")
        for times in (self.by_file, self.by_test):
            for name, cpu_s in times.most_common(config.getoption("--cpu-times")):
                terminalreporter.line(f"{cpu_s:7.1f} s  {name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cpu-times"):
        config.pluginmanager.register(CpuTimes())


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


@pytest.fixture
def stated_host(describe_host: Callable[..., None]) -> None:
    """The model of the host is that of two stated cores."""
    describe_host()


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
