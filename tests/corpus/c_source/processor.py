"""The same kernels on the processor: CUDA C compiled by Clang with ``processor.h``, OpenCL C by PoCL."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl
from tests.corpus.c_source.programs import Program

from windtunnel.app.check_arguments import LaunchRequest, MadeUp, arguments_of
from windtunnel.app.check_kernels import CheckedKernel, kernels_of
from windtunnel.app.check_launches import launches_of
from windtunnel.core.errors import UninitializedRead
from windtunnel.library.devices import open_device
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel

HEADER = Path(__file__).parent / "processor.h"
_DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s*(\w+)\[\];")


def clang() -> str:
    """Return Clang's name on this machine: that without a version, or the newest."""
    numbered = sorted(Path("/usr/bin").glob("clang++-[0-9]*"), key=lambda file: int(file.name.partition("-")[2]))
    found = shutil.which("clang++") or (str(numbered[-1]) if numbered else None)
    assert found is not None, "Clang is not installed (make setup-test installs it)"
    return found


def compiled(programs: Sequence[Program], folder: Path, *, contract: str = "on") -> ctypes.CDLL:
    """Compile programs in CUDA C into one library, each in a namespace of its own."""
    parts = [f'#include "{HEADER}"']
    for program in programs:
        text = re.sub(r"^\s*#\s*include.*$", "", program.source.read_text(), flags=re.M)
        text = _DYNAMIC.sub(r"\1 *\2 = (\1 *)processor::memory;", text)
        macros = "\n".join(f"#undef {name}" for name in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M))
        parts.append(f"namespace {program.name} {{\n{text}\n{macros}\n}}")
        for number, kernel in enumerate(dict.fromkeys(request.kernel for request in launches_of(program.launches))):
            parts.append(
                f'extern "C" void run_{program.name}_{number}(const unsigned *sizes, void **given) '
                f"{{ processor::launch({program.name}::{kernel}, sizes, given); }}"
            )
    file, library = folder / "processor.cc", folder / "processor.so"
    file.write_text("\n".join(parts))
    options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-march=native", f"-ffp-contract={contract}"]
    subprocess.run([clang(), *options, str(file), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def _bytes_of(value: Any, dtype: np.dtype[Any]) -> bytes:
    """Return a number or a struct that is passed by value, as it lies in memory."""
    return bytes(value.tobytes() if isinstance(value, np.void) else np.array(value).astype(dtype).tobytes())


def _by_clang(
    library: ctypes.CDLL, symbol: str, request: LaunchRequest, kernel: CheckedKernel, given: Sequence[Any]
) -> None:
    held: dict[str, Any] = {}
    for parameter, value in zip(kernel.parameters, given, strict=True):
        # A struct with pointers has a parameter for each; together they are the struct.
        name = parameter.name.partition(".")[0]
        data = _bytes_of(value, parameter.dtypes[0]) if parameter.kind == "number" else None
        if data is None:
            address = value.ctypes.data if isinstance(value, np.ndarray) else 0
            data = address.to_bytes(8, "little")
        held[name] = held.get(name, b"") + data
    copies = [ctypes.create_string_buffer(data, len(data)) for data in held.values()]
    pointers = (ctypes.c_void_p * len(copies))(*(ctypes.addressof(copy) for copy in copies))
    sizes = (ctypes.c_uint * 6)(*request.grid, *request.block)
    getattr(library, symbol)(sizes, pointers)


class Pocl:
    """The processor as PoCL shows it."""

    def __init__(self) -> None:
        devices = [device for platform in pyopencl.get_platforms() for device in platform.get_devices()]
        self.context = pyopencl.Context(devices[:1])
        self.queue = pyopencl.CommandQueue(self.context)

    def run(self, program: Program, request: LaunchRequest, kernel: CheckedKernel, given: Sequence[Any]) -> None:
        """Run one launch; the arrays hold the results."""
        built = pyopencl.Program(self.context, program.source.read_text()).build()
        flags = pyopencl.mem_flags.COPY_HOST_PTR | pyopencl.mem_flags.READ_WRITE
        arguments: list[Any] = []
        for parameter, value in zip(kernel.parameters, given, strict=True):
            if parameter.kind == "local":
                arguments.append(pyopencl.LocalMemory(value))
            elif isinstance(value, np.ndarray):
                arguments.append(pyopencl.Buffer(self.context, flags, hostbuf=value))
            else:
                arguments.append(np.frombuffer(_bytes_of(value, parameter.dtypes[0]), np.uint8))
        items = [grid * block for grid, block in zip(request.grid, request.block, strict=True)]
        getattr(built, kernel.name)(self.queue, items, request.block, *arguments)
        for value, argument in zip(given, arguments, strict=True):
            if isinstance(value, np.ndarray):
                pyopencl.enqueue_copy(self.queue, value, argument)


def both(program: Program, library: ctypes.CDLL | None, pocl: Pocl) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Run a program's launches emulated and on the processor, and return what each buffer holds afterwards."""
    requests = launches_of(program.launches)
    kernels = kernels_of(requests)
    numbers = list(dict.fromkeys(request.kernel for request in requests))
    with open_device("h100-sxm-80gb") as accelerator:
        buffers: dict[str, Buffer] = {}
        arrays: dict[int, np.ndarray] = {}
        for request, kernel in zip(requests, kernels, strict=True):
            given = arguments_of(accelerator, kernel.parameters, request, buffers, MadeUp())
            for buffer in given:
                if isinstance(buffer, Buffer) and id(buffer) not in arrays:
                    try:
                        arrays[id(buffer)] = np.array(accelerator.to_host(buffer))
                    except UninitializedRead:
                        # What nothing has written is compared too: an emulated device gives these bytes.
                        arrays[id(buffer)] = (
                            np.full(buffer.nbytes, 0xFF, np.uint8).view(buffer.dtype).reshape(buffer.shape)
                        )
            own = [arrays[id(value)] if isinstance(value, Buffer) else value for value in given]
            if library is None:
                pocl.run(program, request, kernel, own)
            else:
                _by_clang(library, f"run_{program.name}_{numbers.index(request.kernel)}", request, kernel, own)
            accelerator.launch(
                Kernel(kernel.function), request.grid, request.block, *given, shared_bytes=request.shared_bytes or 0
            )
        return {name: (accelerator.to_host(buffer), arrays[id(buffer)]) for name, buffer in buffers.items()}
