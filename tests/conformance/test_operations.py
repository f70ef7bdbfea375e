"""Operations on every back end of this host: what is done is right and timed, what is not is refused in words.

The back ends that are listed have to be here: one that is missing fails. Numbers are checked against NumPy or another
library by each trial, and for kernels against the emulator's besides.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.backends.test_packets import may_make_namespaces
from tests.conformance.cases import for_each

import windtunnel
from windtunnel.backends.common.plans import PLANS
from windtunnel.backends.discovery.registry import backend
from windtunnel.cli.main import cli
from windtunnel.core import errors
from windtunnel.core.ops import OPERATIONS
from windtunnel.runtime.trial import Operations

ALWAYS = ("cpu", "fpga", "offload", "opencl", "vulkan", "wgpu")
"""What the machines that run these tests have to have."""


def _packets() -> tuple[str, ...]:
    """It needs the right to make network namespaces; elsewhere it says so, as tests/backends proves."""
    try:
        backend("packets").find()
    except errors.DeviceNotPresentError:
        assert not may_make_namespaces(), "the packet path must be here for a process that may make namespaces"
        return ()
    return ("packets",)


REQUIRED = (*ALWAYS, *_packets())
KERNELS = ("opencl", "vulkan", "wgpu")
"""Those whose operations are kernels of the kernel language."""


def columns(op: str, /, **given: Any) -> dict[str, float | str]:
    found = {c.name: c.parse(given.pop(c.name, c.default)) for c in OPERATIONS.find(op).all_columns()}
    assert not given
    return found


GEMM = {"m": 70, "n": 33, "k": 50}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "launch": ("launch", {"count": 3}),
    "copy in": ("copy", {"bytes": 1001, "direction": "h2d", "memory": "pageable"}),
    "copy out": ("copy", {"bytes": 1001, "direction": "d2h", "memory": "pageable"}),
    "copy within": ("copy", {"bytes": 1001, "direction": "d2d"}),
    **{f"add {d}": ("vector_add", {"n": 1000, "dtype": d}) for d in ("float32", "float16", "bfloat16", "int8")},
    "add, eager": ("vector_add", {"n": 1000, "dispatch": "eager"}),
    "add, warm": ("vector_add", {"n": 1000, "cache": "warm"}),
    **{
        f"elementwise {op}": ("elementwise", {"op": op, "rows": 5, "width": 300})
        for op in ("add", "addu", "mul", "mulu", "div", "divu", "pow", "powu", "relu", "gelu", "tanh", "softmax", "ln")
    },
    **{
        f"elementwise {d}": ("elementwise", {"op": "gelu", "rows": 3, "width": 100, "dtype": d})
        for d in ("float16", "bfloat16")
    },
    **{f"gemm {d}": ("gemm", GEMM | {"dtype": d}) for d in ("float32", "float16", "bfloat16", "int8")},
    "gemm batch": ("gemm", GEMM | {"dtype": "float32", "batch": 3}),
    "stencil 2D": ("stencil", {"nx": 33, "ny": 20, "dtype": "float32"}),
    "stencil 3D": ("stencil", {"nx": 33, "ny": 20, "nz": 5, "dtype": "float32"}),
    **{f"fft {n}": ("fft", {"n": n, "batch": 3}) for n in (2, 8, 512)},
    "aes": ("aes", {"bytes": 4096, "key_bits": 256, "mode": "gcm"}),
    "compress": ("compress", {"bytes": 65536, "codec": "deflate", "level": 1}),
    "decompress": ("decompress", {"bytes": 65536, "codec": "lz4", "level": 1}),
    "sign": ("sign", {"scheme": "ecdsa_p256", "count": 4}),
    "packets": ("packets", {"count": 50, "bytes": 200}),
    "attention": (
        "attention",
        {"phase": "decode", "batch": 1, "heads": 2, "kv_heads": 1, "head_dim": 16, "kv_tokens": 32},
    ),
    "service": ("service", {"distribution": "deterministic", "mean": 1.0}),
}
DONE: dict[str, frozenset[str]] = {
    "kernels": frozenset(
        name for name in CASES
        if name.split()[0].rstrip(",") in ("launch", "copy", "add", "elementwise", "gemm", "stencil", "fft")
    ),
    "cpu": frozenset(
        name for name in CASES
        if name.split()[0].rstrip(",") in ("launch", "copy", "add", "elementwise", "gemm", "stencil", "fft")
        and not name.endswith(("float16", "bfloat16", "eager")) and name != "gemm int8"
    ),
    "offload": frozenset(("launch", "copy in", "copy out", "copy within", "aes", "compress", "decompress", "sign")),
    "packets": frozenset(("packets",)),
    "fpga": frozenset(("add, warm",)),  # its operands are on the chip, so that no case with cold operands is supported
}  # fmt: skip
NARROW = frozenset(("add bfloat16", "add int8", "elementwise bfloat16", "gemm bfloat16", "gemm int8"))
"""What WGSL has no types for."""


def done(name: str) -> frozenset[str]:
    if name == "wgpu":
        return DONE["kernels"] - NARROW
    return DONE["kernels"] if name in KERNELS else DONE[name]


@pytest.fixture(scope="module", params=REQUIRED)
def device(request: pytest.FixtureRequest) -> Iterator[Operations]:
    found = backend(request.param).operations(0)
    yield found
    found.close()


@pytest.fixture
def name(device: Operations, request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["device"])


def test_doctor_finds_all_that_these_machines_must_have() -> None:
    done = CliRunner().invoke(cli, ["doctor", "--require", ",".join(REQUIRED)])
    assert done.exit_code == 0, done.exception
    listed = CliRunner().invoke(cli, ["devices", "--real", "--format", "json"])
    rows = {row["name"].partition(":")[0]: row for row in json.loads(listed.stdout)}
    assert set(REQUIRED) <= set(rows)
    for row in rows.values():
        assert {"name", "kind", "api", "software", "driver"} <= set(row) and row["driver"]
    assert all(rows[name]["software"] and rows[name]["kind"] == "cpu" for name in ("opencl", "vulkan", "wgpu"))


def test_what_is_done_is_right_and_timed_and_what_is_not_is_refused_in_words(device: Operations, name: str) -> None:
    def check(case: str) -> None:
        op, given = CASES[case]
        asked = columns(op, **given)
        why = device.refusal(op, asked)
        if why is not None:
            assert case not in done(name), why
            assert len(why) > 10
            with pytest.raises(errors.UnsupportedOperationError):
                device.trial(op, asked)
            return
        assert case in done(name)
        trial = device.trial(op, asked)
        try:
            assert trial.timer in ("device", "host") and trial.note
            assert all(0.0 < trial.run(count) < math.inf for count in (1, 3))
            assert 0.0 <= trial.check() <= 1.0
            assert trial.run() > 0.0, "a check leaves the trial as it was"
        finally:
            trial.close()
            trial.close()

    for_each(CASES, check)


def test_the_rtl_does_something_of_what_fpgas_do() -> None:
    device = backend("fpga").operations(0)
    asked = [(op, given | {"cache": "warm"}) for op, given in CASES.values() if op in ("vector_add", "gemm", "stencil")]
    able = {op for op, given in asked if device.refusal(op, columns(op, **given)) is None}
    assert able == {"vector_add", "gemm", "stencil"}, "its operands stand on the chip: it knows no cold runs"
    device.close()


def test_a_device_says_what_it_is_and_with_what_it_works(device: Operations, name: str) -> None:
    info = device.info
    assert info.name and info.api and info.driver and not info.virtual
    assert info.software, "this host has no accelerator"
    assert device.versions and all(isinstance(value, str) and value for value in device.versions.values())
    assert device.energy_j() is None, "no software device has an energy counter"


def test_several_trials_of_a_device_do_not_disturb_each_other(device: Operations, name: str) -> None:
    able = [(op, columns(op, **given)) for op, given in CASES.values()]
    able = [(op, asked) for op, asked in able if device.refusal(op, asked) is None][:4]
    trials = [device.trial(op, asked) for op, asked in able]
    for trial in trials:
        trial.run()
    assert all(trial.check() <= 1.0 for trial in trials)
    trials[0].close()
    assert all(trial.run() > 0.0 and trial.check() <= 1.0 for trial in trials[1:])
    for trial in trials:
        trial.close()


CONTEXTS = [{"dispatch": "eager"}, {"dispatch": "graph"}, {"clock": "sustained"}]


@pytest.mark.parametrize("op", ["copy", "launch"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_no_copy_or_launch_is_measured_in_another_context_than_was_asked(
    device: Operations, op: str, context: dict[str, str]
) -> None:
    given = {"bytes": 4, "direction": "d2d"} if op == "copy" else {}
    assert device.refusal(op, columns(op, **given, **context)) is not None


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_call_on_the_host_is_in_no_context_that_would_be_the_same_number_by_another_name(
    device: Operations, name: str, context: dict[str, str]
) -> None:
    asked = [
        (op, columns(op, **{"cache": "warm", **given, **context})) for op, given in CASES.values() if op != "service"
    ]
    able = [op for op, one in asked if device.refusal(op, one) is None]
    assert able == [] or name in KERNELS and "dispatch" in context


HUGE: dict[str, tuple[str, dict[str, Any]]] = {
    "kernels": ("vector_add", {"n": 10**13}),
    "offload": ("aes", {"bytes": 10**13, "key_bits": 256, "mode": "gcm"}),
    "packets": ("packets", {"count": 10**13, "bytes": 1500}),
    "fpga": ("vector_add", {"n": 10**13, "dtype": "int8"}),
}


def test_what_no_memory_or_time_is_there_for_is_refused_before_it_is_tried(device: Operations, name: str) -> None:
    op, given = HUGE.get(name, HUGE["kernels"])
    with pytest.raises((errors.DeviceOutOfMemory, errors.UnsupportedOperationError)) as caught:
        device.trial(op, columns(op, **given))
    assert any(c.isdigit() for c in str(caught.value)), "the limit is said"


@pytest.mark.parametrize("way", REQUIRED)
def test_a_device_that_was_closed_does_nothing_more(way: str) -> None:
    device = backend(way).operations(0)
    op, asked = next(
        (op, columns(op, **given)) for op, given in CASES.values() if device.refusal(op, columns(op, **given)) is None
    )
    trial = device.trial(op, asked)
    trial.close()
    with pytest.raises(errors.DeviceError):
        trial.run()
    device.close()
    device.close()
    with pytest.raises(errors.DeviceError):
        device.trial(op, asked)


def test_no_operation_of_that_name_is_the_registry_s_error(device: Operations) -> None:
    with pytest.raises(errors.InputError, match="did you mean"):
        device.refusal("vectoradd", {})


@pytest.mark.parametrize("way", REQUIRED)
def test_there_is_no_second_device(way: str) -> None:
    with pytest.raises(errors.DeviceNotPresentError):
        backend(way).operations(99)


# Against the emulator's numbers.


@pytest.mark.parametrize("way", KERNELS)
@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] in PLANS and ", " not in case])
def test_a_kernel_s_numbers_are_the_emulator_s(way: str, case: str) -> None:
    """The same kernels on the same operands; sums and functions may differ in the last digits."""
    op, given = CASES[case]
    real = backend(way).operations(0)
    if real.refusal(op, columns(op, **given)) is not None:
        assert case in NARROW and way == "wgpu"
        real.close()
        return
    plan = PLANS[op](columns(op, **given), real.info)
    results = []
    for accelerator in (real.accelerator, windtunnel.device("h100-sxm-80gb", checked=False)):  # type: ignore[attr-defined]
        held = {name: accelerator.to_device(array) for name, array in plan.arrays.items()}
        for step in plan.steps(held):
            accelerator.launch(step.kernel, step.grid, step.block, *step.arguments)
        results.append([accelerator.to_host(held[name]).astype(np.float64) for name in plan.result])
    for ours, theirs in zip(*results, strict=True):
        scale = float(np.abs(theirs).max()) or 1.0
        assert math.isfinite(scale) and np.abs(ours - theirs).max() <= plan.tolerance * scale
    real.close()
