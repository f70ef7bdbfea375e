"""Kernels written independently of the emulator: correct ones give the expected numbers and no finding, and planted bugs
are found.

Bugs that cannot be found are listed in MISSED. A test fails as soon as one of them is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cases import check_all
from tests.corpus import planted, registry

import windtunnel
from windtunnel.runtime.accelerator import Accelerator
from windtunnel_models.catalogue import Catalogue

KNOWN = Catalogue()
MISSED = {
    "reads_a_download_under_way": "who reads a plain array of the host's cannot be seen",
}


def opened() -> Accelerator:
    return windtunnel.device("h100-sxm-80gb", catalogue=KNOWN)


def given(device: Accelerator, arguments: registry.Arguments) -> dict[str, Any]:
    """On the device, one buffer for each array, however often it is named."""
    found, seen = {}, {}
    for name, value in arguments.items():
        if isinstance(value, registry.Empty):
            found[name] = device.empty(value.shape, value.dtype)
        elif isinstance(value, np.ndarray):
            if id(value) not in seen:
                seen[id(value)] = device.to_device(value)
            found[name] = seen[id(value)]
        else:
            found[name] = value
    return found


def check(device: Accelerator, arguments: registry.Arguments, buffers: dict[str, Any], case: Any) -> None:
    expected = case.reference(arguments)
    for name, value in arguments.items():
        if name in getattr(case, "scratch", ()) or not isinstance(value, (np.ndarray, registry.Empty)):
            continue
        if name in expected or isinstance(value, np.ndarray):
            wrong = case.comparison.wrong(device.to_host(buffers[name]), expected.get(name, value))
            assert wrong is None, f"{name}: {wrong}"


def run_case(case: registry.Case) -> None:
    device, arguments = opened(), case.arguments()
    buffers = given(device, arguments)
    device.launch(case.kernel, case.grid, case.block, *buffers.values(), shared_bytes=case.shared_bytes)
    check(device, arguments, buffers, case)


@pytest.mark.parametrize("module", registry.MODULES)
def test_right_kernels_give_their_numbers_and_no_finding(module: str) -> None:
    check_all(registry.cases(module), run_case, lambda case: case.name)


def test_right_kernels_one_after_another_give_their_numbers() -> None:
    def run(program: registry.Program) -> None:
        device, arguments = opened(), program.arguments()
        buffers = given(device, arguments)
        for step in program.steps(**buffers):
            device.launch(step.kernel, step.grid, step.block, *step.arguments)
        check(device, arguments, buffers, program)

    check_all(registry.programs(), run, lambda program: program.name)


def find(bug: planted.Planted) -> None:
    device = opened()
    with pytest.raises(Exception) as caught:  # noqa: PT011  which is what is tested
        if bug.program is not None:
            bug.program(device)
        else:
            device.launch(bug.kernel, bug.grid, bug.block, *given(device, bug.arguments()).values())
        device.synchronize()
    assert bug.accepts(type(caught.value).__name__, getattr(caught.value, "lines", ())), caught.value


@pytest.mark.parametrize("finding", planted.FINDINGS)
def test_planted_bugs_are_found_by_name_and_line(finding: str) -> None:
    bugs = [bug for bug in planted.PLANTED if bug.finding == finding and bug.name not in MISSED]
    check_all(bugs, find, lambda bug: bug.name)


@pytest.mark.parametrize("name", MISSED)
def test_a_planted_bug_that_cannot_be_found_is_listed(name: str) -> None:
    (bug,) = (bug for bug in planted.PLANTED if bug.name == name)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        find(bug)


def test_right_host_programs_have_no_finding() -> None:
    def run(control: planted.Control) -> None:
        device = opened()
        control.program(device)
        device.synchronize()
        assert device.counters.launches > 0, "the program did nothing"

    check_all(planted.CONTROLS, run, lambda control: control.name)
