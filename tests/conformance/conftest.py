"""Whatever is a device goes through this suite: `SUBJECTS` says which do.

A real one is added by a line: a name, what opens it, and the kernels of `Kernels` in its own language where it does not
take Python's. What a test says of times goes for emulated devices alone (`emulated`): a real clock only never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import windtunnel
from windtunnel import app, grid, threadIdx
from windtunnel.backends import backend
from windtunnel.runtime.accelerator import Accelerator


@windtunnel.kernel
def double(a: np.ndarray) -> None:
    a *= 2


@windtunnel.kernel
def increment(a: np.ndarray) -> None:
    a += 1


@windtunnel.kernel
def add(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    c[...] = a + b


@windtunnel.kernel
def scale(a: np.ndarray, factor: float) -> None:
    a *= factor


@windtunnel.kernel(work={"op": "kernel", "threads": 1, "bytes": 1})
def nothing() -> None:
    pass


@windtunnel.kernel
def double_each(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] *= 2


@windtunnel.kernel
def increment_each(a):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] += 1


@windtunnel.kernel
def add_each(a, b, c):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@windtunnel.kernel
def scale_each(a, factor):  # type: ignore[no-untyped-def]
    i = grid(1)
    if i < a.size:
        a[i] *= factor


@windtunnel.kernel
def nothing_each():  # type: ignore[no-untyped-def]
    _ = threadIdx.x


@dataclass(frozen=True)
class Kernels:
    """What the suite launches, on float32 arrays."""

    double: Any = double
    increment: Any = increment
    add: Any = add
    scale: Any = scale
    nothing: Any = nothing


@dataclass(frozen=True)
class Subject:
    """A device under test: each call of ``open`` opens it anew."""

    open: Callable[[], Accelerator]
    kernels: Kernels = Kernels()


EMULATED = {
    label: Subject(lambda label=label: app.accelerator(label))  # type: ignore[misc]
    for label in (
        "h100-sxm-80gb",
        "h100-sxm-80gb@vulkan",
        "mi300x",
        "apple-m2-ultra",
        "rtx-4090@wgpu",
        "rtx-4090@opencl",
        "epyc-9654",
    )
}
THREADS = Kernels(double_each, increment_each, add_each, scale_each, nothing_each)


def real(name: str, kernels: Kernels = THREADS) -> Subject:
    """A device of this host. One that is not here fails its tests."""
    way, _, index = name.partition(":")
    context = backend(way).context
    assert context is not None
    return Subject(lambda: Accelerator(context(int(index))), kernels)


REAL = {"opencl:0": real("opencl:0"), "vulkan:0": real("vulkan:0")}
SUBJECTS = EMULATED | REAL


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of virtual time runs on emulated devices, and every other on all."""
    if "subject" in metafunc.fixturenames:
        metafunc.parametrize("subject", EMULATED if "emulated" in metafunc.fixturenames else SUBJECTS, indirect=True)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


@pytest.fixture
def device_under_test(subject: Subject) -> Iterator[Accelerator]:
    with subject.open() as opened:
        yield opened


@pytest.fixture
def other_device(subject: Subject) -> Iterator[Accelerator]:
    """The same device, opened a second time."""
    with subject.open() as opened:
        yield opened


@pytest.fixture
def kernels(subject: Subject) -> Kernels:
    return subject.kernels


@pytest.fixture
def emulated(device_under_test: Accelerator) -> Accelerator:
    """A device under test that has a virtual clock."""
    assert device_under_test.info.virtual
    return device_under_test
