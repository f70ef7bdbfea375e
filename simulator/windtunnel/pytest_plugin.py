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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from windtunnel.pytest_findings import MarkerBudget, hidden_findings, mark_expected, note_expected_findings

if TYPE_CHECKING:
    from windtunnel.core.errors import Finding
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.faults import FaultPlan
    from windtunnel.simulation.run import PlacementRun, Run

_DEFAULT_DEVICE = "h100-sxm-80gb"
_REAL, _EMULATED = "real", "emulated"
_MARKER = (
    "accelerator(*devices, leaks='ignore', findings='error', faults=(), seed=None, interval=None, schedules=None, "
    "strict=False, counted=True, emulated=False): run the test on each of these devices (SKU or SKU@API; default "
    f"{_DEFAULT_DEVICE}). leaks='error' fails a test that leaves buffers allocated; findings='ignore' lets a test "
    "catch findings itself; faults are armed for the whole test and must occur; schedules=64 runs it 64 times, each "
    "with the threads of its kernels in a different order; strict=True reports unordered writes of equal values too; "
    "counted=False prices kernels as if they moved their arrays once, and not by their counted work; emulated=True "
    "runs it on emulated devices only. time_s=2e-3, energy_j, launches and copied_bytes are budgets of the test."
)
_OPTIONS = ("leaks", "findings", "faults", "seed", "interval", "schedules", "strict", "counted", "emulated")
_LIMITS = ("time_s", "energy_j", "launches", "copied_bytes")
"""The budgets that a marker may state; of a test with the fixture, and of a test under ``--emulate``."""
_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the call phase of the test failed."""


@dataclass
class _UnderTest:
    """The device of a test, its settings, and what there was before: usage and injected faults."""

    accelerator: Accelerator
    seed: int
    interval: str
    schedule: int | None
    trace: list[Any]
    before: tuple[float, float, int, int]
    injected: int


_DEVICE: pytest.StashKey[_UnderTest] = pytest.StashKey()


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

        options = early_config.known_args_namespace
        if options.accelerator != _EMULATED:
            raise pytest.UsageError(
                f"--accelerator {options.accelerator} beside --emulate {given}, which runs programs on emulated devices"
            )
        device = early_config.getini("accelerator_device") or _DEFAULT_DEVICE
        pytest_hooks.begin(given, device, options.accelerator_interval)
        early_config.pluginmanager.register(_EmulatedPrograms(), "windtunnel-emulate")


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
    if metafunc.config.getoption("--emulate"):
        return  # see _EmulatedPrograms
    if "accelerator" not in metafunc.fixturenames:
        if any(marker.name == "accelerator" for marker in item.own_markers):
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
    if request.config.getoption("--emulate"):
        yield request.getfixturevalue("emulated_program")
        return
    case = getattr(request, "param", None)
    if case is None:  # requested while the test runs
        cases = _cases(request.node, request.config)
        if len(cases) > 1:
            pytest.fail("a test that requests the fixture while it runs cannot have several devices", pytrace=False)
        case = cases[0]
    options = _options_of(request.node)
    opened = _open(
        case, _interval(request, options), strict=options.get("strict", False), counted=options.get("counted", True)
    )
    try:
        with _under_test(request, opened, options, case.schedule):
            yield opened
    finally:
        opened.close()


class _EmulatedPrograms:
    """Under ``--emulate``, every test is on the device of the emulated program, which is the fixture too."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test once for each device that its marker names, and for each schedule."""
        marker = metafunc.definition.get_closest_marker("accelerator")
        cases = _cases(metafunc.definition, metafunc.config)
        has_devices = marker is not None and bool(marker.args)
        if has_devices or cases[0].schedule is not None or "accelerator" in metafunc.fixturenames:
            names = [case.name for case in cases]
            metafunc.parametrize("emulated_program", cases, ids=names, indirect=True)

    @pytest.fixture(autouse=True)
    def emulated_program(self, request: pytest.FixtureRequest) -> Iterator[Accelerator]:
        """The device of the emulated program: that of all tests, or one of this test."""
        from windtunnel.core.errors import WindtunnelError
        from windtunnel.emulate import pytest_hooks

        options = _options_of(request.node)
        case = getattr(request, "param", None)
        if case is None:
            case, *others = _cases(request.node, request.config)
            if others:
                warnings.warn(
                    pytest.PytestWarning(
                        f"{request.node.nodeid} cannot have parameters, such as a method of unittest.TestCase, so it "
                        f"runs once, as {case.name}, and not as {', '.join(other.name for other in others)}"
                    ),
                    stacklevel=1,
                )
        marker = request.node.get_closest_marker("accelerator")
        problem = ""
        is_own = (marker is not None and bool(marker.args)) or "interval" in options or options.get("leaks") == "error"
        try:
            with (
                pytest_hooks.device_of_test(
                    case.device if is_own else None,
                    {"interval": _interval(request, options)},
                    strict=options.get("strict", False),
                    counted=options.get("counted", True),
                    schedule=case.schedule,
                ) as device,
                _under_test(request, device, options, case.schedule),
            ):
                yield device
        except WindtunnelError as error:
            problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test for findings of its child processes, so that a test that is marked as xfail fails as expected."""
        from windtunnel.emulate import pytest_hooks

        yield
        self._check(item, (), pytest_hooks.findings_of_children())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test for findings of child processes that end later, and of fixtures of a larger scope."""
        from windtunnel.emulate import pytest_hooks

        yield
        of_children = pytest_hooks.findings_of_children()
        pytest_hooks.end_test()
        self._check(item, pytest_hooks.findings_of_all(), of_children)

    def _check(self, item: pytest.Item, findings: Sequence[Finding], of_children: Sequence[str]) -> None:
        marker = item.get_closest_marker("accelerator")
        options = {} if marker is None else marker.kwargs  # a wrong one has failed the test before
        hidden = hidden_findings(findings, options, of_children)
        if hidden:
            pytest.fail(hidden, pytrace=False)

    def pytest_unconfigure(self) -> None:
        """End the emulation in child processes."""
        from windtunnel.emulate import pytest_hooks

        pytest_hooks.end()


def _options_of(item: Any) -> dict[str, Any]:
    """Return the options of a test's markers; the closest one overrides the others. Fails the test for a wrong one."""
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("accelerator"))):
        options.update(marker.kwargs)
    _check_marker(options)
    return options


def _interval(request: pytest.FixtureRequest, options: Mapping[str, Any]) -> Any:
    return options.get("interval") or request.config.getoption("--accelerator-interval")


@contextmanager
def _under_test(
    request: pytest.FixtureRequest, opened: Accelerator, options: Mapping[str, Any], schedule: int | None
) -> Iterator[None]:
    """Arm the faults of a test's marker; fail the test for what it leaves, and for findings that it hides."""
    note_expected_findings()
    seed, faults = options.get("seed"), options.get("faults", ())
    before = opened.seed
    opened.seed = request.config.getoption("--accelerator-seed") if seed is None else seed
    tested = _UnderTest(
        opened, opened.seed, _interval(request, options), schedule, opened.start_trace(), _usage(opened),
        len(opened.injected_faults),
    )  # fmt: skip
    request.node.stash[_DEVICE] = tested
    try:
        with _armed(request, opened, (faults,) if isinstance(faults, (dict, str)) else faults):
            yield
            leak = opened.leak()
    finally:
        opened.context.stop_trace(tested.trace)
        opened.seed = before
        _disarm(request, opened)
    hidden = hidden_findings(tested.accelerator.findings, options)
    if options.get("leaks") == "error" and leak is not None:
        pytest.fail(f"{type(leak).__name__}: {leak}", pytrace=False)
    if hidden and not request.node.stash.get(_FAILED, False):
        pytest.fail(hidden, pytrace=False)


def _disarm(request: pytest.FixtureRequest, opened: Accelerator) -> None:
    """End the faults that a test has armed and left armed, so that they do not affect the next test."""
    left = opened.injector.disarm()
    if left is not None:
        faults = "; ".join(str(fault) for fault in left.faults)
        occurred = f"injected {len(left.log)} times" if left.log else "never injected"
        warnings.warn(
            pytest.PytestWarning(
                f"{request.node.nodeid} ends with faults armed ({faults}; {occurred}), which are disarmed now; use "
                "`with accelerator.faults(...)`, or the fixture accelerator_faults"
            ),
            stacklevel=1,
        )


def _usage(opened: Accelerator) -> tuple[float, float, int, int]:
    """Return the clock (s), the energy (J), the launches and the copied bytes so far."""
    return opened.clock_s, opened.energy_j, opened.counters.launches, opened.counters.copied_bytes


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
    for name, usual in (("leaks", "ignore"), ("findings", "error")):
        given = options.get(name, usual)
        if given not in ("ignore", "error"):
            wrong(f"{name}={given!r}", ("ignore", "error"), given)


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
    """Check the budgets that a test's marker states, and fail a test that hides findings."""
    tested = item.stash.get(_DEVICE, None)
    if tested is None:
        yield
        tested = item.stash.get(_DEVICE, None)  # opened while the test ran
        if tested is None:
            return
        options = _options_of(item)
    else:
        options = _options_of(item)
        limits = {name: options[name] for name in _LIMITS if name in options}
        with MarkerBudget(item, tested.accelerator, limits):
            yield
    hidden = hidden_findings(tested.accelerator.findings, options)
    if hidden:
        pytest.fail(hidden, pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the state of the device, the seed and a timeline to the report of a failing test."""
    hidden: list[dict[str, object]] = []
    if call.excinfo is not None:
        mark_expected(call.excinfo.value)  # pytest reports it, as a failure or as one that xfail expects
    if call.excinfo is not None and (_DEVICE in item.stash or item.config.getoption("--emulate")):
        hidden = _internal_modules(call.excinfo)
    for module in hidden:
        module["__tracebackhide__"] = True
    outcome: Any = yield
    for module in hidden:
        module.pop("__tracebackhide__", None)
    report = outcome.get_result()
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    if not report.failed or _DEVICE not in item.stash or "accelerator" not in getattr(item, "fixturenames", ()):
        return
    tested = item.stash[_DEVICE]
    opened, seed, schedule, interval = tested.accelerator, tested.seed, tested.schedule, tested.interval
    lines = [f"{opened!r}, seed {seed} (--accelerator-seed {seed})"]
    if schedule is not None:
        lines.append(f"thread order: schedule {schedule} (--accelerator-schedule {schedule})")
    clock_s, energy_j, launches, copied = (a - b for a, b in zip(_usage(opened), tested.before, strict=True))
    lines.append(
        f"clock {clock_s:.9g} s, energy {energy_j:.6g} J, {launches:,} launches, {copied:,} bytes copied, "
        f"{opened.allocated_bytes:,} allocated"
    )
    end = "" if interval == "best" else f", at the {interval} end of their 90% intervals"
    lines.append(f"least certain input of clock and energy: {opened.provenance}{end}")
    injected = opened.injected_faults[tested.injected :]
    if injected:
        lines += ["injected faults:", *(f"  {line}" for line in injected)]
    if tested.trace:
        try:
            lines.append(f"trace: {_write_trace(item, opened.name, tested.trace)}")
        except OSError as error:
            lines.append(f"trace: not written: {error}")
    report.sections.append((f"accelerator ({call.when})", "\n".join(lines)))


def _internal_modules(info: pytest.ExceptionInfo[BaseException]) -> list[dict[str, object]]:
    """Return the globals of Windtunnel's modules in the traceback of a finding, a device error or an exceeded budget.

    They explain nothing about the test, so the report hides them and the code that the emulator generates;
    ``--full-trace`` shows them.
    """
    is_ours = type(info.value).__module__.startswith("windtunnel.")  # also an error of an emulated interface
    if not is_ours and not isinstance(info.value, AssertionError):
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
