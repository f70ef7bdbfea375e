"""The accelerator that a program holds: typed buffers, launches, streams and budgets over any back end's context."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from windtunnel.core.errors import InvalidArgument, LaunchError, WindtunnelError
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.codes import code_of
from windtunnel.runtime.interface import Context, DeviceInfo, Event, Function, MemoryKind, Stream
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.limits import dims, exceeded, launch_configuration


class BudgetExceeded(WindtunnelError, AssertionError):
    """A program took more than it was expected to. An AssertionError, so that a test fails by it."""


@dataclass
class Counters:
    """What was asked of an accelerator so far."""

    launches: int = 0
    copied_bytes: int = 0
    allocations: int = 0


class Accelerator:
    """A device under one interface, emulated or real.

    >>> a = accelerator.to_device(np.ones(1000, np.float32))
    >>> accelerator.launch(double, (4,), (256,), a)
    >>> accelerator.to_host(a)
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.counters = Counters()
        self._functions: dict[Any, Function] = {}

    @property
    def info(self) -> DeviceInfo:
        """What is known of the device."""
        return self.context.info

    @property
    def name(self) -> str:
        """The device's label."""
        return self.context.info.name

    @property
    def clock_s(self) -> float:
        """The host's clock (s): virtual for an emulated device."""
        return self.context.clock_s

    @property
    def energy_j(self) -> float:
        """Energy of the device since it was opened (J)."""
        return self.context.energy_j

    @property
    def allocated_bytes(self) -> int:
        """Device memory in use."""
        return self.context.allocated_bytes

    # Memory.

    def empty(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, kind: MemoryKind = "device"
    ) -> Buffer:
        """A buffer whose elements are not written yet."""
        sides = (shape,) if isinstance(shape, int) else tuple(int(side) for side in shape)
        element = np.dtype(dtype)
        size = int(np.prod(sides, dtype=np.int64)) * element.itemsize
        if element.hasobject or size <= 0 or min(sides) < 1:
            raise self._wrong(InvalidArgument, "allocate", f"{sides} elements of {element} are no array of numbers")
        memory = self.context.allocate(size, kind)
        self.counters.allocations += 1
        return Buffer(self, memory, sides, element)

    def to_device(
        self, array: npt.ArrayLike, stream: Stream | None = None, *, pinned: bool = False, kind: MemoryKind = "device"
    ) -> Buffer:
        """A new buffer that holds ``array``. Buffers are given through as they are."""
        if isinstance(array, Buffer):
            return array
        values = np.asarray(array)
        buffer = self.empty(values.shape or (1,), values.dtype, kind=kind)
        self.copy_in(buffer, values, stream, pinned=pinned)
        return buffer

    def to_host(self, buffer: Buffer, stream: Stream | None = None) -> np.ndarray:
        """A new array that holds what ``buffer`` does; the host waits for it."""
        found = np.empty(buffer.shape, buffer.dtype)
        self.copy_out(found, buffer, stream)
        return found

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: Stream | None = None, *, pinned: bool = False) -> None:
        """Host to device, into an existing buffer."""
        buffer.copy_from(array, stream, pinned=pinned)
        self.counters.copied_bytes += np.asarray(array).nbytes

    def copy_out(
        self, array: np.ndarray, buffer: Buffer, stream: Stream | None = None, *, pinned: bool = False
    ) -> None:
        """Device to host, into an existing array."""
        buffer.copy_to(array, stream, pinned=pinned)
        self.counters.copied_bytes += array.nbytes

    # Kernels.

    def launch(
        self,
        kernel: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        stream: Stream | None = None,
        shared_bytes: int = 0,
    ) -> None:
        """Enqueue a kernel. LaunchError for a configuration that the device does not allow."""
        function = self._functions.get(kernel)
        if function is None:
            marked = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
            function = self._functions[kernel] = self.context.compile(marked)
        operation = f"launch {function.name}"
        try:
            sizes = dims(grid), dims(block)
        except (TypeError, ValueError) as error:
            raise self._wrong(LaunchError, operation, str(error)) from None
        beyond = exceeded(self.info.limits, *sizes, shared_bytes)
        if beyond is not None:
            raise self._wrong(LaunchError, operation, beyond)
        given = [self._argument(operation, i, argument) for i, argument in enumerate(arguments)]
        self.context.launch(function, *sizes, given, stream, shared_bytes)
        self.counters.launches += 1

    def _argument(self, operation: str, place: int, argument: Any) -> Any:
        if isinstance(argument, Buffer):
            argument.alive(operation)
            if argument.owner.context is not self.context:
                problem = f"argument {place} is {argument!r}, of another device"
                raise self._wrong(InvalidArgument, operation, problem)
            return argument
        if isinstance(argument, np.ndarray) and argument.ndim:
            problem = f"argument {place} is an array of the host's; a kernel takes what to_device() gives"
            raise self._wrong(InvalidArgument, operation, problem)
        return argument

    def configuration(self, elements: int, block: int = 256) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(grid, block) for one thread an element: see ``limits.launch_configuration``."""
        return launch_configuration(elements, self.info.limits, block)

    def stream(self, *, non_blocking: bool = False) -> Stream:
        """A new stream."""
        found: Stream = self.context.stream(non_blocking=non_blocking)
        return found

    def event(self) -> Event:
        """A new event."""
        found: Event = self.context.event()
        return found

    def synchronize(self) -> None:
        """Wait until all work has ended."""
        self.context.synchronize()

    # Whole computations.

    def compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """``kernel`` of ``arrays`` and a result like the first of them: copied in, launched, copied back."""
        return self._finish(*self._begin(kernel, arrays))

    async def async_compute(self, kernel: Kernel | Callable[..., Any], *arrays: npt.ArrayLike) -> np.ndarray:
        """The same on a stream of its own: what is awaited together overlaps as far as the device lets it."""
        begun = self._begin(kernel, arrays, self.stream(non_blocking=True))
        await asyncio.sleep(0)
        return self._finish(*begun)

    def _begin(
        self, kernel: Kernel | Callable[..., Any], arrays: Sequence[npt.ArrayLike], stream: Stream | None = None
    ) -> tuple[Buffer, list[Buffer], Stream | None]:
        pinned = stream is not None
        inputs = [self.to_device(np.asarray(array), stream, pinned=pinned) for array in arrays]
        result = self.empty(inputs[0].shape, inputs[0].dtype)
        grid, block = self.configuration(result.size)
        self.launch(kernel, grid, block, *inputs, result, stream=stream)
        return result, inputs, stream

    def _finish(self, result: Buffer, inputs: list[Buffer], stream: Stream | None) -> np.ndarray:
        found = self.to_host(result, stream)
        for buffer in (*inputs, result):
            buffer.free()
        return found

    # Budgets.

    @contextmanager
    def expect(
        self,
        *,
        time_s: float | None = None,
        energy_j: float | None = None,
        launches: int | None = None,
        copied_bytes: int | None = None,
    ) -> Iterator[None]:
        """What is done within must not take more than this; BudgetExceeded says which figure did, and by how much."""
        before = self._spent()
        yield
        spent = {name: value - before[name] for name, value in self._spent().items()}
        limits = {"time_s": time_s, "energy_j": energy_j, "launches": launches, "copied_bytes": copied_bytes}
        over = [
            f"{name} {spent[name]:.6g}, of at most {limit:.6g}"
            for name, limit in limits.items()
            if limit is not None and spent[name] > limit * (1 + 1e-12)
        ]
        if over:
            raise BudgetExceeded(f"{self.name} took more than was expected: {'; '.join(over)}")

    def _spent(self) -> dict[str, float]:
        return {
            "time_s": self.clock_s,
            "energy_j": self.energy_j,
            "launches": self.counters.launches,
            "copied_bytes": self.counters.copied_bytes,
        }

    def close(self) -> None:
        """Give the device back."""
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'emulated' if self.info.virtual else 'real'} {self.name}>"

    def _wrong(self, error: type[Any], operation: str, problem: str) -> Any:
        return error(problem, operation=operation, device=self.name, code=code_of(self.info.api, error))
