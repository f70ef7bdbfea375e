"""``pytest --emulate numba,cupy``: the tests of a project for Numba CUDA or CuPy on an emulated device.

All tests use one device, as they would use one GPU, unless the marker ``accelerator`` names devices: then the test runs
once on each. The marker's budgets (``time_s``, ``energy_j``, ``launches``, ``copied_bytes``) are those of the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from windtunnel.core.errors import InputError, WindtunnelError, list_choices, nearest
from windtunnel.emulate import children, session
from windtunnel.emulate.hooks import INTERFACES, install

BUDGETS = ("time_s", "energy_j", "launches", "copied_bytes")
"""The options of the marker that limit what a test may use."""
SETTINGS = ("interval", "strict", "counted", "schedule", "leaks")
"""The options of the marker that set up the device of a test."""


def begin(given: str, device: str) -> None:
    """Put emulated interfaces in the place of the real ones; ``given`` are their names with commas between them."""
    names = [one.strip() for one in given.split(",")]
    for name in names:
        if name not in INTERFACES:
            error = InputError(
                f"--emulate {name!r}", expected=list_choices(INTERFACES), nearest=nearest(name, INTERFACES)
            )
            raise pytest.UsageError(str(error))
    emulated = session.Session(device)
    try:
        emulated.accelerator()
        install(names)
        children.announce(device, names)
    except WindtunnelError as error:
        raise pytest.UsageError(str(error)) from None
    session.begin(emulated)


def options_of(item: Any) -> dict[str, Any]:
    """Return the options of a test's markers; the closest one overrides the others."""
    options: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("accelerator"))):
        options.update(marker.kwargs)
    return options


def devices_of(item: Any) -> Sequence[str]:
    """Return the devices that a test's marker names."""
    marker = item.get_closest_marker("accelerator")
    return [] if marker is None else [str(name) for name in marker.args]


def limits_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the budgets of a test."""
    return {name: options[name] for name in BUDGETS if name in options}


def _require_known(options: Mapping[str, Any]) -> None:
    """Fail a test whose marker has an option that does nothing without the fixture ``accelerator``."""
    known = (*BUDGETS, *SETTINGS)
    for key in options:
        if key not in known:
            error = InputError(
                f"the marker 'accelerator' has the option '{key}', which an emulated program does not have",
                expected=list_choices(known), nearest=nearest(key, known),
            )  # fmt: skip
            pytest.fail(str(error), pytrace=False)


@pytest.fixture(autouse=True)
def emulated_program(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The device of a test: that of all tests, or one of its own if the marker names devices or a schedule."""
    name = getattr(request, "param", None)
    options = options_of(request.node)
    if "accelerator" not in request.fixturenames:
        _require_known(options)
    settings: dict[str, Any] = {key: options[key] for key in SETTINGS if key in options}
    if name is None and not settings:
        yield session.current.accelerator()
        return
    own = session.Session(name or session.current.device, settings)
    before = session.begin(own)
    try:
        yield own.accelerator()
    finally:
        own.close()
        session.begin(before)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each device that its marker names."""
    devices = devices_of(metafunc.definition)
    if devices and "accelerator" not in metafunc.fixturenames:
        metafunc.parametrize("emulated_program", devices, ids=devices, indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check the budgets of a test."""
    limits = limits_of(options_of(item))
    if not limits or "accelerator" in getattr(item, "fixturenames", ()):
        yield
        return
    try:
        budget = session.current.accelerator().expect(**limits)
    except WindtunnelError as error:
        pytest.fail(str(error), pytrace=False)
    with budget:
        yield
