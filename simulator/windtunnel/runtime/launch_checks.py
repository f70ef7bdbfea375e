"""Checks of launches: kernels are compiled, and configurations and arguments are checked, before they are enqueued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any, Protocol

import numpy as np

from windtunnel.core.errors import InvalidArgument, LaunchError, caller
from windtunnel.runtime.buffers import Buffer
from windtunnel.runtime.codes import Reason
from windtunnel.runtime.interface import Context, Dims, Function
from windtunnel.runtime.kernels import Kernel
from windtunnel.runtime.limits import dims, exceeded


class LaunchDevice(Protocol):
    """The accelerator that launches belong to, as far as their checks use it."""

    context: Context

    def make_error(self, error: type[Any], operation: str, problem: str, reason: Reason | None = None) -> Any:
        """Create an error of this device, with the API's code."""

    def check_buffer(self, buffer: Buffer, operation: str, what: str = "") -> None:
        """Raise InvalidArgument for a buffer of another device, and UseAfterFree for a freed one."""


class LaunchChecks:
    """The compiled kernels of one accelerator, and the launch configurations that are known to be valid."""

    def __init__(self, device: LaunchDevice) -> None:
        self._device = device
        self._functions: dict[Any, Function] = {}
        self._sizes: dict[Any, tuple[Dims, Dims]] = {}
        """(grid, block) by launch configuration."""

    def compile(self, kernel: Kernel | Callable[..., Any]) -> None:
        """Compile a kernel, at the API's cost."""
        self._functions[kernel] = self._device.context.compile(marked(kernel))

    def prepare(
        self,
        kernel: Kernel | Callable[..., Any],
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int,
    ) -> tuple[Function, tuple[Dims, Dims], list[Any]]:
        """Check a launch; return the compiled kernel, (grid, block) and the arguments."""
        function = self._functions.get(kernel)
        if function is None:
            function = self._functions[kernel] = self._device.context.compile(marked(kernel), shipped=True)
        operation = "launch " + function.name
        # A program launches few configurations many times, so each is checked once. The types are part of the key
        # because True equals 1 but is not a size.
        key: Any = (grid, block, shared_bytes, type(grid), type(block))
        try:
            sizes = self._sizes.get(key)
        except TypeError:  # a list is not hashable
            key = sizes = None
        if sizes is None:
            sizes = self._check_sizes(operation, grid, block, shared_bytes)
            if key is not None:
                self._sizes[key] = sizes
        structs = bool(getattr(getattr(kernel, "function", None), "structs", False))
        checked = [self._check_argument(operation, i, one, structs=structs) for i, one in enumerate(arguments)]
        return function, sizes, checked

    def _check_sizes(
        self, operation: str, grid: int | Sequence[int], block: int | Sequence[int], shared_bytes: int
    ) -> tuple[Dims, Dims]:
        try:
            sizes = dims(grid), dims(block)
        except (TypeError, ValueError) as error:
            raise self._device.make_error(LaunchError, operation, str(error), "configuration") from None
        problem = exceeded(self._device.context.info.limits, *sizes, shared_bytes)
        if problem is not None:
            raise self._device.make_error(LaunchError, operation, problem, "configuration")
        return sizes

    def _check_argument(self, operation: str, position: int, argument: Any, *, structs: bool) -> Any:
        if isinstance(argument, Buffer):
            self._device.check_buffer(argument, operation, f"argument {position} is ")
            return argument
        if isinstance(argument, np.ndarray) and argument.ndim:
            file, line = caller()
            problem = (
                f"argument {position} is an array of the host ({argument.dtype}, {argument.size:,} elements) at "
                f"{file}:{line}; pass the buffer that to_device() returns"
            )
            raise self._device.make_error(InvalidArgument, operation, problem)
        if (
            structs
            and isinstance(argument, (list, tuple))
            and all(isinstance(n, (Number, np.generic)) for n in argument)
        ):
            return tuple(argument)
        if not isinstance(argument, (Number, np.generic, np.ndarray)):
            problem = f"argument {position} is {argument!r}; a kernel takes buffers and numbers"
            raise self._device.make_error(InvalidArgument, operation, problem)
        return argument


def marked(kernel: Kernel | Callable[..., Any]) -> Kernel:
    """Return a function as a `Kernel`."""
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)
