"""The pytest plugin: accelerators in tests, without hardware. Imports nothing of Windtunnel's until it is used.

``accelerator`` is a device under test: emulated, on a virtual clock, unless ``--accelerator real`` asks for the real
one, which then has to be there. ``@pytest.mark.accelerator("h100-sxm-80gb", "l4")`` says which; several run the test
once on each. ``accelerator_faults`` arms faults within a test, which must strike before it ends. ``windtunnel_run``
simulates a scenario. See docs/testing.md.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from windtunnel.runtime.accelerator import Accelerator
    from windtunnel.runtime.faults import FaultPlan
    from windtunnel.simulation.run import Run

_USUAL = "h100-sxm-80gb"
_REAL, _EMULATED = "real", "emulated"
_MARKER = (
    "accelerator(*devices, leaks='ignore', faults=(), seed=None, interval=None, schedules=None): run the test on each "
    f"of these devices (SKU or SKU@API; {_USUAL} unless given). leaks='error' fails a test that leaves buffers "
    "allocated; faults are armed for the whole test and must strike; schedules=64 runs it so many times, each with the "
    "threads of its kernels in another order."
)
_OPTIONS = ("leaks", "faults", "seed", "interval", "schedules")
_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether the test's own part failed."""
_OPENED: pytest.StashKey[list[Any]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line, and of the ini file."""
    group = parser.getgroup("accelerator", "accelerators under test (windtunnel)")
    group.addoption(
        "--accelerator",
        choices=(_EMULATED, _REAL, "both"),
        default=_EMULATED,
        help="run tests on emulated devices, on real ones (which must be present), or on both",
    )
    group.addoption("--accelerator-seed", type=int, default=0, help="seed of what faults draw")
    group.addoption(
        "--accelerator-interval",
        choices=("low", "best", "high"),
        default="best",
        help="the virtual clock takes the model's best values, or an end of their 90%% intervals",
    )
    group.addoption(
        "--accelerator-schedules",
        type=int,
        metavar="N",
        help="run each test N times, each with its kernels' threads in another order (seeds 0 to N - 1)",
    )
    group.addoption(
        "--accelerator-schedule",
        type=int,
        metavar="SEED",
        help="run each test with its kernels' threads in the order of this seed",
    )
    parser.addini("accelerator_device", f"the device of tests that name none ({_USUAL} unless given)", default="")
    group.addoption(
        "--accelerator-traces",
        metavar="DIR",
        default="windtunnel-traces",
        help="where a failing test leaves what its device did, for Perfetto",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_report_header() -> str:
    """One line in pytest's header, so that a log says which Windtunnel a test ran with."""
    from windtunnel.core.version import __version__

    return f"windtunnel: {__version__}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``accelerator`` runs once for each device, and each way that was asked for."""
    item = metafunc.definition
    if "accelerator" not in metafunc.fixturenames:
        if any(marker.name == "accelerator" for marker in item.own_markers):
            warnings.warn(
                pytest.PytestWarning(f"{item.nodeid} has the marker accelerator, and does not ask for the fixture"),
                stacklevel=1,
            )
        return
    # A project may have a fixture, or a parameter, of this name for itself.
    fixtures = metafunc._arg2fixturedefs.get("accelerator", ())
    if not fixtures or fixtures[-1].func.__module__ != __name__:
        return
    if any("accelerator" in _names_of(marker) for marker in item.iter_markers("parametrize")):
        return
    cases = _cases(item, metafunc.config)
    names = [case.name for case in cases]
    metafunc.parametrize("accelerator", cases, ids=names, indirect=True)


def _names_of(marker: pytest.Mark) -> list[str]:
    """The arguments that a parametrize marker gives values."""
    given = marker.args[0] if marker.args else marker.kwargs.get("argnames", "")
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


class _Case(NamedTuple):
    """A run of a test."""

    device: str
    way: str
    schedule: int | None

    @property
    def name(self) -> str:
        """What its name has in brackets."""
        way = "" if self.way == _EMULATED else f"-{self.way}"
        return f"{self.device}{way}" + ("" if self.schedule is None else f"-schedule{self.schedule}")


def _cases(item: Any, config: pytest.Config) -> list[_Case]:
    """The runs of a test."""
    marker = item.get_closest_marker("accelerator")
    usual = config.getini("accelerator_device") or _USUAL
    given = marker.args if marker is not None and marker.args else (usual,)
    devices = [name for one in given for name in (one if isinstance(one, (list, tuple)) else (one,))]
    for name in devices:
        if not isinstance(name, str):
            raise pytest.UsageError(f"{item.nodeid}: the marker accelerator names devices, not {name!r}")
    asked = config.getoption("--accelerator")
    ways = (_EMULATED, _REAL) if asked == "both" else (asked,)
    return [
        _Case(device, way, schedule)
        for device in devices
        for way in ways
        for schedule in (_schedules(item, config) if way == _EMULATED else [None])
    ]


def _schedules(item: Any, config: pytest.Config) -> Sequence[int | None]:
    """Seeds of the orders that a test is run in; None: as is quickest. The command line has the last word."""
    one = config.getoption("--accelerator-schedule")
    many = config.getoption("--accelerator-schedules")
    if one is not None:
        if one < 0:
            raise pytest.UsageError(f"--accelerator-schedule {one}: expected a seed from 0")
        return [one]
    where = "--accelerator-schedules"
    if many is None:
        stated = [m.kwargs["schedules"] for m in item.iter_markers("accelerator") if "schedules" in m.kwargs]
        many, where = (stated[0] if stated else None), f"{item.nodeid}: the marker accelerator has schedules"
    if many is None:
        return [None]
    if not isinstance(many, int) or isinstance(many, bool) or many < 1:
        raise pytest.UsageError(f"{where} {many!r}: expected how many, from 1")
    return range(many)


@pytest.fixture
def accelerator(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    """A device under test: a fresh emulated one, or a real one.

    ``accelerator.expect(time_s=..., energy_j=..., launches=..., copied_bytes=...)`` asserts a budget,
    ``accelerator.faults({"kind": "out_of_memory", "call": 3})`` arms a fault.
    """
    if hasattr(request, "param"):
        case = request.param
    else:  # asked for while the test runs
        cases = _cases(request.node, request.config)
        if len(cases) > 1:
            pytest.fail("one test that asks for the fixture as it runs cannot have several devices", pytrace=False)
        case = cases[0]
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("accelerator"))):
        options.update(marker.kwargs)  # the closest has the last word, on what it says
    _check_marker(options)
    seed = options.get("seed")
    if seed is None:
        seed = request.config.getoption("--accelerator-seed")
    interval = options.get("interval") or request.config.getoption("--accelerator-interval")
    faults = options.get("faults", ())
    opened = _open(case, interval)
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
    """Arm faults on ``accelerator`` from here to the end of the test, which fails if one of them never struck.

    ``plan = accelerator_faults({"kind": "out_of_memory", "call": 3}, "hang")``; ``plan.log`` has what struck. Chance is
    drawn from ``seed=``, or else the marker's seed or ``--accelerator-seed``. It arms once: all faults in one call.
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
        # A fixture is not told of the test's exception; what failed first is the news, not what it kept away.
        failed = pytest.fail.Exception if request.node.stash.get(_FAILED, False) else None
        try:
            armed.__exit__(failed, None, None)
            return
        except FaultNotFired as error:
            problem = str(error)
    pytest.fail(problem, pytrace=False)


def _check_marker(options: dict[str, Any]) -> None:
    from windtunnel.core.errors import InputError, nearest, one_of

    def wrong(found: str, names: tuple[str, ...], given: Any) -> None:
        error = InputError(
            f"the marker accelerator has no {found}", expected=one_of(names), nearest=nearest(str(given), names)
        )
        pytest.fail(str(error), pytrace=False)

    for name in options:
        if name not in _OPTIONS:
            wrong(f"'{name}'", _OPTIONS, name)
    faults = options.get("faults", ())
    if not isinstance(faults, (str, dict, list, tuple)):
        pytest.fail(f"the marker accelerator has faults={faults!r}; expected a fault, or a list of them", pytrace=False)
    seed = options.get("seed")
    if seed is not None and (not isinstance(seed, int) or seed < 0):
        pytest.fail(f"the marker accelerator has seed={seed!r}; expected a whole number from 0", pytrace=False)
    interval = options.get("interval")
    if interval not in (None, "low", "best", "high"):
        wrong(f"interval={interval!r}", ("low", "best", "high"), interval)
    leaks = options.get("leaks", "ignore")
    if leaks not in ("ignore", "error"):
        wrong(f"leaks={leaks!r}", ("ignore", "error"), leaks)


def _open(case: _Case, interval: Any) -> Accelerator:
    from windtunnel.core.errors import WindtunnelError
    from windtunnel.library.devices import open_device, open_real_device

    try:
        if case.way == _REAL:
            return open_real_device(case.device)
        return open_device(case.device, interval=interval, schedule=case.schedule)
    except WindtunnelError as error:
        problem = str(error)
    # A device that was asked for and is not there fails the test: a skipped test proves nothing.
    pytest.fail(problem, pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failing test says what its device did, the seed of its faults, and leaves a trace."""
    outcome: Any = yield
    report = outcome.get_result()
    if call.when == "call":
        item.stash[_FAILED] = report.failed
    if not report.failed or _OPENED not in item.stash:
        return
    opened, seed, interval, log, schedule = item.stash[_OPENED]
    lines = [f"{opened!r}, seed {seed} (--accelerator-seed {seed})"]
    if schedule is not None:
        lines.append(f"threads in the order of schedule {schedule} (--accelerator-schedule {schedule})")
    lines.append(
        f"clock {opened.clock_s:.9g} s, energy {opened.energy_j:.6g} J, {opened.counters.launches:,} launches, "
        f"{opened.counters.copied_bytes:,} bytes copied, {opened.allocated_bytes:,} allocated"
    )
    end = "" if interval == "best" else f", at the {interval} end of their 90% intervals"
    lines.append(f"clock and energy are {opened.provenance}{end}")
    if opened.injected_faults:
        lines += ["faults that struck:", *(f"  {line}" for line in opened.injected_faults)]
    if log:
        try:
            lines.append(f"trace: {_write_trace(item, opened.name, log)}")
        except OSError as error:
            lines.append(f"trace: not written: {error}")
    report.sections.append((f"accelerator ({call.when})", "\n".join(lines)))


def _write_trace(item: pytest.Item, device: str, log: list[Any]) -> Path:
    import json
    import zlib

    folder = Path(item.config.getoption("--accelerator-traces"))
    folder.mkdir(parents=True, exist_ok=True)
    # The node's name is unique, so that workers of a parallel run do not meet; a digest tells apart what differs in
    # characters alone that no file's name can have.
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
def windtunnel_run() -> Callable[..., Run]:
    """Simulate a scenario (a path, or plain data as a file would hold it) and return its Run.

    ``windtunnel_run("fleet.yaml", changes=["fleet[0].count=3"]).result["latency_s"]["p99"]["value"]``
    """

    def simulate(scenario: Any, **options: Any) -> Run:
        from windtunnel.core.yamlfile import Document
        from windtunnel.simulation import run as simulation
        from windtunnel.simulation.run import checked

        stated = checked(Document(scenario, "scenario")) if isinstance(scenario, dict) else scenario
        return simulation.run(stated, **options)

    return simulate
