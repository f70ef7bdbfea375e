"""What compiles the sources that kernels are transpiled to, and what runs them: NVRTC, Clang, drivers and a C++ compiler."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.differential.transpiled_kernels import Case

from windtunnel.codegen import Buffer, Emitted, GridSize, Side, Signature, Value

STUBS = Path(__file__).resolve().parents[1] / "data" / "transpile_stubs"


def complaints(target: str, made: Emitted) -> object:
    """What the target's compiler reports for a kernel: nothing if it compiles.

    It is NVRTC for an H100, or Clang: for an MI210, for Metal as C++ with address spaces, for OpenCL with its built-ins.
    """
    match target:
        case "cuda":
            return nvrtc(made)
        case "hip":
            return clang(made.source, "kernel.hip", *HIP)
        case "metal":
            return clang(metal_as_cpp(made.source), "kernel.cpp", *METAL)
    return clang(made.source, "kernel.cl", *OPENCL)


def number_of(one: Side | Value | GridSize, case: Case) -> np.generic:
    """A scalar argument, in the type in which it is passed."""
    match one:
        case Side():
            return np.int32(case.arguments[one.array].shape[one.side])
        case Value():
            return one.passed.dtype.type(case.arguments[one.name])
        case GridSize():
            return np.int32(case.grid[one.axis])


def after(signature: Signature, case: Case, take: Callable[[Buffer], np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays that the kernel writes."""
    return {
        one.name: take(one).view(one.element.dtype).reshape(case.arguments[one.name].shape)
        for one in signature.buffers
        if one.written
    }


# Compilers.


@cache
def _nvrtc() -> tuple[Any, list[str]]:
    """(the compiler, where its headers are): those of the runtime, and of what cooperative groups are made with."""
    import nvidia.cuda_cccl
    import nvidia.cuda_nvrtc
    import nvidia.cuda_runtime

    (library,) = (Path(nvidia.cuda_nvrtc.__path__[0]) / "lib").glob("libnvrtc.so.*")
    return ctypes.CDLL(str(library)), [
        f"-I{Path(package.__path__[0]) / 'include'}" for package in (nvidia.cuda_runtime, nvidia.cuda_cccl)
    ]


def nvrtc_headers() -> list[str]:
    """The options for the headers of CUDA."""
    return _nvrtc()[1]


def nvrtc(emitted: Emitted) -> str:
    """What NVRTC says of a CUDA source, compiled to an H100's machine code; nothing where it is content."""
    library, headers = _nvrtc()
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), emitted.source.encode(), b"kernel.cu", 0, None, None) == 0
    options = [o.encode() for o in ("--gpu-architecture=sm_90", *headers, *emitted.options)]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    said = log.value.decode() or ("" if code == 0 else f"error {code}")
    if not said:
        library.nvrtcGetCUBINSize(program, ctypes.byref(size))
        assert size.value > 1000  # machine code, not only the assembler's text
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return said


def clang(source: str, file: str, *arguments: str) -> list[str]:
    """What Clang's front end says of a source."""
    from clang import cindex

    given = [*arguments, f"-I{STUBS}", "-Wall", "-Wno-unknown-attributes", "-Wno-ignored-pragmas"]
    unit = cindex.Index.create().parse(file, args=given, unsaved_files=[(file, source)])
    return [str(one) for one in unit.diagnostics]


HIP = ("-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a", "-nogpuinc", "-nogpulib")
METAL = ("-x", "c++", "-std=c++17", "-nostdinc++", "-Wno-user-defined-literals")
OPENCL = (
    "-x", "cl", "-cl-std=CL3.0", "-target", "spir64", "-Xclang", "-cl-ext=+all", "-Xclang", "-fdeclare-opencl-builtins",
    "-Xclang", "-finclude-default-header",
)  # fmt: skip


def metal_as_cpp(source: str) -> str:
    """C++ wants variables in another address space to be static."""
    return re.sub(r"(?m)^( +)(threadgroup \w+ \w+\[)", r"\1static \2", source)


# Real devices, by the back ends' own drivers.


@cache
def driver_of(name: str) -> Any:
    from windtunnel.backends.discovery.registry import backend

    opened = backend(name).context
    assert opened is not None
    return opened(0).driver


def opencl_extensions() -> list[str]:
    """What PoCL offers beyond the standard."""
    return list(driver_of("opencl").device.extensions.split())


def run_on(name: str, emitted: Emitted, case: Case, shared: int = 0) -> dict[str, np.ndarray]:
    """A text on the first device of a back end: the arrays that it writes. ``shared``: dynamic bytes a block (CUDA)."""
    driver = driver_of(name)
    queue = driver.queue(non_blocking=False)
    held = {}
    for one in emitted.signature.buffers:
        data = np.ascontiguousarray(case.arguments[one.name])
        held[one.name] = driver.allocate(data.nbytes, "device")
        driver.write(held[one.name], data.reshape(-1).view(np.uint8), queue, (), hold=True)
    kernel = driver.build(emitted)
    values = [
        held[one.name] if isinstance(one, Buffer) else number_of(one, case) for one in emitted.signature.arguments
    ]
    if shared:
        driver.opt_in(kernel, shared)
        driver.launch(kernel, emitted, case.grid, case.block, values, queue, (), shared)
    else:
        driver.launch(kernel, emitted, case.grid, case.block, values, queue, ())

    def take(one: Buffer) -> np.ndarray:
        out = np.empty(case.arguments[one.name].nbytes, np.uint8)
        driver.read(out, held[one.name], queue, (), hold=True)
        return out

    found = after(emitted.signature, case, take)
    driver.finish(queue)
    for memory in held.values():
        driver.free(memory)
    return found


def run_opencl(emitted: Emitted, case: Case) -> dict[str, np.ndarray]:
    return run_on("opencl", emitted, case)


def run_wgsl(emitted: Emitted, case: Case) -> dict[str, np.ndarray]:
    return run_on("wgpu", emitted, case)


def run_glsl(emitted: Emitted, case: Case) -> dict[str, np.ndarray]:
    return run_on("vulkan", emitted, case)


def run_cuda(emitted: Emitted, case: Case, shared: int) -> dict[str, np.ndarray]:
    return run_on("cuda", emitted, case, shared)


def run_cpp(emitted: Emitted, case: Case) -> dict[str, np.ndarray]:
    return run_on("cpu", emitted, case)


# C++ for high-level synthesis.


ERRORS = [
    f"-Werror={name}"
    for name in (
        "return-type", "uninitialized", "overflow", "div-by-zero", "shift-count-overflow", "shift-count-negative",
        "unused-variable", "unused-function", "parentheses", "sequence-point", "array-bounds", "address",
    )
]  # fmt: skip
"""Warnings that are errors, by name: a newer compiler may have others."""


def build_fpga(kernels: Sequence[Emitted], folder: Path) -> Path:
    """Compile kernels to one library, because starting the compiler takes longer than compiling most of them.

    Kernel ``i`` is the function ``case_i_NAME``. It is compiled to report what C leaves undefined, such as a signed
    overflow.
    """
    includes: dict[str, None] = {}
    bodies = []
    for number, emitted in enumerate(kernels):
        lines = emitted.source.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        name = emitted.signature.name
        assert f'extern "C" void {name}(' in body
        body = body.replace(f'extern "C" void {name}(', f'extern "C" void case_{number}_{name}(')
        bodies.append(f"namespace case_{number} {{\n{body}\n}}")
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join([*includes, *bodies]) + "\n")
    (options,) = {emitted.options for emitted in kernels}
    compile_cpp(
        [
            "-O1",
            "-fsanitize=undefined",
            *ERRORS,
            "-Wno-unknown-pragmas",
            "-Wno-tautological-compare",  # random expressions have them
            "-Wno-maybe-uninitialized",  # it cannot see that a first phase's threads write what a second's read
            "-shared",
            "-fPIC",
            *options,
            str(source),
            "-o",
            str(library),
        ]
    )
    return library


def call_fpga(library: Path, number: int, emitted: Emitted, case: Case) -> dict[str, np.ndarray]:
    """Call kernel ``number`` of a library of ``build_fpga``, and return its arrays."""
    function = getattr(ctypes.CDLL(str(library)), f"case_{number}_{emitted.signature.name}")
    held = {buffer.name: np.array(case.arguments[buffer.name], order="C") for buffer in emitted.signature.buffers}
    given: list[Any] = []
    for argument in emitted.signature.arguments:
        if isinstance(argument, Buffer):
            given.append(held[argument.name].ctypes.data_as(ctypes.c_void_p))
        else:
            value = number_of(argument, case)
            given.append(np.ctypeslib.as_ctypes_type(value.dtype)(value.item()))
    function(*given)
    return after(emitted.signature, case, lambda buffer: held[buffer.name])


def run_fpga(emitted: Emitted, case: Case, folder: Path) -> dict[str, np.ndarray]:
    return call_fpga(build_fpga([emitted], folder), 0, emitted, case)


def call_fpga_watched(
    library: Path, number: int, emitted: Emitted, case: Case, folder: Path
) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays, and what this process has written to standard error meanwhile."""
    kept = os.dup(2)
    with (folder / "stderr").open("w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            arrays = call_fpga(library, number, emitted, case)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return arrays, file.read()


def compile_cpp(arguments: list[str]) -> None:
    made = subprocess.run(["g++", "-std=c++17", "-Wall", *arguments], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
