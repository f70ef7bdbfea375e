"""A kernel as source for real devices: CUDA C, HIP, OpenCL C, Metal, WGSL, GLSL, and C++ for high-level synthesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from windtunnel.codegen.signature import Argument, Buffer, GridSize, Side, Signature, Value
from windtunnel.core.errors import InputError, Where, nearest, one_of
from windtunnel.core.stencil import StencilForm, form_of
from windtunnel.language import ir
from windtunnel.language.expressions import parameters_of
from windtunnel.language.infer import infer
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError, source_of
from windtunnel.language.specialise import specialised
from windtunnel.language.stencil import misfit
from windtunnel.language.types import Array, Type

__all__ = [
    "TARGETS",
    "Argument",
    "Buffer",
    "Emitted",
    "ForArguments",
    "GridSize",
    "Side",
    "Signature",
    "Value",
    "transpile",
    "with_sizes",
]

_EMITTERS: Mapping[str, tuple[str, str]] = {
    "cuda": ("windtunnel.codegen.cuda", "CudaEmitter"),
    "hip": ("windtunnel.codegen.hip", "HipEmitter"),
    "opencl": ("windtunnel.codegen.opencl", "OpenClEmitter"),
    "metal": ("windtunnel.codegen.metal", "MetalEmitter"),
    "wgsl": ("windtunnel.codegen.wgsl", "WgslEmitter"),
    "glsl": ("windtunnel.codegen.glsl", "GlslEmitter"),
    "fpga": ("windtunnel.codegen.fpga", "FpgaEmitter"),
}
TARGETS = tuple(_EMITTERS)
_BLOCK_IN_SOURCE = ("wgsl", "fpga")
_MOST_THREADS = 1024


@dataclass(frozen=True)
class Emitted:
    """A kernel for one target. ``options``: what its compiler must be told for the emulator's numbers."""

    source: str
    signature: Signature
    options: Sequence[str]
    parameters: Sequence[str] = ()
    """The kernel's own, in the order in which a launch gives them; ``signature`` has another."""
    shared_bytes: int = 0
    """Of the shared arrays that the kernel declares."""


def transpile(function: Callable[..., Any], target: str, block: tuple[int, int, int] | None = None) -> Emitted:
    """``function``, a kernel whose parameters are all annotated, as source for ``target`` (one of `TARGETS`).

    ``block``: threads of a block along x, y and z, for targets that fix them in the source (``wgsl``, ``fpga``); a
    stencil's tile, or else (256, 1, 1), unless given. InputError for a block that is none, or is not the tile.
    KernelError, at its line, for what the target cannot do. The same kernel gives the same text.
    """
    _check_target(target)
    plain = getattr(function, "function", function)
    block = _block(form_of(plain), block)
    parameters = parameters_of(plain)
    for one in parameters:
        if one.annotation is None:
            raise KernelError(
                f"parameter '{one.name}' has no type of the kernel language, and a target's language needs one",
                where=Where(source_of(plain).file, one.line, field=one.name),
                expected=f"an annotation: {one.name}: i32 for a number, {one.name}: f32[:] for an array",
            )
    given = {one.name: one.annotation for one in parameters if one.annotation is not None}
    arrays = frozenset(name for name, kind in given.items() if isinstance(kind, Array))
    return _emitted(infer(parse(plain, arrays), given), target, block)


class ForArguments:
    """A kernel for one target, made anew for each set of argument types, and block where it matters, that it meets."""

    def __init__(self, function: Callable[..., Any], target: str) -> None:
        _check_target(target)
        self.function: Callable[..., Any] = getattr(function, "function", function)
        self.target = target
        self._typed: dict[tuple[Type, ...], ir.Program] = {}
        self._emitted: dict[Any, Emitted] = {}

    def emitted(self, arguments: Sequence[Any], block: tuple[int, int, int]) -> Emitted:
        """For arrays (anything with ``dtype`` and ``shape``) and numbers, and threads of a block.

        The same object for the same types. KernelError, at its line, for what the target cannot do, and where an
        argument is not what its annotation says; InputError for a block that is not the stencil's tile.
        """
        program, types = specialised(self.function, arguments)
        fixed = self.target in _BLOCK_IN_SOURCE or program.form is not None
        key = (tuple(types.values()), block if fixed else None)
        found = self._emitted.get(key)
        if found is None:
            checked = _block(form_of(self.function), block if fixed else None)
            found = self._emitted[key] = _emitted(infer(program, types), self.target, checked)
        return found

    def misfit(self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> str | None:
        """What is wrong with a stencil's launch, in words; None where nothing is, and for what is no stencil."""
        if form_of(self.function) is None:
            return None
        program, types = specialised(self.function, arguments)
        key = tuple(types.values())
        if key not in self._typed:
            self._typed[key] = infer(program, types)
        return misfit(self._typed[key], grid, block, arguments)


def _check_target(target: str) -> None:
    if target not in _EMITTERS:
        raise InputError(
            f"unknown target '{target}'", expected=one_of(list(TARGETS)), nearest=nearest(target, list(TARGETS))
        )


def _emitted(program: ir.Program, target: str, block: tuple[int, int, int]) -> Emitted:
    """``program``: with types."""
    module, name = _EMITTERS[target]
    emitter = getattr(import_module(module), name)(program, block)
    source = emitter.emit()
    parameters = tuple(one.name for one in program.parameters)
    declared = [one for one in program.declared.values() if one.space == "shared"]
    shared = sum(math.prod(one.shape) * one.element.dtype.itemsize for one in declared)
    return Emitted(source, emitter.signature, tuple(emitter.options), parameters, shared)


def _block(form: StencilForm | None, given: tuple[int, int, int] | None) -> tuple[int, int, int]:
    """The block to write for."""
    tile = None if form is None else form.block
    block = given or tile or (256, 1, 1)
    _check_block(block)
    if tile is not None and tuple(block) != tile:
        raise InputError(f"a block of {block}, where the stencil's tile takes {tile}", expected="the tile's, or none")
    return block


def _check_block(block: Sequence[int]) -> None:
    if len(block) != 3 or not all(isinstance(n, int) and n >= 1 for n in block):
        raise InputError(f"a block of {block!r}", expected="three whole numbers from 1: (256, 1, 1)")
    threads = block[0] * block[1] * block[2]
    if threads > _MOST_THREADS:
        raise InputError(f"a block of {threads} threads", expected=f"at most {_MOST_THREADS}")


def with_sizes(text: str) -> tuple[int, int, int]:
    """Threads of a block as people write them: ``X``, ``X,Y`` or ``X,Y,Z``. InputError for anything else."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"a block of {text!r}", where=Where(field="--block"), expected="one to three whole numbers: 256 or 16,16,1"
        )
    x, y, z = (*(int(part) for part in parts), 1, 1)[:3]
    _check_block((x, y, z))
    return x, y, z
