"""The calls of a driver that a back end for programs implements in its module ``driver``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from windtunnel.codegen import Emitted
from windtunnel.core.errors import DeviceError
from windtunnel.runtime.codes import Reason
from windtunnel.runtime.interface import Dims, MemoryKind

Q = TypeVar("Q")
"""A queue of the driver."""
M = TypeVar("M")
"""A mark: a point in the work of a queue."""


@dataclass(frozen=True)
class Problem:
    """A driver's exception, translated."""

    kind: type[DeviceError] | None
    """None if the driver does not say which kind of error it is."""
    message: str
    reason: Reason | None = None
    """Selects the API's error code, if the kind alone does not."""


class Driver(Protocol[Q, M]):
    """A driver's calls on one device. Bytes are one-dimensional, contiguous ``uint8`` arrays.

    Work of a queue is executed in order. ``after`` lists marks of other queues that the work waits for, too. Methods
    raise the driver's own exceptions, which ``problem`` translates.
    """

    target: str
    """Target language of `windtunnel.codegen`; empty if kernels are not emitted."""
    timed: bool
    """Whether `busy_s` will be called; timing a launch costs time on some drivers. Set by the code that measures."""

    def allocate(self, size: int, kind: MemoryKind) -> Any:
        """Allocate ``size`` bytes."""

    def free(self, memory: Any) -> None:
        """Free memory that no work uses any more."""

    def write(self, memory: Any, data: np.ndarray, queue: Q, after: Sequence[M], *, hold: bool) -> M:
        """Copy from host to device. With ``hold`` the host waits until ``data`` may be changed again."""

    def read(self, data: np.ndarray, memory: Any, queue: Q, after: Sequence[M], *, hold: bool) -> M:
        """Copy from device to host. With ``hold`` the host waits for the copy."""

    def copy(self, to: Any, memory: Any, size: int, queue: Q, after: Sequence[M]) -> M:
        """Copy within the device."""

    def build(self, emitted: Emitted) -> Any:
        """Compile a kernel."""

    def launch(
        self,
        kernel: Any,
        emitted: Emitted,
        grid: Dims,
        block: Dims,
        values: Sequence[Any],
        queue: Q,
        after: Sequence[M],
    ) -> M:
        """Enqueue a kernel. ``values`` are memory or NumPy scalars, in the order of the signature."""

    def queue(self, *, non_blocking: bool) -> Q:
        """Create a queue."""

    def mark(self, queue: Q, after: Sequence[M]) -> M:
        """Return the mark after all work that the queue was given so far."""

    def reached(self, mark: M) -> bool:
        """Return whether the device has reached the mark."""

    def wait(self, mark: M) -> None:
        """Wait until the device has reached the mark."""

    def finish(self, queue: Q) -> None:
        """Wait until all work of the queue has completed."""

    def elapsed_s(self, mark: M, since: M) -> float:
        """Return the seconds between two reached marks; negative if ``mark`` comes before ``since``."""

    def busy_s(self, mark: M) -> float | None:
        """Return the device time of the work that ends with a reached mark; None if it is not reported."""

    def host_view(self, memory: Any, size: int) -> np.ndarray:
        """Return pinned or unified memory as the host sees it."""

    def problem(self, error: Exception) -> Problem | None:
        """Translate an exception; None if it is not one of the driver's."""

    def energy_j(self) -> float | None:
        """Return the device's energy counter (J, any origin); None if it has none."""

    def close(self) -> None:
        """Release what the driver holds. After a reset, the next call opens the device again."""
