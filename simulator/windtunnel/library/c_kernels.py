"""Kernels in CUDA C or OpenCL C for programs: ``windtunnel.load("kernels.cu").saxpy``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from windtunnel.core.errors import nearest
from windtunnel.csource.kernel import CModule
from windtunnel.runtime.kernels import Kernel


class KernelModule:
    """The kernels of a C file, as attributes by name. `Accelerator.launch` takes them.

    The variables of the file (``__device__``, ``__constant__``) keep their values from launch to launch.
    """

    def __init__(self, module: CModule) -> None:
        self._module = module
        self._kernels = {name: Kernel(function) for name, function in module.kernels.items()}

    def __getattr__(self, name: str) -> Kernel:
        kernels: dict[str, Kernel] = self.__dict__.get("_kernels", {})
        if name in kernels:
            return kernels[name]
        close = nearest(name, kernels)
        known = ", ".join(kernels) or "none"
        hint = f"; did you mean '{close}'?" if close else ""
        raise AttributeError(f"'{self._module.unit.file}' has no kernel '{name}'; it has {known}{hint}")

    def __dir__(self) -> list[str]:
        return sorted(self._kernels)


def load(
    file: str | os.PathLike[str],
    *,
    defines: Mapping[str, object] | Sequence[str] = (),
    include: Sequence[str] = (),
    fmad: bool = True,
) -> KernelModule:
    """Return the kernels of a ``.cu`` or ``.cl`` file, as attributes by name.

    Args:
        file: The file.
        defines: Macros: ``{"N": 64}``, or ``["N=64", "DEBUG"]``.
        include: Folders of headers. No header from elsewhere is read, beside the file's own folder.
        fmad: Whether a product and a sum in one expression are rounded once, as nvcc compiles by default. Without it,
            each is rounded, as with ``nvcc --fmad=false``.

    Raises:
        InputError: It does not compile (with Clang's message and line), or libclang is not installed.
    """
    words = [f"{k}={v}" for k, v in defines.items()] if isinstance(defines, Mapping) else [str(one) for one in defines]
    return KernelModule(CModule(os.fspath(file), words, [os.fspath(folder) for folder in include], fmad=fmad))
