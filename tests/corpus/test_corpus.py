"""Kernels that somebody wrote who had not read the emulator: right ones give their numbers and no finding, wrong ones
are found.

What is not there yet is marked, strictly: it fails the suite as soon as it works.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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


@pytest.mark.parametrize("case", registry.cases(), ids=lambda case: case.name)
def test_a_right_kernel_gives_its_numbers_and_no_finding(case: registry.Case) -> None:
    device, arguments = opened(), case.arguments()
    buffers = given(device, arguments)
    device.launch(case.kernel, case.grid, case.block, *buffers.values(), shared_bytes=case.shared_bytes)
    check(device, arguments, buffers, case)


@pytest.mark.parametrize("program", registry.programs(), ids=lambda p: p.name)
def test_right_kernels_one_after_another_give_their_numbers(program: registry.Program) -> None:
    device, arguments = opened(), program.arguments()
    buffers = given(device, arguments)
    for step in program.steps(**buffers):
        device.launch(step.kernel, step.grid, step.block, *step.arguments)
    check(device, arguments, buffers, program)


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(
            bug,
            id=bug.name,
            marks=[pytest.mark.xfail(reason=MISSED[bug.name], strict=True)] if bug.name in MISSED else [],
        )
        for bug in planted.PLANTED
    ],
)
def test_a_planted_bug_is_found_by_name_and_line(bug: planted.Planted) -> None:
    device = opened()
    with pytest.raises(Exception) as caught:  # noqa: PT011  which is what is tested
        if bug.program is not None:
            bug.program(device)
        else:
            device.launch(bug.kernel, bug.grid, bug.block, *given(device, bug.arguments()).values())
        device.synchronize()
    assert bug.accepts(type(caught.value).__name__, getattr(caught.value, "lines", ())), caught.value


@pytest.mark.parametrize("control", planted.CONTROLS, ids=lambda c: c.name)
def test_a_right_host_program_has_no_finding(control: planted.Control) -> None:
    device = opened()
    control.program(device)
    device.synchronize()
