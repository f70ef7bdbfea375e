"""Whatever is a device goes through this suite: `SUBJECTS` says which do.

A real one is added by a line: a name, what opens it, and the kernels of `Kernels` in its own language where it does not
take Python's. What a test says of times goes for emulated devices alone (`emulated`): a real clock only never goes back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.backends.fake_cupy import FakeCupy

import windtunnel
from windtunnel import f32, grid, threadIdx
from windtunnel.backends.common import host_work
from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.discovery.registry import backend
from windtunnel.runtime.accelerator import Accelerator


@pytest.fixture(autouse=True, scope="module")
def _cache_is_stated() -> Iterator[None]:
    """Cold operands outgrow a last-level cache of 2 MiB, so that time and memory do not depend on the processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_work, "llc_bytes", lambda: host_work.LastLevelCache(2**21, "stated"))
        yield


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
def scale_each_by_f32(a, factor: f32):  # type: ignore[no-untyped-def]
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
    label: Subject(lambda label=label: windtunnel.device(label))  # type: ignore[misc]
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
NARROW = replace(THREADS, scale=scale_each_by_f32)
"""For languages without 64-bit numbers, which an argument of NumPy's is as it stands."""


def real(name: str, kernels: Kernels = THREADS) -> Subject:
    """A device of this host. One that is not here fails its tests."""
    way, _, index = name.partition(":")
    context = backend(way).context
    assert context is not None
    return Subject(lambda: Accelerator(context(int(index))), kernels)


def fake(name: str, cupy: FakeCupy) -> Subject:
    """A back end's driver over a stand-in for CuPy: its calls are tested, and no device."""
    return Subject(lambda: Accelerator(cupy_context.open_context(cupy, name, 0)), THREADS)


def here(name: str) -> bool:
    """Whether a back end finds a device, asked in a process of its own. True where WINDTUNNEL_REQUIRE names it.

    So one that is required and not here fails its tests, and is not skipped.
    """
    if name in os.environ.get("WINDTUNNEL_REQUIRE", "").split(","):
        return True
    if not backend(name).present():
        return False
    asked = (
        f"from windtunnel.backends.discovery.registry import backend; raise SystemExit(not backend({name!r}).find())"
    )
    # A driver that hangs is an error of the whole session: without it, its tests would silently not exist.
    probe = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=False, timeout=1800)
    return probe.returncode == 0


REAL = {
    "cpu:0": real("cpu:0"),
    "cpu:0, whole arrays": real("cpu:0", Kernels()),
    "opencl:0": real("opencl:0"),
    "vulkan:0": real("vulkan:0"),
    "wgpu:0": real("wgpu:0", NARROW),
} | {f"{name}:0": real(f"{name}:0") for name in ("cuda", "hip") if here(name)}
FAKE = {
    "cuda's driver over a stand-in, no GPU": fake("cuda", FakeCupy()),
    "hip's driver over a stand-in, no GPU": fake(
        "hip", FakeCupy(hip=True, warpSize=64, sharedMemPerBlock=65536, sharedMemPerBlockOptin=65536)
    ),
}
SUBJECTS = EMULATED | REAL | FAKE


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
