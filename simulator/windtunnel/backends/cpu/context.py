"""The host's processor opened for programs. Device memory is host memory, and every call has completed on return.

There are streams and events, but nothing overlaps. Kernels over whole arrays are called as Python functions. Kernels of
threads are emitted as C++ and compiled by the system's compiler; one processor thread executes all of them.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.backends.common.backend import DetectedDevice
from windtunnel.backends.common.context import RealContext, RealFunction, RealStream
from windtunnel.backends.common.driver import Problem
from windtunnel.backends.common.host_work import host_info
from windtunnel.codegen import Buffer as ArrayArgument
from windtunnel.codegen import Emitted
from windtunnel.core.errors import DeviceOutOfMemory, LaunchError
from windtunnel.core.memory import available_bytes
from windtunnel.core.time_limits import time_limit
from windtunnel.runtime.interface import Dims, MemoryKind


class HostDriver:
    """Implements `common.context.Driver` on the host. A mark is the time at which it was made."""

    timed = False
    target = "fpga"
    """C++ that executes a kernel's threads one after another, from barrier to barrier. Synthesis uses it, too."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.built = 0

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """Allocate ``size`` bytes. Raises MemoryError if less is free: the pages take no memory until they are used."""
        if size > available_bytes():
            raise MemoryError(f"{size:,} bytes exceed the host's free memory of {available_bytes():,.0f} bytes")
        return np.zeros(size, np.uint8)

    def free(self, memory: Any) -> None:
        """Do nothing: the memory is freed when nobody refers to it any more."""

    def write(self, memory: Any, data: np.ndarray, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """Copy from host to device."""
        memory[: data.size] = data
        return time.perf_counter_ns()

    def read(self, data: np.ndarray, memory: Any, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """Copy from device to host."""
        data[...] = memory[: data.size]
        return time.perf_counter_ns()

    def copy(self, to: Any, memory: Any, size: int, queue: None, after: Sequence[int]) -> int:
        """Copy within the device."""
        to[:size] = memory[:size]
        return time.perf_counter_ns()

    def build(self, emitted: Emitted) -> Any:
        """Compile a kernel. Raises LookupError if there is no compiler, or if it rejects the kernel."""
        compiler = shutil.which("g++")
        if compiler is None:
            raise LookupError("kernels of threads need a C++ compiler (g++) to run on processors: install one")
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="windtunnel-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.built += 1
        source = self.folder / f"kernel{self.built}.cpp"
        source.write_text(emitted.source, encoding="utf-8")
        library = source.with_suffix(".so")
        options = ["-std=c++17", "-O2", "-march=native", "-w", "-shared", "-fPIC", *emitted.options]
        command = [compiler, *options, str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit(120.0), check=False)  # noqa: S603
        if done.returncode:
            raise LookupError(f"the compiler rejected the kernel: {done.stderr.strip()[:2000]}")
        return getattr(ctypes.CDLL(str(library)), emitted.signature.name)

    def launch(
        self,
        kernel: Any,
        emitted: Emitted,
        grid: Dims,
        block: Dims,
        values: Sequence[Any],
        queue: None,
        after: Sequence[int],
    ) -> int:
        """Execute a kernel."""
        arguments = []
        for parameter, value in zip(emitted.signature.arguments, values, strict=True):
            if isinstance(parameter, ArrayArgument):
                arguments.append(ctypes.c_void_p(value.ctypes.data))
            else:
                arguments.append(np.ctypeslib.as_ctypes_type(value.dtype)(value.item()))
        kernel(*arguments)
        return time.perf_counter_ns()

    def queue(self, *, non_blocking: bool) -> None:
        """Return None: there are no queues, because every call has completed on return."""

    def mark(self, queue: None, after: Sequence[int]) -> int:
        """Return the present time, which is after all work."""
        return time.perf_counter_ns()

    def reached(self, mark: int) -> bool:
        """Return True: all work has completed."""
        return True

    def wait(self, mark: int) -> None:
        """Do nothing: all work has completed."""

    def finish(self, queue: None) -> None:
        """Do nothing: all work has completed."""

    def elapsed_s(self, mark: int, since: int) -> float:
        """Return the seconds between two marks."""
        return (mark - since) * 1e-9

    def busy_s(self, mark: int) -> float | None:
        """Return None: a mark does not record when its work began."""
        return None

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """Return the memory itself, which is the host's."""
        view: np.ndarray = memory[:size]
        return view

    def problem(self, error: Exception) -> Problem | None:
        """Translate an error of memory, or of the compiler; None for any other."""
        if isinstance(error, MemoryError):
            return Problem(DeviceOutOfMemory, str(error))
        refused = isinstance(error, (LookupError, subprocess.TimeoutExpired))
        return Problem(LaunchError, str(error)) if refused else None

    def close(self) -> None:
        """Do nothing: memory and compiled kernels are freed with this object."""

    def energy_j(self) -> float | None:
        """Return None: the counters of processors are not readable without privileges."""
        return None


class HostContext(RealContext[Any, Any]):
    """The host's processors, opened for programs."""

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Any, Any] | None,
        shared: int,
    ) -> None:
        """Launch a kernel of threads, or call a kernel over whole arrays with its arguments."""
        if function.texts is not None:
            super().launch(function, grid, block, arguments, stream, shared)
            return
        self.stream_of(stream)
        function.kernel(*(self.array(argument) for argument in arguments))

    def array(self, argument: Any) -> Any:
        """Return a buffer as a NumPy array, and a number unchanged."""
        if not hasattr(argument, "memory"):
            return argument
        data: np.ndarray = argument.memory.handle
        return data[: argument.nbytes].view(argument.dtype).reshape(argument.shape)


def open_context(detected: DetectedDevice) -> HostContext:
    """Open the host's processors for programs."""
    return HostContext(HostDriver(), host_info(detected, frozenset({"threads", "unified"})))
