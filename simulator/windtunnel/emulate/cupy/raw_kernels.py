"""``cupy.RawKernel`` and ``cupy.RawModule``: kernels in CUDA C."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.core.errors import caller
from windtunnel.csource.kernel import CFunction, CModule
from windtunnel.emulate.common import current
from windtunnel.emulate.cupy.compiled import launch, read_source
from windtunnel.emulate.cupy.cuda.compiler import CompileException, JitifyException
from windtunnel.emulate.cupy.cuda.memory import BaseMemory, MemoryPointer
from windtunnel.emulate.cupy.cuda.runtime_error import CUDADriverError
from windtunnel.emulate.cupy.refusals import not_available
from windtunnel.emulate.cupy.source_lines import origins_of
from windtunnel.runtime.kernels import Kernel

_STATIC_LIMIT = 49152
"""Shared memory (bytes) that a kernel may use unless its attribute allows more."""
_ATTRIBUTES = (
    "max_threads_per_block", "shared_size_bytes", "const_size_bytes", "local_size_bytes", "num_regs", "ptx_version",
    "binary_version", "cache_mode_ca", "max_dynamic_shared_size_bytes", "preferred_shared_memory_carveout",
)  # fmt: skip


def _not_found(name: str, known: Sequence[str], hint: str = "") -> CUDADriverError:
    error = CUDADriverError(500)
    error.args = (f"{error.args[0]}: '{name}'; the source has {', '.join(known) or 'no kernel'}{hint}",)
    return error


class RawKernel:
    """A kernel in CUDA C, which is called with a grid, a block and arguments."""

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool | None = None,
    ) -> None:
        module = RawModule(
            code=code, options=options, backend=backend, translate_cucomplex=translate_cucomplex,
            enable_cooperative_groups=enable_cooperative_groups, jitify=jitify,
        )  # fmt: skip
        self._setup(module, name)

    def _setup(self, module: RawModule, name: str) -> None:
        self._source, self.name = module, name
        self.code, self.options, self.backend = module.code, module.options, module.backend
        self.enable_cooperative_groups = module.enable_cooperative_groups
        self.file_path = module.file_path
        self._launched: Kernel | None = None
        self._dynamic: int | None = None
        self._carveout = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self._source, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(state["module"], state["name"])

    def __repr__(self) -> str:
        return f"<cupy.RawKernel '{self.name}'>"

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator has it."""
        _ = self._source.module
        if self._launched is None:
            self._launched = Kernel(self._source.function(self.name))
        return self._launched

    @property
    def _function(self) -> CFunction:
        function = self.kernel.function
        assert isinstance(function, CFunction)  # noqa: S101  the kernels here are in C
        return function

    def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0, stream: Any = None) -> None:
        """Launch it. Raises a finding, LaunchError, or InvalidArgument for wrong arguments."""
        kernel = self.kernel
        if shared_mem > _STATIC_LIMIT - self.shared_size_bytes and shared_mem > (self._dynamic or 0):
            error = CUDADriverError(1)
            error.args = (
                f"{error.args[0]}: {shared_mem:,} bytes of dynamic shared memory for '{self.name}'; set its attribute "
                "max_dynamic_shared_size_bytes first",
            )
            raise error
        launch(kernel, grid, block, tuple(args), shared_mem, stream)

    def compile(self, log_stream: Any = None) -> None:
        """Read the source now, and write Clang's warnings to ``log_stream``."""
        _ = self.kernel
        self._source.compile(log_stream)

    @property
    def attributes(self) -> dict[str, int]:
        """All attributes by their names."""
        return {name: getattr(self, name) for name in _ATTRIBUTES}

    def _declared_bytes(self, space: str) -> int:
        found = [one for one in self._function.declared({}).declared.values() if one.space == space]
        return sum(int(np.prod(one.shape)) * one.element.dtype.itemsize for one in found)

    @property
    def max_threads_per_block(self) -> int:
        """The most threads of a block."""
        return int(current.current_accelerator().info.limits.threads_per_block)

    @property
    def shared_size_bytes(self) -> int:
        """The shared memory (bytes) that the kernel declares with a size."""
        return self._declared_bytes("shared")

    @property
    def const_size_bytes(self) -> int:
        """The variables of the file (bytes) that the kernel uses."""
        function = self._function
        used = function.declared({}).of_file.values()
        return sum(len(found) for name in used if (found := function.module.contents(name)) is not None)

    @property
    def local_size_bytes(self) -> int:
        """The arrays (bytes) of a thread."""
        return self._declared_bytes("local")

    @property
    def num_regs(self) -> int:
        """The registers of a thread, estimated from the kernel's variables."""
        work = current.current_accelerator().context.work
        return int(work.estimated_registers(self._function.declared({}).variables))

    @property
    def ptx_version(self) -> int:
        """The compute capability that the kernel is read for."""
        major, minor = current.compute_capability()
        return major * 10 + minor

    binary_version = ptx_version

    @property
    def cache_mode_ca(self) -> int:
        """0: the default."""
        return 0

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """The most dynamic shared memory (bytes) of a launch."""
        return _STATIC_LIMIT - self.shared_size_bytes if self._dynamic is None else self._dynamic

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        limit = current.largest_shared_bytes() - self.shared_size_bytes
        if not 0 <= size <= limit:
            error = CUDADriverError(1)
            error.args = (f"{error.args[0]}: {size:,} bytes of dynamic shared memory, of at most {limit:,}",)
            raise error
        self._dynamic = int(size)
        self.kernel.allowed_shared_bytes = self._dynamic + self.shared_size_bytes

    @property
    def preferred_shared_memory_carveout(self) -> int:
        """The share of the cache for shared memory (%), which has no effect."""
        return self._carveout

    @preferred_shared_memory_carveout.setter
    def preferred_shared_memory_carveout(self, fraction: int) -> None:
        self._carveout = fraction


class RawModule:
    """A source in CUDA C with kernels and variables."""

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool | None = None,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if jitify is not None:
            text = (
                "jitify=True is deprecated"
                if jitify
                else "The jitify argument is deprecated. Avoid passing `jitify=False`."
            )
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        if backend not in ("nvrtc", "nvcc"):
            raise ValueError(f"Invalid backend {backend}")
        if name_expressions is not None and backend != "nvrtc":
            raise ValueError("only nvrtc supports retrieving the mangled names for the given name expressions")
        if not isinstance(options, (tuple, list)):
            raise TypeError(f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__})")
        self._translated = ("-D__WT_TRANSLATED",) if translate_cucomplex else ()
        self._error = JitifyException if jitify else CompileException
        self.code, self.file_path, self.options, self.backend = code, path, tuple(options), backend
        self.enable_cooperative_groups = enable_cooperative_groups
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._at = caller()
        self._read: CModule | None = None
        self._device: Any = None
        self._globals: dict[str, MemoryPointer] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_read": None, "_device": None, "_globals": {}}

    def __repr__(self) -> str:
        return f"<cupy.RawModule of {self._at[0]}:{self._at[1]}>"

    @property
    def module(self) -> CModule:
        """The kernels of the source. Raises CompileException."""
        if self._read is None:
            if self.code is None:
                assert self.file_path is not None  # noqa: S101  one of the two was given
                if not Path(self.file_path).exists():
                    raise CUDADriverError(301)
                raise not_available(f"RawModule(path={os.fspath(self.file_path)!r})", "binaries and PTX are not run")
            self._read = self._compiled()
        accelerator = current.current_accelerator()
        if self._device is not accelerator:
            # Each device has the variables of the source in memory of its own.
            if self._device is not None:
                self._read.begin_again()
                self._globals.clear()
            self._device = accelerator
        return self._read

    def _compiled(self, *, warns: bool = False) -> CModule:
        assert self.code is not None  # noqa: S101  the caller has seen it
        name = Path(self._at[0]).stem if not self._at[0].startswith("<") else "source"
        origins = origins_of(self.code, f"{name}.cu", at=self._at)
        wanted = ["".join(one.split()) for one in self.name_expressions or () if "<" in one]
        options = (*self.options, *self._translated)
        try:
            return read_source(self.code, f"{name}.cu", options, self.backend, origins, wanted, warnings=warns)
        except CompileException as error:
            if self._error is JitifyException:
                raise JitifyException(str(error)) from None
            raise

    def compile(self, log_stream: Any = None) -> None:
        """Read the source now, and write Clang's warnings to ``log_stream``."""
        _ = self.module
        if log_stream is not None and self.code is not None:
            for warning in self._compiled(warns=True).unit.notes:
                log_stream.write(f"{warning}\n")

    def function(self, name: str) -> CFunction:
        """Return a kernel of the source. Raises CUDADriverError if it is not there by this name."""
        module = self.module
        listed = self.name_expressions or ()
        if name in listed:
            found = module.kernels.get("".join(name.split()) if "<" in name else name)
        else:
            found = module.kernels.get(name) if "<" not in name else None
            if found is not None and str(found.node.cursor.mangled_name) != name:
                raise _not_found(name, list(module.kernels), '; declare it extern "C", or name it in name_expressions')
        if found is None:
            raise _not_found(name, list(module.kernels))
        return found

    def get_function(self, name: str) -> RawKernel:
        """Return a kernel by its name."""
        self.function(name)
        made = RawKernel.__new__(RawKernel)
        made._setup(self, name)
        return made

    def get_global(self, name: str) -> MemoryPointer:
        """Return the position in memory of a variable of the source (``__device__``, ``__constant__``)."""
        contents = self.module.contents(name)
        if name not in self._globals:
            if contents is None:
                raise _not_found(name, [])
            mem = BaseMemory(len(contents))
            buffer: Any = mem.allocation.buffer
            buffer.memory.is_static = True
            mem.allocation.contents()[...] = contents
            mem.allocation.mark_written()
            self.module.place_on_device(name, buffer)
            self._globals[name] = MemoryPointer(mem)
        return self._globals[name]


__all__ = ["CompileException", "RawKernel", "RawModule"]
