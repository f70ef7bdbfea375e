"""The pytest plugin: tests of accelerator code on emulated or real devices.

The fixture ``accelerator`` is the device under test. It is emulated, on a virtual clock, unless ``--accelerator real``
selects the real device, which must then be present. ``@pytest.mark.accelerator("h100-sxm-80gb", "l4")`` names the
devices; the test runs once on each. ``accelerator_faults`` arms faults during a test; each must occur before the test
ends. ``windtunnel_run`` simulates a scenario. ``--emulate numba,cupy`` runs the tests of a project for Numba CUDA or
CuPy on an emulated device. See docs/testing.md. The rest of Windtunnel is imported on first use.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.faults import FaultPlan
    from windtunnel.simulation.run import PlacementRun, Run

_DEFAULT_DEVICE = "h100-sxm-80gb"
_REAL, _EMULATED = "real", "emulated"
_MARKER = (
    "accelerator(*devices, leaks='ignore', faults=(), seed=None, interval=None, schedules=None, strict=False, "
    "counted=True, emulated=False): run the test on each of these devices (SKU or SKU@API; default "
    f"{_DEFAULT_DEVICE}). leaks='error' fails a test that leaves buffers allocated; faults are armed for the whole "
    "test and must occur; schedules=64 runs it 64 times, each with the threads of its kernels in a different order; "
    "strict=True reports unordered writes of equal values too; counted=False prices kernels as if they moved their "
    "arrays once, and not by their counted work; "
    "emulated=True runs it on emulated devices only. time_s=2e-3, energy_j, launches and copied_bytes are budgets of "
    "the test."
)
_OPTIONS = ("leaks", "faults", "seed", "interval", "schedules", "strict", "counted", "emulated")
_LIMITS = ("time_s", "energy_j", "launches", "copied_bytes")
"""The budgets that a marker may state; of a test with the fixture, and of a test under ``--emulate``."""
_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the call phase of the test failed."""
_OPENED: pytest.StashKey[list[Any]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the ini file."""
    group = parser.getgroup("accelerator", "accelerators under test (windtunnel)")
    group.addoption(
        "--accelerator",
        choices=(_EMULATED, _REAL, "both"),
        default=_EMULATED,
        help="run tests on emulated devices, on real ones (which must be present), or on both",
    )
    group.addoption("--accelerator-seed", type=int, default=0, help="seed of the random draws of faults")
    group.addoption(
        "--accelerator-interval",
        choices=("low", "best", "high"),
        default="best",
        help="the virtual clock uses the model's best estimate, or the low or high end of its 90%% interval",
    )
    group.addoption(
        "--accelerator-schedules",
        type=int,
        metavar="N",
        help="run each test N times, each with its kernels' threads in a different order (seeds 0 to N - 1)",
    )
    group.addoption(
        "--accelerator-schedule",
        type=int,
        metavar="SEED",
        help="run each test with its kernels' threads in the order of this seed",
    )
    group.addoption(
        "--emulate",
        metavar="INTERFACE",
        help="run tests of programs that are written for numba (Numba CUDA) or cupy, or both, on an emulated device",
    )
    parser.addini(
        "accelerator_device", f"the device of tests that do not name one (default {_DEFAULT_DEVICE})", default=""
    )
    group.addoption(
        "--accelerator-traces",
        metavar="DIR",
        default="windtunnel-traces",
        help="folder for the Perfetto timelines of failing tests",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Put emulated interfaces in the place of the real ones before anything of the project is imported."""
    given = early_config.known_args_namespace.emulate
    if given:
        from windtunnel.emulate import pytest_hooks

        pytest_hooks.begin(given, early_config.getini("accelerator_device") or _DEFAULT_DEVICE)
        early_config.pluginmanager.register(pytest_hooks, "windtunnel-emulate")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_report_header() -> str:
    """Return the line of pytest's header that states the version of Windtunnel."""
    from windtunnel.core.version import __version__

    return f"windtunnel: {__version__}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses ``accelerator`` once for each device, and on emulated or real devices as selected."""
    item = metafunc.definition
    if "accelerator" not in metafunc.fixturenames:
        if not metafunc.config.getoption("--emulate") and any(
            marker.name == "accelerator" for marker in item.own_markers
        ):
            warnings.warn(
                pytest.PytestWarning(
                    f"{item.nodeid} has the marker accelerator, but does not use the fixture accelerator"
                ),
                stacklevel=1,
            )
        return
    # A project may define its own fixture or parameter of this name.
    fixtures = metafunc._arg2fixturedefs.get("accelerator", ())
    if not fixtures or fixtures[-1].func.__module__ != __name__:
        return
    if any("accelerator" in _names_of(marker) for marker in item.iter_markers("parametrize")):
        return
    cases = _cases(item, metafunc.config)
    names = [case.name for case in cases]
    metafunc.parametrize("accelerator", cases, ids=names, indirect=True)


def _names_of(marker: pytest.Mark) -> list[str]:
    """The argument names of a parametrize marker."""
    given = marker.args[0] if marker.args else marker.kwargs.get("argnames", "")
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


class _Case(NamedTuple):
    """One run of a test."""

    device: str
    backend: str
    schedule: int | None

    @property
    def name(self) -> str:
        """The id of the run, in the brackets of the test name."""
        backend = "" if self.backend == _EMULATED else f"-{self.backend}"
        return f"{self.device}{backend}" + ("" if self.schedule is None else f"-schedule{self.schedule}")


def _cases(item: Any, config: pytest.Config) -> list[_Case]:
    """All runs of a test."""
    marker = item.get_closest_marker("accelerator")
    default = config.getini("accelerator_device") or _DEFAULT_DEVICE
    arguments = marker.args if marker is not None and marker.args else (default,)
    devices = [name for value in arguments for name in (value if isinstance(value, (list, tuple)) else (value,))]
    for name in devices:
        if not isinstance(name, str):
            raise pytest.UsageError(f"{item.nodeid}: {name!r} in the marker accelerator is not a device name")
    # A test of findings, which real devices do not have, says `emulated=True`.
    only_emulated = any(m.kwargs.get("emulated") for m in item.iter_markers("accelerator"))
    selected = _EMULATED if only_emulated else config.getoption("--accelerator")
    backends = (_EMULATED, _REAL) if selected == "both" else (selected,)
    return [
        _Case(device, backend, schedule)
        for device in devices
        for backend in backends
        for schedule in (_schedules(item, config) if backend == _EMULATED else [None])
    ]


def _schedules(item: Any, config: pytest.Config) -> Sequence[int | None]:
    """The seeds of the thread orders of a test; None for the fastest order. The command line overrides the marker."""
    seed = config.getoption("--accelerator-schedule")
    count = config.getoption("--accelerator-schedules")
    if seed is not None:
        if seed < 0:
            raise pytest.UsageError(f"--accelerator-schedule {seed}: expected a seed of at least 0")
        return [seed]
    source = "--accelerator-schedules"
    if count is None:
        marked = [m.kwargs["schedules"] for m in item.iter_markers("accelerator") if "schedules" in m.kwargs]
        count, source = (marked[0] if marked else None), f"{item.nodeid}: the marker accelerator has schedules"
    if count is None:
        return [None]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise pytest.UsageError(f"{source} {count!r}: expected a number of at least 1")
    return range(count)


@pytest.fixture
def accelerator(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    """The device under test: a new emulated device, or a real one.

    ``accelerator.expect(time_s=..., energy_j=..., launches=..., copied_bytes=...)`` asserts a budget,
    ``accelerator.faults({"kind": "out_of_memory", "call": 3})`` arms a fault.
    """
    if hasattr(request, "param"):
        case = request.param
    else:  # requested while the test runs
        cases = _cases(request.node, request.config)
        if len(cases) > 1:
            pytest.fail("a test that requests the fixture while it runs cannot have several devices", pytrace=False)
        case = cases[0]
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("accelerator"))):
        options.update(marker.kwargs)  # the closest marker overrides the others
    _check_marker(options)
    seed = options.get("seed")
    if seed is None:
        seed = request.config.getoption("--accelerator-seed")
    interval = options.get("interval") or request.config.getoption("--accelerator-interval")
    faults = options.get("faults", ())
    opened = _open(case, interval, strict=options.get("strict", False), counted=options.get("counted", True))
    opened.seed = seed
    log = opened.start_trace()
    request.node.stash[_OPENED] = [opened, seed, interval, log, case.schedule]
    try:
        with _armed(request, opened, (faults,) if isinstance(faults, (dict, str)) else faults):
            yield opened
            leak = opened.leak()
    finally:
        opened.close()
    if options.get("leaks") == "error" and leak is not None:
        pytest.fail(str(leak), pytrace=False)


@pytest.fixture
def accelerator_faults(request: pytest.FixtureRequest, accelerator: Accelerator) -> Iterator[Callable[..., FaultPlan]]:
    """Arm faults on ``accelerator`` until the end of the test, which fails if one of them never occurred.

    ``plan = accelerator_faults({"kind": "out_of_memory", "call": 3}, "hang")``; ``plan.log`` lists the faults that
    occurred. Random draws use ``seed=``, else the seed of the marker, else ``--accelerator-seed``. Call it once with
    all faults.
    """
    with ExitStack() as until_the_end:

        def arm(*faults: Any, seed: int | None = None) -> FaultPlan:
            plan: FaultPlan = until_the_end.enter_context(_armed(request, accelerator, faults, seed))
            return plan

        yield arm


@contextmanager
def _armed(
    request: pytest.FixtureRequest, accelerator: Accelerator, faults: Sequence[Any], seed: int | None = None
) -> Iterator[Any]:
    from windtunnel.core.errors import InputError
    from windtunnel.runtime.faults import FaultNotFired

    if not faults:
        yield None
        return
    try:
        armed = accelerator.faults(*faults, seed=seed)
        plan = armed.__enter__()
    except InputError as error:
        problem = str(error)
    else:
        yield plan
        # A fixture does not see the exception of its test. If the test failed, a fault that did not occur is no news.
        failed = pytest.fail.Exception if request.node.stash.get(_FAILED, False) else None
        try:
            armed.__exit__(failed, None, None)
            return
        except FaultNotFired as error:
            problem = str(error)
    pytest.fail(problem, pytrace=False)


def _check_marker(options: Mapping[str, object]) -> None:
    from windtunnel.core.errors import InputError, list_choices, nearest

    def wrong(problem: str, names: tuple[str, ...], given: Any) -> None:
        error = InputError(
            f"the marker accelerator does not take {problem}",
            expected=list_choices(names),
            nearest=nearest(str(given), names),
        )
        pytest.fail(str(error), pytrace=False)

    for name in options:
        if name not in _OPTIONS + _LIMITS:
            wrong(f"'{name}'", _OPTIONS + _LIMITS, name)
    faults = options.get("faults", ())
    if not isinstance(faults, (str, dict, list, tuple)):
        pytest.fail(
            f"the marker accelerator has faults={faults!r}; expected a fault or a list of faults", pytrace=False
        )
    seed = options.get("seed")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        pytest.fail(f"the marker accelerator has seed={seed!r}; expected an integer of at least 0", pytrace=False)
    for name in ("emulated", "strict", "counted"):
        if not isinstance(options.get(name, False), bool):
            pytest.fail(f"the marker accelerator has {name}={options[name]!r}; expected True or False", pytrace=False)
    interval = options.get("interval")
    if interval not in (None, "low", "best", "high"):
        wrong(f"interval={interval!r}", ("low", "best", "high"), interval)
    leaks = options.get("leaks", "ignore")
    if leaks not in ("ignore", "error"):
        wrong(f"leaks={leaks!r}", ("ignore", "error"), leaks)


def _open(case: _Case, interval: Any, *, strict: bool, counted: bool) -> Accelerator:
    from windtunnel.core.errors import WindtunnelError
    from windtunnel.library.devices import open_device, open_real_device

    try:
        if case.backend == _REAL:
            return open_real_device(case.device)
        return open_device(case.device, interval=interval, schedule=case.schedule, strict=strict, counted=counted)
    except WindtunnelError as error:
        problem = str(error)
    # A device that is not present fails the test, because a skipped test proves nothing.
    pytest.fail(problem, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check the budgets that a test's marker states."""
    opened = item.stash.get(_OPENED, [None])[0]
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("accelerator"))):
        options.update(marker.kwargs)
    limits = {name: options[name] for name in _LIMITS if name in options}
    if opened is None or not limits:
        yield
        return
    with opened.expect(**limits):
        yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the state of the device, the seed and a timeline to the report of a failing test."""
    hidden: list[dict[str, object]] = []
    if call.excinfo is not None and (_OPENED in item.stash or item.config.getoption("--emulate")):
        hidden = _internal_modules(call.excinfo)
    for module in hidden:
        module["__tracebackhide__"] = True
    outcome: Any = yield
    for module in hidden:
        module.pop("__tracebackhide__", None)
    report = outcome.get_result()
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    if not report.failed or _OPENED not in item.stash:
        return
    opened, seed, interval, log, schedule = item.stash[_OPENED]
    lines = [f"{opened!r}, seed {seed} (--accelerator-seed {seed})"]
    if schedule is not None:
        lines.append(f"thread order: schedule {schedule} (--accelerator-schedule {schedule})")
    lines.append(
        f"clock {opened.clock_s:.9g} s, energy {opened.energy_j:.6g} J, {opened.counters.launches:,} launches, "
        f"{opened.counters.copied_bytes:,} bytes copied, {opened.allocated_bytes:,} allocated"
    )
    end = "" if interval == "best" else f", at the {interval} end of their 90% intervals"
    lines.append(f"least certain input of clock and energy: {opened.provenance}{end}")
    if opened.injected_faults:
        lines += ["injected faults:", *(f"  {line}" for line in opened.injected_faults)]
    if log:
        try:
            lines.append(f"trace: {_write_trace(item, opened.name, log)}")
        except OSError as error:
            lines.append(f"trace: not written: {error}")
    report.sections.append((f"accelerator ({call.when})", "\n".join(lines)))


def _internal_modules(info: pytest.ExceptionInfo[BaseException]) -> list[dict[str, object]]:
    """Return the globals of Windtunnel's modules in the traceback of a finding, a device error or an exceeded budget.

    They explain nothing about the test, so the report hides them and the code that the emulator generates;
    ``--full-trace`` shows them.
    """
    from windtunnel.core.errors import WindtunnelError

    if not isinstance(info.value, (WindtunnelError, AssertionError)):
        return []
    package = str(Path(__file__).parent)
    return [entry.frame.f_globals for entry in info.traceback if str(entry.path).startswith((package, "<"))]


def _write_trace(item: pytest.Item, device: str, log: list[Any]) -> Path:
    import json
    import zlib

    folder = Path(item.config.getoption("--accelerator-traces"))
    folder.mkdir(parents=True, exist_ok=True)
    # The node id is unique among the workers of a parallel run. The checksum tells apart ids that differ only in
    # characters that a file name cannot have.
    plain = re.sub(r"[^\w.-]+", "_", item.nodeid)[-160:]
    path = folder / f"{plain}-{zlib.crc32(item.nodeid.encode()):08x}.json"
    events = [
        {
            "name": span.name,
            "ph": "X",
            "ts": span.start / 1e6,
            "dur": (span.end - span.start) / 1e6,
            "pid": device,
            "tid": f"{span.engine} / stream {span.stream}",
        }
        for span in log
        if span.end > span.start
    ]
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
    return path


@pytest.fixture
def windtunnel_run() -> Callable[..., Run | PlacementRun]:
    """Simulate a scenario, given as a path or as the plain data of a file, and return its Run.

    ``windtunnel_run("fleet.yaml", changes=["fleet[0].count=3"]).result.latency_s.p99.value``
    """

    def simulate(scenario: Any, **options: Any) -> Run | PlacementRun:
        from windtunnel.core.yamlfile import Document
        from windtunnel.simulation import run as simulation
        from windtunnel.simulation.run import checked

        stated = checked(Document(scenario, "scenario")) if isinstance(scenario, dict) else scenario
        return simulation.run(stated, **options)

    return simulate
