"""A kernel as source text for real devices: CUDA, HIP, OpenCL, Metal, WGSL, GLSL, and C++ for high-level synthesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.cuda import CUDA, HIP
from windtunnel.codegen.emitter import Emitter
from windtunnel.codegen.expressions import Block
from windtunnel.codegen.glsl import GLSL, GlslEmitter
from windtunnel.codegen.hls import HLS, HlsEmitter
from windtunnel.codegen.metal import METAL
from windtunnel.codegen.opencl import OPENCL
from windtunnel.codegen.signature import Argument, Buffer, GridSize, Side, Signature, Value
from windtunnel.codegen.tokens import Tokens
from windtunnel.codegen.wgsl import WGSL, WgslEmitter
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.stencil import StencilForm, form_of
from windtunnel.language import ir
from windtunnel.language.infer import infer
from windtunnel.language.parameters import parameters_of
from windtunnel.language.parse import parse
from windtunnel.language.source import KernelError, source_of
from windtunnel.language.specialise import specialised
from windtunnel.language.stencil import launch_mismatch
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

_EMITTERS: Mapping[str, tuple[type[Emitter], Tokens]] = {
    "cuda": (CEmitter, CUDA),
    "hip": (CEmitter, HIP),
    "opencl": (CEmitter, OPENCL),
    "metal": (CEmitter, METAL),
    "wgsl": (WgslEmitter, WGSL),
    "glsl": (GlslEmitter, GLSL),
    "fpga": (HlsEmitter, HLS),
}
TARGETS = tuple(_EMITTERS)
_MAX_THREADS = 1024


@dataclass(frozen=True)
class Emitted:
    """A kernel's source for one target. ``options`` are the compiler options for the emulator's numbers."""

    source: str
    signature: Signature
    options: Sequence[str]
    parameters: Sequence[str] = ()
    """The kernel's parameters in the order of a launch; ``signature`` has another order."""
    shared_bytes: int = 0
    """The size of the shared arrays that the kernel declares (bytes)."""


def transpile(function: Callable[..., Any], target: str, block: Block | None = None) -> Emitted:
    """Return a kernel as source for a target. The same kernel gives the same text.

    Args:
        function: A kernel whose parameters are all annotated.
        target: One of `TARGETS`.
        block: The threads of a block along x, y and z, for targets that fix them in the source (``wgsl``, ``fpga``);
            default: a stencil's tile, or else (256, 1, 1).

    Raises:
        InputError: If the block is not valid, or differs from the stencil's tile.
        KernelError: With the line, if the target cannot express the kernel.
    """
    _check_target(target)
    plain = getattr(function, "function", function)
    block = _checked_block(form_of(plain), block)
    parameters = parameters_of(plain)
    for parameter in parameters:
        if parameter.annotation is None:
            raise KernelError(
                f"parameter '{parameter.name}' has no type, but the target's language needs one",
                where=Location(source_of(plain).file, parameter.line, field=parameter.name),
                expected=f"an annotation: {parameter.name}: i32 for a number, {parameter.name}: f32[:] for an array",
            )
    types = {parameter.name: parameter.annotation for parameter in parameters if parameter.annotation is not None}
    arrays = frozenset(name for name, kind in types.items() if isinstance(kind, Array))
    return _emit(infer(parse(plain, arrays), types), target, block)


class ForArguments:
    """A kernel for one target, emitted once for each set of argument types (and block, where it matters)."""

    def __init__(self, function: Callable[..., Any], target: str) -> None:
        _check_target(target)
        self.function: Callable[..., Any] = getattr(function, "function", function)
        self.target = target
        self._typed: dict[tuple[Type, ...], ir.Program] = {}
        self._emitted: dict[tuple[tuple[Type, ...], Block | None], Emitted] = {}

    def emitted(self, arguments: Sequence[Any], block: Block) -> Emitted:
        """Return the source for arguments (arrays with ``dtype`` and ``shape``, numbers) and a size of a block.

        The same types give the same object. Raises KernelError, with the line, if the target cannot express the kernel
        or an argument does not match its annotation, and InputError if the block differs from the stencil's tile.
        """
        program, types = specialised(self.function, arguments)
        kinds = tuple(types.values())
        form = form_of(self.function)
        fixes_block = _EMITTERS[self.target][1].conventions.fixed_block
        fixed = block if fixes_block or form is not None else None
        if (kinds, fixed) not in self._emitted:
            self._emitted[kinds, fixed] = _emit(infer(program, types), self.target, _checked_block(form, fixed))
        return self._emitted[kinds, fixed]

    def launch_mismatch(self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> str | None:
        """Return the problem of a stencil's launch in words; None if there is none or the kernel is not a stencil."""
        if form_of(self.function) is None:
            return None
        program, types = specialised(self.function, arguments)
        key = tuple(types.values())
        if key not in self._typed:
            self._typed[key] = infer(program, types)
        return launch_mismatch(self._typed[key], grid, block, arguments)


def _check_target(target: str) -> None:
    if target not in _EMITTERS:
        raise InputError(
            f"unknown target '{target}'", expected=list_choices(list(TARGETS)), nearest=nearest(target, list(TARGETS))
        )


def _emit(program: ir.Program, target: str, block: Block) -> Emitted:
    """Return the source of a program with inferred types."""
    emitter_class, tokens = _EMITTERS[target]
    emitter = emitter_class(program, block, tokens)
    source = emitter.emit()
    parameters = tuple(parameter.name for parameter in program.parameters)
    shared = [array for array in program.declared.values() if array.space == "shared"]
    size = sum(math.prod(array.shape) * array.element.dtype.itemsize for array in shared)
    return Emitted(source, emitter.signature, tuple(tokens.options), parameters, size)


def _checked_block(form: StencilForm | None, block: Block | None) -> Block:
    """Return the size of a block to write for."""
    tile = None if form is None else form.block
    block = block or tile or (256, 1, 1)
    _check_block(block)
    if tile is not None and tuple(block) != tile:
        raise InputError(f"block {block} differs from the stencil's tile {tile}", expected="the tile, or no block")
    return block


def _check_block(block: Sequence[int]) -> None:
    if len(block) != 3 or not all(isinstance(n, int) and n >= 1 for n in block):
        raise InputError(f"a block of {block!r}", expected="three whole numbers from 1: (256, 1, 1)")
    threads = block[0] * block[1] * block[2]
    if threads > _MAX_THREADS:
        raise InputError(f"a block of {threads} threads", expected=f"at most {_MAX_THREADS}")


def with_sizes(text: str) -> Block:
    """Return a size of a block from ``X``, ``X,Y`` or ``X,Y,Z``; InputError if the text has another form."""
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"a block of {text!r}",
            where=Location(field="--block"),
            expected="one to three whole numbers: 256 or 16,16,1",
        )
    x, y, z = (*(int(part) for part in parts), 1, 1)[:3]
    _check_block((x, y, z))
    return x, y, z
