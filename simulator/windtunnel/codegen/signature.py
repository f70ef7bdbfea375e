"""The calling convention of an emitted kernel: its arguments, their order and their types.

The order is the same for every target. First come the arrays, in the order of the parameters. Then come the sides of
each array that has several dimensions or whose shape the kernel reads, as ``i32``. Then come the scalars, in the order
of the parameters. Some targets add arguments (``fpga``: the grid's three sizes as ``i32``). In ``wgsl`` everything but
the arrays is a member of one uniform struct, in the binding after the arrays; in ``glsl``, of a push-constant block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windtunnel.codegen.analysis import Facts
from windtunnel.language import ir
from windtunnel.language.types import F32, I32, U8, Scalar


@dataclass(frozen=True)
class Buffer:
    """An array argument: a pointer, or the buffer at binding ``position``. Its elements have NumPy's layout."""

    name: str
    element: Scalar
    dimensions: int
    written: bool
    position: int


@dataclass(frozen=True)
class Side:
    """The length of dimension ``side`` of ``array``, an ``i32``."""

    name: str
    array: str
    side: int
    type: Scalar
    position: int


@dataclass(frozen=True)
class Value:
    """A scalar argument. ``type`` is its type in the kernel, ``passed`` the type that the caller passes.

    ``f16`` and ``bf16`` are passed as ``f32``, and ``bool`` as ``u8`` (``wgsl``, ``glsl``: ``u32``). ``glsl`` takes
    narrow integers as 32-bit ones.
    """

    name: str
    type: Scalar
    passed: Scalar
    position: int


@dataclass(frozen=True)
class GridSize:
    """The number of blocks along an axis, an ``i32``, for targets that have no built-in for it."""

    name: str
    axis: int
    type: Scalar
    position: int


@dataclass(frozen=True)
class LocalBytes:
    """Shared memory of a size that the launch states: a ``__local`` pointer of a kernel's own source."""

    name: str
    position: int


@dataclass(frozen=True)
class Bytes:
    """A value of several numbers, passed as its bytes: a struct or a vector of a kernel's own source."""

    name: str
    position: int


Argument = Buffer | Side | Value | GridSize | LocalBytes | Bytes


@dataclass(frozen=True)
class Signature:
    """The name and the arguments, in order, of the emitted function.

    ``name`` is the kernel's name, changed if it is reserved in a target. A ``glsl`` function is always called ``main``,
    and each number is at the next multiple of its own size. ``uniform`` is the binding of the struct that holds
    everything but the arrays, as 4-byte members in order, its size rounded up to 16 bytes; None if there is none.
    """

    name: str
    arguments: Sequence[Argument]
    uniform: int | None = None

    @property
    def buffers(self) -> list[Buffer]:
        """The array arguments."""
        return [argument for argument in self.arguments if isinstance(argument, Buffer)]

    @property
    def numbers(self) -> list[Side | Value | GridSize]:
        """The numbers."""
        return [argument for argument in self.arguments if isinstance(argument, (Side, Value, GridSize))]

    def described(self) -> dict[str, object]:
        """Return the signature as plain data, for JSON."""
        rows: list[dict[str, object]] = []
        for argument in self.arguments:
            row: dict[str, object] = {"name": argument.name, "position": argument.position}
            match argument:
                case Buffer():
                    row |= {"is": "array", "element": str(argument.element), "dimensions": argument.dimensions}
                    row |= {"written": argument.written}
                case Side():
                    row |= {"is": "side", "array": argument.array, "side": argument.side, "type": str(argument.type)}
                case Value():
                    row |= {"is": "scalar", "type": str(argument.type), "passed": str(argument.passed)}
                case GridSize():
                    row |= {"is": "grid size", "axis": argument.axis, "type": str(argument.type)}
                case LocalBytes() | Bytes():
                    row |= {"is": "shared memory" if isinstance(argument, LocalBytes) else "bytes"}
            rows.append(row)
        return {"name": self.name, "arguments": rows, "uniform": self.uniform}


@dataclass(frozen=True)
class Conventions:
    """The differences between targets in how a kernel is called."""

    fixed_block: bool = False
    """Whether the size of a block is a part of the source."""
    grid_size: bool = False
    """Whether the grid's sizes are arguments."""
    uniform: bool = False
    """Whether everything but the arrays is one uniform struct."""
    passed: Mapping[str, Scalar] = field(default_factory=lambda: {"bool": U8, "f16": F32, "bf16": F32})
    """The types that scalars are passed as, where they differ from the kernel's."""


def signature_of(program: ir.Program, facts: Facts, conventions: Conventions) -> Signature:
    """Return the calling convention of an inferred kernel."""
    arguments: list[Argument] = []
    taken = {*program.variables, *program.scalars, *program.arrays, program.name}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    arrays = [(p.name, program.arrays[p.name]) for p in program.parameters if p.name in program.arrays]
    for name, kind in arrays:
        arguments.append(Buffer(name, kind.element, kind.dimensions, name in facts.written, len(arguments)))
    for name, kind in arrays:
        if kind.dimensions > 1 or name in facts.sized:
            first = len(arguments)
            arguments += [Side(free(f"{name}_shape{n}"), name, n, I32, first + n) for n in range(kind.dimensions)]
    for parameter in program.parameters:
        scalar = program.scalars.get(parameter.name)
        if scalar is not None:
            passed = conventions.passed.get(scalar.name, scalar)
            arguments.append(Value(parameter.name, scalar, passed, len(arguments)))
    if conventions.grid_size:
        first = len(arguments)
        arguments += [GridSize(free(f"grid_size_{axis}"), n, I32, first + n) for n, axis in enumerate("xyz")]
    uniform = len(arrays) if conventions.uniform and len(arguments) > len(arrays) else None
    return Signature(program.name, tuple(arguments), uniform)
