"""A kernel as source text for real devices: CUDA, HIP, OpenCL, Metal, WGSL, GLSL, and C++ for high-level synthesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from windtunnel.codegen.c import CEmitter
from windtunnel.codegen.cuda import CUDA, HIP
from windtunnel.codegen.emitter import Emitter
from windtunnel.codegen.expressions import Block
from windtunnel.codegen.glsl import GLSL, GlslEmitter
from windtunnel.codegen.hls import HLS, HlsEmitter
from windtunnel.codegen.lowering import warp_line
from windtunnel.codegen.metal import METAL
from windtunnel.codegen.opencl import OPENCL
from windtunnel.codegen.signature import Argument, Buffer, Bytes, GridSize, LocalBytes, Side, Signature, Value
from windtunnel.codegen.tokens import Tokens
from windtunnel.codegen.wgsl import WGSL, WgslEmitter
from windtunnel.core.errors import InputError, Location, list_choices, nearest
from windtunnel.core.stencil import StencilForm
from windtunnel.language import ir
from windtunnel.language.source import OwnText
from windtunnel.language.specialise import kernel_source
from windtunnel.language.stencil import launch_mismatch
from windtunnel.language.types import U8

__all__ = [
    "TARGETS",
    "Argument",
    "Buffer",
    "Bytes",
    "Emitted",
    "ForArguments",
    "GridSize",
    "LocalBytes",
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
    warp: tuple[int, Location] | None = None
    """The threads of a warp that the source needs, and the first line that does; None if it needs no number of them."""
    own: OwnText | None = None
    """The kernel's own source, if it is that and not a translation: compilers of C++ mangle its name."""


def transpile(
    function: Callable[..., Any],
    target: str,
    block: Block | None = None,
    *,
    shared_bytes: int = 0,
    local_bytes: Mapping[str, int] | None = None,
) -> Emitted:
    """Return a kernel as source for a target. The same kernel gives the same text.

    Args:
        function: A kernel in C, or one in Python whose parameters are all annotated.
        target: One of `TARGETS`.
        block: The threads of a block along x, y and z, for targets that fix them in the source (``wgsl``, ``fpga``);
            default: a stencil's tile, or else (256, 1, 1).
        shared_bytes: The bytes of a shared array without a size, for targets that fix them in the source.
        local_bytes: The bytes of each ``__local`` parameter of a kernel in OpenCL C.

    Raises:
        InputError: If the block is not valid, or differs from the stencil's tile; if a kernel in C is not supported.
        KernelError: With the line, if the target cannot express the kernel.
    """
    _check_target(target)
    source = kernel_source(getattr(function, "function", function))
    block = _checked_block(source.form, block)
    return _emit(source.declared(local_bytes or {}), target, block, shared_bytes)


class ForArguments:
    """A kernel for one target, emitted once for each set of argument types (and block, where it matters).

    A kernel whose own source the target's compiler takes is not translated (decision 0044).
    """

    def __init__(self, function: Callable[..., Any], target: str) -> None:
        _check_target(target)
        self.source = kernel_source(getattr(function, "function", function))
        self.target = target
        self._tokens = _EMITTERS[target][1]
        self._emitted: dict[tuple[int, Block | None, int], Emitted] = {}
        own = self.source.own_text(target)
        self._own = None if own is None else _own(own)

    def emitted(self, arguments: Sequence[Any], block: Block, shared_bytes: int = 0) -> Emitted:
        """Return the source for arguments (arrays with ``dtype`` and ``shape``, numbers) and a size of a block.

        ``shared_bytes`` is the size of a shared array that the kernel declares without one. The same types give the
        same object. Raises KernelError, with the line, if the target cannot express the kernel or an argument does not
        match its annotation, and InputError if the block differs from the stencil's tile.
        """
        if self._own is not None:
            return self._own
        program = self.source.typed(arguments)
        form = self.source.form
        fixed = block if self._tokens.conventions.fixed_block or form is not None else None
        key = (id(program), fixed, shared_bytes if self._tokens.dynamic_shared is None else 0)
        if key not in self._emitted:
            self._emitted[key] = _emit(program, self.target, _checked_block(form, fixed), shared_bytes)
        return self._emitted[key]

    def given(self, emitted: Emitted, arguments: Sequence[Any]) -> Mapping[str, Any]:
        """Return what the parameters of an emitted kernel get in a launch: buffers, numbers, and arrays of the host."""
        if emitted.own is not None:
            return dict(zip(emitted.parameters, self.source.own_arguments(arguments), strict=True))
        values = (value for _, value in self.source.adapted(arguments))
        return dict(zip(emitted.parameters, values, strict=True))

    def launch_mismatch(self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]) -> str | None:
        """Return the problem of a stencil's launch in words; None if there is none or the kernel is not a stencil."""
        if self.source.form is None:
            return None
        return launch_mismatch(self.source.typed(arguments), grid, block, arguments)


def _own(own: OwnText) -> Emitted:
    """Return a kernel's own source, with its arguments as they stand there."""
    arguments: list[Argument] = []
    for position, (name, role, kind) in enumerate(own.arguments):
        if role == "array":
            arguments.append(Buffer(name, U8, 1, True, position))
        elif role == "local":
            arguments.append(LocalBytes(name, position))
        elif kind is None:
            arguments.append(Bytes(name, position))
        else:
            arguments.append(Value(name, kind, kind, position))
    names = tuple(name for name, _, _ in own.arguments)
    return Emitted(own.text, Signature(own.name, tuple(arguments)), tuple(own.options), names, own=own)


def _check_target(target: str) -> None:
    if target not in _EMITTERS:
        raise InputError(
            f"unknown target '{target}'", expected=list_choices(list(TARGETS)), nearest=nearest(target, list(TARGETS))
        )


def _emit(program: ir.Program, target: str, block: Block, shared_bytes: int) -> Emitted:
    """Return the source of a program with inferred types."""
    emitter_class, tokens = _EMITTERS[target]
    if tokens.dynamic_shared is None and shared_bytes:
        program = deepcopy(program)
        for declared in program.declared.values():
            if declared.shape == (0,):
                declared.shape = (max(shared_bytes // declared.element.dtype.itemsize, 1),)
    emitter = emitter_class(program, block, tokens)
    source = emitter.emit()
    parameters = tuple(parameter.name for parameter in program.parameters)
    shared = [array for array in program.declared.values() if array.space == "shared"]
    size = sum(math.prod(array.shape) * array.element.dtype.itemsize for array in shared)
    line = warp_line(program)
    place = None if line is None else Location(*program.place_of(line), program.column_of(line))
    warp = None if program.warp is None or place is None else (program.warp, place)
    return Emitted(source, emitter.signature, tuple(tokens.options), parameters, size, warp)


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
