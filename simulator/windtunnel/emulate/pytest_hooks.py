"""``pytest --emulate numba,cupy``: the devices of the tests of a project for Numba CUDA or CuPy.

All tests use one device, as they would use one GPU. A test whose marker names devices, or has settings with which a
device is opened, has a device of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from windtunnel.core.errors import Finding, InputError, WindtunnelError, list_choices, nearest
from windtunnel.emulate import child_findings, children, session
from windtunnel.emulate.hooks import INTERFACES, install
from windtunnel.runtime.accelerator import Accelerator


def begin(given: str, device: str, interval: str) -> None:
    """Put emulated interfaces in the place of the real ones; ``given`` are their names with commas between them."""
    names = [one.strip() for one in given.split(",")]
    for name in names:
        if name not in INTERFACES:
            error = InputError(
                f"--emulate {name!r}", expected=list_choices(INTERFACES), nearest=nearest(name, INTERFACES)
            )
            raise pytest.UsageError(str(error))
    emulated = session.Session(device, {"interval": interval})
    try:
        emulated.open()
        install(names)
        children.announce(device, names)
    except WindtunnelError as error:
        raise pytest.UsageError(str(error)) from None
    session.begin(emulated)


@contextmanager
def device_of_test(
    own: str | None, opening: Mapping[str, Any], *, strict: bool, counted: bool, schedule: int | None
) -> Iterator[Accelerator]:
    """Give a test the device of all tests, or one of its own.

    Args:
        own: The name of a device of its own; None for the device of all tests.
        opening: Arguments of `open_device` for a device of its own, such as ``interval``.
        strict: Whether unordered writes of one equal value are a finding.
        counted: Whether the work of kernels is counted.
        schedule: The seed of the order of threads.
    """
    checking = {"strict": strict, "counted": counted, "schedule": schedule}
    if own is None:
        shared = session.current.open()
        with shared.context.checking(**checking):  # type: ignore[attr-defined]  # it is emulated
            try:
                yield shared
            finally:
                if not shared.closed:
                    shared.injector.clear()  # what a fault of this test has ended works for the next one
        return
    emulated = session.Session(own, {**opening, **checking})
    before = session.begin(emulated)
    try:
        yield emulated.open()
    finally:
        emulated.close()
        session.begin(before)


def findings_of_children() -> list[str]:
    """Return the findings in child processes since the last call."""
    return [f"in a child process: {text}" for text in child_findings.take()]


def end_test() -> None:
    """Forget which findings of child processes the test has expected."""
    child_findings.forget_expected()


def end() -> None:
    """Remove what `begin` has made."""
    child_findings.end()


def findings_of_all() -> list[Finding]:
    """Return the findings on the device of all tests so far."""
    return session.current.findings
