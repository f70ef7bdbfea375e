"""`windtunnel transpile`: a kernel as source for another language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.core.errors import InputError, Location

if TYPE_CHECKING:
    from windtunnel.codegen import Emitted


@dataclass(frozen=True)
class TranspileRequest:
    """A kernel that is to be written in another language.

    Attributes:
        kernel: ``FILE.py:KERNEL``, ``FILE.cu:KERNEL`` or, if the file has one kernel, ``FILE.cu``.
        target: The target language.
        block: The block size, ``X``, ``X,Y`` or ``X,Y,Z``; None for the tile of a stencil, else 256,1,1.
        name: The kernel of the file, if ``kernel`` does not name it.
        defines: The macros of a kernel in C.
        include: The folders of headers of a kernel in C.
        arguments: The sizes of ``__local`` parameters by name, as ``local:N``.
        shared_bytes: The size of a shared array that is declared without one.
    """

    kernel: str
    target: str
    block: str | None = None
    name: str | None = None
    defines: Sequence[str] = ()
    include: Sequence[str] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    shared_bytes: int = 0


def transpile(request: TranspileRequest) -> Emitted:
    """Return a kernel as source for a target. A file of Python is executed; one of C is not."""
    from windtunnel.codegen import transpile as emitted
    from windtunnel.codegen import with_sizes

    sizes = None if request.block is None else with_sizes(request.block)
    function = _loaded(request)
    local = {name: _local_bytes(function, name, text) for name, text in request.arguments.items()}
    return emitted(function, request.target, sizes, shared_bytes=request.shared_bytes, local_bytes=local)


def _loaded(request: TranspileRequest) -> Callable[..., Any]:
    """Return the kernel that is asked for."""
    from windtunnel.codegen.load import load
    from windtunnel.csource.kernel import SUFFIXES, CModule, instance_of

    file, name = request.kernel, request.name
    whole = Path(file).suffix in SUFFIXES
    if not whole and name is None:
        # The name of a kernel in a namespace has colons too.
        end = next((file.find(f"{suffix}:") + len(suffix) for suffix in SUFFIXES if f"{suffix}:" in file), None)
        if end is not None:
            file, name, whole = file[:end], file[end + 1 :], True
    if whole:
        instance = instance_of(name)
        return CModule(file, request.defines, request.include, instance=instance).kernel(instance or name)
    for option, given in (("-D", request.defines), ("-I", request.include), ("--arg", request.arguments)):
        if given:
            raise InputError(
                f"{option} for a kernel that is not in C",
                where=Location(file, field=option),
                expected="FILE.cu, FILE.cl",
            )
    return load(file if name is None else f"{file}:{name}")


def _local_bytes(function: Callable[..., Any], name: str, text: str) -> int:
    """Return the size of a ``__local`` parameter that ``local:N`` states, in its elements."""
    from windtunnel.app.check_arguments import parsed
    from windtunnel.csource.kernel import CFunction

    where = Location(field=f"--arg {name}")
    spec = parsed(text, where)
    if spec.kind != "local":
        raise InputError(f"'{text}' for '{name}'", where=where, expected=f"{name}=local:N, for a __local parameter")
    if spec.dtype is not None:
        return spec.count * spec.dtype.itemsize
    assert isinstance(function, CFunction)  # noqa: S101  only kernels in C have arguments here
    kinds = (getattr(one.type, "pointee", None) for one in function.parameters if one.name == name)
    return spec.count * max(next((kind.size for kind in kinds if kind is not None), 1), 1)


def targets() -> tuple[str, ...]:
    """Return the names of all target languages."""
    from windtunnel.codegen import TARGETS

    return TARGETS
