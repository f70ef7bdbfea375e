"""Launches of Numba's kernels: arguments become buffers and numbers, and host arrays are copied both ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numba.core import config
from numba.core.errors import NumbaPerformanceWarning

from windtunnel.core.errors import InputError, LaunchError
from windtunnel.emulate.common.memory import Allocation
from windtunnel.emulate.common.warn import warn
from windtunnel.emulate.numba_cuda.cudadrv import devices
from windtunnel.emulate.numba_cuda.hostmemory import is_cuda_array
from windtunnel.emulate.numba_cuda.interop import auto_device
from windtunnel.emulate.numba_cuda.ndarray import DeviceNDArray, DeviceRecord, as_cuda_array, memory_from
from windtunnel.emulate.numba_cuda.types import nb, numba_number, type_of
from windtunnel.language import ir
from windtunnel.language.numba.declarations import CHARACTERS
from windtunnel.language.numba.program import (
    ERROR_WORDS,
    Argument,
    ArrayArgument,
    KnownArgument,
    NumbaProgram,
    NumberArgument,
    TupleArgument,
)
from windtunnel.language.numba.rules import Complex, name_of
from windtunnel.language.specialise import TypedKernel
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.kernels import Kernel

_MAX_REGISTERS = 255
"""The most registers that CUDA gives a thread."""
_RESIDENT_THREADS = 2048
"""The threads that a multiprocessor holds at once."""


@dataclass(eq=False)
class Compiled:
    """A kernel for some types of arguments: the program, and what it has on each device."""

    program: NumbaProgram
    arguments: tuple[Argument, ...]
    signature: Any = None
    bound: int | None = None
    """The threads of a block that ``launch_bounds`` allows; None for those of the device."""
    kernel: Kernel = field(init=False)
    captured: dict[int, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernel = Kernel(TypedKernel(self.program.program))

    @property
    def cooperative(self) -> bool:
        """Whether it uses the group of the whole grid."""
        return self.program.cooperative

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        """Return the number of blocks that can be resident at once, by the number of their threads alone."""
        del dynsmemsize
        threads = math.prod(blockdim) if isinstance(blockdim, tuple) else int(blockdim)
        return int(self.accelerator_info.compute_units) * (_RESIDENT_THREADS // threads)

    @property
    def argument_types(self) -> Any:
        """The types of the arguments, as Numba names them."""
        return tuple(self.signature.args)

    def inspect_types(self, file: Any = None) -> None:
        """Print the source of the kernel, and above each line the types of the variables that it assigns."""
        program = self.program.program
        print(f"{program.name} {self.argument_types}", file=file)
        print("-" * 80, file=file)
        assigned: dict[int, dict[str, str]] = {}
        for one in ir.walk(program.body):
            name = one.name if isinstance(one, (ir.Assign, ir.For)) else None
            if name is not None:
                assigned.setdefault(one.line, {})[name] = name_of((program.variables | program.scalars)[name])
        for number, text in enumerate(program.source, program.line):
            print(f"# --- LINE {number} ---", file=file)
            indent = text[: len(text) - len(text.lstrip())]
            for name, kind in assigned.get(number, {}).items():
                print(f"{indent}#   {name} :: {kind}", file=file)
            print(text.rstrip("\n"), file=file)
        print("=" * 80, file=file)

    @property
    def _type_annotation(self) -> SimpleNamespace:
        """Numba's name for the types of the variables: ``typemap`` has those of numbers and of declared arrays."""
        program = self.program.program
        numbers = {name: numba_number(name_of(kind)) for name, kind in (program.variables | program.scalars).items()}
        arrays = {
            name: nb.Array(numba_number(name_of(one.element)), len(one.shape), "C")
            for name, one in program.declared.items()
        }
        return SimpleNamespace(typemap=numbers | arrays)

    @property
    def regs_per_thread(self) -> int:
        """The 32-bit registers of a thread, if each variable of the kernel has its own, up to CUDA's limit."""
        program = self.program.program
        kinds = [*program.variables.values(), *program.scalars.values()]
        return min(max(sum(max(kind.bits // 32, 1) for kind in kinds), 1), _MAX_REGISTERS)

    @property
    def const_mem_size(self) -> int:
        """The bytes of the arrays from outside that the kernel reads, and of the formats of what it prints."""
        printed = [s for s in ir.walk(self.program.program.body) if isinstance(s, ir.Print)]
        arrays = [array for array in self.program.captured if isinstance(array, np.ndarray)]
        return sum(array.nbytes for array in arrays) + sum(len(s.form.encode()) + 1 for s in printed)

    @property
    def shared_mem_per_block(self) -> int:
        """The bytes of the shared arrays that a block has."""
        return self._declared_bytes("shared")

    @property
    def local_mem_per_thread(self) -> int:
        """The bytes of the local arrays that a thread has."""
        return self._declared_bytes("local")

    @property
    def max_threads_per_block(self) -> int:
        """The largest block."""
        most = int(self.accelerator_info.limits.threads_per_block)
        return most if self.bound is None else min(most, self.bound)

    def check_bound(self, block: tuple[int, ...], accelerator: Any) -> None:
        """Raise LaunchError if a block has more threads than ``launch_bounds`` allows."""
        threads = math.prod(block)
        if self.bound is not None and threads > self.bound:
            problem = f"{threads:,} threads a block, of at most {self.bound:,} by its launch_bounds"
            operation = f"launch {self.program.program.name}"
            raise accelerator.context.error(LaunchError, operation, problem, "configuration")

    def _declared_bytes(self, space: str) -> int:
        declared = self.program.program.declared.values()
        return sum(math.prod(d.shape) * d.element.dtype.itemsize for d in declared if d.space == space)

    @property
    def accelerator_info(self) -> Any:
        """The description of the current device."""
        return devices.current_accelerator().info


class Launch:
    """One launch: collects the numbers and buffers of its arguments, and what must be done after it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.accelerator = devices.current_accelerator()
        self.after: list[Callable[[], None]] = []
        self.held: list[Any] = []

    def prepared(self, value: Any) -> Any:
        """Return an argument with device arrays in the place of host arrays, which are copied now."""
        copies_in = copies_out = True
        if hasattr(value, "copies_in"):
            copies_in, copies_out, value = value.copies_in, value.copies_out, value.value
        if isinstance(value, DeviceNDArray):
            return value
        if is_cuda_array(value):
            return as_cuda_array(value)
        if isinstance(value, (np.ndarray, np.void)):
            if config.CUDA_WARN_ON_IMPLICIT_COPY and isinstance(value, np.ndarray):
                warn(NumbaPerformanceWarning("Host array used in CUDA kernel will incur copy overhead to/from device."))
            made, _ = auto_device(value, self.stream, copy=copies_in)
            made.mutable = isinstance(value, np.void) or bool(value.flags.writeable)
            if copies_out:
                self.after.append(lambda: _back(made, value, self.stream))
            return made
        if isinstance(value, tuple):
            items = [self.prepared(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return value

    def flattened(self, argument: Argument, value: Any) -> list[Any]:
        """Return the numbers and buffers that an argument consists of."""
        match argument:
            case KnownArgument() if isinstance(value, Enum):
                return []
            case KnownArgument():
                # What Numba raises: it compiles the kernel, and has no form for the value.
                raise NotImplementedError(type_of(value), value)
            case NumberArgument(type=kind, unit=unit):
                if unit:
                    return [np.asarray(value).astype(np.int64)[()]]
                plain = getattr(value, "value", value) if not isinstance(value, np.generic) else value
                if isinstance(kind, Complex):
                    whole = complex(plain)
                    return [kind.part.dtype.type(whole.real), kind.part.dtype.type(whole.imag)]
                if kind.kind in ("int", "uint") and isinstance(plain, (float, complex, np.inexact)):
                    raise TypeError(f"an integer is required, and {value!r} was given")
                if isinstance(plain, (complex, np.complexfloating)):
                    raise TypeError(f"a real number is required, and {value!r} was given")
                return [np.asarray(plain).astype(kind.dtype)[()]]
            case TupleArgument(items=items):
                value = getattr(value, "value", value) if isinstance(value, Enum) else value
                return [part for item, one in zip(items, value, strict=True) for part in self.flattened(item, one)]
            case ArrayArgument():
                if isinstance(value, (int, np.integer)):
                    value = memory_from(int(value), argument.dtype)
                return self._array(argument, value)

    def _array(self, argument: ArrayArgument, value: DeviceNDArray) -> list[Any]:
        dtype = argument.dtype
        if dtype.names:
            self.after.insert(0, partial(_padding_written, value))
            return self._records(value, dtype)
        self.held.append(value)
        if value.dtype.itemsize != dtype.itemsize:
            raise TypeError(f"an array of {dtype} is required, and one of {value.dtype} was given")
        kind = dtype
        pair: tuple[int, ...] = ()
        if dtype.kind == "c":
            kind, pair = np.dtype(f"f{dtype.itemsize // 2}"), (2,)
        elif dtype.kind in "mM":
            kind = np.dtype(np.int64)
        elif dtype.kind in CHARACTERS:
            width = CHARACTERS[dtype.kind]
            kind, pair = np.dtype(f"u{width}"), (dtype.itemsize // width,)
        memory = value.allocation
        if argument.layout == "A":
            unit = np.dtype(argument.unit or dtype).itemsize
            if argument.unit:
                kind, pair = np.dtype(argument.unit), ()
            buffer, count = self._buffer(memory, kind, pair, unit)
            steps = [stride // unit for stride in value.strides]
            if value.offset % unit or any(stride % unit for stride in value.strides):
                raise InputError(
                    f"an array of {dtype} whose elements are not multiples of its size apart",
                    expected="a contiguous array, or a slice of one",
                )
            del count
            return [
                buffer,
                np.int64(value.offset // unit),
                *map(np.int64, value.shape),
                *map(np.int64, steps),
            ]
        shape = value.shape if argument.layout == "C" else tuple(reversed(value.shape))
        if memory.buffer is None:
            memory = self._held_memory(dtype.itemsize)
        assert memory.buffer is not None  # noqa: S101  it has bytes now
        raw = memory.buffer.memory
        _same_elements(raw, kind.itemsize)
        return [Buffer(self.accelerator, raw, (*(shape or (1,)), *pair), kind)]

    def _buffer(self, memory: Allocation, kind: np.dtype[Any], pair: tuple[int, ...], itemsize: int) -> tuple[Any, int]:
        count = memory.size // itemsize
        if memory.buffer is None:
            memory = self._held_memory(itemsize)
        assert memory.buffer is not None  # noqa: S101  it has bytes now
        raw = memory.buffer.memory
        _same_elements(raw, kind.itemsize)
        return Buffer(self.accelerator, raw, (count, *pair), kind), count

    def _held_memory(self, itemsize: int) -> Allocation:
        """Return memory for an array without elements, which a kernel takes as one of no elements."""
        self.held.append(Allocation(max(itemsize, 8)))
        return self.held[-1]  # type: ignore[no-any-return]

    def _records(self, value: DeviceNDArray, dtype: np.dtype[Any]) -> list[Any]:
        """Return a buffer for each field. The fields are copied, and copied back after the launch."""
        made: list[Any] = []
        for name in dtype.names or ():
            inner, offset = dtype.fields[name][:2]  # type: ignore[index]
            part = value._view(value.shape, value.strides, value.offset + offset, inner.base)
            if inner.shape:
                extra = np.empty(inner.shape, inner.base).strides
                part = DeviceNDArray((*value.shape, *inner.shape), (*value.strides, *extra), inner.base, 0,
                                     value.allocation, offset=value.offset + offset)  # fmt: skip
            elif isinstance(value, DeviceRecord):
                part = DeviceNDArray((), (), inner.base, 0, value.allocation, offset=value.offset + offset)
            if inner.base.names:
                made += self._records(part, inner.base)
                continue
            column = DeviceNDArray(part.shape or (1,), dtype=inner.base)
            made += self._array(ArrayArgument(inner.base, column.ndim, "C"), column)
            if part.size:
                column.host_view()[...] = part.host_view()
                _copy_flags(part, column)
                self.after.insert(0, partial(_column_back, part, column))
        return made

    def run(self, compiled: Compiled, grid: Any, block: Any, values: Sequence[Any], shared: int) -> None:
        """Launch a kernel with prepared arguments, and copy host arrays back."""
        compiled.check_bound(block, self.accelerator)
        given = [
            part for argument, value in zip(compiled.arguments, values, strict=True)
            for part in self.flattened(argument, value)
        ]  # fmt: skip
        given += self._captured(compiled)
        record: DeviceNDArray | None = None
        if compiled.program.errors:
            record = DeviceNDArray((ERROR_WORDS,), dtype=np.int32)
            record.host_view()[...] = 0
            record.allocation.mark_written()
            given += self._array(ArrayArgument(record.dtype, 1, "C"), record)
        raw = getattr(self.stream, "raw", None) if self.stream else None
        self.accelerator.launch(compiled.kernel, grid, block, *given, stream=raw, shared_bytes=shared)
        if record is not None:
            _raise(compiled.program, record.host_view())
        for action in self.after:
            action()

    def _captured(self, compiled: Compiled) -> list[Any]:
        """Return the arrays from outside that a kernel reads, which are copied to each device once."""
        key = id(self.accelerator)
        known = compiled.captured.get(key)
        if known is None:
            known = []
            for array in compiled.program.captured:
                if not isinstance(array, np.ndarray):
                    known.append(array if isinstance(array, DeviceNDArray) else as_cuda_array(array))
                    continue
                held = DeviceNDArray(array.shape, dtype=array.dtype)
                held.host_view()[...] = array
                held.allocation.mark_written()
                known.append(held)
            compiled.captured[key] = known
        parts: list[Any] = []
        for held in known:
            parts += self._array(ArrayArgument(held.dtype, held.ndim, "C"), held)
        return parts


def _same_elements(memory: Any, itemsize: int) -> None:
    """Forget which elements were written where memory is seen as elements of another size."""
    mask = getattr(memory, "uninitialised", False)
    if isinstance(mask, np.ndarray) and len(mask) != memory.size // itemsize:
        memory.uninitialised = False


def _back(made: DeviceNDArray, value: Any, stream: Any) -> None:
    if isinstance(value, np.void):
        np.asarray(value)[...] = made.host_view()
        return
    if 0 in value.strides and value.size:
        return
    if not value.flags.writeable:
        return
    made.copy_to_host(value, stream)


def _column_back(part: DeviceNDArray, column: DeviceNDArray) -> None:
    part.host_view()[...] = column.host_view().reshape(part.shape)
    _copy_flags(column, part)


def _padding_written(records: DeviceNDArray) -> None:
    """Note that nothing is missing of records whose fields all have values: nothing writes the bytes between them."""
    flags = records.allocation.unwritten(records.host_view()) if records.size else None
    if flags is not None:
        whole = np.zeros(records.dtype.itemsize, bool)
        _mark_fields(records.dtype, whole)
        flags[~flags[..., whole].any(axis=-1)] = False


def _mark_fields(dtype: np.dtype[Any], of_bytes: np.ndarray) -> None:
    """Set the flags of the bytes of a record that belong to fields."""
    for name in dtype.names or ():
        inner, offset = dtype.fields[name][:2]  # type: ignore[index]
        if inner.base.names:
            for at in range(offset, offset + inner.itemsize, inner.base.itemsize):
                _mark_fields(inner.base, of_bytes[at : at + inner.base.itemsize])
        else:
            of_bytes[offset : offset + inner.itemsize] = True


def _copy_flags(source: DeviceNDArray, target: DeviceNDArray) -> None:
    """Copy which bytes of an array nothing has written to an array of as many elements."""
    view = target.host_view()
    flags = source.allocation.unwritten(source.host_view())
    if flags is None:
        target.allocation.mark_written(view)
        return
    own = target.allocation.unwritten(view)
    if own is not None:  # otherwise the target has been written, and its source is a copy of it
        own[...] = flags.reshape(own.shape)


def _raise(program: NumbaProgram, record: np.ndarray) -> None:
    """Raise the error that a kernel has recorded."""
    number = int(record[0])
    if not number:
        return
    kind, arguments, name, line = program.errors[number - 1]
    thread, block = (list(map(int, record[at : at + 3])) for at in (1, 4))
    where = f"tid={thread} ctaid={block}"
    message = f"In function {name!r}, file {program.program.file}, line {line}, {where}"
    if arguments:
        raise kind(f"{message}: {arguments[0]}", *arguments[1:])
    raise kind(message)
