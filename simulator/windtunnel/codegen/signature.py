"""How an emitted kernel is called: which arguments it takes, in which order and with which types.

The order is the same for every target: the arrays, in the order of the parameters; then, for each array that has
several sides or whose shape the kernel asks for, its sides as ``i32``; then the scalars, in the order of the
parameters; then what the target adds (``fpga``: the grid's three sizes as ``i32``). In ``wgsl`` all that is no array is
a member of one uniform struct, in the binding after the arrays; in ``glsl`` it is one of a push-constant block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windtunnel.codegen.analysis import Facts
from windtunnel.language import ir
from windtunnel.language.types import BOOL, F32, I32, U8, U32, Array, Scalar


@dataclass(frozen=True)
class Buffer:
    """An array argument: a pointer, or the buffer bound to ``position``. It holds ``element`` as NumPy does."""

    name: str
    element: Scalar
    dimensions: int
    written: bool
    position: int


@dataclass(frozen=True)
class Side:
    """The length of side ``side`` of ``array``, an ``i32``."""

    name: str
    array: str
    side: int
    type: Scalar
    position: int


@dataclass(frozen=True)
class Value:
    """A scalar argument. ``type`` is what the kernel calls it, ``passed`` what is passed.

    ``f16`` and ``bf16`` are passed as ``f32``, ``bool`` as ``u8`` (``wgsl``, ``glsl``: ``u32``); ``glsl`` takes
    integers of fewer bits as those of 32.
    """

    name: str
    type: Scalar
    passed: Scalar
    position: int


@dataclass(frozen=True)
class GridSize:
    """The blocks of the grid along an axis, an ``i32``: of targets that do not know their grid."""

    name: str
    axis: int
    type: Scalar
    position: int


Argument = Buffer | Side | Value | GridSize


@dataclass(frozen=True)
class Signature:
    """The arguments in order of the function that the source calls ``name``: the kernel's name, where that may be one.

    ``glsl`` calls every function ``main``, and has its numbers at the next multiple of their own sizes.
    ``uniform``: the binding that holds all but the arrays as one struct of 4-byte members in order, whose size is
    rounded up to 16 bytes; None where they are arguments of their own.
    """

    name: str
    arguments: Sequence[Argument]
    uniform: int | None = None

    @property
    def buffers(self) -> list[Buffer]:
        """The array arguments."""
        return [one for one in self.arguments if isinstance(one, Buffer)]

    @property
    def numbers(self) -> list[Side | Value | GridSize]:
        """All others."""
        return [one for one in self.arguments if not isinstance(one, Buffer)]

    def described(self) -> dict[str, Any]:
        """The same as plain data."""
        rows: list[dict[str, Any]] = []
        for one in self.arguments:
            row: dict[str, Any] = {"name": one.name, "position": one.position}
            match one:
                case Buffer():
                    row |= {"is": "array", "element": str(one.element), "dimensions": one.dimensions}
                    row |= {"written": one.written}
                case Side():
                    row |= {"is": "side", "array": one.array, "side": one.side, "type": str(one.type)}
                case Value():
                    row |= {"is": "scalar", "type": str(one.type), "passed": str(one.passed)}
                case GridSize():
                    row |= {"is": "grid size", "axis": one.axis, "type": str(one.type)}
            rows.append(row)
        return {"name": self.name, "arguments": rows, "uniform": self.uniform}


def signature_of(program: ir.Program, facts: Facts, target: str) -> Signature:
    """The calling convention for an inferred kernel on ``target``."""
    found: list[Argument] = []
    taken = {*program.variables, *program.scalars, *program.arrays, program.name}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    for parameter in program.parameters:
        kind = program.arrays.get(parameter.name)
        if kind is not None:
            written = parameter.name in facts.written
            found.append(Buffer(parameter.name, kind.element, kind.dimensions, written, len(found)))
    buffers = len(found)
    for array, kind in _sized(program, facts):
        found += [Side(free(f"{array}_shape{at}"), array, at, I32, len(found) + at) for at in range(kind.dimensions)]
    for parameter in program.parameters:
        scalar = program.scalars.get(parameter.name)
        if scalar is not None:
            found.append(Value(parameter.name, scalar, _passed(scalar, target), len(found)))
    if target == "fpga":
        found += [GridSize(free(f"grid_size_{axis}"), at, I32, len(found) + at) for at, axis in enumerate("xyz")]
    uniform = buffers if target == "wgsl" and len(found) > buffers else None
    return Signature(program.name, tuple(found), uniform)


def _sized(program: ir.Program, facts: Facts) -> Iterator[tuple[str, Array]]:
    for parameter in program.parameters:
        kind = program.arrays.get(parameter.name)
        if kind is not None and (kind.dimensions > 1 or parameter.name in facts.sized):
            yield parameter.name, kind


def _passed(scalar: Scalar, target: str) -> Scalar:
    if scalar == BOOL:
        return U32 if target in ("wgsl", "glsl") else U8
    if target == "glsl" and scalar.bits < 32 and scalar.kind != "float":
        return I32 if scalar.kind == "int" else U32
    return F32 if scalar.kind == "float" and scalar.bits == 16 else scalar
