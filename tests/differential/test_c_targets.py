"""Kernels in C on every target and back end: refused at a line of their own, or the emulator's numbers.

The kernels are those of `tests/corpus/cuda_c` without a mistake, and of `tests/corpus/opencl_c.py`. All are written for
all targets; a sample is compiled and run here, all of them by ``python -m tests.differential.test_c_targets``.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.backends.fake_compilers import nvrtc_named
from tests.backends.fake_cupy import FakeCupy
from tests.corpus.cuda_c import test_verdicts as cuda_c
from tests.corpus.opencl_c import CASES as OPENCL_C
from tests.corpus.opencl_c import LocalBytes
from tests.differential import transpile_tools as tools
from tests.differential import transpiled_kernels as with_kernels

import windtunnel
from windtunnel.app import transpile as app
from windtunnel.backends.cuda import context as cupy_context
from windtunnel.backends.cuda import driver
from windtunnel.backends.cuda.driver import CupyDriver
from windtunnel.codegen import TARGETS, Emitted, transpile
from windtunnel.core.errors import InputError
from windtunnel.library.devices import open_real_device
from windtunnel.runtime.accelerator import Accelerator
from windtunnel.runtime.kernels import Kernel

FOLDER = Path(tempfile.mkdtemp())
CUDA_C = {case["case"]: case for case in cuda_c.CASES if case["truth"] == "clean"}
CASES = (*CUDA_C, *(case.name for case in OPENCL_C))
F64 = ("dot_grid_stride_atomic", "dynamic_shared_two_arrays", "floats_as_in_c", "mandelbrot", "math_functions",
       "prints_and_asserts", "lng", "dbl", "math")  # fmt: skip
FENCES = ("grid_barrier_by_atomics", "handover_by_flag", "lock_by_cas", "ticket_lock")
WAITING = FENCES[:1]
"""Threads of several blocks wait for each other, which no real device promises to end."""
WARPS = ("cooperative_groups_tile", "reduce_shuffle", "warp_votes", "syncwarp_last_warp")
REFUSED: Mapping[str, Mapping[str, str]] = {
    "cuda": {},
    "hip": {},
    "opencl": {},
    "metal": {
        **dict.fromkeys((*F64, "more_integers"), "has no f64"), "more_floats": "has no logb",
        "atomics_and_scopes": "has no atomic operations on u64",
    },
    "wgsl": {
        **dict.fromkeys(F64, "has no f64"), **dict.fromkeys(FENCES, "has no fence without a barrier"),
        **dict.fromkeys(("atomics_and_scopes", "collatz_while", "integers_as_in_c"), "has no u64"),
        **dict.fromkeys(("bytes_and_bits", "last_block_sum", "conv", "struct"), "has no u8"),
        **dict.fromkeys(("half_intrinsics", "shared_struct", "gstruct"), "has no u16"),
        **dict.fromkeys(("ints", "lng", "more_integers"), "has no i64"), **dict.fromkeys(("ch", "unnamed"), "has no i8"),
        "more_floats": "has no logb", "tern": "has no i16", "syncwarp_last_warp": "has no barrier of a warp",
    },
    "glsl": {
        "floats_as_in_c": "rounds to nearest only", "math_functions": "has no erf", "prints_and_asserts": "has no printf",
        **dict.fromkeys(("math", "more_integers"), "has no pow of f64"), "more_floats": "has no logb",
    },
    "fpga": {**dict.fromkeys(WARPS, "has no warps"), "more_floats": "has no sinpi"},
}  # fmt: skip
"""What each target refuses, and the words of it; all others are written."""
COMPILED = (
    "histogram_shared", "structs_and_references", "half_intrinsics", "atomics_and_scopes", "warp_votes",
    "floats_as_in_c", "prints_and_asserts", "swz", "conv", "math",
)  # fmt: skip
SAMPLE: Mapping[str, tuple[str, ...]] = {
    # Translated, and two whose own source PoCL compiles: with local memory, and with the number of axes.
    "opencl:0": ("dynamic_shared_two_arrays", "constant_and_device_variables", "prints_and_asserts", "local", "dim2"),
    "vulkan:0": ("histogram_shared", "integers_as_in_c", "half_intrinsics", "struct"),
    "wgpu:0": ("histogram_shared", "pointer_arithmetic", "local", "awg"),
    "cpu:0": ("scan_hillis_steele", "pointer_arithmetic", "atomics_and_scopes", "gstruct"),
}
NEAR = ("math_functions", "floats_as_in_c", "math", "geo", "dbl")
"""Whose last bits are those of the functions of a target, or of its contraction."""
FEW_ULP = {"rtol": 2e-5, "atol": 1e-6, "equal_nan": True}


HOST = SimpleNamespace(to_device=lambda array: array, empty=lambda count, dtype: np.zeros(count, dtype))
"""A device that only makes arrays."""


@dataclass(frozen=True)
class Launch:
    """A kernel and its launch: ``arguments`` are arrays, numbers, and ints for ``__local`` memory."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: list[Any]
    shared: int
    file: str


@cache
def launch_of(name: str) -> Launch:
    if name in CUDA_C:
        case = CUDA_C[name]
        file = cuda_c.HERE / case["file"]
        arrays = [cuda_c.argument(HOST, spec) for spec in case["arguments"].values()]
        kernel = getattr(windtunnel.load(file), case["kernel"])
        return Launch(kernel, tuple(case["grid"]), tuple(case["block"]), arrays, case["shared_bytes"], str(file))
    (case,) = (one for one in OPENCL_C if one.name == name)
    path = FOLDER / f"{name}.cl"
    path.write_text(case.source)
    module = windtunnel.load(path)
    grid = tuple(items // side for items, side in zip(case.items, case.group, strict=True))
    arguments = [one.size if isinstance(one, LocalBytes) else one for one in case.arguments]
    return Launch(getattr(module, dir(module)[0]), grid, case.group, arguments, 0, str(path))


def emitted(name: str, target: str) -> Emitted:
    launch = launch_of(name)
    source: Any = launch.kernel.function
    stated = zip(source.parameters, launch.arguments, strict=True)
    local = {parameter.name: given for parameter, given in stated if parameter.space == "local"}
    x, y, z = (*launch.block, 1, 1)[:3]
    return transpile(launch.kernel, target, (x, y, z), shared_bytes=launch.shared, local_bytes=local)


def run(name: str, device: Accelerator) -> list[np.ndarray]:
    """What the arrays hold after a launch on an open device."""
    launch = launch_of(name)
    given = [device.to_device(one) if isinstance(one, np.ndarray) else one for one in launch.arguments]
    device.launch(launch.kernel, launch.grid, launch.block, *given, shared_bytes=launch.shared)
    return [device.to_host(one) for one in given if hasattr(one, "memory")]


@cache
def emulated(name: str) -> list[np.ndarray]:
    with windtunnel.device("h200-sxm-141gb") as device:
        return run(name, device)


def check(name: str, found: list[np.ndarray]) -> None:
    for number, (array, wanted) in enumerate(zip(found, emulated(name), strict=True)):
        near = name in NEAR and array.dtype.kind == "f" and np.allclose(array, wanted, **FEW_ULP)
        equal = np.array_equal(array, wanted, equal_nan=array.dtype.kind == "f")
        assert near or equal, f"array {number}: {np.flatnonzero(array != wanted).size} of {array.size} differ"


def test_kernels_are_written_for_targets_or_refused_at_their_own_lines() -> None:
    """Each kernel for the targets that refuse it and for every third of the others, all for every one of them."""

    def check_one(name: str) -> None:
        some = TARGETS[CASES.index(name) % 3 :: 3]
        for target in (one for one in TARGETS if one in some or name in REFUSED[one]):
            reason = REFUSED[target].get(name)
            if reason is None:
                assert "Written by Windtunnel from the kernel" in emitted(name, target).source
                continue
            with pytest.raises(InputError, match=re.escape(reason)) as caught:
                emitted(name, target)
            where = caught.value.where
            assert (where.file, (where.line or 0) > 0, (where.column or 0) > 0) == (launch_of(name).file, True, True)

    with_kernels.for_each(CASES, check_one)
    assert {name for names in REFUSED.values() for name in names} <= set(CASES)


@pytest.mark.parametrize("target", ["cuda", "hip", "metal", "opencl"])
def test_a_real_compiler_takes_what_is_written(target: str) -> None:
    def check_one(name: str) -> None:
        found = tools.complaints(target, emitted(name, target))
        assert not found, found

    with_kernels.for_each([name for name in COMPILED if name not in REFUSED[target]], check_one)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_back_end_gives_the_emulator_s_numbers(name: str) -> None:
    with open_real_device(name) as device:
        with_kernels.for_each(SAMPLE[name], lambda case: check(case, run(case, device)))


def test_cuda_s_driver_compiles_a_kernel_s_own_source_without_what_runs_on_the_host(tmp_path: Path) -> None:
    """By NVRTC, and run by the stand-in for CuPy. All of the corpus is compiled for an H100."""
    cupy = FakeCupy()
    with Accelerator(cupy_context.open_context(cupy, "cuda", 0)) as device:
        with_kernels.for_each(("histogram_shared",), lambda name: check(name, run(name, device)))
        source = tmp_path / "host.cu"
        source.write_text(
            "#include <cstdio>\n#include <vector>\n"
            "struct Pair { float a; int b; };\n"
            "static int on_the_host() { std::vector<int> v(3); return (int)v.size(); }\n"
            "__global__ void fill(float *x, Pair p, const int *left) { if (!left) x[threadIdx.x] = p.a + p.b; }\n"
            'int main() { printf("%d", on_the_host()); fill<<<1, 1>>>(0, {}, 0); return 0; }\n'
        )
        x = device.empty(4, np.float32)
        device.launch(windtunnel.load(source).fill, 1, 4, x, [0.5, 2], 0)
        assert device.to_host(x).tolist() == [2.5] * 4


def test_kernels_of_one_file_are_one_module_of_cuda_so_that_they_share_its_variables(tmp_path: Path) -> None:
    source = tmp_path / "two.cu"
    source.write_text(
        "__global__ void ones(int *x) { x[threadIdx.x] = 1; }\n"
        "template <int N> __global__ void more(int *x) { x[threadIdx.x] += N; }\n"
        "template __global__ void more<2>(int *);\n"
    )
    cupy = FakeCupy()
    with Accelerator(cupy_context.open_context(cupy, "cuda", 0)) as device:
        for modules in (1, 2):  # a file that is loaded again has variables of its own
            kernels, x = windtunnel.load(source), device.empty(4, np.int32)
            device.launch(kernels.ones, 1, 4, x)
            function = device.context.compile(kernels.more)
            assert function.texts is not None
            own = function.texts.emitted([x], (4, 1, 1)).own
            assert own is not None and list(own.kernels) == ["ones", "more<2>"]
            device.context.driver.build(function.texts.emitted([x], (4, 1, 1)))
            assert cupy.calls.count("moduleLoadData") == modules


def test_headers_are_those_of_the_first_places_that_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str, *headers: str) -> Path:
        for header in headers:
            file = tmp_path / name / "include" / header
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        return tmp_path / name

    package = installed("package", "cuda_runtime.h")
    toolkit = installed("toolkit", "cuda_runtime.h", "cccl/nv/target")
    link = installed("link")
    monkeypatch.setattr(driver, "_HEADERS", ())
    monkeypatch.setattr(driver, "_TOOLKIT", toolkit)
    monkeypatch.setattr("shutil.which", lambda name: None)
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    whole = [toolkit / "include", toolkit / "include" / "cccl"]
    cupy = FakeCupy()

    def found(of_cupy: Path | None) -> list[Path]:
        cupy.cuda.get_cuda_path = lambda: of_cupy and str(of_cupy)
        return CupyDriver(cupy, 0).headers()

    assert found(toolkit) == found(link) == found(None) == whole
    assert found(package) == [package / "include", *whole]  # as that of PyTorch, without <nv/target>
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    monkeypatch.setattr(driver, "_TOOLKIT", link)
    assert found(package) == [package / "include", *whole]
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr("shutil.which", lambda name: str(toolkit / "bin" / name))
    assert found(package) == [package / "include", *whole]


def test_a_struct_is_passed_by_value_as_cupy_takes_it(tmp_path: Path) -> None:
    source = tmp_path / "own.cu"
    source.write_text(
        "struct Three { float a; int b; int c; };\n"
        "__global__ void fill(float *x, Three p) { x[threadIdx.x] = p.a + p.b * p.c; }\n"
    )
    fill = windtunnel.load(source).fill
    for mode in ("plain", "graph"):
        with Accelerator(cupy_context.open_context(FakeCupy(), "cuda", 0)) as device:
            x = device.empty(4, np.float32)
            if mode == "plain":
                device.launch(fill, 1, 4, x, [0.5, 2, 3])
            else:
                with device.capture() as graph:
                    device.launch(fill, 1, 4, x, [0.5, 2, 3])
                device.replay(graph.compile())
            assert device.to_host(x).tolist() == [6.5] * 4, mode


def test_nvrtc_compiles_kernels_by_their_own_source() -> None:
    def check_one(name: str) -> None:
        own = launch_of(name).kernel.function.own_text("cuda")  # type: ignore[attr-defined]
        headers = tuple(tools.nvrtc_headers())
        code, said, names = nvrtc_named(own.text, (*own.options, *headers, "-arch=sm_90"), (own.name,))
        assert code and not said and own.name in names[own.name], said

    with_kernels.for_each(("templates_instantiated", "half_intrinsics", "cooperative_groups_tile"), check_one)


def test_a_device_with_warps_of_another_size_refuses_kernels_for_32_threads_at_their_line() -> None:
    with open_real_device("vulkan:0") as device, pytest.raises(InputError, match="for warps of 32 threads") as caught:
        run("reduce_shuffle", device)
    assert (caught.value.where.file, caught.value.where.line) == (launch_of("reduce_shuffle").file, 4)


def test_structs_null_pointers_and_variables_of_the_file_reach_a_device(tmp_path: Path) -> None:
    source = tmp_path / "own.cu"
    source.write_text(
        "struct Pair { float a; int b; };\n__device__ int calls = 5;\n"
        "__global__ void fill(float *x, Pair p, const int *left) {\n"
        "    if (threadIdx.x == 0) atomicAdd(&calls, 1);\n    __syncthreads();\n"
        "    x[threadIdx.x] = p.a + p.b + calls + (left ? left[0] : 0);\n}\n"
    )
    for opened in (windtunnel.device("l4"), open_real_device("cpu:0")):
        fill = windtunnel.load(source).fill
        with opened as device:
            x = device.empty(4, np.float32)
            for number in range(2):
                device.launch(fill, 1, 4, x, [0.5, 2], 0)
                assert device.to_host(x).tolist() == [8.5 + number] * 4, device.info.name
            with pytest.raises(InputError, match="2 arguments for kernel 'fill'"):
                device.launch(fill, 1, 4, x, 1)


def test_transpile_takes_a_kernel_of_a_file_in_c_by_its_name(tmp_path: Path) -> None:
    source = tmp_path / "two.cu"
    source.write_text(
        "template <typename T> __global__ void scale(T *x) { x[threadIdx.x] *= FACTOR; }\n"
        "template __global__ void scale<float>(float *);\n__global__ void other(int *x) { *x = 1; }\n"
    )
    text = app.transpile(app.TranspileRequest(f"{source}:other", "opencl", defines=["FACTOR=2"])).source
    assert "__kernel void other(__global int *x) {" in text
    text = app.transpile(app.TranspileRequest(f"{source}:scale< float >", "wgsl", defines=["FACTOR=2"])).source
    assert "fn scale(" in text
    for wrong, request in {
        "no kernel 'othr'.*did you mean 'other'": app.TranspileRequest(f"{source}:othr", "hip", defines=["FACTOR=2"]),
        "undeclared identifier 'FACTOR'": app.TranspileRequest(f"{source}:scale<float>", "hip"),
        "2 kernels|several": app.TranspileRequest(str(source), "hip", defines=["FACTOR=2"]),
        "-D for a kernel that is not in C": app.TranspileRequest(f"{with_kernels.KERNELS}:saxpy", "hip", defines=["A"]),
        "the size of the __local parameter 't'": app.TranspileRequest(launch_of("local").file, "hip"),
        "'x' is no __local parameter": app.TranspileRequest(f"{source}:other", "hip", defines=["FACTOR=2"],
                                                            arguments={"x": "local:4"}),
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=wrong):
            app.transpile(request)


def test_dynamic_shared_memory_gets_its_size_where_a_target_states_it() -> None:
    assert "__local uint raw[96];" in emitted("dynamic_shared_two_arrays", "opencl").source
    assert "extern __shared__ unsigned int raw[];" in emitted("dynamic_shared_two_arrays", "cuda").source


def numbers_on(name: str) -> None:
    """Run all kernels on a back end, and print which differ or are refused, and why."""
    equal = 0
    with open_real_device(name) as device:
        for case in CASES:
            if case in WAITING:
                print(f"{name}: {case} is not run: its blocks wait for each other")
                continue
            try:
                check(case, run(case, device))
                equal += 1
            except (Exception, pytest.fail.Exception) as error:
                print(f"{name}: {case}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    print(f"{name}: {equal} of {len(CASES)} kernels give the emulator's numbers", flush=True)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAMPLE:
        numbers_on(chosen)
