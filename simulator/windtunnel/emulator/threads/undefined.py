"""Values that a shuffle gives when it reads a lane that takes no part in it, and elements that were never set.

Many right kernels pass such values on and never use them, so a finding needs a use: a store to memory that others
see, an atomic operation, an index. Operations on an undefined value give an undefined value. A condition of one is
decided by its number, without a finding, because what depends on it is not followed.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from windtunnel.core.errors import UninitializedRead
from windtunnel.emulator.common.launch import Launch


class Undefined(np.lib.mixins.NDArrayOperatorsMixin):
    """A number that depends on what a shuffle has read of a lane that takes no part in it.

    Attributes:
        value: The number that the emulator computes with.
        line: Line of the shuffle.
        reader: The thread that read it, by its number in the launch.
        lane: The lane that was read; -1 if the number is that of an element that was never set.
    """

    __slots__ = ("lane", "line", "reader", "value")

    def __init__(self, value: Any, line: int, reader: int, lane: int = -1) -> None:
        self.value, self.line, self.reader, self.lane = value, line, reader, lane

    def of(self, value: Any) -> Undefined:
        """Return another number that depends on the same read."""
        return Undefined(value, self.line, self.reader, self.lane)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Return what an operation gives, as undefined as its operand."""
        made = getattr(ufunc, method)(*map(number_of, inputs), **options)
        return tuple(map(self.of, made)) if isinstance(made, tuple) else self.of(made)

    def __bool__(self) -> bool:
        """Return whether the number is not 0."""
        return bool(self.value)


def number_of(value: Any) -> Any:
    """Return a value's number, undefined or not."""
    return value.value if isinstance(value, Undefined) else value


def require_defined(launch: Launch, thread: int, line: int, *values: Any) -> None:
    """Raise UninitializedRead if a thread uses a value that is undefined."""
    for value in values:
        if isinstance(value, Undefined):
            reader, where = launch.describe_thread(value.reader), launch.describe_line(value.line)
            origin = f"what {reader} has read at {where} before any write, and lanes have passed on"
            if value.lane >= 0:
                for_whom = "" if value.reader == thread else f", for {reader}"
                origin = (
                    f"what the shuffle at {where} has read of lane {value.lane}{for_whom}: that lane has ended, or "
                    "takes no part in the shuffle"
                )
            raise UninitializedRead(
                f"{launch}: undefined value: {launch.describe_thread(thread)} uses at {launch.describe_line(line)} "
                f"{origin}",
                **launch.position_of(line, value.line),
                threads=(launch.thread(thread),),
            )


class UndefinedAware:
    """The functions of a module, for arguments of which some may be undefined."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a function of the module, whose result is undefined if an argument is."""
        made = aware(getattr(self._module, name))
        setattr(self, name, made)
        return made


def aware(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose result is undefined if an argument is."""

    def call(*arguments: Any) -> Any:
        for one in arguments:
            if isinstance(one, Undefined):
                return one.of(function(*map(number_of, arguments)))
        return function(*arguments)

    return call
