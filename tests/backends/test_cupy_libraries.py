"""cuBLAS and cuFFT through CuPy, on a stand-in for both by NumPy: what they are asked for, timed, refused. No GPU."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.backends.fake_cupy import FakeCupy
from tests.backends.test_cuda_operations import columns
from tests.backends.test_nvml import FakeNvml

from windtunnel.backends.common.nvml import Nvml
from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.cuda.hold import Hold
from windtunnel.backends.cuda.libraries import Libraries, LibraryTrial
from windtunnel.backends.cuda.trials import CupyOperations
from windtunnel.backends.discovery.registry import backend
from windtunnel.core import errors
from windtunnel.core.results.validation import Conditions

ODD = {"m": 5, "n": 8, "k": 12}
"""No two sides alike, so that a matrix that is taken by the wrong side is found out."""


def made(cupy: FakeCupy) -> CupyOperations:
    name = "hip" if cupy._hip else "cuda"
    return CupyOperations(cupy_context.open_context(cupy, name, 0), {"cupy": "a stand-in"})


@pytest.fixture
def cupy() -> FakeCupy:
    return FakeCupy()


@pytest.fixture
def operations(cupy: FakeCupy) -> Iterator[CupyOperations]:
    found = made(cupy)
    yield found
    found.close()
    assert not cupy.handles and not cupy.plans and not cupy.orphans and not cupy.allocated()


REAL = [name for name in os.environ.get("WINDTUNNEL_REQUIRE", "").split(",") if name in ("cuda", "hip")]
"""Devices that have to be here, as in tests/conformance: what is true of the stand-in has to be of them."""


@pytest.fixture(params=["a stand-in", *REAL])
def any_operations(request: pytest.FixtureRequest) -> Iterator[CupyOperations]:
    found: Any = made(FakeCupy()) if request.param not in REAL else backend(request.param).operations(0)
    yield found
    assert found.accelerator.allocated_bytes == 0
    found.close()


def trial_of(operations: CupyOperations, op: str, /, **given: Any) -> LibraryTrial:
    found = operations.trial(op, columns(op, **given))
    assert isinstance(found, LibraryTrial)
    return found


def held(operations: CupyOperations, trial: LibraryTrial, name: str) -> np.ndarray:
    return operations.accelerator.to_host(trial.sets[0][name])


# Numbers.

NEAR = {"float32": 1e-6, "tf32": 2e-3, "float16": 2e-3, "bfloat16": 2e-2, "int8": 0.0}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", NEAR)
def test_a_product_of_rows_is_that_of_numpy(any_operations: CupyOperations, dtype: str, batch: int) -> None:
    if any_operations.info.api == "hip" and dtype not in ("float32", "float16"):
        assert any_operations.refusal("gemm", columns("gemm", dtype=dtype, batch=batch, **ODD)) is not None
        return
    trial = trial_of(any_operations, "gemm", dtype=dtype, batch=batch, cache="warm", **ODD)
    assert trial.run(3) > 0.0
    a = held(any_operations, trial, "a").reshape(batch, 5, 12).astype(np.float64)
    b = held(any_operations, trial, "b")
    b = (b.reshape(batch, 8, 12).swapaxes(1, 2) if dtype == "int8" else b.reshape(batch, 12, 8)).astype(np.float64)
    c = held(any_operations, trial, "c").reshape(batch, 5, 8)
    assert c.dtype == {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "int8": np.int32}.get(dtype, np.float32)
    exact = a @ b
    assert np.abs(c.astype(np.float64) - exact).max() <= NEAR[dtype] * np.abs(exact).max()
    assert trial.check() <= 1.0
    trial.close()


def test_tf32_is_rounded_and_float32_is_not(any_operations: CupyOperations) -> None:
    """A product with the unit matrix gives back what was multiplied, to the bit, or rounded to 10 bits."""
    for dtype, same in (("float32", True), ("tf32", False)):
        trial = trial_of(any_operations, "gemm", dtype=dtype, m=7, n=4, k=4, cache="warm")
        trial.sets[0]["b"].copy_from(np.eye(4, dtype=np.float32).reshape(-1))
        trial.run(1)
        assert np.array_equal(held(any_operations, trial, "a"), held(any_operations, trial, "c")) is same
        trial.close()


def test_float32_that_the_library_rounds_to_tf32_is_wrong(cupy: FakeCupy, operations: CupyOperations) -> None:
    trial = trial_of(operations, "gemm", dtype="float32", m=40, n=30, k=20)
    (handle,) = cupy.handles
    cupy.handles[handle] = 3  # CUBLAS_TF32_TENSOR_OP_MATH
    assert trial.check() > 1.0
    cupy.handles[handle] = 0
    assert trial.check() <= 1.0
    trial.close()


@pytest.mark.parametrize(
    ("n", "batch", "dtype"),
    [
        (1, 3, "float32"),
        (2, 1, "float32"),
        (16, 3, "float32"),
        (12, 5, "float32"),
        (2, 1, "float16"),
        (16, 3, "float16"),
    ],
)
def test_a_transform_is_that_of_numpy(any_operations: CupyOperations, n: int, batch: int, dtype: str) -> None:
    trial = trial_of(any_operations, "fft", n=n, batch=batch, dtype=dtype)
    trial.run(2)
    x, y = (held(any_operations, trial, name).astype(np.float32).view(np.complex64).reshape(batch, n) for name in "xy")
    exact = np.fft.fft(x.astype(np.complex128), axis=-1)
    assert np.abs(y - exact).max() <= (2e-3 if dtype == "float16" else 1e-5) * np.abs(exact).max()
    assert trial.check() <= 1.0
    trial.sets[0]["x"].copy_from(np.zeros(2 * n * batch, np.float32 if dtype == "float32" else np.float16))
    assert trial.check() > 1.0, "what is not transformed is not right"
    trial.close()


def test_cold_operands_are_other_ones_each_time(cupy: FakeCupy, operations: CupyOperations) -> None:
    seen = []
    blas = cupy.cuda.cublas
    product = blas.gemmEx
    blas.gemmEx = lambda *given: (seen.append(given[7]), product(*given))[1]
    trial = trial_of(operations, "gemm", m=512, n=512, k=512, dtype="float32", cache="cold")
    seen.clear()
    trial.enqueue(2 * len(trial.sets))
    assert len(trial.sets) > 50 and len(set(seen)) == len(trial.sets) and seen[0] == seen[len(trial.sets)]
    trial.close()
    warm = trial_of(operations, "gemm", m=512, n=512, k=512, dtype="float32", cache="warm")
    assert len(warm.sets) == 1
    warm.close()


# What is set, and given back.


def test_the_math_mode_is_set_on_a_handle_of_our_own_and_the_current_stream_is_as_it_was(cupy: FakeCupy) -> None:
    cupy.handles[1] = 2  # CuPy's own
    operations = made(cupy)
    (mine,) = set(cupy.handles) - {1}
    for dtype in ("float32", "tf32", "float16"):
        trial = trial_of(operations, "gemm", dtype=dtype, **ODD)
        trial.run(2)
        trial.close()
    assert cupy.handles == {1: 2, mine: 0} and cupy.calls.count("setMathMode") == 1
    trial = trial_of(operations, "fft", n=16)
    trial.run(2)
    assert cupy.current_stream() is cupy.cuda.Stream.null
    assert not getattr(cupy._current, "streams", [])
    operations.close()
    operations.close()
    assert cupy.handles == {1: 2}
    with pytest.raises(errors.InvalidArgument, match="was closed"):
        trial.run(1)
    trial.close()
    assert not cupy.orphans and not cupy.plans and not cupy.allocated()


@pytest.mark.parametrize(("op", "given"), [("gemm", {"dtype": "float32", **ODD}), ("fft", {"n": 16})])
def test_a_library_works_in_the_context_s_stream_whatever_is_cupy_s_current_one(
    cupy: FakeCupy, operations: CupyOperations, op: str, given: dict[str, Any]
) -> None:
    with cupy.cuda.Stream(non_blocking=True) as other:
        for dispatch in ("device", "eager"):
            trial = trial_of(operations, op, dispatch=dispatch, **given)
            assert trial.run(2) > 0.0 and trial.check() <= 1.0
            trial.close()
        assert cupy.current_stream() is other and other.ptr not in cupy.device().lasts


def test_working_memory_of_a_transform_counts_as_the_context_s(operations: CupyOperations) -> None:
    before = operations.accelerator.allocated_bytes
    trial = trial_of(operations, "fft", n=1024, batch=2, cache="warm")
    assert operations.accelerator.allocated_bytes - before == 2 * 8 * 2048 + 8 * 2048
    trial.close()
    assert operations.accelerator.allocated_bytes == before


def test_the_note_says_which_library_of_which_version_and_how(operations: CupyOperations) -> None:
    notes = {}
    for name, op, given in (
        ("one", "gemm", {"dtype": "bfloat16", **ODD}), ("many", "gemm", {"dtype": "tf32", "batch": 2, **ODD}),
        ("transform", "fft", {"n": 16}),
    ):  # fmt: skip
        trial = trial_of(operations, op, **given)
        notes[name] = trial.note
        trial.close()
    assert notes["one"].startswith("cuBLAS 12.9.1, gemmEx: bfloat16, sums in float32; ")
    assert notes["many"].startswith("cuBLAS 12.9.1, gemmStridedBatchedEx: float32 rounded to TF32")
    assert notes["transform"].startswith("cuFFT 11.4.1: complex float32, out of place, 128 bytes of working memory; ")
    assert {"cuBLAS": "12.9.1", "cuFFT": "11.4.1", "cupy": "a stand-in"}.items() <= operations.versions.items()


# Time.


def test_a_product_is_timed_by_the_device_behind_a_kernel_that_holds_the_stream(
    cupy: FakeCupy, operations: CupyOperations
) -> None:
    trial = trial_of(operations, "gemm", dtype="float32", **ODD)
    assert trial.timer == "device"
    cupy.calls.clear()
    seconds = trial.run(600)
    # The stand-in's clock counts what is done: each call is a microsecond, and so is each event's mark.
    assert seconds == pytest.approx(1e-6, rel=0.01)
    work = [name for name in cupy.calls if name in ("launchKernel", "eventRecord", "gemmEx")]
    begins = [at for at, name in enumerate(work) if name == "launchKernel"]
    assert len(begins) == 3 and work[:3] == ["launchKernel", "eventRecord", "gemmEx"]
    assert [work[at + 1 : end].count("gemmEx") for at, end in zip(begins, [*begins[1:], None], strict=True)] == [
        256,
        256,
        88,
    ]
    trial.close()


def test_calls_that_come_after_the_hold_has_ended_are_made_again_behind_a_longer_one(
    cupy: FakeCupy, operations: CupyOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_of(operations, "gemm", dtype="float32", **ODD)
    holds: list[float] = []
    block = Hold._block

    def noted(hold: Hold) -> None:
        holds.append(hold.seconds)
        block(hold)

    monkeypatch.setattr(Hold, "_block", noted)
    cupy.late = 2
    cupy.calls.clear()
    trial.run(4)
    assert cupy.calls.count("gemmEx") == 12 and len(holds) == 3
    assert holds[1] >= 2 * holds[0] and holds[2] >= 2 * holds[1]
    cupy.late = 1000
    with pytest.raises(errors.LaunchError, match="multiply .*the calls could not be enqueued within a hold"):
        trial.run(4)
    cupy.late = 0
    trial.close()


@pytest.mark.parametrize(
    ("op", "given"),
    [("vector_add", {"n": 1000}), ("copy", {"bytes": 64, "direction": "h2d", "memory": "pinned"}), ("fft", {"n": 16})],
)
def test_a_graph_is_timed_from_its_first_node_to_its_last_and_not_from_the_call_that_launches_it(
    cupy: FakeCupy, operations: CupyOperations, op: str, given: dict[str, Any]
) -> None:
    """The stream is held until the graph is launched: else the time of the host's calls is the device's, too."""
    trial = operations.trial(op, columns(op, **given))
    trial.run(5)
    for late, times in ((0, 1), (2, 3)):
        cupy.late = late
        cupy.calls.clear()
        trial.run(5)
        work = [name for name in cupy.calls if name in ("launchKernel", "eventRecord", "graphLaunch")]
        assert work == ["launchKernel", "eventRecord", "graphLaunch", "eventRecord"] * times
    trial.close()
    del trial
    gc.collect()  # arrays over pinned memory


def test_a_transform_is_timed_in_a_graph_and_a_graph_of_transforms_is_one(
    cupy: FakeCupy, operations: CupyOperations
) -> None:
    for dispatch in ("device", "graph"):
        trial = trial_of(operations, "fft", n=16, dispatch=dispatch)
        trial.run(5)
        cupy.calls.clear()
        trial.run(5)
        assert cupy.calls.count("graphLaunch") == 1 and "fft" not in cupy.calls
        assert cupy.calls.count("launchKernel") == 1, "which holds the stream"
        assert trial.timer == "device" and trial.check() <= 1.0
        trial.close()


@pytest.mark.parametrize(("op", "given"), [("gemm", {"dtype": "float32", **ODD}), ("fft", {"n": 16})])
def test_one_by_one_is_timed_by_the_host(
    cupy: FakeCupy, operations: CupyOperations, op: str, given: dict[str, Any]
) -> None:
    trial = trial_of(operations, op, dispatch="eager", **given)
    cupy.calls.clear()
    assert trial.timer == "host" and trial.run(3) > 0.0
    assert not {"launchKernel", "eventRecord", "graphLaunch"} & set(cupy.calls)
    trial.close()
    with pytest.raises(errors.InvalidArgument, match="was closed"):
        trial.run(1)


# What is refused.


@pytest.mark.parametrize(
    ("op", "given", "says"),
    [
        ("gemm", {"dtype": "fp8"}, "cuBLASLt, which CuPy does not call"),
        ("gemm", {"dtype": "fp8_block"}, "cuBLASLt"),
        ("gemm", {"dtype": "nvfp4"}, "cuBLASLt"),
        ("gemm", {"dtype": "float32", "dispatch": "graph"}, "not call cuBLAS while a stream is captured"),
        ("gemm", {"dtype": "float32", "clock": "sustained"}, "clock=sustained describes"),
        ("gemm", {"dtype": "int8", "k": 6}, "int8 rows of a multiple of 4 elements; not so for k"),
        ("gemm", {"dtype": "float16", "k": 2**31}, "sizes up to 2,147,483,647; too large: k"),
        ("fft", {"n": 12, "dtype": "float16"}, "a power of two, not 12 points"),
        ("fft", {"n": 2**20, "batch": 2**12}, "not 4,294,967,296"),
        ("fft", {"n": 16, "clock": "sustained"}, "clock=sustained describes"),
    ],
)  # fmt: skip
def test_what_is_not_done_is_refused_in_words(
    operations: CupyOperations, op: str, given: dict[str, Any], says: str
) -> None:
    asked = columns(op, **({**ODD, **given} if op == "gemm" else given))
    why = operations.refusal(op, asked)
    assert why is not None and says in why
    with pytest.raises(errors.UnsupportedOperationError, match=r"\w"):
        operations.trial(op, asked)


@pytest.mark.parametrize(
    ("name", "value", "dtype", "says"),
    [
        ("NVIDIA_TF32_OVERRIDE", "0", "tf32", "forbids TF32"),
        ("NVIDIA_TF32_OVERRIDE", "0", "float32", None),
        ("NVIDIA_TF32_OVERRIDE", "1", "float32", "round fp32 to TF32"),
        ("CUBLAS_EMULATE_SINGLE_PRECISION", "1", "float32", "emulate fp32 with bfloat16"),
        ("CUBLAS_EMULATE_SINGLE_PRECISION", "1", "float16", None),
    ],
)
def test_an_environment_that_changes_what_is_computed_is_refused(
    monkeypatch: pytest.MonkeyPatch, operations: CupyOperations, name: str, value: str, dtype: str, says: str | None
) -> None:
    monkeypatch.setenv(name, value)
    why = operations.refusal("gemm", columns("gemm", dtype=dtype, **ODD))
    assert why is None if says is None else why is not None and says in why


def test_tf32_where_the_device_has_none_and_half_transforms_are_refused_by_its_capability() -> None:
    old = made(FakeCupy(major=5, minor=2))
    tf32, half = columns("gemm", dtype="tf32", **ODD), columns("fft", n=16, dtype="float16")
    assert "requires compute capability 8.0; Stand-in (no GPU) has 5.2" in (old.refusal("gemm", tf32) or "")
    assert "requires compute capability 5.3" in (old.refusal("fft", half) or "")
    old.close()


@pytest.mark.parametrize(("module", "op", "library"), [("cublas", "gemm", "cuBLAS"), ("cufft", "fft", "cuFFT")])
def test_a_library_that_is_not_installed_is_refused_with_what_to_install_and_nothing_takes_its_place(
    cupy: FakeCupy, module: str, op: str, library: str
) -> None:
    cupy.without.add(module)
    operations = made(cupy)
    given = {"gemm": {"dtype": "float32", **ODD}, "fft": {"n": 16}}
    why = operations.refusal(op, columns(op, **given[op]))
    assert why is not None and f"'{op}' requires {library}, which does not load (Failure finding" in why
    assert f'pip install nvidia-{module}-cu12, or "windtunnel[cuda]"' in why and library not in operations.versions
    with pytest.raises(errors.UnsupportedOperationError, match="does not load"):
        operations.trial(op, columns(op, **given[op]))
    (other,) = set(given) - {op}
    trial = trial_of(operations, other, **given[other])
    trial.run(1)
    trial.close()
    operations.close()


def test_a_library_that_does_not_start_is_refused_with_its_own_word(cupy: FakeCupy) -> None:
    cupy.library_fails["create"] = 1
    operations = made(cupy)
    why = operations.refusal("gemm", columns("gemm", dtype="float32", **ODD))
    assert why == "'gemm' requires cuBLAS, which does not start: CUBLAS_STATUS_NOT_INITIALIZED"
    operations.close()


@pytest.mark.parametrize(
    ("function", "status", "kind", "says"),
    [
        ("gemmEx", 15, errors.UnsupportedOperationError, "CUBLAS_STATUS_NOT_SUPPORTED"),
        ("gemmEx", 8, errors.UnsupportedOperationError, "CUBLAS_STATUS_ARCH_MISMATCH"),
        ("gemmEx", 3, errors.DeviceOutOfMemory, r"CUBLAS_STATUS_ALLOC_FAILED"),
        ("gemmEx", 13, errors.LaunchError, r"cuda error 13 \(CUBLAS_STATUS_EXECUTION_FAILED\)"),
        ("Plan1d", 2, errors.DeviceOutOfMemory, r"cuda error 2 \(CUFFT_ALLOC_FAILED\)"),
        ("Plan1d", 8, errors.UnsupportedOperationError, "CUFFT_INVALID_SIZE"),
    ],
)
def test_what_a_library_says_is_a_device_s_error_and_leaves_nothing(
    cupy: FakeCupy, operations: CupyOperations, function: str, status: int, kind: type[Exception], says: str
) -> None:
    cupy.library_fails[function] = status
    op, given = ("gemm", {"dtype": "float32", **ODD}) if function == "gemmEx" else ("fft", {"n": 16})
    with pytest.raises(kind, match=says):
        operations.trial(op, columns(op, **given))
    assert operations.accelerator.allocated_bytes == 0 and not cupy.plans


def test_an_error_of_the_runtime_s_in_a_library_s_call_is_told_as_everywhere(
    cupy: FakeCupy, operations: CupyOperations
) -> None:
    trial = trial_of(operations, "gemm", dtype="float32", **ODD)
    cupy.fail["gemmEx"] = 1
    with pytest.raises(errors.InvalidArgument, match="cudaErrorInvalidValue: invalid argument"):
        trial.run(1)
    trial.close()


@pytest.mark.parametrize(
    ("op", "given"), [("gemm", {"dtype": "float16", "m": 2**16, "n": 2**15, "k": 2**15}), ("fft", {"n": 2**28})]
)
def test_operands_beyond_the_share_of_memory_are_refused_before_they_are_made(
    operations: CupyOperations, op: str, given: dict[str, Any]
) -> None:
    with pytest.raises(errors.DeviceOutOfMemory, match="one set of operands has"):
        operations.trial(op, columns(op, **given))


# AMD.


def test_hip_s_libraries_are_the_same_calls_in_cublas_10_s_types() -> None:
    cupy = FakeCupy(hip=True, warpSize=64)
    operations = made(cupy)
    for given in ({"dtype": "float32"}, {"dtype": "float16"}, {"dtype": "float32", "batch": 3}):
        trial = trial_of(operations, "gemm", **ODD, **given)
        assert math.isfinite(trial.run(2)) and trial.check() <= 1.0 and trial.note.startswith("hipBLAS 50200, gemm")
        trial.close()
    trial = trial_of(operations, "fft", n=12, batch=2)
    assert math.isfinite(trial.run(2)) and trial.check() <= 1.0 and trial.note.startswith("hipFFT 10020: ")
    trial.close()
    operations.close()
    assert "setMathMode" not in cupy.calls and not cupy.handles and not cupy.allocated()


@pytest.mark.parametrize(
    ("op", "given", "says"),
    [
        ("gemm", {"dtype": "bfloat16"}, "support float32 and float16, not bfloat16"),
        ("gemm", {"dtype": "int8"}, "not int8"),
        ("gemm", {"dtype": "tf32"}, "not tf32"),
        ("gemm", {"dtype": "float32", "dispatch": "graph"}, "'hip' does not support graphs"),
        ("fft", {"n": 16, "dispatch": "graph"}, "'hip' does not support graphs"),
        ("fft", {"n": 16, "dtype": "float16"}, "hipFFT does not support float16"),
    ],
)
def test_what_hip_s_libraries_are_not_asked_for(op: str, given: dict[str, Any], says: str) -> None:
    operations = made(FakeCupy(hip=True, warpSize=64))
    why = operations.refusal(op, columns(op, **({**ODD, **given} if op == "gemm" else given)))
    assert why is not None and says in why
    operations.close()


def test_without_its_library_hip_says_where_it_comes_from() -> None:
    cupy = FakeCupy(hip=True, warpSize=64)
    cupy.without.add("cublas")
    found = Libraries(cupy_context.open_context(cupy, "hip", 0))
    assert "hipBLAS" in found.missing["gemm"] and found.missing["gemm"].endswith("it comes with ROCm")


# Clocks.


def test_a_device_s_conditions_are_what_nvml_says_and_no_versions() -> None:
    context = cupy_context.open_context(FakeCupy(), "cuda", 0)
    context.driver.nvml = Nvml(FakeNvml(nvmlDeviceGetTemperature=3), "handle")
    operations = CupyOperations(context, {})
    assert operations.conditions() == Conditions(
        power_w=650.5,
        power_limit_w=700.0,
        sm_clock_hz=1.98e9,
        memory_clock_hz=3.201e9,
        held_back=("power cap", "thermal (software)"),
        application_clock_hz=1.755e9,
    )
    assert set(operations.versions) == {"cuBLAS", "cuFFT"}
    operations.close()
    assert made(FakeCupy()).conditions() == Conditions()
