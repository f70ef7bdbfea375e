"""The host's processors as a device for programs: memory is the host's, and every call is done when it returns.

Streams and events are kept, and nothing overlaps. Kernels of whole arrays run as the Python they are; kernels of
threads are emitted as C++, which the system's compiler compiles, and one thread of the processor runs all of them.
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

from windtunnel.backends.common.backend import Found
from windtunnel.backends.common.context import RealContext, RealFunction, RealStream
from windtunnel.backends.common.host_work import available_bytes, host_info
from windtunnel.codegen import Buffer as ArrayArgument
from windtunnel.codegen import Emitted
from windtunnel.core.errors import DeviceError, DeviceOutOfMemory, LaunchError
from windtunnel.runtime.interface import Dims, MemoryKind


class HostDriver:
    """The host as a device: see ``_context.Driver``. A mark is the time at which it was made."""

    timed = False
    target = "fpga"
    """C++ that runs a kernel's threads one after another, from barrier to barrier: for synthesis, and for this."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.built = 0

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """See ``Driver``. Pages that nobody has touched take no memory yet: what is not free is refused here."""
        if size > available_bytes():
            raise MemoryError(f"{available_bytes():,.0f} bytes of the host's memory are free")
        return np.zeros(size, np.uint8)

    def free(self, memory: Any) -> None:
        """See ``Driver``: whoever holds it still sees it."""

    def write(self, memory: Any, data: np.ndarray, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """See ``Driver``."""
        memory[: data.size] = data
        return time.perf_counter_ns()

    def read(self, data: np.ndarray, memory: Any, queue: None, after: Sequence[int], *, hold: bool) -> int:
        """See ``Driver``."""
        data[...] = memory[: data.size]
        return time.perf_counter_ns()

    def copy(self, to: Any, memory: Any, size: int, queue: None, after: Sequence[int]) -> int:
        """See ``Driver``."""
        to[:size] = memory[:size]
        return time.perf_counter_ns()

    def build(self, emitted: Emitted) -> Any:
        """See ``Driver``. DeviceError where there is no compiler, and where it finds fault with the kernel."""
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
        if done.returncode:
            raise LookupError(f"the compiler refused the kernel: {done.stderr.strip()[:2000]}")
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
        """See ``Driver``."""
        given = []
        for one, value in zip(emitted.signature.arguments, values, strict=True):
            if isinstance(one, ArrayArgument):
                given.append(ctypes.c_void_p(value.ctypes.data))
            else:
                given.append(np.ctypeslib.as_ctypes_type(value.dtype)(value.item()))
        kernel(*given)
        return time.perf_counter_ns()

    def queue(self, *, non_blocking: bool) -> None:
        """See ``Driver``: every call is done when it returns."""

    def mark(self, queue: None, after: Sequence[int]) -> int:
        """See ``Driver``."""
        return time.perf_counter_ns()

    def reached(self, mark: int) -> bool:
        """See ``Driver``."""
        return True

    def wait(self, mark: int) -> None:
        """See ``Driver``."""

    def finish(self, queue: None) -> None:
        """See ``Driver``."""

    def elapsed_s(self, mark: int, since: int) -> float:
        """See ``Driver``."""
        return (mark - since) * 1e-9

    def busy_s(self, mark: int) -> float | None:
        """Marks do not know when their work began."""
        return None

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """See ``Driver``: all memory is the host's."""
        found: np.ndarray = memory[:size]
        return found

    def problem(self, error: Exception) -> tuple[type[DeviceError] | None, str] | None:
        """See ``Driver``."""
        if isinstance(error, MemoryError):
            return DeviceOutOfMemory, str(error)
        return (LaunchError, str(error)) if isinstance(error, (LookupError, subprocess.TimeoutExpired)) else None

    def close(self) -> None:
        """See ``Driver``: all that it holds goes with it."""

    def energy_j(self) -> float | None:
        """The counters that processors have are not readable without privileges."""
        return None


class HostContext(RealContext[Any, Any]):
    """The host's processors, opened."""

    def launch(
        self,
        function: RealFunction,
        grid: Dims,
        block: Dims,
        arguments: Sequence[Any],
        stream: RealStream[Any, Any] | None,
        shared: int,
    ) -> None:
        """See ``Context``. A kernel of whole arrays is called on them."""
        if function.texts is not None:
            super().launch(function, grid, block, arguments, stream, shared)
            return
        self.stream_of(stream)
        function.kernel(*(self.array(argument) for argument in arguments))

    def array(self, argument: Any) -> Any:
        """A buffer as NumPy has it; numbers as they are."""
        if not hasattr(argument, "memory"):
            return argument
        data: np.ndarray = argument.memory.handle
        return data[: argument.nbytes].view(argument.dtype).reshape(argument.shape)


def opened(found: Found) -> HostContext:
    """The host's processors, opened for a program."""
    return HostContext(HostDriver(), host_info(found, frozenset({"threads", "unified"})))
